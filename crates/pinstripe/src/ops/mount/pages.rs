//! Random access to a snapshot's tree: to an entry by its number, and to the first entry from a
//! path on.
//!
//! Pages and nodes are decoded once and kept within a memory budget; snapshots that share pages
//! also share the decoded ones, since these are named by their content.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::tree::lost_page;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ChunkId;
use pinstripe_base::sync::lock;
use pinstripe_base::weighted_cache::WeightedCache;
use pinstripe_base::wire::Reader;
use pinstripe_member::entry::{Entry, decode_page, read_chunks};
use pinstripe_member::record::ChunkRow;
use pinstripe_member::snapshot::TreeRoot;
use pinstripe_member::tree::{Child, HEIGHT_MAX, compare_paths, decode_node, is_at_or_below};

/// Bytes of memory for each entry of a decoded page, in addition to its path and its chunks.
const ENTRY_BYTES: usize = 250;

/// One decoded object of a tree.
pub(super) enum Decoded {
    Node(Vec<Child>),
    Page(Vec<Entry>),
    List(Vec<ChunkRow>),
}

/// An entry in its page.
#[derive(Clone)]
pub(super) struct Found {
    page: Arc<Decoded>,
    at: usize,
    /// The number of the page's first entry.
    first: u64,
}

impl Found {
    pub(super) fn entry(&self) -> &Entry {
        match &*self.page {
            Decoded::Page(entries) => &entries[self.at],
            _ => unreachable!("entries are found in pages only"),
        }
    }

    pub(super) fn number(&self) -> u64 {
        // A forged tree can have any counts.
        self.first.saturating_add(self.at as u64)
    }

    /// Returns the next entry, if it is in this page.
    pub(super) fn next(&self) -> Option<Found> {
        self.later(self.at + 1)
    }

    /// Returns the first entry after everything below `path`, if it is in this page.
    pub(super) fn behind(&self, path: &[u8]) -> Option<Found> {
        let Decoded::Page(entries) = &*self.page else { return None };
        let before = entries[self.at..].partition_point(|entry| is_before(&entry.path, path, true));
        self.later(self.at + before)
    }

    fn later(&self, at: usize) -> Option<Found> {
        let Decoded::Page(entries) = &*self.page else { return None };
        (at < entries.len()).then(|| Found { page: Arc::clone(&self.page), at, first: self.first })
    }
}

/// A range of entries that cannot be read.
pub(super) struct Lost {
    /// The number of the first entry after the range.
    pub(super) end: u64,
    pub(super) error: Error,
}

/// Whether a path sorts before another one, or before everything below that one.
fn is_before(path: &[u8], other: &[u8], is_past_all: bool) -> bool {
    compare_paths(path, other) == Ordering::Less || (is_past_all && is_at_or_below(path, other))
}

/// Chooses a child of a node. The function gets the children and the number of the first entry
/// below the first child; it returns a child's position, and the number of the first entry below
/// that child.
type Choose<'c> = &'c mut dyn FnMut(&[Child], u64) -> (usize, u64);

/// Decides about a page of a tree, given its id alone or its entries.
pub(super) type LookAtPage<'l> = &'l mut dyn FnMut(&ChunkId, Option<&[Entry]>) -> bool;

/// Reads trees.
pub(super) struct Pages {
    packs: &'static PackReader<'static>,
    index: &'static Index<'static>,
    /// Readers that no thread is using: each keeps a few decoded records.
    readers: Mutex<Vec<ChunkReader<'static>>>,
    kept: Mutex<WeightedCache<ChunkId, Arc<Decoded>>>,
}

impl Pages {
    pub(super) fn new(
        packs: &'static PackReader<'static>,
        index: &'static Index<'static>,
        bytes_max: u64,
    ) -> Self {
        let kept = Mutex::new(WeightedCache::new(bytes_max));
        Pages { packs, index, readers: Mutex::default(), kept }
    }

    /// Returns the entry with a number, or `None` beyond the last one.
    pub(super) fn at(&self, root: &TreeRoot, number: u64) -> Result<Option<Found>, Lost> {
        if number >= root.entries {
            return Ok(None);
        }
        let (page, first) = self.descend(root, &mut |children, first| {
            let mut first = first;
            for (at, child) in children.iter().enumerate() {
                if number < first.saturating_add(child.entries) || at + 1 == children.len() {
                    return (at, first);
                }
                first = first.saturating_add(child.entries);
            }
            (0, first)
        })?;
        let Decoded::Page(entries) = &*page else { return Ok(None) };
        let at = (number - first.min(number)) as usize;
        Ok((at < entries.len()).then_some(Found { page, at, first }))
    }

    /// Returns the first entry from `path` on, or the first one after everything below `path`.
    pub(super) fn seek(
        &self,
        root: &TreeRoot,
        path: &[u8],
        is_past_all: bool,
    ) -> Result<Option<Found>, Lost> {
        let (page, first) = self.descend(root, &mut |children, first| {
            let before =
                children.partition_point(|child| is_before(&child.first_path, path, is_past_all));
            let at = before.saturating_sub(1);
            (at, children[..at].iter().fold(first, |sum, child| sum.saturating_add(child.entries)))
        })?;
        let Decoded::Page(entries) = &*page else { return Ok(None) };
        let at = entries.partition_point(|entry| is_before(&entry.path, path, is_past_all));
        match at < entries.len() {
            true => Ok(Some(Found { page, at, first })),
            false => self.at(root, first.saturating_add(at as u64)),
        }
    }

    /// Descends to a page through the children that `choose` returns.
    fn descend(&self, root: &TreeRoot, choose: Choose<'_>) -> Result<(Arc<Decoded>, u64), Lost> {
        let mut child = Child { first_path: Vec::new(), id: root.id, entries: root.entries };
        let mut first = 0u64;
        for height in (0..=root.height.min(HEIGHT_MAX)).rev() {
            let decoded = self.get(&child.id, height > 0).map_err(|error| Lost {
                end: first.saturating_add(child.entries.max(1)),
                error: lost_page(&child, error),
            })?;
            match &*decoded {
                Decoded::Node(children) if !children.is_empty() => {
                    let (at, begins) = choose(children, first);
                    (child, first) = (children[at].clone(), begins);
                }
                _ => return Ok((decoded, first)),
            }
        }
        let error = Error::new(Kind::Corrupt, "pages are missing in a snapshot's directory tree");
        Err(Lost { end: first.saturating_add(child.entries.max(1)), error })
    }

    /// Passes every page of a tree to `look`: first its id alone, to ask whether to read it, then
    /// its entries; `look` returns whether to continue. The pages are not kept in memory. Returns
    /// whether all pages could be read.
    pub(super) fn look_through(&self, root: &TreeRoot, look: LookAtPage<'_>) -> bool {
        let mut reader = ChunkReader::new(self.packs, self.index);
        let (mut open, mut nodes) = (vec![(root.id, root.height.min(HEIGHT_MAX))], HashSet::new());
        while let Some((id, height)) = open.pop() {
            // In a forged tree a node may be in several positions.
            if (height > 0 && !nodes.insert(id)) || (height == 0 && !look(&id, None)) {
                continue;
            }
            let Ok(bytes) = reader.read(&id) else { return false };
            if height > 0 {
                let Ok(children) = decode_node(&bytes) else { return false };
                open.extend(children.iter().rev().map(|child| (child.id, height - 1)));
                continue;
            }
            let Ok(entries) = decode_page(&bytes) else { return false };
            if !look(&id, Some(&entries)) {
                return true;
            }
        }
        true
    }

    fn get(&self, id: &ChunkId, is_node: bool) -> Result<Arc<Decoded>> {
        self.kept(id, |bytes| match is_node {
            true => Ok(Decoded::Node(decode_node(bytes)?)),
            false => Ok(Decoded::Page(decode_page(bytes)?)),
        })
    }

    /// Returns the chunks in one list of a long content.
    pub(super) fn list(&self, id: &ChunkId) -> Result<Arc<Decoded>> {
        self.kept(id, |bytes| {
            let mut reader = Reader::new(bytes, "content list");
            let rows = read_chunks(&mut reader)?;
            reader.finish()?;
            Ok(Decoded::List(rows))
        })
    }

    fn kept(
        &self,
        id: &ChunkId,
        decode: impl FnOnce(&[u8]) -> Result<Decoded>,
    ) -> Result<Arc<Decoded>> {
        if let Some(decoded) = lock(&self.kept).get(id) {
            return Ok(decoded);
        }
        let reader = lock(&self.readers).pop();
        let mut reader = reader.unwrap_or_else(|| ChunkReader::new(self.packs, self.index));
        let bytes = reader.read(id);
        lock(&self.readers).push(reader);
        let decoded = Arc::new(decode(&bytes?)?);
        let bytes = memory_of(&decoded) as u64;
        Ok(lock(&self.kept).keep(*id, decoded, bytes))
    }
}

fn memory_of(decoded: &Decoded) -> usize {
    match decoded {
        Decoded::Node(children) => {
            children.iter().map(|child| size_of::<Child>() + child.first_path.len()).sum()
        }
        Decoded::List(rows) => rows.len() * size_of::<ChunkRow>(),
        Decoded::Page(entries) => entries.iter().map(memory_of_entry).sum(),
    }
}

fn memory_of_entry(entry: &Entry) -> usize {
    let chunks = match &entry.content {
        pinstripe_member::entry::Content::Chunks(rows) => rows.len() * size_of::<ChunkRow>(),
        pinstripe_member::entry::Content::Lists(lists) => lists.len() * 48,
    };
    let xattrs: usize =
        entry.meta.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
    ENTRY_BYTES + entry.path.len() + entry.target.len() + xattrs + 16 * entry.extents.len() + chunks
}
