//! A sound card, or any other PCM device of ALSA.
//!
//! A sound card cannot wait: frames that do not fit in a ring are lost and counted there. Frames
//! that the card lost because it was not read in time (an xrun, EPIPE), and the time in which the
//! machine was suspended, are replaced by silence; its length is computed from the card's own rate.
//! A device without a clock (the plug-ins `file` and `null`) waits instead.

use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};

use super::fields::{number, pairs};
use super::{InputFeed, RecordInput, numbered_streams};
use crate::alsa::{AlsaPcm, CardFormat, CardTrouble, CardWish, SoundCard};
use crate::limits::{CHANNELS_MAX, NAME_BYTES};
use crate::sample::StreamShape;
use crate::start::CommonStart;
use crate::take::RecordedStream;

/// The longest wait for a card, because the end of a take cannot interrupt a wait in the library.
const WAIT: Duration = Duration::from_millis(50);
/// The time after which a card that delivers nothing is reported.
const SILENT: Duration = Duration::from_secs(5);
/// The most frames that are read at a time.
const FRAMES: usize = 1024;
const KEYS: [&str; 4] = ["rate", "channels", "format", "name"];

/// A requested device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlsaSpec {
    text: String,
    wish: CardWish,
    name: String,
}

impl AlsaSpec {
    /// Reads `DEVICE[,rate=][,channels=][,format=][,name=]`. The name of a device may contain
    /// colons, commas and keys of its own, as in `hw:CARD=PCH,DEV=0`.
    ///
    /// # Errors
    /// [`Kind::Usage`].
    pub(super) fn parse(text: &str, rest: &str) -> Result<Self> {
        let is_ours = |part: &str| {
            KEYS.iter().any(|it| part.strip_prefix(it).is_some_and(|it| it.starts_with('=')))
        };
        let mut device = rest;
        while let Some((front, part)) = device.rsplit_once(',').filter(|(_, part)| is_ours(part)) {
            debug_assert!(!part.is_empty());
            device = front;
        }
        if device.is_empty() || is_ours(device) {
            return Err(Error::new(
                Kind::Usage,
                format!("'{text}' does not contain the name of a sound device"),
            )
            .expected(
                "a device that 'arecord -L' lists, for example alsa:default or alsa:hw:0",
                "nothing",
            ));
        }
        let mut wish =
            CardWish { device: device.to_owned(), format: None, channels: None, rate: None };
        let mut name = file_name(device);
        let options = rest[device.len()..].trim_start_matches(',');
        for (key, value) in pairs(text, options, &KEYS)? {
            match key {
                "rate" => wish.rate = Some(number(key, value, 1, 10_000_000)? as u32),
                "channels" => {
                    wish.channels = Some(number(key, value, 1, CHANNELS_MAX.into())? as u16);
                }
                "format" => wish.format = Some(value.parse()?),
                _ => name = value.to_owned(),
            }
        }
        let name = name.chars().take(NAME_BYTES / 4).collect();
        Ok(AlsaSpec { text: text.to_owned(), wish, name })
    }
}

/// Converts a device to the name of a stream, which is part of a file name.
fn file_name(device: &str) -> String {
    let is_plain = |sign: char| sign.is_alphanumeric() || matches!(sign, '_' | '-' | '.');
    device.chars().map(|sign| if is_plain(sign) { sign } else { '-' }).collect()
}

/// An open device that is recorded.
pub(crate) struct AlsaInput {
    spec: AlsaSpec,
    card: AlsaPcm,
    shape: StreamShape,
    /// The number of streams.
    count: usize,
    start: Option<Arc<CommonStart>>,
}

impl AlsaInput {
    /// Opens and configures the device. If `is_poly`, all channels are in one stream.
    ///
    /// # Errors
    /// The errors of [`AlsaPcm::open`].
    pub(super) fn open(spec: AlsaSpec, is_poly: bool) -> Result<Self> {
        let card = AlsaPcm::open(&spec.wish, true)?;
        let (count, channels) = match is_poly {
            true => (1, card.channels),
            false => (usize::from(card.channels), 1),
        };
        let shape = StreamShape { format: card.format.format, channels, rate: card.rate };
        Ok(AlsaInput { spec, card, shape, count, start: None })
    }
}

impl RecordInput for AlsaInput {
    fn streams(&self) -> Vec<RecordedStream> {
        numbered_streams(&self.spec.name, &self.spec.text, self.shape, self.count)
    }

    fn is_patient(&self) -> bool {
        self.card.is_unpaced
    }

    fn begin_with(&mut self, start: &Arc<CommonStart>) -> bool {
        start.join();
        self.start = Some(Arc::clone(start));
        true
    }

    fn run(&mut self, feed: &mut InputFeed<'_>) -> Result<()> {
        if let Some(start) = &self.start {
            start.be_ready();
            let Some(at) = start.wait(feed.halt) else { return Ok(()) };
            feed.halt.wait(at.saturating_duration_since(clock::monotonic()));
        }
        let format = self.card.format;
        let is_patient = self.card.is_unpaced;
        let splitter = Splitter::new(format, usize::from(self.card.channels), self.count);
        let mut capture = CardCapture {
            most: feed.most_frames(self.shape.rate),
            shape: self.shape,
            splitter,
            is_patient,
            taken: 0,
            known: (Duration::ZERO, 0),
            heard: Duration::ZERO,
            xruns: 0,
            suspends: 0,
        };
        let ended = capture.run(&mut self.card, feed);
        if capture.xruns > 0 {
            let what = format!(
                "the sound card was not read in time; this happened {} times",
                capture.xruns
            );
            let advice =
                "allow real-time priority for this user, or stop programs that keep the CPUs busy";
            (feed.warn)(Error::new(Kind::Io, what).advice(advice));
        }
        if capture.suspends > 0 {
            let what =
                format!("the machine was suspended {} times during the take", capture.suspends);
            (feed.warn)(Error::new(Kind::Io, what));
        }
        ended
    }
}

/// Distributes interleaved frames of a card over streams.
struct Splitter {
    format: CardFormat,
    channels: usize,
    parts: Vec<Vec<u8>>,
}

impl Splitter {
    fn new(format: CardFormat, channels: usize, streams: usize) -> Self {
        let bytes = FRAMES * channels / streams * format.format.bytes() as usize;
        Splitter { format, channels, parts: vec![Vec::with_capacity(bytes); streams] }
    }

    fn frame_bytes(&self) -> usize {
        self.format.bytes * self.channels
    }

    /// Returns the samples of these frames, by stream.
    fn split(&mut self, frames: &[u8]) -> &[Vec<u8>] {
        self.parts.iter_mut().for_each(Vec::clear);
        let (width, kept) = (self.format.bytes, self.format.format.bytes() as usize);
        let from = if self.format.is_shifted { width - kept } else { 0 };
        let per_part = self.channels / self.parts.len();
        for frame in frames.chunks_exact(self.frame_bytes()) {
            for (number, sample) in frame.chunks_exact(width).enumerate() {
                self.parts[number / per_part].extend_from_slice(&sample[from..from + kept]);
            }
        }
        &self.parts
    }
}

/// The state of a capture.
struct CardCapture {
    most: u64,
    shape: StreamShape,
    splitter: Splitter,
    is_patient: bool,
    /// The number of frames so far, including missing ones.
    taken: u64,
    /// The last time at which the card was queried, and the number of frames that it had produced
    /// by then.
    known: (Duration, u64),
    /// When the last frame arrived.
    heard: Duration,
    xruns: u64,
    suspends: u64,
}

impl CardCapture {
    fn run(&mut self, card: &mut dyn SoundCard, feed: &mut InputFeed<'_>) -> Result<()> {
        card.begin().map_err(failure)?;
        self.known = (card.now(), 0);
        self.heard = card.now();
        let mut buffer = vec![0; FRAMES * self.splitter.frame_bytes()];
        let mut was_told = false;
        while !feed.halt.is_set() && self.taken < self.most {
            let moved = match card.wait(WAIT) {
                Ok(true) => self.read(card, &mut buffer, feed),
                Ok(false) => Ok(0),
                Err(trouble) => Err(trouble),
            };
            match moved {
                Ok(0) => {}
                Ok(_) => (self.heard, was_told) = (card.now(), false),
                Err(trouble) => self.begin_anew(card, trouble, feed)?,
            }
            let silent = card.now().saturating_sub(self.heard);
            if silent >= SILENT && !std::mem::replace(&mut was_told, true) {
                let what = format!("no data was received for {} s", SILENT.as_secs());
                (feed.warn)(Error::new(Kind::Io, what));
            }
        }
        Ok(())
    }

    /// Reads the available frames, at most one block, and passes them to the rings; returns their
    /// number.
    fn read(
        &mut self,
        card: &mut dyn SoundCard,
        buffer: &mut [u8],
        feed: &mut InputFeed<'_>,
    ) -> Result<usize, CardTrouble> {
        let size = self.splitter.frame_bytes();
        let mut most = FRAMES as u64;
        if self.is_patient {
            let room = feed.producers.iter().map(|it| it.ring_bytes() / 4).min().unwrap_or(0);
            most = most.min(room / self.shape.frame_bytes()).max(1);
        }
        let most = most.min(self.most - self.taken) as usize;
        let frames = card.read(&mut buffer[..most * size])?;
        for (stream, part) in self.splitter.split(&buffer[..frames * size]).iter().enumerate() {
            if self.is_patient && !feed.wait_for_room(stream, part.len() as u64) {
                return Ok(0);
            }
            feed.producers[stream].push(part);
        }
        self.taken += frames as u64;
        self.known = (card.now(), self.taken + card.avail()?);
        Ok(frames)
    }

    /// Restarts a card that has stopped, and inserts silence for the frames that it lost according
    /// to its rate.
    fn begin_anew(
        &mut self,
        card: &mut dyn SoundCard,
        trouble: CardTrouble,
        feed: &mut InputFeed<'_>,
    ) -> Result<()> {
        let is_running = match trouble {
            CardTrouble::Xrun => {
                self.xruns += 1;
                false
            }
            CardTrouble::Suspended => {
                self.suspends += 1;
                card.resume()
            }
            CardTrouble::Failed(error) => {
                return Err(
                    error.advice("the data that was received before the failure is recorded")
                );
            }
        };
        if !is_running {
            card.begin().map_err(failure)?;
        }
        let (at, made) = self.known;
        let went_by = card.now().saturating_sub(at).as_secs_f64() * f64::from(self.shape.rate);
        let due = made + went_by as u64;
        // Frames that it still holds come behind the gap, even if a driver keeps them over a
        // suspend.
        let kept = if is_running { card.avail().unwrap_or(0) } else { 0 };
        let lost = due.saturating_sub(self.taken + kept).min(self.most - self.taken);
        for producer in &mut feed.producers {
            producer.skip(lost * self.shape.frame_bytes());
        }
        self.taken += lost;
        self.known = (card.now(), self.taken + kept);
        Ok(())
    }
}

fn failure(trouble: CardTrouble) -> Error {
    match trouble {
        CardTrouble::Failed(error) => error,
        _ => Error::new(Kind::Io, "the sound device does not start"),
    }
}

#[cfg(test)]
mod tests;
