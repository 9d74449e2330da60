//! Takes a snapshot into the catalog: its differences from the head of its series, in path order
//! and in batches.

use rusqlite::{OptionalExtension, params};

use super::Catalog;
use crate::store::tree::Difference;
use pinstripe_base::error::Result;
use pinstripe_base::id::ChunkId;
use pinstripe_member::snapshot::{Snapshot, TreeRoot};
use pinstripe_member::{Change, ChangeSink, Facts, encode_names, split_path};

/// The head of a series, with which the next snapshot of the same host and sources is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base {
    series: i64,
    ordinal: i64,
    /// The head's tree.
    pub root: TreeRoot,
}

/// Returns the change that a difference between two trees means, or `None` when a restore would give
/// the same.
pub(crate) fn change_of(difference: Difference) -> Option<Change> {
    match difference {
        Difference::Added(entry) => Some(Change::Added(entry.path.clone(), Facts::of(&entry))),
        Difference::Removed(entry) => Some(Change::Removed(entry.path)),
        Difference::Changed(old, new) => {
            (!old.restores_alike(&new)).then(|| Change::Changed(new.path.clone(), Facts::of(&new)))
        }
    }
}

/// The intake of one snapshot; nothing counts before [`finish`](Intake::finish).
pub(crate) struct Intake<'c> {
    catalog: &'c Catalog,
    series: i64,
    ordinal: i64,
    /// The series had no snapshots before, so no rows need to be searched.
    is_first: bool,
    next_directory: i64,
    /// The directories above the last path, outermost first.
    around: Vec<(Vec<u8>, i64)>,
    root: TreeRoot,
    versions: u64,
}

impl Catalog {
    /// Returns the head of the series to which the snapshot belongs, if there is one.
    ///
    /// # Errors
    /// Fails when the catalog cannot be read.
    pub fn base(&self, snapshot: &Snapshot) -> Result<Option<Base>> {
        let mut find = self.prepare(
            "SELECT id, head, root, height, entries FROM series
             WHERE host = ?1 AND sources = ?2 ORDER BY id DESC LIMIT 1",
        )?;
        let base = find.query_row(params![snapshot.host, sources(snapshot)], |row| {
            let id = ChunkId(row.get(2)?);
            let root = TreeRoot { id, height: row.get(3)?, entries: row.get::<_, i64>(4)? as u64 };
            Ok(Base { series: row.get(0)?, ordinal: row.get(1)?, root })
        });
        base.optional().map_err(|error| self.failed(error))
    }

    /// Begins to take in a snapshot, as the next one after `base` or as the first of a new series.
    /// Changes must come in path order.
    ///
    /// # Errors
    /// Fails when the catalog cannot be written.
    pub(crate) fn take_in(&self, snapshot: &Snapshot, base: Option<&Base>) -> Result<Intake<'_>> {
        let root = snapshot.root;
        let (series, ordinal) = match base {
            Some(base) => (base.series, base.ordinal + 1),
            None => {
                let begin = self.db.execute(
                    "INSERT INTO series(host, sources, head, root, height, entries)
                     VALUES (?1, ?2, 1, ?3, ?4, ?5)",
                    params![
                        snapshot.host,
                        sources(snapshot),
                        root.id.0,
                        root.height,
                        root.entries as i64
                    ],
                );
                begin.map_err(|error| self.failed(error))?;
                (self.db.last_insert_rowid(), 1)
            }
        };
        let keep = self.db.execute(
            "INSERT INTO snapshots(series, ordinal, id, seconds, nanos, root, height, entries)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                series,
                ordinal,
                snapshot.id.0,
                snapshot.created_seconds,
                snapshot.created_nanos,
                root.id.0,
                root.height,
                root.entries as i64
            ],
        );
        keep.map_err(|error| self.failed(error))?;
        let highest = "SELECT ifnull(max(id), 0) FROM dirs";
        let highest: i64 =
            self.db.query_row(highest, [], |row| row.get(0)).map_err(|e| self.failed(e))?;
        Ok(Intake {
            catalog: self,
            series,
            ordinal,
            is_first: base.is_none(),
            next_directory: highest + 1,
            around: Vec::new(),
            root,
            versions: 0,
        })
    }
}

fn sources(snapshot: &Snapshot) -> Vec<u8> {
    snapshot.sources.join(&0)
}

impl ChangeSink for Intake<'_> {
    /// Writes a batch of changes. The rows are first sorted by key, so that few parts of the
    /// table's B-tree are touched.
    fn write(&mut self, changes: &[Change]) -> Result<()> {
        let mut rows = Vec::with_capacity(changes.len());
        for change in changes {
            let (directory, name) = split_path(change.path());
            rows.push((self.directory(directory)?, name, change));
        }
        rows.sort_unstable_by(|left, right| (left.0, left.1).cmp(&(right.0, right.1)));
        let mut new: Vec<(&[u8], i64)> = Vec::new();
        for (directory, name, change) in rows {
            match change {
                Change::Added(_, facts) => {
                    if self.is_first || !self.has(directory, name)? {
                        new.push((name, directory));
                    }
                    self.open(directory, name, facts)?;
                }
                Change::Changed(_, facts) => {
                    self.close(directory, name)?;
                    self.open(directory, name, facts)?;
                }
                Change::Removed(_) => self.close(directory, name)?,
            }
        }
        self.catalog.add_names(self.series, &mut new)
    }

    /// Makes the snapshot the head of its series; returns the number of versions that it added.
    fn finish(self: Box<Self>) -> Result<u64> {
        let TreeRoot { id, height, entries } = self.root;
        let update = self.catalog.db.execute(
            "UPDATE series SET head = ?2, root = ?3, height = ?4, entries = ?5 WHERE id = ?1",
            params![self.series, self.ordinal, id.0, height, entries as i64],
        );
        update.map_err(|error| self.catalog.failed(error))?;
        Ok(self.versions)
    }
}

impl Intake<'_> {
    fn open(&mut self, directory: i64, name: &[u8], facts: &Facts) -> Result<()> {
        let mut insert = self.catalog.prepare(
            "INSERT INTO versions(dir, name, first, mode, size, seconds, nanos, content)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?;
        let mode = facts.kind_and_mode();
        self.versions += 1;
        let row = params![
            directory,
            name,
            self.ordinal,
            mode,
            facts.size as i64,
            facts.mtime.seconds,
            facts.mtime.nanos,
            facts.content
        ];
        insert.execute(row).map(drop).map_err(|error| self.catalog.failed(error))
    }

    fn close(&self, directory: i64, name: &[u8]) -> Result<()> {
        let mut update = self.catalog.prepare(
            "UPDATE versions SET last = ?3 WHERE dir = ?1 AND name = ?2 AND last IS NULL",
        )?;
        let closed = update.execute(params![directory, name, self.ordinal - 1]);
        closed.map(drop).map_err(|error| self.catalog.failed(error))
    }

    fn has(&self, directory: i64, name: &[u8]) -> Result<bool> {
        let mut find =
            self.catalog.prepare("SELECT 1 FROM versions WHERE dir = ?1 AND name = ?2")?;
        find.exists(params![directory, name]).map_err(|error| self.catalog.failed(error))
    }

    /// Returns the id of a directory. Paths come in path order, so a directory that was left does
    /// not come again.
    fn directory(&mut self, path: &[u8]) -> Result<i64> {
        while let Some((around, id)) = self.around.last() {
            if around == path {
                return Ok(*id);
            }
            if pinstripe_member::tree::is_at_or_below(path, around) {
                break;
            }
            self.around.pop();
        }
        let known = match self.is_first {
            true => None,
            false => self.catalog.directory(self.series, path)?,
        };
        let id = match known {
            Some(id) => id,
            None => {
                let id = self.next_directory;
                self.next_directory += 1;
                let mut insert = self
                    .catalog
                    .prepare("INSERT INTO dirs(id, series, path) VALUES (?1, ?2, ?3)")?;
                let inserted = insert.execute(params![id, self.series, path]);
                inserted.map_err(|error| self.catalog.failed(error))?;
                id
            }
        };
        self.around.push((path.to_vec(), id));
        Ok(id)
    }
}

impl Catalog {
    /// Adds a block of names, unless there are none.
    pub(super) fn add_names(&self, series: i64, new: &mut [(&[u8], i64)]) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let mut insert = self.prepare("INSERT INTO names(series, block) VALUES (?1, ?2)")?;
        let inserted = insert.execute(params![series, encode_names(new)]);
        inserted.map(drop).map_err(|error| self.failed(error))
    }
}
