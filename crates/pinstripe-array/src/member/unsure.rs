//! Regions that are being written without a log, and regions whose writes a power cut interrupted.
//!
//! Invariants: under the bitmap policy, a region is marked durably before anything in it is written
//! in place, and the mark is removed when everything written there is durable, checksums included.
//! In a region that is marked when the array is assembled, the table may be older than the data: a
//! block that does not match its checksum is doubtful, until its row is resynced. Until its row is
//! resynced, a doubtful block keeps that checksum, because after another power cut it must be found
//! again.

use std::ops::Range;

use super::ArrayMember;
use super::tables::Tables;
use crate::format::BLOCK_BYTES;
use crate::format::regions::Region;
use crate::format::sums::{PAGE_BLOCKS, Sum};
use crate::sums::Sums;
use pinstripe_base::error::Result;

impl ArrayMember {
    /// Marks the regions of ranges of data as being written; durable when this returns.
    ///
    /// # Errors
    /// Fails with the errors of the device.
    pub(crate) fn mark_dirty(&self, ranges: &[Range<u64>]) -> Result<()> {
        self.replacement().with(|replacement| replacement.mark_dirty(ranges));
        let is_new = {
            let mut tables = self.lock();
            let pages = ranges.iter().flat_map(|range| {
                range.start / BLOCK_BYTES / PAGE_BLOCKS
                    ..=(range.end - 1) / BLOCK_BYTES / PAGE_BLOCKS
            });
            pages.filter(|page| tables.mark(*page)).count() > 0
        };
        if !is_new {
            return Ok(());
        }
        // A page that the map refers to has to be on the member before the map.
        self.device.sync()?;
        self.write_tables()
    }

    /// The number of regions that are marked as being written.
    pub(crate) fn dirty_regions(&self) -> usize {
        self.lock().regions.iter().filter(|region| region.is_dirty()).count()
    }

    /// Removes the marks of regions that are durable. On the member, the marks are removed with the
    /// next write of the tables.
    pub(crate) fn unmark(&self) {
        self.replacement().with(|replacement| {
            replacement.unmark();
            Ok(())
        });
        let mut tables = self.lock();
        for page in 0..tables.regions.len() as u64 {
            if !tables.unsure.contains(&page) {
                let clean = tables.regions[page as usize].clean();
                tables.set(page, clean);
            }
        }
    }

    /// Declares checksums and parity unsure in all marked regions, or with `all` in all regions
    /// that were ever written. Returns whether any region is unsure.
    pub(crate) fn mark_unsure(&self, all: bool) -> bool {
        let mut tables = self.lock();
        let is_unsure = |region: &Region| region.is_dirty() || all && region.is_written();
        let regions = tables.regions.iter().enumerate();
        let unsure = regions.filter(|(_, region)| is_unsure(region)).map(|(page, _)| page as u64);
        tables.unsure = unsure.collect();
        tables.unread = tables.unsure.clone();
        !tables.unsure.is_empty()
    }

    /// For a member that is away, notes all regions in which writes were interrupted: their tables
    /// may be as they were before these writes.
    pub(crate) fn note_unsure(&self) {
        let mut tables = self.lock();
        for page in tables.unsure.clone() {
            tables.note(page);
        }
    }

    /// The offset of the first byte of data in an unsure region.
    pub(crate) fn first_unsure(&self) -> Option<u64> {
        self.lock().unsure.first().map(|page| page * PAGE_BLOCKS * BLOCK_BYTES)
    }

    /// Declares that parity matches the data everywhere.
    pub(crate) fn clear_unsure(&self) {
        let mut tables = self.lock();
        tables.unsure.clear();
        tables.doubtful.clear();
    }

    /// Whether a block within a range of data may be older or newer than its checksum says. Whether
    /// a block is doubtful is known only after the block was read.
    pub fn is_doubtful(&self, range: &Range<u64>) -> bool {
        self.lock().doubts(range).next().is_some()
    }

    /// Accepts the content of doubtful blocks within a range as right.
    ///
    /// # Errors
    /// Fails with the errors of the device.
    pub fn settle(&self, range: &Range<u64>) -> Result<()> {
        let doubtful: Vec<u64> = self.lock().doubts(range).collect();
        for block in doubtful {
            let mut bytes = [0; BLOCK_BYTES as usize];
            self.read(block * BLOCK_BYTES, &mut bytes)?;
            self.set_sums(block, &[Sum::from_block(&bytes)])?;
        }
        Ok(())
    }

    /// Whether the parity of a range of data may differ from the data.
    pub(crate) fn is_unsure(&self, range: &Range<u64>) -> bool {
        let page = |offset: u64| offset / BLOCK_BYTES / PAGE_BLOCKS;
        let pages = page(range.start)..=page(range.end.saturating_sub(1).max(range.start));
        self.lock().unsure.range(pages).next().is_some()
    }

    /// The blocks of a page that do not match their checksums.
    pub(super) fn compare_with_content(&self, page: u64, sums: &Sums) -> Vec<u64> {
        let mut doubtful = Vec::new();
        for (block, sum) in (page * PAGE_BLOCKS..).zip(sums) {
            let mut bytes = [0; BLOCK_BYTES as usize];
            if sum.is_written()
                && *sum != Sum::LOST
                && self.read(block * BLOCK_BYTES, &mut bytes).is_ok()
                && !sum.suits(&bytes)
            {
                doubtful.push(block);
            }
        }
        doubtful
    }
}

impl Tables {
    /// The doubtful blocks within a range of data.
    fn doubts(&self, range: &Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        self.doubtful.range(blocks).copied()
    }

    /// Marks a region. Returns whether the page was not marked before.
    fn mark(&mut self, page: u64) -> bool {
        self.begin(page);
        let region = self.regions[page as usize];
        self.set(page, region.dirty());
        !region.is_dirty()
    }
}
