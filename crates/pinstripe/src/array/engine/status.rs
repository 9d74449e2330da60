//! What is told of an array: numbers and names, as they are at one moment.

use std::path::PathBuf;

use super::{Array, lock};
use crate::array::geometry::{Layout, Level};
use crate::format::array::superblock::{Consistency, Slot, Superblock};
use crate::id::{ArrayId, MemberId};

/// An array at one moment.
#[derive(Debug, Clone)]
pub struct ArrayStatus {
    /// For people.
    pub name: String,
    /// Which.
    pub array: ArrayId,
    /// The level.
    pub level: Level,
    /// How rows lie.
    pub layout: Layout,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// User bytes.
    pub capacity_bytes: u64,
    /// Bytes of data of each member that the array has use for.
    pub member_bytes: u64,
    /// When it was made, in seconds since 1970.
    pub made_seconds: i64,
    /// What the members agreed upon, counted.
    pub generation: u64,
    /// What keeps parity true across a power cut.
    pub consistency: Consistency,
    /// Bytes of the granule; `None` where it follows the requests.
    pub granule: Option<u32>,
    /// By slot.
    pub slots: Vec<SlotStatus>,
    /// Devices that wait for a member to fail.
    pub spares: Vec<PathBuf>,
    /// What goes on.
    pub work: Option<WorkStatus>,
    /// Blocks that the last scrub found not to be what they should; md's `mismatch_cnt`, in blocks.
    pub mismatches: u64,
    /// Bytes that are written and not on the members yet.
    pub dirty_bytes: u64,
}

/// A slot at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotStatus {
    /// How it stands.
    pub state: SlotState,
    /// Who stands there, or stood there last.
    pub member: Option<MemberId>,
    /// Where it is, or was.
    pub path: Option<PathBuf>,
    /// What went wrong since the array was assembled.
    pub errors: Errors,
}

/// How a slot stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlotState {
    /// Its member has what it should.
    Present,
    /// Its member is being filled.
    Rebuilding,
    /// Its member failed, or was not there when the array was assembled. It may come back.
    Failed,
    /// There is none.
    Missing,
}

/// What went wrong with a member, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Errors {
    /// Reads that failed.
    pub reads: u64,
    /// Blocks that were not what was written.
    pub checksums: u64,
    /// Blocks that were written again from what the others have.
    pub healed: u64,
    /// Blocks that could not be written, and are had from the others.
    pub bad_blocks: u64,
}

/// Long work at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkStatus {
    /// What is done.
    pub kind: WorkKind,
    /// To which slot, where it is about one.
    pub slot: Option<usize>,
    /// Bytes of each member that are done.
    pub done_bytes: u64,
    /// Of so many.
    pub of_bytes: u64,
}

/// Kinds of long work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// A member is filled.
    Rebuild,
    /// A member that was away gets what was written meanwhile.
    Recover,
    /// A member is copied to another one, which takes its place.
    Replace,
    /// Parity is made true.
    Resync,
    /// Everything is read and compared.
    Check,
    /// And mended.
    Repair,
    /// All is moved to where it lies with one member more.
    Grow,
}

/// What is told beside what the superblock says.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub paths: Vec<Option<PathBuf>>,
    pub errors: Vec<Errors>,
    pub work: Option<WorkStatus>,
    pub mismatches: u64,
    /// Somebody wants parity to be believed that may be stale.
    pub believes_stale: bool,
}

impl Array {
    /// How it stands.
    pub fn status(&self) -> ArrayStatus {
        let superblock = self.superblock();
        let spares = lock(&self.spares).iter().map(|spare| spare.path().to_owned()).collect();
        let live = lock(&self.live);
        let slot = |slot: usize| SlotStatus {
            errors: live.errors[slot],
            path: live.paths[slot].clone(),
            ..slot_status(&superblock, slot)
        };
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
            slots: (0..superblock.slots.len()).map(slot).collect(),
            spares,
            work: live.work,
            mismatches: live.mismatches,
            dirty_bytes: self.dirty_bytes(),
        }
    }
}

fn slot_status(superblock: &Superblock, slot: usize) -> SlotStatus {
    let (state, member) = match superblock.slots[slot] {
        Slot::Missing => (SlotState::Missing, None),
        Slot::Present(member) => (SlotState::Present, Some(member)),
        Slot::Failed(member) => (SlotState::Failed, Some(member)),
        Slot::Rebuilding(member) => (SlotState::Rebuilding, Some(member)),
    };
    SlotStatus { state, member, path: None, errors: Errors::default() }
}
