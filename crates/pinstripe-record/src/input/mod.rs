//! Inputs of a recording. Each input feeds one or more streams on its own thread.
//!
//! An input that cannot wait (a clock, a network, sound hardware) pushes; frames that a ring cannot
//! hold are lost and counted there. An input that can wait (a file, a pipe) waits for room.

mod alsa;
mod fields;
mod jack;
mod pcm;
mod rtp;
mod text;
mod tone;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::Stop;

use crate::ring::RingProducer;
use crate::sample::{StreamShape, frames_in};
use crate::start::CommonStart;
use crate::take::RecordedStream;

pub(crate) use alsa::AlsaInput;
pub(crate) use jack::JackInput;
pub(crate) use jack::is_match as is_port_match;
pub(crate) use pcm::PcmInput;
pub(crate) use rtp::RtpInput;
pub use rtp::{RtpPacket, RtpWindow, SdpStream};
pub use text::{InputSpec, check_apart, parse_input};
pub use tone::TestInput;

/// One source of streams.
pub trait RecordInput: Send {
    /// The streams, in the order in which it feeds them.
    fn streams(&self) -> Vec<RecordedStream>;

    /// Whether it waits when a ring is full. Then a full ring is not a reason for a warning.
    fn is_patient(&self) -> bool;

    /// Whether its first sample belongs to the first moment of the take, whenever it arrives: its
    /// source does not wait for others, and has no clock of its own. For any other input, the
    /// arrival of its first samples counts.
    fn begins_with_take(&self) -> bool {
        false
    }

    /// Makes it begin together with the take that is played, if it can. Returns whether it does.
    fn begin_with(&mut self, _start: &Arc<CommonStart>) -> bool {
        false
    }

    /// Feeds its streams until it is at its end, or `feed` requests the end.
    ///
    /// # Errors
    /// Errors of the source; the frames before them are recorded.
    fn run(&mut self, feed: &mut InputFeed<'_>) -> Result<()>;
}

/// The rings of one input, and its settings.
pub struct InputFeed<'a> {
    /// By stream: its ring.
    pub producers: Vec<RingProducer>,
    /// Set when the take ends.
    pub halt: &'a Stop,
    /// The most that is recorded.
    pub most: Option<Duration>,
    /// The longest time that an input had to wait for room, in nanoseconds.
    pub held_back: &'a AtomicU64,
    /// Receives warnings: unusual events that are not errors.
    pub warn: &'a (dyn Fn(Error) + Sync),
}

/// The streams of one source: a single one has its name, several have numbers behind it.
fn numbered_streams(
    name: &str,
    source: &str,
    shape: StreamShape,
    count: usize,
) -> Vec<RecordedStream> {
    let stream = |number: usize| RecordedStream {
        name: if count == 1 { name.to_owned() } else { format!("{name}-{number}") },
        shape,
        source: source.to_owned(),
        test: None,
    };
    (1..=count).map(stream).collect()
}

/// The interval at which a full ring is polled. Nothing wakes a waiting input: the writer would
/// have to make a system call for each chunk.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The silence of a source after which that is said.
const SILENT: Duration =
    if cfg!(test) { Duration::from_millis(400) } else { Duration::from_secs(5) };

fn nothing_has_come() -> Error {
    Error::new(Kind::Io, format!("no data was received for {} s", SILENT.as_secs_f32()))
}

impl InputFeed<'_> {
    /// The frames that a stream of this rate gives at most.
    pub(crate) fn most_frames(&self, rate: u32) -> u64 {
        self.most.map_or(u64::MAX, |most| frames_in(most, rate))
    }

    /// Waits until a stream has room for this many bytes; false if the take ends first.
    pub(crate) fn wait_for_room(&self, stream: usize, bytes: u64) -> bool {
        let producer = &self.producers[stream];
        if producer.room() >= bytes {
            return !self.halt.is_set();
        }
        let began = clock::monotonic();
        while producer.room() < bytes {
            if self.halt.wait(LOOK_EVERY) {
                return false;
            }
        }
        let nanos = clock::since(began).as_nanos() as u64;
        self.held_back.fetch_max(nanos, Ordering::Relaxed);
        true
    }
}
