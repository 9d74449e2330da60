//! The description of an array in one plain value: by its superblocks while no process serves it,
//! else by the process that does.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::examine::{FoundSuperblock, examine};
use super::register::Metadata;
use super::{Entry, Register, md};
use crate::engine::shape_of;
use crate::format::superblock::{Consistency, SPARE, Slot, Superblock, Work};
use crate::geometry::{Layout, Level, Shape};
use crate::set::MemberSet;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::MemberId;

/// An array as it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Detail {
    /// Its name.
    pub name: String,
    /// The kind of its superblocks: `pinstripe`, or md's version.
    #[serde(default)]
    pub metadata: String,
    /// Its id.
    pub array: String,
    /// `raid5` and so on.
    pub level: String,
    /// mdadm's word.
    pub layout: String,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// User bytes.
    pub capacity_bytes: u64,
    /// Bytes of data on each member.
    pub member_bytes: u64,
    /// When it was made, in seconds since 1970.
    pub made_seconds: i64,
    /// The number of changes of its superblock: md's events.
    pub generation: u64,
    /// The means that keeps parity true across a power cut: `log`, `bitmap` or `none`.
    pub consistency: String,
    /// Whether it was closed in order; while it is served, whether everything written is on its
    /// members.
    pub is_clean: bool,
    /// Whether it can be used with the members that are present.
    pub is_usable: bool,
    /// The process that serves it, if one does.
    pub served: Option<Served>,
    /// By slot.
    pub slots: Vec<SlotDetail>,
    /// Devices that wait for a member to fail.
    pub spares: Vec<PathBuf>,
    /// Work in progress, or to be resumed when it is served.
    pub work: Option<WorkDetail>,
    /// Outcomes of recent work.
    #[serde(default)]
    pub reports: Vec<ReportDetail>,
    /// Blocks with mismatches in the last scrub.
    pub mismatches: u64,
    /// Bytes that are written and not on the members yet.
    pub dirty_bytes: u64,
    /// Knobs, by md's names.
    pub settings: BTreeMap<String, String>,
    /// Counters since it is served.
    pub counters: Counted,
}

/// Counters of an array: by users, by method of parity, by slot.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Reads and writes of users and their bytes, syncs, and pieces of rows by how parity was had.
    pub array: BTreeMap<String, u64>,
    /// By slot: bytes by what they are, calls and their mean and longest times; null where one is
    /// absent.
    pub members: Vec<Option<BTreeMap<String, u64>>>,
}

/// The process that serves an array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// Its number.
    pub process: u32,
    /// Addresses and mountpoints.
    pub exports: Vec<String>,
}

/// One slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlotDetail {
    /// Its number.
    pub slot: usize,
    /// The state of its member.
    pub state: SlotStateDetail,
    /// The member's id, where one was there.
    pub member: Option<String>,
    /// The path of the member.
    pub device: Option<PathBuf>,
    /// The device that is being filled to replace the member.
    #[serde(default)]
    pub replacement: Option<PathBuf>,
    /// Errors since it is served.
    pub errors: ErrorCounts,
}

/// Errors of a member, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ErrorCounts {
    /// Reads that failed.
    pub reads: u64,
    /// Blocks that failed their checksum.
    pub checksums: u64,
    /// Blocks that were written again from what the others have.
    pub healed: u64,
    /// Blocks that could not be written, and are had from the others.
    pub bad_blocks: u64,
}

/// The state of a slot's member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotStateDetail {
    /// It is up to date.
    InSync,
    /// It is being filled.
    Rebuilding,
    /// It failed: its data is old.
    Failed,
    /// It is not there.
    Missing,
}

/// Long work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkDetail {
    /// md's word: `recover`, `resync`, `check`, `repair`, `reshape`.
    pub kind: String,
    /// Bytes of each member that are done.
    pub done_bytes: u64,
    /// Bytes of each member that there are.
    pub all_bytes: u64,
    /// Bytes of each member in a second, lately; 0 while nothing moves.
    pub bytes_per_second: u64,
}

/// The outcome of long work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportDetail {
    /// Its number, counted since the array is served.
    pub number: u64,
    /// As of [`WorkDetail`].
    pub kind: String,
    /// The slot it was for, if it was for one.
    pub slot: Option<usize>,
    /// The path of the device that it filled, if it filled one.
    #[serde(default)]
    pub device: Option<PathBuf>,
    /// Whether it came to its end; if not, a member failed, or it was cancelled.
    pub is_finished: bool,
    /// Bytes of each member that were moved or compared.
    pub bytes: u64,
    /// Blocks that nothing gave back.
    pub lost_blocks: u64,
    /// Blocks that were not what they should be, the first ones of them.
    pub mismatches: Vec<MismatchDetail>,
}

/// A block that did not hold what it should.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MismatchDetail {
    /// The slot of the member that is to blame, if that is known.
    pub slot: Option<usize>,
    /// The path of that member.
    pub device: Option<PathBuf>,
    /// The offset of the block in each member's data.
    pub member_offset: u64,
    /// Whether it was repaired.
    pub is_mended: bool,
}

impl Detail {
    /// Slots without a member that is up to date.
    pub fn degraded(&self) -> usize {
        self.slots.iter().filter(|slot| slot.state != SlotStateDetail::InSync).count()
    }

    /// mdadm's line: `clean, degraded, recovering`.
    pub fn state(&self) -> String {
        let mut words = vec![match (&self.served, self.is_clean) {
            (_, true) => "clean",
            (Some(_), false) => "active",
            (None, false) => "not closed in order",
        }];
        if !self.is_usable {
            words.push("FAILED");
        } else if self.degraded() > 0 {
            words.push("degraded");
        }
        if let Some(work) = &self.work {
            words.push(match (&self.served, &*work.kind) {
                (None, _) => "work pending",
                (_, "recover") => "recovering",
                (_, "resync") => "resyncing",
                (_, "check" | "repair") => "checking",
                (_, "reshape") => "reshaping",
                _ => "working",
            });
        }
        words.join(", ")
    }

    /// md's picture of the slots: `UU_U`.
    pub fn picture(&self) -> String {
        let letter =
            |slot: &SlotDetail| if slot.state == SlotStateDetail::InSync { 'U' } else { '_' };
        self.slots.iter().map(letter).collect()
    }
}

/// An array by its superblocks, which are only read.
///
/// # Errors
/// [`Kind::NotFound`] for an unknown name; [`Kind::TooManyLosses`] when no device of it can be
/// read.
pub fn of_devices(name: &str, register: &Register) -> Result<Detail> {
    let entry = register.read(name)?;
    if entry.metadata == Metadata::Md {
        return md::look(&entry);
    }
    let mut found: Vec<(PathBuf, Superblock)> = Vec::new();
    let mut first_error = None;
    for path in &entry.devices {
        match examine(path).map(|it| it.found) {
            Ok(FoundSuperblock::Ours(superblock, _))
                if superblock.array.to_string() == entry.array =>
            {
                found.push((path.clone(), *superblock));
            }
            Ok(_) => {
                let error =
                    Error::new(Kind::WrongMember, "belongs to another array by now").at(path);
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
                "attach them, or assemble the array from where they are now ({why}); if it is \
                 gone for good: 'pinstripe array forget {name}'"
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
        errors: ErrorCounts::default(),
    }
}

/// The word for a policy.
pub fn consistency(policy: Consistency) -> &'static str {
    match policy {
        Consistency::None => "none",
        Consistency::Bitmap => "bitmap",
        Consistency::Log => "log",
    }
}

/// The text of a granule.
pub(crate) fn granule_text(granule: Option<u32>) -> String {
    granule.map_or_else(|| "auto".to_owned(), |bytes| bytes.to_string())
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

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A whole array of three members.
    pub fn detail() -> Detail {
        let slot = |slot: usize| SlotDetail {
            slot,
            state: SlotStateDetail::InSync,
            member: Some(format!("{slot:032x}")),
            device: Some(PathBuf::from(format!("/dev/{slot}"))),
            replacement: None,
            errors: ErrorCounts::default(),
        };
        Detail {
            name: "pool".into(),
            metadata: "pinstripe".into(),
            array: "0".repeat(32),
            level: "raid5".into(),
            layout: "left-symmetric".into(),
            chunk_bytes: 1 << 16,
            capacity_bytes: 200,
            member_bytes: 100,
            made_seconds: 0,
            generation: 1,
            consistency: "log".into(),
            is_clean: true,
            is_usable: true,
            served: None,
            slots: (0..3).map(slot).collect(),
            spares: Vec::new(),
            work: None,
            reports: Vec::new(),
            mismatches: 0,
            dirty_bytes: 0,
            settings: BTreeMap::new(),
            counters: Counted::default(),
        }
    }
}
