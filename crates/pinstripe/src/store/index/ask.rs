//! Reads the indexes of packs that no index run lists.
//!
//! Every such pack is read if possible, so that the loss of an index run costs a reader nothing. A
//! writer, however, may not rely on such a pack while the pack lacks an extent, because it may come
//! from a backup that was interrupted while sealing it.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::store::Store;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_member::index_run::RunPack;
use pinstripe_member::pack_index::PackIndex;
use pinstripe_member::{ExtentKind, ExtentName};
use pinstripe_stripe::{Opener, SetReader};

use super::load::{Trouble, open_set};
use super::loose::loose;
use super::rebuild::pack_from_records;
use super::{Extents, Index, SealedPack, View, part};

/// The number of packs whose ends are fetched at once: an interrupted backup may leave thousands.
const OPENED_AHEAD: usize = 64;

/// Reads the index that a pack has at its own end.
///
/// # Errors
/// Fails when the set cannot be read or its index is damaged.
pub fn read_pack_index(store: &Store, set: SetId) -> Result<PackIndex> {
    let name = ExtentName::pack(set);
    index_of_pack(&open_set(store, name, set)?, set, store.opener())
}

/// Reads the index at the end of a pack that is already open.
///
/// # Errors
/// Fails with the errors of [`read_pack_index`].
pub(crate) fn index_of_pack(reader: &SetReader, set: SetId, opener: &Opener) -> Result<PackIndex> {
    own_index(reader, set, opener).map(|pack| pack.index)
}

fn own_index(reader: &SetReader, set: SetId, opener: &Opener) -> Result<SealedPack> {
    let place = ExtentName::pack(set).path();
    let parsed = part::read(reader, reader.index(), |b| part::parse_index_record(b, opener));
    let (index, _) = parsed.map_err(|error| error.at(&place))?;
    if index.set != set {
        return Err(
            Error::corrupt("a pack's index describes another pack", place).expected(set, index.set)
        );
    }
    Ok(SealedPack { index, geometry: reader.geometry() })
}

/// Reads the index of a pack, or makes it from the pack's records if its own index cannot be read.
///
/// # Errors
/// Fails when neither the index nor any record can be read, with the error of the index.
pub(super) fn ask_pack(store: &Store, set: SetId) -> Result<SealedPack> {
    let reader = open_set(store, ExtentName::pack(set), set)?;
    own_index(&reader, set, store.opener()).or_else(|error| match error.kind() {
        Kind::Unsupported | Kind::Locked | Kind::KeysChanged => Err(error),
        _ => pack_from_records(store, set).map(|(pack, _)| pack).map_err(|_| error),
    })
}

/// Whether neither the index of a pack nor its records can be read because too much of the pack is
/// lost, and not because a member failed or the pack has an unknown version.
pub(crate) fn is_beyond_reading(store: &Store, set: SetId) -> bool {
    let is_damage = |error: Error| matches!(error.kind(), Kind::Corrupt | Kind::TooManyLosses);
    ask_pack(store, set).err().is_some_and(is_damage)
}

impl Index<'_> {
    /// Adds packs that no part of the index lists, each by its own index.
    pub(super) fn take_packs(
        &self,
        view: &mut View,
        extents: &Extents,
        troubles: &mut Vec<Trouble>,
    ) -> BTreeSet<SetId> {
        let mut gone = BTreeSet::new();
        let numbers = view.runs.iter().flat_map(|run| run.numbers());
        let mut covered: HashSet<SetId> =
            numbers.filter_map(|number| view.packs.get(number)).map(|pack| pack.set).collect();
        covered.extend(view.loose.iter().flat_map(|loose| &loose.sets));
        self.marks(|marks| covered.extend(marks.own.iter().chain(&marks.bad)));
        let (mut whole, mut partial) = (Vec::new(), Vec::new());
        let uncovered: Vec<_> = extents.iter().filter(|(set, _)| !covered.contains(set)).collect();
        for (at, (set, members)) in uncovered.iter().enumerate() {
            if at % OPENED_AHEAD == 0 {
                let next = &uncovered[at..(at + OPENED_AHEAD).min(uncovered.len())];
                let sets: Vec<SetId> = next.iter().map(|(set, _)| **set).collect();
                SetReader::open_ahead(&self.store.members_to_read(), ExtentKind::Packs, &sets);
            }
            match self.ask_if_readable(**set, members.len()) {
                Ok(Some((pack, true))) => whole.push(pack),
                Ok(Some((pack, false))) => partial.push(pack),
                Ok(None) => {}
                Err(error) if error.kind() == Kind::NotFound => drop(gone.insert(**set)),
                Err(error) => {
                    let name = ExtentName::pack(**set);
                    troubles.push(Trouble { name, set: **set, error });
                }
            }
        }
        for (asked, is_whole) in [(whole, true), (partial, false)] {
            if asked.is_empty() {
                continue;
            }
            let packs: Vec<RunPack> = asked.iter().map(SealedPack::run_pack).collect();
            self.take_numbers(view, &packs, true);
            let count = |set: &SetId| extents.get(set).map_or(0, Vec::len);
            for pack in &packs {
                let number = view.packs.find(&pack.set);
                if let Some(known) = number.and_then(|number| view.packs.get(number)) {
                    known.set_extents(count(&pack.set));
                }
            }
            match loose(&view.packs, &asked, None) {
                Ok(mut loose) => {
                    let counts = || loose.sets.iter().map(count).collect();
                    loose.partial = (!is_whole).then(counts);
                    view.loose.push(Arc::new(loose));
                }
                Err(error) => {
                    let set = asked[0].index.set;
                    let name = ExtentName::pack(set);
                    troubles.push(Trouble { name, set, error });
                }
            }
        }
        gone
    }

    /// Returns the index of a pack, if the pack has enough extents to be read, and whether every
    /// present member has its extent.
    fn ask_if_readable(&self, set: SetId, extents: usize) -> Result<Option<(SealedPack, bool)>> {
        let mut is_whole = true;
        // A set on every member that the store ever had cannot need more.
        if extents < self.store.member_slots.len() {
            let reader = open_set(self.store, ExtentName::pack(set), set);
            // A set over fewer members than there are now is complete with fewer extents. A set
            // over more members needs as many as it had, even if a member left too early.
            let (readable, whole) = match reader {
                Ok(reader) => {
                    let geometry = reader.geometry();
                    let absent = self.store.absent().count();
                    (geometry.data(), geometry.members().saturating_sub(absent))
                }
                Err(_) => (self.store.present().count(), self.store.present().count()),
            };
            if extents < readable {
                return Ok(None);
            }
            is_whole = extents >= whole;
        }
        ask_pack(self.store, set).map(|pack| Some((pack, is_whole)))
    }
}
