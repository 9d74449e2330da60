//! Finds the chunks that snapshots refer to and that are in no pack. The index is asked for many
//! chunks at once, in sorted order, so that each of its pages is read once: looking up chunk by
//! chunk would read several times the size of the store.

use std::collections::HashSet;

use crate::store::index::Index;
use crate::store::packs::ChunkReader;
use pinstripe_base::error::Result;
use pinstripe_base::id::ChunkId;
use pinstripe_base::wire::Reader;
use pinstripe_member::entry::{Content, decode_page, read_chunks};
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::tree::decode_node;

/// The number of chunks looked up at once: 32 MiB of ids.
const BATCH_CHUNKS: usize = 1 << 20;

/// The result for all snapshots.
#[derive(Default)]
pub(super) struct Survey {
    /// Chunks that are in no pack.
    pub missing: HashSet<ChunkId>,
    /// All pages of all trees could be read; otherwise more chunks may be missing below the unread
    /// pages.
    pub is_whole: bool,
}

/// Looks up all chunks that snapshots refer to, and reads each page of their trees once.
///
/// # Errors
/// Fails when members that are present cannot be listed.
pub(super) fn survey<'a>(
    snapshots: &[Snapshot],
    chunks: &mut ChunkReader<'a>,
    index: &Index<'a>,
) -> Result<Survey> {
    let found = Survey { is_whole: true, ..Survey::default() };
    let (seen, wanted) = Default::default();
    let mut surveyor = Surveyor { chunks, index, seen, wanted, found };
    for snapshot in snapshots {
        surveyor.node(&snapshot.root.id, snapshot.root.height)?;
    }
    surveyor.ask()?;
    Ok(surveyor.found)
}

struct Surveyor<'s, 'a> {
    chunks: &'s mut ChunkReader<'a>,
    index: &'s Index<'a>,
    /// Nodes, pages and content lists that were visited.
    seen: HashSet<ChunkId>,
    wanted: Vec<ChunkId>,
    found: Survey,
}

impl Surveyor<'_, '_> {
    fn node(&mut self, id: &ChunkId, height: u8) -> Result<()> {
        let Some(bytes) = self.enter(id)? else { return Ok(()) };
        if height > 0 {
            let Some(children) = self.decoded(decode_node(&bytes)) else { return Ok(()) };
            return children.iter().try_for_each(|child| self.node(&child.id, height - 1));
        }
        let Some(entries) = self.decoded(decode_page(&bytes)) else { return Ok(()) };
        for entry in entries {
            match entry.content {
                Content::Chunks(rows) => rows.iter().try_for_each(|row| self.want(row.id))?,
                Content::Lists(lists) => lists.iter().try_for_each(|list| self.list(&list.id))?,
            }
        }
        Ok(())
    }

    fn list(&mut self, id: &ChunkId) -> Result<()> {
        let Some(bytes) = self.enter(id)? else { return Ok(()) };
        let rows = read_chunks(&mut Reader::new(&bytes, "content list"));
        let Some(rows) = self.decoded(rows) else { return Ok(()) };
        rows.iter().try_for_each(|row| self.want(row.id))
    }

    /// Returns the bytes of a node, page or list when it is visited for the first time.
    fn enter(&mut self, id: &ChunkId) -> Result<Option<Vec<u8>>> {
        if !self.seen.insert(*id) {
            return Ok(None);
        }
        self.want(*id)?;
        let read = self.chunks.read(id);
        Ok(self.decoded(read))
    }

    /// Returns the value if it could be read; damage is reported later, when its snapshot is
    /// checked page by page.
    fn decoded<T>(&mut self, read: Result<T>) -> Option<T> {
        self.found.is_whole &= read.is_ok();
        read.ok()
    }

    fn want(&mut self, id: ChunkId) -> Result<()> {
        self.wanted.push(id);
        if self.wanted.len() < BATCH_CHUNKS { Ok(()) } else { self.ask() }
    }

    fn ask(&mut self) -> Result<()> {
        self.wanted.sort_unstable();
        self.wanted.dedup();
        self.found.missing.extend(self.index.missing(&self.wanted)?);
        self.wanted.clear();
        Ok(())
    }
}
