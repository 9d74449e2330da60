//! The ingest worker: reads files, cuts, hashes, asks dedup, compresses what is new.
//!
//! A small file is read straight into the record being filled: if it turns out to be known, the
//! next one is read over it. So new bytes are touched by read, hash and compressor, and by nothing
//! else. Every worker fills records of its own; neighbours in path order land in one record.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use crossbeam_channel::{Receiver, Sender};

use super::abort::Abort;
use super::large::{ChunkTask, ScanTask};
use super::limits::RECORD_RAW_BYTES;
use super::pack::FinishedRecord;
use crate::beneath::shown;
use crate::chunk::Cutter;
use crate::codec::{Codec, Encoded, Encoder};
use crate::dedup::ChunkIndex;
use crate::error::{Error, Kind, Result};
use crate::format::entry::{Content, Entry};
use crate::format::keys::Keys;
use crate::format::meta::{FileKind, Metadata, Stat};
use crate::format::record::{ChunkRow, RECORD_MAX_CHUNKS, RecordKind};
use crate::id::ChunkId;
use crate::monitor::{Counter, Monitor};
use crate::source::{self, SourceFile};

/// What the workers of one backup share.
pub struct Ingest<'a> {
    /// The directory that all paths are relative to: the file system's root.
    pub root: BorrowedFd<'a>,
    /// Names chunks.
    pub keys: &'a Keys,
    /// Cuts content.
    pub cutter: &'a Cutter,
    /// Compresses records.
    pub codec: Codec,
    /// Knows chunks.
    pub chunks: &'a ChunkIndex,
    /// The ledger.
    pub monitor: &'a Monitor,
    /// The end of the run, if it comes early.
    pub abort: &'a Abort,
}

/// One entry for a worker or for the assembler.
pub enum Item {
    /// Taken over from the previous snapshot, content and all.
    Unchanged(Entry),
    /// To be read.
    Read {
        /// Path from the file system's root.
        path: Vec<u8>,
        /// What the walker saw.
        stat: Stat,
    },
    /// Read, but its content is another name's of the same inode that came earlier.
    SameInode {
        /// Path from the file system's root.
        path: Vec<u8>,
        /// What the walker saw.
        stat: Stat,
    },
}

/// Work for any worker.
pub enum Job {
    /// Consecutive entries.
    Entries(u64, Vec<Item>),
    /// Find where chunks may end in a piece of a large file.
    Scan(ScanTask),
    /// Hash and store chunks of a large file.
    Chunks(ChunkTask),
}

/// What the assembler puts in order.
pub enum Outcome {
    /// All entries of a job; those that could not be read are not among them.
    Entries(u64, Vec<Assembled>),
    /// A large file's entry, which awaits this many parts of its content.
    Large(u64, Box<Entry>, usize),
    /// One part of a large file's content.
    Part(u64, usize, Vec<ChunkRow>),
}

/// An entry on its way into the tree.
pub enum Assembled {
    /// Complete.
    Ready(Entry),
    /// Complete but for content, which is that of an earlier name of the same inode.
    SameInode(Entry),
}

/// One worker.
pub struct Worker<'a> {
    shared: &'a Ingest<'a>,
    record: RecordBuilder<'a>,
    stream: Vec<u8>,
}

impl<'a> Worker<'a> {
    /// A worker that hands its records to `records`.
    ///
    /// # Errors
    /// When the compressor cannot be set up.
    pub fn new(shared: &'a Ingest<'a>, records: Sender<FinishedRecord>) -> Result<Self> {
        let room = RECORD_RAW_BYTES + shared.cutter.max_bytes();
        let record = RecordBuilder::new(shared, RecordKind::Data, RECORD_RAW_BYTES, room, records)?;
        Ok(Worker { shared, record, stream: Vec::new() })
    }

    /// Works until there are no jobs left; after a fatal error only drains them.
    pub fn run(mut self, jobs: &Receiver<Job>, outcomes: &Sender<Outcome>) {
        for job in jobs {
            if self.shared.abort.is_raised() {
                continue;
            }
            // The assembler is there until all workers are gone, except when it panicked.
            let done = match job {
                Job::Entries(seq, items) => {
                    let entries = items.into_iter().filter_map(|item| self.entry(item)).collect();
                    outcomes.send(Outcome::Entries(seq, entries)).is_ok()
                }
                Job::Scan(task) => {
                    task.run(self.shared);
                    true
                }
                Job::Chunks(task) => {
                    let (seq, part) = (task.seq, task.part);
                    match task.run(&mut self.record) {
                        Ok(rows) => outcomes.send(Outcome::Part(seq, part, rows)).is_ok(),
                        Err(error) => {
                            self.shared.abort.raise(error);
                            true
                        }
                    }
                }
            };
            if !done {
                break;
            }
        }
        if let Err(error) = self.record.flush() {
            self.shared.abort.raise(error);
        }
    }

    fn entry(&mut self, item: Item) -> Option<Assembled> {
        let (path, stat, same_inode) = match item {
            Item::Unchanged(entry) => return Some(Assembled::Ready(entry)),
            Item::Read { path, stat } => (path, stat, false),
            Item::SameInode { path, stat } => (path, stat, true),
        };
        let result = match stat.kind {
            FileKind::File if !same_inode => self.file(path.clone()),
            _ => plain_entry(self.shared, path.clone(), stat),
        };
        match result {
            Ok(entry) if same_inode => Some(Assembled::SameInode(entry)),
            Ok(entry) => Some(Assembled::Ready(entry)),
            Err(error) if error.kind() == Kind::NoSpace => {
                self.shared.abort.raise(error);
                None
            }
            Err(error) => {
                self.shared.monitor.loss(shown(&path), error);
                None
            }
        }
    }

    fn file(&mut self, path: Vec<u8>) -> Result<Entry> {
        let opened = OpenedFile::open(self.shared, &path)?;
        let mut rows = Vec::with_capacity(1);
        let mut read_bytes = 0;
        for extent in &opened.extents {
            let read = self.extent(&opened.file, extent.clone(), &mut rows)?;
            read_bytes += read;
            if read < extent.end - extent.start {
                break; // The file ends here now; should it grow again, it is another one.
            }
        }
        let cut_short = read_bytes < opened.data_bytes();
        let mut entry = opened.finish(self.shared, path)?;
        entry.content = Content::Chunks(rows);
        if cut_short {
            shorten(&mut entry, &opened.extents, read_bytes);
        }
        Ok(entry)
    }

    /// Reads one run of data, cut into chunks of its own; returns how many bytes there were.
    fn extent(
        &mut self,
        file: &SourceFile,
        extent: Range<u64>,
        rows: &mut Vec<ChunkRow>,
    ) -> Result<u64> {
        let bytes = extent.end - extent.start;
        let read = if bytes <= self.shared.cutter.min_bytes() as u64 {
            self.one_chunk(file, extent, rows)?
        } else {
            self.stream(file, extent, rows)?
        };
        self.shared.monitor.add(Counter::ReadBytes, read);
        Ok(read)
    }

    fn one_chunk(
        &mut self,
        file: &SourceFile,
        extent: Range<u64>,
        rows: &mut Vec<ChunkRow>,
    ) -> Result<u64> {
        let bytes = (extent.end - extent.start) as usize;
        let read = file.read_at(extent.start, self.record.room(bytes)?)?;
        // Fixed chunks lie at multiples of their size, so even a short extent may hold a cut.
        let mut done = 0;
        while done < read {
            let offset = extent.start + done as u64;
            let rest = &self.record.room(read)?[done..read];
            let cut = self.shared.cutter.next_cut(offset, rest, true);
            if cut == read {
                rows.push(self.record.keep_room(read)?);
            } else {
                let chunk = rest[..cut].to_vec();
                let tail = rest[cut..].to_vec();
                rows.push(self.record.add(&chunk)?);
                self.record.room(read)?[done + cut..read].copy_from_slice(&tail);
            }
            done += cut;
        }
        Ok(read as u64)
    }

    fn stream(
        &mut self,
        file: &SourceFile,
        extent: Range<u64>,
        rows: &mut Vec<ChunkRow>,
    ) -> Result<u64> {
        let max_bytes = self.shared.cutter.max_bytes();
        let mut stream = std::mem::take(&mut self.stream);
        stream.resize(2 * max_bytes, 0);
        let (mut start, mut end) = (0, 0);
        let mut next = extent.start;
        let mut at_end = false;
        loop {
            if !at_end && end - start < max_bytes {
                stream.copy_within(start..end, 0);
                (start, end) = (0, end - start);
                let wanted = (extent.end - next).min((stream.len() - end) as u64) as usize;
                let read = file.read_at(next, &mut stream[end..end + wanted])?;
                next += read as u64;
                end += read;
                at_end = read < wanted || next == extent.end;
            }
            if start == end {
                break;
            }
            let offset = next - (end - start) as u64;
            let cut = self.shared.cutter.next_cut(offset, &stream[start..end], at_end);
            rows.push(self.record.add(&stream[start..start + cut])?);
            start += cut;
        }
        self.stream = stream;
        Ok(next - extent.start)
    }
}

/// A file opened for backup, with what its entry needs.
pub struct OpenedFile {
    /// The file.
    pub file: SourceFile,
    /// Its runs of data.
    pub extents: Vec<Range<u64>>,
}

impl OpenedFile {
    /// Opens `path` and asks for its runs of data.
    ///
    /// # Errors
    /// As the system says; [`Kind::Changed`] when it is no file any more.
    pub fn open(shared: &Ingest<'_>, path: &[u8]) -> Result<Self> {
        let file = SourceFile::open(shared.root, path)?;
        let extents = file.data_extents()?;
        Ok(OpenedFile { file, extents })
    }

    /// Bytes of data in all runs.
    pub fn data_bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.end - extent.start).sum()
    }

    /// Makes the entry, without content, once all was read. The times are those from before the
    /// first read: should the file have changed meanwhile, the next backup reads it again.
    ///
    /// # Errors
    /// As the system says.
    pub fn finish(&self, shared: &Ingest<'_>, path: Vec<u8>) -> Result<Entry> {
        let stat = *self.file.stat();
        if self.file.changed_since(&stat)? {
            let error = Error::new(Kind::Changed, "the file changed while it was read")
                .advice("what was read is saved; back it up again when nothing writes to it");
            shared.monitor.loss(shown(&path), error);
        }
        let found = self.file.xattrs();
        let mut entry = entry_of(path, &stat, report_xattrs(shared, found));
        let whole = matches!(self.extents[..], [Range { start: 0, end }] if end == stat.size_bytes);
        if !whole {
            entry.extents.clone_from(&self.extents);
        }
        Ok(entry)
    }
}

/// Cuts an entry down to the `read_bytes` that were there of its runs of data: the file shrank.
pub fn shorten(entry: &mut Entry, extents: &[Range<u64>], mut read_bytes: u64) {
    let mut kept = Vec::new();
    for extent in extents {
        let take = (extent.end - extent.start).min(read_bytes);
        read_bytes -= take;
        if take > 0 {
            kept.push(extent.start..extent.start + take);
        }
    }
    entry.size = kept.last().map_or(0, |extent| extent.end);
    let whole = matches!(kept[..], [Range { start: 0, end }] if end == entry.size);
    entry.extents = if whole { Vec::new() } else { kept };
}

/// An entry without content: everything that is no file, and later names of one.
fn plain_entry(shared: &Ingest<'_>, path: Vec<u8>, stat: Stat) -> Result<Entry> {
    let xattrs = report_xattrs(shared, source::xattrs_at(shared.root, &path)?);
    let mut entry = entry_of(path, &stat, xattrs);
    if stat.kind == FileKind::Symlink {
        entry.target = source::read_link(shared.root, &entry.path)?;
    }
    Ok(entry)
}

fn report_xattrs(shared: &Ingest<'_>, found: source::Xattrs) -> crate::format::meta::XattrList {
    for error in found.problems {
        let place = error.place().map(std::path::Path::to_path_buf).unwrap_or_default();
        shared.monitor.loss(place, error);
    }
    found.list
}

/// The entry of what `stat` describes, without content.
pub fn entry_of(path: Vec<u8>, stat: &Stat, xattrs: crate::format::meta::XattrList) -> Entry {
    Entry {
        path,
        meta: Metadata::new(stat, xattrs),
        ctime: stat.ctime,
        inode: stat.inode,
        device: stat.device,
        links: stat.links,
        size: stat.size_bytes,
        extents: Vec::new(),
        target: Vec::new(),
        content: Content::default(),
    }
}

/// Fills records with new chunks and hands them on, compressed.
pub struct RecordBuilder<'a> {
    shared: &'a Ingest<'a>,
    kind: RecordKind,
    full_bytes: usize,
    raw: Vec<u8>,
    filled: usize,
    rows: Vec<ChunkRow>,
    encoder: Encoder,
    records: Sender<FinishedRecord>,
}

impl<'a> RecordBuilder<'a> {
    /// A builder that closes records at `full_bytes`, with a buffer of `room_bytes`.
    ///
    /// # Errors
    /// When the compressor cannot be set up.
    pub fn new(
        shared: &'a Ingest<'a>,
        kind: RecordKind,
        full_bytes: usize,
        room_bytes: usize,
        records: Sender<FinishedRecord>,
    ) -> Result<Self> {
        Ok(RecordBuilder {
            shared,
            kind,
            full_bytes,
            raw: vec![0; room_bytes],
            filled: 0,
            rows: Vec::new(),
            encoder: Encoder::new(shared.codec)?,
            records,
        })
    }

    /// A buffer of `bytes` bytes behind the chunks of the record being filled, for a chunk that
    /// may become part of it by [`keep_room`](Self::keep_room).
    ///
    /// # Errors
    /// Those of the compressor, when the record had to be closed for it.
    pub fn room(&mut self, bytes: usize) -> Result<&mut [u8]> {
        if self.filled + bytes > self.raw.len() {
            self.flush()?;
            let most = self.raw.len().max(bytes);
            self.raw.resize(most, 0);
        }
        Ok(&mut self.raw[self.filled..self.filled + bytes])
    }

    /// Takes the first `bytes` bytes of the room as a chunk, stored only if it is new.
    ///
    /// # Errors
    /// Those of the compressor.
    pub fn keep_room(&mut self, bytes: usize) -> Result<ChunkRow> {
        let chunk = &self.raw[self.filled..self.filled + bytes];
        let row = ChunkRow { id: self.shared.keys.chunk_id(chunk), raw_bytes: bytes as u32 };
        if self.claim(row.id, bytes) {
            self.filled += bytes;
            self.rows.push(row);
            self.flush_if_full()?;
        }
        Ok(row)
    }

    /// Takes a chunk from elsewhere, stored only if it is new.
    ///
    /// # Errors
    /// Those of the compressor.
    pub fn add(&mut self, chunk: &[u8]) -> Result<ChunkRow> {
        let row = ChunkRow { id: self.shared.keys.chunk_id(chunk), raw_bytes: chunk.len() as u32 };
        if self.claim(row.id, chunk.len()) {
            if self.filled == 0 && chunk.len() >= self.full_bytes {
                return self.send(chunk, vec![row]).map(|()| row);
            }
            self.room(chunk.len())?.copy_from_slice(chunk);
            self.filled += chunk.len();
            self.rows.push(row);
            self.flush_if_full()?;
        }
        Ok(row)
    }

    fn claim(&self, id: ChunkId, bytes: usize) -> bool {
        let is_new = self.shared.chunks.claim(id);
        let monitor = self.shared.monitor;
        monitor.add(if is_new { Counter::NewChunks } else { Counter::KnownChunks }, 1);
        if is_new && self.kind == RecordKind::Data {
            monitor.add(Counter::DedupedBytes, bytes as u64);
        }
        is_new
    }

    fn flush_if_full(&mut self) -> Result<()> {
        if self.filled >= self.full_bytes || self.rows.len() >= RECORD_MAX_CHUNKS as usize {
            self.flush()?;
        }
        Ok(())
    }

    /// Closes the record being filled, if there is one.
    ///
    /// # Errors
    /// Those of the compressor.
    pub fn flush(&mut self) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        let raw = std::mem::take(&mut self.raw);
        let sent = self.send(&raw[..self.filled], rows);
        self.raw = raw;
        self.filled = 0;
        sent
    }

    fn send(&mut self, raw: &[u8], chunks: Vec<ChunkRow>) -> Result<()> {
        let mut stored = Vec::new();
        let encoded = self.encoder.encode(raw, &mut stored)?;
        if encoded == Encoded::Raw {
            stored.extend_from_slice(raw);
        }
        let codec = encoded.codec_id();
        if self.kind == RecordKind::Data {
            self.shared.monitor.add(Counter::CompressedBytes, stored.len() as u64);
        }
        let raw_bytes = raw.len() as u32;
        let record = FinishedRecord { kind: self.kind, codec, chunks, raw_bytes, stored };
        // The packer is there until all builders are gone, except when it panicked.
        let _ = self.records.send(record);
        Ok(())
    }
}
