//! Raw bytes to stored bytes. One [`Encoder`] per worker: contexts and tables are made once, and
//! after the largest record has been seen nothing is allocated.

use lz4_flex::block::CompressTable;
use zstd::zstd_safe::CParameter;

use super::{Codec, Look, MAX_RAW_BYTES, check_level, looks_incompressible, lzo};
use pinstripe_base::error::{Error, Kind, Result};

/// A record must lose this part of its length, or it is stored raw.
const SAVING_DIVISOR: usize = 64;
/// log2 of 4 MiB: no record up to this length gets a window shorter than itself.
const LARGEST_WINDOW_LOG: u32 = 22;
/// LZ4 inputs below this length use a table of 16-bit places.
const LZ4_SMALL_BYTES: usize = u16::MAX as usize;
/// After this many incompressible records in a row the next ones are examined briefly, except every
/// `THOROUGH_EVERY`th.
const BRIEF_AFTER: u32 = 8;
const THOROUGH_EVERY: u32 = 16;

/// The outcome of encoding one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoded {
    /// No codec helps: the stored bytes are the raw bytes, and nothing was copied.
    Raw,
    /// The stored bytes are in the output, in the format of this codec id.
    Packed(u8),
}

impl Encoded {
    /// The id that the record's header keeps.
    pub const fn codec_id(self) -> u8 {
        match self {
            Encoded::Raw => Codec::Raw.id(),
            Encoded::Packed(id) => id,
        }
    }

    /// The bytes to store, given what [`Encoder::encode`] was given.
    pub const fn stored<'a>(self, raw: &'a [u8], out: &'a [u8]) -> &'a [u8] {
        match self {
            Encoded::Raw => raw,
            Encoded::Packed(_) => out,
        }
    }
}

/// Makes records small, one after the other.
pub struct Encoder {
    codec: Codec,
    engine: CodecEngine,
    /// Room for the worst case of the codecs that demand it; as long as the largest so far.
    scratch: Vec<u8>,
    /// Records in a row that looked incompressible.
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
    /// An encoder with its contexts.
    ///
    /// # Errors
    /// [`Kind::Usage`] for a zstd level that cannot be asked for; [`Kind::Io`] without memory.
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

    /// The codec that it encodes with.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Encodes `raw` into `out`, whose old content is dropped. `out` stays empty when the answer
    /// is [`Encoded::Raw`]: the caller then stores `raw` itself ([`Encoded::stored`] picks).
    ///
    /// # Errors
    /// [`Kind::Usage`] for more than [`MAX_RAW_BYTES`]; [`Kind::Io`] when the codec gives up for
    /// a reason of its own, such as no memory.
    pub fn encode(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<Encoded> {
        out.clear();
        self.encode_behind(raw, out)
    }

    /// Appends the bytes to store for `raw` to `out`, encoded or as they are.
    ///
    /// # Errors
    /// The errors of [`encode`](Self::encode).
    pub fn append(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<Encoded> {
        let encoded = self.encode_behind(raw, out)?;
        if encoded == Encoded::Raw {
            out.extend_from_slice(raw);
        }
        Ok(encoded)
    }

    /// Encodes `raw` behind what `out` holds; `out` is as it was when the answer is raw.
    fn encode_behind(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<Encoded> {
        let start = out.len();
        if raw.len() > MAX_RAW_BYTES {
            return Err(Error::new(Kind::Usage, "a record is too long to encode")
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

    /// Whether to spare the codec this record.
    fn is_hopeless(&mut self, raw: &[u8]) -> bool {
        let is_known =
            self.hopeless >= BRIEF_AFTER && !self.hopeless.is_multiple_of(THOROUGH_EVERY);
        let look = if is_known { Look::Brief } else { Look::Thorough };
        let is_hopeless = looks_incompressible(raw, look);
        self.hopeless = if is_hopeless { self.hopeless.wrapping_add(1) } else { 0 };
        is_hopeless
    }

    /// The compressed length; the bytes are at the end of `out` (zstd needs no cleared room) or in
    /// `scratch`.
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

/// A context for whole records: no content size and no checksum, the header has both.
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

/// The first `bytes` of `scratch`, made longer where needed.
fn room(scratch: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if scratch.len() < bytes {
        scratch.resize(bytes, 0);
    }
    &mut scratch[..bytes]
}
