//! The description of an array from its superblocks; devices are only read.

use std::path::PathBuf;

use super::{
    Counted, Detail, ErrorCounts, SlotDetail, SlotStateDetail, WorkDetail, consistency,
    granule_text,
};
use crate::engine::shape_of;
use crate::format::superblock::{SPARE, Slot, Superblock, Work};
use crate::geometry::{Layout, Level, Shape};
use crate::ops::examine::{FoundSuperblock, examine};
use crate::ops::register::Metadata;
use crate::ops::{Entry, Register, md};
use crate::set::MemberSet;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::MemberId;

/// The state of an array from its superblocks; devices are only read.
///
/// # Errors
/// Fails with [`Kind::NotFound`] for an unknown name; with [`Kind::TooManyLosses`] when no device
/// of the array can be read.
pub fn of_devices(name: &str, register: &Register) -> Result<Detail> {
    let entry = register.read(name)?;
    if entry.metadata == Metadata::Md {
        return md::inspect(&entry);
    }
    let mut found: Vec<(PathBuf, Superblock)> = Vec::new();
    let mut first_error = None;
    for path in &entry.devices {
        match examine(path).map(|it| (it.found, it.bytes)) {
            Ok((FoundSuperblock::Ours(superblock, _), bytes))
                if superblock.array.to_string() == entry.array =>
            {
                match superblock.check_length(bytes) {
                    Ok(()) => found.push((path.clone(), *superblock)),
                    Err(error) => _ = first_error.get_or_insert(error.at(path)),
                }
            }
            Ok(_) => {
                let error =
                    Error::new(Kind::WrongMember, "this device now belongs to another array")
                        .at(path);
                first_error.get_or_insert(error);
            }
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    let newest = found.iter().map(|(_, it)| it).max_by_key(|it| it.generation).cloned();
    match newest {
        Some(newest) => of_superblocks(&entry, &newest, &found),
        None => {
            let error =
                Error::new(Kind::TooManyLosses, format!("no device of '{name}' is present"));
            let why = first_error.map(|it| it.to_string()).unwrap_or_default();
            Err(error.advice(format!(
                "attach the devices, or assemble the array from their present paths ({why}); if \
                 the array no longer exists, run 'pinstripe array forget {name}'"
            )))
        }
    }
}

fn of_superblocks(
    entry: &Entry,
    newest: &Superblock,
    found: &[(PathBuf, Superblock)],
) -> Result<Detail> {
    let level = Level::from_number(newest.level.into())?;
    let layout = Layout::from_number(level, newest.layout)?;
    let shape = shape_of(newest)?;
    let place = |member: MemberId| {
        let it = found.iter().find(|(_, own)| own.member == member);
        it.map(|(path, _)| path.clone())
    };
    let mut slots: Vec<_> =
        newest.slots.iter().enumerate().map(|it| slot_detail(it, &place)).collect();
    if let Work::Replace { slot, with, .. } = newest.work
        && let Some(slot) = slots.get_mut(usize::from(slot))
    {
        slot.replacement = place(with);
    }
    let absent: MemberSet = slots
        .iter()
        .filter(|slot| slot.state != SlotStateDetail::InSync)
        .map(|slot| slot.slot)
        .collect();
    let granule = Some(newest.granule).filter(|bytes| *bytes > 0);
    let granule = ("stripe_size".to_owned(), granule_text(granule));
    let spare = |(path, own): &(PathBuf, Superblock)| (own.slot == SPARE).then(|| path.clone());
    let spares: Vec<PathBuf> = found.iter().filter_map(spare).collect();
    // A spare takes the first empty slot as soon as the array is served.
    let is_empty = |slot: &Slot| matches!(slot, Slot::Failed(_) | Slot::Missing);
    let is_filled_next = !spares.is_empty() && newest.slots.iter().any(is_empty);
    let pending = is_filled_next.then(|| WorkDetail {
        kind: "recover".to_owned(),
        done_bytes: 0,
        all_bytes: newest.data_bytes,
        bytes_per_second: 0,
    });
    Ok(Detail {
        name: entry.name.clone(),
        metadata: "pinstripe".to_owned(),
        array: newest.array.to_string(),
        level: level.to_string(),
        layout: layout.to_string(),
        chunk_bytes: newest.chunk_bytes.into(),
        capacity_bytes: shape.capacity(),
        member_bytes: newest.data_bytes,
        made_seconds: newest.made_seconds,
        generation: newest.generation,
        consistency: consistency(newest.consistency).to_owned(),
        is_clean: newest.is_clean,
        is_usable: shape.survives(absent),
        served: None,
        slots,
        spares,
        work: work(newest, &shape).or(pending),
        reports: Vec::new(),
        mismatches: 0,
        dirty_bytes: 0,
        settings: entry.settings.clone().into_iter().chain([granule]).collect(),
        counters: Counted::default(),
    })
}

fn slot_detail(
    (number, slot): (usize, &Slot),
    place: &impl Fn(MemberId) -> Option<PathBuf>,
) -> SlotDetail {
    let (state, member) = match slot {
        Slot::Missing => (SlotStateDetail::Missing, None),
        Slot::Present(member) if place(*member).is_none() => {
            (SlotStateDetail::Missing, Some(*member))
        }
        Slot::Present(member) => (SlotStateDetail::InSync, Some(*member)),
        Slot::Failed(member) => (SlotStateDetail::Failed, Some(*member)),
        Slot::Rebuilding(member) => (SlotStateDetail::Rebuilding, Some(*member)),
    };
    SlotDetail {
        slot: number,
        state,
        member: member.map(|it| it.to_string()),
        device: member.and_then(place),
        replacement: None,
        reason: None,
        errors: ErrorCounts::default(),
    }
}

fn work(superblock: &Superblock, shape: &Shape) -> Option<WorkDetail> {
    let of_rows = |rows: u64| rows.saturating_mul(superblock.chunk_bytes.into());
    let (kind, done_bytes) = match superblock.work {
        Work::None => {
            let scrub = superblock.scrub?;
            (if scrub.repair { "repair" } else { "check" }, of_rows(scrub.done_rows))
        }
        Work::Rebuild { done_bytes, .. } | Work::Replace { done_bytes, .. } => {
            ("recover", done_bytes)
        }
        Work::Grow { stretches, .. } => ("reshape", stretches * shape.stretch_bytes()),
    };
    let all_bytes = superblock.data_bytes;
    Some(WorkDetail { kind: kind.to_owned(), done_bytes, all_bytes, bytes_per_second: 0 })
}
