//! Files of streams that were made ahead and that no journal tells of yet: nothing of them was durable.

use std::collections::BTreeSet;
use std::path::PathBuf;

use pinstripe_base::error::Kind;
use pinstripe_base::monitor::Monitor;

use super::JournalContent;
use crate::take::{Manifest, TakeFolder, is_stream_file_name};

/// Removes them; they would keep the space that was reserved for them. Only a name that this program gives
/// to the files of this take is one of them: what somebody else put there stays.
pub(super) fn remove(
    folder: &dyn TakeFolder,
    manifest: &Manifest,
    content: &JournalContent,
    monitor: &Monitor,
) -> Vec<PathBuf> {
    let told: BTreeSet<&str> = content.pieces.values().map(|it| it.piece.file.as_str()).collect();
    let streams = 0..manifest.streams.len() as u32;
    let facts: Vec<_> = streams.filter_map(|it| manifest.head_facts(it, 0)).collect();
    let is_own = |name: &str| facts.iter().any(|it| is_stream_file_name(name, it));
    let mut removed = Vec::new();
    for name in folder.names().iter().filter(|it| !told.contains(it.as_str()) && is_own(it)) {
        match folder.remove(name) {
            Ok(()) => removed.push(folder.path().join(name)),
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => monitor.warning(folder.path().join(name), error),
        }
    }
    removed
}
