//! Verbs for all arrays at once: mdadm's `--scan`, `serve --all`; and names that are forgotten.

use std::fs;

use rustix::process::Signal;

use super::serving::{Served, good, with_pool};
use crate::stand::{Stand, assert_ends};

/// A stand with the arrays `one` over `a` and `b`, and `two` over `c` and `d` with the spare `e`.
fn with_two() -> Stand {
    let stand = Stand::in_memory();
    good(&stand, "array create one -l 1 -n 2 --size 16M --quiet a b");
    good(&stand, "array create two -l 1 -n 2 -x 1 --size 16M --quiet c d e");
    stand
}

#[test]
fn a_name_is_forgotten_and_nothing_else() {
    let stand = with_pool(16 << 20);
    good(&stand, "array set pool sync_speed_max=50M");
    let before = fs::read(stand.path("a")).unwrap();
    let served = Served::by_nbd(&stand);
    let refused = stand.run("array forget pool");
    assert_eq!(refused.code, 18, "{}", refused.err);
    assert!(refused.err.contains("pinstripe array stop pool"), "{}", refused.err);
    good(&stand, "array stop pool");
    assert_eq!(served.ended(), 0);
    let said = good(&stand, "array forget pool");
    assert!(said.contains("were not changed") && said.contains("array assemble pool"), "{said}");
    assert!(said.contains("1 setting made with"), "{said}");
    assert!(fs::read(stand.path("a")).unwrap()[1 << 20..] == before[1 << 20..]);
    assert_eq!(stand.run("array forget pool").code, 11);
    assert!(good(&stand, "array status").contains("no array is registered"));
    good(&stand, "array assemble tank a b c");
    assert!(good(&stand, "array status").contains("tank : inactive raid5"));
    // An entry that cannot be read is forgotten too.
    fs::write(stand.path("state/pinstripe/arrays/tank.json"), "{").unwrap();
    assert_eq!(stand.run("array status").code, 15);
    assert_eq!(stand.run("array forget tank --json").summary()["devices"], 0);
    assert_eq!(stand.run("array status").code, 0);
}

#[test]
fn arrays_whose_devices_are_gone_are_told_how_to_be_forgotten() {
    let stand = with_two();
    for name in ["a", "b"] {
        fs::remove_file(stand.path(name)).unwrap();
    }
    let shown = stand.run("array status");
    assert_eq!(shown.code, 15);
    assert!(shown.err.contains("pinstripe array forget one"), "{}", shown.err);
    good(&stand, "array forget one");
    good(&stand, "array status");
}

#[test]
fn array_lines_are_mdadms() {
    let stand = with_two();
    let id = stand.run("array detail two --json").summary()["array"].as_str().unwrap().to_owned();
    let uuid = [&id[..8], &id[8..16], &id[16..24], &id[24..]].join(":");
    let line = format!("ARRAY two metadata=pinstripe spares=1 name=two UUID={uuid}\n");
    let shown = good(&stand, "array detail --scan");
    assert!(shown.contains(&line) && shown.contains("ARRAY one "), "{shown}");
    assert_eq!(good(&stand, "array detail two --scan"), line);
    for scanned in ["array examine --scan", "array examine --scan d a e c"] {
        let shown = good(&stand, scanned);
        assert!(shown.contains(&line) && shown.contains("ARRAY one "), "{scanned}: {shown}");
        assert_eq!(shown.lines().count(), 2, "{shown}");
    }
    let shown = good(&stand, "array examine --scan --verbose d c");
    assert!(shown.contains("ARRAY two level=raid1 num-devices=2 metadata=pinstripe name=two"));
    assert!(shown.contains("   devices=d,c"), "{shown}");
    // A device that carries no array is passed over.
    fs::write(stand.path("blank"), vec![0; 1 << 20]).unwrap();
    assert_eq!(good(&stand, "array examine --scan blank a").lines().count(), 1);
    let ran = stand.run("array examine --scan a none --json");
    assert_eq!(ran.code, 11, "{}", ran.err);
    assert_eq!(ran.events_of("scanned_array")[0]["slots"], 2);
    assert_eq!(stand.run("array examine").code, 2);
    assert_eq!(stand.run("array detail").code, 2);
}

#[test]
fn all_arrays_are_assembled_but_those_that_are_served() {
    let stand = with_two();
    let shown = good(&stand, "array assemble --scan");
    assert!(shown.contains("one : inactive") && shown.contains("two : inactive"), "{shown}");
    // One is not registered any more, and is found by its device.
    good(&stand, "array forget one");
    let ran = stand.run("array assemble --scan --device a --device c --device b --json");
    assert_eq!((ran.code, &ran.summary()["arrays"]), (0, &2.into()), "{}", ran.err);
    assert_eq!(ran.events_of("array").len(), 2);
    assert!(good(&stand, "array status").contains("/a[0]"));
    // The others are assembled also when one cannot be.
    for name in ["c", "d", "e"] {
        fs::remove_file(stand.path(name)).unwrap();
    }
    let ran = stand.run("array assemble --scan");
    assert_eq!(ran.code, 15, "{}", ran.err);
    assert!(ran.out.contains("one : inactive") && ran.err.contains("two"), "{}", ran.out);
    assert_eq!(stand.run("array assemble").code, 2);
    assert_eq!(stand.run("array assemble one --device a").code, 2);
}

#[test]
fn one_process_serves_all_arrays_and_each_is_stopped_alone() {
    let stand = with_two();
    let all = "array serve --all --json --nbd unix:{}/{name}.nbd";
    let mut served = Served::start_line(&stand, all);
    served.until("serving");
    assert!(stand.path("one.nbd").exists() && stand.path("two.nbd").exists());
    assert_eq!(good(&stand, "array status").matches(": active").count(), 2);
    assert!(good(&stand, "array assemble --scan").contains("array one is already served"));
    good(&stand, "array stop one");
    assert!(!stand.path("one.nbd").exists());
    assert!(good(&stand, "array status").contains("two : active"));
    // It stands alone now, and ends with the last array.
    good(&stand, "array stop --scan");
    assert_eq!(served.ended(), 0);

    fs::remove_file(stand.path("a")).unwrap();
    fs::remove_file(stand.path("b")).unwrap();
    let served = Served::start_line(&stand, all);
    served.signal(Signal::TERM);
    assert_eq!(served.ended(), 15, "one array could not be served");
    for (line, code) in [
        ("array serve --all --nbd unix:{}/same", 2),
        ("array serve --all --nbd tcp:127.0.0.1:0", 2),
        ("array serve one --all --nbd unix:{}/{name}", 2),
        ("array serve --nbd unix:{}/x", 2),
        ("array stop", 2),
    ] {
        assert_eq!(stand.run(line).code, code, "{line}");
    }
}

#[test]
fn a_device_node_is_no_name() {
    let ran = Stand::new().run("array create /dev/md0 -l 1 -n 2 --size 16M a b");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("use its name, 'md0'"), "{}", ran.err);
}

#[test]
fn a_scan_that_finds_no_array_says_so() {
    let stand = Stand::in_memory();
    fs::File::create(stand.path("blank")).unwrap().set_len(16 << 20).unwrap();
    assert_ends(&stand.run("array examine --scan blank"), 0, "no array was found on 1 device");
}
