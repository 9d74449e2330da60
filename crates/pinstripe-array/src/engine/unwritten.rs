//! Blocks of a row that were never written: they are known to be zeros, and are not read.

use std::ops::Range;

use super::Array;
use crate::format::BLOCK_BYTES;
use crate::format::sums::Sum;
use crate::geometry::RowMap;
use crate::plan::{Class, Mark};

impl Array {
    /// In some columns of a row, marks the blocks that were never written. A member whose checksum
    /// table cannot be read gets no marks: its blocks are read, and found bad.
    pub(super) fn mark_unwritten(
        &self,
        map: &RowMap,
        column: &Range<u32>,
        sums: &mut Vec<Sum>,
        marks: &mut Vec<Mark>,
    ) {
        let members = self.members();
        for shard in 0..map.shards() {
            let place = map.place(shard);
            let filled = place.start + u64::from(map.len());
            // The slot may have been dropped since the shape was read.
            let member = members.get(place.member).and_then(Option::as_ref);
            let Some(member) = member.filter(|it| it.is_filled(filled)) else { continue };
            let (start, end) =
                (place.start + u64::from(column.start), place.start + u64::from(column.end));
            sums.clear();
            let blocks = start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
            if member.sums_into(blocks, sums).is_err() {
                continue;
            }
            let mut next = column.start;
            for alike in sums.chunk_by(|a, b| a.is_written() == b.is_written()) {
                let end = next + (alike.len() as u64 * BLOCK_BYTES) as u32;
                if !alike[0].is_written() {
                    marks.push(Mark { shard, class: Class::Unwritten, column: next..end });
                }
                next = end;
            }
        }
    }
}
