//! Rows: what a catalog stores of a path, and how a path changes from one snapshot to the next.

use pinstripe_base::checksum::checksum;
use pinstripe_base::id::ChunkId;
use pinstripe_base::wire::Writer;

use crate::entry::{Content, Entry};
use crate::meta::{FileKind, Time};

/// What the catalog stores of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The kind.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Length in bytes.
    pub size: u64,
    /// When its content last changed.
    pub mtime: Time,
    /// A hash of the content or target: it only distinguishes versions of one path.
    pub content: i64,
}

impl Facts {
    /// What a catalog stores of this entry.
    #[must_use]
    pub fn of(entry: &Entry) -> Self {
        let meta = &entry.meta;
        let content = content_hash(entry);
        Facts { kind: meta.kind, mode: meta.mode, size: entry.size, mtime: meta.mtime, content }
    }

    /// An empty entry of a kind.
    #[must_use]
    pub fn of_kind(kind: FileKind) -> Self {
        Facts { kind, mode: 0, size: 0, mtime: Time { seconds: 0, nanos: 0 }, content: 0 }
    }

    /// Kind and permission bits as one number.
    #[must_use]
    pub fn kind_and_mode(&self) -> i64 {
        i64::from(self.mode) << 4 | kind_number(self.kind)
    }
}

/// The change of one path between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The path did not exist before.
    Added(Vec<u8>, Facts),
    /// The path has a new version.
    Changed(Vec<u8>, Facts),
    /// The path no longer exists.
    Removed(Vec<u8>),
}

impl Change {
    /// The path.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        match self {
            Change::Added(path, _) | Change::Changed(path, _) | Change::Removed(path) => path,
        }
    }
}

fn content_hash(entry: &Entry) -> i64 {
    let first = |id: &ChunkId| id.0[..8].try_into().expect("an id has more than 8 bytes");
    let mut all = Vec::new();
    let mut writer = Writer::new(&mut all);
    match &entry.content {
        Content::Chunks(chunks) => match &chunks[..] {
            [] => {}
            // Ids are hashes already: the usual file has one.
            [chunk] if entry.extents.is_empty() => return i64::from_le_bytes(first(&chunk.id)),
            chunks => chunks.iter().for_each(|chunk| {
                writer.raw(&chunk.id.0);
            }),
        },
        Content::Lists(lists) => lists.iter().for_each(|list| {
            writer.raw(&list.id.0);
        }),
    }
    for extent in &entry.extents {
        writer.varint(extent.start).varint(extent.end);
    }
    writer.raw(&entry.target);
    if entry.meta.rdev != (0, 0) {
        writer.u32(entry.meta.rdev.0).u32(entry.meta.rdev.1);
    }
    if all.is_empty() {
        return 0;
    }
    i64::from_le_bytes(checksum(&all)[..8].try_into().expect("a checksum has 16 bytes"))
}

const KINDS: [FileKind; 7] = [
    FileKind::File,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::Fifo,
    FileKind::Socket,
    FileKind::CharDevice,
    FileKind::BlockDevice,
];

fn kind_number(kind: FileKind) -> i64 {
    KINDS.iter().position(|known| *known == kind).unwrap_or(0) as i64
}

/// Returns the kind and permission bits from their number; `None` for another number.
#[must_use]
pub fn kind_and_mode(number: i64) -> Option<(FileKind, u32)> {
    let kind = KINDS.get((number & 15) as usize)?;
    Some((*kind, u32::try_from(number >> 4).ok()?))
}

/// Splits a path into its directory and its name there.
#[must_use]
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Joins a directory and a name to a path.
#[must_use]
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
    [directory, slash, name].concat()
}
