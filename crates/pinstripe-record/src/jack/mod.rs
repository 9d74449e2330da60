//! A client of a JACK server, or of PipeWire, which supports the same library.
//!
//! The server's process thread only processes the block of samples that it receives; it does not
//! lock, allocate or make system calls. The input's thread does everything else, by polling.

#![allow(
    clippy::disallowed_methods,
    reason = "this module waits with a deadline for a server that may hang"
)]

mod active;
mod capture;
#[cfg(test)]
pub mod generator;
mod library;
#[cfg(test)]
pub mod listener;
mod playback;
#[cfg(test)]
pub mod testing;

use std::ffi::{CStr, CString, c_int};
use std::ptr::NonNull;
use std::sync::mpsc;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};

pub(crate) use capture::{Capture, Captured};
use library::{
    AUDIO, CAPTURE_LATENCY, JackLibrary, LatencyRange, NO_START_SERVER, PLAYBACK_LATENCY,
    PORT_IS_INPUT, PORT_IS_OUTPUT, PORT_IS_PHYSICAL, RawClient, RawPort,
};
pub(crate) use playback::{Playback, PlaybackCounts};

/// The time limit for the response of a server, which normally takes milliseconds.
const DEADLINE: Duration = Duration::from_secs(5);
/// The longest wait for connections: to ports that a player is about to create, and connections
/// that the server has accepted.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// A client. The client is closed when this value is dropped.
pub(crate) struct JackClient {
    library: &'static JackLibrary,
    raw: NonNull<RawClient>,
}

// SAFETY: libjack lets any thread call these functions for a client; the callbacks, which run in
// threads of its own, have state of their own.
unsafe impl Send for JackClient {}
// SAFETY: as above.
unsafe impl Sync for JackClient {}

/// A port of this program's client.
#[derive(Clone, Copy)]
pub(crate) struct JackPort(NonNull<RawPort>);

// SAFETY: a handle, which libjack lets any thread use.
unsafe impl Send for JackPort {}

impl JackClient {
    /// Opens a client of the server that `JACK_DEFAULT_SERVER` names, or of the default server.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] without libjack, [`Kind::NotFound`] without a server, and
    /// [`Kind::Unanswered`] for a server that hangs.
    pub fn open(name: &str) -> Result<Self> {
        let library = JackLibrary::get()?;
        let name = CString::new(name)
            .map_err(|_| Error::new(Kind::Usage, "this is not a valid name of a JACK client"))?;
        let (sender, answer) = mpsc::channel();
        // A thread of its own: a server that hangs would hold this one for ever.
        std::thread::spawn(move || {
            let mut status: c_int = 0;
            // SAFETY: the name ends with 0 and lives; the status is written only.
            let raw = unsafe {
                (library.jack_client_open)(name.as_ptr(), NO_START_SERVER, &raw mut status)
            };
            let client = NonNull::new(raw).map(|raw| JackClient { library, raw });
            // No thread waits any more: the client is closed when it is dropped.
            let _ = sender.send((client, status));
        });
        match answer.recv_timeout(DEADLINE) {
            Ok((Some(client), _)) => Ok(client),
            Ok((None, status)) => Err(Error::new(
                Kind::NotFound,
                format!("no JACK server runs (status {status:#x})"),
            )
            .advice("start jackd or PipeWire; the variable JACK_DEFAULT_SERVER selects a server")),
            Err(_) => Err(Error::new(Kind::Unanswered, "the JACK server does not answer")
                .advice("check with jack_lsp whether the JACK server runs")),
        }
    }

    /// The name of the client; the server may have extended the requested name.
    pub fn name(&self) -> String {
        // SAFETY: the client is open; the name belongs to it.
        unsafe { text((self.library.jack_get_client_name)(self.raw.as_ptr())) }
    }

    /// Frames per second, as the server reports.
    pub fn rate(&self) -> u32 {
        // SAFETY: the client is open.
        unsafe { (self.library.jack_get_sample_rate)(self.raw.as_ptr()) }
    }

    /// The current frame of the server's clock, estimated within the block.
    pub fn now(&self) -> u32 {
        // SAFETY: the client is open.
        unsafe { (self.library.jack_frame_time)(self.raw.as_ptr()) }
    }

    /// The number of frames in a block of the server.
    pub(crate) fn block_frames(&self) -> u32 {
        // SAFETY: the client is open.
        unsafe { (self.library.jack_get_buffer_size)(self.raw.as_ptr()) }
    }

    /// Full names of all ports that produce samples, in the server's order.
    pub fn sources(&self) -> Vec<String> {
        self.ports(PORT_IS_OUTPUT)
    }

    /// Full names of all ports that receive samples, or only of hardware ports if `is_physical`.
    pub(crate) fn sinks(&self, is_physical: bool) -> Vec<String> {
        self.ports(if is_physical { PORT_IS_INPUT | PORT_IS_PHYSICAL } else { PORT_IS_INPUT })
    }

    fn ports(&self, flags: std::ffi::c_ulong) -> Vec<String> {
        // SAFETY: the client is open; the list ends with a null pointer, and is freed once.
        unsafe {
            let ports = (self.library.jack_get_ports)(
                self.raw.as_ptr(),
                std::ptr::null(),
                AUDIO.as_ptr(),
                flags,
            );
            if ports.is_null() {
                return Vec::new();
            }
            let mut names = Vec::new();
            while !(*ports.add(names.len())).is_null() {
                names.push(text(*ports.add(names.len())));
            }
            (self.library.jack_free)(ports.cast());
            names
        }
    }

    /// Creates a port that receives samples.
    ///
    /// # Errors
    /// [`Kind::Refused`] if the server cannot create more ports.
    pub(crate) fn input_port(&self, name: &str) -> Result<JackPort> {
        self.port(name, PORT_IS_INPUT)
    }

    /// Creates a port that produces samples.
    ///
    /// # Errors
    /// [`Kind::Refused`] if the server cannot create more ports.
    pub(crate) fn output_port(&self, name: &str) -> Result<JackPort> {
        self.port(name, PORT_IS_OUTPUT)
    }

    fn port(&self, name: &str, flags: std::ffi::c_ulong) -> Result<JackPort> {
        let refused = || {
            Error::new(
                Kind::Refused,
                format!("the JACK server refused to create the port '{name}'"),
            )
            .advice("the JACK server has too many ports: start it with a larger --port-max")
        };
        let name = CString::new(name).map_err(|_| refused())?;
        // SAFETY: the client is open, both texts end with 0 and are copied.
        let raw = unsafe {
            (self.library.jack_port_register)(
                self.raw.as_ptr(),
                name.as_ptr(),
                AUDIO.as_ptr(),
                flags,
                0,
            )
        };
        NonNull::new(raw).map(JackPort).ok_or_else(refused)
    }

    /// Connects a port of another client to a port of this client; returns whether the server
    /// accepted.
    pub fn connect(&self, source: &str, port: JackPort) -> bool {
        let Ok(source) = CString::new(source) else { return false };
        // SAFETY: client and port are open, the names end with 0.
        unsafe {
            let port = (self.library.jack_port_name)(port.0.as_ptr());
            (self.library.jack_connect)(self.raw.as_ptr(), source.as_ptr(), port) == 0
        }
    }

    /// Connects a port of this client to a port of another client; returns whether the server
    /// accepted.
    pub(crate) fn connect_to(&self, port: JackPort, sink: &str) -> bool {
        let Ok(sink) = CString::new(sink) else { return false };
        // SAFETY: client and port are open, the names end with 0.
        unsafe {
            let port = (self.library.jack_port_name)(port.0.as_ptr());
            (self.library.jack_connect)(self.raw.as_ptr(), port, sink.as_ptr()) == 0
        }
    }

    /// Makes every client report its latencies for the current connections, and waits until all
    /// have done so. Without this, a server requests latencies only some time after a connection
    /// was made, and until then the previous value is returned.
    pub(crate) fn update_latencies(&self) {
        // SAFETY: the client is open, and this does not run in one of its callbacks. If the server
        // refuses, the latencies stay as they are.
        unsafe { (self.library.jack_recompute_total_latencies)(self.raw.as_ptr()) };
    }

    /// The latency of the longest path: from the hardware to an input port of this client, or from
    /// an output port to the hardware, in frames.
    pub fn latency(&self, port: JackPort, is_capture: bool) -> u32 {
        let direction = if is_capture { CAPTURE_LATENCY } else { PLAYBACK_LATENCY };
        let mut range = LatencyRange::default();
        // SAFETY: the port is of this client, which is open; the range is written only.
        unsafe {
            (self.library.jack_port_get_latency_range)(port.0.as_ptr(), direction, &raw mut range);
        }
        range.most
    }

    /// Whether a port of this client has a connection; the server makes a connection in a block
    /// some time after [`connect`](JackClient::connect).
    pub(crate) fn is_connected(&self, port: JackPort) -> bool {
        // SAFETY: the port is of this client, which is open.
        unsafe { (self.library.jack_port_connected)(port.0.as_ptr()) > 0 }
    }
}

impl Drop for JackClient {
    fn drop(&mut self) {
        // SAFETY: open, and closed once only.
        unsafe { (self.library.jack_client_close)(self.raw.as_ptr()) };
    }
}

/// Copies a text of the library.
///
/// # Safety
/// `from` is null or points to a text that ends with a zero byte.
unsafe fn text(from: *const std::ffi::c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}
