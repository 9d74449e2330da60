//! Results as a grid: one parameter of the variants selects the row, another the column.

use pinstripe_stats::median;

use crate::display;
use crate::histogram::Histogram;
use crate::result::{Results, Run, Variant};
use crate::table::Table;

/// A figure of a variant, and whether it is from disturbed runs because there are no other runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figure {
    pub value: f64,
    pub is_disturbed: bool,
}

impl Figure {
    /// Converts the figure to text; the text is marked if the figure is from disturbed runs.
    pub fn derive(self, text: impl FnOnce(f64) -> String) -> String {
        marked(text(self.value), self.is_disturbed)
    }

    /// The ratio of this figure to another one.
    pub fn over(self, other: Figure) -> Figure {
        let is_disturbed = self.is_disturbed || other.is_disturbed;
        Figure { value: self.value / other.value, is_disturbed }
    }
}

/// Puts the text in brackets if it is from disturbed runs.
pub fn marked(text: String, is_disturbed: bool) -> String {
    if is_disturbed { format!("({text})") } else { text }
}

/// The median of a quantity over the runs that count, or over all runs if none counts.
pub fn figure(variant: &Variant, of: impl Fn(&Run) -> Option<f64>) -> Option<Figure> {
    let counted: Vec<f64> =
        variant.runs.iter().filter(|it| it.is_valid()).filter_map(&of).collect();
    if let Some(value) = median(&counted) {
        return Some(Figure { value, is_disturbed: false });
    }
    let all: Vec<f64> = variant.runs.iter().filter_map(of).collect();
    median(&all).map(|value| Figure { value, is_disturbed: true })
}

/// The largest value of a quantity in the runs that count, or in all runs if none counts: a
/// recording must be ready for this value.
pub fn largest(variant: &Variant, of: impl Fn(&Run) -> Option<f64>) -> Option<Figure> {
    let counted = variant.runs.iter().filter(|it| it.is_valid()).filter_map(&of);
    let quiet = counted.reduce(f64::max).map(|value| Figure { value, is_disturbed: false });
    let all = || variant.runs.iter().filter_map(&of).reduce(f64::max);
    quiet.or_else(|| all().map(|value| Figure { value, is_disturbed: true }))
}

/// Returns the main value of a run.
pub fn value(run: &Run) -> Option<f64> {
    Some(run.measured.value)
}

/// Returns a function that selects an additional figure of a run by its name.
pub fn named(name: &str) -> impl Fn(&Run) -> Option<f64> + '_ {
    move |run| run.measured.figures.get(name).copied()
}

/// Formats a figure for a table, in brackets if all of its runs were disturbed.
pub fn cell(figure: Option<Figure>) -> String {
    match figure {
        None => "-".to_owned(),
        Some(figure) => figure.derive(display::figure),
    }
}

/// The number of requests that must be slower than a quantile; with fewer, the quantile would only
/// be the longest time.
const BEYOND: f64 = 2.0;

/// Formats a quantile of times for a table, or a sign that too few times were measured.
pub(crate) fn quantile_text(times: &Histogram, q: f64) -> String {
    let is_known = q >= 1.0 || times.count() as f64 * (1.0 - q) >= BEYOND - 1e-9;
    let found = if q < 1.0 { times.quantile(q) } else { times.max() };
    match found {
        None => "-".to_owned(),
        Some(_) if !is_known => "few".to_owned(),
        Some(found) => display::duration(found),
    }
}

/// The value of a parameter of a variant.
pub fn parameter<'a>(variant: &'a Variant, name: &str) -> &'a str {
    let found = variant.parameters.iter().find(|it| it.name == name);
    found.map_or("", |it| it.value.as_str())
}

/// One parameter of a variant selects the row, and another parameter selects the column. The
/// parameters of a variant select its row and its column.
pub(crate) fn grid(
    results: &Results,
    title: &str,
    note: &str,
    ways: [&str; 2],
    of: impl Fn(&Run) -> Option<f64>,
) -> Table {
    laid_out(results, (title, note), ways, of, |row| row.to_vec())
}

/// A grid in which each column shows its figure as a multiple of the first column's figure.
pub(crate) fn times_the_first(
    results: &Results,
    title: &str,
    note: &str,
    ways: [&str; 2],
    of: impl Fn(&Run) -> Option<f64>,
) -> Table {
    laid_out(results, (title, note), ways, of, |row| {
        let first = row.first().copied().flatten();
        row.iter().map(|it| it.zip(first).map(|(it, first)| it.over(first))).collect()
    })
}

/// A grid whose rows of figures are changed before they are shown.
fn laid_out(
    results: &Results,
    (title, note): (&str, &str),
    [down, across]: [&str; 2],
    of: impl Fn(&Run) -> Option<f64>,
    change: impl Fn(&[Option<Figure>]) -> Vec<Option<Figure>>,
) -> Table {
    let columns = different(results, across);
    let head = columns.iter().map(|it| format!("{across} {it}"));
    let mut rows = vec![std::iter::once(down.to_owned()).chain(head).collect::<Vec<_>>()];
    let mut is_disturbed = false;
    for row in different(results, down) {
        let of_column = |column: &&str| {
            let is_it =
                |it: &&Variant| parameter(it, down) == row && parameter(it, across) == *column;
            results.variants.iter().find(is_it).and_then(|it| figure(it, &of))
        };
        let figures: Vec<Option<Figure>> = columns.iter().map(of_column).collect();
        let shown = change(&figures);
        is_disturbed |= shown.iter().flatten().any(|it| it.is_disturbed);
        let cells = shown.into_iter().map(cell);
        rows.push(std::iter::once(row.to_owned()).chain(cells).collect());
    }
    let note = match is_disturbed {
        true => {
            format!("{note} A value is in brackets if every run was disturbed.").trim().to_owned()
        }
        false => note.to_owned(),
    };
    Table::from_rows(title, note, rows)
}

/// The values of a parameter among the variants, each once.
pub fn different<'a>(results: &'a Results, name: &str) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for value in results.variants.iter().map(|it| parameter(it, name)) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_disturbed_figures_is_in_brackets() {
        let figure = |value: f64, is_disturbed: bool| Figure { value, is_disturbed };
        let ratio = |a: Figure, b: Figure| a.over(b).derive(|it| format!("{it:.2}"));
        assert_eq!(ratio(figure(3.0, false), figure(2.0, false)), "1.50");
        assert_eq!(ratio(figure(3.0, true), figure(2.0, false)), "(1.50)");
        assert_eq!(ratio(figure(3.0, false), figure(2.0, true)), "(1.50)");
        assert_eq!(cell(Some(figure(3.0, true))), format!("({})", display::figure(3.0)));
    }
}
