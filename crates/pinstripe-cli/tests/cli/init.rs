//! The files that `init` makes, and its refusals.

use std::fs;

use crate::stand::Stand;

#[test]
fn a_store_is_made() {
    let stand = Stand::new();
    stand.tell("init --encryption none --member m0");
    stand.tell("init --encryption none --member a0 --member a1 --member a2 --parity 1 --same-disk");
    stand.tell("init --encryption none --member b0 --member b1 --same-disk");
    stand.assert("init");
}

#[test]
fn settings_are_kept_as_they_were_given() {
    let stand = Stand::new();
    let line = "init --encryption none --member a --member b --same-disk --chunk-size fixed:16K --strip-size 64K \
                --codec zstd:-3 --json";
    let made = stand.run(line).summary();
    let kept = stand.run("members --store b --json").summary();
    for summary in [made, kept] {
        assert_eq!(summary["chunking"], "fixed:16K");
        assert_eq!(summary["strip_bytes"], 65536);
        assert_eq!(summary["codec"], "zstd:-3");
        assert_eq!((&summary["data"], &summary["parity"]), (&2.into(), &0.into()));
    }
}

#[test]
fn bad_settings_are_refused_with_a_reason() {
    let stand = Stand::new();
    fs::create_dir(stand.path("full")).unwrap();
    fs::write(stand.path("full/file"), "x").unwrap();
    for (line, code) in [
        ("init", 2),
        ("init --encryption none --member m0 --member m1 --parity 1", 14),
        ("init --encryption none --member m0 --member m0/inner --same-disk", 2),
        ("init --encryption none --member m0 --member m0 --same-disk", 2),
        ("init --encryption none --member m0 --parity 1", 2),
        ("init --encryption none --member m0 --member m1 --parity 2 --same-disk", 2),
        ("init --encryption none --member m0 --parity 3", 2),
        ("init --encryption none --member m0 --parity many", 2),
        ("init --encryption none --member m0 --strip-size 5K", 2),
        ("init --encryption none --member m0 --strip-size 5Q", 2),
        ("init --encryption none --member m0 --chunk-size 3K", 2),
        ("init --encryption none --member m0 --chunk-size fixed:64M", 2),
        ("init --encryption none --member m0 --chunk-size random:1M", 2),
        ("init --encryption none --member m0 --codec brotli", 2),
        ("init --encryption none --member m0 --codec zstd:0", 2),
        ("init --encryption none --member m0 --codec zstd:99", 2),
        ("init --encryption none --member full", 14),
        ("init --encryption none --member full/file", 2),
        ("init --encryption none --member missing/parent", 11),
    ] {
        assert_eq!(stand.tell(line).code, code, "{line}");
    }
    assert!(!stand.path("m0").exists(), "nothing is made before all is judged");
    stand.assert("init-refused");
}
