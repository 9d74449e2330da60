//! A restore's threads: fetchers read records in pack order, decoders write them where they belong.
//!
//! The caller plans: it walks the snapshot in path order, makes directories at once, and gathers
//! the chunks of files until a plan's worth is together. Those are sorted by where they are, so
//! that every record is read and decoded once for all files that want it. Files are written out of
//! order; the last piece of a file finishes it. A file that cannot be restored whole is removed.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::abort::Abort;
use super::limits::{Limits, PLAN_CHUNKS, PLAN_OPEN_FILES};
use crate::beneath::shown;
use crate::codec::Decoder;
use crate::error::{Error, Kind, Result};
use crate::format::entry::{Content, Entry};
use crate::format::keys::Keys;
use crate::format::meta::{FileKind, Metadata};
use crate::format::record::ChunkRow;
use crate::id::ChunkId;
use crate::monitor::{Counter, Monitor};
use crate::sink::{FileSink, Part, TreeSink, Unset};
use crate::source::SourceFile;
use crate::store::packs::{
    Catalogued, FetchedRecord, PackReader, RecordPlace, missing_chunk, wrong_place,
};
use crate::store::tree::TreeReader;

/// What to restore, and where to.
pub struct Plan<'a> {
    /// Reads records.
    pub packs: &'a PackReader<'a>,
    /// Knows where chunks are.
    pub catalogued: &'a Catalogued,
    /// Checks that chunks are what they should be.
    pub keys: &'a Keys,
    /// The target.
    pub sink: &'a TreeSink,
    /// What is cut off each path: the restored subtree, or nothing.
    pub strip: &'a [u8],
    /// Threads and queues.
    pub limits: Limits,
    /// The ledger.
    pub monitor: &'a Monitor,
}

/// First name of each inode that has several.
pub type FirstNames = HashMap<(u64, u64), Vec<u8>>;

/// A file being restored.
struct Target {
    path: Vec<u8>,
    size: u64,
    meta: Metadata,
    /// Pieces not yet written, plus one while the planner may add more.
    left: AtomicUsize,
    failed: AtomicBool,
    sink: Mutex<Option<Arc<FileSink>>>,
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
    fn below<'e>(&self, path: &'e [u8]) -> &'e [u8] {
        if self.strip.is_empty() {
            return path; // A slash in front is no slip but an attempt: the sink refuses it.
        }
        let rest = &path[self.strip.len().min(path.len())..];
        rest.strip_prefix(b"/").unwrap_or(rest)
    }

    /// The same for what is no directory: a single file becomes an entry of the target.
    fn target_path<'e>(&self, entry: &'e Entry) -> &'e [u8] {
        match self.below(&entry.path) {
            [] => entry.path.rsplit(|&byte| byte == b'/').next().unwrap_or(&entry.path),
            path => path,
        }
    }

    fn note_unset(&self, path: &[u8], unset: Vec<Unset>) {
        for Unset { part, error } in unset {
            // Only root may give files away: that an owner stays is how others restore.
            if part == Part::Owner && !rustix::process::geteuid().is_root() {
                self.monitor.warning(shown(path), error);
            } else {
                self.monitor.loss(shown(path), error);
            }
        }
    }

    /// Restores directories (bare) and files. Everything else is for [`finish_tree`], which needs
    /// the first names that this returns.
    ///
    /// # Errors
    /// What ends the run: a full target. What single entries met is in the ledger.
    pub fn files(&self, tree: &mut TreeReader<'_>) -> Result<FirstNames> {
        let abort = Abort::default();
        let planned = std::thread::scope(|scope| {
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
            let mut planner = Planner {
                plan: self,
                abort: &abort,
                tasks,
                pieces: Vec::new(),
                open_files: 0,
                first_names: FirstNames::new(),
            };
            planner.run(tree)?;
            Ok(planner.first_names)
        });
        abort.check()?;
        planned
    }

    fn fetch(&self, tasks: &Receiver<Task>, fetched: &Sender<(Task, Result<FetchedRecord>)>) {
        for task in tasks {
            let RecordPlace { pack, offset, bytes } = task.record;
            let set = self.catalogued.packs[pack as usize].set;
            let record = self.packs.fetch(set, offset, bytes);
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
                self.settle(&piece.target, result, abort);
            }
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
        piece.target.sink(self.sink)?.write_at(piece.file_offset, chunk)?;
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
        let finished = target.sink(self.sink).and_then(|sink| {
            drop(target.take());
            Arc::into_inner(sink).expect("the last piece is the last to hold the file").finish()
        });
        match finished {
            Ok(unset) => {
                self.monitor.add(Counter::RestoredEntries, 1);
                self.note_unset(&target.path, unset);
            }
            Err(error) => self.report(target, error, abort),
        }
    }

    fn report(&self, target: &Target, error: Error, abort: &Abort) {
        if error.kind() == Kind::NoSpace {
            abort.raise(
                error.advice("free some room at the target and restore again with --overwrite"),
            );
        } else {
            self.monitor.loss(shown(&target.path), error);
        }
    }
}

impl Target {
    /// The open file, made by whoever is first.
    fn sink(&self, tree: &TreeSink) -> Result<Arc<FileSink>> {
        let mut sink = self.sink.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(sink) = &*sink {
            return Ok(Arc::clone(sink));
        }
        let made = Arc::new(tree.create_file(&self.path, self.size, self.meta.clone())?);
        Ok(Arc::clone(sink.insert(made)))
    }

    fn take(&self) -> Option<Arc<FileSink>> {
        self.sink.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }

    fn give_up(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

/// Turns entries into tasks.
struct Planner<'p, 'a> {
    plan: &'p Plan<'a>,
    abort: &'p Abort,
    tasks: Sender<Task>,
    pieces: Vec<Piece>,
    open_files: usize,
    first_names: FirstNames,
}

impl Planner<'_, '_> {
    fn run(&mut self, tree: &mut TreeReader<'_>) -> Result<()> {
        loop {
            let entry = match tree.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error) => {
                    self.plan.monitor.loss("snapshot", error);
                    continue;
                }
            };
            if self.abort.is_raised() {
                break;
            }
            self.entry(tree, &entry);
            if self.pieces.len() >= PLAN_CHUNKS || self.open_files >= PLAN_OPEN_FILES {
                self.hand_out();
            }
        }
        self.hand_out();
        Ok(())
    }

    fn entry(&mut self, tree: &mut TreeReader<'_>, entry: &Entry) {
        match entry.meta.kind {
            FileKind::Directory => {
                let path = self.plan.below(&entry.path);
                if !path.is_empty()
                    && let Err(error) = self.plan.sink.make_directory(path)
                {
                    self.plan.monitor.loss(shown(path), error);
                }
            }
            FileKind::File => {
                let path = self.plan.target_path(entry).to_vec();
                let key = (entry.device, entry.inode);
                let is_later_name = entry.is_hard_linked()
                    && *self.first_names.entry(key).or_insert_with(|| path.clone()) != path;
                if !is_later_name {
                    self.file(tree, entry, path);
                }
            }
            _ => {}
        }
    }

    fn file(&mut self, tree: &mut TreeReader<'_>, entry: &Entry, path: Vec<u8>) {
        let target = Arc::new(Target {
            path,
            size: entry.size,
            meta: entry.meta.clone(),
            left: AtomicUsize::new(1),
            failed: AtomicBool::new(false),
            sink: Mutex::default(),
        });
        let planned = match &entry.content {
            Content::Chunks(rows) => {
                self.open_files += usize::from(rows.len() > 1);
                let mut offsets = Offsets::new(entry);
                self.rows(rows, &mut offsets, &target)
            }
            Content::Lists(lists) => {
                self.open_files += 1;
                let mut offsets = Offsets::new(entry);
                lists.iter().try_for_each(|list| {
                    let rows = tree.list(&list.id)?;
                    self.rows(&rows, &mut offsets, &target)?;
                    if self.pieces.len() >= PLAN_CHUNKS {
                        self.hand_out();
                    }
                    Ok(())
                })
            }
        };
        self.plan.settle(&target, planned, self.abort);
    }

    fn rows(
        &mut self,
        rows: &[ChunkRow],
        offsets: &mut Offsets,
        target: &Arc<Target>,
    ) -> Result<()> {
        for row in rows {
            let file_offset = offsets.next(row.raw_bytes)?;
            let place = self.plan.catalogued.chunks.get(&row.id);
            let place = place.ok_or_else(|| missing_chunk(&row.id))?;
            if place.raw_bytes != row.raw_bytes {
                return Err(wrong_place(&row.id));
            }
            target.left.fetch_add(1, Ordering::Relaxed);
            self.pieces.push(Piece {
                record: self.plan.catalogued.record_of(place),
                raw_offset: place.raw_offset,
                row: *row,
                file_offset,
                target: Arc::clone(target),
            });
        }
        Ok(())
    }

    /// Hands out what is planned, in the order in which the packs hold it.
    fn hand_out(&mut self) {
        self.open_files = 0;
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.sort_by_key(|piece| (piece.record, piece.raw_offset));
        let mut pieces = pieces.into_iter().peekable();
        while let Some(first) = pieces.next() {
            let record = first.record;
            let mut task = Task { record, pieces: vec![first] };
            while let Some(next) = pieces.next_if(|piece| piece.record == record) {
                task.pieces.push(next);
            }
            if self.tasks.send(task).is_err() {
                return; // The fetchers are gone only when one panicked.
            }
        }
    }
}

/// Where in its file each chunk begins.
struct Offsets {
    extents: std::vec::IntoIter<std::ops::Range<u64>>,
    current: std::ops::Range<u64>,
}

impl Offsets {
    fn new(entry: &Entry) -> Self {
        Offsets { extents: entry.data_extents().into_iter(), current: 0..0 }
    }

    fn next(&mut self, bytes: u32) -> Result<u64> {
        if self.current.is_empty() {
            self.current = self.extents.next().unwrap_or(0..0);
        }
        let start = self.current.start;
        self.current.start += u64::from(bytes);
        if self.current.start > self.current.end {
            return Err(Error::new(Kind::Corrupt, "a chunk reaches beyond its run of data"));
        }
        Ok(start)
    }
}

/// The second pass: symlinks, special files, later names of inodes, and what directories get when
/// all in them is done. One thread, since it is short work in path order.
///
/// # Errors
/// Never for single entries: they are in the ledger.
pub fn finish_tree(
    plan: &Plan<'_>,
    tree: &mut TreeReader<'_>,
    first_names: &mut FirstNames,
) -> Result<()> {
    let mut open: Vec<Entry> = Vec::new();
    loop {
        let entry = match tree.next_entry() {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            // Reported by the first pass.
            Err(_) => continue,
        };
        while open.last().is_some_and(|directory| !is_below(&entry.path, &directory.path)) {
            close(plan, open.pop().as_ref());
        }
        if entry.meta.kind == FileKind::Directory {
            open.push(entry);
            continue;
        }
        let path = plan.target_path(&entry);
        match later_entry(plan, &entry, path, first_names) {
            Ok(Some(unset)) => {
                plan.monitor.add(Counter::RestoredEntries, 1);
                plan.note_unset(path, unset);
            }
            Ok(None) => {}
            Err(error) => plan.monitor.loss(shown(path), error),
        }
    }
    while let Some(directory) = open.pop() {
        close(plan, Some(&directory));
    }
    Ok(())
}

fn later_entry(
    plan: &Plan<'_>,
    entry: &Entry,
    path: &[u8],
    first_names: &mut FirstNames,
) -> Result<Option<Vec<Unset>>> {
    if entry.is_hard_linked() {
        let key = (entry.device, entry.inode);
        let first = first_names.entry(key).or_insert_with(|| path.to_vec());
        if first != path {
            return plan.sink.hard_link(first, path).map(|()| Some(Vec::new()));
        }
    }
    match entry.meta.kind {
        FileKind::File | FileKind::Directory => Ok(None),
        FileKind::Symlink => plan.sink.symlink(path, &entry.target, &entry.meta).map(Some),
        _ => plan.sink.special(path, &entry.meta).map(Some),
    }
}

fn close(plan: &Plan<'_>, directory: Option<&Entry>) {
    let Some(directory) = directory else { return };
    let path = plan.below(&directory.path);
    match plan.sink.finish_directory(path, &directory.meta) {
        Ok(unset) => {
            plan.monitor.add(Counter::RestoredEntries, 1);
            plan.note_unset(path, unset);
        }
        Err(error) => plan.monitor.loss(shown(path), error),
    }
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    crate::format::tree::is_at_or_below(path, directory)
}

/// Reads every restored file again and holds it against the ids of its chunks.
///
/// # Errors
/// Never for single files: they are in the ledger.
pub fn verify(plan: &Plan<'_>, tree: &mut TreeReader<'_>, target: BorrowedFd<'_>) -> Result<()> {
    std::thread::scope(|scope| {
        let (files, queue) = bounded::<(Entry, Vec<ChunkRow>)>(plan.limits.jobs_queued);
        for _ in 0..plan.limits.workers {
            let queue = queue.clone();
            scope.spawn(move || {
                let mut buffer = Vec::new();
                for (entry, rows) in queue {
                    let path = plan.target_path(&entry);
                    if let Err(error) = verify_file(plan, &entry, &rows, target, path, &mut buffer)
                    {
                        plan.monitor.loss(shown(path), error);
                    }
                }
            });
        }
        drop(queue);
        loop {
            match tree.next_entry() {
                Ok(Some(entry)) if entry.meta.kind == FileKind::File => {
                    let Ok(rows) = tree.content(&entry.content) else { continue };
                    if files.send((entry, rows)).is_err() {
                        break;
                    }
                }
                Ok(Some(_)) | Err(_) => {}
                Ok(None) => break,
            }
        }
    });
    Ok(())
}

fn verify_file(
    plan: &Plan<'_>,
    entry: &Entry,
    rows: &[ChunkRow],
    target: BorrowedFd<'_>,
    path: &[u8],
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let file = SourceFile::open(target, path)?;
    if file.stat().size_bytes != entry.size {
        return Err(Error::new(Kind::Corrupt, "the restored file has another length")
            .expected(entry.size, file.stat().size_bytes));
    }
    let mut offsets = Offsets::new(entry);
    for row in rows {
        let offset = offsets.next(row.raw_bytes)?;
        buffer.resize(row.raw_bytes as usize, 0);
        let read = file.read_at(offset, buffer)?;
        if read < buffer.len() || plan.keys.chunk_id(buffer) != row.id {
            return Err(Error::new(
                Kind::Corrupt,
                format!("the restored bytes from {offset} on are not what was backed up"),
            )
            .advice("the disk of the target may be failing: restore to another one"));
        }
        plan.monitor.add(Counter::CheckedBytes, u64::from(row.raw_bytes));
    }
    Ok(())
}
