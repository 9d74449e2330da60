//! Decodes stored bytes to raw bytes: exactly the number in the record's header, or an error.

use std::fmt;

use super::{Codec, lzo};
use pinstripe_base::error::{Error, Kind, Result};

/// The largest number of raw bytes of a record: a header with a larger number is damaged.
pub(crate) const MAX_RAW_BYTES: usize = 64 << 20;

/// Decodes records. Each worker has one, because it keeps the zstd context.
pub struct Decoder {
    zstd: zstd::bulk::Decompressor<'static>,
    snappy: snap::raw::Decoder,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Makes a decoder for every codec.
    pub fn new() -> Self {
        let zstd = zstd::bulk::Decompressor::default();
        Decoder { zstd, snappy: snap::raw::Decoder::new() }
    }

    /// Decodes `stored` into `out`, which then holds exactly `raw_bytes` bytes. The old content of
    /// `out` is dropped; an `out` that is reused need not be cleared.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when the bytes are not valid for the codec, decode to another
    /// length, or `raw_bytes` exceeds [`MAX_RAW_BYTES`], or with [`Kind::Unsupported`] for an
    /// unknown `codec_id`. After a failure, `out` is empty.
    pub fn decode(
        &mut self,
        codec_id: u8,
        stored: &[u8],
        raw_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let result = self.decode_into(codec_id, stored, raw_bytes, out);
        if result.is_err() {
            out.clear();
        }
        result
    }

    fn decode_into(
        &mut self,
        codec_id: u8,
        stored: &[u8],
        raw_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if raw_bytes > MAX_RAW_BYTES {
            return Err(Error::new(
                Kind::Corrupt,
                "a record has an impossible uncompressed length",
            )
            .expected(format!("at most {MAX_RAW_BYTES} bytes"), raw_bytes));
        }
        if codec_id == RAW {
            out.clear();
            out.extend_from_slice(stored);
            return exact(out.len(), raw_bytes);
        }
        // The slice, not the vector's capacity, is what no codec can write beyond.
        out.resize(raw_bytes, 0);
        let slice = out.as_mut_slice();
        let decoded = match codec_id {
            ZSTD => {
                self.zstd.decompress_to_buffer(stored, slice).map_err(|e| damaged("zstd", e))?
            }
            LZ4 => {
                lz4_flex::block::decompress_into(stored, slice).map_err(|e| damaged("lz4", e))?
            }
            SNAPPY => self.snappy.decompress(stored, slice).map_err(|e| damaged("snappy", e))?,
            LZO => lzo::decompress(stored, slice).map_err(|e| damaged("lzo", e.text()))?,
            _ => {
                return Err(Error::new(Kind::Unsupported, "a record uses an unknown codec")
                    .expected("a codec id from 0 to 4", codec_id)
                    .advice(
                        "read the record with the version of pinstripe that wrote it, or a newer \
                         version",
                    ));
            }
        };
        exact(decoded, raw_bytes)
    }
}

const RAW: u8 = Codec::Raw.id();
const ZSTD: u8 = Codec::Zstd { level: 1 }.id();
const LZ4: u8 = Codec::Lz4.id();
const SNAPPY: u8 = Codec::Snappy.id();
const LZO: u8 = Codec::Lzo.id();

fn exact(decoded_bytes: usize, raw_bytes: usize) -> Result<()> {
    if decoded_bytes == raw_bytes {
        return Ok(());
    }
    Err(Error::new(
        Kind::Corrupt,
        "the decompressed length of a record differs from its recorded length",
    )
    .expected(format!("{raw_bytes} bytes"), decoded_bytes))
}

fn damaged(codec: &str, why: impl fmt::Display) -> Error {
    Error::new(Kind::Corrupt, format!("a record is not a valid {codec} stream: {why}"))
}
