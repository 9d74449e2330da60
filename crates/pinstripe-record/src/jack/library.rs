//! The functions of libjack, loaded when they are first needed; the binary can be built and run
//! without the library. The signatures are those in jack/jack.h and jack/types.h of JACK 1.9;
//! PipeWire's libjack has the same.

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::sync::OnceLock;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::foreign_functions;
use pinstripe_io::library::LoadedLibrary;

/// A client of a JACK server (`jack_client_t`).
#[repr(C)]
pub(crate) struct RawClient {
    _private: [u8; 0],
}

/// A port of a JACK client (`jack_port_t`).
#[repr(C)]
pub(crate) struct RawPort {
    _private: [u8; 0],
}

/// The latency between a port and the hardware, in frames, along different paths.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LatencyRange {
    /// The latency of the shortest path.
    pub least: u32,
    /// The latency of the longest path.
    pub most: u32,
}

/// The callback for each block, in the server's process thread.
pub(crate) type ProcessCallback = extern "C" fn(u32, *mut c_void) -> c_int;
/// The callback for a new sample rate.
pub(crate) type RateCallback = extern "C" fn(u32, *mut c_void) -> c_int;
/// The callback for a deadline that the server missed.
pub(crate) type XrunCallback = extern "C" fn(*mut c_void) -> c_int;
/// The callback for a shutdown of the server.
pub(crate) type ShutdownCallback = extern "C" fn(*mut c_void);
/// The callback for messages that the library would print.
pub(crate) type PrintCallback = extern "C" fn(*const c_char);

/// The option that keeps `jack_client_open` from starting a server.
pub(crate) const NO_START_SERVER: c_int = 1;
/// The direction of a latency from the hardware to a port.
pub(crate) const CAPTURE_LATENCY: c_int = 0;
/// The direction of a latency from a port to the hardware.
pub(crate) const PLAYBACK_LATENCY: c_int = 1;
/// The flag of a port that receives samples.
pub(crate) const PORT_IS_INPUT: c_ulong = 1;
/// The flag of a port that produces samples.
pub(crate) const PORT_IS_OUTPUT: c_ulong = 2;
/// The flag of a port that represents hardware.
pub(crate) const PORT_IS_PHYSICAL: c_ulong = 4;
/// The type of ports for audio: one `f32` for each frame.
pub(crate) const AUDIO: &CStr = c"32 bit float mono audio";

foreign_functions! {
    /// The functions of libjack, by their names.
    pub(crate) struct JackLibrary {
        jack_client_open: unsafe extern "C" fn(*const c_char, c_int, *mut c_int, ...) -> *mut RawClient = c"jack_client_open";
        jack_client_close: unsafe extern "C" fn(*mut RawClient) -> c_int = c"jack_client_close";
        jack_get_client_name: unsafe extern "C" fn(*mut RawClient) -> *const c_char = c"jack_get_client_name";
        jack_activate: unsafe extern "C" fn(*mut RawClient) -> c_int = c"jack_activate";
        jack_deactivate: unsafe extern "C" fn(*mut RawClient) -> c_int = c"jack_deactivate";
        jack_get_sample_rate: unsafe extern "C" fn(*mut RawClient) -> u32 = c"jack_get_sample_rate";
        jack_set_process_callback: unsafe extern "C" fn(*mut RawClient, ProcessCallback, *mut c_void) -> c_int = c"jack_set_process_callback";
        jack_set_sample_rate_callback: unsafe extern "C" fn(*mut RawClient, RateCallback, *mut c_void) -> c_int = c"jack_set_sample_rate_callback";
        jack_set_xrun_callback: unsafe extern "C" fn(*mut RawClient, XrunCallback, *mut c_void) -> c_int = c"jack_set_xrun_callback";
        jack_on_shutdown: unsafe extern "C" fn(*mut RawClient, ShutdownCallback, *mut c_void) = c"jack_on_shutdown";
        jack_last_frame_time: unsafe extern "C" fn(*const RawClient) -> u32 = c"jack_last_frame_time";
        jack_get_ports: unsafe extern "C" fn(*mut RawClient, *const c_char, *const c_char, c_ulong) -> *mut *const c_char = c"jack_get_ports";
        jack_port_register: unsafe extern "C" fn(*mut RawClient, *const c_char, *const c_char, c_ulong, c_ulong) -> *mut RawPort = c"jack_port_register";
        jack_port_name: unsafe extern "C" fn(*const RawPort) -> *const c_char = c"jack_port_name";
        jack_port_connected: unsafe extern "C" fn(*const RawPort) -> c_int = c"jack_port_connected";
        jack_port_get_buffer: unsafe extern "C" fn(*mut RawPort, u32) -> *mut c_void = c"jack_port_get_buffer";
        jack_connect: unsafe extern "C" fn(*mut RawClient, *const c_char, *const c_char) -> c_int = c"jack_connect";
        jack_free: unsafe extern "C" fn(*mut c_void) = c"jack_free";
        jack_set_error_function: unsafe extern "C" fn(PrintCallback) = c"jack_set_error_function";
        jack_set_info_function: unsafe extern "C" fn(PrintCallback) = c"jack_set_info_function";
        jack_frame_time: unsafe extern "C" fn(*const RawClient) -> u32 = c"jack_frame_time";
        jack_get_buffer_size: unsafe extern "C" fn(*mut RawClient) -> u32 = c"jack_get_buffer_size";
        jack_port_get_latency_range: unsafe extern "C" fn(*mut RawPort, c_int, *mut LatencyRange) = c"jack_port_get_latency_range";
        jack_recompute_total_latencies: unsafe extern "C" fn(*mut RawClient) -> c_int = c"jack_recompute_total_latencies";
    }
}

/// Discards the library's messages, which are not meant for the user.
extern "C" fn print_nothing(_: *const c_char) {}

impl JackLibrary {
    /// Returns the library of this system.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if the library is not installed.
    pub fn get() -> Result<&'static JackLibrary> {
        static LOADED: OnceLock<Option<JackLibrary>> = OnceLock::new();
        let found = LOADED.get_or_init(|| JackLibrary::load(c"libjack.so.0"));
        found.as_ref().ok_or_else(missing)
    }

    fn load(name: &CStr) -> Option<JackLibrary> {
        let library = JackLibrary::find(&LoadedLibrary::open(&[name]).ok()?).ok()?;
        // SAFETY: both take a function that may be called at any time.
        unsafe {
            (library.jack_set_error_function)(print_nothing);
            (library.jack_set_info_function)(print_nothing);
        }
        Some(library)
    }
}

fn missing() -> Error {
    Error::new(Kind::Unsupported, "libjack.so.0 is not installed").advice(
        "install JACK (Debian: libjack-jackd2-0) or PipeWire's libjack (pipewire-jack), or record \
         with an input of the kind pcm:",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named_with_its_package() {
        assert!(JackLibrary::load(c"libjack-of-nowhere.so.0").is_none());
        assert!(JackLibrary::load(c"libc.so.6").is_none(), "a library without these functions");
        let text = missing().to_string();
        assert!(text.contains("libjack.so.0"), "{text}");
    }
}
