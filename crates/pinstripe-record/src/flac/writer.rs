//! Writes a file as FLAC.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Caps, Device, SharedDevice, write_parts};
use pinstripe_io::pool::{Job, WorkerPool};

use super::encoder::FlacEncoder;
use super::reader::FlacReader;
use crate::limits::FLAC_WAITING_BYTES;
use crate::locks::{RankedMutex, RecordLock};
use crate::sample::StreamShape;

/// The position of the checksum of all samples in the head.
const MD5: Range<usize> = 26..42;
/// The position of the number of samples: the lower 36 bits.
const SAMPLES: Range<usize> = 18..26;

/// A device that is written with samples.
pub struct FlacWriter {
    encoding: Arc<Encoding>,
    pool: Arc<WorkerPool<'static>>,
    durable: AtomicU64,
}

/// A stream that is being encoded into its file.
struct Encoding {
    file: SharedDevice,
    shape: StreamShape,
    payload_at: u64,
    waiting: RankedMutex<PendingSamples>,
    changed: Condvar,
    /// The state of the encoding thread.
    work: RankedMutex<EncodeWork>,
    /// The number of payload bytes whose frames are in the file.
    written: AtomicU64,
    is_finished: AtomicBool,
}

/// Data that was written but is not encoded yet.
#[derive(Default)]
struct PendingSamples {
    payload: Vec<u8>,
    /// The number of all bytes that were ever given.
    given: u64,
    is_queued: bool,
    is_finishing: bool,
    failure: Option<Error>,
}

struct EncodeWork {
    encoder: FlacEncoder,
    /// The offset of the next frame.
    file_at: u64,
    /// The payload that is not in the file yet.
    kept: Vec<u8>,
    /// The number of these bytes that the encoder has received.
    encoded: usize,
    md5: Option<[u8; 16]>,
}

impl FlacWriter {
    /// An empty file whose head ends at `payload_at`.
    ///
    /// # Errors
    /// The errors of the encoder.
    pub fn new(
        file: SharedDevice,
        shape: StreamShape,
        payload_at: u64,
        pool: &Arc<WorkerPool<'static>>,
    ) -> Result<Self> {
        let encoder = FlacEncoder::new(shape)?;
        let work =
            EncodeWork { encoder, file_at: payload_at, kept: Vec::new(), encoded: 0, md5: None };
        let encoding = Encoding {
            file,
            shape,
            payload_at,
            waiting: RankedMutex::new(RecordLock::FlacWaiting, PendingSamples::default()),
            changed: Condvar::new(),
            work: RankedMutex::new(RecordLock::FlacWork, work),
            written: AtomicU64::new(0),
            is_finished: AtomicBool::new(false),
        };
        let (encoding, pool) = (Arc::new(encoding), Arc::clone(pool));
        Ok(FlacWriter { encoding, pool, durable: AtomicU64::new(0) })
    }

    /// The number of payload bytes that were durable when the last sync ended.
    pub fn durable_bytes(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Encodes all given data, including the last block, and waits for it; no more data may be
    /// given.
    ///
    /// # Errors
    /// The errors of the encoder and of the file.
    pub fn finish(&self) -> Result<()> {
        let mut waiting = self.encoding.waiting.lock();
        waiting.is_finishing = true;
        self.queue(&mut waiting);
        while !self.encoding.is_finished.load(Ordering::Acquire) {
            if let Some(failure) = &waiting.failure {
                return Err(failure.duplicate());
            }
            waiting = waiting.wait(&self.encoding.changed);
        }
        Ok(())
    }

    /// Why encoding has stopped; `None` if it has not.
    pub fn failure(&self) -> Option<Error> {
        self.encoding.waiting.lock().failure.as_ref().map(Error::duplicate)
    }

    /// Ends the payload with the frames that are in the file; no more data may be given. Returns
    /// the given bytes after these frames.
    pub(crate) fn end_here(&self) -> Vec<u8> {
        let encoding = &self.encoding;
        let waits = std::mem::take(&mut encoding.waiting.lock().payload);
        // Waits until the encoding thread has completed the work that it has begun.
        let mut work = encoding.work.lock();
        let mut left = std::mem::take(&mut work.kept);
        left.extend(waits);
        (work.encoded, work.md5) = (0, None);
        let mut waiting = encoding.waiting.lock();
        debug_assert!(waiting.given >= left.len() as u64, "what is left was given");
        waiting.given -= left.len() as u64;
        waiting.failure = None;
        encoding.is_finished.store(true, Ordering::Release);
        left
    }

    fn queue(&self, waiting: &mut PendingSamples) {
        if !std::mem::replace(&mut waiting.is_queued, true) {
            self.pool.add(Arc::<Encoding>::clone(&self.encoding));
        }
    }

    /// The head. The head contains the checksum of all samples if the stream is finished.
    fn write_head(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let encoding = &self.encoding;
        if offset != 0 || bytes.len() < MD5.end || !encoding.is_finished.load(Ordering::Acquire) {
            return encoding.file.write_at(offset, bytes);
        }
        let mut bytes = bytes.to_vec();
        let packed = bytes[SAMPLES].iter().fold(0_u64, |it, byte| it << 8 | u64::from(*byte));
        let frames = encoding.written.load(Ordering::Acquire) / encoding.shape.frame_bytes();
        if let Some(md5) = encoding.work.lock().md5.filter(|_| packed & ((1 << 36) - 1) == frames) {
            bytes[MD5].copy_from_slice(&md5);
        }
        encoding.file.write_at(offset, &bytes)
    }
}

impl Job for Encoding {
    /// Encodes until no data waits. The queue contains this stream at most once.
    fn run(&self) {
        let mut work = self.work.lock();
        loop {
            let (payload, is_last) = {
                let mut waiting = self.waiting.lock();
                let is_over = self.is_finished.load(Ordering::Acquire);
                let is_last = waiting.payload.is_empty() && waiting.is_finishing && !is_over;
                if (waiting.payload.is_empty() && !is_last) || waiting.failure.is_some() {
                    waiting.is_queued = false;
                    self.changed.notify_all();
                    return;
                }
                (std::mem::take(&mut waiting.payload), is_last)
            };
            self.changed.notify_all();
            let done =
                if is_last { self.finish(&mut work) } else { self.encode(&mut work, &payload) };
            if let Err(error) = done {
                self.waiting.lock().failure.get_or_insert(error);
            }
            if is_last {
                // In the queue for good: nothing more comes.
                let _held = self.waiting.lock();
                self.changed.notify_all();
                return;
            }
        }
    }
}

impl Encoding {
    fn encode(&self, work: &mut EncodeWork, payload: &[u8]) -> Result<()> {
        let size = self.shape.frame_bytes() as usize;
        work.kept.extend_from_slice(payload);
        let whole = work.kept.len() - work.kept.len() % size;
        work.encoder.encode(&work.kept[work.encoded..whole])?;
        work.encoded = whole;
        self.write_out(work)
    }

    fn finish(&self, work: &mut EncodeWork) -> Result<()> {
        work.md5 = work.encoder.finish()?;
        self.write_out(work)?;
        self.is_finished.store(true, Ordering::Release);
        Ok(())
    }

    fn write_out(&self, work: &mut EncodeWork) -> Result<()> {
        let (bytes, frames) = work.encoder.take();
        self.file.write_at(work.file_at, &bytes)?;
        work.file_at += bytes.len() as u64;
        let payload = frames * self.shape.frame_bytes();
        debug_assert!(payload as usize <= work.encoded, "a frame has what was encoded");
        debug_assert!(
            work.encoded <= work.kept.len(),
            "what was encoded is kept until it is written"
        );
        work.kept.drain(..payload as usize);
        work.encoded -= payload as usize;
        self.written.fetch_add(payload, Ordering::Release);
        Ok(())
    }
}

impl Device for FlacWriter {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let encoding = &self.encoding;
        let file = Arc::clone(&encoding.file);
        FlacReader::new(file, encoding.shape, encoding.payload_at)?.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let encoding = &self.encoding;
        if offset < encoding.payload_at {
            return self.write_head(offset, bytes);
        }
        let mut waiting = encoding.waiting.lock();
        if offset != encoding.payload_at + waiting.given {
            return Err(Error::new(
                Kind::Unsupported,
                "a FLAC file can only be written sequentially",
            )
            .at(encoding.file.place()));
        }
        while waiting.payload.len() >= FLAC_WAITING_BYTES && waiting.failure.is_none() {
            waiting = waiting.wait(&encoding.changed);
        }
        if let Some(failure) = &waiting.failure {
            return Err(failure.duplicate());
        }
        debug_assert!(!waiting.is_finishing, "nothing is given behind the end");
        waiting.payload.extend_from_slice(bytes);
        waiting.given += bytes.len() as u64;
        self.queue(&mut waiting);
        Ok(())
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        write_parts(self, offset, parts)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.encoding.payload_at + self.encoding.waiting.lock().given)
    }

    /// Accepts only the current length, because an incomplete frame was never encoded.
    fn set_len(&self, bytes: u64) -> Result<()> {
        let encoding = &self.encoding;
        let payload = encoding.written.load(Ordering::Acquire);
        if bytes != encoding.payload_at + payload {
            return Err(Error::new(Kind::Unsupported, "a written FLAC file cannot be truncated")
                .expected(encoding.payload_at + payload, bytes)
                .at(encoding.file.place()));
        }
        let end = encoding.work.lock().file_at;
        encoding.file.set_len(end)
    }

    fn sync(&self) -> Result<()> {
        let encoding = &self.encoding;
        let is_finished = encoding.is_finished.load(Ordering::Acquire);
        let written = encoding.written.load(Ordering::Acquire);
        encoding.file.sync()?;
        // A remainder behind the last complete frame is never written, so it needs no sync.
        let durable = if is_finished { encoding.waiting.lock().given } else { written };
        self.durable.fetch_max(durable, Ordering::AcqRel);
        Ok(())
    }

    fn discard(&self, _: Range<u64>) -> Result<()> {
        Err(Error::new(Kind::Unsupported, "space inside a FLAC file cannot be released"))
    }

    fn caps(&self) -> Caps {
        self.encoding.file.caps()
    }

    fn place(&self) -> &Path {
        self.encoding.file.place()
    }
}
