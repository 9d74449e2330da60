//! `pinstripe forget`: marks snapshots as not wanted, by rules or by name.

use pinstripe::forget::{ForgetChoice, ForgetOptions, Verdict};
use pinstripe::{Store, forget};
use pinstripe_base::clock;
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_base::units::format_count;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_stripe::Policy;

use super::snapshots;
use crate::choice_args::HostChoiceArgs;
use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::rules::Rules;
use crate::run::rollback;
use crate::run::{Ending, Run};
use crate::table::{self, Side};
use crate::time;

/// Forget snapshots that are selected by rules or by id
///
/// A forgotten snapshot is hidden, but not deleted: 'pinstripe undelete' brings it back until
/// 'pinstripe gc' deletes its data. If no rule is given on the command line, the rules under
/// [retention] in the config file apply. The rules apply separately to each combination of host and
/// paths. A snapshot is kept if at least one rule keeps it. A snapshot with a wrong time is always
/// kept, and no rule counts it. The time of a snapshot is wrong if it is in the future, or earlier
/// than the time of the previous snapshot from which unchanged files were taken. The rules count
/// days and weeks in the time zone of this machine.
#[derive(clap::Args)]
#[command(after_long_help = "\
--keep-daily N keeps the newest snapshot of each of the last N days that have a snapshot. The rules for \
hours, weeks (which begin on Monday), months and years work in the same way.

Examples:
  pinstripe forget --dry-run
  pinstripe forget --keep-last 3 --keep-daily 14 --keep-monthly 12 --dry-run
  pinstripe forget --keep-within 30d --keep-tag release --host web1
  pinstripe forget 3f2a9c10")]
pub struct ForgetArgs {
    /// Snapshots to forget, each given by the beginning of its id
    #[arg(value_name = "SNAPSHOT", conflicts_with_all = ["keep_last", "keep_hourly", "keep_daily",
          "keep_weekly", "keep_monthly", "keep_yearly", "keep_tag", "keep_within"])]
    snapshots: Vec<String>,

    #[command(flatten)]
    rules: Rules,

    /// Only show which snapshots would be forgotten
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Proceed even if no snapshot would be left
    #[arg(long)]
    allow_empty: bool,

    #[command(flatten)]
    choice: HostChoiceArgs,
}

impl ForgetArgs {
    /// Applies the rules, shows the result, and marks the snapshots.
    ///
    /// # Errors
    /// Fails with the errors of [`forget::run`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let among = self.choice.choice(run)?;
        let store = run.open_store()?;
        if self.dry_run {
            run.warn_of_absent(&store);
        }
        rollback::warn(run, &store)?;
        if let Some(id) = self.damaged(run, &store)? {
            if !self.dry_run {
                forget::forget_damaged(&store, id)?;
                run.degraded_by_absent(&store);
                rollback::look_again(run, &store);
            }
            run.screen.say(&format!("forgot snapshot {}, which cannot be read", id.short()));
            return Ok(Ending::done(Event::default().with("forgotten", 1).with("kept", 0)));
        }
        let policy = self.policy(run)?;
        let now = clock::now();
        let choice = if self.snapshots.is_empty() {
            ForgetChoice::Policy { policy: &policy, offset_at: &time::offset_seconds, now }
        } else {
            ForgetChoice::Named(&self.snapshots)
        };
        let options = ForgetOptions {
            choice,
            among: &among,
            dry_run: self.dry_run,
            allow_empty: self.allow_empty,
        };
        let verdicts = forget::run(&store, &options, &run.monitor)?;
        if !self.dry_run {
            run.degraded_by_absent(&store);
            rollback::look_again(run, &store);
        }
        show(run, &verdicts, self.dry_run)?;
        let goes = verdicts.iter().filter(|verdict| !verdict.stays()).count();
        let kept = verdicts.len() - goes;
        let verb = if self.dry_run { "would forget" } else { "forgot" };
        let mut told = format!("{verb} {}", counted(goes as u64, "snapshot"));
        if self.snapshots.is_empty() {
            told += &format!(", kept {}", format_count(kept as u64));
        }
        run.screen.say(&told);
        Ok(Ending::done(Event::default().with("forgotten", goes).with("kept", kept)))
    }

    /// The rules on the command line or, if it has none, those in the config file.
    fn policy(&self, run: &Run) -> Result<Policy> {
        if !self.rules.is_empty() || !self.snapshots.is_empty() {
            return Ok(self.rules.policy());
        }
        let written = run.config()?.retention.policy();
        if !written.is_empty() {
            run.monitor.note(
                "the rules under [retention] in the config file decide which snapshots are kept",
            );
        }
        Ok(written)
    }

    /// The snapshot that was named by its complete id, if its object is damaged or missing on every
    /// member.
    fn damaged(&self, run: &Run, store: &Store) -> Result<Option<SnapshotId>> {
        let [name] = self.snapshots.as_slice() else { return Ok(None) };
        let Some(id) = SnapshotId::from_hex(name) else { return Ok(None) };
        let known = pinstripe::read_snapshot(store, id);
        match known {
            Err(error) if error.kind() == Kind::Corrupt => {
                run.monitor.note(&format!("snapshot {} cannot be read: {error}", id.short()));
                Ok(Some(id))
            }
            Err(error) if error.kind() == Kind::Unsupported => Err(error),
            _ => Ok(None),
        }
    }
}

const HEAD: [(&str, Side); 6] = [
    ("", Side::Left),
    ("snapshot", Side::Left),
    ("time", Side::Left),
    ("host", Side::Left),
    ("why", Side::Left),
    ("paths", Side::Left),
];

/// Shows which snapshots stay and which go: as output of a dry run, otherwise as a note that
/// --quiet omits.
fn show(run: &Run, verdicts: &[Verdict], is_dry_run: bool) -> Result<()> {
    let why = |verdict: &Verdict| {
        verdict.reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let row = |verdict: &Verdict| {
        let Snapshot { id, created_seconds, host, .. } = &verdict.snapshot;
        let fate = if verdict.stays() { "keep" } else { "forget" };
        vec![
            fate.to_owned(),
            id.short(),
            time::date(*created_seconds),
            escape::name(host),
            escape::text(&why(verdict)).to_string(),
            snapshots::paths(&verdict.snapshot),
        ]
    };
    for verdict in verdicts {
        let event = Event::new("verdict")
            .with_all(snapshots::facts(&verdict.snapshot))
            .with("stays", verdict.stays())
            .with("why", verdict.reasons.iter().map(ToString::to_string).collect::<Vec<_>>());
        run.screen.event(&event)?;
    }
    let rows: Vec<_> = verdicts.iter().map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let lines = table::lines(&HEAD, &rows);
    if is_dry_run || !run.common.quiet {
        lines.iter().try_for_each(|line| run.screen.row(line))?;
    }
    Ok(())
}
