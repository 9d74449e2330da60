//! Creates one FLAC frame with uncompressed samples (RFC 9639, 9.2.2). The frame replaces another
//! one if the journal vouches only for the beginning of that one.

use crate::sample::{SampleFormat, StreamShape};

/// The sync code of a frame in a stream with blocks of one size.
const SYNC: [u8; 2] = [0xff, 0xf8];
/// The code for a block size that is stored at the end of the head, in 16 bits.
const SIZE_AT_END: u8 = 0x70;
/// The sample rates that have a code, from code 1 on.
const RATES: [u32; 11] =
    [88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000];
/// The type of a subframe with uncompressed samples.
const VERBATIM: u8 = 0x02;

/// Creates the frame with this number from these interleaved samples, at most 65,536 for each
/// channel.
pub(crate) fn verbatim_frame(shape: &StreamShape, number: u64, payload: &[u8]) -> Vec<u8> {
    let (size, width) = (shape.frame_bytes() as usize, shape.format.bytes() as usize);
    let samples = payload.len() / size;
    let mut out = Vec::with_capacity(payload.len() + 64);
    let (rate, rate_bytes) = rate_code(shape.rate);
    let bits = match width {
        1 => 1,
        2 => 4,
        _ => 6,
    };
    out.extend(SYNC);
    out.push(SIZE_AT_END | rate);
    out.push((shape.channels as u8 - 1) << 4 | bits << 1);
    put_number(number, &mut out);
    out.extend(((samples.max(1) - 1) as u16).to_be_bytes());
    out.extend(rate_bytes);
    out.push(crc8(&out));
    for channel in 0..usize::from(shape.channels) {
        out.push(VERBATIM);
        for frame in payload.chunks_exact(size) {
            let sample = &frame[channel * width..(channel + 1) * width];
            match shape.format {
                // All FLAC samples are signed.
                SampleFormat::U8 => out.push(sample[0] ^ 0x80),
                _ => out.extend(sample.iter().rev()),
            }
        }
    }
    out.extend(crc16(&out).to_be_bytes());
    out
}

/// The code of a rate, and the bytes for the rate at the end of the head. Both are as libFLAC
/// writes them, because a reader that searches for frames may take a differing head for a chance
/// match.
fn rate_code(rate: u32) -> (u8, Vec<u8>) {
    let known = (1..).zip(RATES).find(|it| it.1 == rate);
    match rate {
        _ if known.is_some() => (known.map_or(0, |it| it.0), Vec::new()),
        _ if rate.is_multiple_of(1000) && rate <= 255_000 => (12, vec![(rate / 1000) as u8]),
        _ if rate.is_multiple_of(10) && rate <= 655_350 => {
            (14, ((rate / 10) as u16).to_be_bytes().to_vec())
        }
        _ if rate <= 0xffff => (13, (rate as u16).to_be_bytes().to_vec()),
        _ => (0, Vec::new()),
    }
}

/// Appends a number in the coding of UTF-8, extended to 36 bits.
fn put_number(number: u64, out: &mut Vec<u8>) {
    if number < 0x80 {
        return out.push(number as u8);
    }
    let mut more = 1;
    while more < 6 && number >> (5 * more + 6) > 0 {
        more += 1;
    }
    let first = (0xff00_u32 >> (more + 1)) as u8;
    out.push(first | (number >> (6 * more)) as u8);
    (0..more).rev().for_each(|it| out.push(0x80 | ((number >> (6 * it)) & 0x3f) as u8));
}

fn crc8(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ byte, |crc, _| (crc << 1) ^ if crc & 0x80 > 0 { 0x07 } else { 0 })
    })
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            (crc << 1) ^ if crc & 0x8000 > 0 { 0x8005 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_coded_as_in_utf_8() {
        for (number, bytes) in [
            (0x7f, &[0x7f][..]),
            (0x80, &[0xc2, 0x80]),
            (0x7ff, &[0xdf, 0xbf]),
            (0x800, &[0xe0, 0xa0, 0x80]),
            (0xffff, &[0xef, 0xbf, 0xbf]),
            (0x1_0000, &[0xf0, 0x90, 0x80, 0x80]),
            (0x20_0000, &[0xf8, 0x88, 0x80, 0x80, 0x80]),
            (0x7fff_ffff, &[0xfd, 0xbf, 0xbf, 0xbf, 0xbf, 0xbf]),
        ] {
            let mut out = Vec::new();
            put_number(number, &mut out);
            assert_eq!(out, bytes, "{number:x}");
        }
    }

    #[test]
    fn rates_are_told_as_the_library_does() {
        assert_eq!(rate_code(96_000), (11, vec![]));
        assert_eq!(rate_code(12_000), (12, vec![12]));
        assert_eq!(rate_code(44_110), (14, vec![0x11, 0x3b]));
        assert_eq!(rate_code(44_111), (13, vec![0xac, 0x4f]));
        assert_eq!(rate_code(700_001), (0, vec![]));
    }

    #[test]
    fn checksums_are_those_of_the_format() {
        // The frame of the first example of RFC 9639, appendix D.1.
        let frame = [0xff, 0xf8, 0x69, 0x18, 0x00, 0x00, 0xbf, 0x03, 0x58, 0xfd, 0x03, 0x12, 0x8b];
        assert_eq!(crc8(&frame[..6]), 0xbf);
        assert_eq!(crc16(&frame), 0xaa9a);
    }
}
