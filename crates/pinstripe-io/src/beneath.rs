//! Opens paths that stay below a directory.
//!
//! A path that came from a snapshot, or that a directory listing just returned, may now contain a
//! symlink that an attacker created. Every open in `source` and `sink` therefore uses this module:
//! from an open root directory, down through real directories only.
//!
//! Invariants: no symlink is followed, neither on the way nor at the end; no path climbs above the
//! root, even when directories are renamed meanwhile; every descriptor is closed on exec. A path
//! may be longer than the system's PATH_MAX: it is opened piece by piece. Crossing into a mounted
//! file system is allowed. This module checks no permissions itself, and creates no parent
//! directories.

#![allow(
    clippy::disallowed_methods,
    reason = "this module opens paths, and never leaves the given directory"
)]

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::descriptors::patiently;
use pinstripe_base::error::{Error, Kind, Result};

/// The longest path that one system call accepts: PATH_MAX without its NUL.
const MAX_PIECE_BYTES: usize = 4095;

/// The flags for a directory on the way, which need no right to list it.
const PASSAGE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Refuses every path that is not a clean relative one: absolute paths, and paths with an empty
/// component, with `.` or `..`, or with a NUL byte.
///
/// # Errors
/// Fails with [`Kind::Refused`]; the error names the path and what is wrong with the path.
pub fn check_relative(path: &[u8]) -> Result<()> {
    let flaw = if path.is_empty() {
        "the path is empty"
    } else if path[0] == b'/' {
        "the path is absolute and tries to leave its directory"
    } else if path.contains(&0) {
        "the path contains a NUL byte"
    } else {
        let flaw_of = |component: &[u8]| match component {
            b"" => Some("the path has an empty component"),
            b"." => Some("the path has a component '.'"),
            b".." => Some("the path tries to leave its directory by '..'"),
            _ => None,
        };
        match path.split(|&byte| byte == b'/').find_map(flaw_of) {
            Some(flaw) => flaw,
            None => return Ok(()),
        }
    };
    Err(Error::new(Kind::Refused, flaw).at(shown(path)))
}

/// Opens `path` below `root`, without following symlinks. `O_CLOEXEC` and `O_NOFOLLOW` are implied;
/// with `O_PATH` and without `O_DIRECTORY`, a symlink at the end of the path is itself opened.
/// `mode` must be empty unless `flags` create a file.
///
/// # Errors
/// Fails with [`Kind::Refused`] for a path that [`check_relative`] refuses and for a symlink in the
/// way; otherwise with the errors of the system.
pub fn open_beneath(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd> {
    check_relative(path)?;
    let opened = Resolver::of_this_kernel().open(root, path, flags, mode);
    opened.map_err(|errno| failure("cannot open", path, errno))
}

/// Opens the parent directory of `path`, for calls that create, link or remove a name, and returns
/// it with the last component of the path.
///
/// # Errors
/// Fails with the errors of [`open_beneath`].
pub fn parent_beneath<'r, 'p>(
    root: BorrowedFd<'r>,
    path: &'p [u8],
) -> Result<(ParentDirectory<'r>, &'p [u8])> {
    check_relative(path)?;
    let opened = Resolver::of_this_kernel().parent(root, path);
    opened.map_err(|errno| failure("cannot open the directory of this path", path, errno))
}

/// A directory on the way to a path: the root itself, or one opened below it.
#[derive(Debug)]
pub enum ParentDirectory<'r> {
    /// The root, still owned by the caller.
    Root(BorrowedFd<'r>),
    /// A directory below the root, opened with `O_PATH`.
    Below(OwnedFd),
}

impl AsFd for ParentDirectory<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ParentDirectory::Root(root) => *root,
            ParentDirectory::Below(directory) => directory.as_fd(),
        }
    }
}

/// The way down. How paths are opened; both ways keep every invariant of this module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolver {
    /// `openat2(2)`: the kernel resolves the entire path and refuses symlinks, in one call.
    Openat2,
    /// Component by component, for sandboxes whose filter does not allow `openat2`.
    Steps,
}

impl Resolver {
    /// The better way of those that work on this kernel; determined once.
    pub fn of_this_kernel() -> Self {
        static CHOSEN: OnceLock<Resolver> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            let probe = open_resolved(CWD, b".", PASSAGE | OFlags::CLOEXEC, Mode::empty());
            match probe {
                Err(Errno::NOSYS | Errno::PERM | Errno::TOOBIG | Errno::INVAL) => Resolver::Steps,
                _ => Resolver::Openat2,
            }
        })
    }

    /// [`open_beneath`] for a path that was checked before; returns the system's error number
    /// (ELOOP for a symlink on the way). The empty path stands for the root itself.
    pub fn open(
        self,
        root: BorrowedFd<'_>,
        path: &[u8],
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        debug_assert!(path.is_empty() || check_relative(path).is_ok());
        let mut flags = flags | OFlags::CLOEXEC;
        if !flags.contains(OFlags::DIRECTORY) {
            flags |= OFlags::NOFOLLOW;
        }
        if path.is_empty() {
            return self.open_piece(root, b".", flags, mode);
        }
        let mut passage = ParentDirectory::Root(root);
        let mut rest = path;
        while let Some(cut) = self.first_piece_end(rest) {
            let next = self.open_piece(
                passage.as_fd(),
                &rest[..cut],
                PASSAGE | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            passage = ParentDirectory::Below(next);
            rest = &rest[cut + 1..];
        }
        self.open_piece(passage.as_fd(), rest, flags, mode)
    }

    /// [`parent_beneath`] for a path that was checked before; returns the system's error number.
    pub fn parent<'r, 'p>(
        self,
        root: BorrowedFd<'r>,
        path: &'p [u8],
    ) -> Result<(ParentDirectory<'r>, &'p [u8]), Errno> {
        match path.iter().rposition(|&byte| byte == b'/') {
            None => Ok((ParentDirectory::Root(root), path)),
            Some(slash) => {
                let parent = self.open(root, &path[..slash], PASSAGE, Mode::empty())?;
                Ok((ParentDirectory::Below(parent), &path[slash + 1..]))
            }
        }
    }

    /// The end of the first piece of `rest`, at a slash, if the path is too long for one call.
    fn first_piece_end(self, rest: &[u8]) -> Option<usize> {
        let is_slash = |&byte: &u8| byte == b'/';
        match self {
            Resolver::Steps => rest.iter().position(is_slash),
            Resolver::Openat2 if rest.len() <= MAX_PIECE_BYTES => None,
            Resolver::Openat2 => rest[..=MAX_PIECE_BYTES].iter().rposition(is_slash),
        }
    }

    fn open_piece(
        self,
        directory: BorrowedFd<'_>,
        piece: &[u8],
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        if self == Resolver::Openat2 {
            return open_resolved(directory, piece, flags, mode);
        }
        let flags = flags | OFlags::NOFOLLOW;
        let opened =
            patiently(|| retry_on_intr(|| rustix::fs::openat(directory, piece, flags, mode)));
        match opened {
            // O_DIRECTORY hides that it was a symlink: say it as openat2 does.
            Err(Errno::NOTDIR) if is_symlink(directory, piece) => Err(Errno::LOOP),
            other => other,
        }
    }
}

fn open_resolved(
    directory: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    patiently(|| retry_on_intr(|| rustix::fs::openat2(directory, path, flags, mode, resolve)))
}

/// Whether the single component `name` is a symlink.
fn is_symlink(directory: BorrowedFd<'_>, name: &[u8]) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// The error for an operation on `path` that the system refused.
pub fn failure(attempt: &str, path: &[u8], errno: Errno) -> Error {
    match errno {
        Errno::LOOP => Error::new(
            Kind::Refused,
            format!(
                "{attempt}: a component of the path is a symlink, and symlinks are not followed"
            ),
        )
        .at(shown(path)),
        _ => Error::io(attempt, shown(path), errno),
    }
}

/// Converts path bytes to a path for messages.
pub fn shown(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// Converts a path below the file system's root to the usual form with a leading slash.
pub fn shown_from_root(path: &[u8]) -> PathBuf {
    Path::new("/").join(shown(path))
}

/// The name in /proc that leads to the inode of `fd`, for calls that do not accept `O_PATH`
/// descriptors. The name never resolves to another file, even after a rename.
pub fn magic_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const BOTH: [Resolver; 2] = [Resolver::Openat2, Resolver::Steps];

    fn root_of(directory: &Path) -> OwnedFd {
        rustix::fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn only_clean_relative_paths_pass() {
        for good in ["a", "a/b", "..a", "a..", "...", "a/.b", "\u{fe}", "a b\n"] {
            check_relative(good.as_bytes()).unwrap();
        }
        check_relative(b"\xff/\x80").unwrap();
        for bad in ["", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a\0", "./a"] {
            let error = check_relative(bad.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), Kind::Refused, "{bad:?}");
        }
    }

    #[test]
    fn the_kernel_here_is_probed_and_both_ways_open_the_same() {
        let here = tempfile::tempdir().unwrap();
        fs::create_dir_all(here.path().join("a/b")).unwrap();
        fs::write(here.path().join("a/b/file"), b"x").unwrap();
        let root = root_of(here.path());
        Resolver::of_this_kernel();
        open_beneath(root.as_fd(), b"a/b/file", OFlags::RDONLY, Mode::empty()).unwrap();
        for way in BOTH {
            let open = |path: &[u8], flags| way.open(root.as_fd(), path, flags, Mode::empty());
            open(b"a/b/file", OFlags::RDONLY).unwrap();
            open(b"", PASSAGE).unwrap();
            assert_eq!(open(b"a/none/file", OFlags::RDONLY).unwrap_err(), Errno::NOENT);
            assert_eq!(open(b"a/b/file/x", OFlags::RDONLY).unwrap_err(), Errno::NOTDIR);
            let (parent, name) = way.parent(root.as_fd(), b"a/b/file").unwrap();
            assert_eq!(name, b"file");
            rustix::fs::statat(&parent, name, AtFlags::empty()).unwrap();
            assert!(matches!(
                way.parent(root.as_fd(), b"a").unwrap(),
                (ParentDirectory::Root(_), b"a")
            ));
        }
    }

    #[test]
    fn no_symlink_is_followed_at_any_place() {
        let here = tempfile::tempdir().unwrap();
        fs::create_dir(here.path().join("true")).unwrap();
        fs::write(here.path().join("true/file"), b"x").unwrap();
        symlink("true", here.path().join("dir")).unwrap();
        symlink("true/file", here.path().join("link")).unwrap();
        symlink("loop", here.path().join("loop")).unwrap();
        symlink(here.path(), here.path().join("true/up")).unwrap();
        let root = root_of(here.path());
        for way in BOTH {
            for path in ["dir/file", "link", "loop", "true/up/true/file", "true/up"] {
                for flags in [OFlags::RDONLY, PASSAGE, OFlags::RDONLY | OFlags::DIRECTORY] {
                    let opened = way.open(root.as_fd(), path.as_bytes(), flags, Mode::empty());
                    assert_eq!(opened.unwrap_err(), Errno::LOOP, "{way:?} {path} {flags:?}");
                }
            }
            let itself = way.open(root.as_fd(), b"link", OFlags::PATH, Mode::empty()).unwrap();
            let stat = rustix::fs::fstat(&itself).unwrap();
            assert_eq!(FileType::from_raw_mode(stat.st_mode), FileType::Symlink);
            assert!(way.parent(root.as_fd(), b"dir/file").is_err());
        }
        let error = open_beneath(root.as_fd(), b"dir/file", OFlags::RDONLY, Mode::empty());
        assert_eq!(error.unwrap_err().kind(), Kind::Refused);
    }

    #[test]
    fn paths_longer_than_one_call_are_walked_in_pieces() {
        let here = tempfile::tempdir().unwrap();
        let root = root_of(here.path());
        for way in BOTH {
            let name = vec![b'x'; 250];
            let mut path = format!("{way:?}").into_bytes();
            for depth in 0..40 {
                let (parent, last) = way.parent(root.as_fd(), &path).unwrap();
                rustix::fs::mkdirat(&parent, last, Mode::RWXU).unwrap();
                path.push(b'/');
                path.extend_from_slice(if depth % 7 == 0 { b"short" } else { &name });
            }
            assert!(path.len() > 2 * MAX_PIECE_BYTES);
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
            way.open(root.as_fd(), &path, flags, Mode::RUSR).unwrap();
            for other in BOTH {
                other.open(root.as_fd(), &path, OFlags::RDONLY, Mode::empty()).unwrap();
            }
            let long = [&vec![b'y'; 5000][..], b"/a"].concat();
            let opened = way.open(root.as_fd(), &long, OFlags::RDONLY, Mode::empty());
            assert_eq!(opened.unwrap_err(), Errno::NAMETOOLONG);
        }
    }
}
