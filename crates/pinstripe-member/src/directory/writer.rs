//! An extent that is written in `tmp/` until it is complete.
//!
//! Order of a seal: sync the file, verify its length, give it its name, sync the directory. A
//! writer that has failed once refuses every later call; dropping a writer removes its temp file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::handles::Handles;
use super::open_shelf::OpenShelf;
use super::shelf::{Shelf, leaf};
use super::tree::{Temp, Tree};
use crate::{ExtentName, ExtentWriter, Replace};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::MIB;

/// The number of bytes after which the kernel is asked to begin writing them out, so that the last
/// sync is short and the disk does not idle while a pack is built.
const WRITEBACK_BYTES: u64 = 8 * MIB;

pub(super) struct DirectoryWriter {
    tree: Tree,
    handles: Arc<Handles>,
    name: ExtentName,
    replace: Replace,
    temp: Temp,
    /// The number of bytes appended, and the offset up to which writeback was begun.
    len: u64,
    writeback: u64,
    state: WriterState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WriterState {
    /// Appending.
    Open,
    /// An operation failed: the bytes in the temp file may differ from the appended ones.
    Failed,
    /// The temp file has its final name.
    Placed,
}

impl DirectoryWriter {
    pub fn new(
        tree: &Tree,
        handles: &Arc<Handles>,
        name: ExtentName,
        replace: Replace,
    ) -> Result<Self> {
        let temp = match tree.create_temp() {
            Err(error) if error.kind() == Kind::NoSpace && gives_reserve(tree, name) => {
                tree.create_temp()?
            }
            created => created?,
        };
        Ok(DirectoryWriter {
            tree: tree.clone(),
            handles: handles.clone(),
            name,
            replace,
            temp,
            len: 0,
            writeback: 0,
            state: WriterState::Open,
        })
    }

    fn target(&self) -> PathBuf {
        self.tree.path().join(self.name.path())
    }

    fn failed(&self, what: &str, error: io::Error) -> Error {
        if error.kind() == io::ErrorKind::NotFound {
            let what = format!("{what}: the member's directory no longer exists");
            return Error::new(Kind::Io, what).at(self.target());
        }
        let error = Error::io(what, self.target(), error);
        match error.kind() {
            Kind::NoSpace => error.advice(
                "free space with 'pinstripe forget' and 'pinstripe gc', which also work on a full \
                 disk, or move the member to a larger disk with 'pinstripe member replace'; \
                 'pinstripe members' shows the number of the member",
            ),
            Kind::Io => error.advice(
                "look for messages about this disk in the system log (dmesg); extents that were \
                 finished before are not affected",
            ),
            _ => error,
        }
    }

    fn ensure_open(&self) -> Result<()> {
        match self.state {
            WriterState::Open => Ok(()),
            _ => Err(Error::new(
                Kind::Io,
                "an earlier write to this extent failed, so the extent must be written again from \
                 its beginning",
            )
            .at(self.target())),
        }
    }

    /// Starts writeback of the bytes appended since the last call. Starting writeback is only a
    /// hint: the sync reports failures.
    fn start_writeback(&mut self) {
        if self.len - self.writeback >= WRITEBACK_BYTES {
            begin_writeback(&self.temp.file, self.writeback, self.len - self.writeback);
            self.writeback = self.len;
        }
    }

    fn make_durable(&self) -> Result<()> {
        self.tree.sync_file(&self.temp).map_err(|error| {
            self.failed(
                "cannot make the written bytes durable; the bytes must be written again",
                error,
            )
        })?;
        let found = self.temp.file.metadata().map_err(|error| {
            self.failed("cannot verify the length of the written extent", error)
        })?;
        if found.len() != self.len {
            return Err(Error::corrupt("the written extent has the wrong length", self.target())
                .expected(self.len, found.len()));
        }
        Ok(())
    }

    fn place(&self, shelf: &OpenShelf) -> Result<()> {
        self.tree.place(&self.temp, shelf, &leaf(self.name), self.replace).map_err(|error| {
            match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    Error::new(Kind::Exists, "exists already").at(self.target())
                }
                _ => self.failed("cannot rename the extent to its final name", error),
            }
        })
    }

    /// Removes the name of an extent whose seal failed because the name could not be made durable:
    /// such an extent must not be visible. An extent that replaced another one stays, because it is
    /// complete and the old one is gone.
    fn withdraw(&self, shelf: &OpenShelf) {
        let leaf = leaf(self.name);
        if self.replace == Replace::Never && shelf.holds(&leaf, &self.temp.file).unwrap_or(false) {
            // The seal fails either way, and the first error is the one to report.
            let _ = self.tree.unlink(shelf, &leaf);
        }
    }
}

impl ExtentWriter for DirectoryWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.ensure_open()?;
        let written = match self.tree.write(&self.temp, self.len, bytes) {
            Err(error)
                if error.kind() == io::ErrorKind::StorageFull
                    && gives_reserve(&self.tree, self.name) =>
            {
                self.tree.write(&self.temp, self.len, bytes)
            }
            written => written,
        };
        if let Err(error) = written {
            self.state = WriterState::Failed;
            return Err(self.failed("cannot write", error));
        }
        self.len += bytes.len() as u64;
        self.start_writeback();
        Ok(())
    }

    fn seal(mut self: Box<Self>) -> Result<()> {
        self.ensure_open()?;
        self.make_durable()?;
        let shelf = self
            .tree
            .shelf_for_writing(Shelf::for_name(self.name))
            .map_err(|error| self.failed("cannot open the directory of the extent", error))?;
        self.place(&shelf)?;
        self.state = WriterState::Placed;
        let synced = self.tree.sync_shelf(&shelf).map_err(|error| {
            self.withdraw(&shelf);
            self.failed("cannot make the directory entry of the extent durable", error)
        });
        self.handles.forget(self.name);
        synced
    }
}

impl Drop for DirectoryWriter {
    fn drop(&mut self) {
        if self.state != WriterState::Placed {
            // The sweep removes a file that cannot be removed now.
            let _ = self.tree.discard(&self.temp);
        }
    }
}

/// Releases the reserve of the member, if the object `name` may use it. Returns false if there is
/// no reserve.
fn gives_reserve(tree: &Tree, name: ExtentName) -> bool {
    name.may_use_reserve() && tree.give_reserve()
}

/// Requests writeback of a range, without waiting for it.
fn begin_writeback(file: &std::fs::File, offset: u64, len: u64) {
    use std::os::fd::AsRawFd;
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and the call touches no
    // memory of this process. Its result is a hint's result: file systems without it say so.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE);
    }
}
