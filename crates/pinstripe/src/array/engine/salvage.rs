//! Writing to rows of which more is lost than their parity replaces: an array does not end for that.
//!
//! Such a row is written block by block. Where a block's column can be planned, as ever. Where it cannot, what
//! is new goes to its member by itself, and parity there is called lost: it stood for what is lost already. What
//! is new of a block whose rest is lost, or whose member is absent, is stored nowhere; the next sync says so,
//! once.
//!
//! Invariant: no record of the log speaks of what is written by itself. A power cut meanwhile may cost the block.

use std::ops::Range;
use std::sync::Arc;

use super::Array;
use super::flush::Flusher;
use crate::array::cache::Dirty;
use crate::array::geometry::RowMap;
use crate::array::plan::Rules;
use crate::error::{Error, Kind, Result};
use crate::format::array::BLOCK_BYTES;
use crate::format::array::sums::Sum;

const BLOCK: u32 = BLOCK_BYTES as u32;

/// A window of a row that could not be planned.
pub(super) struct Hopeless {
    pub row: u64,
    pub dirty: Arc<Dirty>,
    pub window: Range<u32>,
}

impl Flusher {
    /// Keeps a window for later if it cannot be planned for what is lost of it alone.
    ///
    /// # Errors
    /// What was wrong, when the array itself has lost too much, or it was something else.
    pub(super) fn put_aside(&mut self, error: Error, hopeless: Hopeless) -> Result<()> {
        let array = &self.array;
        if error.kind() != Kind::TooManyLosses || !array.survives(array.absent()) {
            return Err(error);
        }
        self.hopeless.push(hopeless);
        Ok(())
    }

    /// Writes what was put aside.
    pub(super) fn salvage(&mut self) -> Result<()> {
        while let Some(Hopeless { row, dirty, window }) = self.hopeless.pop() {
            if window.len() as u32 <= BLOCK {
                self.checkpoint()?;
                self.write_alone(row, &dirty, &window)?;
                self.checkpoint()?;
                continue;
            }
            // Blocks of one row must not be widened into each other.
            let rules = self.rules;
            self.rules = Rules { granule: None, ..rules };
            let done = self.put_blocks(row, &dirty, window);
            self.rules = rules;
            done?;
        }
        Ok(())
    }

    fn put_blocks(&mut self, row: u64, dirty: &Arc<Dirty>, window: Range<u32>) -> Result<()> {
        for start in window.step_by(BLOCK as usize) {
            let window = start..start + BLOCK;
            match self.job(row, dirty, window.clone()) {
                Ok(Some(job)) => self.batch.push(job, self.array.geometry().members()),
                Ok(None) => {}
                Err(error) => {
                    let hopeless = Hopeless { row, dirty: Arc::clone(dirty), window };
                    self.put_aside(error, hopeless)?;
                }
            }
            // A record holds one at any rate.
            self.carry_out()?;
        }
        Ok(())
    }

    /// Writes what is new of one block of each data chunk.
    fn write_alone(&mut self, row: u64, dirty: &Dirty, column: &Range<u32>) -> Result<()> {
        let array = Arc::clone(&self.array);
        let map = array.shape().map(row);
        let mut news = Vec::new();
        for data in 0..map.data() {
            if dirty.shard(data).within(column).is_empty() {
                continue;
            }
            match array.merged(&map, data, dirty, column) {
                Some(bytes) => news.push((data, bytes)),
                None => self.unstored += 1,
            }
        }
        if news.is_empty() {
            return Ok(());
        }
        for shard in map.parity_shards().iter() {
            array.store(&map, shard, column, None)?;
        }
        for (data, bytes) in news {
            let shards = if map.mirrors() { 0..map.shards() } else { data..data + 1 };
            let mut stored = 0;
            for shard in shards {
                stored += u64::from(array.store(&map, shard, column, Some(&bytes))?);
            }
            self.unstored += u64::from(stored == 0);
        }
        Ok(())
    }

    /// Says, once, that something was not stored.
    pub(super) fn tell_unstored(&mut self) -> Result<()> {
        match std::mem::take(&mut self.unstored) {
            0 => Ok(()),
            blocks => {
                let what = format!("{blocks} blocks were written that could not be stored");
                Err(Error::new(Kind::Corrupt, what).advice(
                    "their rest is lost: write them whole, 4 KiB at a time, or restore them",
                ))
            }
        }
    }
}

impl Array {
    /// A block of a data chunk with what is new; `None` if the rest of it is lost.
    fn merged(
        &self,
        map: &RowMap,
        data: usize,
        dirty: &Dirty,
        column: &Range<u32>,
    ) -> Option<Vec<u8>> {
        if let Some(bytes) = dirty.shard(data).slice(column) {
            return Some(bytes.to_vec());
        }
        let mut bytes = self.recover(map, data, column, &[]).ok()?;
        dirty.shard(data).read(column.start, &mut bytes);
        Some(bytes)
    }

    /// Writes a block to the member that has a shard, or says there that it is lost. Returns whether it is there.
    fn store(
        &self,
        map: &RowMap,
        shard: usize,
        column: &Range<u32>,
        bytes: Option<&[u8]>,
    ) -> Result<bool> {
        let Some(member) = self.holder(map, shard) else { return Ok(false) };
        let start = map.place(shard).start + u64::from(column.start);
        let written = bytes.map_or(Ok(()), |bytes| member.write(start, bytes));
        let sum = bytes.map_or(Sum::LOST, Sum::of);
        if written.and_then(|()| member.set_sums(start / BLOCK_BYTES, &[sum])).is_err() {
            return self.fail(map.member(shard)).map(|()| false);
        }
        Ok(true)
    }
}
