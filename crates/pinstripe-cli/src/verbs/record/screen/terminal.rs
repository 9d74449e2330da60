//! The terminal of the live screen: rows of coloured texts. Only rows that changed are written.

use std::io::{self, Write as _};

use crossterm::style::StyledContent;
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use unicode_width::UnicodeWidthChar as _;

/// The texts of a row from left to right, each with its colour.
pub type StyledRow = Vec<StyledContent<String>>;

/// The terminal while it is used; it is restored when this object is dropped.
#[derive(Default)]
pub struct TakenTerminal {
    size: (u16, u16),
    /// The rows that the terminal shows.
    rows: Vec<String>,
}

impl TakenTerminal {
    /// Takes control of the terminal.
    pub fn new() -> io::Result<Self> {
        enable_raw_mode()?;
        let taken = TakenTerminal::default();
        terminal::size()?;
        execute!(io::stderr(), EnterAlternateScreen, cursor::Hide)?;
        Ok(taken)
    }

    /// Writes the rows that differ from the shown ones.
    pub fn draw(&mut self, size: (u16, u16), lines: &[StyledRow]) -> io::Result<()> {
        let mut out = Vec::new();
        queue!(out, BeginSynchronizedUpdate)?;
        if self.size != size {
            queue!(out, Clear(ClearType::All))?;
            (self.size, self.rows) = (size, vec![String::new(); size.1.into()]);
        }
        for (y, (shown, line)) in (0..).zip(self.rows.iter_mut().zip(lines)) {
            let row: String = cut(line, size.0.into()).iter().map(ToString::to_string).collect();
            if *shown != row {
                // Cleared first: behind the last column the cursor stays at it.
                queue!(out, cursor::MoveTo(0, y), Clear(ClearType::CurrentLine))?;
                out.extend_from_slice(row.as_bytes());
                *shown = row;
            }
        }
        queue!(out, EndSynchronizedUpdate)?;
        io::stderr().write_all(&out)
    }
}

impl Drop for TakenTerminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _ = execute!(io::stderr(), LeaveAlternateScreen, cursor::Show);
        let _ = disable_raw_mode();
    }
}

/// The part of a line that fits into `width` columns.
pub fn cut(line: &StyledRow, width: usize) -> StyledRow {
    let mut left = width;
    let mut fits = |it: &char| {
        let rest = left.checked_sub(it.width().unwrap_or(0));
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    let part = |it: &StyledContent<String>| {
        StyledContent::new(*it.style(), it.content().chars().take_while(&mut fits).collect())
    };
    line.iter().map(part).collect()
}
