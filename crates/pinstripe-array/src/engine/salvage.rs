//! How data is written to rows with more losses than parity replaces: the array continues, also for
//! these rows.
//!
//! A row with too many losses is written block by block. A block whose column can be planned is
//! written as usual. Where the column cannot be planned, the new block is written to its member
//! alone, and the parity of the column is marked lost: it covers content that is lost already. A
//! partly written block whose old bytes are lost, or a block whose member is absent, is not stored;
//! the next sync reports that, once.
//!
//! Invariant: no log record names a block that is written alone. A power cut while a block is
//! written alone may cost that block.

mod writer;

use std::ops::Range;
use std::sync::Arc;

use super::Array;
use crate::cache::Dirty;
use crate::format::BLOCK_BYTES;
use crate::format::sums::Sum;
use crate::geometry::RowMap;
use pinstripe_base::error::{Error, Kind, Result};

const BLOCK: u32 = BLOCK_BYTES as u32;

/// A window of a row that could not be planned.
pub(super) struct UnplannableWindow {
    pub row: u64,
    pub dirty: Arc<Dirty>,
    pub window: Range<u32>,
}

/// Windows that wait to be written block by block, and the number of blocks that could not be
/// stored.
#[derive(Default)]
pub(super) struct Salvage {
    windows: Vec<UnplannableWindow>,
    /// The number of blocks whose new content could not be stored; the next sync reports them and
    /// resets this.
    unstored: u64,
}

impl Salvage {
    /// Forgets the windows. A window that waited until its row is written again would put old bytes
    /// over new ones.
    pub fn clear(&mut self) {
        self.windows.clear();
    }

    /// Keeps a window for later if planning it failed only because of losses in its own row.
    ///
    /// # Errors
    /// Returns the given error if the array itself has lost too much, or if the error is of another
    /// kind.
    pub(crate) fn put_aside(
        &mut self,
        array: &Array,
        error: Error,
        window: UnplannableWindow,
    ) -> Result<()> {
        if error.kind() != Kind::TooManyLosses || !array.survives(array.absent()) {
            return Err(error);
        }
        self.windows.push(window);
        Ok(())
    }

    /// Writes the new content of one block of each data chunk, without parity.
    fn write_alone(
        &mut self,
        array: &Array,
        row: u64,
        dirty: &Dirty,
        column: &Range<u32>,
    ) -> Result<()> {
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
        // Parity first: with new data in place, it must not rebuild the lost shards any more.
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

    /// Reports, once, that some blocks could not be stored.
    pub(crate) fn report_unstored(&mut self) -> Result<()> {
        match std::mem::take(&mut self.unstored) {
            0 => Ok(()),
            blocks => {
                let blocks =
                    pinstripe_base::units::counted(blocks, "written block", "written blocks");
                let what = format!("{blocks} could not be stored");
                Err(Error::new(Kind::Corrupt, what).advice(
                    "the part of each such block that was not written is lost: write complete \
                     blocks of 4 KiB, or restore the blocks from a backup",
                ))
            }
        }
    }
}

impl Array {
    /// A block of a data chunk: the new bytes over the old ones; `None` if the old bytes are lost.
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

    /// Writes a block to the member of a shard, or marks it lost there. Returns whether a member
    /// stored the block.
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
        let sum = bytes.map_or(Sum::LOST, Sum::from_block);
        if written.and_then(|()| member.set_sums(start / BLOCK_BYTES, &[sum])).is_err() {
            return self.fail(map.member(shard)).map(|()| false);
        }
        Ok(true)
    }
}
