//! Compression and decompression of records: zstd, LZ4, Snappy, LZO, or none.
//!
//! A record's raw bytes go through one [`Encoder`]; the record's header stores the codec id and the
//! raw length, so the stored bytes omit both where the codec allows it. A record that a codec
//! cannot reduce by a 64th is stored uncompressed, under the id of [`Codec::Raw`].
//!
//! Invariants: decoding yields exactly the raw length or an error, for any stored bytes; equal
//! input and codec give equal stored bytes within one version. Decoding need not notice damage
//! (most codecs decode a third of damaged streams to wrong bytes), so a record's checksum is
//! verified before its bytes are decoded.

mod decode;
mod encode;
mod governor;
mod incompressible;
pub mod lzo;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use pinstripe_base::error::{Error, Kind, Result};

pub use decode::Decoder;
pub(crate) use decode::MAX_RAW_BYTES;
pub use encode::{Encoded, Encoder};
pub use governor::{EncoderSet, Governor};
pub use incompressible::{Look, looks_incompressible};

/// The zstd level when the codec is given as `zstd`, and the level of the backup store by default
/// (doc/decisions/0004-codec.md).
pub(crate) const DEFAULT_ZSTD_LEVEL: i32 = 3;

/// The zstd levels that may be requested, except 0.
const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = -5..=19;

/// The codec of records. The text form of a codec is `raw`, `zstd`, `zstd:3`, `zstd:-1`, `lz4`,
/// `snappy` or `lzo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Stored uncompressed.
    Raw,
    /// Zstandard frames without content size and checksum.
    Zstd {
        /// The level, in -5..=19 except 0: lower is faster. The level cannot be read from the
        /// stored bytes.
        level: i32,
    },
    /// The LZ4 block format.
    Lz4,
    /// The Snappy block format.
    Snappy,
    /// LZO1X, as written by LZO1X-1.
    Lzo,
}

impl Codec {
    /// The names that are parsed, as an error lists them; a caller that accepts more names adds its
    /// own.
    pub const NAMES: &str = "raw, zstd, zstd:LEVEL, lz4, snappy, lzo";

    /// The number that stored records have for this codec; it never changes and is never reused.
    pub const fn id(self) -> u8 {
        match self {
            Codec::Raw => 0,
            Codec::Zstd { .. } => 1,
            Codec::Lz4 => 2,
            Codec::Snappy => 3,
            Codec::Lzo => 4,
        }
    }
}

impl Default for Codec {
    /// The default of the backup store.
    fn default() -> Self {
        Codec::Zstd { level: DEFAULT_ZSTD_LEVEL }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Codec::Raw => f.write_str("raw"),
            Codec::Zstd { level } => write!(f, "zstd:{level}"),
            Codec::Lz4 => f.write_str("lz4"),
            Codec::Snappy => f.write_str("snappy"),
            Codec::Lzo => f.write_str("lzo"),
        }
    }
}

impl FromStr for Codec {
    type Err = Error;

    /// Parses a codec in the form in which users write it.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for an unknown name, and for an invalid zstd level.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "raw" => Ok(Codec::Raw),
            "zstd" => Ok(Codec::default()),
            "lz4" => Ok(Codec::Lz4),
            "snappy" => Ok(Codec::Snappy),
            "lzo" => Ok(Codec::Lzo),
            _ => match text.strip_prefix("zstd:") {
                Some(level) => level
                    .parse()
                    .map_err(|_| bad_level(level))
                    .and_then(check_level)
                    .map(|level| Codec::Zstd { level }),
                None => Err(Error::new(Kind::Usage, format!("'{text}' is not a codec"))
                    .advice(format!("choose a codec: {}", Codec::NAMES))),
            },
        }
    }
}

/// Returns the level, if it is valid for zstd records.
fn check_level(level: i32) -> Result<i32> {
    if level != 0 && ZSTD_LEVELS.contains(&level) { Ok(level) } else { Err(bad_level(level)) }
}

fn bad_level(level: impl fmt::Display) -> Error {
    Error::new(Kind::Usage, format!("'{level}' is not a zstd level")).advice(format!(
        "choose a level from {} to {} except 0; a lower level is faster, and a higher level \
         compresses better",
        ZSTD_LEVELS.start(),
        ZSTD_LEVELS.end()
    ))
}
