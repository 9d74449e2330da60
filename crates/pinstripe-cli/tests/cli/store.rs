//! Stores that are not what they should be: wrong members, too few, a newer version.

use std::fs;

use crate::stand::{Stand, assert_same_tree};

fn swap(stand: &Stand, left: &str, right: &str) {
    let aside = stand.path("aside");
    fs::rename(stand.path(left), &aside).unwrap();
    fs::rename(stand.path(right), stand.path(left)).unwrap();
    fs::rename(aside, stand.path(right)).unwrap();
}

#[test]
fn swapped_members_are_told_apart() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    stand.act("swap m1 and m2", || swap(&stand, "m1", "m2"));
    stand.tell("members --store m0");
    assert_eq!(stand.run("restore latest:{}/src --to out --store m2 -q").code, 0);
    assert_same_tree(&stand.path("src"), &stand.path("out"));
    assert_eq!(stand.tell("repair --store m0").code, 0);
    stand.tell("members --store m0");
    stand.assert("swapped-members");
}

#[test]
fn a_member_of_another_store_is_refused() {
    let stand = Stand::with_store();
    let init =
        "init --encryption none --member x0 --member x1 --member x2 --parity 1 --same-disk -q";
    assert_eq!(stand.run(init).code, 0);
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    stand.act("put a member of another store in the place of m1", || swap(&stand, "m1", "x1"));
    assert_eq!(stand.tell("members --store m0").code, 0);
    assert_eq!(stand.run("restore latest:{}/src --to out --store m0").code, 0);
    assert_eq!(stand.tell("backup src --store m0 --quiet").code, 4);
    stand.act("rm -r m2", || fs::remove_dir_all(stand.path("m2")).unwrap());
    assert_eq!(stand.tell("ls latest --store m0").code, 12);
    stand.assert("foreign-member");
}

#[test]
fn more_members_lost_than_parity_replaces() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    fs::remove_dir_all(stand.path("m1")).unwrap();
    assert_eq!(stand.tell("backup src --store m0 --quiet").code, 4);
    fs::remove_dir_all(stand.path("m3")).unwrap();
    for line in ["ls latest", "restore latest --to out", "check", "members", "backup src"] {
        assert_eq!(stand.tell(&format!("{line} --store m0")).code, 15, "{line}");
    }
    stand.assert("too-many-losses");
}

#[test]
fn repair_refuses_what_would_do_harm() {
    let stand = Stand::with_store();
    assert_eq!(stand.tell("member replace 1 --to new --store m0").code, 14);
    assert_eq!(stand.tell("member replace 9 --to new --store m0").code, 2);
    fs::remove_dir_all(stand.path("m1")).unwrap();
    assert_eq!(stand.tell("member replace 1 --to new --store m0").code, 14);
    assert_eq!(stand.tell("member replace 1 --to src --same-disk --store m0").code, 14);
    stand.assert("repair-refused");
}

#[test]
fn a_newer_version_is_called_newer() {
    let stand = Stand::with_store();
    for member in ["m0", "m1", "m2", "m3"] {
        let label = stand.path(member).join("pinstripe.member");
        let mut bytes = fs::read(&label).unwrap();
        // The version stands at byte 10, the checksum in the last 32.
        bytes[10] = 99;
        let sum_at = bytes.len() - 32;
        let sum = blake3::hash(&bytes[..sum_at]);
        bytes[sum_at..].copy_from_slice(sum.as_bytes());
        fs::write(label, bytes).unwrap();
    }
    for line in ["snapshots", "backup src", "check"] {
        assert_eq!(stand.tell(&format!("{line} --store m0")).code, 13, "{line}");
    }
    stand.assert("newer-version");
}

/// Whatever is wrong with the label: the member is known by what else it holds.
#[test]
fn a_backup_writes_to_a_member_of_a_damaged_label_and_says_so() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    let label = stand.path("m1/pinstripe.member");
    let sound = fs::read(&label).unwrap();
    let flipped = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 4;
        bytes
    };
    for damaged in [crate::stand::noise(7, 400), flipped(9), flipped(12), flipped(sound.len() / 2)]
    {
        fs::write(&label, damaged).unwrap();
        let ran = stand.run("backup src --store m0");
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.err.contains("m1/pinstripe.member: "), "{}", ran.err);
        assert!(ran.err.contains("'pinstripe repair' to rewrite its label"), "{}", ran.err);
        assert_eq!(stand.run("repair --store m0").code, 0);
        let ran = stand.run("backup src --store m0");
        assert!(ran.code == 0 && !ran.err.contains("warning"), "{}", ran.err);
    }
}
