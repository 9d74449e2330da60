//! A JACK client, for tests, that keeps the samples of its ports, and passes them on after a delay
//! that it reports as latency.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe_io::foreign_functions;
use pinstripe_io::library::LoadedLibrary;

use super::library::{CAPTURE_LATENCY, LatencyRange, RawClient};
use super::{JackClient, PORT_IS_INPUT, PORT_IS_OUTPUT, RawPort};

foreign_functions! {
    struct PortLatencies {
        set_callback: unsafe extern "C" fn(
            *mut RawClient, extern "C" fn(c_int, *mut c_void), *mut c_void,
        ) -> c_int = c"jack_set_latency_callback";
        set_range: unsafe extern "C" fn(*mut RawPort, c_int, *mut LatencyRange) = c"jack_port_set_latency_range";
    }
}

struct Port {
    input: NonNull<RawPort>,
    output: NonNull<RawPort>,
    waiting: VecDeque<f32>,
    kept: Vec<f32>,
}

struct ListenerState {
    get_buffer: unsafe extern "C" fn(*mut RawPort, u32) -> *mut c_void,
    latencies: PortLatencies,
    delay: u32,
    ports: Vec<Port>,
    is_full: AtomicBool,
}

/// A client with input ports `NAME:in_1` and so on, and an output port `NAME:out_1` after a delay.
pub(crate) struct CaptureClient {
    client: JackClient,
    state: NonNull<ListenerState>,
}

impl CaptureClient {
    /// Starts a client that keeps this number of samples of each port. `delay` in frames.
    pub fn start(name: &str, ports: usize, samples: usize, delay: u32) -> CaptureClient {
        let client = JackClient::open(name).unwrap();
        let port = |number| Port {
            input: client.port(&format!("in_{number}"), PORT_IS_INPUT).unwrap().0,
            output: client.port(&format!("out_{number}"), PORT_IS_OUTPUT).unwrap().0,
            waiting: std::iter::repeat_n(0.0, delay as usize).collect(),
            kept: Vec::with_capacity(samples),
        };
        let loaded = LoadedLibrary::open(&[c"libjack.so.0"]).unwrap();
        let state = Box::new(ListenerState {
            get_buffer: client.library.jack_port_get_buffer,
            latencies: PortLatencies::find(&loaded).unwrap(),
            delay,
            ports: (1..=ports).map(port).collect(),
            is_full: AtomicBool::new(false),
        });
        let state = NonNull::from(Box::leak(state));
        let (raw, argument) = (client.raw.as_ptr(), state.as_ptr().cast());
        // SAFETY: the client is open and not active; the state lives until it is stopped.
        unsafe {
            (client.library.jack_set_process_callback)(raw, process, argument);
            ((*state.as_ptr()).latencies.set_callback)(raw, latency, argument);
            assert_eq!((client.library.jack_activate)(raw), 0);
        }
        CaptureClient { client, state }
    }

    /// Whether every port has the requested frames.
    pub fn is_full(&self) -> bool {
        // SAFETY: the state lives as long as this, and the flag is all that both threads touch.
        unsafe { &(*self.state.as_ptr()).is_full }.load(Ordering::Acquire)
    }

    /// Returns the samples of each port.
    pub fn stop(self) -> Vec<Vec<f32>> {
        // SAFETY: the client is open; after this no callback runs.
        let state = unsafe {
            (self.client.library.jack_deactivate)(self.client.raw.as_ptr());
            Box::from_raw(self.state.as_ptr())
        };
        state.ports.into_iter().map(|it| it.kept).collect()
    }
}

extern "C" fn process(frames: u32, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is the state, of which only this thread uses the ports.
    let state = unsafe { &mut *argument.cast::<ListenerState>() };
    let mut is_full = true;
    for port in &mut state.ports {
        // SAFETY: both ports are of this client; a buffer has a sample for each frame.
        let (from, to) = unsafe {
            let input = (state.get_buffer)(port.input.as_ptr(), frames).cast::<f32>();
            let output = (state.get_buffer)(port.output.as_ptr(), frames).cast::<f32>();
            let count = frames as usize;
            (
                std::slice::from_raw_parts(input, count),
                std::slice::from_raw_parts_mut(output, count),
            )
        };
        let room = port.kept.capacity() - port.kept.len();
        port.kept.extend_from_slice(&from[..room.min(from.len())]);
        is_full &= port.kept.len() == port.kept.capacity();
        for (sample, out) in from.iter().zip(to) {
            port.waiting.push_back(*sample);
            *out = port.waiting.pop_front().unwrap_or(0.0);
        }
    }
    state.is_full.store(is_full, Ordering::Release);
    0
}

/// Reports the latency: samples leave `delay` frames after they arrived.
extern "C" fn latency(direction: c_int, argument: *mut c_void) {
    // SAFETY: the argument is the state; what is read here is never written.
    let state = unsafe { &*argument.cast::<ListenerState>() };
    for port in &state.ports {
        let delay = if direction == CAPTURE_LATENCY { state.delay } else { 0 };
        let mut range = LatencyRange { least: delay, most: delay };
        let port = if direction == CAPTURE_LATENCY { port.output } else { port.input };
        // SAFETY: the port is of this client, which is open.
        unsafe { (state.latencies.set_range)(port.as_ptr(), direction, &raw mut range) };
    }
}
