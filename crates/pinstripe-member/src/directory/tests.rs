//! Properties of a directory member beyond the rules of all members: layout, order, foreign files.

use crate::BatchedMember;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use super::tree::{Tree, link_into_place};
use super::*;
use crate::{DiskStep, conformance};
use pinstripe_base::id::SetId;

fn member() -> (TempDir, DirectoryMember) {
    let dir = tempfile::tempdir().unwrap();
    let member = DirectoryMember::create_in(dir.path()).unwrap();
    (dir, member)
}

fn pack(number: u8) -> ExtentName {
    ExtentName::In(ExtentKind::Packs, [number; 16])
}

fn write(member: &DirectoryMember, name: ExtentName, replace: Replace, bytes: &[u8]) -> Result<()> {
    let mut writer = member.create(name, replace)?;
    writer.append(bytes)?;
    writer.seal()
}

fn names_in(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn keeps_the_rules_of_the_seam() {
    struct Kept(DirectoryMember, TempDir);
    impl Drop for Kept {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                assert_eq!(names_in(&self.1.path().join("tmp")), [""; 0]);
            }
        }
    }
    impl Member for Kept {
        fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
            self.0.create(name, replace)
        }

        fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
            self.0.put(name, bytes)
        }

        fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
            self.0.read_at(name, offset, buf)
        }

        fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
            self.0.read_at_hand(name, offset, buf)
        }

        fn len(&self, name: ExtentName) -> Result<u64> {
            self.0.len(name)
        }

        fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
            self.0.list(kind)
        }

        fn delete(&self, name: ExtentName) -> Result<()> {
            self.0.delete(name)
        }

        fn sync(&self) -> Result<()> {
            self.0.sync()
        }

        fn sweep(&self) -> Result<u64> {
            unreachable!("no test sweeps through this one")
        }

        fn caps(&self) -> Caps {
            self.0.caps()
        }

        fn place(&self) -> &Path {
            self.0.place()
        }

        fn batched(&self) -> Option<&dyn BatchedMember> {
            self.0.batched()
        }
    }
    conformance::run(&|| {
        let (dir, member) = member();
        Box::new(Kept(member, dir))
    });
}

#[test]
fn the_layout_is_that_of_the_format() {
    let (dir, member) = member();
    member.put(ExtentName::Label, b"label").unwrap();
    write(&member, pack(0xab), Replace::Never, b"pack").unwrap();
    let root = dir.path();
    let mut expected: Vec<_> = ExtentKind::ALL.map(ExtentKind::dir).to_vec();
    expected.extend(["pinstripe.inodes", "pinstripe.member", "pinstripe.reserve", "tmp"]);
    expected.sort_unstable();
    assert_eq!(names_in(root), expected);
    let path = root.join("packs/ab").join("ab".repeat(16));
    assert_eq!(fs::read(&path).unwrap(), b"pack");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0, "the owner's alone");
    assert_eq!(member.place(), root);
    let caps = member.caps();
    assert!(caps.device.is_some() && caps.free_bytes.is_some());
}

#[test]
fn open_says_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let error = DirectoryMember::open(dir.path().join("none")).err().unwrap();
    assert_eq!(error.kind(), Kind::NotFound);
    // The advice is left to callers, which know what should be there.
    assert!(error.advice_text().is_none());
    fs::write(dir.path().join("file"), "").unwrap();
    let error = DirectoryMember::open(dir.path().join("file")).err().unwrap();
    assert_eq!(error.kind(), Kind::Usage);
    let error = DirectoryMember::create_in(dir.path().join("no/such")).err().unwrap();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.advice_text().is_some());
}

#[test]
fn create_in_takes_only_what_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    DirectoryMember::create_in(&path).unwrap();
    // Again: the first attempt got no further than empty directories. And a fresh file system's own.
    fs::create_dir(path.join("lost+found")).unwrap();
    fs::write(path.join("tmp").join("0f".repeat(16)), "left by a killed writer").unwrap();
    let member = DirectoryMember::create_in(&path).unwrap();
    member.put(ExtentName::In(ExtentKind::Keys, [1; 16]), b"secret").unwrap();
    let error = DirectoryMember::create_in(&path).err().unwrap();
    assert_eq!(error.kind(), Kind::Refused);
    assert!(error.to_string().contains("'keys/0101"), "{error}");
    member.delete(ExtentName::In(ExtentKind::Keys, [1; 16])).unwrap();
    member.put(ExtentName::Label, b"").unwrap();
    let error = DirectoryMember::create_in(&path).err().unwrap();
    assert!(error.advice_text().unwrap().contains("or was a member of a store"));
    fs::write(path.join("a photo.jpg"), "").unwrap();
    let error = DirectoryMember::create_in(&path).err().unwrap();
    assert!(error.to_string().contains("'a photo.jpg'"), "{error}");
    assert_eq!(error.kind(), Kind::Refused);
}

#[test]
fn strangers_are_passed_over() {
    let (dir, member) = member();
    write(&member, pack(1), Replace::Never, b"ours").unwrap();
    let packs = dir.path().join("packs");
    fs::write(packs.join("note.txt"), "").unwrap();
    fs::write(packs.join("02"), "a file, not a directory").unwrap();
    fs::create_dir(packs.join("0A")).unwrap();
    fs::write(packs.join("01").join("05".repeat(16)), "in the wrong directory").unwrap();
    fs::create_dir(packs.join("01").join(format!("01{}", "00".repeat(15)))).unwrap();
    symlink("/etc/passwd", packs.join("01").join(format!("01{}", "ff".repeat(15)))).unwrap();
    symlink("01", packs.join("03")).unwrap();
    fs::write(dir.path().join("tmp/x"), "").unwrap();
    assert_eq!(member.list(ExtentKind::Packs).unwrap(), [([1; 16], 4)]);
    assert_eq!(member.sweep_tmp().unwrap(), 0);
    assert_eq!(names_in(&dir.path().join("tmp")), ["x"]);
}

#[test]
fn what_is_no_regular_file_is_damage_and_is_never_followed() {
    let (dir, member) = member();
    let snapshots = dir.path().join("snapshots");
    let path = |number: u8| snapshots.join(SetId([number; 16]).to_string());
    symlink("/etc/passwd", path(1)).unwrap();
    fs::create_dir(path(2)).unwrap();
    let fifo = path(3);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    for number in 1..=3 {
        let name = ExtentName::In(ExtentKind::Snapshots, [number; 16]);
        assert_eq!(member.len(name).unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(member.read_at(name, 0, &mut [0]).unwrap_err().kind(), Kind::Corrupt);
    }
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), dir.path().join("packs/07")).unwrap();
    assert!(write(&member, pack(7), Replace::Never, b"x").is_err());
    assert_eq!(names_in(outside.path()), [""; 0]);
}

#[test]
fn a_lost_room_reads_as_empty_and_is_made_again() {
    let (dir, member) = member();
    fs::remove_dir(dir.path().join("index")).unwrap();
    fs::remove_dir(dir.path().join("tmp")).unwrap();
    let name = ExtentName::In(ExtentKind::Index, [1; 16]);
    assert_eq!(member.list(ExtentKind::Index).unwrap(), []);
    assert_eq!(member.len(name).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(member.sweep_tmp().unwrap(), 0);
    member.put(name, b"run").unwrap();
    assert_eq!(member.list(ExtentKind::Index).unwrap(), [([1; 16], 3)]);
}

#[test]
fn a_sweep_takes_leftovers_and_leaves_writers_alone() {
    let (dir, member) = member();
    for number in 0..3_u8 {
        let leaf = SetId([number; 16]).to_string();
        fs::write(dir.path().join("tmp").join(leaf), "left").unwrap();
    }
    let mut writer = member.create(pack(1), Replace::Never).unwrap();
    writer.append(b"alive").unwrap();
    // Also from another process, which has its own open directory.
    let other = DirectoryMember::open(dir.path()).unwrap();
    assert_eq!(other.sweep_tmp().unwrap(), 3);
    assert_eq!(member.sweep_tmp().unwrap(), 0);
    writer.seal().unwrap();
    assert_eq!(member.len(pack(1)).unwrap(), 5);
}

#[test]
fn sweeping_all_the_time_harms_no_writer() {
    let (dir, member) = member();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sweeper = scope.spawn(|| {
            let other = DirectoryMember::open(dir.path()).unwrap();
            while !done.load(Ordering::Relaxed) {
                other.sweep_tmp().unwrap();
            }
        });
        for number in 0..100 {
            write(&member, ExtentName::In(ExtentKind::Index, [number; 16]), Replace::Never, b"x")
                .unwrap();
        }
        done.store(true, Ordering::Relaxed);
        sweeper.join().unwrap();
    });
    assert_eq!(member.list(ExtentKind::Index).unwrap().len(), 100);
    assert_eq!(names_in(&dir.path().join("tmp")), [""; 0]);
}

/// Comes between the making and the locking of the first two temp files: sweeps one away, and
/// holds the other's lock as a sweep does that is about to.
struct Meddler {
    other: DirectoryMember,
    created: Mutex<Vec<File>>,
}

impl Steps for Meddler {
    fn take(&self, step: &DiskStep<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        act()?;
        let DiskStep::Create(path) = step else { return Ok(()) };
        let mut created = self.created.lock().unwrap();
        let file = File::open(path)?;
        match created.len() {
            0 => assert_eq!(self.other.sweep_tmp().unwrap(), 1),
            1 => file.try_lock()?,
            _ => {}
        }
        created.push(file);
        Ok(())
    }
}

#[test]
fn a_temp_file_that_a_sweep_took_first_is_given_up() {
    let (dir, member) = member();
    let other = DirectoryMember::open(dir.path()).unwrap();
    let meddler = Arc::new(Meddler { other, created: Mutex::default() });
    let member = member.with_steps(meddler.clone());
    let writer = member.create(pack(1), Replace::Never).unwrap();
    assert_eq!(meddler.created.lock().unwrap().len(), 3);
    // The one that was locked goes with its holder.
    meddler.created.lock().unwrap().clear();
    assert_eq!(meddler.other.sweep_tmp().unwrap(), 1);
    writer.seal().unwrap();
    assert_eq!(member.len(pack(1)).unwrap(), 0);
}

/// Writes down every step, and fails those that a test names.
#[derive(Default)]
struct Script {
    root: std::path::PathBuf,
    log: Mutex<Vec<String>>,
    /// A step begins so; it fails with this number, once.
    fail: Mutex<Option<(&'static str, i32)>>,
}

impl Script {
    fn fail_once(&self, step: &'static str, number: i32) {
        *self.fail.lock().unwrap() = Some((step, number));
    }

    fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

impl Steps for Script {
    fn take(&self, step: &DiskStep<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let short = |path: &Path| {
            let below = path.strip_prefix(&self.root).unwrap().to_str().unwrap().to_owned();
            if below.starts_with("tmp/") { "tmp/*".to_owned() } else { below }
        };
        let text = match step {
            DiskStep::Create(path) => format!("create {}", short(path)),
            DiskStep::Write { path, offset, len } => {
                format!("write {} {offset}+{len}", short(path))
            }
            DiskStep::SyncFile(path) => format!("sync-file {}", short(path)),
            DiskStep::Rename { from, to } => format!("rename {} {}", short(from), short(to)),
            DiskStep::SyncDirectory(path) => format!("sync-directory {}", short(path)),
            DiskStep::Unlink(path) => format!("unlink {}", short(path)),
            DiskStep::MakeDirectory(path) => format!("make {}", short(path)),
        };
        let mut fail = self.fail.lock().unwrap();
        let failing = fail.take_if(|(step, _)| text.starts_with(*step));
        self.log.lock().unwrap().push(text);
        match failing {
            Some((_, number)) => Err(io::Error::from_raw_os_error(number)),
            None => act(),
        }
    }
}

fn scripted() -> (TempDir, DirectoryMember, Arc<Script>) {
    let (dir, member) = member();
    let script = Arc::new(Script { root: dir.path().to_path_buf(), ..Script::default() });
    let member = member.with_steps(script.clone());
    (dir, member, script)
}

#[test]
fn the_order_of_a_seal() {
    let (dir, member, script) = scripted();
    let path = SetId([0xab; 16]).to_string();
    write(&member, pack(0xab), Replace::Never, b"bytes").unwrap();
    let seal = [
        "create tmp/*".to_owned(),
        "write tmp/* 0+5".to_owned(),
        "sync-file tmp/*".to_owned(),
        "make packs/ab".to_owned(),
        "sync-directory packs".to_owned(),
        format!("rename tmp/* packs/ab/{path}"),
        "sync-directory packs/ab".to_owned(),
    ];
    assert_eq!(script.take_log(), seal);
    // The second time the directory is there, and known to be durable.
    write(&member, pack(0xab), Replace::Allowed, b"bytes").unwrap();
    assert_eq!(script.take_log(), [&seal[..3], &seal[5..]].concat());
    // Another process cannot know that: the maker may have died before its sync.
    let other = DirectoryMember::open(dir.path()).unwrap().with_steps(script.clone());
    write(&other, pack(0xab), Replace::Allowed, b"bytes").unwrap();
    assert_eq!(script.take_log(), [&seal[..3], &seal[4..]].concat());
    // A kind's directory was durable before the member had a label.
    other.put(ExtentName::In(ExtentKind::Keys, [0; 16]), b"").unwrap();
    let log = script.take_log();
    assert!(!log.contains(&"sync-directory ".to_owned()), "{log:?}");
    assert_eq!(log.last().unwrap(), "sync-directory keys");
}

#[test]
fn a_full_disk_is_said_and_leaves_nothing() {
    let (dir, member, script) = scripted();
    for number in [libc::ENOSPC, libc::EDQUOT] {
        let mut writer = member.create(pack(1), Replace::Never).unwrap();
        writer.append(b"some").unwrap();
        script.fail_once("write", number);
        let error = writer.append(b"more").unwrap_err();
        assert_eq!((error.kind(), error.raw_os_error()), (Kind::NoSpace, Some(number)));
        assert!(error.place().unwrap().ends_with(pack(1).path()));
        assert!(error.advice_text().is_some());
        // The writer is spoilt: its file may hold a part of the lost piece.
        assert_eq!(writer.append(b"again").unwrap_err().kind(), Kind::Io);
        assert_eq!(writer.seal().unwrap_err().kind(), Kind::Io);
    }
    assert_eq!(member.list(ExtentKind::Packs).unwrap(), []);
    assert_eq!(names_in(&dir.path().join("tmp")), [""; 0]);
}

#[test]
fn an_interrupted_write_goes_on() {
    let (_dir, member, script) = scripted();
    script.fail_once("write", libc::EINTR);
    write(&member, pack(1), Replace::Never, b"whole").unwrap();
    assert_eq!(member.len(pack(1)).unwrap(), 5);
}

#[test]
fn a_seal_that_fails_anywhere_leaves_nothing_and_syncs_no_file_twice() {
    for step in ["sync-file", "make", "sync-directory packs", "rename", "sync-directory packs/01"] {
        let (dir, member, script) = scripted();
        let mut writer = member.create(pack(1), Replace::Never).unwrap();
        writer.append(b"bytes").unwrap();
        script.fail_once(step, libc::EIO);
        let error = writer.seal().unwrap_err();
        assert_eq!((error.kind(), error.raw_os_error()), (Kind::Io, Some(libc::EIO)), "{step}");
        assert!(error.advice_text().is_some(), "{step}");
        assert_eq!(member.len(pack(1)).unwrap_err().kind(), Kind::NotFound, "{step}");
        assert_eq!(names_in(&dir.path().join("tmp")), [""; 0], "{step}");
        let syncs = script.take_log().iter().filter(|it| it.starts_with("sync-file")).count();
        assert_eq!(syncs, 1, "{step}");
        // From a fresh writer it works.
        write(&member, pack(1), Replace::Never, b"bytes").unwrap();
    }
}

#[test]
fn a_failed_replacement_keeps_the_old_or_the_new() {
    for (step, left) in [("sync-file", &b"old"[..]), ("rename", b"old"), ("sync-dir", b"new")] {
        let (_dir, member, script) = scripted();
        write(&member, pack(1), Replace::Never, b"old").unwrap();
        script.fail_once(step, libc::EIO);
        write(&member, pack(1), Replace::Allowed, b"new").unwrap_err();
        let mut found = [0; 3];
        member.read_at(pack(1), 0, &mut found).unwrap();
        assert_eq!(found, left, "{step}");
    }
}

#[test]
fn sync_makes_deletions_durable_and_remembers_a_failure() {
    let (_dir, member, script) = scripted();
    for number in 1..=2 {
        write(&member, pack(number), Replace::Never, b"x").unwrap();
    }
    script.take_log();
    member.sync().unwrap();
    assert_eq!(script.take_log(), [""; 0]);
    member.delete(pack(1)).unwrap();
    member.delete(pack(1)).unwrap();
    member.delete(pack(2)).unwrap();
    script.take_log();
    member.sync().unwrap();
    assert_eq!(script.take_log(), ["sync-directory packs/01", "sync-directory packs/02"]);
    member.sync().unwrap();
    assert_eq!(script.take_log(), [""; 0]);
    write(&member, pack(1), Replace::Never, b"x").unwrap();
    member.delete(pack(1)).unwrap();
    script.fail_once("sync-directory", libc::EIO);
    assert_eq!(member.sync().unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(member.sync().unwrap_err().raw_os_error(), Some(libc::EIO));
}

#[test]
fn without_a_rename_that_never_replaces_a_link_does() {
    let (dir, member) = member();
    let tree = Tree::open(dir.path(), None).unwrap();
    let shelf = tree.shelf(Shelf::Kind(ExtentKind::Keys)).unwrap();
    let temp = tree.create_temp().unwrap();
    tree.write(&temp, 0, b"first").unwrap();
    let name = ExtentName::In(ExtentKind::Keys, [1; 16]);
    link_into_place(&temp, &shelf, &leaf(name)).unwrap();
    // The same again is the answer that a network lost.
    link_into_place(&temp, &shelf, &leaf(name)).unwrap();
    tree.discard(&temp).unwrap();
    let second = tree.create_temp().unwrap();
    let error = link_into_place(&second, &shelf, &leaf(name)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(member.len(name).unwrap(), 5);
}

#[test]
fn more_extents_are_read_than_files_stay_open() {
    let (_dir, member) = member();
    for number in 0..100_u8 {
        member.put(ExtentName::In(ExtentKind::Index, [number; 16]), &[number]).unwrap();
    }
    for _ in 0..2 {
        for number in 0..100_u8 {
            let mut byte = [0];
            member.read_at(ExtentName::In(ExtentKind::Index, [number; 16]), 0, &mut byte).unwrap();
            assert_eq!(byte, [number]);
        }
    }
}

#[test]
fn what_was_read_before_is_at_hand_until_it_is_deleted() {
    let test = "what_was_read_before_is_at_hand_until_it_is_deleted";
    // On a disk: tmpfs, where tests may run, does not say what is in memory.
    let Ok(dir) = tempfile::tempdir_in("/var/tmp") else {
        return pinstripe_testing::skipped(test, "there is no /var/tmp");
    };
    let member = DirectoryMember::create_in(dir.path()).unwrap();
    write(&member, pack(1), Replace::Never, b"0123456789").unwrap();
    let mut buf = [0; 4];
    assert!(!member.read_at_hand(pack(1), 3, &mut buf), "it is not open yet");
    member.read_at(pack(1), 3, &mut buf).unwrap();
    let file = fs::File::open(dir.path().join(pack(1).path())).unwrap();
    let mut bufs = [io::IoSliceMut::new(&mut buf)];
    if rustix::io::preadv2(&file, &mut bufs, 0, ReadWriteFlags::NOWAIT).is_err() {
        return pinstripe_testing::skipped(test, "this file system cannot tell what is in memory");
    }
    assert!(member.read_at_hand(pack(1), 3, &mut buf));
    assert_eq!(&buf, b"3456");
    assert!(!member.read_at_hand(pack(1), 7, &mut buf), "it ends before");
    member.delete(pack(1)).unwrap();
    assert!(!member.read_at_hand(pack(1), 3, &mut buf));
    // Reading leaves no trace, or it could wait for the disk.
    write(&member, pack(2), Replace::Never, b"0123456789").unwrap();
    let accessed = || fs::metadata(dir.path().join(pack(2).path())).unwrap().accessed().unwrap();
    let before = accessed();
    fs::File::options()
        .write(true)
        .open(dir.path().join(pack(2).path()))
        .unwrap()
        .set_times(
            fs::FileTimes::new().set_accessed(before - std::time::Duration::from_secs(1 << 20)),
        )
        .unwrap();
    let before = accessed();
    member.read_at(pack(2), 0, &mut buf).unwrap();
    assert_eq!(accessed(), before);
}

/// A disk, or a server behind a mount, may list names without end.
#[test]
fn a_listing_of_more_names_than_a_member_can_have_fails() {
    let dir = tempfile::tempdir().unwrap();
    let member = DirectoryMember::create_in(dir.path()).unwrap();
    for id in 0..5 {
        member.put(ExtentName::In(ExtentKind::Index, [id; 16]), b"x").unwrap();
    }
    let mut shelf = member.tree.shelf(super::shelf::Shelf::Kind(ExtentKind::Index)).unwrap();
    assert_eq!(shelf.extents(5).unwrap().len(), 5);
    assert!(shelf.extents(4).is_err());
    assert_eq!(member.names(ExtentKind::Index).unwrap().len(), 5);
}
