//! Deleting, as a user would: the messages, and that a killed writer does not block it.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::stand::{Stand, noise};

/// A store with two snapshots of which the older one is forgotten.
fn stand() -> Stand {
    let stand = Stand::with_store();
    fs::write(stand.path("src/large"), noise(5, 400_000)).unwrap();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    fs::remove_file(stand.path("src/large")).unwrap();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    assert_eq!(stand.run("forget --keep-last 1 --store m0 -q").code, 0);
    stand
}

#[test]
fn what_nothing_needs_is_deleted() {
    let stand = stand();
    let would = stand.run("gc --dry-run --store m0 --json").summary();
    let done = stand.run("gc --store m0 --json").summary();
    for key in ["deleted_snapshots", "deleted_packs", "deleted_bytes", "repacked_packs"] {
        assert_eq!(would[key], done[key], "{key}");
    }
    assert_eq!((&would["dry_run"], &done["dry_run"]), (&true.into(), &false.into()));
    assert_eq!(done["deleted_snapshots"], 1);
    assert!(done["deleted_bytes"].as_u64().unwrap() > 400_000);
    assert_eq!(stand.run("check --read-data --store m0").code, 0);
    assert_eq!(stand.run("restore latest --to out --verify --store m0 -q").code, 0);
    assert_eq!(stand.run("undelete latest --store m0").code, 11);
}

#[test]
fn gc_tells_what_it_does() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    stand.tell("gc --store m0");
    stand.tell("gc --store m0 --max-waste 200%");
    stand.tell("gc --store m0 --fence 12345678");
    stand.act("m1 is away", || {
        fs::rename(stand.path("m1"), stand.path("aside")).unwrap();
    });
    stand.tell("gc --store m0");
    stand.assert("gc");
}

#[test]
fn a_backup_that_was_killed_is_in_nobodys_way() {
    let stand = stand();
    fs::write(stand.path("src/more"), noise(6, 300_000)).unwrap();
    let mut child = stand
        .command("backup src --store m0 -q --fault op=any,delay=20ms")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Its session stands from its first step on.
    let sessions = stand.path("m0/sessions");
    let began = Instant::now();
    while !has_files(&sessions) {
        assert!(began.elapsed() < Duration::from_secs(60), "no session");
        sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(has_files(&sessions), "it ended before it was killed");
    let done = stand.run("gc --store m0 --json");
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(done.summary()["ended_sessions"], 1);
    assert_eq!(done.summary()["deleted_snapshots"], 1);
    assert!(!has_files(&sessions));
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    assert_eq!(stand.run("check --read-data --store m0").code, 0);
}

fn has_files(at: &std::path::Path) -> bool {
    let Ok(entries) = fs::read_dir(at) else { return false };
    entries.flatten().any(|entry| entry.path().is_file() || has_files(&entry.path()))
}
