//! `find`: searches all snapshots for paths, by name or path.
//!
//! Blocks of names give the names that exist; only matching names are looked up. Memory is bounded
//! by one block and [`SORTED_MAX`] results, which are returned in path order.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use rusqlite::params;

use super::intake::kind_and_mode;
use super::{Catalog, join, names};
use crate::walk::Glob;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::meta::{FileKind, Time};
use pinstripe_member::tree::compare_paths;

/// The number of results that are kept in memory to be sorted in path order.
const SORTED_MAX: usize = 1 << 17;

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
    pub(super) ordinal: i64,
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
    pub(super) content: i64,
    pub(super) first: i64,
}

/// A series, as searches use it.
pub(crate) struct Series {
    /// The series' number in the catalog.
    pub id: i64,
    /// The machine.
    pub host: Vec<u8>,
    /// The paths that were backed up.
    pub sources: Vec<Vec<u8>>,
    /// By ordinal.
    pub snapshots: Vec<Holder>,
}

impl Series {
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

impl Catalog {
    /// Passes every matching version to `show`, in path order within groups of 131,072.
    ///
    /// # Errors
    /// Fails when the catalog cannot be read, or with the errors of `show`.
    pub fn find(
        &self,
        query: &Query,
        show: &mut dyn FnMut(FoundVersion) -> Result<()>,
    ) -> Result<()> {
        let mut found = Vec::new();
        for mut series in self.series()? {
            if query.host.as_ref().is_some_and(|host| *host != series.host) {
                continue;
            }
            if let Some(wanted) = &query.snapshots {
                series.snapshots.retain(|snapshot| wanted.contains(&snapshot.id));
            }
            if series.snapshots.is_empty() {
                continue;
            }
            let mut blocks = self.prepare("SELECT block FROM names WHERE series = ?1")?;
            let mut blocks = blocks.query([series.id]).map_err(|error| self.failed(error))?;
            while let Some(row) = blocks.next().map_err(|error| self.failed(error))? {
                let block = row.get_ref(0).and_then(|it| Ok(it.as_blob()?));
                let block = block.map_err(|error| self.failed(error))?;
                self.find_in(block, &series, query, &mut found)?;
                if found.len() >= SORTED_MAX {
                    give_out(&mut found, show)?;
                }
            }
        }
        give_out(&mut found, show)
    }

    fn find_in(
        &self,
        block: &[u8],
        series: &Series,
        query: &Query,
        found: &mut Vec<FoundVersion>,
    ) -> Result<()> {
        let mut places: Vec<(i64, Vec<u8>)> = Vec::new();
        let admits = |name: &[u8]| query.glob.admits_name(name);
        names::scan(block, &admits, &mut |name, directory| places.push((directory, name.to_vec())))
            .map_err(|error| error.at(&self.place))?;
        places.sort_unstable();
        let mut directory = (0, Vec::new());
        for (id, name) in places {
            if directory.0 != id {
                directory = (id, self.directory_path(id)?);
            }
            let path = join(&directory.1, &name);
            // Whether it is a directory is not known yet: ruled out is what could be neither.
            if query.glob.matches(&path, true) {
                self.versions_of(series, id, &name, &path, &mut |it| {
                    let is_directory = it.kind == FileKind::Directory;
                    let fits = query.kind.is_none_or(|kind| kind == it.kind)
                        && query.size.contains(&it.size)
                        && query.mtime.contains(&it.mtime.seconds)
                        && (is_directory || query.glob.matches(&path, false));
                    if fits {
                        found.push(it);
                    }
                })?;
            }
        }
        Ok(())
    }

    /// Returns the versions of one path that snapshots of the series hold, oldest first.
    pub(super) fn versions_of(
        &self,
        series: &Series,
        directory: i64,
        name: &[u8],
        path: &[u8],
        take: &mut dyn FnMut(FoundVersion),
    ) -> Result<()> {
        let mut find = self.prepare(
            "SELECT first, last, mode, size, seconds, nanos, content
             FROM versions WHERE dir = ?1 AND name = ?2 ORDER BY first",
        )?;
        let failed = |error| self.failed(error);
        let mut rows = find.query(params![directory, name]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let mut read = || -> rusqlite::Result<_> {
                let first: i64 = row.get(0)?;
                let holders = series.holders(first, row.get(1)?);
                let Some((kind, mode)) = kind_and_mode(row.get(2)?) else {
                    return Err(rusqlite::Error::InvalidQuery);
                };
                if !holders.is_empty() {
                    take(FoundVersion {
                        path: path.to_vec(),
                        kind,
                        mode,
                        size: row.get::<_, i64>(3)? as u64,
                        mtime: Time { seconds: row.get(4)?, nanos: row.get(5)? },
                        host: series.host.clone(),
                        snapshots: holders.to_vec(),
                        content: row.get(6)?,
                        first,
                    });
                }
                Ok(())
            };
            read().map_err(failed)?;
        }
        Ok(())
    }

    fn directory_path(&self, id: i64) -> Result<Vec<u8>> {
        let mut find = self.prepare("SELECT path FROM dirs WHERE id = ?1")?;
        find.query_row([id], |row| row.get(0)).map_err(|error| self.failed(error))
    }

    /// Returns all series with their snapshots.
    ///
    /// # Errors
    /// Fails when the catalog cannot be read.
    pub(crate) fn series(&self) -> Result<Vec<Series>> {
        let failed = |error| self.failed(error);
        let mut all = BTreeMap::new();
        let mut series = self.prepare("SELECT id, host, sources FROM series")?;
        let mut rows = series.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let read = || Ok((row.get(0)?, row.get(1)?, row.get::<_, Vec<u8>>(2)?));
            let (id, host, sources) = read().map_err(failed)?;
            let sources = sources.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
            all.insert(id, Series { id, host, sources, snapshots: Vec::new() });
        }
        let mut snapshots = self.prepare(
            "SELECT series, ordinal, id, seconds, nanos FROM snapshots ORDER BY series, ordinal",
        )?;
        let mut rows = snapshots.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let read = || -> rusqlite::Result<(i64, Holder)> {
                let created = Time { seconds: row.get(3)?, nanos: row.get(4)? };
                let id = SnapshotId(row.get(2)?);
                Ok((row.get(0)?, Holder { ordinal: row.get(1)?, id, created }))
            };
            let (series, holder) = read().map_err(failed)?;
            let Some(series) = all.get_mut(&series) else {
                return Err(Error::new(
                    Kind::Corrupt,
                    "the catalog lists a snapshot that belongs to no series",
                )
                .at(&self.place));
            };
            series.snapshots.push(holder);
        }
        Ok(all.into_values().collect())
    }
}

fn give_out(
    found: &mut Vec<FoundVersion>,
    show: &mut dyn FnMut(FoundVersion) -> Result<()>,
) -> Result<()> {
    found.sort_by(|left, right| {
        let times = || left.snapshots[0].created.cmp(&right.snapshots[0].created);
        compare_paths(&left.path, &right.path)
            .then_with(|| left.host.cmp(&right.host))
            .then_with(times)
            .then(left.first.cmp(&right.first))
    });
    found.drain(..).try_for_each(show)
}
