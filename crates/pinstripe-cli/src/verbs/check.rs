//! `pinstripe check`: checks whether everything is present that the snapshots need.

use pinstripe::{Store, check, members};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::format_size;
use pinstripe_member::ExtentName;

use crate::event::Event;
use crate::exit;
use crate::message::counted;
use crate::run::progress::Gauge;
use crate::run::rollback;
use crate::run::unlock::CHECKS_SKIPPED;
use crate::run::{Ending, Run};
use crate::time;

/// Check that the store is complete, and report what is missing or damaged
///
/// Without options, 'check' reads the small objects (snapshots, keys, labels and others) of every
/// member, and the beginning and the end of every extent (a file that contains stored data or index
/// entries). Damage that can be repaired from parity or from another copy is reported as a warning,
/// with exit code 10. Data that is lost is reported with the affected snapshots and paths, with
/// exit code 3.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe check
  pinstripe check --read-data --store /mnt/a/store")]
pub struct CheckArgs {
    /// Read every byte on every member, and decode all stored data
    #[arg(long)]
    read_data: bool,

    /// Accept the present state of the store, although this host has seen a later state
    ///
    /// Each host records the newest snapshot and the newest table of members that it has seen in a
    /// store. If the newest snapshot that this host has seen is missing, pinstripe assumes that the
    /// store was reset to an earlier state. pinstripe does not assume a reset if the snapshot was
    /// removed by 'forget' on this host, or if a later snapshot shows that it was removed properly.
    /// For a store that was reset, 'check' reports a loss (exit code 3) until the missing snapshot
    /// is present again or --accept-older is given.
    #[arg(long)]
    accept_older: bool,
}

const GAUGE: Gauge = Gauge {
    label: "checking",
    done_bytes: |monitor| monitor.get(Counter::CheckedBytes),
    passes: 1,
};

impl CheckArgs {
    /// Runs the check.
    ///
    /// # Errors
    /// Fails with the errors of [`check::run`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let store = run.open_keyless(CHECKS_SKIPPED)?;
        self.compare(run, &store)?;
        if self.read_data {
            let states = members::run(&store)?;
            run.monitor.set_total(states.iter().map(|state| state.stored_bytes).sum(), 0);
        }
        let options = check::CheckOptions { read_data: self.read_data, limits: run.limits(&store) };
        let ticker = run.ticker(GAUGE);
        let outcome = check::run(&store, &options, &run.monitor)?;
        drop(ticker);
        say(run, &store, &outcome);
        let facts = Event::default().with_fields(&outcome).with("read_data", self.read_data);
        let is_repairable = outcome.repairable + outcome.strays > 0;
        let code = if is_repairable { exit::REPAIRABLE } else { exit::DONE };
        Ok(Ending { code, facts })
    }

    /// Compares the store with what this host remembers of it.
    fn compare(&self, run: &Run, store: &Store) -> Result<()> {
        if self.accept_older {
            rollback::accept(run, store)?;
        }
        let found = rollback::find(run, store)?;
        let place = ExtentName::Label.path();
        found.older.into_iter().for_each(|error| run.monitor.loss(&place, error));
        if let Some(error) = found.unclear {
            run.monitor.warning(&place, error);
        }
        Ok(())
    }
}

fn say(run: &Run, store: &Store, outcome: &check::CheckOutcome) {
    let say = |line: String| run.screen.say(&line);
    let mut checked = format!(
        "checked {} and {} in {}",
        counted(outcome.snapshots, "snapshot"),
        counted(outcome.packs, "pack"),
        time::span(run.elapsed()),
    );
    let read = run.count(Counter::CheckedBytes);
    if read > 0 {
        checked += &format!(", {} read", format_size(read));
    }
    say(checked);
    if outcome.repairable > 0 {
        let parts = counted(outcome.repairable, "damaged or missing part");
        let how = match store.absent().count() {
            0 => "pinstripe repair",
            _ => {
                "'pinstripe repair' (before that, attach the absent member, or replace it with \
                 'pinstripe member replace N --to DIR')"
            }
        };
        say(format!("{parts} can be repaired; to do this, run {how}"));
    }
    if outcome.strays > 0 {
        let strays = counted(outcome.strays, "stray object");
        say(format!("{strays} found and ignored; 'pinstripe repair' sets stray objects aside"));
    }
    if outcome.lost > 0 || outcome.hurt_snapshots > 0 {
        say(format!(
            "{} cannot be repaired; this affects {} in {}",
            counted(outcome.lost, "damaged part"),
            counted(outcome.hurt_paths, "path"),
            counted(outcome.hurt_snapshots, "snapshot"),
        ));
    }
    if outcome.without_key {
        say("no key was given, so only checksums were verified; it was not checked whether the \
             snapshots have all their data"
            .to_owned());
    } else if outcome.repairable + outcome.strays == 0 && run.count(Counter::Losses) == 0 {
        say("no damage was found".to_owned());
    }
    run.say_redundancy();
}
