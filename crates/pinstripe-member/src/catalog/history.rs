//! `history`: every version of one path, and the times when the path did not exist.

use super::query::{FoundVersion, Holder, SnapshotSeries};
use crate::meta::FileKind;

/// A period in the life of a path in which it had one version, or did not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The version in this period; `None` if the path did not exist.
    pub found: Option<FoundVersion>,
    /// The snapshots of this period; never empty.
    pub snapshots: Vec<Holder>,
    /// Whether the content is the same as in the version before, of the same host and sources.
    pub same_content: bool,
}

/// Makes the history of a path in a series from its versions, oldest first: inserts the gaps between versions, and joins rows that look the same to a reader.
#[must_use]
pub fn history_of(series: &SnapshotSeries, found: Vec<FoundVersion>) -> Vec<Version> {
    let mut versions: Vec<Version> = Vec::new();
    let mut content = None;
    for version in found {
        let first = version.snapshots[0].ordinal;
        if let Some(last) = versions.last().and_then(|last| last.snapshots.last()) {
            push_gap(series.holders(last.ordinal + 1, Some(first - 1)), &mut versions);
        }
        let now = Some(content_of(&version));
        let same_content = content == now;
        content = now;
        let snapshots = version.snapshots.clone();
        versions.push(Version { found: Some(version), snapshots, same_content });
    }
    if let Some(last) = versions.last().and_then(|last| last.snapshots.last()) {
        push_gap(series.holders(last.ordinal + 1, None), &mut versions);
    }
    versions
}

/// Returns what identifies the content of a version. File systems choose the size of a directory by
/// the number of its names, so a directory has no content of its own.
fn content_of(version: &FoundVersion) -> (FileKind, u64, i64) {
    let size = if version.kind == FileKind::Directory { 0 } else { version.size };
    (version.kind, size, version.content)
}

fn push_gap(gap: &[Holder], versions: &mut Vec<Version>) {
    if !gap.is_empty() {
        versions.push(Version { found: None, snapshots: gap.to_vec(), same_content: false });
    }
}
