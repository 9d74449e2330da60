//! A store that was put back to an earlier state: a host that saw the later one says so.

use std::fs;
use std::process::Command;

use crate::stand::{Ran, Stand, set_home};

const MEMBERS: [&str; 4] = ["m0", "m1", "m2", "m3"];

/// Copies the members to a directory, or back from it.
fn copy(stand: &Stand, from: &str, to: &str) {
    let (from, to) = (stand.path(from), stand.path(to));
    fs::create_dir_all(&to).unwrap();
    for member in MEMBERS {
        let _ = fs::remove_dir_all(to.join(member));
        let copied = Command::new("cp").arg("-R").arg(from.join(member)).arg(&to).status();
        assert!(copied.unwrap().success());
    }
}

fn is_said(ran: &Ran) -> bool {
    ran.err.contains("this host has already seen a newer")
}

fn backup(stand: &Stand, content: &str, line: &str) -> Ran {
    fs::write(stand.path("src/changing"), content).unwrap();
    let ran = stand.run(&format!("backup src --store m0 {line}"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran
}

#[test]
fn a_store_that_was_put_back_is_said_to_be_older_until_that_is_accepted() {
    let stand = Stand::with_store();
    backup(&stand, "one", "");
    copy(&stand, "", "before");
    assert!(!is_said(&backup(&stand, "two", "")));
    copy(&stand, "", "after");
    copy(&stand, "before", "");
    let listed = stand.run("snapshots --store m0");
    assert!(listed.code == 0 && is_said(&listed), "{}", listed.err);
    assert!(listed.err.contains("--accept-older"), "{}", listed.err);
    let checked = stand.run("check --store m0");
    assert!(checked.code == 3 && is_said(&checked), "{}: {}", checked.code, checked.err);
    assert!(!checked.out.contains("no damage was found"), "{}", checked.out);
    // What is made since takes no place in what was seen.
    assert!(is_said(&backup(&stand, "three", "")));
    assert!(is_said(&backup(&stand, "four", "")));
    assert_eq!(stand.run("check --store m0").code, 3);
    // The later state comes back: then all is well.
    copy(&stand, "", "meanwhile");
    copy(&stand, "after", "");
    let checked = stand.run("check --store m0");
    assert!(checked.code == 0 && !is_said(&checked), "{}", checked.err);
    copy(&stand, "meanwhile", "");
    assert_eq!(stand.run("check --store m0").code, 3);
    assert_eq!(stand.run("check --store m0 --accept-older").code, 0);
    for line in ["check", "snapshots", "gc"] {
        let ran = stand.run(&format!("{line} --store m0"));
        assert!(ran.code == 0 && !is_said(&ran), "{line}: {}", ran.err);
    }
    // From then on what is there now counts.
    copy(&stand, "before", "");
    assert!(is_said(&stand.run("snapshots --store m0")));
}

#[test]
fn a_table_of_before_is_told_too() {
    let stand = Stand::with_store();
    backup(&stand, "one", "");
    copy(&stand, "", "before");
    assert_eq!(stand.run("member add more --same-disk --store m0 -q").code, 0);
    copy(&stand, "before", "");
    let checked = stand.run("check --store m0");
    assert!(checked.code == 3 && checked.err.contains("generation"), "{}", checked.err);
    assert_eq!(stand.run("check --store m0 --accept-older").code, 0);
    assert_eq!(stand.run("check --store m0").code, 0);
}

/// An orderly removal is no reason for a warning, whichever host does it.
#[test]
fn snapshots_that_were_forgotten_are_not_missed() {
    let stand = Stand::with_store();
    let quiet = |line: &str| {
        let ran = stand.run(&format!("{line} --store m0"));
        assert!(ran.code == 0 && !is_said(&ran), "{line}: {}: {}", ran.code, ran.err);
    };
    for content in ["one", "two", "three"] {
        backup(&stand, content, "");
    }
    // This host forgets the newest one.
    let newest = stand.run("snapshots --store m0 --json").events_of("snapshot").pop().unwrap();
    quiet(&format!("forget {}", newest["snapshot"].as_str().unwrap()));
    quiet("gc");
    quiet("snapshots");
    quiet("check");
    // Another one makes newer ones and forgets what this one saw last.
    let other = |line: &str| {
        let mut command = stand.command(&format!("{line} --store m0 -q"));
        set_home(&mut command, &stand.path("other"));
        assert!(command.status().unwrap().success(), "{line}");
    };
    for content in ["four", "five", "six"] {
        fs::write(stand.path("src/changing"), content).unwrap();
        other("backup src");
    }
    other("forget --keep-last 1");
    other("gc");
    quiet("snapshots");
    quiet("check");
    quiet("backup src");
}

/// Without the key it cannot be told why a snapshot is gone: that is said, and is no loss.
#[test]
fn without_a_key_it_is_a_warning() {
    let stand = Stand::new();
    stand.make_tree();
    let init = "init --member m0 --member m1 --member m2 --member m3 --parity 1 --same-disk \
                --key-file key -q";
    assert_eq!(stand.run(init).code, 0);
    let with = "--key-file key";
    backup(&stand, "one", with);
    copy(&stand, "", "before");
    backup(&stand, "two", with);
    copy(&stand, "before", "");
    let checked = stand.run("check --store m0");
    assert!(checked.code == 0 && is_said(&checked), "{}: {}", checked.code, checked.err);
    assert_eq!(stand.run(&format!("check --store m0 {with}")).code, 3);
    assert_eq!(stand.run("check --store m0 --accept-older").code, 16);
    assert_eq!(stand.run(&format!("check --store m0 --accept-older {with}")).code, 0);
}
