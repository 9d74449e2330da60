//! Reading, from the member that has a shard, or by computing the shard from parity and the other
//! members.

use std::ops::Range;
use std::sync::Mutex;

use super::Array;
use super::image::BLOCK;
use crate::executor::{Executor, TaskKind};
use crate::format::BLOCK_BYTES;
use crate::geometry::{RowMap, Shape, Span};
use crate::plan::{Method, RowPlan};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::{into_inner, lock};

/// The number of spans that one call of `run` examines.
const RUN_SPANS: usize = 1024;

impl Array {
    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] beyond the end; with [`Kind::TooManyLosses`] where the bytes are
    /// lost.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len(), Kind::Usage)?;
        let range = offset..offset + buf.len() as u64;
        self.by_shape(&range, |shape| {
            for span in shape.spans(range.clone()) {
                let from = (span.user.start - offset) as usize;
                self.read_span(shape, &span, &mut buf[from..from + span.column.len()])?;
            }
            Ok(())
        })
    }

    /// Like [`read`](Self::read), where an executor reads the parts of a long request.
    ///
    /// # Errors
    /// Fails with the first of the errors of [`read`](Self::read).
    pub fn read_by(&self, executor: &dyn Executor, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len(), Kind::Usage)?;
        let range = offset..offset + buf.len() as u64;
        self.by_shape(&range, |shape| {
            let mut rest = &mut *buf;
            let mut parts = Vec::new();
            for span in shape.spans(range.clone()) {
                let (part, later) = rest.split_at_mut(span.column.len());
                parts.push(Mutex::new((span, part, Ok(()))));
                rest = later;
            }
            executor.each(TaskKind::Read, parts.len(), &|number| {
                let (span, part, done) = &mut *lock(&parts[number]);
                *done = self.read_span(shape, span, part);
            });
            parts.into_iter().try_for_each(|part| into_inner(part).2)
        })
    }

    /// Returns the number of bytes from the start of a non-empty range that are all written or all
    /// never written, and whether they are never written. The returned run may end before the state
    /// changes.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] beyond the end.
    pub fn run(&self, range: Range<u64>) -> Result<(u64, bool)> {
        self.check(range.start, (range.end - range.start) as usize, Kind::Usage)?;
        self.by_shape(&range, |shape| {
            let (mut bytes, mut kind) = (0, None);
            for span in shape.spans(range.clone()).take(RUN_SPANS) {
                let (alike, is_hole) = self.run_of(shape, &span);
                if kind.is_some_and(|kind| kind != is_hole) {
                    break;
                }
                kind = Some(is_hole);
                bytes += u64::from(alike);
                if alike < span.column.len() as u32 {
                    break;
                }
            }
            Ok((bytes, kind.unwrap_or(false)))
        })
    }

    /// Like [`run`](Self::run), within one span. When in doubt, bytes count as written.
    fn run_of(&self, shape: &Shape, span: &Span) -> (u32, bool) {
        let len = span.column.len() as u32;
        if !self.cache.lock().snapshot(span).is_empty() {
            return (len, false);
        }
        let map = shape.map(span.row);
        let shards = if map.mirrors() { 0..map.shards() } else { span.data..span.data + 1 };
        let there =
            shards.filter_map(|shard| Some((map.place(shard).start, self.holder(&map, shard)?)));
        let Some((start, member)) = there.into_iter().next() else { return (len, false) };
        let (from, to) = (u64::from(span.column.start), u64::from(span.column.end));
        let first = (start + from) / BLOCK_BYTES;
        let Ok(sums) = member.sums(first..(start + to).div_ceil(BLOCK_BYTES)) else {
            return (len, false);
        };
        let is_hole = !sums[0].is_written();
        let alike = sums.iter().take_while(|sum| sum.is_written() != is_hole).count() as u64;
        let end = (first + alike) * BLOCK_BYTES - start;
        ((end.min(to) - from) as u32, is_hole)
    }

    fn read_span(&self, shape: &Shape, span: &Span, buf: &mut [u8]) -> Result<()> {
        // The cache first: a row that leaves it between the two looks is on the members by then.
        let mut newest = self.cache.lock().snapshot(span);
        if newest.slice(&span.column).is_none() && !self.read_as_it_lies(shape, span, buf) {
            // A block that is being written looks like a bad one, and a row with some blocks
            // written rebuilds nothing right: only a row that holds still can be trusted, or called
            // damaged.
            let _hold = self.hold(span.row);
            newest = self.cache.lock().snapshot(span);
            self.read_row(shape, span, buf)?;
        }
        newest.read(span.column.start, buf);
        Ok(())
    }

    /// The shard to read a span from.
    fn source(&self, map: &RowMap, span: &Span) -> usize {
        if !map.mirrors() {
            return span.data;
        }
        // Copies take turns by row, and the turn shifts after each group of as many rows as there
        // are members, since the next rows use the same members again. Where copies may differ, the
        // first one is read: a resync makes the others equal to it.
        let turn = (span.row + span.row / self.geometry().members() as u64) as usize;
        let first = if self.is_unsure(map) { 0 } else { turn };
        let copies = (0..map.shards()).map(|n| (first + n) % map.shards());
        copies.into_iter().find(|copy| self.holder(map, *copy).is_some()).unwrap_or(0)
    }

    /// Reads a span from the member that has it; returns false if the member is absent, or a block
    /// fails its checksum.
    fn read_as_it_lies(&self, shape: &Shape, span: &Span, buf: &mut [u8]) -> bool {
        let map = shape.map(span.row);
        let shard = self.source(&map, span);
        let Some(member) = self.holder(&map, shard) else { return false };
        let start = map.place(shard).start;
        let column = blocks_of(&span.column);
        let offset = start + u64::from(column.start);
        if column == span.column {
            return member.read_checked(offset, buf).is_ok_and(|bad| bad.is_empty());
        }
        let mut bytes = vec![0; column.len()];
        let is_good = member.read_checked(offset, &mut bytes).is_ok_and(|bad| bad.is_empty());
        let from = (span.column.start - column.start) as usize;
        buf.copy_from_slice(&bytes[from..from + buf.len()]);
        is_good
    }

    /// Reads a span from the intact shards of its row.
    fn read_row(&self, shape: &Shape, span: &Span, buf: &mut [u8]) -> Result<()> {
        let column = blocks_of(&span.column);
        let map = shape.map(span.row);
        let shard = self.source(&map, span);
        let mut bytes = self.settled(&map, shard, &column)?;
        self.settle_doubts(map, shard, &column, &mut bytes);
        let from = (span.column.start - column.start) as usize;
        buf.copy_from_slice(&bytes[from..from + buf.len()]);
        Ok(())
    }

    /// Replaces doubtful blocks by the content that a resync would write.
    fn settle_doubts(&self, map: RowMap, shard: usize, column: &Range<u32>, bytes: &mut [u8]) {
        let start = map.place(shard).start;
        let range = start + u64::from(column.start)..start + u64::from(column.end);
        if !self.is_doubtful(&map, shard, &range) {
            return;
        }
        let row = self.find(map);
        for (number, part) in bytes.chunks_mut(BLOCK).enumerate() {
            let block = column.start as usize / BLOCK + number;
            if let Some((found, right)) = self.by_checksum(&row, block)
                && found == shard
            {
                part.copy_from_slice(&right[..part.len()]);
            }
        }
    }

    /// Fails if a rebuild would use parity that may be stale, unless the array was assembled by
    /// force. If the shard's own member is present, its checksum tells whether the rebuilt content
    /// is right.
    fn check_sure(&self, map: &RowMap, shard: usize, plan: &RowPlan) -> Result<()> {
        let is_rebuilt = plan.pieces.iter().any(|piece| piece.method == Method::Rebuild);
        if !is_rebuilt
            || map.mirrors()
            || !self.is_unsure(map)
            || self.holder(map, shard).is_some()
            || self.live.lock().trusts_stale_parity
        {
            return Ok(());
        }
        let what = format!(
            "row {} of the array (a stripe) cannot be rebuilt, because its parity may be stale",
            map.index()
        );
        Err(Error::new(Kind::TooManyLosses, what).advice("wait until the resync is done"))
    }

    /// A data shard's bytes on the members, without the cache.
    fn settled(&self, map: &RowMap, shard: usize, column: &Range<u32>) -> Result<Vec<u8>> {
        self.recover_if(map, shard, column, &[], |plan| self.check_sure(map, shard, plan))
    }
}

/// The whole blocks that cover a column.
fn blocks_of(column: &Range<u32>) -> Range<u32> {
    let block = BLOCK_BYTES as u32;
    column.start / block * block..column.end.next_multiple_of(block)
}
