//! Comparison tables: a row says what each tool took, the ratio, what was aimed at, and whether it
//! was reached. Rows that fall short stay in.

use pinstripe_stats::Summary;

use pinstripe_lab::{Align, Cell, Table};

/// The goals of pinstripe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// Nothing in particular.
    None,
    /// At least this many times better than restic.
    Times(f64),
    /// At most this many times restic's value.
    TimesTheirs(f64),
    /// At most this value.
    AtMost(f64),
    /// At least this value.
    AtLeast(f64),
}

impl Target {
    /// Its name in tables.
    pub fn show(self) -> String {
        match self {
            Target::None => String::new(),
            Target::Times(times) => format!("ratio >= {times}"),
            Target::TimesTheirs(times) => format!("<= {times} x restic"),
            Target::AtMost(limit) => format!("<= {limit}"),
            Target::AtLeast(limit) => format!(">= {limit}"),
        }
    }

    /// Whether it was reached; nothing when nothing was aimed at.
    pub fn verdict(self, theirs: f64, ours: f64) -> &'static str {
        let reached = match self {
            Target::None => return "",
            Target::Times(times) => theirs >= times * ours,
            Target::TimesTheirs(times) => ours <= times * theirs,
            Target::AtMost(limit) => ours <= limit,
            Target::AtLeast(limit) => ours >= limit,
        };
        if reached { "reached" } else { "not reached" }
    }
}

/// An empty table that compares both tools, one measure in each row.
pub fn comparison(title: &str, note: String) -> Table {
    let columns = [
        ("measure", Align::Left),
        ("restic", Align::Right),
        ("pinstripe", Align::Right),
        ("ratio", Align::Right),
        ("target", Align::Left),
        ("verdict", Align::Left),
    ];
    Table::new(title, note, &columns)
}

/// A row of a comparison, from `[restic's, ours]` of something that is better when it is less.
pub fn compare_row(
    table: &mut Table,
    what: String,
    values: [f64; 2],
    decimals: usize,
    target: Target,
) {
    add_row(table, what, values, values[0] / values[1], decimals, target);
}

/// A row of a comparison that has no ratio; a NaN is a value that does not exist.
pub fn plain_row(
    table: &mut Table,
    what: String,
    values: [f64; 2],
    decimals: usize,
    target: Target,
) {
    add_row(table, what, values, f64::NAN, decimals, target);
}

fn add_row(
    table: &mut Table,
    what: String,
    [theirs, ours]: [f64; 2],
    ratio: f64,
    decimals: usize,
    target: Target,
) {
    let cell = |value: f64, decimals| match value.is_nan() {
        true => "".into(),
        false => Cell::Number(value, decimals),
    };
    table.row([
        what.into(),
        cell(theirs, decimals),
        cell(ours, decimals),
        cell(ratio, 2),
        target.show().into(),
        target.verdict(theirs, ours).into(),
    ]);
}

/// An empty table of figures, each with its extremes over the rounds.
pub fn figures(title: &str, note: String) -> Table {
    let columns = [
        ("measure", Align::Left),
        ("median", Align::Right),
        ("lowest", Align::Right),
        ("highest", Align::Right),
        ("target", Align::Left),
        ("verdict", Align::Left),
    ];
    Table::new(title, note, &columns)
}

/// A row of figures; the median is what is judged.
pub fn figure_row(table: &mut Table, what: &str, samples: &[f64], decimals: usize, target: Target) {
    let Some(summary) = Summary::from_samples(samples) else { return };
    judged_row(table, what, &summary, summary.median, decimals, target);
}

/// A row of figures; one of them is compared with the target.
pub fn judged_row(
    table: &mut Table,
    what: &str,
    summary: &Summary,
    judged: f64,
    decimals: usize,
    target: Target,
) {
    table.row([
        what.into(),
        Cell::Number(summary.median, decimals),
        Cell::Number(summary.min, decimals),
        Cell::Number(summary.max, decimals),
        target.show().into(),
        target.verdict(f64::NAN, judged).into(),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_judge_what_they_say() {
        for (target, theirs, ours, verdict) in [
            (Target::Times(3.0), 12.0, 4.0, "reached"),
            (Target::Times(3.0), 12.0, 4.1, "not reached"),
            (Target::TimesTheirs(1.05), 100.0, 105.0, "reached"),
            (Target::TimesTheirs(1.05), 100.0, 106.0, "not reached"),
            (Target::AtMost(200.0), 150.0, 201.0, "not reached"),
            (Target::AtLeast(0.8), f64::NAN, 0.8, "reached"),
            (Target::None, 1.0, 2.0, ""),
        ] {
            assert_eq!(target.verdict(theirs, ours), verdict, "{target:?} {theirs} {ours}");
        }
    }
}
