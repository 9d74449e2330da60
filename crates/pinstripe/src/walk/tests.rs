//! The walker against a naive recursive walk, and against everything that trees can do to it.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, OFlags, mkdirat, mknodat, openat};
use tempfile::TempDir;

use super::directory::Directory;
use super::*;
use pinstripe_base::error::Kind as ErrorKind;
use pinstripe_member::meta::{FileKind, Stat, Time};

/// What a walk said, owned: entries and troubles in the order of the stream.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    found: Vec<(Vec<u8>, Stat)>,
    troubles: Vec<(Vec<u8>, ErrorKind)>,
}

impl Seen {
    fn take(&mut self, batch: &EntryBatch) {
        assert!(!batch.is_empty(), "no batch is empty");
        assert_eq!(batch.len(), batch.iter().count());
        for item in batch.iter() {
            match item {
                WalkItem::Found(found) => self.found.push((found.path.to_vec(), *found.stat)),
                WalkItem::Trouble(trouble) => {
                    self.troubles.push((trouble.path.to_vec(), trouble.error.kind()));
                }
            }
        }
    }

    fn paths(&self) -> Vec<&str> {
        self.found.iter().map(|(path, _)| std::str::from_utf8(path).unwrap()).collect()
    }
}

fn walker(root: &Path, options: WalkOptions) -> Walker {
    Walker::new(root, root.as_os_str().as_bytes().to_vec(), options).unwrap()
}

fn walk(root: &Path, workers: usize, options: WalkOptions) -> Seen {
    let walker = walker(root, options);
    let mut seen = Seen::default();
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| walker.work());
        }
        walker.batches().for_each(|batch| seen.take(&batch));
    });
    seen
}

/// The oracle: one thread, full paths, the standard library.
fn naive(root: &Path) -> Vec<(Vec<u8>, Stat)> {
    fn below(path: &Path, relative: &[u8], out: &mut Vec<(Vec<u8>, Stat)>) {
        let stat = naive_stat(path);
        out.push((relative.to_vec(), stat));
        if stat.kind != FileKind::Directory {
            return;
        }
        let names: BTreeSet<Vec<u8>> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().as_bytes().to_vec())
            .collect();
        for name in names {
            let slash: &[u8] = if relative.is_empty() { b"" } else { b"/" };
            below(&path.join(OsStr::from_bytes(&name)), &[relative, slash, &name].concat(), out);
        }
    }
    let mut out = Vec::new();
    below(root, b"", &mut out);
    out
}

fn naive_stat(path: &Path) -> Stat {
    let data = fs::symlink_metadata(path).unwrap();
    let kind = data.file_type();
    let kinds = [
        (kind.is_file(), FileKind::File),
        (kind.is_dir(), FileKind::Directory),
        (kind.is_symlink(), FileKind::Symlink),
        (kind.is_fifo(), FileKind::Fifo),
        (kind.is_socket(), FileKind::Socket),
        (kind.is_char_device(), FileKind::CharDevice),
        (kind.is_block_device(), FileKind::BlockDevice),
    ];
    Stat {
        kind: kinds.into_iter().find(|(is, _)| *is).unwrap().1,
        mode: data.mode() & 0o7777,
        uid: data.uid(),
        gid: data.gid(),
        size_bytes: data.size(),
        blocks: data.blocks(),
        mtime: Time { seconds: data.mtime(), nanos: data.mtime_nsec() as u32 },
        ctime: Time { seconds: data.ctime(), nanos: data.ctime_nsec() as u32 },
        inode: data.ino(),
        device: data.dev(),
        links: data.nlink(),
        rdev: (rustix::fs::major(data.rdev()), rustix::fs::minor(data.rdev())),
    }
}

/// Every setting that must make no difference.
fn variants() -> Vec<(usize, WalkOptions)> {
    let tight = WalkOptions { look_ahead_bytes: 1, kept_directories: 0, ..WalkOptions::default() };
    let some =
        WalkOptions { look_ahead_bytes: 10_000, kept_directories: 3, ..WalkOptions::default() };
    let mut list = Vec::new();
    for workers in [0, 1, 8] {
        for options in [WalkOptions::default(), tight.clone(), some.clone()] {
            list.push((workers, options));
        }
    }
    list
}

fn assert_same_in_all_variants(root: &Path) {
    let expected = Seen { found: naive(root), troubles: Vec::new() };
    for (workers, options) in variants() {
        let seen = walk(root, workers, options.clone());
        assert!(seen == expected, "{workers} workers, {options:?}");
    }
}

fn touch(path: impl AsRef<Path>) {
    File::create(path).unwrap();
}

fn temp() -> TempDir {
    TempDir::new().unwrap()
}

fn make_tree(dir: &Path, directories: &[&str], files: &[&str]) {
    directories.iter().for_each(|name| fs::create_dir_all(dir.join(name)).unwrap());
    files.iter().for_each(|name| touch(dir.join(name)));
}

#[test]
fn a_slash_sorts_below_every_other_byte() {
    let dir = temp();
    make_tree(
        dir.path(),
        &["a", "a!", "b/c"],
        &["a/z", "a.b", "a0", "a!/x", "b/c/d", "b/c-d", "B"],
    );
    let seen = walk(dir.path(), 0, WalkOptions::default());
    let expected = ["", "B", "a", "a/z", "a!", "a!/x", "a.b", "a0", "b", "b/c", "b/c/d", "b/c-d"];
    assert_eq!(seen.paths(), expected);
}

#[test]
fn every_kind_of_entry_is_seen_as_it_is() {
    let dir = temp();
    let at = dir.path();
    make_tree(at, &["d"], &["plain", "d/inner"]);
    fs::write(at.join("plain"), b"content").unwrap();
    fs::hard_link(at.join("plain"), at.join("second-name")).unwrap();
    fs::set_permissions(at.join("plain"), fs::Permissions::from_mode(0o4751)).unwrap();
    symlink("nowhere", at.join("dangling")).unwrap();
    symlink("d", at.join("to-directory")).unwrap();
    symlink("..", at.join("d/loop")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at.join("socket")).unwrap();
    mknodat(CWD, at.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    touch(at.join(OsStr::from_bytes(b"latin-\xe9")));
    touch(at.join(OsStr::from_bytes(b"\xff\xfe\n\t")));
    assert_same_in_all_variants(at);
    let seen = walk(at, 0, WalkOptions::default());
    let kinds: BTreeSet<FileKind> = seen.found.iter().map(|(_, stat)| stat.kind).collect();
    let all =
        [FileKind::File, FileKind::Directory, FileKind::Symlink, FileKind::Fifo, FileKind::Socket];
    assert_eq!(kinds, BTreeSet::from(all));
    assert!(seen.found.iter().any(|(path, _)| path == b"latin-\xe9"));
    assert!(!seen.found.iter().any(|(path, _)| path.starts_with(b"to-directory/")));
}

#[test]
fn devices_keep_their_numbers() {
    let seen = walk(Path::new("/dev/null"), 0, WalkOptions::default());
    assert_eq!(seen.found, [(Vec::new(), naive_stat(Path::new("/dev/null")))]);
    let stat = seen.found[0].1;
    assert_eq!((stat.kind, stat.rdev), (FileKind::CharDevice, (1, 3)));
}

#[test]
fn a_root_that_is_no_directory_is_the_only_entry() {
    let dir = temp();
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    touch(&file);
    symlink(dir.path(), &link).unwrap();
    for (root, kind) in [(file, FileKind::File), (link, FileKind::Symlink)] {
        for workers in [0, 2] {
            let seen = walk(&root, workers, WalkOptions::default());
            assert_eq!(seen.found, [(Vec::new(), naive_stat(&root))]);
            assert_eq!(seen.found[0].1.kind, kind);
        }
    }
}

#[test]
fn a_missing_root_is_an_error() {
    let missing = temp().path().join("missing");
    let error = Walker::new(&missing, Vec::new(), WalkOptions::default()).err().unwrap();
    assert_eq!((error.kind(), error.place()), (ErrorKind::NotFound, Some(missing.as_path())));
}

#[test]
fn a_real_tree_is_walked_alike_in_all_variants() {
    let root = Path::new("/usr/share/doc");
    if !root.is_dir() {
        eprintln!("skipped: no /usr/share/doc");
        return;
    }
    assert_same_in_all_variants(root);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_trees_are_walked_alike_in_all_variants(
        entries in prop::collection::vec(
            (prop::collection::vec("[a-c.!~]{1,3}", 1..6), any::<bool>()), 0..60),
    ) {
        let dir = temp();
        for (components, is_directory) in entries {
            // Dots alone are no names; a file in the way of a directory stays a file.
            let path: PathBuf = components
                .iter()
                .filter(|name| !matches!(name.as_str(), "." | ".."))
                .fold(dir.path().to_path_buf(), |path, name| path.join(name));
            if is_directory {
                let _ = fs::create_dir_all(&path);
            } else if path.parent().is_some_and(|parent| fs::create_dir_all(parent).is_ok()) {
                let _ = File::options().write(true).create_new(true).open(&path);
            }
        }
        assert_same_in_all_variants(dir.path());
    }
}

#[test]
fn a_huge_directory_is_taken_in_slices() {
    const NAMES: usize = 100_000;
    let dir = temp();
    let at = openat(CWD, dir.path(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for number in 0..NAMES {
        let name = format!("file-{:05}", number * 7919 % NAMES);
        if number % 1000 == 0 {
            mkdirat(&at, name, Mode::RWXU).unwrap();
        } else {
            mknodat(&at, name, FileType::RegularFile, Mode::RUSR, 0).unwrap();
        }
    }
    let expected = naive(dir.path());
    for (workers, look_ahead_bytes, kept_directories) in
        [(0, 1 << 20, 1), (2, 1, 0), (8, 1 << 16, 4), (2, 16 << 20, 256)]
    {
        let options = WalkOptions { look_ahead_bytes, kept_directories, ..WalkOptions::default() };
        let seen = walk(dir.path(), workers, options);
        assert_eq!(seen.troubles, []);
        assert!(seen.found == expected, "{workers} workers, {look_ahead_bytes} bytes ahead");
    }
}

/// 3,000 levels, far beyond PATH_MAX, with siblings behind some of the steps down.
#[test]
fn a_deep_tree_has_no_longest_path_and_needs_few_descriptors() {
    const LEVELS: usize = 3000;
    let has_siblings = |level: usize| level % 20 == 7;
    let dir = temp();
    let mut at: OwnedFd =
        openat(CWD, dir.path(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for level in 0..LEVELS {
        mkdirat(&at, "down", Mode::RWXU).unwrap();
        if has_siblings(level) {
            mkdirat(&at, "next", Mode::RWXU).unwrap();
            mknodat(&at, "next.file", FileType::RegularFile, Mode::RUSR, 0).unwrap();
        }
        at = openat(&at, "down", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    }
    drop(at);
    let mut expected = vec![Vec::new()];
    let mut path = Vec::new();
    for level in 0..LEVELS {
        path.extend_from_slice(if level == 0 { b"down" } else { b"/down" });
        expected.push(path.clone());
    }
    for level in (0..LEVELS).rev() {
        path.truncate(path.len() - b"down".len());
        if has_siblings(level) {
            expected.push([&path[..], b"next"].concat());
            expected.push([&path[..], b"next.file"].concat());
        }
        path.pop();
    }
    for (workers, kept_directories) in [(0, 256), (3, 16)] {
        let options = WalkOptions { kept_directories, ..WalkOptions::default() };
        let seen = walk(dir.path(), workers, options);
        assert_eq!(seen.troubles, []);
        assert_eq!(seen.found.len(), expected.len());
        assert!(seen.found.iter().map(|(path, _)| path).eq(&expected));
    }
    // The standard library would recurse, and hold a descriptor per level.
    let removed = Command::new("rm").arg("-rf").arg(dir.path()).status().unwrap();
    assert!(removed.success());
}

#[test]
fn a_long_chain_of_directories_is_freed_without_recursion() {
    let fd: OwnedFd = File::open("/").unwrap().into();
    let mut directory = Arc::new(Directory::root(fd, (0, 0), 0..0));
    for level in 1..1_000_000 {
        directory = Arc::new(Directory::below(directory, CString::new("x").unwrap(), (0, level)));
    }
    assert!(directory.is_within((0, 0)), "an inode above itself is a loop");
    assert!(directory.is_within((0, 999_999)));
    assert!(!directory.is_within((1, 5)));
    drop(directory);
}

/// A tree whose first batch ends right before directory `zz` is entered.
fn tree_with_pause() -> TempDir {
    let dir = temp();
    (0..300).for_each(|number| touch(dir.path().join(format!("file-{number}"))));
    make_tree(dir.path(), &["zz"], &["zz/inner", "zzz"]);
    dir
}

fn trouble_after(change: impl Fn(&Path)) -> (Vec<u8>, ErrorKind) {
    let dir = tree_with_pause();
    let walker = walker(dir.path(), WalkOptions::default());
    let mut seen = Seen::default();
    seen.take(&walker.next_batch().unwrap());
    assert_eq!(seen.paths().last(), Some(&"zz"));
    change(dir.path());
    walker.batches().for_each(|batch| seen.take(&batch));
    assert_eq!(seen.paths().last(), Some(&"zzz"), "the walk goes on");
    assert_eq!(seen.troubles.len(), 1);
    seen.troubles.pop().unwrap()
}

#[test]
fn a_directory_that_vanished_or_was_replaced_is_a_change() {
    let expected = (b"zz".to_vec(), ErrorKind::Changed);
    assert_eq!(trouble_after(|root| fs::remove_dir_all(root.join("zz")).unwrap()), expected);
    let replaced_by_link = |root: &Path| {
        fs::rename(root.join("zz"), root.join("moved")).unwrap();
        symlink("moved", root.join("zz")).unwrap();
    };
    assert_eq!(trouble_after(replaced_by_link), expected);
    let replaced_by_directory = |root: &Path| {
        fs::rename(root.join("zz"), root.join("moved")).unwrap();
        fs::create_dir(root.join("zz")).unwrap();
    };
    assert_eq!(trouble_after(replaced_by_directory), expected);
}

#[test]
fn a_file_that_vanished_is_a_change() {
    let dir = temp();
    (0..1000).for_each(|number| touch(dir.path().join(format!("file-{number:03}"))));
    let walker = walker(dir.path(), WalkOptions::default());
    let mut seen = Seen::default();
    seen.take(&walker.next_batch().unwrap());
    fs::remove_file(dir.path().join("file-999")).unwrap();
    walker.batches().for_each(|batch| seen.take(&batch));
    assert_eq!(seen.troubles, [(b"file-999".to_vec(), ErrorKind::Changed)]);
    assert_eq!(seen.found.len(), 1000);
}

#[test]
fn an_unreadable_directory_is_trouble_in_its_place() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root may read every directory");
        return;
    }
    let dir = temp();
    make_tree(dir.path(), &["a", "b/hidden", "c"], &["c/file"]);
    fs::set_permissions(dir.path().join("b"), fs::Permissions::from_mode(0o000)).unwrap();
    let seen = walk(dir.path(), 2, WalkOptions::default());
    fs::set_permissions(dir.path().join("b"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(seen.paths(), ["", "a", "b", "c", "c/file"]);
    assert_eq!(seen.troubles, [(b"b".to_vec(), ErrorKind::Io)]);
}

#[test]
fn trouble_stands_behind_its_directory_and_names_the_whole_path() {
    let dir = tree_with_pause();
    let walker = Walker::new(dir.path(), b"/as/named".to_vec(), WalkOptions::default()).unwrap();
    walker.next_batch().unwrap();
    fs::remove_dir_all(dir.path().join("zz")).unwrap();
    let batch = walker.next_batch().unwrap();
    let items: Vec<_> = batch.iter().collect();
    let [WalkItem::Trouble(trouble), WalkItem::Found(behind)] = items[..] else {
        panic!("{items:?}")
    };
    assert_eq!(trouble.error.place(), Some(Path::new("/as/named/zz")));
    assert_eq!((trouble.path, behind.path), (&b"zz"[..], &b"zzz"[..]));
}

#[test]
fn excluded_directories_are_pruned() {
    let dir = temp();
    make_tree(
        dir.path(),
        &["keep/cache", "skip/deep", "top"],
        &["keep/a.o", "keep/a.c", "keep/cache/x", "skip/deep/x", "top/skip", "top/cache"],
    );
    let exclude = Exclude::new(["*.o", "cache/", "/root/skip", "/root"]).unwrap();
    let options = WalkOptions { exclude, ..WalkOptions::default() };
    let walker = Walker::new(dir.path(), b"/root".to_vec(), options).unwrap();
    let mut seen = Seen::default();
    walker.batches().for_each(|batch| seen.take(&batch));
    assert_eq!(seen.paths(), ["", "keep", "keep/a.c", "top", "top/cache", "top/skip"]);
}

#[test]
fn caches_are_left_out_but_for_their_tags() {
    const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n# more";
    let dir = temp();
    let root = dir.path();
    make_tree(
        root,
        &["cache/deep", "short", "other", "link", "is-dir/CACHEDIR.TAG", "pipe"],
        &[
            "CACHEDIR.TAG",
            "a",
            "cache/A",
            "cache/deep/x",
            "cache/z",
            "short/x",
            "other/x",
            "link/x",
        ],
    );
    fs::write(root.join("CACHEDIR.TAG"), TAG).unwrap();
    fs::write(root.join("cache/CACHEDIR.TAG"), TAG).unwrap();
    fs::write(root.join("short/CACHEDIR.TAG"), &TAG[..42]).unwrap();
    fs::write(root.join("other/CACHEDIR.TAG"), TAG.to_lowercase()).unwrap();
    symlink("../cache/CACHEDIR.TAG", root.join("link/CACHEDIR.TAG")).unwrap();
    mknodat(CWD, root.join("pipe/CACHEDIR.TAG"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let exclude = Exclude::default().with_tag(DirectoryTag::of_caches());
    let seen = walk(root, 2, WalkOptions { exclude, ..WalkOptions::default() });
    let expected = [
        "",
        "CACHEDIR.TAG",
        "a",
        "cache",
        "cache/CACHEDIR.TAG",
        "is-dir",
        "is-dir/CACHEDIR.TAG",
        "link",
        "link/CACHEDIR.TAG",
        "link/x",
        "other",
        "other/CACHEDIR.TAG",
        "other/x",
        "pipe",
        "pipe/CACHEDIR.TAG",
        "short",
        "short/CACHEDIR.TAG",
        "short/x",
    ];
    assert_eq!(seen.paths(), expected);
    let all = walk(root, 2, WalkOptions::default());
    assert_eq!(all.paths().len(), expected.len() + 4, "nothing is left out unasked");
}

#[test]
fn directories_with_a_tag_are_left_out_but_for_their_tags() {
    let dir = temp();
    let root = dir.path();
    let files = ["a/.skip", "a/x", "a/deep/x", "b/.skip", "b/x", "c/.no", "c/x", "d/.no", "d/x"];
    make_tree(root, &["a/deep", "b", "c", "d"], &files);
    fs::write(root.join("c/.no"), "no backup\n").unwrap();
    fs::write(root.join(".skip"), "").unwrap();
    let tag = |text: &str| DirectoryTag::parse(text.as_bytes()).unwrap();
    let exclude = [".skip", ".no:no back", ".none"].map(tag).into_iter();
    let exclude = exclude.fold(Exclude::default(), Exclude::with_tag);
    let seen = walk(root, 2, WalkOptions { exclude: exclude.clone(), ..WalkOptions::default() });
    let expected = ["", ".skip", "a", "a/.skip", "b", "b/.skip", "c", "c/.no", "d", "d/.no", "d/x"];
    assert_eq!(seen.paths(), expected);
    let met: Vec<_> = exclude.tags().map(DirectoryTag::is_met).collect();
    assert_eq!(met, [true, true, false]);
    for text in ["", ".", "..", "a/b", ":header", "a\0b"] {
        assert!(DirectoryTag::parse(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn mount_points_are_listed_but_not_entered() {
    let (root, mount) = (Path::new("/dev"), Path::new("/dev/pts"));
    let device = |path: &Path| fs::symlink_metadata(path).map(|data| data.dev()).ok();
    if device(mount).is_none() || device(mount) == device(root) {
        eprintln!("skipped: nothing is mounted on /dev/pts");
        return;
    }
    let below = |one_file_system| {
        let seen = walk(root, 2, WalkOptions { one_file_system, ..WalkOptions::default() });
        let is_below = |path: &[u8]| path.starts_with(b"pts/");
        assert!(seen.found.iter().any(|(path, _)| path == b"pts"));
        seen.found.iter().filter(|(path, _)| is_below(path)).count()
    };
    assert_eq!(below(true), 0);
    assert!(below(false) > 0, "pts has at least its ptmx");
}

#[test]
fn a_cancelled_walk_ends_for_everyone() {
    for look_ahead_bytes in [1, 16 << 20] {
        let dir = tree_with_pause();
        let options = WalkOptions { look_ahead_bytes, ..WalkOptions::default() };
        let walker = walker(dir.path(), options);
        thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| walker.work())));
            assert!(walker.next_batch().is_some());
            walker.cancel();
            assert!(walker.next_batch().is_none());
        });
        walker.work();
        assert!(walker.next_batch().is_none());
    }
}

#[test]
fn a_consumer_that_leaves_or_panics_lets_the_workers_go() {
    let dir = tree_with_pause();
    let walker = walker(dir.path(), WalkOptions { look_ahead_bytes: 1, ..WalkOptions::default() });
    thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(|| walker.work())));
        let consumer = scope.spawn(|| {
            let mut batches = walker.batches();
            batches.next().unwrap();
            panic!("the consumer fails");
        });
        assert!(consumer.join().is_err());
    });
    assert!(walker.next_batch().is_none());
}

#[test]
fn a_worker_that_panics_is_not_taken_for_the_end() {
    let dir = tree_with_pause();
    let walker = walker(dir.path(), WalkOptions::default());
    drop(PanicGuard(&walker));
    walker.work();
    let next = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| walker.next_batch()));
    assert!(next.is_err());
}

#[test]
fn more_threads_than_cores_but_one_on_a_spinning_disk() {
    for (rotational, cores, threads) in
        [(false, 1, 8), (false, 2, 8), (false, 16, 32), (true, 16, 1)]
    {
        assert_eq!(recommended_threads(rotational, cores), threads);
    }
}
