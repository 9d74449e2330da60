//! The functions of libasound, loaded when they are first needed; the binary can be built and run
//! without the library. The signatures are those in alsa/pcm.h and alsa/error.h of alsa-lib 1.0 and
//! 1.2.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::OnceLock;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::foreign_functions;
use pinstripe_io::library::LoadedLibrary;

/// An open device.
#[repr(C)]
pub(crate) struct RawPcm {
    _private: [u8; 0],
}

/// A set of hardware configurations (`snd_pcm_hw_params_t`).
#[repr(C)]
pub(crate) struct RawHardware {
    _private: [u8; 0],
}

/// A software configuration (`snd_pcm_sw_params_t`).
#[repr(C)]
pub(crate) struct RawSoftware {
    _private: [u8; 0],
}

/// `SND_PCM_STREAM_PLAYBACK`.
pub(crate) const PLAYBACK: c_int = 0;
/// `SND_PCM_STREAM_CAPTURE`.
pub(crate) const CAPTURE: c_int = 1;
/// `SND_PCM_NONBLOCK`.
pub const NONBLOCK: c_int = 1;
/// `SND_PCM_ACCESS_RW_INTERLEAVED`.
pub(crate) const INTERLEAVED: c_int = 3;
/// `SND_PCM_TYPE_FILE` and `SND_PCM_TYPE_NULL`.
pub(crate) const UNPACED: [c_int; 2] = [3, 4];

/// The function that the library calls with its messages. The last parameters of the error handler
/// are those of printf(3); in the calling conventions of Linux, a function that does not read them
/// can omit them.
type ErrorHandler = extern "C" fn(*const c_char, c_int, *const c_char, c_int, *const c_char);

foreign_functions! {
    /// Functions of libasound.
    pub(crate) struct AlsaLibrary {
        open: unsafe extern "C" fn(*mut *mut RawPcm, *const c_char, c_int, c_int) -> c_int = c"snd_pcm_open";
        close: unsafe extern "C" fn(*mut RawPcm) -> c_int = c"snd_pcm_close";
        kind: unsafe extern "C" fn(*mut RawPcm) -> c_int = c"snd_pcm_type";
        hardware_new: unsafe extern "C" fn(*mut *mut RawHardware) -> c_int = c"snd_pcm_hw_params_malloc";
        hardware_free: unsafe extern "C" fn(*mut RawHardware) = c"snd_pcm_hw_params_free";
        hardware_any: unsafe extern "C" fn(*mut RawPcm, *mut RawHardware) -> c_int = c"snd_pcm_hw_params_any";
        set_access: unsafe extern "C" fn(*mut RawPcm, *mut RawHardware, c_int) -> c_int = c"snd_pcm_hw_params_set_access";
        test_format: unsafe extern "C" fn(*mut RawPcm, *mut RawHardware, c_int) -> c_int = c"snd_pcm_hw_params_test_format";
        set_format: unsafe extern "C" fn(*mut RawPcm, *mut RawHardware, c_int) -> c_int = c"snd_pcm_hw_params_set_format";
        set_channels: unsafe extern "C" fn(*mut RawPcm, *mut RawHardware, c_uint) -> c_int = c"snd_pcm_hw_params_set_channels";
        set_channels_near: unsafe extern "C" fn(*mut RawPcm, *mut RawHardware, *mut c_uint) -> c_int = c"snd_pcm_hw_params_set_channels_near";
        set_resample: unsafe extern "C" fn(*mut RawPcm, *mut RawHardware, c_uint) -> c_int = c"snd_pcm_hw_params_set_rate_resample";
        set_rate_near: unsafe extern "C" fn(*mut RawPcm, *mut RawHardware, *mut c_uint, *mut c_int) -> c_int = c"snd_pcm_hw_params_set_rate_near";
        set_period_near: unsafe extern "C" fn(*mut RawPcm, *mut RawHardware, *mut c_uint, *mut c_int) -> c_int = c"snd_pcm_hw_params_set_period_time_near";
        set_buffer_near: unsafe extern "C" fn(*mut RawPcm, *mut RawHardware, *mut c_uint, *mut c_int) -> c_int = c"snd_pcm_hw_params_set_buffer_time_near";
        set_hardware: unsafe extern "C" fn(*mut RawPcm, *mut RawHardware) -> c_int = c"snd_pcm_hw_params";
        buffer_size: unsafe extern "C" fn(*const RawHardware, *mut c_ulong) -> c_int = c"snd_pcm_hw_params_get_buffer_size";
        software_new: unsafe extern "C" fn(*mut *mut RawSoftware) -> c_int = c"snd_pcm_sw_params_malloc";
        software_free: unsafe extern "C" fn(*mut RawSoftware) = c"snd_pcm_sw_params_free";
        software_now: unsafe extern "C" fn(*mut RawPcm, *mut RawSoftware) -> c_int = c"snd_pcm_sw_params_current";
        set_start: unsafe extern "C" fn(*mut RawPcm, *mut RawSoftware, c_ulong) -> c_int = c"snd_pcm_sw_params_set_start_threshold";
        set_software: unsafe extern "C" fn(*mut RawPcm, *mut RawSoftware) -> c_int = c"snd_pcm_sw_params";
        prepare: unsafe extern "C" fn(*mut RawPcm) -> c_int = c"snd_pcm_prepare";
        start: unsafe extern "C" fn(*mut RawPcm) -> c_int = c"snd_pcm_start";
        resume: unsafe extern "C" fn(*mut RawPcm) -> c_int = c"snd_pcm_resume";
        drain: unsafe extern "C" fn(*mut RawPcm) -> c_int = c"snd_pcm_drain";
        wait: unsafe extern "C" fn(*mut RawPcm, c_int) -> c_int = c"snd_pcm_wait";
        avail: unsafe extern "C" fn(*mut RawPcm) -> c_long = c"snd_pcm_avail_update";
        readi: unsafe extern "C" fn(*mut RawPcm, *mut c_void, c_ulong) -> c_long = c"snd_pcm_readi";
        writei: unsafe extern "C" fn(*mut RawPcm, *const c_void, c_ulong) -> c_long = c"snd_pcm_writei";
        error_text: unsafe extern "C" fn(c_int) -> *const c_char = c"snd_strerror";
        set_error_handler: unsafe extern "C" fn(ErrorHandler) -> c_int = c"snd_lib_error_set_handler";
    }
}

/// Keeps the library from printing; errors of this program contain its messages.
extern "C" fn print_nothing(
    _: *const c_char,
    _: c_int,
    _: *const c_char,
    _: c_int,
    _: *const c_char,
) {
}

impl AlsaLibrary {
    /// Returns the library of this system.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if the library is not installed.
    pub fn get() -> Result<&'static AlsaLibrary> {
        static LOADED: OnceLock<Result<AlsaLibrary>> = OnceLock::new();
        LOADED
            .get_or_init(|| AlsaLibrary::load(c"libasound.so.2"))
            .as_ref()
            .map_err(Error::duplicate)
    }

    fn load(name: &CStr) -> Result<AlsaLibrary> {
        let found = LoadedLibrary::open(&[name]).and_then(|it| AlsaLibrary::find(&it));
        let library = found.map_err(|failure| {
            Error::new(Kind::Unsupported, format!("the ALSA library cannot be loaded ({failure})"))
                .advice(
                    "install the ALSA library (Debian: libasound2), or use pcm: together with \
                     arecord or aplay",
                )
        })?;
        // SAFETY: it takes a function that may be called at any time.
        unsafe { (library.set_error_handler)(print_nothing) };
        Ok(library)
    }

    /// The library's text for an error code.
    pub fn text(&self, code: c_int) -> String {
        // SAFETY: the text is a constant, or null.
        let text = unsafe { (self.error_text)(code) };
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: it is not null and ends with 0.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named_with_its_package() {
        let error = AlsaLibrary::load(c"libasound-of-nowhere.so.2").err().unwrap();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.to_string().contains("libasound-of-nowhere"), "{error}");
        let error = AlsaLibrary::load(c"libc.so.6").err().unwrap().to_string();
        assert!(error.contains("snd_pcm_open"), "{error}");
    }
}
