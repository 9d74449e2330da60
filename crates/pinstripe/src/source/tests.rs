use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use rustix::fs::XattrFlags;
use tempfile::TempDir;

use super::*;
use pinstripe_member::meta::FileKind;

const BOTH: [Resolver; 2] = [Resolver::Openat2, Resolver::Steps];

fn root_of(directory: &Path) -> OwnedFd {
    rustix::fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

fn tree() -> (TempDir, OwnedFd) {
    let here = tempfile::tempdir().unwrap();
    let root = root_of(here.path());
    (here, root)
}

fn make_fifo(here: &TempDir, name: &str) {
    let path = here.path().join(name);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
}

#[test]
fn a_file_is_read_at_any_offset_to_its_end() {
    let (here, root) = tree();
    let content: Vec<u8> = (0..100_000u32).map(|at| (at * 7) as u8).collect();
    fs::create_dir(here.path().join("d")).unwrap();
    fs::write(here.path().join("d/f"), &content).unwrap();
    for way in BOTH {
        let file = SourceFile::open_by(way, root.as_fd(), b"d/f").unwrap();
        let seen = fs::metadata(here.path().join("d/f")).unwrap();
        let stat = *file.stat();
        assert_eq!((stat.kind, stat.size_bytes), (FileKind::File, 100_000));
        assert_eq!((stat.inode, stat.device, stat.links), (seen.ino(), seen.dev(), 1));
        assert_eq!((stat.mode, stat.uid, stat.gid), (seen.mode() & 0o7777, seen.uid(), seen.gid()));
        assert_eq!(
            (stat.mtime.seconds, stat.mtime.nanos as i64),
            (seen.mtime(), seen.mtime_nsec())
        );
        let mut buffer = vec![0; 120_000];
        assert_eq!(file.read_at(0, &mut buffer).unwrap(), 100_000);
        assert_eq!(buffer[..100_000], content);
        assert_eq!(file.read_at(99_990, &mut buffer[..20]).unwrap(), 10);
        assert_eq!(buffer[..10], content[99_990..]);
        assert_eq!(file.read_at(5, &mut buffer[..20]).unwrap(), 20);
        assert_eq!(file.read_at(100_000, &mut buffer).unwrap(), 0);
        assert_eq!(file.read_at(1 << 40, &mut buffer).unwrap(), 0);
        assert!(!file.changed_since(&stat).unwrap());
    }
}

#[test]
fn whatever_is_no_regular_file_any_more_is_changed_and_never_waited_for() {
    let (here, root) = tree();
    fs::write(here.path().join("f"), b"x").unwrap();
    fs::create_dir(here.path().join("d")).unwrap();
    symlink("f", here.path().join("link")).unwrap();
    symlink(".", here.path().join("dirlink")).unwrap();
    make_fifo(&here, "fifo");
    let _socket = std::os::unix::net::UnixListener::bind(here.path().join("socket")).unwrap();
    for way in BOTH {
        for path in ["d", "link", "dirlink/f", "fifo", "socket", "f/x", "vanished", "d/vanished"] {
            let error = SourceFile::open_by(way, root.as_fd(), path.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), Kind::Changed, "{way:?} {error}");
        }
        let error = SourceFile::open_by(way, root.as_fd(), b"../f").unwrap_err();
        assert_eq!(error.kind(), Kind::Refused);
    }
}

#[test]
fn growing_shrinking_rewriting_and_vanishing_show() {
    let (here, root) = tree();
    let path = here.path().join("f");
    type Change = fn(&Path);
    let changes: [Change; 4] = [
        |path| fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap(),
        |path| fs::OpenOptions::new().write(true).open(path).unwrap().set_len(3).unwrap(),
        |path| fs::remove_file(path).unwrap(),
        |path| {
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        },
    ];
    for change in changes {
        fs::write(&path, [7; 5000]).unwrap();
        let file = SourceFile::open(root.as_fd(), b"f").unwrap();
        assert!(!file.changed_since(file.stat()).unwrap());
        // The file system's clock may be coarse: let a tick of it pass.
        pinstripe_testing::await_tick();
        change(&path);
        assert!(file.changed_since(file.stat()).unwrap());
        let mut buffer = vec![0; 6000];
        assert!(file.read_at(0, &mut buffer).unwrap() <= 5004);
    }
}

#[test]
fn extents_are_where_the_data_is() {
    let (here, root) = tree();
    fs::write(here.path().join("dense"), [1; 70_000]).unwrap();
    fs::write(here.path().join("empty"), b"").unwrap();
    let sparse = fs::File::create(here.path().join("sparse")).unwrap();
    sparse.set_len(16 << 20).unwrap();
    fs::File::create(here.path().join("hole")).unwrap().set_len(1 << 20).unwrap();
    let pieces = [1 << 20, 5 << 20, (16 << 20) - 65_536];
    for at in pieces {
        sparse.write_all_at(&[9; 65_536], at).unwrap();
    }
    let open = |name: &str| SourceFile::open(root.as_fd(), name.as_bytes()).unwrap();
    let dense: [(u64, u64); 1] = [(0, 70_000)];
    let ends = |name: &str| {
        let extents = open(name).data_extents().unwrap();
        extents.iter().map(|extent| (extent.start, extent.end)).collect::<Vec<_>>()
    };
    assert_eq!(ends("dense"), dense);
    assert_eq!(ends("empty"), []);
    let extents = ends("sparse");
    if extents == [(0, 16 << 20)] {
        eprintln!("skipped: this file system tells no holes");
        return;
    }
    assert_eq!(extents, pieces.map(|at| (at, at + 65_536)));
    assert_eq!(ends("hole"), []);
    // Beyond the limit the rest counts as data: nothing is lost, only holes.
    let limited = open("sparse").seek_extents(16 << 20, 2).unwrap();
    assert_eq!(limited, [1 << 20..(1 << 20) + 65_536, 5 << 20..16 << 20]);
    // A file that was cut short after the look at its size.
    assert_eq!(open("dense").seek_extents(1 << 20, 9).unwrap().len(), 1);
}

#[test]
fn attributes_of_every_kind_of_entry_are_read_in_order() {
    let (here, root) = tree();
    fs::write(here.path().join("f"), b"x").unwrap();
    fs::create_dir(here.path().join("d")).unwrap();
    symlink("f", here.path().join("link")).unwrap();
    make_fifo(&here, "fifo");
    let set = |path: &str, name: &str, value: &[u8]| {
        rustix::fs::lsetxattr(here.path().join(path), name, value, XattrFlags::empty())
    };
    if let Err(errno) = set("f", "user.small", b"") {
        eprintln!("skipped: no user attributes on this file system ({errno})");
        return;
    }
    let big = vec![0xab; 2000];
    set("f", "user.big", &big).unwrap();
    set("f", "user.\u{e9}", b"\0\xff").unwrap();
    set("d", "user.d", b"d").unwrap();
    let ours = |xattrs: Xattrs| {
        assert!(xattrs.problems.is_empty(), "{:?}", xattrs.problems);
        assert!(xattrs.list.is_sorted());
        let mine = |(name, _): &(Vec<u8>, Vec<u8>)| !name.starts_with(b"security.");
        xattrs.list.into_iter().filter(mine).collect::<Vec<_>>()
    };
    let pair = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
    let wanted = [pair("user.big", &big), pair("user.small", b""), pair("user.\u{e9}", b"\0\xff")];
    let file = SourceFile::open(root.as_fd(), b"f").unwrap();
    assert_eq!(ours(file.xattrs()), wanted);
    assert_eq!(ours(xattrs_at(root.as_fd(), b"f").unwrap()), wanted);
    assert_eq!(ours(xattrs_at(root.as_fd(), b"d").unwrap()), [pair("user.d", b"d")]);
    assert_eq!(ours(xattrs_at(root.as_fd(), b"").unwrap()), []);
    // Links and FIFOs hold no user attributes; those of the link's target are not its own.
    assert_eq!(ours(xattrs_at(root.as_fd(), b"link").unwrap()), []);
    assert_eq!(ours(xattrs_at(root.as_fd(), b"fifo").unwrap()), []);
    if set("link", "trusted.t", b"t").and_then(|()| set("fifo", "trusted.t", b"t")).is_ok() {
        assert_eq!(ours(xattrs_at(root.as_fd(), b"link").unwrap()), [pair("trusted.t", b"t")]);
        assert_eq!(ours(xattrs_at(root.as_fd(), b"fifo").unwrap()), [pair("trusted.t", b"t")]);
    } else {
        eprintln!("skipped: attributes of links and FIFOs need root");
    }
    assert_eq!(xattrs_at(root.as_fd(), b"none").unwrap_err().kind(), Kind::Changed);
}

#[test]
fn link_targets_are_bytes_and_not_resolved() {
    let (here, root) = tree();
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"/\xff/../no where");
    symlink(odd, here.path().join("odd")).unwrap();
    let long = "x/".repeat(2000);
    symlink(&long, here.path().join("long")).unwrap();
    fs::write(here.path().join("f"), b"x").unwrap();
    assert_eq!(read_link(root.as_fd(), b"odd").unwrap(), odd.as_bytes());
    assert_eq!(read_link(root.as_fd(), b"long").unwrap(), long.as_bytes());
    for path in ["f", "none", "odd/x"] {
        let error = read_link(root.as_fd(), path.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), Kind::Changed, "{error}");
    }
    assert_eq!(read_link(root.as_fd(), b"..").unwrap_err().kind(), Kind::Refused);
}
