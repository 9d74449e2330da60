//! What the kernel is told: a directory with one file in it, and the file's bytes.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry,
    ReplyOpen, ReplyStatfs, Request,
};

use super::Options;
use crate::error::{Error, Kind, Result};
use crate::source::bulk::Bulk;

const FILE: INodeNo = INodeNo(2);
/// Names and attributes never change, so the kernel need not ask again.
const ALWAYS: Duration = Duration::from_secs(1 << 30);
const BLOCK_BYTES: u32 = 4096;
/// The kernel's own blocks in st_blocks (man 2 stat).
const STAT_BLOCK_BYTES: u64 = 512;

thread_local! {
    /// Where an answer is made; one for each thread, as long as the longest.
    static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The file system.
pub struct Files {
    source: Box<dyn Bulk>,
    bytes: u64,
    name: String,
    opened: FopenFlags,
    owner: (u32, u32),
    failure: Arc<Mutex<Option<Error>>>,
}

impl Files {
    /// A file system that shows one source. The first error of the source goes to `failure`.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for a source without a known length.
    pub fn new(
        source: Box<dyn Bulk>,
        options: &Options,
        failure: Arc<Mutex<Option<Error>>>,
    ) -> Result<Self> {
        let Some(bytes) = source.length() else {
            let what = "its length is not known, so it cannot be shown as a file";
            return Err(Error::new(Kind::Unsupported, what).at(source.place()));
        };
        let opened = match options.is_direct {
            true => FopenFlags::FOPEN_DIRECT_IO,
            false => FopenFlags::FOPEN_KEEP_CACHE,
        };
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let owner = (user.as_raw(), group.as_raw());
        Ok(Files { source, bytes, name: options.name.clone(), opened, owner, failure })
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, nlink, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o555, 2, 0),
            FILE => (FileType::RegularFile, 0o444, 1, self.bytes),
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
        let bytes = self.bytes.saturating_sub(offset).min(size.into()) as usize;
        ANSWER.with_borrow_mut(|answer| {
            if answer.len() < bytes {
                answer.resize(bytes, 0);
            }
            match self.source.read_at(offset, &mut answer[..bytes]) {
                Ok(read) => reply.data(&answer[..read]),
                Err(error) => {
                    reply.error(Errno::EIO);
                    let mut failure =
                        self.failure.lock().expect("no thread panics while it has a failure");
                    failure.get_or_insert(error);
                }
            }
        });
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // As much as the kernel lets us: it says so when asked for more.
        if let Err(most) = config.set_max_readahead(u32::MAX) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let is_file = parent == INodeNo::ROOT && name == self.name.as_str();
        match self.attributes(FILE).filter(|_| is_file) {
            Some(attributes) => reply.entry(&ALWAYS, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&ALWAYS, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match inode {
            FILE => reply.opened(FileHandle(0), self.opened),
            _ => reply.error(Errno::EISDIR),
        }
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
        let blocks = self.bytes.div_ceil(BLOCK_BYTES.into());
        reply.statfs(blocks, 0, 0, 1, 0, BLOCK_BYTES, 255, BLOCK_BYTES);
    }
}
