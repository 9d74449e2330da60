//! Paths that a user named: what is there, before it is opened.
//!
//! Verbs look here, so that no other room asks the file system about a path. Symlinks are followed
//! unless a function says otherwise. Never here: the content of files.

#![allow(clippy::disallowed_methods, reason = "looks at paths that a caller names")]

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// The path without symlinks, `.` and `..`.
///
/// # Errors
/// As realpath(3) says, for example when there is nothing.
pub fn real(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// Whether something is there; false also where this cannot be told.
pub fn exists(path: &Path) -> bool {
    path.exists()
}

/// Whether a directory is there; false also where this cannot be told.
pub fn is_directory(path: &Path) -> bool {
    path.is_dir()
}

/// The metadata of what is there.
///
/// # Errors
/// As stat(2) says.
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    fs::metadata(path)
}

/// The metadata of what is there, of a symlink itself.
///
/// # Errors
/// As lstat(2) says.
pub fn own_metadata(path: &Path) -> io::Result<Metadata> {
    fs::symlink_metadata(path)
}

/// Removes a name of a file.
///
/// # Errors
/// As unlink(2) says.
pub fn remove_file(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}
