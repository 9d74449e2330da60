//! Core Audio Format (Apple, CAF 1.0): `caff`, `desc`, `info`, `mark` and `strg` of a complete
//! file, `free` up to a page, `data`. All numbers of the file are big-endian, but the samples may
//! be little-endian. The length of `data` is written, not left open; otherwise readers would count
//! space that is reserved ahead of the end. Markers that do not fit in the page are stored after
//! `data`; ffprobe then uses the length of the file as the length of the samples.

use super::{Cue, HeadFacts};
use crate::sample::SampleFormat;

const PAGE: usize = 4096;
const IS_FLOAT: u32 = 1;
const IS_LITTLE_ENDIAN: u32 = 2;
/// The bytes in `data` before the samples: the edit count.
const EDIT_COUNT_BYTES: u64 = 4;
/// The most bytes of a text in `info`, so that all texts fit within the page.
const INFO_BYTES: usize = 256;
/// The most bytes of markers before the payload.
const MARKERS_AT_MOST: usize = 2048;
/// The value of a marker without a time code.
const NO_TIME_CODE: [u8; 8] = [0xff; 8];

/// Returns the head of a file with `payload` bytes of samples.
pub fn head(facts: &HeadFacts, payload: u64) -> Vec<u8> {
    with_chunks(facts, payload, &[])
}

/// Returns the head of a complete file, and the bytes after its payload.
pub fn complete(facts: &HeadFacts, payload: u64, cues: &[Cue]) -> (Vec<u8>, Vec<u8>) {
    let markers = markers(cues);
    if markers.len() > MARKERS_AT_MOST {
        return (head(facts, payload), markers);
    }
    (with_chunks(facts, payload, &markers), Vec::new())
}

/// Returns the head, including chunks of at most [`MARKERS_AT_MOST`] bytes.
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

/// Returns the markers, and the strings to which they refer by number; empty if there are no
/// markers.
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

/// Returns information about the file, as pairs of texts. CAF has no keys for scene and tape.
fn info(facts: &HeadFacts) -> Vec<u8> {
    let about = format!(
        "scene={} tape={} samples since midnight={}",
        facts.scene,
        facts.tape,
        facts.since_midnight()
    );
    let date = format!("{}T{}", facts.file_began().date(), facts.file_began().time());
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

/// Appends a text of at most `most` bytes, with a zero at its end.
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
