//! The manifest: a description of a take in JSON, for people and other programs.

use std::path::PathBuf;

use pinstripe_base::error::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::{JOURNAL, MANIFEST, folder::TakeFolder};
use crate::header::{FileKind, HeadFacts, LocalTime};
use crate::limits::{CHANNELS_MAX, MANIFEST_BYTES, STREAMS_MAX};
use crate::sample::{SampleFormat, StreamShape};

/// The version of the format that is written.
const VERSION: u32 = 1;
/// The most directories of one take.
const DIRECTORIES_MAX: usize = 1024;
/// The longest name of a file (NAME_MAX of Linux).
const NAME_MAX_BYTES: usize = 255;

/// Whether a take has ended normally.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TakeState {
    /// Inputs are open, and the take begins on an order; or the process was killed in this state.
    Armed,
    /// The take is being recorded, or its recording was interrupted.
    Recording,
    /// The take has ended normally.
    Complete,
    /// The recording was interrupted, and the take was recovered.
    Recovered,
}

/// A stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedStream {
    /// The name.
    pub name: String,
    /// The form.
    pub shape: StreamShape,
    /// The input from which the stream comes, as the user wrote it.
    pub source: String,
    /// The number of a test stream, whose content can be computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<u64>,
}

/// The rest of a file's last run, if the file was trimmed within the run to end with a complete
/// frame: the checksum in the journal covers the complete run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimmedRun {
    /// The offset in the payload at which the run begins.
    pub at: u64,
    /// The length.
    pub bytes: u32,
    /// The checksum of the run, as in the journal.
    pub sum: u64,
}

/// A file of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFile {
    /// The number of the file in the journal.
    pub piece: u32,
    /// The stream.
    pub stream: u32,
    /// The number of the copy: 0, or 1 for the second copy of a mirror.
    pub copy: u32,
    /// The number of the file's directory.
    pub directory: u32,
    /// The name.
    pub file: String,
    /// The first frame of the file in its stream.
    pub start_frame: u64,
    /// The frames.
    pub frames: u64,
    /// The offset at which the file's payload begins.
    pub payload_at: u64,
    /// The rest of the last run, if the file ends within the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trimmed: Option<TrimmedRun>,
    /// Why the file ended before its stream; `None` if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
}

/// Frames that were lost, and are replaced by silence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedGap {
    /// The stream.
    pub stream: u32,
    /// The first frame.
    pub frame: u64,
    /// The number.
    pub frames: u64,
    /// The place of the gap in seconds since the take began.
    pub at_seconds: f64,
}

impl RecordedGap {
    /// Merges another gap into this one, if it begins within this gap or at its end. Returns
    /// whether the gaps were merged.
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
    /// The marked frame of each stream.
    pub frames: Vec<u64>,
}

/// A take that was played while this one was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BesideTake {
    /// The id.
    pub id: String,
    /// The directory.
    pub path: PathBuf,
    /// The frame of the played take that belongs to the first frame of the recorded take.
    pub first_frame: u64,
}

/// The time of a sync of one file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowSync {
    /// The name of the file.
    pub file: String,
    /// When the sync began, in seconds since the beginning of the take.
    pub at_seconds: f64,
    /// The time that fdatasync(2) took.
    pub ms: f64,
}

/// The times of one commit, stage by stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CommitStages {
    /// When the commit began, in seconds since the beginning of the take.
    pub at_seconds: f64,
    /// All of it.
    pub ms: f64,
    /// The time of writing data to the disk.
    pub writeback_ms: f64,
    /// The time of the syncs of all files, which includes the file system's journal and the disk's
    /// cache.
    pub sync_ms: f64,
    /// The time of writing the journal of the take.
    pub journal_ms: f64,
    /// The time of writing the headers of all files.
    pub head_ms: f64,
}

/// How it went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TakeFigures {
    /// The length of the take in seconds, from the first to the last frame.
    pub seconds: f64,
    /// Payload bytes that were written, including mirrors.
    pub written_bytes: u64,
    /// The number of times that a ring was full.
    pub overruns: u64,
    /// The number of frames that were lost, in all streams.
    pub lost_frames: u64,
    /// The highest fill level of any ring, in percent of its size.
    pub ring_worst_percent: f64,
    /// The longest write.
    pub longest_write_ms: f64,
    /// The greatest age of a sample that was not durable.
    pub durable_lag_worst_ms: f64,
    /// The longest time that an input that can wait had to wait.
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
    /// Whether the take has ended normally.
    pub state: TakeState,
    /// When the take began, in local time.
    pub started: LocalTime,
    /// When the take began, in seconds since 1970, UTC.
    pub started_seconds: i64,
    /// The scene, as the user named it.
    pub scene: String,
    /// The tape, as the user named it.
    pub tape: String,
    /// The kind of the take's files.
    pub kind: FileKind,
    /// The directories of the take.
    pub directories: Vec<PathBuf>,
    /// Whether every stream is recorded twice.
    pub is_mirrored: bool,
    /// The size of a ring in bytes.
    pub ring_bytes: u64,
    /// The size of a chunk in bytes.
    pub chunk_bytes: u64,
    /// Every stream.
    pub streams: Vec<RecordedStream>,
    /// For each stream, the number of frames that its input had delivered before the first frame of
    /// the take; empty if the take began with the inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<i64>,
    /// All files of the take; during the recording, the journals list the files instead.
    pub pieces: Vec<RecordedFile>,
    /// The gaps: frames that were lost.
    pub gaps: Vec<RecordedGap>,
    /// Marks.
    pub marks: Vec<RecordedMark>,
    /// The take that was played during this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<BesideTake>,
    /// Figures about the recording, written at the end.
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
    /// [`Kind::Corrupt`] or [`Kind::Unsupported`] for an invalid manifest; other errors as the
    /// system reports them.
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
            Error::new(
                Kind::Corrupt,
                format!("this is not a valid manifest (take.json) of a take: {error}"),
            )
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
                "the manifest lists more directories than a take can have",
            )
            .expected(DIRECTORIES_MAX, manifest.directories.len()));
        }
        Ok(manifest)
    }

    /// Whether a file with these facts is possible: it is of a stream of this take, in one of its
    /// directories, and not longer than the greatest length of a file.
    pub(crate) fn can_have(&self, piece: &RecordedFile) -> bool {
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
    /// Returns errors as the system reports them.
    pub fn save(&self, folder: &dyn TakeFolder) -> Result<()> {
        folder.replace(MANIFEST, &self.encode())
    }

    /// Encodes the manifest as text that [`decode`](Self::decode) reads.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("a manifest has strings for keys");
        bytes.push(b'\n');
        bytes
    }

    /// Whether the take needs no recovery, because it is complete or was recovered.
    pub fn is_settled(&self) -> bool {
        matches!(self.state, TakeState::Complete | TakeState::Recovered)
    }

    /// Returns the contents of the head of a file of this stream.
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

/// Whether a text can be the name of a stream's file, directly in the directory of a take; the
/// names of the manifest and the journal are excluded.
pub fn is_plain_name(name: &str) -> bool {
    let is_own = [MANIFEST, JOURNAL].contains(&name.strip_suffix(".new").unwrap_or(name));
    (1..=NAME_MAX_BYTES).contains(&name.len())
        && !name.contains(['/', '\0'])
        && name != "."
        && name != ".."
        && !is_own
}
