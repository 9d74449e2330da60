//! Long work, a slice at a time: whoever owns the flusher calls [`Flusher::step`] between batches.

use std::path::PathBuf;

use super::flush::Flusher;
use super::lock;
use super::rebuild::Fill;
use super::status::{WorkKind, WorkStatus};
use crate::array::geometry::RowMap;
use crate::error::Result;

/// What a slice of work came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// There is nothing to do.
    Idle,
    /// There is more.
    Moved {
        /// So many bytes of each member were moved, or looked at.
        bytes: u64,
    },
    /// Some work has ended.
    Done(WorkReport),
}

/// How long work ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkReport {
    /// What it was.
    pub kind: WorkKind,
    /// To which slot, where it was about one.
    pub slot: Option<usize>,
    /// Whether it came to its end; if not, a member failed, or it was cancelled.
    pub is_finished: bool,
    /// Bytes of each member that were moved.
    pub bytes: u64,
    /// Blocks that nothing gave back: reading them fails until they are written.
    pub lost_blocks: u64,
    /// Blocks that were not what they should be, the first ones of them.
    pub mismatches: Vec<Mismatch>,
}

/// A block that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The slot whose member lies, where that can be said.
    pub slot: Option<usize>,
    /// Where that member is.
    pub path: Option<PathBuf>,
    /// Where the block begins, in bytes of the data of each member.
    pub member_offset: u64,
    /// Whether it was mended.
    pub is_mended: bool,
}

/// Long work that goes on.
#[derive(Debug, Default)]
pub(super) struct Long {
    pub fill: Option<Fill>,
}

impl Long {
    /// Learns that a row was written.
    pub fn note(&mut self, map: &RowMap) {
        if let Some(fill) = &mut self.fill {
            fill.note(map);
        }
    }
}

impl Flusher {
    /// Does a slice of the long work that is to be done, about `most_bytes` bytes of each member. A spare
    /// takes the slot of a member that failed.
    ///
    /// # Errors
    /// [`Kind::TooManyLosses`](crate::error::Kind::TooManyLosses) when too many members failed.
    pub fn step(&mut self, most_bytes: u64) -> Result<Step> {
        if self.long.fill.is_none() {
            self.take_spare()?;
        }
        let step = match self.long.fill.take() {
            Some(fill) => self.fill_some(fill, most_bytes)?,
            None => Step::Idle,
        };
        let work = self.long.fill.as_ref().map(|fill| self.fill_status(fill));
        lock(&self.array.live).work = work;
        Ok(step)
    }

    /// Goes on with what the superblock says was being done.
    pub(super) fn resume(&mut self) {
        let superblock = self.array.superblock();
        self.long.fill = Fill::resumed(&superblock);
        let work = self.long.fill.as_ref().map(|fill| self.fill_status(fill));
        lock(&self.array.live).work = work;
    }

    fn fill_status(&self, fill: &Fill) -> WorkStatus {
        WorkStatus {
            kind: fill.kind,
            slot: Some(fill.slot),
            done_bytes: fill.done_bytes,
            of_bytes: self.array.geometry.member_bytes(),
        }
    }
}
