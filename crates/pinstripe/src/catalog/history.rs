//! `history`: every version of one path, and when it did not exist.

use super::search::{FoundVersion, Series};
use super::{Catalog, Holder, split};
use pinstripe_base::error::Result;

/// One stretch in the life of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The version found; `None` if it no longer existed.
    pub found: Option<FoundVersion>,
    /// The snapshots of this stretch, never empty.
    pub snapshots: Vec<Holder>,
    /// Whether it holds the same as the version before it of the same machine and sources.
    pub same_content: bool,
}

impl Catalog {
    /// The versions of a path, one list for each host with its sources, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn history(&self, path: &[u8]) -> Result<Vec<Vec<Version>>> {
        let (directory, name) = split(path);
        let mut all = Vec::new();
        for series in self.series()? {
            let Some(directory) = self.directory(series.id, directory)? else { continue };
            let mut found = Vec::new();
            self.versions_of(&series, directory, name, path, &mut |version| found.push(version))?;
            if !found.is_empty() {
                all.push(stretches(&series, found));
            }
        }
        Ok(all)
    }
}

/// Inserts the gaps between versions, and joins rows whose difference no reader would see.
fn stretches(series: &Series, found: Vec<FoundVersion>) -> Vec<Version> {
    let mut versions: Vec<Version> = Vec::new();
    let mut content = None;
    for version in found {
        let first = version.snapshots[0].ordinal;
        if let Some(last) = versions.last().and_then(|last| last.snapshots.last()) {
            push_gap(series.holders(last.ordinal + 1, Some(first - 1)), &mut versions);
        }
        let same_content = content == Some((version.kind, version.size, version.content));
        content = Some((version.kind, version.size, version.content));
        let snapshots = version.snapshots.clone();
        versions.push(Version { found: Some(version), snapshots, same_content });
    }
    if let Some(last) = versions.last().and_then(|last| last.snapshots.last()) {
        push_gap(series.holders(last.ordinal + 1, None), &mut versions);
    }
    versions
}

fn push_gap(gap: &[Holder], versions: &mut Vec<Version>) {
    if !gap.is_empty() {
        versions.push(Version { found: None, snapshots: gap.to_vec(), same_content: false });
    }
}
