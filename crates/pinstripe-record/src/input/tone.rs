//! Test streams: content that can be checked, made by a virtual clock.
//!
//! By any moment each stream has made its rate times the time since the beginning, so that no stall
//! of any thread can hide what was not recorded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};

use super::fields::{number, pairs};
use super::{InputFeed, RecordInput};
use crate::limits::CHANNELS_MAX;
use crate::sample::{SampleFormat, StreamShape, fill_test};
use crate::start::CommonStart;
use crate::take::RecordedStream;

/// The interval at which the clock makes frames: 5 ms, as sound hardware does.
const BLOCK: Duration = Duration::from_millis(5);
/// Frames that are made at a time.
const FRAMES: u64 = 1024;

/// Requested test streams.
#[derive(Debug, Clone, PartialEq)]
pub struct TestSpec {
    text: String,
    streams: usize,
    shape: StreamShape,
    frames: Option<u64>,
    is_free: bool,
    /// How much faster than this machine's its clock is.
    ppm: f64,
}

impl TestSpec {
    /// Reads `streams=,rate=,format=,channels=,frames=,pace=clock|free,ppm=`.
    ///
    /// # Errors
    /// [`Kind::Usage`](pinstripe_base::error::Kind::Usage).
    pub(super) fn parse(text: &str, rest: &str) -> Result<Self> {
        let shape = StreamShape { format: SampleFormat::S24, channels: 1, rate: 48_000 };
        let mut spec = TestSpec {
            text: text.to_owned(),
            streams: 1,
            shape,
            frames: None,
            is_free: false,
            ppm: 0.0,
        };
        let known = ["streams", "rate", "format", "channels", "frames", "pace", "ppm"];
        for (key, value) in pairs(text, rest, &known)? {
            match key {
                // More than a take may have are counted here, and refused with their memory.
                "streams" => spec.streams = number(key, value, 1, 100_000)? as usize,
                "rate" => spec.shape.rate = number(key, value, 1, 100_000_000)? as u32,
                "format" => spec.shape.format = value.parse()?,
                "channels" => {
                    spec.shape.channels = number(key, value, 1, CHANNELS_MAX.into())? as u16;
                }
                "ppm" => spec.ppm = ppm(value)?,
                "frames" => spec.frames = Some(number(key, value, 0, 1 << 50)?),
                _ => spec.is_free = is_free(value)?,
            }
        }
        Ok(spec)
    }
}

/// How far the clock is off.
fn ppm(text: &str) -> Result<f64> {
    let found = text.parse().ok().filter(|it: &f64| it.abs() <= 100_000.0);
    found.ok_or_else(|| {
        Error::new(Kind::Usage, "this is not a possible clock deviation")
            .expected("-100000 to 100000 ppm", text)
    })
}

/// Whether the clock is left out, so that streams come as fast as they can be written.
fn is_free(text: &str) -> Result<bool> {
    match text {
        "clock" => Ok(false),
        "free" => Ok(true),
        _ => {
            Err(Error::new(Kind::Usage, "this is not a possible pace")
                .expected("clock or free", text))
        }
    }
}

/// Streams made by a clock.
pub struct TestInput {
    spec: TestSpec,
    shape: StreamShape,
    count: usize,
    /// The common start of its clock.
    start: Option<Arc<CommonStart>>,
}

impl TestInput {
    /// `is_poly`: all streams as channels of one.
    pub(super) fn new(spec: TestSpec, is_poly: bool) -> Self {
        let (mut shape, mut count) = (spec.shape, spec.streams);
        let channels = count * usize::from(shape.channels);
        if is_poly && channels <= usize::from(CHANNELS_MAX) {
            (shape.channels, count) = (channels as u16, 1);
        }
        TestInput { spec, shape, count, start: None }
    }

    /// `count` streams of this form, driven by a clock.
    pub fn of(shape: StreamShape, count: usize) -> Self {
        let text = "test:".to_owned();
        let spec = TestSpec { text, streams: count, shape, frames: None, is_free: false, ppm: 0.0 };
        TestInput { spec, shape, count, start: None }
    }

    /// When its clock begins; `None` if the take ends first.
    fn begin(&self, feed: &InputFeed<'_>) -> Option<Instant> {
        let Some(start) = &self.start else { return Some(clock::monotonic()) };
        start.be_ready();
        start.wait(feed.halt)
    }

    fn make(&self, feed: &mut InputFeed<'_>, block: &mut [u8], from: u64, to: u64) -> bool {
        let bytes = self.shape.frame_bytes();
        for stream in 0..self.count {
            let mut frame = from;
            while frame < to {
                let frames = (to - frame).min(FRAMES).min(block.len() as u64 / bytes);
                let part = &mut block[..(frames * bytes) as usize];
                fill_test(&self.shape, stream as u64, frame, part);
                if self.spec.is_free && !feed.wait_for_room(stream, part.len() as u64) {
                    return false;
                }
                feed.producers[stream].push(part);
                frame += frames;
            }
        }
        true
    }
}

impl RecordInput for TestInput {
    fn streams(&self) -> Vec<RecordedStream> {
        let stream = |number: usize| RecordedStream {
            name: format!("test-{}", number + 1),
            shape: self.shape,
            source: self.spec.text.clone(),
            test: Some(number as u64),
        };
        (0..self.count).map(stream).collect()
    }

    fn is_patient(&self) -> bool {
        self.spec.is_free
    }

    fn begins_with_take(&self) -> bool {
        true
    }

    fn begin_with(&mut self, start: &Arc<CommonStart>) -> bool {
        start.join();
        self.start = Some(Arc::clone(start));
        true
    }

    fn run(&mut self, feed: &mut InputFeed<'_>) -> Result<()> {
        let rate = self.shape.rate;
        let end = self.spec.frames.unwrap_or(u64::MAX).min(feed.most_frames(rate));
        // A block for which a ring that can be waited for always comes to have room.
        let bytes = self.shape.frame_bytes() * FRAMES;
        let ring = feed.producers.first().map_or(bytes, |it| it.room());
        let block = bytes.min((ring / 4).max(self.shape.frame_bytes()));
        let mut block = vec![0; (block - block % self.shape.frame_bytes()) as usize];
        let pace = f64::from(rate) * (1.0 + self.spec.ppm / 1e6) / 1e9;
        let Some(began) = self.begin(feed) else { return Ok(()) };
        let mut made = 0;
        while made < end && !feed.halt.is_set() {
            let due = match self.spec.is_free {
                true => made + FRAMES,
                false => (clock::since(began).as_nanos() as f64 * pace) as u64,
            };
            let due = due.min(end);
            if !self.make(feed, &mut block, made, due) {
                break;
            }
            made = due;
            if !self.spec.is_free && made < end {
                feed.halt.wait(BLOCK);
            }
        }
        Ok(())
    }
}
