//! Reads streams from their files into their rings.

#![allow(
    clippy::disallowed_methods,
    reason = "this module polls ring buffers: a consumer must not make a system call to wake it"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};

use crate::limits::{PLAY_AHEAD_BYTES, PLAY_READERS};
use crate::ring::RingProducer;
use crate::sample::StreamShape;
use crate::shares::dealt;
use crate::take::{Manifest, RecordedFile, TakeFile, TakeFolder, open_payload};

/// The interval at which a full ring is polled, the same as in the recorder.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// One stream, which is read from its files into its ring.
pub(super) struct StreamReader {
    manifest: Arc<Manifest>,
    stream: u32,
    pieces: Vec<(RecordedFile, Arc<dyn TakeFolder>)>,
    open: Option<(u32, TakeFile)>,
    /// The end of the range of the open file for which read-ahead was requested.
    asked: u64,
    at: u64,
    end: u64,
    producer: RingProducer,
}

impl StreamReader {
    pub fn new(
        manifest: &Arc<Manifest>,
        files: &[(RecordedFile, Arc<dyn TakeFolder>)],
        stream: usize,
        (from, most): (u64, u64),
        producer: RingProducer,
    ) -> Self {
        let of_stream = files.iter().filter(|(it, _)| it.stream as usize == stream);
        let mut pieces: Vec<_> = of_stream.cloned().collect();
        pieces.sort_by_key(|(it, _)| (it.start_frame, std::cmp::Reverse(it.frames)));
        let ends = pieces.iter().map(|(it, _)| it.start_frame.saturating_add(it.frames));
        let end = ends.max().unwrap_or(0).min(from.saturating_add(most));
        let manifest = Arc::clone(manifest);
        StreamReader {
            manifest,
            stream: stream as u32,
            pieces,
            open: None,
            asked: 0,
            at: from,
            end,
            producer,
        }
    }

    /// Reads frames from the current position, at most to the end of one file; frames that are in
    /// no file become silence.
    fn read(&mut self, frames: u64, shape: &StreamShape, out: &mut Vec<u8>) -> Result<()> {
        let size = shape.frame_bytes();
        let here = self
            .pieces
            .iter()
            .find(|(it, _)| it.start_frame <= self.at && self.at - it.start_frame < it.frames);
        let Some((piece, folder)) = here else {
            let later = self.pieces.iter().map(|(it, _)| it.start_frame).filter(|it| *it > self.at);
            let next = later.min().unwrap_or(self.end);
            let count = frames.min(next - self.at).max(1);
            out.clear();
            out.resize((count * size) as usize, shape.format.silence());
            self.at += count;
            return Ok(());
        };
        if self.open.as_ref().is_none_or(|(number, _)| *number != piece.piece) {
            let file = open_payload(&**folder, &self.manifest, self.stream, (&piece.file, false))?;
            (self.open, self.asked) = (Some((piece.piece, file)), 0);
        }
        let Some((_, file)) = &self.open else { return Ok(()) };
        let within = self.at - piece.start_frame;
        let count = frames.min(piece.frames - within);
        out.resize((count * size) as usize, 0);
        let (from, end) = (piece.payload_at + within * size, piece.frames.saturating_mul(size));
        self.asked = read_ahead(file, (self.asked, from), piece.payload_at.saturating_add(end));
        file.device().read_at(from, out)?;
        self.at += count;
        Ok(())
    }
}

/// Requests more read-ahead if little of the previously requested range is left. Returns the end of
/// the requested range.
fn read_ahead(file: &TakeFile, (asked, from): (u64, u64), end: u64) -> u64 {
    let wanted = from.saturating_add(PLAY_AHEAD_BYTES).min(end);
    let first = asked.max(from);
    if first >= wanted || first - from > PLAY_AHEAD_BYTES / 2 {
        return asked;
    }
    file.read_ahead(first..wanted);
    wanted
}

/// Keeps all rings full, by several threads that share the streams. The first error ends all
/// threads.
pub(super) fn read_all(
    readers: Vec<StreamReader>,
    shape: &StreamShape,
    over: &AtomicBool,
    longest: &AtomicU64,
) -> Result<()> {
    let threads = readers.len().clamp(1, PLAY_READERS);
    let has_failed = AtomicBool::new(false);
    let read = |share| {
        let is_over = || over.load(Ordering::Acquire) || has_failed.load(Ordering::Acquire);
        let done = read_share(share, shape, &is_over, longest);
        has_failed.fetch_or(done.is_err(), Ordering::AcqRel);
        done
    };
    std::thread::scope(|scope| {
        let started: Vec<_> =
            dealt(readers, threads).into_iter().map(|share| scope.spawn(|| read(share))).collect();
        let ended_early = || Err(Error::new(Kind::Io, "reading the take ended early"));
        let join = |it: ScopedJoinHandle<'_, _>| it.join().unwrap_or_else(|_| ended_early());
        started.into_iter().map(join).fold(Ok(()), Result::and)
    })
}

fn read_share(
    mut readers: Vec<StreamReader>,
    shape: &StreamShape,
    is_over: &dyn Fn() -> bool,
    longest: &AtomicU64,
) -> Result<()> {
    let mut bytes = Vec::new();
    while !readers.is_empty() && !is_over() {
        let mut is_idle = true;
        for reader in &mut readers {
            let frames = (reader.producer.room() / shape.frame_bytes())
                .min(reader.end.saturating_sub(reader.at));
            let is_little = reader.producer.room() < reader.producer.ring_bytes() / 4;
            if frames == 0 || (is_little && frames < reader.end - reader.at) {
                continue;
            }
            is_idle = false;
            let began = clock::monotonic();
            reader.read(frames, shape, &mut bytes)?;
            longest.fetch_max(clock::since(began).as_nanos() as u64, Ordering::Relaxed);
            reader.producer.push(&bytes);
        }
        // A reader that is dropped ends its ring.
        readers.retain(|it| it.at < it.end);
        if is_idle {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    Ok(())
}
