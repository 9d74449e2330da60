//! `pinstripe mount`: what programs see of a backup is what was backed up.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
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
struct Mounted {
    child: Child,
    out: BufReader<ChildStdout>,
    place: PathBuf,
}

impl Mounted {
    fn start(stand: &Stand, options: &str) -> Self {
        let place = stand.path("mnt");
        fs::create_dir_all(&place).unwrap();
        let mut command = stand.command(&format!("mount mnt --store m0 --json {options}"));
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
    fn end(mut self) -> i32 {
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
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = Command::new("umount").arg("-l").arg(&self.place).status();
        }
    }
}

#[track_caller]
fn ok(stand: &Stand, line: &str) {
    let ran = stand.run(line);
    assert_eq!(ran.code, 0, "{line}: {}", ran.err);
}

/// A tree with what file systems get wrong.
fn odd_tree(at: &Path) {
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
    if let Some(obstacle) = obstacle() {
        return skipped("a_mount_shows_what_was_backed_up", obstacle);
    }
    let stand = Stand::with_store();
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
    if let Some(obstacle) = obstacle() {
        return skipped(name, obstacle);
    }
    let stand = Stand::with_store();
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
    if let Some(obstacle) = obstacle() {
        return skipped("a_mount_works_with_a_member_gone", obstacle);
    }
    let stand = Stand::with_store();
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
    if let Some(obstacle) = obstacle() {
        return skipped("a_mountpoint_that_cannot_be_one_is_refused", obstacle);
    }
    let stand = Stand::with_store();
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
    refused("mount mnt --store m0", "mounted there already");

    // One whose process was killed is told as what it is.
    mounted.child.kill().unwrap();
    mounted.child.wait().unwrap();
    refused("mount mnt --store m0", "has ended");
    assert!(Command::new("umount").arg("-l").arg(&mounted.place).status().unwrap().success());
    let again = Mounted::start(&stand, "--no-xattr");
    assert!(again.latest(&stand.path("src")).is_dir());
    assert_eq!(again.end(), 0);
}
