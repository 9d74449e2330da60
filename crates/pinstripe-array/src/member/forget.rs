//! Forgetting content: parts of a member count as never written again.

use super::ArrayMember;
use crate::format::BLOCK_BYTES;
use crate::format::sums::{PAGE_BLOCKS, Sum};
use pinstripe_base::error::Result;

impl ArrayMember {
    /// Marks the member's data as never written from an offset on, which must be a block boundary.
    ///
    /// # Errors
    /// Fails with the errors of the device.
    pub(crate) fn forget_from(&self, offset: u64) -> Result<()> {
        let first = offset / BLOCK_BYTES;
        let whole = first.div_ceil(PAGE_BLOCKS);
        let is_written = |page: u64| {
            self.lock().regions.get(page as usize).is_some_and(|region| region.is_written())
        };
        if first < whole * PAGE_BLOCKS && is_written(whole - 1) {
            let blocks = (whole * PAGE_BLOCKS - first) as usize;
            self.set_sums(first, &vec![Sum::UNWRITTEN; blocks])?;
        }
        let mut tables = self.lock();
        for page in whole..tables.regions.len() as u64 {
            let region = tables.regions[page as usize];
            tables.set(page, region.unwritten());
            tables.sums.forget_page(page);
        }
        Ok(())
    }
}
