//! Writes the windows of rows that were set aside.

use std::sync::Arc;

use super::{BLOCK, UnplannableWindow};
use crate::engine::logged::LoggedArray;
use crate::engine::rows::RowWriter;
use crate::engine::work::LongWork;
use crate::plan::Rules;
use pinstripe_base::error::Result;

impl RowWriter {
    /// Writes the windows that were set aside.
    pub(in crate::engine) fn salvage(
        &mut self,
        logged: &mut LoggedArray,
        long: &mut LongWork,
        rules: Rules,
    ) -> Result<()> {
        // A granule would widen one block into the next, which may be lost.
        let rules = Rules { granule: None, ..rules };
        // A window that is still too large is cut into blocks, and those that cannot be planned
        // come back to this list: the loop ends because a single block is written alone.
        while let Some(UnplannableWindow { row, dirty, window }) = self.salvage.windows.pop() {
            if window.len() as u32 <= BLOCK {
                // Before, so that no record over this block can be replayed; after, because no
                // record brings the checksum back.
                logged.checkpoint()?;
                self.salvage.write_alone(&logged.array, row, &dirty, &window)?;
                logged.checkpoint()?;
                continue;
            }
            for start in window.step_by(BLOCK as usize) {
                let window = start..start + BLOCK;
                match self.job(&logged.array, rules, row, &dirty, window.clone()) {
                    Ok(Some(job)) => self.batch.push(job, logged.array.geometry().members()),
                    Ok(None) => {}
                    Err(error) => {
                        let window = UnplannableWindow { row, dirty: Arc::clone(&dirty), window };
                        self.salvage.put_aside(&logged.array, error, window)?;
                    }
                }
                // One block always fits into a record, so `has_room` need not be asked.
                self.carry_out(logged, long, rules)?;
            }
        }
        Ok(())
    }
}
