//! One directory of the walk: opens it, lists its names, and reaches it again later.
//!
//! A directory is opened by its name, relative to the descriptor of its parent, never by a full
//! path, so no path is too long and no symlink is ever followed. The number of descriptors is
//! limited: a directory keeps its own for its children only while the walk's budget lasts;
//! otherwise a child is reached from the nearest ancestor that kept one, and must prove to be the
//! inode that was listed.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::ignore::IgnoreRules;
use super::stat::from_statx;
use pinstripe_io::descriptors::patiently;
use pinstripe_member::meta::Stat;

/// The number of bytes that one getdents64 call may fill: about a thousand names.
const LISTING_BYTES: usize = 32 * 1024;

/// The longest relative path passed to the kernel at once; PATH_MAX includes the final NUL.
const HOP_BYTES: usize = 4095;

const ROOT_IS_OPEN: &str = "the root keeps its descriptor as long as the walk lives";

/// A directory that has been entered, or an ancestor of one.
pub(super) struct Directory {
    /// The parent directory; `None` for the root.
    parent: Option<Arc<Directory>>,
    /// The name in the parent; empty for the root.
    name: CString,
    /// `(device, inode)`.
    identity: (u64, u64),
    /// The descriptor kept open for the children, if the budget allowed it. The root always keeps
    /// its descriptor.
    kept: Option<KeptDescriptor>,
    /// The numbers of the named paths below the directory.
    pub named: Range<usize>,
    /// Whether the directory was itself named by the user, as the root was.
    pub was_named: bool,
    /// Whether only those names are examined in it that lead to a named path.
    pub is_passage: bool,
    /// The rules of the ignore files in it and above it.
    pub ignore: Option<Arc<IgnoreRules>>,
}

/// A descriptor that counts against the budget until it is dropped.
struct KeptDescriptor {
    fd: OwnedFd,
    _permit: Option<DescriptorPermit>,
}

/// The number of directory descriptors that may stay open in addition to those in use.
#[derive(Clone)]
pub(super) struct FdBudget {
    left: Arc<AtomicUsize>,
}

impl FdBudget {
    pub fn new(limit: usize) -> Self {
        FdBudget { left: Arc::new(AtomicUsize::new(limit)) }
    }

    fn take(&self) -> Option<DescriptorPermit> {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .ok()
            .map(|_| DescriptorPermit(self.left.clone()))
    }
}

struct DescriptorPermit(Arc<AtomicUsize>);

impl Drop for DescriptorPermit {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Why a directory could not be entered.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The system returned this error.
    System(Errno),
    /// Another inode has the directory's name now.
    Replaced,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Refusal::System(errno)
    }
}

impl Directory {
    /// Makes the root of a walk, which is open already.
    pub fn root(fd: OwnedFd, identity: (u64, u64), named: Range<usize>) -> Self {
        let kept = Some(KeptDescriptor { fd, _permit: None });
        let name = CString::default();
        let (parent, was_named, is_passage, ignore) = (None, true, false, None);
        Directory { parent, name, identity, kept, named, was_named, is_passage, ignore }
    }

    /// Makes a directory that was listed in `parent` and is not open yet.
    pub fn below(parent: Arc<Directory>, name: CString, identity: (u64, u64)) -> Self {
        let (named, was_named, is_passage) = (0..0, false, false);
        let (ignore, parent, kept) = (parent.ignore.clone(), Some(parent), None);
        Directory { parent, name, identity, kept, named, was_named, is_passage, ignore }
    }

    /// Opens this directory from the nearest open ancestor: for reading or, if it is a passage,
    /// only for opening what is in it.
    ///
    /// # Errors
    /// Fails with [`Refusal::Replaced`] when another inode has its name since it was listed.
    pub fn open(&self) -> Result<OwnedFd, Refusal> {
        let open = if self.is_passage { open_passage } else { open_directory };
        let fd = match &self.parent {
            None => open(self.kept().expect(ROOT_IS_OPEN), c".")?,
            Some(parent) => match parent.kept() {
                Some(at) => open(at, &self.name)?,
                None => open(parent.reach()?.as_fd(), &self.name)?,
            },
        };
        // fstat, for it needs no path walk and every directory pays for this.
        let found = rustix::fs::fstat(&fd)?;
        let is_same = (found.st_dev, found.st_ino) == self.identity;
        if is_same { Ok(fd) } else { Err(Refusal::Replaced) }
    }

    /// Keeps a descriptor for the children while the budget lasts; otherwise returns it.
    pub fn keep(&mut self, fd: OwnedFd, budget: &FdBudget) -> Option<OwnedFd> {
        if self.kept.is_some() {
            return Some(fd);
        }
        match budget.take() {
            Some(permit) => self.kept = Some(KeptDescriptor { fd, _permit: Some(permit) }),
            None => return Some(fd),
        }
        None
    }

    /// The device of the directory's file system.
    pub fn device(&self) -> u64 {
        self.identity.0
    }

    /// The descriptor that was kept for the children, if any.
    pub fn kept(&self) -> Option<BorrowedFd<'_>> {
        self.kept.as_ref().map(|kept| kept.fd.as_fd())
    }

    /// Returns a descriptor of this directory for opening entries in it, not for listing.
    fn reach(&self) -> Result<OwnedFd, Errno> {
        let mut names = Vec::new();
        let mut at = self;
        let anchor = loop {
            if let Some(fd) = at.kept() {
                break fd;
            }
            names.push(at.name.as_c_str());
            at = at.parent.as_deref().expect(ROOT_IS_OPEN);
        };
        names.reverse();
        descend(anchor, &names)
    }

    /// Whether this directory or one of its ancestors is the inode `identity`.
    pub fn is_within(&self, identity: (u64, u64)) -> bool {
        self.and_ancestors().any(|directory| directory.identity == identity)
    }

    /// Appends the path below the root, with a slash before each name: appends nothing for the
    /// root.
    pub(crate) fn append_path(&self, path: &mut Vec<u8>) {
        let names = || self.and_ancestors().map(|at| at.name.to_bytes()).filter(|n| !n.is_empty());
        let mut end = path.len() + names().map(|name| 1 + name.len()).sum::<usize>();
        path.resize(end, b'/');
        for name in names() {
            path[end - name.len()..end].copy_from_slice(name);
            end -= name.len() + 1;
        }
    }

    fn and_ancestors(&self) -> impl Iterator<Item = &Directory> {
        std::iter::successors(Some(self), |directory| directory.parent.as_deref())
    }
}

impl Drop for Directory {
    /// Frees a long chain of ancestors in a loop, because the recursion that the compiler generates
    /// could exhaust the stack.
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(mut directory) = parent.and_then(Arc::into_inner) {
            parent = directory.parent.take();
        }
    }
}

/// Opens a directory for reading: never through a symlink, without blocking, and without changing
/// its access time if this process may ask for that.
pub(super) fn open_directory(at: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let open = |flags| patiently(|| rustix::fs::openat(at, name, flags, Mode::empty()));
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        answer => answer,
    }
}

/// Opens a directory only to open what is in it, which requires no permission to list it.
fn open_passage(at: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    patiently(|| rustix::fs::openat(at, name, flags, Mode::empty()))
}

/// Opens a directory several names below another one, in hops that the kernel's limit on paths
/// allows.
fn descend(anchor: BorrowedFd<'_>, names: &[&CStr]) -> Result<OwnedFd, Errno> {
    let mut at = None;
    let mut rest = names;
    while !rest.is_empty() {
        let from = at.as_ref().map_or(anchor, |fd: &OwnedFd| fd.as_fd());
        let (fd, taken) = hop(from, rest)?;
        (at, rest) = (Some(fd), &rest[taken..]);
    }
    at.ok_or(Errno::INVAL)
}

/// Opens a directory as many names below another one as one call can take; returns that number.
fn hop(at: BorrowedFd<'_>, names: &[&CStr]) -> Result<(OwnedFd, usize), Errno> {
    let mut path = Vec::new();
    let mut taken = 0;
    for name in names {
        let name = name.to_bytes();
        if taken > 0 && path.len() + 1 + name.len() > HOP_BYTES {
            break;
        }
        if taken > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        taken += 1;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match patiently(|| rustix::fs::openat2(at, path.as_slice(), flags, Mode::empty(), resolve)) {
        Ok(fd) => Ok((fd, taken)),
        // Some sandboxes refuse openat2; a single name needs no more than O_NOFOLLOW.
        Err(Errno::NOSYS | Errno::PERM) => {
            Ok((rustix::fs::openat(at, names[0], flags, Mode::empty())?, 1))
        }
        Err(errno) => Err(errno),
    }
}

/// The flags for reading metadata of entries: of a symlink itself, without automount, and without a
/// request to a file server if the metadata is cached.
const STATX_FLAGS: AtFlags =
    AtFlags::SYMLINK_NOFOLLOW.union(AtFlags::NO_AUTOMOUNT).union(AtFlags::STATX_DONT_SYNC);

/// An entry as it was found in its directory.
pub(super) struct Seen {
    /// The metadata; `None` for an unknown file type.
    pub stat: Option<Stat>,
    /// Whether the entry is a mount point of a file system or a bind mount.
    pub is_mount_point: bool,
}

/// Reads the metadata of `name` in the directory `at`, or of the descriptor `at` itself if the name
/// is empty.
pub(super) fn read_stat(at: BorrowedFd<'_>, name: &CStr) -> Result<Seen, Errno> {
    let flags = if name.is_empty() { STATX_FLAGS | AtFlags::EMPTY_PATH } else { STATX_FLAGS };
    let statx = rustix::fs::statx(at, name, flags, StatxFlags::BASIC_STATS)?;
    let is_mount_point = statx.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok(Seen { stat: from_statx(&statx), is_mount_point })
}

/// The names in a directory, in byte order; they take two allocations, however many they are.
#[derive(Default)]
pub(super) struct Names {
    /// The bytes of all names, each with its NUL.
    bytes: Vec<u8>,
    /// Start and length, without NUL, of each name: `start << 16 | length`.
    spans: Vec<u64>,
}

impl Names {
    /// Replaces the names by those in a directory; stops when `go_on` returns false. A listing that
    /// fails leaves the names found so far.
    ///
    /// # Errors
    /// Fails with the error that ended the listing.
    pub fn list(&mut self, fd: BorrowedFd<'_>, go_on: impl Fn() -> bool) -> Result<(), Errno> {
        self.bytes.clear();
        self.spans.clear();
        let mut space = [MaybeUninit::uninit(); LISTING_BYTES];
        let mut entries = RawDir::new(fd, &mut space);
        let mut outcome = Ok(());
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) => self.push(entry.file_name()),
                Err(errno) => outcome = Err(errno),
            }
            if outcome.is_err() || !go_on() {
                break;
            }
        }
        self.sort();
        outcome
    }

    fn push(&mut self, name: &CStr) {
        let name = name.to_bytes_with_nul();
        if name == b".\0" || name == b"..\0" {
            return;
        }
        self.spans.push((self.bytes.len() as u64) << 16 | (name.len() as u64 - 1));
        self.bytes.extend_from_slice(name);
    }

    fn sort(&mut self) {
        let Names { bytes, spans } = self;
        spans.sort_unstable_by(|&a, &b| bytes[text(a)].cmp(&bytes[text(b)]));
        // A directory that changes while it is listed may yield a name twice.
        spans.dedup_by(|a, b| bytes[text(*a)] == bytes[text(*b)]);
    }

    /// Replaces the names by the given ones.
    pub fn set(&mut self, names: &[CString]) {
        self.bytes.clear();
        self.spans.clear();
        names.iter().for_each(|name| self.push(name));
        self.sort();
    }

    /// Adds those of the given names that the listing lacks.
    pub(crate) fn add_missing(&mut self, names: &[CString]) {
        let missing: Vec<_> = names.iter().filter(|name| self.find(name).is_none()).collect();
        if !missing.is_empty() {
            missing.into_iter().for_each(|name| self.push(name));
            self.sort();
        }
    }

    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns the position of a name, if it is present.
    pub fn find(&self, name: &CStr) -> Option<usize> {
        let name = name.to_bytes();
        self.spans.binary_search_by(|&span| self.bytes[text(span)].cmp(name)).ok()
    }

    /// Returns the name at a position in byte order.
    pub fn get(&self, index: usize) -> &CStr {
        let range = text(self.spans[index]);
        CStr::from_bytes_with_nul(&self.bytes[range.start..range.end + 1])
            .expect("names are kept as the kernel gave them: one NUL, at the end")
    }
}

fn text(span: u64) -> std::ops::Range<usize> {
    let begin = (span >> 16) as usize;
    begin..begin + (span & 0xffff) as usize
}
