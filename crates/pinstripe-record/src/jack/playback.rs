//! Transfers samples from rings to a JACK server.
//!
//! The server's clock drives playback: each frame has a fixed position, counted from the beginning.
//! Frames that the disk did not deliver in time, or that the server's clock passed without a
//! callback, are skipped. So all streams stay aligned with each other and with the streams that are
//! recorded at the same time.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pinstripe_base::error::Result;

use super::active::{ActiveClient, EachBlock};
use super::library::JackLibrary;
use super::{JackClient, JackPort, RawClient, RawPort};
use crate::ring::PacedConsumer;
use crate::sample::{SampleFormat, StreamShape};

/// The number of frames that are converted at a time.
const FRAMES: usize = 1024;
/// The value of a beginning that is not known yet.
const UNKNOWN: u64 = u64::MAX;

/// Counts of the frames played so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PlaybackCounts {
    /// Frames of the longest stream that were played.
    pub frames: u64,
    /// Blocks in which a stream had too few frames, plus jumps of the server's clock.
    pub underruns: u64,
    /// Frames that were skipped for these underruns, in all streams.
    pub missing_frames: u64,
    /// The number of deadlines that the server missed (xruns).
    pub xruns: u64,
    /// The rate to which the server changed; 0 if it did not change.
    pub new_rate: u32,
    /// Whether the server has shut down.
    pub is_gone: bool,
    /// Whether all frames were passed to the server.
    pub is_complete: bool,
}

/// State shared by the threads of the library and the thread of the player.
struct PlaybackShared {
    start: AtomicU64,
    frames: AtomicU64,
    underruns: AtomicU64,
    missing_frames: AtomicU64,
    is_complete: AtomicBool,
}

/// The argument of the block callback; only the server's process thread accesses it.
struct PlaybackState {
    library: &'static JackLibrary,
    client: NonNull<RawClient>,
    /// The ports, ordered by stream and within a stream by channel.
    ports: Vec<NonNull<RawPort>>,
    tracks: Tracks,
    /// The frame of the server's clock at which the next frame is played.
    next: Option<u32>,
    is_over: bool,
    shared: Arc<PlaybackShared>,
}

/// The streams that are played, with buffers for their samples.
struct Tracks {
    shape: StreamShape,
    streams: Vec<PacedConsumer>,
    block: Vec<u8>,
}

/// An active client that plays. The client is deactivated when this value is dropped.
pub(crate) struct Playback<'c> {
    active: ActiveClient<&'c JackClient, PlaybackState>,
    shared: Arc<PlaybackShared>,
}

impl<'c> Playback<'c> {
    /// Activates the client, which plays silence until [`begin`](Self::begin). `ports` contains the
    /// ports for the channels of each stream, one stream after the other.
    ///
    /// # Errors
    /// [`Kind::Refused`](pinstripe_base::error::Kind::Refused) if the server does not accept the
    /// client.
    pub fn start(
        client: &'c JackClient,
        ports: &[JackPort],
        shape: StreamShape,
        streams: Vec<PacedConsumer>,
    ) -> Result<Self> {
        debug_assert_eq!(ports.len(), streams.len() * usize::from(shape.channels));
        let shared = Arc::new(PlaybackShared {
            start: AtomicU64::new(UNKNOWN),
            frames: AtomicU64::new(0),
            underruns: AtomicU64::new(0),
            missing_frames: AtomicU64::new(0),
            is_complete: AtomicBool::new(false),
        });
        let state = PlaybackState {
            library: client.library,
            client: client.raw,
            ports: ports.iter().map(|port| port.0).collect(),
            tracks: Tracks::new(shape, streams),
            next: None,
            is_over: false,
            shared: Arc::clone(&shared),
        };
        let active = ActiveClient::start(client, shape.rate, state)?;
        Ok(Playback { active, shared })
    }

    /// Begins to play: the first frame is played at frame `frame` of the server's clock.
    pub fn begin(&self, frame: u32) {
        self.shared.start.store(frame.into(), Ordering::Release);
    }

    /// Returns the counts so far.
    pub fn so_far(&self) -> PlaybackCounts {
        let (shared, events) = (&self.shared, self.active.events());
        PlaybackCounts {
            frames: shared.frames.load(Ordering::Relaxed),
            underruns: shared.underruns.load(Ordering::Relaxed),
            missing_frames: shared.missing_frames.load(Ordering::Relaxed),
            xruns: events.xruns(),
            new_rate: events.new_rate(),
            is_gone: events.is_gone(),
            is_complete: shared.is_complete.load(Ordering::Acquire),
        }
    }
}

impl EachBlock for PlaybackState {
    fn block(&mut self, frames: u32) {
        for port in 0..self.ports.len() {
            self.buffer(port, frames).fill(0.0);
        }
        if self.is_over {
            // The block with the last sample went through the whole graph before this one began.
            self.shared.is_complete.store(true, Ordering::Release);
            return;
        }
        // SAFETY: the client is open, and this is its process thread.
        let now = unsafe { (self.library.jack_last_frame_time)(self.client.as_ptr()) };
        let next = match (self.next, self.shared.start.load(Ordering::Acquire)) {
            (Some(next), _) => next,
            (None, UNKNOWN) => return,
            (None, start) => start as u32,
        };
        // The clock wraps. If `ahead` is in the lower half, the beginning is in this block or a
        // later one.
        let ahead = next.wrapping_sub(now);
        let from = if ahead < 1 << 31 { ahead.min(frames) } else { 0 };
        if ahead >= 1 << 31 {
            let frames = u64::from(now.wrapping_sub(next));
            let missing = self.tracks.leave_out(frames);
            self.shared.underruns.fetch_add(1, Ordering::Relaxed);
            self.shared.missing_frames.fetch_add(missing, Ordering::Relaxed);
            self.shared.frames.fetch_add(frames, Ordering::Relaxed);
        }
        if from == frames {
            return;
        }
        self.next = Some(now.wrapping_add(frames));
        let wanted = (frames - from) as usize;
        let channels = usize::from(self.tracks.shape.channels);
        let mut longest = 0;
        for stream in 0..self.tracks.streams.len() {
            let mut buffer = |channel: usize, at: usize, samples: &mut dyn Iterator<Item = f32>| {
                let port = self.ports[stream * channels + channel];
                // SAFETY: the port is of this client, this is its process thread, and a buffer has as
                // many samples as the block has frames.
                let buffer = unsafe {
                    let buffer = (self.library.jack_port_get_buffer)(port.as_ptr(), frames);
                    std::slice::from_raw_parts_mut(buffer.cast::<f32>(), frames as usize)
                };
                let out = &mut buffer[from as usize + at..];
                out.iter_mut().zip(samples).for_each(|(out, sample)| *out = sample);
            };
            let given = self.tracks.give(stream, wanted, &mut buffer);
            longest = longest.max(given.frames);
            if given.missing_frames > 0 {
                self.shared.underruns.fetch_add(1, Ordering::Relaxed);
                self.shared.missing_frames.fetch_add(given.missing_frames, Ordering::Relaxed);
            }
        }
        self.shared.frames.fetch_add(longest, Ordering::Relaxed);
        self.is_over = self.tracks.streams.iter().all(PacedConsumer::is_over);
    }
}

impl PlaybackState {
    fn buffer(&mut self, port: usize, frames: u32) -> &mut [f32] {
        // SAFETY: the port is of this client, this is its process thread, and a buffer has as many
        // samples as the block has frames.
        unsafe {
            let buffer = (self.library.jack_port_get_buffer)(self.ports[port].as_ptr(), frames);
            std::slice::from_raw_parts_mut(buffer.cast::<f32>(), frames as usize)
        }
    }
}

/// The result of filling a block from one stream.
struct BlockResult {
    frames: u64,
    missing_frames: u64,
}

/// A function that receives samples of a channel, from a frame of the block on.
type ChannelBuffer<'a> = &'a mut dyn FnMut(usize, usize, &mut dyn Iterator<Item = f32>);

impl Tracks {
    fn new(shape: StreamShape, streams: Vec<PacedConsumer>) -> Self {
        let block = Vec::with_capacity(FRAMES * shape.frame_bytes() as usize);
        Tracks { shape, streams, block }
    }

    /// Skips this number of frames of every stream; returns their total.
    fn leave_out(&mut self, frames: u64) -> u64 {
        let bytes = frames * self.shape.frame_bytes();
        self.streams.iter_mut().for_each(|it| it.leave_out(bytes));
        frames * self.streams.len() as u64
    }

    /// Passes on `wanted` frames of one stream, as far as they are available. The remaining frames
    /// are skipped when they arrive, unless the stream has ended.
    fn give(&mut self, stream: usize, wanted: usize, buffer: ChannelBuffer<'_>) -> BlockResult {
        let (size, width) = (self.shape.frame_bytes() as usize, self.shape.format.bytes() as usize);
        let (format, track) = (self.shape.format, &mut self.streams[stream]);
        let mut done = 0;
        while done < wanted {
            let count = FRAMES.min(wanted - done);
            self.block.clear();
            let is_ended = track.gather((count * size) as u64, &mut self.block);
            for channel in 0..usize::from(self.shape.channels) {
                let samples = self.block.chunks_exact(size);
                let sample = |frame: &[u8]| float(format, &frame[channel * width..]);
                buffer(channel, done, &mut samples.map(sample));
            }
            let there = self.block.len() / size;
            done += there;
            if there < count {
                let missing = if is_ended { 0 } else { (wanted - done) as u64 };
                track.leave_out(missing * size as u64);
                let frames = if is_ended { done } else { wanted } as u64;
                return BlockResult { frames, missing_frames: missing };
            }
        }
        BlockResult { frames: wanted as u64, missing_frames: 0 }
    }
}

/// Converts a sample to a float as JACK uses it; 24-bit samples are represented exactly.
fn float(format: SampleFormat, it: &[u8]) -> f32 {
    match format {
        SampleFormat::U8 | SampleFormat::Raw => (f32::from(it[0]) - 128.0) / 128.0,
        SampleFormat::S16 => f32::from(i16::from_le_bytes([it[0], it[1]])) / 32_768.0,
        SampleFormat::S24 => {
            (i32::from_le_bytes([0, it[0], it[1], it[2]]) >> 8) as f32 / 8_388_608.0
        }
        SampleFormat::S32 => {
            i32::from_le_bytes([it[0], it[1], it[2], it[3]]) as f32 / 2_147_483_648.0
        }
        SampleFormat::F32 => f32::from_le_bytes([it[0], it[1], it[2], it[3]]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{Arena, Ring, RingConsumer};
    use crate::sample::fill_test;

    #[test]
    fn samples_of_every_format_are_parts_of_full_scale() {
        for (format, bytes) in [
            (SampleFormat::U8, &[64][..]),
            (SampleFormat::S16, &[0, 0xc0]),
            (SampleFormat::S24, &[0, 0, 0xc0]),
            (SampleFormat::S32, &[0, 0, 0, 0xc0]),
            (SampleFormat::F32, &(-0.5_f32).to_le_bytes()),
        ] {
            assert_eq!(float(format, bytes), -0.5, "{format}");
        }
        assert_eq!(float(SampleFormat::S24, &[0xff, 0xff, 0x7f]) * 8_388_608.0, 8_388_607.0);
    }

    #[test]
    fn channels_go_to_their_ports_and_what_is_late_is_left_out() {
        let shape = StreamShape { format: SampleFormat::S24, channels: 2, rate: 48_000 };
        let arena = Arc::new(Arena::new(1 << 16).unwrap());
        let (ring, mut producer) = Ring::new(&arena, 0, 1 << 16, shape.frame_bytes(), 1).unwrap();
        let mut content = vec![0; 6 * 3000];
        fill_test(&shape, 0, 0, &mut content);
        let mut tracks = Tracks::new(shape, vec![PacedConsumer::new(RingConsumer::new(ring, 0))]);
        let mut block = [vec![0.0; 1500], vec![0.0; 1500]];
        let mut given = |wanted: usize, tracks: &mut Tracks| {
            block.iter_mut().for_each(|it| it.fill(0.0));
            let mut buffer = |channel: usize, at: usize, it: &mut dyn Iterator<Item = f32>| {
                block[channel][at..].iter_mut().zip(it).for_each(|(out, sample)| *out = sample);
            };
            let given = tracks.give(0, wanted, &mut buffer);
            (given.frames, given.missing_frames, block.clone())
        };
        let is_right = |block: &[Vec<f32>; 2], first: usize, frames: usize| {
            (0..frames).all(|frame| {
                (0..2).all(|channel| {
                    let at = 6 * (first + frame) + 3 * channel;
                    block[channel][frame] == float(shape.format, &content[at..at + 3])
                })
            })
        };
        producer.push(&content[..6 * 1100]);
        let (frames, missing, block) = given(1500, &mut tracks);
        assert_eq!((frames, missing), (1500, 400));
        assert!(is_right(&block, 0, 1100) && block[1][1100..].iter().all(|it| *it == 0.0));
        // The server went on by 300 frames without asking.
        assert_eq!(tracks.leave_out(300), 300);
        producer.push(&content[6 * 1100..]);
        drop(producer);
        let (frames, missing, block) = given(1000, &mut tracks);
        assert_eq!((frames, missing), (1000, 0));
        assert!(is_right(&block, 1800, 1000));
        let (frames, missing, _) = given(1500, &mut tracks);
        assert_eq!((frames, missing), (200, 0), "the end is no underrun");
        assert!(tracks.streams[0].is_over());
    }
}
