//! Recovers an interrupted take: every file gets the length, tail and head that the journal vouches
//! for, and nothing more.

mod content;
mod settle;
mod strays;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Kind, Result};
use pinstripe_base::monitor::Monitor;

use crate::directories::{
    DirectoriesThere, all_folders, frames_of, frames_of_stream, holes_of, missing_of, number_of,
    report_holes,
};
use crate::take::{
    DiskFolder, JOURNAL, Manifest, PRE_ROLL, RecordedFile, RecordedGap, RecordedMark, TakeFile,
    TakeFolder, TakeState,
};
pub(crate) use content::{EVENTS_MAX, JournalContent, JournalFile, read_journal};
use settle::settle;

/// The greatest length of a run, in bytes.
pub(crate) const RUN_MAX_BYTES: u32 = 1 << 20;

/// A file after the recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredFile {
    /// The path.
    pub path: PathBuf,
    /// The name of the file's stream.
    pub stream: String,
    /// The frames.
    pub frames: u64,
}

/// The outcome.
#[derive(Debug)]
pub struct RecoverOutcome {
    /// The manifest that was written or found.
    pub manifest: Manifest,
    /// Every file.
    pub files: Vec<RecoveredFile>,
    /// Files that were removed, because they were created ahead and the journal does not vouch for
    /// them.
    pub removed: Vec<PathBuf>,
    /// Whether the take was complete already, so that nothing was changed.
    pub was_complete: bool,
    /// Whether the take was armed and never began, so that nothing was recorded.
    pub never_began: bool,
    /// The end of the longest stream, counted from the beginning of the take.
    pub longest: Duration,
}

/// Recovers the take in this directory.
///
/// # Errors
/// [`Kind::NotFound`] if there is no take, [`Kind::Busy`] while it is being recorded; otherwise the
/// errors of the directory. A file that differs from the journal is a loss in the ledger.
pub fn recover(path: &Path, monitor: &Monitor) -> Result<RecoverOutcome> {
    let folder: Arc<dyn TakeFolder> = Arc::new(DiskFolder::open(path)?);
    let manifest = Manifest::load(&*folder)?;
    let folders = all_folders(folder, &manifest, monitor);
    recover_in(&folders, manifest, monitor)
}

/// A directory that is being recovered.
struct Recovered {
    number: u32,
    folder: Arc<dyn TakeFolder>,
    /// The journal, which is kept open for its lock.
    journal: TakeFile,
    /// The manifest, if the take is complete already.
    settled: Option<Manifest>,
}

impl Recovered {
    fn open(folder: &Arc<dyn TakeFolder>, id: &str) -> Result<Self> {
        let journal = folder.open(JOURNAL, true)?;
        journal.lock(false)?;
        let settled = Manifest::load(&**folder).ok();
        let settled = settled.filter(|it| it.id == id && it.is_settled());
        let number = number_of(&**folder, id)?;
        Ok(Recovered { number, folder: Arc::clone(folder), journal, settled })
    }
}

/// The facts about a take, collected from final manifests and from journals.
#[derive(Default)]
struct FoundTake {
    /// The pieces that manifests list, by directory and number.
    known: BTreeSet<(u32, u32)>,
    files: Vec<RecoveredFile>,
    pieces: Vec<RecordedFile>,
    gaps: Vec<RecordedGap>,
    marks: Vec<RecordedMark>,
}

/// Recovers a take in these directories. A directory with a final manifest is not changed: its
/// files already end with complete frames, even if its journal vouches for a little more.
///
/// # Errors
/// The errors of [`recover`].
pub(crate) fn recover_in(
    folders: &[Arc<dyn TakeFolder>],
    manifest: Manifest,
    monitor: &Monitor,
) -> Result<RecoverOutcome> {
    let open = |it| Recovered::open(it, &manifest.id);
    let all = folders.iter().map(open).collect::<Result<Vec<_>>>()?;
    let (settled, open): (Vec<_>, Vec<_>) = all.iter().partition(|it| it.settled.is_some());
    let settled: Vec<&Manifest> = settled.iter().filter_map(|it| it.settled.as_ref()).collect();
    let there = DirectoriesThere::from_folders(folders, &manifest);
    if open.is_empty() {
        let manifest = settled.first().map_or(manifest, |it| (*it).clone());
        report_absent(&there, &manifest, monitor);
        return Ok(RecoverOutcome {
            longest: longest(&manifest),
            manifest,
            files: Vec::new(),
            removed: Vec::new(),
            was_complete: true,
            never_began: false,
        });
    }
    let mut contents = Vec::new();
    for directory in &open {
        contents.push(read_journal(&directory.journal, &manifest)?);
    }
    let base = settled.iter().find(|it| it.state == TakeState::Complete).or(settled.first());
    let mut manifest = base.map_or(manifest, |it| (*it).clone());
    if let Some((started, started_seconds)) = contents.iter().find_map(|it| it.started) {
        (manifest.started, manifest.started_seconds) = (started, started_seconds);
    } else if is_unbegun(&manifest, &contents) {
        return discard(&open, &contents, manifest, monitor);
    }
    let mut found = FoundTake::default();
    for manifest in settled {
        found.keep(manifest, |piece| !open.iter().any(|it| it.number == piece.directory));
    }
    let mut removed = Vec::new();
    for (directory, content) in open.iter().zip(contents) {
        removed.extend(strays::remove(&*directory.folder, &manifest, &content, monitor));
        found.settle(&*directory.folder, &manifest, content, monitor);
        remove_pre_roll(&*directory.folder, monitor);
    }
    let files = found.put_into(&mut manifest);
    for directory in &all {
        directory.folder.sync_names()?;
        manifest.save(&*directory.folder)?;
    }
    report_absent(&there, &manifest, monitor);
    let (was_complete, never_began) = (false, false);
    let longest = longest(&manifest);
    Ok(RecoverOutcome { manifest, files, removed, was_complete, never_began, longest })
}

/// The end of the longest stream of a take, according to its files.
fn longest(manifest: &Manifest) -> Duration {
    let end = |it: &RecordedFile| {
        let stream = manifest.streams.get(it.stream as usize)?;
        Some(frames_of(it).end as f64 / f64::from(stream.shape.rate.max(1)))
    };
    let ends = manifest.pieces.iter().filter(|it| it.frames > 0).filter_map(end);
    Duration::try_from_secs_f64(ends.fold(0.0, f64::max)).unwrap_or(Duration::MAX)
}

/// Whether a take was armed, and nothing was recorded in any directory.
fn is_unbegun(manifest: &Manifest, contents: &[JournalContent]) -> bool {
    let is_armed = match manifest.state {
        TakeState::Armed => true,
        // Another directory of it was put in order before, and had nothing.
        TakeState::Recovered => manifest.pieces.is_empty(),
        TakeState::Recording | TakeState::Complete => false,
    };
    is_armed && contents.iter().all(JournalContent::is_empty)
}

/// Reports frames that are in no available directory.
fn report_absent(there: &DirectoriesThere, manifest: &Manifest, monitor: &Monitor) {
    let told = manifest.pieces.iter().map(frames_of_stream);
    let missing = missing_of(told, there.reported_frames(manifest));
    let known: BTreeSet<u32> = manifest.pieces.iter().map(|it| it.stream).collect();
    let unknown = there.unknown_streams(manifest, |it| known.contains(&it));
    there.report_absent(manifest, (&unknown, &missing), monitor);
    report_holes(manifest, &holes_of(&manifest.pieces, 0..u64::MAX), monitor);
}

impl FoundTake {
    /// Takes over the contents of a final manifest.
    fn keep(&mut self, manifest: &Manifest, is_kept: impl Fn(&RecordedFile) -> bool) {
        for piece in manifest.pieces.iter().filter(|it| is_kept(it)) {
            if self.known.insert((piece.directory, piece.piece)) {
                self.pieces.push(piece.clone());
            }
        }
        self.gaps.extend(manifest.gaps.iter().cloned());
        self.marks.extend(manifest.marks.iter().cloned());
    }

    /// Recovers the files of one directory according to its journal.
    fn settle(
        &mut self,
        folder: &dyn TakeFolder,
        manifest: &Manifest,
        content: JournalContent,
        monitor: &Monitor,
    ) {
        for (found, behind) in content.files() {
            let path = folder.path().join(&found.piece.file);
            match settle(folder, manifest, (found, behind), &content, monitor) {
                Ok(settled) => {
                    let stream = manifest.streams[found.piece.stream as usize].name.clone();
                    self.files.push(RecoveredFile { path, stream, frames: settled.frames });
                    self.pieces.extend(settled.pieces);
                    self.gaps.extend(settled.gap);
                }
                Err(error) => monitor.loss(path, error),
            }
        }
        self.gaps.extend(content.gaps);
        self.marks.extend(content.marks);
    }

    /// Adds the directory's files to a manifest; returns the recovered files.
    fn put_into(mut self, manifest: &mut Manifest) -> Vec<RecoveredFile> {
        self.pieces.sort_by_key(|it| (it.stream, it.copy, it.start_frame, it.piece));
        self.gaps.sort_by_key(|it: &RecordedGap| (it.stream, it.frame));
        // The same gap in two copies, or a gap that was reported in parts.
        self.gaps.dedup_by(|next, gap| gap.join(next));
        let mut kept: Vec<RecordedMark> = Vec::new();
        self.marks.into_iter().for_each(|mark| {
            if !kept.contains(&mark) {
                kept.push(mark)
            }
        });
        if manifest.state != TakeState::Complete {
            manifest.state = TakeState::Recovered;
        }
        (manifest.pieces, manifest.gaps, manifest.marks) = (self.pieces, self.gaps, kept);
        self.files
    }
}

/// Discards a take that was armed and never began: nothing was recorded, and all files are removed.
fn discard(
    open: &[&Recovered],
    contents: &[JournalContent],
    mut manifest: Manifest,
    monitor: &Monitor,
) -> Result<RecoverOutcome> {
    manifest.state = TakeState::Recovered;
    for (Recovered { folder, .. }, content) in open.iter().zip(contents) {
        remove_pre_roll(&**folder, monitor);
        for found in content.pieces.values() {
            remove(&**folder, &found.piece.file, &[Kind::NotFound], monitor);
        }
        folder.sync_names()?;
        manifest.save(&**folder)?;
    }
    Ok(RecoverOutcome {
        manifest,
        files: Vec::new(),
        removed: Vec::new(),
        was_complete: false,
        never_began: true,
        longest: Duration::ZERO,
    })
}

/// Removes the file of the pre-roll; the journal does not vouch for the part of it that was not
/// copied to a file.
fn remove_pre_roll(folder: &dyn TakeFolder, monitor: &Monitor) {
    remove(folder, PRE_ROLL, &[Kind::NotFound, Kind::Unsupported], monitor);
}

/// Removes a file, which may be missing. An error is a warning, except for the kinds of errors in
/// `passed_over`, which are ignored.
fn remove(folder: &dyn TakeFolder, name: &str, passed_over: &[Kind], monitor: &Monitor) {
    if let Err(error) = folder.remove(name)
        && !passed_over.contains(&error.kind())
    {
        monitor.warning(folder.path().join(name), error);
    }
}

#[cfg(test)]
mod tests;
