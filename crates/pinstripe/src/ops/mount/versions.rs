//! `versions/PATH/.../NAME@TIME`: shows every version of every file, next to each other.
//!
//! A directory of `versions` has the names that the directory has in all snapshots. An entry that
//! is not a directory appears once for each version that a restore would distinguish, as
//! `NAME@TIME`, where TIME is that of the first shown snapshot with that version. The catalog says
//! which snapshots have a version; a version is shown as the entry itself, with its inode number,
//! so that it is the same file as below `hosts/`. If the catalog is wrong, versions may be missing,
//! but no wrong version is shown.
//!
//! The thread that calls [`SnapshotTree::work`] brings the catalog up to date once a program has
//! accessed this directory; a program that comes earlier waits for a moment, and then gets EAGAIN.

mod directories;
mod names;
mod view;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::inode::Inode;
use super::pages::Found;
use super::top::Top;
use super::{SnapshotTree, gone};
use crate::catalog::{Catalog, ChildOfDirectory};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::file_tree::{Node, ROOT, TakeEntry};

use directories::ROOT_OF_VERSIONS;
pub(super) use directories::UnionDirectories;
pub(super) use view::VersionsState;
use view::View;

/// An entry in a directory of `versions`.
pub(super) enum Shown {
    /// A directory of this name.
    Directory(Vec<u8>),
    /// A version of a file, with its name in `versions`.
    Version(Vec<u8>, Node),
}

impl SnapshotTree {
    /// Brings the catalog up to date if a program has accessed `versions` and it is outdated; ends
    /// early when `stop` is set. A failure is reported to the callers that wait, and to the monitor
    /// once for each reason.
    pub(super) fn bring_up_to_date(&self, stop: &AtomicBool) {
        let Some(versions) = &self.versions else { return };
        // Read before the catalog: later changes are caught up with next time.
        let (ordinals, changes) = {
            let top = self.top();
            (top.ordinals_by_id(), top.changes())
        };
        let Some(due) = versions.due(changes) else { return };
        let (store, place, monitor) = (self.store, versions.place(), self.monitor);
        let made = View::make(due, stop, store, place, monitor, ordinals, changes);
        if let Err(error) = versions.arrived(made)
            && error.kind() != Kind::Interrupted
        {
            self.report(&error);
        }
    }

    fn versions_view(&self) -> Result<Arc<View>> {
        self.versions.as_ref().ok_or_else(gone)?.view(&self.wake)
    }

    /// Uses the catalog. The catalog is rebuilt if it turns out to be damaged.
    fn ask_catalog<T>(&self, view: &View, ask: impl FnOnce(&Catalog) -> Result<T>) -> Result<T> {
        let asked = view.ask(self.store.config.store, ask);
        asked.inspect_err(|error| {
            if let Some(versions) = &self.versions
                && error.place() == Some(versions.place())
                && error.kind() != Kind::Busy
            {
                self.report(error);
                versions.mistrust(view, error.kind() == Kind::Corrupt);
            }
        })
    }

    /// The path of a directory of `versions`.
    fn union_path(&self, inode: u64) -> Result<Arc<[u8]>> {
        self.unions.path(inode).ok_or_else(gone)
    }

    /// Returns a directory of `versions` as a node, whose lookup count rises by one for the caller.
    fn union_node(&self, view: &View, path: &[u8]) -> Node {
        let inode = self.unions.mention(path);
        self.made_directory(inode, view.time(), false)
    }

    /// Returns the node of a directory of `versions` by its number.
    pub(super) fn union(&self, inode: u64) -> Result<Node> {
        self.union_path(inode)?;
        let top = self.top();
        Ok(match inode {
            ROOT_OF_VERSIONS => self.versions_root(&top).ok_or_else(gone)?,
            _ => self.made_directory(inode, self.time_of_versions(&top), false),
        })
    }

    /// Returns the directory `versions` itself. The directory shows the content of several
    /// snapshots, so only its owner, the user who mounted, has access.
    pub(super) fn versions_root(&self, top: &Top) -> Option<Node> {
        self.versions.as_ref()?;
        let time = self.time_of_versions(top);
        Some(Node { mode: 0o500, ..self.made_directory(ROOT_OF_VERSIONS, time, false) })
    }

    fn time_of_versions(&self, top: &Top) -> (i64, u32) {
        let view = self.versions.as_ref().and_then(VersionsState::known);
        view.map_or_else(|| top.time(ROOT), |view| view.time())
    }

    /// Finds a name in a directory of `versions`.
    pub(super) fn find_version(&self, directory: u64, name: &[u8]) -> Result<Node> {
        let path = self.union_path(directory)?;
        if !names::is_name(name) {
            return Err(gone());
        }
        let view = self.versions_view()?;
        let found = self.ask_catalog(&view, |catalog| {
            let (rows, is_above) = catalog.child(view.series(), &path, name)?;
            if is_above || view.has_directory(&rows) {
                return Ok(Some(Shown::Directory(name.to_vec())));
            }
            for base in names::bases(name) {
                let mut found = None;
                names::with_base(catalog, &view, &path, base, &mut |child| {
                    let versions = self.versions_of(catalog, &view, &path, &child)?;
                    found = versions.into_iter().find(|(shown, _)| shown == name);
                    Ok(found.is_none())
                })?;
                if let Some((name, node)) = found {
                    return Ok(Some(Shown::Version(name, node)));
                }
            }
            Ok(None)
        })?;
        match found.ok_or_else(gone)? {
            Shown::Directory(name) => Ok(self.union_node(&view, &names::below(&path, &name))),
            Shown::Version(_, node) => Ok(node),
        }
    }

    /// Lists a directory of `versions`. Offsets are positions in the order of names; the positions
    /// of names in recent listings are remembered.
    pub(super) fn list_versions(
        &self,
        directory: u64,
        from: u64,
        take: TakeEntry<'_>,
    ) -> Result<()> {
        let path = self.union_path(directory)?;
        let view = self.versions_view()?;
        let cursor = view.cursors().before(directory, from);
        let mut place = cursor.place;
        self.ask_catalog(&view, |catalog| {
            catalog.children(view.series(), &path, &cursor.name, &mut |child| {
                let begins = place;
                for shown in self.shown_of(catalog, &view, &path, &child)? {
                    place += 1;
                    if place <= from {
                        continue;
                    }
                    let is_taken = match shown {
                        Shown::Directory(name) => {
                            let node = self.union_node(&view, &names::below(&path, &name));
                            take(place, &name, &node)
                        }
                        Shown::Version(name, node) => take(place, &name, &node),
                    };
                    if !is_taken {
                        view.cursors().keep(directory, begins, child.name);
                        return Ok(false);
                    }
                }
                Ok(true)
            })
        })
    }

    /// Returns the form in which a name of the catalog is shown: a directory, versions, or both.
    fn shown_of(
        &self,
        catalog: &Catalog,
        view: &View,
        directory: &[u8],
        child: &ChildOfDirectory<'_>,
    ) -> Result<Vec<Shown>> {
        if !names::is_name(child.name) {
            return Ok(Vec::new());
        }
        let is_directory = child.is_above_source || view.has_directory(child.rows);
        let versions = self.versions_of(catalog, view, directory, child)?;
        let directory = is_directory.then(|| Shown::Directory(child.name.to_vec()));
        let versions = versions.into_iter().map(|(name, node)| Shown::Version(name, node));
        Ok(directory.into_iter().chain(versions).collect())
    }

    /// Returns the versions of a name that is not a directory, each with the name under which it is
    /// shown, oldest first.
    fn versions_of(
        &self,
        catalog: &Catalog,
        view: &View,
        directory: &[u8],
        child: &ChildOfDirectory<'_>,
    ) -> Result<Vec<(Vec<u8>, Node)>> {
        let mut versions = view.files(child.rows);
        versions.sort_by_key(|version| (version.first.created, version.first.id));
        let path = names::below(directory, child.name);
        let mut kept: Vec<(&crate::catalog::VersionRow, Found)> = Vec::new();
        let mut shown: Vec<(Vec<u8>, Node)> = Vec::new();
        for version in &versions {
            let Some((ordinal, found)) = self.version_entry(view, version, &path) else { continue };
            // A hash shows which versions may be equal; their entries show which are.
            let is_known = kept.iter().any(|(row, other)| {
                row.facts == version.row.facts && other.entry().restores_alike(found.entry())
            });
            if is_known {
                continue;
            }
            let Some(node) = self.node_of(ordinal, &found) else { continue };
            // The name leaves when its snapshot is forgotten.
            let node = Node { is_lasting: false, ..node };
            let time = (self.options.name_of_time)(version.first.created.seconds);
            let plain = names::with_time(child.name, &time, None);
            let longer = names::with_time(child.name, &time, Some(version.first.id));
            for name in [plain, longer] {
                let is_taken = shown.iter().any(|(taken, _)| *taken == name);
                let is_directory = || {
                    let (rows, is_above) = catalog.child(view.series(), directory, &name)?;
                    Ok::<_, Error>(is_above || view.has_directory(&rows))
                };
                if !is_taken && !is_directory()? {
                    kept.push((version.row, found));
                    shown.push((name, node));
                    break;
                }
            }
        }
        Ok(shown)
    }

    /// Returns the entry of a version, from the first of its snapshots in which the entry can be
    /// read.
    fn version_entry(
        &self,
        view: &View,
        version: &view::VersionOfFile<'_>,
        path: &[u8],
    ) -> Option<(u64, Found)> {
        /// The number of snapshots that are tried: each costs reads of pages of a tree.
        const ASKED: usize = 4;
        version.holders.iter().take(ASKED).find_map(|holder| {
            let ordinal = view.ordinal(holder.id)?;
            let root = self.root_of(ordinal).ok()?;
            let found = self.pages.seek(&root, path, false).map_err(|lost| self.lost(lost)).ok()?;
            found.filter(|found| found.entry().path == path).map(|found| (ordinal, found))
        })
    }

    /// Subtracts lookup counts from a directory of `versions` that the kernel forgets.
    pub(super) fn forget_union(&self, inode: u64, mentions: u64) {
        if let Inode::Union(number) = Inode::from_number(inode) {
            self.unions.forget(number, mentions);
        }
    }
}
