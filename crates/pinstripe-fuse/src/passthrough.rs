//! Passthrough: files that the kernel reads directly from other files, without asking this process
//! (Linux 6.9).
//!
//! Invariants, which the kernel requires for an inode while it is open: either all of its opens are
//! passed through to one backing file, or none is; and that file stays registered until the last
//! open is closed.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fuser::{BackingId, FileHandle, FopenFlags, InitFlags, KernelConfig, ReplyOpen};
use rustix::io::Errno;

use pinstripe_base::error::{Error, Kind};
use pinstripe_base::sync::lock;

/// The greatest stacking depth of file systems: backing files are on a file system that is not
/// stacked.
const STACK_DEPTH: u32 = 1;

/// The function that receives the reason why nothing is passed through.
pub(crate) type TellRefusal = Box<dyn Fn(Error) + Send + Sync>;

/// The opens of a file system that passes files through.
pub(crate) struct Passthrough {
    /// Whether the kernel and the rights of this process allow passthrough, as far as is known.
    is_possible: AtomicBool,
    tell: TellRefusal,
    open: Mutex<HashMap<u64, OpenedInode>>,
}

/// An inode that programs have open.
struct OpenedInode {
    /// The backing file of the inode; `None` if this process answers its reads.
    backing: Option<Arc<BackingId>>,
    handles: u64,
}

impl Passthrough {
    pub(crate) fn new(tell: TellRefusal) -> Self {
        Passthrough { is_possible: AtomicBool::new(true), tell, open: Mutex::default() }
    }

    /// Requests passthrough from the kernel.
    pub(crate) fn negotiate(&self, config: &mut KernelConfig) {
        let offered = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(STACK_DEPTH).is_ok();
        if !offered {
            let what =
                "this kernel does not support passthrough (FUSE_PASSTHROUGH, since Linux 6.9)";
            self.refuse(Error::new(Kind::Unsupported, what));
        }
    }

    /// Stops passing files through; the reason is reported once.
    fn refuse(&self, error: Error) {
        if self.is_possible.swap(false, Ordering::Relaxed) {
            (self.tell)(error.advice("the option has no effect: this process answers the reads"));
        }
    }

    /// Answers an open: in the same way as existing opens of the inode, or else with the backing
    /// file if `find` returns one. Opens whose reads this process answers get the flags `cached`.
    pub(crate) fn open(
        &self,
        inode: u64,
        cached: FopenFlags,
        find: impl FnOnce() -> Option<OwnedFd>,
        reply: ReplyOpen,
    ) {
        // Found without the lock: that may take as long as the source does.
        let is_open = lock(&self.open).contains_key(&inode);
        let file = match !is_open && self.is_possible.load(Ordering::Relaxed) {
            true => find(),
            false => None,
        };
        let mut open = lock(&self.open);
        let opened = open.entry(inode).or_insert_with(|| OpenedInode {
            backing: file.and_then(|file| self.register(&reply, &file)).map(Arc::new),
            handles: 0,
        });
        opened.handles += 1;
        let backing = opened.backing.clone();
        drop(open);
        match backing {
            // The kernel accepts no other flags with this one.
            Some(id) => reply.opened_passthrough(FileHandle(0), FopenFlags::empty(), &id),
            None => reply.opened(FileHandle(0), cached),
        }
    }

    fn register(&self, reply: &ReplyOpen, file: &OwnedFd) -> Option<BackingId> {
        reply.open_backing(file).inspect_err(|error| self.refused(error)).ok()
    }

    fn refused(&self, error: &io::Error) {
        let number = error.raw_os_error().map(Errno::from_raw_os_error);
        let what = match number {
            Some(Errno::PERM) => "passthrough needs root (CAP_SYS_ADMIN)",
            // This file only: it is on a file system that is stacked itself.
            Some(Errno::LOOP) => return,
            _ => {
                let number = error.raw_os_error();
                let cause = number.map_or(error.kind().into(), io::Error::from_raw_os_error);
                return self.refuse(Error::io(
                    "the kernel cannot read this file directly",
                    "a file",
                    cause,
                ));
            }
        };
        self.refuse(Error::new(Kind::Refused, what));
    }

    /// Removes one open of an inode.
    pub(crate) fn release(&self, inode: u64) {
        let mut open = lock(&self.open);
        let Some(opened) = open.get_mut(&inode) else { return };
        opened.handles -= 1;
        if opened.handles == 0 {
            // Dropping it has the kernel forget the file.
            open.remove(&inode);
        }
    }
}
