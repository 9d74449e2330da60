//! The files and directories that inode numbers stand for.
//!
//! The number of a file stands for a file of the source with a certain content, so that pages which
//! the kernel caches under that number stay valid; a changed file gets another number. A directory
//! keeps its number when it changes.
//!
//! Invariant: a number means the same file while the kernel has references to it (mentions). A
//! number without mentions is forgotten; the same file gets it again unless another file took it
//! meanwhile.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::file_tree::{FileKind, ROOT};

use crate::locks::{OverlayLock, RankedMutex};
use crate::source::{ContentVersion, SourceEntry};

/// The file or directory that an inode number stands for.
#[derive(Debug)]
pub(crate) struct SourceNode {
    pub(crate) path: Box<[u8]>,
    pub(crate) entry: SourceEntry,
}

impl SourceNode {
    pub(crate) fn is_directory(&self) -> bool {
        self.entry.kind == FileKind::Directory
    }

    /// The path of a name in this directory.
    pub(crate) fn below(&self, name: &[u8]) -> Box<[u8]> {
        match self.path.is_empty() {
            true => name.into(),
            false => [&self.path, &b"/"[..], name].concat().into(),
        }
    }
}

#[derive(Debug)]
struct KnownNode {
    mentions: u64,
    node: Arc<SourceNode>,
}

/// All inode numbers that the kernel knows.
#[derive(Debug)]
pub(crate) struct Nodes(RankedMutex<HashMap<u64, KnownNode>>);

impl Default for Nodes {
    fn default() -> Self {
        Nodes(RankedMutex::new(OverlayLock::Nodes, HashMap::new()))
    }
}

impl Nodes {
    /// Returns a number for the entry at a path, and adds a mention.
    pub(crate) fn mention(&self, path: Box<[u8]>, entry: SourceEntry) -> u64 {
        let identity = identity(&entry);
        let mut known = self.0.lock();
        let mut number = number_of(&identity);
        loop {
            match known.entry(number) {
                Entry::Vacant(free) => {
                    let node = Arc::new(SourceNode { path, entry });
                    free.insert(KnownNode { mentions: 1, node });
                    return number;
                }
                Entry::Occupied(mut taken)
                    if self::identity(&taken.get().node.entry) == identity =>
                {
                    let taken = taken.get_mut();
                    debug_assert!(taken.mentions > 0, "a node without mentions is forgotten");
                    taken.mentions += 1;
                    // Moved, or another hard link: this path was just found to be valid.
                    if taken.node.path != path || taken.node.entry != entry {
                        taken.node = Arc::new(SourceNode { path, entry });
                    }
                    return number;
                }
                Entry::Occupied(_) => number = number.wrapping_add(1).max(ROOT + 1),
            }
        }
    }

    /// The file or directory that an inode number stands for.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] if the number is unknown or forgotten.
    pub(crate) fn get(&self, number: u64) -> Result<Arc<SourceNode>> {
        let known = self.0.lock();
        let found = known.get(&number).map(|known| Arc::clone(&known.node));
        found.ok_or_else(|| Error::new(Kind::NotFound, "this file does not exist"))
    }

    /// Removes mentions.
    pub(crate) fn forget(&self, number: u64, mentions: u64) {
        let mut all = self.0.lock();
        if let Entry::Occupied(mut known) = all.entry(number) {
            known.get_mut().mentions = known.get().mentions.saturating_sub(mentions);
            if known.get().mentions == 0 {
                known.remove();
            }
        }
    }

    /// The number of known inodes.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// The parts of an entry that identify it.
fn identity(entry: &SourceEntry) -> ((u64, u64), Option<ContentVersion>) {
    let version = (entry.kind != FileKind::Directory).then_some(entry.version);
    (entry.identity, version)
}

fn number_of(identity: &((u64, u64), Option<ContentVersion>)) -> u64 {
    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    // Some programs use signed inode numbers.
    (hasher.finish() >> 1).max(ROOT + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: FileKind, inode: u64, size: u64) -> SourceEntry {
        SourceEntry {
            kind,
            identity: (1, inode),
            mode: 0o644,
            owner: (0, 0),
            data_bytes: size,
            links: 1,
            rdev: (0, 0),
            mtime: (0, 0),
            ctime: (0, 0),
            version: ContentVersion { size, tag: [0; 32] },
        }
    }

    #[test]
    fn a_file_that_changed_has_another_number_and_a_directory_keeps_its_own() {
        let nodes = Nodes::default();
        let mention = |name: &str, entry| nodes.mention(name.as_bytes().into(), entry);
        let first = mention("file", entry(FileKind::File, 5, 10));
        assert_eq!(mention("other name", entry(FileKind::File, 5, 10)), first);
        assert_ne!(mention("file", entry(FileKind::File, 5, 11)), first);
        let directory = mention("dir", entry(FileKind::Directory, 6, 10));
        assert_eq!(mention("moved", entry(FileKind::Directory, 6, 11)), directory);
        assert_eq!(&*nodes.get(directory).unwrap().below(b"x"), b"moved/x");
        assert_eq!(nodes.get(directory).unwrap().entry.version.size, 11);
    }

    #[test]
    fn a_number_lives_as_long_as_its_mentions() {
        let nodes = Nodes::default();
        let file = entry(FileKind::File, 5, 10);
        let number = nodes.mention(b"file"[..].into(), file.clone());
        nodes.mention(b"file"[..].into(), file.clone());
        nodes.forget(number, 1);
        nodes.get(number).unwrap();
        nodes.forget(number, 100);
        assert_eq!(nodes.get(number).unwrap_err().kind(), Kind::NotFound);
        assert_eq!(nodes.len(), 0);
        assert_eq!(nodes.mention(b"file"[..].into(), file), number);
        nodes.forget(12345, 1);
    }
}
