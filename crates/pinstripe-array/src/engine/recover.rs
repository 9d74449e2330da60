//! The content of a shard, computed from the rest of its row.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Array;
use crate::compute::old;
use crate::format::BLOCK_BYTES;
use crate::format::sums::Sum;
use crate::geometry::RowMap;
use crate::member::ArrayMember;
use crate::plan::{Class, Mark, Method, Planner, RowPlan};
use pinstripe_base::error::{Error, Kind, Result};

impl Array {
    /// Whether `says` is true for any member of a row, given the range of its shard.
    pub(super) fn any_holder(
        &self,
        map: &RowMap,
        says: impl Fn(&ArrayMember, &Range<u64>) -> bool,
    ) -> bool {
        (0..map.shards()).any(|shard| {
            let start = map.place(shard).start;
            let range = start..start + u64::from(map.len());
            self.holder(map, shard).is_some_and(|member| says(&member, &range))
        })
    }

    /// A column of a shard, from its member or from the rest of its row, and the numbers of the
    /// lost blocks.
    pub(super) fn recover_column(
        &self,
        map: &RowMap,
        shard: usize,
        column: &Range<u32>,
    ) -> (Vec<u8>, BTreeSet<usize>) {
        // All at once first; block by block only where some of it is lost.
        if let Ok(bytes) = self.recover(map, shard, column, &[]) {
            return (bytes, BTreeSet::new());
        }
        let (mut bytes, mut lost) = (Vec::new(), BTreeSet::new());
        for (number, start) in column.clone().step_by(BLOCK_BYTES as usize).enumerate() {
            let column = start..(start + BLOCK_BYTES as u32).min(column.end);
            match self.recover(map, shard, &column, &[]) {
                Ok(block) => bytes.extend_from_slice(&block),
                Err(_) => {
                    lost.insert(number);
                    bytes.resize(bytes.len() + column.len(), 0);
                }
            }
        }
        (bytes, lost)
    }

    /// A shard's bytes, from its member or the rest of its row. `known` has the marks of blocks
    /// that the caller already knows to be bad or doubtful.
    ///
    /// # Errors
    /// Fails with [`Kind::TooManyLosses`] where the bytes are lost.
    pub(super) fn recover(
        &self,
        map: &RowMap,
        shard: usize,
        column: &Range<u32>,
        known: &[Mark],
    ) -> Result<Vec<u8>> {
        self.recover_if(map, shard, column, known, |_| Ok(()))
    }

    /// Fails if rebuilt content does not match the member's checksum: the parity then belongs to
    /// other content.
    fn check_rebuilt(
        &self,
        map: &RowMap,
        shard: usize,
        plan: &RowPlan,
        (column, bytes): (&Range<u32>, &[u8]),
    ) -> Result<()> {
        let Some(member) = self.holder(map, shard) else { return Ok(()) };
        let start = map.place(shard).start;
        for piece in plan.pieces.iter().filter(|it| it.method == Method::Rebuild) {
            let from = start + u64::from(piece.column.start);
            let end = start + u64::from(piece.column.end);
            let numbers = from / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
            let count = (numbers.end - numbers.start) as usize;
            // If the table cannot be read, its blocks count as lost.
            let sums = member.sums(numbers).unwrap_or_else(|_| vec![Sum::LOST; count]);
            let at = (piece.column.start - column.start) as usize;
            let blocks = bytes[at..at + piece.column.len()].chunks(BLOCK_BYTES as usize);
            let is_unknown = self.is_unsure(map) && !self.live.lock().trusts_stale_parity;
            let is_wrong = |(sum, block): (&Sum, &[u8])| match *sum {
                Sum::LOST => is_unknown,
                sum => sum.is_written() && !sum.suits(block),
            };
            if sums.iter().zip(blocks).any(is_wrong) {
                let what = format!(
                    "row {} of the array (a stripe) cannot be rebuilt, because its parity is stale",
                    map.index()
                );
                return Err(Error::new(Kind::TooManyLosses, what)
                    .advice("restore the file to which the lost block belongs from a backup"));
            }
        }
        Ok(())
    }

    /// Like [`recover`](Self::recover), unless `check` refuses a plan.
    ///
    /// # Errors
    /// Fails with the errors of [`recover`](Self::recover); with the errors of `check`.
    pub(super) fn recover_if(
        &self,
        map: &RowMap,
        shard: usize,
        column: &Range<u32>,
        known: &[Mark],
        check: impl Fn(&RowPlan) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let mut marks = vec![Mark { shard, class: Class::Wanted, column: column.clone() }];
        marks.extend_from_slice(known);
        self.mark_unwritten(map, column, &mut Vec::new(), &mut marks);
        let mut plan = RowPlan::default();
        // Each round marks at least one more block as bad, so this ends.
        loop {
            Planner::default().plan_read(map, self.absent_at(map), &marks, &mut plan)?;
            check(&plan)?;
            let (reads, bad) = self.fetch_all(&plan);
            if !bad.is_empty() {
                marks.extend(bad);
                continue;
            }
            let mut out = vec![0; column.len()];
            for piece in &plan.pieces {
                let old = old(map, &plan, &reads, piece)?;
                let bytes = old[shard].as_ref().expect("the plan had what is wanted");
                let at = (piece.column.start - column.start) as usize;
                out[at..at + bytes.len()].copy_from_slice(bytes);
            }
            self.check_rebuilt(map, shard, &plan, (column, &out))?;
            return Ok(out);
        }
    }
}
