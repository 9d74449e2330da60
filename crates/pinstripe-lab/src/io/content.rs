//! The content of writes. It is generated once for each buffer and then marked for each request, so
//! that no disk sees the same bytes twice and generating them costs almost nothing.

use std::fmt;
use std::str::FromStr;

use pinstripe_base::error::{Error, Kind};
use pinstripe_base::random::Noise;

/// The kind of content that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Random bytes that cannot be compressed or deduplicated.
    Noise,
    /// Zeros: many file systems and disks do not write them at all.
    Zeros,
    /// Each 4 KiB contains this percentage of zeros; the rest is noise.
    PartZeros(u8),
}

/// The unit in which content is generated, in bytes; each unit has its own mark.
const UNIT: usize = 4096;
const MARKED: usize = 512;

impl Content {
    /// Fills a buffer before its first use.
    pub fn fill(self, buffer: &mut [u8], seed: u64) {
        let mut noise = Noise(seed);
        for unit in buffer.chunks_mut(UNIT) {
            let noisy = unit.len() * self.noisy_percent() / 100;
            for piece in unit[..noisy].chunks_mut(8) {
                piece.copy_from_slice(&noise.next().to_le_bytes()[..piece.len()]);
            }
            unit[noisy..].fill(0);
        }
    }

    /// Changes a filled buffer so that it differs from all buffers that were written before.
    pub fn mark(self, buffer: &mut [u8], request: u64, seed: u64) {
        let mark = Noise(seed ^ request).next();
        let in_unit = UNIT * self.noisy_percent() / 100;
        for (number, unit) in buffer.chunks_mut(UNIT).enumerate() {
            let noisy = unit.len().min(in_unit);
            for (at, piece) in unit[..noisy].chunks_exact_mut(MARKED).enumerate() {
                let place = (number * UNIT / MARKED + at) as u64;
                piece[..8].copy_from_slice(&(mark ^ place).to_le_bytes());
            }
        }
    }

    fn noisy_percent(self) -> usize {
        match self {
            Content::Noise => 100,
            Content::Zeros => 0,
            Content::PartZeros(zeros) => 100 - usize::from(zeros.min(100)),
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Noise => f.write_str("noise"),
            Content::Zeros => f.write_str("zeros"),
            Content::PartZeros(zeros) => write!(f, "zeros:{zeros}%"),
        }
    }
}

impl FromStr for Content {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let percent = |text: &str| text.trim_end_matches('%').parse().ok().filter(|it| *it <= 100);
        match text {
            "noise" => Ok(Content::Noise),
            "zeros" => Ok(Content::Zeros),
            _ => match text.strip_prefix("zeros:").and_then(percent) {
                Some(zeros) => Ok(Content::PartZeros(zeros)),
                None => Err(Error::new(Kind::Usage, format!("'{text}' is not a kind of content"))
                    .advice("choose noise, zeros, or zeros:PERCENT, for example zeros:50%")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_requests_have_a_sector_in_common() {
        let mut buffer = vec![0; 8192];
        Content::Noise.fill(&mut buffer, 5);
        let mut sectors = std::collections::HashSet::new();
        for request in 0..100 {
            Content::Noise.mark(&mut buffer, request, 5);
            assert!(buffer.chunks(512).all(|it| sectors.insert(it.to_vec())), "{request}");
        }
    }

    #[test]
    fn a_share_of_zeros_stays_one() {
        let mut buffer = vec![1; 8192];
        let content: Content = "zeros:50%".parse().unwrap();
        content.fill(&mut buffer, 5);
        content.mark(&mut buffer, 77, 5);
        for unit in buffer.chunks(4096) {
            assert!(unit[2048..].iter().all(|it| *it == 0));
            assert!(unit[..2048].iter().filter(|it| **it == 0).count() < 50);
        }
        Content::Zeros.fill(&mut buffer, 5);
        Content::Zeros.mark(&mut buffer, 77, 5);
        assert!(buffer.iter().all(|it| *it == 0));
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for content in [Content::Noise, Content::Zeros, Content::PartZeros(30)] {
            assert_eq!(content.to_string().parse::<Content>().unwrap(), content);
        }
        for bad in ["", "zero", "zeros:", "zeros:101%", "zeros:-1"] {
            assert!(bad.parse::<Content>().is_err(), "{bad}");
        }
    }
}
