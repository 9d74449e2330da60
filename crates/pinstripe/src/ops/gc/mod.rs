//! `gc`: deletes everything that no snapshot needs, concurrently with any number of backups.
//!
//! ```text
//! session · settle what dead ones left · roots · mark, plan · repack · CONDEMNED · answers
//!         · roots again · REAPING · last look · delete · TOMBSTONE · clear · tidy · end
//! ```
//!
//! doc/decisions/0011-deletion.md shows for each race that no needed data is deleted. After a crash
//! at any point the next gc continues: before REAPING as if the crashed one had never begun, after
//! REAPING to its end.
//!
//! Not in this module: decisions (store/deletion/decide.rs), and clocks except to limit waiting.

mod at_work;
mod mark;
mod roots;
mod settle;
mod silent;
mod survey;
mod tidy;
mod usage;
mod wait;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use roots::StoreObservation;
pub use settle::fence;
use survey::{PackSelection, Survey};

use crate::pipeline::backup::{RepackPlan, repack};
use crate::pipeline::heartbeat;
use crate::pipeline::limits::Limits;
use crate::store::deletion::decide;
use crate::store::failure_detector::FailureDetector;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ChunkId, CondemnationId, SetId, SnapshotId};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::gc::{DeletionStep, Lists, reaping_name};
use pinstripe_member::session::{Session, Work};
use pinstripe_member::{ExtentKind, ExtentName};

use crate::store::objects::Quorum;
use crate::store::sessions::{self, OpenSession};
use crate::store::{Store, deletion};

/// Options of `gc`.
pub struct GcOptions {
    /// The fraction of waste, from 0 to 1, that may remain in the packs: the packs with the most
    /// waste are rewritten until no more than this is left.
    pub max_waste: f64,
    /// Only report what would be done.
    pub dry_run: bool,
    /// How long to wait for writers to say which condemned packs they rely on. Running writers
    /// answer within seconds.
    pub wait: Duration,
    /// Threads and queues.
    pub limits: Limits,
    /// Decides when writers on other hosts are dead, so that their sessions are ended.
    pub detector: Arc<FailureDetector>,
}

/// The result of a gc, or in a dry run the expected result.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct GcOutcome {
    /// Snapshots that are wanted.
    pub kept_snapshots: u64,
    /// Forgotten snapshots that were deleted.
    pub deleted_snapshots: u64,
    /// Packs that were deleted.
    pub deleted_packs: u64,
    /// Bytes that the deleted packs took on members.
    pub deleted_bytes: u64,
    /// Deleted packs from which needed data was moved into new packs.
    pub repacked_packs: u64,
    /// Bytes of the records that were rewritten.
    pub moved_bytes: u64,
    /// Pages of trees that are in one pack but should be in two, as in stores without parity.
    pub thin_pages: u64,
    /// Condemned packs that are kept because a writer began to rely on them in the meantime.
    pub revived_packs: u64,
    /// Bytes of records in packs that are kept.
    pub kept_bytes: u64,
    /// Bytes in the kept packs that nothing needs.
    pub waste_bytes: u64,
    /// Chunks that snapshots need but no pack has.
    pub missing_chunks: u64,
    /// Extents and objects of earlier deletions that members brought back after an absence.
    pub stale_objects: u64,
    /// Sessions of dead writers that were removed.
    pub ended_sessions: u64,
    /// Extents and objects that are kept and whose retention was extended, on members with
    /// retention.
    pub extended_objects: u64,
    /// Sessions that were ended because their heartbeats stopped: a writer that is still alive
    /// makes no snapshot.
    pub fenced_sessions: u64,
}

/// Deletes everything that no snapshot needs.
///
/// # Errors
/// Fails with [`Kind::Refused`] when too few members are present or a wanted snapshot cannot be
/// read, with [`Kind::Busy`] when writers do not say what they rely on, with [`Kind::Locked`]
/// without the key, or with the errors of the members. Whatever the error is, no needed data is
/// deleted.
pub fn run(store: &Store, options: &GcOptions, monitor: &Monitor) -> Result<GcOutcome> {
    if options.dry_run {
        return preview(store, options, &[], monitor);
    }
    collect(store, options, &PackSelection::Waste(options.max_waste), monitor)
}

/// Returns what a gc would do if these snapshots were forgotten too. Changes nothing.
///
/// # Errors
/// Fails with the errors of [`run`].
pub fn preview(
    store: &Store,
    options: &GcOptions,
    forgotten: &[SnapshotId],
    monitor: &Monitor,
) -> Result<GcOutcome> {
    require_members(store)?;
    store.keys()?;
    let waste = PackSelection::Waste(options.max_waste);
    let survey = Survey::take(store, None, &waste, options, forgotten, monitor)?;
    Ok(survey.outcome(store))
}

/// Moves the needed part of some packs into new packs over the members that get new packs now, and
/// deletes the old packs. Forgotten snapshots and other waste are kept. Chunks in `given_up` do not
/// count as needed: the caller has found that no pack has a readable copy of them.
///
/// # Errors
/// Fails with the errors of [`run`].
pub(super) fn retire(
    store: &Store,
    sets: HashSet<SetId>,
    given_up: HashSet<ChunkId>,
    limits: Limits,
    monitor: &Monitor,
) -> Result<GcOutcome> {
    let detector = Arc::default();
    let options = GcOptions { max_waste: 1.0, dry_run: false, wait: WAIT, limits, detector };
    collect(store, &options, &PackSelection::These { sets, given_up }, monitor)
}

/// Returns the number of tree pages that are in fewer packs than they should be.
///
/// # Errors
/// Fails when a tree cannot be read, or with the errors of the members.
pub(super) fn thin_pages(store: &Store, limits: Limits, monitor: &Monitor) -> Result<u64> {
    let detector = Arc::default();
    let options = GcOptions { max_waste: 1.0, dry_run: true, wait: WAIT, limits, detector };
    let none = PackSelection::These { sets: HashSet::new(), given_up: HashSet::new() };
    let survey = Survey::take(store, None, &none, &options, &[], monitor)?;
    Ok(survey.thin.len() as u64)
}

/// How long to wait for writers by default.
pub const WAIT: Duration = Duration::from_secs(60);

fn collect(
    store: &Store,
    options: &GcOptions,
    selection: &PackSelection,
    monitor: &Monitor,
) -> Result<GcOutcome> {
    require_members(store)?;
    store.keys()?;
    store.sweep(monitor);
    store.keep_labels_true(monitor);
    let case = CondemnationId(store.new_name()?);
    let session = sessions::begin(store, Work::Collect, reaping_name(case), Vec::new())?;
    let fenced = AtomicU64::new(0);
    let gc = Collector { store, options, monitor, session: &session, case, fenced };
    let mut outcome = heartbeat::beside(store, &session, || {
        let earlier = settle::inherit(&gc)?;
        let mut outcome = gc.collect(selection)?;
        tidy::run(&gc, &earlier, &mut outcome)?;
        outcome.extended_objects = keep_longer(store, monitor)?;
        Ok::<_, Error>(outcome)
    })?;
    outcome.fenced_sessions = gc.fenced.load(Ordering::Relaxed);
    session.end()?;
    Ok(outcome)
}

/// Extends the retention of everything that is kept, on members with retention. Returns the number
/// of extents and objects whose retention was extended. If no member has retention, nothing is
/// done.
fn keep_longer(store: &Store, monitor: &Monitor) -> Result<u64> {
    let mut rows = store.member_slots.iter().filter_map(|slot| slot.row.as_ref());
    if rows.all(|row| row.facts.retention.is_none()) {
        return Ok(0);
    }
    let mut names: Vec<_> = store.lasting_objects()?.into_iter().collect();
    names.extend(
        store.list(ExtentKind::Packs)?.into_keys().map(|id| ExtentName::In(ExtentKind::Packs, id)),
    );
    names.push(ExtentName::Label);
    let mut extended = 0;
    for (_, member) in store.present() {
        match member.keep_longer(&names) {
            Ok(kept) => extended += kept.extended,
            Err(error) => monitor.warning(member.place(), error),
        }
    }
    Ok(extended)
}

/// Requires enough present members that every writer has used at least one of them.
fn require_members(store: &Store) -> Result<()> {
    let (there, least) = (store.present().count(), store.least_members(Quorum::Deletion));
    if there >= least {
        return Ok(());
    }
    Err(Error::new(
        Kind::Refused,
        "too few members are present for a deletion, because a writer may be using the absent \
         members",
    )
    .expected(format!("at least {least} members"), there)
    .advice(
        "attach the absent members, or replace them with 'pinstripe member replace N --to DIR'",
    ))
}

/// A running gc.
struct Collector<'a> {
    store: &'a Store,
    options: &'a GcOptions,
    monitor: &'a Monitor,
    session: &'a OpenSession<'a>,
    case: CondemnationId,
    /// Sessions that were ended because their heartbeats stopped.
    fenced: AtomicU64,
}

impl Collector<'_> {
    fn collect(&self, selection: &PackSelection) -> Result<GcOutcome> {
        let (store, monitor) = (self.store, self.monitor);
        let own = Some(self.session.session.id);
        let mut survey = Survey::take(store, own, selection, self.options, &[], monitor)?;
        if survey.missing > 0 {
            let chunks = pinstripe_base::units::counted(survey.missing, "chunk is", "chunks are");
            let error = Error::new(
                Kind::NotFound,
                format!("{chunks} needed by a snapshot, but not in any pack"),
            );
            let advice =
                "this data was lost earlier; run 'pinstripe check' to see what is affected";
            monitor.warning("snapshots", error.advice(advice));
        }
        settle::spread(store, &survey.observed.roots)?;
        survey.lists.abandoned = settle::abandoned(store)?;
        survey.lists.abandoned.append(&mut survey.observed.returned);
        let mut outcome = survey.outcome(store);
        // The plan's number was for a dry run; the actual deletions are counted below.
        outcome.deleted_bytes = 0;
        monitor.set_total(survey.moved_bytes, survey.lists.packs.len() as u64);
        if is_empty(&survey.lists) && survey.thin.is_empty() {
            return Ok(outcome);
        }
        let spared = match self.repack(&survey) {
            // Packs without any needed chunk are still deleted, and make room for the next run.
            Err(error)
                if error.kind() == Kind::NoSpace
                    && matches!(selection, PackSelection::Waste(_)) =>
            {
                monitor.warning(
                    "packs with waste",
                    error.advice_instead(
                        "there is not enough space to rewrite the needed data of these packs; \
                         packs without needed data are deleted anyway; after that, run 'pinstripe \
                         gc' again",
                    ),
                );
                survey.evacuating.iter().map(|pack| pack.set).collect()
            }
            spared => spared?,
        };
        if is_empty(&survey.lists) {
            return Ok(outcome);
        }
        survey.lists.packs.retain(|set| !spared.contains(set));
        self.condemn(&survey, selection, outcome)
    }

    /// Condemns what is on the lists, and deletes what nothing needs after all writers have
    /// answered.
    fn condemn(
        &self,
        survey: &Survey<'_>,
        selection: &PackSelection,
        mut outcome: GcOutcome,
    ) -> Result<GcOutcome> {
        let condemned = survey.lists.packs.len();
        // Condemned only after the repack: the data that snapshots need of these packs is in new
        // ones now.
        self.put(DeletionStep::Condemned(survey.lists.clone()))?;
        let lists = match self.after_answers(survey, selection) {
            Ok(none) if is_empty(&none) => {
                self.withdraw()?;
                outcome.revived_packs = condemned as u64;
                (outcome.deleted_packs, outcome.deleted_snapshots) = (0, 0);
                return Ok(outcome);
            }
            Ok(lists) => lists,
            Err(error) => {
                self.withdraw()?;
                return Err(error);
            }
        };
        outcome.revived_packs = (condemned - lists.packs.len()) as u64;
        outcome.deleted_packs = lists.packs.len() as u64;
        outcome.deleted_snapshots = lists.snapshots.len() as u64;
        self.point_of_no_return(&lists)?;
        outcome.deleted_bytes =
            settle::carry_out(self, self.case, self.session.session.id, &lists)?;
        Ok(outcome)
    }

    fn repack(&self, survey: &Survey<'_>) -> Result<Vec<SetId>> {
        if survey.evacuating.is_empty() && survey.thin.is_empty() {
            return Ok(Vec::new());
        }
        // Packs that will go must not count as places of a chunk.
        let excluded = survey.lists.packs.iter().chain(&survey.others).copied().collect();
        let plan =
            RepackPlan { packs: &survey.evacuating, thin: &survey.thin, excluded: &excluded };
        repack(self.store, &survey.index, plan, self.options.limits, self.monitor)
    }

    fn others_at_work(&self) -> Result<Vec<Session>> {
        self.store.refuse_older_keys()?;
        at_work::sessions_at_work(self.store, Some(self.session.session.id))
    }

    fn put(&self, step: DeletionStep) -> Result<()> {
        self.store.refuse_newcomers()?;
        deletion::put(self.store, self.case, self.session.session.id, step, Quorum::Deletion)
    }

    fn withdraw(&self) -> Result<()> {
        self.store.refuse_older_keys()?;
        let cases = deletion::load(self.store, Quorum::Deletion)?;
        let case = cases.0.get(&self.case).cloned().unwrap_or_default();
        deletion::withdraw(self.store, self.case, &case)
    }

    /// Waits for all writers, determines again what is needed, and removes that from the lists.
    fn after_answers(&self, survey: &Survey<'_>, selection: &PackSelection) -> Result<Lists> {
        self.wait_for_answers()?;
        let own = Some(self.session.session.id);
        let mut observed = StoreObservation::read(self.store, own, &[])?;
        observed.leave_out_returned(&survey.index)?;
        let others = observed.cases.lost_to_others(Some(self.case));
        let acks =
            observed.cases.0.get(&self.case).map(|case| case.acks.clone()).unwrap_or_default();
        let mut rescued: HashSet<SetId> = acks.into_values().flatten().collect();
        // With no further root, and no further pack condemned or deleted by others, the earlier
        // marks still hold: marking again would find the same.
        let is_same =
            observed.roots.is_subset(&survey.observed.roots) && others.is_subset(&survey.others);
        if !is_same {
            let optional = mark::OptionalRoots {
                spared: selection.spared(&observed),
                begun: Vec::new(),
                given_up: selection.given_up(),
            };
            rescued.extend(self.needed_now(survey, &observed, &optional, &others)?);
        }
        Ok(decide::remaining(&survey.lists, &rescued, &observed.roots))
    }

    fn needed_now(
        &self,
        survey: &Survey<'_>,
        observed: &StoreObservation,
        optional: &mark::OptionalRoots,
        others: &HashSet<SetId>,
    ) -> Result<HashSet<SetId>> {
        let (trees, threads) = (observed.trees()?, self.options.limits.workers);
        let ours: HashSet<SetId> = survey.lists.packs.iter().copied().collect();
        let index = &survey.index;
        index.refresh_packs()?;
        index.over_rows(|rows| {
            let marked =
                mark::mark(self.store, index, rows, &trees, optional, threads, self.monitor)?;
            usage::rescued(rows, &marked, &ours, others)
        })
    }

    /// Puts the REAPING step, unless this gc was ended from outside, and does the last check.
    fn point_of_no_return(&self, lists: &Lists) -> Result<()> {
        if let Err(error) = self.put(DeletionStep::Reaping(lists.clone())) {
            if error.kind() != Kind::Exists {
                return Err(error);
            }
            self.withdraw()?;
            return Err(Error::new(Kind::Busy, "another process ended (fenced) this gc")
                .advice("nothing was deleted; run 'pinstripe gc' again"));
        }
        // REAPING counts by the votes of the table that others know.
        if let Err(changed) = self.store.confirm_table() {
            self.withdraw()?;
            return Err(changed);
        }
        if settle::may_reap(self, self.case, lists)? {
            return Ok(());
        }
        self.withdraw()?;
        Err(Error::new(
            Kind::Busy,
            "'pinstripe undelete' restored a forgotten snapshot while this gc ran",
        )
        .advice("nothing was deleted; run 'pinstripe gc' again"))
    }
}

fn is_empty(lists: &Lists) -> bool {
    lists.packs.is_empty() && lists.snapshots.is_empty() && lists.abandoned.is_empty()
}
