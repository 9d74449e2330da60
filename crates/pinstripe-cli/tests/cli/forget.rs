//! Forgetting and taking it back, as a user would.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::clocks::Clocked;
use crate::stand::{Ran, Stand, assert_ends, noise, ran};

#[test]
fn snapshots_are_forgotten_by_rules_and_come_back() {
    let stand = Stand::with_store();
    for _ in 0..3 {
        assert_eq!(stand.run("backup src --store m0 --quiet").code, 0);
    }
    stand.tell("forget --store m0");
    // Tables have the machine's name in them: no transcript.
    let fates = |line: &str| {
        let ran = stand.run(line);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let first = ran.out.lines().filter_map(|line| line.split_whitespace().next());
        first.map(str::to_owned).collect::<Vec<_>>()
    };
    let judged = ["snapshot", "forget", "forget", "keep"];
    assert_eq!(
        fates("forget --store m0 --keep-last 1 --dry-run"),
        [&judged[..], &["would"]].concat()
    );
    assert_eq!(fates("forget --store m0 --keep-last 1"), [&judged[..], &["forgot"]].concat());
    assert_eq!(fates("snapshots --store m0").len(), 2);
    let all = stand.run("snapshots --store m0 --all").out;
    assert_eq!(all.lines().filter(|line| line.ends_with(" (forgotten)")).count(), 2);
    stand.tell("forget --store m0 latest");
    stand.tell("undelete --store m0 latest");
    stand.tell("undelete --store m0 0123456789");
    assert_eq!(stand.run("check --store m0").code, 0);
    stand.assert("forget");
}

#[test]
fn what_stays_and_why_is_told_in_json() {
    let stand = Stand::with_store();
    for _ in 0..2 {
        assert_eq!(stand.run("backup src --store m0 --quiet").code, 0);
    }
    let ran = stand.run("forget --store m0 --keep-last 1 --keep-daily 7 --json");
    let verdicts: Vec<_> =
        ran.events().into_iter().filter(|event| event["event"] == "verdict").collect();
    assert_eq!(verdicts.len(), 2);
    assert_eq!(verdicts[0]["stays"], false);
    assert_eq!(verdicts[1]["why"], serde_json::json!(["last", "daily"]));
    assert_eq!((&ran.summary()["forgotten"], &ran.summary()["kept"]), (&1.into(), &1.into()));

    let id = verdicts[0]["snapshot"].as_str().unwrap().to_owned();
    let all = stand.run("snapshots --store m0 --all --json");
    let marked = |event: &serde_json::Value| event["forgotten"] == true;
    assert_eq!(all.events().iter().filter(|event| marked(event)).count(), 1);
    assert_eq!(stand.run(&format!("restore {id} --to out --store m0")).code, 11);
    assert_eq!(stand.run(&format!("undelete {id} --store m0")).code, 0);
    assert_eq!(stand.run(&format!("restore {id} --to out --store m0 -q")).code, 0);
}

#[test]
fn rules_and_names_do_not_mix_and_spans_are_read() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("forget abcd1234 --keep-last 1 --store m0").code, 2);
    assert_eq!(stand.run("forget --keep-within 3 --store m0").code, 2);
    assert_eq!(stand.run("forget --keep-within 3d --store m0").code, 0);
    for line in ["--group-by host", "--keep-within-daily 3d"] {
        assert_eq!(stand.run(&format!("forget abcd1234 {line} --store m0")).code, 2, "{line}");
    }
    assert_ends(&stand.run("forget --keep-within-daily 3 --store m0"), 2, "not a time span");
    let wrong = stand.run("forget --keep-last 1 --group-by host,pats --store m0");
    assert_ends(&wrong, 2, "snapshots cannot be grouped by 'pats'");
}

/// The reasons for which each snapshot is kept, by the groups.
fn groups(ran: &Ran) -> Vec<(Value, Vec<Value>)> {
    assert_eq!(ran.code, 0, "{}", ran.err);
    let verdicts = ran.events_of("verdict");
    let of = |group: Value| {
        let own = verdicts.iter().filter(|verdict| verdict["group"] == group["group"]);
        let own: Vec<_> = own.collect();
        let ids: Vec<_> = own.iter().map(|verdict| verdict["snapshot"].clone()).collect();
        assert_eq!(group["snapshots"], json!(ids));
        let stays = own.iter().filter(|verdict| verdict["stays"] == true).count();
        assert_eq!(
            (&group["kept"], &group["forgotten"]),
            (&json!(stays), &json!(own.len() - stays))
        );
        let why = own.iter().map(|verdict| verdict["why"].clone()).collect();
        (group, why)
    };
    ran.events_of("group").into_iter().map(of).collect()
}

#[test]
fn rules_apply_to_the_groups_that_were_chosen() {
    let stand = Stand::with_store();
    for line in ["--host ant", "--host ant --tag b --tag a", "--host bee --tag a --tag b"] {
        assert_eq!(stand.run(&format!("backup src {line} --store m0 -q")).code, 0);
    }
    assert_eq!(stand.run("backup src/sub --host bee --store m0 -q").code, 0);
    let by = |by: &str| {
        let line = format!("forget --keep-last 1 {by} --dry-run --store m0 --json");
        groups(&stand.run(&line))
    };
    let (last, none) = (json!(["last"]), json!([]));

    let usual = by("");
    assert_eq!(usual.len(), 3);
    assert_eq!(usual[0].0["host"], "ant");
    assert_eq!(usual[0].0["sources"].as_array().unwrap().len(), 1);
    assert!(usual[0].0.get("tags").is_none());
    assert_eq!(usual[0].1, [none.clone(), last.clone()]);
    assert_eq!(by("--group-by paths,host"), usual);

    let host = by("--group-by host");
    assert_eq!(host.len(), 2);
    assert!(host[1].0.get("sources").is_none());
    assert_eq!(host[1].1, [none.clone(), last.clone()], "two lists of paths are one group");

    let tags = by("--group-by tags");
    assert_eq!([&tags[0].0["tags"], &tags[1].0["tags"]], [&json!([]), &json!(["a", "b"])]);
    assert_eq!(tags[1].1, [none.clone(), last.clone()], "whatever the order of the tags");

    let all = by("--group-by none");
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].1, [none.clone(), none.clone(), none, last]);

    // The text names each group if there are several.
    let text = |by: &str| stand.run(&format!("forget --keep-last 1 {by} -n --store m0")).out;
    let named = |text: &str| text.lines().filter(|line| line.starts_with("group: ")).count();
    let usual = text("");
    assert!(usual.starts_with("group: host ant, paths /"), "{usual}");
    assert_eq!(named(&usual), 3);
    assert!(text("--group-by tags").contains("group: tags a b\n"), "{usual}");
    assert!(text("--group-by tags").contains("group: no tags\n"), "{usual}");
    assert_eq!(named(&text("--group-by none")), 0);
    // An empty value is a variable that a script did not set.
    let mut empty = stand.command("forget --keep-last 1 -n --store m0");
    assert_ends(
        &ran(empty.args(["--group-by", ""])),
        2,
        "the argument after '--group-by' is empty",
    );
    // No rule keeps anything of one of the groups.
    let line = "forget --keep-tag a --group-by host,tags --store m0";
    assert_ends(&stand.run(line), 14, "all snapshots of the host ant without tags");
    let done = stand.run("forget --keep-last 1 --group-by host --store m0");
    assert!(done.out.contains("forgot 2 snapshots, kept 2"), "{}", done.out);
}

#[test]
fn a_group_without_new_snapshots_is_named() {
    let Some(clocked) = Clocked::new("a_group_without_new_snapshots") else { return };
    let backup = |utc: &str, host: &str| {
        let done = clocked.at(utc, &format!("backup src --host {host} --store m0 --json"));
        assert_eq!(done.code, 0, "{}", done.err);
        done.events_of("snapshot")[0]["snapshot"].as_str().unwrap().to_owned()
    };
    let first = backup("2025-03-01 10:00:00", "gone");
    let second = backup("2025-03-02 10:00:00", "gone");
    backup("2025-04-01 10:00:00", "here");
    let forget = |utc: &str, line: &str| {
        let ran = clocked.at(utc, &format!("forget {line} --store m0 --json"));
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran
    };
    // 30 days after its newest snapshot the group is not idle, and a second later it is.
    let at = "2025-04-01 10:00:00";
    assert!(forget(at, "--keep-last 1 -n").events_of("idle_group").is_empty());
    let dry = forget("2025-04-02 10:00:00", "--keep-last 1 -n");
    let idle = dry.events_of("idle_group");
    assert_eq!(idle.len(), 1);
    assert_eq!(idle[0]["snapshots"], json!([first, second]), "a dry run forgets none");
    let done = forget("2025-04-02 10:00:00", "--keep-last 1");
    let idle = done.events_of("idle_group");
    assert_eq!((&idle[0]["host"], &idle[0]["newest"]), (&json!("gone"), &json!(second)));
    assert_eq!(idle[0]["snapshots"], json!([second]));
    assert!(idle[0]["bytes"].as_u64().unwrap() > 700_000);
    assert_eq!(idle[0]["age_seconds"].as_u64().unwrap() / 3600, 31 * 24);
    let said = format!("'pinstripe forget {}' forgets it", &second[..8]);
    for part in ["the group 'host gone, paths /", "is 31 days old (1 snapshot; size", &said] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
    // Years later the other group has no new snapshot either.
    let later = forget("2027-04-02 10:00:00", "--keep-last 1");
    assert!(later.events_of("idle_group").is_empty());
    // The command of the note forgets the group.
    let line = format!("forget {} --store m0", &second[..8]);
    assert_eq!(clocked.at("2025-04-02 11:00:00", &line).code, 0);
    let none = forget("2025-04-02 11:00:00", "--keep-last 1");
    assert!(none.events_of("idle_group").is_empty());
}

#[test]
fn the_newest_of_each_period_is_kept_up_to_an_age() {
    let Some(clocked) = Clocked::new("the_newest_of_each_period_up_to_an_age") else { return };
    for utc in [
        "2025-03-31 10:00:00",
        "2025-04-08 09:00:00",
        "2025-04-09 09:00:00",
        "2025-04-09 10:00:00",
        "2025-04-10 09:00:00",
        "2025-04-10 09:30:00",
    ] {
        let done = clocked.at(utc, "backup src --host ant --store m0 -q");
        assert_eq!(done.code, 0, "{}", done.err);
    }
    let kept = |rules: &str| {
        let ran =
            clocked.at("2026-01-01 00:00:00", &format!("forget {rules} -n --store m0 --json"));
        let why = groups(&ran).remove(0).1;
        let kept = (1..).zip(&why).filter(|(_, why)| **why != json!([]));
        kept.map(|(number, _)| number).collect::<Vec<_>>()
    };
    // From the newest snapshot on, not from the present time; the fourth is 23.5 hours older.
    assert_eq!(kept("--keep-within-daily 1d"), [4, 6]);
    assert_eq!(kept("--keep-within-daily 8w"), [1, 2, 4, 6]);
    assert_eq!(kept("--keep-within-hourly 1d"), [4, 6]);
    assert_eq!(kept("--keep-within-hourly 2d"), [3, 4, 6]);
    assert_eq!(kept("--keep-within-weekly 1y"), [1, 6]);
    assert_eq!(kept("--keep-within-monthly 1y"), [1, 6]);
    assert_eq!(kept("--keep-within-yearly 1y"), [6]);
    assert_eq!(kept("--keep-within-daily 0d --keep-within-monthly 1y"), [1, 6]);
}

/// Two snapshots in a store; the older one has 400,000 bytes that the newer one lacks.
fn back_up_twice(stand: &Stand, store: &str) {
    fs::write(stand.path("src/large"), noise(5, 400_000)).unwrap();
    assert_eq!(stand.run(&format!("backup src --store {store} -q")).code, 0);
    fs::remove_file(stand.path("src/large")).unwrap();
    assert_eq!(stand.run(&format!("backup src --store {store} -q")).code, 0);
}

#[test]
fn forgetting_and_deleting_is_one_command() {
    let stand = Stand::with_store();
    back_up_twice(&stand, "m0");
    let line = "forget --keep-last 1 --gc --store m0";
    let would = stand.run(&format!("{line} --dry-run --json"));
    assert_eq!(would.code, 0, "{}", would.err);
    let would = would.summary();
    assert_eq!((&would["forgotten"], &would["dry_run"]), (&json!(1), &json!(true)));
    assert_eq!(stand.run("snapshots --store m0 --json").summary()["snapshots"], 2);
    let done = stand.run(&format!("{line} --json"));
    assert_eq!(done.code, 0, "{}", done.err);
    let done = done.summary();
    assert_eq!((&done["verb"], &done["kept"]), (&json!("forget"), &json!(1)));
    assert_eq!(done["deleted_snapshots"], 1);
    assert!(done["deleted_bytes"].as_u64().unwrap() > 400_000);
    for key in ["forgotten", "deleted_snapshots", "deleted_packs", "deleted_bytes"] {
        assert_eq!(would[key], done[key], "{key}: a dry run says what is deleted");
    }
    assert_eq!(stand.run("undelete latest --store m0").code, 11);
    assert_eq!(stand.run("check --read-data --store m0").code, 0);
    // Nothing is forgotten, and the gc runs all the same.
    let again = stand.run(line);
    assert_eq!(again.code, 0, "{}", again.err);
    for part in ["forgot 0 snapshots, kept 1", "there is nothing to delete", "kept 1 snapshot with"]
    {
        assert!(again.out.contains(part), "{part}: {}", again.out);
    }
    // What was forgotten earlier goes too, and so does what is named.
    back_up_twice(&stand, "m0");
    assert_eq!(stand.run("forget --keep-last 2 --store m0 -q").code, 0);
    let named = stand.run("forget latest --gc --store m0 --json").summary();
    assert_eq!((&named["forgotten"], &named["deleted_snapshots"]), (&json!(1), &json!(2)));
    // A refused forget deletes nothing.
    let refused = stand.run("forget latest --gc --store m0");
    assert_ends(&refused, 14, "this would forget all snapshots");
    assert!(!refused.out.contains("delete"), "{}", refused.out);
}

#[test]
fn an_absent_member_decides_the_code_of_the_gc() {
    let stand = Stand::with_store();
    back_up_twice(&stand, "m0");
    fs::rename(stand.path("m3"), stand.path("aside")).unwrap();
    let done = stand.run("forget --keep-last 1 --gc --store m0 --json");
    assert_eq!(done.code, 4, "{}", done.err);
    assert_eq!(done.summary()["deleted_snapshots"], 1);
    let degraded = done.events_of("problem").into_iter();
    let degraded = degraded.filter(|problem| problem["severity"] == "degraded").count();
    assert_eq!(degraded, 1, "one member is absent: {}", done.err);

    // With two members a gc needs both; the snapshot is forgotten before it refuses.
    let line = "init --encryption none --member n0 --member n1 --parity 1 --same-disk -q";
    assert_eq!(stand.run(line).code, 0);
    back_up_twice(&stand, "n0");
    fs::rename(stand.path("n1"), stand.path("aside1")).unwrap();
    let dry = stand.run("forget --keep-last 1 --gc -n --store n0");
    assert_ends(&dry, 14, "too few members are present");
    let refused = stand.run("forget --keep-last 1 --gc --store n0");
    assert_ends(&refused, 14, "too few members are present");
    assert!(refused.out.contains("forgot 1 snapshot, kept 1"), "{}", refused.out);
    assert!(refused.err.contains("only the gc failed"), "{}", refused.err);
    assert_eq!(stand.run("snapshots --store n0 --json").summary()["snapshots"], 1);
}

fn damage_all(dir: &Path, name: &str) -> usize {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let damage = |path: PathBuf| match path.is_dir() {
        true => damage_all(&path, name),
        false if path.to_str().unwrap().contains(name) => {
            fs::write(path, "damaged").unwrap();
            1
        }
        false => 0,
    };
    entries.map(damage).sum()
}

#[test]
fn a_snapshot_that_cannot_be_read_is_forgotten_and_deleted() {
    let stand = Stand::with_store();
    back_up_twice(&stand, "m0");
    let all = stand.run("snapshots --store m0 --json").events_of("snapshot");
    let id = all[0]["snapshot"].as_str().unwrap();
    let damaged = |member: &str| damage_all(&stand.path(member).join("snapshots"), id);
    assert_eq!(["m0", "m1", "m2", "m3"].map(damaged), [1; 4]);
    let dry = stand.run(&format!("forget {id} --gc -n --store m0"));
    assert_eq!(dry.code, 0, "{}", dry.err);
    assert!(dry.out.starts_with("would forget snapshot"), "{}", dry.out);
    assert!(dry.out.contains("would delete 1 forgotten snapshot and"), "{}", dry.out);
    let done = stand.run(&format!("forget {id} --gc --store m0"));
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.starts_with("forgot snapshot"), "{}", done.out);
    assert!(done.out.contains("deleted 1 forgotten snapshot and"), "{}", done.out);
    assert_eq!(stand.run("check --read-data --store m0").code, 0);
}
