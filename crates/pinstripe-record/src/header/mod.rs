//! Heads and tails of files: pure functions that convert the facts about a stream to bytes.
//!
//! A head is one block before the payload. A head is always created as a whole, so that one write
//! replaces it. The sizes in a head are those of the payload for which the head is created, which
//! is never more than the durable part.

mod caf;
mod flac;
mod wav;

use std::fmt;
use std::str::FromStr;

use pinstripe_base::error::{Error, Kind};
use serde::{Deserialize, Serialize};

use crate::sample::StreamShape;

pub use flac::BLOCK as FLAC_BLOCK;

/// The space for cues in a file whose length is limited; it is enough for some dozens.
const CUES_ROOM: u64 = 4096;
/// The most bytes of the header of a FLAC block and of its channels.
const BLOCK_HEAD: u64 = 64;

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// WAV, which becomes RF64 in place before it passes 4 GiB (EBU Tech 3306).
    Wav,
    /// WAV, which becomes BW64 in place (ITU-R BS.2088); sox and libsndfile cannot read BW64.
    Bw64,
    /// Core Audio Format.
    Caf,
    /// FLAC, encoded while it is recorded.
    Flac,
    /// Only the payload; its format is in the manifest.
    Raw,
}

const NAMES: [(FileKind, &str, &str); 5] = [
    (FileKind::Wav, "wav", "wav"),
    (FileKind::Bw64, "bw64", "wav"),
    (FileKind::Caf, "caf", "caf"),
    (FileKind::Flac, "flac", "flac"),
    (FileKind::Raw, "raw", "raw"),
];

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES.iter().find(|it| it.0 == *self).map_or("", |it| it.1))
    }
}

impl FromStr for FileKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        NAMES.iter().find(|it| it.1 == text).map(|it| it.0).ok_or_else(|| {
            Error::new(Kind::Usage, format!("'{text}' is not a known file format"))
                .expected("a file format: wav, bw64, caf, flac or raw", text)
        })
    }
}

const NANOS_OF_SECOND: u32 = 1_000_000_000;

/// A date and a time of day, in the time zone in which the take is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalTime {
    /// Seconds since 1970 in that time zone: UTC plus the offset of the zone.
    pub seconds: i64,
    /// Nanoseconds of that second. Takes of before this field have whole seconds.
    #[serde(default)]
    pub nanos: u32,
}

impl LocalTime {
    /// A time from nanoseconds since 1970 in the time zone of the take.
    pub(crate) fn from_nanos(nanos: i64) -> Self {
        let second = i64::from(NANOS_OF_SECOND);
        LocalTime { seconds: nanos.div_euclid(second), nanos: nanos.rem_euclid(second) as u32 }
    }

    /// Nanoseconds since 1970 in the time zone of the take: to the year 2262.
    pub(crate) fn to_nanos(self) -> i64 {
        self.seconds.saturating_mul(NANOS_OF_SECOND.into()).saturating_add(self.nanos.into())
    }

    /// Returns `(year, month, day)`, and the second of the day. The Gregorian calendar is used for
    /// all times.
    fn parts(self) -> ((i64, u32, u32), u32) {
        let (days, second) = (self.seconds.div_euclid(86_400), self.seconds.rem_euclid(86_400));
        // Days since 0000-03-01; eras of 400 years (Hinnant, chrono-compatible date algorithms).
        let days = days + 719_468;
        let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let of_year = day - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let date = (of_year - (153 * month + 2) / 5 + 1) as u32;
        let month = if month < 10 { month + 3 } else { month - 9 } as u32;
        ((year + era * 400 + i64::from(month <= 2), month, date), second as u32)
    }

    /// `2024-05-01`.
    pub fn date(self) -> String {
        let ((year, month, day), _) = self.parts();
        format!("{year:04}-{month:02}-{day:02}")
    }

    /// `12:34:56`.
    pub fn time(self) -> String {
        let (_, second) = self.parts();
        format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
    }
}

/// The contents of a head in addition to its length.
#[derive(Debug, Clone)]
pub struct HeadFacts {
    /// The kind.
    pub kind: FileKind,
    /// The form of the stream.
    pub shape: StreamShape,
    /// The name of the stream.
    pub name: String,
    /// The name of the take.
    pub take: String,
    /// The scene; empty if the user named none.
    pub scene: String,
    /// The tape; empty if the user named none.
    pub tape: String,
    /// When the take began.
    pub started: LocalTime,
    /// The first frame of this file, counted from the beginning of the take.
    pub start_frame: u64,
    /// The number of the stream.
    pub index: u32,
    /// The number of all streams.
    pub total: u32,
    /// The id of the take, in hexadecimal.
    pub uid: String,
}

/// A marked place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cue {
    /// The number of the frame within the file.
    pub frame: u64,
    /// The text.
    pub text: String,
}

impl HeadFacts {
    /// Returns the extension of the file names of this kind.
    pub fn extension(&self) -> &'static str {
        NAMES.iter().find(|it| it.0 == self.kind).map_or("", |it| it.2)
    }

    /// Returns the offset at which the payload begins.
    pub fn payload_at(&self) -> u64 {
        match self.kind {
            FileKind::Raw => 0,
            _ => self.head(0).len() as u64,
        }
    }

    /// The greatest number of frames in a file of `file_bytes` bytes, which also contains a head
    /// and, if cues are stored after the payload, space for some cues.
    pub(crate) fn frames_within(&self, file_bytes: u64) -> u64 {
        let frame = self.shape.frame_bytes();
        let left = file_bytes.saturating_sub(self.payload_at());
        match self.kind {
            FileKind::Wav | FileKind::Bw64 | FileKind::Caf => {
                left.saturating_sub(CUES_ROOM) / frame
            }
            // Samples that cannot be compressed are stored in blocks with heads of their own.
            FileKind::Flac => {
                let block = u128::from(FLAC_BLOCK * frame + BLOCK_HEAD);
                let left = u128::from(left.saturating_sub(BLOCK_HEAD));
                (left * u128::from(FLAC_BLOCK) / block) as u64
            }
            FileKind::Raw => left / frame,
        }
    }

    /// Returns the head of a file with `payload_bytes` of payload, rounded down to complete frames.
    pub fn head(&self, payload_bytes: u64) -> Vec<u8> {
        match self.kind {
            FileKind::Wav => wav::head(self, payload_bytes, b"RF64", 0),
            FileKind::Bw64 => wav::head(self, payload_bytes, b"BW64", 0),
            FileKind::Caf => caf::head(self, payload_bytes),
            FileKind::Flac => flac::head(self, payload_bytes, &[], true),
            FileKind::Raw => Vec::new(),
        }
    }

    /// Returns the bytes before and after the payload of a complete file.
    pub fn complete(&self, payload_bytes: u64, cues: &[Cue]) -> (Vec<u8>, Vec<u8>) {
        match self.kind {
            FileKind::Wav | FileKind::Bw64 => {
                let tail = wav::tail(payload_bytes, cues);
                let magic = if self.kind == FileKind::Wav { b"RF64" } else { b"BW64" };
                (wav::head(self, payload_bytes, magic, tail.len() as u64), tail)
            }
            FileKind::Flac => (flac::head(self, payload_bytes, cues, false), Vec::new()),
            FileKind::Caf => caf::complete(self, payload_bytes, cues),
            FileKind::Raw => (Vec::new(), Vec::new()),
        }
    }

    /// The number of frames from the second in which the take began to the first frame of this
    /// file.
    fn frames_of_beginning(&self) -> u64 {
        let nanos = u64::from(self.started.nanos);
        let since_second = nanos * u64::from(self.shape.rate) / u64::from(NANOS_OF_SECOND);
        self.start_frame.saturating_add(since_second)
    }

    /// When this file began, to the second.
    fn file_began(&self) -> LocalTime {
        let seconds = self.frames_of_beginning() / u64::from(self.shape.rate.max(1));
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        LocalTime { seconds: self.started.seconds.saturating_add(seconds), nanos: 0 }
    }

    /// The number of frames from midnight to the first frame of this file.
    fn since_midnight(&self) -> u64 {
        let rate = u64::from(self.shape.rate);
        let (_, second) = self.file_began().parts();
        u64::from(second) * rate + self.frames_of_beginning() % rate.max(1)
    }
}

#[cfg(test)]
mod tests;
