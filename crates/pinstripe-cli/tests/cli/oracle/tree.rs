//! Random trees on disk, with mounts, and what they look like.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use pinstripe_testing::noise;
use rustix::fs::{AtFlags, CWD, FileType, Mode, SeekFrom, Timespec, Timestamps, XattrFlags};
use rustix::mount::{MountFlags, UnmountFlags};

/// The page of the file system in memory: holes begin and end at its multiples.
const PAGE: u64 = 4096;
const NAMES: &[&[u8]] =
    &[b"a", b"b", b"c d", b"n\nl", b"\xff\xfe", b"out", b"x.o", b"*", b"\xc3\xa9", b"a.b"];
const TIMES: &[i64] = &[1_000_000_000, 1_234_567_890, 1_600_000_000];
const MODES: &[u32] = &[0o644, 0o600, 0o755, 0o700, 0o4755, 0o1777, 0o400];
/// The system allows `user.*` for files and directories alone.
const ATTRIBUTES: &[&[u8]] = &[b"user.a", b"user.b c", b"user.\xff"];
/// An attribute for symlinks, FIFOs, sockets and devices. If only the target has it, it stays.
const TRUSTED: &[u8] = b"trusted.a";
pub const TAG: &str = "CACHEDIR.TAG";
pub const SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// Numbers that follow from a seed.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Draw(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
}

/// An entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeNode {
    pub kind: NodeKind,
    pub mode: u32,
    pub owner: (u32, u32),
    pub mtime: (i64, i64),
    pub ctime: (i64, i64),
    pub size: u64,
    /// Bytes outside of holes.
    pub data: u64,
    /// The content of a file, or the target of a symlink.
    pub content: Vec<u8>,
    pub xattrs: Xattrs,
    /// Device and inode number.
    pub id: (u64, u64),
    pub links: u64,
}

/// Extended attributes by their names.
pub type Xattrs = BTreeMap<OsString, Vec<u8>>;

impl TreeNode {
    pub fn is_directory(&self) -> bool {
        self.kind == NodeKind::Directory
    }
}

/// The entries of a tree by their paths, in path order.
pub type NodeTree = BTreeMap<PathBuf, TreeNode>;

/// Returns the entries at and below `at` by their absolute paths; none if it does not exist.
pub fn scan(at: &Path) -> NodeTree {
    let mut tree = NodeTree::new();
    let mut left = vec![at.to_path_buf()];
    while let Some(path) = left.pop() {
        let Ok(stat) = fs::symlink_metadata(&path) else { continue };
        if stat.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let seen = see(&path, &stat);
        tree.insert(path, seen);
    }
    tree
}

pub fn see(path: &Path, stat: &fs::Metadata) -> TreeNode {
    let kind = match FileType::from_raw_mode(stat.mode()) {
        FileType::RegularFile => NodeKind::File,
        FileType::Directory => NodeKind::Directory,
        FileType::Symlink => NodeKind::Symlink,
        FileType::Fifo => NodeKind::Fifo,
        FileType::Socket => NodeKind::Socket,
        _ => NodeKind::Device,
    };
    let content = match kind {
        NodeKind::File => fs::read(path).unwrap(),
        NodeKind::Symlink => fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec(),
        _ => Vec::new(),
    };
    TreeNode {
        kind,
        mode: stat.mode() & 0o7777,
        owner: (stat.uid(), stat.gid()),
        mtime: (stat.mtime(), stat.mtime_nsec()),
        ctime: (stat.ctime(), stat.ctime_nsec()),
        size: stat.size(),
        data: if kind == NodeKind::File { data_bytes(path, stat) } else { 0 },
        content,
        xattrs: xattrs(path),
        id: (stat.dev(), stat.ino()),
        links: stat.nlink(),
    }
}

/// The attributes that everybody or root may set; none where the file system has none.
fn xattrs(path: &Path) -> Xattrs {
    let mut names = vec![0; 4096];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names[..]) else { return Xattrs::new() };
    let names = names[..length].split(|byte| *byte == 0).map(OsStr::from_bytes);
    let ours =
        names.filter(|name| ATTRIBUTES.contains(&name.as_bytes()) || name.as_bytes() == TRUSTED);
    let value = |name: &OsStr| {
        let mut value = vec![0; 4096];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(length);
        value
    };
    ours.map(|name| (name.to_os_string(), value(name))).collect()
}

/// Sets an attribute, or removes it, where the file system supports that.
fn set_xattr(draw: &mut Draw, path: &Path) {
    let kind = fs::symlink_metadata(path).unwrap().file_type();
    let name = match kind.is_file() || kind.is_dir() {
        true => ATTRIBUTES[draw.below(ATTRIBUTES.len())],
        false => TRUSTED,
    };
    let name = OsStr::from_bytes(name);
    let value: &[u8] = match draw.below(4) {
        0 => {
            let _ = rustix::fs::lremovexattr(path, name);
            return;
        }
        1 => b"",
        2 => b"one",
        _ => &[0xff; 300],
    };
    let _ = rustix::fs::lsetxattr(path, name, value, XattrFlags::empty());
}

fn data_bytes(path: &Path, stat: &fs::Metadata) -> u64 {
    if stat.blocks() * 512 >= stat.size() {
        return stat.size();
    }
    let file = fs::File::open(path).unwrap();
    let (mut at, mut bytes) = (0, 0);
    while let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap();
        bytes += at - start;
    }
    bytes
}

/// A directory on disk that is filled and changed at random, and its story.
pub struct Ground {
    pub root: PathBuf,
    /// A directory outside of the root, to be mounted in it.
    elsewhere: PathBuf,
    pub mounts: BTreeSet<PathBuf>,
    pub can_mount: bool,
    /// Two paths lead to one file without a hard link.
    pub has_aliases: bool,
    pub story: Vec<String>,
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.unmount_all();
        if std::thread::panicking() {
            eprintln!("{}:\n  {}", self.root.display(), self.story.join("\n  "));
        }
    }
}

impl Ground {
    pub fn new(root: PathBuf, elsewhere: PathBuf, can_mount: bool) -> Self {
        fs::create_dir_all(&root).unwrap();
        for name in ["a", "deep/b"] {
            let path = elsewhere.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let (mounts, story) = (BTreeSet::new(), Vec::new());
        Ground { root, elsewhere, mounts, can_mount, has_aliases: false, story }
    }

    fn unmount_all(&mut self) {
        for at in std::mem::take(&mut self.mounts).iter().rev() {
            let _ = rustix::mount::unmount(at, UnmountFlags::DETACH);
        }
    }

    pub fn note(&mut self, what: &str, at: &Path) {
        self.story.push(format!("{what} {:?}", at.strip_prefix(&self.root).unwrap_or(at)));
    }

    pub fn scan(&self) -> NodeTree {
        scan(&self.root)
    }

    fn all(&self, is_wanted: impl Fn(&TreeNode) -> bool) -> Vec<PathBuf> {
        let all =
            self.scan().into_iter().filter(|(path, seen)| *path != self.root && is_wanted(seen));
        all.map(|(path, _)| path).collect()
    }

    pub fn pick(&self, draw: &mut Draw, is_wanted: impl Fn(&TreeNode) -> bool) -> Option<PathBuf> {
        let all = self.all(is_wanted);
        (!all.is_empty()).then(|| draw.pick(&all).clone())
    }

    /// Returns a name that is free, in any directory.
    fn free(&self, draw: &mut Draw) -> Option<PathBuf> {
        let mut directories = self.all(TreeNode::is_directory);
        directories.push(self.root.clone());
        let name = OsStr::from_bytes(NAMES[draw.below(NAMES.len())]);
        let path = draw.pick(&directories).join(name);
        fs::symlink_metadata(&path).is_err().then_some(path)
    }

    /// Whether anything is mounted at or below a path, or mounted from there.
    fn is_mounted(&self, path: &Path) -> bool {
        let shown = self.mounts.iter().filter_map(|at| fs::metadata(at).ok());
        let shown: BTreeSet<_> = shown.map(|it| (it.dev(), it.ino())).collect();
        self.mounts.iter().any(|at| at.starts_with(path))
            || scan(path).values().any(|it| shown.contains(&it.id))
    }

    pub fn grow(&mut self, draw: &mut Draw, count: usize) {
        (0..count).for_each(|_| self.add(draw));
        for path in self.all(|_| true) {
            if draw.one_in(3) && fs::symlink_metadata(&path).is_ok() {
                self.dress(draw, &path);
            }
        }
    }

    fn add(&mut self, draw: &mut Draw) {
        let Some(path) = self.free(draw) else { return };
        let what = match draw.below(24) {
            0..6 => {
                fs::create_dir(&path).unwrap();
                "directory"
            }
            6..11 => {
                write(draw, &path);
                "file"
            }
            11..13 => {
                sparse(draw, &path);
                "sparse file"
            }
            13..15 => {
                symlink(draw.pick(&["a", "b", "..", "/etc", "nowhere", "out/a"]), &path).unwrap();
                "symlink"
            }
            15..18 => self.link(draw, &path),
            18 => {
                let kind =
                    *draw.pick(&[FileType::Fifo, FileType::Socket, FileType::CharacterDevice]);
                // The system decides whether there may be devices here.
                let device = rustix::fs::makedev(1, 3);
                let _ = rustix::fs::mknodat(CWD, &path, kind, Mode::RUSR, device);
                "special file"
            }
            19 => {
                fs::create_dir(&path).unwrap();
                let tag = if draw.one_in(4) { b"none" } else { SIGNATURE };
                fs::write(path.join(TAG), tag).unwrap();
                fs::create_dir(path.join("in")).unwrap();
                fs::write(path.join("in/a"), "cached").unwrap();
                "cache"
            }
            20..22 => self.mount_memory(&path),
            _ => self.bind(draw, &path),
        };
        self.note(what, &path);
    }

    fn link(&self, draw: &mut Draw, path: &Path) -> &'static str {
        let existing = self.pick(draw, |seen| matches!(seen.kind, NodeKind::File | NodeKind::Fifo));
        match existing.is_some_and(|existing| fs::hard_link(existing, path).is_ok()) {
            true => "hard link",
            false => "no hard link",
        }
    }

    pub fn mount_memory(&mut self, at: &Path) -> &'static str {
        fs::create_dir_all(at).unwrap();
        if !self.can_mount
            || rustix::mount::mount("tmpfs", at, "tmpfs", MountFlags::empty(), c"size=4m").is_err()
        {
            return "directory, no mount,";
        }
        self.mounts.insert(at.to_path_buf());
        fs::write(at.join("a"), "in a mount").unwrap();
        fs::create_dir(at.join("b")).unwrap();
        fs::write(at.join("b/a"), "deep in a mount").unwrap();
        "memory mounted at"
    }

    fn bind(&mut self, draw: &mut Draw, at: &Path) -> &'static str {
        fs::create_dir(at).unwrap();
        let mut from = self.elsewhere.clone();
        if draw.one_in(3) {
            let other = self.pick(draw, TreeNode::is_directory);
            from = other.unwrap_or(from);
        }
        if would_contain_itself(at, &from) {
            return "directory";
        }
        self.bind_from(&from, at)
    }

    pub fn bind_elsewhere(&mut self, at: &Path) -> &'static str {
        fs::create_dir_all(at).unwrap();
        let from = self.elsewhere.clone();
        self.bind_from(&from, at)
    }

    fn bind_from(&mut self, from: &Path, at: &Path) -> &'static str {
        let already = self.mounts.iter().any(|at| is_same(at, from));
        if !self.can_mount || rustix::mount::mount_bind(from, at).is_err() {
            return "directory, no bind mount,";
        }
        self.has_aliases |= already || from.starts_with(&self.root);
        self.mounts.insert(at.to_path_buf());
        "bind mount at"
    }

    fn dress(&mut self, draw: &mut Draw, path: &Path) {
        let is_link = fs::symlink_metadata(path).unwrap().is_symlink();
        if !is_link && draw.one_in(2) {
            set_mode(path, *draw.pick(MODES));
        }
        if draw.one_in(4) {
            let owner = Some(*draw.pick(&[0, 7, 1000]));
            std::os::unix::fs::lchown(path, owner, owner).unwrap();
        }
        for _ in 0..draw.below(3) {
            set_xattr(draw, path);
        }
        set_time(path, (*draw.pick(TIMES), 5));
    }

    /// Changes the tree as its users might.
    pub fn change(&mut self, draw: &mut Draw, count: usize) {
        for _ in 0..count {
            if draw.one_in(3) {
                self.add(draw);
                continue;
            }
            let Some(path) = self.pick(draw, |_| true) else { continue };
            let stat = fs::symlink_metadata(&path).unwrap();
            let what = match draw.below(7) {
                0 if stat.is_file() => {
                    write(draw, &path);
                    "written"
                }
                1 => {
                    self.dress(draw, &path);
                    "dressed"
                }
                2 if stat.is_file() => {
                    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(7).unwrap();
                    "cut"
                }
                3 if !self.is_mounted(&path) => {
                    remove(&path);
                    "removed"
                }
                4 if !self.is_mounted(&path) => {
                    remove(&path);
                    if fs::symlink_metadata(&path).is_ok() {
                        continue;
                    }
                    self.become_another(draw, &path)
                }
                5 if !self.is_mounted(&path) => {
                    let Some(to) = self.free(draw).filter(|to| !to.starts_with(&path)) else {
                        continue;
                    };
                    let moved = fs::rename(&path, &to).is_ok();
                    self.note("moved to", &to);
                    if moved { "moved" } else { "not moved" }
                }
                _ => continue,
            };
            self.note(what, &path);
        }
    }

    fn become_another(&self, draw: &mut Draw, path: &Path) -> &'static str {
        match draw.below(5) {
            0 => {
                fs::create_dir(path).unwrap();
                "an empty directory now:"
            }
            1 | 2 => {
                fs::create_dir_all(path.join("sub")).unwrap();
                fs::write(path.join("sub/a"), "in the way").unwrap();
                "a full directory now:"
            }
            3 => {
                symlink(draw.pick(&["a", ".", "/etc"]), path).unwrap();
                "a symlink now:"
            }
            _ => {
                write(draw, path);
                "a file now:"
            }
        }
    }

    /// Changes the tree in ways that size and time do not show, and by links and mounts.
    pub fn spoil(&mut self, draw: &mut Draw, count: usize) {
        for _ in 0..count {
            let what = draw.below(7);
            let is_file = |seen: &TreeNode| seen.kind == NodeKind::File;
            let path = match what {
                0..5 => self.pick(draw, is_file),
                _ => self.pick(draw, TreeNode::is_directory),
            };
            let Some(path) = path else { continue };
            let stat = fs::symlink_metadata(&path).unwrap();
            let what = match what {
                0 | 1 if stat.size() > 0 => {
                    let at = draw.below(stat.size() as usize) as u64;
                    fs::OpenOptions::new()
                        .write(true)
                        .open(&path)
                        .unwrap()
                        .write_all_at(b"!", at)
                        .unwrap();
                    set_time(&path, (stat.mtime(), stat.mtime_nsec()));
                    "garbage at the same time in"
                }
                2 => {
                    let content = fs::read(&path).unwrap();
                    fs::remove_file(&path).unwrap();
                    fs::write(&path, content).unwrap();
                    set_mode(&path, stat.mode() & 0o7777);
                    std::os::unix::fs::chown(&path, Some(stat.uid()), Some(stat.gid())).unwrap();
                    set_mode(&path, stat.mode() & 0o7777);
                    set_time(&path, (stat.mtime(), stat.mtime_nsec()));
                    "a dense copy without links at"
                }
                3 => {
                    let Some(other) = self.pick(draw, is_file) else { continue };
                    if other == path {
                        continue;
                    }
                    self.note("links to", &other);
                    fs::remove_file(&path).unwrap();
                    let linked = fs::hard_link(&other, &path).is_ok();
                    if linked { "a link now:" } else { "no link now:" }
                }
                4 => {
                    let Some(new) = self.free(draw) else { continue };
                    self.note("another name:", &new);
                    if fs::hard_link(&path, new).is_ok() { "linked" } else { "not linked" }
                }
                5 if !self.is_mounted(&path) => self.mount_memory(&path),
                6 if self.mounts.is_empty() => {
                    let Some(new) = self.free(draw) else { continue };
                    self.note("for", &new);
                    self.bind_elsewhere(&new)
                }
                _ => continue,
            };
            self.note(what, &path);
        }
    }
}

/// Whether a directory above `at` is `other`, or below it.
fn would_contain_itself(at: &Path, other: &Path) -> bool {
    let above = at.ancestors().skip(1).filter_map(|it| fs::metadata(it).ok());
    let above: BTreeSet<_> = above.map(|it| (it.dev(), it.ino())).collect();
    scan(other).values().any(|it| above.contains(&it.id))
}

fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    id(one).is_some() && id(one) == id(other)
}

fn write(draw: &mut Draw, path: &Path) {
    let bytes = *draw.pick(&[0, 1, 10, 10, 5000, 70_000]);
    fs::write(path, noise(draw.below(4) as u64, bytes)).unwrap();
}

fn sparse(draw: &mut Draw, path: &Path) {
    let file = fs::File::create(path).unwrap();
    for _ in 0..draw.below(3) {
        let at = draw.below(40) as u64 * PAGE;
        file.write_all_at(&noise(at, PAGE as usize), at).unwrap();
    }
    file.set_len(41 * PAGE + draw.below(3) as u64).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub fn set_time(path: &Path, (seconds, nanos): (i64, i64)) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Removes an entry, except for what something is mounted on under another path.
fn remove(path: &Path) {
    match fs::symlink_metadata(path).unwrap().is_dir() {
        true => drop(fs::remove_dir_all(path)),
        false => fs::remove_file(path).unwrap(),
    }
}
