//! What programs say of their reads, and what the mount tells of them.

use super::SnapshotTree;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use pinstripe_prefetch::planner::{Counts, Hint, Standing};

/// How one file is read.
#[derive(Debug, Clone)]
pub struct ReadStatus {
    /// Its inode number in the mount.
    pub inode: u64,
    /// Its streams, the last one first.
    pub streams: Vec<Standing>,
    /// What was read, planned and wasted.
    pub counts: Counts,
}

impl SnapshotTree {
    /// The files that were read lately.
    pub fn reads(&self) -> Vec<ReadStatus> {
        let planners = self.content.planners();
        let status = planners.into_iter().map(|(inode, planner)| {
            let planner = lock(&planner);
            ReadStatus { inode, streams: planner.standings(), counts: planner.counts() }
        });
        status.collect()
    }
}

/// Reads a hint: the extended attribute `user.pinstripe.read`.
///
/// # Errors
/// [`Kind::Unsupported`] for other attributes, [`Kind::Usage`] for what is no hint.
pub(super) fn parse(name: &[u8], value: &[u8]) -> Result<(Hint, u64)> {
    pinstripe_prefetch::hint::parse(name, value).map_err(|refused| match refused {
        None => Error::new(Kind::Unsupported, "the file system is read-only"),
        Some(why) => Error::new(Kind::Usage, why),
    })
}
