//! A JACK client, for tests, that produces recognizable samples.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::{JackClient, PORT_IS_OUTPUT, RawPort};

/// The difference between consecutive samples of a port.
pub(crate) const STEP: u32 = 131;
/// The modulus of the samples: 23 bits, so that they are positive 24-bit samples.
pub(crate) const MODULUS: u32 = 1 << 23;

struct GeneratorState {
    get_buffer: unsafe extern "C" fn(*mut RawPort, u32) -> *mut c_void,
    ports: Vec<NonNull<RawPort>>,
    frame: u32,
}

/// A client with ports `NAME:out_1` and so on; the samples of each port are a counter.
pub(crate) struct Generator {
    client: JackClient,
    state: NonNull<GeneratorState>,
}

impl Generator {
    pub fn start(name: &str, ports: usize) -> Generator {
        let client = JackClient::open(name).unwrap();
        let port = |number| client.port(&format!("out_{number}"), PORT_IS_OUTPUT).unwrap().0;
        let state = Box::new(GeneratorState {
            get_buffer: client.library.jack_port_get_buffer,
            ports: (1..=ports).map(port).collect(),
            frame: 0,
        });
        let state = NonNull::from(Box::leak(state));
        let raw = client.raw.as_ptr();
        // SAFETY: the client is open and not active; the state lives until it is stopped.
        unsafe {
            (client.library.jack_set_process_callback)(raw, process, state.as_ptr().cast());
            assert_eq!((client.library.jack_activate)(raw), 0);
        }
        Generator { client, state }
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // SAFETY: the client is open; after this no callback runs.
        unsafe {
            (self.client.library.jack_deactivate)(self.client.raw.as_ptr());
            drop(Box::from_raw(self.state.as_ptr()));
        }
    }
}

extern "C" fn process(frames: u32, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is the state, which only this thread uses.
    let state = unsafe { &mut *argument.cast::<GeneratorState>() };
    for (number, port) in (0..).zip(&state.ports) {
        // SAFETY: the port is of this client; its buffer has a sample for each frame.
        let samples = unsafe {
            let buffer = (state.get_buffer)(port.as_ptr(), frames);
            std::slice::from_raw_parts_mut(buffer.cast::<f32>(), frames as usize)
        };
        for (frame, sample) in (state.frame..).zip(samples) {
            let value = (frame.wrapping_mul(STEP).wrapping_add(number * 7)) % MODULUS;
            *sample = value as f32 / MODULUS as f32;
        }
    }
    state.frame = state.frame.wrapping_add(frames);
    0
}
