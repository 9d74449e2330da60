//! The join: the walk held against the previous snapshot, entry by entry, in path order.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::Scope;
use std::time::Duration;

use crossbeam_channel::Sender;

use super::Plan;
use super::ingest::{Assembled, Item, Job, Outcome};
use super::large::{self, Queues};
use super::shared::Ingest;
use crate::beneath::shown_from_root;
use crate::error::{Error, Kind, Result};
use crate::format::entry::{Content, Entry};
use crate::format::meta::{FileKind, Stat};
use crate::format::record::ChunkRow;
use crate::format::tree::compare_paths;
use crate::id::ChunkId;
use crate::monitor::{Counter, Monitor};
use crate::pipeline::abort::Abort;
use crate::pipeline::limits::{JOB_BYTES, JOB_ENTRIES, LARGE_BYTES};
use crate::source;
use crate::walk::{self, Exclude, Walker};

/// Where the join's work goes.
pub struct Handout {
    /// To the workers.
    pub jobs: Sender<Job>,
    /// To the assembler.
    pub outcomes: Sender<Outcome>,
    /// One token per job that is not assembled yet.
    pub window: Sender<()>,
    /// Segments of a large file in memory.
    pub segments: usize,
}

/// Consecutive entries on their way into one job.
#[derive(Default)]
struct Batch {
    items: Vec<Item>,
    bytes: u64,
    to_read: usize,
}

/// The join of walk and previous snapshot.
pub struct Join<'a> {
    shared: &'a Ingest<'a>,
    plan: Plan<'a>,
    queues: Handout,
    batch: Batch,
    seq: u64,
    /// Inodes with several names of which one was handed out.
    linked: HashSet<(u64, u64)>,
    /// The next entry of the previous snapshot.
    ahead: Option<Entry>,
}

impl<'env> Join<'env> {
    /// A join that has done nothing yet.
    pub fn new(shared: &'env Ingest<'env>, plan: Plan<'env>, queues: Handout) -> Self {
        let (batch, linked) = (Batch::default(), HashSet::new());
        Join { shared, plan, queues, batch, seq: 0, linked, ahead: None }
    }

    /// Walks all sources and hands everything out. Threads of the walk live in `scope`.
    ///
    /// # Errors
    /// The run's fatal error; a source that cannot be walked at all.
    pub fn run<'scope>(&mut self, scope: &'scope Scope<'scope, 'env>) -> Result<()> {
        if self.plan.estimate {
            let (sources, monitor) = (self.plan.sources, self.shared.monitor);
            let (abort, exclude) = (self.shared.abort, self.plan.exclude);
            let one_file_system = self.plan.one_file_system;
            scope.spawn(move || estimate(sources, exclude, one_file_system, monitor, abort));
        }
        self.advance_previous();
        let mut last: Option<Vec<u8>> = None;
        for source in self.plan.sources {
            for ancestor in ancestors(source) {
                let is_new =
                    last.as_deref().is_none_or(|last| compare_paths(last, ancestor).is_lt());
                if is_new {
                    let stat = source::stat_at(self.shared.root, ancestor)?;
                    self.entry(ancestor.to_vec(), stat)?;
                }
            }
            self.walk(scope, source)?;
            last = Some(source.clone());
        }
        self.hand_out()
    }

    fn walk<'scope>(&mut self, scope: &'scope Scope<'scope, 'env>, source: &[u8]) -> Result<()> {
        let Plan { exclude, one_file_system, .. } = &self.plan;
        let walker = Arc::new(walker(source, exclude, *one_file_system)?);
        for _ in 0..self.plan.limits.walkers {
            let walker = Arc::clone(&walker);
            scope.spawn(move || walker.work());
        }
        for batch in walker.batches() {
            self.shared.abort.check()?;
            for item in batch.iter() {
                match item {
                    walk::Item::Found(found) => {
                        self.entry(join(source, found.path), *found.stat)?;
                    }
                    walk::Item::Trouble(trouble) => {
                        let place = join(source, trouble.path);
                        self.shared
                            .monitor
                            .loss(shown_from_root(&place), trouble.error.duplicate());
                    }
                }
            }
        }
        Ok(())
    }

    /// Decides about one entry.
    fn entry(&mut self, path: Vec<u8>, stat: Stat) -> Result<()> {
        self.shared.monitor.add(Counter::WalkedEntries, 1);
        let is_file = stat.kind == FileKind::File;
        let mut previous = self.previous_entry(&path);
        if let Some(entry) = previous.take_if(|entry| self.is_unchanged(entry, &stat)) {
            if is_file {
                self.shared.monitor.add(Counter::UnchangedFiles, 1);
                self.shared.monitor.add(Counter::UnchangedBytes, stat.size_bytes);
                if stat.links > 1 {
                    self.linked.insert(stat.identity());
                }
            }
            let entry = Entry { device: stat.device, links: stat.links, ..entry };
            return self.push(Item::Unchanged(entry), 0);
        }
        if is_file {
            let was_there = previous.is_some_and(|entry| entry.meta.kind == FileKind::File);
            let (files, bytes) = match was_there {
                true => (Counter::ChangedFiles, Counter::ChangedBytes),
                false => (Counter::NewFiles, Counter::NewBytes),
            };
            self.shared.monitor.add(files, 1);
            self.shared.monitor.add(bytes, stat.size_bytes);
            if stat.links > 1 && !self.linked.insert(stat.identity()) {
                return self.push(Item::SameInode { path, stat }, 0);
            }
            if stat.size_bytes >= LARGE_BYTES {
                return self.large(&path);
            }
        }
        let bytes = if is_file { stat.size_bytes } else { 0 };
        self.push(Item::Read { path, stat }, bytes)
    }

    /// Whether content and metadata can be taken over unread. ctime moves with every change of
    /// either and cannot be set back; one that is not older than the previous backup itself may
    /// hide a change within the same clock tick.
    fn is_unchanged(&mut self, previous: &Entry, stat: &Stat) -> bool {
        let Some((_, began)) = &self.plan.previous else { return false };
        previous.meta.kind == stat.kind
            && previous.ctime == stat.ctime
            && previous.meta.mtime == stat.mtime
            && previous.inode == stat.inode
            && previous.size == stat.size_bytes
            && stat.ctime < *began
            && self.store_has(&previous.content)
    }

    /// Whether the store still has all of a content: a chunk that it lost is stored again from a
    /// file that still has it.
    fn store_has(&mut self, content: &Content) -> bool {
        let (index, claims) = (self.plan.index, self.shared.claims);
        let is_doubtful = self.plan.is_doubtful;
        let has = |id: &ChunkId| {
            let known = match is_doubtful {
                true => index.rely_on(id).is_ok_and(|known| known),
                false => index.may_have(id),
            };
            known || claims.has(id)
        };
        let has_all = |rows: &[ChunkRow]| rows.iter().all(|row| has(&row.id));
        match (content, &mut self.plan.previous) {
            (Content::Chunks(rows), _) => has_all(rows),
            (Content::Lists(lists), Some((tree, _))) => lists.iter().all(|list| {
                has(&list.id)
                    && (!is_doubtful || tree.list(&list.id).is_ok_and(|rows| has_all(&rows)))
            }),
            (Content::Lists(_), None) => false,
        }
    }

    fn previous_entry(&mut self, path: &[u8]) -> Option<Entry> {
        while let Some(ahead) = &self.ahead {
            match compare_paths(&ahead.path, path) {
                std::cmp::Ordering::Less => self.advance_previous(),
                std::cmp::Ordering::Equal => {
                    let entry = self.ahead.take();
                    self.advance_previous();
                    return entry;
                }
                std::cmp::Ordering::Greater => break,
            }
        }
        None
    }

    fn advance_previous(&mut self) {
        let Some((tree, _)) = &mut self.plan.previous else { return };
        self.ahead = tree.next_entry().unwrap_or_else(|error| {
            // More than a warning: chunks that the store only seems to have are not stored again,
            // so this snapshot may need what is lost.
            let error = error.advice("files that it named are read again; run 'pinstripe check'");
            self.shared.monitor.loss("the previous snapshot", error);
            self.plan.previous = None;
            None
        });
    }

    fn push(&mut self, item: Item, bytes: u64) -> Result<()> {
        self.batch.to_read += usize::from(!matches!(item, Item::Unchanged(_)));
        self.batch.items.push(item);
        self.batch.bytes += bytes;
        if self.batch.items.len() >= JOB_ENTRIES || self.batch.bytes >= JOB_BYTES {
            self.hand_out()?;
        }
        Ok(())
    }

    /// Hands the batch to a worker, or straight to the assembler when nothing is to be read.
    fn hand_out(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        if batch.items.is_empty() {
            return Ok(());
        }
        let seq = self.next_seq()?;
        let sent = if batch.to_read > 0 {
            self.queues.jobs.send(Job::Entries(seq, batch.items)).is_ok()
        } else {
            let ready = |item| match item {
                Item::Unchanged(entry) => Assembled::Ready(entry),
                Item::Read { .. } | Item::SameInode { .. } => unreachable!("nothing is to be read"),
            };
            let entries = batch.items.into_iter().map(ready).collect();
            self.queues.outcomes.send(Outcome::Entries(seq, entries)).is_ok()
        };
        if sent { Ok(()) } else { Err(gone()) }
    }

    fn next_seq(&mut self) -> Result<u64> {
        // The window opens only as jobs get done: after a fatal error nobody may wait for that.
        while let Err(error) = self.queues.window.send_timeout((), Duration::from_millis(100)) {
            self.shared.abort.check()?;
            if error.is_disconnected() {
                return Err(gone());
            }
        }
        self.seq += 1;
        Ok(self.seq - 1)
    }

    fn large(&mut self, path: &[u8]) -> Result<()> {
        self.hand_out()?;
        let seq = self.next_seq()?;
        let Handout { jobs, outcomes, segments, .. } = &self.queues;
        let queues = Queues { jobs, outcomes, segments: *segments };
        if let Err(error) = large::ingest(self.shared, &queues, seq, path) {
            self.shared.abort.check()?;
            self.shared.monitor.loss(shown_from_root(path), error);
            outcomes.send(Outcome::Entries(seq, Vec::new())).map_err(|_| gone())?;
        }
        Ok(())
    }
}

fn gone() -> Error {
    Error::new(Kind::Io, "a thread of the backup ended early")
}

/// A walk of one source; its places are absolute paths.
fn walker(source: &[u8], exclude: &Exclude, one_file_system: bool) -> Result<Walker> {
    let absolute = [b"/", source].concat();
    let prefix = if source.is_empty() { Vec::new() } else { absolute.clone() };
    let exclude = exclude.clone();
    let options = walk::Options { one_file_system, exclude, ..walk::Options::default() };
    Walker::new(path(&absolute), prefix, options)
}

/// Counts what there is, ahead of the backup, for whoever draws a bar.
fn estimate(
    sources: &[Vec<u8>],
    exclude: &Exclude,
    one_file_system: bool,
    monitor: &Monitor,
    abort: &Abort,
) {
    let (mut bytes, mut entries) = (0, 0);
    for source in sources {
        // Troubles are the backup's own walk to report.
        let Ok(walker) = walker(source, exclude, one_file_system) else { continue };
        for batch in walker.batches() {
            if abort.is_raised() {
                return;
            }
            for item in batch.iter() {
                if let walk::Item::Found(found) = item {
                    entries += 1;
                    if found.stat.kind == FileKind::File {
                        bytes += found.stat.size_bytes;
                    }
                }
            }
        }
    }
    monitor.expect(bytes, entries);
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// A path below a source, both from the file system's root.
fn join(source: &[u8], below: &[u8]) -> Vec<u8> {
    match (source.is_empty(), below.is_empty()) {
        (_, true) => source.to_vec(),
        (true, _) => below.to_vec(),
        _ => [source, b"/", below].concat(),
    }
}

/// The directories above a source, topmost first.
fn ancestors(source: &[u8]) -> impl Iterator<Item = &[u8]> {
    source.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &source[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_and_what_is_above_them() {
        let above: Vec<_> = ancestors(b"home/user/docs").collect();
        assert_eq!(above, [&b"home"[..], b"home/user"]);
        assert_eq!(ancestors(b"etc").count() + ancestors(b"").count(), 0);
        assert_eq!(join(b"a", b"b/c"), b"a/b/c");
        assert_eq!((join(b"", b"b"), join(b"a", b"")), (b"b".to_vec(), b"a".to_vec()));
    }
}
