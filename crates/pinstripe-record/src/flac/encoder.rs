//! Encodes one stream.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use pinstripe_base::error::{Error, Kind, Result};

use super::library::{ABORT, CONTINUE, FlacLibrary, InfoBlock, RawEncoder};
use super::widen;
use crate::header::FLAC_BLOCK;
use crate::sample::StreamShape;

/// The compression level of libFLAC, from 0 to 8: higher levels cost much more time and save only
/// some percent.
const LEVEL: u32 = 2;
/// The number of samples that marks output of the library as part of its head, which is not used.
const NO_SAMPLES: u32 = 0;

/// The output that the library passes to callbacks.
#[derive(Default)]
struct FlacOutput {
    bytes: Vec<u8>,
    samples: u64,
    md5: Option<[u8; 16]>,
}

/// An encoder of one stream.
pub(crate) struct FlacEncoder {
    library: &'static FlacLibrary,
    raw: NonNull<RawEncoder>,
    shape: StreamShape,
    /// The output is allocated separately, because the library keeps its address.
    encoded: NonNull<FlacOutput>,
    wide: Vec<i32>,
}

// SAFETY: libFLAC has no threads and no static data; any thread may use an encoder, one at a time.
unsafe impl Send for FlacEncoder {}

impl FlacEncoder {
    /// A new encoder, without any data.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] without libFLAC, or if it does not support the stream's form.
    pub fn new(shape: StreamShape) -> Result<Self> {
        let library = FlacLibrary::get()?;
        // SAFETY: no argument.
        let raw = NonNull::new(unsafe { (library.encoder_new)() });
        let raw = raw.ok_or_else(|| Error::new(Kind::Io, "libFLAC is out of memory"))?;
        let encoded = NonNull::from(Box::leak(Box::<FlacOutput>::default()));
        let encoder = FlacEncoder { library, raw, shape, encoded, wide: Vec::new() };
        let (it, argument) = (raw.as_ptr(), encoded.as_ptr().cast::<c_void>());
        let none = std::ptr::null();
        // SAFETY: the encoder is not initialized yet; what the callbacks are given lives as long as it.
        let status = unsafe {
            (library.set_channels)(it, shape.channels.into());
            (library.set_bits)(it, 8 * shape.format.bytes());
            (library.set_rate)(it, shape.rate);
            (library.set_level)(it, LEVEL);
            (library.set_blocksize)(it, FLAC_BLOCK as u32);
            // Unusual rates are stored in the head.
            (library.set_subset)(it, 0);
            (library.encoder_init)(it, take, none, none, note, argument)
        };
        match status {
            0 => Ok(encoder),
            status => {
                let what = format!("libFLAC refuses to encode this stream (status {status})");
                Err(Error::new(Kind::Unsupported, what).advice("record with --format wav"))
            }
        }
    }

    /// Encodes complete frames of a payload.
    ///
    /// # Errors
    /// [`Kind::Io`] if the library fails.
    pub fn encode(&mut self, payload: &[u8]) -> Result<()> {
        self.wide.clear();
        widen(self.shape.format, payload, &mut self.wide);
        let frames = self.wide.len() / usize::from(self.shape.channels);
        // SAFETY: the encoder is initialized, and the buffer has `frames` samples of each channel.
        let is_done = unsafe {
            (self.library.process_interleaved)(self.raw.as_ptr(), self.wide.as_ptr(), frames as u32)
        };
        if is_done == 0 {
            Err(Error::new(Kind::Io, "libFLAC cannot encode the samples"))
        } else {
            Ok(())
        }
    }

    /// Encodes the last block; returns the checksum of all samples.
    ///
    /// # Errors
    /// [`Kind::Io`] if the library fails.
    pub fn finish(&mut self) -> Result<Option<[u8; 16]>> {
        // SAFETY: the encoder is initialized.
        if unsafe { (self.library.encoder_finish)(self.raw.as_ptr()) } == 0 {
            return Err(Error::new(Kind::Io, "libFLAC cannot encode the last block of samples"));
        }
        // SAFETY: no callback runs outside of the calls of this encoder.
        Ok(unsafe { self.encoded.as_ref() }.md5)
    }

    /// Returns the encoded frames, and the number of samples per channel in them.
    pub fn take(&mut self) -> (Vec<u8>, u64) {
        // SAFETY: as above, and `self` is borrowed alone.
        let encoded = unsafe { self.encoded.as_mut() };
        (std::mem::take(&mut encoded.bytes), std::mem::take(&mut encoded.samples))
    }
}

impl Drop for FlacEncoder {
    fn drop(&mut self) {
        // SAFETY: made once and deleted once; after that no callback runs.
        unsafe {
            (self.library.encoder_delete)(self.raw.as_ptr());
            drop(Box::from_raw(self.encoded.as_ptr()));
        }
    }
}

extern "C" fn take(
    _: *const RawEncoder,
    bytes: *const u8,
    count: usize,
    samples: u32,
    _: u32,
    argument: *mut c_void,
) -> c_int {
    if samples == NO_SAMPLES {
        return CONTINUE;
    }
    if bytes.is_null() || argument.is_null() {
        return ABORT;
    }
    // SAFETY: the argument is what the encoder was given, and the library passes `count` bytes.
    let (encoded, bytes) =
        unsafe { (&mut *argument.cast::<FlacOutput>(), std::slice::from_raw_parts(bytes, count)) };
    encoded.bytes.extend_from_slice(bytes);
    encoded.samples += u64::from(samples);
    CONTINUE
}

extern "C" fn note(_: *const RawEncoder, info: *const InfoBlock, argument: *mut c_void) {
    if info.is_null() || argument.is_null() {
        return;
    }
    // SAFETY: the argument is what the encoder was given; the library passes only a STREAMINFO
    // here.
    unsafe { (*argument.cast::<FlacOutput>()).md5 = Some((*info).info.md5) };
}
