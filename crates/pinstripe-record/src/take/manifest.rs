//! The manifest: what a take is, in JSON, for people and other programs.

use std::path::PathBuf;

use pinstripe_base::error::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::{JOURNAL, MANIFEST, folder::TakeFolder};
use crate::header::{FileKind, HeadFacts, LocalTime};
use crate::limits::{CHANNELS_MAX, MANIFEST_BYTES, STREAMS_MAX};
use crate::sample::{SampleFormat, StreamShape};

/// The version that is written.
const VERSION: u32 = 1;
/// Directories of one take.
const DIRECTORIES_MAX: usize = 1024;
/// The longest name of a file (NAME_MAX of Linux).
const NAME_MAX_BYTES: usize = 255;

/// Whether a take reached its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TakeState {
    /// Inputs are open, and the take begins on an order; or it was cut off in this state.
    Armed,
    /// It is being recorded, or its recording was cut off.
    Recording,
    /// It reached its end.
    Complete,
    /// It was cut off, and then put in order.
    Recovered,
}

/// A stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedStream {
    /// The name.
    pub name: String,
    /// The form.
    pub shape: StreamShape,
    /// The input that it came from, as the user wrote it.
    pub source: String,
    /// The number of a test stream, whose content can be computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<u64>,
}

/// The rest of the last run of a file that was trimmed in the middle of a frame: the incomplete
/// frame was cut off, but the checksum in the journal covers the complete run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimmedRun {
    /// Where it begins in the payload.
    pub at: u64,
    /// The length.
    pub bytes: u32,
    /// The checksum, as in the journal.
    pub sum: u64,
}

/// A file of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedPiece {
    /// The number in the journal.
    pub piece: u32,
    /// The stream.
    pub stream: u32,
    /// 0, or 1 of a mirror.
    pub copy: u32,
    /// The number of its directory.
    pub directory: u32,
    /// The name.
    pub file: String,
    /// The first frame in the stream.
    pub start_frame: u64,
    /// The frames.
    pub frames: u64,
    /// Where its payload begins.
    pub payload_at: u64,
    /// The rest of its last run, where the file ends within that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trimmed: Option<TrimmedRun>,
    /// Why it ended before its stream, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
}

/// Frames that were lost, and are silence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedGap {
    /// The stream.
    pub stream: u32,
    /// The first frame.
    pub frame: u64,
    /// The number.
    pub frames: u64,
    /// The same place in seconds since the take began.
    pub at_seconds: f64,
}

impl RecordedGap {
    /// Merges a gap that begins within this one or at its end. Returns whether it did.
    pub fn join(&mut self, next: &RecordedGap) -> bool {
        let end = self.frame.saturating_add(self.frames);
        let is_joined = self.stream == next.stream && (self.frame..=end).contains(&next.frame);
        if is_joined {
            self.frames = end.max(next.frame.saturating_add(next.frames)) - self.frame;
        }
        is_joined
    }
}

/// A marked place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedMark {
    /// The text.
    pub text: String,
    /// By stream: the frame.
    pub frames: Vec<u64>,
}

/// A take that was played while another was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BesideTake {
    /// The id.
    pub id: String,
    /// The directory.
    pub path: PathBuf,
    /// The frame of it to which the first frame of this take belongs.
    pub first_frame: u64,
}

/// A sync of one file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowSync {
    /// The name of the file.
    pub file: String,
    /// When it began, in seconds since the take did.
    pub at_seconds: f64,
    /// How long fdatasync(2) took.
    pub ms: f64,
}

/// One commit, stage by stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CommitStages {
    /// When it began, in seconds since the take did.
    pub at_seconds: f64,
    /// All of it.
    pub ms: f64,
    /// Data that is being written to the disk.
    pub writeback_ms: f64,
    /// Syncs of all files: the journal of the file system, and the cache of the disk.
    pub sync_ms: f64,
    /// The journal of the take.
    pub journal_ms: f64,
    /// Headers of all files.
    pub head_ms: f64,
}

/// How it went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TakeFigures {
    /// Seconds from the first to the last frame.
    pub seconds: f64,
    /// Payload bytes that were written, mirrors included.
    pub written_bytes: u64,
    /// The number of times that a ring was too full.
    pub overruns: u64,
    /// Frames that were lost, of all streams.
    pub lost_frames: u64,
    /// The fullest that any ring was, in percent of its size.
    pub ring_worst_percent: f64,
    /// The longest write.
    pub longest_write_ms: f64,
    /// The greatest age of a sample that was not durable.
    pub durable_lag_worst_ms: f64,
    /// The longest time that an input which can wait was kept waiting.
    pub held_back_worst_ms: f64,
    /// The slowest sync of a file.
    #[serde(default)]
    pub slowest_sync: SlowSync,
    /// The slowest commit, stage by stage.
    #[serde(default)]
    pub slowest_commit: CommitStages,
}

/// The manifest of a take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this format.
    pub version: u32,
    /// Random, hexadecimal.
    pub id: String,
    /// The name.
    pub take: String,
    /// Whether it reached its end.
    pub state: TakeState,
    /// When it began, in its time zone.
    pub started: LocalTime,
    /// The same in seconds since 1970, UTC.
    pub started_seconds: i64,
    /// As the user named it.
    pub scene: String,
    /// As the user named it.
    pub tape: String,
    /// The kind of files.
    pub kind: FileKind,
    /// The directories of the take.
    pub directories: Vec<PathBuf>,
    /// Whether every stream is written twice.
    pub is_mirrored: bool,
    /// Bytes of a ring.
    pub ring_bytes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Every stream.
    pub streams: Vec<RecordedStream>,
    /// By stream: the frames that its input had given before the first frame of the take; empty if
    /// the take began with the inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<i64>,
    /// Every file; while it is recorded those of the journals count.
    pub pieces: Vec<RecordedPiece>,
    /// Frames that were lost.
    pub gaps: Vec<RecordedGap>,
    /// Marks.
    pub marks: Vec<RecordedMark>,
    /// The take that was played during this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<BesideTake>,
    /// How it went, at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<TakeFigures>,
}

impl Manifest {
    /// The version that this program writes.
    pub fn version() -> u32 {
        VERSION
    }

    /// Reads and checks the manifest of a directory.
    ///
    /// # Errors
    /// [`Kind::Corrupt`], [`Kind::Unsupported`]; otherwise as reported by the system.
    pub fn load(folder: &dyn TakeFolder) -> Result<Self> {
        let bytes = folder.read(MANIFEST, MANIFEST_BYTES)?;
        Manifest::decode(&bytes).map_err(|error| error.at(folder.path().join(MANIFEST)))
    }

    /// Reads and checks a manifest.
    ///
    /// # Errors
    /// [`Kind::Corrupt`], [`Kind::Unsupported`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(|error| {
            Error::new(Kind::Corrupt, format!("this is not a valid manifest of a take: {error}"))
        })?;
        if manifest.version != VERSION {
            return Err(Error::new(
                Kind::Unsupported,
                "the manifest of the take has an unsupported version",
            )
            .expected(VERSION, manifest.version));
        }
        let is_sound = |it: &RecordedStream| {
            let shape = &it.shape;
            (1..=CHANNELS_MAX).contains(&shape.channels) && shape.rate > 0
        };
        if manifest.streams.len() > STREAMS_MAX || !manifest.streams.iter().all(is_sound) {
            return Err(Error::new(
                Kind::Corrupt,
                "the manifest has an impossible number of streams",
            ));
        }
        if !manifest.pieces.iter().all(|it| manifest.can_have(it)) {
            return Err(Error::new(Kind::Corrupt, "the manifest has impossible file names"));
        }
        if manifest.directories.len() > DIRECTORIES_MAX {
            return Err(Error::new(
                Kind::Corrupt,
                "the manifest has more directories than any take can have",
            )
            .expected(DIRECTORIES_MAX, manifest.directories.len()));
        }
        Ok(manifest)
    }

    /// Whether a file of this form is possible: of a stream of this take, in its directory, and not
    /// longer than any file.
    pub(crate) fn can_have(&self, piece: &RecordedPiece) -> bool {
        let end = || {
            let frame_bytes = self.streams.get(piece.stream as usize)?.shape.frame_bytes();
            let frames = piece.start_frame.checked_add(piece.frames)?;
            frames.checked_mul(frame_bytes)?.checked_add(piece.payload_at)
        };
        is_plain_name(&piece.file) && end().is_some_and(|it| it <= i64::MAX as u64)
    }

    /// Writes it.
    ///
    /// # Errors
    /// As reported by the system.
    pub fn save(&self, folder: &dyn TakeFolder) -> Result<()> {
        folder.replace(MANIFEST, &self.encode())
    }

    /// The text that [`decode`](Self::decode) reads.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("a manifest has strings for keys");
        bytes.push(b'\n');
        bytes
    }

    /// Whether no recovery is needed: the take is complete, or was recovered.
    pub fn is_settled(&self) -> bool {
        matches!(self.state, TakeState::Complete | TakeState::Recovered)
    }

    /// The contents of the head of a file of this stream.
    pub fn head_facts(&self, stream: u32, start_frame: u64) -> Option<HeadFacts> {
        let found = self.streams.get(stream as usize)?;
        Some(HeadFacts {
            kind: if found.shape.format == SampleFormat::Raw { FileKind::Raw } else { self.kind },
            shape: found.shape,
            name: found.name.clone(),
            take: self.take.clone(),
            scene: self.scene.clone(),
            tape: self.tape.clone(),
            started: self.started,
            start_frame,
            index: stream,
            total: self.streams.len() as u32,
            uid: self.id.clone(),
        })
    }
}

/// Whether a text can be the name of a stream's file in the directory of a take, and of no other.
pub fn is_plain_name(name: &str) -> bool {
    let is_own = [MANIFEST, JOURNAL].contains(&name.strip_suffix(".new").unwrap_or(name));
    (1..=NAME_MAX_BYTES).contains(&name.len())
        && !name.contains(['/', '\0'])
        && name != "."
        && name != ".."
        && !is_own
}
