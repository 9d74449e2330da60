//! Recognises cache directories: those with a file `CACHEDIR.TAG` that has the signature of the
//! Cache Directory Tagging Specification (bford.info/cachedir). A file of that name with other
//! content has no effect.
//!
//! A directory without such a file costs one search in its sorted names, and no system call.

use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, Mode, OFlags, openat};

/// The name of the tag file, as a C string for the kernel.
pub(super) const TAG: &std::ffi::CStr = c"CACHEDIR.TAG";

/// The exact bytes with which a tag file begins.
const SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// Whether the file named [`TAG`] in `directory` is a regular file that begins with the
/// signature. A file that cannot be read has no effect, since backing up too much loses nothing.
pub(super) fn is_tagged(directory: BorrowedFd<'_>) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = openat(directory, TAG, flags | OFlags::NOATIME, Mode::empty())
        .or_else(|_| openat(directory, TAG, flags, Mode::empty()));
    let Ok(file) = opened else { return false };
    let is_file = rustix::fs::fstat(&file)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    let mut found = [0; SIGNATURE.len()];
    let mut filled = 0;
    while is_file && filled < found.len() {
        match rustix::io::read(&file, &mut found[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    found == SIGNATURE
}
