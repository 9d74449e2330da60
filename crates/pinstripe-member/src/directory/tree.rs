//! The system calls of a directory member, all relative to one open directory descriptor.
//!
//! Invariants: no call follows a symlink below the root. Every call that changes the disk passes
//! the [`Steps`]. The directory entry of an extent's shelf is durable before a seal relies on it. A
//! sync that failed is reported and never repeated on the same file.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, retry_on_intr};

use super::open_shelf::OpenShelf;
use super::shelf::{Shelf, parse_leaf};
use crate::{DiskStep, Replace, Steps};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{self, SetId};
use pinstripe_io::descriptors::patiently;

/// Only the owner gets access: a store may hold names and content of every user's files.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The number of random names that are tried for a temp file. One name is enough unless a sweep
/// runs at the same moment.
const TEMP_ATTEMPTS: usize = 16;

/// A member's directory. Cheap to clone; each writer keeps a clone.
#[derive(Clone)]
pub(super) struct Tree {
    core: Arc<Core>,
    steps: Option<Arc<dyn Steps>>,
}

struct Core {
    root: OwnedFd,
    path: PathBuf,
    /// The shelves whose directory entry is known to be durable in the parent.
    durable: [AtomicBool; Shelf::COUNT],
}

/// A file in `tmp/`, locked by its writer.
pub(super) struct Temp {
    shelf: OpenShelf,
    leaf: String,
    pub file: File,
    pub path: PathBuf,
}

const OPEN_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Tree {
    /// Opens the member's own directory. Only the path of the member itself may contain symlinks.
    pub fn open(path: &Path, steps: Option<Arc<dyn Steps>>) -> io::Result<Tree> {
        let root = patiently(|| {
            let flags = OPEN_DIRECTORY.difference(OFlags::NOFOLLOW);
            retry_on_intr(|| fs::open(path, flags, Mode::empty()))
        })?;
        let durable = std::array::from_fn(|_| AtomicBool::new(false));
        let tree = Tree { core: Arc::new(Core { root, path: path.to_path_buf(), durable }), steps };
        tree.mark_durable(Shelf::Root);
        // Rooms were made durable before the member got its label. `packs/ab` may come from a
        // process that was killed before it synced.
        for shelf in Shelf::FIXED {
            if tree.stat_shelf(shelf)? {
                tree.mark_durable(shelf);
            }
        }
        Ok(tree)
    }

    /// Returns the same tree; every change of the disk then passes `steps`.
    pub fn with_steps(self, steps: Arc<dyn Steps>) -> Tree {
        Tree { core: self.core, steps: Some(steps) }
    }

    /// The member's path as it was given.
    pub fn path(&self) -> &Path {
        &self.core.path
    }

    /// The member's own directory.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.core.root.as_fd()
    }

    /// The full path of a shelf.
    pub(crate) fn path_of(&self, shelf: Shelf) -> PathBuf {
        match shelf {
            Shelf::Root => self.core.path.clone(),
            _ => self.core.path.join(shelf.path()),
        }
    }

    /// The number of bytes that may still be written, if a test limits them.
    pub fn free_bytes(&self) -> Option<u64> {
        self.steps.as_ref().and_then(|steps| steps.free_bytes(&self.core.path))
    }

    fn change(
        &self,
        step: DiskStep<'_>,
        mut act: impl FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        match &self.steps {
            None => act(),
            Some(steps) => steps.take(&step, &mut act),
        }
    }

    fn change_giving<T>(
        &self,
        step: DiskStep<'_>,
        mut act: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let mut made = None;
        self.change(step, || {
            made = Some(act()?);
            Ok(())
        })?;
        made.ok_or_else(|| {
            io::Error::other("a simulated fault skipped a step whose result is needed")
        })
    }

    fn mark_durable(&self, shelf: Shelf) {
        self.core.durable[shelf.number()].store(true, Ordering::Release);
    }

    fn stat_shelf(&self, shelf: Shelf) -> io::Result<bool> {
        match fs::statat(self.root(), shelf.path(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a shelf. Every component of the path is opened on its own, so none can be a symlink.
    pub fn shelf(&self, shelf: Shelf) -> io::Result<OpenShelf> {
        let open = |parent: BorrowedFd<'_>, name: &str| {
            patiently(|| retry_on_intr(|| fs::openat(parent, name, OPEN_DIRECTORY, Mode::empty())))
        };
        let fd = match shelf.parent() {
            None => open(self.root(), ".")?,
            Some((Shelf::Root, name)) => open(self.root(), &name)?,
            Some((parent, name)) => open(self.shelf(parent)?.fd.as_fd(), &name)?,
        };
        Ok(OpenShelf { shelf, fd })
    }

    /// Opens a shelf, creates it if it is missing, and ensures that its directory entry survives a
    /// power cut.
    ///
    /// The parent is synced at the first use of a shelf in this process even if the shelf exists:
    /// the process that created it may not have synced the parent yet.
    pub(crate) fn shelf_for_writing(&self, shelf: Shelf) -> io::Result<OpenShelf> {
        let opened = match self.shelf(shelf) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_shelf(shelf)?;
                self.shelf(shelf)?
            }
            other => other?,
        };
        // Temp files need not survive a power cut.
        if shelf != Shelf::Tmp && !self.core.durable[shelf.number()].load(Ordering::Acquire) {
            if let Some((parent, _)) = shelf.parent() {
                self.sync_shelf(&self.shelf_for_writing(parent)?)?;
            }
            self.mark_durable(shelf);
        }
        Ok(opened)
    }

    /// Creates a shelf's directory, and its parents as needed. A directory that exists already is
    /// not an error.
    pub(crate) fn make_shelf(&self, shelf: Shelf) -> io::Result<()> {
        let Some((parent, name)) = shelf.parent() else { return Ok(()) };
        let parent = self.shelf_for_writing(parent)?;
        let path = self.path_of(shelf);
        let made = self.change(DiskStep::MakeDirectory(&path), || {
            Ok(fs::mkdirat(&parent.fd, &name, Mode::from_raw_mode(DIRECTORY_MODE))?)
        });
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                self.core.durable[shelf.number()].store(false, Ordering::Release);
                Ok(())
            }
        }
    }

    /// Makes the entries of a shelf durable.
    pub(crate) fn sync_shelf(&self, shelf: &OpenShelf) -> io::Result<()> {
        self.change(DiskStep::SyncDirectory(&self.path_of(shelf.shelf)), || {
            Ok(fs::fsync(&shelf.fd)?)
        })
    }

    /// Makes the directory entry of the member durable in its parent, if the parent can be opened.
    pub(crate) fn sync_parent(&self) -> io::Result<()> {
        let flags = OPEN_DIRECTORY;
        let parent = match patiently(|| fs::openat(self.root(), "..", flags, Mode::empty())) {
            Err(Errno::ACCESS) => return Ok(()),
            other => other?,
        };
        self.change(DiskStep::SyncDirectory(&self.core.path.join("..")), || Ok(fs::fsync(&parent)?))
    }

    /// Makes a file's bytes durable. Call it only once for a file: after a failure the kernel may
    /// have dropped the bytes, and a second call would wrongly succeed.
    pub(crate) fn sync_file(&self, temp: &Temp) -> io::Result<()> {
        self.change(DiskStep::SyncFile(&temp.path), || Ok(fs::fsync(&temp.file)?))
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write(&self, temp: &Temp, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let step = DiskStep::Write { path: &temp.path, offset, len: bytes.len() };
            match self.change_giving(step, || temp.file.write_at(bytes, offset)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    bytes = &bytes[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Creates a new, empty, locked file in `tmp/`. The lock protects it from sweeps; on a file
    /// system without locks a sweep removes nothing.
    pub(crate) fn create_temp(&self) -> Result<Temp> {
        let place = self.path_of(Shelf::Tmp);
        let failed = |error: io::Error| match error.kind() {
            // `NotFound` is for extents; here the member itself has failed.
            io::ErrorKind::NotFound => {
                Error::new(Kind::Io, "the member's directory no longer exists").at(&place)
            }
            _ => Error::io("cannot create a temporary file", &place, error),
        };
        for _ in 0..TEMP_ATTEMPTS {
            let shelf = self.shelf_for_writing(Shelf::Tmp).map_err(failed)?;
            let leaf = SetId(id::random()?).to_string();
            let path = place.join(&leaf);
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(FILE_MODE);
            let file = self.change_giving(DiskStep::Create(&path), || {
                Ok(patiently(|| retry_on_intr(|| fs::openat(&shelf.fd, &leaf, flags, mode)))?)
            });
            let file = File::from(file.map_err(failed)?);
            // Between create and lock a sweep may have removed the file as a leftover.
            let swept = match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => fs::fstat(&file).map_err(|error| failed(error.into()))?.st_nlink == 0,
                Err(Errno::WOULDBLOCK) => true,
                Err(_) => false,
            };
            if !swept {
                return Ok(Temp { shelf, leaf, file, path });
            }
        }
        Err(Error::new(Kind::Io, "another process removed each new temporary file immediately")
            .at(place))
    }

    /// Moves a finished temp file to its name. `Replace::Never` fails with `AlreadyExists` if the
    /// name is taken.
    pub fn place(
        &self,
        temp: &Temp,
        shelf: &OpenShelf,
        leaf: &str,
        replace: Replace,
    ) -> io::Result<()> {
        let from = &temp.shelf.fd;
        let to = self.path_of(shelf.shelf).join(leaf);
        let flags = match replace {
            Replace::Never => RenameFlags::NOREPLACE,
            Replace::Allowed => RenameFlags::empty(),
        };
        let mut linked = false;
        self.change(DiskStep::Rename { from: &temp.path, to: &to }, || {
            match fs::renameat_with(from, &temp.leaf, &shelf.fd, leaf, flags) {
                // File systems without this flag (NFS, some FUSE) have hard links instead.
                Err(Errno::INVAL | Errno::NOSYS) if replace == Replace::Never => {
                    link_into_place(temp, shelf, leaf)?;
                    linked = true;
                    Ok(())
                }
                other => Ok(other?),
            }
        })?;
        if linked {
            // The extent has its name; a sweep removes a temp name that stays.
            let _ = self.discard(temp);
        }
        Ok(())
    }

    /// Removes an unfinished temp file.
    pub fn discard(&self, temp: &Temp) -> io::Result<()> {
        self.unlink(&temp.shelf, &temp.leaf)
    }

    /// Removes a file from a shelf.
    pub fn unlink(&self, shelf: &OpenShelf, leaf: &str) -> io::Result<()> {
        let path = self.path_of(shelf.shelf).join(leaf);
        self.change(DiskStep::Unlink(&path), || {
            Ok(fs::unlinkat(&shelf.fd, leaf, AtFlags::empty())?)
        })
    }

    /// Removes files of killed writers in `tmp/`. Returns their number.
    pub fn sweep(&self) -> io::Result<u64> {
        let mut shelf = match self.shelf(Shelf::Tmp) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            other => other?,
        };
        let mut swept = 0;
        for name in shelf.names()? {
            let Some(id) = parse_leaf(&name) else { continue };
            let leaf = SetId(id).to_string();
            // A writer that holds the lock is running. Our own open file is closed only at the end
            // of the loop body, so a writer between its create and its lock notices our lock or the
            // removal.
            let Some(file) = shelf.open_file(&leaf, OFlags::RDWR)? else { continue };
            if fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            match self.unlink(&shelf, &leaf) {
                Ok(()) => swept += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(swept)
    }
}

/// Hard-links a temp file to its final name, if that name is free.
pub(super) fn link_into_place(temp: &Temp, shelf: &OpenShelf, leaf: &str) -> io::Result<()> {
    match fs::linkat(&temp.shelf.fd, &temp.leaf, &shelf.fd, leaf, AtFlags::empty()) {
        Ok(()) => Ok(()),
        // Over a network the answer to a successful link may be lost; the repeated call then finds
        // our own link under the name.
        Err(Errno::EXIST) if shelf.holds(leaf, &temp.file)? => Ok(()),
        Err(error) => Err(error.into()),
    }
}
