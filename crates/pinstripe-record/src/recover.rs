//! A take whose recording was cut off, put in order: every file gets the length, tail and head that
//! the journal vouches for, and nothing that it does not.

mod settle;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;

use crate::header::LocalTime;
use crate::limits::MARKS_MAX;
use crate::take::{
    DiskFolder, JOURNAL, JournalEvent, JournalReader, JournalRecord, Manifest, PRE_ROLL,
    PieceBehind, RecordedGap, RecordedMark, RecordedPiece, Summed, TakeFile, TakeFolder, TakeState,
    is_plain_name,
};
use settle::settle;

/// Runs at the end of each file that are read back: those that a disk which lies would lose.
const READ_BACK: usize = 64;
/// Runs are at most so long.
pub(crate) const RUN_MAX_BYTES: u32 = 1 << 20;
/// Files and gaps of one journal that are taken over.
pub(crate) const EVENTS_MAX: usize = 200_000;

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
    /// Whether it was armed and never began, so that nothing was recorded.
    pub never_began: bool,
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
    behind: Option<PieceBehind>,
}

/// What a journal says.
#[derive(Debug, Default)]
pub(crate) struct JournalContent {
    pub pieces: BTreeMap<u32, JournalPiece>,
    pub gaps: Vec<RecordedGap>,
    pub marks: Vec<RecordedMark>,
    pub vouched: Duration,
    /// When the take began, if it was armed before: local time, and seconds since 1970.
    pub started: Option<(LocalTime, i64)>,
    /// The moment of its first frame since the inputs were opened.
    first: Duration,
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
    let was_complete = manifest.is_settled();
    let mut contents = Vec::new();
    for (_, journal) in journals.iter().filter(|_| !was_complete) {
        contents.push(read_journal(journal, &manifest)?);
    }
    if let Some((started, started_seconds)) = contents.iter().find_map(|it| it.started) {
        (manifest.started, manifest.started_seconds) = (started, started_seconds);
    } else if manifest.state == TakeState::Armed && contents.iter().all(JournalContent::is_empty) {
        return discard(&journals, &contents, manifest, monitor);
    }
    let (mut files, mut vouched) = (Vec::new(), Duration::ZERO);
    let (mut pieces, mut gaps, mut marks) = (Vec::new(), Vec::new(), Vec::new());
    for ((folder, _), content) in journals.iter().zip(contents) {
        vouched = vouched.max(content.vouched.saturating_sub(content.first));
        for (found, behind) in content.files() {
            let path = folder.path().join(&found.piece.file);
            match settle(&**folder, &manifest, (found, behind), &content, monitor) {
                Ok(settled) => {
                    let stream = manifest.streams[found.piece.stream as usize].name.clone();
                    files.push(RecoveredFile { path, stream, frames: settled.frames });
                    pieces.extend(settled.pieces);
                    gaps.extend(settled.gap);
                }
                Err(error) => monitor.loss(path, error),
            }
        }
        remove_pre_roll(&**folder, monitor);
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
    Ok(RecoverOutcome { manifest, files, was_complete, never_began: false, vouched })
}

/// A take that was armed and never began: nothing of it was recorded, and no file stays.
fn discard(
    journals: &[(Arc<dyn TakeFolder>, TakeFile)],
    contents: &[JournalContent],
    mut manifest: Manifest,
    monitor: &Monitor,
) -> Result<RecoverOutcome> {
    manifest.state = TakeState::Recovered;
    for ((folder, _), content) in journals.iter().zip(contents) {
        remove_pre_roll(&**folder, monitor);
        for found in content.pieces.values() {
            match folder.remove(&found.piece.file) {
                Err(error) if error.kind() != Kind::NotFound => {
                    monitor.warning(folder.path().join(&found.piece.file), error);
                }
                _ => {}
            }
        }
        folder.sync_names()?;
        manifest.save(&**folder)?;
    }
    let (files, vouched) = (Vec::new(), Duration::ZERO);
    Ok(RecoverOutcome { manifest, files, was_complete: false, never_began: true, vouched })
}

/// Removes what was kept for a front: what of it is not in a file is vouched for by nothing.
fn remove_pre_roll(folder: &dyn TakeFolder, monitor: &Monitor) {
    match folder.remove(PRE_ROLL) {
        Err(error) if !matches!(error.kind(), Kind::NotFound | Kind::Unsupported) => {
            monitor.warning(folder.path().join(PRE_ROLL), error);
        }
        _ => {}
    }
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
    /// Every file: its first piece, and the one behind that if there is one. A piece that is behind
    /// nothing is left out: where it stands is not known.
    fn files(&self) -> impl Iterator<Item = (&JournalPiece, Option<&JournalPiece>)> {
        let behind: BTreeMap<u32, &JournalPiece> =
            self.pieces.values().filter_map(|it| Some((it.behind?.front, it))).collect();
        let first = self.pieces.values().filter(|it| it.behind.is_none());
        first.map(move |it| (it, behind.get(&it.piece.piece).copied()))
    }

    /// Whether it vouches for nothing.
    fn is_empty(&self) -> bool {
        self.pieces.values().all(|it| it.bytes == 0)
    }

    fn note(&mut self, event: JournalEvent, directory: u32, manifest: &Manifest) {
        let shape = |stream: u32| manifest.streams.get(stream as usize).map(|it| it.shape);
        match event {
            JournalEvent::Piece { piece, stream, copy, file, start_frame, behind } => {
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
                    payload_at: behind.map_or_else(|| facts.payload_at(), |it| it.payload_at),
                    trimmed: None,
                    cut: None,
                };
                let found = JournalPiece { bytes: 0, last: VecDeque::new(), behind, piece };
                self.pieces.insert(found.piece.piece, found);
            }
            JournalEvent::Gap { stream, frame, frames } if self.gaps.len() < EVENTS_MAX => {
                let Some(shape) = shape(stream) else { return };
                let at_seconds = frame as f64 / f64::from(shape.rate);
                self.gaps.push(RecordedGap { stream, frame, frames, at_seconds });
            }
            JournalEvent::Start { started, started_seconds, at_nanos } => {
                self.started = Some((started, started_seconds));
                self.first = Duration::from_nanos(at_nanos);
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
