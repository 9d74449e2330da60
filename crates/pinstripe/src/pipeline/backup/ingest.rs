//! The ingest worker: reads files, cuts and hashes them, looks up chunks, and compresses new ones.
//!
//! A small file is read directly into the record being filled: if it turns out to be known, the
//! next file overwrites it. So new bytes are accessed only by read, hash and compressor. Every
//! worker fills records of its own, so files that are neighbours in path order are in the same
//! record.

use std::ops::Range;

use crossbeam_channel::{Receiver, Sender, select};

use super::checkpoint::Feeder;
use super::entry::{OpenedFile, plain_entry, shorten};
use super::join::EntryPlan;
use super::large::{ChunkTask, ScanTask};
use super::record::RecordBuilder;
use super::shared::{Reading, Writing};
use crate::pipeline::limits::RECORD_RAW_BYTES;
use crate::pipeline::pack::ToPacker;
use crate::pipeline::sched_slice::request_long_slices;
use crate::source::SourceFile;
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Counter;
use pinstripe_member::entry::{Content, Entry};
use pinstripe_member::meta::FileKind;
use pinstripe_member::record::{ChunkRow, RecordKind};

/// Work for any worker.
pub(crate) enum IngestJob {
    /// Consecutive entries.
    Entries(u64, Vec<EntryPlan>),
    /// Find the positions where chunks may end in a segment of a large file.
    Scan(ScanTask),
    /// Hash and store some chunks of a large file.
    Chunks(ChunkTask),
}

/// A result of a worker, which the assembler puts in order.
pub(crate) enum IngestOutcome {
    /// All entries of a job, except those that could not be read.
    Entries(u64, Vec<Assembled>),
    /// A large file's entry, which waits for this many parts of its content.
    Large(u64, Box<Entry>, usize),
    /// One part of a large file's content.
    Part(u64, usize, Vec<ChunkRow>),
}

/// An entry that is not in the tree yet.
pub(crate) enum Assembled {
    /// Complete.
    Ready(Entry),
    /// An entry without content, which is that of an earlier name of the same inode.
    SameInode(Entry),
}

/// One worker.
pub struct Worker<'a> {
    shared: &'a Reading<'a>,
    record: RecordBuilder<'a>,
    stream: Vec<u8>,
    /// Answers the calls of checkpoints.
    feeder: Feeder<'a>,
}

impl<'a> Worker<'a> {
    /// Makes a worker that passes its records to `records`.
    ///
    /// # Errors
    /// Fails when the compressor cannot be set up.
    pub fn new(
        shared: &'a Reading<'a>,
        writing: &'a Writing<'a>,
        feeder: Feeder<'a>,
        records: Sender<ToPacker>,
    ) -> Result<Self> {
        let room = RECORD_RAW_BYTES + shared.cutter.max_bytes();
        let record =
            RecordBuilder::new(writing, RecordKind::Data, RECORD_RAW_BYTES, room, records)?;
        Ok(Worker { shared, record, stream: Vec::new(), feeder })
    }

    /// Does jobs until none are left; after a fatal error, drains them without doing them.
    pub fn run(mut self, jobs: &Receiver<IngestJob>, outcomes: &Sender<IngestOutcome>) {
        request_long_slices();
        loop {
            // Before each job, since a checkpoint waits for the chunks of all earlier ones.
            self.answer_seal_call();
            let job = select! {
                recv(jobs) -> job => job,
                recv(self.feeder.calls()) -> _ => continue,
            };
            let Ok(job) = job else { break };
            if self.shared.abort.is_raised() {
                continue;
            }
            // A send fails only if the assembler panicked: otherwise it outlives the workers.
            let done = match job {
                IngestJob::Entries(seq, items) => {
                    let entries = items.into_iter().filter_map(|item| self.entry(item)).collect();
                    outcomes.send(IngestOutcome::Entries(seq, entries)).is_ok()
                }
                IngestJob::Scan(task) => {
                    task.run(self.shared);
                    true
                }
                IngestJob::Chunks(task) => {
                    let (seq, part) = (task.seq, task.part);
                    match task.run(&mut self.record) {
                        Ok(rows) => outcomes.send(IngestOutcome::Part(seq, part, rows)).is_ok(),
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
        // Answers every later call as well: no checkpoint waits for a worker that is gone.
        if let Err(error) = self.record.leave(self.feeder) {
            self.shared.abort.raise(error);
        }
    }

    /// Passes on the record being filled, when a checkpoint needs it.
    fn answer_seal_call(&mut self) {
        if let Some(ticket) = self.feeder.ticket()
            && let Err(error) = self.record.seal(ticket)
        {
            self.shared.abort.raise(error);
        }
    }

    fn entry(&mut self, item: EntryPlan) -> Option<Assembled> {
        let (path, stat, was_there, same_inode) = match item {
            EntryPlan::Unchanged(entry) => return Some(Assembled::Ready(entry)),
            EntryPlan::Read { path, stat, was_there } => (path, stat, was_there, false),
            EntryPlan::SameInode { path, stat, was_there } => (path, stat, was_there, true),
        };
        let result = match stat.kind {
            FileKind::File if !same_inode => self.file(path.clone()),
            _ => plain_entry(self.shared, path.clone(), stat),
        };
        match result {
            Ok(entry) if same_inode => Some(Assembled::SameInode(entry)),
            Ok(entry) => {
                if stat.kind == FileKind::File {
                    self.shared.count_length(stat.size_bytes, was_there, entry.size);
                }
                Some(Assembled::Ready(entry))
            }
            Err(error) => {
                self.shared.give_up(&path, &stat, was_there, error);
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
                break; // The file ends here now; if it grows again, its content differs.
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

    /// Reads one data range and cuts it into chunks of its own; returns the number of bytes read.
    fn extent(
        &mut self,
        file: &SourceFile,
        extent: Range<u64>,
        rows: &mut Vec<ChunkRow>,
    ) -> Result<u64> {
        let read = if self.shared.cutter.is_one_chunk(&extent) {
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
        if read > 0 {
            rows.push(self.record.keep_room(read)?);
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
            // `next_cut` needs the longest chunk in view to find the cut that any reader would
            // find.
            if !at_end && end - start < max_bytes {
                stream.copy_within(start..end, 0);
                (start, end) = (0, end - start);
                let wanted = (extent.end - next).min((stream.len() - end) as u64) as usize;
                let read = file.read_at(next, &mut stream[end..end + wanted])?;
                next += read as u64;
                end += read;
                // A short read is the end: the file was truncated after its extents were listed.
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
