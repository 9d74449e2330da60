//! Arrays are made, found, looked at and taken apart; what would cost data is refused.

use std::fs;
use std::process::Command;

use super::serving::Loop;
use crate::stand::{Stand, skipped};

const POOL: &str =
    "array create pool --level 5 --raid-devices 3 --chunk 64 --size 8M a b c --quiet";

#[test]
fn an_array_is_made_shown_and_found_again() {
    let stand = Stand::new();
    assert_eq!(stand.tell("array status").code, 0);
    let line = "array create pool --level 5 --raid-devices 3 --chunk 64 --size 8M a b c";
    assert_eq!(stand.tell(line).code, 0);
    for line in [
        "array status",
        "array detail pool",
        "array examine b",
        "array assemble pool c a b",
        "array status pool",
    ] {
        assert_eq!(stand.tell(line).code, 0, "{line}");
    }
    stand.act("b is gone", || fs::remove_file(stand.path("b")).unwrap());
    assert_eq!(stand.tell("array status").code, 0);
    assert_eq!(stand.tell("array assemble pool").code, 0);
    assert_eq!(stand.tell("array detail pool").code, 0);
    stand.act("c is gone", || fs::remove_file(stand.path("c")).unwrap());
    assert_eq!(stand.tell("array assemble pool").code, 15);
    assert_eq!(stand.tell("array zero-superblock a").code, 0);
    assert_eq!(stand.tell("array examine a").code, 11);
    assert_eq!(stand.tell("array status").code, 15);
    stand.assert("array_making");
}

#[test]
fn every_level_and_layout_is_made_by_mdadms_words() {
    let stand = Stand::new();
    for (number, (options, level, layout)) in [
        ("-l 0 -n 3", "raid0", "default"),
        ("-l mirror -n 3", "raid1", "default"),
        ("-l raid4 -n 3", "raid4", "default"),
        ("-l 5 -n 3 -p la", "raid5", "left-asymmetric"),
        ("-l 5 -n 3 --layout parity-first", "raid5", "parity-first"),
        ("-l 6 -n 4 -c 128K", "raid6", "left-symmetric"),
        ("-l 10 -n 4", "raid10", "n2"),
        ("-l 10 -n 3 -p f2", "raid10", "f2"),
        ("-l 10 -n 4 -p o2", "raid10", "o2"),
    ]
    .into_iter()
    .enumerate()
    {
        let members: usize = options.split("-n ").nth(1).unwrap()[..1].parse().unwrap();
        let files: Vec<_> = (0..members).map(|file| format!("{number}-{file}")).collect();
        let line = format!("array create a{number} {options} --size 8M {}", files.join(" "));
        let ran = stand.run(&line);
        assert_eq!(ran.code, 0, "{line}: {}", ran.err);
        let shown = stand.run(&format!("array detail a{number} --json")).summary();
        assert_eq!((&shown["level"], &shown["layout"]), (&level.into(), &layout.into()));
        assert_eq!(shown["degraded"], 0);
    }
}

#[test]
fn what_would_cost_data_or_makes_no_sense_is_refused() {
    let stand = Stand::new();
    assert_eq!(stand.run(POOL).code, 0);
    fs::write(stand.path("xfs"), [b"XFSB".to_vec(), vec![0; 8 << 20]].concat()).unwrap();
    fs::write(stand.path("tiny"), [0; 4096]).unwrap();
    for name in ["e", "f"] {
        fs::write(stand.path(name), vec![0; 8 << 20]).unwrap();
    }
    for (line, code) in [
        ("array create pool -l 5 -n 3 --size 8M d e f", 1),
        ("array create a/b -l 5 -n 3 --size 8M d e f", 2),
        ("array create new -l 5 -n 3 a e f --size 8M", 14),
        ("array create new -l 1 -n 2 xfs e", 14),
        ("array create new -l 5 -n 3 e f", 2),
        ("array create new -l 5 -n 3 e f e", 2),
        ("array create new -l 5 -n 3 none e f", 11),
        ("array create new -l 5 -n 3 tiny e f", 2),
        ("array create new -l 7 -n 3 d e f", 2),
        ("array create new -l 5 -n 3 -p n2 d e f", 2),
        ("array create new -l 6 -n 3 -c 100 d e f", 2),
        ("array assemble pool a b xfs", 1),
        ("array assemble new", 11),
        ("array detail new", 11),
        ("array zero-superblock xfs", 11),
        ("array examine none", 11),
    ] {
        assert_eq!(stand.tell(line).code, code, "{line}");
    }
    assert!(!stand.path("d").exists(), "nothing was made for what was refused");
    stand.assert("array_refused");
}

#[test]
fn an_array_speaks_json() {
    let stand = Stand::new();
    let made = stand.run(&format!("{POOL} --json"));
    assert_eq!(made.code, 0, "{}", made.err);
    let status = stand.run("array status --json");
    let array = &status.events_of("array")[0];
    assert_eq!((&array["name"], &array["picture"]), (&"pool".into(), &"UUU".into()));
    assert_eq!(array["array"], made.summary()["array"]);
    assert_eq!(array["capacity_bytes"], made.summary()["capacity_bytes"]);
    let examined = stand.run("array examine a b --json").events_of("superblock");
    assert_eq!((&examined[1]["slot"], &examined[1]["name"]), (&1.into(), &"pool".into()));
    let failed = stand.run("array detail none --json");
    assert_eq!((failed.code, &failed.events_of("error")[0]["kind"]), (11, &"not_found".into()));
    assert_eq!(stand.run("array zero-superblock a --json").events_of("zeroed").len(), 1);
}

#[test]
fn two_devices_are_measured_against_each_other() {
    let stand = Stand::new();
    assert_eq!(stand.run(POOL).code, 0);
    let probed = stand.run("array probe a b c --rounds 1 --part 5 --json");
    assert_eq!(probed.code, 0, "{}", probed.err);
    let pairs = probed.events_of("pair");
    assert_eq!(pairs.len(), 3);
    // One round is no evidence, whatever it says.
    assert_eq!((&pairs[0]["rounds"], &pairs[0]["verdict"]), (&1.into(), &"unclear".into()));
    assert!(pairs[0]["same_disk"].is_string());
    assert_eq!(probed.summary()["shared_pairs"], 3);
    let shown = stand.run("array probe a b --rounds 1 --part 5").out;
    assert!(shown.contains("the system reports that both devices are on"), "{shown}");
    for (line, code) in [("array probe a", 2), ("array probe a none", 11)] {
        assert_eq!(stand.run(line).code, code, "{line}");
    }
}

#[test]
fn a_disk_in_use_is_refused_with_what_has_it() {
    const TEST: &str = "a_disk_in_use_is_refused_with_what_has_it";
    let stand = Stand::new();
    let image = stand.path("image");
    fs::write(&image, vec![0; 32 << 20]).unwrap();
    let Some(disk) = Loop::of(&image) else {
        return skipped(TEST, "no loop device can be had");
    };
    let run = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|it| it.status.success())
    };
    let point = stand.path("mnt");
    fs::create_dir(&point).unwrap();
    let create = format!("array create new -l 1 -n 2 --size 32M {} other", disk.0);
    // The file behind it is in use as long as the disk is there.
    let behind = stand.run("array create new -l 1 -n 2 image other --size 32M");
    assert_eq!(behind.code, 18, "{}", behind.err);
    assert!(behind.err.contains("loop"), "{}", behind.err);
    if !run("mkfs.ext4", &["-q", &disk.0]) {
        return pinstripe_testing::not_installed(TEST, "mkfs.ext4");
    }
    let ran = stand.run(&create);
    assert_eq!(ran.code, 14, "{}", ran.err);
    assert!(ran.err.contains("an ext4 file system"), "{}", ran.err);
    if !run("mount", &[&disk.0, point.to_str().unwrap()]) {
        return skipped(TEST, "nothing can be mounted");
    }
    let ran = stand.run(&format!("{create} --force"));
    assert!(run("umount", &[point.to_str().unwrap()]));
    assert_eq!(ran.code, 18, "{}", ran.err);
    assert!(ran.err.contains(&format!("mounted at {}", point.display())), "{}", ran.err);
    let ran = stand.run(&format!("{create} --force"));
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn an_array_that_cannot_be_made_leaves_no_files() {
    let stand = Stand::new();
    fs::write(stand.path("xfs"), [b"XFSB".to_vec(), vec![0; 8 << 20]].concat()).unwrap();
    for (line, code) in [
        ("array create pool -l 5 -n 3 --size 64K a b c", 2),
        ("array create pool -l 5 -n 3 --size 8M a b xfs", 14),
        ("array create pool -l 5 -n 3 --size 8M a b none/c", 11),
    ] {
        let ran = stand.run(line);
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
        assert!(!stand.path("a").exists() && !stand.path("b").exists(), "{line}");
    }
    assert_eq!(stand.run("array create pool -l 5 -n 3 --size 8M a b c").code, 0);
}

#[test]
fn a_device_that_is_too_small_is_named() {
    let stand = Stand::in_memory();
    for (name, bytes) in [("a", 16 << 20), ("b", 64 << 10), ("c", 16 << 20)] {
        std::fs::File::create(stand.path(name)).unwrap().set_len(bytes).unwrap();
    }
    let ran = stand.run("array create pool -l 5 -n 3 a b c");
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("error: b: a member is too small"), "{}", ran.err);
}
