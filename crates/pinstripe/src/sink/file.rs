//! One regular file being restored.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::retry_on_intr;

use super::Root;
use super::dress::{Dress, Handle, Unset};
use crate::beneath::shown;
use crate::error::{Error, Result};
use crate::format::meta::Metadata;

/// A file below the target, written in any order by any number of threads. Holds one descriptor.
/// Dropped without [`finish`](Self::finish), it is removed: no half a file keeps a name.
///
/// Space is not reserved ahead and nothing is synced; an ordinary small file costs five system
/// calls: openat2, pwrite, fstat, futimens, close.
#[derive(Debug)]
pub struct FileSink {
    root: Arc<Root>,
    fd: OwnedFd,
    path: Box<[u8]>,
    /// The name beside `path` that it has until it is finished, where `path` is taken.
    made_as: Option<Vec<u8>>,
    size_bytes: u64,
    /// The end of the last byte written so far.
    end: AtomicU64,
    metadata: Metadata,
    finished: bool,
}

impl FileSink {
    pub(super) fn new(
        root: Arc<Root>,
        fd: OwnedFd,
        path: &[u8],
        made_as: Option<Vec<u8>>,
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
            finished: false,
        }
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// [`Kind::Corrupt`](crate::error::Kind::Corrupt) when they reach beyond the file's size,
    /// `NoSpace` on a full target, otherwise as the system says.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.size_bytes);
        let Some(end) = end else {
            return Err(Error::corrupt("has content beyond its own size", shown(&self.path))
                .expected(
                    format_args!("at most {} bytes", self.size_bytes),
                    format_args!("{} bytes at {offset}", bytes.len()),
                ));
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let at = end - rest.len() as u64;
            let io =
                |errno| Error::io(format!("cannot write at byte {at}"), shown(&self.path), errno);
            match retry_on_intr(|| rustix::io::pwrite(&self.fd, rest, at)).map_err(io)? {
                0 => return Err(io(rustix::io::Errno::IO)),
                written => rest = &rest[written..],
            }
        }
        self.end.fetch_max(end, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the file: its size, then its metadata, times last. From here on it stays.
    ///
    /// # Errors
    /// As the system says; the file is then removed. What it could not be given is no error but
    /// returned.
    pub fn finish(mut self) -> Result<Vec<Unset>> {
        if self.end.load(Ordering::Relaxed) < self.size_bytes {
            retry_on_intr(|| rustix::fs::ftruncate(&self.fd, self.size_bytes)).map_err(
                |errno| {
                    let what = format!("cannot set its size to {} bytes", self.size_bytes);
                    Error::io(what, shown(&self.path), errno)
                },
            )?;
        }
        let strip = self.root.inherits();
        let dress = Dress { path: &self.path, metadata: &self.metadata, strip };
        let unset = dress.put_on(Handle::Open(self.fd.as_fd()))?;
        if let Some(made_as) = &self.made_as {
            self.root.replace(made_as, &self.path)?;
        }
        self.finished = true;
        Ok(unset)
    }

    /// The path below the target.
    pub fn path(&self) -> &[u8] {
        &self.path
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if !self.finished {
            // The failure that led here is already being reported; this one cannot be.
            let made_as = self.made_as.as_deref().unwrap_or(&self.path);
            if let Ok(parent) = self.root.parent(made_as) {
                let _ = parent.clear(made_as);
            }
        }
    }
}
