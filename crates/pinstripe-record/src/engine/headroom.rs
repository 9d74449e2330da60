//! Reserves space for the end of a take: even if other programs have filled the disk, the last
//! journal records, the headers and the manifest must still be written.
//!
//! The blocks for a header are allocated when its file is created. The journal is preallocated with
//! zeros for a minute of commits. The manifest is replaced by renaming a second file, for which
//! blocks are allocated up to the greatest length so far. Other programs cannot take these blocks,
//! but they could take space that is freed only at the end. If too little space remains to end the
//! take safely, the directory is given up while everything can still be written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pinstripe_base::error::Result;

use super::directory::TakeDirectory;
use super::shared::SharedTake;
use crate::take::MANIFEST;

/// The space that is reserved beyond the length of the current manifest, in bytes.
const SPARE_BYTES: u64 = 64 << 10;
/// The smallest such space with which a take may continue; it suffices for some hundred files or
/// gaps.
const LEAST_BYTES: u64 = 16 << 10;
/// The most files that a writer creates before it reserves space again; `LEAST_BYTES` suffices for
/// more than these.
const FILES_BETWEEN: usize = 4;

/// Reserves space in a directory for ending the take in its current state, and a little more.
///
/// # Errors
/// [`Kind::NoSpace`](pinstripe_base::error::Kind::NoSpace) if the take must end because of a lack
/// of space.
pub fn keep(shared: &SharedTake, directory: &TakeDirectory) -> Result<()> {
    if directory.has_failed() {
        return Ok(());
    }
    directory.journal_with_events().keep_ahead()?;
    keep_manifest(shared, directory)
}

/// Reserves space before a writer creates one more file, because between two commits it may create
/// more files than there is reserved space for. The space of the journal is left to the committer,
/// which locks the journal while it waits for the disk.
///
/// # Errors
/// The errors of [`keep`].
pub(crate) fn keep_for_file(shared: &SharedTake, directory: &TakeDirectory) -> Result<()> {
    match directory.pieces().len().is_multiple_of(FILES_BETWEEN) {
        true => keep_manifest(shared, directory),
        false => Ok(()),
    }
}

fn keep_manifest(shared: &SharedTake, directory: &TakeDirectory) -> Result<()> {
    let needed = manifest_bytes(shared);
    let kept = directory.manifest_room.load(Ordering::Acquire);
    if kept >= needed + SPARE_BYTES / 2 {
        return Ok(());
    }
    let wanted = (needed + SPARE_BYTES).next_multiple_of(SPARE_BYTES);
    match directory.folder.keep_room(MANIFEST, wanted) {
        Ok(()) => directory.manifest_room.store(wanted, Ordering::Release),
        Err(error) if kept < needed + LEAST_BYTES => {
            return Err(error.advice(
                "free space on the disk; the recorder ended the take while the disk still had \
                 enough space to complete the take",
            ));
        }
        // The existing room lasts for a while, in which the user may free space.
        Err(_) => {}
    }
    Ok(())
}

/// The greatest length of the manifest if the take ended now, as JSON text in which each number has
/// its greatest length and each byte of a text is escaped.
fn manifest_bytes(shared: &SharedTake) -> u64 {
    const FIGURES: u64 = 4 << 10;
    const PIECE: u64 = 900;
    const GAP: u64 = 250;
    const MARK: u64 = 100;
    const FRAME: u64 = 32;
    const ESCAPED: u64 = 6;
    // A file that was cut off records the reason, which contains the path of its directory.
    let of_directory = |directory: &Arc<TakeDirectory>| {
        let path = directory.folder.path().as_os_str().len() as u64;
        let names = directory.pieces().iter().map(|it| it.name.len() as u64).sum::<u64>();
        directory.pieces().len() as u64 * (PIECE + ESCAPED * path) + ESCAPED * names
    };
    let pieces: u64 = shared.directories.iter().map(of_directory).sum();
    let (gaps, marks, texts) = shared.events();
    let marks = marks * (MARK + FRAME * shared.streams.len() as u64) + ESCAPED * texts;
    shared.manifest_bytes.load(Ordering::Relaxed) + FIGURES + pieces + gaps * GAP + marks
}
