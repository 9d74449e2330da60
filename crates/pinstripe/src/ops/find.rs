//! `find`: searches all snapshots for paths, by name or path.

use std::path::Path;

use super::catalog::searched;
use crate::store::Store;
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::{FoundVersion, Query};

/// Brings the catalog at `place` up to date and passes every matching version to `show`.
///
/// # Errors
/// Fails when the catalog cannot be brought up to date, or with the errors of `show`.
pub fn run(
    store: &Store,
    place: &Path,
    query: &Query,
    monitor: &Monitor,
    show: &mut dyn FnMut(FoundVersion) -> Result<()>,
) -> Result<()> {
    searched(store, place, monitor, &mut |catalog| {
        let mut has_shown = false;
        let result = catalog.find(query, &mut |found| {
            has_shown = true;
            show(found)
        });
        (result, has_shown)
    })
}
