//! RIFF, RF64 and BW64 with `bext` (EBU Tech 3285 v2) and iXML.
//!
//! ```text
//!   0     RIFF size WAVE
//!   12    JUNK of 28 bytes, or ds64 once the file is long
//!   48    bext, fmt, fact of floats, iXML, JUNK up to
//!   4088  data size           (or 8 before a later page, where the texts are long)
//!   4096  samples
//!   end   a pad byte if the payload is odd, cue, LIST adtl
//! ```
//!
//! Everything that changes when a file becomes RF64 is in the first page, which one write replaces.

use super::{Cue, HeadFacts};
use crate::sample::SampleFormat;

const PAGE: usize = 4096;
/// If payload and tail are longer than this, the file becomes RF64: 64 MiB below the limit of 4
/// GiB.
const LONG: u64 = u32::MAX as u64 - (64 << 20);
const IN_DS64: u32 = u32::MAX;
/// The last 14 bytes of the GUID in a WAVEFORMATEXTENSIBLE, after the two bytes of the format tag.
const GUID_TAIL: [u8; 14] =
    [0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x80, 0x00, 0x00, 0xaa, 0x00, 0x38, 0x9b, 0x71];
const TAG_PCM: u16 = 1;
const TAG_FLOAT: u16 = 3;
const TAG_EXTENSIBLE: u16 = 0xfffe;
/// The length of the description in `bext`.
const DESCRIPTION_BYTES: usize = 256;
/// The value of a loudness that was not measured.
const NOT_SET: i16 = 0x7fff;

/// Returns the head of a file with `payload` bytes and a tail of `tail` bytes.
pub fn head(facts: &HeadFacts, payload: u64, long_magic: &[u8; 4], tail: u64) -> Vec<u8> {
    let mut middle = Vec::with_capacity(PAGE);
    chunk(&mut middle, b"bext", &bext(facts));
    chunk(&mut middle, b"fmt ", &fmt(facts));
    let frames = payload / facts.shape.frame_bytes().max(1);
    let is_long = payload + tail + PAGE as u64 > LONG;
    if facts.shape.format == SampleFormat::F32 {
        let count = if is_long { IN_DS64 } else { frames as u32 };
        chunk(&mut middle, b"fact", &count.to_le_bytes());
    }
    chunk(&mut middle, b"iXML", ixml(facts).as_bytes());
    // 48 bytes in front, 8 of the padding's own head, 8 of the head of data.
    let length = (48 + middle.len() + 16).next_multiple_of(PAGE);
    let padding = length - 48 - middle.len() - 16;
    chunk(&mut middle, b"JUNK", &vec![0; padding]);
    let riff = length as u64 - 8 + payload + tail;
    let mut out = Vec::with_capacity(length);
    out.extend(if is_long { long_magic } else { b"RIFF" });
    out.extend(if is_long { IN_DS64 } else { riff as u32 }.to_le_bytes());
    out.extend(b"WAVE");
    let mut ds64 = [0; 28];
    if is_long {
        ds64[..8].copy_from_slice(&riff.to_le_bytes());
        ds64[8..16].copy_from_slice(&payload.to_le_bytes());
        ds64[16..24].copy_from_slice(&frames.to_le_bytes());
    }
    chunk(&mut out, if is_long { b"ds64" } else { b"JUNK" }, &ds64);
    out.extend(middle);
    out.extend(b"data");
    out.extend(if is_long { IN_DS64 } else { payload as u32 }.to_le_bytes());
    out
}

/// Returns the bytes after the payload: a pad byte if the length of the payload is odd, and the
/// cues.
pub fn tail(payload: u64, cues: &[Cue]) -> Vec<u8> {
    let mut out = vec![0; (payload & 1) as usize];
    // A cue has 32 bits for its frame; the manifest has all of them.
    let cues: Vec<(u32, &str)> = cues
        .iter()
        .filter_map(|cue| Some((u32::try_from(cue.frame).ok()?, cue.text.as_str())))
        .collect();
    if cues.is_empty() {
        return out;
    }
    let mut points = (cues.len() as u32).to_le_bytes().to_vec();
    let mut labels = b"adtl".to_vec();
    for (number, (frame, text)) in (1_u32..).zip(cues) {
        for word in [number, frame] {
            points.extend(word.to_le_bytes());
        }
        points.extend(b"data");
        for word in [0, 0, frame] {
            points.extend(word.to_le_bytes());
        }
        let text: String = text.chars().filter(|it| !it.is_control()).collect();
        let label = [&number.to_le_bytes(), text.as_bytes(), b"\0"].concat();
        chunk(&mut labels, b"labl", &label);
    }
    chunk(&mut out, b"cue ", &points);
    chunk(&mut out, b"LIST", &labels);
    out
}

/// Appends one chunk, padded to an even length.
fn chunk(out: &mut Vec<u8>, id: &[u8; 4], body: &[u8]) {
    out.extend(id);
    out.extend((body.len() as u32).to_le_bytes());
    out.extend(body);
    if body.len() % 2 == 1 {
        out.push(0);
    }
}

fn fmt(facts: &HeadFacts) -> Vec<u8> {
    let shape = &facts.shape;
    let bits = 8 * shape.format.bytes() as u16;
    let plain = if shape.format == SampleFormat::F32 { TAG_FLOAT } else { TAG_PCM };
    let is_extended = shape.channels > 2 || (bits > 24 && plain == TAG_PCM);
    let mut out = Vec::new();
    out.extend(if is_extended { TAG_EXTENSIBLE } else { plain }.to_le_bytes());
    out.extend(shape.channels.to_le_bytes());
    out.extend(shape.rate.to_le_bytes());
    out.extend((shape.byte_rate() as u32).to_le_bytes());
    out.extend((shape.frame_bytes() as u16).to_le_bytes());
    out.extend(bits.to_le_bytes());
    if is_extended {
        out.extend(22_u16.to_le_bytes());
        out.extend(bits.to_le_bytes());
        // The channels are not assigned to loudspeakers.
        out.extend(0_u32.to_le_bytes());
        out.extend(plain.to_le_bytes());
        out.extend(GUID_TAIL);
    } else if plain == TAG_FLOAT {
        out.extend(0_u16.to_le_bytes());
    }
    out
}

/// Returns the 602 bytes of `bext` version 2; its texts are ASCII.
fn bext(facts: &HeadFacts) -> Vec<u8> {
    let mut out = Vec::with_capacity(700);
    let mut text = |text: &str, bytes: usize| {
        let plain = text
            .chars()
            .map(|it| if it.is_ascii_graphic() || " \r\n".contains(it) { it as u8 } else { b'?' });
        let mut field: Vec<u8> = plain.take(bytes).collect();
        field.resize(bytes, 0);
        out.extend(field);
    };
    let mut described =
        format!("sSCENE={}\r\nsTAKE={}\r\nsTAPE={}\r\n", facts.scene, facts.take, facts.tape);
    for channel in 1..=facts.shape.channels {
        // A truncated name would be a wrong one.
        let line = format!("sTRK{channel}={}\r\n", track(facts, channel));
        if channel > 1 && described.chars().count() + line.chars().count() > DESCRIPTION_BYTES {
            break;
        }
        described += &line;
    }
    text(&described, DESCRIPTION_BYTES);
    text("pinstripe", 32);
    text(&facts.uid, 32);
    text(&facts.file_began().date(), 10);
    text(&facts.file_began().time(), 8);
    let since_midnight = facts.since_midnight();
    out.extend(since_midnight.to_le_bytes());
    out.extend(2_u16.to_le_bytes());
    out.extend([0; 64]);
    (0..5).for_each(|_| out.extend(NOT_SET.to_le_bytes()));
    out.extend([0; 180]);
    let history = format!(
        "A=PCM,F={},W={},M={},T=pinstripe\r\n",
        facts.shape.rate,
        8 * facts.shape.format.bytes(),
        match facts.shape.channels {
            1 => "mono",
            2 => "stereo",
            _ => "multichannel",
        }
    );
    out.extend(history.as_bytes());
    out
}

/// Returns the name of one channel.
fn track(facts: &HeadFacts, channel: u16) -> String {
    match facts.shape.channels {
        1 => facts.name.clone(),
        _ => format!("{} {channel}", facts.name),
    }
}

fn ixml(facts: &HeadFacts) -> String {
    let since_midnight = facts.since_midnight();
    let tracks: String = (1..=facts.shape.channels.min(64))
        .map(|channel| {
            let name = escaped(&track(facts, channel));
            format!(
                "<TRACK><CHANNEL_INDEX>{channel}</CHANNEL_INDEX>\
                 <INTERLEAVE_INDEX>{channel}</INTERLEAVE_INDEX><NAME>{name}</NAME></TRACK>"
            )
        })
        .collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<BWFXML><IXML_VERSION>1.61</IXML_VERSION>\
         <SCENE>{}</SCENE><TAKE>{}</TAKE><TAPE>{}</TAPE><FILE_UID>{uid}{index:08x}{start:016x}</FILE_UID>\
         <SPEED><AUDIO_BIT_DEPTH>{bits}</AUDIO_BIT_DEPTH><FILE_SAMPLE_RATE>{rate}</FILE_SAMPLE_RATE>\
         <TIMESTAMP_SAMPLE_RATE>{rate}</TIMESTAMP_SAMPLE_RATE>\
         <TIMESTAMP_SAMPLES_SINCE_MIDNIGHT_HI>{}</TIMESTAMP_SAMPLES_SINCE_MIDNIGHT_HI>\
         <TIMESTAMP_SAMPLES_SINCE_MIDNIGHT_LO>{}</TIMESTAMP_SAMPLES_SINCE_MIDNIGHT_LO></SPEED>\
         <FILE_SET><TOTAL_FILES>{}</TOTAL_FILES><FAMILY_UID>{uid}</FAMILY_UID>\
         <FILE_SET_INDEX>{}</FILE_SET_INDEX></FILE_SET>\
         <TRACK_LIST><TRACK_COUNT>{}</TRACK_COUNT>{tracks}</TRACK_LIST></BWFXML>\n",
        escaped(&facts.scene),
        escaped(&facts.take),
        escaped(&facts.tape),
        since_midnight >> 32,
        since_midnight as u32,
        facts.total,
        facts.index + 1,
        facts.shape.channels,
        uid = facts.uid,
        index = facts.index,
        // Files of one stream differ in their first frames. As long as any, so that no head grows.
        start = facts.start_frame,
        bits = 8 * facts.shape.format.bytes(),
        rate = facts.shape.rate,
    )
}

/// Escapes a text for XML, because names may come from a network.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            letter if letter.is_control() => out.push('?'),
            letter => out.push(letter),
        }
    }
    out
}
