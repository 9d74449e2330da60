//! `pinstripe scrub`: verifies the store in parts, and repairs damage.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe::scrub::{AgeBand, Budget};
use pinstripe::{Store, scrub};
use pinstripe_base::clock;
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::{format_count, format_size};

use crate::args::rate;
use crate::event::Event;
use crate::exit;
use crate::journal::Journal;
use crate::message::counted;
use crate::run::progress::Gauge;
use crate::run::unlock::{CHECKS_SKIPPED, SHOWS_LESS};
use crate::run::{Ending, Run};
use crate::system;
use crate::table::{self, Side};
use crate::time;
use crate::xdg;

/// Verify the store, continuing where the last scrub stopped, and repair damage
///
/// The scrub compares all stored data, all index entries and every small object (for example a key)
/// with their checksums. Damaged or missing data is repaired immediately, as 'pinstripe repair'
/// does. With --budget, a scrub stops early, and the next scrub continues where it stopped. For
/// example, a nightly scrub with --budget 5% verifies the complete store in twenty nights. A scrub
/// needs no password.
///
/// The exit code is 0 if there is no damage or all damage was repaired; 10 if something remains to
/// be repaired, for example an absent member; and 3 if data is lost.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe scrub
  pinstripe scrub --budget 5% --limit 100M
  pinstripe scrub --budget 10G --budget 2h
  pinstripe scrub --status")]
pub struct ScrubArgs {
    /// Stop after a share of the store (for example 5%), an amount of data (10G) or a time (2h);
    /// may be given twice, for an amount and a time
    #[arg(long, value_name = "AMOUNT", value_parser = budget)]
    budget: Vec<Budget>,

    /// Read at most this many bytes per second, 1K or more
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    limit: Option<u64>,

    /// Append each finding to this file, as a JSON object on one line [default:
    /// $XDG_STATE_HOME/pinstripe/scrub-STORE.jsonl]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    log: Option<PathBuf>,

    /// Verify nothing, but show how much of the store has been verified, and how recently
    #[arg(long, conflicts_with_all = ["budget", "limit", "log"])]
    status: bool,
}

fn budget(text: &str) -> Result<Budget, String> {
    text.parse().map_err(crate::args::one_line)
}

const GAUGE: Gauge = Gauge {
    label: "scrubbing",
    done_bytes: |monitor| monitor.get(Counter::CheckedBytes),
    passes: 1,
};

impl ScrubArgs {
    /// Runs a scrub, or shows the state of the last one.
    ///
    /// # Errors
    /// Fails with the errors of [`scrub::run`]; fails also if the log cannot be written.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let budget = self.budget.iter().try_fold(Budget::default(), |all, one| all.and(*one))?;
        let lack = if self.status { SHOWS_LESS } else { CHECKS_SKIPPED };
        let store = run.open_keyless(lack)?;
        if self.status {
            return status(run, &store);
        }
        let journal = self.journal(run, &store)?;
        system::lower_priority();
        let options = scrub::ScrubOptions {
            budget,
            rate: self.limit,
            save_bytes: scrub::SAVE_BYTES_DEFAULT,
            limits: run.limits(&store),
        };
        let ticker = run.ticker(GAUGE);
        let report = |finding: &scrub::Finding| {
            let event = Event::new("finding").with_fields(finding);
            if let Some(journal) = &journal {
                journal.write(&event);
            }
            // A reader that is gone ends the run elsewhere.
            let _ = run.screen.event(&event);
        };
        let ended = scrub::run(&store, &options, &run.monitor, &report);
        drop(ticker);
        let outcome = match ended {
            Ok(outcome) => outcome,
            Err(error) => {
                if let Some(journal) = journal {
                    journal.write(&Event::error(&error));
                    journal.sync()?;
                }
                return Err(error);
            }
        };
        let code = if outcome.repairable > 0 { exit::REPAIRABLE } else { exit::DONE };
        let facts = Event::default().with_fields(&outcome);
        if let Some(journal) = journal {
            let summary = Event::new("summary").with_all(facts.clone());
            let code = exit::of_ledger(&run.monitor, code);
            let elapsed = run.elapsed().as_secs_f64();
            journal.write(&summary.with("elapsed_seconds", elapsed).with("exit_code", code));
            journal.sync()?;
        }
        say(run, &outcome);
        Ok(Ending { code, facts })
    }

    /// The log that was named, or the one in the default place, if that exists.
    fn journal(&self, run: &Run, store: &Store) -> Result<Option<Journal>> {
        if let Some(path) = &self.log {
            return Journal::open(path, "--log").map(Some);
        }
        let name = format!("scrub-{}.jsonl", store.config.store);
        let opened = xdg::state().and_then(|state| Journal::open(&state.join(name), "--log"));
        match opened {
            Ok(journal) => Ok(Some(journal)),
            Err(error) => {
                run.monitor.warning("the log of this scrub", error);
                Ok(None)
            }
        }
    }
}

fn say(run: &Run, outcome: &scrub::ScrubOutcome) {
    let say = |line: String| run.screen.say(&line);
    say(format!(
        "verified {} of {} ({} of {}) in {}",
        format_count(outcome.sets),
        counted(outcome.all_sets, "stripe set"),
        format_size(outcome.verified_bytes),
        format_size(outcome.all_bytes),
        time::span(run.elapsed()),
    ));
    let ended = [
        (outcome.mended_extents, "rewrote", "extent", ""),
        (outcome.mended_objects, "rewrote", "small object", ""),
        (outcome.removed_runs, "removed", "superseded index run", ""),
        (outcome.repairable, "left", "damaged or missing part", " for 'pinstripe repair'"),
        (outcome.lost, "gave up", "damaged part", " that cannot be rebuilt"),
    ];
    for (count, act, name, how) in ended.iter().filter(|(count, ..)| *count > 0) {
        say(format!("{act} {}{how}", counted(*count, name)));
    }
    if ended.iter().all(|(count, ..)| *count == 0) {
        say("no damage was found".to_owned());
    }
}

const HEAD: [(&str, Side); 4] = [
    ("verified", Side::Left),
    ("sets", Side::Right),
    ("bytes", Side::Right),
    ("share", Side::Right),
];

fn status(run: &Run, store: &Store) -> Result<Ending> {
    let status = scrub::status(store, clock::now().0, &run.monitor)?;
    let all: u64 = status.bands.iter().map(|band| band.bytes).sum();
    for band in &status.bands {
        run.screen.event(&Event::new("scrub_age").with_fields(band))?;
    }
    let row = |band: &AgeBand| {
        let share = band.bytes as f64 * 100.0 / all.max(1) as f64;
        let share = format!("{share:.1} %");
        vec![age(band), format_count(band.sets), format_size(band.bytes), share]
    };
    let rows: Vec<_> = status.bands.iter().filter(|band| band.sets > 0).map(row).collect();
    for line in table::lines(&HEAD, &rows) {
        run.screen.row(&line)?;
    }
    let mut facts = Event::default().with("all_bytes", all);
    if let Some(oldest) = status.oldest {
        let when = status.oldest_seconds.map_or_else(|| "never".to_owned(), time::date);
        run.screen.row(&format!(
            "the least recently verified stripe set is {oldest} (last verified: {when})"
        ))?;
        facts = facts.with("oldest_set", oldest.to_string());
        facts = facts.with_some("oldest_seconds", status.oldest_seconds);
    }
    Ok(Ending::done(facts))
}

fn age(band: &AgeBand) -> String {
    match (band.verified, band.days) {
        (false, _) => "never".to_owned(),
        (true, Some(1)) => "within 1 day".to_owned(),
        (true, Some(days)) => format!("within {days} days"),
        (true, None) => "longer ago".to_owned(),
    }
}
