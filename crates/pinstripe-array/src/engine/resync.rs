//! Makes parity match the data where a power cut interrupted writes that no log recorded.
//!
//! In a region where writes were interrupted, a block that fails its checksum is newer than the
//! checksum, or damaged. If the rest of the row gives content that matches the checksum, the block
//! gets that content: the block was damaged before, or its interrupted write had not reached
//! parity, and no sync had ended. Any other block that fails its checksum keeps its present
//! content. If two blocks in the same column of a row fail their checksums, neither can be rebuilt.
//!
//! Invariants: until a row is resynced, nothing is written to it, and nothing else is rebuilt from
//! its parity; a read before the resync returns for each block what the resync will make of it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Array;
use super::image::{BLOCK, Blame, RowImage};
use super::logged::LoggedArray;
use super::status::WorkKind;
use super::step::{PASSED_MAX, Step, WorkReport};
use crate::format::BLOCK_BYTES;
use crate::format::log::LogPiece;
use crate::format::superblock::{Consistency, Superblock};
use crate::geometry::RowMap;
use crate::set::ShardSet;
use pinstripe_base::error::Result;

/// The most marked regions of one member: they bound the resync after a power cut.
const DIRTY_MAX: usize = 256;

/// A resync in progress. The resync itself is not recorded: the marks are, and they start it again.
#[derive(Debug)]
pub(super) struct Resync {
    pub done_rows: u64,
    /// Rows beyond the current position that were resynced early because they were about to be
    /// written.
    done_early: BTreeSet<u64>,
    /// Whether a step wrote to a row, and no sync followed.
    is_unsynced: bool,
    pub report: WorkReport,
}

impl Array {
    /// Finds the regions that a power cut may have left inconsistent. Returns whether any region
    /// may be inconsistent.
    pub(super) fn mark_unsure(&self, was_clean: bool) -> bool {
        let all = match self.consistency() {
            Consistency::Log => return false,
            Consistency::Bitmap => false,
            Consistency::None if was_clean => return false,
            Consistency::None => true,
        };
        let unsure =
            self.members().iter().flatten().filter(|member| member.mark_unsure(all)).count();
        self.has_unsure.store(unsure > 0, Ordering::Release);
        if self.members.with_superblock(Superblock::is_any_away) {
            self.members().iter().flatten().for_each(|member| member.note_unsure());
        }
        unsure > 0
    }

    /// Whether a resync is pending, because some rows may have parity or copies that do not match.
    pub(super) fn has_unsure(&self) -> bool {
        self.has_unsure.load(Ordering::Acquire)
    }

    /// The policy that keeps parity consistent across a power cut.
    pub(super) fn consistency(&self) -> Consistency {
        self.members.with_superblock(|superblock| superblock.consistency)
    }

    /// Whether the parity of a row may differ from its data.
    pub(super) fn is_unsure(&self, map: &RowMap) -> bool {
        self.has_unsure() && self.any_holder(map, |member, range| member.is_unsure(range))
    }

    /// Makes the parity of a row match its data. The caller has occupied the row or it is in
    /// progress, so that no reader or batch uses it.
    fn resync_row(&self, map: RowMap) -> Result<bool> {
        let mut row = self.find(map);
        let mut is_changed = false;
        for block in 0..row.bad.len() {
            while let Some((shard, bytes)) = self.by_checksum(&row, block) {
                row.put(shard, block, &bytes);
                self.correct_block(&row, block, &Blame::Known(shard, bytes))?;
                is_changed = true;
            }
            // A bad data block leaves nothing to compute parity from, and bad parity is healed
            // instead.
            if row.bad[block].is_empty() && row.compare(block).is_some() {
                self.correct_block(&row, block, &Blame::Unknown)?;
                is_changed = true;
            }
        }
        for shard in 0..row.map.shards() {
            let (place, len) = (row.map.place(shard), u64::from(row.map.len()));
            let member = self.holder(&row.map, shard);
            if member.is_some_and(|it| it.settle(&(place.start..place.start + len)).is_err()) {
                self.fail(place.member)?;
            }
        }
        Ok(is_changed)
    }

    /// Whether a block within a range of a shard may differ from its checksum and is not resynced
    /// yet.
    pub(super) fn is_doubtful(&self, map: &RowMap, shard: usize, range: &Range<u64>) -> bool {
        self.has_unsure() && self.holder(map, shard).is_some_and(|member| member.is_doubtful(range))
    }

    /// A bad or doubtful block of a column, and the content that matches its checksum, if the other
    /// blocks give that content.
    pub(super) fn by_checksum(&self, row: &RowImage, block: usize) -> Option<(usize, Vec<u8>)> {
        if !self.has_unsure() {
            return None;
        }
        let at = |shard: usize| row.map.place(shard).start + (block * BLOCK) as u64;
        let is_in_doubt = |shard: &usize| {
            let range = at(*shard)..at(*shard) + BLOCK_BYTES;
            row.bad[block].has(*shard) || self.is_doubtful(&row.map, *shard, &range)
        };
        let (doubtful, sound): (Vec<usize>, Vec<usize>) =
            (0..row.map.shards()).partition(is_in_doubt);
        doubtful.iter().find_map(|shard| {
            let bytes = row.rebuilt(*shard, block, &sound)?;
            let first = at(*shard) / BLOCK_BYTES;
            let sum = *self.holder(&row.map, *shard)?.sums(first..first + 1).ok()?.first()?;
            sum.suits(&bytes).then_some((*shard, bytes))
        })
    }
}

impl Resync {
    pub fn new() -> Self {
        let report = WorkReport::new(WorkKind::Resync, None);
        Resync { done_rows: 0, done_early: BTreeSet::new(), is_unsynced: false, report }
    }

    /// Makes parity match the data in a slice of rows. Returns the rest of the resync, if any is
    /// left.
    pub fn step(
        mut self,
        logged: &mut LoggedArray,
        most_bytes: u64,
    ) -> Result<(Step, Option<Self>)> {
        let array = Arc::clone(&logged.array);
        let (mut bytes, mut passed) = (0, 0);
        let shape = array.shape();
        let mut rows = shape.rows_from(self.done_rows).peekable();
        while bytes < most_bytes
            && passed < PASSED_MAX
            && let Some(row) = rows.next()
        {
            let map = shape.map(row);
            // The marks go only at the end, so a row that was done early still counts as unsure.
            match array.is_unsure(&map) && !self.done_early.remove(&row) {
                true => {
                    let _only = array.occupy(row);
                    self.is_unsynced |= array.resync_row(map)?;
                    bytes += u64::from(map.len());
                }
                false => passed += 1,
            }
            self.done_rows = row + 1;
        }
        self.report.bytes += bytes;
        if rows.peek().is_some() {
            return Ok((Step::Moved { bytes }, Some(self)));
        }
        array.members().iter().flatten().for_each(|member| member.clear_unsure());
        array.has_unsure.store(false, Ordering::Release);
        logged.checkpoint()?;
        Ok((Step::Done(WorkReport { is_finished: true, ..self.report }), None))
    }

    /// Resyncs a row before it is written. Returns whether the resync wrote anything, to this row or
    /// in a step, that may not be durable: such writes must be durable before the row is written, or
    /// a power cut could leave sectors that readers were not shown before.
    pub(crate) fn resync_early(&mut self, array: &Array, row: u64) -> Result<bool> {
        let map = array.shape().map(row);
        if row >= self.done_rows && array.is_unsure(&map) && self.done_early.insert(row) {
            self.is_unsynced |= array.resync_row(map)?;
        }
        Ok(std::mem::take(&mut self.is_unsynced))
    }
}

impl LoggedArray {
    /// Under the bitmap policy, marks the regions of a batch durably before the batch is written in
    /// place.
    pub(super) fn mark_regions_dirty(&mut self, pieces: &[LogPiece]) -> Result<()> {
        if self.array.consistency() != Consistency::Bitmap {
            return Ok(());
        }
        let members = self.array.members();
        if members.iter().flatten().any(|member| member.dirty_regions() > DIRTY_MAX) {
            self.checkpoint()?;
        }
        let mut ranges: Vec<Vec<Range<u64>>> = vec![Vec::new(); members.len()];
        for piece in pieces {
            let map = self.array.shape().map(piece.row);
            for shard in ShardSet::from_bits(piece.written).iter() {
                let place = map.place(shard);
                let start = place.start + u64::from(piece.column.start);
                ranges[place.member].push(start..start + piece.column.len() as u64);
            }
        }
        for (slot, ranges) in ranges.iter().enumerate() {
            let member = members[slot].as_ref().filter(|_| !ranges.is_empty());
            if member.is_some_and(|member| member.mark_dirty(ranges).is_err()) {
                self.array.fail(slot)?;
            }
        }
        self.array.drop_failed_replacement()
    }
}
