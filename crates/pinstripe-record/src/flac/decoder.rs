//! Decodes one FLAC file, from any place.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::ptr::NonNull;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::SharedDevice;

use super::library::{
    ABORT, CONTINUE, DECODER_OVER, FlacLibrary, FrameHead, READ_ABORT, READ_END, RawDecoder,
};
use super::narrow;
use crate::sample::StreamShape;

/// The bytes of the head that are hidden from the decoder: the number of samples, beyond which it
/// would not read, and the checksum of the samples.
const UNTOLD: Range<u64> = 22..42;
/// The lower half of this byte belongs to the number of samples.
const HALF: u64 = 21;

/// The state for the library's callbacks.
struct DecoderInput {
    file: SharedDevice,
    /// The length of the file.
    length: u64,
    /// The offset at which the file is read next.
    at: u64,
    shape: StreamShape,
    /// The samples of the last decoded frame, interleaved.
    payload: Vec<u8>,
    /// The number of the first of these samples.
    first: u64,
    /// The first error: of the file, or a frame whose form differs from that of the stream.
    failure: Option<Error>,
}

/// A decoder.
pub(crate) struct FlacDecoder {
    library: &'static FlacLibrary,
    raw: NonNull<RawDecoder>,
    /// The state is allocated separately, because the library keeps its address.
    source: NonNull<DecoderInput>,
}

// SAFETY: libFLAC has no threads and no static data; any thread may use a decoder, one at a time.
unsafe impl Send for FlacDecoder {}

impl FlacDecoder {
    /// A decoder at the beginning of a file.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] without libFLAC; [`Kind::Corrupt`] if the file is not FLAC; the errors
    /// of the file.
    pub fn new(file: SharedDevice, shape: StreamShape) -> Result<Self> {
        let library = FlacLibrary::get()?;
        let length = file.len()?;
        let source = DecoderInput {
            file,
            length,
            at: 0,
            shape,
            payload: Vec::new(),
            first: 0,
            failure: None,
        };
        // SAFETY: no argument.
        let raw = NonNull::new(unsafe { (library.decoder_new)() });
        let raw = raw.ok_or_else(|| Error::new(Kind::Io, "libFLAC is out of memory"))?;
        let source = NonNull::from(Box::leak(Box::new(source)));
        let mut decoder = FlacDecoder { library, raw, source };
        let (it, argument) = (raw.as_ptr(), source.as_ptr().cast::<c_void>());
        let none = std::ptr::null();
        // SAFETY: the decoder is not initialized yet; what the callbacks are given lives as long as it.
        let status = unsafe {
            (library.decoder_init)(
                it, read, seek, tell, length_of, is_end, take, none, ignore, argument,
            )
        };
        if status != 0 {
            let what = format!("libFLAC refuses to decode this file (status {status})");
            return Err(Error::new(Kind::Unsupported, what));
        }
        decoder.read_head()?;
        Ok(decoder)
    }

    fn read_head(&mut self) -> Result<()> {
        // SAFETY: the decoder is initialized.
        let is_read = unsafe { (self.library.process_head)(self.raw.as_ptr()) } != 0;
        if is_read && !self.is_over() {
            Ok(())
        } else {
            Err(self.failed("this is not a FLAC file"))
        }
    }

    /// Returns to the beginning of the file.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn reset(&mut self) -> Result<()> {
        let source = self.source();
        source.at = 0;
        source.payload.clear();
        source.first = 0;
        // SAFETY: the decoder is initialized.
        unsafe { (self.library.decoder_reset)(self.raw.as_ptr()) };
        self.read_head()
    }

    /// Seeks to a sample, which is then the first decoded one. Returns false if the sample cannot
    /// be found; the decoder is then at the beginning.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn seek(&mut self, frame: u64) -> Result<bool> {
        self.source().payload.clear();
        // SAFETY: the decoder is initialized.
        let is_found = unsafe { (self.library.seek_absolute)(self.raw.as_ptr(), frame) } != 0;
        if is_found && self.source().first == frame && !self.source().payload.is_empty() {
            return Ok(true);
        }
        self.reset()?;
        Ok(false)
    }

    /// Decodes the next frame; returns false at the end.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] for frames whose form differs from that of the stream; the errors of the
    /// file.
    pub fn step(&mut self) -> Result<bool> {
        let behind = self.range().end;
        self.source().payload.clear();
        while !self.is_over() {
            // SAFETY: the decoder is initialized.
            let is_done = unsafe { (self.library.process_single)(self.raw.as_ptr()) } != 0;
            if !is_done || self.source().failure.is_some() {
                return Err(self.failed("cannot be decoded"));
            }
            if !self.source().payload.is_empty() {
                return Ok(true);
            }
        }
        self.source().first = behind;
        Ok(false)
    }

    /// The range of sample numbers of the last decoded frame.
    pub fn range(&mut self) -> Range<u64> {
        let source = self.source();
        let frames = source.payload.len() as u64 / source.shape.frame_bytes();
        source.first..source.first.saturating_add(frames)
    }

    /// The samples of the last decoded frame, as a payload.
    pub fn payload(&mut self) -> &[u8] {
        &self.source().payload
    }

    /// The offset in the file at which the next frame begins.
    pub fn position(&self) -> Option<u64> {
        let mut position = 0;
        // SAFETY: the decoder is initialized; the number is written only.
        let is_known =
            unsafe { (self.library.decode_position)(self.raw.as_ptr(), &raw mut position) };
        (is_known != 0).then_some(position)
    }

    fn is_over(&self) -> bool {
        // SAFETY: the decoder is initialized.
        unsafe { (self.library.decoder_state)(self.raw.as_ptr()) >= DECODER_OVER }
    }

    fn source(&mut self) -> &mut DecoderInput {
        // SAFETY: no callback runs outside of the calls of this decoder, and `self` is borrowed alone.
        unsafe { self.source.as_mut() }
    }

    fn failed(&mut self, what: &str) -> Error {
        // SAFETY: the decoder is initialized; the text is a constant of the library.
        let state = unsafe {
            let text = (self.library.state_text)(self.raw.as_ptr());
            if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy() }
        };
        let source = self.source();
        let failure = source.failure.take();
        failure.unwrap_or_else(|| Error::corrupt(format!("{what} ({state})"), source.file.place()))
    }
}

impl Drop for FlacDecoder {
    fn drop(&mut self) {
        // SAFETY: made once and deleted once; after that no callback runs.
        unsafe {
            (self.library.decoder_delete)(self.raw.as_ptr());
            drop(Box::from_raw(self.source.as_ptr()));
        }
    }
}

extern "C" fn read(
    _: *const RawDecoder,
    buffer: *mut u8,
    count: *mut usize,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the argument is the source, and `count` is the library's.
    let (source, count) = unsafe { (&mut *argument.cast::<DecoderInput>(), &mut *count) };
    // SAFETY: the library's buffer has `*count` bytes.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, *count) };
    *count = source.length.saturating_sub(source.at).min(buffer.len() as u64) as usize;
    if *count == 0 {
        return READ_END;
    }
    let buffer = &mut buffer[..*count];
    if let Err(error) = source.file.read_at(source.at, buffer) {
        source.failure.get_or_insert(error);
        return READ_ABORT;
    }
    for (place, byte) in (source.at..).zip(buffer.iter_mut()).take_while(|it| it.0 < UNTOLD.end) {
        match place {
            HALF => *byte &= 0xf0,
            place if UNTOLD.contains(&place) => *byte = 0,
            _ => {}
        }
    }
    source.at += *count as u64;
    CONTINUE
}

extern "C" fn seek(_: *const RawDecoder, place: u64, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is the source.
    let source = unsafe { &mut *argument.cast::<DecoderInput>() };
    source.at = place.min(source.length);
    CONTINUE
}

extern "C" fn tell(_: *const RawDecoder, place: *mut u64, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is the source; the number is the library's.
    unsafe { *place = (*argument.cast::<DecoderInput>()).at };
    CONTINUE
}

extern "C" fn length_of(_: *const RawDecoder, length: *mut u64, argument: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { *length = (*argument.cast::<DecoderInput>()).length };
    CONTINUE
}

extern "C" fn is_end(_: *const RawDecoder, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is the source.
    let source = unsafe { &*argument.cast::<DecoderInput>() };
    c_int::from(source.at >= source.length)
}

extern "C" fn take(
    _: *const RawDecoder,
    head: *const FrameHead,
    channels: *const *const i32,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the argument is the source; the library gives a frame with its head.
    let (source, head) = unsafe { (&mut *argument.cast::<DecoderInput>(), &*head) };
    let shape = &source.shape;
    if head.channels != u32::from(shape.channels) || head.bits != 8 * shape.format.bytes() {
        let found = format!("{} channels of {} bits", head.channels, head.bits);
        let expected = format!("{} channels of {} bits", shape.channels, 8 * shape.format.bytes());
        let error = Error::corrupt(
            "a frame of the FLAC file has another format than the stream",
            source.file.place(),
        );
        source.failure.get_or_insert(error.expected(expected, found));
        return ABORT;
    }
    source.payload.clear();
    source.first = head.number;
    for sample in 0..head.blocksize as usize {
        for channel in 0..head.channels as usize {
            // SAFETY: there is a pointer for each channel, to as many samples as the block has.
            let sample = unsafe { *(*channels.add(channel)).add(sample) };
            narrow(shape.format, sample, &mut source.payload);
        }
    }
    CONTINUE
}

/// Ignores reports of damage, which shows as missing samples.
extern "C" fn ignore(_: *const RawDecoder, _: c_int, _: *mut c_void) {}
