//! `pinstripe gc`: deletes data that no snapshot needs.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, FromArgMatches};
use pinstripe::Store;
use pinstripe::gc::{self, GcOptions, GcOutcome};
use pinstripe_base::error::Result;
use pinstripe_base::id::SnapshotId;
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::format_size;

use crate::args::{Time, duration};
use crate::event::Event;
use crate::message::counted;
use crate::run::liveness;
use crate::run::progress::Gauge;
use crate::run::rollback;
use crate::run::{Ending, PackPlan, Run};
use crate::system;

/// Delete data that no snapshot needs; backups may run at the same time
///
/// Deletes forgotten snapshots, and packs (files of stored data) that no snapshot needs. Packs with
/// much unneeded data are rewritten, until at most the share --max-waste of the stored data is
/// unneeded. Backups may run at the same time: gc asks each running backup which packs it relies
/// on, and keeps those packs. If gc is interrupted, nothing is lost, and the next gc continues its
/// work.
///
/// A running backup answers gc within seconds. If a running backup does not answer, gc deletes
/// nothing and reports that backup. Every running backup writes a heartbeat every 5 minutes. If gc
/// on this host sees no heartbeat of a session (a running backup) for the time --dead-after, gc
/// assumes that the machine of the session is dead, and ends the session. If a machine that was
/// assumed dead is in fact running, its backup fails, and no stored data is lost. The option
/// --fence ends a session immediately.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe forget --keep-daily 14 --gc
  pinstripe gc --dry-run
  pinstripe gc --max-waste 0%
  pinstripe gc --fence 3f2a9c10")]
pub struct GcArgs {
    /// Share of the remaining data that may be unneeded; 0% rewrites every pack that contains
    /// unneeded data, and 100% rewrites no pack
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = share)]
    max_waste: f64,

    /// Only show what would be deleted
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Seconds to wait until other writers have reported the packs that they rely on
    #[arg(long, value_name = "SECONDS", default_value_t = gc::WAIT.as_secs())]
    wait: u64,

    /// Time without a heartbeat after which a writer on another machine counts as dead; the minimum
    /// is 15m, which is three heartbeats
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = duration)]
    dead_after: Time,

    /// End the session (a running backup) whose id begins with SESSION; use this only if its
    /// process has certainly ended
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["max_waste", "dry_run", "wait"])]
    fence: Option<String>,
}

/// Reads `10%` or `10` as a share of 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err(format!("'{text}' is not a percentage from 0% to 100%; write for example 10%")),
    }
}

/// The approximate number of requests that a gc sends to a bucket, not counting requests for packs:
/// listings, condemnations and deletes of small objects.
const REQUESTS_BESIDE: u64 = 200;

const GAUGE: Gauge =
    Gauge { label: "moving", done_bytes: |monitor| monitor.get(Counter::RepackedBytes), passes: 1 };

impl GcArgs {
    /// Deletes unneeded data, or ends a session.
    ///
    /// # Errors
    /// Fails with the errors of [`gc::run`] and [`gc::fence`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let store = run.open_store()?;
        if self.dry_run {
            run.warn_of_absent(&store);
        }
        rollback::warn(run, &store)?;
        if let Some(name) = &self.fence {
            let session = gc::fence(&store, name)?;
            let (id, work) = (session.id.short(), session.work.name());
            run.screen.say(&format!(
                "ended session {id}; the {work} of this session can no longer be completed"
            ));
            return Ok(Ending::done(Event::default().with("ended_sessions", 1)));
        }
        self.delete(run, &store, &[])
    }

    /// The options of a gc for which none was given.
    pub fn defaults(dry_run: bool) -> GcArgs {
        let command = GcArgs::augment_args(clap::Command::new("gc"));
        let args = command.try_get_matches_from(["gc"]);
        let args = args.and_then(|matches| GcArgs::from_arg_matches(&matches));
        GcArgs { dry_run, ..args.expect("every option has a default or may be missing") }
    }

    /// Deletes unneeded data from an open store. In a dry run, the snapshots in `forgotten` count as
    /// forgotten too.
    ///
    /// # Errors
    /// Fails with the errors of [`gc::run`].
    pub fn delete(&self, run: &Run, store: &Store, forgotten: &[SnapshotId]) -> Result<Ending> {
        system::lower_priority();
        let options = GcOptions {
            max_waste: self.max_waste,
            dry_run: self.dry_run,
            wait: Duration::from_secs(self.wait),
            limits: run.limits(store),
            detector: Arc::new(liveness::detector(run, store, self.dead_after.0)),
        };
        let ticker = run.ticker(GAUGE);
        let ended = match self.dry_run {
            true => gc::preview(store, &options, forgotten, &run.monitor),
            false => gc::run(store, &options, &run.monitor),
        };
        drop(ticker);
        // Also after a gc that waited in vain: the next one continues from its sightings.
        liveness::keep(run, store, &options.detector);
        let outcome = ended?;
        if !self.dry_run {
            run.degraded_by_absent(store);
        }
        say(run, self.dry_run, &outcome);
        run.say_hidden();
        // Finished work is counted in requests; a dry run estimates them.
        let cost = match self.dry_run {
            true => run.say_cost(store, &plan(&outcome))?,
            false => Event::default(),
        };
        let facts = Event::default().with_fields(&outcome).with_all(cost);
        Ok(Ending::done(facts.with("dry_run", self.dry_run)))
    }
}

fn plan(outcome: &GcOutcome) -> PackPlan {
    PackPlan {
        written_bytes: outcome.moved_bytes,
        read_bytes: outcome.moved_bytes,
        deleted_packs: outcome.deleted_packs,
        deleted_bytes: outcome.deleted_bytes,
        requests_beside: REQUESTS_BESIDE,
    }
}

fn say(run: &Run, dry_run: bool, outcome: &GcOutcome) {
    let say = |line: String| run.screen.say(&line);
    let verb = if dry_run { "would delete" } else { "deleted" };
    if outcome.deleted_snapshots + outcome.deleted_packs == 0 {
        say("there is nothing to delete".to_owned());
    } else {
        say(format!(
            "{verb} {} and {}, which use {} on the members",
            counted(outcome.deleted_snapshots, "forgotten snapshot"),
            counted(outcome.deleted_packs, "pack"),
            format_size(outcome.deleted_bytes)
        ));
    }
    if outcome.repacked_packs > 0 {
        let verb = if dry_run { "would be" } else { "was" };
        let packs = counted(outcome.repacked_packs, "pack");
        say(format!("the needed data of {packs} {verb} rewritten"));
    }
    if outcome.thin_pages > 0 {
        let verb = if dry_run { "would get" } else { "got" };
        let pages = counted(outcome.thin_pages, "page");
        say(format!("{pages} of the directory trees of snapshots {verb} a second copy"));
    }
    if outcome.revived_packs > 0 {
        let packs = counted(outcome.revived_packs, "pack");
        say(format!("{packs} not deleted, because a running backup now needs their data"));
    }
    let waste = outcome.waste_bytes as f64 / outcome.kept_bytes.max(1) as f64;
    say(format!(
        "kept {} with {} of data; {:.1}% of this data is waste",
        counted(outcome.kept_snapshots, "snapshot"),
        format_size(outcome.kept_bytes),
        100.0 * waste
    ));
    if outcome.extended_objects > 0 {
        say(format!("extended the object lock of {}", counted(outcome.extended_objects, "object")));
    }
    if outcome.fenced_sessions > 0 {
        let sessions = counted(outcome.fenced_sessions, "session");
        say(format!(
            "ended {sessions} without a heartbeat; a backup whose session was ended creates no \
             snapshot"
        ));
    }
    if outcome.stale_objects + outcome.ended_sessions > 0 {
        say(format!(
            "removed {} that a member had kept while it was absent, and the sessions of {}",
            counted(outcome.stale_objects, "stale object"),
            counted(outcome.ended_sessions, "dead writer")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_command_line() {
        let args = GcArgs::defaults(true);
        assert_eq!((args.max_waste, args.wait, args.dead_after.0.as_secs()), (0.1, 60, 7200));
        assert!(args.dry_run && args.fence.is_none() && !GcArgs::defaults(false).dry_run);
    }

    #[test]
    fn shares_are_percent() {
        assert_eq!(share("10%").unwrap(), 0.1);
        assert_eq!(share("0").unwrap(), 0.0);
        assert_eq!(share("100%").unwrap(), 1.0);
        for bad in ["", "%", "-1%", "101%", "NaN", "ten"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }
}
