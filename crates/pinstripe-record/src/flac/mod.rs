//! Streams as FLAC, encoded on separate threads while they are recorded.
//!
//! A [`FlacWriter`] is a device that is written with consecutive samples, like a file of plain
//! samples. The file of a [`FlacWriter`] contains FLAC frames after a head that the recorder
//! writes. A [`FlacWriter`] reports how much of the given data is durable; only complete frames
//! count. A [`FlacReader`] is the corresponding device for reading samples at any place. So
//! journal, recovery and verification process samples, and do not depend on the encoding.
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
pub(crate) use writer::FlacWriter;

/// The most channels of a FLAC stream.
const CHANNELS_MAX: u16 = 8;
/// The highest sample rate that STREAMINFO can represent.
const RATE_MAX: u32 = (1 << 20) - 1;

/// Checks whether streams of this form can be recorded as FLAC on this machine.
///
/// # Errors
/// [`Kind::Usage`] for a form that FLAC does not support; [`Kind::Unsupported`] without libFLAC.
pub(crate) fn check_flac(shape: &StreamShape) -> Result<()> {
    let is_whole = matches!(shape.format, SampleFormat::U8 | SampleFormat::S16 | SampleFormat::S24);
    if !is_whole || shape.channels > CHANNELS_MAX || shape.rate > RATE_MAX {
        let found = format!("{}, {} channels, {} Hz", shape.format, shape.channels, shape.rate);
        return Err(Error::new(Kind::Usage, "this stream cannot be encoded as FLAC")
            .expected(
                format!(
                    "the sample format u8, s16 or s24, at most {CHANNELS_MAX} channels and at most \
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

/// Converts the samples of a payload to FLAC's form: signed, each in 32 bits.
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

/// Converts a sample from FLAC's form and appends it to a payload.
fn narrow(format: SampleFormat, sample: i32, out: &mut Vec<u8>) {
    match format {
        SampleFormat::S16 => out.extend((sample as i16).to_le_bytes()),
        SampleFormat::S24 => out.extend(&sample.to_le_bytes()[..3]),
        _ => out.push((sample + 128) as u8),
    }
}

#[cfg(test)]
mod tests;
