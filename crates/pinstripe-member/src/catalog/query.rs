//! What a search in a catalog asks for, and how rows become its answer.

use std::collections::HashSet;
use std::ops::Range;

use pinstripe_base::id::SnapshotId;

use super::glob::Glob;
use super::rows::Facts;
use crate::meta::{FileKind, Time};
use crate::tree::compare_paths;

/// The number of results that are kept in memory to be sorted in path order.
pub const SORTED_MAX: usize = 1 << 17;

/// The conditions of a search.
#[derive(Debug, Clone)]
pub struct Query {
    /// The pattern for the name or path.
    pub glob: Glob,
    /// Search only snapshots of this host.
    pub host: Option<Vec<u8>>,
    /// Only these snapshots.
    pub snapshots: Option<HashSet<SnapshotId>>,
    /// Search only entries of this kind.
    pub kind: Option<FileKind>,
    /// Search only files with a size in this range, in bytes.
    pub size: Range<u64>,
    /// Search only entries with a modification time in this range, in seconds since 1970.
    pub mtime: Range<i64>,
}

impl Query {
    /// Whether a version of this path and kind matches.
    #[must_use]
    pub fn admits(&self, path: &[u8], facts: &Facts) -> bool {
        let is_directory = facts.kind == FileKind::Directory;
        self.kind.is_none_or(|kind| kind == facts.kind)
            && self.size.contains(&facts.size)
            && self.mtime.contains(&facts.mtime.seconds)
            && self.glob.matches(path, is_directory)
    }

    /// Matches everything that a pattern matches.
    pub fn new(glob: Glob) -> Self {
        Query {
            glob,
            host: None,
            snapshots: None,
            kind: None,
            size: 0..u64::MAX,
            mtime: i64::MIN..i64::MAX,
        }
    }
}

/// A snapshot that holds a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The snapshot's ordinal in its series.
    pub ordinal: i64,
    /// The name.
    pub id: SnapshotId,
    /// When it began.
    pub created: Time,
}

/// One version of a path, and the snapshots that hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundVersion {
    /// Absolute path without the leading slash.
    pub path: Vec<u8>,
    /// The kind.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Length in bytes.
    pub size: u64,
    /// When its content last changed.
    pub mtime: Time,
    /// The host that was backed up.
    pub host: Vec<u8>,
    /// The snapshots that hold the version, in the order in which they were taken in; never empty.
    pub snapshots: Vec<Holder>,
    /// The hash of the content, as in [`Facts`].
    pub content: i64,
    /// The first ordinal whose snapshot holds the version.
    pub first: i64,
}

/// A series, as searches use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSeries {
    /// The series' number in the catalog.
    pub id: i64,
    /// The machine.
    pub host: Vec<u8>,
    /// The paths that were backed up.
    pub sources: Vec<Vec<u8>>,
    /// By ordinal.
    pub snapshots: Vec<Holder>,
}

impl SnapshotSeries {
    /// Returns the snapshots within a row's range of ordinals.
    pub fn holders(&self, first: i64, last: Option<i64>) -> &[Holder] {
        let from = self.snapshots.partition_point(|it| it.ordinal < first);
        let to = match last {
            Some(last) => self.snapshots.partition_point(|it| it.ordinal <= last),
            None => self.snapshots.len(),
        };
        &self.snapshots[from.min(to)..to]
    }
}

impl SnapshotSeries {
    /// The version of a row, unless no snapshot holds it.
    #[must_use]
    pub fn version(
        &self,
        path: &[u8],
        facts: &Facts,
        first: i64,
        last: Option<i64>,
    ) -> Option<FoundVersion> {
        let holders = self.holders(first, last);
        let Facts { kind, mode, size, mtime, content } = *facts;
        (!holders.is_empty()).then(|| FoundVersion {
            path: path.to_vec(),
            kind,
            mode,
            size,
            mtime,
            host: self.host.clone(),
            snapshots: holders.to_vec(),
            content,
            first,
        })
    }
}

/// Sorts the results of a search: by path, host, time of the first snapshot.
pub fn sort_found(found: &mut [FoundVersion]) {
    found.sort_by(|left, right| {
        let times = || left.snapshots[0].created.cmp(&right.snapshots[0].created);
        compare_paths(&left.path, &right.path)
            .then_with(|| left.host.cmp(&right.host))
            .then_with(times)
            .then(left.first.cmp(&right.first))
    });
}
