//! Directories of a snapshot: looks up names, and lists.
//!
//! Entries are in path order, so everything below a directory follows its entry. The next entry of
//! a directory is therefore the next entry of the snapshot, or the first one after a subdirectory;
//! if a subdirectory extends beyond its page, the nodes of the tree are used to skip it.

use std::cmp::Ordering;

use super::inode::Inode;
use super::pages::Found;
use super::{SnapshotTree, gone};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use pinstripe_io::file_tree::{Node, TakeEntry};
use pinstripe_member::meta::FileKind;
use pinstripe_member::snapshot::TreeRoot;
use pinstripe_member::tree::{compare_paths, is_at_or_below};

/// The largest number of lost pages in a row that are skipped.
const LOST_PAGES: usize = 4096;
/// The number of directories that are remembered, until their listing ends, to lack entries.
const INCOMPLETE: usize = 1024;

impl SnapshotTree {
    /// Lists a directory of the mount itself. Offsets are positions in the order of names.
    pub(super) fn list_own(&self, number: u64, from: u64, take: TakeEntry<'_>) -> Result<()> {
        let top = self.top();
        let children = top
            .children(number)
            .ok_or_else(|| Error::new(Kind::Usage, "this is not a directory"))?;
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        for (at, (name, child)) in children.iter().enumerate().skip(from) {
            let Some(node) = self.own_node(&top, child) else { continue };
            if !take(at as u64 + 1, name, &node) {
                break;
            }
        }
        Ok(())
    }

    /// Lists a directory of a snapshot. Offsets are numbers of entries, plus one.
    ///
    /// Entries that cannot be read are skipped; the listing then ends with an error, so that no
    /// program assumes that it is complete.
    pub(super) fn list_snapshot(&self, inode: u64, from: u64, take: TakeEntry<'_>) -> Result<()> {
        let (ordinal, path) = self.directory(inode)?;
        let root = self.root_of(ordinal)?;
        if from == 0 {
            lock(&self.incomplete).remove(&inode);
        }
        let (mut is_lost, mut has_given) = (false, false);
        let mut next = match from.checked_sub(1) {
            Some(number) => self.readable_from(&root, number, &mut is_lost),
            None => self.first_in(&root, &path, &mut is_lost),
        };
        while let Some(found) = next {
            let entry_path = &found.entry().path;
            if !is_at_or_below(entry_path, &path) || entry_path.len() <= path.len() {
                break;
            }
            let (name, child) = child_of(entry_path, &path);
            let behind = self.behind(&root, &found, &entry_path[..child], &mut is_lost);
            // A forged root may state fewer entries than there are: the end is behind all.
            let end = root.entries.max(found.number().saturating_add(1));
            let place = behind.as_ref().map_or(end, Found::number).saturating_add(1);
            if is_name(name)
                && let Some(node) = self.child_node(ordinal, &found, child)
            {
                has_given = true;
                if !take(place, name, &node) {
                    break;
                }
            }
            next = behind;
        }
        let mut incomplete = lock(&self.incomplete);
        if is_lost {
            if incomplete.len() >= INCOMPLETE {
                incomplete.pop_first();
            }
            incomplete.insert(inode);
        }
        match !has_given && incomplete.contains(&inode) {
            // Not lost, if every member that this process knows has left the store.
            true => Err(self.store.meet_newcomers().err().unwrap_or_else(|| {
                Error::new(Kind::TooManyLosses, "some entries of this directory are lost")
            })),
            false => Ok(()),
        }
    }

    /// Finds a name in a directory of a snapshot.
    pub(super) fn find(&self, inode: u64, name: &[u8]) -> Result<Node> {
        let (ordinal, mut path) = self.directory(inode)?;
        if !is_name(name) {
            return Err(gone());
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let root = self.root_of(ordinal)?;
        let found = self.pages.seek(&root, &path, false).map_err(|lost| self.lost(lost))?;
        let found = found.filter(|found| is_at_or_below(&found.entry().path, &path));
        let found = found.ok_or_else(gone)?;
        self.child_node(ordinal, &found, path.len()).ok_or_else(gone)
    }

    /// Returns the node of the directory entry that ends after `child` bytes of the path of an
    /// entry: that entry, or a directory that has no entry.
    fn child_node(&self, ordinal: u64, found: &Found, child: usize) -> Option<Node> {
        let path = &found.entry().path;
        if child == path.len() {
            return self.node_of(ordinal, found);
        }
        let depth = path[..child].iter().filter(|byte| **byte == b'/').count() as u64 + 1;
        let implied = Inode::Implied { ordinal, number: found.number(), depth };
        self.made_in_snapshot(implied).ok()
    }

    /// Returns the first entry below a path.
    fn first_in(&self, root: &TreeRoot, path: &[u8], is_lost: &mut bool) -> Option<Found> {
        if path.is_empty() {
            return self.readable_from(root, 0, is_lost);
        }
        let found = match self.pages.seek(root, path, false) {
            Ok(found) => found?,
            Err(lost) => {
                let end = lost.end;
                *is_lost = true;
                self.lost(lost);
                return self.readable_from(root, end, is_lost);
            }
        };
        match found.entry().path == path {
            true => found
                .next()
                .or_else(|| self.readable_from(root, found.number().saturating_add(1), is_lost)),
            false => Some(found),
        }
    }

    /// Returns the first entry after a child of a directory and everything below that child.
    fn behind(
        &self,
        root: &TreeRoot,
        found: &Found,
        child: &[u8],
        is_lost: &mut bool,
    ) -> Option<Found> {
        // Pages that contradict their nodes, or are in several positions, could lead back: a
        // listing would never end.
        let next = self.next_child(root, found, child, is_lost)?;
        let is_later = compare_paths(&next.entry().path, &found.entry().path) == Ordering::Greater;
        if is_later && next.number() > found.number() {
            return Some(next);
        }
        *is_lost = true;
        self.report(&Error::new(
            Kind::Corrupt,
            "pages of a snapshot's directory tree contradict each other",
        ));
        None
    }

    fn next_child(
        &self,
        root: &TreeRoot,
        found: &Found,
        child: &[u8],
        is_lost: &mut bool,
    ) -> Option<Found> {
        let is_leaf = found.entry().path == child && found.entry().meta.kind != FileKind::Directory;
        let within = if is_leaf { found.next() } else { found.behind(child) };
        within.or_else(|| match is_leaf {
            true => self.readable_from(root, found.number().saturating_add(1), is_lost),
            false => match self.pages.seek(root, child, true) {
                Ok(found) => found,
                Err(lost) => {
                    let end = lost.end;
                    *is_lost = true;
                    self.lost(lost);
                    self.readable_from(root, end, is_lost)
                }
            },
        })
    }

    /// Returns the first readable entry with this number or a higher one. Unreadable entries are
    /// reported, and only a bounded number of them is skipped: a forged tree can claim any number.
    fn readable_from(&self, root: &TreeRoot, mut number: u64, is_lost: &mut bool) -> Option<Found> {
        for _ in 0..LOST_PAGES {
            match self.pages.at(root, number) {
                Ok(found) => return found,
                Err(lost) => {
                    number = lost.end.max(number.saturating_add(1));
                    *is_lost = true;
                    self.lost(lost);
                }
            }
        }
        None
    }
}

/// Returns the name of the child of `directory` that contains a path, and where that name ends in
/// the path.
fn child_of<'p>(path: &'p [u8], directory: &[u8]) -> (&'p [u8], usize) {
    let begin = if directory.is_empty() { 0 } else { directory.len() + 1 };
    let rest = path.get(begin..).unwrap_or_default();
    let length = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    (&rest[..length], begin.min(path.len()) + length)
}

/// Whether this can be the name of a directory entry.
pub(super) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && name.len() <= 255 && !name.contains(&0)
}
