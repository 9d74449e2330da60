//! Formats of samples, and the content of test streams.
//!
//! Files contain little-endian samples, in complete frames. The content of a test stream depends
//! only on its number and the frame, so that it can be verified wherever it is read.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind};
use serde::{Deserialize, Serialize};

/// How one sample is stored in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleFormat {
    /// One unsigned byte: 128 is silence.
    U8,
    /// Two bytes, signed.
    S16,
    /// Three bytes, signed.
    S24,
    /// Four bytes, signed.
    S32,
    /// Four bytes, IEEE 754.
    F32,
    /// Bytes that are not samples.
    Raw,
}

const NAMES: [(SampleFormat, &str, u32); 6] = [
    (SampleFormat::U8, "u8", 1),
    (SampleFormat::S16, "s16", 2),
    (SampleFormat::S24, "s24", 3),
    (SampleFormat::S32, "s32", 4),
    (SampleFormat::F32, "f32", 4),
    (SampleFormat::Raw, "raw", 1),
];

impl SampleFormat {
    /// Bytes of a sample.
    pub fn bytes(self) -> u32 {
        NAMES.iter().find(|it| it.0 == self).map_or(1, |it| it.2)
    }

    /// The byte value of silence.
    pub fn silence(self) -> u8 {
        if self == SampleFormat::U8 { 128 } else { 0 }
    }
}

impl fmt::Display for SampleFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES.iter().find(|it| it.0 == *self).map_or("", |it| it.1))
    }
}

impl FromStr for SampleFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = NAMES.iter().find(|it| it.1 == text && it.0 != SampleFormat::Raw);
        found.map(|it| it.0).ok_or_else(|| {
            Error::new(Kind::Usage, format!("'{text}' is not a known sample format"))
                .expected("a sample format: u8, s16, s24, s32 or f32", text)
        })
    }
}

/// The form of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamShape {
    /// The samples.
    pub format: SampleFormat,
    /// The number of channels.
    pub channels: u16,
    /// Frames per second; for raw bytes the expected rate, which determines the ring size.
    pub rate: u32,
}

impl StreamShape {
    /// Bytes of a frame.
    pub fn frame_bytes(&self) -> u64 {
        u64::from(self.format.bytes()) * u64::from(self.channels)
    }

    /// Bytes per second.
    pub fn byte_rate(&self) -> u64 {
        self.frame_bytes() * u64::from(self.rate)
    }

    /// The duration of `bytes` bytes, in seconds.
    pub fn seconds(&self, bytes: u64) -> f64 {
        bytes as f64 / self.byte_rate().max(1) as f64
    }
}

/// The whole number of frames nearest to a time; recorder, input and player all use this, so that
/// they agree to the frame.
pub(crate) fn frames_in(time: Duration, rate: u32) -> u64 {
    const NANOS: u128 = 1_000_000_000;
    let frames = (time.as_nanos() * u128::from(rate) + NANOS / 2) / NANOS;
    u64::try_from(frames).unwrap_or(u64::MAX)
}

/// Fills `out` with complete frames of a test stream, from frame `first` on.
pub fn fill_test(shape: &StreamShape, stream: u64, first: u64, out: &mut [u8]) {
    let channels = u64::from(shape.channels);
    let mut number = first.wrapping_mul(channels);
    let seed = stream.wrapping_add(1).wrapping_mul(0xd6e8_feb8_6659_fd93);
    match shape.format {
        SampleFormat::S24 => {
            // Eight samples are three words: most of a test take's time would go into three bytes
            // at a time.
            let (eights, rest) = out.as_chunks_mut::<24>();
            for eight in eights {
                eight.copy_from_slice(&eight_of_24_bits(seed, number));
                number = number.wrapping_add(8);
            }
            for sample in rest.chunks_exact_mut(3) {
                let word = (test_word(seed, number) as u32).to_le_bytes();
                sample.copy_from_slice(&word[..3]);
                number = number.wrapping_add(1);
            }
        }
        SampleFormat::F32 => {
            for sample in out.chunks_exact_mut(4) {
                let word = test_word(seed, number) as i32 as f32 / 2_147_483_648.0;
                sample.copy_from_slice(&word.to_le_bytes());
                number = number.wrapping_add(1);
            }
        }
        format => {
            let bytes = format.bytes() as usize;
            for sample in out.chunks_exact_mut(bytes) {
                let word = (test_word(seed, number) as u32).to_le_bytes();
                sample.copy_from_slice(&word[..bytes]);
                number = number.wrapping_add(1);
            }
        }
    }
}

/// Returns eight 24-bit samples, beginning with this one, in little-endian order.
fn eight_of_24_bits(seed: u64, number: u64) -> [u8; 24] {
    let word = |more| test_word(seed, number.wrapping_add(more)) & 0xff_ffff;
    let words = [
        word(0) | word(1) << 24 | word(2) << 48,
        word(2) >> 16 | word(3) << 8 | word(4) << 32 | word(5) << 56,
        word(5) >> 8 | word(6) << 16 | word(7) << 40,
    ];
    let mut bytes = [0; 24];
    for (part, word) in bytes.chunks_exact_mut(8).zip(words) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Returns 32 bits that look random; the lowest byte is never zero, so that silence cannot be
/// mistaken for content.
fn test_word(seed: u64, number: u64) -> u64 {
    let mixed = (number ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 32) ^ (mixed >> 17)) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0.29 * 48000 is 13919.999 in floating point.
    #[test]
    fn a_time_is_the_nearest_number_of_frames() {
        let of = |micros: u64, rate| frames_in(Duration::from_micros(micros), rate);
        assert_eq!((of(290_000, 48_000), of(333_333, 96_000)), (13_920, 32_000));
        assert_eq!((of(11, 44_100), of(12, 44_100), of(0, 96_000)), (0, 1, 0));
        assert_eq!(frames_in(Duration::MAX, u32::MAX), u64::MAX);
    }

    #[test]
    fn samples_of_24_bits_are_the_same_one_by_one_and_eight_at_a_time() {
        let shape = StreamShape { format: SampleFormat::S24, channels: 1, rate: 48_000 };
        let mut whole = [0; 3 * 27];
        fill_test(&shape, 3, 1000, &mut whole);
        for (frame, sample) in (1000..).zip(whole.chunks_exact(3)) {
            let mut one = [0; 3];
            fill_test(&shape, 3, frame, &mut one);
            assert_eq!(sample, one);
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for (format, name, bytes) in NAMES {
            assert_eq!(format.to_string(), name);
            assert_eq!(format.bytes(), bytes);
            assert_eq!(name.parse::<SampleFormat>().ok(), (name != "raw").then_some(format));
        }
        assert_eq!("s25".parse::<SampleFormat>().unwrap_err().kind(), Kind::Usage);
    }

    #[test]
    fn test_content_is_the_same_wherever_it_is_begun_and_differs_by_stream() {
        for (format, _, _) in NAMES {
            let shape = StreamShape { format, channels: 2, rate: 48_000 };
            let bytes = shape.frame_bytes() as usize;
            let mut whole = vec![0; 100 * bytes];
            fill_test(&shape, 3, 0, &mut whole);
            let mut part = vec![0; 40 * bytes];
            fill_test(&shape, 3, 60, &mut part);
            assert_eq!(whole[60 * bytes..], part);
            fill_test(&shape, 4, 60, &mut part);
            assert_ne!(whole[60 * bytes..], part);
            assert!(whole.chunks(bytes / 2).all(|it| it.iter().any(|byte| *byte != 0)));
        }
    }
}
