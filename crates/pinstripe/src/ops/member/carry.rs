//! Moves extents, several sets at a time, so that reading, computing, writing and syncing overlap.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::mender::{lay, salvage};
use super::Moved;
use super::plan::Move;
use crate::pipeline::limits::Limits;
use crate::store::{Claim, Store};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::units::MIB;
use pinstripe_io::pool::each;
use pinstripe_member::{ExtentName, Replace, SharedMember};
use pinstripe_stripe::SetReader;

/// The number of bytes copied at a time if the strips are unknown.
const COPY_BYTES: u64 = MIB;

/// The number of sets in progress at a time: enough that no disk is idle while another one syncs,
/// limited by the memory for one row of each set.
pub(super) fn threads(store: &Store, limits: &Limits) -> usize {
    let members = store.present().count().max(1);
    let row_bytes = 2 * members as u64 * u64::from(store.config.strip_bytes);
    let affordable = (limits.memory_bytes() / 2 / row_bytes).max(1) as usize;
    limits.workers.max(members).min(affordable)
}

/// Calls `work` for every item; after the first error no further call is begun.
///
/// # Errors
/// Fails with the first error.
pub(super) fn each_until_error<T: Sync, R: Send + Default>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let stopped = AtomicBool::new(false);
    each(threads, items, |item| {
        if stopped.load(Ordering::Relaxed) {
            return Ok(R::default());
        }
        work(item).inspect_err(|_| stopped.store(true, Ordering::Relaxed))
    })
}

/// Carries out all moves of a plan.
///
/// # Errors
/// Fails with the errors of the members, or with [`Kind::Busy`] when the claim was ended.
pub(super) fn moves(
    store: &Store,
    claim: &Claim,
    moves: &[Move],
    limits: &Limits,
    monitor: &Monitor,
) -> Result<Moved> {
    // Moves of one set in their order, one after the other.
    let sets: Vec<&[Move]> = moves.chunk_by(|left, right| left.name == right.name).collect();
    let done = each_until_error(threads(store, limits), &sets, |set| {
        set.iter().try_fold(Moved::default(), |mut sum, one| {
            sum += carry(store, claim, one, monitor)?;
            Ok(sum)
        })
    })?;
    store.present().try_for_each(|(_, member)| member.sync())?;
    let mut moved = Moved::default();
    done.into_iter().for_each(|one| moved += one);
    Ok(moved)
}

/// Moves one extent, or only removes it when another member has the same extent.
fn carry(store: &Store, claim: &Claim, one: &Move, monitor: &Monitor) -> Result<Moved> {
    let from = member(store, one.from)?;
    match from.len(one.name) {
        // Deletion or a merge was first.
        Err(error) if error.kind() == Kind::NotFound => return Ok(Moved::default()),
        other => other?,
    };
    let reader = open(store, one.name)?;
    let found = reader.as_ref().and_then(|reader| Some((reader, slot_of(reader, one.from)?)));
    let moved = match found {
        Some((reader, slot)) if twin(reader, slot, one.from).is_some() => {
            drop_copy(store, claim, one.name, one.from)
        }
        found => bring(store, claim, one, found, monitor),
    };
    match moved {
        // The same, but later; or a writer gave the target another part of this set since the plan was
        // made, which the next plan takes into account.
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Exists) => Ok(Moved::default()),
        moved => moved,
    }
}

/// Opens a set; returns `None` when no trailer of it is intact, or no member has it any more.
pub(super) fn open(store: &Store, name: ExtentName) -> Result<Option<SetReader>> {
    let ExtentName::In(_, id) = name else { return Ok(None) };
    match store.open_to_judge(name, SetId(id)) {
        Ok(reader) => Ok(Some(reader)),
        Err(error) if error.kind() == Kind::Unsupported => Err(error),
        Err(_) => Ok(None),
    }
}

/// Returns the slot that a member holds, under an intact or a damaged header.
fn slot_of(reader: &SetReader, number: usize) -> Option<usize> {
    let mut slots = 0..reader.geometry().members();
    let held = |slot: &usize| reader.holders_of(*slot).contains(&number);
    slots.clone().find(held).or_else(|| slots.find(|slot| reader.member_of(*slot) == Some(number)))
}

/// Returns another member with an extent of the same slot that is intact to its last byte.
fn twin(reader: &SetReader, slot: usize, number: usize) -> Option<usize> {
    let mut others = reader.holders_of(slot).iter().copied().filter(|other| *other != number);
    others.find(|other| reader.is_sound_on(*other, slot))
}

/// Whether another member has an intact copy of the extent that this member has of a set.
///
/// # Errors
/// Fails with [`Kind::Unsupported`] for a set of a newer version.
pub(super) fn has_twin(store: &Store, name: ExtentName, number: usize) -> Result<bool> {
    let Some(reader) = open(store, name)? else { return Ok(false) };
    Ok(slot_of(&reader, number).is_some_and(|slot| twin(&reader, slot, number).is_some()))
}

/// Removes an extent that another member has a copy of.
///
/// # Errors
/// Fails with [`Kind::Busy`] when the claim was ended, or with the errors of the member.
pub(super) fn drop_copy(
    store: &Store,
    claim: &Claim,
    name: ExtentName,
    number: usize,
) -> Result<Moved> {
    claim.confirm()?;
    member(store, number)?.delete(name)?;
    Ok(Moved { removed_copies: 1, ..Moved::default() })
}

/// Writes an extent to its new member, then removes it from the old member. The strips of the
/// extent are compared with their checksums, and rebuilt where they do not match. A strip that
/// cannot be rebuilt is copied unchanged: a move makes nothing worse.
fn bring(
    store: &Store,
    claim: &Claim,
    one: &Move,
    slot: Option<(&SetReader, usize)>,
    monitor: &Monitor,
) -> Result<Moved> {
    let (from, to) = (member(store, one.from)?, member(store, one.to)?);
    claim.confirm()?;
    let written = match slot {
        Some((reader, slot)) => lay(reader, slot, to, Replace::Never).map(|()| Some(slot)),
        None => Err(Error::corrupt(
            "it is unknown which slot of the stripe set this extent belongs to",
            one.name.path(),
        )),
    };
    let laid = match written {
        Err(error) if matches!(error.kind(), Kind::TooManyLosses | Kind::Corrupt) => {
            // If it is gone now, it is not damaged.
            from.len(one.name)?;
            let place = from.place().join(one.name.path());
            monitor.warning(
                place,
                error.advice("the extent was moved, but its damage was not repaired"),
            );
            match slot {
                Some((reader, slot)) => {
                    salvage(reader, slot, to, Replace::Never)?;
                    // If no part of it can be read, nothing was written.
                    (to.len(one.name).is_ok()).then_some(slot)
                }
                None => {
                    copy_raw(from, to, one.name)?;
                    None
                }
            }
        }
        other => other?,
    };
    confirm_copy(store, one, laid)?;
    claim.confirm()?;
    from.delete(one.name)?;
    monitor.add(Counter::MovedExtents, 1);
    monitor.add(Counter::MovedBytes, one.bytes);
    Ok(Moved { moved_extents: 1, moved_bytes: one.bytes, removed_copies: 0 })
}

/// Verifies that other processes find the written extent at its place now.
///
/// # Errors
/// Fails with [`Kind::Busy`] when they do not.
fn confirm_copy(store: &Store, one: &Move, slot: Option<usize>) -> Result<()> {
    let (from, to) = (member(store, one.from)?, member(store, one.to)?);
    let stands = match slot {
        Some(slot) => {
            open(store, one.name)?.is_some_and(|it| it.holders_of(slot).contains(&one.to))
        }
        None => to.len(one.name)? == from.len(one.name)?,
    };
    if stands {
        return Ok(());
    }
    Err(Error::new(Kind::Busy, "another process changed the extent that was just written here")
        .at(to.place().join(one.name.path()))
        .advice("nothing was removed; run this command again"))
}

fn copy_raw(from: &SharedMember, to: &SharedMember, name: ExtentName) -> Result<()> {
    let mut writer = to.create(name, Replace::Never)?;
    let bytes = from.len(name)?;
    let (mut block, mut offset) = (Vec::new(), 0);
    while offset < bytes {
        block.resize((bytes - offset).min(COPY_BYTES) as usize, 0);
        from.read_at(name, offset, &mut block)?;
        writer.append(&block)?;
        offset += block.len() as u64;
    }
    writer.seal()
}

fn member(store: &Store, number: usize) -> Result<&SharedMember> {
    let member_slot =
        store.member_slots.get(number).and_then(|member_slot| member_slot.member.as_ref());
    member_slot.ok_or_else(|| Error::new(Kind::NotFound, format!("member {number} is absent")))
}
