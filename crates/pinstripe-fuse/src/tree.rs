//! The FUSE file system of a read-only tree.
//!
//! A request costs more (some 50 us) than the work it asks for, so the number of requests is
//! reduced: a directory is listed together with the attributes of its entries, the kernel caches
//! what never changes, and directories, and files of a tree that lasts, are opened without a
//! request.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fuser::{
    AccessFlags, Config, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyXattr, Request, SessionACL,
};

use crate::attributes::{BLOCK_BYTES, attributes, cache_time, kind_of};
use crate::hints::HINT_REQUEST;
use crate::passthrough::Passthrough;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::Stop;
use pinstripe_io::file_tree::{FileKind, FileOpening, FileTree, Node};

/// The most background requests that the kernel may have pending for read-ahead.
const BACKGROUND: u16 = 64;
/// The greatest length of a name in bytes, as reported by statfs(2).
const NAME_BYTES: u32 = 255;
/// The prefix of the names of extended attributes that contain ACLs.
const ACL_PREFIX: &[u8] = b"system.posix_acl_";
/// The number of directory offsets that are used for "." and "..", before the entries of the tree.
const DOTS: u64 = 2;

thread_local! {
    /// The buffer for a thread's answers, as long as its longest answer.
    static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Options for serving a tree.
#[derive(Debug, Clone)]
pub struct TreeOptions {
    /// The name of the file system's source, as mount(8) shows it.
    pub name: String,
    /// The number of threads that answer the kernel.
    pub threads: usize,
    /// Whether other users may access the tree; the kernel then checks permissions.
    pub allow_other: bool,
    /// Whether extended attributes are hidden, which saves a request for each listed file.
    pub leaves_out_xattrs: bool,
}

impl TreeOptions {
    /// The mount options of the FUSE session.
    pub fn config(&self) -> Config {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(self.name.clone()),
            MountOption::Subtype("pinstripe".to_owned()),
            MountOption::RO,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoAtime,
        ];
        if self.allow_other {
            config.mount_options.push(MountOption::DefaultPermissions);
            config.acl = SessionACL::All;
        }
        config.n_threads = Some(self.threads.max(1));
        config.clone_fd = true;
        config
    }
}

/// The file system.
pub struct TreeFileSystem<T> {
    tree: Arc<T>,
    leaves_out_xattrs: bool,
    /// Whether the kernel checks permissions.
    checks_permissions: bool,
    passthrough: Option<Passthrough>,
    /// Set when the file system is destroyed.
    ended: Arc<Stop>,
}

impl<T: FileTree> TreeFileSystem<T> {
    /// The file system of a tree; it sets `ended` when it does not answer requests any more.
    pub fn new(tree: Arc<T>, options: &TreeOptions, ended: Arc<Stop>) -> Self {
        TreeFileSystem {
            tree,
            leaves_out_xattrs: options.leaves_out_xattrs,
            checks_permissions: options.allow_other,
            passthrough: None,
            ended,
        }
    }

    /// Makes the kernel read [files of this machine](FileTree::backing) directly; such a file shows
    /// changes while it is open. `tell` receives the reason once if passthrough is not available.
    #[must_use]
    pub fn with_passthrough(self, tell: impl Fn(Error) + Send + Sync + 'static) -> Self {
        TreeFileSystem { passthrough: Some(Passthrough::new(Box::new(tell))), ..self }
    }

    /// Whether programs may get the answer that no file has an extended attribute with this name.
    /// For the attributes of ACLs this is not permitted: a kernel that checks ACLs would treat it
    /// as a failure of each check, and deny all access.
    fn is_nowhere(&self, name: &[u8]) -> bool {
        let is_checked = self.checks_permissions && name.starts_with(ACL_PREFIX);
        !is_checked && self.tree.has_nowhere(name)
    }

    /// Returns the offset of the next data or hole of a file from an offset on.
    fn seek(&self, inode: u64, offset: u64, is_hole: bool) -> Result<Option<u64>> {
        let size = self.tree.node(inode)?.size;
        if offset >= size {
            return Ok(None);
        }
        let data = self.tree.data(inode)?;
        let found = match is_hole {
            false => {
                let run = data.iter().find(|run| run.end > offset);
                run.map(|run| run.start.max(offset))
            }
            true => {
                let mut at = offset;
                for run in data.iter().filter(|run| run.end > offset) {
                    if run.start > at {
                        break;
                    }
                    at = run.end;
                }
                Some(at.min(size))
            }
        };
        Ok(found)
    }

    /// Lists ".", "..", and then the entries of the tree, beginning with an offset; `take` returns
    /// whether the answer is full.
    fn list(
        &self,
        inode: INodeNo,
        from: u64,
        take: &mut dyn FnMut(u64, &OsStr, &Node) -> bool,
    ) -> Result<()> {
        if from < DOTS {
            let node = self.tree.node(inode.0)?;
            for (place, name) in [(1, "."), (DOTS, "..")] {
                if from < place && take(place, OsStr::new(name), &node) {
                    return Ok(());
                }
            }
        }
        self.tree.list(inode.0, from.saturating_sub(DOTS), &mut |place, name, node| {
            !take(place + DOTS, OsStr::from_bytes(name), node)
        })
    }
}

impl<T: FileTree> Filesystem for TreeFileSystem<T> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The kernel's own maximum, which it returns when asked for more.
        if let Err(most) = config.set_max_readahead(u32::MAX) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND);
        // Older kernels go without what they do not offer. A directory that is kept is listed again
        // when its mtime changes (`AUTO_INVAL_DATA`).
        for wanted in [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_AUTO_INVAL_DATA,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        // The mode of a file with an ACL shows the most that the ACL gives to anyone but the owner:
        // by the mode alone its group may do what the ACL denies.
        if self.checks_permissions && !self.leaves_out_xattrs {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        if let Some(passthrough) = &self.passthrough {
            passthrough.negotiate(config);
        }
        Ok(())
    }

    /// Called when all threads of the session have ended.
    fn destroy(&mut self) {
        self.ended.set();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.tree.lookup(parent.0, name.as_bytes()) {
            Ok(node) => reply.entry(&cache_time(&node), &attributes(&node), Generation(0)),
            // The kernel leaves this check to the file system; a source may accept longer names.
            Err(error) if error.kind() == Kind::NotFound && name.len() > NAME_BYTES as usize => {
                reply.error(Errno::ENAMETOOLONG);
            }
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.tree.node(inode.0) {
            Ok(node) => reply.attr(&cache_time(&node), &attributes(&node)),
            Err(error) => reply.error(number_of(&error)),
        }
    }

    /// Called only if the kernel does not check permissions: everything may be read by a user who
    /// may access the mount, and a file without a mode for execution is not executed.
    fn access(&self, _: &Request, inode: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        match self.tree.node(inode.0) {
            Ok(node) if mask.contains(AccessFlags::X_OK) && !may_be_run(&node) => {
                reply.error(Errno::EACCES);
            }
            Ok(_) => reply.ok(),
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.tree.target(inode.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn forget(&self, _: &Request, inode: INodeNo, mentions: u64) {
        self.tree.forget(inode.0, mentions);
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.tree.open(inode.0) {
            // The kernel never asks again.
            Ok(FileOpening::Untold) => reply.error(Errno::ENOSYS),
            Ok(FileOpening::Current) => {
                let cached = FopenFlags::FOPEN_KEEP_CACHE;
                match &self.passthrough {
                    Some(it) => it.open(inode.0, cached, || self.tree.backing(inode.0), reply),
                    None => reply.opened(FileHandle(0), cached),
                }
            }
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(passthrough) = &self.passthrough {
            passthrough.release(inode.0);
        }
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
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
        let range = offset..offset.saturating_add(size.into());
        let mut reply = Some(reply);
        let given = ANSWER.with_borrow_mut(|answer| {
            self.tree.give(inode.0, range, answer, &mut |bytes| {
                if let Some(reply) = reply.take() {
                    reply.data(bytes);
                }
            })
        });
        if let (Err(error), Some(reply)) = (given, reply) {
            reply.error(number_of(&error));
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
        let listed = self.list(inode, offset, &mut |place, name, node| {
            // The kernel counts no mentions by this call.
            if place > DOTS {
                self.tree.forget(node.inode, 1);
            }
            reply.add(INodeNo(node.inode), place, kind_of(node.kind), name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.list(inode, offset, &mut |place, name, node| {
            let (time, attributes) = (cache_time(node), attributes(node));
            let inode = INodeNo(node.inode);
            let is_full = reply.add(inode, place, name, &time, &attributes, Generation(0));
            if is_full && place > DOTS {
                self.tree.forget(node.inode, 1);
            }
            is_full
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if self.leaves_out_xattrs {
            return reply.error(Errno::ENOSYS);
        }
        match self.tree.xattrs(inode.0) {
            Ok(all) => match all.into_iter().find(|(known, _)| known == name.as_bytes()) {
                Some((_, value)) => answer_xattr(&value, size, reply),
                // Programs that hear this once do not ask again: for `ls -l` that is half of its time.
                None if self.is_nowhere(name.as_bytes()) => reply.error(Errno::EOPNOTSUPP),
                None => reply.error(Errno::ENODATA),
            },
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        if self.leaves_out_xattrs {
            return reply.error(Errno::ENOSYS);
        }
        match self.tree.xattrs(inode.0) {
            Ok(all) => {
                let names: Vec<u8> =
                    all.into_iter().flat_map(|(name, _)| [name, vec![0]].concat()).collect();
                answer_xattr(&names, size, reply);
            }
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn ioctl(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        text: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        if u64::from(command) != HINT_REQUEST {
            return reply.error(Errno::ENOTTY);
        }
        match self.tree.hint(inode.0, text) {
            Ok(()) => reply.ioctl(0, &[]),
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn lseek(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let is_hole = match whence {
            libc::SEEK_DATA => false,
            libc::SEEK_HOLE => true,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.seek(inode.0, offset, is_hole) {
            Ok(Some(at)) => reply.offset(at as i64),
            Ok(None) => reply.error(Errno::ENXIO),
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (bytes, entries) = self.tree.totals();
        let blocks = bytes.div_ceil(BLOCK_BYTES.into());
        reply.statfs(blocks, 0, 0, entries, 0, BLOCK_BYTES, NAME_BYTES, BLOCK_BYTES);
    }
}

/// Whether the kernel executes a file, or enters a directory, if it does not check permissions.
fn may_be_run(node: &Node) -> bool {
    node.kind == FileKind::Directory || node.mode & 0o111 != 0
}

fn answer_xattr(value: &[u8], size: u32, reply: ReplyXattr) {
    match size {
        0 => reply.size(value.len() as u32),
        _ if (size as usize) < value.len() => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}

/// The errno value that the kernel returns to a program for an error.
fn number_of(error: &Error) -> Errno {
    match error.kind() {
        Kind::NotFound => Errno::ENOENT,
        Kind::Usage => Errno::EINVAL,
        Kind::Unsupported => Errno::EOPNOTSUPP,
        // It will be there later.
        Kind::Busy => Errno::EAGAIN,
        // At an open, the kernel looks the path up again.
        Kind::Changed => Errno::ESTALE,
        _ => match error.raw_os_error() {
            Some(libc::EACCES) => Errno::EACCES,
            Some(libc::ENAMETOOLONG) => Errno::ENAMETOOLONG,
            _ => Errno::EIO,
        },
    }
}
