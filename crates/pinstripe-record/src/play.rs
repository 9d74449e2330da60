//! A take played back: all of its streams, read by one thread through rings, interleaved for a sink.
//!
//! A sink without a clock of its own (`null`) is given one: at any moment as many frames are due as the
//! rate says, and what is not there then is an underrun, counted in frames. Those frames are left out
//! when they come, so that all streams stay aligned. A pipe or file takes what it can, and is waited
//! for.

#![allow(clippy::disallowed_methods, reason = "reads and plays in threads, and waits for rings")]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;

use crate::recover::all_folders;
use crate::ring::{Arena, Found, Ring, RingConsumer, RingProducer};
use crate::sample::StreamShape;
use crate::take::{DiskFolder, Manifest, RecordedPiece, TakeFile, TakeFolder};

/// Frames that are handed to the sink at a time.
const BLOCK_FRAMES: u64 = 512;
/// The interval of looks at a ring that is full or empty, as of the recorder.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Where a take is played to.
pub enum PlaySink {
    /// Nowhere, at the rate of the take.
    Null,
    /// A pipe or file, as fast as that takes it.
    Pipe(File),
}

/// What is played.
#[derive(Debug, Clone)]
pub struct PlayPlan {
    /// Where to begin.
    pub from: Duration,
    /// The most that is played.
    pub most: Option<Duration>,
    /// Bytes of each ring, a power of two.
    pub ring_bytes: u64,
    /// Streams, by number from 0 on; none means all.
    pub streams: Vec<usize>,
}

/// How it went.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlayOutcome {
    /// Streams that were played.
    pub streams: usize,
    /// Frames of each.
    pub frames: u64,
    /// The number of blocks in which a stream had too little.
    pub underruns: u64,
    /// Frames that were missing in them.
    pub missing_frames: u64,
    /// The longest read of the disk.
    pub longest_read: Duration,
}

/// Plays the take in this directory until its end, or `stop` is set.
///
/// # Errors
/// [`Kind::NotFound`] where there is none; [`Kind::Usage`] for streams of different forms, which no
/// sink takes together; as the system says for files and the sink.
pub fn play(
    path: &Path,
    plan: &PlayPlan,
    sink: PlaySink,
    (stop, monitor): (&Stop, &Monitor),
) -> Result<PlayOutcome> {
    let folder: Arc<dyn TakeFolder> = Arc::new(DiskFolder::open(path)?);
    let manifest = Manifest::load(&*folder)?;
    let folders = all_folders(folder, &manifest, monitor);
    let chosen: Vec<usize> = match plan.streams.is_empty() {
        true => (0..manifest.streams.len()).collect(),
        false => plan.streams.clone(),
    };
    let shape = common_shape(&manifest, &chosen)?;
    let frames_of = |it: Duration| (it.as_secs_f64() * f64::from(shape.rate)) as u64;
    let from = frames_of(plan.from);
    let most = plan.most.map_or(u64::MAX, frames_of);
    let arena = Arc::new(Arena::new(chosen.len() * plan.ring_bytes as usize)?);
    let (mut readers, mut consumers) = (Vec::new(), Vec::new());
    for (number, stream) in chosen.iter().enumerate() {
        let offset = number * plan.ring_bytes as usize;
        let (ring, producer) = Ring::new(&arena, offset, plan.ring_bytes, shape.frame_bytes(), 1)?;
        readers.push(StreamReader::new(&manifest, &folders, *stream, (from, most), producer));
        consumers.push(RingConsumer::new(ring, 0));
    }
    let over = AtomicBool::new(false);
    let longest = AtomicU64::new(0);
    let (skip, gathered) = (vec![0; chosen.len()], Vec::new());
    let mut player = Player { shape, consumers, sink, skip, gathered, stop };
    let (read, played) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| read_all(readers, &shape, &over, &longest));
        let played = player.run(&reading_state(&reading));
        over.store(true, Ordering::Release);
        // A panic is reported where it happened.
        let read =
            reading.join().unwrap_or_else(|_| Err(Error::new(Kind::Io, "reading ended early")));
        (read, played)
    });
    let mut outcome = played?;
    read?;
    outcome.longest_read = Duration::from_nanos(longest.into_inner());
    Ok(outcome)
}

/// Whether the reader still reads.
fn reading_state<'a, T>(
    reading: &'a std::thread::ScopedJoinHandle<'_, T>,
) -> impl Fn() -> bool + 'a {
    || !reading.is_finished()
}

/// The one form that all chosen streams have.
fn common_shape(manifest: &Manifest, chosen: &[usize]) -> Result<StreamShape> {
    let shape = |number: &usize| {
        manifest.streams.get(*number).map(|it| it.shape).ok_or_else(|| {
            Error::new(Kind::Usage, format!("there is no stream {}", number + 1))
                .expected(format!("1 to {}", manifest.streams.len()), number + 1)
        })
    };
    let shapes = chosen.iter().map(shape).collect::<Result<Vec<_>>>()?;
    let first = *shapes.first().ok_or_else(|| Error::new(Kind::Usage, "the take has no stream"))?;
    match shapes.iter().all(|it| *it == first) {
        true => Ok(first),
        false => Err(Error::new(Kind::Usage, "the streams have different rates or formats")
            .advice("name those that are alike with --stream")),
    }
}

/// One stream on its way from its files to its ring.
struct StreamReader {
    pieces: Vec<(RecordedPiece, Arc<dyn TakeFolder>)>,
    open: Option<(u32, TakeFile)>,
    at: u64,
    end: u64,
    producer: RingProducer,
}

impl StreamReader {
    fn new(
        manifest: &Manifest,
        folders: &[Arc<dyn TakeFolder>],
        stream: usize,
        (from, most): (u64, u64),
        producer: RingProducer,
    ) -> Self {
        let folder_of = |piece: &RecordedPiece| {
            let wanted = manifest.directories.get(piece.directory as usize);
            let found = folders.iter().find(|it| Some(it.path()) == wanted.map(|it| it.as_path()));
            found.or_else(|| folders.first().filter(|_| manifest.directories.len() == 1)).cloned()
        };
        let mut pieces: Vec<_> = manifest
            .pieces
            .iter()
            .filter(|it| it.stream as usize == stream)
            .filter_map(|it| Some((it.clone(), folder_of(it)?)))
            .collect();
        pieces.sort_by_key(|(it, _)| (it.start_frame, std::cmp::Reverse(it.frames)));
        let ends = pieces.iter().map(|(it, _)| it.start_frame.saturating_add(it.frames));
        let end = ends.max().unwrap_or(0).min(from.saturating_add(most));
        StreamReader { pieces, open: None, at: from, end, producer }
    }

    /// Reads frames from where it is, as far as one file has them; what no file has is silence.
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
            self.open = Some((piece.piece, folder.open(&piece.file, false)?));
        }
        let Some((_, file)) = &self.open else { return Ok(()) };
        let within = self.at - piece.start_frame;
        let count = frames.min(piece.frames - within);
        out.resize((count * size) as usize, 0);
        file.device().read_at(piece.payload_at + within * size, out)?;
        self.at += count;
        Ok(())
    }
}

/// Keeps all rings full.
fn read_all(
    mut readers: Vec<StreamReader>,
    shape: &StreamShape,
    over: &AtomicBool,
    longest: &AtomicU64,
) -> Result<()> {
    let mut bytes = Vec::new();
    while !readers.is_empty() && !over.load(Ordering::Acquire) {
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

struct Player<'a> {
    shape: StreamShape,
    consumers: Vec<RingConsumer>,
    sink: PlaySink,
    /// By stream: bytes that come too late and are left out.
    skip: Vec<u64>,
    gathered: Vec<u8>,
    stop: &'a Stop,
}

impl Player<'_> {
    fn run(&mut self, is_read: &dyn Fn() -> bool) -> Result<PlayOutcome> {
        let mut outcome = PlayOutcome { streams: self.consumers.len(), ..Default::default() };
        // The clock starts when every ring has something to begin with.
        while is_read() && !self.consumers.iter().all(|it| self.has(it, BLOCK_FRAMES)) {
            if self.stop.wait(LOOK_EVERY) {
                return Ok(outcome);
            }
        }
        let size = self.shape.frame_bytes() as usize;
        let mut block = vec![0; BLOCK_FRAMES as usize * size * self.consumers.len()];
        let began = clock::monotonic();
        while !self.stop.is_set() && !self.is_over() {
            let is_paced = matches!(self.sink, PlaySink::Null);
            if is_paced {
                let due = clock::since(began).as_secs_f64() * f64::from(self.shape.rate);
                if (due as u64) < outcome.frames + BLOCK_FRAMES {
                    self.stop.wait(LOOK_EVERY);
                    continue;
                }
            } else if is_read() && !self.consumers.iter().all(|it| self.has(it, BLOCK_FRAMES)) {
                self.stop.wait(LOOK_EVERY);
                continue;
            }
            let frames = self.fill(&mut block, &mut outcome);
            if let PlaySink::Pipe(pipe) = &mut self.sink {
                let bytes = frames as usize * size * self.consumers.len();
                pipe.write_all(&block[..bytes])
                    .map_err(|error| Error::io("cannot play to", "the sink", error))?;
            }
            outcome.frames += frames;
        }
        Ok(outcome)
    }

    /// Whether a ring has so many frames, or all that there are.
    fn has(&self, consumer: &RingConsumer, frames: u64) -> bool {
        match consumer.look() {
            Found::Bytes { bytes, all } => all || bytes >= frames * self.shape.frame_bytes(),
            _ => true,
        }
    }

    fn is_over(&self) -> bool {
        self.consumers.iter().all(|it| it.look() == Found::End)
    }

    /// Interleaves the next block; its frames: of the last block those that there are.
    fn fill(&mut self, block: &mut [u8], outcome: &mut PlayOutcome) -> u64 {
        let size = self.shape.frame_bytes() as usize;
        let stride = size * self.consumers.len();
        block.fill(self.shape.format.silence());
        let mut most = 0;
        for number in 0..self.consumers.len() {
            let is_ended = self.gather(number, size);
            for (frame, bytes) in self.gathered.chunks_exact(size).enumerate() {
                let at = frame * stride + number * size;
                block[at..at + size].copy_from_slice(bytes);
            }
            let frames = (self.gathered.len() / size) as u64;
            most = most.max(frames);
            if frames < BLOCK_FRAMES && !is_ended {
                outcome.underruns += 1;
                outcome.missing_frames += BLOCK_FRAMES - frames;
                self.skip[number] += (BLOCK_FRAMES - frames) * size as u64;
                most = BLOCK_FRAMES;
            }
        }
        most
    }

    /// Takes a block of one stream out of its ring, behind what comes too late; whether the stream
    /// is at its end.
    fn gather(&mut self, number: usize, size: usize) -> bool {
        let (consumer, skip) = (&mut self.consumers[number], &mut self.skip[number]);
        self.gathered.clear();
        loop {
            let missing = BLOCK_FRAMES * size as u64 - self.gathered.len() as u64;
            match consumer.look() {
                Found::End => return true,
                Found::Bytes { bytes: 1.., .. } if missing > 0 => {}
                _ => return false,
            }
            let run = consumer.bytes(if *skip > 0 { *skip } else { missing });
            match *skip > 0 {
                true => *skip -= run.len() as u64,
                false => self.gathered.extend_from_slice(run),
            }
            let count = run.len() as u64;
            consumer.take(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{SampleFormat, fill_test};

    const SHAPE: StreamShape = StreamShape { format: SampleFormat::S24, channels: 1, rate: 48_000 };

    #[test]
    fn what_comes_too_late_is_left_out_so_that_streams_stay_aligned() {
        let arena = Arc::new(Arena::new(2 << 14).unwrap());
        let (mut producers, mut consumers) = (Vec::new(), Vec::new());
        for number in 0..2 {
            let (ring, producer) = Ring::new(&arena, number << 14, 1 << 14, 3, 1).unwrap();
            producers.push(producer);
            consumers.push(RingConsumer::new(ring, 0));
        }
        let stop = Stop::new().unwrap();
        let gathered = Vec::new();
        let mut player = Player {
            shape: SHAPE,
            consumers,
            sink: PlaySink::Null,
            skip: vec![0; 2],
            gathered,
            stop: &stop,
        };
        let mut content = vec![vec![0; 3 * 2048]; 2];
        for (number, bytes) in (0..).zip(&mut content) {
            fill_test(&SHAPE, number, 0, bytes);
        }
        let mut outcome = PlayOutcome::default();
        let mut block = vec![0; 6 * BLOCK_FRAMES as usize];
        // The second stream has 100 frames only, the rest comes after its block was due.
        producers[0].push(&content[0]);
        producers[1].push(&content[1][..300]);
        assert_eq!(player.fill(&mut block, &mut outcome), BLOCK_FRAMES);
        assert_eq!((outcome.underruns, outcome.missing_frames), (1, 412));
        assert_eq!(block[6 * 99 + 3..6 * 100], content[1][3 * 99..300]);
        assert_eq!(block[6 * 100 + 3..6 * 101], [0; 3]);
        producers[1].push(&content[1][300..]);
        for at in [512, 1024] {
            assert_eq!(player.fill(&mut block, &mut outcome), BLOCK_FRAMES);
            for (frame, both) in block.chunks(6).enumerate() {
                let here = 3 * (at + frame)..3 * (at + frame + 1);
                assert_eq!(
                    (&both[..3], &both[3..]),
                    (&content[0][here.clone()], &content[1][here])
                );
            }
        }
        assert_eq!(outcome.underruns, 1);
    }
}
