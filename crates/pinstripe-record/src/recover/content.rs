//! The content of a take according to the journal of one directory.

use std::collections::{BTreeMap, VecDeque};

use pinstripe_base::error::Result;

use crate::header::LocalTime;
use crate::limits::MARKS_MAX;
use crate::take::{
    FileBehind, JournalEvent, JournalReader, JournalRecord, Manifest, RecordedFile, RecordedGap,
    RecordedMark, Summed, TakeFile, is_plain_name,
};

/// The number of runs at the end of each file that are read back; a disk that acknowledges syncs
/// falsely would lose these.
const READ_BACK: usize = 64;
/// The most files and gaps that are taken from one journal.
pub(crate) const EVENTS_MAX: usize = 200_000;

/// One file according to a journal.
#[derive(Debug, Clone)]
pub(crate) struct JournalFile {
    pub piece: RecordedFile,
    pub bytes: u64,
    /// The last runs, each with the offset in the payload at which it begins.
    pub(super) last: VecDeque<(u64, Summed)>,
    pub(super) behind: Option<FileBehind>,
}

/// The contents of a journal.
#[derive(Debug, Default)]
pub(crate) struct JournalContent {
    pub pieces: BTreeMap<u32, JournalFile>,
    pub gaps: Vec<RecordedGap>,
    pub marks: Vec<RecordedMark>,
    /// When the take began, if it was armed: local time, and seconds since 1970.
    pub started: Option<(LocalTime, i64)>,
}

/// Reads a journal up to its last complete record.
pub(crate) fn read_journal(file: &TakeFile, manifest: &Manifest) -> Result<JournalContent> {
    let mut reader = JournalReader::new(file)?;
    let directory = reader.begin(&manifest.id)?;
    let mut content = JournalContent::default();
    while let Some(record) = reader.next_record()? {
        match record {
            JournalRecord::Event(event) => content.note(event, directory, manifest),
            JournalRecord::Progress { runs, .. } => {
                for file in runs {
                    let Some(found) = content.pieces.get_mut(&file.piece) else { continue };
                    file.runs.iter().for_each(|run| found.extend(*run));
                }
            }
        }
    }
    Ok(content)
}

impl JournalFile {
    fn extend(&mut self, run: Summed) {
        if self.last.len() == READ_BACK {
            self.last.pop_front();
        }
        self.last.push_back((self.bytes, run));
        self.bytes = self.bytes.saturating_add(run.bytes.into());
    }
}

impl JournalContent {
    /// Returns every file: its first piece, and the piece after it if there is one. A piece whose
    /// front is missing is omitted, because its position is unknown.
    pub(super) fn files(&self) -> impl Iterator<Item = (&JournalFile, Option<&JournalFile>)> {
        let behind: BTreeMap<u32, &JournalFile> =
            self.pieces.values().filter_map(|it| Some((it.behind?.front, it))).collect();
        let first = self.pieces.values().filter(|it| it.behind.is_none());
        first.map(move |it| (it, behind.get(&it.piece.piece).copied()))
    }

    /// Whether the journal vouches for nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.values().all(|it| it.bytes == 0)
    }

    fn note(&mut self, event: JournalEvent, directory: u32, manifest: &Manifest) {
        let shape = |stream: u32| manifest.streams.get(stream as usize).map(|it| it.shape);
        match event {
            JournalEvent::File { piece, stream, copy, file, start_frame, behind } => {
                let Some(facts) = manifest.head_facts(stream, start_frame) else { return };
                if !is_plain_name(&file) || self.pieces.len() >= EVENTS_MAX {
                    return;
                }
                let piece = RecordedFile {
                    piece,
                    stream,
                    copy,
                    directory,
                    file,
                    start_frame,
                    frames: 0,
                    payload_at: behind.map_or_else(|| facts.payload_at(), |it| it.payload_at),
                    trimmed: None,
                    cut: None,
                };
                let found = JournalFile { bytes: 0, last: VecDeque::new(), behind, piece };
                // If it is announced again before any data, its first frame has changed.
                if self.pieces.get(&found.piece.piece).is_none_or(|it| it.bytes == 0) {
                    self.pieces.insert(found.piece.piece, found);
                }
            }
            JournalEvent::Gap { stream, frame, frames } if self.gaps.len() < EVENTS_MAX => {
                let Some(shape) = shape(stream) else { return };
                let at_seconds = frame as f64 / f64::from(shape.rate);
                self.gaps.push(RecordedGap { stream, frame, frames, at_seconds });
            }
            JournalEvent::Start { started, started_seconds, .. } => {
                self.started = Some((started, started_seconds));
            }
            JournalEvent::Mark { text, frames }
                if self.marks.len() < MARKS_MAX && frames.len() == manifest.streams.len() =>
            {
                self.marks.push(RecordedMark { text, frames });
            }
            _ => {}
        }
    }
}
