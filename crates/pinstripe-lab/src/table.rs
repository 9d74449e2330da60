//! A table of results, shown as aligned text, as Markdown, or as JSON.
//!
//! A number keeps its full value in JSON and is rounded only in text for people. Numbers are
//! aligned to the right and text to the left, whatever the column.

use serde_json::{Map, Value, json};

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number, and the number of decimals that are shown.
    Number(f64, usize),
}

impl Cell {
    fn read(text: String) -> Cell {
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        match text.parse() {
            Ok(number) => Cell::Number(number, decimals),
            Err(_) => Cell::Text(text),
        }
    }

    fn show(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Number(value, decimals) => format!("{value:.decimals$}"),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Cell {
        Cell::Number(count as f64, 0)
    }
}

/// The side of its column to which a cell is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A titled table with a note on how it was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    title: String,
    note: String,
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table. The note describes what was measured and how, in complete sentences.
    pub fn new(title: &str, note: impl Into<String>, columns: &[(&str, Align)]) -> Table {
        let columns = columns.iter().map(|(name, align)| ((*name).to_owned(), *align)).collect();
        Table { title: title.to_owned(), note: note.into(), columns, rows: Vec::new() }
    }

    /// Makes a table from rows of words: the first row is the heading, and a word that can be
    /// parsed as a number becomes a number.
    pub fn from_rows(title: &str, note: impl Into<String>, rows: Vec<Vec<String>>) -> Table {
        let mut rows = rows.into_iter();
        let header = rows.next().unwrap_or_default();
        let rows: Vec<Vec<Cell>> =
            rows.map(|row| row.into_iter().map(Cell::read).collect()).collect();
        let align = |at: usize| match rows.iter().any(|row| matches!(row[at], Cell::Number(..))) {
            true => Align::Right,
            false => Align::Left,
        };
        let columns = header.into_iter().enumerate().map(|(at, name)| (name, align(at))).collect();
        Table { title: title.to_owned(), note: note.into(), columns, rows }
    }

    /// Adds to the title what distinguishes the table from others of the same title.
    #[must_use]
    pub(crate) fn with_subtitle(mut self, text: &str) -> Table {
        self.title = format!("{}, {text}", self.title);
        self
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Panics if the number of cells differs from the number of columns.
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        assert_eq!(N, self.columns.len(), "a row has one cell for each column");
        self.rows.push(cells.into());
    }

    /// Adds a row of words; a word that can be parsed as a number becomes a number.
    ///
    /// # Panics
    /// Panics if the number of words differs from the number of columns.
    pub fn words(&mut self, words: Vec<String>) {
        assert_eq!(words.len(), self.columns.len(), "a row has one word for each column");
        self.rows.push(words.into_iter().map(Cell::read).collect());
    }

    /// Formats the table with columns padded to equal width, for a terminal.
    pub fn to_text(&self) -> String {
        let cells = self.shown();
        let widths = self.widths(&cells);
        let mut text = format!("{}\n", self.title);
        for (number, row) in cells.iter().enumerate() {
            let padded: Vec<String> =
                (0..row.len()).map(|at| pad(&row[at], widths[at], self.columns[at].1)).collect();
            text.push_str(padded.join("  ").trim_end());
            text.push('\n');
            if number == 0 {
                let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                text.push_str(&format!("{}\n", rules.join("  ")));
            }
        }
        if !self.note.is_empty() {
            text.push_str(&format!("{}\n", self.note));
        }
        text
    }

    /// Formats a Markdown table that is aligned in its source, too.
    pub fn to_markdown(&self) -> String {
        let escaped = |row: Vec<String>| row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let cells: Vec<Vec<String>> = self.shown().into_iter().map(escaped).collect();
        let widths: Vec<usize> = self.widths(&cells).iter().map(|width| *width.max(&3)).collect();
        let mut text = format!("### {}\n\n", self.title);
        for (number, row) in cells.iter().enumerate() {
            let padded: Vec<String> =
                (0..row.len()).map(|at| pad(&row[at], widths[at], self.columns[at].1)).collect();
            text.push_str(&format!("| {} |\n", padded.join(" | ")));
            if number == 0 {
                let rule = |(at, width): (usize, &usize)| match self.columns[at].1 {
                    Align::Left => "-".repeat(*width),
                    Align::Right => format!("{}:", "-".repeat(width - 1)),
                };
                let rules: Vec<String> = widths.iter().enumerate().map(rule).collect();
                text.push_str(&format!("| {} |\n", rules.join(" | ")));
            }
        }
        if !self.note.is_empty() {
            text.push_str(&format!("\n{}\n", self.note));
        }
        text
    }

    /// Returns the title, the note, the column names in order, and each row as an object with the
    /// column names as keys.
    pub fn to_json(&self) -> Value {
        let names: Vec<&String> = self.columns.iter().map(|(name, _)| name).collect();
        let value = |cell: &Cell| match cell {
            Cell::Text(text) => json!(text),
            Cell::Number(number, _) => json!(number),
        };
        let object = |row: &Vec<Cell>| -> Map<String, Value> {
            names.iter().zip(row).map(|(name, cell)| ((*name).clone(), value(cell))).collect()
        };
        let rows: Vec<_> = self.rows.iter().map(object).collect();
        json!({"title": self.title, "note": self.note, "columns": names, "rows": rows})
    }

    /// The heading.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The note that describes how the table was made; empty if none is needed.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// The alignment of each column.
    pub fn sides(&self) -> impl Iterator<Item = Align> {
        self.columns.iter().map(|(_, side)| *side)
    }

    /// Returns the heading and all rows as they are shown.
    pub fn shown(&self) -> Vec<Vec<String>> {
        let header = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(Cell::show).collect());
        std::iter::once(header).chain(rows).collect()
    }

    fn widths(&self, cells: &[Vec<String>]) -> Vec<usize> {
        let width = |at: usize| cells.iter().map(|row| row[at].chars().count()).max();
        (0..self.columns.len()).map(|at| width(at).unwrap_or(0)).collect()
    }
}

fn pad(text: &str, width: usize, align: Align) -> String {
    match align {
        Align::Left => format!("{text:<width$}"),
        Align::Right => format!("{text:>width$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = [("who", Align::Left), ("MB/s", Align::Right)];
        let mut table = Table::new("Speed", "One core.", &columns);
        table.row(["a|b".into(), Cell::Number(1234.567, 1)]);
        table.row(["é".into(), 7.into()]);
        table
    }

    #[test]
    fn text_is_aligned() {
        let lines =
            ["Speed", "who    MB/s", "---  ------", "a|b  1234.6", "é         7", "One core."];
        assert_eq!(table().to_text(), format!("{}\n", lines.join("\n")));
    }

    #[test]
    fn markdown_is_aligned_and_escaped() {
        let lines = [
            "### Speed",
            "",
            "| who  |   MB/s |",
            "| ---- | -----: |",
            "| a\\|b | 1234.6 |",
            "| é    |      7 |",
            "",
            "One core.",
        ];
        assert_eq!(table().to_markdown(), format!("{}\n", lines.join("\n")));
    }

    #[test]
    fn words_that_read_as_numbers_become_numbers() {
        let rows = [["who", "MB/s"], ["a", "12.50"], ["b", ""]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec()).to_vec();
        let table = Table::from_rows("Speed", "", rows);
        assert_eq!(table.to_json()["rows"][0]["MB/s"], json!(12.5));
        assert_eq!(table.to_text(), "Speed\nwho   MB/s\n---  -----\na    12.50\nb\n");
    }

    #[test]
    fn json_keeps_the_whole_number() {
        let value = table().to_json();
        assert_eq!(value["rows"][0]["MB/s"], json!(1234.567));
        assert_eq!(value["rows"][1]["who"], json!("é"));
        assert_eq!(value["columns"], json!(["who", "MB/s"]));
    }
}
