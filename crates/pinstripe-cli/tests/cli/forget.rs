//! Forgetting and taking it back, as a user would.

use crate::stand::Stand;

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
}
