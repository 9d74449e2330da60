//! A member that is a local directory.
//!
//! Layout: the label `pinstripe.member`, the directories `packs/ab/…`, `index/`, `snapshots/`, `keys/`
//! and others, and `tmp/`, where extents grow. Invariants: a file gets its final name only when its
//! bytes are durable, and a seal returns only when that name is durable too. Nothing below the
//! directory is reached through a symlink. Foreign files are skipped and never touched. A kind
//! whose directory is missing reads as empty. Nothing is overwritten in place.

#![allow(
    clippy::disallowed_methods,
    reason = "this module uses files, because a member is a directory"
)]

mod handles;
mod listing;
mod open_shelf;
mod reserve;
pub(crate) use reserve::NAME as RESERVE;
mod shelf;
mod tree;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use self::handles::Handles;
use self::open_shelf::{OpenShelf, is_regular};
use self::shelf::{Shelf, leaf, parse_leaf};
use self::tree::Tree;
use self::writer::DirectoryWriter;
use crate::watched::goes_on;
use crate::{
    BatchedMember, Caps, ExtentKind, ExtentName, ExtentWriter, KeptLonger, Member, PlannedStep,
    PrefetchHint, Replace, ServerOfMember, Steps, expect_short, span_of,
};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;

/// The name of the directory that a new file system has at its top.
const FILE_SYSTEM_OWN: &[u8] = b"lost+found";

/// A member in a local directory.
pub struct DirectoryMember {
    tree: Tree,
    handles: Arc<Handles>,
    unsynced: Mutex<Unsynced>,
    /// Reading some file has changed its access time, because `O_NOATIME` was refused. Updating
    /// access times may wait for the disk.
    notes_access: AtomicBool,
}

/// What the next [`Member::sync`] has to do.
#[derive(Default)]
struct Unsynced {
    /// Shelves with a deletion that may not survive a power cut, each with the time of its last
    /// deletion.
    shelves: BTreeMap<Shelf, u64>,
    clock: u64,
    /// The first failure. The first failure of a sync is kept, because a second sync of the same
    /// directory could wrongly succeed.
    failed: Option<Error>,
}

impl DirectoryMember {
    /// Opens an existing directory.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] if it is missing, or [`Kind::Usage`] if it is not a directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path.as_ref(), None)
    }

    /// Makes an empty directory into a member: creates the directory if it is missing (but not its
    /// parent), and a directory for each kind. Empty directories are allowed in it: they are the remains of an
    /// attempt that failed early. Every change of the disk passes `steps`, except the creation of
    /// the directory itself.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] if the directory is not empty; the error names the first
    /// foreign file.
    pub(crate) fn create_in_with(path: &Path, steps: Option<Arc<dyn Steps>>) -> Result<Self> {
        match rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => {
                return Err(Error::io("cannot create the member's directory", path, error).advice(
                    "check whether the disk is mounted, and create the parent directory of the \
                     member",
                ));
            }
        }
        let member = Self::open_with(path, steps.clone())?;
        member.ensure_empty()?;
        // Without room for it the member can be used, though not when its disk is full.
        let _ = member.tree.keep_reserve();
        let made = Shelf::FIXED
            .into_iter()
            .try_for_each(|shelf| member.tree.make_shelf(shelf))
            .and_then(|()| member.tree.sync_shelf(&member.tree.shelf(Shelf::Root)?))
            .and_then(|()| member.tree.sync_parent());
        made.map_err(|error| Error::io("cannot create the member's subdirectories", path, error))?;
        // Opened again: only now are the directories known to be durable.
        Self::open_with(path, steps)
    }

    #[cfg(test)]
    pub(crate) fn create_in(path: impl AsRef<Path>) -> Result<Self> {
        Self::create_in_with(path.as_ref(), None)
    }

    /// Returns the same member; every change of the disk then passes `steps`.
    #[must_use]
    pub(crate) fn with_steps(self, steps: Arc<dyn Steps>) -> Self {
        DirectoryMember { tree: self.tree.with_steps(steps), ..self }
    }

    /// Removes files in `tmp/` whose writers were killed. Returns their number. The sweep is safe
    /// while other processes write: a file that its writer still holds locked is not removed.
    ///
    /// # Errors
    /// Fails with [`Kind::Io`] when `tmp/` cannot be read or a leftover cannot be removed.
    pub(crate) fn sweep_tmp(&self) -> Result<u64> {
        self.tree.sweep().map_err(|error| {
            Error::io(
                "cannot remove temporary files of killed processes",
                self.tree.path_of(Shelf::Tmp),
                error,
            )
        })
    }

    fn open_with(path: &Path, steps: Option<Arc<dyn Steps>>) -> Result<Self> {
        let tree = Tree::open(path, steps).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::io("this directory does not exist", path, error),
            io::ErrorKind::NotADirectory => {
                Error::new(Kind::Usage, "a member must be a directory").at(path)
            }
            _ => Error::io("cannot open the member's directory", path, error),
        })?;
        let (unsynced, notes_access) = Default::default();
        Ok(DirectoryMember { tree, handles: Handles::new(), unsynced, notes_access })
    }

    fn ensure_empty(&self) -> Result<()> {
        let place = self.place();
        let strange = self
            .first_stranger()
            .map_err(|error| Error::io("cannot list the directory", place, error))?;
        let Some(strange) = strange else { return Ok(()) };
        let advice = if strange == ExtentName::Label.path() {
            "this directory is or was a member of a store: give another directory, or empty this \
             one if nothing in it is needed"
        } else {
            "give an empty directory, or a new directory below this one"
        };
        Err(Error::new(Kind::Refused, "the directory is not empty")
            .at(place)
            .expected("an empty directory", format!("'{strange}'"))
            .advice(advice))
    }

    /// Returns the first name in the directory that a new member may not contain.
    fn first_stranger(&self) -> io::Result<Option<String>> {
        let fixed =
            |name: &[u8]| Shelf::FIXED.into_iter().find(|shelf| shelf.path().as_bytes() == name);
        for name in self.tree.shelf(Shelf::Root)?.names()? {
            let text = String::from_utf8_lossy(&name).into_owned();
            let is_reserve = |it: &str| name == it.as_bytes();
            if name == FILE_SYSTEM_OWN
                || [reserve::NAME, reserve::INODES].into_iter().any(is_reserve)
            {
                continue;
            }
            let Some(shelf) = fixed(&name) else { return Ok(Some(text)) };
            let inside = match self.tree.shelf(shelf) {
                Ok(mut opened) => opened.names()?,
                Err(_) => return Ok(Some(text)),
            };
            let leftover = |inner: &Vec<u8>| shelf == Shelf::Tmp && parse_leaf(inner).is_some();
            if let Some(inner) = inside.into_iter().find(|inner| !leftover(inner)) {
                return Ok(Some(format!("{text}/{}", String::from_utf8_lossy(&inner))));
            }
        }
        Ok(None)
    }

    fn failed(&self, what: &str, name: ExtentName, error: io::Error) -> Error {
        Error::io(what, self.tree.path().join(name.path()), error)
    }

    fn missing(&self, name: ExtentName) -> Error {
        Error::new(Kind::NotFound, "this extent does not exist")
            .at(self.tree.path().join(name.path()))
    }

    /// Returns the shelf of an extent, if it exists.
    fn shelf_of(&self, name: ExtentName) -> Result<OpenShelf> {
        match self.tree.shelf(Shelf::for_name(name)) {
            Ok(shelf) => Ok(shelf),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.missing(name)),
            Err(error) => Err(self.failed("cannot open the extent's directory", name, error)),
        }
    }

    fn open_extent(&self, name: ExtentName) -> Result<File> {
        let shelf = self.shelf_of(name)?;
        let open = |access| shelf.open_file(&leaf(name), access);
        let opened = match open(OFlags::RDONLY | OFlags::NOATIME) {
            // Only the owner of a file may open it with `O_NOATIME`.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.notes_access.store(true, Ordering::Relaxed);
                open(OFlags::RDONLY)
            }
            opened => opened,
        };
        match opened.map_err(|error| self.failed("cannot open", name, error))? {
            Some(file) => Ok(file),
            // Missing, or not a regular file: `len` distinguishes them.
            None => Err(self.len(name).map_or_else(|error| error, |_| self.missing(name))),
        }
    }

    /// The open extent. The label is opened each time, because repair may replace it.
    fn handle(&self, name: ExtentName) -> Result<Arc<File>> {
        match self.handles.get(name) {
            Ok(file) => Ok(file),
            Err(epoch) => {
                let file = Arc::new(self.open_extent(name)?);
                if name != ExtentName::Label {
                    self.handles.keep(name, file.clone(), epoch);
                }
                Ok(file)
            }
        }
    }

    fn too_short(&self, name: ExtentName, file: &File, offset: u64, wanted: usize) -> Error {
        let found = file.metadata().map_or_else(|_| "less".to_owned(), |it| it.len().to_string());
        let end = u128::from(offset) + wanted as u128;
        Error::corrupt("the extent is too short", self.tree.path().join(name.path()))
            .expected(format!("an extent of {end} bytes or more"), found)
    }

    fn put_once(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        let mut writer = self.create(name, Replace::Never)?;
        writer.append(bytes)?;
        writer.seal()
    }

    fn unsynced(&self) -> MutexGuard<'_, Unsynced> {
        lock(&self.unsynced)
    }
}

impl Member for DirectoryMember {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        Ok(Box::new(DirectoryWriter::new(&self.tree, &self.handles, name, replace)?))
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        match self.put_once(name, bytes) {
            Err(error)
                if error.kind() == Kind::NoSpace
                    && name.may_use_reserve()
                    && self.tree.give_reserve() =>
            {
                self.put_once(name, bytes)
            }
            put => put,
        }
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        let file = self.handle(name)?;
        file.read_exact_at(buf, offset).map_err(|error| match error.kind() {
            // The system returns the second for offsets beyond 2^63.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => {
                self.too_short(name, &file, offset, buf.len())
            }
            _ => self.failed("cannot read", name, error),
        })
    }

    /// Reads only files that are open already, and only on file systems that can report what is in
    /// memory.
    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
        // The system call takes 2^64 - 1 for the descriptor's own position.
        if self.notes_access.load(Ordering::Relaxed) || i64::try_from(offset).is_err() {
            return false;
        }
        let Ok(file) = self.handles.get(name) else { return false };
        let wanted = buf.len();
        let mut bufs = [io::IoSliceMut::new(buf)];
        rustix::io::preadv2(&*file, &mut bufs, offset, ReadWriteFlags::NOWAIT)
            .is_ok_and(|read| read == wanted)
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        let stat = self
            .shelf_of(name)?
            .stat(&leaf(name))
            .map_err(|error| self.failed("cannot stat", name, error))?
            .ok_or_else(|| self.missing(name))?;
        if !is_regular(&stat) {
            let place = self.tree.path().join(name.path());
            return Err(Error::corrupt("the extent is not a regular file", place));
        }
        Ok(stat.st_size as u64)
    }

    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        self.in_room(kind, |shelf| self.list_shelf(shelf), |(id, _)| id)
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        let shelf = match self.shelf_of(name) {
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            other => other?,
        };
        let unlinked = self.tree.unlink(&shelf, &leaf(name));
        self.handles.forget(name);
        match unlinked {
            Ok(()) => {
                self.unsynced().note(Shelf::for_name(name));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.failed("cannot delete", name, error)),
        }
    }

    fn sync(&self) -> Result<()> {
        let shelves = {
            let unsynced = self.unsynced();
            if let Some(error) = &unsynced.failed {
                return Err(error.duplicate());
            }
            unsynced.shelves.clone()
        };
        for (shelf, noted) in shelves {
            let synced = self.tree.shelf(shelf).and_then(|opened| self.tree.sync_shelf(&opened));
            let mut unsynced = self.unsynced();
            match synced {
                Ok(()) => unsynced.settle(shelf, noted),
                Err(error) => {
                    let place = self.tree.path_of(shelf);
                    let error = match error.kind() {
                        // As for what cannot be written there: this member fails.
                        io::ErrorKind::NotFound => {
                            Error::new(Kind::Io, "the member's directory no longer exists")
                                .at(place)
                        }
                        _ => Error::io("cannot make the deletions durable", place, error),
                    };
                    unsynced.failed.get_or_insert_with(|| error.duplicate());
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn sweep(&self) -> Result<u64> {
        let swept = self.sweep_tmp();
        // If there is no room for it now, a later sweep makes it.
        let _ = self.tree.keep_reserve();
        swept
    }

    fn caps(&self) -> Caps {
        let root = self.tree.root();
        let space = rustix::fs::fstatvfs(root).ok();
        let free_bytes = space.as_ref().and_then(pinstripe_io::mounts::free_bytes);
        let free_bytes = self.tree.free_bytes().or(free_bytes);
        Caps {
            device: rustix::fs::fstat(root).ok().map(|stat| stat.st_dev),
            free_bytes,
            is_full: space.zip(free_bytes).is_some_and(|(it, free)| reserve::is_full(&it, free)),
            is_append_only: false,
            far: None,
        }
    }

    fn place(&self) -> &Path {
        self.tree.path()
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        Some(self)
    }
}

impl BatchedMember for DirectoryMember {
    fn put_ahead(&self, _: ExtentName, _: &[u8]) {}

    fn plan(&self, _: &[PlannedStep], _: usize) {}

    fn list_next(&self, _: PrefetchHint, _: bool) {}

    fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        span_of(self, name, offset, bytes)
    }

    /// Opens each file once, and keeps no file open.
    fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>> {
        let read = |name: &ExtentName| {
            goes_on();
            let file = self.open_extent(*name)?;
            let failed = |error| self.failed("cannot read", *name, error);
            let bytes = file.metadata().map_err(failed)?.len();
            let mut whole = vec![0; expect_short(bytes, most_bytes, self.tree.path(), *name)?];
            file.read_exact_at(&mut whole, 0).map_err(failed)?;
            Ok(whole)
        };
        names.iter().map(read).collect()
    }

    fn names(&self, kind: ExtentKind) -> Result<Vec<[u8; 16]>> {
        self.in_room(kind, |shelf| self.names_in_shelf(shelf), |id| id)
    }

    fn prefetch(&self, _: &[PrefetchHint]) {}

    fn open_ahead(&self, _: &[ExtentName]) {}

    fn keep_longer(&self, _: &[ExtentName]) -> Result<KeptLonger> {
        Ok(KeptLonger::default())
    }

    fn latency(&self) -> Option<Duration> {
        None
    }

    fn served(&self) -> Option<ServerOfMember> {
        None
    }
}

impl Unsynced {
    fn note(&mut self, shelf: Shelf) {
        self.clock += 1;
        self.shelves.insert(shelf, self.clock);
    }

    /// Removes a shelf from the list of unsynced ones after a sync that began at `noted`, unless a
    /// later deletion needs another sync.
    fn settle(&mut self, shelf: Shelf, noted: u64) {
        if self.shelves.get(&shelf) == Some(&noted) {
            self.shelves.remove(&shelf);
        }
    }
}
