//! `pinstripe lab history`.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe::error::Result;
use pinstripe_lab::result::{Entry, Series, changes, read_history};

use super::state;
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::table::{self, Side};
use crate::time;

/// Show what was measured over time, and where it changed for good
///
/// Each case that came to its end has added a line for each variant. What was measured with the same
/// parameters on the same machine is one table. A change needs three points on either side, and eight in
/// all.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab history
  pinstripe lab history fileio --file lab-history.jsonl")]
pub struct Args {
    /// Only of this case
    #[arg(value_name = "CASE")]
    case: Option<String>,

    /// The history [default: pinstripe/lab/history.jsonl in the user's state directory]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
}

/// What chance is made from when changes are looked for: the same history shows the same ones.
const SEED: u64 = 1;

impl Args {
    /// Prints a table for each series.
    ///
    /// # Errors
    /// Those of [`read_history`], and of standard output.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => state()?.join("history.jsonl"),
        };
        let mut entries = read_history(&file)?;
        entries.retain(|entry| self.case.as_ref().is_none_or(|case| *case == entry.case));
        let count = entries.len();
        let all = changes(entries, SEED);
        for (at, series) in all.iter().enumerate() {
            if at > 0 {
                run.screen.row("")?;
            }
            self.tell(run, series)?;
        }
        let found: usize = all.iter().map(|series| series.changes.len()).sum();
        let facts = Event::default().with("entries", count).with("series", all.len());
        Ok(Ending::done(facts.with("changes", found)))
    }

    fn tell(&self, run: &Run, series: &Series) -> Result<()> {
        let first = &series.entries[0];
        let parameters: Vec<String> =
            first.parameters.iter().map(|it| format!("{} {}", it.name, it.value)).collect();
        let title = format!("{} {}, {}", first.case, first.variant, parameters.join(", "));
        run.screen.row(&escape::text(&title))?;
        let is_change = |at: usize| series.changes.contains(&at);
        let rows: Vec<Vec<String>> =
            series.entries.iter().enumerate().map(|(at, it)| row(it, is_change(at))).collect();
        let unit = escape::text(&first.metric.unit);
        let head = [
            ("when", Side::Left),
            (unit.as_str(), Side::Right),
            ("95 % interval", Side::Right),
            ("runs", Side::Right),
            ("program", Side::Left),
            ("", Side::Left),
        ];
        table::lines(&head, &rows).iter().try_for_each(|line| run.screen.row(line))?;
        for (at, entry) in series.entries.iter().enumerate() {
            let event = Event::new("lab_history")
                .with("case", entry.case.as_str())
                .with("variant", entry.variant.as_str())
                .with("started_seconds", entry.started_seconds)
                .with("value", entry.value)
                .with("low", entry.low)
                .with("high", entry.high)
                .with("unit", entry.metric.unit.as_str())
                .with("is_change", is_change(at));
            run.screen.event(&event)?;
        }
        Ok(())
    }
}

fn row(entry: &Entry, is_change: bool) -> Vec<String> {
    let interval = entry.low.zip(entry.high);
    vec![
        time::date(entry.started_seconds),
        format!("{:.1}", entry.value),
        interval.map_or("-".to_owned(), |(low, high)| format!("{low:.1} - {high:.1}")),
        entry.runs.to_string(),
        escape::text(&entry.program),
        if is_change { "changed".to_owned() } else { String::new() },
    ]
}
