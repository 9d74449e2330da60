//! Arrays whose members, users or servers went away: nothing goes on with less than there is.

use std::fs;

use rustix::process::Signal;

use super::serving::{Served, good, has, nbd, run, with_pool};
use crate::stand::{Stand, noise, skipped};

/// Whether file systems can be shown here.
fn has_fuse(test: &str) -> bool {
    let is_there = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !is_there {
        skipped(test, "/dev/fuse is missing");
    }
    is_there
}

/// A mirror of `a` and `b`, of which `b` has data that `a` lacks.
fn parted(ends: Signal) -> Stand {
    let stand = Stand::in_memory();
    good(&stand, "array create pool -l 1 -n 2 --size 8M a b --quiet");
    let served = Served::by_nbd(&stand);
    good(&stand, "array manage pool --fail a");
    // The register learns of it once a second, also where no order ends the array.
    if ends == Signal::KILL {
        let known = || fs::read_to_string(stand.path("state/pinstripe/arrays/pool.json")).unwrap();
        let before = known();
        while known() == before {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    served.signal(ends);
    served.ended();
    stand
}

#[test]
fn a_member_that_failed_is_not_taken_for_the_array_when_the_others_are_away() {
    for ends in [Signal::TERM, Signal::KILL] {
        let stand = parted(ends);
        fs::rename(stand.path("b"), stand.path("away")).unwrap();
        let ran = stand.run("array serve pool --nbd unix:{}/nbd");
        assert_eq!(ran.code, 14, "{}{}", ran.out, ran.err);
        assert!(ran.err.contains("have the newest data are absent"), "{}", ran.err);
        fs::rename(stand.path("away"), stand.path("b")).unwrap();
        good(&stand, "array assemble pool");
        // Who knows better says so, and is not asked again.
        fs::remove_file(stand.path("b")).unwrap();
        good(&stand, "array assemble pool --force");
        good(&stand, "array assemble pool");
    }
}

#[test]
fn an_array_that_cannot_be_used_says_so_and_work_that_stands_still_is_not_done() {
    const TEST: &str = "an_array_that_cannot_be_used_says_so";
    if !has("nbdcopy") {
        return pinstripe_testing::not_installed(TEST, "nbdcopy");
    }
    let stand = with_pool(16 << 20);
    fs::write(stand.path("image"), noise(1, 16 << 20)).unwrap();
    let waiting = |stand: &Stand| {
        let served = Served::by_nbd(stand);
        run("nbdcopy", &["--flush", stand.path("image").to_str().unwrap(), &nbd(stand)]);
        good(stand, "array set pool sync_speed_max=1M");
        good(stand, "array manage pool --fail b --remove b --add d --no-wait");
        served.signal(Signal::KILL);
        served.ended();
        stand.run("array wait pool")
    };
    let pending = waiting(&stand);
    assert_eq!(pending.code, 18, "{}{}", pending.out, pending.err);
    assert!(pending.err.contains("is not finished"), "{}", pending.err);
    fs::remove_file(stand.path("a")).unwrap();
    let status = stand.run("array status pool");
    assert_eq!(status.code, 15, "{}", status.out);
    assert!(status.out.contains("cannot be used") && !status.out.contains("--add"));
}

#[test]
fn an_array_whose_file_is_open_is_not_stopped_unless_forced() {
    if !has_fuse("an_array_whose_file_is_open_is_not_stopped") {
        return;
    }
    let stand = with_pool(16 << 20);
    fs::create_dir(stand.path("mnt")).unwrap();
    let served = Served::start(&stand, "--fuse {}/mnt");
    let open = fs::File::options().read(true).write(true).open(stand.path("mnt/pool")).unwrap();
    let refused = stand.run("array stop pool");
    assert_eq!(refused.code, 18, "{}", refused.err);
    assert!(refused.err.contains("--force"), "{}", refused.err);
    assert!(good(&stand, "array status").contains("active"));
    open.sync_all().unwrap();
    drop(open);
    // The kernel tells of the last one to close it in its own time.
    while stand.run("array stop pool").code == 18 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(served.ended(), 0);
    let served = Served::start(&stand, "--fuse {}/mnt");
    let _open = fs::File::open(stand.path("mnt/pool")).unwrap();
    // It is taken away, and the one that has it open is told of.
    assert_eq!(stand.run("array stop pool --force").code, 18);
    served.ended();
    assert!(good(&stand, "array status").contains("inactive"));
}

#[test]
fn the_mountpoint_of_a_server_that_was_killed_is_used_again() {
    if !has_fuse("the_mountpoint_of_a_server_that_was_killed") {
        return;
    }
    let stand = with_pool(16 << 20);
    fs::create_dir(stand.path("mnt")).unwrap();
    for _ in 0..2 {
        let served = Served::start(&stand, "--fuse {}/mnt");
        served.signal(Signal::KILL);
        served.ended();
    }
    let served = Served::start(&stand, "--fuse {}/mnt");
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
}
