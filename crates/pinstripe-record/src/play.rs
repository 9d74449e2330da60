//! Plays a take: several threads read its streams through rings, and the streams are interleaved
//! for a sink.
//!
//! For a sink without a clock (`null`), the recorder supplies a clock: at any moment, the rate
//! determines the frames that are due. If frames are missing when they are due, this is an
//! underrun, which is counted. The missing frames are skipped when they arrive, so that all streams
//! stay aligned. A JACK server and a sound card have their own clocks. A pipe or file accepts
//! samples as fast as it can, and is waited for.

#![allow(
    clippy::disallowed_methods,
    reason = "this module reads and plays in threads, and waits for ring buffers"
)]

mod alsa;
mod jack;
mod pipe;
mod reader;
mod there;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;

use crate::directories::all_folders;
use crate::ring::{Arena, PacedConsumer, Ring, RingConsumer, RingProducer};
use crate::sample::{StreamShape, frames_in};
use crate::start::CommonStart;
use crate::take::{DiskFolder, Manifest, TakeFolder};

use alsa::CardSink;
use jack::JackSink;
use pipe::PipeSink;
use reader::{StreamReader, read_all};
use there::PlayedFiles;

/// The number of frames that are passed to the sink at a time.
const BLOCK_FRAMES: u64 = 512;
/// The interval at which an empty ring is polled, the same as in the recorder.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The destination to which a take is played.
pub enum PlaySink {
    /// No destination; the frames are consumed at the rate of the take.
    Null,
    /// A pipe or file, written as fast as it accepts data.
    Pipe(File),
    /// A file or FIFO that is opened, and written as fast as it accepts data.
    Path(PathBuf),
    /// A device of ALSA.
    Alsa(String),
    /// The ports of a JACK server that match this pattern; an empty pattern matches all hardware
    /// ports.
    Jack(String),
}

/// The plan of what to play.
#[derive(Debug, Clone)]
pub struct PlayPlan {
    /// Where to begin.
    pub from: Duration,
    /// The greatest time that is played.
    pub most: Option<Duration>,
    /// Bytes of each ring, a power of two.
    pub ring_bytes: u64,
    /// Stream numbers, from 0; empty for all streams.
    pub streams: Vec<usize>,
}

/// How it went.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlayOutcome {
    /// Streams that were played.
    pub streams: usize,
    /// Frames of each.
    pub frames: u64,
    /// The number of blocks in which a stream had too few frames.
    pub underruns: u64,
    /// The number of frames that were missing in underruns.
    pub missing_frames: u64,
    /// The number of deadlines that a server or a sound card missed (xruns).
    pub xruns: u64,
    /// The longest read from the disk.
    pub longest_read: Duration,
}

/// Plays the take in this directory until its end, or until `stop` is set.
///
/// # Errors
/// The errors of [`PreparedPlay::open`] and [`PreparedPlay::run`].
pub fn play(
    path: &Path,
    plan: &PlayPlan,
    sink: PlaySink,
    (stop, monitor): (&Stop, &Monitor),
) -> Result<PlayOutcome> {
    PreparedPlay::open(path, plan, sink, monitor)?.run(None, (stop, monitor))
}

/// A take that is ready to be played: its manifest is read, and its sink is open.
pub struct PreparedPlay {
    path: PathBuf,
    manifest: Arc<Manifest>,
    files: PlayedFiles,
    plan: PlayPlan,
    /// The numbers of the streams that are played.
    chosen: Vec<usize>,
    shape: StreamShape,
    sink: OpenSink,
}

/// An open sink, by its kind.
enum OpenSink {
    Paced(BlockSink),
    Jack(JackSink),
}

/// A sink that accepts interleaved blocks.
enum BlockSink {
    Null,
    Card(CardSink),
    Pipe(PipeSink),
}

impl PreparedPlay {
    /// Reads the manifest, and opens the sink.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the take does not exist; [`Kind::Busy`] while it is being recorded;
    /// [`Kind::Usage`] for streams of different forms, which no sink accepts together, for a rate
    /// that differs from the rate of the JACK server, and for a start after the end of the take;
    /// the errors of the files and of the sink.
    pub fn open(path: &Path, plan: &PlayPlan, sink: PlaySink, monitor: &Monitor) -> Result<Self> {
        let folder: Arc<dyn TakeFolder> = Arc::new(DiskFolder::open(path)?);
        let manifest = Arc::new(Manifest::load(&*folder)?);
        let folders = all_folders(folder, &manifest, monitor);
        let chosen: Vec<usize> = match plan.streams.is_empty() {
            true => (0..manifest.streams.len()).collect(),
            false => plan.streams.clone(),
        };
        let shape = common_shape(&manifest, &chosen)?;
        let mut files = PlayedFiles::find(&folders, &manifest, &chosen, monitor)?;
        let (from, most) =
            (frames_in(plan.from, shape.rate), plan.most.map(|it| frames_in(it, shape.rate)));
        if from > 0 && from >= files.end() {
            let end = files.end() as f64 / f64::from(shape.rate.max(1));
            return Err(Error::new(
                Kind::Usage,
                "the start position is beyond the end of the take",
            )
            .expected(
                format!("a position before {end:.1} s"),
                format!("{} s", plan.from.as_secs_f64()),
            ));
        }
        let played = (&chosen[..], from, most.unwrap_or(u64::MAX));
        files.report_absent(&folders, &manifest, played, monitor);
        let sink = match sink {
            PlaySink::Null => OpenSink::Paced(BlockSink::Null),
            PlaySink::Pipe(file) => OpenSink::Paced(BlockSink::Pipe(PipeSink::Open(file))),
            PlaySink::Path(path) => OpenSink::Paced(BlockSink::Pipe(PipeSink::open(&path)?)),
            PlaySink::Alsa(device) => {
                let card = CardSink::open(device, shape, chosen.len())?;
                OpenSink::Paced(BlockSink::Card(card))
            }
            PlaySink::Jack(pattern) => {
                let names = chosen.iter().map(|it| manifest.streams[*it].name.as_str());
                OpenSink::Jack(JackSink::open(pattern, shape, names)?)
            }
        };
        let (path, plan) = (path.to_path_buf(), plan.clone());
        Ok(PreparedPlay { path, manifest, files, plan, chosen, shape, sink })
    }

    /// The directory of the take, and its manifest.
    pub fn take(&self) -> (&Path, &Manifest) {
        (&self.path, &self.manifest)
    }

    /// The first frame of the take that is played.
    pub fn first_frame(&self) -> u64 {
        frames_in(self.plan.from, self.shape.rate)
    }

    /// Plays until the end, or until `stop` is set. With `start`, the streams that are recorded at
    /// the same time begin together with playback.
    ///
    /// # Errors
    /// Errors of files and the sink as the system reports them; an error if the JACK server ends.
    pub fn run(
        self,
        start: Option<&CommonStart>,
        (stop, monitor): (&Stop, &Monitor),
    ) -> Result<PlayOutcome> {
        let most = self.plan.most.map_or(u64::MAX, |it| frames_in(it, self.shape.rate));
        let range = (self.first_frame(), most);
        let (ring_bytes, shape) = (self.plan.ring_bytes, self.shape);
        let arena = Arc::new(Arena::new(self.chosen.len() * ring_bytes as usize)?);
        let (mut readers, mut streams) = (Vec::new(), Vec::new());
        for (number, stream) in self.chosen.iter().enumerate() {
            let offset = number * ring_bytes as usize;
            let (ring, producer) = Ring::new(&arena, offset, ring_bytes, shape.frame_bytes(), 1)?;
            readers.push(self.reader(*stream, range, producer));
            streams.push(PacedConsumer::new(RingConsumer::new(ring, 0)));
        }
        let (over, longest) = (AtomicBool::new(false), AtomicU64::new(0));
        let (read, played) = std::thread::scope(|scope| {
            let reading = scope.spawn(|| read_all(readers, &shape, &over, &longest));
            let is_read = || !reading.is_finished();
            let played = match fill(&streams, &shape, &is_read, stop) {
                false => Ok(PlayOutcome::default()),
                true => match self.sink {
                    OpenSink::Jack(sink) => sink.run(streams, shape, (start, stop, monitor)),
                    OpenSink::Paced(sink) => {
                        Player { shape, streams, sink, gathered: Vec::new(), stop }
                            .run(start, &is_read)
                    }
                },
            };
            over.store(true, Ordering::Release);
            // A panic is reported where it happened.
            let read = reading
                .join()
                .unwrap_or_else(|_| Err(Error::new(Kind::Io, "reading the take ended early")));
            (read, played)
        });
        let mut outcome = played?;
        read?;
        outcome.streams = self.chosen.len();
        outcome.longest_read = Duration::from_nanos(longest.into_inner());
        Ok(outcome)
    }

    fn reader(&self, stream: usize, range: (u64, u64), producer: RingProducer) -> StreamReader {
        StreamReader::new(&self.manifest, &self.files.pieces, stream, range, producer)
    }
}

/// Waits until every ring contains data for the beginning; returns false if `stop` is set.
fn fill(
    streams: &[PacedConsumer],
    shape: &StreamShape,
    is_read: &dyn Fn() -> bool,
    stop: &Stop,
) -> bool {
    let least = BLOCK_FRAMES * shape.frame_bytes();
    while is_read() && !streams.iter().all(|it| it.has(least)) {
        if stop.wait(LOOK_EVERY) {
            return false;
        }
    }
    !stop.is_set()
}

/// The common form of all chosen streams.
fn common_shape(manifest: &Manifest, chosen: &[usize]) -> Result<StreamShape> {
    let shape = |number: &usize| {
        manifest.streams.get(*number).map(|it| it.shape).ok_or_else(|| {
            Error::new(Kind::Usage, format!("the take has no stream {}", number + 1))
                .expected(format!("a stream from 1 to {}", manifest.streams.len()), number + 1)
        })
    };
    let shapes = chosen.iter().map(shape).collect::<Result<Vec<_>>>()?;
    let first = *shapes.first().ok_or_else(|| Error::new(Kind::Usage, "the take has no stream"))?;
    match shapes.iter().all(|it| *it == first) {
        true => Ok(first),
        false => Err(Error::new(Kind::Usage, "the streams have different sample rates or formats")
            .advice("select streams of the same rate and format with --stream")),
    }
}

struct Player<'a> {
    shape: StreamShape,
    streams: Vec<PacedConsumer>,
    sink: BlockSink,
    gathered: Vec<u8>,
    stop: &'a Stop,
}

impl Player<'_> {
    fn run(
        &mut self,
        start: Option<&CommonStart>,
        is_read: &dyn Fn() -> bool,
    ) -> Result<PlayOutcome> {
        let mut outcome = PlayOutcome::default();
        let size = self.shape.frame_bytes() as usize;
        let mut block = vec![0; BLOCK_FRAMES as usize * size * self.streams.len()];
        let Some(began) = self.begin(start)? else { return Ok(outcome) };
        while !self.stop.is_set() && !self.streams.iter().all(PacedConsumer::is_over) {
            if !self.is_due(began, &mut outcome, is_read)? {
                self.stop.wait(LOOK_EVERY);
                continue;
            }
            let frames = self.fill(&mut block, &mut outcome);
            let bytes = frames as usize * size * self.streams.len();
            let unheard = match &mut self.sink {
                BlockSink::Null => 0,
                BlockSink::Pipe(pipe) => pipe.write(&block[..bytes], self.stop).map(|()| 0)?,
                BlockSink::Card(card) => card.write(&block[..bytes])?,
            };
            outcome.frames += frames;
            self.leave_out(unheard, &mut outcome);
        }
        if let BlockSink::Card(card) = &mut self.sink {
            card.drain();
            outcome.xruns = card.xruns;
        }
        Ok(outcome)
    }

    /// Records that a card played silence for `frames` frames: frames of the streams are skipped
    /// when they arrive.
    fn leave_out(&mut self, frames: u64, outcome: &mut PlayOutcome) {
        if frames > 0 {
            let bytes = frames * self.shape.frame_bytes();
            self.streams.iter_mut().for_each(|it| it.leave_out(bytes));
            outcome.underruns += 1;
            outcome.missing_frames += frames * self.streams.len() as u64;
            outcome.frames += frames;
        }
    }

    /// Returns the moment of the first frame; `None` if playback was stopped before.
    fn begin(&mut self, start: Option<&CommonStart>) -> Result<Option<Instant>> {
        if let BlockSink::Card(card) = &mut self.sink {
            card.begin()?;
        }
        let Some(start) = start else { return Ok(Some(clock::monotonic())) };
        Ok(start.wait_for_all(self.stop).then(|| {
            let now = clock::monotonic();
            start.begin(now, None);
            now
        }))
    }

    /// Whether a block can be played now.
    fn is_due(
        &mut self,
        began: Instant,
        outcome: &mut PlayOutcome,
        is_read: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let least = BLOCK_FRAMES * self.shape.frame_bytes();
        let is_there = !is_read() || self.streams.iter().all(|it| it.has(least));
        Ok(match &mut self.sink {
            BlockSink::Null => {
                let due = clock::since(began).as_secs_f64() * f64::from(self.shape.rate);
                due as u64 >= outcome.frames + BLOCK_FRAMES
            }
            BlockSink::Pipe(_) => is_there,
            BlockSink::Card(card) => {
                let (has_room, unheard) = card.room(BLOCK_FRAMES)?;
                let is_due = has_room && (is_there || !card.is_unpaced);
                self.leave_out(unheard, outcome);
                is_due
            }
        })
    }

    /// Interleaves the streams for the next block. Returns its number of frames; the last block may
    /// be short.
    fn fill(&mut self, block: &mut [u8], outcome: &mut PlayOutcome) -> u64 {
        let size = self.shape.frame_bytes() as usize;
        let stride = size * self.streams.len();
        block.fill(self.shape.format.silence());
        let mut most = 0;
        for (number, stream) in self.streams.iter_mut().enumerate() {
            self.gathered.clear();
            let is_ended = stream.gather(BLOCK_FRAMES * size as u64, &mut self.gathered);
            for (frame, bytes) in self.gathered.chunks_exact(size).enumerate() {
                let at = frame * stride + number * size;
                block[at..at + size].copy_from_slice(bytes);
            }
            let frames = (self.gathered.len() / size) as u64;
            most = most.max(frames);
            if frames < BLOCK_FRAMES && !is_ended {
                outcome.underruns += 1;
                outcome.missing_frames += BLOCK_FRAMES - frames;
                stream.leave_out((BLOCK_FRAMES - frames) * size as u64);
                most = BLOCK_FRAMES;
            }
        }
        most
    }
}

#[cfg(test)]
mod jack_tests;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{SampleFormat, fill_test};

    const SHAPE: StreamShape = StreamShape { format: SampleFormat::S24, channels: 1, rate: 48_000 };

    #[test]
    fn what_comes_too_late_is_left_out_so_that_streams_stay_aligned() {
        let arena = Arc::new(Arena::new(2 << 14).unwrap());
        let (mut producers, mut streams) = (Vec::new(), Vec::new());
        for number in 0..2 {
            let (ring, producer) = Ring::new(&arena, number << 14, 1 << 14, 3, 1).unwrap();
            producers.push(producer);
            streams.push(PacedConsumer::new(RingConsumer::new(ring, 0)));
        }
        let stop = Stop::new().unwrap();
        let mut player = Player {
            shape: SHAPE,
            streams,
            sink: BlockSink::Null,
            gathered: Vec::new(),
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
