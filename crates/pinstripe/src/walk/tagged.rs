//! Recognises directories whose content is left out because they have a certain file: cache
//! directories, which have a file `CACHEDIR.TAG` with the signature of the Cache Directory Tagging
//! Specification (bford.info/cachedir), and those of `--exclude-if-present`.
//!
//! A directory without such a file costs one search in its sorted names for each tag, and no system
//! call.

use std::ffi::{CStr, CString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe_base::error::{Error, Kind, Result};
use rustix::fs::{FileType, Mode, OFlags, openat};
use rustix::io::Errno;

/// The exact bytes with which the tag file of a cache begins.
const CACHE_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// A file that makes a walk leave out the other content of its directory.
#[derive(Debug)]
pub struct DirectoryTag {
    name: CString,
    /// The bytes with which the file begins; if empty, an entry of any type will do.
    header: Vec<u8>,
    is_met: AtomicBool,
}

impl DirectoryTag {
    /// The tag of a cache.
    #[must_use]
    pub fn of_caches() -> Self {
        let (name, header) = (c"CACHEDIR.TAG".to_owned(), CACHE_SIGNATURE.to_vec());
        DirectoryTag { name, header, is_met: AtomicBool::new(false) }
    }

    /// Parses `NAME` or `NAME:HEADER`.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] if no directory can have an entry with this name.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let (name, header) = match text.iter().position(|&byte| byte == b':') {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, &b""[..]),
        };
        let wrong = || {
            let shown = String::from_utf8_lossy(text);
            Error::new(Kind::Usage, format!("'{shown}' is not the name of a file, or NAME:HEADER"))
                .advice("give a name without slashes, for example .nobackup")
        };
        let name = checked_name(name).ok_or_else(wrong)?;
        Ok(DirectoryTag { name, header: header.to_vec(), is_met: AtomicBool::new(false) })
    }

    /// The name of the file.
    pub fn name(&self) -> &CStr {
        &self.name
    }

    /// Whether a walk found the tag in a directory.
    pub fn is_met(&self) -> bool {
        self.is_met.load(Ordering::Relaxed)
    }

    /// Whether the entry with the tag's name in `directory`, which has one, is the tag. A file that
    /// cannot be read is not, since backing up too much loses nothing.
    pub(super) fn marks(&self, directory: BorrowedFd<'_>) -> bool {
        let marks = self.header.is_empty() || self.begins_with_header(directory).unwrap_or(false);
        if marks {
            self.is_met.store(true, Ordering::Relaxed);
        }
        marks
    }

    fn begins_with_header(&self, directory: BorrowedFd<'_>) -> rustix::io::Result<bool> {
        let file = open_file(directory, self.name())?;
        let mode = rustix::fs::fstat(&file)?.st_mode;
        if FileType::from_raw_mode(mode) != FileType::RegularFile {
            return Ok(false);
        }
        Ok(read_up_to(&file, self.header.len())? == self.header)
    }
}

/// Returns a name that an entry of a directory can have.
pub(super) fn checked_name(name: &[u8]) -> Option<CString> {
    let is_none = matches!(name, b"" | b"." | b"..") || name.contains(&b'/');
    if is_none { None } else { CString::new(name).ok() }
}

/// Opens an entry of a directory for reading: never through a symlink, without blocking, and without
/// changing its access time if this process may ask for that.
pub(super) fn open_file(directory: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match openat(directory, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => openat(directory, name, flags, Mode::empty()),
        answer => answer,
    }
}

/// Reads a file up to its end, or up to this number of bytes.
pub(super) fn read_up_to(file: &OwnedFd, bytes: usize) -> rustix::io::Result<Vec<u8>> {
    let mut found = Vec::new();
    let mut filled = 0;
    while filled < bytes {
        found.resize(bytes.min(filled + (64 << 10)), 0);
        match rustix::io::read(file, &mut found[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    found.truncate(filled);
    Ok(found)
}
