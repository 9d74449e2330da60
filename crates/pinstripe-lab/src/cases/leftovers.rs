//! Finds, measures and removes directories that killed runs have left.
//!
//! Invariant: a directory is removed only if its name is that of a lab directory, the process that
//! created it was on this machine and has ended, it is a directory and not a link to one, and
//! nothing is mounted in it.

use std::fs;
use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::mounts::{self, MountInfo};
use pinstripe_io::remove::remove_tree;

/// The prefix of the names of lab directories. The names end with the name of the machine, since
/// several machines may share a file system, and with the process number.
const FOLDER: &str = "pinstripe-lab-";

/// The name of a lab directory of this process.
pub(super) fn name(case: &str) -> String {
    format!("{FOLDER}{case}@{}-{}", machine(), std::process::id())
}

/// The name of this machine, in characters that a file name may have.
fn machine() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.chars().filter(|it| it.is_ascii_alphanumeric() || ".-_".contains(*it)).take(64).collect()
}

/// Directories in `dir` that were left by killed runs: the processes that created them have ended.
pub fn leftovers(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut left: Vec<PathBuf> = entries.map(|it| it.path()).filter(|it| is_left(it)).collect();
    left.sort();
    left
}

fn is_left(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let process = name.and_then(|name| name.strip_prefix(FOLDER)?.rsplit_once('-'));
    // The state of processes on other machines is unknown here; older names have no machine.
    let is_here = |it: &str| it.split_once('@').is_none_or(|(_, of)| of == machine());
    let process = process.filter(|(it, _)| is_here(it));
    let process = process.and_then(|(_, number)| number.parse::<u32>().ok());
    let is_gone = process.is_some_and(|it| !Path::new("/proc").join(it.to_string()).exists());
    is_gone && fs::symlink_metadata(path).is_ok_and(|it| it.is_dir())
}

/// The number of files below a directory and their total bytes; links are not followed. Unreadable
/// entries count as 0.
pub fn extent_of(dir: &Path) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => dirs.push(entry.path()),
                Ok(found) => {
                    files += 1;
                    bytes += found.len();
                }
                Err(_) => {}
            }
        }
    }
    (files, bytes)
}

/// Removes one of the [`leftovers`] after checking again that it is one.
///
/// # Errors
/// [`Kind::Refused`] if `dir` is not a leftover; [`Kind::Busy`] while something is mounted in it;
/// other errors as the system reports them.
pub fn remove_leftover(dir: &Path) -> Result<()> {
    if !is_left(dir) {
        return Err(Error::new(
            Kind::Refused,
            "this directory was not left behind by a killed run",
        )
        .at(dir));
    }
    let failed = |error| Error::io("cannot remove", dir, error);
    let whole = fs::canonicalize(dir).map_err(failed)?;
    if mounts_in(mounts::of_this_process(), &whole) {
        let error = Error::new(Kind::Busy, "a file system is mounted in this directory").at(dir);
        return Err(error.advice("unmount the file system first: 'findmnt' lists mounts"));
    }
    remove_tree(dir).map_err(failed)
}

/// Whether a mount is at or below a directory.
fn mounts_in(mounts: impl IntoIterator<Item = MountInfo>, dir: &Path) -> bool {
    mounts.into_iter().any(|it| it.at.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_process_left_that_is_gone_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), [1; 100]).unwrap();
            path
        };
        // No process has that number: it is above the largest.
        let gone = make("pinstripe-lab-fileio-4294967295");
        let kept = [
            make(&name("fileio")),
            make("pinstripe-lab-fileio-1"),
            make("pinstripe-lab-notes"),
            make("other-4294967295"),
            make("pinstripe-lab-fileio@elsewhere-4294967295"),
        ];
        let link = dir.path().join("pinstripe-lab-walk-4294967295");
        std::os::unix::fs::symlink(&kept[3], &link).unwrap();
        fs::write(dir.path().join("pinstripe-lab-split-4294967295"), "a file").unwrap();
        let of_this_machine =
            make(&name("split").replace(&std::process::id().to_string(), "4294967295"));
        assert_eq!(leftovers(dir.path()), [gone.clone(), of_this_machine.clone()]);
        remove_leftover(&of_this_machine).unwrap();
        assert_eq!(extent_of(&gone), (1, 100));
        for path in kept.iter().chain([&link]) {
            assert_eq!(remove_leftover(path).unwrap_err().kind(), Kind::Refused);
        }
        remove_leftover(&gone).unwrap();
        assert!(!gone.exists() && kept.iter().all(|it| it.join("file").exists()));
    }

    #[test]
    fn nothing_is_removed_that_has_a_mount_in_it() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                      23 22 7:0 / /srv/a\\040b/pinstripe-lab-fs-9/mnt rw - ext4 /dev/loop0 rw";
        assert!(mounts_in(mounts::parse(mounts), Path::new("/srv/a b/pinstripe-lab-fs-9")));
        assert!(!mounts_in(mounts::parse(mounts), Path::new("/srv/a b/pinstripe-lab-fs-99")));
    }
}
