//! A restore's threads: fetchers read records in pack order, decoders write them where they belong.
//!
//! The caller plans: it walks the snapshot in path order, makes directories at once, and gathers
//! the chunks of files until a plan's worth is together. Those are sorted by where they are, so
//! that every record is read and decoded once for all files that want it. Files are written out of
//! order; the last piece of a file finishes it. A file that cannot be restored whole is removed.

mod chosen;
mod compare;
mod extras;
mod finish;
mod planner;
mod verify;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crossbeam_channel::{Receiver, Sender, bounded};

pub use chosen::{ChosenReader, Filter, Owners};
pub use compare::differing_bytes;
pub use extras::extras;
pub use finish::finish_tree;
pub use verify::verify;

pub(in crate::pipeline) use planner::Offsets;
use planner::Planner;

use crate::beneath::shown;
use crate::codec::Decoder;
use crate::error::{Error, Kind, Result};
use crate::format::entry::Entry;
use crate::format::keys::Keys;
use crate::format::meta::Metadata;
use crate::format::record::ChunkRow;
use crate::id::ChunkId;
use crate::monitor::{Counter, Monitor};
use crate::pipeline::abort::Abort;
use crate::pipeline::limits::Limits;
use crate::sink::{Existing, FileSink, Part, TreeSink, Unset};
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, FetchedRecord, PackReader, RecordPlace, wrong_place};

/// What to restore, and where to.
pub struct Plan<'a> {
    /// Reads records.
    pub packs: &'a PackReader<'a>,
    /// Knows where chunks are.
    pub index: &'a Index<'a>,
    /// Checks that chunks are what they should be.
    pub keys: &'a Keys,
    /// The target.
    pub sink: &'a TreeSink,
    /// Where the target is, for messages.
    pub to: &'a Path,
    /// What is cut off each path: the restored subtree, or nothing.
    pub strip: &'a [u8],
    /// What is taken over from files that are there already.
    pub reuse: Option<Reuse>,
    /// Threads and queues.
    pub limits: Limits,
    /// The ledger.
    pub monitor: &'a Monitor,
    /// What the mark at the top of the target says.
    pub mark: &'a [u8],
    /// Counts the entries that could not be given to their owner.
    pub disowned: AtomicU64,
    /// Paths that could not be restored.
    pub lost: Mutex<HashSet<Vec<u8>>>,
    /// Held while directories are made of which the snapshot has no entry.
    pub making: Mutex<()>,
}

/// How a file that is there is held against the one that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// One of the same size and time of change is taken as it is; others by their content.
    ByTime,
    /// Every one by its content.
    ByContent,
}

/// First name of each inode that has several.
pub type FirstNames = HashMap<(u64, u64), Vec<u8>>;

/// A file being restored.
struct Target {
    path: Vec<u8>,
    size: u64,
    meta: Metadata,
    /// Whether all of it is data: in holes, what is there could be anything.
    is_dense: bool,
    /// The file that it takes the place of.
    existing: Option<Arc<Existing>>,
    /// Ranges of that file which are as they should be; neighbours are one.
    kept: Mutex<Vec<Range<u64>>>,
    /// Pieces not yet written, plus one while the planner may add more.
    left: AtomicUsize,
    failed: AtomicBool,
    sink: Mutex<Option<Arc<FileSink>>>,
    /// For a file that may stay open over several records.
    _open: Option<Open>,
}

/// How many files that were planned may be open at this moment, shared with the planner.
#[derive(Default)]
struct OpenFiles {
    count: Mutex<usize>,
    fewer: Condvar,
}

/// One of them, until its last piece was dealt with.
struct Open(Arc<OpenFiles>);

impl OpenFiles {
    fn lock(&self) -> std::sync::MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn add(self: &Arc<Self>) -> Open {
        *self.lock() += 1;
        Open(Arc::clone(self))
    }

    /// Waits until at most so many are left.
    fn wait_for(&self, most: usize) {
        let waited = self.fewer.wait_while(self.lock(), |count| *count > most);
        drop(waited);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.fewer.notify_all();
    }
}

/// One chunk on its way into one file.
struct Piece {
    record: RecordPlace,
    raw_offset: u32,
    row: ChunkRow,
    file_offset: u64,
    target: Arc<Target>,
}

struct Task {
    record: RecordPlace,
    pieces: Vec<Piece>,
}

impl Plan<'_> {
    /// The path below the target that an entry is restored to.
    pub fn below<'e>(&self, path: &'e [u8]) -> &'e [u8] {
        if self.strip.is_empty() {
            return path; // A slash in front is no slip but an attempt: the sink refuses it.
        }
        let rest = &path[self.strip.len().min(path.len())..];
        rest.strip_prefix(b"/").unwrap_or(rest)
    }

    /// The same for what is no directory: a single file becomes an entry of the target.
    pub fn target_path<'e>(&self, entry: &'e Entry) -> &'e [u8] {
        match self.below(&entry.path) {
            [] => entry.path.rsplit(|&byte| byte == b'/').next().unwrap_or(&entry.path),
            path => path,
        }
    }

    /// Where that is, for messages.
    pub fn place(&self, path: &[u8]) -> PathBuf {
        self.to.join(shown(path))
    }

    /// Reports a path that could not be restored: once, whatever follows from that.
    fn lose(&self, path: &[u8], error: Error) {
        if self.tell(path, error) {
            self.monitor.add(Counter::LostEntries, 1);
        }
    }

    /// Reports what could not be done about a path, once; whether this was the first time.
    fn tell(&self, path: &[u8], error: Error) -> bool {
        let mut lost = self.lost.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let is_news = lost.insert(path.to_vec());
        if is_news {
            self.monitor.loss(self.place(path), error);
        }
        is_news
    }

    /// Makes an entry, and where a directory above it is missing, that one first: its own entry was
    /// lost with a page of the tree, and what is below it comes back all the same.
    fn with_parents<T>(&self, path: &[u8], make: impl Fn() -> Result<T>) -> Result<T> {
        match make() {
            Err(error) if error.kind() == Kind::NotFound => {
                self.make_parents(path)?;
                make()
            }
            made => made,
        }
    }

    /// Makes the directories above a path that are missing, and names each once. How many entries
    /// are lost is counted where the page is.
    fn make_parents(&self, path: &[u8]) -> Result<()> {
        // Threads that miss the same directory wait for the one that makes it.
        let _making = self.making.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let parent = &path[..at];
            if self.sink.has(parent) {
                continue;
            }
            self.sink.make_directory(parent)?;
            let what = "the snapshot lacks the entry of this directory: it was made with mode \
                        0700, without its owner, times and attributes";
            let error = Error::new(Kind::TooManyLosses, what);
            self.monitor.loss(self.place(parent), error.advice("set them by hand"));
        }
        Ok(())
    }

    fn is_lost(&self, path: &[u8]) -> bool {
        self.lost.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).contains(path)
    }

    fn note_unset(&self, path: &[u8], unset: Vec<Unset>) {
        for Unset { part, error } in unset {
            // Only root may give files away: that an owner stays is how others restore. It is said
            // once for all of them.
            if part == Part::Owner && !rustix::process::geteuid().is_root() {
                self.disowned.fetch_add(1, Ordering::Relaxed);
            } else {
                self.monitor.loss(self.place(path), error);
            }
        }
    }

    /// Restores directories (bare) and files. Everything else is for [`finish_tree`], which needs
    /// the first names that this returns.
    ///
    /// # Errors
    /// What ends the run: a full target. What single entries met is in the ledger.
    pub fn files(&self, tree: &mut ChosenReader<'_>) -> Result<FirstNames> {
        let abort = Abort::default();
        let first_names = std::thread::scope(|scope| {
            let (tasks, task_queue) = bounded::<Task>(4 * self.limits.fetchers);
            let (fetched, fetched_queue) = bounded(self.limits.records_queued);
            for _ in 0..self.limits.fetchers {
                let (tasks, fetched) = (task_queue.clone(), fetched.clone());
                scope.spawn(move || self.fetch(&tasks, &fetched));
            }
            for _ in 0..self.limits.workers {
                let queue = fetched_queue.clone();
                let abort = &abort;
                scope.spawn(move || self.decode(&queue, abort));
            }
            drop((task_queue, fetched, fetched_queue));
            Planner::new(self, &abort, tasks).run(tree)
        });
        abort.check().map(|()| first_names)
    }

    fn fetch(&self, tasks: &Receiver<Task>, fetched: &Sender<(Task, Result<FetchedRecord>)>) {
        for task in tasks {
            let record = self.packs.fetch_place(self.index, task.record);
            if fetched.send((task, record)).is_err() {
                break;
            }
        }
    }

    fn decode(&self, queue: &Receiver<(Task, Result<FetchedRecord>)>, abort: &Abort) {
        let mut decoder = Decoder::new();
        let mut raw = Vec::new();
        for (task, record) in queue {
            if abort.is_raised() {
                task.pieces.iter().for_each(|piece| piece.target.give_up());
                continue;
            }
            let decoded = record.and_then(|record| {
                let head = &record.head;
                decoder.decode(head.codec, record.stored(), head.raw_bytes as usize, &mut raw)
            });
            let mut verified = None;
            for piece in &task.pieces {
                let result = match &decoded {
                    Ok(()) => self.write(piece, &raw, &mut verified),
                    Err(error) => Err(error.duplicate()),
                };
                let result = result.or_else(|error| self.write_elsewhere(piece, error));
                self.settle(&piece.target, result, abort);
            }
        }
    }

    /// Writes a piece from another pack that has its chunk, for one that cannot be read where it
    /// was planned. Other errors stay what they are.
    fn write_elsewhere(&self, piece: &Piece, error: Error) -> Result<()> {
        let is_source =
            matches!(error.kind(), Kind::Corrupt | Kind::TooManyLosses | Kind::NotFound);
        if !is_source {
            return Err(error);
        }
        let mut reader = ChunkReader::new(self.packs, self.index);
        match reader.read_elsewhere(&piece.row.id, piece.record) {
            Some(chunk) if chunk.len() == piece.row.raw_bytes as usize => {
                piece.target.sink(self)?.write_at(piece.file_offset, &chunk)?;
                self.monitor.add(Counter::RestoredBytes, chunk.len() as u64);
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn write(&self, piece: &Piece, raw: &[u8], verified: &mut Option<ChunkId>) -> Result<()> {
        if piece.target.failed.load(Ordering::Relaxed) {
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
        piece.target.sink(self)?.write_at(piece.file_offset, chunk)?;
        self.monitor.add(Counter::RestoredBytes, chunk.len() as u64);
        Ok(())
    }

    /// Takes note of one piece's end, and of the file's end with the last one.
    fn settle(&self, target: &Arc<Target>, result: Result<()>, abort: &Abort) {
        if let Err(error) = result {
            target.give_up();
            self.report(target, error, abort);
        }
        if target.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        if target.failed.load(Ordering::Relaxed) {
            target.take();
            return;
        }
        if let Some(existing) = target.is_there() {
            return self.keep(&target.path, existing, &target.meta);
        }
        let finished = target.sink(self).and_then(|sink| {
            drop(target.take());
            let sink = Arc::into_inner(sink);
            let mut sink = sink.expect("the last piece is the last to hold the file");
            if let Some(existing) = &target.existing {
                sink.keep(Arc::clone(existing), target.take_kept());
            }
            sink.finish()
        });
        match finished {
            Ok(unset) => {
                self.monitor.add(Counter::RestoredEntries, 1);
                self.note_unset(&target.path, unset);
            }
            Err(error) => self.report(target, error, abort),
        }
    }

    /// Leaves a file as it is but for its metadata.
    fn keep(&self, path: &[u8], existing: &Existing, meta: &Metadata) {
        match existing.dress(meta) {
            Ok(unset) => {
                self.monitor.add(Counter::KeptEntries, 1);
                self.note_unset(path, unset);
            }
            Err(error) => self.lose(path, error),
        }
    }

    fn report(&self, target: &Target, error: Error, abort: &Abort) {
        if error.kind() == Kind::NoSpace {
            abort.raise(
                error.advice("free some room at the target and restore again with --overwrite"),
            );
        } else {
            self.lose(&target.path, error);
        }
    }
}

impl Target {
    /// The open file, made by whoever is first.
    fn sink(&self, plan: &Plan<'_>) -> Result<Arc<FileSink>> {
        let mut sink = self.sink.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(sink) = &*sink {
            return Ok(Arc::clone(sink));
        }
        let make = || plan.sink.create_file(&self.path, self.size, self.meta.clone());
        let made = Arc::new(plan.with_parents(&self.path, make)?);
        Ok(Arc::clone(sink.insert(made)))
    }

    /// The file that is there, if nothing was written and all of it is as it should be.
    fn is_there(&self) -> Option<&Existing> {
        let existing = self.existing.as_ref()?;
        let is_touched = self.sink.lock().is_ok_and(|sink| sink.is_some());
        let kept: u64 = self.kept.lock().ok()?.iter().map(|range| range.end - range.start).sum();
        let is_same =
            !is_touched && self.is_dense && existing.size_bytes() == self.size && kept == self.size;
        is_same.then_some(existing)
    }

    /// Takes note of a range that is as it should be.
    fn keep(&self, range: Range<u64>) {
        let mut kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match kept.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => kept.push(range),
        }
    }

    fn take_kept(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    fn take(&self) -> Option<Arc<FileSink>> {
        self.sink.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }

    fn give_up(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}
