//! The file system that the kernel sees: a directory with one file in it, and the file's bytes.
//!
//! The kernel never caches a device that may be written, since other clients may write to it too: a
//! read returns every answered write, and an answered `fsync` is durable.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::device_file::DeviceFile;
use super::options::MountOptions;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::{Stop, lock};

const FILE: INodeNo = INodeNo(2);
/// How long the kernel caches names and attributes, which never change.
const CACHED_FOREVER: Duration = Duration::from_secs(1 << 30);
/// The time for which the kernel caches the length of a device, which may grow.
const CACHED_BRIEFLY: Duration = Duration::from_secs(1);
const BLOCK_BYTES: u32 = 4096;
/// The unit of `st_blocks` in the kernel (man 2 stat).
const STAT_BLOCK_BYTES: u64 = 512;

thread_local! {
    /// A thread's buffer for answers, as long as the longest answer.
    static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The file system.
pub struct FileSystem {
    content: DeviceFile,
    /// Whether others may change the device while it is mounted.
    may_change: bool,
    /// The length of the device when it was mounted.
    bytes: u64,
    name: String,
    opened: FopenFlags,
    owner: (u32, u32),
    failure: Arc<Mutex<Option<Error>>>,
    /// The number of times that the file is open.
    openers: Arc<AtomicUsize>,
    /// Set when the file system is destroyed.
    ended: Arc<Stop>,
}

impl FileSystem {
    /// The number of times that the file is open, updated while the file system is mounted.
    pub fn openers(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.openers)
    }

    /// A file system that shows one device. The first error of the device is stored in `failure`;
    /// `ended` is set when no more requests are answered.
    ///
    /// # Errors
    /// Fails with the errors of the device.
    pub fn new(
        content: DeviceFile,
        options: &MountOptions,
        failure: Arc<Mutex<Option<Error>>>,
        ended: Arc<Stop>,
    ) -> Result<Self> {
        let bytes = content.device.len()?;
        let opened = match options.may_change {
            true => FopenFlags::FOPEN_DIRECT_IO,
            false => FopenFlags::FOPEN_KEEP_CACHE,
        };
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let owner = (user.as_raw(), group.as_raw());
        Ok(FileSystem {
            content,
            bytes,
            name: options.name.clone(),
            may_change: options.may_change,
            opened,
            owner,
            failure,
            openers: Arc::default(),
            ended,
        })
    }

    /// The present length: a device may grow.
    fn bytes(&self) -> u64 {
        match self.may_change {
            true => self.content.device.len().unwrap_or(self.bytes),
            false => self.bytes,
        }
    }

    /// The time the kernel may cache attributes.
    fn cache_time(&self) -> Duration {
        if self.may_change { CACHED_BRIEFLY } else { CACHED_FOREVER }
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, nlink, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o555, 2, 0),
            FILE if !self.content.is_read_only => (FileType::RegularFile, 0o600, 1, self.bytes()),
            FILE => (FileType::RegularFile, 0o444, 1, self.bytes()),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(STAT_BLOCK_BYTES),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        })
    }

    fn answer(&self, offset: u64, size: u32, reply: ReplyData) {
        let bytes = self.bytes().saturating_sub(offset).min(size.into()) as usize;
        if bytes == 0 {
            return reply.data(&[]); // A device refuses what begins beyond its end.
        }
        ANSWER.with_borrow_mut(|answer| {
            if answer.len() < bytes {
                answer.resize(bytes, 0);
            }
            let answered = &mut answer[..bytes];
            match self.content.device.read_at(offset, answered) {
                Ok(()) => reply.data(answered),
                Err(error) => reply.error(self.failed(error)),
            }
        });
    }

    /// Stores the first error; returns the error number for the kernel.
    fn failed(&self, error: Error) -> Errno {
        let number = match error.kind() {
            Kind::NoSpace => Errno::ENOSPC,
            Kind::Unsupported => return Errno::EOPNOTSUPP,
            Kind::Refused => return Errno::EROFS,
            _ => Errno::EIO,
        };
        lock(&self.failure).get_or_insert(error);
        number
    }

    fn done(&self, inode: INodeNo, result: impl FnOnce() -> Result<()>, reply: ReplyEmpty) {
        if inode != FILE {
            return reply.error(Errno::EISDIR);
        }
        match result() {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.failed(error)),
        }
    }
}

impl Filesystem for FileSystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The kernel's own maximum, which it returns when asked for more.
        if let Err(most) = config.set_max_readahead(u32::MAX) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    /// Called when all threads of the session have ended.
    fn destroy(&mut self) {
        self.ended.set();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let is_file = parent == INodeNo::ROOT && name == self.name.as_str();
        match self.attributes(FILE).filter(|_| is_file) {
            Some(attributes) => reply.entry(&self.cache_time(), &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&self.cache_time(), &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match inode {
            FILE => {
                self.openers.fetch_add(1, Ordering::Relaxed);
                reply.opened(FileHandle(0), self.opened);
            }
            _ => reply.error(Errno::EISDIR),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.openers.fetch_sub(1, Ordering::Relaxed);
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match inode {
            FILE => self.answer(offset, size, reply),
            _ => reply.error(Errno::EISDIR),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if inode != FILE {
            return reply.error(Errno::EISDIR);
        }
        // As on a disk: what begins before the end is written as far as the end.
        let bytes = self.bytes().saturating_sub(offset).min(data.len() as u64) as usize;
        if bytes == 0 && !data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        match self.content.write_at(offset, &data[..bytes]) {
            Ok(()) => reply.written(bytes as u32),
            Err(error) => reply.error(self.failed(error)),
        }
    }

    /// Changes nothing: times are not stored, and neither owner nor length can change.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let is_new_size = size.is_some_and(|size| inode != FILE || size != self.bytes());
        if mode.is_some() || uid.is_some() || gid.is_some() || is_new_size {
            return reply.error(Errno::EPERM);
        }
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&self.cache_time(), &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Does nothing: closing a file makes no writes durable.
    fn flush(&self, _: &Request, inode: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.done(inode, || Ok(()), reply);
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.done(inode, || self.content.sync(), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let end = offset.saturating_add(length).min(self.bytes());
        self.done(inode, || self.content.allocate(offset.min(end)..end, mode), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, self.name.as_str()),
        ];
        let after = usize::try_from(offset).unwrap_or(entries.len());
        for (number, (inode, kind, name)) in entries.into_iter().enumerate().skip(after) {
            if reply.add(inode, number as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = self.bytes().div_ceil(BLOCK_BYTES.into());
        reply.statfs(blocks, 0, 0, 1, 0, BLOCK_BYTES, 255, BLOCK_BYTES);
    }
}
