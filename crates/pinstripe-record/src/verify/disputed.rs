//! Finds files for which the manifest, take.json, and the journal, which contains checksums,
//! disagree.

use super::Files;
use crate::directories::disputed;
use crate::take::{MANIFEST, Manifest};

impl Files<'_> {
    /// Reports files for which the manifest of this directory and the journal disagree.
    pub(super) fn compare(&mut self, own: &Manifest, number: u32) {
        for told in own.pieces.iter().filter(|it| it.directory == number && it.frames > 0) {
            let Some(found) = self.open.get(&told.piece) else { continue };
            let is_same = (told.stream, &told.file) == (found.stream, &found.name)
                && (told.start_frame, told.payload_at) == (found.start_frame, found.payload_at);
            if !is_same {
                let error = disputed(&found.name, found.start_frame, told.start_frame);
                let path = self.folder.path().join(MANIFEST);
                self.copies.note_disputed(found.stream, path, error);
            }
        }
    }
}
