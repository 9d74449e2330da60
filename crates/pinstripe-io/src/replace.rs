//! Replaces small private files of this program's state.

#![allow(clippy::disallowed_methods, reason = "the files of this program's state")]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Replaces a file, durably: a reader sees the old or the new content, and only the owner can read
/// either. Makes the directory if it is missing.
///
/// # Errors
/// Fails with the errors of the file system; the old file stays then.
pub fn replace_private(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let (dir, name) = (file.parent().unwrap_or(file), file.file_name().unwrap_or_default());
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // Other processes may replace the file at the same time.
    let temporary = dir.join(format!(".{}.{}", name.display(), std::process::id()));
    // One that a dead process of the same number left.
    let _ = fs::remove_file(&temporary);
    let written = put(&temporary, bytes)
        .and_then(|()| fs::rename(&temporary, file))
        .and_then(|()| File::open(dir)?.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    out.write_all(bytes)?;
    out.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_and_private_and_nothing_else_is_left() {
        let outer = tempfile::tempdir().unwrap();
        let file = outer.path().join("a/b/file");
        for content in [&b"one"[..], b"", b"three"] {
            replace_private(&file, content).unwrap();
            assert_eq!(fs::read(&file).unwrap(), content);
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        // Something that cannot be replaced stays, without a leftover.
        let directory = outer.path().join("a/b/directory");
        fs::create_dir_all(directory.join("full")).unwrap();
        replace_private(&directory, b"x").unwrap_err();
        assert_eq!(fs::read_dir(outer.path().join("a/b")).unwrap().count(), 2);
    }
}
