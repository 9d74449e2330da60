//! Files and disks as devices on file systems of every kind: each keeps the rules of the seam under
//! every policy, and both engines of a queue write what they were given.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pinstripe_base::error::Kind;
use pinstripe_io::device::{
    Access, AlignedBuf, Device, Engine, FileDevice, MemoryDevice, PatternDevice, Policy, Ring,
    conformance,
};
use pinstripe_io::fault::{CutDevice, FaultyDevice, Plan, Power};
use pinstripe_io::write_queue::{Returned, WriteQueue, WriteQueueSettings};

use pinstripe_testing::{in_own_mounts, is_root, mount, skipped, unmount};

const MIB: usize = 1 << 20;

/// The writes of the queues: whole pieces, and one that ends on no sector.
const PIECES: usize = 12;
const PIECE: usize = 256 << 10;
const TAIL: usize = 777;

fn pattern(offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    PatternDevice::fill(2, offset as u64, &mut bytes);
    bytes
}

/// The engines that there are here; a missing one is told.
fn engines(test: &str) -> Vec<Engine> {
    match Ring::new(1) {
        Ok(_) => vec![Engine::Threads, Engine::Uring],
        Err(error) => {
            skipped(&format!("{test} by uring"), &error.to_string());
            vec![Engine::Threads]
        }
    }
}

/// Writes the pattern through a queue and reads it from a device opened anew.
fn write_by_queue(device: FileDevice, policy: Policy, engine: Engine) {
    let path = device.place().to_path_buf();
    assert!(device.fallback().is_none_or(|it| it.used == policy.fallback()));
    let settings = WriteQueueSettings { engine, depth: 4, queued: 4 };
    std::thread::scope(|scope| {
        let queue = WriteQueue::start(scope, Arc::new(device), settings, drop);
        assert_eq!(queue.engine(), engine);
        // Backwards, so that a file grows by holes.
        for number in (0..PIECES).rev() {
            let bytes = pattern(number * PIECE, PIECE);
            let offset = (number * PIECE) as u64;
            if number % 2 == 0 {
                let mut buf = AlignedBuf::new(PIECE);
                buf.extend_from_slice(&bytes);
                queue.write(offset, buf).unwrap();
            } else {
                queue.write(offset, bytes).unwrap();
            }
        }
        queue.barrier().unwrap();
        let end = PIECES * PIECE;
        queue.write(end as u64, pattern(end, TAIL)).unwrap();
        assert_eq!(queue.finish().unwrap().written_bytes, (end + TAIL) as u64);
    });
    let device = FileDevice::open(path, Access::Read, Policy::Buffered).unwrap();
    let mut found = vec![0; PIECES * PIECE + TAIL];
    device.read_at(0, &mut found).unwrap();
    assert!(found == pattern(0, found.len()), "{policy}, {engine}");
}

fn check_directory(test: &str, directory: &Path) {
    let count = AtomicU32::new(0);
    let path = || directory.join(count.fetch_add(1, Ordering::Relaxed).to_string());
    for (policy, _) in Policy::ALL {
        conformance::run(&|| {
            Box::new(FileDevice::open(path(), Access::CreateNew, policy).unwrap())
        });
        conformance::run_sparse(&|| {
            Box::new(FileDevice::open(path(), Access::CreateNew, policy).unwrap())
        });
        for engine in engines(test) {
            let path = path();
            let device = FileDevice::open(&path, Access::Create, policy).unwrap();
            write_by_queue(device, policy, engine);
            assert_eq!(path.metadata().unwrap().len(), (PIECES * PIECE + TAIL) as u64);
        }
    }
}

/// Makes an image with a file system on it, mounts it, and has all checks made on it.
fn check_file_system(test: &str, kind: &str, options: &[&str]) {
    in_own_mounts(test, || {
        let folder = tempfile::tempdir().unwrap();
        let (image, at) = (folder.path().join("image"), folder.path().join("mounted"));
        // More than mkfs.xfs asks for.
        fs::File::create(&image).unwrap().set_len(512 * MIB as u64).unwrap();
        fs::create_dir(&at).unwrap();
        let program = format!("mkfs.{kind}");
        let made = Command::new(&program).args(options).arg(&image).output();
        if !made.is_ok_and(|made| made.status.success()) {
            return pinstripe_testing::not_installed(test, &program);
        }
        if !mount(kind, "loop", &image, &at) {
            return skipped(test, &format!("no image with {kind} can be mounted here"));
        }
        check_directory(test, &at);
        unmount(&at);
    });
}

#[test]
fn files_on_ext4() {
    check_file_system("files_on_ext4", "ext4", &["-q"]);
}

#[test]
#[ignore = "with --all: it makes a file system on a loop device, and the same on ext4 is in the gate"]
fn files_on_xfs() {
    check_file_system("files_on_xfs", "xfs", &["-q"]);
}

#[test]
#[ignore = "with --all: it makes a file system on a loop device, and the same on ext4 is in the gate"]
fn files_on_btrfs() {
    check_file_system("files_on_btrfs", "btrfs", &["-q"]);
}

#[test]
fn files_on_tmpfs() {
    let test = "files_on_tmpfs";
    in_own_mounts(test, || {
        let folder = tempfile::tempdir().unwrap();
        if !mount("tmpfs", "size=100m", Path::new("tmpfs"), folder.path()) {
            return skipped(test, "no tmpfs can be mounted here");
        }
        check_directory(test, folder.path());
        unmount(folder.path());
    });
}

#[test]
fn a_full_disk_is_told_as_such() {
    let test = "a_full_disk_is_told_as_such";
    in_own_mounts(test, || {
        let folder = tempfile::tempdir().unwrap();
        if !mount("tmpfs", "size=1m", Path::new("tmpfs"), folder.path()) {
            return skipped(test, "no tmpfs can be mounted here");
        }
        for engine in engines(test) {
            for policy in [Policy::Buffered, Policy::Direct] {
                let path = folder.path().join(format!("{engine} {policy}"));
                let device = FileDevice::open(&path, Access::Create, policy).unwrap();
                let (written, refused) = (AtomicU32::new(0), AtomicU32::new(0));
                let back = |it: Returned| {
                    let count = if it.is_written { &written } else { &refused };
                    count.fetch_add(1, Ordering::Relaxed);
                };
                let mut sent = 0;
                std::thread::scope(|scope| {
                    let settings = WriteQueueSettings { engine, depth: 2, queued: 2 };
                    let queue = WriteQueue::start(scope, Arc::new(device), settings, back);
                    let full = (0..PIECES).find_map(|at| {
                        sent += 1;
                        queue.write((at * PIECE) as u64, vec![1; PIECE]).err()
                    });
                    let error = full.unwrap_or_else(|| queue.barrier().unwrap_err());
                    assert_eq!(error.kind(), Kind::NoSpace, "{error}");
                    assert_eq!(error.place(), Some(path.as_path()));
                });
                let (written, refused) = (written.into_inner(), refused.into_inner());
                assert!(written <= 4 && written + refused == sent, "{written} and {refused}");
                fs::remove_file(path).unwrap();
            }
        }
        unmount(folder.path());
    });
}

/// A file as a disk, until it is dropped.
struct LoopDisk(PathBuf);

impl LoopDisk {
    fn attach(image: &Path) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok()?;
        let name = String::from_utf8(made.stdout).ok()?;
        made.status.success().then(|| LoopDisk(PathBuf::from(name.trim())))
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// Opens a disk. A program that looks for a free loop device, such as mount(8), holds each of them
/// for a moment.
fn open_disk(disk: &Path, policy: Policy) -> FileDevice {
    for _ in 0..1000 {
        match FileDevice::open(disk, Access::Write, policy) {
            Err(error) if error.kind() == Kind::Busy => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            other => return other.unwrap(),
        }
    }
    panic!("{} is never free", disk.display());
}

#[test]
fn disks() {
    let test = "disks";
    if !is_root() {
        return skipped(test, "only root may make disks of files");
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    fs::File::create(&image).unwrap().set_len(4 * MIB as u64).unwrap();
    let Some(disk) = LoopDisk::attach(&image) else {
        return skipped(test, "no file can be made a disk here");
    };
    for (policy, _) in Policy::ALL {
        let open = || open_disk(&disk.0, policy);
        assert_eq!(open().len().unwrap(), 4 * MIB as u64);
        assert!(open().caps().is_block_device);
        conformance::run(&|| Box::new(open()));
        conformance::run_sparse(&|| Box::new(open()));
        for engine in engines(test) {
            write_by_queue(open(), policy, engine);
        }
        // A writer holds the device exclusively.
        let held = open();
        let second = FileDevice::open(&disk.0, Access::Write, policy).err().unwrap();
        assert_eq!(second.kind(), Kind::Busy, "{second}");
        FileDevice::open(&disk.0, Access::Read, policy).unwrap();
        drop(held);
    }
    let error = FileDevice::open(&disk.0, Access::CreateNew, Policy::Direct).err().unwrap();
    assert_eq!(error.kind(), Kind::Exists);
}

/// A queue over a device that is slow now and then and loses its power at any step: what a barrier
/// has passed is there.
#[test]
fn what_a_barrier_has_passed_survives_a_power_cut() {
    for stop_at in 0..40 {
        let power = Arc::new(Power::new(stop_at));
        let cut = Arc::new(CutDevice::new(MemoryDevice::new("cut"), power));
        let plan: Plan = "op=write,chance=0.1,seed=3,delay=10us".parse().unwrap();
        let device: Arc<dyn Device> = Arc::new(FaultyDevice::new(Arc::clone(&cut), plan));
        let mut safe = 0;
        std::thread::scope(|scope| {
            let settings = WriteQueueSettings { engine: Engine::Auto, depth: 3, queued: 2 };
            let queue = WriteQueue::start(scope, device, settings, drop);
            for round in 0..10 {
                let written = (0..3).try_for_each(|part| {
                    let offset = (round * 3 + part) * 5000;
                    queue.write(offset as u64, pattern(offset, 5000))
                });
                if written.and_then(|()| queue.barrier()).is_err() {
                    break;
                }
                safe = (round + 1) * 15_000;
            }
        });
        cut.after_power_cut(stop_at).unwrap();
        let left = cut.inner().to_vec();
        assert!(left[..safe] == pattern(0, safe), "stopped at {stop_at}");
        assert!(safe >= (stop_at as usize / 4).min(10) * 15_000);
    }
}
