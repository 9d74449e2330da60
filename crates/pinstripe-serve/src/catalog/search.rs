//! Answers questions: rows of series, and the snapshots that hold them.
//!
//! A search goes through the blocks of names in memory, on threads that may block, and looks up only
//! the names that match. One transaction sees one state of the catalog.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::meta::Time;
use pinstripe_member::{
    AnswerRow, CatalogQuestion, Facts, Glob, Holder, Query, SnapshotSeries, join_path,
    kind_and_mode, scan_names, split_path,
};
use pinstripe_remote::AnswerWriter;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_postgres::Row;

use super::connection::Link;
use super::names_cache::BlockKey;
use super::schema::{directories_of, path_hash, series_of};
use super::{SharedTables, damaged};

/// The blocks that one thread scans at a time.
const BLOCKS: usize = 8;
/// The threads of one search.
const THREADS: usize = 2;
/// The names that are looked up by one statement.
const LOOKED_UP: usize = 4096;
/// The snapshots of one statement.
const SNAPSHOTS: i64 = 1024;
/// The longest wait until a host takes a part of an answer.
const TAKES: Duration = Duration::from_secs(60);

/// Sends the parts of an answer to a host.
pub(crate) struct AnswerSender {
    writer: AnswerWriter,
    sender: mpsc::Sender<Result<Bytes>>,
}

impl AnswerSender {
    pub fn new(sender: mpsc::Sender<Result<Bytes>>) -> Self {
        AnswerSender { writer: AnswerWriter::default(), sender }
    }

    async fn flush(&mut self) -> Result<()> {
        for frame in self.writer.take() {
            let gone = || Error::new(Kind::Interrupted, "the host takes no more of the answer");
            let sent = timeout(TAKES, self.sender.send(Ok(frame.into())));
            sent.await.map_err(|_| gone())?.map_err(|_| gone())?;
        }
        Ok(())
    }

    /// Ends the answer.
    pub async fn end(mut self, result: Result<()>) {
        self.writer.end(result);
        // A host that is gone needs no end.
        let _ = self.flush().await;
    }
}

/// A series that is searched.
struct Searched {
    series: SnapshotSeries,
    id: i32,
    generation: i32,
    blocks: i32,
}

impl Searched {
    /// Whether a snapshot of the series holds a row.
    fn holds(&self, first: i32, last: Option<i32>) -> bool {
        !self.series.holders(first.into(), last.map(i64::from)).is_empty()
    }
}

/// A name of a directory that a search has found.
type Place = (i64, Vec<u8>);

impl SharedTables {
    /// Answers a question about the series of one owner, or of all.
    ///
    /// # Errors
    /// Fails with the errors of the database, or when the host is gone.
    pub async fn answer(
        &self,
        question: &CatalogQuestion,
        owner: Option<&str>,
        out: &mut AnswerSender,
    ) -> Result<()> {
        let _turn = self.search_turn().await?;
        let link = self.pool.take().await?;
        link.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        match question {
            CatalogQuestion::Find(query) => self.find(&link, query, owner, out).await?,
            CatalogQuestion::History(path) => self.history(&link, path, owner, out).await?,
            CatalogQuestion::Diff(old, new) => self.diff(&link, *old, *new, owner, out).await?,
            CatalogQuestion::Snapshots => self.snapshots(&link, owner, out).await?,
        }
        link.batch("COMMIT").await?;
        link.give_back();
        Ok(())
    }

    /// All series of an owner with their snapshots.
    async fn series(&self, link: &Link<'_>, owner: Option<&str>) -> Result<Vec<Searched>> {
        let schema = self.pool.schema();
        let sql = format!(
            "SELECT id, host, sources, generation, blocks, owner FROM {schema}.series ORDER BY id"
        );
        let rows = link.query(&sql, &[]).await?;
        self.names.retain(&rows.iter().map(|row| (row.get(0), row.get(3))).collect());
        let mut all: Vec<Searched> = Vec::with_capacity(rows.len());
        for row in rows.iter().filter(|row| owner.is_none_or(|it| it == row.get::<_, &str>(5))) {
            let sources: &[u8] = row.get(2);
            let sources = sources.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
            let (id, host, snapshots) = (row.get::<_, i32>(0), row.get(1), Vec::new());
            let series = SnapshotSeries { id: id.into(), host, sources, snapshots };
            all.push(Searched { series, id, generation: row.get(3), blocks: row.get(4) });
        }
        let ids: Vec<i32> = all.iter().map(|it| it.id).collect();
        let sql = format!(
            "SELECT series, ordinal, id, seconds, nanos FROM {schema}.snapshots
             WHERE series = ANY($1) ORDER BY series, ordinal"
        );
        for row in link.query(&sql, &[&ids]).await? {
            let id: &[u8] = row.get(2);
            let id = id.try_into().map_err(|_| damaged("an id has a wrong length"))?;
            let created = Time { seconds: row.get(3), nanos: row.get::<_, i32>(4) as u32 };
            let holder =
                Holder { ordinal: row.get::<_, i32>(1).into(), id: SnapshotId(id), created };
            let at = ids.binary_search(&row.get(0)).map_err(|_| damaged("a series is missing"))?;
            all[at].series.snapshots.push(holder);
        }
        Ok(all)
    }

    async fn find(
        &self,
        link: &Link<'_>,
        query: &Query,
        owner: Option<&str>,
        out: &mut AnswerSender,
    ) -> Result<()> {
        let mut all = self.series(link, owner).await?;
        all.retain(|it| query.host.as_ref().is_none_or(|host| *host == it.series.host));
        if let Some(wanted) = &query.snapshots {
            all.iter_mut().for_each(|it| it.series.snapshots.retain(|s| wanted.contains(&s.id)));
        }
        all.retain(|it| !it.series.snapshots.is_empty());
        all.iter().try_for_each(|it| out.writer.series(&it.series))?;
        out.flush().await?;
        let keys: Vec<BlockKey> = all
            .iter()
            .flat_map(|it| (0..it.blocks).map(|number| (it.id, it.generation, number)))
            .collect();
        let glob = Arc::new(query.glob.clone());
        for keys in keys.chunks(BLOCKS * THREADS) {
            for places in scan(self.blocks(link, keys).await?, &glob).await? {
                for places in places.chunks(LOOKED_UP) {
                    self.look_up(link, query, &all, places, out).await?;
                }
            }
        }
        Ok(())
    }

    async fn blocks(&self, link: &Link<'_>, keys: &[BlockKey]) -> Result<Vec<Arc<[u8]>>> {
        let mut blocks: HashMap<BlockKey, Arc<[u8]>> = HashMap::new();
        blocks.extend(keys.iter().filter_map(|key| Some((*key, self.names.get(*key)?))));
        let missing: Vec<_> = keys.iter().filter(|key| !blocks.contains_key(key)).collect();
        if !missing.is_empty() {
            let series: Vec<i32> = missing.iter().map(|key| key.0).collect();
            let numbers: Vec<i32> = missing.iter().map(|key| key.2).collect();
            let sql = format!(
                "SELECT w.at, n.block FROM unnest($1::int[], $2::int[]) WITH ORDINALITY
                   AS w(series, number, at)
                 JOIN {}.names n ON n.series = w.series AND n.number = w.number",
                self.pool.schema()
            );
            for row in link.query(&sql, &[&series, &numbers]).await? {
                let key = *missing[row.get::<_, i64>(0) as usize - 1];
                blocks.insert(key, self.names.keep(key, row.get(1)));
            }
        }
        let missing = || damaged("a block of names is missing");
        keys.iter().map(|key| blocks.remove(key).ok_or_else(missing)).collect()
    }

    /// Sends the versions of these names that match.
    async fn look_up(
        &self,
        link: &Link<'_>,
        query: &Query,
        all: &[Searched],
        places: &[Place],
        out: &mut AnswerSender,
    ) -> Result<()> {
        let directories: HashSet<i64> = places.iter().map(|(directory, _)| *directory).collect();
        let directories = self.paths(link, directories).await?;
        let mut wanted: Vec<(i64, &[u8], Vec<u8>)> = Vec::new();
        for (directory, name) in places {
            let above = directories.get(directory).ok_or_else(|| damaged("a path is missing"))?;
            let path = join_path(above, name);
            // Whether it is a directory is not known yet: ruled out is what could be neither.
            if query.glob.matches(&path, true) {
                wanted.push((*directory, name, path));
            }
        }
        let keys: Vec<(i64, &[u8])> = wanted.iter().map(|it| (it.0, it.1)).collect();
        for (at, row) in self.versions(link, &keys).await? {
            let (directory, _, path) = &wanted[at];
            let found = all.binary_search_by_key(&series_of(*directory), |it| it.id);
            let series = found.map_err(|_| damaged("a series is missing"))?;
            let VersionRow { first, last, facts } = row;
            if all[series].holds(first, last) && query.admits(path, &facts) {
                let path = path.clone();
                out.writer.row(&answer_row(series, path, VersionRow { first, last, facts }));
            }
        }
        out.flush().await
    }

    async fn paths(
        &self,
        link: &Link<'_>,
        directories: HashSet<i64>,
    ) -> Result<HashMap<i64, Vec<u8>>> {
        let ids: Vec<i64> = directories.into_iter().collect();
        let sql = format!("SELECT id, path FROM {}.dirs WHERE id = ANY($1)", self.pool.schema());
        let rows = link.query(&sql, &[&ids]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// The versions of these names, in the order of the names, oldest first; each with the position
    /// of its name.
    async fn versions(
        &self,
        link: &Link<'_>,
        keys: &[(i64, &[u8])],
    ) -> Result<Vec<(usize, VersionRow)>> {
        let (directories, names): (Vec<i64>, Vec<&[u8]>) = keys.iter().copied().unzip();
        let sql = format!(
            "SELECT w.at, v.first, v.last, v.mode, v.size, v.seconds, v.nanos, v.content
             FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS w(dir, name, at)
             JOIN {}.versions v ON v.dir = w.dir AND v.name = w.name",
            self.pool.schema()
        );
        let rows = link.query(&sql, &[&directories, &names]).await?;
        let read = |row: &Row| Ok((row.get::<_, i64>(0) as usize - 1, VersionRow::read(row, 1)?));
        let mut versions = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
        versions.sort_unstable_by_key(|(at, row)| (*at, row.first));
        Ok(versions)
    }

    async fn history(
        &self,
        link: &Link<'_>,
        path: &[u8],
        owner: Option<&str>,
        out: &mut AnswerSender,
    ) -> Result<()> {
        let all = self.series(link, owner).await?;
        all.iter().try_for_each(|it| out.writer.series(&it.series))?;
        let (directory, name) = split_path(path);
        let sql =
            format!("SELECT id, path FROM {}.dirs WHERE hash = $1 ORDER BY id", self.pool.schema());
        let rows = link.query(&sql, &[&path_hash(directory)]).await?;
        let keys = rows.iter().filter(|row| row.get::<_, &[u8]>(1) == directory);
        let keys: Vec<(i64, &[u8])> = keys.map(|row| (row.get(0), name)).collect();
        for (at, row) in self.versions(link, &keys).await? {
            let found = all.binary_search_by_key(&series_of(keys[at].0), |it| it.id);
            if let Ok(series) = found
                && all[series].holds(row.first, row.last)
            {
                out.writer.row(&answer_row(series, path.to_vec(), row));
            }
        }
        out.flush().await
    }

    async fn diff(
        &self,
        link: &Link<'_>,
        old: SnapshotId,
        new: SnapshotId,
        owner: Option<&str>,
        out: &mut AnswerSender,
    ) -> Result<()> {
        let all = self.series(link, owner).await?;
        let ordinal = |it: &Searched, id| {
            let snapshots = it.series.snapshots.iter();
            snapshots.clone().find(|holder| holder.id == id).map(|holder| holder.ordinal as i32)
        };
        let both = |it: &Searched| Some((ordinal(it, old)?, ordinal(it, new)?));
        let Some((series, (old, new))) = all.iter().find_map(|it| Some((it, both(it)?))) else {
            return Ok(());
        };
        out.writer.series(&series.series)?;
        out.flush().await?;
        let schema = self.pool.schema();
        let (mut first, last) = directories_of(series.id);
        // A part of the directories at a time: their number has no limit.
        let next = format!(
            "SELECT id, path FROM {schema}.dirs WHERE id BETWEEN $1 AND $2 ORDER BY id LIMIT $3"
        );
        let sql = format!(
            "SELECT dir, name, first, last, mode, size, seconds, nanos, content
             FROM {schema}.versions WHERE dir BETWEEN $1 AND $2
               AND ($3 BETWEEN first AND coalesce(last, 2147483647))
                <> ($4 BETWEEN first AND coalesce(last, 2147483647)) ORDER BY dir, name, first"
        );
        loop {
            let rows = link.query(&next, &[&first, &last, &(LOOKED_UP as i64)]).await?;
            let Some(end) = rows.last().map(|row| row.get::<_, i64>(0)) else { return Ok(()) };
            let paths: HashMap<i64, &[u8]> =
                rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            for row in link.query(&sql, &[&first, &end, &old, &new]).await? {
                let above = paths.get(&row.get(0)).ok_or_else(|| damaged("a path is missing"))?;
                let path = join_path(above, row.get(1));
                out.writer.row(&answer_row(0, path, VersionRow::read(&row, 2)?));
            }
            out.flush().await?;
            first = end + 1;
        }
    }

    async fn snapshots(
        &self,
        link: &Link<'_>,
        owner: Option<&str>,
        out: &mut AnswerSender,
    ) -> Result<()> {
        let sql = format!(
            "SELECT s.id, s.fields FROM {0}.snapshots s JOIN {0}.series r ON r.id = s.series
             WHERE ($1::text IS NULL OR r.owner = $1) AND s.id > $2 ORDER BY s.id LIMIT $3",
            self.pool.schema()
        );
        let mut after: Vec<u8> = Vec::new();
        loop {
            let rows = link.query(&sql, &[&owner, &&after[..], &SNAPSHOTS]).await?;
            let Some(row) = rows.last() else { return Ok(()) };
            after = row.get(0);
            for row in &rows {
                let id: &[u8] = row.get(0);
                let id = id.try_into().map_err(|_| damaged("an id has a wrong length"))?;
                out.writer.snapshot(SnapshotId(id), row.get(1))?;
            }
            out.flush().await?;
        }
    }
}

/// Returns the names in some blocks that can match, in the key order of each thread's share.
async fn scan(blocks: Vec<Arc<[u8]>>, glob: &Arc<Glob>) -> Result<Vec<Vec<Place>>> {
    let share = |blocks: &[Arc<[u8]>]| {
        let (blocks, glob) = (blocks.to_vec(), Arc::clone(glob));
        tokio::task::spawn_blocking(move || {
            let mut places: Vec<Place> = Vec::new();
            for block in blocks {
                let admits = |name: &[u8]| glob.admits_name(name);
                scan_names(&block, &admits, &mut |name, dir| places.push((dir, name.to_vec())))?;
            }
            places.sort_unstable();
            Ok::<_, Error>(places)
        })
    };
    let shares: Vec<_> = blocks.chunks(BLOCKS).map(share).collect();
    let mut all = Vec::with_capacity(shares.len());
    for share in shares {
        all.push(share.await.map_err(|_| Error::new(Kind::Io, "a search ended early"))??);
    }
    Ok(all)
}

/// A row of the versions of a name.
#[derive(Debug, Clone, Copy)]
struct VersionRow {
    first: i32,
    last: Option<i32>,
    facts: Facts,
}

impl VersionRow {
    /// Reads a row whose first column of a version is at `at`.
    fn read(row: &Row, at: usize) -> Result<Self> {
        let number = i64::from(row.get::<_, i32>(at + 2));
        let known = kind_and_mode(number);
        let (kind, mode) = known.ok_or_else(|| damaged("a row has an impossible type"))?;
        let nanos = row.get::<_, i32>(at + 5) as u32;
        let mtime = Time { seconds: row.get(at + 4), nanos };
        let size = row.get::<_, i64>(at + 3) as u64;
        let facts = Facts { kind, mode, size, mtime, content: row.get(at + 6) };
        Ok(VersionRow { first: row.get(at), last: row.get(at + 1), facts })
    }
}

fn answer_row(series: usize, path: Vec<u8>, row: VersionRow) -> AnswerRow {
    let (first, last) = (i64::from(row.first), row.last.map(i64::from));
    AnswerRow { series, path, facts: row.facts, first, last }
}
