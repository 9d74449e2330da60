//! The snapshot object: the commit point of one finished backup.
//!
//! Small and whole on every member. It names the root of a tree of pages (`tree.rs`); everything
//! below the root is chunks in packs. Written last: when it can be read, all it names is durable.

use super::envelope::{self, Object};
use super::label::text;
use super::wire::{Reader, Writer};
use crate::error::Result;
use crate::id::{ChunkId, SnapshotId, StoreId};

/// Where a snapshot's entries are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeRoot {
    /// The chunk holding the topmost page or node.
    pub id: ChunkId,
    /// 0 when that is a page of entries, otherwise the levels of nodes above the pages.
    pub height: u8,
    /// Entries below it.
    pub entries: u64,
}

/// One finished backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The store it belongs to.
    pub store: StoreId,
    /// Its name.
    pub id: SnapshotId,
    /// When the backup began: seconds since 1970, for people and for `latest`.
    pub created_seconds: i64,
    /// Nanoseconds of that second.
    pub created_nanos: u32,
    /// The machine that was backed up.
    pub host: Vec<u8>,
    /// Version of the program that wrote it.
    pub program: String,
    /// The paths that were asked for, absolute, in path order.
    pub sources: Vec<Vec<u8>>,
    /// The snapshot that unchanged files were taken over from.
    pub parent: Option<SnapshotId>,
    /// The entries.
    pub root: TreeRoot,
    /// Named counts of the run (files, bytes, losses), as the summary printed them.
    pub counts: Vec<(String, u64)>,
    /// Words that whoever made it gave it, for people and retention rules.
    pub tags: Vec<String>,
}

impl Snapshot {
    /// The framed object.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut writer = Writer::new(&mut body);
        writer
            .raw(&self.store.0)
            .raw(&self.id.0)
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
        envelope::close(Object::Snapshot, &body)
    }

    /// Reads a framed snapshot.
    ///
    /// # Errors
    /// Those of [`envelope::open`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (version, body) = envelope::open_version(Object::Snapshot, bytes)?;
        let mut reader = Reader::new(body, "snapshot object");
        let store = StoreId(reader.array()?);
        let id = SnapshotId(reader.array()?);
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
            other => return Err(reader.corrupt(format!("impossible parent mark {other}"))),
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
        })
    }

    /// A count of the run by its name.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
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
        };
        assert_eq!(Snapshot::decode(&snapshot.encode()).unwrap(), snapshot);
        let first = Snapshot { parent: None, ..snapshot };
        assert_eq!(Snapshot::decode(&first.encode()).unwrap(), first);
        assert_eq!(first.count("new_files"), Some(7));
    }
}
