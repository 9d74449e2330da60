//! The functions of libFLAC, loaded when they are first needed; the binary can be built and run
//! without the library. The signatures are those in FLAC/stream_encoder.h, FLAC/stream_decoder.h
//! and FLAC/format.h of libFLAC 1.3 and 1.4.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::foreign_functions;
use pinstripe_io::library::LoadedLibrary;

/// The library names of the releases since 1.3, the newest first; the declarations in this module
/// apply to all of them.
const NAMES: [&CStr; 3] = [c"libFLAC.so.14", c"libFLAC.so.12", c"libFLAC.so.8"];

/// An encoder.
#[repr(C)]
pub(crate) struct RawEncoder {
    _private: [u8; 0],
}

/// A decoder.
#[repr(C)]
pub(crate) struct RawDecoder {
    _private: [u8; 0],
}

/// The beginning of `FLAC__Frame`. A decoder always numbers frames by samples.
#[repr(C)]
pub(crate) struct FrameHead {
    /// The number of samples of each channel.
    pub blocksize: u32,
    /// Samples per second.
    pub rate: u32,
    /// Channels.
    pub channels: u32,
    /// How the channels are combined.
    pub assignment: c_int,
    /// Bits of a sample.
    pub bits: u32,
    /// The kind of the frame's number: 1 if it is the number of the first sample.
    pub number_kind: c_int,
    /// The number.
    pub number: u64,
}

/// The beginning of `FLAC__StreamMetadata` with a STREAMINFO.
#[repr(C)]
pub(crate) struct InfoBlock {
    kind: c_int,
    is_last: c_int,
    length: u32,
    /// What it says.
    pub info: StreamInfo,
}

/// `FLAC__StreamMetadata_StreamInfo`.
#[repr(C)]
pub(crate) struct StreamInfo {
    block_frame_sizes: [u32; 4],
    rate_channels_bits: [u32; 3],
    samples: u64,
    /// The checksum of all samples.
    pub md5: [u8; 16],
}

/// The callback that receives encoded data: the encoder, the bytes, their number, the number of
/// samples in them, and the number of the frame.
pub(crate) type EncodedCallback =
    extern "C" fn(*const RawEncoder, *const u8, usize, u32, u32, *mut c_void) -> c_int;
/// The callback that receives the STREAMINFO at the end of a stream.
pub(crate) type InfoCallback = extern "C" fn(*const RawEncoder, *const InfoBlock, *mut c_void);
/// The callback that supplies bytes to a decoder: a buffer, and its size on entry, which is
/// replaced by the number of bytes read.
pub(crate) type ReadCallback =
    extern "C" fn(*const RawDecoder, *mut u8, *mut usize, *mut c_void) -> c_int;
/// The callback that seeks to an offset.
pub(crate) type SeekCallback = extern "C" fn(*const RawDecoder, u64, *mut c_void) -> c_int;
/// The callback that returns an offset or a length.
pub(crate) type TellCallback = extern "C" fn(*const RawDecoder, *mut u64, *mut c_void) -> c_int;
/// The callback that returns whether the end of the file is reached.
pub(crate) type EndCallback = extern "C" fn(*const RawDecoder, *mut c_void) -> c_int;
/// The callback that receives decoded samples, by channel.
pub(crate) type DecodedCallback =
    extern "C" fn(*const RawDecoder, *const FrameHead, *const *const i32, *mut c_void) -> c_int;
/// The callback that receives reports of damage.
pub(crate) type ErrorCallback = extern "C" fn(*const RawDecoder, c_int, *mut c_void);

/// The status that makes the library continue, for every callback.
pub(crate) const CONTINUE: c_int = 0;
/// The status that a read callback returns at the end of the file.
pub(crate) const READ_END: c_int = 1;
/// The status that a read callback returns for an error.
pub(crate) const READ_ABORT: c_int = 2;
/// The status that a write, seek or tell callback returns for an error.
pub(crate) const ABORT: c_int = 1;
/// The first of the states in which a decoder is at the end or has failed.
pub(crate) const DECODER_OVER: c_int = 4;

type SetNumber = unsafe extern "C" fn(*mut RawEncoder, c_uint) -> c_int;

foreign_functions! {
    /// Functions of libFLAC.
    pub(crate) struct FlacLibrary {
        encoder_new: unsafe extern "C" fn() -> *mut RawEncoder = c"FLAC__stream_encoder_new";
        encoder_delete: unsafe extern "C" fn(*mut RawEncoder) = c"FLAC__stream_encoder_delete";
        set_channels: SetNumber = c"FLAC__stream_encoder_set_channels";
        set_bits: SetNumber = c"FLAC__stream_encoder_set_bits_per_sample";
        set_rate: SetNumber = c"FLAC__stream_encoder_set_sample_rate";
        set_level: SetNumber = c"FLAC__stream_encoder_set_compression_level";
        set_blocksize: SetNumber = c"FLAC__stream_encoder_set_blocksize";
        set_subset: unsafe extern "C" fn(*mut RawEncoder, c_int) -> c_int = c"FLAC__stream_encoder_set_streamable_subset";
        encoder_init: unsafe extern "C" fn(*mut RawEncoder, EncodedCallback, *const c_void, *const c_void, InfoCallback, *mut c_void) -> c_int = c"FLAC__stream_encoder_init_stream";
        process_interleaved: unsafe extern "C" fn(*mut RawEncoder, *const i32, u32) -> c_int = c"FLAC__stream_encoder_process_interleaved";
        encoder_finish: unsafe extern "C" fn(*mut RawEncoder) -> c_int = c"FLAC__stream_encoder_finish";
        decoder_new: unsafe extern "C" fn() -> *mut RawDecoder = c"FLAC__stream_decoder_new";
        decoder_delete: unsafe extern "C" fn(*mut RawDecoder) = c"FLAC__stream_decoder_delete";
        decoder_init: unsafe extern "C" fn(*mut RawDecoder, ReadCallback, SeekCallback, TellCallback, TellCallback, EndCallback, DecodedCallback, *const c_void, ErrorCallback, *mut c_void) -> c_int = c"FLAC__stream_decoder_init_stream";
        process_head: unsafe extern "C" fn(*mut RawDecoder) -> c_int = c"FLAC__stream_decoder_process_until_end_of_metadata";
        process_single: unsafe extern "C" fn(*mut RawDecoder) -> c_int = c"FLAC__stream_decoder_process_single";
        decoder_state: unsafe extern "C" fn(*const RawDecoder) -> c_int = c"FLAC__stream_decoder_get_state";
        decode_position: unsafe extern "C" fn(*const RawDecoder, *mut u64) -> c_int = c"FLAC__stream_decoder_get_decode_position";
        seek_absolute: unsafe extern "C" fn(*mut RawDecoder, u64) -> c_int = c"FLAC__stream_decoder_seek_absolute";
        decoder_reset: unsafe extern "C" fn(*mut RawDecoder) -> c_int = c"FLAC__stream_decoder_reset";
        state_text: unsafe extern "C" fn(*const RawDecoder) -> *const c_char = c"FLAC__stream_decoder_get_resolved_state_string";
    }
}

impl FlacLibrary {
    /// Returns the library of this system.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if the library is not installed.
    pub fn get() -> Result<&'static FlacLibrary> {
        static LOADED: OnceLock<Result<FlacLibrary>> = OnceLock::new();
        LOADED.get_or_init(|| FlacLibrary::load(&NAMES)).as_ref().map_err(Error::duplicate)
    }

    fn load(names: &[&CStr]) -> Result<FlacLibrary> {
        LoadedLibrary::open(names).and_then(|it| FlacLibrary::find(&it)).map_err(|failure| {
            Error::new(Kind::Unsupported, format!("libFLAC cannot be loaded ({failure})")).advice(
                "install libFLAC (Debian: libflac12), or record with --format wav and run the \
                 program flac after the take",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named_and_what_to_do_without() {
        let error = FlacLibrary::load(&[c"libFLAC-of-nowhere.so.1"]).err().unwrap();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.what().contains("libFLAC-of-nowhere"), "{error}");
        assert!(error.advice_text().is_some_and(|it| it.contains("after the take")));
    }
}
