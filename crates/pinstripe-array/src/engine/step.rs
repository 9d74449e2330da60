//! The outcome of one slice of long work, and of the entire work.

use std::path::PathBuf;

use super::status::WorkKind;

/// The most rows or chunks without work that one step skips, so that the step ends soon.
pub(super) const PASSED_MAX: u64 = 16384;

/// The outcome of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// No work is pending.
    Idle,
    /// There is more.
    Moved {
        /// Bytes of each member that were moved or examined in this slice.
        bytes: u64,
    },
    /// Some work has ended, with this report.
    Done(WorkReport),
}

/// The outcome of long work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkReport {
    /// The kind of work.
    pub kind: WorkKind,
    /// The slot that the work was for, if it was for one.
    pub slot: Option<usize>,
    /// The path of the device that the work filled, if it filled one.
    pub path: Option<PathBuf>,
    /// Why the device that the work filled failed, if it failed.
    pub reason: Option<String>,
    /// Whether the work reached its end; if not, a member failed, or the work was cancelled.
    pub is_finished: bool,
    /// Bytes of each member that were moved.
    pub bytes: u64,
    /// Blocks whose content could not be rebuilt; reads of such a block fail until it is written.
    pub lost_blocks: u64,
    /// The first blocks that did not hold the expected content.
    pub mismatches: Vec<Mismatch>,
}

impl WorkReport {
    pub(super) fn new(kind: WorkKind, slot: Option<usize>) -> Self {
        let mismatches = Vec::new();
        let (path, reason, is_finished, bytes, lost_blocks) = (None, None, false, 0, 0);
        WorkReport { kind, slot, path, reason, is_finished, bytes, lost_blocks, mismatches }
    }
}

/// A block that did not hold the expected content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The slot of the member that is to blame, if that is known.
    pub slot: Option<usize>,
    /// The path of that member.
    pub path: Option<PathBuf>,
    /// The offset of the block in each member's data.
    pub member_offset: u64,
    /// Whether the block was repaired.
    pub is_mended: bool,
}
