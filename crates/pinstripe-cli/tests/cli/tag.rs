//! Tags, comments and times of snapshots.

use std::fs;

use serde_json::Value;

use crate::stand::{Stand, ran};

fn snapshots(stand: &Stand, line: &str) -> Vec<Value> {
    let ran = stand.run(&format!("snapshots --json --store m0 {line}"));
    assert_eq!(ran.code, 0, "{line}: {}", ran.err);
    ran.events_of("snapshot")
}

fn latest(stand: &Stand) -> Value {
    snapshots(stand, "").pop().unwrap()
}

fn with_backup(options: &str) -> Stand {
    let stand = Stand::with_store();
    let line = format!("backup src --store m0 {options}");
    stand.run(&line).ends(0, &line);
    stand
}

#[test]
fn tags_are_added_removed_and_set() {
    let stand = with_backup("--tag daily --comment first");
    let old = latest(&stand);
    assert_eq!(old["comment"], "first");
    for (line, tags, comment) in [
        ("add latest keep daily keep", vec!["daily", "keep"], Some("first")),
        ("remove latest daily", vec!["keep"], Some("first")),
        ("set latest a b --comment second", vec!["a", "b"], Some("second")),
        ("set latest --comment third", vec!["a", "b"], Some("third")),
        ("set latest", vec![], Some("third")),
    ] {
        let before = latest(&stand);
        let dry = stand.run(&format!("tag {line} --dry-run --store m0"));
        assert!(dry.ends(0, line).contains(before["short"].as_str().unwrap()), "{line}");
        assert_eq!(latest(&stand), before, "a dry run changes nothing: {line}");
        let ran = stand.run(&format!("tag {line} --json --store m0"));
        let summary = ran.events_of("summary").pop().unwrap();
        let after = latest(&stand);
        assert_eq!(summary["replaces"], before["snapshot"], "{line}");
        assert_eq!(summary["snapshot"], after["snapshot"], "{line}");
        assert_eq!(after["tags"], Value::from(tags), "{line}");
        assert_eq!(after.get("comment").and_then(Value::as_str), comment, "{line}");
        for key in ["time", "host", "sources", "entries", "counts"] {
            assert_eq!(after[key], before[key], "{line}: {key}");
        }
        assert_eq!(snapshots(&stand, "").len(), 1, "{line}");
    }
    // The first one is only forgotten, and the next backup reads nothing.
    let undeleted = format!("undelete {} --store m0", old["short"].as_str().unwrap());
    stand.run(&undeleted).ends(0, &undeleted);
    stand.run("gc --store m0").ends(0, "gc");
    stand.run("restore latest --to back --store m0").ends(0, "restore");
    stand.run("check --read-data --store m0").ends(0, "check");
    let again = stand.run("backup src --json --store m0");
    assert_eq!(again.events_of("summary")[0]["read_bytes"], 0);
}

#[test]
fn what_cannot_be_tagged_is_refused() {
    let stand = with_backup("--tag daily");
    for (line, code) in [
        ("tag add latest two,words", 2),
        ("tag add latest", 2),
        ("tag add nothing tag", 11),
        ("tag add 0123abcd tag", 11),
        ("tag remove latest weekly", 11),
        ("tag add latest x --host other", 11),
        ("backup src --time '2999-01-01'", 2),
        ("backup src --time yesterday", 2),
        ("backup src --skip-if-unchanged --dry-run", 2),
    ] {
        let refused = stand.run(&format!("{line} --store m0"));
        assert_eq!(refused.code, code, "{line}: {}", refused.err);
    }
    let two_lines = ran(stand.command("tag set latest --store m0 --comment").arg("a\nb"));
    assert_eq!(two_lines.code, 2, "{}", two_lines.err);
    let same = stand.run("tag add latest daily --store m0");
    assert!(same.ends(0, "the same tag").contains("nothing was changed"));
    assert_eq!(snapshots(&stand, "--all").len(), 1, "nothing was made");
}

#[test]
fn the_rules_of_forget_see_the_new_tags() {
    let stand = with_backup("");
    stand.run("tag add latest keep --store m0").ends(0, "tag");
    for _ in 0..2 {
        stand.run("backup src --store m0").ends(0, "backup");
    }
    stand.run("forget --keep-last 1 --keep-tag keep --gc --store m0").ends(0, "forget");
    let left = snapshots(&stand, "");
    assert_eq!(left.len(), 2);
    assert_eq!(left[0]["tags"], Value::from(vec!["keep"]));
    stand.run("check --read-data --store m0").ends(0, "check");
}

#[test]
fn a_time_of_the_past_orders_the_snapshot_among_the_others() {
    let stand = with_backup("");
    let now = latest(&stand);
    fs::write(stand.path("src/new"), "new").unwrap();
    stand.run("backup src --store m0 --time @1700000000").ends(0, "backup");
    let all = snapshots(&stand, "");
    assert_eq!(all[0]["created_seconds"], 1_700_000_000);
    assert_eq!(all[0].get("parent"), None, "the parent is later");
    assert_eq!(latest(&stand), now, "latest goes by time");
    let ran = stand.run("snapshots --store m0");
    assert!(!ran.err.contains("clock"), "{}", ran.err);
    let again = stand.run("backup src --store m0");
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(!again.err.contains("clock"), "{}", again.err);
}

#[test]
fn without_a_change_no_snapshot_is_made() {
    let stand = with_backup("");
    let old = latest(&stand);
    let line = "backup src --skip-if-unchanged --json --store m0";
    // The time of the directory above the source does not count.
    fs::write(stand.path("beside"), "beside").unwrap();
    let skipped = stand.run(line);
    assert_eq!(skipped.code, 0, "{}", skipped.err);
    let summary = skipped.events_of("summary").pop().unwrap();
    assert_eq!((&summary["snapshot"], &summary["unchanged"]), (&old["snapshot"], &true.into()));
    assert_eq!(snapshots(&stand, "--all").len(), 1);
    fs::write(stand.path("src/new"), "new").unwrap();
    let made = stand.run(line);
    assert_eq!(made.events_of("summary")[0].get("unchanged"), None);
    assert_eq!(snapshots(&stand, "").len(), 2);
    let plain = stand.run("backup src --skip-if-unchanged --store m0");
    assert!(plain.ends(0, line).contains("nothing has changed since snapshot"));
    fs::remove_file(stand.path("src/new")).unwrap();
    stand.run("backup src --skip-if-unchanged --store m0").ends(0, "a removed file");
    assert_eq!(snapshots(&stand, "").len(), 3);
    // Another series has no parent.
    stand.run("backup src --host other --skip-if-unchanged --store m0").ends(0, "other host");
    assert_eq!(snapshots(&stand, "").len(), 4);
    stand.run("gc --store m0").ends(0, "no session is left");
}
