//! A tree with everything in it is read by `source`, written by `sink`, and looks the same.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use pinstripe::{Rules, SourceFile, TreeSink, read_link, xattrs_at};
use pinstripe_io::beneath::{open_beneath, parent_beneath};
use pinstripe_member::meta::{FileKind, Metadata, Stat, Time};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags};

/// The look of an entry from outside; equal before and after.
type Look = (FileKind, u32, u32, u32, u64, u64, Time, (u32, u32), Vec<(Vec<u8>, Vec<u8>)>, Vec<u8>);

fn open(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

fn stat_of(root: &OwnedFd, path: &[u8]) -> Stat {
    let entry = open_beneath(root.as_fd(), path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty());
    let file = fs::File::from(entry.unwrap());
    let found = file.metadata().unwrap();
    let time = |seconds, nanos: i64| Time { seconds, nanos: nanos as u32 };
    Stat {
        kind: FileKind::from_st_mode(found.mode()).unwrap(),
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        links: found.nlink(),
        device: found.dev(),
        inode: found.ino(),
        size_bytes: found.size(),
        blocks: found.blocks(),
        mtime: time(found.mtime(), found.mtime_nsec()),
        ctime: time(found.ctime(), found.ctime_nsec()),
        rdev: (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev())),
    }
}

/// Every path below `root`, parents first.
fn paths(root: &OwnedFd) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut open_yet = vec![Vec::new()];
    while let Some(at) = open_yet.pop() {
        let directory = if at.is_empty() {
            rustix::fs::openat(root, c".", OFlags::RDONLY, Mode::empty()).unwrap()
        } else {
            open_beneath(root.as_fd(), &at, OFlags::RDONLY, Mode::empty()).unwrap()
        };
        for entry in rustix::fs::Dir::read_from(&directory).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let mut path = at.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            if stat_of(root, &path).kind == FileKind::Directory {
                open_yet.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

fn look(root: &OwnedFd) -> BTreeMap<Vec<u8>, Look> {
    let look_at = |path: Vec<u8>| {
        let stat = stat_of(root, &path);
        let content = match stat.kind {
            FileKind::Symlink => read_link(root.as_fd(), &path).unwrap(),
            FileKind::File => {
                let mut content = vec![0; stat.size_bytes as usize];
                let file = SourceFile::open(root.as_fd(), &path).unwrap();
                assert_eq!(file.read_at(0, &mut content).unwrap(), content.len());
                content
            }
            _ => Vec::new(),
        };
        let size_bytes = if stat.kind == FileKind::File { stat.size_bytes } else { 0 };
        let xattrs = xattrs_at(root.as_fd(), &path).unwrap().list;
        let Stat { kind, mode, uid, gid, links, mtime, rdev, .. } = stat;
        let links = if kind == FileKind::Directory { 0 } else { links };
        (path, (kind, mode, uid, gid, links, size_bytes, mtime, rdev, xattrs, content))
    };
    paths(root).into_iter().map(look_at).collect()
}

/// Backs up and restores without a store between.
fn copy(from: &OwnedFd, sink: &TreeSink) {
    let all = paths(from);
    let mut first_names = BTreeMap::new();
    for path in &all {
        let stat = stat_of(from, path);
        let first = first_names.entry((stat.device, stat.inode)).or_insert(path);
        if *first != path {
            sink.hard_link(first, path).unwrap();
            continue;
        }
        let xattrs = xattrs_at(from.as_fd(), path).unwrap();
        assert!(xattrs.problems.is_empty());
        let metadata = Metadata::new(&stat, xattrs.list);
        let unset = match stat.kind {
            FileKind::Directory => {
                sink.make_directory(path).unwrap();
                Vec::new()
            }
            FileKind::File => {
                let file = SourceFile::open(from.as_fd(), path).unwrap();
                let copy = sink.create_file(path, stat.size_bytes, metadata).unwrap();
                for extent in file.data_extents().unwrap() {
                    let mut bytes = vec![0; (extent.end - extent.start) as usize];
                    assert_eq!(file.read_at(extent.start, &mut bytes).unwrap(), bytes.len());
                    copy.write_at(extent.start, &bytes).unwrap();
                }
                assert!(!file.changed_since(&stat).unwrap());
                copy.finish().unwrap()
            }
            FileKind::Symlink => {
                let target = read_link(from.as_fd(), path).unwrap();
                sink.symlink(path, &target, &metadata).unwrap()
            }
            _ => sink.special(path, &metadata).unwrap(),
        };
        assert!(unset.is_empty(), "{unset:?}");
    }
    for path in all.iter().rev() {
        let stat = stat_of(from, path);
        if stat.kind == FileKind::Directory {
            let xattrs = xattrs_at(from.as_fd(), path).unwrap();
            let metadata = Metadata::new(&stat, xattrs.list);
            assert!(sink.finish_directory(path, &metadata).unwrap().is_empty());
        }
    }
}

fn set_look(path: &Path, mode: u32, seconds: i64, nanos: i64) {
    let named = fs::symlink_metadata(path).unwrap();
    if !named.is_symlink() {
        rustix::fs::chmod(path, Mode::from_raw_mode(mode)).unwrap();
    }
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos as _ };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn build(at: &Path) {
    let is_root = rustix::process::geteuid().is_root();
    let odd = OsStr::from_bytes(b"not \xff utf-8\n");
    fs::create_dir_all(at.join("d/e")).unwrap();
    fs::write(at.join("d/e").join(odd), b"odd").unwrap();
    fs::write(at.join("empty"), b"").unwrap();
    fs::write(at.join("suid"), vec![3; 100_000]).unwrap();
    fs::hard_link(at.join("suid"), at.join("d/again")).unwrap();
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    sparse.write_all_at(&[5; 4096], 8 << 20).unwrap();
    sparse.set_len(32 << 20).unwrap();
    symlink("/nowhere/at all", at.join("link")).unwrap();
    let make = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, at.join(name), kind, Mode::RUSR, device)
    };
    make("fifo", FileType::Fifo, 0).unwrap();
    make("socket", FileType::Socket, 0).unwrap();
    if is_root {
        for (at_most, name) in ["d/e", "empty", "suid", "link", "fifo"].iter().enumerate() {
            let (uid, gid) = (1000 + at_most as u32, 2000 + at_most as u32);
            std::os::unix::fs::lchown(at.join(name), Some(uid), Some(gid)).unwrap();
        }
        let device = rustix::fs::makedev(1, 3);
        if make("null", FileType::CharacterDevice, device).is_err() {
            eprintln!("device nodes skipped: not allowed here");
        }
        // The capability to bind low ports, version 2.
        let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let name = "security.capability";
        if rustix::fs::setxattr(at.join("suid"), name, &capability, XattrFlags::empty()).is_err() {
            eprintln!("capability skipped: not supported here");
        }
    } else {
        eprintln!("owners, device nodes and capabilities skipped: they need root");
    }
    for name in ["d", "suid"] {
        if rustix::fs::setxattr(at.join(name), "user.note", b"n\0te", XattrFlags::empty()).is_err()
        {
            eprintln!("user attributes skipped: not supported here");
        }
    }
    let root = open(at);
    let mut deep = b"d/deep".to_vec();
    while deep.len() < 5000 {
        let (parent, name) = parent_beneath(root.as_fd(), &deep).unwrap();
        rustix::fs::mkdirat(&parent, name, Mode::RWXU).unwrap();
        deep.extend_from_slice(b"/a rather long name of a directory to get there sooner");
    }
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let file = open_beneath(root.as_fd(), &deep, flags, Mode::RUSR).unwrap();
    rustix::io::write(&file, b"deep").unwrap();
    set_look(&at.join("suid"), 0o6751, -5_000, 999_999_999);
    set_look(&at.join("empty"), 0o404, 0, 0);
    set_look(&at.join("sparse"), 0o600, 1_700_000_000, 1);
    set_look(&at.join("link"), 0, -1, 5);
    set_look(&at.join("fifo"), 0o662, 1, 2);
    set_look(&at.join("d/e"), 0o3755, 2, 3);
    set_look(&at.join("d"), 0o1777, 3, 4);
}

/// The directory standing in `tempfile` cannot remove paths beyond PATH_MAX everywhere.
fn remove(root: &OwnedFd) {
    for path in paths(root).iter().rev() {
        let (parent, name) = parent_beneath(root.as_fd(), path).unwrap();
        let flags = if stat_of(root, path).kind == FileKind::Directory {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        rustix::fs::unlinkat(&parent, name, flags).unwrap();
    }
}

#[test]
fn a_tree_with_everything_in_it_comes_back_the_same() {
    let around = tempfile::tempdir().unwrap();
    let (from, to) = (around.path().join("from"), around.path().join("to"));
    fs::create_dir(&from).unwrap();
    build(&from);
    let source = open(&from);
    let wanted = look(&source);
    assert!(wanted.keys().any(|path| path.len() > 4096));

    copy(&source, &TreeSink::create(&to, Rules::EMPTY).unwrap());
    let target = open(&to);
    assert!(look(&target) == wanted, "the restored tree differs");
    let sparse = [&source, &target].map(|root| {
        let file = SourceFile::open(root.as_fd(), b"sparse").unwrap();
        (file.data_extents().unwrap(), file.stat().blocks)
    });
    assert_eq!(sparse[0].0, sparse[1].0);
    assert!(sparse[1].1 <= sparse[0].1 + 16, "holes became blocks: {sparse:?}");

    // Once more over itself: everything is replaced by its like.
    copy(&source, &TreeSink::create(&to, Rules::OVERWRITE).unwrap());
    assert!(look(&target) == wanted, "the tree restored over itself differs");
    remove(&source);
    remove(&target);
}
