//! Disks that are full to the last block while a take is recorded: small file systems of their own, and
//! a thread that takes every block that becomes free.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe_testing::{in_own_mounts, mount, skipped, unmount};
use serde_json::Value;

use crate::record::Recorder;
use crate::stand::Stand;

/// A recorder's settings: 12 MB/s, so that 40 MiB last some seconds.
const LINE: &str = "record gig --to disk --ring 1M --chunk 32K --no-realtime \
                    test:streams=4,rate=1000000";

#[test]
fn on_a_tmpfs_that_somebody_fills_up_a_take_ends_whole() {
    let test = "on_a_tmpfs_that_somebody_fills_up_a_take_ends_whole";
    in_own_mounts(test, || {
        let stand = Stand::new();
        fs::create_dir(stand.path("disk")).unwrap();
        if !mount("tmpfs", "size=40M", Path::new("none"), &stand.path("disk")) {
            return skipped(test, "no tmpfs can be mounted");
        }
        fill_up_in_mid_take(&stand);
        unmount(&stand.path("disk"));
    });
}

#[test]
#[ignore = "with --all: it makes a file system on a loop device"]
fn on_an_ext4_that_somebody_fills_up_a_take_ends_whole() {
    let test = "on_an_ext4_that_somebody_fills_up_a_take_ends_whole";
    in_own_mounts(test, || {
        let stand = Stand::in_memory();
        let (image, disk) = (stand.path("image"), stand.path("disk"));
        fs::create_dir(&disk).unwrap();
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image).status();
        if !made.is_ok_and(|it| it.success()) || !mount("ext4", "loop", &image, &disk) {
            return skipped(test, "no ext4 can be made and mounted here");
        }
        fill_up_in_mid_take(&stand);
        // Without anybody else: what the take itself had is freed at its end.
        fs::remove_file(disk.join("filler")).unwrap();
        fs::remove_dir_all(disk.join("gig")).unwrap();
        let ran = stand.run(&format!("{LINE},pace=free,format=s16 --json"));
        assert_eq!(ran.code, 3, "{}", ran.err);
        is_whole(&stand);
        unmount(&disk);
    });
}

/// Records until the disk is full, while a thread takes all that is free or becomes so.
fn fill_up_in_mid_take(stand: &Stand) {
    let mut recorder = Recorder::start(stand, LINE);
    recorder.await_event("recording");
    let (filler, is_over) = (stand.path("disk/filler"), AtomicBool::new(false));
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| take_all(&filler, &is_over));
        let summary = recorder.await_event("summary");
        recorder.child.wait().unwrap();
        is_over.store(true, Ordering::Relaxed);
        summary
    });
    assert_eq!(summary["exit_code"], 3, "{summary}");
    is_whole(stand);
}

/// Writes until told to stop, whenever there is a free block.
fn take_all(path: &Path, is_over: &AtomicBool) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    let block = vec![0x55; 64 << 10];
    while !is_over.load(Ordering::Relaxed) {
        // Large steps first, then the last blocks, too.
        if file.write(&block).is_err() && file.write(&block[..512]).is_err() {
            std::thread::yield_now();
        }
    }
}

/// The take on the full disk is complete as it is: manifest, journal, headers, samples.
fn is_whole(stand: &Stand) {
    let manifest: Value =
        serde_json::from_slice(&fs::read(stand.path("disk/gig/take.json")).unwrap()).unwrap();
    assert_eq!(manifest["state"], "complete");
    let pieces = manifest["pieces"].as_array().unwrap();
    assert_eq!(pieces.len(), 4);
    let verified = stand.run("verify disk/gig --json");
    assert_eq!(verified.code, 0, "{}", verified.err);
    let summary = verified.summary();
    assert_eq!((&summary["wrong_frames"], &summary["damaged_bytes"]), (&0.into(), &0.into()));
    let frames: u64 = pieces.iter().map(|it| it["frames"].as_u64().unwrap()).sum();
    assert!(frames > 100_000 && summary["right_frames"] == frames, "{frames} {summary}");
    assert_eq!(stand.run("recover disk/gig --json").summary()["was_complete"], true);
    for piece in pieces {
        assert!(piece["cut"].is_string(), "each file says why it ended: {piece}");
        let path = stand.path("disk/gig").join(piece["file"].as_str().unwrap());
        match Command::new("soxi").arg("-s").arg(&path).output() {
            Ok(told) => {
                let told = String::from_utf8_lossy(&told.stdout).trim().parse::<u64>();
                assert_eq!(told.ok(), piece["frames"].as_u64(), "{piece}");
            }
            Err(_) => pinstripe_testing::not_installed("record_full", "soxi"),
        }
    }
}
