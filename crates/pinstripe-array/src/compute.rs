//! Carrying a plan out on bytes: new data and parity, payloads of the log, and new checksums.
//!
//! ```text
//! old bytes (read, zeros, rebuilt) --+
//!                                    +--> new data --> parity --> written, with its checksums
//! runs that were written ------------+        \--> the part of parity that stays: logged
//! ```
//!
//! Invariants: bytes that one run holds in one piece go to the member from there; all others are
//! made once, in the buffer that they are written from. Nothing as large as a block is allocated
//! for a row, except to rebuild.
//!
//! Not in this module: reading, writing, and the decision whether old bytes are intact.

mod old;

use std::ops::Range;

use pinstripe_kernel::parity::{encode, update};

use self::old::all_old;
pub use self::old::{old, rebuilt};

use super::cache::Dirty;
use super::geometry::RowMap;
use super::plan::{Method, PlanPiece, RowPlan, Transfer};
use super::set::ShardSet;
use crate::format::BLOCK_BYTES;
use crate::format::sums::Sum;
use pinstripe_base::error::Result;

/// Bytes that are computed for the rows of a batch, in reused memory.
#[derive(Debug, Default)]
pub(crate) struct ComputedBytes {
    data: ScratchBuffer,
    parity: ScratchBuffer,
}

const PAGE: usize = 4096;

/// Memory that is only partly in use. The content of this memory is undefined at first, and after
/// each later [`reserve`](Buffer::reserve).
#[derive(Debug, Default)]
struct ScratchBuffer {
    bytes: Vec<u8>,
    used: usize,
}

impl ScratchBuffer {
    fn reserve(&mut self, bytes: usize) -> usize {
        let at = self.used;
        self.used += bytes;
        if self.bytes.len() < self.used + PAGE {
            self.bytes.resize(self.used + PAGE, 0);
        }
        at
    }

    /// Bytes before the first page: aligned blocks are written to a disk without a copy.
    fn pad(&self) -> usize {
        (self.bytes.as_ptr() as usize).wrapping_neg() % PAGE
    }

    fn all(&self) -> &[u8] {
        let pad = self.pad();
        self.bytes.get(pad..).unwrap_or_default()
    }

    fn all_mut(&mut self) -> &mut [u8] {
        let pad = self.pad();
        self.bytes.get_mut(pad..).unwrap_or_default()
    }
}

/// A row with its plan, the bytes read for it, and its new bytes.
#[derive(Clone, Copy)]
pub struct Operation<'a> {
    /// The placement of the row's shards.
    pub row: &'a RowMap,
    /// The plan to carry out.
    pub plan: &'a RowPlan,
    /// The new bytes.
    pub dirty: &'a Dirty,
    /// The bytes read for the batch.
    pub read: &'a [u8],
    /// For each transfer of the plan's reads, the offset of its bytes in `read`.
    pub reads_at: &'a [usize],
    /// By transfer of the plan's writes, the offset of its computed bytes; `None` if one cached run
    /// has all bytes of the transfer.
    pub makes_at: &'a [Option<usize>],
}

impl ComputedBytes {
    /// Forgets all computed bytes.
    pub fn clear(&mut self) {
        (self.data.used, self.parity.used) = (0, 0);
    }

    /// Reserves a place for each transfer of a plan's writes whose bytes no single cached run
    /// holds.
    pub fn reserve(
        &mut self,
        row: &RowMap,
        plan: &RowPlan,
        dirty: &Dirty,
        makes_at: &mut Vec<Option<usize>>,
    ) {
        makes_at.extend(plan.writes.iter().map(|it| {
            if row.parity_shards().has(it.shard) {
                return Some(self.parity.reserve(it.column.len()));
            }
            let run = dirty.shard(content(row, it.shard)).slice(&it.column);
            run.is_none().then(|| self.data.reserve(it.column.len()))
        }));
    }

    /// The bytes that a transfer of the plan's writes puts on its member.
    pub fn bytes<'a>(&'a self, number: usize, operation: &Operation<'a>) -> &'a [u8] {
        let it = &operation.plan.writes[number];
        match operation.makes_at[number] {
            Some(at) if operation.row.parity_shards().has(it.shard) => {
                &self.parity.all()[at..at + it.column.len()]
            }
            Some(at) => &self.data.all()[at..at + it.column.len()],
            None => {
                let run = operation.run(content(operation.row, it.shard), &it.column);
                run.expect("bytes that were not computed are in one run")
            }
        }
    }

    /// The checksums of a piece's written shards, lowest shard first; each shard has one for every
    /// block.
    pub fn sums(&self, piece: &PlanPiece, operation: &Operation<'_>) -> Vec<Sum> {
        let blocks = piece.column.len() / BLOCK_BYTES as usize;
        let mut sums = Vec::with_capacity(piece.writes.len() * blocks);
        for shard in piece.writes.iter() {
            let number = transfer(&operation.plan.writes, shard, &piece.column);
            let column = &operation.plan.writes[number].column;
            let bytes = &self.bytes(number, operation)[within(&piece.column, column)];
            sums.extend(bytes.chunks(BLOCK_BYTES as usize).map(Sum::from_block));
        }
        sums
    }
}

/// The old bytes of a piece, as they were read or rebuilt; `None` stands for zeros.
struct Old<'a> {
    operation: Operation<'a>,
    piece: &'a PlanPiece,
    rebuilt: Vec<(usize, Vec<u8>)>,
}

impl Old<'_> {
    fn shard(&self, shard: usize) -> Option<&[u8]> {
        if self.piece.reads.has(shard) {
            return Some(self.operation.read_of(shard, &self.piece.column));
        }
        let rebuilt = self.rebuilt.iter().find(|(it, _)| *it == shard);
        rebuilt.map(|(_, bytes)| &bytes[..])
    }
}

impl<'a> Operation<'a> {
    /// Computes all pieces. `log` receives the payloads of each member, piece by piece.
    ///
    /// # Errors
    /// Fails with [`Kind::TooManyLosses`] if the plan rebuilds what cannot be rebuilt, which no
    /// planner asks for.
    pub(crate) fn run_plan(
        &self,
        made: &mut ComputedBytes,
        log: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<()> {
        self.plan.pieces.iter().try_for_each(|piece| self.run_piece(piece, made, log))
    }

    /// The bytes of a column, if one cached run holds all of them.
    fn run(&self, data: usize, column: &Range<u32>) -> Option<&'a [u8]> {
        self.dirty.shard(data).slice(column)
    }

    fn read_of(&self, shard: usize, column: &Range<u32>) -> &'a [u8] {
        let number = transfer(&self.plan.reads, shard, column);
        let within = within(column, &self.plan.reads[number].column);
        let at = self.reads_at[number];
        &self.read[at + within.start..at + within.end]
    }

    fn old(&self, piece: &'a PlanPiece) -> Result<Old<'a>> {
        let mut rebuilt = Vec::new();
        if !piece.rebuild.is_empty() {
            let read = |shard: usize| self.read_of(shard, &piece.column).to_vec();
            let all = all_old(self.row, piece, read)?;
            let all = all.into_iter().enumerate().filter(|(shard, _)| piece.rebuild.has(*shard));
            rebuilt.extend(all.filter_map(|(shard, bytes)| Some((shard, bytes?))));
        }
        Ok(Old { operation: *self, piece, rebuilt })
    }

    fn run_piece(
        &self,
        piece: &PlanPiece,
        made: &mut ComputedBytes,
        log: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<()> {
        let column = &piece.column;
        let old = self.old(piece)?;
        for shard in piece.writes.minus(self.row.parity_shards()).iter() {
            let number = transfer(&self.plan.writes, shard, column);
            if let Some(at) = self.makes_at[number] {
                let within = within(column, &self.plan.writes[number].column);
                let to = &mut made.data.all_mut()[at + within.start..at + within.end];
                self.merge(content(self.row, shard), &old, to);
            }
        }
        let parity = piece.writes.and(self.row.parity_shards());
        if piece.log.own {
            for shard in piece.writes.minus(parity).iter() {
                let number = transfer(&self.plan.writes, shard, column);
                let within = within(column, &self.plan.writes[number].column);
                log(self.row.member(shard), &made.bytes(number, self)[within]);
            }
        }
        if parity.is_empty() {
            return Ok(());
        }
        // New bytes of absent members are not written, but parity has to include them.
        let changed = piece.dirty.or(piece.fill);
        let is_elsewhere =
            |data: &usize| !piece.writes.has(*data) && self.run(*data, column).is_none();
        let away = changed.iter().filter(is_elsewhere).map(|data| {
            let mut bytes = vec![0; column.len()];
            self.merge(data, &old, &mut bytes);
            (data, bytes)
        });
        let away: Vec<(usize, Vec<u8>)> = away.collect();
        let ComputedBytes { data: new, parity: out } = made;
        let new_of = |data: usize| -> &[u8] {
            if let Some(bytes) = self.run(data, column) {
                return bytes;
            }
            if let Some((_, bytes)) = away.iter().find(|(it, _)| *it == data) {
                return bytes;
            }
            let (at, len) = self.made_at(data, column);
            &new.all()[at..at + len]
        };
        let sources: Vec<(usize, &[u8])> =
            changed.iter().map(|data| (data, new_of(data))).collect();
        let mut rows = self.rows(parity, column, out.all_mut());
        self.parity(piece, &old, &sources, &mut rows, log);
        for data in piece.log.data.iter() {
            for shard in parity.iter() {
                log(self.row.member(shard), new_of(data));
            }
        }
        Ok(())
    }

    /// Computes the parity to write, and logs the part of the parity that comes from unchanged
    /// data.
    fn parity(
        &self,
        piece: &PlanPiece,
        old: &Old<'_>,
        new: &[(usize, &[u8])],
        rows: &mut Vec<(usize, &mut [u8])>,
        log: &mut dyn FnMut(usize, &[u8]),
    ) {
        let data = self.row.data();
        let is_plain = rows.len() == self.row.parity()
            && (0..data).all(|shard| self.row.coefficient(shard) == shard);
        if piece.method == Method::Full && is_plain {
            let shards: Vec<&[u8]> = new.iter().map(|(_, bytes)| *bytes).collect();
            let mut out: Vec<&mut [u8]> = rows.iter_mut().map(|(_, row)| &mut **row).collect();
            return encode(&shards, &mut out);
        }
        let changed = piece.dirty.or(piece.fill);
        let difference = piece.method == Method::ReadModifyWrite;
        for (n, row) in rows.iter_mut() {
            match old.shard(data + *n).filter(|_| difference) {
                Some(bytes) => row.copy_from_slice(bytes),
                None => row.fill(0),
            }
        }
        let unchanged = (0..data).filter(|shard| difference == changed.has(*shard));
        let coefficient = |shard: usize| self.row.coefficient(shard);
        if piece.method != Method::Full {
            let sources: Vec<_> = unchanged
                .filter_map(|shard| Some((coefficient(shard), old.shard(shard)?)))
                .collect();
            update(&sources, rows);
        }
        for (n, row) in rows.iter() {
            if [piece.log.p, piece.log.q][*n] {
                log(self.row.member(data + n), row);
            }
        }
        let sources: Vec<_> = new.iter().map(|(shard, it)| (coefficient(*shard), *it)).collect();
        update(&sources, rows);
    }

    /// The buffers for the parity of a piece: P's is number 0, Q's 1.
    fn rows<'m>(
        &self,
        parity: ShardSet,
        column: &Range<u32>,
        mut out: &'m mut [u8],
    ) -> Vec<(usize, &'m mut [u8])> {
        let mut rows = Vec::with_capacity(parity.len());
        let mut passed = 0;
        // Places were set aside in the order of shards.
        for shard in parity.iter() {
            let (at, len) = self.made_at(shard, column);
            let (row, rest) = out[at - passed..].split_at_mut(len);
            rows.push((shard - self.row.data(), row));
            (out, passed) = (rest, at + len);
        }
        rows
    }

    /// The place and length of a shard's new bytes of a column in the buffer.
    fn made_at(&self, shard: usize, column: &Range<u32>) -> (usize, usize) {
        let number = transfer(&self.plan.writes, shard, column);
        let within = within(column, &self.plan.writes[number].column);
        let at = self.makes_at[number].expect("what is in no run is made");
        (at + within.start, within.len())
    }

    /// The new bytes of a shard: written ones over old ones.
    fn merge(&self, data: usize, old: &Old<'_>, to: &mut [u8]) {
        if let Some(bytes) = self.run(data, &old.piece.column) {
            return to.copy_from_slice(bytes);
        }
        // Any copy of a mirror will do.
        let before = match self.row.mirrors() {
            true => (0..self.row.shards()).find_map(|copy| old.shard(copy)),
            false => old.shard(data),
        };
        match before {
            Some(bytes) => to.copy_from_slice(bytes),
            None => to.fill(0),
        }
        self.dirty.shard(data).read(old.piece.column.start, to);
    }
}

/// The shard whose content this shard has: all copies of a mirror have the content of one shard.
fn content(row: &RowMap, shard: usize) -> usize {
    if row.mirrors() { 0 } else { shard }
}

/// The transfer that moves a shard's bytes in a column.
fn transfer(transfers: &[Transfer], shard: usize, column: &Range<u32>) -> usize {
    let has = |it: &Transfer| it.shard == shard && it.column.contains(&column.start);
    transfers.iter().position(has).expect("the plan moves what its pieces name")
}

/// The range of a column within another one.
fn within(column: &Range<u32>, of: &Range<u32>) -> Range<usize> {
    (column.start - of.start) as usize..(column.end - of.start) as usize
}

#[cfg(test)]
mod tests;
