//! Determines which files of a take can be played, for each stream and copy.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;

use crate::directories::{
    DirectoriesThere, disputed, frames_of, frames_of_stream, holes_of, likely_number_of,
    missing_of, own_manifest, report_holes,
};
use crate::recover::{JournalFile, read_journal};
use crate::take::{JOURNAL, MANIFEST, Manifest, RecordedFile, TakeFile, TakeFolder};

/// The files of the streams that are played.
#[derive(Default)]
pub(super) struct PlayedFiles {
    /// The pieces that exist and can be opened, each with its directory.
    pub pieces: Vec<(RecordedFile, Arc<dyn TakeFolder>)>,
    /// All pieces that should exist.
    all: Vec<RecordedFile>,
    /// The pieces that could not be opened, with the errors.
    unopened: Vec<(u32, PathBuf, Error)>,
    /// The journals of an interrupted take; while they are locked, no other process recovers the
    /// take.
    held: Vec<TakeFile>,
}

impl PlayedFiles {
    /// Finds them. In an interrupted take, files count as far as their journal vouches for them.
    ///
    /// # Errors
    /// [`Kind::Busy`] while the take is being recorded; the errors of journals.
    pub fn find(
        folders: &[Arc<dyn TakeFolder>],
        manifest: &Manifest,
        chosen: &[usize],
        monitor: &Monitor,
    ) -> Result<Self> {
        let mut found = PlayedFiles::default();
        let is_chosen = |it: &&RecordedFile| chosen.contains(&(it.stream as usize));
        for folder in folders {
            let own = own_manifest(&**folder, manifest);
            let pieces = match own.is_settled() {
                true => {
                    let own = undisputed(&**folder, own, monitor);
                    found.all.extend(own.pieces.iter().filter(is_chosen).cloned());
                    let number = likely_number_of(&**folder, &own);
                    own.pieces.into_iter().filter(|it| Some(it.directory) == number).collect()
                }
                false => found.vouched(folder, &own, monitor)?,
            };
            for piece in pieces.iter().filter(is_chosen) {
                found.all.push(piece.clone());
                match folder.open(&piece.file, false) {
                    Ok(_) => found.pieces.push((piece.clone(), Arc::clone(folder))),
                    Err(error) => {
                        let path = folder.path().join(&piece.file);
                        found.unopened.push((piece.stream, path, error));
                    }
                }
            }
        }
        Ok(found)
    }

    /// Returns the files for which the journal of a directory vouches.
    fn vouched(
        &mut self,
        folder: &Arc<dyn TakeFolder>,
        manifest: &Manifest,
        monitor: &Monitor,
    ) -> Result<Vec<RecordedFile>> {
        let journal = folder.open(JOURNAL, false)?;
        journal.lock(true)?;
        let what = "the recording of this take was cut off, so only data that its journal covers \
                    is played";
        let error = Error::new(Kind::Changed, what).advice("run 'pinstripe recover' on the take");
        monitor.warning(folder.path(), error);
        let content = read_journal(&journal, manifest)?;
        self.held.push(journal);
        let frames =
            |stream: u32, bytes: u64| bytes / manifest.streams[stream as usize].shape.frame_bytes();
        let piece = |it: &JournalFile| RecordedFile {
            frames: frames(it.piece.stream, it.bytes),
            ..it.piece.clone()
        };
        let pieces = content.pieces.values().map(piece);
        Ok(pieces.filter(|it| manifest.can_have(it)).collect())
    }

    /// The number of the frame after the last one.
    pub fn end(&self) -> u64 {
        self.all.iter().map(|it| frames_of(it).end).max().unwrap_or(0)
    }

    /// Reports which of `most` frames, beginning with a frame, are missing: they are silence,
    /// unless another copy contains them.
    pub(crate) fn report_absent(
        &mut self,
        folders: &[Arc<dyn TakeFolder>],
        manifest: &Manifest,
        (chosen, from, most): (&[usize], u64, u64),
        monitor: &Monitor,
    ) {
        let to = from.saturating_add(most);
        let played = |it: &RecordedFile| {
            let (stream, frames) = frames_of_stream(it);
            (stream, frames.start.clamp(from, to)..frames.end.clamp(from, to))
        };
        let there = DirectoriesThere::from_folders(folders, manifest);
        let missing: BTreeMap<u32, u64> =
            missing_of(self.all.iter().map(played), self.pieces.iter().map(|(it, _)| played(it)));
        let known = |stream: u32| self.all.iter().any(|it| it.stream == stream);
        let mut unknown = there.unknown_streams(manifest, known);
        unknown.retain(|it| chosen.contains(&(*it as usize)));
        for (stream, path, error) in self.unopened.drain(..) {
            match missing.contains_key(&stream) {
                true => monitor.warning(path, error),
                false => monitor
                    .warning(path, error.advice("the other copy of this stream is played instead")),
            }
        }
        there.report_absent(manifest, (&unknown, &missing), monitor);
        report_holes(manifest, &holes_of(&self.all, from..to), monitor);
    }
}

/// Leaves out files whose first frame differs in their journal, because the silence before such a
/// file could be very long. Without a journal, the manifest is used as it is.
fn undisputed(folder: &dyn TakeFolder, mut own: Manifest, monitor: &Monitor) -> Manifest {
    if own.pieces.iter().all(|it| it.start_frame == 0) {
        return own;
    }
    let content = folder.open(JOURNAL, false).and_then(|it| read_journal(&it, &own));
    let (Ok(content), Some(number)) = (content, likely_number_of(folder, &own)) else { return own };
    own.pieces.retain(|told| {
        let found = content.pieces.get(&told.piece).filter(|_| told.directory == number);
        let is_same = |it: &JournalFile| {
            let by_journal = (it.piece.stream, it.piece.start_frame, &it.piece.file);
            by_journal == (told.stream, told.start_frame, &told.file)
        };
        let is_kept = told.frames == 0 || found.is_none_or(is_same);
        if let Some(found) = found.filter(|_| !is_kept) {
            let error = disputed(&told.file, found.piece.start_frame, told.start_frame);
            monitor.loss(folder.path().join(MANIFEST), error);
        }
        is_kept
    });
    own
}
