//! Loads one snapshot, in one transaction.
//!
//! Rows come in path order, in batches. For each batch: its directories are looked up or numbered,
//! rows of removed and changed paths are closed, new rows are copied in the order of their keys, and
//! one block has the names that are new. In the first snapshot of a series nothing is looked up.

use std::collections::{HashMap, HashSet};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::tree::is_at_or_below;
use pinstripe_member::{encode_names, split_path};
use pinstripe_remote::{ChangeKind, SentChange};

use super::connection::{Link, Pool};
use super::copy::CopyRows;
use super::schema::{directories_of, path_hash};
use super::{damaged, series_key};

/// The bytes of a row of a version without its name, in the format of COPY.
const VERSION_BYTES: usize = 80;

/// A snapshot that is being loaded. No part of it stays unless [`finish`](Load::finish) succeeds.
pub(crate) struct Load<'p> {
    link: Link<'p>,
    schema: &'p str,
    snapshot: Snapshot,
    series: i32,
    ordinal: i32,
    is_first: bool,
    /// The number of directories of the series.
    directories: i64,
    blocks: i32,
    /// The directories above the last path, outermost first.
    around: Vec<Directory>,
    versions: u64,
}

#[derive(Debug, Clone)]
struct Directory {
    path: Vec<u8>,
    /// 0 until it is known.
    id: i64,
}

/// A row of a batch: the position of its directory, and its change.
struct BatchRow<'c> {
    directory: i64,
    name: &'c [u8],
    change: &'c SentChange,
}

impl<'p> Load<'p> {
    pub(super) async fn begin(
        pool: &'p Pool,
        owner: &str,
        snapshot: Snapshot,
        base: Option<SnapshotId>,
    ) -> Result<Load<'p>> {
        let (link, schema) = (pool.take().await?, pool.schema());
        link.batch("BEGIN").await?;
        let known = format!("SELECT 1 FROM {schema}.snapshots WHERE id = $1");
        if !link.query(&known, &[&&snapshot.id.0[..]]).await?.is_empty() {
            return Err(Error::new(Kind::Exists, "the shared catalog has this snapshot already"));
        }
        let key = series_key(owner, &snapshot.host, &snapshot.sources);
        let row = match base {
            Some(base) => {
                let sql = format!(
                    "SELECT r.id, r.head, r.directories, r.blocks FROM {schema}.series r
                     JOIN {schema}.snapshots s ON s.series = r.id AND s.ordinal = r.head
                     WHERE r.key = $1 AND s.id = $2 FOR UPDATE OF r"
                );
                link.query(&sql, &[&&key[..], &&base.0[..]]).await?
            }
            None => {
                let sql = format!(
                    "INSERT INTO {schema}.series
                       (key, owner, host, sources, head, directories, blocks, generation, versions)
                     VALUES ($1, $2, $3, $4, 0, 0, 0, 0, 0) RETURNING id, head, directories, blocks"
                );
                let sources = snapshot.sources.join(&0);
                link.query(&sql, &[&&key[..], &owner, &&snapshot.host[..], &&sources[..]]).await?
            }
        };
        let Some(row) = row.first() else {
            let what = "the series has another head now: another snapshot was loaded meanwhile";
            return Err(Error::new(Kind::Changed, what));
        };
        let head: i32 = row.get(1);
        let too_many = || Error::new(Kind::Unsupported, "the series has too many snapshots");
        Ok(Load {
            link,
            schema,
            snapshot,
            series: row.get(0),
            ordinal: head.checked_add(1).ok_or_else(too_many)?,
            is_first: base.is_none(),
            directories: row.get(2),
            blocks: row.get(3),
            around: Vec::new(),
            versions: 0,
        })
    }

    /// Loads a batch, whose paths come after those of the batches before.
    ///
    /// # Errors
    /// Fails with the errors of the database.
    pub async fn write(&mut self, changes: &[SentChange]) -> Result<()> {
        let mut rows = self.place(changes).await?;
        rows.sort_unstable_by(|a, b| (a.directory, a.name).cmp(&(b.directory, b.name)));
        let known = match self.is_first {
            true => HashSet::new(),
            false => {
                self.close(&rows).await?;
                self.known_names(&rows).await?
            }
        };
        let bytes: usize = rows.iter().map(|row| row.name.len() + VERSION_BYTES).sum();
        let (mut copied, mut new) = (CopyRows::new(bytes), Vec::new());
        for (number, row) in rows.iter().enumerate() {
            let facts = &row.change.facts;
            match row.change.kind {
                ChangeKind::Removed => continue,
                ChangeKind::Added if !known.contains(&number) => {
                    new.push((row.name, row.directory));
                }
                _ => {}
            }
            copied.row(9).bigint(row.directory).field(row.name).int(self.ordinal).null();
            copied.int(facts.kind_and_mode() as i32).bigint(facts.size as i64);
            copied.bigint(facts.mtime.seconds).int(facts.mtime.nanos as i32).bigint(facts.content);
            self.versions += 1;
        }
        if let Some(copied) = copied.finish() {
            let sql = format!("COPY {}.versions FROM STDIN BINARY", self.schema);
            self.link.copy(&sql, copied).await?;
        }
        if new.is_empty() {
            return Ok(());
        }
        let block = encode_names(&mut new);
        let mut copied = CopyRows::new(block.len() + 32);
        copied.row(3).int(self.series).int(self.blocks).field(&block);
        self.blocks += 1;
        let sql = format!("COPY {}.names FROM STDIN BINARY", self.schema);
        self.link.copy(&sql, copied.finish().unwrap_or_default()).await.map(drop)
    }

    /// Finds the directory of each change, and adds those that are new.
    async fn place<'c>(&mut self, changes: &'c [SentChange]) -> Result<Vec<BatchRow<'c>>> {
        let mut all = std::mem::take(&mut self.around);
        let mut around: Vec<usize> = (0..all.len()).collect();
        let mut placed = Vec::with_capacity(changes.len());
        for change in changes {
            let (path, name) = split_path(&change.path);
            let at = loop {
                let top = around.last().copied();
                match top.map(|top| &all[top].path[..]) {
                    Some(above) if above == path => break top.unwrap_or_default(),
                    Some(above) if !is_at_or_below(path, above) => drop(around.pop()),
                    _ => {
                        all.push(Directory { path: path.to_vec(), id: 0 });
                        around.push(all.len() - 1);
                        break all.len() - 1;
                    }
                }
            };
            placed.push((at, name, change));
        }
        if !self.is_first {
            self.look_up(&mut all).await?;
        }
        self.add_directories(&mut all).await?;
        self.around = around.into_iter().map(|at| all[at].clone()).collect();
        let row = |(at, name, change): (usize, &'c [u8], &'c SentChange)| BatchRow {
            directory: all[at].id,
            name,
            change,
        };
        Ok(placed.into_iter().map(row).collect())
    }

    async fn look_up(&self, all: &mut [Directory]) -> Result<()> {
        let wanted = all.iter().filter(|it| it.id == 0).map(|it| path_hash(&it.path));
        let wanted: Vec<i64> = wanted.collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let (first, last) = directories_of(self.series);
        let sql = format!(
            "SELECT d.id, d.path FROM unnest($1::bigint[]) AS w(hash)
             JOIN {}.dirs d ON d.hash = w.hash WHERE d.id BETWEEN $2 AND $3",
            self.schema
        );
        let rows = self.link.query(&sql, &[&wanted, &first, &last]).await?;
        let known: HashMap<&[u8], i64> =
            rows.iter().map(|row| (row.get::<_, &[u8]>(1), row.get(0))).collect();
        for directory in all.iter_mut().filter(|it| it.id == 0) {
            directory.id = known.get(&directory.path[..]).copied().unwrap_or_default();
        }
        Ok(())
    }

    async fn add_directories(&mut self, all: &mut [Directory]) -> Result<()> {
        let (first, last) = directories_of(self.series);
        let mut copied = CopyRows::new(4096);
        for directory in all.iter_mut().filter(|it| it.id == 0) {
            self.directories += 1;
            directory.id = first + self.directories;
            if directory.id > last {
                return Err(Error::new(Kind::Unsupported, "the series has too many directories"));
            }
            copied.row(3).bigint(directory.id).bigint(path_hash(&directory.path));
            copied.field(&directory.path);
        }
        if let Some(copied) = copied.finish() {
            let sql = format!("COPY {}.dirs FROM STDIN BINARY", self.schema);
            self.link.copy(&sql, copied).await?;
        }
        Ok(())
    }

    /// Closes the rows of paths that were removed or changed.
    async fn close(&self, rows: &[BatchRow<'_>]) -> Result<()> {
        let closed = rows.iter().filter(|row| row.change.kind != ChangeKind::Added);
        let (directories, names): (Vec<i64>, Vec<&[u8]>) =
            closed.map(|row| (row.directory, row.name)).unzip();
        if directories.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "UPDATE {}.versions v SET last = $3
             FROM unnest($1::bigint[], $2::bytea[]) AS c(dir, name)
             WHERE v.dir = c.dir AND v.name = c.name AND v.last IS NULL",
            self.schema
        );
        self.link.execute(&sql, &[&directories, &names, &(self.ordinal - 1)]).await.map(drop)
    }

    /// The positions of added rows whose names are in a block already.
    async fn known_names(&self, rows: &[BatchRow<'_>]) -> Result<HashSet<usize>> {
        let added = rows.iter().enumerate();
        let added = added.filter(|(_, row)| row.change.kind == ChangeKind::Added);
        let (numbers, added): (Vec<usize>, Vec<&BatchRow<'_>>) = added.unzip();
        let (directories, names): (Vec<i64>, Vec<&[u8]>) =
            added.iter().map(|row| (row.directory, row.name)).unzip();
        if numbers.is_empty() {
            return Ok(HashSet::new());
        }
        let sql = format!(
            "SELECT w.number FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY
               AS w(dir, name, number)
             WHERE EXISTS (SELECT 1 FROM {}.versions v WHERE v.dir = w.dir AND v.name = w.name)",
            self.schema
        );
        let found = self.link.query(&sql, &[&directories, &names]).await?;
        let position =
            |number: i64| usize::try_from(number - 1).ok().and_then(|it| numbers.get(it));
        let found = found.iter().map(|row| position(row.get(0)).copied());
        found.collect::<Option<_>>().ok_or_else(|| damaged("a row has an impossible number"))
    }

    /// Makes the snapshot the head of its series; returns the number of versions that it added.
    ///
    /// # Errors
    /// Fails with the errors of the database.
    pub async fn finish(self) -> Result<u64> {
        let Load { link, schema, snapshot, series, ordinal, .. } = self;
        let root = snapshot.root;
        let sql = format!(
            "INSERT INTO {schema}.snapshots
               (id, series, ordinal, seconds, nanos, root, height, entries, fields)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
        );
        let fields = snapshot.encode_fields();
        link.execute(
            &sql,
            &[
                &&snapshot.id.0[..],
                &series,
                &ordinal,
                &snapshot.created_seconds,
                &(snapshot.created_nanos as i32),
                &&root.id.0[..],
                &i16::from(root.height),
                &(root.entries as i64),
                &&fields[..],
            ],
        )
        .await?;
        let sql = format!(
            "UPDATE {schema}.series SET head = $2, directories = $3, blocks = $4,
               versions = versions + $5 WHERE id = $1"
        );
        let versions = self.versions as i64;
        link.execute(&sql, &[&series, &ordinal, &self.directories, &self.blocks, &versions])
            .await?;
        link.batch("COMMIT").await?;
        link.give_back();
        Ok(self.versions)
    }
}
