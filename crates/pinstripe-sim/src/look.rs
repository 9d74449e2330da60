//! What a tree looks like from outside, by plain system calls: everything that rsync -aHAX
//! compares, and the positions of holes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::SeekFrom;

/// The look of one entry; if it differs before and after, something was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Type and permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: (i64, i64),
    /// Major and minor number of a device.
    pub rdev: u64,
    /// Length of files.
    pub size: u64,
    pub extents: Vec<Range<u64>>,
    /// The hash of a file's content, or the target of a symlink.
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path, in byte order, of the paths that share the inode.
    pub first_name: Vec<u8>,
}

/// A tree by path; the root of the tree has the empty path.
pub type Tree = BTreeMap<Vec<u8>, Look>;

/// The fields that no restore can set, and those that show that a file was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub inode: u64,
    pub ctime: (i64, i64),
    pub mtime: (i64, i64),
    pub size: u64,
    /// Bytes of data, without holes.
    pub data_bytes: u64,
}

pub fn look(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut first_names: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
    for path in paths(root) {
        let full = root.join(OsStr::from_bytes(&path));
        let stat = fs::symlink_metadata(&full).unwrap();
        let is_directory = stat.is_dir();
        let first_name = if is_directory {
            path.clone()
        } else {
            first_names.entry((stat.dev(), stat.ino())).or_insert_with(|| path.clone()).clone()
        };
        let (mut content, mut extents) = (Vec::new(), Vec::new());
        if stat.is_file() {
            content = blake3::hash(&fs::read(&full).unwrap()).as_bytes().to_vec();
            extents = data_extents(&full, &stat);
        } else if stat.is_symlink() {
            content = fs::read_link(&full).unwrap().as_os_str().as_bytes().to_vec();
        }
        let look = Look {
            mode: stat.mode(),
            uid: stat.uid(),
            gid: stat.gid(),
            mtime: (stat.mtime(), stat.mtime_nsec()),
            rdev: stat.rdev(),
            size: if stat.is_file() { stat.len() } else { 0 },
            extents,
            content,
            xattrs: xattrs(&full),
            first_name,
        };
        tree.insert(path, look);
    }
    tree
}

/// Returns every path below `root`, and the empty path of `root` itself.
pub fn paths(root: &Path) -> Vec<Vec<u8>> {
    let mut found = vec![Vec::new()];
    let mut at = 0;
    while at < found.len() {
        let below = found[at].clone();
        at += 1;
        let full = root.join(OsStr::from_bytes(&below));
        if !fs::symlink_metadata(&full).unwrap().is_dir() {
            continue;
        }
        for entry in fs::read_dir(&full).unwrap() {
            let name = entry.unwrap().file_name();
            let slash: &[u8] = if below.is_empty() { b"" } else { b"/" };
            found.push([&below, slash, name.as_bytes()].concat());
        }
    }
    found.sort_unstable();
    found
}

/// The stamps of all regular files.
pub fn stamps(root: &Path) -> BTreeMap<Vec<u8>, Stamp> {
    let stamp = |path: Vec<u8>| {
        let full = root.join(OsStr::from_bytes(&path));
        let stat = fs::symlink_metadata(&full).unwrap();
        let stamp = || Stamp {
            inode: stat.ino(),
            ctime: (stat.ctime(), stat.ctime_nsec()),
            mtime: (stat.mtime(), stat.mtime_nsec()),
            size: stat.len(),
            data_bytes: data_extents(&full, &stat).iter().map(|e| e.end - e.start).sum(),
        };
        stat.is_file().then(|| (path.clone(), stamp()))
    };
    paths(root).into_iter().filter_map(stamp).collect()
}

/// A file whose allocated space is at least its length is treated as a file without holes.
fn data_extents(path: &Path, stat: &fs::Metadata) -> Vec<Range<u64>> {
    let size = stat.len();
    if size > 0 && stat.blocks() * 512 >= size {
        return std::iter::once(0..size).collect();
    }
    let file = fs::File::open(path).unwrap();
    let mut extents = Vec::new();
    let mut at = 0;
    while at < size {
        let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at)) else { break };
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap();
        extents.push(start..end);
        at = end;
    }
    extents
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let names = names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(len);
        (name.to_vec(), value)
    };
    names.map(value).collect()
}

/// Panics with a list of all differences, by path.
#[track_caller]
pub fn assert_same(wanted: &Tree, found: &Tree) {
    if wanted == found {
        return;
    }
    let mut text = String::new();
    for path in wanted.keys().chain(found.keys().filter(|path| !wanted.contains_key(*path))) {
        let (wanted, found) = (wanted.get(path), found.get(path));
        if wanted != found {
            let path = String::from_utf8_lossy(path);
            writeln!(text, "'{path}':\n  wanted {wanted:?}\n  found  {found:?}").unwrap();
        }
    }
    panic!("the trees differ:\n{text}");
}
