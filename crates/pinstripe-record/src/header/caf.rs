//! Core Audio Format: `caff`, `desc`, `free` up to a page, `data`. All of it is big-endian, but the
//! samples need not be. The length of `data` is told, not left open: what is reserved ahead of the
//! end would count otherwise.

use super::HeadFacts;
use crate::sample::SampleFormat;

const PAGE: usize = 4096;
const IS_FLOAT: u32 = 1;
const IS_LITTLE_ENDIAN: u32 = 2;
/// In `data`, in front of the samples: how often the file was edited.
const EDIT_COUNT_BYTES: u64 = 4;

/// The head of a file with so much payload.
pub fn head(facts: &HeadFacts, payload: u64) -> Vec<u8> {
    let shape = &facts.shape;
    let mut out = Vec::with_capacity(PAGE);
    out.extend(b"caff");
    out.extend([0, 1, 0, 0]);
    out.extend(b"desc");
    out.extend(32_u64.to_be_bytes());
    out.extend(f64::from(shape.rate).to_be_bytes());
    out.extend(b"lpcm");
    let float = if shape.format == SampleFormat::F32 { IS_FLOAT } else { 0 };
    for word in [
        float | IS_LITTLE_ENDIAN,
        shape.frame_bytes() as u32,
        1,
        u32::from(shape.channels),
        8 * shape.format.bytes(),
    ] {
        out.extend(word.to_be_bytes());
    }
    // 12 of the head of free, 12 of that of data, 4 of the edit count.
    let padding = PAGE - out.len() - 28;
    out.extend(b"free");
    out.extend((padding as u64).to_be_bytes());
    out.resize(out.len() + padding, 0);
    out.extend(b"data");
    out.extend((payload + EDIT_COUNT_BYTES).to_be_bytes());
    out.extend(0_u32.to_be_bytes());
    out
}
