//! The directory of a take: its files, the journal of durable data, the manifest.
//!
//! * `DIR/TAKE/take.json` is the manifest, which is written first and last.
//! * `DIR/TAKE/take.journal` grows each second; it records which data is durable, with checksums.
//! * `DIR/TAKE/take.preroll` contains the most recent samples of an armed take, until they are
//!   copied to files.
//! * `DIR/TAKE/NAME.wav` contains a stream.

mod folder;
mod journal;
mod manifest;
mod names;
mod payload;

pub use folder::{DiskFolder, TakeFile, TakeFolder};
pub(crate) use journal::JournalReader;
pub use journal::{
    FileBehind, Journal, JournalEvent, JournalRecord, ProgressRun, Summed, decode_journal,
};
pub use manifest::{
    BesideTake, CommitStages, Manifest, RecordedFile, RecordedGap, RecordedMark, RecordedStream,
    SlowSync, TakeFigures, TakeState, TrimmedRun, is_plain_name,
};
pub(crate) use names::{is_stream_file_name, stream_file_name};
pub(crate) use payload::open_payload;

/// The name of the manifest.
pub const MANIFEST: &str = "take.json";
/// The name of the file with the pre-roll of an armed take.
pub(crate) const PRE_ROLL: &str = "take.preroll";
/// The name of the journal.
pub const JOURNAL: &str = "take.journal";
