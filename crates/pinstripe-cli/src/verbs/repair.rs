//! `pinstripe repair`: rewrites damaged data from parity or another copy.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe::{members, repair};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::format_size;

use super::member;
use crate::args::{Time, duration};
use crate::event::Event;
use crate::exit;
use crate::message::counted;
use crate::run::known_stores::Proof;
use crate::run::progress::Gauge;
use crate::run::unlock::CHECKS_SKIPPED;
use crate::run::{Ending, Run};
use crate::time;

/// Repair damaged data of the store
///
/// Every strip (the part of a stripe on one member) is read and verified. A damaged file of strips
/// is rebuilt under a new name, and replaces the damaged file only when it is durable. To rebuild
/// an absent member on another disk, run 'pinstripe member replace'.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe repair
  pinstripe repair --store /mnt/a/store")]
pub struct RepairArgs {
    /// The old form of 'pinstripe member replace N'
    #[arg(long, value_name = "N", requires = "to", hide = true)]
    member: Option<usize>,

    /// With --member: the directory of the new member
    #[arg(long, value_name = "DIR", requires = "member", hide = true,
          value_hint = ValueHint::DirPath)]
    to: Option<PathBuf>,

    /// With --member: as in 'pinstripe member replace'
    #[arg(long, requires = "to", hide = true)]
    same_disk: bool,

    /// If another process is changing members, moving data or repairing, wait until it ends, at
    /// most for TIME (for example 10m), or without limit if no TIME is given
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true,
          value_parser = duration)]
    wait: Option<Option<Time>>,
}

const GAUGE: Gauge = Gauge {
    label: "repairing",
    done_bytes: |monitor| monitor.get(Counter::CheckedBytes),
    passes: 1,
};

impl RepairArgs {
    /// Runs the repair.
    ///
    /// # Errors
    /// Fails with the errors of [`repair::run`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        run.wait_for(self.wait, || self.once(run))
    }

    fn once(&self, run: &Run) -> Result<Ending> {
        if let Some((number, place)) = self.member.zip(self.to.as_deref()) {
            return member::replace(run, number, place, self.same_disk);
        }
        let mut store = run.open_keyless(CHECKS_SKIPPED)?;
        for number in store.absent() {
            let words = format!("member {number} is absent and is not repaired");
            let rebuild = format!(
                "to rebuild the member on another disk, run 'pinstripe member replace {number} \
                 --to DIR'"
            );
            let why = store.absence_as(number, &words).advice(rebuild);
            let advice = why.advice_text().unwrap_or_default();
            run.monitor.note(&format!("{}; {advice}", why.what()));
        }
        let stored: u64 = members::run(&store)?.iter().map(|state| state.stored_bytes).sum();
        run.monitor.set_total(stored, 0);
        let limits = run.limits(&store);
        let ticker = run.ticker(GAUGE);
        let outcome = repair::run(&mut store, limits, &run.monitor)?;
        drop(ticker);
        run.remember(&store, Proof::Label);
        say(run, &outcome);
        // The store is complete for reading, not for the next loss.
        let is_left = store.absent().count() > 0 || outcome.homeless_extents > 0;
        let code = if is_left { exit::REPAIRABLE } else { exit::DONE };
        Ok(Ending { code, facts: Event::default().with_fields(&outcome) })
    }
}

fn say(run: &Run, outcome: &repair::RepairOutcome) {
    let say = |line: String| run.screen.say(&line);
    say(format!(
        "examined {}, {} in {}",
        counted(outcome.sets, "stripe set"),
        format_size(run.count(Counter::CheckedBytes)),
        time::span(run.elapsed()),
    ));
    let doubled = run.count(Counter::DoubledPages);
    let ended = [
        (outcome.repaired_extents, "rebuilt", "extent", " from parity"),
        (outcome.repaired_objects, "copied", "small object", " from other members"),
        (outcome.strays, "set aside", "stray object", ", which are listed above"),
        (outcome.rebuilt_runs, "rebuilt", "index run", ""),
        (outcome.relaid_packs, "rewrote", "pack", " that parity could not repair"),
        (doubled, "doubled", "page", " of the directory trees of snapshots"),
        (outcome.lost_extents, "found", "extent", " that cannot be completely rebuilt"),
        (
            outcome.homeless_extents,
            "left out",
            "extent",
            " for which too few members have space or are present",
        ),
    ];
    for (count, act, name, how) in ended.iter().filter(|(count, ..)| *count > 0) {
        say(format!("{act} {}{how}", counted(*count, name)));
    }
    if ended.iter().all(|(count, ..)| *count == 0) {
        say("there was nothing to repair".to_owned());
    }
    member::say_given_up(run, outcome.given_up_chunks);
}
