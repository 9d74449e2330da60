//! The snapshot object: the commit point of one finished backup.
//!
//! A snapshot object is small, and every member has a complete copy of it. A snapshot object names
//! the root of a tree of pages (`tree.rs`); everything below the root is in chunks in packs. The
//! snapshot object is written last: when it can be read, everything that it refers to is durable.

use super::envelope::{self, Object};
use super::label::{Encryption, text};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ChunkId, SnapshotId, StoreId};
use pinstripe_base::wire::{Reader, Writer};

/// The version of snapshot objects in the clear; version 1 had no tags.
const CLEAR_VERSION: u16 = 2;
/// The version of sealed snapshot objects.
const SEALED_VERSION: u16 = 3;
/// The version of snapshot objects in the clear that have a comment.
const COMMENTED_VERSION: u16 = 4;
/// The version of sealed snapshot objects that have a comment.
const SEALED_COMMENTED_VERSION: u16 = 5;

/// Where the tree of a snapshot's entries begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeRoot {
    /// The chunk that holds the topmost page or node.
    pub id: ChunkId,
    /// 0 if the root is a page of entries, otherwise the number of levels of nodes above the pages.
    pub height: u8,
    /// Entries below it.
    pub entries: u64,
}

/// One finished backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The store that the snapshot belongs to.
    pub store: StoreId,
    /// The name.
    pub id: SnapshotId,
    /// When the backup began, in seconds since 1970; for people and for `latest`.
    pub created_seconds: i64,
    /// The nanoseconds of the time at which the backup began.
    pub created_nanos: u32,
    /// The host name of the machine that was backed up.
    pub host: Vec<u8>,
    /// Version of the program that wrote the snapshot.
    pub program: String,
    /// The paths that the backup was asked to save, absolute, in path order.
    pub sources: Vec<Vec<u8>>,
    /// The latest snapshot of the same host and sources when this one was made, or the snapshot whose
    /// tags this one changes.
    pub parent: Option<SnapshotId>,
    /// The entries.
    pub root: TreeRoot,
    /// Named counts of the run (files, bytes, losses), as the summary printed them.
    pub counts: Vec<(String, u64)>,
    /// Tags given by the user who made the snapshot, for people and retention rules.
    pub tags: Vec<String>,
    /// The comment of the user; empty for a snapshot without a comment.
    pub comment: String,
}

/// A framed snapshot as a reader without keys sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// The store that the snapshot belongs to.
    pub store: StoreId,
    /// The name.
    pub id: SnapshotId,
    /// The rest.
    pub content: SnapshotContent<'a>,
}

/// The remaining fields of a snapshot object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotContent<'a> {
    /// In the clear.
    Clear(Box<Snapshot>),
    /// The other fields, sealed with this cipher, as a blob of seal/.
    Sealed(Encryption, &'a [u8]),
}

/// Returns the bytes that the seal of a snapshot authenticates in addition to its content.
pub fn seal_context(store: StoreId, id: SnapshotId) -> Vec<u8> {
    [b"snapshot".as_slice(), &store.0, &id.0].concat()
}

/// Returns the bytes that the seal of a checkpoint authenticates in addition to its content.
pub fn checkpoint_context(store: StoreId, id: SnapshotId) -> Vec<u8> {
    [b"checkpoint".as_slice(), &store.0, &id.0].concat()
}

/// Frames the object of a checkpoint, whose fields are sealed or in the clear.
pub fn frame_checkpoint(
    store: StoreId,
    id: SnapshotId,
    seal: Encryption,
    fields: &[u8],
) -> Vec<u8> {
    let mut body = Vec::with_capacity(40 + fields.len());
    Writer::new(&mut body).raw(&store.0).raw(&id.0).u8(seal as u8).raw(fields);
    envelope::close(Object::Checkpoint, &body)
}

/// Reads a framed checkpoint as far as that is possible without a key. In stores of format version
/// 1, a checkpoint is framed as a snapshot.
///
/// # Errors
/// Fails with the errors of [`envelope::open_version`].
pub fn parse_checkpoint(bytes: &[u8]) -> Result<Parsed<'_>> {
    if envelope::is_of(Object::Snapshot, bytes) {
        return parse(bytes);
    }
    let mut reader = Reader::new(envelope::open(Object::Checkpoint, bytes)?, "checkpoint object");
    let (store, id) = (StoreId(reader.array()?), SnapshotId(reader.array()?));
    let seal = reader.u8()?;
    let content = match Encryption::from_byte(seal) {
        Some(Encryption::None) => {
            SnapshotContent::Clear(Box::new(Snapshot::decode_fields(store, id, reader.rest())?))
        }
        Some(seal) => SnapshotContent::Sealed(seal, reader.rest()),
        None => return Err(envelope::newer("seal of a checkpoint", seal.into(), 2, 0)),
    };
    Ok(Parsed { store, id, content })
}

/// Frames the object of a snapshot whose fields, which may have a comment, are sealed in `blob`.
pub fn frame_sealed(
    (store, id): (StoreId, SnapshotId),
    has_comment: bool,
    seal: Encryption,
    blob: &[u8],
) -> Vec<u8> {
    let mut body = Vec::with_capacity(40 + blob.len());
    Writer::new(&mut body).raw(&store.0).raw(&id.0).u8(seal as u8).raw(blob);
    let version = if has_comment { SEALED_COMMENTED_VERSION } else { SEALED_VERSION };
    envelope::close_version(Object::Snapshot, version, &body)
}

/// Reads a framed snapshot as far as that is possible without a key.
///
/// # Errors
/// Fails with the errors of [`envelope::open_version`].
pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>> {
    let (version, body) = envelope::open_version(Object::Snapshot, bytes)?;
    let mut reader = Reader::new(body, "snapshot object");
    let store = StoreId(reader.array()?);
    let id = SnapshotId(reader.array()?);
    let content = if matches!(version, SEALED_VERSION | SEALED_COMMENTED_VERSION) {
        let seal = reader.u8()?;
        match Encryption::from_byte(seal) {
            Some(Encryption::None) => {
                return Err(reader.corrupt("the snapshot is marked as sealed, but has no cipher"));
            }
            Some(seal) => SnapshotContent::Sealed(seal, reader.rest()),
            None => return Err(envelope::newer("seal of a snapshot", seal.into(), 2, 0)),
        }
    } else {
        SnapshotContent::Clear(Box::new(Snapshot::read_fields(store, id, version, reader)?))
    };
    Ok(Parsed { store, id, content })
}

impl Snapshot {
    /// Encodes the framed object, in the clear.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        Writer::new(&mut body).raw(&self.store.0).raw(&self.id.0).raw(&self.encode_fields());
        let has_comment = !self.comment.is_empty();
        let version = if has_comment { COMMENTED_VERSION } else { CLEAR_VERSION };
        envelope::close_version(Object::Snapshot, version, &body)
    }

    /// Encodes all fields but the ids: what the seal encloses.
    pub fn encode_fields(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut writer = Writer::new(&mut body);
        writer
            .i64(self.created_seconds)
            .u32(self.created_nanos)
            .bytes(&self.host)
            .bytes(self.program.as_bytes())
            .varint(self.sources.len() as u64);
        for source in &self.sources {
            writer.bytes(source);
        }
        match self.parent {
            Some(parent) => writer.u8(1).raw(&parent.0),
            None => writer.u8(0),
        };
        writer.raw(&self.root.id.0).u8(self.root.height).u64(self.root.entries);
        writer.varint(self.counts.len() as u64);
        for (name, count) in &self.counts {
            writer.bytes(name.as_bytes()).varint(*count);
        }
        writer.varint(self.tags.len() as u64);
        for tag in &self.tags {
            writer.bytes(tag.as_bytes());
        }
        if !self.comment.is_empty() {
            writer.bytes(self.comment.as_bytes());
        }
        body
    }

    /// Decodes a framed snapshot that is not sealed.
    ///
    /// # Errors
    /// Fails with the errors of [`parse`], or with [`Kind::Locked`] for a sealed snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        match parse(bytes)?.content {
            SnapshotContent::Clear(snapshot) => Ok(*snapshot),
            SnapshotContent::Sealed(..) => Err(Error::new(Kind::Locked, "this snapshot is sealed")),
        }
    }

    /// Decodes what [`encode_fields`](Self::encode_fields) wrote.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for bytes that `encode_fields` does not write.
    pub fn decode_fields(store: StoreId, id: SnapshotId, fields: &[u8]) -> Result<Self> {
        Self::read_fields(store, id, CLEAR_VERSION, Reader::new(fields, "snapshot object"))
    }

    fn read_fields(
        store: StoreId,
        id: SnapshotId,
        version: u16,
        mut reader: Reader<'_>,
    ) -> Result<Self> {
        let created_seconds = reader.i64()?;
        let created_nanos = reader.u32()?;
        let host = reader.bytes()?.to_vec();
        let program = text(&mut reader)?;
        let sources = (0..reader.count(1)?)
            .map(|_| Ok(reader.bytes()?.to_vec()))
            .collect::<Result<Vec<_>>>()?;
        let parent = match reader.u8()? {
            0 => None,
            1 => Some(SnapshotId(reader.array()?)),
            other => {
                return Err(
                    reader.corrupt(format!("the snapshot has the impossible parent flag {other}"))
                );
            }
        };
        let root =
            TreeRoot { id: ChunkId(reader.array()?), height: reader.u8()?, entries: reader.u64()? };
        let counts = (0..reader.count(2)?)
            .map(|_| Ok((text(&mut reader)?, reader.varint()?)))
            .collect::<Result<Vec<_>>>()?;
        let tags = match version {
            1 => Vec::new(),
            _ => (0..reader.count(1)?).map(|_| text(&mut reader)).collect::<Result<_>>()?,
        };
        let comment = match reader.is_empty() {
            true => String::new(),
            false => text(&mut reader)?,
        };
        reader.finish()?;
        Ok(Snapshot {
            store,
            id,
            created_seconds,
            created_nanos,
            host,
            program,
            sources,
            parent,
            root,
            counts,
            tags,
            comment,
        })
    }

    /// Returns the count of the run that has this name.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
    }

    /// Returns the bytes of all regular files, as far as the run counted them; a file with several
    /// names counts once.
    pub fn content_bytes(&self) -> u64 {
        let counted = ["new_bytes", "changed_bytes", "unchanged_bytes"];
        let bytes: u64 = counted.iter().filter_map(|name| self.count(name)).sum();
        bytes.saturating_sub(self.count("linked_bytes").unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_comes_back() {
        let snapshot = Snapshot {
            store: StoreId([1; 16]),
            id: SnapshotId([2; 16]),
            created_seconds: 1_700_000_000,
            created_nanos: 5,
            host: b"host".to_vec(),
            program: "0.1.0".into(),
            sources: vec![b"/etc".to_vec(), b"/home/\xff".to_vec()],
            parent: Some(SnapshotId([3; 16])),
            root: TreeRoot { id: ChunkId([4; 32]), height: 1, entries: 99 },
            counts: vec![("new_files".into(), 7)],
            tags: vec!["weekly".into()],
            comment: String::new(),
        };
        assert_eq!(Snapshot::decode(&snapshot.encode()).unwrap(), snapshot);
        let first = Snapshot { parent: None, comment: "before the upgrade".into(), ..snapshot };
        assert_eq!(Snapshot::decode(&first.encode()).unwrap(), first);
        assert_eq!(first.count("new_files"), Some(7));
    }
}
