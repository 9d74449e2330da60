//! Reads a FLAC file as its samples, and can shorten it.

use std::ops::Range;
use std::path::Path;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Caps, Device, SharedDevice, write_parts};

use super::decoder::FlacDecoder;
use super::frame::verbatim_frame;
use crate::header::FLAC_BLOCK;
use crate::locks::{RankedMutex, RecordLock};
use crate::sample::StreamShape;

/// Within this distance ahead, in frames, the reader decodes instead of seeking.
const NEAR_FRAMES: u64 = 16 * FLAC_BLOCK;
/// The length that is reported for a file whose length is known only after decoding all of it;
/// reads return what exists.
const UNKNOWN: u64 = u64::MAX / 2;

/// A device of samples that is stored as a FLAC file.
pub(crate) struct FlacReader {
    file: SharedDevice,
    shape: StreamShape,
    payload_at: u64,
    /// The decoder; `None` before the first read.
    decoder: RankedMutex<Option<FlacDecoder>>,
}

impl FlacReader {
    /// Opens a file whose head ends at `payload_at`.
    ///
    /// # Errors
    /// [`Kind::Usage`] and [`Kind::Unsupported`] as in [`check_flac`](super::check_flac).
    pub fn new(file: SharedDevice, shape: StreamShape, payload_at: u64) -> Result<Self> {
        super::check_flac(&shape)?;
        Ok(FlacReader {
            file,
            shape,
            payload_at,
            decoder: RankedMutex::new(RecordLock::Decoder, None),
        })
    }

    /// Calls a function with the decoder, which is created at the first call.
    fn with<T>(&self, what: impl FnOnce(&mut FlacDecoder) -> Result<T>) -> Result<T> {
        let mut decoder = self.decoder.lock();
        let mut known = match decoder.take() {
            Some(known) => known,
            None => FlacDecoder::new(SharedDevice::clone(&self.file), self.shape)?,
        };
        // A decoder that failed is not used again.
        let done = what(&mut known)?;
        *decoder = Some(known);
        Ok(done)
    }

    fn missing(&self) -> Error {
        Error::corrupt("samples are missing from the FLAC file", self.file.place())
    }

    /// Makes the decoder decode the FLAC frame that contains this frame of the stream.
    fn find(&self, decoder: &mut FlacDecoder, frame: u64) -> Result<()> {
        let here = decoder.range();
        if here.contains(&frame) {
            return Ok(());
        }
        let is_near = here.end <= frame && frame - here.end <= NEAR_FRAMES;
        if !is_near && decoder.seek(frame)? {
            return Ok(());
        }
        // Forward from here; from the beginning where it could not be found.
        while decoder.step()? {
            let here = decoder.range();
            if here.contains(&frame) {
                return Ok(());
            }
            if here.start > frame {
                return Err(self.missing());
            }
        }
        Err(self.missing())
    }

    /// Shortens the file to this number of frames; the beginning of a FLAC block that is cut is
    /// kept.
    fn cut(&self, decoder: &mut FlacDecoder, frames: u64) -> Result<()> {
        let near = frames.saturating_sub(2 * FLAC_BLOCK);
        let mut begin = self.payload_at;
        if near > 0 && decoder.seek(near)? {
            begin = decoder.position().ok_or_else(|| self.missing())?;
        } else {
            decoder.reset()?;
        }
        // `begin` is the offset of the block that is decoded next.
        let mut kept = Vec::new();
        let mut number = frames / FLAC_BLOCK;
        let mut reached = decoder.range().end;
        while reached < frames {
            if !decoder.step()? || decoder.range().start != reached {
                return Err(self.missing());
            }
            let here = decoder.range();
            reached = here.end;
            if reached > frames {
                number = here.start / FLAC_BLOCK;
                let bytes = (frames - here.start) * self.shape.frame_bytes();
                kept = decoder.payload()[..bytes as usize].to_vec();
                break;
            }
            begin = decoder.position().ok_or_else(|| self.missing())?;
        }
        if kept.is_empty() {
            return self.file.set_len(begin);
        }
        let last = verbatim_frame(&self.shape, number, &kept);
        self.file.set_len(begin)?;
        self.file.write_at(begin, &last)
    }
}

impl Device for FlacReader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if offset < self.payload_at {
            return self.file.read_at(offset, buf);
        }
        let size = self.shape.frame_bytes();
        self.with(|decoder| {
            let (mut at, mut rest) = (offset - self.payload_at, buf);
            while !rest.is_empty() {
                self.find(decoder, at / size)?;
                let from = (at - decoder.range().start * size) as usize;
                let there = &decoder.payload()[from..];
                let count = there.len().min(rest.len());
                rest[..count].copy_from_slice(&there[..count]);
                rest = &mut rest[count..];
                at += count as u64;
            }
            Ok(())
        })
    }

    /// Writes to the head only: a [`FlacWriter`](super::FlacWriter) writes the samples.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        match offset < self.payload_at {
            true => self.file.write_at(offset, bytes),
            false => Err(Error::new(Kind::Unsupported, "a recorded FLAC file cannot be changed")),
        }
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        write_parts(self, offset, parts)
    }

    fn len(&self) -> Result<u64> {
        Ok(UNKNOWN)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let frames = bytes.saturating_sub(self.payload_at) / self.shape.frame_bytes();
        if frames == 0 {
            return self.file.set_len(self.payload_at);
        }
        self.with(|decoder| self.cut(decoder, frames))?;
        // The decoder knows the file as it was.
        *self.decoder.lock() = None;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    fn discard(&self, _: Range<u64>) -> Result<()> {
        Err(Error::new(Kind::Unsupported, "space inside a FLAC file cannot be released"))
    }

    fn caps(&self) -> Caps {
        self.file.caps()
    }

    fn place(&self) -> &Path {
        self.file.place()
    }
}
