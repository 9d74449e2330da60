//! The join: compares the walk with earlier trees, entry by entry, in path order.
//!
//! The join decides which entries are unchanged, and counts them; the [`DecisionSink`] handles each
//! entry.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;

use super::previous::{Previous, Sight};
use super::shared::counters;
use crate::source;
use crate::store::index::Index;
use crate::walk::{self, Exclude, Walker};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ChunkId;
use pinstripe_base::monitor::{Counter, EntryAct, Monitor};
use pinstripe_io::beneath::{shown, shown_from_root};
use pinstripe_member::entry::{Content, Entry};
use pinstripe_member::meta::{FileKind, Stat};
use pinstripe_member::record::ChunkRow;
use pinstripe_member::tree::{compare_paths, is_at_or_below};
use pinstripe_stripe::{Abort, Claims};

/// The trees to walk, and the earlier trees to compare them with.
pub struct Comparison<'a> {
    /// The store's chunks.
    pub index: &'a Index<'a>,
    /// The store may have lost data since the previous snapshot: unchanged files are reused only if
    /// the index itself, not only its filters, has each of their chunks.
    pub is_doubtful: bool,
    /// Absolute paths without the leading slash, in path order, without duplicates. One path may be
    /// below another: it is backed up even if the walk of the other path would not reach it.
    pub sources: &'a [Vec<u8>],
    /// Report each source that is contained in another one.
    pub report_covered: bool,
    /// Paths to leave out.
    pub exclude: &'a Exclude,
    /// Do not enter other file systems.
    pub one_file_system: bool,
    /// Entries that earlier backups of the same sources recorded.
    pub previous: Previous<'a>,
    /// Count the entries during the backup, for a progress bar.
    pub estimate: bool,
    /// Threads that list directories.
    pub walkers: usize,
    /// Set when an entry at or below a source differs from the earlier one.
    pub changed: &'a AtomicBool,
}

/// The decision about an entry, which a worker or the assembler carries out.
pub(crate) enum EntryPlan {
    /// Reuse the earlier entry, including its content.
    Unchanged(Entry),
    /// Read the entry: the content of a file, the metadata of any entry.
    Read {
        /// Path from the file system's root.
        path: Vec<u8>,
        /// The metadata in the walk.
        stat: Stat,
        /// Whether an earlier backup recorded a file at this path.
        was_there: bool,
    },
    /// Read only a file's metadata: an earlier name of the same inode has its content.
    SameInode {
        /// Path from the file system's root.
        path: Vec<u8>,
        /// The metadata in the walk.
        stat: Stat,
        /// Whether an earlier backup saw a file there.
        was_there: bool,
    },
}

/// Receives the decisions of the join, in path order.
pub(crate) trait DecisionSink {
    /// Takes one entry.
    ///
    /// # Errors
    /// Fails with the reason to end the run.
    fn take(&mut self, plan: EntryPlan) -> Result<()>;

    /// All was taken.
    ///
    /// # Errors
    /// Fails with the reason to end the run.
    fn finish(&mut self) -> Result<()>;
}

/// The join of the walk and earlier trees.
pub struct Join<'a, T> {
    root: BorrowedFd<'a>,
    monitor: &'a Monitor,
    abort: &'a Abort,
    comparison: Comparison<'a>,
    sink: T,
    /// Chunks that this run stores.
    claims: &'a Claims,
    stop: &'a AtomicBool,
    /// The join ended early because `stop` was set.
    stopped: bool,
    /// Sources that could not be read at all.
    refused: usize,
    /// Inodes with several names whose content was sent to a worker under one of them, and the
    /// number of names that are left. The assembler forgets an inode with its last name, so a
    /// further name, through a bind mount, is read again.
    linked: HashMap<(u64, u64), u64>,
    /// The last source that was walked, or the last directory above a source that was processed.
    last: Option<&'a [u8]>,
}

/// The walk of a source, or the reason why the source cannot be read.
type OpenedSource = Result<Arc<Walker>>;

impl<'env, T: DecisionSink> Join<'env, T> {
    /// Makes a join that has not begun. `root` is the directory to which all paths are relative.
    pub fn new(
        root: BorrowedFd<'env>,
        monitor: &'env Monitor,
        abort: &'env Abort,
        comparison: Comparison<'env>,
        sink: T,
        claims: &'env Claims,
        stop: &'env AtomicBool,
    ) -> Self {
        let linked = HashMap::new();
        let (stopped, refused, last) = (false, 0, None);
        Join {
            root,
            monitor,
            abort,
            comparison,
            sink,
            claims,
            stop,
            stopped,
            refused,
            linked,
            last,
        }
    }

    /// Walks all sources and passes all entries on, unless it is stopped; returns whether
    /// everything was walked. Threads of the walk live in `scope`.
    ///
    /// # Errors
    /// Fails with the run's fatal error, or when no source can be walked.
    pub fn run<'scope>(&mut self, scope: &'scope Scope<'scope, 'env>) -> Result<bool> {
        if self.comparison.estimate {
            let Comparison { sources, exclude, one_file_system, .. } = self.comparison;
            let (monitor, abort) = (self.monitor, self.abort);
            scope.spawn(move || estimate(sources, exclude, one_file_system, monitor, abort));
        }
        for group in groups(self.comparison.sources) {
            self.group(scope, group)?;
            if self.stopped {
                break;
            }
        }
        self.sink.finish()?;
        Ok(!self.stopped)
    }

    /// Processes a source together with the sources below it. If the source cannot be read, each
    /// source below it is tried.
    fn group<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, 'env>,
        group: &'env [Vec<u8>],
    ) -> Result<()> {
        let Some((source, below)) = group.split_first() else { return Ok(()) };
        match self.source(source, below)? {
            Ok(walker) => self.walk(scope, source, &walker),
            Err(error) => {
                self.refused(source, error)?;
                groups(below).try_for_each(|group| self.group(scope, group))
            }
        }
    }

    /// Handles a source that cannot be read: a loss, which ends the run if no source can be read.
    fn refused(&mut self, source: &[u8], error: Error) -> Result<()> {
        self.refused += 1;
        if self.refused == self.comparison.sources.len() {
            return Err(error);
        }
        self.monitor.loss(shown_from_root(source), error);
        Ok(())
    }

    /// Processes the directories above a source that no earlier source had; returns the source's
    /// walk.
    fn source(&mut self, source: &'env [u8], below: &[Vec<u8>]) -> Result<OpenedSource> {
        for ancestor in ancestors(source) {
            if self.last.is_none_or(|last| compare_paths(last, ancestor).is_lt()) {
                match source::stat_at(self.root, ancestor) {
                    // As the walk does for a directory that it only passes through.
                    Ok(stat) => self.entry(ancestor.to_vec(), Stat { links: 0, ..stat })?,
                    Err(error) => return Ok(Err(error)),
                }
                self.last = Some(ancestor);
            }
        }
        let Comparison { exclude, one_file_system, .. } = self.comparison;
        let walker = walker(source, below, exclude, one_file_system);
        if walker.is_ok() {
            self.last = Some(source);
        }
        Ok(walker.map(Arc::new))
    }

    fn walk<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, 'env>,
        source: &[u8],
        walker: &Arc<Walker>,
    ) -> Result<()> {
        let walkers = self.comparison.walkers;
        let threads = if walker.has_work() { walkers } else { 0 };
        for _ in 0..threads {
            let walker = Arc::clone(walker);
            scope.spawn(move || walker.work());
        }
        for batch in walker.batches() {
            self.abort.check()?;
            for item in batch.iter() {
                if self.stop.load(Ordering::Relaxed) {
                    self.stopped = true;
                    return Ok(());
                }
                match item {
                    walk::WalkItem::Found(found) => {
                        self.entry(join(source, found.path), *found.stat)?;
                    }
                    walk::WalkItem::Trouble(trouble) => {
                        self.trouble(&join(source, trouble.path), trouble.error.duplicate());
                    }
                }
            }
        }
        if self.comparison.report_covered {
            let (within, name) = (shown_from_root(source), |path| shown(path).display());
            for path in walker.covered() {
                let (path, within) = (name(path), within.display());
                self.monitor.note(&format!(
                    "{path} adds nothing to the backup, because it is in {within}, which is also \
                     backed up"
                ));
            }
        }
        Ok(())
    }

    /// Reports what the walk could not take: a loss, unless it is gone. Rules that have no effect
    /// lose nothing.
    fn trouble(&self, path: &[u8], error: Error) {
        let place = shown_from_root(path);
        if error.kind() == Kind::Usage {
            self.monitor.warning(place, error);
        } else if error.kind() == Kind::Changed && source::is_gone(self.root, path) {
            self.monitor.changed(place, error);
        } else {
            self.monitor.loss(place, error);
        }
    }

    /// Decides about one entry.
    fn entry(&mut self, path: Vec<u8>, stat: Stat) -> Result<()> {
        let stat = stat.as_told();
        self.monitor.add(Counter::WalkedEntries, 1);
        let is_file = stat.kind == FileKind::File;
        // Called for every path of any kind: it moves the stream of earlier entries on.
        let previous = self.comparison.previous.entry(&path, self.monitor);
        let known_kind = previous.as_ref().map(|(entry, _)| entry.meta.kind);
        let was_there = known_kind == Some(FileKind::File);
        if let Some((entry, sight)) = previous
            && self.is_unchanged(&entry, sight, &stat)
        {
            if is_file {
                self.monitor.add(Counter::UnchangedFiles, 1);
                self.monitor.add(Counter::UnchangedBytes, stat.size_bytes);
                // A later name of this inode needs no content of its own, though this one was not
                // read.
                self.is_later_name(&stat);
            }
            self.show(EntryAct::Unchanged, &path);
            let entry = Entry { device: stat.device, links: stat.links, ..entry };
            return self.sink.take(EntryPlan::Unchanged(entry));
        }
        // The directories above a source have no links here.
        self.comparison.changed.fetch_or(stat.links > 0, Ordering::Relaxed);
        let is_changed = known_kind == Some(stat.kind);
        self.show(if is_changed { EntryAct::Changed } else { EntryAct::New }, &path);
        if is_file {
            let (files, bytes) = counters(was_there);
            self.monitor.add(files, 1);
            self.monitor.add(bytes, stat.size_bytes);
            if self.is_later_name(&stat) {
                return self.sink.take(EntryPlan::SameInode { path, stat, was_there });
            }
        }
        self.sink.take(EntryPlan::Read { path, stat, was_there })
    }

    fn show(&self, act: EntryAct, path: &[u8]) {
        self.monitor.entry(act, || shown_from_root(path));
    }

    /// Whether an earlier name of this file was processed already.
    fn is_later_name(&mut self, stat: &Stat) -> bool {
        if stat.links < 2 {
            return false;
        }
        match self.linked.entry(stat.identity()) {
            Slot::Vacant(slot) => {
                slot.insert(stat.links - 1);
                return false;
            }
            Slot::Occupied(mut left) if *left.get() > 1 => *left.get_mut() -= 1,
            Slot::Occupied(left) => drop(left.remove()),
        }
        self.monitor.add(Counter::LinkedBytes, stat.size_bytes);
        true
    }

    /// Whether content and metadata can be reused without reading. ctime changes with both and
    /// cannot be set back; a ctime that is not older than the previous backup may hide a change
    /// within the same clock tick.
    fn is_unchanged(&mut self, previous: &Entry, sight: Sight, stat: &Stat) -> bool {
        previous.meta.kind == stat.kind
            && previous.ctime == stat.ctime
            && previous.meta.mtime == stat.mtime
            && previous.inode == stat.inode
            && previous.size == stat.size_bytes
            && stat.ctime < sight.began
            && self.store_has(&previous.content, sight.is_whole)
    }

    /// Whether the store still has all of a file's content: a chunk that the store lost is stored
    /// again from a file that still has it. Nothing protects the chunks of an interrupted backup
    /// from deletion, so each must be claimed separately.
    fn store_has(&mut self, content: &Content, is_kept: bool) -> bool {
        let Comparison { index, is_doubtful, previous, .. } = &mut self.comparison;
        let (is_doubtful, claims) = (*is_doubtful || !is_kept, self.claims);
        let has = |id: &ChunkId| {
            let known = match is_doubtful {
                true => index.rely_on(id).is_ok_and(|known| known),
                false => index.may_have(id),
            };
            known || claims.has(id)
        };
        let has_all = |rows: &[ChunkRow]| rows.iter().all(|row| has(&row.id));
        match content {
            Content::Chunks(rows) => has_all(rows),
            Content::Lists(lists) => lists.iter().all(|list| {
                let mut is_whole = || {
                    previous.list(&list.id).is_some_and(|rows| rows.is_ok_and(|it| has_all(&it)))
                };
                has(&list.id) && (!is_doubtful || is_whole())
            }),
        }
    }
}

/// Returns a walk of one source and the sources below it; its places are absolute paths.
fn walker(
    source: &[u8],
    below: &[Vec<u8>],
    exclude: &Exclude,
    one_file_system: bool,
) -> Result<Walker> {
    let absolute = [b"/", source].concat();
    let prefix = if source.is_empty() { Vec::new() } else { absolute.clone() };
    let options = walk::WalkOptions {
        one_file_system,
        exclude: exclude.clone(),
        named: below.iter().map(|path| [b"/", &path[..]].concat()).collect(),
        ..walk::WalkOptions::default()
    };
    Walker::new(path(&absolute), prefix, options)
}

/// Counts all entries ahead of the backup, for a progress bar.
fn estimate(
    sources: &[Vec<u8>],
    exclude: &Exclude,
    one_file_system: bool,
    monitor: &Monitor,
    abort: &Abort,
) {
    let (mut bytes, mut entries) = (0, 0);
    for group in groups(sources) {
        // Errors are reported by the backup's own walk.
        let Ok(walker) = walker(&group[0], &group[1..], exclude, one_file_system) else { continue };
        for batch in walker.batches() {
            if abort.is_raised() {
                return;
            }
            for item in batch.iter() {
                if let walk::WalkItem::Found(found) = item {
                    entries += 1;
                    if found.stat.kind == FileKind::File {
                        bytes += found.stat.size_bytes;
                    }
                }
            }
        }
    }
    monitor.set_total(bytes, entries);
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Returns the path of something below a source, from the file system's root.
fn join(source: &[u8], below: &[u8]) -> Vec<u8> {
    match (source.is_empty(), below.is_empty()) {
        (_, true) => source.to_vec(),
        (true, _) => below.to_vec(),
        _ => [source, b"/", below].concat(),
    }
}

/// Returns each source that is below no other one, together with the sources below it.
fn groups(sources: &[Vec<u8>]) -> impl Iterator<Item = &[Vec<u8>]> {
    let mut rest = sources;
    std::iter::from_fn(move || {
        let top = rest.first()?;
        let (group, others) = rest.split_at(rest.partition_point(|it| is_at_or_below(it, top)));
        rest = others;
        Some(group)
    })
}

/// Returns the directories above a source, topmost first.
fn ancestors(source: &[u8]) -> impl Iterator<Item = &[u8]> {
    source.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &source[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_below_another_one_are_walked_with_it() {
        let sources = ["a", "a/b", "a/b/c", "a.b", "d"].map(|path| path.as_bytes().to_vec());
        let groups: Vec<_> = groups(&sources).collect();
        assert_eq!(groups, [&sources[..3], &sources[3..4], &sources[4..]]);
        let everything = [b"".to_vec(), b"a".to_vec(), b"b".to_vec()];
        assert_eq!(super::groups(&everything).count(), 1);
    }

    #[test]
    fn sources_and_what_is_above_them() {
        let above: Vec<_> = ancestors(b"home/user/docs").collect();
        assert_eq!(above, [&b"home"[..], b"home/user"]);
        assert_eq!(ancestors(b"etc").count() + ancestors(b"").count(), 0);
        assert_eq!(join(b"a", b"b/c"), b"a/b/c");
        assert_eq!((join(b"", b"b"), join(b"a", b"")), (b"b".to_vec(), b"a".to_vec()));
    }
}
