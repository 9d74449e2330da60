//! The chunk index: which chunks the store has, and where they are.
//!
//! The index consists of immutable parts. *Runs* are sorted files of rows on the members; only
//! their filters and fences are in memory ([`run`]). *Loose* parts are rows in memory, for packs
//! that no run lists yet and for runs of the first format. A query checks the filters first, and
//! then reads one page for each chunk that the store has. Parts are merged while a backup runs
//! ([`merge`]), so that their number grows with the logarithm of the store's size.
//!
//! Invariants:
//!
//! * A row counts only while its pack has enough extents to be read.
//! * A writer relies on a row only while the row's pack is not condemned, and has all of its
//!   extents or is in a run.
//! * A run that lacks an extent replaces no other run: the other run stays until everything that it
//!   lists is in runs that lack no extent.
//! * The index is derived data: a lost run can be rebuilt from the packs, and the index at the end
//!   of a pack from the pack's records.
//! * A query uses one [`View`], which never changes; refreshing makes another view.
//! * No lock is held while members are read.
//!
//! Not in this module: threads, and the decision to delete a pack.

mod ask;
mod cut;
mod find;
mod list;
mod load;
mod loose;
mod mend;
mod merge;
mod page_cache;
mod part;
mod rebuild;
mod redundant;
mod run;
mod stale;
#[cfg(test)]
mod tests;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub use ask::read_pack_index;
pub(crate) use ask::{index_of_pack, is_beyond_reading};
pub(crate) use cut::is_leftover;
pub use cut::{geometry_of, has_enough};
pub use find::{Place, RecordPlace, Rows};
pub use list::{Pack, Packs};
pub use load::sets_in;
pub(crate) use load::{sets_spoken_of, standing_sets};
pub use mend::Mended;
pub(crate) use mend::indexed_sets;
pub use merge::Merge;
pub(crate) use part::index_record;
pub(crate) use rebuild::pack_from_records;
pub use rebuild::unsound_records;
pub use stale::{Stale, Superseded, superseded};
pub(crate) use stale::{drop_superseded, stale_members};
pub use write::{RunWriter, SealedPack, lay_run, write_run};

use pinstripe_base::error::Result;
use pinstripe_base::id::SetId;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::{ExtentKind, PrefetchHint};

use super::Store;
use super::locks::{RankedMutex, RankedRwLock, StoreLock};
use super::objects::Quorum;
use loose::Loose;
use page_cache::PageCache;
use run::Run;

/// The state of an index at one moment, which never changes.
#[derive(Clone, Default)]
struct View {
    packs: Packs,
    runs: Vec<Arc<Run>>,
    loose: Vec<Arc<Loose>>,
    /// Redundant runs, all of whose packs are listed by other runs that lack no extent, with the
    /// numbers of those packs.
    redundant: Arc<BTreeMap<SetId, Box<[u32]>>>,
    /// Packs that were stored and are lost, as far as index runs record them.
    lost: Arc<BTreeSet<SetId>>,
}

/// Flags of runs and packs of a store that are not part of the view.
#[derive(Default)]
struct Marks {
    /// Packs that deletion condemned, whether or not they are in the list.
    condemned: HashSet<SetId>,
    /// Packs that this process is writing: it knows their chunks by its claims.
    own: HashSet<SetId>,
    /// Packs that deletion removed: their absence is not a loss.
    reaped: HashSet<SetId>,
    /// Runs and packs that cannot be read and were reported already.
    bad: HashSet<SetId>,
    /// Runs that were opened again because they may have moved.
    reopened: HashSet<SetId>,
}

/// What a refresh lists; packs that are not listed are found through their runs.
const REFRESH: [PrefetchHint; 3] = [
    PrefetchHint::new(ExtentKind::Gc, 2),
    PrefetchHint::new(ExtentKind::Index, 1),
    PrefetchHint::maybe(ExtentKind::Packs, 1),
];

/// The largest number of packs of a store in buckets that are listed together with everything else,
/// in one page.
pub(crate) const PACKS_LISTED_FAR: usize = 900;

/// The chunk index of an open store, shared by threads.
pub struct Index<'a> {
    store: &'a Store,
    monitor: &'a Monitor,
    view: RankedRwLock<Arc<View>>,
    cache: PageCache,
    marks: RankedMutex<Marks>,
    /// The packs in the index when it was loaded; any other pack was finished since then.
    first: BTreeSet<SetId>,
    refreshes: AtomicU32,
    /// Steps of deletion that existed before packs were last listed; `None` if packs may have been
    /// listed before the steps.
    deletions: RankedMutex<Option<BTreeSet<[u8; 16]>>>,
}

impl<'a> Index<'a> {
    /// Loads the index. Runs and packs that cannot be read are reported as warnings: chunks that
    /// only they list count as new in a backup and as lost in a restore.
    ///
    /// # Errors
    /// Fails when a present member cannot be listed.
    pub fn load(store: &'a Store, monitor: &'a Monitor) -> Result<Self> {
        let mut index = Index {
            store,
            monitor,
            view: RankedRwLock::new(StoreLock::View, Arc::default()),
            cache: PageCache::default(),
            marks: RankedMutex::new(StoreLock::Marks, Marks::default()),
            first: BTreeSet::new(),
            refreshes: AtomicU32::new(0),
            deletions: RankedMutex::new(StoreLock::Deletions, None),
        };
        index.gather(true)?;
        let view = index.view();
        index.first = view.packs.iter().map(|(_, pack)| pack.set).collect();
        Ok(index)
    }

    /// Keeps pages of up to `bytes` bytes in memory, for a caller that looks up chunks repeatedly
    /// and in no order.
    #[must_use]
    pub fn keeping(mut self, bytes: u64) -> Self {
        self.cache = PageCache::with_bytes(bytes);
        self
    }

    /// Adds what other writers have finished in the meantime, and drops runs that were merged.
    ///
    /// Runs are listed at each call; packs that no run lists are listed less often the more packs
    /// there are, so that many calls cost little.
    ///
    /// # Errors
    /// Fails when a present member cannot be listed.
    pub(crate) fn refresh(&self) -> Result<()> {
        /// The largest number of packs that are listed at every call.
        const LISTED: usize = 4096;
        self.store.prefetch(&REFRESH);
        let turn = self.refreshes.fetch_add(1, Ordering::Relaxed) as usize;
        let packs = self.view().packs.len();
        // For a large remote store the runs are enough: listing its packs takes many pages.
        let is_due = turn.is_multiple_of(1 + packs / LISTED);
        self.gather(is_due && !(self.store.is_far() && packs > PACKS_LISTED_FAR))
    }

    /// Refreshes the index and looks up the extents of all packs.
    ///
    /// # Errors
    /// Fails when a present member cannot be listed.
    pub(crate) fn refresh_packs(&self) -> Result<()> {
        self.gather(true)
    }

    /// Looks for packs again if a collector has taken a step since the last time, and returns
    /// whether it has: the needed chunks of a deleted pack are then in another pack.
    ///
    /// # Errors
    /// Fails when too few members can be listed.
    pub(crate) fn follow_deletion(&self) -> Result<bool> {
        // Prefetched answers may be older than the state that the caller has just seen.
        self.store.prefetch(&[]);
        let now = self.store.names(ExtentKind::Gc, Quorum::Backup)?;
        let is_news = self.deletions.lock().as_ref() != Some(&now);
        if is_news {
            self.gather(true)?;
        }
        Ok(is_news)
    }

    fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    /// Replaces the view `old`, from which `new` was made; returns `false` if another has replaced
    /// it already.
    fn replace(&self, old: &Arc<View>, new: View) -> bool {
        let mut view = self.view.write();
        let is_current = Arc::ptr_eq(&view, old);
        if is_current {
            *view = Arc::new(new);
        }
        is_current
    }

    fn marks<T>(&self, ask: impl FnOnce(&mut Marks) -> T) -> T {
        ask(&mut self.marks.lock())
    }

    /// Returns the packs known now. The flags of the packs are shared with the index.
    pub fn packs(&self) -> Packs {
        self.view().packs.clone()
    }

    /// Returns the name of the pack with this number.
    pub(crate) fn set_of(&self, pack: u32) -> Option<SetId> {
        self.view().packs.get(pack).map(|pack| pack.set)
    }

    /// Tells the index that this process is writing a pack: [`refresh`](Self::refresh) ignores the
    /// pack until an index run lists it.
    pub(crate) fn expect_own(&self, set: SetId) {
        self.marks(|marks| marks.own.insert(set));
    }

    /// Marks packs as condemned, or removes that flag. [`rely_on`](Self::rely_on) treats a
    /// condemned pack's chunks as unknown. Packs that the index finds later are condemned as well.
    pub(crate) fn set_condemned(&self, sets: &[SetId], condemned: bool) {
        self.marks(|marks| {
            for set in sets {
                let _ = if condemned {
                    marks.condemned.insert(*set)
                } else {
                    marks.condemned.remove(set)
                };
            }
        });
        let view = self.view();
        for number in sets.iter().filter_map(|set| view.packs.find(set)) {
            if let Some(pack) = view.packs.get(number) {
                pack.set_condemned(condemned);
            }
        }
    }

    /// Returns those packs of `sets` that this process needs: it is writing them, or has relied on
    /// them for a chunk that it did not store itself. A pack that was condemned before this call is
    /// not relied upon afterwards.
    pub(crate) fn relied_on(&self, sets: &[SetId]) -> Vec<SetId> {
        let view = self.view();
        let is_used = |set: &SetId| {
            let pack = view.packs.find(set).and_then(|number| view.packs.get(number));
            pack.is_some_and(Pack::is_used)
        };
        self.marks(|marks| {
            let needs = |set: &&SetId| marks.own.contains(*set) || is_used(set);
            sets.iter().filter(needs).copied().collect()
        })
    }

    /// Returns the runs and packs that could not be read, so that their content is unknown.
    pub fn unreadable(&self) -> Vec<SetId> {
        self.marks(|marks| marks.bad.iter().copied().collect())
    }

    /// Returns the packs that were stored and are missing, have too few extents, or are in no run
    /// and lack an extent, so that no writer relies on them; packs that deletion removed are not
    /// included.
    pub(crate) fn lost_packs(&self) -> Vec<SetId> {
        let view = self.view();
        let is_in_doubt = |pack: &Pack| !pack.is_readable() || !pack.is_reliable();
        let in_doubt =
            view.packs.iter().filter(|(_, pack)| is_in_doubt(pack)).map(|(_, pack)| pack.set);
        let mut lost: BTreeSet<SetId> = view.lost.iter().copied().chain(in_doubt).collect();
        self.marks(|marks| lost.retain(|set| !marks.reaped.contains(set)));
        lost.into_iter().collect()
    }

    #[cfg(test)]
    fn set_reaped(&self, sets: &[SetId]) {
        self.marks(|marks| marks.reaped.extend(sets));
    }

    /// Returns a number that identifies the set of losses: as long as it equals the number stored
    /// in a snapshot, no data of that snapshot was lost since. 0 when nothing is lost.
    pub(crate) fn losses_mark(&self) -> u64 {
        let first = |set: &SetId| u64::from_le_bytes(*set.0.first_chunk().expect("16 bytes"));
        self.lost_packs().iter().fold(0, |sum, set| sum ^ first(set))
    }

    /// Whether complete packs existed at loading that no run listed: left by an interrupted backup,
    /// written by a running one, or listed by a run that was lost. Packs that lack an extent are
    /// counted in [`losses_mark`](Self::losses_mark).
    pub(crate) fn has_loose(&self) -> bool {
        self.view().loose.iter().any(|loose| loose.partial.is_none())
    }

    /// The number of rows, including further rows of the same chunks in other packs.
    pub fn rows(&self) -> u64 {
        let view = self.view();
        let runs: u64 = view.runs.iter().map(|run| run.rows).sum();
        runs + view.loose.iter().map(|loose| loose.len() as u64).sum::<u64>()
    }

    /// Returns the number of chunks with more than one place, as far as merging has found them.
    pub fn duplicates(&self) -> u64 {
        self.view().runs.iter().map(|run| run.duplicates).sum()
    }

    /// Whether the index has a run and uses it for queries.
    pub(crate) fn has_run(&self, set: SetId) -> bool {
        self.view().runs.iter().any(|run| run.set == set)
    }

    /// Bytes of memory that grow with the store: filters, fences, the list of packs, loose rows.
    /// The cached pages take less than one MiB more.
    pub fn memory_bytes(&self) -> u64 {
        let view = self.view();
        let runs: usize = view.runs.iter().map(|run| run.memory_bytes()).sum();
        let loose: usize = view.loose.iter().map(|loose| std::mem::size_of_val(loose.rows())).sum();
        (runs + loose + view.packs.len() * std::mem::size_of::<Pack>()) as u64
    }

    /// Returns the number of runs, and of parts in memory.
    pub fn parts(&self) -> (usize, usize) {
        let view = self.view();
        (view.runs.len(), view.loose.len())
    }
}

/// For each pack, the present members that have an extent of it.
type Extents = BTreeMap<SetId, Vec<usize>>;
