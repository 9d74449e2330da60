//! `pinstripe lab history`.

use std::path::{Path, PathBuf};

use clap::ValueHint;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_lab::{
    HistoryEntry, PLACE_FACT, Series, change_lines, changes, parameters_text, read_history,
    sparkline,
};

use super::state;
use crate::escape;
use crate::event::Event;
use crate::message::message;
use crate::run::screen::Priority;
use crate::run::{Ending, Run};
use crate::table::{self, Side};
use crate::time;

/// Show results over time, and when they changed permanently
///
/// Each completed case adds a line for each of its variants to the history file. Results with the
/// same parameters, on the same machine and in the same directory or device, form one table. Each
/// table has a one-line graph of all values, scaled from the lowest to the highest value. A change
/// is reported only if there are at least eight executions, with at least three before and three
/// after the change. For each change, the output shows its size with an interval for the spread
/// between executions, and other changes at the same time: kernel, scheduler, mount options,
/// firmware and others.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab history
  pinstripe lab history fileio --file lab-history.jsonl")]
pub struct LabHistoryArgs {
    /// Show only results of this case
    #[arg(value_name = "CASE")]
    case: Option<String>,

    /// The history file [default: pinstripe/lab/history.jsonl in the user's state directory]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
}

/// The most values that are shown on one line.
const MOST_VALUES: usize = 100;
/// The seed of the search for changes: the same history always shows the same changes.
const SEED: u64 = 1;

impl LabHistoryArgs {
    /// Prints a table for each series.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] when the history has no such results, or with the errors of
    /// [`read_history`] and of standard output.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => usual_place()?,
        };
        let mut entries = read_history(&file)?;
        entries.retain(|entry| self.case.as_ref().is_none_or(|case| *case == entry.case));
        let count = entries.len();
        if count == 0 {
            return Err(self.nothing(&file));
        }
        let all = changes(entries, SEED);
        for (at, series) in all.iter().enumerate() {
            if at > 0 {
                run.screen.row("")?;
            }
            self.report(run, series)?;
        }
        let found: usize = all.iter().map(|series| series.changes.len()).sum();
        let facts = Event::default().with("entries", count).with("series", all.len());
        Ok(Ending::done(facts.with("changes", found)))
    }

    fn nothing(&self, file: &Path) -> Error {
        let what = match &self.case {
            Some(case) => format!("the history has no results of the case '{case}'"),
            None => "the history has no results".to_owned(),
        };
        let advice = "'pinstripe lab run CASE' adds results; 'pinstripe lab list' lists the cases";
        Error::new(Kind::NotFound, what).at(file).advice(advice)
    }

    /// Prints a title, a line of all values, a row for each value, and what changed.
    fn report(&self, run: &Run, series: &Series) -> Result<()> {
        let first = &series.entries[0];
        let parameters = parameters_text(&first.case, &first.own_parameters());
        let place = first.facts.get(PLACE_FACT).map(|it| format!(" in {it}")).unwrap_or_default();
        let title = format!("{} {}{place}, {parameters}", first.case, first.variant);
        run.screen.row(&escape::text(&title))?;
        let values: Vec<f64> = series.entries.iter().map(|it| it.value).collect();
        let changes: Vec<usize> = series.changes.iter().map(|it| it.at).collect();
        run.screen.row(&sparkline(&values, &changes, MOST_VALUES))?;
        let is_change = |at: usize| series.change_at(at).is_some();
        let rows: Vec<Vec<String>> =
            series.entries.iter().enumerate().map(|(at, it)| row(it, is_change(at))).collect();
        let unit = escape::text(&first.metric.unit);
        let head = [
            ("when", Side::Left),
            (unit.as_str(), Side::Right),
            ("interval", Side::Right),
            ("runs", Side::Right),
            ("program", Side::Left),
            ("", Side::Left),
        ];
        table::lines(&head, &rows).iter().try_for_each(|line| run.screen.row(line))?;
        for change in &series.changes {
            let when = time::date(series.entries[change.at].started_seconds);
            for (at, line) in change_lines(change).iter().enumerate() {
                let before = if at == 0 { format!("{when}: ") } else { "  ".to_owned() };
                run.screen.row(&escape::text(&format!("{before}{line}")))?;
            }
        }
        for (at, entry) in series.entries.iter().enumerate() {
            let change = series.change_at(at);
            let event = Event::new("lab_history")
                .with("case", entry.case.as_str())
                .with("variant", entry.variant.as_str())
                .with("started_seconds", entry.started_seconds)
                .with("value", entry.value)
                .with("low", entry.low)
                .with("high", entry.high)
                .with("level", entry.interval().map(|it| it.level))
                .with("unit", entry.metric.unit.as_str())
                .with("is_change", is_change(at))
                .with_some("speed", change.and_then(|it| it.verdict.speed))
                .with_some("speed_low", change.and_then(|it| Some(it.verdict.interval?.low)))
                .with_some("speed_high", change.and_then(|it| Some(it.verdict.interval?.high)))
                .with_some("differences", change.map(|it| it.differences.clone()));
            run.screen.event(&event)?;
        }
        Ok(())
    }
}

/// The default place of the history.
///
/// # Errors
/// Fails without a home.
pub fn usual_place() -> Result<PathBuf> {
    Ok(state()?.join("history.jsonl"))
}

/// The history in its default place, for pages that can also be made without it. A history that
/// cannot be read is reported.
pub fn usual(run: &Run) -> Vec<HistoryEntry> {
    usual_place().and_then(|file| read_history(&file)).unwrap_or_else(|error| {
        run.screen.complain(Priority::Warning, &message("warning", None, &error));
        Vec::new()
    })
}

fn row(entry: &HistoryEntry, is_change: bool) -> Vec<String> {
    vec![
        time::date(entry.started_seconds),
        format!("{:.1}", entry.value),
        entry.interval().map_or("-".to_owned(), |it| {
            let level =
                if it.is_full() { String::new() } else { format!(" ({})", it.level_text()) };
            format!("{:.1} - {:.1}{level}", it.low, it.high)
        }),
        entry.runs.to_string(),
        escape::text(&entry.program),
        if is_change { "changed".to_owned() } else { String::new() },
    ]
}
