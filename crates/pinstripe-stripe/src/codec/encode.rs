//! Encodes raw bytes to stored bytes. Each worker has one [`Encoder`]: contexts and tables are made
//! once, and nothing is allocated after the largest record was encoded.

use lz4_flex::block::CompressTable;
use zstd::zstd_safe::CParameter;

use super::{Codec, Look, MAX_RAW_BYTES, check_level, looks_incompressible, lzo};
use pinstripe_base::error::{Error, Kind, Result};

/// Compression must save at least this fraction of a record, 1 in this many bytes; otherwise the
/// record is stored raw.
const SAVING_DIVISOR: usize = 64;
/// log2 of 4 MiB: a record up to this length gets a window at least as long as the record.
const LARGEST_WINDOW_LOG: u32 = 22;
/// LZ4 inputs below this length use a table of 16-bit positions.
const LZ4_SMALL_BYTES: usize = u16::MAX as usize;
/// After this many incompressible records in a row the next records are examined only briefly,
/// except every `THOROUGH_EVERY`th.
const BRIEF_AFTER: u32 = 8;
const THOROUGH_EVERY: u32 = 16;

/// The result of encoding one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoded {
    /// Compression does not help: the stored bytes are the raw bytes, and nothing was copied.
    Raw,
    /// The stored bytes are in the output, in the format of this codec id.
    Packed(u8),
}

impl Encoded {
    /// The codec id that the record's header stores.
    pub const fn codec_id(self) -> u8 {
        match self {
            Encoded::Raw => Codec::Raw.id(),
            Encoded::Packed(id) => id,
        }
    }

    /// Returns the bytes to store, given the arguments of [`Encoder::encode`].
    pub const fn stored<'a>(self, raw: &'a [u8], out: &'a [u8]) -> &'a [u8] {
        match self {
            Encoded::Raw => raw,
            Encoded::Packed(_) => out,
        }
    }
}

/// Compresses records, one after the other.
pub struct Encoder {
    codec: Codec,
    engine: CodecEngine,
    /// A buffer for the worst case of codecs that require it; as long as the largest record so far
    /// needed.
    scratch: Vec<u8>,
    /// The number of records in a row that looked incompressible.
    hopeless: u32,
}

enum CodecEngine {
    Raw,
    Zstd(zstd::bulk::Compressor<'static>),
    Lz4 { small: CompressTable, large: CompressTable },
    Snappy(Box<snap::raw::Encoder>),
    Lzo(lzo::Dictionary),
}

impl Encoder {
    /// Makes an encoder with its contexts.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for an impossible zstd level, or with [`Kind::Io`] if there is no
    /// memory.
    pub fn new(codec: Codec) -> Result<Self> {
        let engine = match codec {
            Codec::Raw => CodecEngine::Raw,
            Codec::Zstd { level } => CodecEngine::Zstd(zstd_context(check_level(level)?)?),
            Codec::Lz4 => {
                CodecEngine::Lz4 { small: CompressTable::small(), large: CompressTable::large() }
            }
            Codec::Snappy => CodecEngine::Snappy(Box::new(snap::raw::Encoder::new())),
            Codec::Lzo => CodecEngine::Lzo(lzo::Dictionary::default()),
        };
        Ok(Encoder { codec, engine, scratch: Vec::new(), hopeless: 0 })
    }

    /// The codec of this encoder.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Encodes `raw` into `out`, whose old content is dropped. `out` stays empty when the result is
    /// [`Encoded::Raw`]: the caller then stores `raw` itself ([`Encoded::stored`] returns the right
    /// one).
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for more than [`MAX_RAW_BYTES`], or with [`Kind::Io`] when the
    /// codec fails for another reason, such as lack of memory.
    pub fn encode(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<Encoded> {
        out.clear();
        self.encode_behind(raw, out)
    }

    /// Appends the bytes to store for `raw` to `out`, compressed or unchanged.
    ///
    /// # Errors
    /// Fails with the errors of [`encode`](Self::encode).
    pub fn append(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<Encoded> {
        let encoded = self.encode_behind(raw, out)?;
        if encoded == Encoded::Raw {
            out.extend_from_slice(raw);
        }
        Ok(encoded)
    }

    /// Encodes `raw` and appends the result to `out`; `out` is unchanged when the result is
    /// [`Encoded::Raw`].
    fn encode_behind(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<Encoded> {
        let start = out.len();
        if raw.len() > MAX_RAW_BYTES {
            return Err(Error::new(Kind::Usage, "a record is too long to be encoded")
                .expected(format!("at most {MAX_RAW_BYTES} bytes"), raw.len()));
        }
        let most = raw.len() - raw.len().div_ceil(SAVING_DIVISOR);
        if most == 0 || self.codec == Codec::Raw || self.is_hopeless(raw) {
            return Ok(Encoded::Raw);
        }
        let bytes = self.compress(raw, out).map_err(|why| {
            Error::new(Kind::Io, format!("{} cannot encode a record: {why}", self.codec))
        })?;
        if bytes > most {
            out.truncate(start);
            return Ok(Encoded::Raw);
        }
        if out.len() == start {
            out.extend_from_slice(&self.scratch[..bytes]);
        }
        Ok(Encoded::Packed(self.codec.id()))
    }

    /// Whether to skip compression of this record because it looks incompressible.
    fn is_hopeless(&mut self, raw: &[u8]) -> bool {
        let is_known =
            self.hopeless >= BRIEF_AFTER && !self.hopeless.is_multiple_of(THOROUGH_EVERY);
        let look = if is_known { Look::Brief } else { Look::Thorough };
        let is_hopeless = looks_incompressible(raw, look);
        self.hopeless = if is_hopeless { self.hopeless.wrapping_add(1) } else { 0 };
        is_hopeless
    }

    /// Returns the compressed length; the compressed bytes are at the end of `out` (zstd needs no
    /// cleared buffer) or in `scratch`.
    fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<usize, String> {
        let scratch = &mut self.scratch;
        match &mut self.engine {
            CodecEngine::Raw => Ok(raw.len()),
            CodecEngine::Zstd(context) => {
                // Room for the worst case, so that zstd never stops half way.
                out.reserve(zstd::zstd_safe::compress_bound(raw.len()));
                let mut behind = std::io::Cursor::new(out);
                behind.set_position(behind.get_ref().len() as u64);
                context.compress_to_buffer(raw, &mut behind).map_err(|e| e.to_string())
            }
            CodecEngine::Lz4 { small, large } => {
                let table = if raw.len() < LZ4_SMALL_BYTES { small } else { large };
                let to = room(scratch, lz4_flex::block::get_maximum_output_size(raw.len()));
                lz4_flex::block::compress_into_with_table(raw, to, table).map_err(|e| e.to_string())
            }
            CodecEngine::Snappy(encoder) => {
                let to = room(scratch, snap::raw::max_compress_len(raw.len()));
                encoder.compress(raw, to).map_err(|e| e.to_string())
            }
            CodecEngine::Lzo(dictionary) => {
                let to = room(scratch, lzo::max_stored_bytes(raw.len()));
                Ok(lzo::compress(raw, dictionary, to))
            }
        }
    }
}

/// Makes a zstd context for complete records, without content size and checksum, because the
/// record's header has both.
fn zstd_context(level: i32) -> Result<zstd::bulk::Compressor<'static>> {
    let refused = |e: std::io::Error| Error::new(Kind::Io, format!("cannot set up zstd: {e}"));
    let mut context = zstd::bulk::Compressor::new(level).map_err(refused)?;
    for parameter in [
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
        CParameter::DictIdFlag(false),
        CParameter::WindowLog(LARGEST_WINDOW_LOG),
    ] {
        context.set_parameter(parameter).map_err(refused)?;
    }
    Ok(context)
}

/// Returns the first `bytes` bytes of `scratch`, extended where needed.
fn room(scratch: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if scratch.len() < bytes {
        scratch.resize(bytes, 0);
    }
    &mut scratch[..bytes]
}
