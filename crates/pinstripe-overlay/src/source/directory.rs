//! A directory as the source of an overlay.
//!
//! Invariants: nothing outside of the directory is opened, even if symbolic links appear in it. A
//! read of one version returns bytes of that version only, as far as the file system's times show
//! it (a change of equal length within one tick of its clock goes unnoticed).

#![allow(
    clippy::disallowed_methods,
    reason = "this module reads the directory that the overlay shows"
)]

use std::ffi::OsStr;
use std::fs::File;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Advice, AtFlags, Mode, OFlags, RawDir, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::{ContentVersion, ListedName, RangeSource, SourceEntry, changed};
use crate::locks::{OverlayLock, RankedMutex};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::beneath::{Resolver, check_relative, failure, magic_path, shown};
use pinstripe_io::descriptors::{self, Keeper};
use pinstripe_io::file_tree::FileKind;

/// The longest read for which the kernel's read-ahead is disabled: short reads are those that the
/// planner did not predict.
const SCATTERED_BYTES: u64 = 64 << 10;
/// The most files that stay open for their next read.
const OPEN_MAX: usize = 64;
/// Bytes of names that one system call lists.
const LIST_BYTES: usize = 64 << 10;
/// The longest extended attribute, and the longest list of them, that the kernel allows
/// (XATTR_SIZE_MAX).
const XATTR_BYTES: usize = 64 << 10;
/// The unit of `stx_blocks` in the kernel.
const STAT_BLOCK_BYTES: u64 = 512;

/// Magic numbers of the file systems of local disks and of memory (linux/magic.h): ext4, XFS,
/// btrfs, F2FS, tmpfs.
const LOCAL: [u32; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x0102_1994];

/// A directory.
pub struct DirectorySource {
    root: OwnedFd,
    open: Arc<RecentFiles>,
}

/// The most recently read files, the newest one at the end.
struct RecentFiles(RankedMutex<Vec<SourceFile>>);

impl Default for RecentFiles {
    fn default() -> Self {
        RecentFiles(RankedMutex::new(OverlayLock::OpenFiles, Vec::new()))
    }
}

#[derive(Clone)]
struct SourceFile {
    path: Arc<[u8]>,
    version: ContentVersion,
    file: Arc<File>,
    /// The same file, opened a second time for short reads, without the kernel's read-ahead.
    scattered: Option<Arc<File>>,
    /// Whether the file is on a local file system, which returns cached data at once.
    is_local: bool,
}

impl SourceFile {
    fn for_read(&self, range: &Range<u64>) -> &File {
        let is_short = range.end - range.start <= SCATTERED_BYTES;
        self.scattered.as_ref().filter(|_| is_short).unwrap_or(&self.file)
    }
}

impl Keeper for RecentFiles {
    fn give_up(&self) {
        self.0.lock().retain(|open| Arc::strong_count(&open.file) > 1);
    }
}

impl DirectorySource {
    /// Opens a directory.
    ///
    /// # Errors
    /// Fails with the errors of the system; with [`Kind::Usage`] if the path is not a directory.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOTDIR => Error::new(Kind::Usage, "the source is not a directory").at(path),
            errno => Error::io("cannot open the source", path, errno),
        })?;
        let open = Arc::default();
        descriptors::register(&open);
        Ok(DirectorySource { root, open })
    }

    fn open_below(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
        if !path.is_empty() {
            check_relative(path)?;
        }
        // A name that became a pipe or a terminal meanwhile must not block the call.
        let flags = match flags.contains(OFlags::PATH) {
            true => flags,
            false => flags | OFlags::NONBLOCK | OFlags::NOCTTY,
        };
        let opened = Resolver::of_this_kernel().open(self.root.as_fd(), path, flags, Mode::empty());
        opened.map_err(|errno| match errno {
            Errno::NOTDIR => failure("cannot open", path, Errno::NOENT),
            errno => failure("cannot open", path, errno),
        })
    }

    /// The file with this version, if it is open.
    fn open_file(&self, path: &[u8], version: &ContentVersion) -> Option<SourceFile> {
        let mut open = self.open.0.lock();
        let at = open.iter().rposition(|open| &*open.path == path && open.version == *version)?;
        let found = open.remove(at);
        open.push(found.clone());
        Some(found)
    }

    /// The file with this version; opens it if necessary.
    fn file(&self, path: &[u8], version: &ContentVersion) -> Result<SourceFile> {
        if let Some(found) = self.open_file(path, version) {
            return Ok(found);
        }
        let opened = self.open_below(path, OFlags::RDONLY).map_err(|error| match error.kind() {
            Kind::NotFound | Kind::Refused => changed(path),
            _ => error,
        })?;
        let entry = entry_of(opened.as_fd(), path)?;
        if entry.kind != FileKind::File || entry.version != *version {
            return Err(changed(path));
        }
        let is_local = is_local(opened.as_fd());
        // A file that is no longer than a short read is read only once.
        let is_long = version.size > SCATTERED_BYTES;
        let scattered =
            (is_local && is_long).then(|| opened_for_short_reads(opened.as_fd())).flatten();
        let (file, scattered) = (Arc::new(opened.into()), scattered.map(Arc::new));
        let file = SourceFile { path: path.into(), version: *version, file, scattered, is_local };
        let mut open = self.open.0.lock();
        if open.len() >= OPEN_MAX {
            open.remove(0);
        }
        open.push(file.clone());
        Ok(file)
    }

    fn close(&self, file: &SourceFile) {
        self.open.0.lock().retain(|open| !Arc::ptr_eq(&open.file, &file.file));
    }
}

impl RangeSource for DirectorySource {
    fn stat(&self, path: &[u8]) -> Result<SourceEntry> {
        entry_of(self.open_below(path, OFlags::PATH)?.as_fd(), path)
    }

    fn list(&self, path: &[u8]) -> Result<Vec<ListedName>> {
        let directory = self.open_below(path, OFlags::RDONLY)?;
        let mut buffer = vec![MaybeUninit::uninit(); LIST_BYTES];
        let mut entries = RawDir::new(directory, &mut buffer);
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|errno| match errno {
                Errno::NOTDIR => Error::new(Kind::Usage, "this is not a directory").at(shown(path)),
                errno => failure("cannot list", path, errno),
            })?;
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                name => names.push((name.into(), None)),
            }
        }
        Ok(names)
    }

    fn read(
        &self,
        path: &[u8],
        version: &ContentVersion,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let open = self.file(path, version)?;
        let base = out.len();
        let read = append(open.for_read(&range), range, out);
        // Only after the read is it certain that the content did not change.
        let now = entry_of(open.file.as_fd(), path);
        let result = match (read, now) {
            (_, Ok(now)) if now.version != *version => Err(changed(path)),
            (Err(error), _) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(changed(path))
            }
            (Err(error), _) if error.raw_os_error() == Some(Errno::STALE.raw_os_error()) => {
                Err(changed(path))
            }
            (Err(error), _) => Err(Error::io("cannot read", shown(path), error)),
            (Ok(()), Err(error)) => Err(error),
            (Ok(()), Ok(_)) => return Ok(()),
        };
        out.truncate(base);
        self.close(&open);
        result
    }

    fn read_at_hand(
        &self,
        path: &[u8],
        version: &ContentVersion,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(open) = self.open_file(path, version).filter(|open| open.is_local) else {
            return false;
        };
        let read_now = |buf: &mut [u8]| {
            let mut bufs = [std::io::IoSliceMut::new(buf)];
            rustix::io::preadv2(&*open.file, &mut bufs, range.start, ReadWriteFlags::NOWAIT)
        };
        // Avoids clearing a long buffer for nothing.
        if range.is_empty() || read_now(&mut [0]) != Ok(1) {
            return false;
        }
        let base = out.len();
        let bytes = (range.end - range.start) as usize;
        out.resize(base + bytes, 0);
        let is_whole = read_now(&mut out[base..]) == Ok(bytes)
            && entry_of(open.file.as_fd(), path).is_ok_and(|now| now.version == *version);
        if !is_whole {
            out.truncate(base);
        }
        is_whole
    }

    fn local_file(&self, path: &[u8], version: &ContentVersion) -> Option<OwnedFd> {
        let open = self.file(path, version).ok().filter(|open| open.is_local)?;
        rustix::io::fcntl_dupfd_cloexec(&*open.file, 0).ok()
    }

    fn is_local(&self) -> bool {
        is_local(self.root.as_fd())
    }

    fn target(&self, path: &[u8]) -> Result<Vec<u8>> {
        let link = self.open_below(path, OFlags::PATH)?;
        match rustix::fs::readlinkat(&link, "", Vec::new()) {
            Ok(target) => Ok(target.into_bytes()),
            Err(Errno::INVAL | Errno::NOENT) => {
                Err(Error::new(Kind::Usage, "this is not a symbolic link").at(shown(path)))
            }
            Err(errno) => Err(failure("cannot read", path, errno)),
        }
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let file = self.open_below(path, OFlags::PATH)?;
        if entry_of(file.as_fd(), path)?.kind == FileKind::Symlink {
            return Ok(Vec::new());
        }
        let told = |errno: Errno| failure("cannot read the attributes of", path, errno);
        let magic = magic_path(file.as_fd());
        let mut names = vec![0; XATTR_BYTES];
        let length = match rustix::fs::listxattr(&*magic, &mut names) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP | Errno::NODATA) => return Ok(Vec::new()),
            Err(errno) => return Err(told(errno)),
        };
        let mut value = vec![0; XATTR_BYTES];
        let mut all = Vec::new();
        for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            match rustix::fs::getxattr(&*magic, OsStr::from_bytes(name), &mut value) {
                Ok(length) => all.push((name.to_vec(), value[..length].to_vec())),
                // It was removed meanwhile, or this user may not read it.
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
                Err(errno) => return Err(told(errno)),
            }
        }
        Ok(all)
    }

    fn totals(&self) -> Result<(u64, u64)> {
        let totals = rustix::fs::fstatvfs(&self.root)
            .map_err(|errno| failure("cannot query the free space of", b".", errno))?;
        Ok((totals.f_blocks.saturating_mul(totals.f_frsize), totals.f_files))
    }
}

/// Appends the bytes of a range. Fails if the file ends before the range does.
fn append(file: &File, range: Range<u64>, out: &mut Vec<u8>) -> std::io::Result<()> {
    out.reserve((range.end - range.start) as usize);
    let mut at = range.start;
    while at < range.end {
        let left = (range.end - at) as usize;
        let read = match rustix::io::pread(file, &mut out.spare_capacity_mut()[..left], at) {
            Ok((read, _)) => read.len(),
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: the kernel has filled as many bytes of the spare capacity as it says, and `left`
        // of them are within what was reserved.
        unsafe { out.set_len(out.len() + read) };
        at += read as u64;
    }
    Ok(())
}

/// Opens an open file a second time, without the kernel's read-ahead (`POSIX_FADV_RANDOM`), which
/// is a property of each open file. If that fails, the first open file is used for all reads.
fn opened_for_short_reads(file: BorrowedFd<'_>) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let again = rustix::fs::open(&*magic_path(file), flags, Mode::empty()).ok()?;
    rustix::fs::fadvise(&again, 0, None, Advice::Random).ok()?;
    Some(again.into())
}

/// Whether a file is on a local file system, where only the disk can delay a call.
fn is_local(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| LOCAL.contains(&(found.f_type as u64 as u32)))
}

/// The entry for an open file, or for one opened with `O_PATH`.
fn entry_of(file: impl AsFd, path: &[u8]) -> Result<SourceEntry> {
    let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
        .map_err(|errno| failure("cannot examine", path, errno))?;
    let kind = FileKind::from_st_mode(stat.stx_mode.into()).ok_or_else(|| {
        Error::new(Kind::Unsupported, "this entry has a file type that an overlay cannot show")
            .at(shown(path))
    })?;
    let (mtime, ctime) = (stat.stx_mtime, stat.stx_ctime);
    let mut tag = [0; 32];
    tag[..8].copy_from_slice(&stat.stx_ino.to_le_bytes());
    tag[8..16].copy_from_slice(&mtime.tv_sec.to_le_bytes());
    tag[16..20].copy_from_slice(&mtime.tv_nsec.to_le_bytes());
    tag[20..28].copy_from_slice(&ctime.tv_sec.to_le_bytes());
    tag[28..].copy_from_slice(&ctime.tv_nsec.to_le_bytes());
    Ok(SourceEntry {
        kind,
        identity: (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino),
        mode: u32::from(stat.stx_mode) & 0o7777,
        owner: (stat.stx_uid, stat.stx_gid),
        data_bytes: stat.stx_blocks.saturating_mul(STAT_BLOCK_BYTES),
        links: stat.stx_nlink,
        rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
        mtime: (mtime.tv_sec, mtime.tv_nsec),
        ctime: (ctime.tv_sec, ctime.tv_nsec),
        version: ContentVersion { size: stat.stx_size, tag },
    })
}

#[cfg(test)]
mod tests {
    use super::super::conformance;
    use super::*;

    /// A directory with files of a test.
    struct Files(tempfile::TempDir);

    impl conformance::SourceFixture for Files {
        type Source = DirectorySource;

        fn open(&self) -> DirectorySource {
            DirectorySource::open(self.0.path()).unwrap()
        }

        fn write(&self, path: &str, content: &[u8]) {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            pinstripe_testing::await_tick();
            std::fs::write(path, content).unwrap();
        }

        fn remove(&self, path: &str) {
            std::fs::remove_file(self.0.path().join(path)).unwrap();
        }

        fn link(&self, name: &str, target: &str) -> bool {
            std::os::unix::fs::symlink(target, self.0.path().join(name)).is_ok()
        }
    }

    #[test]
    fn a_directory_is_a_source() {
        conformance::check(&|| Files(tempfile::tempdir().unwrap()));
    }

    /// By another name and inode, with the same length.
    #[test]
    fn a_file_that_another_took_the_place_of_has_changed() {
        let files = Files(tempfile::tempdir().unwrap());
        conformance::SourceFixture::write(&files, "file", b"first");
        conformance::SourceFixture::write(&files, "other", b"other");
        let source = conformance::SourceFixture::open(&files);
        let version = source.stat(b"file").unwrap().version;
        std::fs::rename(files.0.path().join("other"), files.0.path().join("file")).unwrap();
        let read = source.read(b"file", &version, 0..4, &mut Vec::new());
        assert_eq!(read.unwrap_err().kind(), Kind::Changed);
    }

    #[test]
    fn what_is_in_memory_is_read_at_hand_and_never_of_another_version() {
        let stand = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..300_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
        std::fs::write(stand.path().join("file"), &content).unwrap();
        let source = DirectorySource::open(stand.path()).unwrap();
        let version = source.stat(b"file").unwrap().version;
        let at_hand = |range: Range<u64>, out: &mut Vec<u8>| {
            source.read_at_hand(b"file", &version, range, out)
        };
        let mut out = b"before".to_vec();
        assert!(!at_hand(0..10, &mut out), "it is not open yet");
        source.read(b"file", &version, 0..300_000, &mut Vec::new()).unwrap();
        if !at_hand(1000..200_000, &mut out) {
            let file = File::open(stand.path().join("file")).unwrap();
            let mut byte = [0];
            let mut bufs = [std::io::IoSliceMut::new(&mut byte)];
            let kernel = rustix::io::preadv2(&file, &mut bufs, 0, ReadWriteFlags::NOWAIT);
            assert!(!is_local(&file) || kernel.is_err(), "the kernel has it: {kernel:?}");
            pinstripe_testing::skipped(
                "what_is_in_memory_is_read_at_hand_and_never_of_another_version",
                "this file system does not say what it has in memory",
            );
            return;
        }
        assert!(out[6..] == content[1000..200_000]);
        assert!(!at_hand(299_999..300_001, &mut out), "beyond the end");
        assert_eq!(out.len(), 6 + 199_000, "nothing is left of an attempt");
        pinstripe_testing::await_tick();
        std::fs::write(stand.path().join("file"), vec![1; 300_000]).unwrap();
        assert!(!at_hand(1000..2000, &mut out));
        assert_eq!(out.len(), 6 + 199_000);
    }

    #[test]
    fn a_link_that_leaves_the_directory_is_not_followed() {
        let stand = tempfile::tempdir().unwrap();
        let source = stand.path().join("source");
        std::fs::create_dir(&source).unwrap();
        std::fs::write(stand.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink("..", source.join("up")).unwrap();
        let source = DirectorySource::open(&source).unwrap();
        for path in [&b"up/secret"[..], b"../secret", b"/etc/passwd", b"up/../secret"] {
            assert_eq!(source.stat(path).unwrap_err().kind(), Kind::Refused);
            assert!(source.list(path).is_err());
        }
        assert_eq!(source.target(b"up").unwrap(), b"..");
        let refused = DirectorySource::open(&stand.path().join("secret"));
        assert_eq!(refused.err().unwrap().kind(), Kind::Usage);
    }
}
