//! Does every snapshot find all of its chunks?

use std::collections::HashSet;

use super::Outcome;
use crate::beneath::shown;
use crate::error::{Error, Kind, Result};
use crate::format::entry::{Content, Entry, decode_page, read_chunks};
use crate::format::snapshot::Snapshot;
use crate::format::tree::decode_node;
use crate::format::wire::Reader;
use crate::id::ChunkId;
use crate::monitor::Monitor;
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, missing_chunk};

/// Follows snapshots down to their chunks; subtrees that were found sound are not entered again.
pub(super) struct Trees<'a> {
    chunks: ChunkReader<'a>,
    index: &'a Index<'a>,
    lost: HashSet<ChunkId>,
    sound: HashSet<ChunkId>,
}

/// Paths named per hurt snapshot; the rest is counted.
const PATHS_NAMED: usize = 20;

/// What is wrong in one snapshot.
#[derive(Default)]
struct Hurt {
    paths: u64,
    named: Vec<(Vec<u8>, Error)>,
}

impl Hurt {
    fn note(&mut self, path: &[u8], error: Error) {
        self.paths += 1;
        if self.named.len() < PATHS_NAMED {
            self.named.push((path.to_vec(), error));
        }
    }
}

impl<'a> Trees<'a> {
    pub(super) fn new(
        chunks: ChunkReader<'a>,
        index: &'a Index<'a>,
        lost: HashSet<ChunkId>,
    ) -> Self {
        Trees { chunks, index, lost, sound: HashSet::new() }
    }

    /// Checks one snapshot and reports what it lost.
    pub(super) fn check(&mut self, snapshot: &Snapshot, monitor: &Monitor, outcome: &mut Outcome) {
        let mut hurt = Hurt::default();
        self.node(&snapshot.root.id, snapshot.root.height, b"", &mut hurt);
        if hurt.paths == 0 {
            return;
        }
        outcome.hurt_snapshots += 1;
        outcome.hurt_paths += hurt.paths;
        let short = snapshot.id.short();
        let unnamed = hurt.paths - hurt.named.len() as u64;
        for (path, error) in hurt.named {
            let path = shown(&path).display().to_string();
            monitor.loss(format!("snapshot {short}: /{path}"), error);
        }
        if unnamed > 0 {
            let error = Error::new(Kind::Corrupt, format!("{unnamed} more paths are hurt"));
            monitor.loss(format!("snapshot {short}"), error);
        }
    }

    fn node(&mut self, id: &ChunkId, height: u8, first_path: &[u8], hurt: &mut Hurt) {
        if self.sound.contains(id) {
            return;
        }
        let before = hurt.paths;
        if let Err(error) = self.enter(id, height, hurt) {
            hurt.note(first_path, error.advice("all entries from here to the next page are hurt"));
        }
        if hurt.paths == before {
            self.sound.insert(*id);
        }
    }

    fn enter(&mut self, id: &ChunkId, height: u8, hurt: &mut Hurt) -> Result<()> {
        self.present(id)?;
        let bytes = self.chunks.read(id)?;
        if height > 0 {
            for child in decode_node(&bytes)? {
                self.node(&child.id, height - 1, &child.first_path, hurt);
            }
            return Ok(());
        }
        for entry in decode_page(&bytes)? {
            if let Err(error) = self.content(&entry) {
                hurt.note(&entry.path, error);
            }
        }
        Ok(())
    }

    fn content(&mut self, entry: &Entry) -> Result<()> {
        match &entry.content {
            Content::Chunks(rows) => rows.iter().try_for_each(|row| self.present(&row.id)),
            Content::Lists(lists) => lists.iter().try_for_each(|list| {
                self.present(&list.id)?;
                let bytes = self.chunks.read(&list.id)?;
                let rows = read_chunks(&mut Reader::new(&bytes, "content list"))?;
                rows.iter().try_for_each(|row| self.present(&row.id))
            }),
        }
    }

    fn present(&self, id: &ChunkId) -> Result<()> {
        if self.lost.contains(id) {
            return Err(Error::new(Kind::TooManyLosses, format!("chunk {} is lost", id.short())));
        }
        self.index.find(id)?.map(drop).ok_or_else(|| missing_chunk(id))
    }
}
