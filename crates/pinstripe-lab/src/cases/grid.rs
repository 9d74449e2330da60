//! Results as a grid: one parameter of the variants selects the row, another the column.

use pinstripe_stats::median;

use crate::display;
use crate::histogram::Histogram;
use crate::result::{Results, Run, Variant};
use crate::table::Table;

/// A figure of a variant, and whether it is of disturbed runs because there are no others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figure {
    pub value: f64,
    pub is_disturbed: bool,
}

impl Figure {
    /// Derives a text from it; a text derived from disturbed runs is marked as such.
    pub fn derive(self, text: impl FnOnce(f64) -> String) -> String {
        marked(text(self.value), self.is_disturbed)
    }

    /// The ratio of it to another one.
    pub fn over(self, other: Figure) -> Figure {
        let is_disturbed = self.is_disturbed || other.is_disturbed;
        Figure { value: self.value / other.value, is_disturbed }
    }
}

/// In brackets where it is of disturbed runs.
pub fn marked(text: String, is_disturbed: bool) -> String {
    if is_disturbed { format!("({text})") } else { text }
}

/// The median of something over the runs that count, or else over all.
pub fn figure(variant: &Variant, of: impl Fn(&Run) -> Option<f64>) -> Option<Figure> {
    let counted: Vec<f64> =
        variant.runs.iter().filter(|it| it.is_valid()).filter_map(&of).collect();
    if let Some(value) = median(&counted) {
        return Some(Figure { value, is_disturbed: false });
    }
    let all: Vec<f64> = variant.runs.iter().filter_map(of).collect();
    median(&all).map(|value| Figure { value, is_disturbed: true })
}

/// The largest of something in the runs that count, or else in all: what a recording has to be
/// ready for.
pub fn largest(variant: &Variant, of: impl Fn(&Run) -> Option<f64>) -> Option<Figure> {
    let counted = variant.runs.iter().filter(|it| it.is_valid()).filter_map(&of);
    let quiet = counted.reduce(f64::max).map(|value| Figure { value, is_disturbed: false });
    let all = || variant.runs.iter().filter_map(&of).reduce(f64::max);
    quiet.or_else(|| all().map(|value| Figure { value, is_disturbed: true }))
}

/// The value of each run.
pub fn value(run: &Run) -> Option<f64> {
    Some(run.measured.value)
}

/// A further figure of each run.
pub fn named(name: &str) -> impl Fn(&Run) -> Option<f64> + '_ {
    move |run| run.measured.figures.get(name).copied()
}

/// A figure as a table shows it: in brackets if all runs were disturbed.
pub fn cell(figure: Option<Figure>) -> String {
    match figure {
        None => "-".to_owned(),
        Some(figure) => figure.derive(display::figure),
    }
}

/// Requests that have to lie beyond a quantile: of fewer it is the longest one by another name.
const BEYOND: f64 = 2.0;

/// A quantile of times as a table shows it, or a sign that too few were measured.
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

/// A grid of one figure. The parameters of a variant select its row and column.
pub(crate) fn grid(
    results: &Results,
    title: &str,
    note: &str,
    ways: [&str; 2],
    of: impl Fn(&Run) -> Option<f64>,
) -> Table {
    laid_out(results, (title, note), ways, of, |row| row.to_vec())
}

/// A grid of how many times a figure each column has of the first one.
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
        true => format!("{note} Values in brackets: every run was disturbed.").trim().to_owned(),
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
