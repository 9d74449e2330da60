//! Plays to a sound card. A card has a clock: frames that are missing when they are due are skipped
//! when they arrive.

use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};

use crate::alsa::{AlsaPcm, CardFormat, CardTrouble, CardWish, SoundCard};
use crate::limits::CHANNELS_MAX;
use crate::sample::{SampleFormat, StreamShape};

/// An open card, and the state of playback.
pub(super) struct CardSink {
    card: Box<dyn SoundCard>,
    format: CardFormat,
    channels: usize,
    rate: u32,
    buffer_frames: u64,
    /// Whether the card has no clock, and can wait.
    pub is_unpaced: bool,
    /// When the card will have played all frames that it received.
    dry_at: Option<Duration>,
    bytes: Vec<u8>,
    /// The number of times that the card had no frames to play.
    pub xruns: u64,
}

impl CardSink {
    /// Opens a device with one channel for each stream.
    ///
    /// # Errors
    /// The errors of [`AlsaPcm::open`]; [`Kind::Usage`] if the streams contain no samples.
    pub fn open(device: String, shape: StreamShape, streams: usize) -> Result<Self> {
        if shape.format == SampleFormat::Raw {
            return Err(Error::new(Kind::Usage, "raw bytes cannot be played as sound")
                .advice("select audio streams with --stream"));
        }
        let channels = streams * usize::from(shape.channels);
        let most = usize::from(CHANNELS_MAX);
        let count = u16::try_from(channels).ok().filter(|_| channels <= most);
        let count = count.ok_or_else(|| {
            Error::new(Kind::Refused, format!("too many channels would be needed: {channels}"))
                .expected(format!("at most {most} channels"), channels)
                .advice("select fewer streams with --stream")
        })?;
        let wish = CardWish {
            device,
            format: Some(shape.format),
            channels: Some(count),
            rate: Some(shape.rate),
        };
        let pcm = AlsaPcm::open(&wish, false)?;
        let (format, buffer_frames, is_unpaced) = (pcm.format, pcm.buffer_frames, pcm.is_unpaced);
        let rate = shape.rate;
        Ok(CardSink::new(Box::new(pcm), (format, channels, rate), (buffer_frames, is_unpaced)))
    }

    fn new(
        card: Box<dyn SoundCard>,
        (format, channels, rate): (CardFormat, usize, u32),
        (buffer_frames, is_unpaced): (u64, bool),
    ) -> Self {
        CardSink {
            card,
            format,
            channels,
            rate,
            buffer_frames,
            is_unpaced,
            dry_at: None,
            bytes: Vec::new(),
            xruns: 0,
        }
    }

    /// Prepares the card, which begins to play when its buffer is full.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn begin(&mut self) -> Result<()> {
        self.card.begin().map_err(failure)
    }

    /// Whether the card has space for `frames` frames, and the number of frames for which it played
    /// silence because it had nothing to play.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn room(&mut self, frames: u64) -> Result<(bool, u64)> {
        match self.card.avail() {
            Ok(avail) => Ok((avail >= frames.min(self.buffer_frames), 0)),
            Err(trouble) => self.begin_anew(trouble).map(|lost| (false, lost)),
        }
    }

    /// Writes interleaved frames. Writes frames to the card; returns the number of frames for which
    /// it played silence in the meantime. Frames for which there is no space are dropped.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn write(&mut self, frames: &[u8]) -> Result<u64> {
        self.convert(frames);
        let size = self.format.bytes * self.channels;
        let bytes = std::mem::take(&mut self.bytes);
        let (mut written, mut lost) = (0, 0);
        while written < bytes.len() {
            match self.card.write(&bytes[written..]) {
                Ok(0) => break,
                Ok(frames) => written += frames * size,
                Err(trouble) => lost += self.begin_anew(trouble)?,
            }
        }
        self.bytes = bytes;
        let queued = self.buffer_frames.saturating_sub(self.card.avail().unwrap_or(0));
        let seconds = queued as f64 / f64::from(self.rate);
        self.dry_at = Some(self.card.now() + Duration::from_secs_f64(seconds));
        Ok(lost)
    }

    /// Plays the rest.
    pub fn drain(&mut self) {
        self.card.drain();
    }

    /// Converts samples to the card's format.
    fn convert(&mut self, frames: &[u8]) {
        self.bytes.clear();
        let (width, kept) = (self.format.bytes, self.format.format.bytes() as usize);
        let zeros = [0; 4];
        for sample in frames.chunks_exact(kept) {
            let padding = &zeros[..width - kept];
            if self.format.is_shifted {
                self.bytes.extend_from_slice(padding);
            }
            self.bytes.extend_from_slice(sample);
            if !self.format.is_shifted {
                // Unused bits repeat the sign: some drivers read them.
                let sign = if padding.is_empty() || sample[kept - 1] < 128 { 0 } else { 0xff };
                self.bytes.extend(padding.iter().map(|_| sign));
            }
        }
    }

    /// Restarts the card after an xrun or other trouble; returns the number of frames that passed
    /// in the meantime.
    fn begin_anew(&mut self, trouble: CardTrouble) -> Result<u64> {
        let is_running = match trouble {
            CardTrouble::Xrun => {
                self.xruns += 1;
                false
            }
            CardTrouble::Suspended => self.card.resume(),
            CardTrouble::Failed(error) => return Err(error),
        };
        if !is_running {
            self.card.begin().map_err(failure)?;
        }
        let dry = self.dry_at.map_or(Duration::ZERO, |it| self.card.now().saturating_sub(it));
        self.dry_at = Some(self.card.now());
        Ok((dry.as_secs_f64() * f64::from(self.rate)) as u64)
    }
}

fn failure(trouble: CardTrouble) -> Error {
    match trouble {
        CardTrouble::Failed(error) => error,
        _ => Error::new(Kind::Io, "the sound device does not start"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alsa::testing::{AlsaConfig, with_config};
    use crate::play::{PlayPlan, PlaySink, play};
    use crate::recorder::tests::take_of;
    use pinstripe_base::monitor::Monitor;
    use pinstripe_base::sync::Stop;

    #[test]
    fn samples_are_stored_as_the_card_wants_them() {
        let s24 = CardFormat::from_format(SampleFormat::S24).unwrap();
        for (format, expected) in [
            (s24, &[1, 2, 3, 4, 5, 0xf6][..]),
            (CardFormat { bytes: 4, ..s24 }, &[1, 2, 3, 0, 4, 5, 0xf6, 0xff]),
            (CardFormat { bytes: 4, is_shifted: true, ..s24 }, &[0, 1, 2, 3, 0, 4, 5, 0xf6]),
        ] {
            let card = Box::new(Dry { now: Duration::ZERO, stops: 0 });
            let mut sink = CardSink::new(card, (format, 2, 48_000), (1024, false));
            sink.convert(&[1, 2, 3, 4, 5, 0xf6]);
            assert_eq!(sink.bytes, expected);
        }
    }

    /// A card whose clock goes on by 100 ms with each look, and that stops so often.
    struct Dry {
        now: Duration,
        stops: u32,
    }

    impl SoundCard for Dry {
        fn now(&self) -> Duration {
            self.now
        }

        fn begin(&mut self) -> Result<(), CardTrouble> {
            Ok(())
        }

        fn resume(&mut self) -> bool {
            false
        }

        fn wait(&mut self, _: Duration) -> Result<bool, CardTrouble> {
            Ok(true)
        }

        fn avail(&mut self) -> Result<u64, CardTrouble> {
            self.now += Duration::from_millis(100);
            match self.stops.checked_sub(1) {
                Some(left) => {
                    self.stops = left;
                    Err(CardTrouble::Xrun)
                }
                None => Ok(1024 - 480),
            }
        }

        fn read(&mut self, _: &mut [u8]) -> Result<usize, CardTrouble> {
            Ok(0)
        }

        fn write(&mut self, bytes: &[u8]) -> Result<usize, CardTrouble> {
            Ok(bytes.len() / 2)
        }

        fn drain(&mut self) {}
    }

    #[test]
    fn what_a_card_had_nothing_to_play_for_is_counted_in_frames() {
        let format = CardFormat::from_format(SampleFormat::S16).unwrap();
        let card = Box::new(Dry { now: Duration::ZERO, stops: 0 });
        let mut sink = CardSink::new(card, (format, 1, 48_000), (1024, false));
        assert_eq!(sink.write(&[0; 960]).unwrap(), 0);
        // It has 480 frames, 10 ms, at 100 ms, and is found to have stopped at 200 ms.
        assert_eq!(sink.dry_at, Some(Duration::from_millis(110)));
        sink.card = Box::new(Dry { now: Duration::from_millis(100), stops: 1 });
        assert_eq!(sink.room(512).unwrap(), (false, 90 * 48));
        assert_eq!((sink.room(512).unwrap(), sink.xruns), ((true, 0), 1));
    }

    const CONTENT: &str = "play::alsa::tests::a_device_gets_every_sample";

    #[test]
    fn a_device_gets_every_sample() {
        with_config(CONTENT, |config: &AlsaConfig| {
            let text = "test:streams=2,frames=30000,pace=free,format=s24";
            let input = crate::input::parse_input(text).unwrap().open(false).unwrap();
            take_of(&config.path(""), "t", vec![input]);
            let out = config.path("out.raw");
            config.write(&format!(
                "pcm.kept {{ type file slave.pcm null file {} format raw }}\n",
                out.display()
            ));
            let (stop, monitor) = (Stop::new().unwrap(), Monitor::default());
            let plan = PlayPlan {
                from: Duration::from_millis(125),
                most: None,
                ring_bytes: 16 << 10,
                streams: Vec::new(),
            };
            let played = |sink| play(&config.path("t"), &plan, sink, (&stop, &monitor)).unwrap();
            let told = played(PlaySink::Alsa("kept".to_owned()));
            assert_eq!((told.frames, told.underruns, told.xruns), (24_000, 0, 0));
            played(PlaySink::Path(config.path("wanted.raw")));
            let wanted = std::fs::read(config.path("wanted.raw")).unwrap();
            assert_eq!(wanted.len(), 6 * 24_000);
            assert!(std::fs::read(out).unwrap() == wanted);
        });
    }
}
