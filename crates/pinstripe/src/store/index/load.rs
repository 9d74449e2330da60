//! Makes a view of the index from the members: runs first, then packs that no run lists.
//!
//! Invariants: a view is made from the previous one and replaces it only while that one is still
//! current. Runs are listed until two listings agree, so that no run is missed because another
//! writer merged it during the listing. A run on fewer members than a read needs does not count,
//! even if its head can be read. A run that lacks an extent makes no other run redundant. A pack in
//! no run is read directly if possible; a writer relies on it only when all of its extents are
//! present, because it may come from a backup that was interrupted while sealing it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::store::{Store, deletion};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_member::index_run::RunPack;
use pinstripe_member::{ExtentKind, ExtentName, SharedMember};
use pinstripe_stripe::SetReader;

use super::cut::has_enough;
use super::list::Pack;
use super::loose::loose;
use super::redundant::{drop_redundant, keep_runs, set_reliable};
use super::run::{self, Opened, Run};
use super::{Extents, Index, SealedPack, View, part};

/// The largest number of listings of runs until two agree.
const LISTS_MAX: usize = 8;
/// Times that the members are listed again because sets were listed and could not be opened.
const TRIES_MAX: usize = 2;

/// Returns the stripe sets of a kind, and which of the present members and newcomers have each.
///
/// # Errors
/// Fails with the errors of [`Store::list`].
pub fn sets_in(store: &Store, kind: ExtentKind) -> Result<BTreeMap<SetId, Vec<usize>>> {
    let listed = store.list(kind)?.into_iter();
    let mut sets: BTreeMap<_, _> = listed.map(|(id, members)| (SetId(id), members)).collect();
    for (number, newcomer) in store.newcomers() {
        for id in newcomer.names(kind).unwrap_or_default() {
            sets.entry(SetId(id)).or_default().push(number);
        }
    }
    Ok(sets)
}

/// Returns the stripe sets of a kind without packs that are being deleted: the sets that must be
/// kept complete.
///
/// # Errors
/// Fails with the errors of [`Store::list`].
pub(crate) fn standing_sets(
    store: &Store,
    kind: ExtentKind,
) -> Result<BTreeMap<SetId, Vec<usize>>> {
    let mut sets = sets_in(store, kind)?;
    if kind == ExtentKind::Packs {
        let going = deletion::going_packs(store)?;
        sets.retain(|set, _| !going.contains(set));
    }
    Ok(sets)
}

/// The content of an index run of either format.
enum AnyRun {
    Pages(Box<Opened>),
    /// A run of the first format: the indexes of packs, one after the other.
    Indexes(Vec<SealedPack>),
}

impl AnyRun {
    fn packs(&self) -> Vec<RunPack> {
        match self {
            AnyRun::Pages(opened) => opened.packs.clone(),
            AnyRun::Indexes(packs) => packs.iter().map(SealedPack::run_pack).collect(),
        }
    }
}

pub(super) fn open_set(store: &Store, name: ExtentName, set: SetId) -> Result<SetReader> {
    SetReader::open(&store.members_to_read(), name, store.config.store, set)
}

/// Opens a run that has this many extents. A run with fewer extents than a read needs is refused,
/// even if its head can be read: the head of a small run is in one strip, and does not prove that
/// the strips with its pages were ever written.
fn open_run(store: &Store, set: SetId, extents: usize) -> Result<AnyRun> {
    let name = ExtentName::index(set);
    let reader = open_set(store, name, set)?;
    let needed = reader.geometry().data();
    if extents < needed {
        let error = Error::new(
            Kind::TooManyLosses,
            "this index run cannot be read, because too few of its extents are present",
        );
        return Err(error.at(name.path()).expected(format!("at least {needed} extents"), extents));
    }
    if reader.index().start > 0 {
        return run::open(reader, set, store.opener(), store.kept())
            .map(|run| AnyRun::Pages(run.into()))
            .map_err(|e| e.at(name.path()));
    }
    let geometry = reader.geometry();
    let parsed = part::read(&reader, 0..reader.logical_bytes(), |mut bytes: &mut [u8]| {
        let mut packs = Vec::new();
        while !bytes.is_empty() {
            let (index, used) = part::parse_index_record(bytes, store.opener())?;
            // In the first format all sets of a store lie over all members alike.
            packs.push(SealedPack { index, geometry });
            bytes = &mut bytes[used..];
        }
        Ok(packs)
    });
    parsed.map(AnyRun::Indexes).map_err(|error| error.at(name.path()))
}

/// Returns the packs that a readable run lists, whether or not they are present, and for each run
/// its list or the error of reading it.
///
/// # Errors
/// Fails when a present member cannot be listed.
pub(crate) fn sets_spoken_of(store: &Store) -> Result<Vec<(SetId, Result<Vec<RunPack>>)>> {
    let runs = sets_in(store, ExtentKind::Index)?.into_iter();
    Ok(runs.map(|(set, members)| (set, packs_of_run(store, set, members.len()))).collect())
}

/// Returns the packs that one run lists; `extents` is the number of members with an extent of the
/// run.
pub(super) fn packs_of_run(store: &Store, set: SetId, extents: usize) -> Result<Vec<RunPack>> {
    open_run(store, set, extents).map(|run| run.packs())
}

impl Index<'_> {
    /// Makes a new view of the present state. `all` lists packs too, not only index runs.
    pub(super) fn gather(&self, all: bool) -> Result<()> {
        if all {
            // Before the packs are listed: a deletion that begins after this shows up as news in
            // `follow_deletion` instead of being missed.
            let steps = self.store.list(ExtentKind::Gc)?.into_keys().collect();
            let steps: BTreeSet<_> = steps;
            // Asked ahead they may have been listed after the packs, and say nothing then.
            let is_sure = steps.is_empty() || !self.store.is_far();
            *self.deletions.lock() = is_sure.then_some(steps);
        }
        // Members are read without a lock. A view that another thread replaced meanwhile is made
        // again, so that no update is lost.
        loop {
            let old = self.view();
            let new = self.gathered(View::clone(&old), all, 0)?;
            if self.replace(&old, new) {
                return Ok(());
            }
        }
    }

    /// `tries` is how often members were already listed again. Between the list and the read a set
    /// may move from one member to another: then it is neither gone nor damaged.
    fn gathered(&self, mut view: View, all: bool, tries: usize) -> Result<View> {
        let (mut troubles, mut vanished) = (Vec::new(), BTreeSet::new());
        let bad = self.marks(|marks| marks.bad.clone());
        keep_runs(&mut view, |set| !bad.contains(set));
        let mut known = self.known_runs(&view);
        let mut runs = Extents::new();
        for _ in 0..LISTS_MAX {
            runs = sets_in(self.store, ExtentKind::Index)?;
            if runs.keys().eq(&known) {
                break;
            }
            let gone = self.take_runs(&mut view, &runs, all, &mut troubles)?;
            known = runs.keys().filter(|set| !gone.contains(set)).copied().collect();
        }
        // Listed after the runs: a pack is written before the run that lists it, so a pack missing
        // here is gone, not new.
        if all {
            let extents = self.packs_after_runs(&view)?;
            for (_, pack) in view.packs.iter() {
                pack.set_extents(extents.get(&pack.set).map_or(0, Vec::len));
            }
            view.loose.retain(|loose| loose.is_as_asked(&extents));
            vanished = self.take_packs(&mut view, &extents, &mut troubles);
        }
        // First: a loose part goes only once deletion is known to have taken all of its packs.
        self.learn_reaped(&view)?;
        if all && self.have_moved(&view)? {
            return self.gathered(view, all, tries);
        }
        if tries < TRIES_MAX && !(troubles.is_empty() && vanished.is_empty()) {
            self.store.prefetch(&[]);
            self.store.meet_newcomers()?;
            return self.gathered(view, all, tries + 1);
        }
        let is_reaped = |set: &SetId| self.marks(|marks| marks.reaped.contains(set));
        view.loose.retain(|loose| loose.run.is_some() || !loose.sets.iter().all(is_reaped));
        let extents_of = |run: &Run| runs.get(&run.set).map_or(0, Vec::len);
        drop_redundant(&mut view, |run| self.lacks_extents(run, extents_of(run)));
        set_reliable(&view);
        for Trouble { name, set, error } in troubles {
            if self.marks(|marks| marks.bad.insert(set)) {
                self.monitor.warning(name.path(), error);
            }
        }
        Ok(view)
    }

    /// Returns the extents of packs, listed after the runs. A prefetched listing may be from before
    /// the runs were listed: if a pack is missing in it, packs are listed again.
    fn packs_after_runs(&self, view: &View) -> Result<Extents> {
        let extents = sets_in(self.store, ExtentKind::Packs)?;
        let is_short = |(_, pack): (u32, &Pack)| {
            extents.get(&pack.set).map_or(0, Vec::len) < usize::from(pack.data)
        };
        if self.store.is_far() && view.packs.iter().any(is_short) {
            self.store.prefetch(&[]);
            return sets_in(self.store, ExtentKind::Packs);
        }
        Ok(extents)
    }

    /// Finds out which packs deletion removed, when a pack is missing for an unknown reason. The
    /// question is asked after the packs were listed: a deletion is announced before its packs are
    /// removed.
    fn learn_reaped(&self, view: &View) -> Result<()> {
        let gone = view.packs.iter().filter(|(_, pack)| !pack.is_readable()).map(|(_, p)| p.set);
        let gone: Vec<SetId> = gone.chain(view.lost.iter().copied()).collect();
        if self.marks(|marks| gone.iter().any(|set| !marks.reaped.contains(set))) {
            let going = deletion::going_packs(self.store)?;
            self.marks(|marks| marks.reaped.extend(going));
        }
        Ok(())
    }

    /// Whether packs that cannot be read, and that deletion did not remove, may be on members that
    /// have joined since the store was opened.
    fn have_moved(&self, view: &View) -> Result<bool> {
        let is_reaped = |set: &SetId| self.marks(|marks| marks.reaped.contains(set));
        let mut gone = view.packs.iter().filter(|(_, pack)| !pack.is_readable());
        Ok(gone.any(|(_, pack)| !is_reaped(&pack.set)) && self.store.meet_newcomers()?)
    }

    /// Returns the runs that need not be read again.
    fn known_runs(&self, view: &View) -> BTreeSet<SetId> {
        let mut known: BTreeSet<SetId> = view.runs.iter().map(|run| run.set).collect();
        known.extend(view.loose.iter().filter_map(|loose| loose.run));
        known.extend(view.redundant.keys());
        self.marks(|marks| known.extend(&marks.bad));
        known
    }

    /// Opens new runs, and drops those that were removed or found to be unusable. Returns the runs
    /// that were listed and that no member has any more.
    ///
    /// A run that too few members have is skipped this time: another writer is putting or removing
    /// it on one member after the other, or was interrupted in that, or it was merged while a
    /// member was absent. Until the run counts, its packs are read directly.
    fn take_runs(
        &self,
        view: &mut View,
        there: &Extents,
        all: bool,
        troubles: &mut Vec<Trouble>,
    ) -> Result<BTreeSet<SetId>> {
        let mut gone = BTreeSet::new();
        keep_runs(view, |set| there.contains_key(set));
        let known = self.known_runs(view);
        let (mut pages, mut indexes) = (Vec::new(), Vec::new());
        for (&set, members) in there.iter().filter(|(set, _)| !known.contains(set)) {
            match open_run(self.store, set, members.len()) {
                Ok(AnyRun::Pages(opened)) => pages.push(*opened),
                Ok(AnyRun::Indexes(packs)) => indexes.push((set, packs)),
                Err(error) if error.kind() == Kind::NotFound => drop(gone.insert(set)),
                Err(error) => {
                    let name = ExtentName::index(set);
                    let is_enough = |members: &[usize]| has_enough(self.store, name, members);
                    // Enough members before it was opened and still enough now: only then is
                    // this damage, and not a run that another writer is putting or removing.
                    if is_enough(members) && is_enough(&self.holders_of(name)) {
                        troubles.push(Trouble { name, set, error });
                    }
                }
            }
        }
        // All packs get their numbers before any run is taken in: its rows are read by them.
        let mut packs: Vec<RunPack> = pages.iter().flat_map(|run| run.packs.clone()).collect();
        packs.extend(indexes.iter().flat_map(|(_, packs)| packs).map(SealedPack::run_pack));
        self.take_numbers(view, &packs, all);
        for opened in pages {
            let number = |pack: &RunPack| match pack.is_lost {
                true => u32::MAX,
                false => view.packs.find(&pack.set).unwrap_or(u32::MAX),
            };
            view.runs.push(Arc::new(opened.numbered(number)));
        }
        let is_lost = |pack: &&RunPack| pack.is_lost;
        view.lost = Arc::new(
            view.lost.iter().copied().chain(packs.iter().filter(is_lost).map(|p| p.set)).collect(),
        );
        for (run, packs) in indexes {
            view.loose.push(Arc::new(loose(&view.packs, &packs, Some(run))?));
        }
        Ok(gone)
    }

    /// Gives numbers to packs that have none yet. Unless `all` packs are listed anyway, the extents
    /// of each newly numbered pack are looked up.
    pub(super) fn take_numbers(&self, view: &mut View, packs: &[RunPack], all: bool) {
        let condemned = self.marks(|marks| marks.condemned.clone());
        let is_new = |pack: &&RunPack| !pack.is_lost && view.packs.find(&pack.set).is_none();
        let number = |pack: &RunPack| {
            let extents = if all { 0 } else { self.extents_of(ExtentName::pack(pack.set)) };
            let new = Pack::new(pack.set, pack.data, pack.parity, pack.bytes, extents);
            new.set_condemned(condemned.contains(&pack.set));
            new
        };
        let new = packs.iter().filter(is_new).map(number).collect();
        view.packs.extend(new);
    }

    /// Returns the present members that have an extent.
    fn holders_of(&self, name: ExtentName) -> Vec<usize> {
        let has = |member: &SharedMember| member.len(name).is_ok();
        let own = self.store.present().filter(|(_, it)| has(it)).map(|(number, _)| number);
        let newcomers = self.store.newcomers().into_iter().filter(|(_, it)| has(it));
        own.chain(newcomers.map(|(number, _)| number)).collect()
    }

    /// The number of present members that have an extent.
    pub(super) fn extents_of(&self, name: ExtentName) -> usize {
        self.holders_of(name).len()
    }
}

/// An index run or pack that cannot be read, and the error.
pub(super) struct Trouble {
    pub(super) name: ExtentName,
    pub(super) set: SetId,
    pub(super) error: Error,
}
