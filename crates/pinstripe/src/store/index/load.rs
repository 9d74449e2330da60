//! Making a view of what stands on the members: runs first, then packs that no run speaks of.
//!
//! Invariants: a view is made from the one before and takes its place only when that is still
//! there; runs are listed until two lists agree, so that a run is never missed because another
//! writer merged it away while they were listed; a pack in no run is asked itself, and only when
//! all of its extents are there, because it may stem from a backup that was cut off in sealing it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, PoisonError};

use crate::error::{Error, Kind, Result};
use crate::format::index_run::RunPack;
use crate::format::pack_index::PackIndex;
use crate::id::SetId;
use crate::member::{ExtentName, Room, SharedMember};
use crate::seal::Opener;
use crate::store::{Store, deletion};
use crate::stripe::SetReader;

use super::cut::has_enough;
use super::list::{Pack, Packs};
use super::loose::Loose;
use super::rebuild::pack_from_records;
use super::run::{self, Opened};
use super::{Extents, Index, SealedPack, View, part};

/// Lists of runs that are read until two agree.
const LISTS_MAX: usize = 8;

/// Which stripe sets a room has, and on which of the present members.
///
/// # Errors
/// As [`Store::list`].
pub fn sets_in(store: &Store, room: Room) -> Result<BTreeMap<SetId, Vec<usize>>> {
    Ok(store.list(room)?.into_iter().map(|(id, members)| (SetId(id), members)).collect())
}

/// The same without packs that are being deleted: what is to be kept whole.
///
/// # Errors
/// As [`Store::list`].
pub fn standing_sets(store: &Store, room: Room) -> Result<BTreeMap<SetId, Vec<usize>>> {
    let mut sets = sets_in(store, room)?;
    if room == Room::Packs {
        let going = deletion::going_packs(store)?;
        sets.retain(|set, _| !going.contains(set));
    }
    Ok(sets)
}

/// What a run of either format says.
enum AnyRun {
    Pages(Box<Opened>),
    /// The first format: the indexes of packs, one after the other.
    Indexes(Vec<SealedPack>),
}

fn open_set(store: &Store, name: ExtentName, set: SetId) -> Result<SetReader> {
    SetReader::open(&store.members(), name, store.config.store, set)
}

fn open_run(store: &Store, set: SetId) -> Result<AnyRun> {
    let name = ExtentName::index(set);
    let reader = open_set(store, name, set)?;
    if reader.index().start > 0 {
        return run::open(reader, set, store.opener())
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

/// Packs that a readable run speaks of, whether or not they are there; for each run what it says
/// or why it cannot be read.
///
/// # Errors
/// When a member that is present cannot be listed.
pub fn sets_spoken_of(store: &Store) -> Result<Vec<(SetId, Result<Vec<RunPack>>)>> {
    let runs = sets_in(store, Room::Index)?.into_keys();
    let spoken_of = |set| {
        let packs = open_run(store, set).map(|run| match run {
            AnyRun::Pages(opened) => opened.packs,
            AnyRun::Indexes(packs) => packs.iter().map(SealedPack::run_pack).collect(),
        });
        (set, packs)
    };
    Ok(runs.map(spoken_of).collect())
}

/// Reads the index that a pack carries at its own end.
///
/// # Errors
/// When the set cannot be read or its index is not sound.
pub fn read_pack_index(store: &Store, set: SetId) -> Result<PackIndex> {
    let name = ExtentName::pack(set);
    own_index(&open_set(store, name, set)?, set, store.opener()).map(|pack| pack.index)
}

fn own_index(reader: &SetReader, set: SetId, opener: &Opener) -> Result<SealedPack> {
    let place = ExtentName::pack(set).path();
    let parsed = part::read(reader, reader.index(), |b| part::parse_index_record(b, opener));
    let (index, _) = parsed.map_err(|error| error.at(&place))?;
    if index.set != set {
        return Err(
            Error::corrupt("a pack's index speaks of another pack", place).expected(set, index.set)
        );
    }
    Ok(SealedPack { index, geometry: reader.geometry() })
}

/// What a pack says of itself, from its records when its index cannot be read.
///
/// # Errors
/// When neither can be read; the error is that of the index.
pub(super) fn ask_pack(store: &Store, set: SetId) -> Result<SealedPack> {
    let reader = open_set(store, ExtentName::pack(set), set)?;
    own_index(&reader, set, store.opener()).or_else(|error| match error.kind() {
        Kind::Unsupported | Kind::Locked => Err(error),
        _ => pack_from_records(store, set).map(|(pack, _)| pack).map_err(|_| error),
    })
}

impl Index<'_> {
    /// Makes a view of what is there now. `all` lists packs too, not only runs.
    pub(super) fn gather(&self, all: bool) -> Result<()> {
        if all {
            let steps = self.store.list(Room::Gc)?.into_keys().collect();
            *self.deletions.lock().unwrap_or_else(PoisonError::into_inner) = steps;
        }
        loop {
            let old = self.view();
            let new = self.gathered(View::clone(&old), all)?;
            if self.replace(&old, new) {
                return Ok(());
            }
        }
    }

    fn gathered(&self, mut view: View, all: bool) -> Result<View> {
        let mut troubles = Vec::new();
        let bad = self.marks(|marks| marks.bad.clone());
        keep_runs(&mut view, |set| !bad.contains(set));
        let mut known = self.known_runs(&view);
        for _ in 0..LISTS_MAX {
            let there = sets_in(self.store, Room::Index)?;
            if there.keys().eq(&known) {
                break;
            }
            self.take_runs(&mut view, &there, all, &mut troubles)?;
            known = there.into_keys().collect();
        }
        // After the runs: a pack that one of them speaks of was there before it.
        if all {
            let extents = sets_in(self.store, Room::Packs)?;
            for (_, pack) in view.packs.iter() {
                pack.set_extents(extents.get(&pack.set).map_or(0, Vec::len));
            }
            self.take_packs(&mut view, &extents, &mut troubles);
        }
        self.learn_reaped(&view)?;
        let is_reaped = |set: &SetId| self.marks(|marks| marks.reaped.contains(set));
        view.loose.retain(|loose| loose.run.is_some() || !loose.sets.iter().all(is_reaped));
        drop_redundant(&mut view);
        for Trouble { name, set, error } in troubles {
            if self.marks(|marks| marks.bad.insert(set)) {
                self.monitor.warning(name.path(), error);
            }
        }
        Ok(view)
    }

    /// Asks which packs deletion took, when one is gone and nobody said so. Asked after packs were
    /// looked for: what deletion takes is announced before it goes.
    fn learn_reaped(&self, view: &View) -> Result<()> {
        let gone = view.packs.iter().filter(|(_, pack)| !pack.is_readable()).map(|(_, p)| p.set);
        let gone: Vec<SetId> = gone.chain(view.lost.iter().copied()).collect();
        if self.marks(|marks| gone.iter().any(|set| !marks.reaped.contains(set))) {
            let going = deletion::going_packs(self.store)?;
            self.marks(|marks| marks.reaped.extend(going));
        }
        Ok(())
    }

    /// Runs that need not be looked at again.
    fn known_runs(&self, view: &View) -> BTreeSet<SetId> {
        let mut known: BTreeSet<SetId> = view.runs.iter().map(|run| run.set).collect();
        known.extend(view.loose.iter().filter_map(|loose| loose.run));
        known.extend(view.redundant.iter());
        self.marks(|marks| known.extend(&marks.bad));
        known
    }

    /// Opens runs that are new, and forgets those that are gone or were found to be bad.
    ///
    /// One that too few members have is passed over until the next time: another writer puts it
    /// or removes it, member by member, or it was merged away while a member was absent. What it
    /// would say its packs say themselves.
    fn take_runs(
        &self,
        view: &mut View,
        there: &Extents,
        all: bool,
        troubles: &mut Vec<Trouble>,
    ) -> Result<()> {
        keep_runs(view, |set| there.contains_key(set));
        let known = self.known_runs(view);
        let (mut pages, mut indexes) = (Vec::new(), Vec::new());
        for (&set, members) in there.iter().filter(|(set, _)| !known.contains(set)) {
            match open_run(self.store, set) {
                Ok(AnyRun::Pages(opened)) => pages.push(*opened),
                Ok(AnyRun::Indexes(packs)) => indexes.push((set, packs)),
                Err(error) if error.kind() == Kind::NotFound => {}
                Err(error) => {
                    let name = ExtentName::index(set);
                    let is_enough = |members: &[usize]| has_enough(self.store, name, members);
                    // Both before it was opened and after.
                    if is_enough(members) && is_enough(&self.holders_of(name)) {
                        troubles.push(Trouble { name, set, error });
                    }
                }
            }
        }
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
        Ok(())
    }

    /// Gives numbers to packs that have none. Unless `all` packs are listed anyway, each is asked
    /// for its extents.
    fn take_numbers(&self, view: &mut View, packs: &[RunPack], all: bool) {
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

    /// Which present members have an extent.
    fn holders_of(&self, name: ExtentName) -> Vec<usize> {
        let has = |(_, member): &(usize, &SharedMember)| member.len(name).is_ok();
        self.store.present().filter(has).map(|(number, _)| number).collect()
    }

    /// How many present members have an extent.
    pub(super) fn extents_of(&self, name: ExtentName) -> usize {
        self.holders_of(name).len()
    }

    /// Asks packs that no part speaks of for their own index.
    fn take_packs(&self, view: &mut View, extents: &Extents, troubles: &mut Vec<Trouble>) {
        let numbers = view.runs.iter().flat_map(|run| run.numbers());
        let mut covered: HashSet<SetId> =
            numbers.filter_map(|number| view.packs.get(number)).map(|pack| pack.set).collect();
        covered.extend(view.loose.iter().flat_map(|loose| &loose.sets));
        self.marks(|marks| covered.extend(marks.own.iter().chain(&marks.bad)));
        let mut asked = Vec::new();
        for (set, members) in extents.iter().filter(|(set, _)| !covered.contains(set)) {
            match self.ask_if_whole(*set, members.len()) {
                Ok(Some(pack)) => asked.push(pack),
                Ok(None) => {}
                Err(error) if error.kind() == Kind::NotFound => {}
                Err(error) => {
                    let name = ExtentName::pack(*set);
                    troubles.push(Trouble { name, set: *set, error });
                }
            }
        }
        if !asked.is_empty() {
            let packs: Vec<RunPack> = asked.iter().map(SealedPack::run_pack).collect();
            self.take_numbers(view, &packs, true);
            for pack in &packs {
                let number = view.packs.find(&pack.set);
                if let Some(known) = number.and_then(|number| view.packs.get(number)) {
                    known.set_extents(extents.get(&pack.set).map_or(0, Vec::len));
                }
            }
            match loose(&view.packs, &asked, None) {
                Ok(loose) => view.loose.push(Arc::new(loose)),
                Err(error) => {
                    let set = asked[0].index.set;
                    let name = ExtentName::pack(set);
                    troubles.push(Trouble { name, set, error });
                }
            }
        }
    }

    /// What a pack says of itself, unless an extent of it is missing on a member that is there.
    fn ask_if_whole(&self, set: SetId, extents: usize) -> Result<Option<SealedPack>> {
        // A set on every member that the store ever had cannot need more.
        if extents < self.store.seats.len() {
            let reader = open_set(self.store, ExtentName::pack(set), set);
            // Sets over fewer members than there are now are whole with fewer extents, and those
            // that were laid over more, one of which left too early, with no fewer than they had.
            let needed = reader.map_or(self.store.present().count(), |reader| {
                reader.geometry().members().saturating_sub(self.store.absent().count())
            });
            if extents < needed {
                return Ok(None);
            }
        }
        ask_pack(self.store, set).map(Some)
    }
}

/// Forgets runs that are not to be kept.
fn keep_runs(view: &mut View, keep: impl Fn(&SetId) -> bool) {
    let before = view.runs.len();
    view.runs.retain(|run| keep(&run.set));
    // What was redundant beside a run that is gone may be needed now.
    let is_same = view.runs.len() == before;
    let redundant = view.redundant.iter().filter(|set| is_same && keep(set));
    view.redundant = Arc::new(redundant.copied().collect());
}

/// A run or pack that cannot be read.
struct Trouble {
    name: ExtentName,
    set: SetId,
    error: Error,
}

fn loose(list: &Packs, packs: &[SealedPack], run: Option<SetId>) -> Result<Loose> {
    let mut rows = Vec::with_capacity(packs.iter().map(SealedPack::chunks).sum());
    for pack in packs {
        let number = list.find(&pack.index.set).expect("every pack was given a number");
        pack.rows(number, &mut rows)?;
    }
    Ok(Loose::new(rows, packs.iter().map(|pack| pack.index.set).collect(), run))
}

/// Leaves out runs and loose parts of whose packs larger runs speak as well.
fn drop_redundant(view: &mut View) {
    let mut redundant = BTreeSet::clone(&view.redundant);
    view.runs.sort_by_key(|run| (std::cmp::Reverse(run.rows), run.set));
    let mut covered = vec![false; view.packs.len()];
    view.runs.retain(|run| {
        let mut adds = run.has_lost();
        for number in run.numbers() {
            adds |= !std::mem::replace(&mut covered[number as usize], true);
        }
        if !adds {
            redundant.insert(run.set);
        }
        adds
    });
    view.loose.retain(|loose| {
        let numbers = loose.sets.iter().filter_map(|set| view.packs.find(set));
        let adds = numbers.into_iter().any(|number| !covered[number as usize]);
        if !adds {
            redundant.extend(loose.run);
        }
        adds
    });
    view.redundant = Arc::new(redundant);
}
