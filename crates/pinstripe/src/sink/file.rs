//! One regular file being restored.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::retry_on_intr;

use super::Root;
use super::apply_metadata::{Handle, Unset};
use super::existing::Existing;
use pinstripe_base::error::{Error, Result};
use pinstripe_io::beneath::shown;
use pinstripe_member::meta::Metadata;

/// A file below the target, written in any order by any number of threads. Holds one descriptor.
/// If it may replace another file, it has a temporary name in the same directory until
/// [`finish`](Self::finish) renames it: under its own name there is never a partial file, however
/// this process ends. In a target that was empty it has its own name from the start, and its
/// modification time, which is set last, distinguishes a complete file from a partial one. A file
/// that is dropped before it is finished is removed.
///
/// Space is not reserved in advance, and nothing is synced unless the target is durable; an
/// ordinary small file costs six system calls in an empty target: openat2, pwrite, fstat,
/// futimens, fstat, close; in other targets nine, with openat2 and close for its directory, and
/// renameat2.
#[derive(Debug)]
pub struct FileSink {
    root: Arc<Root>,
    fd: OwnedFd,
    path: Box<[u8]>,
    /// The name of the file until it is finished: a temporary name, or `path` itself.
    made_as: Vec<u8>,
    size_bytes: u64,
    /// The end of the last byte written so far.
    end: AtomicU64,
    metadata: Metadata,
    finished: AtomicBool,
}

impl FileSink {
    pub(super) fn new(
        root: Arc<Root>,
        fd: OwnedFd,
        path: &[u8],
        made_as: Vec<u8>,
        size_bytes: u64,
        metadata: Metadata,
    ) -> Self {
        FileSink {
            root,
            fd,
            path: path.into(),
            made_as,
            size_bytes,
            end: AtomicU64::new(0),
            metadata,
            finished: AtomicBool::new(false),
        }
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) when the bytes reach
    /// beyond the file's size, with `NoSpace` on a full target, or with the error of the system.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.size_bytes);
        let Some(end) = end else {
            return Err(Error::corrupt("the file has content beyond its size", shown(&self.path))
                .expected(
                    format_args!(
                        "at most {}",
                        pinstripe_base::units::counted(self.size_bytes, "byte", "bytes")
                    ),
                    format_args!(
                        "{} at {offset}",
                        pinstripe_base::units::counted(bytes.len() as u64, "byte", "bytes")
                    ),
                ));
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let at = end - rest.len() as u64;
            let io = |errno| {
                Error::io(
                    format!("cannot write to the file at byte {at}"),
                    shown(&self.path),
                    errno,
                )
            };
            match retry_on_intr(|| rustix::io::pwrite(&self.fd, rest, at)).map_err(io)? {
                0 => return Err(io(rustix::io::Errno::IO)),
                written => rest = &rest[written..],
            }
        }
        self.end.fetch_max(end, Ordering::Relaxed);
        Ok(())
    }

    /// Copies ranges of the file that this one replaces, by cloning if the file system supports it.
    ///
    /// # Errors
    /// Fails with [`Kind::Changed`](pinstripe_base::error::Kind::Changed) when the replaced file
    /// was changed since it was opened, or with the error of the system.
    pub(crate) fn take_over(&self, existing: &Existing, ranges: &[Range<u64>]) -> Result<()> {
        existing.copy_to(self.fd.as_fd(), ranges)
    }

    /// Finishes the file once all of it is written: sets the size, then metadata, and the times
    /// last. A finished file is not removed when it is dropped.
    ///
    /// # Errors
    /// Fails with the errors of the system; the file is then removed when it is dropped. Metadata
    /// that could not be set is returned and is not an error.
    pub fn finish(&self) -> Result<Vec<Unset>> {
        if self.end.load(Ordering::Relaxed) < self.size_bytes {
            retry_on_intr(|| rustix::fs::ftruncate(&self.fd, self.size_bytes)).map_err(
                |errno| {
                    let what =
                        format!("cannot set the size of the file to {} bytes", self.size_bytes);
                    Error::io(what, shown(&self.path), errno)
                },
            )?;
        }
        let strip = self.root.inherits();
        let writer = self.root.metadata_writer(&self.path, &self.metadata, strip);
        let unset = writer.apply(Handle::Open(self.fd.as_fd()))?;
        if self.root.rules.durable {
            // Before the rename: the name must not be durable earlier than the content.
            rustix::fs::fsync(&self.fd).map_err(|errno| {
                Error::io("cannot make the file durable", shown(&self.path), errno)
            })?;
        }
        if self.made_as != *self.path {
            self.root.put_in_place(&self.made_as, &self.path)?;
        }
        self.finished.store(true, Ordering::Relaxed);
        Ok(unset)
    }

    /// The path of the file below the target.
    pub fn path(&self) -> &[u8] {
        &self.path
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if !*self.finished.get_mut() {
            // The failure that led here is already being reported; this one cannot be.
            if let Ok(parent) = self.root.parent(&self.made_as) {
                let _ = parent.clear(&self.made_as);
            }
        }
    }
}
