//! Reads extended attributes of any entry, by descriptor or, if the entry may not be opened for
//! reading (devices, FIFOs, sockets, symlinks), by its path in /proc.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::open_entry;
use pinstripe_base::error::{Error, Result};
use pinstripe_io::beneath::{check_relative, magic_path, shown};
use pinstripe_member::meta::XattrList;

/// The kernel's limit for a list of names and for one value (XATTR_LIST_MAX, XATTR_SIZE_MAX).
const MAX_BYTES: usize = 64 << 10;

/// The size of the buffer that is tried first: nearly all attributes fit in it, which costs one
/// call instead of three.
const ORDINARY_BYTES: usize = 256;

/// Extended attributes of one entry.
#[derive(Debug, Default)]
pub struct Xattrs {
    /// Names and values, sorted by name.
    pub list: XattrList,
    /// The errors for attributes that could not be read, each with the entry and the attribute.
    pub problems: Vec<Error>,
    /// They could not be read because /proc is not mounted.
    pub lacks_proc: bool,
}

/// Returns the extended attributes of the entry at `path` below `root`, of any type; for a symlink,
/// those of the link itself. The empty path means the root itself.
///
/// # Errors
/// Fails with [`pinstripe_base::error::Kind::Changed`] when there is no such entry any more, or
/// with the errors of the system. An attribute that cannot be read is returned as a problem, not as
/// an error.
pub fn xattrs_at(root: BorrowedFd<'_>, path: &[u8]) -> Result<Xattrs> {
    if !path.is_empty() {
        check_relative(path)?;
    }
    let entry = open_entry(root, path)?;
    let name = magic_path(entry.as_fd());
    let found = collect(
        path,
        |buffer| rustix::fs::listxattr(&name, buffer),
        |attribute, buffer| rustix::fs::getxattr(&name, attribute, buffer),
    );
    Ok(if found.lacks_proc { without_proc(entry.as_fd(), path) } else { found })
}

/// The extended attributes of an entry where /proc is not mounted: those of directories only.
fn without_proc(entry: BorrowedFd<'_>, path: &[u8]) -> Xattrs {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(entry, c".", flags, Mode::empty()) {
        Ok(directory) => xattrs_of(directory.as_fd(), path),
        Err(_) => Xattrs { lacks_proc: true, ..Xattrs::default() },
    }
}

/// Returns the extended attributes of the file that `fd` has open for reading; `path` is only for
/// messages.
pub(crate) fn xattrs_of(fd: BorrowedFd<'_>, path: &[u8]) -> Xattrs {
    collect(
        path,
        |buffer| rustix::fs::flistxattr(fd, buffer),
        |attribute, buffer| rustix::fs::fgetxattr(fd, attribute, buffer),
    )
}

fn collect(
    path: &[u8],
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Xattrs {
    let mut found = Xattrs::default();
    let names = match with_room(list) {
        Ok(names) => names,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return found,
        // The entry is open, so it is its name below /proc that does not exist.
        Err(Errno::NOENT) => return Xattrs { lacks_proc: true, ..found },
        Err(errno) => {
            let what = "cannot list the extended attributes";
            found.problems.push(Error::io(what, shown(path), errno));
            return found;
        }
    };
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        match with_room(|buffer| get(name, buffer)) {
            Ok(value) => found.list.push((name.to_vec(), value)),
            // Removed since the list was made; ctime shows that the file changed.
            Err(Errno::NODATA) => {}
            Err(errno) => {
                let name = String::from_utf8_lossy(name);
                let what = format!("cannot read the extended attribute {name}");
                found.problems.push(Error::io(what, shown(path), errno));
            }
        }
    }
    found.list.sort_unstable();
    found
}

/// Calls `fill` with a small buffer and, if the answer does not fit, with the largest buffer that
/// the kernel fills. An empty answer costs no allocation.
fn with_room(fill: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut ordinary = [0; ORDINARY_BYTES];
    match fill(&mut ordinary) {
        Ok(length) => Ok(ordinary[..length].to_vec()),
        Err(Errno::RANGE) => {
            let mut largest = vec![0; MAX_BYTES];
            let length = fill(&mut largest)?;
            largest.truncate(length);
            largest.shrink_to_fit();
            Ok(largest)
        }
        Err(errno) => Err(errno),
    }
}
