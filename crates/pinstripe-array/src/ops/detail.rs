//! The description of an array in one plain value: by its superblocks while no process serves it,
//! else by the process that does.

mod devices;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::format::superblock::Consistency;

pub use devices::of_devices;

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
