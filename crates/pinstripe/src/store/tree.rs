//! A snapshot's tree: builds it from entries in path order, and reads it back from any path.
//!
//! Building and reading need memory for only one page per level, for any number of entries.

mod diff;
mod follow;

use std::cmp::Ordering;
use std::collections::VecDeque;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ChunkId;
use pinstripe_base::wire::Reader;
use pinstripe_io::beneath::shown_from_root;
use pinstripe_member::entry::{Content, Entry, PageWriter, decode_page};
use pinstripe_member::record::ChunkRow;
use pinstripe_member::snapshot::TreeRoot;
use pinstripe_member::tree::{
    Child, HEIGHT_MAX, NODE_MAX_CHILDREN, PAGE_MAX_BYTES, PageEnds, compare_paths, decode_node,
    encode_node, ends_node, is_at_or_below,
};

use super::packs::ChunkReader;

pub use diff::Difference;
pub(crate) use diff::TreeDiff;
pub use follow::{Follow, follow};

/// Builds a tree. `store` is called for each page and node, stores it as a chunk and returns its
/// id.
///
/// A clone can be finished to get the tree of what was added so far.
#[derive(Clone)]
pub struct TreeWriter {
    page: PageWriter,
    ends: PageEnds,
    /// Unfinished nodes, lowest level first.
    levels: Vec<Vec<Child>>,
    entries: u64,
}

impl TreeWriter {
    /// An empty tree.
    #[must_use]
    pub fn new() -> Self {
        TreeWriter {
            page: PageWriter::default(),
            ends: PageEnds::default(),
            levels: Vec::new(),
            entries: 0,
        }
    }

    /// Adds the next entry in path order.
    ///
    /// # Errors
    /// Fails with the errors of `store`.
    pub fn push(
        &mut self,
        entry: &Entry,
        store: &mut dyn FnMut(Vec<u8>) -> Result<ChunkId>,
    ) -> Result<()> {
        self.page.push(entry);
        self.entries += 1;
        if self.ends.after(&entry.path) || self.page.len() >= PAGE_MAX_BYTES {
            self.close_page(store)?;
        }
        Ok(())
    }

    fn close_page(&mut self, store: &mut dyn FnMut(Vec<u8>) -> Result<ChunkId>) -> Result<()> {
        let (bytes, first_path, entries) = self.page.take();
        let id = store(bytes)?;
        self.add_child(0, Child { first_path, id, entries }, store)
    }

    fn add_child(
        &mut self,
        level: usize,
        child: Child,
        store: &mut dyn FnMut(Vec<u8>) -> Result<ChunkId>,
    ) -> Result<()> {
        if self.levels.len() == level {
            self.levels.push(Vec::new());
        }
        let ends = ends_node(&child.id);
        let node = &mut self.levels[level];
        node.push(child);
        // A node of one child would let the tree grow without end.
        if node.len() >= 2 && (ends || node.len() >= NODE_MAX_CHILDREN) {
            self.close_node(level, store)?;
        }
        Ok(())
    }

    fn close_node(
        &mut self,
        level: usize,
        store: &mut dyn FnMut(Vec<u8>) -> Result<ChunkId>,
    ) -> Result<()> {
        let children = std::mem::take(&mut self.levels[level]);
        let parent = Child {
            first_path: children[0].first_path.clone(),
            id: store(encode_node(&children))?,
            entries: children.iter().map(|child| child.entries).sum(),
        };
        self.add_child(level + 1, parent, store)
    }

    /// Closes all levels and returns the root. An empty tree has one empty page.
    ///
    /// # Errors
    /// Fails with the errors of `store`.
    pub fn finish(mut self, store: &mut dyn FnMut(Vec<u8>) -> Result<ChunkId>) -> Result<TreeRoot> {
        if !self.page.is_empty() || self.levels.is_empty() {
            self.close_page(store)?;
        }
        let mut level = 0;
        loop {
            let is_top = level + 1 == self.levels.len();
            match (self.levels[level].as_slice(), is_top) {
                ([root], true) => {
                    let height = level as u8;
                    return Ok(TreeRoot { id: root.id, height, entries: self.entries });
                }
                ([], _) => level += 1,
                (_, _) => {
                    self.close_node(level, store)?;
                    level += 1;
                }
            }
        }
    }
}

impl Default for TreeWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads a tree's entries in path order: all entries, or those at and below a path.
pub struct TreeReader<'a> {
    chunks: ChunkReader<'a>,
    /// The nodes above the present position, each with its height and the children not visited yet.
    pending: Vec<(u8, VecDeque<Child>)>,
    page: VecDeque<Entry>,
    below: Vec<u8>,
    last_path: Option<Vec<u8>>,
    lost_entries: u64,
}

impl<'a> TreeReader<'a> {
    /// Begins at the first entry at or below `below`, which is empty for the complete tree.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for an impossible root.
    pub fn new(chunks: ChunkReader<'a>, root: &TreeRoot, below: &[u8]) -> Result<Self> {
        if root.height > HEIGHT_MAX {
            return Err(Error::new(Kind::Corrupt, "the page tree of a snapshot is too high")
                .expected(format!("a height of at most {HEIGHT_MAX}"), root.height));
        }
        let top = Child { first_path: Vec::new(), id: root.id, entries: root.entries };
        Ok(TreeReader {
            chunks,
            pending: vec![(root.height, VecDeque::from([top]))],
            page: VecDeque::new(),
            below: below.to_vec(),
            last_path: None,
            lost_entries: 0,
        })
    }

    /// Returns the next entry, or `None` at the end.
    ///
    /// # Errors
    /// Fails when a page or node cannot be read ([`Kind::TooManyLosses`] for one that is missing or
    /// damaged). The reader then continues after the unreadable page, so that a caller who reports
    /// the loss can read the rest. [`lost_entries`](Self::lost_entries) returns the number of
    /// entries that were lost.
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        loop {
            while let Some(entry) = self.page.pop_front() {
                if is_at_or_below(&entry.path, &self.below) {
                    return Ok(Some(entry));
                }
                if compare_paths(&entry.path, &self.below) == Ordering::Greater {
                    self.page.clear();
                    self.pending.clear();
                }
            }
            let Some((height, children)) = self.pending.last_mut() else {
                return Ok(None);
            };
            let height = *height;
            let Some(child) = children.pop_front() else {
                self.pending.pop();
                continue;
            };
            // A child that begins behind the wanted path and everything below it contains neither.
            if compare_paths(&child.first_path, &self.below) == Ordering::Greater
                && !is_at_or_below(&child.first_path, &self.below)
            {
                self.pending.clear();
                continue;
            }
            // This child is entirely before the wanted path if the next one begins at or before it.
            let skip = children.front().is_some_and(|next| {
                compare_paths(&next.first_path, &self.below) != Ordering::Greater
            });
            if !skip || self.below.is_empty() {
                self.descend(height, &child)?;
            }
        }
    }

    /// The number of entries below the page or node for which [`next_entry`](Self::next_entry) last
    /// failed.
    pub fn lost_entries(&self) -> u64 {
        self.lost_entries
    }

    fn descend(&mut self, height: u8, child: &Child) -> Result<()> {
        self.take_in(height, child).map_err(|error| {
            self.lost_entries = child.entries;
            lost_page(child, error)
        })
    }

    fn take_in(&mut self, height: u8, child: &Child) -> Result<()> {
        let bytes = self.chunks.read(&child.id)?;
        if height > 0 {
            self.pending.push((height - 1, decode_node(&bytes)?.into()));
            return Ok(());
        }
        let page = decode_page(&bytes)?;
        if let (Some(last), Some(first)) = (&self.last_path, page.first())
            && compare_paths(last, &first.path) != Ordering::Less
        {
            return Err(Error::new(
                Kind::Corrupt,
                "the pages of a snapshot are not in the order of their paths",
            ));
        }
        self.last_path = page.last().map(|entry| entry.path.clone()).or(self.last_path.take());
        self.page = page.into();
        Ok(())
    }

    /// Returns all chunks of a file, including those in lists of a long content.
    ///
    /// # Errors
    /// Fails when a list cannot be read.
    pub fn content(&mut self, content: &Content) -> Result<Vec<ChunkRow>> {
        match content {
            Content::Chunks(chunks) => Ok(chunks.clone()),
            Content::Lists(lists) => {
                let mut all = Vec::new();
                for list in lists {
                    all.extend(self.list(&list.id)?);
                }
                Ok(all)
            }
        }
    }

    /// Returns the chunks in one list of a long content.
    ///
    /// # Errors
    /// Fails when the list cannot be read.
    pub fn list(&mut self, id: &ChunkId) -> Result<Vec<ChunkRow>> {
        let bytes = self.chunks.read(id)?;
        let mut reader = Reader::new(&bytes, "content list");
        let chunks = pinstripe_member::entry::read_chunks(&mut reader)?;
        reader.finish()?;
        Ok(chunks)
    }
}

/// Returns the error for a page or node that cannot be read, with the entries that are lost with
/// it.
pub(crate) fn lost_page(child: &Child, error: Error) -> Error {
    if !matches!(error.kind(), Kind::NotFound | Kind::Corrupt | Kind::TooManyLosses) {
        return error;
    }
    let from = shown_from_root(&child.first_path);
    let what = format!(
        "a page of the snapshot's directory tree is lost, and with it {}, beginning at {}: {error}",
        pinstripe_base::units::counted(child.entries, "entry", "entries"),
        from.display()
    );
    Error::new(Kind::TooManyLosses, what)
}

/// The advice for a page that is lost.
pub(crate) const SEE_WHAT_IS_LOST: &str =
    "'pinstripe check --read-data' lists everything that is lost";
