//! The mark file at the top of a target that was empty: it says that a restore into the target is
//! in progress, or was interrupted.
//!
//! Invariants: the mark file is made before the first file, and removed when all files are complete
//! and have their metadata. The name of the mark file is random, so that no entry of a snapshot can
//! have the same name. The text in the mark file identifies the restore: when the same restore is
//! resumed in place, it removes the file.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::{Root, TreeSink};
use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::lock;
use pinstripe_io::beneath::shown;

/// The prefix of the names of mark files.
const NAME: &str = ".pinstripe-restore-";
/// A length that no text of a mark file reaches.
const TEXT_MAX: u64 = 64 << 10;

impl TreeSink {
    /// Marks a target that was empty: it is incomplete until [`end`](Self::end). In a target that
    /// may already hold entries, each file is complete under its name, and no mark is needed.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    pub fn begin(&self, text: &[u8]) -> Result<()> {
        if self.root.rules.overwrite {
            return Ok(());
        }
        let name = format!("{NAME}{:016x}", u64::from_le_bytes(pinstripe_base::id::random()?))
            .into_bytes();
        let io = |errno| Error::io("cannot mark the target as incomplete", shown(&name), errno);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = self.root.open(&name, flags, Mode::RUSR | Mode::WUSR).map_err(io)?;
        rustix::io::write(&file, text).map_err(io)?;
        *self.mark() = Some(name);
        Ok(())
    }

    /// Removes the mark file, and those with the same text that earlier, interrupted restores left.
    /// A mark file that cannot be removed is not an error.
    pub fn end(&self, text: &[u8]) {
        if let Some(name) = self.mark().take() {
            self.remove_mark(&name);
        }
        if self.root.rules.overwrite {
            for name in marks(&self.root.directory).unwrap_or_default() {
                if read(&self.root, &name).is_some_and(|said| said == text) {
                    self.remove_mark(&name);
                }
            }
        }
    }

    fn mark(&self) -> std::sync::MutexGuard<'_, Option<Vec<u8>>> {
        lock(&self.root.mark)
    }

    fn remove_mark(&self, name: &[u8]) {
        let _ = rustix::fs::unlinkat(self.root.directory.as_fd(), name, AtFlags::empty());
    }
}

/// Whether a restore into this directory was interrupted.
pub(super) fn is_marked(directory: &OwnedFd) -> bool {
    marks(directory).is_ok_and(|marks| !marks.is_empty())
}

fn marks(directory: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name.starts_with(NAME.as_bytes()) {
            found.push(name.to_vec());
        }
    }
    Ok(found)
}

fn read(root: &Root, name: &[u8]) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = std::fs::File::from(root.open(name, flags, Mode::empty()).ok()?);
    let mut said = Vec::new();
    file.take(TEXT_MAX).read_to_end(&mut said).ok()?;
    Some(said)
}

/// Returns the error for a target that is not empty.
pub(super) fn refusal(directory: &OwnedFd, to: &Path) -> Error {
    let refused = |what| Error::new(pinstripe_base::error::Kind::Refused, what).at(to);
    if is_marked(directory) {
        return refused(
            "a restore into this directory was interrupted: files in it may be incomplete",
        )
        .advice(
            "continue the restore with the same command and --in-place, or choose an empty \
             directory",
        );
    }
    refused("the target directory is not empty")
        .advice("choose an empty directory, or use --overwrite to replace existing files")
}
