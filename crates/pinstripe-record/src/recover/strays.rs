//! Removes files of streams that were created ahead and that no journal lists; nothing in them was
//! durable.
//!
//! A journal that is damaged in the middle does not list the files after that place, but those
//! files contain samples. Therefore only a file without samples is removed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;

use super::JournalContent;
use crate::take::{Manifest, TakeFolder, is_stream_file_name};

/// Bytes read at a time.
const READ_BYTES: u64 = 1 << 20;

/// Removes the files that contain no samples, because they would keep the space that was reserved
/// for them. Only files with names that this program gives to the files of this take are removed;
/// files of other programs are kept.
pub(super) fn remove(
    folder: &dyn TakeFolder,
    manifest: &Manifest,
    content: &JournalContent,
    monitor: &Monitor,
) -> Vec<PathBuf> {
    let told: BTreeSet<&str> = content.pieces.values().map(|it| it.piece.file.as_str()).collect();
    let streams = 0..manifest.streams.len() as u32;
    let facts: Vec<_> = streams.filter_map(|it| manifest.head_facts(it, 0)).collect();
    let mut removed = Vec::new();
    for name in folder.names().iter().filter(|it| !told.contains(it.as_str())) {
        let Some(facts) = facts.iter().find(|it| is_stream_file_name(name, it)) else { continue };
        let path = folder.path().join(name);
        match remove_blank(folder, name, facts.payload_at()) {
            Ok(true) => removed.push(path),
            Ok(false) => {
                let what =
                    "this file has samples, but no journal lists it, so the file was not changed";
                let error = Error::new(Kind::Changed, what).advice(
                    "listen to this file: if the journal is damaged, the file may belong to the \
                     take",
                );
                monitor.warning(path, error);
            }
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => monitor.warning(path, error),
        }
    }
    removed
}

/// Removes a file that contains only zeros after its head, as reserved space does. Returns whether
/// the file was removed.
fn remove_blank(folder: &dyn TakeFolder, name: &str, payload_at: u64) -> Result<bool> {
    let file = folder.open(name, false)?;
    let (mut at, end) = (payload_at, file.device().len()?);
    let mut buffer = vec![0; READ_BYTES as usize];
    while at < end {
        let part = &mut buffer[..(end - at).min(READ_BYTES) as usize];
        file.device().read_at(at, part)?;
        if part.iter().any(|it| *it != 0) {
            return Ok(false);
        }
        at += part.len() as u64;
    }
    folder.remove(name).map(|()| true)
}
