//! Removes a directory with its content.
//!
//! Invariants: no symlink is followed; a file system that is mounted on the directory or in it is
//! never touched, even if it is mounted during the removal.

#![allow(clippy::disallowed_methods, reason = "this module removes paths that its caller gives")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::mounts::MountIdentity;

/// Removes the file or directory at `path`; a directory is removed with its content.
///
/// # Errors
/// Fails with the errors of the system; with `ResourceBusy` if something is mounted at the path or
/// below. Entries that were reached before the error are already removed.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::openat(CWD, parent, flags, Mode::empty())?;
    let mount = MountIdentity::of_open(parent.as_fd())?;
    Ok(remove(parent.as_fd(), name.as_encoded_bytes(), mount)?)
}

fn remove(directory: BorrowedFd<'_>, name: &[u8], mount: MountIdentity) -> Result<(), Errno> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return rustix::fs::unlinkat(directory, name, AtFlags::empty());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    // This checks the open directory: a later mount cannot come between it and its names.
    if !mount.is_same(MountIdentity::of_open(opened.as_fd())?) {
        return Err(Errno::BUSY);
    }
    for entry in Dir::read_from(&opened)?.collect::<Result<Vec<_>, _>>()? {
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            remove(opened.as_fd(), name, mount)?;
        }
    }
    rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    #[test]
    fn all_of_a_tree_goes_and_nothing_behind_a_symlink() {
        let here = tempfile::tempdir().unwrap();
        let tree = here.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        fs::write(here.path().join("outside"), "x").unwrap();
        symlink(here.path(), tree.join("a/link")).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && here.path().join("outside").exists());
        assert_eq!(remove_tree(&tree).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_mounted_in_a_tree_stays() {
        let test = "what_is_mounted_in_a_tree_stays";
        pinstripe_testing::in_own_mounts(test, || {
            let here = tempfile::tempdir().unwrap();
            let [outside, tree] = ["outside", "tree"].map(|name| here.path().join(name));
            fs::create_dir_all(tree.join("a/mounted")).unwrap();
            fs::create_dir(&outside).unwrap();
            fs::write(outside.join("file"), "x").unwrap();
            for at in [tree.join("a/mounted"), tree.clone()] {
                let bind = Command::new("mount").arg("--bind").args([&outside, &at]).status();
                if !bind.is_ok_and(|status| status.success()) {
                    return pinstripe_testing::skipped(test, "no bind mount is possible here");
                }
                let error = remove_tree(&tree).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
                assert!(outside.join("file").exists());
                pinstripe_testing::unmount(&at);
            }
        });
    }
}
