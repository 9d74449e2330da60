//! The status of an array: plain numbers and names at one moment.

use std::path::PathBuf;

use super::Array;
use crate::format::superblock::{Consistency, Slot, Superblock};
use crate::geometry::{Layout, Level};
use pinstripe_base::id::{ArrayId, MemberId};

/// An array at one moment.
#[derive(Debug, Clone)]
pub struct ArrayStatus {
    /// For people.
    pub name: String,
    /// The array's id.
    pub array: ArrayId,
    /// The level.
    pub level: Level,
    /// How rows are laid out.
    pub layout: Layout,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// User bytes.
    pub capacity_bytes: u64,
    /// Bytes of data that the array uses on each member.
    pub member_bytes: u64,
    /// The time when the array was created, in seconds since 1970.
    pub made_seconds: i64,
    /// The number of the newest superblock.
    pub generation: u64,
    /// The policy that keeps parity consistent across a power cut.
    pub consistency: Consistency,
    /// Bytes of the granule; `None` if it follows the size of the requests.
    pub granule: Option<u32>,
    /// By slot.
    pub slots: Vec<SlotStatus>,
    /// Paths of the spares.
    pub spares: Vec<PathBuf>,
    /// Long work in progress.
    pub work: Option<WorkStatus>,
    /// Blocks with mismatches in the last scrub; md's `mismatch_cnt`, in blocks.
    pub mismatches: u64,
    /// Bytes that were written to the array and are not on the members yet.
    pub dirty_bytes: u64,
}

/// A slot at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotStatus {
    /// The state.
    pub state: SlotState,
    /// The member in the slot, or its last member if it has none now.
    pub member: Option<MemberId>,
    /// The path of that member.
    pub path: Option<PathBuf>,
    /// The path of the device that is being filled to replace the member.
    pub replacement: Option<PathBuf>,
    /// Why the last member of the slot failed, if that is known.
    pub reason: Option<String>,
    /// Errors since the array was assembled.
    pub errors: Errors,
}

/// The state of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlotState {
    /// The member has the expected content.
    Present,
    /// The member is being filled.
    Rebuilding,
    /// The member failed, or was missing when the array was assembled. The member may return.
    Failed,
    /// There is none.
    Missing,
}

/// Errors of a member, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Errors {
    /// Reads that failed.
    pub reads: u64,
    /// Blocks that failed their checksum.
    pub checksums: u64,
    /// Blocks that were rewritten with content from the other members.
    pub healed: u64,
    /// Blocks that could not be written, and are rebuilt from the other members when read.
    pub bad_blocks: u64,
}

/// Long work at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkStatus {
    /// The kind of work.
    pub kind: WorkKind,
    /// The slot that the work is for, if it is for one.
    pub slot: Option<usize>,
    /// Bytes of each member that the work has done.
    pub done_bytes: u64,
    /// Bytes of each member that the work has to do in all.
    pub of_bytes: u64,
}

/// Kinds of long work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// A member is filled.
    Rebuild,
    /// A member that was away gets the blocks that were written during that time.
    Recover,
    /// A member is copied to another one, which then replaces it.
    Replace,
    /// Parity is recomputed where it may not match the data.
    Resync,
    /// Everything is read and compared.
    Check,
    /// Everything is read, compared and repaired.
    Repair,
    /// Everything is moved to its place in an array with one member more.
    Grow,
}

/// The part of the status that is not in the superblock.
#[derive(Debug, Clone, Default)]
pub(super) struct Live {
    pub errors: Vec<Errors>,
    pub work: Option<WorkStatus>,
    pub mismatches: u64,
    /// The array was assembled by force: parity that may be stale is used.
    pub trusts_stale_parity: bool,
}

impl Array {
    /// The status now.
    pub fn status(&self) -> ArrayStatus {
        let spares: Vec<PathBuf> =
            self.members.spares().iter().map(|spare| spare.path().to_owned()).collect();
        // After the spares: a spare that has left their list now is announced as work.
        let live = self.live.lock().clone();
        // After the work: where no work is left, the superblock has the slot that was filled.
        let superblock = self.superblock();
        let (members, paths) = (self.members(), self.members.paths());
        let reasons = self.members.reasons();
        let replacement = |slot: usize| members.get(slot)?.as_ref()?.replacement().member();
        let slot = |slot: usize| SlotStatus {
            errors: live.errors.get(slot).copied().unwrap_or_default(),
            path: paths.get(slot).cloned().flatten(),
            reason: reasons.get(slot).cloned().flatten(),
            replacement: replacement(slot).map(|it| it.path().to_owned()),
            ..slot_status(&superblock, slot)
        };
        let slots: Vec<_> = (0..superblock.slots.len()).map(slot).collect();
        let is_pending = |slot: &SlotStatus| match slot.state {
            SlotState::Rebuilding => true,
            state => is_empty(state) && !spares.is_empty(),
        };
        let pending = slots.iter().position(is_pending).map(|slot| self.fill_not_begun(slot));
        ArrayStatus {
            name: superblock.name.clone(),
            array: superblock.array,
            level: self.geometry().level(),
            layout: self.geometry().layout(),
            chunk_bytes: self.geometry().chunk_bytes(),
            capacity_bytes: self.capacity(),
            member_bytes: self.geometry().member_bytes(),
            made_seconds: superblock.made_seconds,
            generation: superblock.generation,
            consistency: superblock.consistency,
            granule: Some(superblock.granule).filter(|bytes| *bytes > 0),
            slots,
            spares,
            work: live.work.or(pending),
            mismatches: live.mismatches,
            dirty_bytes: self.dirty_bytes(),
        }
    }
}

impl Array {
    /// The work of a spare that has not begun to be filled for a slot.
    pub(super) fn fill_not_begun(&self, slot: usize) -> WorkStatus {
        let of_bytes = self.geometry().member_bytes();
        WorkStatus { kind: WorkKind::Rebuild, slot: Some(slot), done_bytes: 0, of_bytes }
    }
}

fn slot_status(superblock: &Superblock, slot: usize) -> SlotStatus {
    let (state, member) = match superblock.slots[slot] {
        Slot::Missing => (SlotState::Missing, None),
        Slot::Present(member) => (SlotState::Present, Some(member)),
        Slot::Failed(member) => (SlotState::Failed, Some(member)),
        Slot::Rebuilding(member) => (SlotState::Rebuilding, Some(member)),
    };
    let (path, replacement, reason) = (None, None, None);
    SlotStatus { state, member, path, replacement, reason, errors: Errors::default() }
}

/// Whether a slot has no member and waits for one.
pub(super) fn is_empty(state: SlotState) -> bool {
    matches!(state, SlotState::Failed | SlotState::Missing)
}
