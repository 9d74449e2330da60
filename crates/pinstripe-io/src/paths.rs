//! Examines paths that a user named, before they are opened.
//!
//! Verbs use this module, so that no other module asks the file system about a path. Symlinks are
//! followed unless a function says otherwise. Not in this module: the content of files.

#![allow(clippy::disallowed_methods, reason = "this module examines paths that its caller gives")]

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// The path without symlinks, `.` and `..`.
///
/// # Errors
/// Fails with the errors of realpath(3), for example if the path does not exist.
pub fn real(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// Whether the path exists; false also if this cannot be determined.
pub fn exists(path: &Path) -> bool {
    path.exists()
}

/// Whether the path is a directory; false also if this cannot be determined.
pub fn is_directory(path: &Path) -> bool {
    path.is_dir()
}

/// The metadata of an existing file.
///
/// # Errors
/// Fails with the errors of stat(2).
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    fs::metadata(path)
}

/// The metadata of an existing file; for a symlink, its own.
///
/// # Errors
/// Fails with the errors of lstat(2).
pub fn own_metadata(path: &Path) -> io::Result<Metadata> {
    fs::symlink_metadata(path)
}

/// Removes a name of a file.
///
/// # Errors
/// Fails with the errors of unlink(2).
pub fn remove_file(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}
