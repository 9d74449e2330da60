//! The description of an array in one plain value, from the process that serves it, or, if no
//! process does, from its superblocks.

mod devices;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::format::superblock::Consistency;

pub use devices::of_devices;

/// The present state of an array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Detail {
    /// The name.
    pub name: String,
    /// The format of the array's superblocks: `pinstripe`, or md's version.
    #[serde(default)]
    pub metadata: String,
    /// The id.
    pub array: String,
    /// As `raid5`.
    pub level: String,
    /// mdadm's word.
    pub layout: String,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// User bytes.
    pub capacity_bytes: u64,
    /// Bytes of data on each member.
    pub member_bytes: u64,
    /// When the array was created, in seconds since 1970.
    pub made_seconds: i64,
    /// The number of changes of the array's superblock, which md calls events.
    pub generation: u64,
    /// How parity survives a power cut: `log`, `bitmap` or `none`.
    pub consistency: String,
    /// Whether the array was closed cleanly; while it is served, whether all writes are on its
    /// members.
    pub is_clean: bool,
    /// Whether the array can be used with the present members.
    pub is_usable: bool,
    /// The process that serves the array, if there is one.
    pub served: Option<Served>,
    /// By slot.
    pub slots: Vec<SlotDetail>,
    /// Spare devices.
    pub spares: Vec<PathBuf>,
    /// Work in progress, or to be resumed when the array is served.
    pub work: Option<WorkDetail>,
    /// Outcomes of recent work.
    #[serde(default)]
    pub reports: Vec<ReportDetail>,
    /// Blocks with mismatches in the last scrub.
    pub mismatches: u64,
    /// Bytes that were written to the array and are not on its members yet.
    pub dirty_bytes: u64,
    /// Settings, by md's names.
    pub settings: BTreeMap<String, String>,
    /// Counters since the start of the process that serves the array.
    pub counters: Counted,
}

/// Counters of an array: users' requests, and transfers of each slot's member.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Reads and writes of users and their bytes, syncs, and the number of row pieces by method of
    /// parity.
    pub array: BTreeMap<String, u64>,
    /// By slot: bytes by purpose, number of calls, and their mean and longest times; null if the
    /// member is absent.
    pub members: Vec<Option<BTreeMap<String, u64>>>,
}

/// The process that serves an array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// The PID.
    pub process: u32,
    /// Addresses and mountpoints.
    pub exports: Vec<String>,
}

/// One slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlotDetail {
    /// The number.
    pub slot: usize,
    /// The state of the slot's member.
    pub state: SlotStateDetail,
    /// The member's id, if the slot ever had a member.
    pub member: Option<String>,
    /// The path of the slot's member.
    pub device: Option<PathBuf>,
    /// The device that is being filled to replace the member.
    #[serde(default)]
    pub replacement: Option<PathBuf>,
    /// Why the last member of the slot failed, if that is known.
    #[serde(default)]
    pub reason: Option<String>,
    /// Errors since the array has been served.
    pub errors: ErrorCounts,
}

/// Errors of a member, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ErrorCounts {
    /// Reads that failed.
    pub reads: u64,
    /// Blocks that failed their checksum.
    pub checksums: u64,
    /// Blocks that were rewritten with content from the other members.
    pub healed: u64,
    /// Blocks that could not be written, and are computed from the other members when read.
    pub bad_blocks: u64,
}

/// The state of a slot's member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotStateDetail {
    /// The member is up to date.
    InSync,
    /// The member is being filled.
    Rebuilding,
    /// The member failed, so its data is old.
    Failed,
    /// It is missing.
    Missing,
}

/// Long work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkDetail {
    /// md's word for the work: `recover`, `resync`, `check`, `repair`, `reshape`.
    pub kind: String,
    /// Bytes of each member that the work has done.
    pub done_bytes: u64,
    /// Bytes of each member that the work has to do in all.
    pub all_bytes: u64,
    /// The recent rate in bytes of each member per second; 0 while the work makes no progress.
    pub bytes_per_second: u64,
}

/// The outcome of long work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportDetail {
    /// The number of the report, counted since the array has been served.
    pub number: u64,
    /// As in [`WorkDetail`].
    pub kind: String,
    /// The slot that the work was for, if it was for one.
    pub slot: Option<usize>,
    /// The path of the device that the work filled, if it filled one.
    #[serde(default)]
    pub device: Option<PathBuf>,
    /// Why that device failed, if it did.
    #[serde(default)]
    pub reason: Option<String>,
    /// Whether the work was completed; if not, a member failed, or the work was cancelled.
    pub is_finished: bool,
    /// Bytes of each member that were moved or compared.
    pub bytes: u64,
    /// Blocks that could not be restored.
    pub lost_blocks: u64,
    /// The first blocks with wrong content.
    pub mismatches: Vec<MismatchDetail>,
}

/// A block with wrong content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MismatchDetail {
    /// The slot of the member with the wrong block, if known.
    pub slot: Option<usize>,
    /// The path of that member.
    pub device: Option<PathBuf>,
    /// The offset of the block in each member's data.
    pub member_offset: u64,
    /// Whether the block was repaired.
    pub is_mended: bool,
}

impl Detail {
    /// The number of slots without an up-to-date member.
    pub fn degraded(&self) -> usize {
        self.slots.iter().filter(|slot| slot.state != SlotStateDetail::InSync).count()
    }

    /// The state in the form of mdadm: `clean, degraded, recovering`.
    pub fn state(&self) -> String {
        let mut words = vec![match (&self.served, self.is_clean) {
            (_, true) => "clean",
            (Some(_), false) => "active",
            (None, false) => "not closed properly",
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

    /// The slots in the form of md: `UU_U`.
    pub fn picture(&self) -> String {
        let letter =
            |slot: &SlotDetail| if slot.state == SlotStateDetail::InSync { 'U' } else { '_' };
        self.slots.iter().map(letter).collect()
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

/// The granule as text.
pub(crate) fn granule_text(granule: Option<u32>) -> String {
    granule.map_or_else(|| "auto".to_owned(), |bytes| bytes.to_string())
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A complete array of three members, for tests.
    pub fn detail() -> Detail {
        let slot = |slot: usize| SlotDetail {
            slot,
            state: SlotStateDetail::InSync,
            member: Some(format!("{slot:032x}")),
            device: Some(PathBuf::from(format!("/dev/{slot}"))),
            replacement: None,
            reason: None,
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
