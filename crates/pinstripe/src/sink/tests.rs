use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use proptest::prelude::*;
use tempfile::TempDir;

use super::apply_metadata::ACL_DEFAULT;
use super::*;
use pinstripe_member::meta::Time;

const BOTH: [Resolver; 2] = [Resolver::Openat2, Resolver::Steps];

/// An ACL as the system stores it: the owner reads and writes, user 1000 reads, the mask allows
/// reading and writing, all others read. The mode that goes with it is 0664.
const ACL: &[u8] = &[
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 232, 3, 0, 0, 4, 0, 4, 0, 255, 255,
    255, 255, 16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255,
];

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A target below a directory that holds nothing else.
fn target(way: Resolver, overwrite: bool) -> (TempDir, PathBuf, TreeSink) {
    let around = tempfile::tempdir().unwrap();
    let to = around.path().join("target");
    let sink = TreeSink::create_by(way, &to, Rules { overwrite, ..Rules::EMPTY }).unwrap();
    (around, to, sink)
}

fn plain(kind: FileKind, mode: u32) -> Metadata {
    Metadata {
        kind,
        mode,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mtime: Time { seconds: 1_234_567_890, nanos: 123_456_789 },
        rdev: (0, 0),
        xattrs: Vec::new(),
    }
}

fn write(sink: &TreeSink, path: &[u8], content: &[u8]) -> Result<Vec<Unset>> {
    let metadata = plain(FileKind::File, 0o644);
    let file = sink.create_file(path, content.len() as u64, metadata)?;
    file.write_at(0, content)?;
    file.finish()
}

fn none(unset: &[Unset]) {
    assert!(unset.is_empty(), "{unset:?}");
}

/// Runs `work` in a thread that has given up root for a user with no rights.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let drop_root = || {
        use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
        let (uid, gid) = (rustix::fs::Uid::from_raw(65534), rustix::fs::Gid::from_raw(65534));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(gid, gid, gid).unwrap();
        set_thread_res_uid(uid, uid, uid).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(drop_root).join().unwrap())
}

/// A directory that the user of [`as_nobody`] may use.
fn nobodys_directory() -> TempDir {
    let around = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(around.path(), Some(65534), Some(65534)).unwrap();
    around
}

#[test]
fn a_target_that_holds_something_needs_overwrite() {
    let around = tempfile::tempdir().unwrap();
    let to = around.path().join("a/b");
    TreeSink::create(&to, Rules::EMPTY).unwrap();
    TreeSink::create(&to, Rules::EMPTY).unwrap();
    fs::write(to.join("x"), b"x").unwrap();
    let error = TreeSink::create(&to, Rules::EMPTY).unwrap_err();
    assert_eq!(error.kind(), Kind::Refused);
    assert!(error.advice_text().unwrap().contains("--overwrite"));
    TreeSink::create(&to, Rules::OVERWRITE).unwrap();
    assert!(TreeSink::create(&to.join("x"), Rules::OVERWRITE).is_err());
}

#[test]
fn files_get_their_content_mode_and_times() {
    for way in BOTH {
        let (_around, to, sink) = target(way, false);
        let modes = [0o644, 0o600, 0o755, 0o4755, 0o2711, 0o1777, 0o444, 0o000, 0o666, 0o6777];
        let times = [(0, 0), (-1, 999_999_999), (-1_000_000_000, 1), (2_000_000_000, 500)];
        for (at, mode) in modes.into_iter().enumerate() {
            let (seconds, nanos) = times[at % times.len()];
            let mut metadata = plain(FileKind::File, mode);
            metadata.mtime = Time { seconds, nanos };
            let name = format!("file-{mode:o}");
            let file = sink.create_file(name.as_bytes(), 6, metadata).unwrap();
            file.write_at(3, b"def").unwrap();
            file.write_at(0, b"abc").unwrap();
            none(&file.finish().unwrap());
            let found = fs::symlink_metadata(to.join(&name)).unwrap();
            assert_eq!(found.mode() & 0o7777, mode, "{name}");
            assert_eq!((found.mtime(), found.mtime_nsec()), (seconds, i64::from(nanos)), "{name}");
            assert_eq!(found.len(), 6);
        }
        assert_eq!(fs::read(to.join("file-644")).unwrap(), b"abcdef");
    }
}

#[test]
fn directories_are_private_until_they_are_finished() {
    for way in BOTH {
        let (_around, to, sink) = target(way, false);
        sink.make_directory(b"d").unwrap();
        sink.make_directory(b"d").unwrap();
        sink.make_directory(b"d/e").unwrap();
        assert_eq!(fs::metadata(to.join("d/e")).unwrap().mode() & 0o7777, 0o700);
        none(&write(&sink, b"d/e/f", b"x").unwrap());
        for (path, mode) in [(&b"d/e"[..], 0o555), (b"d", 0o1777), (b"", 0o2750)] {
            none(&sink.finish_directory(path, &plain(FileKind::Directory, mode)).unwrap());
            let found = fs::metadata(to.join(shown(path))).unwrap();
            assert_eq!(found.mode() & 0o7777, mode);
            assert_eq!((found.mtime(), found.mtime_nsec()), (1_234_567_890, 123_456_789));
        }
        let error = sink.finish_directory(b"d/e/f", &plain(FileKind::Directory, 0o755));
        assert!(error.is_err());
        assert_eq!(sink.make_directory(b"d/e/f").unwrap_err().kind(), Kind::Exists);
        assert_eq!(sink.make_directory(b"none/x").unwrap_err().kind(), Kind::NotFound);
    }
}

#[test]
fn holes_stay_holes() {
    for way in BOTH {
        let (_around, to, sink) = target(way, false);
        let size = 64 << 20;
        let file = sink.create_file(b"sparse", size, plain(FileKind::File, 0o600)).unwrap();
        file.write_at(16 << 20, &[7; 65536]).unwrap();
        none(&file.finish().unwrap());
        let all_hole = sink.create_file(b"hole", size, plain(FileKind::File, 0o600)).unwrap();
        none(&all_hole.finish().unwrap());
        for (name, data_bytes) in [("sparse", 65536), ("hole", 0)] {
            let found = fs::metadata(to.join(name)).unwrap();
            assert_eq!(found.len(), size);
            assert!(found.blocks() * 512 <= 2 * data_bytes + 65536, "{}", found.blocks());
        }
    }
}

#[test]
fn an_unfinished_file_leaves_nothing() {
    for way in BOTH {
        for overwrite in [false, true] {
            let (_around, to, sink) = target(way, overwrite);
            let file = sink.create_file(b"half", 8, plain(FileKind::File, 0o600)).unwrap();
            file.write_at(0, b"1234").unwrap();
            for (offset, bytes) in [(5, &b"1234"[..]), (9, b""), (u64::MAX, b"12")] {
                assert_eq!(file.write_at(offset, bytes).unwrap_err().kind(), Kind::Corrupt);
            }
            drop(file);
            assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
        }
    }
}

#[test]
fn overwriting_replaces_a_file_only_by_a_whole_one() {
    for way in BOTH {
        let (_around, to, sink) = target(way, true);
        fs::write(to.join("old"), b"old").unwrap();
        let file = sink.create_file(b"old", 8, plain(FileKind::File, 0o600)).unwrap();
        file.write_at(0, b"new").unwrap();
        drop(file);
        assert_eq!(fs::read(to.join("old")).unwrap(), b"old");
        none(&write(&sink, b"old", b"new").unwrap());
        assert_eq!(fs::read(to.join("old")).unwrap(), b"new");
        assert_eq!(fs::read_dir(&to).unwrap().count(), 1);
    }
}

/// As on a file system that ignores case, where two entries of a snapshot have one name.
#[test]
fn what_the_restore_has_made_itself_is_not_replaced() {
    for way in BOTH {
        let (around, to, sink) = target(way, true);
        fs::write(to.join("README"), "old").unwrap();
        none(&write(&sink, b"README", b"upper").unwrap());
        let error = write(&sink, b"README", b"lower").unwrap_err();
        assert_eq!(error.kind(), Kind::Refused);
        assert!(error.advice_text().unwrap().contains("ignores the case"));
        let link = sink.symlink(b"README", b"x", &plain(FileKind::Symlink, 0o777));
        assert_eq!(link.unwrap_err().kind(), Kind::Refused);
        sink.make_directory(b"d").unwrap();
        assert_eq!(sink.make_directory(b"d").unwrap_err().kind(), Kind::Refused);
        assert_eq!(fs::read(to.join("README")).unwrap(), b"upper");
        // Nothing temporary is left.
        assert_eq!(fs::read_dir(&to).unwrap().count(), 2);
        drop(around);
    }
}

#[test]
fn what_stands_in_the_way_is_replaced_only_under_overwrite() {
    let link = plain(FileKind::Symlink, 0o777);
    let fifo = plain(FileKind::Fifo, 0o640);
    for way in BOTH {
        for overwrite in [true, false] {
            let (around, to, sink) = target(way, overwrite);
            let secret = around.path().join("secret");
            fs::write(&secret, b"secret").unwrap();
            for name in ["1", "2", "3", "4", "5"] {
                symlink(&secret, to.join(name)).unwrap();
            }
            symlink(around.path(), to.join("6")).unwrap();
            fs::create_dir(to.join("7")).unwrap();
            none(&write(&sink, b"file", b"x").unwrap());
            let done = [
                write(&sink, b"1", b"new").map(drop),
                sink.symlink(b"2", b"elsewhere", &link).map(drop),
                sink.special(b"3", &fifo).map(drop),
                sink.hard_link(b"file", b"4"),
                sink.make_directory(b"5"),
                sink.make_directory(b"6"),
                write(&sink, b"7", b"new").map(drop),
            ];
            for (at, done) in done.into_iter().enumerate() {
                match done {
                    Ok(()) => assert!(overwrite, "{at}"),
                    Err(error) => {
                        assert!(!overwrite, "{at}: {error}");
                        assert_eq!(error.kind(), Kind::Exists, "{at}: {error}");
                    }
                }
            }
            assert_eq!(fs::read(&secret).unwrap(), b"secret");
            if overwrite {
                assert_eq!(fs::read(to.join("1")).unwrap(), b"new");
                assert_eq!(fs::read_link(to.join("2")).unwrap(), PathBuf::from("elsewhere"));
                assert!(fs::symlink_metadata(to.join("3")).unwrap().file_type().is_fifo());
                assert_eq!(fs::metadata(to.join("file")).unwrap().nlink(), 2);
                assert!(fs::symlink_metadata(to.join("5")).unwrap().is_dir());
                assert!(fs::symlink_metadata(to.join("6")).unwrap().is_dir());
                fs::write(to.join("5/x"), b"x").unwrap();
                let error = write(&sink, b"5", b"new").unwrap_err();
                assert_eq!(error.kind(), Kind::Refused);
                assert_eq!(sink.symlink(b"5", b"x", &link).unwrap_err().kind(), Kind::Refused);
            }
        }
    }
}

/// Every way to write, at `path`.
fn every_verb(sink: &TreeSink, path: &[u8]) -> Vec<Error> {
    let directory = plain(FileKind::Directory, 0o755);
    let done = [
        write(sink, path, b"x").map(drop),
        sink.make_directory(path),
        sink.finish_directory(path, &directory).map(drop),
        sink.symlink(path, b"x", &plain(FileKind::Symlink, 0o777)).map(drop),
        sink.special(path, &plain(FileKind::Fifo, 0o600)).map(drop),
        sink.hard_link(path, b"new"),
        sink.hard_link(b"file", path),
    ];
    done.into_iter().map(|done| done.expect_err("it must be refused")).collect()
}

#[test]
fn hostile_paths_are_refused_by_every_verb() {
    for way in BOTH {
        let (around, to, sink) = target(way, true);
        let absolute = around.path().join("out").into_os_string().into_encoded_bytes();
        none(&write(&sink, b"file", b"x").unwrap());
        sink.make_directory(b"d").unwrap();
        let hostile = [&b"../out"[..], b"d/../../out", b"..", b"./x", b"d//x", b"x\0y", &absolute];
        for path in hostile {
            for error in every_verb(&sink, path) {
                assert_eq!(error.kind(), Kind::Refused, "{error}");
            }
        }
        assert!(write(&sink, b"", b"x").is_err());
        assert!(sink.make_directory(b"").is_err());
        assert_eq!(fs::read_dir(around.path()).unwrap().count(), 1);
        assert_eq!(fs::read_dir(&to).unwrap().count(), 2);
    }
}

#[test]
fn no_verb_passes_through_a_planted_symlink() {
    for way in BOTH {
        for overwrite in [false, true] {
            let (around, to, sink) = target(way, overwrite);
            let outside = around.path().join("outside");
            fs::create_dir(&outside).unwrap();
            none(&write(&sink, b"file", b"x").unwrap());
            let link = plain(FileKind::Symlink, 0o777);
            none(&sink.symlink(b"up", outside.as_os_str().as_encoded_bytes(), &link).unwrap());
            sink.make_directory(b"d").unwrap();
            none(&sink.symlink(b"d/up", b"../../outside", &link).unwrap());
            for path in [&b"up/x"[..], b"d/up/x", b"d/up/y/z"] {
                for error in every_verb(&sink, path) {
                    assert_eq!(error.kind(), Kind::Refused, "{error}");
                }
            }
            let itself = sink.finish_directory(b"up", &plain(FileKind::Directory, 0o777));
            assert_eq!(itself.unwrap_err().kind(), Kind::Refused);
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
            assert!(fs::symlink_metadata(to.join("up")).unwrap().is_symlink());
        }
    }
}

#[test]
fn special_files_links_and_owners_arrive() {
    for way in BOTH {
        let (_around, to, sink) = target(way, false);
        let mut fifo = plain(FileKind::Fifo, 0o622);
        let mut link = plain(FileKind::Symlink, 0o777);
        if is_root() {
            (fifo.uid, fifo.gid) = (1234, 4321);
            (link.uid, link.gid) = (1234, 4321);
        }
        none(&sink.special(b"fifo", &fifo).unwrap());
        none(&sink.special(b"socket", &plain(FileKind::Socket, 0o755)).unwrap());
        none(&sink.symlink(b"link", b"/no\xffwhere", &link).unwrap());
        let error = sink.special(b"file", &plain(FileKind::File, 0o644)).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        for (name, metadata) in [("fifo", &fifo), ("link", &link)] {
            let found = fs::symlink_metadata(to.join(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (metadata.uid, metadata.gid), "{name}");
            assert_eq!(found.mode() & 0o7777, metadata.mode);
            assert_eq!((found.mtime(), found.mtime_nsec()), (1_234_567_890, 123_456_789));
        }
        assert!(fs::symlink_metadata(to.join("socket")).unwrap().file_type().is_socket());
        assert_eq!(fs::read_link(to.join("link")).unwrap().as_os_str().len(), 9);

        none(&write(&sink, b"one", b"x").unwrap());
        sink.hard_link(b"one", b"two").unwrap();
        sink.hard_link(b"link", b"link2").unwrap();
        assert_eq!(sink.hard_link(b"one", b"one").unwrap_err().kind(), Kind::Refused);
        assert_eq!(sink.hard_link(b"one", b"two").unwrap_err().kind(), Kind::Exists);
        assert_eq!(sink.hard_link(b"none", b"three").unwrap_err().kind(), Kind::NotFound);
        assert_eq!(fs::metadata(to.join("two")).unwrap().nlink(), 2);
        assert!(fs::symlink_metadata(to.join("link2")).unwrap().is_symlink());
    }
}

#[test]
fn values_that_mean_something_else_to_the_system_are_not_passed_on() {
    let (_around, _to, sink) = target(Resolver::of_this_kernel(), false);
    let mut metadata = plain(FileKind::File, 0o644);
    metadata.uid = u32::MAX;
    metadata.mtime.nanos = 0x3fff_fffe; // UTIME_OMIT
    metadata.mode = u32::MAX;
    metadata.xattrs = vec![(b"no-such-space.x".to_vec(), Vec::new())];
    let file = sink.create_file(b"f", 0, metadata).unwrap();
    let unset = file.finish().unwrap();
    let parts: Vec<MetadataPart> = unset.iter().map(|unset| unset.part).collect();
    assert_eq!(parts, [MetadataPart::Owner, MetadataPart::Xattr, MetadataPart::Times]);
    assert!(unset.iter().all(|unset| unset.error.place() == Some(Path::new("f"))));

    let file = sink.create_file(b"g", 0, plain(FileKind::Fifo, 0o644)).unwrap();
    assert_eq!(file.finish().unwrap_err().kind(), Kind::Changed);
}

#[test]
fn attributes_arrive_and_inherited_ones_do_not() {
    let (_around, to, _sink) = target(Resolver::of_this_kernel(), false);
    let set = |name: &[u8]| rustix::fs::setxattr(&to, name, ACL, rustix::fs::XattrFlags::empty());
    if let Err(errno) = set(ACL_DEFAULT) {
        eprintln!("skipped: no ACLs on this file system ({errno})");
        return;
    }
    for way in BOTH {
        let sink = TreeSink::create_by(way, &to, Rules::OVERWRITE).unwrap();
        none(&write(&sink, b"bare", b"x").unwrap());
        sink.make_directory(b"d").unwrap();
        none(&sink.finish_directory(b"d", &plain(FileKind::Directory, 0o750)).unwrap());
        none(&sink.special(b"fifo", &plain(FileKind::Fifo, 0o600)).unwrap());
        let mut metadata = plain(FileKind::File, 0o664);
        metadata.xattrs =
            vec![(ACL_ACCESS_NAME.to_vec(), ACL.to_vec()), (b"user.x".to_vec(), vec![0, 255])];
        none(&sink.create_file(b"dressed", 0, metadata).unwrap().finish().unwrap());

        let names = |name: &str| {
            let mut list = [0; 4096];
            let length = rustix::fs::listxattr(to.join(name), &mut list).unwrap();
            let list = &list[..length];
            let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
            let names = names.filter(|name| !name.starts_with(b"security."));
            names.map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        for (name, mode) in [("bare", 0o644), ("d", 0o750), ("fifo", 0o600)] {
            assert_eq!(names(name), Vec::<Vec<u8>>::new(), "{name}");
            assert_eq!(fs::metadata(to.join(name)).unwrap().mode() & 0o7777, mode, "{name}");
        }
        assert_eq!(names("dressed").len(), 2);
        assert_eq!(fs::metadata(to.join("dressed")).unwrap().mode() & 0o7777, 0o664);
        let mut value = [0; 64];
        let length = rustix::fs::getxattr(to.join("dressed"), ACL_ACCESS_NAME, &mut value).unwrap();
        assert_eq!(&value[..length], ACL);
    }
}

const ACL_ACCESS_NAME: &[u8] = b"system.posix_acl_access";

#[test]
fn devices_come_back_for_root() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let (_around, to, sink) = target(Resolver::of_this_kernel(), false);
    for (name, kind, rdev) in
        [("null", FileKind::CharDevice, (1, 3)), ("disk", FileKind::BlockDevice, (259, 70_000))]
    {
        let metadata = Metadata { rdev, ..plain(kind, 0o666) };
        match sink.special(name.as_bytes(), &metadata) {
            Ok(unset) => none(&unset),
            Err(error) => {
                eprintln!("skipped: no device nodes here ({error})");
                return;
            }
        }
        let found = fs::symlink_metadata(to.join(name)).unwrap();
        assert_eq!(found.rdev(), rustix::fs::makedev(rdev.0, rdev.1));
        assert_eq!(found.mode() & 0o7777, 0o666);
    }
}

#[test]
fn who_is_not_root_gets_what_is_possible_and_hears_the_rest() {
    if !is_root() {
        eprintln!("skipped: needs root to become somebody else");
        return;
    }
    let around = nobodys_directory();
    let to = around.path().join("target");
    as_nobody(|| {
        let sink = TreeSink::create(&to, Rules::EMPTY).unwrap();
        let roots = Metadata { uid: 0, gid: 0, ..plain(FileKind::File, 0o6755) };
        let unset = sink.create_file(b"suid", 0, roots).unwrap().finish().unwrap();
        assert_eq!(unset.iter().map(|unset| unset.part).collect::<Vec<_>>(), [MetadataPart::Owner]);
        let mode = fs::metadata(to.join("suid")).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o755, "a setuid bit for the wrong owner");

        let device = Metadata { rdev: (1, 1), ..plain(FileKind::BlockDevice, 0o600) };
        let error = sink.special(b"device", &device).unwrap_err();
        assert!(error.advice_text().unwrap().contains("root"), "{error}");

        // A second restore over the first must get into directories that were closed by it.
        sink.make_directory(b"closed").unwrap();
        none(&write(&sink, b"closed/file", b"one").unwrap());
        let closed = plain(FileKind::Directory, 0o111);
        none(&sink.finish_directory(b"closed", &closed).unwrap());
        let again = TreeSink::create(&to, Rules::OVERWRITE).unwrap();
        again.make_directory(b"closed").unwrap();
        none(&write(&again, b"closed/file", b"two").unwrap());
        none(&again.finish_directory(b"closed", &closed).unwrap());
    });
    assert_eq!(fs::read(to.join("closed/file")).unwrap(), b"two");
    let permissions = fs::Permissions::from_mode(0o700);
    fs::set_permissions(to.join("closed"), permissions).unwrap();
}

#[derive(Debug, Clone)]
enum Verb {
    File,
    Directory,
    Symlink(String),
    Fifo,
    HardLink(String),
}

fn any_path() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "c", "..", ".", "", "target", "secret"]);
    prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"))
}

fn any_verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        Just(Verb::File),
        Just(Verb::Directory),
        any_path().prop_map(Verb::Symlink),
        Just(Verb::Fifo),
        any_path().prop_map(Verb::HardLink),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn nothing_outside_the_target_changes_whatever_the_snapshot_says(
        steps in prop::collection::vec((any_path(), any_verb()), 1..24),
        overwrite: bool,
        steps_only: bool,
    ) {
        let way = if steps_only { Resolver::Steps } else { Resolver::Openat2 };
        let (around, _to, sink) = target(way, overwrite);
        fs::create_dir(around.path().join("secret")).unwrap();
        fs::write(around.path().join("secret/a"), b"a").unwrap();
        let before = fs::metadata(around.path().join("secret/a")).unwrap();
        for (path, verb) in &steps {
            let path = path.as_bytes();
            // Each may succeed or be refused; what counts is what became of the world.
            let _ = match verb {
                Verb::File => write(&sink, path, b"new").map(drop),
                Verb::Directory => sink.make_directory(path),
                Verb::Symlink(to) => {
                    let link = plain(FileKind::Symlink, 0o777);
                    sink.symlink(path, to.as_bytes(), &link).map(drop)
                }
                Verb::Fifo => sink.special(path, &plain(FileKind::Fifo, 0o600)).map(drop),
                Verb::HardLink(from) => sink.hard_link(from.as_bytes(), path),
            };
        }
        prop_assert_eq!(fs::read_dir(around.path()).unwrap().count(), 2);
        prop_assert_eq!(fs::read_dir(around.path().join("secret")).unwrap().count(), 1);
        prop_assert_eq!(fs::read(around.path().join("secret/a")).unwrap(), b"a");
        let after = fs::metadata(around.path().join("secret/a")).unwrap();
        prop_assert_eq!((before.ino(), before.ctime_nsec(), before.nlink()),
            (after.ino(), after.ctime_nsec(), after.nlink()));
    }
}
