//! Removes snapshots that no longer exist, and every row that belongs to no other snapshot.

use std::collections::BTreeSet;

use rusqlite::params;

use super::Catalog;
use pinstripe_base::error::Result;
use pinstripe_base::id::SnapshotId;

/// The number of names in one block that is rebuilt.
const BLOCK_NAMES: usize = 1 << 15;

impl Catalog {
    /// Takes snapshots out. Names that are in no other snapshot are overwritten in the file.
    ///
    /// # Errors
    /// Fails when the catalog cannot be written.
    pub(crate) fn let_go(&self, gone: &[SnapshotId]) -> Result<()> {
        let mut touched = BTreeSet::new();
        for id in gone {
            let mut delete =
                self.prepare("DELETE FROM snapshots WHERE id = ?1 RETURNING series")?;
            let series = delete.query_map([&id.0], |row| row.get::<_, i64>(0));
            for series in series.map_err(|error| self.failed(error))? {
                touched.insert(series.map_err(|error| self.failed(error))?);
            }
        }
        self.run("PRAGMA secure_delete = ON")?;
        let pruned = touched.into_iter().try_for_each(|series| self.prune(series));
        self.run("PRAGMA secure_delete = OFF")?;
        pruned
    }

    fn prune(&self, series: i64) -> Result<()> {
        let execute = |sql: &str| {
            let done = self.db.execute(sql, params![series]);
            done.map_err(|error| self.failed(error))
        };
        // The newest remaining snapshot is the head again: its versions become open, later ones go.
        let head = "SELECT max(ordinal) FROM snapshots WHERE series = ?1";
        let head = self.db.query_row(head, [series], |row| row.get::<_, Option<i64>>(0));
        let mut dropped = 0;
        match head.map_err(|error| self.failed(error))? {
            None => {
                dropped += execute(
                    "DELETE FROM versions WHERE dir IN (SELECT id FROM dirs WHERE series = ?1)",
                )?;
                execute("DELETE FROM series WHERE id = ?1")?;
            }
            Some(_) => {
                execute(
                    "UPDATE series SET (head, root, height, entries) = (
                       SELECT ordinal, root, height, entries FROM snapshots WHERE series = ?1
                       ORDER BY ordinal DESC LIMIT 1) WHERE id = ?1",
                )?;
                execute(
                    "UPDATE versions SET last = NULL
                     WHERE last >= (SELECT head FROM series WHERE id = ?1)
                       AND first <= (SELECT head FROM series WHERE id = ?1)
                       AND dir IN (SELECT id FROM dirs WHERE series = ?1)",
                )?;
                dropped += execute(
                    "DELETE FROM versions
                     WHERE dir IN (SELECT id FROM dirs WHERE series = ?1) AND NOT EXISTS (
                       SELECT 1 FROM snapshots WHERE series = ?1
                       AND ordinal BETWEEN first AND ifnull(last, 9223372036854775807))",
                )?;
            }
        }
        if dropped == 0 {
            return Ok(());
        }
        execute(
            "DELETE FROM dirs WHERE series = ?1
             AND NOT EXISTS (SELECT 1 FROM versions WHERE dir = dirs.id)",
        )?;
        execute("DELETE FROM names WHERE series = ?1")?;
        self.name_again(series)
    }

    /// Rebuilds the blocks of names of a series from its rows.
    fn name_again(&self, series: i64) -> Result<()> {
        let mut rows = self.prepare(
            "SELECT DISTINCT versions.name, versions.dir FROM dirs
             JOIN versions ON versions.dir = dirs.id WHERE dirs.series = ?1",
        )?;
        let failed = |error| self.failed(error);
        let rows = rows.query_map([series], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get(1)?)));
        let mut held: Vec<(Vec<u8>, i64)> = Vec::new();
        let put = |held: &mut Vec<(Vec<u8>, i64)>| {
            let mut new: Vec<_> = held.iter().map(|(name, dir)| (&name[..], *dir)).collect();
            let put = self.add_names(series, &mut new);
            held.clear();
            put
        };
        for row in rows.map_err(failed)? {
            held.push(row.map_err(failed)?);
            if held.len() >= BLOCK_NAMES {
                put(&mut held)?;
            }
        }
        put(&mut held)
    }
}
