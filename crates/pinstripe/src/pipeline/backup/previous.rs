//! Earlier trees of the same sources, as one stream of entries in path order.
//!
//! The trees of interrupted backups come first, newest first: each ends at some path, and from there
//! on the next older one is used. Then come complete trees in path order, each for some of the
//! paths. Each entry comes with the time
//! at which its backup began, which the rule for unchanged files needs. This module never decides
//! whether a file is unchanged.

use std::cmp::Ordering;

use crate::store::tree::TreeReader;
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::ChunkId;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::Time;
use pinstripe_member::record::ChunkRow;
use pinstripe_member::tree::compare_paths;

/// One earlier tree.
pub struct Earlier<'a> {
    /// The entries.
    pub tree: TreeReader<'a>,
    /// When the backup that made the tree began.
    pub began: Time,
    /// From this path on, the next tree is used.
    pub until: Option<Vec<u8>>,
    /// Whether the tree is the complete one of a snapshot; otherwise it is that of an interrupted
    /// backup.
    pub is_whole: bool,
}

impl Earlier<'_> {
    fn is_over(&self, path: &[u8]) -> bool {
        self.until.as_ref().is_some_and(|until| compare_paths(path, until) != Ordering::Less)
    }
}

/// The backup that recorded an entry.
#[derive(Debug, Clone, Copy)]
pub struct Sight {
    /// When the backup began.
    pub began: Time,
    /// Whether it finished. Only the chunks of complete trees are protected from deletion.
    pub is_whole: bool,
}

/// All earlier trees, newest first, read as one stream.
pub(crate) struct Previous<'a> {
    trees: Vec<Earlier<'a>>,
    /// The number of the tree that is being read; if it equals the number of trees, all were read.
    at: usize,
    ahead: Option<Entry>,
    /// The last path that was read: an older tree continues after it.
    reached: Option<Vec<u8>>,
}

impl<'a> Previous<'a> {
    /// Makes a stream that begins with the first of `trees`.
    pub fn new(trees: Vec<Earlier<'a>>) -> Self {
        Previous { trees, at: 0, ahead: None, reached: None }
    }

    /// Returns the entry at `path`, and the backup that recorded it. Paths must be requested in
    /// path order.
    pub fn entry(&mut self, path: &[u8], monitor: &Monitor) -> Option<(Entry, Sight)> {
        loop {
            let Some(ahead) = &self.ahead else {
                self.advance(monitor)?;
                continue;
            };
            match compare_paths(&ahead.path, path) {
                Ordering::Less => self.ahead = None,
                Ordering::Equal => {
                    let Earlier { began, is_whole, .. } = self.trees[self.at];
                    return Some((self.ahead.take()?, Sight { began, is_whole }));
                }
                Ordering::Greater => return None,
            }
        }
    }

    /// Returns the chunks in a list of a long content.
    ///
    /// # Errors
    /// Fails when the list cannot be read.
    pub fn list(&mut self, id: &ChunkId) -> Option<Result<Vec<ChunkRow>>> {
        let at = self.at.min(self.trees.len().checked_sub(1)?);
        Some(self.trees[at].tree.list(id))
    }

    /// Reads the next entry; returns `None` when there are no more.
    fn advance(&mut self, monitor: &Monitor) -> Option<()> {
        while let Some(earlier) = self.trees.get_mut(self.at) {
            match earlier.tree.next_entry() {
                Ok(Some(entry)) if earlier.is_over(&entry.path) => self.at += 1,
                Ok(Some(entry)) => {
                    let is_behind =
                        |reached: &Vec<u8>| compare_paths(reached, &entry.path) == Ordering::Less;
                    if self.reached.as_ref().is_none_or(is_behind) {
                        self.reached = Some(entry.path.clone());
                        self.ahead = Some(entry);
                        return Some(());
                    }
                }
                Ok(None) => self.at += 1,
                // A host that may only append cannot read pages of the tree that another host
                // stored first.
                Err(error) if error.kind() == Kind::NotAllowed => {
                    monitor.note(
                        "this token may not read a part of the parent snapshot, which another \
                         host has stored: the files listed there are read again",
                    );
                    self.at += 1;
                }
                Err(error) if earlier.is_whole => {
                    // More than a warning: chunks that the store only seems to have are not stored
                    // again, so this snapshot may need what is lost.
                    let advice = "the backup reads the files of this part of the parent snapshot \
                                  again; run 'pinstripe check'";
                    monitor.loss("the previous snapshot", error.advice(advice));
                    self.at += 1;
                }
                Err(error) => {
                    let advice = "the backup reads the files of this part of the checkpoint again";
                    monitor
                        .warning("the checkpoint of an interrupted backup", error.advice(advice));
                    self.at += 1;
                }
            }
        }
        None
    }
}
