//! Commands of several acts on members: all or nothing, as far as devices can tell beforehand.

use std::fs;

use super::serving::{Served, good, with_pool};
use crate::stand::Stand;

#[test]
fn a_device_that_cannot_be_used_leaves_the_array_as_it_is() {
    let stand = with_pool(16 << 20);
    fs::write(stand.path("xfs"), [b"XFSB".to_vec(), vec![0; 16 << 20]].concat()).unwrap();
    fs::write(stand.path("tiny"), [0; 4096]).unwrap();
    let check = || {
        for (line, code) in [
            ("array manage pool --fail b --remove b --add none", 11),
            ("array manage pool --fail b --remove b --add xfs", 14),
            ("array manage pool --fail b --remove b --add tiny", 2),
            ("array manage pool --fail b --remove c --add d", 14),
            ("array manage pool --fail b --remove b --add a", 1),
            ("array manage pool --fail b --remove b --add d --add d", 2),
            ("array manage pool --fail b --re-add d", 14),
            ("array manage pool --fail b --remove b --add new --size 1M", 2),
            ("array manage pool --fail none", 11),
            ("array manage pool --fail a --fail b", 14),
            ("array grow pool --add none", 11),
            ("array grow pool --add new --size 1M", 2),
        ] {
            let ran = stand.run(line);
            assert_eq!(ran.code, code, "{line}: {}", ran.err);
            assert!(good(&stand, "array status").contains("[UUU]"), "{line}");
        }
        assert!(!stand.path("new").exists(), "a file that was of no use is gone again");
        let own = stand.run("array grow pool --add b");
        assert!(own.err.contains("this device is already a member of this array"), "{}", own.err);
    };
    check();
    let served = Served::by_nbd(&stand);
    check();
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
}

/// The command of the page works whether the failure was seen by this process or by an earlier one.
#[test]
fn a_member_that_failed_earlier_is_replaced_as_one_that_fails_now() {
    let stand = with_pool(16 << 20);
    good(&stand, "array manage pool --fail b");
    let copied = stand.run("array manage pool --replace b --with d");
    assert!(copied.code == 2 && copied.err.contains("--add"), "{}", copied.err);
    let served = Served::by_nbd(&stand);
    good(&stand, "array manage pool --fail b --remove b --add d");
    assert!(good(&stand, "array status").contains("[UUU]"));
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
    assert!(!good(&stand, "array status").contains("/b"));
}

#[test]
fn files_are_made_for_devices() {
    let stand = with_pool(16 << 20);
    good(&stand, "array manage pool --fail b --remove b --add e --size 16M");
    assert!(good(&stand, "array status").contains("/e[1]"));
    let grown = good(&stand, "array grow pool --add f --size 16M");
    assert!(grown.contains("[4/4] [UUUU]"), "{grown}");
    good(&stand, "array manage pool --replace a --with g --size 16M");
    assert!(good(&stand, "array status").contains("/g[0]"));
    let replaced = stand.run("array assemble pool");
    assert!(replaced.err.contains("has taken the slot of this member"), "{}", replaced.err);
    good(&stand, "array manage pool --remove a");
    let forgotten = stand.run("array assemble pool");
    assert_eq!((forgotten.code, &*forgotten.err), (0, ""));
    let ran = stand.run("array manage pool --add none");
    assert!(ran.err.contains("--size"), "{}", ran.err);
    good(&stand, "array scrub pool");
}

#[test]
fn words_of_mdadm_mean_members() {
    let stand = with_pool(16 << 20);
    let served = Served::by_nbd(&stand);
    let said = good(&stand, "array manage pool --fail detached");
    assert!(said.contains("no member of the array matches") && said.contains("[UUU]"), "{said}");
    fs::remove_file(stand.path("b")).unwrap();
    let said =
        good(&stand, "array manage pool --verbose --fail detached --remove detached --add d");
    assert!(said.contains("/d[1]"), "{said}");
    good(&stand, "array manage pool --fail a");
    assert!(good(&stand, "array detail pool").contains("faulty"));
    good(&stand, "array manage pool --remove failed --add a");
    assert!(good(&stand, "array status").contains("[UUU]"));
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
}

#[test]
fn detail_tells_scripts_how_an_array_is() {
    let stand = with_pool(16 << 20);
    let codes = || {
        let lines = ["detail pool", "detail --test pool", "detail -t --scan"];
        lines.map(|line| stand.run(&format!("array {line}")).code)
    };
    assert_eq!(codes(), [0, 0, 0]);
    good(&stand, "array manage pool --fail b");
    assert_eq!(codes(), [0, 4, 4]);
    for device in ["a", "c"] {
        fs::rename(stand.path(device), stand.path(&format!("{device}.away"))).unwrap();
    }
    assert_eq!(codes(), [0, 15, 15]);
}

/// Wherever the new device fails, the exit code and the error say so, and the device is named.
#[test]
#[ignore = "with --all: it takes 7 s"]
fn a_new_device_that_fails_is_named_by_the_verb_that_added_it() {
    let stand = with_pool(16 << 20);
    let mut ends = std::collections::BTreeSet::new();
    for verb in [
        "manage pool --fail b --remove b --add d",
        "manage pool --replace b --with d",
        "grow pool --add d",
    ] {
        for (fault, after) in
            ["write", "sync"].into_iter().flat_map(|it| (2..14).map(move |n| (it, n)))
        {
            let line = format!("array {verb} --fault op={fault},member=3,after={after},error=EIO");
            let ran = stand.run(&line);
            let status = good(&stand, "array status pool");
            let is_whole =
                status.contains("/d[") && ["[UUU]", "[UUUU]"].iter().any(|it| status.contains(it));
            match ran.code {
                0 => assert!(is_whole, "{line}: {}{status}", ran.out),
                code => {
                    let error =
                        ran.err.lines().find(|it| it.contains("error: ")).unwrap_or_default();
                    assert!(code == 1 && error.contains("/d: "), "{line}: {code} {}", ran.err);
                }
            }
            ends.insert((verb, ran.code));
            anew(&stand);
        }
    }
    assert!(ends.len() >= 5, "faults come early and late: {ends:?}");
}

/// Makes the pool again of the same devices.
fn anew(stand: &Stand) {
    good(stand, "array forget pool");
    good(stand, "array create pool -l 5 -n 3 -c 64 --log-size 4M a b c --force --quiet");
    fs::File::create(stand.path("d")).unwrap().set_len(16 << 20).unwrap();
}
