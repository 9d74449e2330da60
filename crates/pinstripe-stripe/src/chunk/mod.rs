//! Cuts content into chunks: at fixed positions, or at positions that depend on the content.
//!
//! [`Chunking`] is chosen once for a store; with the store's secret seed it becomes a [`Cutter`],
//! which has all the rules. [`Cutter::next_cut`] cuts content in memory, chunk after chunk. A long
//! run is cut in segments: any number of threads call [`Cutter::scan`], each for its own segment,
//! and one [`Resolver`] takes the segments and their candidates in order:
//!
//! ```text
//! segment 0 --scan--> candidates --.
//! segment 1 --scan--> candidates ----> Resolver --> ends of chunks
//! segment 2 --scan--> candidates --'
//! ```
//!
//! Invariants: the cuts depend on the bytes, the chunking and the seed, never on how the run is
//! divided into segments or which of the two methods is used; content-defined cuts are those of
//! FastCDC 2020 as the `fastcdc` crate makes them, at normalization level 1. Every chunk except the
//! last of a run has [`Cutter::min_bytes`] or more, none has more than [`Cutter::max_bytes`].
//!
//! Not in this module: input or output, threads, hashing or storing of chunks.

mod cutter;
mod resolver;
mod search;

use std::fmt;
use std::str::FromStr;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::{KIB, MIB, parse_size};

pub use cutter::{Candidates, Cutter};
pub use resolver::Resolver;

/// The smallest and the largest mean length of content-defined chunks, in bytes.
const AVERAGE_RANGE: [u32; 2] = [4 * KIB as u32, 16 * MIB as u32];
/// The smallest and the largest length of fixed chunks, in bytes.
const FIXED_RANGE: [u32; 2] = [4 * KIB as u32, 4 * MIB as u32];
/// The smallest possible `min`: a gear hash reaches back this many bytes, and these must all be in
/// the chunk.
const MIN_FLOOR: u32 = pinstripe_kernel::gear::WINDOW as u32;

/// A store's way to cut content into chunks.
///
/// The text form of a chunking is a mean length (`64K`), or `fixed:` and a length (`fixed:4K`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chunking {
    /// Cuts after every `bytes` bytes of a file: for images and databases, which change in place.
    Fixed {
        /// Length of every chunk of a file except the last.
        bytes: u32,
    },
    /// Cuts at positions that depend on the content: bytes inserted or removed move only nearby
    /// cuts.
    ContentDefined {
        /// The length that no chunk falls below, except the last of a file.
        min: u32,
        /// Cuts are rare up to this length, and frequent from it on.
        avg: u32,
        /// The length that no chunk exceeds.
        max: u32,
    },
}

impl Chunking {
    /// Content-defined chunks of about `avg` bytes: at least a quarter of that and at most four
    /// times that.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] unless `avg` is a power of two from 4 KiB to 16 MiB.
    pub fn content_defined(avg: u32) -> Result<Chunking> {
        let [low, high] = AVERAGE_RANGE;
        if !avg.is_power_of_two() || !(low..=high).contains(&avg) {
            return Err(Error::new(Kind::Usage, "chunks cannot have this average size")
                .expected("a power of two from 4K to 16M", size_text(avg))
                .advice(
                    "an average of 64K suits most data; write fixed:SIZE for chunks of equal \
                     length",
                ));
        }
        Ok(Chunking::ContentDefined { min: avg / 4, avg, max: avg * 4 })
    }

    /// Chunks of `bytes` bytes.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] unless `bytes` is a power of two from 4 KiB to 4 MiB.
    pub fn fixed(bytes: u32) -> Result<Chunking> {
        let [low, high] = FIXED_RANGE;
        if !bytes.is_power_of_two() || !(low..=high).contains(&bytes) {
            return Err(Error::new(Kind::Usage, "chunks cannot have this fixed size")
                .expected("a power of two from 4K to 4M", size_text(bytes))
                .advice(
                    "use the page size of the database or a multiple of it, for example fixed:16K",
                ));
        }
        Ok(Chunking::Fixed { bytes })
    }

    /// Checks lengths that were not made by the constructors, such as those of a stored
    /// configuration.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] when no [`Cutter`] can use them: a fixed length of 0 or above 16
    /// MiB; content-defined lengths that are odd, out of order, below 64 bytes, above 64 MiB, or
    /// with a mean for which there are no masks.
    pub fn validate(self) -> Result<()> {
        let sound = match self {
            Chunking::Fixed { bytes } => (1..=AVERAGE_RANGE[1]).contains(&bytes),
            Chunking::ContentDefined { min, avg, max } => {
                [min, avg, max].iter().all(|length| length % 2 == 0)
                    && (MIN_FLOOR..=avg).contains(&min)
                    && (avg..=4 * AVERAGE_RANGE[1]).contains(&max)
                    && pinstripe_kernel::gear::Masks::for_average(avg).is_some()
            }
        };
        if sound {
            return Ok(());
        }
        Err(Error::new(
            Kind::Usage,
            format!("the settings {self:?} are not valid for cutting data into chunks"),
        )
        .advice("use an average size, for example 64K, or fixed:SIZE"))
    }
}

impl FromStr for Chunking {
    type Err = Error;

    /// Parses `64K` as a mean length and `fixed:4K` as a fixed length.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] when the text is not a size, or a size that is not allowed there.
    fn from_str(text: &str) -> Result<Chunking> {
        let bytes = |size: &str| -> Result<u32> {
            // A number that does not fit is refused as too long, like any other length out of
            // range.
            Ok(u32::try_from(parse_size(size)?).unwrap_or(u32::MAX))
        };
        match text.trim().split_once(':') {
            Some((kind, size)) if kind.eq_ignore_ascii_case("fixed") => {
                Chunking::fixed(bytes(size)?)
            }
            Some((kind, _)) => {
                Err(Error::new(Kind::Usage, format!("there is no chunking method '{kind}'"))
                    .advice("write an average size, for example 64K, or fixed:SIZE"))
            }
            None => Chunking::content_defined(bytes(text)?),
        }
    }
}

impl fmt::Display for Chunking {
    /// Writes the text that [`FromStr`] parses; for lengths that have no such text, it writes each
    /// of them with its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Chunking::Fixed { bytes } => write!(f, "fixed:{}", size_text(bytes)),
            Chunking::ContentDefined { avg, .. }
                if Chunking::content_defined(avg).is_ok_and(|usual| usual == *self) =>
            {
                f.write_str(&size_text(avg))
            }
            Chunking::ContentDefined { min, avg, max } => {
                write!(f, "{}..{}..{}", size_text(min), size_text(avg), size_text(max))
            }
        }
    }
}

/// Formats a length in the largest unit that divides it: `64K`, `1M`, `1000`.
fn size_text(bytes: u32) -> String {
    match u64::from(bytes) {
        whole if whole >= MIB && whole % MIB == 0 => format!("{}M", whole / MIB),
        whole if whole >= KIB && whole % KIB == 0 => format!("{}K", whole / KIB),
        whole => whole.to_string(),
    }
}

#[cfg(test)]
mod tests;
