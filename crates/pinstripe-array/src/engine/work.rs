//! LongWork work in slices: the owner of the flusher calls [`Flusher::step`] between batches.

use std::path::PathBuf;

use super::Array;
use super::flush::Flusher;
use super::grow::Grow;
use super::rebuild::Fill;
use super::resync::Resync;
use super::scrub::Scrub;
use super::status::{WorkKind, WorkStatus};
use crate::format::superblock::{Slot, Work};
use crate::geometry::RowMap;
use pinstripe_base::error::Result;

/// Rows or chunks with nothing to do that one step passes over, at most: it has to end soon.
pub(super) const PASSED_MAX: u64 = 16384;

/// The outcome of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// There is nothing to do.
    Idle,
    /// There is more.
    Moved {
        /// Bytes of each member that were moved or examined.
        bytes: u64,
    },
    /// Some work has ended.
    Done(WorkReport),
}

/// The outcome of long work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkReport {
    /// The kind of work.
    pub kind: WorkKind,
    /// The slot it was for, if it was for one.
    pub slot: Option<usize>,
    /// Whether it came to its end; if not, a member failed, or it was cancelled.
    pub is_finished: bool,
    /// Bytes of each member that were moved.
    pub bytes: u64,
    /// Blocks whose content could not be rebuilt: reading them fails until they are written.
    pub lost_blocks: u64,
    /// The first blocks that did not hold what they should.
    pub mismatches: Vec<Mismatch>,
}

impl WorkReport {
    pub(super) fn new(kind: WorkKind, slot: Option<usize>) -> Self {
        let mismatches = Vec::new();
        WorkReport { kind, slot, is_finished: false, bytes: 0, lost_blocks: 0, mismatches }
    }
}

/// A block that did not hold what it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The slot of the member that is to blame, if that is known.
    pub slot: Option<usize>,
    /// The path of that member.
    pub path: Option<PathBuf>,
    /// The offset of the block in each member's data.
    pub member_offset: u64,
    /// Whether it was repaired.
    pub is_mended: bool,
}

/// LongWork work in progress.
#[derive(Debug, Default)]
pub(super) struct LongWork {
    pub fill: Option<Fill>,
    pub scrub: Option<Scrub>,
    pub resync: Option<Resync>,
    pub grow: Option<Grow>,
}

impl LongWork {
    /// Notes that a row was written.
    pub fn note(&mut self, map: &RowMap) {
        if let Some(fill) = &mut self.fill {
            fill.note(map);
        }
    }
}

impl Flusher {
    /// Does a slice of pending long work, about `most_bytes` of each member. The first kind that is
    /// pending goes: resync, healing, growing, a spare for an empty slot, filling, scrubbing.
    ///
    /// # Errors
    /// [`Kind::TooManyLosses`](pinstripe_base::error::Kind::TooManyLosses) when too many members failed.
    pub fn step(&mut self, most_bytes: u64) -> Result<Step> {
        // Resync comes first because all other kinds rely on parity. A scrub waits for a fill,
        // which would change what it compares.
        if let Some(resync) = self.long.resync.take() {
            let step = self.resync_some(resync, most_bytes)?;
            self.publish_work();
            return Ok(step);
        }
        self.heal()?;
        if let Some(grow) = self.long.grow.take() {
            let step = self.grow_some(grow, most_bytes)?;
            self.publish_work();
            return Ok(step);
        }
        if self.long.fill.is_none() {
            self.take_spare()?;
        }
        let step = match (self.long.fill.take(), self.long.scrub.take()) {
            (Some(fill), scrub) => {
                self.long.scrub = scrub;
                self.fill_some(fill, most_bytes)?
            }
            (None, Some(scrub)) => self.scrub_some(scrub, most_bytes)?,
            (None, None) => Step::Idle,
        };
        self.publish_work();
        Ok(step)
    }

    /// Ends a scrub early. Returns its report, if there was one; a fill goes on.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn cancel_work(&mut self) -> Result<Option<WorkReport>> {
        let Some(scrub) = self.long.scrub.take() else { return Ok(None) };
        if self.long.fill.is_none() {
            self.array.update_superblocks(|superblock| superblock.work = Work::None)?;
        }
        self.publish_work();
        Ok(Some(scrub.report))
    }

    /// Resumes the work that the superblock records.
    pub(super) fn resume(&mut self) {
        let superblock = self.array.superblock();
        self.long.fill = Fill::resumed(&superblock);
        self.long.scrub = Scrub::resumed(&superblock);
        self.long.grow = Grow::resumed(&superblock);
        self.publish_work();
    }

    /// Publishes the progress of long work to the array's status.
    pub(super) fn publish_work(&self) {
        let geometry = self.array.geometry();
        let of_bytes = geometry.member_bytes();
        let fill = self.long.fill.as_ref().map(|fill| WorkStatus {
            kind: fill.kind,
            slot: Some(fill.slot),
            done_bytes: fill.done_bytes,
            of_bytes,
        });
        let scrub = self.long.scrub.as_ref().map(|scrub| WorkStatus {
            kind: scrub.report.kind,
            slot: None,
            done_bytes: scrub.done_rows * u64::from(geometry.chunk_bytes()),
            of_bytes: geometry.rows() * u64::from(geometry.chunk_bytes()),
        });
        let resync = self.long.resync.as_ref().map(|resync| WorkStatus {
            kind: WorkKind::Resync,
            slot: None,
            done_bytes: resync.done_rows * u64::from(geometry.chunk_bytes()),
            of_bytes: geometry.rows() * u64::from(geometry.chunk_bytes()),
        });
        let shape = self.array.shape();
        let grow = shape.stretches().map(|(moved, all)| WorkStatus {
            kind: WorkKind::Grow,
            slot: None,
            done_bytes: moved * shape.stretch_bytes(),
            of_bytes: all * shape.stretch_bytes(),
        });
        self.array.live.lock().work = resync.or(grow).or(fill).or(scrub);
    }
}

impl Array {
    /// Whether [`Flusher::step`] has something to do.
    pub fn wants_work(&self) -> bool {
        let is_empty = |slot: &Slot| matches!(slot, Slot::Missing | Slot::Failed(_));
        let is_degraded =
            self.members.with_superblock(|superblock| superblock.slots.iter().any(is_empty));
        let has_spare = !self.members.spares().is_empty();
        let has_bad_blocks = !self.bad_blocks.lock().open.is_empty();
        let is_working = self.live.lock().work.is_some();
        is_working || has_bad_blocks || is_degraded && has_spare
    }
}
