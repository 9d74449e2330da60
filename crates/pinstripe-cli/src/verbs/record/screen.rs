//! The live screen of a recorder: a meter for each stream, and whether the disk keeps up.
//!
//! The screen shows only the status of the take and the levels, so that tests can draw it without a
//! terminal. A thread of its own draws the screen five times a second, on standard error. Messages
//! are held back until the screen has ended.

mod terminal;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use crossterm::style::{Color, StyledContent, Stylize as _};
use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::Stop;
use pinstripe_base::units::{format_count, format_size};
use pinstripe_record::{
    ALARM_PERCENT, LevelReader, RunningTake, StreamLevel, StreamStatus, TakeOrder, TakePhase,
    TakeStatus,
};

use self::terminal::{StyledRow, TakenTerminal};
use super::tell::clock;
use crate::escape;
use crate::message::counted;
use crate::run::Run;

/// The interval at which the screen is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(200);
/// How long the highest level stays visible.
const HOLD: Duration = Duration::from_secs(2);
/// The number of columns of one stream, with the gap after it.
const CELL: usize = 19;
const GAP: usize = 1;
/// The number of columns of a name.
const NAME: usize = 7;
/// The number of columns of a meter.
const METER: usize = 5;
/// The number of lines above the streams.
const HEAD: usize = 3;
/// The number of lines below the streams.
const FOOT: usize = 1;
/// How long a level is shown when no newer one arrives.
const FADE: Duration = Duration::from_millis(1500);
/// The level at which a meter is empty.
const FLOOR_DBFS: f64 = -60.0;
/// How long the screen shows why a key did nothing.
const TOLD_FOR: Duration = Duration::from_secs(3);
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A screen, which is drawn until this object is dropped.
pub struct TakeScreen<'a> {
    run: &'a Run,
    over: Arc<Stop>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl<'a> TakeScreen<'a> {
    /// Takes control of the terminal.
    ///
    /// # Errors
    /// Fails when the terminal refuses; the take then continues without the screen.
    pub fn start(run: &'a Run, take: &Arc<RunningTake>) -> Result<Self> {
        let over = Arc::new(Stop::new()?);
        let opened = TakenTerminal::new();
        let terminal =
            opened.map_err(|error| Error::io("cannot draw on", "the terminal", error))?;
        run.screen.hold_messages(true);
        let (take, ended) = (Arc::clone(take), Arc::clone(&over));
        let thread = Some(std::thread::spawn(move || show(terminal, &take, &ended)));
        Ok(TakeScreen { run, over, thread })
    }
}

impl Drop for TakeScreen<'_> {
    fn drop(&mut self) {
        self.over.set();
        if let Some(thread) = self.thread.take() {
            // The screen only shows: its failure must not fail the take.
            let _ = thread.join();
        }
        self.run.screen.hold_messages(false);
    }
}

fn show(mut terminal: TakenTerminal, take: &RunningTake, over: &Stop) -> io::Result<()> {
    let mut view = ScreenState::default();
    while !over.is_set() {
        view.levels(&take.levels(LevelReader::Screen), Instant::now());
        let size = crossterm::terminal::size()?;
        terminal.draw(size, &view.draw(size, &take.status()))?;
        if event::poll(DRAW_EVERY)?
            && let Event::Key(key) = event::read()?
            && let Some(order) = view.key(key)
        {
            // An order that cannot be obeyed now is dropped, and the screen shows why.
            let done = take.obey(&order);
            view.told = done.err().map(|error| (error.to_string(), Instant::now()));
        }
    }
    Ok(())
}

/// The level that is shown, and the recent maximum.
#[derive(Debug, Clone, Copy)]
struct ShownLevel {
    level: Option<f64>,
    level_at: Instant,
    held: f64,
    held_at: Instant,
    clips: u64,
}

/// The state of the screen.
#[derive(Default)]
struct ScreenState {
    shown: Vec<ShownLevel>,
    /// The first visible line of streams.
    top: usize,
    /// The number of lines of streams that fit on the screen.
    lines: usize,
    /// The reason why the last key did nothing, and the time of that key.
    told: Option<(String, Instant)>,
}

impl ScreenState {
    /// Takes new levels.
    fn levels(&mut self, levels: &[StreamLevel], now: Instant) {
        let empty =
            ShownLevel { level: None, level_at: now, held: FLOOR_DBFS, held_at: now, clips: 0 };
        self.shown.resize(levels.len(), empty);
        for (shown, level) in self.shown.iter_mut().zip(levels) {
            shown.clips = level.clips;
            // A slow stream may have no new data since the last update.
            if level.dbfs().is_some() || now.duration_since(shown.level_at) >= FADE {
                (shown.level, shown.level_at) = (level.dbfs(), now);
            }
            let is_over = now.duration_since(shown.held_at) >= HOLD;
            let level = level.dbfs().unwrap_or(FLOOR_DBFS).max(FLOOR_DBFS);
            if level >= shown.held || is_over {
                (shown.held, shown.held_at) = (level, now);
            }
        }
    }

    /// The order to the take that a key stands for, if any.
    fn key(&mut self, key: KeyEvent) -> Option<TakeOrder> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Some(TakeOrder::Stop),
            KeyCode::Char('q') => return Some(TakeOrder::Stop),
            KeyCode::Char('r') if !is_control => return Some(TakeOrder::Start),
            KeyCode::Char('m') if !is_control => return Some(TakeOrder::Mark(String::new())),
            KeyCode::Char('s') if !is_control => return Some(TakeOrder::Split),
            KeyCode::Down => self.top += 1,
            KeyCode::Up => self.top = self.top.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.top += self.lines.max(1),
            KeyCode::PageUp => self.top = self.top.saturating_sub(self.lines.max(1)),
            KeyCode::Home => self.top = 0,
            _ => {}
        }
        None
    }

    fn draw(&mut self, (width, height): (u16, u16), status: &TakeStatus) -> Vec<StyledRow> {
        let (width, height) = (usize::from(width), usize::from(height));
        self.lines = height.saturating_sub(HEAD + FOOT).max(1);
        let (columns, name) = columns(width, self.lines, status);
        let lines = status.streams.div_ceil(columns);
        self.top = self.top.min(lines.saturating_sub(self.lines));
        let mut out = head(status);
        for line in self.top..(self.top + self.lines).min(lines) {
            let numbers = (0..columns).map(|column| column + line * columns);
            let mut spans = Vec::new();
            for (number, stream) in numbers.filter_map(|it| Some((it, status.by_stream.get(it)?))) {
                spans.extend(self.cell(number, stream, name));
            }
            out.push(spans);
        }
        out.resize(HEAD + self.lines, StyledRow::new());
        let (first, last) = (self.top * columns + 1, (self.top + self.lines) * columns);
        let told = self.told.as_ref().filter(|(_, at)| at.elapsed() < TOLD_FOR);
        out.push(match told {
            Some((why, _)) => vec![escape::text(why).to_string().dark_yellow()],
            None => {
                let text = format!(
                    "streams {first} to {} of {}   arrows, space: others   {}",
                    last.min(status.streams),
                    status.streams,
                    keys(status.phase),
                );
                vec![text.stylize()]
            }
        });
        out
    }

    /// The cell of a stream, as in `iano-l ███▌| -12▂▄ `: name, meter with the recent maximum,
    /// level, ring fill now and at its worst, and `C` for clips or `!` for overruns.
    fn cell(&self, number: usize, stream: &StreamStatus, width: usize) -> StyledRow {
        let shown = self.shown.get(number);
        let name: String = escape::text(&stream.name).to_string();
        // The end of a name tells more streams apart than its beginning. A column stays between it and
        // the meter.
        let skipped = name.chars().count().saturating_sub(width - 1);
        let name: String = name.chars().skip(skipped).collect();
        let (meter, level) = match shown {
            Some(it) => (meter(it), it.level.map_or("   -".to_owned(), decibels)),
            None => (" ".repeat(METER), "   -".to_owned()),
        };
        let clips = shown.map_or(0, |it| it.clips);
        let color = match shown.and_then(|it| it.level) {
            _ if !stream.is_armed => Color::DarkGrey,
            _ if clips > 0 => Color::DarkRed,
            Some(level) if level > -6.0 => Color::DarkYellow,
            _ => Color::DarkGreen,
        };
        let worst = stream.ring_worst_percent;
        let rings = format!("{}{}", fill(stream.ring_percent), fill(worst));
        let flag = match (stream.overruns, clips) {
            _ if !stream.is_armed => '-',
            (1.., _) => '!',
            (_, 1..) => 'C',
            _ => ' ',
        };
        vec![
            format!("{name:<width$}").stylize(),
            meter.with(color),
            level.stylize(),
            if worst >= ALARM_PERCENT { rings.dark_red() } else { rings.stylize() },
            format!("{flag}{}", " ".repeat(GAP)).dark_red(),
        ]
    }
}

/// The number of streams in one line, and the width of their names: each line has as few streams as
/// possible while all are visible, so that names have room.
fn columns(width: usize, lines: usize, status: &TakeStatus) -> (usize, usize) {
    let longest = status.by_stream.iter().map(|it| escape::text(&it.name).chars().count());
    let wanted = longest.max().unwrap_or(0) + 1;
    let most = ((width + GAP) / (CELL + GAP)).max(1);
    let room = |columns: usize| ((width + GAP) / columns).saturating_sub(CELL + GAP) + NAME;
    let fits = |columns: &usize| status.streams.div_ceil(*columns) <= lines;
    let fitting = || (1..=most).rev().filter(fits);
    let chosen = fitting().find(|it| room(*it) >= wanted).or_else(|| fitting().next_back());
    let columns = chosen.unwrap_or(most);
    (columns, room(columns).min(wanted).max(NAME))
}

/// Formats a level; zero has no sign.
fn decibels(level: f64) -> String {
    format!("{:4.0}", level.round() + 0.0)
}

/// What keys do.
fn keys(phase: TakePhase) -> &'static str {
    match phase {
        TakePhase::Armed => "r: record   q: end",
        TakePhase::Recording => "m: mark   s: split   q: stop",
        TakePhase::Stopping => "",
    }
}

/// A block character that shows the fill of a ring in eighths; a ring that is not empty shows at
/// least one eighth.
fn fill(percent: f64) -> char {
    let eighths = (percent / 100.0 * 8.0).ceil().clamp(0.0, 8.0);
    EIGHTHS[eighths as usize]
}

/// A bar from -60 dBFS to full scale, with a line at the recent maximum.
fn meter(shown: &ShownLevel) -> String {
    let place = |level: f64| ((level - FLOOR_DBFS) / -FLOOR_DBFS).clamp(0.0, 1.0) * METER as f64;
    let level = shown.level.map_or(0.0, place);
    let held = (place(shown.held).ceil() as usize).min(METER);
    let cell = |number: usize| match (level - number as f64).clamp(0.0, 1.0) {
        full if full >= 0.75 => '█',
        half if half >= 0.25 => '▌',
        _ if number + 1 == held => '│',
        _ => '·',
    };
    (0..METER).map(cell).collect()
}

/// The phase in large words: `REC`, `ARMED`, or `ARMED, 10 s of pre-roll`.
fn phase_of(status: &TakeStatus) -> StyledContent<String> {
    let (text, color) = match status.phase {
        TakePhase::Armed if status.pre_roll_seconds > 0.0 => {
            let text = format!(" ARMED {:.0} s of pre-roll ", status.pre_roll_seconds);
            (text, Color::DarkYellow)
        }
        TakePhase::Armed => (" ARMED ".to_owned(), Color::DarkYellow),
        TakePhase::Recording => (" REC ".to_owned(), Color::DarkRed),
        TakePhase::Stopping => (" STOPPING ".to_owned(), Color::Grey),
    };
    text.black().on(color)
}

/// The lines with information about all streams together.
fn head(status: &TakeStatus) -> Vec<StyledRow> {
    let left = status.left_seconds.map_or("unknown".to_owned(), clock);
    let (text, color) = if status.overruns > 0 || status.missing_frames > 0 {
        let lost = status.lost_frames + status.missing_frames;
        let text =
            format!("{}, {} frames lost", counted(status.overruns, "OVERRUN"), format_count(lost));
        (text, Color::DarkRed)
    } else if status.has_alarm {
        ("A RING WAS OVER 80 % FULL".to_owned(), Color::DarkYellow)
    } else {
        ("nothing lost".to_owned(), Color::DarkGreen)
    };
    let fullest = status.by_stream.iter().max_by(|a, b| {
        a.ring_worst_percent.partial_cmp(&b.ring_worst_percent).unwrap_or(std::cmp::Ordering::Equal)
    });
    let fullest = fullest.map_or(String::new(), |it| escape::text(&it.name).to_string());
    let streams = match status.streams - status.armed_streams {
        0 => counted(status.streams as u64, "stream"),
        _ => format!("{} of {}", status.armed_streams, counted(status.streams as u64, "stream")),
    };
    let take = format!(
        " {}  {streams}  {}  left {left}  {}",
        clock(status.elapsed_seconds),
        format_size(status.written_bytes),
        // Last: where a long name is cut off, nothing else is.
        escape::text(&status.take),
    );
    let ring = format!(
        "  ring {:.0} % (worst {:.0} %: {fullest})",
        status.ring_percent, status.ring_worst_percent
    );
    let disk = format!(
        "durable lag {:.1} s (worst {:.1})  longest write {:.0} ms  slowest sync {:.0} ms",
        status.durable_lag_ms / 1e3,
        status.durable_lag_worst_ms / 1e3,
        status.longest_write_ms,
        status.slowest_sync.ms,
    );
    vec![
        vec![phase_of(status), take.stylize()],
        vec![text.with(color), ring.stylize()],
        vec![disk.stylize()],
    ]
}

#[cfg(test)]
mod tests;
