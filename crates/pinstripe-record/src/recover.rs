//! A take whose recording was cut off, put in order: every file gets the length, tail and head that
//! the journal vouches for, and nothing that it does not.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;

use crate::engine::{close_file, cues_within, trimmed_run};
use crate::limits::MARKS_MAX;
use crate::take::{
    DiskFolder, JOURNAL, JournalEvent, JournalReader, JournalRecord, Manifest, RecordedGap,
    RecordedMark, RecordedPiece, Summed, TakeFile, TakeFolder, TakeState, is_plain_name,
    open_payload,
};

/// Runs at the end of each file that are read back: those that a disk which lies would lose.
const READ_BACK: usize = 64;
/// Runs are at most so long.
pub(crate) const RUN_MAX_BYTES: u32 = 1 << 20;
/// Files and gaps of one journal that are taken over.
const EVENTS_MAX: usize = 200_000;

/// A file as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredFile {
    /// Its path.
    pub path: PathBuf,
    /// The name of its stream.
    pub stream: String,
    /// Its frames.
    pub frames: u64,
}

/// The outcome.
#[derive(Debug)]
pub struct RecoverOutcome {
    /// The manifest as it was written, or was found.
    pub manifest: Manifest,
    /// Every file.
    pub files: Vec<RecoveredFile>,
    /// Whether the take was complete already, so that nothing was changed.
    pub was_complete: bool,
    /// The moment since the beginning up to which samples are vouched for.
    pub vouched: Duration,
}

/// What a journal says of one file.
#[derive(Debug, Clone)]
pub(crate) struct JournalPiece {
    pub piece: RecordedPiece,
    pub bytes: u64,
    /// The last runs, and where in the payload each begins.
    last: VecDeque<(u64, Summed)>,
}

/// What a journal says.
#[derive(Debug, Default)]
pub(crate) struct JournalContent {
    pub pieces: BTreeMap<u32, JournalPiece>,
    pub gaps: Vec<RecordedGap>,
    pub marks: Vec<RecordedMark>,
    pub vouched: Duration,
}

/// Puts the take in this directory in order.
///
/// # Errors
/// [`Kind::NotFound`] where there is none, [`Kind::Busy`] while it is recorded; otherwise those of
/// the directory. A file that is not what the journal says is a loss in the ledger.
pub fn recover(path: &Path, monitor: &Monitor) -> Result<RecoverOutcome> {
    let folder: Arc<dyn TakeFolder> = Arc::new(DiskFolder::open(path)?);
    let manifest = Manifest::load(&*folder)?;
    let folders = all_folders(folder, &manifest, monitor);
    recover_in(&folders, manifest, monitor)
}

/// The directories of a take that are there; the first is the one that the user named.
pub(crate) fn all_folders(
    named: Arc<dyn TakeFolder>,
    manifest: &Manifest,
    monitor: &Monitor,
) -> Vec<Arc<dyn TakeFolder>> {
    let mut folders = vec![Arc::clone(&named)];
    if manifest.directories.len() < 2 {
        return folders;
    }
    let own = directory_of(&*named, &manifest.id).ok();
    for (number, path) in (0_u32..).zip(&manifest.directories) {
        if own == Some(number) {
            continue;
        }
        let other = DiskFolder::open(path).and_then(|folder| {
            let found = Manifest::load(&folder)?;
            let is_same = found.id == manifest.id;
            let wrong = || Error::new(Kind::WrongMember, "another take").at(path);
            if is_same { Ok(folder) } else { Err(wrong()) }
        });
        match other {
            Ok(folder) => folders.push(Arc::new(folder)),
            Err(error) => monitor.warning(path, error),
        }
    }
    folders
}

fn directory_of(folder: &dyn TakeFolder, id: &str) -> Result<u32> {
    let file = folder.open(JOURNAL, false)?;
    JournalReader::new(&file)?.begin(id)
}

/// Puts a take in these directories in order.
///
/// # Errors
/// As [`recover`].
pub fn recover_in(
    folders: &[Arc<dyn TakeFolder>],
    mut manifest: Manifest,
    monitor: &Monitor,
) -> Result<RecoverOutcome> {
    let mut journals = Vec::new();
    for folder in folders {
        let file = folder.open(JOURNAL, true)?;
        file.lock(false)?;
        journals.push((Arc::clone(folder), file));
    }
    let was_complete = manifest.state != TakeState::Recording;
    let (mut files, mut vouched) = (Vec::new(), Duration::ZERO);
    let (mut pieces, mut gaps, mut marks) = (Vec::new(), Vec::new(), Vec::new());
    for (folder, journal) in &journals {
        if was_complete {
            break;
        }
        let content = read_journal(journal, &manifest)?;
        vouched = vouched.max(content.vouched);
        for found in content.pieces.values() {
            match settle(&**folder, &manifest, found, &content, monitor) {
                Ok(piece) => {
                    let stream = &manifest.streams[piece.stream as usize];
                    let path = folder.path().join(&piece.file);
                    files.push(RecoveredFile {
                        path,
                        stream: stream.name.clone(),
                        frames: piece.frames,
                    });
                    pieces.push(piece);
                }
                Err(error) => monitor.loss(folder.path().join(&found.piece.file), error),
            }
        }
        gaps.extend(content.gaps);
        marks.extend(content.marks);
    }
    if !was_complete {
        pieces.sort_by_key(|it| (it.stream, it.copy, it.start_frame, it.piece));
        gaps.sort_by_key(|it: &RecordedGap| (it.stream, it.frame));
        gaps.dedup();
        let mut kept: Vec<RecordedMark> = Vec::new();
        marks.into_iter().for_each(|mark| {
            if !kept.contains(&mark) {
                kept.push(mark)
            }
        });
        manifest.state = TakeState::Recovered;
        (manifest.pieces, manifest.gaps, manifest.marks) = (pieces, gaps, kept);
        for (folder, _) in &journals {
            folder.sync_names()?;
            manifest.save(&**folder)?;
        }
    }
    Ok(RecoverOutcome { manifest, files, was_complete, vouched })
}

/// Reads a journal up to its last whole record.
pub(crate) fn read_journal(file: &TakeFile, manifest: &Manifest) -> Result<JournalContent> {
    let mut reader = JournalReader::new(file)?;
    let directory = reader.begin(&manifest.id)?;
    let mut content = JournalContent::default();
    while let Some(record) = reader.next_record()? {
        match record {
            JournalRecord::Event(event) => content.note(event, directory, manifest),
            JournalRecord::Progress { nanos, runs } => {
                content.vouched = Duration::from_nanos(nanos);
                for file in runs {
                    let Some(found) = content.pieces.get_mut(&file.piece) else { continue };
                    file.runs.iter().for_each(|run| found.extend(*run));
                }
            }
        }
    }
    Ok(content)
}

impl JournalPiece {
    fn extend(&mut self, run: Summed) {
        if self.last.len() == READ_BACK {
            self.last.pop_front();
        }
        self.last.push_back((self.bytes, run));
        self.bytes = self.bytes.saturating_add(run.bytes.into());
    }
}

impl JournalContent {
    fn note(&mut self, event: JournalEvent, directory: u32, manifest: &Manifest) {
        let shape = |stream: u32| manifest.streams.get(stream as usize).map(|it| it.shape);
        match event {
            JournalEvent::Piece { piece, stream, copy, file, start_frame } => {
                let Some(facts) = manifest.head_facts(stream, start_frame) else { return };
                if !is_plain_name(&file) || self.pieces.len() >= EVENTS_MAX {
                    return;
                }
                let piece = RecordedPiece {
                    piece,
                    stream,
                    copy,
                    directory,
                    file,
                    start_frame,
                    frames: 0,
                    payload_at: facts.payload_at(),
                    trimmed: None,
                    cut: None,
                };
                let found = JournalPiece { bytes: 0, last: VecDeque::new(), piece };
                self.pieces.insert(found.piece.piece, found);
            }
            JournalEvent::Gap { stream, frame, frames } if self.gaps.len() < EVENTS_MAX => {
                let Some(shape) = shape(stream) else { return };
                let at_seconds = frame as f64 / f64::from(shape.rate);
                self.gaps.push(RecordedGap { stream, frame, frames, at_seconds });
            }
            JournalEvent::Mark { text, frames } if self.marks.len() < MARKS_MAX => {
                self.marks.push(RecordedMark { text, frames });
            }
            _ => {}
        }
    }
}

/// Gives one file what the journal vouches for.
fn settle(
    folder: &dyn TakeFolder,
    manifest: &Manifest,
    found: &JournalPiece,
    content: &JournalContent,
    monitor: &Monitor,
) -> Result<RecordedPiece> {
    let mut piece = found.piece.clone();
    let facts = manifest
        .head_facts(piece.stream, piece.start_frame)
        .ok_or_else(|| Error::new(Kind::Corrupt, "is of no stream of this take"))?;
    let frame_bytes = facts.shape.frame_bytes();
    let file = open_payload(folder, manifest, piece.stream, (&piece.file, true))?;
    let there = file.device().len()?.saturating_sub(piece.payload_at);
    let sound = sound_bytes(&file, found, there)?;
    if sound < found.bytes {
        let error = Error::new(Kind::Corrupt, "the end of what was durable is damaged")
            .expected(found.bytes, sound)
            .advice(
                "the disk lost what it had said to be durable; what is in front of it was kept",
            );
        monitor.loss(folder.path().join(&piece.file), error);
    }
    piece.frames = sound / frame_bytes;
    let whole = piece.frames * frame_bytes;
    let crossing = found
        .last
        .iter()
        .find(|(at, run)| *at < whole && at.saturating_add(run.bytes.into()) > whole);
    if let Some((at, _)) = crossing {
        piece.trimmed = trimmed_run(&file, piece.payload_at, *at, whole)?;
    }
    let frames: Range<u64> = piece.start_frame..piece.start_frame.saturating_add(piece.frames);
    let cues = cues_within(&content.gaps, &content.marks, piece.stream, frames);
    close_file(&file, &facts, whole, &cues)?;
    Ok(piece)
}

/// The payload up to the first of the last runs that is not what was written.
fn sound_bytes(file: &TakeFile, found: &JournalPiece, there: u64) -> Result<u64> {
    for (at, run) in &found.last {
        let end = at.saturating_add(run.bytes.into());
        if end > there {
            return Ok(there.min(*at));
        }
        if run.bytes > RUN_MAX_BYTES {
            return Ok(*at);
        }
        let mut bytes = vec![0; run.bytes as usize];
        match file.device().read_at(found.piece.payload_at + at, &mut bytes) {
            // What cannot be decoded is no less lost than what is not there.
            Err(error) if error.kind() == Kind::Corrupt => return Ok(*at),
            read => read?,
        }
        if Summed::of(&bytes) != *run {
            return Ok(*at);
        }
    }
    Ok(found.bytes)
}
