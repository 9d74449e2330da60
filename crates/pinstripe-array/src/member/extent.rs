//! How much of its device a member can use for data.

use super::ArrayMember;
use crate::format::BLOCK_BYTES;
use crate::format::regions::{Region, SECTOR_REGIONS};
use crate::format::sector::SECTOR_BYTES;
use crate::format::sums::{PAGE_BLOCKS, PAGE_BYTES, pages};
use pinstripe_base::error::Result;

impl ArrayMember {
    /// The number of bytes of data that the member's device has room for and its tables can
    /// describe.
    ///
    /// # Errors
    /// Fails with the errors of the device.
    pub fn room(&self) -> Result<u64> {
        let areas = &self.areas;
        let sums = (areas.data_at - areas.sums_at) / PAGE_BYTES as u64;
        let sectors = (areas.bad_blocks_at - areas.regions_at) / SECTOR_BYTES as u64;
        let described = sums.min(sectors * SECTOR_REGIONS as u64) * PAGE_BLOCKS * BLOCK_BYTES;
        Ok(self.device.len()?.saturating_sub(areas.data_at).min(described))
    }

    /// Extends the member's map of regions to this many bytes of data. The added regions count as
    /// never written. The map is stored with the next write of the tables.
    pub fn extend(&self, data_bytes: u64) {
        let mut tables = self.lock();
        let (before, count) = (tables.regions.len(), pages(data_bytes / BLOCK_BYTES) as usize);
        debug_assert!(before <= count, "it gets longer");
        tables.regions.resize(count, Region::UNWRITTEN);
        let sectors = count.div_ceil(SECTOR_REGIONS);
        tables.checks.resize(sectors, 0);
        tables.changed.extend((before / SECTOR_REGIONS) as u64..sectors as u64);
        tables.is_urgent = true;
    }
}
