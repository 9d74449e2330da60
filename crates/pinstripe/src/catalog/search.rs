//! `find`: searches all snapshots for paths, by name or path.
//!
//! Blocks of names give the names that exist; only matching names are looked up. Memory is bounded
//! by one block and [`SORTED_MAX`] results, which are returned in path order.

use std::collections::BTreeMap;

use rusqlite::params;

use super::Catalog;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::meta::Time;
use pinstripe_member::{
    Facts, FoundVersion, Holder, Query, SORTED_MAX, SnapshotSeries, join_path, kind_and_mode,
    scan_names, sort_found,
};

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
        series: &SnapshotSeries,
        query: &Query,
        found: &mut Vec<FoundVersion>,
    ) -> Result<()> {
        let mut places: Vec<(i64, Vec<u8>)> = Vec::new();
        let admits = |name: &[u8]| query.glob.admits_name(name);
        scan_names(block, &admits, &mut |name, directory| places.push((directory, name.to_vec())))
            .map_err(|error| error.at(&self.place))?;
        places.sort_unstable();
        let mut directory = (0, Vec::new());
        for (id, name) in places {
            if directory.0 != id {
                directory = (id, self.directory_path(id)?);
            }
            let path = join_path(&directory.1, &name);
            // Whether it is a directory is not known yet: ruled out is what could be neither.
            if query.glob.matches(&path, true) {
                self.versions_of(series, id, &name, &path, &mut |facts, it| {
                    if query.admits(&path, facts) {
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
        series: &SnapshotSeries,
        directory: i64,
        name: &[u8],
        path: &[u8],
        take: &mut dyn FnMut(&Facts, FoundVersion),
    ) -> Result<()> {
        let mut find = self.prepare(
            "SELECT first, last, mode, size, seconds, nanos, content
             FROM versions WHERE dir = ?1 AND name = ?2 ORDER BY first",
        )?;
        let failed = |error| self.failed(error);
        let mut rows = find.query(params![directory, name]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let mut read = || -> rusqlite::Result<_> {
                let (first, last) = (row.get(0)?, row.get(1)?);
                let Some((kind, mode)) = kind_and_mode(row.get(2)?) else {
                    return Err(rusqlite::Error::InvalidQuery);
                };
                let mtime = Time { seconds: row.get(4)?, nanos: row.get(5)? };
                let size = row.get::<_, i64>(3)? as u64;
                let facts = Facts { kind, mode, size, mtime, content: row.get(6)? };
                if let Some(version) = series.version(path, &facts, first, last) {
                    take(&facts, version);
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
    pub(crate) fn series(&self) -> Result<Vec<SnapshotSeries>> {
        let failed = |error| self.failed(error);
        let mut all = BTreeMap::new();
        let mut series = self.prepare("SELECT id, host, sources FROM series")?;
        let mut rows = series.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let read = || Ok((row.get(0)?, row.get(1)?, row.get::<_, Vec<u8>>(2)?));
            let (id, host, sources) = read().map_err(failed)?;
            let sources = sources.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
            all.insert(id, SnapshotSeries { id, host, sources, snapshots: Vec::new() });
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
    sort_found(found);
    found.drain(..).try_for_each(show)
}
