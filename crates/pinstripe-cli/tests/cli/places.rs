//! Finding the store: `--store`, the environment, the default place.

use std::fs;

use crate::stand::{Stand, assert_same_tree};

#[test]
fn without_a_name_the_default_store_is_made() {
    let stand = Stand::new();
    stand.make_tree();
    stand.tell("snapshots");
    stand.tell("backup missing");
    assert!(!stand.path("home").exists(), "a backup that cannot begin leaves no store behind");
    stand.tell("backup src");
    assert!(stand.path("home/.local/share/pinstripe/store/pinstripe.member").exists());
    stand.tell("backup src --quiet");
    assert_eq!(stand.run("snapshots --json").events_of("snapshot").len(), 2);
    stand.assert("default-store");
}

#[test]
fn the_data_directory_can_be_named() {
    let stand = Stand::new();
    stand.make_tree();
    let run = |data: &str, line: &str| {
        stand.command(line).env("XDG_DATA_HOME", data).output().unwrap().status.code()
    };
    let data = stand.path("data");
    assert_eq!(run(data.to_str().unwrap(), "backup src -q"), Some(0));
    assert!(data.join("pinstripe/store/pinstripe.member").exists());
    assert_eq!(run("relative", "snapshots"), Some(11), "relative paths are ignored");
    assert_eq!(
        stand.command("snapshots").env_remove("HOME").output().unwrap().status.code(),
        Some(11)
    );
}

#[test]
fn the_environment_names_a_store_and_the_option_outranks_it() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("init --encryption none --member other -q").code, 0);
    assert_eq!(stand.run("backup src --store m2 -q").code, 0);
    let count = |line: &str, place: &str| {
        let output = stand.command(line).env("PINSTRIPE_STORE", place).output().unwrap();
        String::from_utf8(output.stdout).unwrap().matches("\"event\":\"snapshot\"").count()
    };
    assert_eq!(count("snapshots --json", "m3"), 1);
    assert_eq!(count("snapshots --json", "other"), 0);
    assert_eq!(count("snapshots --json --store m0", "other"), 1);
    assert_eq!(count("snapshots --json", ""), 0, "an empty name is no name");
}

#[test]
fn the_default_store_below_a_source_is_not_backed_up() {
    let stand = Stand::new();
    fs::create_dir_all(stand.path("home")).unwrap();
    fs::write(stand.path("home/letter"), "dear\n").unwrap();
    assert_eq!(stand.run("backup home -q").code, 0);
    assert_eq!(stand.run("backup home -q").code, 0);
    let listed = stand.run("ls latest {}/home").out;
    assert!(listed.contains("/letter") && !listed.contains("packs"), "{listed}");
    assert_eq!(stand.run("restore latest:{}/home/letter --to back").code, 0);
    assert_eq!(fs::read(stand.path("back/letter")).unwrap(), b"dear\n");
}

#[test]
fn a_store_moved_as_a_whole_is_found() {
    let stand = Stand::new();
    stand.make_tree();
    fs::create_dir(stand.path("old")).unwrap();
    let init = "init --encryption none --member old/a --member old/b --member old/c --parity 1 --same-disk -q";
    assert_eq!(stand.run(init).code, 0);
    assert_eq!(stand.run("backup src --store old/a -q").code, 0);
    stand.act("mv old new", || fs::rename(stand.path("old"), stand.path("new")).unwrap());
    stand.tell("members --store new/b");
    stand.tell("repair --store new/b");
    stand.tell("members --store new/b");
    assert_eq!(stand.run("restore latest:{}/src --to out --store new/c").code, 0);
    assert_same_tree(&stand.path("src"), &stand.path("out"));
    stand.assert("moved-store");
}

/// Hosts that use one each would divide the member: what one of them writes the other one lacks.
#[test]
fn a_copied_member_is_refused_while_the_original_is_there() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0").code, 0);
    let names = ["m0", "copy"].map(|name| stand.path(name));
    let copied = std::process::Command::new("cp").arg("-a").args(names).status();
    assert!(copied.unwrap().success());
    for line in ["backup src", "snapshots", "repair"] {
        let ran = stand.run(&format!("{line} --store copy"));
        assert_eq!(ran.code, 12, "{line}: {}", ran.err);
        assert!(
            ran.err.contains("two locations have the label of member 0: this location and "),
            "{}",
            ran.err
        );
    }
    // A member under another name is no copy.
    std::os::unix::fs::symlink("m0", stand.path("link")).unwrap();
    assert_eq!(stand.run("backup src --store link").code, 0);
    fs::rename(stand.path("m0"), stand.path("away")).unwrap();
    let moved = stand.run("backup src --store copy");
    assert!(moved.code == 0 && moved.err.contains(", and no longer at "), "{}", moved.err);
    assert_eq!(stand.run("repair --store copy").code, 0);
}
