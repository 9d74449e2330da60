//! Lists the extents of a directory member, with or without the lengths of the extents.
//!
//! Invariants: the listed names are sorted. Names that cannot be an extent's are skipped, and so is
//! everything but regular files. Listing a directory that never ends fails. An extent that is
//! deleted during the listing may be listed or not.

use std::io;

use rustix::fs::FileType;

use super::DirectoryMember;
use super::open_shelf::{NAMES_MAX, OpenShelf, is_regular};
use super::shelf::{Shelf, parse_first_byte};
use crate::ExtentKind;
use crate::watched::goes_on;
use pinstripe_base::error::{Error, Result};
use pinstripe_base::id::SetId;

impl DirectoryMember {
    /// Returns the extents of one directory with their lengths.
    pub(super) fn list_shelf(&self, shelf: &mut OpenShelf) -> io::Result<Vec<([u8; 16], u64)>> {
        each_extent(shelf, |shelf, id, _| {
            // `None` if it was deleted meanwhile.
            let stat = shelf.stat(&SetId(id).to_string())?.filter(is_regular);
            Ok(stat.map(|stat| (id, stat.st_size as u64)))
        })
    }

    /// Returns the names of the extents of one directory, without their lengths: a file is not
    /// accessed if the directory entry has its type.
    pub(super) fn names_in_shelf(&self, shelf: &mut OpenShelf) -> io::Result<Vec<[u8; 16]>> {
        each_extent(shelf, |shelf, id, kind| {
            let is_file = match kind {
                FileType::RegularFile => true,
                FileType::Unknown => {
                    shelf.stat(&SetId(id).to_string())?.is_some_and(|stat| is_regular(&stat))
                }
                _ => false,
            };
            Ok(is_file.then_some(id))
        })
    }

    /// Visits the directories of packs in order; `list` returns the entries of one such directory.
    fn each_of_packs<T>(
        &self,
        packs: &mut OpenShelf,
        list: impl Fn(&mut OpenShelf) -> io::Result<Vec<T>>,
        id: impl Fn(&T) -> &[u8; 16],
    ) -> io::Result<Vec<T>> {
        let mut found = Vec::new();
        for first in packs.names()?.iter().filter_map(|name| parse_first_byte(name)) {
            let mut shelf = match self.tree.shelf(Shelf::Packs(first)) {
                Ok(shelf) => shelf,
                // Foreign, or deleted meanwhile.
                Err(error) if is_absent_or_no_directory(&error) => continue,
                Err(error) => return Err(error),
            };
            found.extend(list(&mut shelf)?.into_iter().filter(|one| id(one)[0] == first));
            if found.len() > NAMES_MAX {
                return Err(io::Error::other(
                    "this directory of a member lists more extents than a member can have",
                ));
            }
        }
        Ok(found)
    }

    /// Returns the entries of a kind; `list` returns those of one directory.
    pub(super) fn in_room<T>(
        &self,
        kind: ExtentKind,
        list: impl Fn(&mut OpenShelf) -> io::Result<Vec<T>>,
        id: impl Fn(&T) -> &[u8; 16],
    ) -> Result<Vec<T>> {
        let shelf = Shelf::Kind(kind);
        let listed = match self.tree.shelf(shelf) {
            Ok(mut opened) if kind == ExtentKind::Packs => {
                self.each_of_packs(&mut opened, list, id)
            }
            Ok(mut opened) => list(&mut opened),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        listed.map_err(|error| Error::io("cannot list", self.tree.path_of(shelf), error))
    }
}

/// Calls `found` for every name of a directory that can be an extent's, and returns the results.
/// `found` also gets the type in the directory entry.
fn each_extent<T>(
    shelf: &mut OpenShelf,
    found: impl Fn(&OpenShelf, [u8; 16], FileType) -> io::Result<Option<T>>,
) -> io::Result<Vec<T>> {
    let mut all = Vec::new();
    for (id, kind) in shelf.extents(NAMES_MAX)? {
        goes_on();
        all.extend(found(shelf, id, kind)?);
    }
    Ok(all)
}

fn is_absent_or_no_directory(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}
