//! The recipe of a generator as text: `fake:1T,block=64K,seed=7,zero=40%,entropy=0.5`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::{KIB, MIB, parse_size};

/// The prefix that tells a generator from a path.
pub const PREFIX: &str = "fake:";

const BLOCK_BYTES: RangeInclusive<u64> = 512..=16 * MIB;
const EXAMPLE: &str = "write it as in fake:10G,block=64K,seed=7,zero=40%,entropy=0.5";

/// A part of a whole, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Millionths(u32);

impl Millionths {
    /// Nothing of it.
    pub const NONE: Millionths = Millionths(0);
    /// All of it.
    pub const ALL: Millionths = Millionths(1_000_000);

    /// So much of `whole`, rounded down.
    pub fn of(self, whole: u64) -> u64 {
        (u128::from(whole) * u128::from(self.0) / 1_000_000) as u64
    }

    /// Whether an evenly distributed draw is among so many of all draws.
    pub(super) fn is_hit_by(self, draw: u64) -> bool {
        ((draw >> 32) * 1_000_000) >> 32 < u64::from(self.0)
    }
}

impl FromStr for Millionths {
    type Err = Error;

    /// Reads `40%` or `0.4`.
    ///
    /// # Errors
    /// [`Kind::Usage`] for anything else.
    fn from_str(text: &str) -> Result<Self> {
        let (digits, whole) = match text.strip_suffix('%') {
            Some(digits) => (digits, 100.0),
            None => (text, 1.0),
        };
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        match digits.parse::<f64>() {
            Ok(part) if is_plain && part <= whole => {
                Ok(Millionths((part / whole * f64::from(Millionths::ALL.0)).round() as u32))
            }
            _ => Err(Error::new(Kind::Usage, format!("'{text}' is not a share"))
                .advice("write 0% to 100%, or a number from 0 to 1")),
        }
    }
}

impl fmt::Display for Millionths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / f64::from(Millionths::ALL.0))
    }
}

/// The content of a generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FakeSpec {
    /// Its length in bytes.
    pub bytes: u64,
    /// Bytes of a block: a power of two from 512 to 16 MiB.
    pub block_bytes: u64,
    /// Another seed gives other bytes.
    pub seed: u64,
    /// The share of blocks that are zeros from end to end.
    pub zero: Millionths,
    /// The random share of every other block; the rest is words, which codecs make about three
    /// times smaller.
    pub entropy: Millionths,
}

impl FakeSpec {
    /// Random bytes in blocks of 4 KiB.
    pub fn new(bytes: u64) -> Self {
        let (zero, entropy) = (Millionths::NONE, Millionths::ALL);
        FakeSpec { bytes, block_bytes: 4 * KIB, seed: 0, zero, entropy }
    }

    /// Whether there can be such blocks.
    ///
    /// # Errors
    /// [`Kind::Usage`] when not.
    pub fn check(&self) -> Result<()> {
        if self.block_bytes.is_power_of_two() && BLOCK_BYTES.contains(&self.block_bytes) {
            return Ok(());
        }
        Err(Error::new(Kind::Usage, "made-up bytes cannot have such blocks")
            .expected("a power of two from 512 to 16M", self.block_bytes))
    }
}

impl FromStr for FakeSpec {
    type Err = Error;

    /// Reads `fake:SIZE[,block=SIZE][,seed=N][,zero=SHARE][,entropy=SHARE]`.
    ///
    /// # Errors
    /// [`Kind::Usage`], naming the part that is wrong.
    fn from_str(text: &str) -> Result<Self> {
        let Some(told) = text.strip_prefix(PREFIX) else {
            return Err(wrong(text, "it does not begin with 'fake:'"));
        };
        let mut parts = told.split(',');
        let bytes = parts.next().unwrap_or_default();
        let mut spec = FakeSpec::new(parse_size(bytes).map_err(|why| wrong(text, why.what()))?);
        let mut seen = Vec::new();
        for part in parts {
            let Some((key, value)) = part.split_once('=') else {
                return Err(wrong(text, &format!("'{part}' is not key=value")));
            };
            if seen.contains(&key) {
                return Err(wrong(text, &format!("it names {key} twice")));
            }
            seen.push(key);
            let told = match key {
                "block" => parse_size(value).map(|bytes| spec.block_bytes = bytes),
                "seed" => number(value).map(|seed| spec.seed = seed),
                "zero" => value.parse().map(|share| spec.zero = share),
                "entropy" => value.parse().map(|share| spec.entropy = share),
                _ => Err(Error::new(Kind::Usage, "block, seed, zero and entropy are known")),
            };
            told.map_err(|why| wrong(text, &format!("{key}: {}", why.what())))?;
        }
        spec.check().map_err(|why| wrong(text, &format!("block: {why}")))?;
        Ok(spec)
    }
}

fn number(text: &str) -> Result<u64> {
    text.parse().map_err(|_| Error::new(Kind::Usage, format!("'{text}' is not a whole number")))
}

fn wrong(text: &str, why: &str) -> Error {
    Error::new(Kind::Usage, format!("'{text}' cannot be made up: {why}")).advice(EXAMPLE)
}

impl fmt::Display for FakeSpec {
    /// Writes all of it: equal bytes, equal texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FakeSpec { bytes, block_bytes, seed, zero, entropy } = self;
        write!(f, "{PREFIX}{bytes},block={block_bytes},seed={seed},zero={zero},entropy={entropy}")
    }
}
