//! Core Audio Format (Apple, CAF 1.0): `caff`, `desc`, `info`, `mark` and `strg` of a complete
//! file, `free` up to a page, `data`. All of it is big-endian, but the samples need not be. The
//! length of `data` is stated, not left open: otherwise space that is reserved ahead of the end
//! would count. Markers that do not fit in the page are stored behind `data`; ffprobe then takes
//! the length of the file for that of the samples.

use super::{Cue, HeadFacts};
use crate::sample::SampleFormat;

const PAGE: usize = 4096;
const IS_FLOAT: u32 = 1;
const IS_LITTLE_ENDIAN: u32 = 2;
/// In `data`, in front of the samples: how often the file was edited.
const EDIT_COUNT_BYTES: u64 = 4;
/// Bytes of a text in `info`, so that all of them stay within the page.
const INFO_BYTES: usize = 256;
/// Bytes of markers in front of the payload.
const MARKERS_AT_MOST: usize = 2048;
/// A time code that a marker does not have.
const NO_TIME_CODE: [u8; 8] = [0xff; 8];

/// The head of a file with `payload` bytes.
pub fn head(facts: &HeadFacts, payload: u64) -> Vec<u8> {
    with_chunks(facts, payload, &[])
}

/// The head of a complete file, and the bytes behind its payload.
pub fn complete(facts: &HeadFacts, payload: u64, cues: &[Cue]) -> (Vec<u8>, Vec<u8>) {
    let markers = markers(cues);
    if markers.len() > MARKERS_AT_MOST {
        return (head(facts, payload), markers);
    }
    (with_chunks(facts, payload, &markers), Vec::new())
}

/// The head, with chunks of at most [`MARKERS_AT_MOST`] bytes in it.
fn with_chunks(facts: &HeadFacts, payload: u64, chunks: &[u8]) -> Vec<u8> {
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
    chunk(&mut out, b"info", &info(facts));
    out.extend(chunks);
    // 12 of the head of free, 12 of that of data, 4 of the edit count.
    let padding = PAGE - out.len() - 28;
    chunk(&mut out, b"free", &vec![0; padding]);
    out.extend(b"data");
    out.extend((payload + EDIT_COUNT_BYTES).to_be_bytes());
    out.extend(0_u32.to_be_bytes());
    out
}

/// Markers, and the strings that they name by number: nothing where there are none.
fn markers(cues: &[Cue]) -> Vec<u8> {
    let mut out = Vec::new();
    if cues.is_empty() {
        return out;
    }
    let count = cues.len() as u32;
    // Time codes of no kind.
    let mut markers = [0_u32.to_be_bytes(), count.to_be_bytes()].concat();
    let (mut places, mut texts) = (count.to_be_bytes().to_vec(), Vec::new());
    for (number, cue) in (1_u32..).zip(cues) {
        // A marker of no special kind, for all channels.
        markers.extend(0_u32.to_be_bytes());
        markers.extend((cue.frame as f64).to_be_bytes());
        markers.extend(number.to_be_bytes());
        markers.extend(NO_TIME_CODE);
        markers.extend(0_u32.to_be_bytes());
        places.extend(number.to_be_bytes());
        places.extend((texts.len() as u64).to_be_bytes());
        put_text(&mut texts, &cue.text, usize::MAX);
    }
    places.extend(texts);
    chunk(&mut out, b"mark", &markers);
    chunk(&mut out, b"strg", &places);
    out
}

/// Information about the file, as pairs of texts. CAF has no keys for scene and tape.
fn info(facts: &HeadFacts) -> Vec<u8> {
    let about = format!(
        "scene={} tape={} samples since midnight={}",
        facts.scene,
        facts.tape,
        facts.since_midnight()
    );
    let date = format!("{}T{}", facts.started.date(), facts.started.time());
    let pairs = [
        ("title", facts.name.as_str()),
        ("album", facts.take.as_str()),
        ("recorded date", &date),
        ("comments", &about),
        ("encoding application", "pinstripe"),
    ];
    let mut out = (pairs.len() as u32).to_be_bytes().to_vec();
    for (key, value) in pairs {
        put_text(&mut out, key, INFO_BYTES);
        put_text(&mut out, value, INFO_BYTES);
    }
    out
}

/// A text of at most `most` bytes that ends with 0.
fn put_text(out: &mut Vec<u8>, text: &str, most: usize) {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.extend(text[..end].bytes().filter(|it| *it != 0));
    out.push(0);
}

fn chunk(out: &mut Vec<u8>, id: &[u8; 4], body: &[u8]) {
    out.extend(id);
    out.extend((body.len() as u64).to_be_bytes());
    out.extend(body);
}
