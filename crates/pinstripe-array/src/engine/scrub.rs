//! Scrubbing: everything is read and compared: blocks with their checksums, parity with data,
//! copies with each other.
//!
//! A block that fails its checksum counts as the bad one. If all checksums match and parity does
//! not match the data, the two parities of level 6 identify the bad shard if there is only one.
//! Otherwise the bad shard is unknown; a repair then computes parity from the data, and copies the
//! first copy over the others.

mod begin;

use std::sync::Arc;

use super::Array;
use super::heal::Healed;
use super::image::{BLOCK, Blame, BlockMismatch, RowImage};
use super::logged::LoggedArray;
use super::status::WorkKind;
use super::step::{Mismatch, PASSED_MAX, Step, WorkReport};
use crate::executor::{TaskKind, each_of};
use crate::format::BLOCK_BYTES;
use crate::format::superblock::{ScrubProgress, Superblock};
use crate::geometry::RowMap;
use pinstripe_base::error::Result;

/// Bytes of each member between two records of progress in the superblock.
const RECORD_BYTES: u64 = 256 << 20;
/// Bytes of each member that are examined in parallel.
const GROUP_BYTES: u64 = 4 << 20;
/// The most mismatches that a report names.
const NAMED_MAX: usize = 1000;

/// A scrub in progress.
#[derive(Debug)]
pub(super) struct Scrub {
    repair: bool,
    pub done_rows: u64,
    recorded_rows: u64,
    pub report: WorkReport,
}

impl Scrub {
    fn new(repair: bool, done_rows: u64) -> Self {
        let kind = if repair { WorkKind::Repair } else { WorkKind::Check };
        Scrub { repair, done_rows, recorded_rows: done_rows, report: WorkReport::new(kind, None) }
    }

    /// The scrub that the superblock records as in progress.
    pub fn resumed(superblock: &Superblock) -> Option<Self> {
        superblock.scrub.map(|it| Scrub::new(it.repair, it.done_rows))
    }

    fn progress(&self) -> Option<ScrubProgress> {
        Some(ScrubProgress { repair: self.repair, done_rows: self.done_rows })
    }
}

impl Scrub {
    /// Compares a slice of rows. Returns the rest of the scrub, if any is left.
    pub fn step(
        mut self,
        logged: &mut LoggedArray,
        most_bytes: u64,
    ) -> Result<(Step, Option<Self>)> {
        let array = Arc::clone(&logged.array);
        let chunk_bytes = u64::from(array.geometry().chunk_bytes());
        let rows = array.geometry().rows();
        let (mut bytes, mut passed) = (0, 0);
        while self.done_rows < rows && bytes < most_bytes && passed < PASSED_MAX {
            let group_rows = (most_bytes - bytes).min(GROUP_BYTES).div_ceil(chunk_bytes) as usize;
            let mut group = Vec::new();
            while self.done_rows < rows && group.len() < group_rows && passed < PASSED_MAX {
                let map = array.shape().map(self.done_rows);
                let has_any = array.any_holder(&map, |member, range| {
                    member.any_region(range, |region| region.is_written())
                });
                match has_any {
                    true => group.push(map),
                    false => passed += 1,
                }
                self.done_rows += 1;
            }
            bytes += group.iter().map(|map| u64::from(map.len())).sum::<u64>();
            for (row, mismatches) in compare_rows(logged, &group) {
                self.report_and_repair(logged, &row, mismatches)?;
            }
        }
        self.report.bytes += bytes;
        if self.done_rows == array.geometry().rows() {
            array.update_superblocks(|superblock| superblock.scrub = None)?;
            let done = WorkReport { is_finished: true, ..self.report };
            return Ok((Step::Done(done), None));
        }
        if (self.done_rows - self.recorded_rows) * chunk_bytes >= RECORD_BYTES {
            self.recorded_rows = self.done_rows;
            let progress = self.progress();
            array.update_superblocks(|superblock| superblock.scrub = progress)?;
        }
        Ok((Step::Moved { bytes }, Some(self)))
    }

    /// Records the mismatches of a row, and repairs them if `repair` is set.
    fn report_and_repair(
        &mut self,
        logged: &mut LoggedArray,
        row: &RowImage,
        mismatches: Vec<BlockMismatch>,
    ) -> Result<()> {
        let array = Arc::clone(&logged.array);
        if self.repair {
            // A record in the log could be replayed over what is written below.
            logged.checkpoint()?;
        }
        for BlockMismatch { shard, block, blame } in mismatches {
            let is_mended = self.repair && array.repair(row, shard, block, blame.as_ref())?;
            let is_known = !matches!(blame, Some(Blame::Unknown));
            self.note(&array, row, (shard, block), is_known, is_mended);
        }
        match self.repair {
            true => logged.checkpoint(),
            false => Ok(()),
        }
    }
}

/// Reads rows, in parallel where that is faster, and returns those with bad blocks or mismatches.
fn compare_rows(logged: &LoggedArray, rows: &[RowMap]) -> Vec<(RowImage, Vec<BlockMismatch>)> {
    // No row is held for this: rows change only by the flusher, and the flusher is busy here.
    let look = |number: usize| {
        let row = logged.array.find(rows[number]);
        let mismatches = row.mismatches();
        (!mismatches.is_empty()).then_some((row, mismatches))
    };
    each_of(&*logged.executor, TaskKind::Scrub, rows.len(), look).into_iter().flatten().collect()
}

impl Scrub {
    fn note(
        &mut self,
        array: &Array,
        row: &RowImage,
        (shard, block): (usize, usize),
        is_known: bool,
        is_mended: bool,
    ) {
        let place = row.map.place(shard);
        let path = array.members.path(place.member);
        let mut live = array.live.lock();
        live.mismatches += 1;
        if self.report.mismatches.len() < NAMED_MAX {
            self.report.mismatches.push(Mismatch {
                slot: is_known.then_some(place.member),
                path: path.filter(|_| is_known),
                member_offset: place.start + (block * BLOCK) as u64,
                is_mended,
            });
        }
        self.report.lost_blocks += u64::from(self.repair && !is_mended);
    }
}

impl Array {
    /// Repairs a block. Returns whether the block holds the expected content now.
    fn repair(
        &self,
        row: &RowImage,
        shard: usize,
        block: usize,
        blame: Option<&Blame>,
    ) -> Result<bool> {
        let Some(blame) = blame else {
            let place = row.map.place(shard);
            let number = place.start / BLOCK_BYTES + block as u64;
            return Ok(self.heal_block(place.member, number)? == Healed::Yes);
        };
        // `heal_block` occupies the row itself; here readers are to be kept off while it is
        // written.
        let _only = self.occupy(row.map.index());
        self.correct_block(row, block, blame).map(|()| true)
    }
}
