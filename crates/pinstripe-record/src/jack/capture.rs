//! Transfers samples from a JACK server to rings.
//!
//! The client is active from the beginning, so that its ports can be connected; a server makes one
//! connection in each block. Samples that arrive before the rings are handed over are skipped.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use pinstripe_base::error::Result;

use super::active::{ActiveClient, EachBlock};
use super::library::JackLibrary;
use super::{JackClient, JackPort, RawClient, RawPort};
use crate::ring::RingProducer;
use crate::sample::{SampleFormat, StreamShape};
use crate::start::{CommonStart, JackStart};

/// The number of frames that are converted at a time.
const FRAMES: usize = 1024;

/// The state of a capture so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Captured {
    /// The number of frames, including missing ones.
    pub frames: u64,
    /// Frames that the server's clock passed without delivering them.
    pub missing_frames: u64,
    /// Frames of streams with several ports in which some of the ports were missing.
    pub partial_frames: u64,
    /// The number of deadlines that the server missed (xruns).
    pub xruns: u64,
    /// The rate to which the server changed; 0 if it did not change.
    pub new_rate: u32,
    /// Whether the server has shut down.
    pub is_gone: bool,
    /// Whether all requested frames were captured.
    pub is_complete: bool,
}

/// State shared by the threads of the library and the thread of the input.
struct CaptureShared {
    frames: AtomicU64,
    missing_frames: AtomicU64,
    is_complete: AtomicBool,
    /// The latency from the hardware to the client's ports, in frames.
    latency: AtomicU32,
    /// Whether each port has no connection.
    gone: Vec<AtomicBool>,
    /// Frames in which some ports of a stream were missing.
    partial_frames: AtomicU64,
    /// The state that was passed to the server's process thread.
    state: AtomicPtr<CaptureState>,
}

impl Drop for CaptureShared {
    fn drop(&mut self) {
        let state = *self.state.get_mut();
        if !state.is_null() {
            // SAFETY: it came from a box, and the callback did not take it.
            drop(unsafe { Box::from_raw(state) });
        }
    }
}

/// The argument of the block callback, which does nothing until a state is passed to it.
struct Receiver {
    shared: Arc<CaptureShared>,
    state: Option<Box<CaptureState>>,
}

impl EachBlock for Receiver {
    fn block(&mut self, frames: u32) {
        if self.state.is_none() {
            let state = self.shared.state.swap(std::ptr::null_mut(), Ordering::AcqRel);
            if state.is_null() {
                return;
            }
            // SAFETY: it came from a box, and is taken once.
            self.state = Some(unsafe { Box::from_raw(state) });
        }
        if let Some(state) = &mut self.state {
            state.block(frames);
        }
    }
}

/// The state of the block callback; only the server's process thread accesses it.
struct CaptureState {
    library: &'static JackLibrary,
    client: NonNull<RawClient>,
    ports: Vec<NonNull<RawPort>>,
    shape: StreamShape,
    most_frames: u64,
    /// The producers: one for each port, or one for all ports together.
    producers: Vec<RingProducer>,
    block: Vec<u8>,
    /// The frame of the server's clock with which the next block begins.
    next: Option<u32>,
    /// The common start of recording and playing.
    start: Option<Arc<CommonStart>>,
    shared: Arc<CaptureShared>,
}

// SAFETY: handles of the library, which any thread may use.
unsafe impl Send for CaptureState {}

/// An active client that captures samples. The client is deactivated when this value is dropped.
pub(crate) struct Capture {
    active: ActiveClient<Arc<JackClient>, Receiver>,
    client: Arc<JackClient>,
    ports: Vec<NonNull<RawPort>>,
    shared: Arc<CaptureShared>,
    /// The number of deadlines that the server had missed before the recording began.
    xruns_before: u64,
}

// SAFETY: as of the state.
unsafe impl Send for Capture {}

impl Capture {
    /// Activates the client with these ports; no samples are recorded yet.
    ///
    /// # Errors
    /// [`Kind::Refused`](pinstripe_base::error::Kind::Refused) if the server does not accept the
    /// client.
    pub fn open(client: &Arc<JackClient>, ports: &[JackPort], rate: u32) -> Result<Self> {
        let shared = Arc::new(CaptureShared {
            frames: AtomicU64::new(0),
            missing_frames: AtomicU64::new(0),
            is_complete: AtomicBool::new(false),
            latency: AtomicU32::new(0),
            gone: ports.iter().map(|_| AtomicBool::new(false)).collect(),
            partial_frames: AtomicU64::new(0),
            state: AtomicPtr::new(std::ptr::null_mut()),
        });
        let receiver = Receiver { shared: Arc::clone(&shared), state: None };
        let active = ActiveClient::start(Arc::clone(client), rate, receiver)?;
        let ports = ports.iter().map(|port| port.0).collect();
        Ok(Capture { active, client: Arc::clone(client), ports, shared, xruns_before: 0 })
    }

    /// Records all samples that arrive from now on. `producers` contains one producer for each
    /// port, or one for all ports. With `start`, recording begins at the common start, by the
    /// server's clock and after the latency of the ports.
    pub fn begin(
        &mut self,
        shape: StreamShape,
        most_frames: u64,
        (producers, start): (Vec<RingProducer>, Option<Arc<CommonStart>>),
    ) {
        debug_assert!(producers.len() == self.ports.len() || producers.len() == 1);
        self.xruns_before = self.active.events().xruns();
        let state = Box::new(CaptureState {
            library: self.client.library,
            client: self.client.raw,
            ports: self.ports.clone(),
            shape,
            most_frames,
            producers,
            block: vec![0; FRAMES * shape.frame_bytes() as usize],
            next: None,
            start,
            shared: Arc::clone(&self.shared),
        });
        self.shared.state.store(Box::into_raw(state), Ordering::Release);
    }

    /// Sets whether a port has no connection; if so, its samples are missing.
    pub(crate) fn set_gone(&self, port: usize, is_gone: bool) {
        self.shared.gone[port].store(is_gone, Ordering::Release);
    }

    /// Sets the latency from the hardware to the ports, in frames; recording begins this much later
    /// than playing.
    pub(crate) fn set_latency(&self, frames: u32) {
        self.shared.latency.store(frames, Ordering::Release);
    }

    /// Returns the state so far.
    pub fn so_far(&self) -> Captured {
        let (shared, events) = (&self.shared, self.active.events());
        Captured {
            frames: shared.frames.load(Ordering::Relaxed),
            missing_frames: shared.missing_frames.load(Ordering::Relaxed),
            partial_frames: shared.partial_frames.load(Ordering::Relaxed),
            xruns: events.xruns().saturating_sub(self.xruns_before),
            new_rate: events.new_rate(),
            is_gone: events.is_gone(),
            is_complete: shared.is_complete.load(Ordering::Acquire),
        }
    }
}

impl CaptureState {
    /// Processes one block of all ports.
    fn block(&mut self, frames: u32) {
        // SAFETY: the client is open, and this is its process thread.
        let now = unsafe { (self.library.jack_last_frame_time)(self.client.as_ptr()) };
        let mut from = 0;
        if let Some(next) = self.next {
            // The clock wraps. A jump back means that the clock was reset, and nothing is missing.
            let jump = now.wrapping_sub(next);
            if jump != 0 && jump < 1 << 31 {
                self.skip(u64::from(jump));
            }
        } else {
            match self.first(now, frames) {
                Some(first) => from = first,
                None => return,
            }
        }
        self.next = Some(now.wrapping_add(frames));
        let (there, room) = (u64::from(frames - from), self.room());
        let wanted = there.min(room) as usize;
        self.copy(frames, from as usize, wanted);
        self.shared.frames.fetch_add(wanted as u64, Ordering::Relaxed);
        if there >= room {
            self.shared.is_complete.store(true, Ordering::Release);
        }
    }
}

impl CaptureState {
    /// Returns the index in this block of the take's first frame; `None` if that frame is in a
    /// later block.
    fn first(&mut self, now: u32, frames: u32) -> Option<u32> {
        let Some(start) = &self.start else { return Some(0) };
        let at = match start.by_jack() {
            JackStart::Later => return None,
            JackStart::Now => now,
            JackStart::At(frame) => frame.wrapping_add(self.shared.latency.load(Ordering::Acquire)),
        };
        let ahead = at.wrapping_sub(now);
        if ahead >= 1 << 31 {
            self.skip(u64::from(now.wrapping_sub(at)));
            return Some(0);
        }
        (ahead < frames).then_some(ahead)
    }

    /// The number of frames that are still to be captured.
    fn room(&self) -> u64 {
        self.most_frames.saturating_sub(self.shared.frames.load(Ordering::Relaxed))
    }

    fn skip(&mut self, frames: u64) {
        let frames = frames.min(self.room());
        for producer in &mut self.producers {
            producer.skip(frames * self.shape.frame_bytes());
        }
        self.shared.frames.fetch_add(frames, Ordering::Relaxed);
        self.shared.missing_frames.fetch_add(frames, Ordering::Relaxed);
    }

    /// Passes `wanted` frames of a block to the rings, from frame `first` on, converting a limited
    /// number at a time.
    fn copy(&mut self, frames: u32, first: usize, wanted: usize) {
        let is_one = self.producers.len() != self.ports.len();
        let width = self.shape.format.bytes() as usize;
        let stride = if is_one { self.ports.len() * width } else { width };
        let is_gone = |port: usize| self.shared.gone[port].load(Ordering::Acquire);
        let gone = (0..self.ports.len()).filter(|it| is_gone(*it)).count();
        if is_one && gone == self.ports.len() {
            return leave_out(&mut self.producers[0], &self.shape, wanted as u64);
        }
        if is_one && gone > 0 {
            self.shared.partial_frames.fetch_add(wanted as u64, Ordering::Relaxed);
        }
        for from in (0..wanted).step_by(FRAMES) {
            let count = FRAMES.min(wanted - from);
            let block = &mut self.block[..count * stride];
            for (number, port) in self.ports.iter().enumerate() {
                if !is_one && is_gone(number) {
                    leave_out(&mut self.producers[number], &self.shape, count as u64);
                    continue;
                }
                // SAFETY: the port is of this client, this is its process thread, and a buffer has
                // as many samples as the block has frames.
                let samples = unsafe {
                    let buffer = (self.library.jack_port_get_buffer)(port.as_ptr(), frames);
                    std::slice::from_raw_parts(buffer.cast::<f32>().add(first + from), count)
                };
                let at = if is_one { number * width } else { 0 };
                store(self.shape.format, samples, block, at, stride);
                if !is_one {
                    self.producers[number].push(block);
                }
            }
            if is_one {
                self.producers[0].push(block);
            }
        }
    }
}

/// Skips frames that did not arrive, and closes the gap about once a second, because data after a
/// gap waits for its end.
fn leave_out(producer: &mut RingProducer, shape: &StreamShape, frames: u64) {
    producer.skip(frames * shape.frame_bytes());
    producer.report_gap(shape.byte_rate());
}

/// Stores samples in a format; `stride` is the number of bytes from each sample to the next. A
/// 24-bit sample that was converted to a float is restored exactly; values beyond full scale are
/// clipped.
fn store(format: SampleFormat, samples: &[f32], out: &mut [u8], at: usize, stride: usize) {
    let whole =
        |sample: f32, full: f32| (sample * full).round_ties_even().clamp(-full, full - 1.0) as i32;
    for (sample, out) in samples.iter().zip(out[at..].chunks_mut(stride)) {
        match format {
            SampleFormat::S16 => {
                out[..2].copy_from_slice(&(whole(*sample, 32_768.0) as i16).to_le_bytes());
            }
            SampleFormat::F32 => out[..4].copy_from_slice(&sample.to_le_bytes()),
            _ => out[..3].copy_from_slice(&whole(*sample, 8_388_608.0).to_le_bytes()[..3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_24_bits_come_back_and_others_are_clamped() {
        for value in [-8_388_608, -8_388_607, -1, 0, 1, 4_242_424, 8_388_607_i32] {
            let mut out = [9; 6];
            store(SampleFormat::S24, &[value as f32 / 8_388_608.0], &mut out, 3, 6);
            assert_eq!((out[0], &out[3..]), (9, &value.to_le_bytes()[..3]), "{value}");
        }
        let mut out = [0; 6];
        store(SampleFormat::S16, &[2.0, -2.0, f32::NAN], &mut out, 0, 2);
        assert_eq!(out, [0xff, 0x7f, 0, 0x80, 0, 0]);
        let mut out = [0; 4];
        store(SampleFormat::F32, &[0.5], &mut out, 0, 4);
        assert_eq!(out, 0.5_f32.to_le_bytes());
    }
}
