//! The beginning of a scrub.

use super::Scrub;
use crate::engine::Array;
use crate::engine::work::LongWork;
use pinstripe_base::error::{Error, Kind, Result};

impl LongWork {
    /// Begins to read and compare everything, and to repair it if `repair` is set.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when a scrub is already running; with [`Kind::TooManyLosses`] when
    /// too many members failed.
    pub(crate) fn begin_scrub(&mut self, array: &Array, repair: bool) -> Result<()> {
        if self.scrub.is_some() {
            return Err(Error::new(Kind::Busy, "the array is being scrubbed already")
                .advice("wait until the running scrub is done, or cancel it"));
        }
        if self.grow.is_some() {
            return Err(Error::new(Kind::Busy, "the array is growing")
                .advice("wait until the growth is done"));
        }
        let scrub = Scrub::new(repair, 0);
        let progress = scrub.progress();
        array.update_superblocks(|superblock| superblock.scrub = progress)?;
        array.live.lock().mismatches = 0;
        self.scrub = Some(scrub);
        self.publish(array);
        Ok(())
    }
}
