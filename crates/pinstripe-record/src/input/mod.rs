//! Inputs of a recording. Each input feeds one or more streams on its own thread.
//!
//! An input that cannot wait (a clock, a network, sound hardware) pushes its samples; frames that
//! do not fit in a ring are lost and counted there. An input that can wait (a file, a pipe) waits
//! until the ring has space.

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

/// A source of one or more streams.
pub trait RecordInput: Send {
    /// The streams, in the order in which the input feeds them.
    fn streams(&self) -> Vec<RecordedStream>;

    /// Whether the input waits when a ring is full. If the input waits, a full ring is not a reason
    /// for a warning.
    fn is_patient(&self) -> bool;

    /// Whether the input's first sample belongs to the first moment of the take, whenever it
    /// arrives; this is so if its source does not wait for other inputs, and has no clock. For any
    /// other input, the time at which its first samples arrive determines their place.
    fn begins_with_take(&self) -> bool {
        false
    }

    /// Makes the input begin together with the take that is played, if the input supports this.
    /// Returns whether the input supports this.
    fn begin_with(&mut self, _start: &Arc<CommonStart>) -> bool {
        false
    }

    /// Feeds the input's streams until it ends, or `feed` requests the end.
    ///
    /// # Errors
    /// Errors of the source; frames that arrived before the error are recorded.
    fn run(&mut self, feed: &mut InputFeed<'_>) -> Result<()>;
}

/// The rings of one input, and settings of the take.
pub struct InputFeed<'a> {
    /// The ring of each stream.
    pub producers: Vec<RingProducer>,
    /// Set when the take ends.
    pub halt: &'a Stop,
    /// The greatest time that is recorded.
    pub most: Option<Duration>,
    /// The longest time that an input had to wait for space in a ring, in nanoseconds.
    pub held_back: &'a AtomicU64,
    /// Receives warnings: unusual events that are not errors.
    pub warn: &'a (dyn Fn(Error) + Sync),
}

/// The streams of one source: a single stream has the name of the source, several streams have the
/// name with a number.
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

/// The interval at which a full ring is polled. Nothing wakes a waiting input, because the writer
/// would have to make a system call for each chunk.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The time after which a source that delivers nothing is reported.
const SILENT: Duration =
    if cfg!(test) { Duration::from_millis(400) } else { Duration::from_secs(5) };

fn nothing_has_come() -> Error {
    Error::new(Kind::Io, format!("no data was received for {} s", SILENT.as_secs_f32()))
}

impl InputFeed<'_> {
    /// The most frames that a stream with this rate may deliver.
    pub(crate) fn most_frames(&self, rate: u32) -> u64 {
        self.most.map_or(u64::MAX, |most| frames_in(most, rate))
    }

    /// Waits until the ring of a stream has space for this number of bytes; returns false if the
    /// take ends first.
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
