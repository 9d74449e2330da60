//! Lists the names in one directory over all snapshots: rows are read in the order of their keys,
//! from any name on, so that memory does not grow with the directory.

use std::collections::BTreeSet;

use rusqlite::{Row, Rows, params};

use super::Catalog;
use pinstripe_base::error::Result;
use pinstripe_member::meta::{FileKind, Time};
use pinstripe_member::tree::is_at_or_below;
use pinstripe_member::{Facts, SnapshotSeries, join_path, kind_and_mode};

/// One version of a path, as read from its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VersionRow {
    /// The position of the version's series among those of the query.
    pub series: usize,
    /// The first ordinal whose snapshot holds the version.
    pub first: i64,
    /// The last ordinal; `None` when the head of the series still holds the version.
    pub last: Option<i64>,
    /// What the catalog stores about the version.
    pub facts: Facts,
}

/// A name in a directory, with its versions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChildOfDirectory<'n> {
    /// The name.
    pub name: &'n [u8],
    /// All versions of the name, including directories.
    pub rows: &'n [VersionRow],
    /// A path below this name was backed up, but the name itself was not.
    pub is_above_source: bool,
}

/// A series' rows for a directory, and the next of these rows.
struct SeriesRows<'r> {
    series: usize,
    rows: Rows<'r>,
    next: Option<(Vec<u8>, VersionRow)>,
}

impl Catalog {
    /// Passes the names in a directory, from `from` on and in byte order, to `take` until it
    /// returns false.
    ///
    /// # Errors
    /// Fails when the catalog cannot be read, or with the errors of `take`.
    pub(crate) fn children(
        &self,
        series: &[SnapshotSeries],
        directory: &[u8],
        from: &[u8],
        take: &mut dyn FnMut(ChildOfDirectory<'_>) -> Result<bool>,
    ) -> Result<()> {
        let failed = |error| self.failed(error);
        let mut statements = Vec::new();
        for (at, one) in series.iter().enumerate() {
            if let Some(id) = self.directory(one.id, directory)? {
                statements.push((at, id, self.prepare(FROM_NAME)?));
            }
        }
        let mut streams = Vec::with_capacity(statements.len());
        for (series, id, statement) in &mut statements {
            let rows = statement.query(params![*id, from]).map_err(failed)?;
            let mut stream = SeriesRows { series: *series, rows, next: None };
            stream.advance().map_err(failed)?;
            streams.push(stream);
        }
        let mut above: BTreeSet<&[u8]> = above_sources(series, directory).collect();
        above = above.split_off(from);
        let mut rows = Vec::new();
        loop {
            let names = streams.iter().filter_map(|it| it.next.as_ref().map(|(name, _)| &name[..]));
            let Some(name) = names.chain(above.first().copied()).min() else { return Ok(()) };
            let name = name.to_vec();
            rows.clear();
            for stream in &mut streams {
                while let Some((_, row)) = stream.next.take_if(|(next, _)| *next == name) {
                    rows.push(row);
                    stream.advance().map_err(failed)?;
                }
            }
            let is_above_source = above.remove(&name[..]);
            if !take(ChildOfDirectory { name: &name, rows: &rows, is_above_source })? {
                return Ok(());
            }
        }
    }

    /// Returns the versions of one name in a directory, and whether the name is above a source.
    ///
    /// # Errors
    /// Fails when the catalog cannot be read.
    pub(crate) fn child(
        &self,
        series: &[SnapshotSeries],
        directory: &[u8],
        name: &[u8],
    ) -> Result<(Vec<VersionRow>, bool)> {
        let failed = |error| self.failed(error);
        let mut all = Vec::new();
        for (at, one) in series.iter().enumerate() {
            let Some(id) = self.directory(one.id, directory)? else { continue };
            let mut find = self.prepare(OF_NAME)?;
            let mut rows = find.query(params![id, name]).map_err(failed)?;
            while let Some(row) = rows.next().map_err(failed)? {
                all.push(read(row, at).map_err(failed)?);
            }
        }
        Ok((all, above_sources(series, directory).any(|above| above == name)))
    }
}

const FROM_NAME: &str = "SELECT first, last, mode, size, seconds, nanos, content, name
     FROM versions WHERE dir = ?1 AND name >= ?2 ORDER BY name, first";
const OF_NAME: &str = "SELECT first, last, mode, size, seconds, nanos, content
     FROM versions WHERE dir = ?1 AND name = ?2 ORDER BY first";

impl SeriesRows<'_> {
    fn advance(&mut self) -> rusqlite::Result<()> {
        self.next = match self.rows.next()? {
            Some(row) => Some((row.get(7)?, read(row, self.series)?)),
            None => None,
        };
        Ok(())
    }
}

fn read(row: &Row<'_>, series: usize) -> rusqlite::Result<VersionRow> {
    let Some((kind, mode)) = kind_and_mode(row.get(2)?) else {
        return Err(rusqlite::Error::InvalidQuery);
    };
    let facts = Facts {
        kind,
        mode,
        size: row.get::<_, i64>(3)? as u64,
        mtime: Time { seconds: row.get(4)?, nanos: row.get(5)? },
        content: row.get(6)?,
    };
    Ok(VersionRow { series, first: row.get(0)?, last: row.get(1)?, facts })
}

/// Returns the names in a directory that lead to a source but were not backed up themselves.
fn above_sources<'s>(
    series: &'s [SnapshotSeries],
    directory: &[u8],
) -> impl Iterator<Item = &'s [u8]> {
    let begin = join_path(directory, b"");
    let is_within =
        |it: &SnapshotSeries| it.sources.iter().any(|top| is_at_or_below(directory, top));
    let sources = series.iter().filter(move |it| !is_within(it)).flat_map(|it| &it.sources);
    sources.filter_map(move |source| {
        let below = source.strip_prefix(&begin[..])?;
        below.iter().position(|&byte| byte == b'/').map(|end| &below[..end])
    })
}

impl VersionRow {
    /// Whether the version is a directory.
    pub fn is_directory(&self) -> bool {
        self.facts.kind == FileKind::Directory
    }
}
