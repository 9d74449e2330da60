//! Streams as FLAC, encoded on separate threads while they are recorded.
//!
//! A [`FlacWriter`] is a device that takes consecutive samples, as a file of plain samples does.
//! Its file has FLAC frames behind a head that the recorder writes. It reports how much of the
//! given data is durable: complete frames only. A [`FlacReader`] is the matching device for
//! reading: samples at any place. So journal, recovery and verification work with samples, and do
//! not depend on the encoding.
//!
//! Invariants: data that is reported as durable is in complete frames that were synced. A stream is
//! encoded by one thread at a time. The amount of data that waits for the encoder is bounded.

mod decoder;
mod encoder;
mod frame;
mod library;
mod reader;
mod writer;

use pinstripe_base::error::{Error, Kind, Result};

use crate::sample::{SampleFormat, StreamShape};

pub(crate) use reader::FlacReader;
pub use writer::FlacWriter;

/// Channels of a stream of FLAC.
const CHANNELS_MAX: u16 = 8;
/// Rates that STREAMINFO has room for.
const RATE_MAX: u32 = (1 << 20) - 1;

/// Whether streams of this form can be FLAC here.
///
/// # Errors
/// [`Kind::Usage`] for a form that FLAC has not; [`Kind::Unsupported`] without libFLAC.
pub(crate) fn check_flac(shape: &StreamShape) -> Result<()> {
    let is_whole = matches!(shape.format, SampleFormat::U8 | SampleFormat::S16 | SampleFormat::S24);
    if !is_whole || shape.channels > CHANNELS_MAX || shape.rate > RATE_MAX {
        let found = format!("{}, {} channels, {} Hz", shape.format, shape.channels, shape.rate);
        return Err(Error::new(Kind::Usage, "this stream cannot be encoded as FLAC")
            .expected(
                format!(
                    "format u8, s16 or s24, at most {CHANNELS_MAX} channels, and at most \
                     {RATE_MAX} Hz"
                ),
                found,
            )
            .advice(
                "record with --format wav, or record each channel in its own file (without --poly)",
            ));
    }
    library::FlacLibrary::get().map(|_| ())
}

/// Samples of a payload as FLAC has them: signed, each in 32 bits.
fn widen(format: SampleFormat, payload: &[u8], out: &mut Vec<i32>) {
    match format {
        SampleFormat::S16 => out.extend(
            payload.chunks_exact(2).map(|it| i32::from(i16::from_le_bytes([it[0], it[1]]))),
        ),
        SampleFormat::S24 => out.extend(
            payload.chunks_exact(3).map(|it| i32::from_le_bytes([0, it[0], it[1], it[2]]) >> 8),
        ),
        _ => out.extend(payload.iter().map(|it| i32::from(*it) - 128)),
    }
}

/// The same back: appends a sample to a payload.
fn narrow(format: SampleFormat, sample: i32, out: &mut Vec<u8>) {
    match format {
        SampleFormat::S16 => out.extend((sample as i16).to_le_bytes()),
        SampleFormat::S24 => out.extend(&sample.to_le_bytes()[..3]),
        _ => out.push((sample + 128) as u8),
    }
}

#[cfg(test)]
mod tests;
