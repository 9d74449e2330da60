//! The target of `pinstripe restore --to-file`: a single file with a name of its own.
//!
//! The file is restored into a directory next to its target, and then renamed, so that the target
//! never has a part of the content.

use std::ffi::OsString;
use std::path::Path;

use pinstripe_base::error::{Error, Kind, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;

/// A file that is being restored.
pub struct FileTarget<'a> {
    target: &'a Path,
    overwrite: bool,
    staging: TempDir,
}

impl<'a> FileTarget<'a> {
    /// Makes a directory for the file.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] if the target exists and may not be replaced, or is a directory.
    pub fn new(target: &'a Path, overwrite: bool) -> Result<FileTarget<'a>> {
        let Some(name) = target.file_name() else {
            return Err(Error::new(Kind::Usage, "this is not the name of a file").at(target));
        };
        match target.symlink_metadata() {
            Ok(found) if found.is_dir() => return Err(is_directory(target)),
            Ok(_) if !overwrite => return Err(exists(target)),
            _ => {}
        }
        let mut prefix = OsString::from(".");
        prefix.push(name);
        prefix.push(".pinstripe-");
        let staging = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(parent(target))
            .map_err(|error| Error::io("cannot make a directory next to", target, error))?;
        Ok(FileTarget { target, overwrite, staging })
    }

    /// The directory into which the file is to be restored.
    pub fn directory(&self) -> &Path {
        self.staging.path()
    }

    /// Gives the restored file, which has this path in the snapshot, its name. Returns whether there
    /// was one: a file that could not be restored has been reported.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] if the target exists now, and with the errors of the system.
    pub fn finish(self, path: &Path) -> Result<bool> {
        let restored = self.directory().join(path.file_name().unwrap_or_default());
        if restored.symlink_metadata().is_err() {
            return Ok(false);
        }
        let flags = match self.overwrite {
            true => RenameFlags::empty(),
            false => RenameFlags::NOREPLACE,
        };
        match renameat_with(CWD, &restored, CWD, self.target, flags) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::EXIST) => Err(exists(self.target)),
            Err(rustix::io::Errno::ISDIR) => Err(is_directory(self.target)),
            // Some network file systems have no rename without replacement.
            Err(rustix::io::Errno::INVAL) if !self.overwrite => {
                let failed = |error| Error::io("cannot create", self.target, error);
                std::fs::hard_link(&restored, self.target).map_err(failed)?;
                Ok(true)
            }
            Err(errno) => Err(Error::io("cannot create", self.target, errno)),
        }
    }
}

fn parent(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn exists(target: &Path) -> Error {
    Error::new(Kind::Refused, "the target file exists")
        .at(target)
        .advice("give another name, or replace the file with --overwrite")
}

fn is_directory(target: &Path) -> Error {
    Error::new(Kind::Refused, "the target is a directory")
        .at(target)
        .advice("give a file name, or restore into a directory with --to")
}
