//! `pinstripe mount`: what programs see of a backup is what was backed up.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::fs::{SeekFrom, XattrFlags, seek, setxattr};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::fakevmcore::obstacle;
use crate::stand::{Stand, assert_same_tree, noise, odd_name, skipped};

/// The command at work; ended at the latest when this is dropped.
pub struct Mounted {
    pub child: Child,
    out: BufReader<ChildStdout>,
    pub place: PathBuf,
}

impl Mounted {
    fn start(stand: &Stand, options: &str) -> Self {
        Mounted::of(stand, &format!("mount mnt --store m0 {options}"), "mnt")
    }

    /// The command of a line, which shows something in a directory of this name.
    pub fn of(stand: &Stand, line: &str, name: &str) -> Self {
        let place = stand.path(name);
        match fs::create_dir_all(&place) {
            // What a killed program left there has a name, and cannot be looked at.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made.unwrap(),
        }
        let mut command = stand.command(&format!("{line} --json --foreground"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut mounted = Mounted { child, out, place };
        assert_eq!(mounted.event()["event"], "serving");
        mounted
    }

    fn event(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: '{line}'"))
    }

    /// The newest snapshot's copy of a path.
    fn latest(&self, path: &Path) -> PathBuf {
        self.place.join("latest").join(path.strip_prefix("/").unwrap())
    }

    /// Ends it and returns the exit code.
    pub fn end(mut self) -> i32 {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        let code = self.child.wait().unwrap().code().unwrap();
        assert_eq!(fs::read_dir(&self.place).unwrap().count(), 0, "nothing is mounted");
        code
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // One that was stopped is woken, so that its mount does not keep the test.
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = Command::new("umount").arg("-l").arg(&self.place).status();
        }
    }
}

/// A stand for a test that mounts; none, and the test is told to be skipped, where nothing can be.
pub fn where_mounts_work(test: &str, stand: fn() -> Stand) -> Option<Stand> {
    match obstacle() {
        None => Some(stand()),
        Some(obstacle) => {
            skipped(test, obstacle);
            None
        }
    }
}

#[track_caller]
pub fn ok(stand: &Stand, line: &str) {
    let ran = stand.run(line);
    assert_eq!(ran.code, 0, "{line}: {}", ran.err);
}

/// What a process in the background shows; unmounted at the latest when this is dropped.
pub struct Background(PathBuf);

impl Background {
    pub fn at(stand: &Stand, name: &str) -> Self {
        let place = stand.path(name);
        fs::create_dir_all(&place).unwrap();
        Background(place)
    }

    /// Unmounts, and waits until the process has ended, which is not a child of this one.
    pub fn end(self, process: u64) {
        assert!(Command::new("umount").arg(&self.0).status().unwrap().success());
        let entry = PathBuf::from(format!("/proc/{process}"));
        for _ in 0..1200 {
            if !entry.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("process {process} goes on");
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

/// A tree with what file systems get wrong.
pub fn odd_tree(at: &Path) {
    fs::create_dir_all(at.join("many/below")).unwrap();
    for number in 0..1500 {
        fs::write(at.join(format!("many/file {number:05}")), format!("{number}")).unwrap();
        if number % 3 == 0 {
            fs::write(at.join(format!("many/below/{number}")), noise(number, 900)).unwrap();
        }
    }
    fs::write(at.join("large"), noise(7, 9 << 20)).unwrap();
    fs::write(at.join("one"), "one").unwrap();
    fs::hard_link(at.join("one"), at.join("many/zwei")).unwrap();
    fs::write(at.join(odd_name()), "odd").unwrap();
    std::os::unix::fs::symlink("../large", at.join("many/link")).unwrap();
    Command::new("mkfifo").arg(at.join("pipe")).status().unwrap();
    let sparse = File::create(at.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(&noise(3, 100_000), 20 << 20).unwrap();
    setxattr(at.join("one"), "user.colour", b"green", XattrFlags::empty()).unwrap();
}

/// Names of each inode with several of them.
fn links(at: &Path) -> Vec<Vec<PathBuf>> {
    let mut by_inode: BTreeMap<u64, Vec<PathBuf>> = BTreeMap::new();
    for name in ["one", "many/zwei", "large", "sparse"] {
        let inode = fs::symlink_metadata(at.join(name)).unwrap().ino();
        by_inode.entry(inode).or_default().push(name.into());
    }
    let mut links: Vec<_> = by_inode.into_values().collect();
    links.sort();
    links
}

fn same_as_source(stand: &Stand, mounted: &Mounted) {
    let (source, shown) = (stand.path("tree"), mounted.latest(&stand.path("tree")));
    assert_same_tree(&source, &shown);
    assert_eq!(links(&source), links(&shown));
    let mut colour = [0; 16];
    let length = rustix::fs::getxattr(shown.join("one"), "user.colour", &mut colour).unwrap();
    assert_eq!(&colour[..length], b"green");
}

#[test]
fn a_mount_shows_what_was_backed_up() {
    let name = "a_mount_shows_what_was_backed_up";
    let Some(stand) = where_mounts_work(name, Stand::with_store) else { return };
    odd_tree(&stand.path("tree"));
    ok(&stand, "backup --store m0 tree --tag weekly");
    let mounted = Mounted::start(&stand, "");
    same_as_source(&stand, &mounted);
    let shown = mounted.latest(&stand.path("tree"));

    // Every directory on the way, and each link, leads to the same snapshot.
    assert_eq!(fs::read_dir(mounted.place.join("hosts")).unwrap().count(), 1);
    for way in ["ids", "tags/weekly"] {
        let entries = fs::read_dir(mounted.place.join(way)).unwrap();
        let [link] =
            entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>().try_into().unwrap();
        let below = stand.path("tree/one");
        let one = fs::read(link.join(below.strip_prefix("/").unwrap())).unwrap();
        assert_eq!(one, b"one", "{way}");
    }

    // A file read in any order.
    let (wanted, file) = (noise(7, 9 << 20), File::open(shown.join("large")).unwrap());
    for step in (0..60u64).rev().chain(0..60) {
        let at = step * 150_001 % (9 << 20);
        let mut read = vec![0; 70_000.min((9 << 20) - at as usize)];
        file.read_exact_at(&mut read, at).unwrap();
        assert!(read == wanted[at as usize..][..read.len()], "at {at}");
    }

    // Holes are where they were, in blocks of the source's file system.
    let sparse = File::open(shown.join("sparse")).unwrap();
    let data = seek(&sparse, SeekFrom::Data(0)).unwrap();
    assert!((19 << 20..=20 << 20).contains(&data), "{data}");
    assert!(seek(&sparse, SeekFrom::Hole(data)).unwrap() < 21 << 20);

    // Nothing can be written; a hint is taken, and one that is none is refused.
    let refused = fs::write(shown.join("one"), "two").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
    assert!(fs::remove_file(shown.join("one")).is_err());
    drop((file, sparse));
    assert_eq!(mounted.end(), 0);
}

#[test]
fn a_mount_shows_new_snapshots_and_loses_forgotten_ones() {
    let name = "a_mount_shows_new_snapshots_and_loses_forgotten_ones";
    let Some(stand) = where_mounts_work(name, Stand::with_store) else { return };
    ok(&stand, "backup --store m0 src");
    let mounted = Mounted::start(&stand, "");
    let ids = || {
        let entries = fs::read_dir(mounted.place.join("ids")).unwrap();
        let mut ids: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        ids.sort();
        ids
    };
    let until = |count: usize| {
        for _ in 0..400 {
            if ids().len() == count {
                return ids();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{count} snapshots expected: {:?}", ids());
    };
    let first = until(1);
    fs::write(stand.path("src/new"), "new").unwrap();
    ok(&stand, "backup --store m0 src");
    let both = until(2);
    assert_eq!(fs::read(mounted.latest(&stand.path("src/new"))).unwrap(), b"new");
    ok(&stand, &format!("forget --store m0 {}", first[0]));
    let left = until(1);
    assert!(both.contains(&left[0]) && left != first, "{first:?} {both:?} {left:?}");
    assert_eq!(mounted.end(), 0);
}

#[test]
fn a_mount_works_with_a_member_gone() {
    let name = "a_mount_works_with_a_member_gone";
    let Some(stand) = where_mounts_work(name, Stand::with_store) else { return };
    odd_tree(&stand.path("tree"));
    ok(&stand, "backup --store m0 tree");
    let mounted = Mounted::start(&stand, "");
    fs::read_dir(mounted.latest(&stand.path("tree"))).unwrap();
    fs::remove_dir_all(stand.path("m1")).unwrap();
    same_as_source(&stand, &mounted);
    assert_eq!(mounted.end(), 0);
}

#[test]
fn a_mountpoint_that_cannot_be_one_is_refused() {
    let name = "a_mountpoint_that_cannot_be_one_is_refused";
    let Some(stand) = where_mounts_work(name, Stand::with_store) else { return };
    ok(&stand, "backup --store m0 src");
    let refused = |line: &str, what: &str| {
        let ran = stand.run(line);
        assert!(ran.code != 0 && ran.err.contains(what), "{line}: {} {}", ran.code, ran.err);
    };
    refused("mount nowhere --store m0", "nowhere");
    refused("mount src --store m0", "not empty");
    fs::write(stand.path("file"), "").unwrap();
    refused("mount file --store m0", "not a directory");
    let mut mounted = Mounted::start(&stand, "");
    refused("mount mnt --store m0", "already mounted on");

    // What is left of one whose process was killed is in the way of no other.
    mounted.child.kill().unwrap();
    mounted.child.wait().unwrap();
    let again = Mounted::start(&stand, "--no-xattr");
    assert!(again.latest(&stand.path("src")).is_dir());
    assert_eq!(again.end(), 0);
}

#[test]
fn a_mount_goes_into_the_background_and_tells_what_it_does() {
    let name = "a_mount_goes_into_the_background_and_tells_what_it_does";
    let Some(stand) = where_mounts_work(name, Stand::with_store) else { return };
    fs::write(stand.path("src/large"), noise(5, 40 << 20)).unwrap();
    ok(&stand, "backup --store m0 src");
    let background = Background::at(&stand, "mnt");
    // Its streams are closed when it is ready, or this would wait for its end.
    let ran = stand.run("mount mnt --store m0 --json --metrics figures");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let events = ran.events();
    assert_eq!(events[0]["event"], "serving");
    let process = events.last().unwrap()["process"].as_u64().unwrap();

    let large = stand.path("mnt/latest").join(stand.path("src/large").strip_prefix("/").unwrap());
    let (file, wanted) = (File::open(&large).unwrap(), noise(5, 40 << 20));
    for record in 0..13 {
        let (at, mut read) = ((record * 3) << 20, vec![0; 1 << 20]);
        file.read_exact_at(&mut read, at).unwrap();
        assert!(read == wanted[at as usize..][..1 << 20], "record {record}");
    }
    let hinted = stand.run(&format!("hint {} stride 1M -3M 39M", large.display()));
    assert_eq!((hinted.code, hinted.err.as_str()), (0, ""));
    let refused = stand.run("hint src/large sequential");
    assert!(
        refused.code != 0 && refused.err.contains("hints cannot be given for this file"),
        "{}",
        refused.err
    );
    assert_eq!(stand.run("hint src/large stride 5").code, 2);

    let status = stand.run("mount status mnt --json").events();
    assert_eq!(status[0]["process"], process);
    let told = &status[0]["files"][0];
    assert!(told["path"].as_str().unwrap().ends_with("src/large"), "{told}");
    let strides = told["streams"].as_array().unwrap();
    assert!(strides.iter().any(|stream| stream["stride_bytes"] == 3 << 20), "{told}");
    let rows = stand.run("mount status");
    assert!(rows.out.contains("stride 3.0 MiB, records of"), "{}", rows.out);
    let figures = fs::read_to_string(stand.path("figures")).unwrap();
    assert!(figures.contains("pinstripe_shown_memory_budget_bytes{verb=\"mount\""), "{figures}");

    drop(file);
    background.end(process);
    assert!(!stand.path("figures").exists());
    assert!(stand.run("mount status").out.contains("this user has no mount of"));
    assert_eq!(stand.run("mount status mnt").code, 11);
    // One that fails ends as it would in the foreground, and says so once.
    let refused = stand.run("mount nowhere --store m0 --json");
    assert_ne!(refused.code, 0);
    assert_eq!(refused.events().last().unwrap()["exit_code"], refused.code);
}

/// The names in a directory below `versions`, and the content of each file. Waits while the catalog is
/// being made. A version that is forgotten while it is looked at is passed over.
fn versions_in(directory: &Path) -> BTreeMap<String, Option<String>> {
    for _ in 0..1200 {
        let read = fs::read_dir(directory).and_then(|all| all.collect::<Result<Vec<_>, _>>());
        match read {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => {
                let entry = |entry: fs::DirEntry| -> std::io::Result<_> {
                    let name = entry.file_name().into_string().unwrap();
                    let is_file = entry.metadata()?.is_file();
                    Ok((name, is_file.then(|| fs::read_to_string(entry.path())).transpose()?))
                };
                let there = |read: std::io::Result<_>| match read {
                    Err(error) if error.kind() == ErrorKind::NotFound => None,
                    read => Some(read.unwrap()),
                };
                return read.unwrap().into_iter().map(entry).filter_map(there).collect();
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{} is not listed", directory.display());
}

#[test]
fn all_versions_of_a_file_stand_side_by_side() {
    let name = "all_versions_of_a_file_stand_side_by_side";
    let Some(stand) = where_mounts_work(name, Stand::with_store) else { return };
    fs::create_dir_all(stand.path("tree/sub")).unwrap();
    let save = |content: &str| {
        fs::write(stand.path("tree/sub/report"), content).unwrap();
        ok(&stand, "backup --store m0 tree");
    };
    save("first");
    save("second");
    let mounted = Mounted::start(&stand, "--catalog names.sqlite");
    assert!(!stand.path("names.sqlite").exists(), "nobody has looked");
    let sub =
        mounted.place.join("versions").join(stand.path("tree/sub").strip_prefix("/").unwrap());
    let contents = || {
        let all = versions_in(&sub);
        assert!(all.keys().all(|name| name.starts_with("report@2")), "{all:?}");
        all.into_values().flatten().collect::<Vec<_>>()
    };
    let until = |wanted: &[&str]| {
        let mut found = Vec::new();
        for _ in 0..400 {
            found = contents();
            found.sort();
            if found == wanted {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{wanted:?} expected: {found:?}");
    };
    until(&["first", "second"]);
    assert!(stand.path("names.sqlite").exists());
    let inode = fs::metadata(&sub).unwrap().ino();
    save("third");
    until(&["first", "second", "third"]);
    // A version is the same file as in its snapshot.
    let latest = fs::metadata(mounted.latest(&stand.path("tree/sub/report"))).unwrap().ino();
    let inodes: Vec<u64> =
        fs::read_dir(&sub).unwrap().map(|entry| entry.unwrap().metadata().unwrap().ino()).collect();
    assert!(inodes.contains(&latest), "{latest} in {inodes:?}");
    ok(&stand, "forget --store m0 --keep-last 1");
    until(&["third"]);
    assert_eq!(fs::metadata(&sub).unwrap().ino(), inode);
    // Only who mounts may look: a union of directories has no mode that is right for all.
    assert_eq!(fs::metadata(mounted.place.join("versions")).unwrap().mode() & 0o777, 0o500);
    assert_eq!(mounted.end(), 0);
}
