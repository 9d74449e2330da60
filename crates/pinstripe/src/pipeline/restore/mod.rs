//! The threads of a restore: a runner fetches records in pack order, decoders write their chunks to
//! files.
//!
//! The caller plans: it walks the snapshot in path order, makes directories at once, and collects
//! the chunks of files until a plan is full. The chunks of a plan are sorted by their place in the
//! packs, so that every record is read and decoded once for all files that need it. Files are
//! written out of order; the thread that writes the last piece of a file finishes it. A file that
//! cannot be restored completely is removed.
//!
//! Invariant: fetched records and those in flight take no more than their share of the memory,
//! whatever their lengths; see the [runner](pinstripe_prefetch::runner), which knows the plan. From
//! remote members, adjacent records are fetched as one span (`spans.rs`); each record is still
//! decoded by one thread.

mod chosen;
mod extras;
mod finish;
mod linked;
mod mounts;
mod planner;
mod settle;
mod spans;
mod target;
mod verify;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crossbeam_channel::{Receiver, bounded};
use pinstripe_prefetch::{FetchSource, Pinned, Runner};

pub(crate) use chosen::ChosenReader;
pub use chosen::{Owners, PathFilter};
pub use extras::Pass;
pub(crate) use extras::extras;
pub(crate) use finish::finish_tree;
pub(crate) use linked::LinkedFiles;
pub(crate) use mounts::LinkMounts;
pub(crate) use planner::differing_bytes;
pub use verify::verify;

pub(crate) use planner::Offsets;
use planner::Planner;
use spans::SpanTerms;
use target::Target;

use crate::pipeline::limits::Limits;
use crate::sink::{MetadataPart, TreeSink, Unset};
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, FetchedSpan, PackReader, RecordPlace, wrong_place};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ChunkId;
use pinstripe_base::monitor::{Counter, EntryAct, Monitor};
use pinstripe_base::sync::lock;
use pinstripe_io::beneath::shown;
use pinstripe_member::entry::Entry;
use pinstripe_member::keys::Keys;
use pinstripe_member::meta::FileKind;
use pinstripe_member::record::ChunkRow;
use pinstripe_stripe::{Abort, Decoder};

/// The parameters of a restore.
pub(crate) struct RestorePlan<'a> {
    /// Reads records.
    pub packs: &'a PackReader<'a>,
    /// The index, which finds chunks in packs.
    pub index: &'a Index<'a>,
    /// Verifies chunks.
    pub keys: &'a Keys,
    /// The target.
    pub sink: &'a TreeSink,
    /// The path of the target, for messages.
    pub to: &'a Path,
    /// The prefix that is removed from each path: the restored subtree, or nothing.
    pub strip: &'a [u8],
    /// How existing files are reused; `None` if they are not.
    pub reuse: Option<Reuse>,
    /// Threads and queues.
    pub limits: Limits,
    /// The ledger.
    pub monitor: &'a Monitor,
    /// The content of the mark file at the top of the target.
    pub mark: &'a [u8],
    /// The number of entries whose owner could not be set.
    pub owner_not_restored: AtomicU64,
    /// Paths that could not be restored.
    pub lost: Mutex<HashSet<Vec<u8>>>,
    /// Lost paths of files whose name is blocked in the target: another name of the file may not
    /// be.
    pub blocked: Mutex<HashSet<Vec<u8>>>,
    /// Files with several names, as they are in the target; filled in for a restore in place.
    pub linked: LinkedFiles,
    /// Locked while directories are made for which the snapshot has no entry.
    pub making: Mutex<()>,
}

/// How an existing file is compared with the file in the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// A file of the same size and modification time is considered equal; other files are compared
    /// by content.
    ByTime,
    /// Every file is compared by content.
    ByContent,
}

/// The first name of each inode with several names.
pub(crate) type FirstNames = HashMap<(u64, u64), Vec<u8>>;

/// What the first pass leaves to the later passes.
#[derive(Default)]
pub(crate) struct FirstPass {
    /// The names to which other names are linked.
    pub first_names: FirstNames,
    /// The state in which each directory was found, in the order of the snapshot.
    directories: Vec<FoundDirectory>,
}

/// The state in which a directory was found, before it was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoundDirectory {
    /// The directory did not exist.
    Missing,
    /// Mode, owner or attributes of the directory differ. The time is not compared, because it
    /// changes with every entry made in the directory.
    Different,
    /// The directory is as it should be, except perhaps for its time.
    Same,
}

/// One chunk that must be written into one file.
struct PlacedChunk {
    record: RecordPlace,
    raw_offset: u32,
    row: ChunkRow,
    file_offset: u64,
    target: Arc<Target>,
}

/// A record, the span with which it is fetched, and where its chunks must be written.
struct RecordTask<'r, 'a> {
    record: RecordPlace,
    span: Pinned<'r, StoredRecords<'a>>,
    pieces: Vec<PlacedChunk>,
}

/// Reads records in their stored form, for the prefetcher.
struct StoredRecords<'a> {
    packs: &'a PackReader<'a>,
    index: &'a Index<'a>,
    spans: SpanTerms,
}

impl FetchSource for StoredRecords<'_> {
    type Key = RecordPlace;
    type Unit = FetchedSpan;

    fn fetch(&self, place: RecordPlace) -> Result<FetchedSpan> {
        match self.spans.are_joined() {
            false => self.packs.fetch_one(self.index, place),
            true => Ok(self.packs.fetch_span(self.index, place)),
        }
    }
}

impl RestorePlan<'_> {
    /// Returns the path below the target to which a directory's entry is restored.
    pub fn below<'e>(&self, path: &'e [u8]) -> &'e [u8] {
        below(self.strip, path)
    }

    /// Returns the path below the target for any entry but a directory: a single file becomes an
    /// entry of the target.
    pub(crate) fn target_path<'e>(&self, entry: &'e Entry) -> &'e [u8] {
        target_path(self.strip, entry)
    }

    /// Returns the state of an entry's directory in the target, or `None` for the target itself if
    /// this restore made it.
    pub(crate) fn find_directory(&self, entry: &Entry) -> Option<FoundDirectory> {
        let path = self.below(&entry.path);
        if path.is_empty() && self.sink.is_new() {
            return None;
        }
        if !path.is_empty() && !self.sink.is_directory(path) {
            return Some(FoundDirectory::Missing);
        }
        Some(match self.sink.has_mode_and_owner(path, &entry.meta) {
            true => FoundDirectory::Same,
            false => FoundDirectory::Different,
        })
    }

    /// Returns the full path, for messages.
    pub fn place(&self, path: &[u8]) -> PathBuf {
        // No slash behind the target itself.
        if path.is_empty() { self.to.to_path_buf() } else { self.to.join(shown(path)) }
    }

    /// Reports a path that could not be restored, at most once.
    pub(crate) fn lose(&self, path: &[u8], error: Error) {
        if self.report(path, error) {
            self.monitor.add(Counter::LostEntries, 1);
        }
    }

    /// Reports an error with a path, at most once for each path. Returns whether the error was
    /// reported now.
    fn report(&self, path: &[u8], error: Error) -> bool {
        let mut lost = lock(&self.lost);
        let is_news = lost.insert(path.to_vec());
        if is_news {
            self.monitor.loss(self.place(path), error);
        }
        is_news
    }

    /// Makes an entry, after making the missing directories above it: the entries of these were
    /// lost with a page of the tree, but everything below them is restored.
    fn with_parents<T>(&self, path: &[u8], make: impl Fn() -> Result<T>) -> Result<T> {
        match make() {
            Err(error) if error.kind() == Kind::NotFound => {
                self.make_parents(path)?;
                make()
            }
            made => made,
        }
    }

    /// Makes the missing directories above a path, and reports each once. The number of lost
    /// entries is counted with the lost page.
    fn make_parents(&self, path: &[u8]) -> Result<()> {
        // Threads that miss the same directory wait for the one that makes it.
        let _making = lock(&self.making);
        for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let parent = &path[..at];
            if self.sink.has(parent) {
                continue;
            }
            self.sink.make_directory(parent)?;
            let what = "the snapshot lacks the metadata of this directory: the directory was \
                        created with mode 0700, without its owner, times and attributes";
            let error = Error::new(Kind::TooManyLosses, what);
            self.monitor.loss(
                self.place(parent),
                error.advice(
                    "set the mode, the owner, the times and the attributes of this directory \
                     manually",
                ),
            );
        }
        Ok(())
    }

    fn is_lost(&self, path: &[u8]) -> bool {
        lock(&self.lost).contains(path)
    }

    /// Counts an entry that is restored, and reports the metadata that the target does not keep.
    fn count_restored(&self, path: &[u8], unset: Vec<Unset>) {
        self.monitor.add(Counter::RestoredEntries, 1);
        self.monitor.entry(EntryAct::Restored, || self.place(path));
        self.note_unset(path, unset);
    }

    /// Counts an entry that the target has already.
    fn count_kept(&self, path: &[u8]) {
        self.monitor.add(Counter::KeptEntries, 1);
        self.monitor.entry(EntryAct::Unchanged, || self.place(path));
    }

    fn note_unset(&self, path: &[u8], unset: Vec<Unset>) {
        for Unset { part, error } in unset {
            // Only root may give files away, so every other user restores without owners. That is
            // reported once for all of them.
            if part == MetadataPart::Owner && !self.sink.may_give_away() {
                self.owner_not_restored.fetch_add(1, Ordering::Relaxed);
            } else {
                self.monitor.loss(self.place(path), error);
            }
        }
    }

    /// Restores files, and makes directories without their metadata. Everything else is done by
    /// [`finish_tree`], which needs the first names that this returns.
    ///
    /// # Errors
    /// Fails with the reason to end the run: the target is full. Errors of single entries are in
    /// the ledger.
    pub fn files(&self, tree: &mut ChosenReader<'_>) -> Result<FirstPass> {
        self.first_pass(tree, FirstPass::default(), None)
    }

    /// Restores, under the next name, those files with several names whose first name was blocked.
    /// Returns whether any files were restored in this way.
    ///
    /// # Errors
    /// Fails with the errors of [`files`](Self::files).
    pub(crate) fn files_under_other_names(
        &self,
        tree: &mut ChosenReader<'_>,
        first: &mut FirstPass,
    ) -> Result<bool> {
        let blocked = std::mem::take(&mut *lock(&self.blocked));
        let is_blocked = |_: &(u64, u64), path: &mut Vec<u8>| blocked.contains(path);
        let again: HashSet<_> =
            first.first_names.extract_if(is_blocked).map(|(key, _)| key).collect();
        if again.is_empty() {
            return Ok(false);
        }
        *first = self.first_pass(tree, std::mem::take(first), Some(again))?;
        Ok(true)
    }

    fn first_pass(
        &self,
        tree: &mut ChosenReader<'_>,
        first: FirstPass,
        only: Option<HashSet<(u64, u64)>>,
    ) -> Result<FirstPass> {
        let abort = Abort::default();
        let (room, reach) = (self.limits.ahead_bytes(), self.packs.reach());
        let spans = SpanTerms::new(reach, room);
        let records = StoredRecords { packs: self.packs, index: self.index, spans };
        let fetchers = self.limits.fetchers.max(reach.map_or(0, |reach| reach.reads));
        let first = Runner::scoped(records, room, fetchers, |runner| {
            std::thread::scope(|scope| {
                let (tasks, queue) = bounded::<RecordTask<'_, '_>>(spans.tasks_queued(fetchers));
                for _ in 0..self.limits.workers {
                    let (queue, abort) = (queue.clone(), &abort);
                    scope.spawn(move || {
                        // Decoders end last of all, unless one panics: the planner may wait for
                        // the room of what is in their queue.
                        let _ended = runner.end_on_drop();
                        self.decode(&queue, abort);
                    });
                }
                drop(queue);
                Planner::new(self, &abort, runner, tasks, first, only).run(tree)
            })
        });
        abort.check().map(|()| first)
    }

    fn decode(&self, queue: &Receiver<RecordTask<'_, '_>>, abort: &Abort) {
        let mut decoder = Decoder::new();
        let mut raw = Vec::new();
        for RecordTask { record, span, pieces } in queue {
            if abort.is_raised() {
                let give_up = |piece: &PlacedChunk| {
                    self.monitor.take_back(Counter::RestoredBytes, piece.target.fail());
                };
                pieces.iter().for_each(give_up);
                continue;
            }
            let decoded = span.get().and_then(|span| {
                span.take((self.packs, self.index), record, |record| {
                    let head = &record.head;
                    decoder.decode(head.codec, record.stored(), head.raw_bytes as usize, &mut raw)
                })
            });
            // Its bytes are in `raw` now.
            drop(span);
            let mut verified = None;
            // By value: a file is closed with the last piece of it, not with the last of the record.
            for piece in pieces {
                let result = match &decoded {
                    Ok(()) => self.write(&piece, &raw, &mut verified),
                    Err(error) => Err(error.duplicate()),
                };
                let result = result.or_else(|error| self.write_elsewhere(&piece, error));
                self.settle_piece(&piece.target, result, abort);
            }
        }
    }

    /// Writes a piece from another pack with the same chunk, when the planned copy cannot be read.
    /// Any other error is returned as it is.
    fn write_elsewhere(&self, piece: &PlacedChunk, error: Error) -> Result<()> {
        let is_source =
            matches!(error.kind(), Kind::Corrupt | Kind::TooManyLosses | Kind::NotFound);
        if !is_source {
            return Err(error);
        }
        let mut reader = ChunkReader::new(self.packs, self.index);
        match reader.read_elsewhere(&piece.row.id, piece.record) {
            Some(chunk) if chunk.len() == piece.row.raw_bytes as usize => {
                self.write_chunk(piece, &chunk)
            }
            _ => Err(error),
        }
    }

    fn write(&self, piece: &PlacedChunk, raw: &[u8], verified: &mut Option<ChunkId>) -> Result<()> {
        if piece.target.has_failed() {
            return Ok(());
        }
        let range = piece.raw_offset as usize..(piece.raw_offset + piece.row.raw_bytes) as usize;
        let chunk = raw.get(range).ok_or_else(|| wrong_place(&piece.row.id))?;
        // Pieces are in the order of their chunks: copies of one chunk follow each other.
        if *verified != Some(piece.row.id) {
            if self.keys.chunk_id(chunk) != piece.row.id {
                return Err(wrong_place(&piece.row.id));
            }
            *verified = Some(piece.row.id);
        }
        self.write_chunk(piece, chunk)
    }

    fn write_chunk(&self, piece: &PlacedChunk, chunk: &[u8]) -> Result<()> {
        let bytes = chunk.len() as u64;
        piece.target.file(self)?.write_at(piece.file_offset, chunk)?;
        if piece.target.count_written(bytes) {
            self.monitor.add(Counter::RestoredBytes, bytes);
        }
        Ok(())
    }
}

/// Returns the path below the target, given the prefix that is removed from each path.
pub fn below<'e>(strip: &[u8], path: &'e [u8]) -> &'e [u8] {
    if strip.is_empty() {
        return path; // A leading slash leads out of the target: the sink refuses it.
    }
    let rest = &path[strip.len().min(path.len())..];
    rest.strip_prefix(b"/").unwrap_or(rest)
}

/// Returns the path below the target of anything but a directory: a single file becomes an entry of
/// the target.
pub(crate) fn target_path<'e>(strip: &[u8], entry: &'e Entry) -> &'e [u8] {
    match below(strip, &entry.path) {
        [] if entry.meta.kind != FileKind::Directory => {
            entry.path.rsplit(|&byte| byte == b'/').next().unwrap_or(&entry.path)
        }
        path => path,
    }
}
