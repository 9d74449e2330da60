//! `gc`: delete what no snapshot needs, beside any number of backups.
//!
//! ```text
//! session · settle what dead ones left · roots · mark, plan · repack · CONDEMNED · answers
//!         · roots again · REAPING · last look · delete · TOMBSTONE · clear · tidy · end
//! ```
//! Why this is safe, race by race: doc/decisions/0011-deletion.md. Killed at any point, the next
//! one goes on: before REAPING as if nothing had been, after it to the end.
//!
//! Never here: deciding (store/deletion/decide.rs), clocks but for how long to wait.

mod mark;
mod roots;
mod settle;
mod tidy;
mod usage;

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use roots::{Seen, at_work};
pub use settle::fence;

use crate::clock;
use crate::error::{Error, Kind, Result};
use crate::format::gc::{Lists, PACKS_MAX, SNAPSHOTS_MAX, Step, reaping_name};
use crate::format::session::{Session, Work};
use crate::id::{CondemnationId, SessionId, SetId, random};
use crate::member::Room;
use crate::monitor::Monitor;
use crate::pipeline::backup::{Leaving, repack};
use crate::pipeline::limits::Limits;
use crate::store::deletion::{Case, Cases, decide};
use crate::store::index::{Index, standing_sets};
use crate::store::objects::Reach;
use crate::store::sessions::{self, OpenSession};
use crate::store::{Store, deletion};

/// How to delete.
pub struct Options {
    /// What share of what stays may be needed by nothing, 0 to 1: packs that hold more waste are
    /// written anew until no more is left.
    pub max_waste: f64,
    /// Say what would be done, and do nothing.
    pub dry_run: bool,
    /// How long to wait for writers to say what they rely on. They do so within seconds.
    pub wait: Duration,
    /// Threads and queues.
    pub limits: Limits,
}

/// What was done, or would be.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// Snapshots that are wanted.
    pub kept_snapshots: u64,
    /// Forgotten snapshots that were deleted.
    pub deleted_snapshots: u64,
    /// Packs that were deleted.
    pub deleted_packs: u64,
    /// Bytes on members that they took.
    pub deleted_bytes: u64,
    /// Packs among them of which something was needed and moved.
    pub repacked_packs: u64,
    /// Condemned packs that stay because somebody began to rely on them meanwhile.
    pub revived_packs: u64,
    /// Bytes of records in packs that stay.
    pub kept_bytes: u64,
    /// Bytes of them that nothing needs.
    pub waste_bytes: u64,
    /// Chunks that snapshots need and no pack has.
    pub missing_chunks: u64,
    /// Extents and objects of earlier deletions that members which were away brought back.
    pub stale_objects: u64,
    /// Sessions of dead writers that were removed.
    pub ended_sessions: u64,
}

/// Deletes what no snapshot needs.
///
/// # Errors
/// [`Kind::Refused`] when too few members are there, or a snapshot that is wanted cannot be read;
/// [`Kind::Busy`] when writers do not say what they rely on; [`Kind::Locked`] without the key;
/// those of the members. Whatever ends it, nothing that is needed is gone.
pub fn run(store: &Store, options: &Options, monitor: &Monitor) -> Result<Outcome> {
    collect(store, options, &Pick::Waste(options.max_waste), monitor)
}

/// Moves what is needed of some packs into new ones, over the members that take new packs now, and
/// deletes them. Forgotten snapshots and other waste stay as they are.
///
/// # Errors
/// As [`run`].
pub(super) fn retire(
    store: &Store,
    sets: HashSet<SetId>,
    limits: Limits,
    monitor: &Monitor,
) -> Result<Outcome> {
    let options = Options { max_waste: 1.0, dry_run: false, wait: WAIT, limits };
    collect(store, &options, &Pick::These(sets), monitor)
}

/// How long writers are waited for, unless somebody says otherwise.
pub const WAIT: Duration = Duration::from_secs(60);

/// Which packs go.
enum Pick {
    /// Those that nothing needs, and the worst until no more than this share is waste.
    Waste(f64),
    /// Exactly these.
    These(HashSet<SetId>),
}

impl Pick {
    /// Trees of forgotten snapshots that stay as they are.
    fn spared(&self, seen: &Seen) -> Vec<mark::Root> {
        match self {
            Pick::Waste(_) => Vec::new(),
            Pick::These(_) => seen.forgotten_trees(),
        }
    }
}

fn collect(store: &Store, options: &Options, pick: &Pick, monitor: &Monitor) -> Result<Outcome> {
    require_members(store)?;
    store.keys()?;
    if options.dry_run {
        let survey = Survey::take(store, None, pick, options, monitor)?;
        return Ok(survey.outcome(store));
    }
    store.sweep(monitor);
    let case = CondemnationId(random()?);
    let session = sessions::begin(store, Work::Collect, reaping_name(case), Vec::new())?;
    let gc = Collector { store, options, monitor, session: &session, case };
    let earlier = settle::inherit(&gc)?;
    let mut outcome = gc.collect(pick)?;
    tidy::run(&gc, &earlier, &mut outcome)?;
    session.end()?;
    Ok(outcome)
}

/// Enough members that no writer can have met only others.
fn require_members(store: &Store) -> Result<()> {
    let (there, least) = (store.present().count(), store.least_members(Reach::Deletion));
    if there >= least {
        return Ok(());
    }
    Err(Error::new(Kind::Refused, "too few members to delete: a writer may use the others")
        .expected(format!("at least {least} members"), there)
        .advice("attach the absent members, or replace them: pinstripe member replace N --to DIR"))
}

/// One gc at work.
struct Collector<'a> {
    store: &'a Store,
    options: &'a Options,
    monitor: &'a Monitor,
    session: &'a OpenSession<'a>,
    case: CondemnationId,
}

/// What was found before anything is done.
struct Survey<'a> {
    index: Index<'a>,
    seen: Seen,
    /// Packs that others have condemned or deleted.
    others: HashSet<SetId>,
    plan: decide::Plan,
    leaving: Vec<Leaving>,
    /// Bytes to move, about.
    moved_bytes: u64,
    lists: Lists,
    missing: u64,
}

/// Times that the index is read again because other writers merged it meanwhile.
const INDEX_TRIES: usize = 8;

/// Does `work` again as long as it failed because the index was merged meanwhile, or has a run that
/// cannot be read and is done without from then on.
fn with_rows<T>(
    index: &Index<'_>,
    mut work: impl FnMut(&crate::store::index::Rows<'_>) -> Result<T>,
) -> Result<T> {
    let mut tries = 0;
    loop {
        let rows = index.frozen();
        let error = match work(&rows) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        index.refresh_packs()?;
        if rows.are_current(index) {
            index.leave_out_unreadable()?;
        }
        tries += 1;
        if rows.are_current(index) || tries == INDEX_TRIES {
            return Err(error);
        }
    }
}

impl<'a> Survey<'a> {
    fn take(
        store: &'a Store,
        own: Option<SessionId>,
        pick: &Pick,
        options: &Options,
        monitor: &'a Monitor,
    ) -> Result<Self> {
        let seen = Seen::read(store, own)?;
        let others = deletion::load(store, Reach::Deletion)?.lost_to_others(None);
        let trees = seen.trees()?;
        let mut hopes = roots::interrupted(store, monitor);
        hopes.extend(pick.spared(&seen));
        // After the roots: what a snapshot needs was in the index before it.
        let index = Index::load(store, monitor)?;
        let threads = options.limits.workers;
        let (plan, leaving, moved_bytes, missing) = with_rows(&index, |rows| {
            let marked = mark::mark(store, &index, rows, &trees, &hopes, threads, monitor)?;
            let usages = usage::count(rows, &marked.needed, &others)?;
            let mut plan = match pick {
                Pick::Waste(share) => usages.plan(*share),
                Pick::These(sets) => usages.plan_of(sets),
            };
            plan.repack.truncate(PACKS_MAX / 2);
            let leaving = usage::leaving(rows, &marked.needed, &plan.repack)?;
            let moved_bytes = usages.live_bytes(&plan.repack);
            Ok((plan, leaving, moved_bytes, marked.missing))
        })?;
        let mut packs: Vec<SetId> = plan.dead.iter().chain(&plan.repack).copied().collect();
        if missing == 0 && store.absent().next().is_none() {
            let is_picked = |set: &SetId| match pick {
                Pick::Waste(_) => true,
                Pick::These(sets) => sets.contains(set),
            };
            packs.extend(leftovers(store, &index)?.into_iter().filter(is_picked));
        }
        let mut snapshots = match pick {
            Pick::Waste(_) => seen.doomed(),
            Pick::These(_) => Vec::new(),
        };
        snapshots.truncate(SNAPSHOTS_MAX);
        packs.truncate(PACKS_MAX);
        packs.sort_unstable();
        let lists = Lists { packs, snapshots, abandoned: Vec::new() };
        Ok(Survey { index, seen, others, plan, leaving, moved_bytes, lists, missing })
    }

    fn outcome(&self, store: &Store) -> Outcome {
        Outcome {
            kept_snapshots: self.seen.roots.len() as u64,
            deleted_snapshots: self.lists.snapshots.len() as u64,
            deleted_packs: self.lists.packs.len() as u64,
            deleted_bytes: bytes_of(store, &self.lists.packs),
            repacked_packs: self.leaving.len() as u64,
            kept_bytes: self.plan.kept_bytes,
            waste_bytes: self.plan.waste_bytes,
            missing_chunks: self.missing,
            ..Outcome::default()
        }
    }
}

/// Sets on too few members to be packs that count, and that the index does not know: left by
/// backups that were cut off while they sealed them.
fn leftovers(store: &Store, index: &Index<'_>) -> Result<Vec<SetId>> {
    let unreadable: HashSet<SetId> = index.unreadable().into_iter().collect();
    let packs = index.packs();
    let is_unknown = |set: &SetId| packs.find(set).is_none() && !unreadable.contains(set);
    Ok(standing_sets(store, Room::Packs)?.into_keys().filter(is_unknown).collect())
}

/// Bytes that some packs take on the members that are there.
fn bytes_of(store: &Store, packs: &[SetId]) -> u64 {
    let wanted: HashSet<[u8; 16]> = packs.iter().map(|set| set.0).collect();
    let listed = store.present().filter_map(|(_, member)| member.list(Room::Packs).ok()).flatten();
    listed.filter(|(id, _)| wanted.contains(id)).map(|(_, bytes)| bytes).sum()
}

impl Collector<'_> {
    fn collect(&self, pick: &Pick) -> Result<Outcome> {
        let (store, monitor) = (self.store, self.monitor);
        let own = Some(self.session.session.id);
        let mut survey = Survey::take(store, own, pick, self.options, monitor)?;
        if survey.missing > 0 {
            let error =
                Error::new(Kind::NotFound, format!("{} chunks are in no pack", survey.missing));
            let advice = "they were lost before; run 'pinstripe check' to see what that hurts";
            monitor.warning("snapshots", error.advice(advice));
        }
        survey.lists.abandoned = settle::abandoned(store)?;
        let mut outcome = survey.outcome(store);
        outcome.deleted_bytes = 0;
        monitor.expect(survey.moved_bytes, survey.lists.packs.len() as u64);
        if is_empty(&survey.lists) {
            return Ok(outcome);
        }
        let spared = self.repack(&survey)?;
        survey.lists.packs.retain(|set| !spared.contains(set));
        let revivable = survey.lists.packs.len();
        self.put(Step::Condemned(survey.lists.clone()))?;
        let lists = match self.after_answers(&survey, pick) {
            Ok(lists) if !is_empty(&lists) => lists,
            done => {
                self.withdraw()?;
                done?;
                let revived_packs = revivable as u64;
                return Ok(Outcome {
                    deleted_packs: 0,
                    deleted_snapshots: 0,
                    revived_packs,
                    ..outcome
                });
            }
        };
        outcome.revived_packs = (revivable - lists.packs.len()) as u64;
        outcome.deleted_packs = lists.packs.len() as u64;
        outcome.deleted_snapshots = lists.snapshots.len() as u64;
        self.point_of_no_return(&lists)?;
        outcome.deleted_bytes =
            settle::carry_out(self, self.case, self.session.session.id, &lists)?;
        Ok(outcome)
    }

    fn repack(&self, survey: &Survey<'_>) -> Result<Vec<SetId>> {
        if survey.leaving.is_empty() {
            return Ok(Vec::new());
        }
        // What goes is no place to move to, nor to count on.
        survey.index.set_condemned(&survey.lists.packs, true);
        let others: Vec<SetId> = survey.others.iter().copied().collect();
        survey.index.set_condemned(&others, true);
        let limits = self.options.limits;
        repack(self.store, &survey.index, &survey.leaving, limits, self.monitor)
    }

    fn put(&self, step: Step) -> Result<()> {
        deletion::put(self.store, self.case, self.session.session.id, step, Reach::Deletion)
    }

    fn withdraw(&self) -> Result<()> {
        let cases = deletion::load(self.store, Reach::Deletion)?;
        let case = cases.0.get(&self.case).cloned().unwrap_or_default();
        deletion::withdraw(self.store, self.case, &case)
    }

    /// Waits for all writers, looks again at what is needed, and takes that out.
    fn after_answers(&self, survey: &Survey<'_>, pick: &Pick) -> Result<Lists> {
        self.wait_for_answers()?;
        let own = Some(self.session.session.id);
        let seen = Seen::read(self.store, own)?;
        let cases = deletion::load(self.store, Reach::Deletion)?;
        let others = cases.lost_to_others(Some(self.case));
        let acks = cases.0.get(&self.case).map(|case| case.acks.clone()).unwrap_or_default();
        let mut rescued: HashSet<SetId> = acks.into_values().flatten().collect();
        // As long as nobody wants more and nobody else condemned or deleted more, what was found
        // holds.
        let is_same = seen.roots.is_subset(&survey.seen.roots) && others.is_subset(&survey.others);
        if !is_same {
            rescued.extend(self.needed_now(survey, &seen, &pick.spared(&seen), &others)?);
        }
        Ok(decide::remaining(&survey.lists, &rescued, &seen.roots))
    }

    fn needed_now(
        &self,
        survey: &Survey<'_>,
        seen: &Seen,
        hopes: &[mark::Root],
        others: &HashSet<SetId>,
    ) -> Result<HashSet<SetId>> {
        let (trees, threads) = (seen.trees()?, self.options.limits.workers);
        let ours: HashSet<SetId> = survey.lists.packs.iter().copied().collect();
        let index = &survey.index;
        index.refresh_packs()?;
        with_rows(index, |rows| {
            let marked = mark::mark(self.store, index, rows, &trees, hopes, threads, self.monitor)?;
            usage::rescued(rows, &marked.needed, &ours, others)
        })
    }

    /// Waits until each backup that is at work has said what it relies on. One that began after the
    /// condemnation stood has seen it.
    fn wait_for_answers(&self) -> Result<()> {
        let mut asked: Option<Vec<Session>> = None;
        self.wait(|| {
            // In this order: answers, sessions, snapshots.
            let cases = deletion::load(self.store, Reach::Deletion)?;
            let answered = answered(&cases, self.case);
            let now = at_work(self.store, Some(self.session.session.id))?;
            let asked = asked.get_or_insert_with(|| now.clone());
            asked.retain(|session| now.iter().any(|it| it.id == session.id));
            let names = roots::names(self.store)?;
            Ok(decide::silent(asked, &answered, &names).into_iter().cloned().collect())
        })
    }

    /// Asks now and then until nobody is left to wait for.
    fn wait(&self, mut left: impl FnMut() -> Result<Vec<Session>>) -> Result<()> {
        const PAUSES_MS: [u64; 5] = [10, 40, 100, 200, 400];
        let began = clock::monotonic();
        let mut pauses = PAUSES_MS.into_iter();
        loop {
            let left = left()?;
            if left.is_empty() {
                return Ok(());
            }
            if began.elapsed() >= self.options.wait {
                return Err(busy(&left));
            }
            let pause = pauses.next().unwrap_or(PAUSES_MS[PAUSES_MS.len() - 1]);
            std::thread::sleep(Duration::from_millis(pause));
        }
    }

    /// Puts REAPING, unless this gc was ended from outside, and looks once more.
    fn point_of_no_return(&self, lists: &Lists) -> Result<()> {
        if let Err(error) = self.put(Step::Reaping(lists.clone())) {
            if error.kind() != Kind::Exists {
                return Err(error);
            }
            self.withdraw()?;
            return Err(Error::new(Kind::Busy, "this gc was ended from outside")
                .advice("nothing was deleted; run it again"));
        }
        if settle::may_reap(self, self.case, lists)? {
            return Ok(());
        }
        self.withdraw()?;
        Err(Error::new(Kind::Busy, "a snapshot was brought back while gc ran")
            .advice("nothing was deleted; run it again"))
    }
}

fn answered(cases: &Cases, case: CondemnationId) -> BTreeSet<SessionId> {
    let acks = |case: &Case| case.acks.keys().copied().collect::<BTreeSet<_>>();
    cases.0.get(&case).map(acks).unwrap_or_default()
}

fn is_empty(lists: &Lists) -> bool {
    lists.packs.is_empty() && lists.snapshots.is_empty() && lists.abandoned.is_empty()
}

/// Who is waited for.
fn busy(left: &[Session]) -> Error {
    let who: Vec<String> = left
        .iter()
        .map(|it| format!("{} {} (process {})", it.work.name(), it.id.short(), it.process.pid))
        .collect();
    let first = left[0].id.short();
    Error::new(Kind::Busy, format!("no answer from {}", who.join(", "))).advice(format!(
        "nothing was deleted; run gc again when they have ended. If one surely runs no more (its \
         machine is gone), end it: pinstripe gc --fence {first}"
    ))
}
