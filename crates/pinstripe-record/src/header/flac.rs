//! The head of a FLAC file (RFC 9639): STREAMINFO, VORBIS_COMMENT, and padding up to two pages, so that
//! it can be replaced by one write.
//!
//! The number of samples in the head is that of the payload for which the head is made. In a file
//! that is still being written, it counts complete blocks only; readers that know the number of
//! samples still return the complete block in which the last sample is. 0 means unknown: readers
//! return all samples that they find.

use super::{Cue, HeadFacts};

/// The length of the head.
const HEAD_BYTES: usize = 8192;
/// The number of samples of each channel in a block.
pub const BLOCK: u64 = 4096;
/// The greatest number of samples that STREAMINFO can represent.
const SAMPLES_MAX: u64 = (1 << 36) - 1;
const COMMENTS: u8 = 4;
const LAST_PADDING: u8 = 0x81;
/// The greatest length of a comment's value, in characters.
const VALUE_CHARS: usize = 200;

/// Returns the head of a file with `payload` bytes; if `goes_on`, the head counts complete blocks
/// only.
pub fn head(facts: &HeadFacts, payload: u64, cues: &[Cue], goes_on: bool) -> Vec<u8> {
    let shape = &facts.shape;
    let frames = payload / shape.frame_bytes().max(1);
    let frames = if goes_on { frames - frames % BLOCK } else { frames };
    let mut out = Vec::with_capacity(HEAD_BYTES);
    out.extend(b"fLaC\0\0\0\x22");
    out.extend((BLOCK as u16).to_be_bytes());
    out.extend((BLOCK as u16).to_be_bytes());
    // Sizes of frames are not known.
    out.extend([0; 6]);
    let packed = u64::from(shape.rate & 0xf_ffff) << 44
        | u64::from(shape.channels.max(1) - 1) << 41
        | u64::from(8 * shape.format.bytes() - 1) << 36
        | if frames > SAMPLES_MAX { 0 } else { frames };
    out.extend(packed.to_be_bytes());
    // The checksum of the samples is not set.
    out.extend([0; 16]);
    let room = HEAD_BYTES - out.len() - 8;
    let comments = comments(facts, cues, room);
    block(&mut out, COMMENTS, &comments);
    let padding = HEAD_BYTES - out.len() - 4;
    block(&mut out, LAST_PADDING, &vec![0; padding]);
    out
}

fn block(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.push(kind);
    out.extend(&(body.len() as u32).to_be_bytes()[1..]);
    out.extend(body);
}

/// Returns comments of at most `room` bytes: names, then cues as chapters.
fn comments(facts: &HeadFacts, cues: &[Cue], room: usize) -> Vec<u8> {
    let mut fields = vec![
        ("TITLE".to_owned(), facts.name.clone()),
        ("ALBUM".to_owned(), facts.take.clone()),
        ("TRACKNUMBER".to_owned(), (facts.index + 1).to_string()),
        ("TRACKTOTAL".to_owned(), facts.total.to_string()),
        ("DATE".to_owned(), facts.file_began().date()),
        ("ORIGINATION_TIME".to_owned(), facts.file_began().time()),
        ("TIME_REFERENCE".to_owned(), facts.since_midnight().to_string()),
    ];
    fields.extend((!facts.scene.is_empty()).then(|| ("SCENE".to_owned(), facts.scene.clone())));
    fields.extend((!facts.tape.is_empty()).then(|| ("TAPE".to_owned(), facts.tape.clone())));
    let rate = u64::from(facts.shape.rate.max(1));
    for (number, cue) in (1..).zip(cues).take(999) {
        let millis = u128::from(cue.frame) * 1000 / u128::from(rate);
        let (seconds, millis) = (millis / 1000, millis % 1000);
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        let time = format!("{hours:02}:{minutes:02}:{:02}.{millis:03}", seconds % 60);
        fields.push((format!("CHAPTER{number:03}"), time));
        fields.push((format!("CHAPTER{number:03}NAME"), cue.text.clone()));
    }
    let vendor = b"pinstripe";
    let mut out = (vendor.len() as u32).to_le_bytes().to_vec();
    out.extend(vendor);
    let count_at = out.len();
    out.extend([0; 4]);
    let mut count = 0_u32;
    for (key, value) in fields {
        let value: String = value.chars().filter(|it| !it.is_control()).take(VALUE_CHARS).collect();
        let field = format!("{key}={value}");
        if out.len() + 4 + field.len() > room {
            break;
        }
        out.extend((field.len() as u32).to_le_bytes());
        out.extend(field.as_bytes());
        count += 1;
    }
    out[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
    out
}
