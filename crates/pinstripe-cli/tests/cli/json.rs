//! `--json`: every line an event, the last one the summary, whatever happens.

use std::fs;

use crate::stand::Stand;

#[test]
fn every_verb_speaks_json_when_it_succeeds() {
    let stand = Stand::new();
    stand.make_tree();
    let init =
        "init --encryption none --member m0 --member m1 --member m2 --parity 1 --same-disk --json";
    let made = stand.run(init);
    assert_eq!(made.events_of("member").len(), 3);
    assert_eq!(made.summary()["parity"], 1);
    let run = |line: &str| {
        let ran = stand.run(&format!("{line} --store m0 --json"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        assert_eq!(ran.summary()["verb"], line.split(' ').next().unwrap());
        ran
    };
    let backed_up = run("backup src");
    let summary = backed_up.summary();
    assert_eq!(summary["new_files"], 4);
    assert_eq!(summary["losses"], 0);
    assert_eq!(backed_up.events_of("snapshot")[0]["snapshot"], summary["snapshot"]);
    assert_eq!(run("backup src").summary()["unchanged_files"], 4);
    let listed = run("snapshots").events_of("snapshot");
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[1]["parent"], listed[0]["snapshot"]);
    assert_eq!(listed[0]["counts"]["new_files"], 4);
    let entries = run("ls latest {}/src").events_of("entry");
    assert_eq!(entries.len(), 7);
    let link = entries.iter().find(|it| it["type"] == "symlink").unwrap();
    assert_eq!(link["target"], "sub/noise");
    let restored = run("restore latest:{}/src --to out --verify").summary();
    assert_eq!((&restored["restored_entries"], &restored["verified"]), (&6.into(), &true.into()));
    let checked = run("check --read-data").summary();
    assert_eq!((&checked["snapshots"], &checked["lost"]), (&2.into(), &0.into()));
    assert_eq!(run("members").events_of("member").len(), 3);
    assert_eq!(run("repair").summary()["repaired_extents"], 0);
    for line in ["stats", "stats --read-data", "catalog rebuild -q", "catalog status", "scrub"] {
        run(line);
    }
    assert_eq!(run("diff latest latest").summary()["added"], 0);
    assert!(!run("scrub --status").events_of("scrub_age").is_empty());
    assert_eq!(run("restore latest --in-place --dry-run").summary()["dry_run"], true);
    assert_eq!(run("forget --keep-last 1").events_of("verdict").len(), 2);
}

#[test]
fn every_counter_is_documented() {
    let page = include_str!("../../../../doc/json.md");
    let (_, counters) = page.split_once("| counter | what |").unwrap();
    let summary = Stand::new().run("snapshots --json").summary();
    for key in summary.as_object().unwrap().keys() {
        let is_own = ["event", "verb", "elapsed_seconds", "exit_code"].contains(&key.as_str());
        assert!(is_own || counters.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn every_verb_speaks_json_when_it_fails() {
    let stand = Stand::with_store();
    for (line, code, kind) in [
        ("init --encryption none --member m0", 14, "refused"),
        ("init --encryption none --member new --parity 9", 2, "usage"),
        ("backup missing --store m0", 11, "not_found"),
        ("snapshots", 11, "not_found"),
        ("ls latest --store m0", 11, "not_found"),
        ("restore latest --to out --store m0", 11, "not_found"),
        ("check --store missing", 11, "not_found"),
        ("members --store src", 11, "not_found"),
        ("member replace 7 --to new --same-disk --store m0", 2, "usage"),
        ("completions bash", 2, "usage"),
        ("man", 2, "usage"),
        ("restore latest", 2, "usage"),
        ("frobnicate", 2, "usage"),
    ] {
        let ran = stand.run(&format!("{line} --json"));
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
        let errors = ran.events_of("error");
        assert_eq!(errors.len(), 1, "{line}: {}", ran.out);
        assert_eq!(errors[0]["kind"], kind, "{line}");
        assert!(!errors[0]["what"].as_str().unwrap().is_empty(), "{line}");
        assert!(!ran.err.is_empty(), "{line}: people are told too");
    }
}

#[test]
fn problems_and_notes_are_events_too() {
    let stand = Stand::with_store();
    let ran = stand.run("backup src --store m0 --json --fault op=append,member=3,error=EIO");
    assert_eq!(ran.code, 4);
    let problems = ran.events_of("problem");
    assert_eq!(problems.len(), 1, "{}", ran.out);
    assert_eq!(problems[0]["severity"], "degraded");
    assert!(problems[0]["place"].as_str().unwrap().ends_with("/m3"), "{}", problems[0]);
    assert_eq!(problems[0]["cause"], "Input/output error (os error 5)");
    assert_eq!(ran.summary()["degraded_members"], 1);
    fs::remove_dir_all(stand.path("m3")).unwrap();
    let ran = stand.run("check --store m0 --json");
    assert_eq!(ran.code, 10);
    assert_eq!(ran.events_of("problem")[0]["severity"], "warning");
    let members = stand.run("members --store m0 --json");
    assert_eq!(members.events_of("member")[3]["present"], false);
    assert_eq!(members.summary()["absent"], 1);
    let ran = stand.run("backup src --json");
    assert_eq!(ran.events_of("note").len(), 3, "{}", ran.out);
}

#[test]
fn a_slow_run_tells_its_progress() {
    let stand = Stand::with_store();
    let fault = "--fault op=seal,room=packs,member=0,delay=1200ms";
    let ran = stand.run(&format!("backup src --store m0 --json {fault}"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let progress = ran.events_of("progress");
    assert!(!progress.is_empty());
    assert!(progress[0]["done_bytes"].is_u64() && progress[0]["elapsed_seconds"].is_f64());
    assert_eq!(ran.err, "", "no bar where there is no terminal");
}
