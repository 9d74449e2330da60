//! Compression and decompression of records: zstd, LZ4, Snappy, LZO, or none.
//!
//! A record's raw bytes go through one [`Encoder`]; its header keeps the codec id and the raw
//! length, so the stored bytes omit both where the codec allows it. A record that a codec cannot
//! make smaller by a 64th is stored as it is, under the id of [`Codec::Raw`].
//!
//! Invariants: decoding yields exactly the raw length or an error, for any stored bytes; equal
//! input and codec give equal stored bytes within one version. Not promised: that damage is noticed
//! (most codecs decode a third of damaged streams to wrong bytes), so a record's checksum is
//! verified before its bytes come here.

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

/// The zstd level of a bare `zstd`, and of the backup store (doc/decisions/0004-codec.md).
pub(crate) const DEFAULT_ZSTD_LEVEL: i32 = 3;

/// The zstd levels that can be asked for; 0 is not one of them.
const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = -5..=19;

/// The codec of records. Written `raw`, `zstd`, `zstd:3`, `zstd:-1`, `lz4`, `snappy`, `lzo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Stored as they are.
    Raw,
    /// Zstandard frames without content size and checksum.
    Zstd {
        /// -5..=19 except 0: lower is faster. The stored bytes do not tell it.
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
    /// The names that can be read, as an error lists them: what reads more names adds its own.
    pub const NAMES: &str = "raw, zstd, zstd:LEVEL, lz4, snappy, lzo";

    /// The number that stored records keep; never reused, never changed.
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

    /// Reads a codec as people write it.
    ///
    /// # Errors
    /// [`Kind::Usage`] for an unknown name, and for an invalid zstd level.
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
                    .advice(format!("choose one of {}", Codec::NAMES))),
            },
        }
    }
}

/// The level, if zstd records may have it.
fn check_level(level: i32) -> Result<i32> {
    if level != 0 && ZSTD_LEVELS.contains(&level) { Ok(level) } else { Err(bad_level(level)) }
}

fn bad_level(level: impl fmt::Display) -> Error {
    Error::new(Kind::Usage, format!("'{level}' is not a zstd level")).advice(format!(
        "choose a level from {} to {} except 0; lower is faster, higher is smaller",
        ZSTD_LEVELS.start(),
        ZSTD_LEVELS.end()
    ))
}
