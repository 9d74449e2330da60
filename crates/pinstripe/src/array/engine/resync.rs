//! Parity made true where the power went while rows were written and no log told of it: what data say.
//!
//! Invariant: nothing is written to such a row, and nothing rebuilt from its parity, before that was done.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::flush::Flusher;
use super::scrub::Liar;
use super::status::WorkKind;
use super::work::{PASSED_MAX, Step, WorkReport};
use super::{Array, lock};
use crate::array::geometry::RowMap;
use crate::array::set::ShardSet;
use crate::error::Result;
use crate::format::array::log::Piece;
use crate::format::array::superblock::Consistency;

/// Regions of one member that are marked at once. It bounds what there is to do after a power cut.
const DIRTY_MAX: usize = 256;

/// A resync that goes on. It is not remembered: the marks are, and begin it again.
#[derive(Debug)]
pub(super) struct Resync {
    pub done_rows: u64,
    /// Rows beyond these that were written, and made true before that.
    done_early: BTreeSet<u64>,
    pub report: WorkReport,
}

impl Array {
    /// Looks for what was being written when the power went. Returns whether there is anything.
    pub(super) fn doubt(&self, was_clean: bool) -> bool {
        let all = match self.consistency() {
            Consistency::Log => return false,
            Consistency::Bitmap => false,
            Consistency::None if was_clean => return false,
            Consistency::None => true,
        };
        let unsure = self.members().iter().flatten().filter(|member| member.doubt(all)).count();
        self.has_unsure.store(unsure > 0, Ordering::Release);
        unsure > 0
    }

    /// What keeps parity true across a power cut.
    pub(super) fn consistency(&self) -> Consistency {
        lock(&self.superblock).consistency
    }

    /// Whether parity of a row may not suit its data.
    pub(super) fn is_unsure(&self, map: &RowMap) -> bool {
        self.has_unsure.load(Ordering::Acquire)
            && self.any_holder(map, |member, range| member.is_unsure(range))
    }

    /// Makes parity of a row what data say. Nobody else reads or writes it meanwhile.
    fn resync_row(&self, map: RowMap) -> Result<bool> {
        let row = self.find(map);
        let mut is_changed = false;
        for block in 0..row.bad.len() {
            // Of data that are bad nothing is known, and parity that is bad is healed.
            if row.bad[block].is_empty() && row.compare(block).is_some() {
                self.put_right(&row, block, &Liar::Unknown)?;
                is_changed = true;
            }
        }
        Ok(is_changed)
    }
}

impl Flusher {
    /// Begins to make parity true, if that may be needed.
    pub(super) fn begin_resync(&mut self) {
        let report = WorkReport::new(WorkKind::Resync, None);
        self.long.resync = Some(Resync { done_rows: 0, done_early: BTreeSet::new(), report });
        self.tell_work();
    }

    /// Makes some of parity true.
    pub(super) fn resync_some(&mut self, mut resync: Resync, most_bytes: u64) -> Result<Step> {
        let array = Arc::clone(&self.array);
        let (mut bytes, mut passed) = (0, 0);
        let shape = array.shape();
        let mut rows = shape.rows_from(resync.done_rows).peekable();
        while bytes < most_bytes
            && passed < PASSED_MAX
            && let Some(row) = rows.next()
        {
            let map = shape.map(row);
            match array.is_unsure(&map) && !resync.done_early.remove(&row) {
                true => {
                    let _only = array.occupy(row);
                    array.resync_row(map)?;
                    bytes += u64::from(map.len());
                }
                false => passed += 1,
            }
            resync.done_rows = row + 1;
        }
        resync.report.bytes += bytes;
        if rows.peek().is_some() {
            self.long.resync = Some(resync);
            return Ok(Step::Moved { bytes });
        }
        array.members().iter().flatten().for_each(|member| member.be_sure());
        array.has_unsure.store(false, Ordering::Release);
        self.checkpoint()?;
        Ok(Step::Done(WorkReport { is_finished: true, ..resync.report }))
    }

    /// Makes parity of a row true that is about to be written.
    pub(super) fn resync_first(&mut self, row: u64) -> Result<()> {
        let array = Arc::clone(&self.array);
        let Some(resync) = &mut self.long.resync else { return Ok(()) };
        let map = array.shape().map(row);
        if row >= resync.done_rows && array.is_unsure(&map) && resync.done_early.insert(row) {
            array.resync_row(map)?;
        }
        Ok(())
    }

    /// Has members mark durably what is about to be written, under the policy that does so.
    pub(super) fn announce(&mut self, pieces: &[Piece]) -> Result<()> {
        if self.array.consistency() != Consistency::Bitmap {
            return Ok(());
        }
        let members = self.array.members().clone();
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
        self.array.drop_failed_twin()
    }
}
