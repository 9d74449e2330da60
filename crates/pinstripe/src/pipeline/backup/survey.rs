//! A dry run of a backup: the same walk and comparison, but no content is read and nothing is
//! written.

use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;

use super::join::{Comparison, DecisionSink, EntryPlan, Join};
use crate::source;
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::meta::FileKind;
use pinstripe_stripe::{Abort, Claims};

/// A file that a backup would read.
pub struct Wanted<'a> {
    /// Path from the file system's root, without the leading slash.
    pub path: &'a [u8],
    /// Length.
    pub size_bytes: u64,
    /// Whether the previous snapshot has no file there.
    pub is_new: bool,
}

struct ShowSurveyed<'a>(&'a mut dyn FnMut(Wanted<'_>) -> Result<()>);

impl DecisionSink for ShowSurveyed<'_> {
    fn take(&mut self, plan: EntryPlan) -> Result<()> {
        match plan {
            EntryPlan::Read { path, stat, was_there } if stat.kind == FileKind::File => {
                let (size_bytes, is_new) = (stat.size_bytes, !was_there);
                (self.0)(Wanted { path: &path, size_bytes, is_new })
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Walks and compares; passes every file that a backup would read to `show`, in path order.
///
/// # Errors
/// Fails when no source can be walked, or with the errors of `show`.
pub fn survey(
    comparison: Comparison<'_>,
    monitor: &Monitor,
    show: &mut dyn FnMut(Wanted<'_>) -> Result<()>,
) -> Result<()> {
    let root = source::open_root()?;
    let (abort, stop) = (Abort::default(), AtomicBool::new(false));
    let claims = Claims::default();
    std::thread::scope(|scope| {
        let mut join = Join::new(
            root.as_fd(),
            monitor,
            &abort,
            comparison,
            ShowSurveyed(show),
            &claims,
            &stop,
        );
        let walked = join.run(scope);
        if let Err(error) = &walked {
            // The concurrent estimate stops too.
            abort.raise(error.duplicate());
        }
        walked.map(drop)
    })
}
