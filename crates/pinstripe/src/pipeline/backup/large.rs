//! Large files: all workers read and scan them in segments, and one thread cuts them in order.
//!
//! A gear hash depends on the last 64 bytes, so the positions where chunks *may* end are found in
//! every segment independently. Where chunks *do* end depends on the chunk before, which is quick
//! to decide once the candidates are known. The resulting cuts are those that a single thread would
//! find.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Sender, bounded};

use super::entry::{OpenedFile, shorten};
use super::ingest::{IngestJob, IngestOutcome};
use super::record::RecordBuilder;
use super::shared::Reading;
use crate::pipeline::limits::{JOB_BYTES, SEGMENT_BYTES};
use crate::pipeline::scratch_pool::ScratchPool;
use crate::source::SourceFile;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_io::beneath::shown_from_root;
use pinstripe_member::entry::Entry;
use pinstripe_member::record::ChunkRow;
use pinstripe_stripe::{Candidates, Resolver};

/// The number of bytes before a segment on which its hashes depend.
const WARM_UP_BYTES: u64 = 64;

/// A segment of a large file in memory.
struct FileSegment {
    /// The position in the file of the segment's first byte.
    start: u64,
    /// The bytes before the segment, used only by the scan, followed by the segment's own bytes.
    bytes: Vec<u8>,
    warm_up: usize,
    /// The pool to which the buffer returns.
    pool: Arc<ScratchPool>,
}

impl Drop for FileSegment {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.bytes));
    }
}

impl FileSegment {
    fn data(&self) -> &[u8] {
        &self.bytes[self.warm_up..]
    }

    fn end(&self) -> u64 {
        self.start + self.data().len() as u64
    }
}

struct Scanned {
    number: u64,
    result: Result<(FileSegment, Candidates)>,
}

/// Reads one segment and finds the positions where chunks may end in it.
pub(crate) struct ScanTask {
    file: Arc<OpenedFile>,
    number: u64,
    range: Range<u64>,
    /// The number of bytes before the segment that belong to the same data range.
    warm_up: u64,
    reply: Sender<Scanned>,
}

impl ScanTask {
    /// Carries out the task and sends the reply to the thread that cuts the file.
    pub fn run(self, shared: &Reading<'_>) {
        let result = self.scan(shared, &self.file.file);
        // The receiver is gone when the file was given up.
        let _ = self.reply.send(Scanned { number: self.number, result });
    }

    fn scan(&self, shared: &Reading<'_>, file: &SourceFile) -> Result<(FileSegment, Candidates)> {
        let warm_up = self.warm_up as usize;
        let mut bytes = shared.segments.take();
        bytes.resize(warm_up + (self.range.end - self.range.start) as usize, 0);
        let read = file.read_at(self.range.start - self.warm_up, &mut bytes)?;
        bytes.truncate(read);
        let warm_up = warm_up.min(read);
        let (before, data) = bytes.split_at(warm_up);
        let candidates = shared.cutter.scan(before, data, self.range.start);
        Ok((
            FileSegment {
                start: self.range.start,
                bytes,
                warm_up,
                pool: Arc::clone(shared.segments),
            },
            candidates,
        ))
    }
}

/// Hashes chunks of a large file and stores those that are new.
pub(crate) struct ChunkTask {
    /// The file's number among the jobs.
    pub seq: u64,
    /// The number of this part of the file's content.
    pub part: usize,
    segments: Vec<Arc<FileSegment>>,
    chunks: Vec<Range<u64>>,
}

impl ChunkTask {
    /// Carries the task out.
    ///
    /// # Errors
    /// Fails with the errors of the compressor.
    pub fn run(self, record: &mut RecordBuilder<'_>) -> Result<Vec<ChunkRow>> {
        let mut rows = Vec::with_capacity(self.chunks.len());
        let mut fresh = FreshRun::default();
        for chunk in &self.chunks {
            let within = |segment: &&Arc<FileSegment>| {
                segment.start <= chunk.start && chunk.end <= segment.end()
            };
            let Some(segment) = self.segments.iter().find(within) else {
                // It reaches from one segment into the next: only such chunks are copied.
                let parts: Vec<_> = self.segments.iter().map(|s| part_of(s, chunk)).collect();
                rows.push(record.add(&parts.concat())?);
                continue;
            };
            let (row, is_new) = record.claim_row(part_of(segment, chunk))?;
            rows.push(row);
            if !is_new || !fresh.extend(segment, chunk, row) {
                fresh.store(record)?;
                if is_new {
                    fresh.extend(segment, chunk, row);
                }
            }
        }
        fresh.store(record)?;
        Ok(rows)
    }
}

/// New chunks that follow each other in one segment: they are put into a record without being
/// copied.
#[derive(Default)]
struct FreshRun {
    segment: Option<Arc<FileSegment>>,
    range: Range<u64>,
    rows: Vec<ChunkRow>,
}

impl FreshRun {
    /// Adds a chunk if it follows the last one; the first chunk is always added.
    fn extend(&mut self, segment: &Arc<FileSegment>, chunk: &Range<u64>, row: ChunkRow) -> bool {
        match &self.segment {
            None => {
                self.segment = Some(Arc::clone(segment));
                self.range = chunk.clone();
            }
            Some(known) if Arc::ptr_eq(known, segment) && self.range.end == chunk.start => {
                self.range.end = chunk.end;
            }
            Some(_) => return false,
        }
        self.rows.push(row);
        true
    }

    /// Passes the run of chunks on and begins a new one.
    fn store(&mut self, record: &mut RecordBuilder<'_>) -> Result<()> {
        match self.segment.take() {
            Some(segment) => {
                let rows = std::mem::take(&mut self.rows);
                record.add_claimed(part_of(&segment, &self.range), rows)
            }
            None => Ok(()),
        }
    }
}

/// Returns the bytes of `chunk` that are in `segment`.
fn part_of<'s>(segment: &'s FileSegment, chunk: &Range<u64>) -> &'s [u8] {
    let at =
        |position: u64| (position.clamp(segment.start, segment.end()) - segment.start) as usize;
    &segment.data()[at(chunk.start)..at(chunk.end)]
}

/// The queues for the parts of a large file.
pub struct Queues<'a> {
    /// To the workers.
    pub jobs: &'a Sender<IngestJob>,
    /// To the assembler.
    pub outcomes: &'a Sender<IngestOutcome>,
    /// The largest number of segments in memory.
    pub segments: usize,
}

/// Backs up one large file: sends out its scans and chunks, and its entry at the end. Returns the
/// length that was saved.
///
/// # Errors
/// Fails with the errors of opening and reading the file; parts sent out before a failure have no
/// effect.
pub(crate) fn ingest(
    shared: &Reading<'_>,
    queues: &Queues<'_>,
    seq: u64,
    path: &[u8],
) -> Result<u64> {
    let file = Arc::new(OpenedFile::open(shared, path)?);
    let mut cut = Cut { queues, seq, parts: 0, read_bytes: 0 };
    for extent in file.extents.clone() {
        if !cut.extent(shared, &file, extent)? {
            break;
        }
    }
    let (parts, read_bytes) = (cut.parts, cut.read_bytes);
    let cut_short = read_bytes < file.data_bytes();
    let mut entry = file.finish(shared, path.to_vec())?;
    if cut_short {
        shorten(&mut entry, &file.extents, read_bytes);
    }
    let saved_bytes = entry.size;
    let sent = queues.outcomes.send(IngestOutcome::Large(seq, Box::new(entry), parts));
    sent.map_err(|_| {
        Error::new(Kind::Io, "the backup thread that assembles the entries has ended")
    })?;
    Ok(saved_bytes)
}

/// Backs up a stream as one file: it is read by this thread, in order, and cut and stored like a
/// large file. `entry` is the entry of the file, without content.
///
/// # Errors
/// Fails with the errors of reading the stream; parts sent out before a failure have no effect.
pub(crate) fn ingest_stream(
    shared: &Reading<'_>,
    queues: &Queues<'_>,
    seq: u64,
    stream: &mut dyn Read,
    mut entry: Entry,
) -> Result<()> {
    let mut cut = Cut { queues, seq, parts: 0, read_bytes: 0 };
    let resolver = shared.cutter.resolver(0);
    let mut run = CutRun { resolver, chunk_start: 0, held: Vec::new() };
    let mut before = Vec::new();
    loop {
        shared.abort.check()?;
        let (start, warm_up) = (cut.read_bytes, before.len());
        let mut bytes = shared.segments.take();
        bytes.clear();
        bytes.append(&mut before);
        let wanted = SEGMENT_BYTES as u64;
        let read = stream.take(wanted).read_to_end(&mut bytes).map_err(|error| {
            let place = shown_from_root(&entry.path);
            Error::io("cannot read the stream", place, error)
                .advice("no snapshot was made, because the stream is incomplete")
        })? as u64;
        let data = &bytes[warm_up..];
        let candidates = shared.cutter.scan(&bytes[..warm_up], data, start);
        before.extend_from_slice(&data[data.len().saturating_sub(WARM_UP_BYTES as usize)..]);
        cut.read_bytes += read;
        shared.monitor.add(Counter::ReadBytes, read);
        let segment = FileSegment { start, bytes, warm_up, pool: Arc::clone(shared.segments) };
        cut.segment(&mut run, segment, &candidates)?;
        if read < wanted {
            break;
        }
    }
    cut.last(run)?;
    entry.size = cut.read_bytes;
    let sent = queues.outcomes.send(IngestOutcome::Large(seq, Box::new(entry), cut.parts));
    sent.map_err(|_| Error::new(Kind::Io, "the backup thread that assembles the entries has ended"))
}

struct Cut<'a> {
    queues: &'a Queues<'a>,
    seq: u64,
    parts: usize,
    read_bytes: u64,
}

impl Cut<'_> {
    /// Cuts one data range; returns `false` when the file ended within it.
    fn extent(
        &mut self,
        shared: &Reading<'_>,
        file: &Arc<OpenedFile>,
        extent: Range<u64>,
    ) -> Result<bool> {
        let (reply, replies) = bounded(self.queues.segments);
        let mut run = CutRun {
            resolver: shared.cutter.resolver(extent.start),
            chunk_start: extent.start,
            held: Vec::new(),
        };
        let segments = (extent.end - extent.start).div_ceil(SEGMENT_BYTES as u64);
        let (mut asked, mut next) = (0, 0);
        let mut early: BTreeMap<u64, Scanned> = BTreeMap::new();
        while next < segments {
            if shared.stop.load(Ordering::Relaxed) {
                return Err(Error::new(
                    Kind::Interrupted,
                    "the backup was stopped while it read a large file",
                ));
            }
            while asked < segments && asked < next + self.queues.segments as u64 {
                let start = extent.start + asked * SEGMENT_BYTES as u64;
                let range = start..(start + SEGMENT_BYTES as u64).min(extent.end);
                let warm_up = WARM_UP_BYTES.min(start - extent.start);
                let (file, reply) = (Arc::clone(file), reply.clone());
                self.send(IngestJob::Scan(ScanTask {
                    file,
                    number: asked,
                    range,
                    warm_up,
                    reply,
                }))?;
                asked += 1;
            }
            let scanned = match early.remove(&next) {
                Some(scanned) => scanned,
                None => {
                    // A worker answers each scan unless the run has ended. A scan whose read hangs
                    // delays a stop, but the worker would delay the end of the run as well.
                    let scanned = shared.abort.recv(&replies)?;
                    early.insert(scanned.number, scanned);
                    continue;
                }
            };
            next += 1;
            let (segment, candidates) = scanned.result?;
            let wanted = (extent.end - segment.start).min(SEGMENT_BYTES as u64);
            let ended = (segment.data().len() as u64) < wanted;
            shared.monitor.add(Counter::ReadBytes, segment.data().len() as u64);
            self.read_bytes += segment.data().len() as u64;
            self.segment(&mut run, segment, &candidates)?;
            if ended {
                self.last(run)?;
                return Ok(false);
            }
        }
        self.last(run)?;
        Ok(true)
    }

    fn segment(
        &mut self,
        run: &mut CutRun,
        segment: FileSegment,
        found: &Candidates,
    ) -> Result<()> {
        let mut cuts = Vec::new();
        run.resolver.push(segment.data(), found, &mut cuts);
        run.held.push(Arc::new(segment));
        self.hand_out(run, &cuts)
    }

    fn last(&mut self, mut run: CutRun) -> Result<()> {
        let end = run.held.last().map_or(run.chunk_start, |segment| segment.end());
        if end > run.chunk_start {
            self.hand_out(&mut run, &[end])?;
        }
        Ok(())
    }

    /// Sends out the chunks that end at `cuts`, in groups of about one record.
    fn hand_out(&mut self, run: &mut CutRun, cuts: &[u64]) -> Result<()> {
        let mut chunks = Vec::new();
        let mut bytes = 0;
        for (at, &end) in cuts.iter().enumerate() {
            chunks.push(run.chunk_start..end);
            bytes += end - run.chunk_start;
            run.chunk_start = end;
            if bytes >= JOB_BYTES || at + 1 == cuts.len() {
                let range = chunks[0].start..end;
                let touches = |segment: &&Arc<FileSegment>| {
                    segment.start < range.end && range.start < segment.end()
                };
                let segments = run.held.iter().filter(touches).cloned().collect();
                let chunks = std::mem::take(&mut chunks);
                let task = ChunkTask { seq: self.seq, part: self.parts, segments, chunks };
                self.send(IngestJob::Chunks(task))?;
                self.parts += 1;
                bytes = 0;
            }
        }
        run.held.retain(|segment| segment.end() > run.chunk_start);
        Ok(())
    }

    fn send(&self, job: IngestJob) -> Result<()> {
        let sent = self.queues.jobs.send(job);
        sent.map_err(|_| Error::new(Kind::Io, "the backup threads that read files have ended"))
    }
}

/// The state of cutting one data range.
struct CutRun {
    resolver: Resolver,
    /// The start of the chunk whose end is not known yet.
    chunk_start: u64,
    /// Segments that this chunk may extend into.
    held: Vec<Arc<FileSegment>>,
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::super::shared::with_reading;
    use super::*;
    use pinstripe_stripe::Abort;

    /// The wait has no timeout: a thread that is not woken would hang the test.
    #[test]
    fn a_raised_abort_wakes_a_thread_that_waits_for_scans() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        std::fs::write(&path, [1; 10_000]).unwrap();
        let below_root = &path.as_os_str().as_bytes()[1..];
        let abort = Abort::default();
        let ((jobs, asked), (outcomes, _outcomes)) = (bounded(1), bounded(1));
        with_reading(&abort, |shared| {
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| {
                    let queues = Queues { jobs: &jobs, outcomes: &outcomes, segments: 1 };
                    ingest(shared, &queues, 0, below_root)
                });
                // The scan is asked for, and kept: it is never answered, nor given up.
                let _scan = asked.recv().unwrap();
                abort.raise(Error::new(Kind::Corrupt, "broken on purpose"));
                assert_eq!(waiting.join().unwrap().unwrap_err().kind(), Kind::Corrupt);
            });
        });
    }
}
