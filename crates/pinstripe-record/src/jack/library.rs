//! The functions of libjack, found when they are first needed: the binary is built and runs without
//! it. Signatures: jack/jack.h, jack/types.h of JACK 1.9; PipeWire's libjack has the same.

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::sync::OnceLock;

use pinstripe_base::error::{Error, Kind, Result};

/// A client of a server.
#[repr(C)]
pub struct RawClient {
    _private: [u8; 0],
}

/// A port of a client.
#[repr(C)]
pub struct RawPort {
    _private: [u8; 0],
}

/// Called for each block, in the thread of the server's clock.
pub type ProcessCallback = extern "C" fn(u32, *mut c_void) -> c_int;
/// Called with a new rate.
pub type RateCallback = extern "C" fn(u32, *mut c_void) -> c_int;
/// Called when a deadline of the server was missed.
pub type XrunCallback = extern "C" fn(*mut c_void) -> c_int;
/// Called when the server is gone.
pub type ShutdownCallback = extern "C" fn(*mut c_void);
/// Called with what the library would print.
pub type PrintCallback = extern "C" fn(*const c_char);

/// Option of `jack_client_open`: no server is started.
pub const NO_START_SERVER: c_int = 1;
/// Flag of a port that takes samples.
pub const PORT_IS_INPUT: c_ulong = 1;
/// Flag of a port that gives samples.
pub const PORT_IS_OUTPUT: c_ulong = 2;
/// The type of ports with samples: one `f32` for each frame.
pub const AUDIO: &CStr = c"32 bit float mono audio";

macro_rules! functions {
    ($($name:ident: $signature:ty,)*) => {
        /// Functions of libjack by their names.
        pub struct JackLibrary {
            $(pub $name: $signature,)*
        }

        impl JackLibrary {
            fn find(handle: *mut c_void) -> Option<Self> {
                Some(JackLibrary {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the handle is of a library that stays loaded, the name ends with 0.
                        let symbol = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
                        if symbol.is_null() {
                            return None;
                        }
                        // SAFETY: the signature is the one of jack/jack.h.
                        unsafe { std::mem::transmute::<*mut c_void, $signature>(symbol) }
                    },)*
                })
            }
        }
    };
}

functions! {
    jack_client_open: unsafe extern "C" fn(*const c_char, c_int, *mut c_int, ...) -> *mut RawClient,
    jack_client_close: unsafe extern "C" fn(*mut RawClient) -> c_int,
    jack_get_client_name: unsafe extern "C" fn(*mut RawClient) -> *const c_char,
    jack_activate: unsafe extern "C" fn(*mut RawClient) -> c_int,
    jack_deactivate: unsafe extern "C" fn(*mut RawClient) -> c_int,
    jack_get_sample_rate: unsafe extern "C" fn(*mut RawClient) -> u32,
    jack_set_process_callback:
        unsafe extern "C" fn(*mut RawClient, ProcessCallback, *mut c_void) -> c_int,
    jack_set_sample_rate_callback:
        unsafe extern "C" fn(*mut RawClient, RateCallback, *mut c_void) -> c_int,
    jack_set_xrun_callback:
        unsafe extern "C" fn(*mut RawClient, XrunCallback, *mut c_void) -> c_int,
    jack_on_shutdown: unsafe extern "C" fn(*mut RawClient, ShutdownCallback, *mut c_void),
    jack_last_frame_time: unsafe extern "C" fn(*const RawClient) -> u32,
    jack_get_ports: unsafe extern "C" fn(
        *mut RawClient, *const c_char, *const c_char, c_ulong,
    ) -> *mut *const c_char,
    jack_port_register: unsafe extern "C" fn(
        *mut RawClient, *const c_char, *const c_char, c_ulong, c_ulong,
    ) -> *mut RawPort,
    jack_port_name: unsafe extern "C" fn(*const RawPort) -> *const c_char,
    jack_port_connected: unsafe extern "C" fn(*const RawPort) -> c_int,
    jack_port_get_buffer: unsafe extern "C" fn(*mut RawPort, u32) -> *mut c_void,
    jack_connect: unsafe extern "C" fn(*mut RawClient, *const c_char, *const c_char) -> c_int,
    jack_free: unsafe extern "C" fn(*mut c_void),
    jack_set_error_function: unsafe extern "C" fn(PrintCallback),
    jack_set_info_function: unsafe extern "C" fn(PrintCallback),
}

/// What the library would print belongs to no user.
extern "C" fn print_nothing(_: *const c_char) {}

impl JackLibrary {
    /// The library of this system.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] where there is none.
    pub fn get() -> Result<&'static JackLibrary> {
        static LOADED: OnceLock<Option<JackLibrary>> = OnceLock::new();
        let found = LOADED.get_or_init(|| JackLibrary::load(c"libjack.so.0"));
        found.as_ref().ok_or_else(missing)
    }

    fn load(name: &CStr) -> Option<JackLibrary> {
        // SAFETY: the name ends with 0; the library is never unloaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let library = if handle.is_null() { None } else { JackLibrary::find(handle) }?;
        // SAFETY: both take a function that may be called at any time.
        unsafe {
            (library.jack_set_error_function)(print_nothing);
            (library.jack_set_info_function)(print_nothing);
        }
        Some(library)
    }
}

fn missing() -> Error {
    Error::new(Kind::Unsupported, "there is no libjack.so.0 here")
        .advice("install JACK (Debian: libjack-jackd2-0) or PipeWire's libjack (pipewire-jack), or record with pcm:")
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
