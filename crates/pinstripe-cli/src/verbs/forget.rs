//! `pinstripe forget`: marks snapshots as not wanted, by rules or by name.

mod shown;

use pinstripe::forget::{ForgetChoice, ForgetOptions};
use pinstripe::{Store, forget};
use pinstripe_base::clock;
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_base::units::format_count;
use pinstripe_stripe::{GroupBy, Policy};

use super::gc::GcArgs;
use crate::choice_args::HostChoiceArgs;
use crate::event::Event;
use crate::message::counted;
use crate::rules::Rules;
use crate::run::rollback;
use crate::run::{Ending, Run};
use crate::time;

/// Forget snapshots that are selected by rules or by id
///
/// A forgotten snapshot is hidden, but not deleted: 'pinstripe undelete' brings it back until
/// 'pinstripe gc' deletes its data. If no rule is given on the command line, the rules under
/// [store.NAME.retention] in the config file apply, or those under [retention] if the store has
/// none of its own. The rules apply separately to each combination of host and paths; '--group-by'
/// chooses other groups. A snapshot is kept if at least one rule keeps it. A snapshot with a wrong
/// time is always kept, and no rule counts it. The time of a snapshot is wrong if it is in the
/// future, or earlier than the time of the previous snapshot from which unchanged files were taken.
/// The rules count days and weeks in the time zone of this machine.
#[derive(clap::Args)]
#[command(after_long_help = "\
--keep-daily N keeps the newest snapshot of each of the last N days that have a snapshot. The rules for \
hours, weeks (which begin on Monday), months and years work in the same way.

--keep-within-daily SPAN keeps the newest snapshot of each day, if this snapshot is at most SPAN older than \
the newest snapshot of the group. SPAN is written as for --keep-within: 36h, 30d, 8w, 6m or 2y.

If the newest snapshot of a group is older than 30 days, while the store has a newer snapshot, a note \
names the group and its snapshots, because such a group usually belongs to a host or to paths that are no \
longer backed up. forget never forgets the newest snapshot of a group only because it is old.

Examples:
  pinstripe forget --dry-run
  pinstripe forget --keep-last 3 --keep-daily 14 --keep-monthly 12 --dry-run
  pinstripe forget --keep-within 30d --keep-tag release --host web1
  pinstripe forget --keep-within-daily 14d --keep-within-monthly 1y --group-by host --gc
  pinstripe forget 3f2a9c10")]
pub struct ForgetArgs {
    /// Snapshots to forget, each given by the beginning of its id
    #[arg(value_name = "SNAPSHOT", conflicts_with_all = ["keep_last", "keep_hourly", "keep_daily",
          "keep_weekly", "keep_monthly", "keep_yearly", "keep_tag", "keep_within",
          "keep_within_hourly", "keep_within_daily", "keep_within_weekly", "keep_within_monthly",
          "keep_within_yearly", "group_by"])]
    snapshots: Vec<String>,

    #[command(flatten)]
    rules: Rules,

    /// Only show which snapshots would be forgotten
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Then delete the data of forgotten snapshots, like 'pinstripe gc' without options
    ///
    /// The gc also runs if this command forgot nothing. With --dry-run, it shows what it would
    /// delete if the snapshots were forgotten. If the gc fails, the snapshots stay forgotten.
    #[arg(long)]
    gc: bool,

    /// Proceed even if no snapshot would be left
    #[arg(long)]
    allow_empty: bool,

    #[command(flatten)]
    choice: HostChoiceArgs,
}

impl ForgetArgs {
    /// Forgets, and then runs the gc if that was asked for.
    ///
    /// # Errors
    /// Fails with the errors of [`forget::run`] and [`GcArgs::delete`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let (ending, store, forgotten) = run.without_silent(|| {
            let store = run.open_store()?;
            let (ending, forgotten) = self.forget(run, &store)?;
            Ok((ending, store, forgotten))
        })?;
        if !self.gc {
            return Ok(ending);
        }
        let (gc, mut open) = (GcArgs::defaults(self.dry_run), Some(store));
        let deleted = run.without_silent(|| {
            let store = open.take().map_or_else(|| run.open_store(), Ok)?;
            gc.delete(run, &store, &forgotten)
        });
        if deleted.is_err() && !self.dry_run {
            run.monitor.note("only the gc failed: what 'forget' reported above is done");
        }
        let deleted = deleted?;
        let code = ending.code.max(deleted.code);
        Ok(Ending { code, facts: ending.facts.with_all(deleted.facts) })
    }

    /// Applies the rules, shows the result, and marks the snapshots, whose ids it returns.
    fn forget(&self, run: &Run, store: &Store) -> Result<(Ending, Vec<SnapshotId>)> {
        let among = self.choice.choice(run)?;
        if self.dry_run {
            run.warn_of_absent(store);
        }
        rollback::warn(run, store)?;
        if let Some(id) = self.damaged(run, store)? {
            if !self.dry_run {
                forget::forget_damaged(store, id)?;
                run.degraded_by_absent(store);
                rollback::look_again(run, store);
            }
            let verb = self.verb();
            run.screen.say(&format!("{verb} snapshot {}, which cannot be read", id.short()));
            let facts = Event::default().with("forgotten", 1).with("kept", 0);
            return Ok((Ending::done(facts), vec![id]));
        }
        let (policy, group_by) = self.policy(run, store)?;
        let now = clock::now();
        let choice = if self.snapshots.is_empty() {
            ForgetChoice::Policy { policy: &policy, offset_at: &time::offset_seconds, now }
        } else {
            ForgetChoice::Named(&self.snapshots)
        };
        let options = ForgetOptions {
            choice,
            among: &among,
            group_by,
            dry_run: self.dry_run,
            allow_empty: self.allow_empty,
        };
        let outcome = forget::run(store, &options, &run.monitor)?;
        if !self.dry_run {
            run.degraded_by_absent(store);
            rollback::look_again(run, store);
        }
        shown::verdicts(run, &outcome, self.dry_run)?;
        let gone = outcome.verdicts.iter().filter(|verdict| !verdict.stays());
        let gone: Vec<_> = gone.map(|verdict| verdict.snapshot.id).collect();
        self.tell(run, gone.len(), outcome.verdicts.len() - gone.len());
        shown::idle_groups(run, &outcome, self.dry_run)?;
        let facts = Event::default().with("forgotten", gone.len());
        let facts = facts.with("kept", outcome.verdicts.len() - gone.len());
        Ok((Ending::done(facts), gone))
    }

    /// The beginning of a report.
    fn verb(&self) -> &'static str {
        if self.dry_run { "would forget" } else { "forgot" }
    }

    /// Prints how many snapshots were forgotten.
    fn tell(&self, run: &Run, forgotten: usize, kept: usize) {
        let mut told = format!("{} {}", self.verb(), counted(forgotten as u64, "snapshot"));
        if self.snapshots.is_empty() {
            told += &format!(", kept {}", format_count(kept as u64));
        }
        run.screen.say(&told);
    }

    /// The rules on the command line or, if it has none, those of the store or the general ones in
    /// the config file; and the groups to which they apply.
    fn policy(&self, run: &Run, store: &Store) -> Result<(Policy, GroupBy)> {
        if !self.snapshots.is_empty() {
            return Ok((Policy::default(), GroupBy::default()));
        }
        let (own, general) = (own_rules(run, store)?, &run.config()?.retention);
        let group_by = self.rules.group_by.or(own.group_by).or(general.group_by);
        let (rules, which) = if self.rules.has_rule() {
            (&self.rules, None)
        } else if own.has_rule() {
            (&own, Some("the rules of this store in the config file"))
        } else {
            (general, Some("the rules under [retention] in the config file"))
        };
        if let Some(which) = which.filter(|_| rules.has_rule()) {
            run.monitor.note(&format!("{which} decide which snapshots are kept"));
        }
        Ok((rules.policy(), group_by.unwrap_or_default()))
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

/// The rules that the config file has for this store: under the name that was given or, if none was
/// given, for one of its members. So a store has the same rules, however it is named.
fn own_rules(run: &Run, store: &Store) -> Result<Rules> {
    if let Some(named) = run.named_store(None)?
        && !named.retention.is_empty()
    {
        return Ok(named.retention);
    }
    let places: Vec<_> = store.member_slots.iter().map(|slot| &*slot.place).collect();
    Ok(run.config()?.rules_of(&places).cloned().unwrap_or_default())
}
