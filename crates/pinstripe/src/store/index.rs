//! Loading the chunk index: from index runs where they are, from the packs themselves otherwise.
//!
//! Invariants: a chunk is known only if its pack has at least as many extents as it needs to be
//! read; a pack that no sound run speaks of is asked itself, so index runs may be lost at any
//! time; a pack in no run and not whole on every present member is left out, because it may stem
//! from a backup that was cut off while it sealed it.

use std::collections::{BTreeMap, HashSet};

use crate::error::{Error, Kind, Result};
use crate::format::pack_index::PackIndex;
use crate::format::record::{RECORD_HEAD_BYTES, RecordKind, parse_clear, whole_bytes};
use crate::id::SetId;
use crate::member::{ExtentName, Room};
use crate::monitor::Monitor;
use crate::seal::{OpenedRecord, Opener, Sealer};
use crate::stripe::SetReader;

use super::Store;
use super::packs::Catalogued;

/// Which stripe sets a room has, and on which of the present members.
///
/// # Errors
/// As [`Store::list`].
pub fn sets_in(store: &Store, room: Room) -> Result<BTreeMap<SetId, Vec<usize>>> {
    Ok(store.list(room)?.into_iter().map(|(id, members)| (SetId(id), members)).collect())
}

/// Loads all packs and chunks. Runs and packs that cannot be read are reported as warnings: what
/// they name counts as new to a backup and as lost to a restore.
///
/// # Errors
/// When a member that is present cannot be listed.
pub fn load(store: &Store, monitor: &Monitor) -> Result<Catalogued> {
    let packs = sets_in(store, Room::Packs)?;
    let present = store.present().count();
    let needed = usize::from(store.config.data);
    let mut catalogued = Catalogued::default();
    let (mut done, mut spoken_of) = (HashSet::new(), HashSet::new());
    for (set, members) in sets_in(store, Room::Index)? {
        let is_whole = members.len() >= present;
        match read_run(store, set) {
            Ok(run) => {
                for index in run {
                    let extents = packs.get(&index.set).map_or(0, Vec::len);
                    if is_whole {
                        spoken_of.insert(index.set);
                    }
                    if extents < needed {
                        catalogued.lost_packs += 1;
                    } else if done.insert(index.set) {
                        catalogued.add(&index);
                        if !is_whole {
                            catalogued.unspoken.push(index);
                        }
                    }
                }
            }
            Err(error) => monitor.warning(ExtentName::index(set).path(), error),
        }
    }
    for (set, members) in packs {
        if done.contains(&set) || members.len() < present {
            continue;
        }
        match read_pack_index(store, set) {
            Ok(index) => {
                catalogued.add(&index);
                catalogued.unspoken.push(index);
            }
            Err(error) => monitor.warning(ExtentName::pack(set).path(), error),
        }
    }
    catalogued.unspoken.retain(|index| !spoken_of.contains(&index.set));
    Ok(catalogued)
}

/// Reads an index run: one pack index after the other.
///
/// # Errors
/// When the set cannot be read or does not hold what a run holds.
pub fn read_run(store: &Store, set: SetId) -> Result<Vec<PackIndex>> {
    let name = ExtentName::index(set);
    let reader = SetReader::open(&store.members(), name, store.config.store, set)?;
    let parse = |bytes: &mut [u8]| parse_run(store.opener(), bytes);
    read_parsed(&reader, 0..reader.logical_bytes(), parse).map_err(|e| e.at(name.path()))
}

fn parse_run(opener: &Opener, mut bytes: &mut [u8]) -> Result<Vec<PackIndex>> {
    let mut indexes = Vec::new();
    while !bytes.is_empty() {
        let (index, used) = parse_index_record(opener, bytes)?;
        indexes.push(index);
        bytes = &mut bytes[used..];
    }
    Ok(indexes)
}

/// Reads the index that a pack carries at its own end.
///
/// # Errors
/// When the set cannot be read or its index is not sound.
pub fn read_pack_index(store: &Store, set: SetId) -> Result<PackIndex> {
    let name = ExtentName::pack(set);
    let reader = SetReader::open(&store.members(), name, store.config.store, set)?;
    let parse = |bytes: &mut [u8]| parse_index_record(store.opener(), bytes);
    let parsed = read_parsed(&reader, reader.index(), parse);
    let (index, _) = parsed.map_err(|error| error.at(name.path()))?;
    if index.set != set {
        return Err(Error::corrupt("a pack's index speaks of another pack", name.path())
            .expected(set, index.set));
    }
    Ok(index)
}

/// The records of a pack that do not fit their checksums, for who has no key: they are walked from
/// head to head, which the seal leaves in the clear.
pub fn unsound_records(store: &Store, set: SetId) -> Vec<(std::ops::Range<u64>, Error)> {
    let name = ExtentName::pack(set);
    let reader = match SetReader::open(&store.members(), name, store.config.store, set) {
        Ok(reader) => reader,
        Err(error) => return vec![(0..0, error)],
    };
    let (end, mut at, mut bytes) = (reader.logical_bytes(), 0, Vec::new());
    while at < end {
        let read = |at: u64, end: u64, bytes: &mut Vec<u8>| -> Result<()> {
            bytes.clear();
            reader.read(at..end, bytes).map(drop)
        };
        let head_end = end.min(at + RECORD_HEAD_BYTES as u64);
        let walked = read(at, head_end, &mut bytes).and_then(|()| {
            let length = whole_bytes(&bytes)?;
            let next = at.checked_add(length).filter(|next| *next <= end);
            let next =
                next.ok_or_else(|| Error::new(Kind::Corrupt, "a record is longer than its pack"))?;
            read(at, next, &mut bytes)?;
            parse_clear(&bytes).map(|_| next)
        });
        match walked {
            Ok(next) => at = next,
            // Where the next one begins is not known either.
            Err(error) => return vec![(at..end, error.at(name.path()))],
        }
    }
    Vec::new()
}

/// Reads a range the cheap way and, if `parse` refuses it, with every strip verified.
fn read_parsed<T>(
    reader: &SetReader,
    range: std::ops::Range<u64>,
    parse: impl Fn(&mut [u8]) -> Result<T>,
) -> Result<T> {
    let mut bytes = Vec::new();
    reader.read(range.clone(), &mut bytes)?;
    parse(&mut bytes).or_else(|_| {
        bytes.clear();
        reader.read_verified(range, &mut bytes)?;
        parse(&mut bytes)
    })
}

fn parse_index_record(opener: &Opener, bytes: &mut [u8]) -> Result<(PackIndex, usize)> {
    let OpenedRecord { head, stored, bytes: used } = opener.record(bytes)?;
    if head.kind != RecordKind::PackIndex || head.codec != 0 {
        return Err(Error::new(Kind::Corrupt, "a record of another kind where an index should be"));
    }
    Ok((PackIndex::decode(&bytes[stored])?, used))
}

/// The record in which a pack's index stands, at its end and in a run.
///
/// # Errors
/// Those of the seal.
pub fn index_record(index: &PackIndex, sealer: &Sealer) -> Result<Vec<u8>> {
    let body = index.encode();
    sealer.record(RecordKind::PackIndex, 0, &[], body.len() as u32, &body)
}
