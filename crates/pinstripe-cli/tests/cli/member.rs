//! Members that come and go, on the command line.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use pinstripe::Store;
use pinstripe_io::fault::Plan;

use crate::stand::{Stand, assert_same_tree, each_at_once, noise};

#[test]
fn a_member_joins_and_others_leave() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    assert_eq!(stand.tell("member remove 3 --store m0").code, 0);
    fs::remove_dir_all(stand.path("m3")).unwrap();
    assert_eq!(stand.tell("member add m3 --same-disk --store m0").code, 0);
    assert_eq!(stand.tell("member add m4 --store m0").code, 14);
    assert_eq!(stand.tell("member add src --same-disk --store m0").code, 14);
    assert_eq!(stand.tell("member add m4 --same-disk --store m0").code, 0);
    assert_eq!(stand.run("member rebalance --dry-run --store m0").code, 0);
    assert_eq!(stand.tell("member remove 1 --store m0").code, 0);
    assert_eq!(stand.tell("members --store m0").code, 0);
    assert_eq!(stand.tell("member replace 2 --to m5 --store m0").code, 14);
    assert_eq!(stand.tell("member replace 2 --to m5 --same-disk --store m0").code, 0);
    stand.act("rm -r m3", || fs::remove_dir_all(stand.path("m3")).unwrap());
    assert_eq!(stand.tell("member remove 4 --store m0").code, 14);
    assert_eq!(stand.tell("member replace 4 --to m6 --same-disk --store m0").code, 0);
    assert_eq!(stand.tell("member replace 4 --to m7 --store m0").code, 2);
    assert_eq!(stand.tell("check --read-data --store m6").code, 0);
    assert_eq!(stand.run("restore latest:{}/src --to out --store m4").code, 0);
    assert_same_tree(&stand.path("src"), &stand.path("out"));
    stand.assert("member");
}

#[test]
fn what_it_did_is_told_as_json() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    let added = stand.run("member add m4 --same-disk --json --store m0").summary();
    assert_eq!(
        (&added["verb"], &added["member"], &added["data"]),
        (&"member".into(), &4.into(), &4.into())
    );
    let dry = stand.run("member rebalance -n --json --store m0");
    assert_eq!(dry.summary()["dry_run"], true);
    assert_eq!(dry.events_of("share").len(), 5);
    let removed = stand.run("member remove 0 --json --store m1").summary();
    assert_eq!(removed["members"], 4);
    assert!(
        removed["moved_extents"].as_u64() > Some(0) && removed["moved_bytes"].as_u64() > Some(0)
    );
    fs::remove_dir_all(stand.path("m2")).unwrap();
    let refused = stand.run("member remove 2 --json --store m1");
    assert_eq!((refused.code, &refused.events_of("error")[0]["kind"]), (14, &"refused".into()));
}

/// Each half of a store of two went on by itself; they meet again on the host of the first.
#[test]
fn a_half_that_comes_back_is_named_and_its_snapshots_are_brought_over() {
    let stand = Stand::new();
    stand.make_tree();
    let away = |name: &str| {
        fs::rename(stand.path(name), stand.path(&format!("{name} away"))).unwrap();
    };
    let back = |name: &str| {
        fs::rename(stand.path(&format!("{name} away")), stand.path(name)).unwrap();
    };
    let init = "init --encryption none --member m0 --member m1 --parity 1 --same-disk";
    assert_eq!(stand.run(init).code, 0);
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    away("m1");
    assert_eq!(stand.run("member replace 1 --to n1 --same-disk --store m0 -q").code, 0);
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    ["m0", "n1"].into_iter().for_each(away);
    back("m1");
    assert_eq!(stand.run("member replace 0 --to n0 --same-disk --store m1 -q").code, 0);
    fs::write(stand.path("src/of the second half"), noise(7, 100_000)).unwrap();
    assert_eq!(stand.run("backup src --store m1 -q").code, 0);
    let theirs = stand.run("snapshots --store m1 --json").events_of("snapshot");
    let only_there = theirs.last().unwrap()["snapshot"].as_str().unwrap().to_owned();
    ["m0", "n1"].into_iter().for_each(back);

    let told = stand.run("snapshots --store m0 --json");
    assert_eq!((told.code, told.events_of("snapshot").len()), (0, 2));
    let warnings = told.events_of("problem");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let text = |key: &str| warnings[0][key].as_str().unwrap().to_owned();
    assert!(text("what").contains("1 snapshot that this half of the store lacks"), "{warnings:?}");
    assert!(text("advice").contains("member merge"), "{warnings:?}");
    let dry = stand.run("member merge m1 --dry-run --store m0 --json");
    assert_eq!(dry.summary()["brought_snapshots"], 1);
    assert_eq!(dry.events_of("snapshot")[0]["snapshot"], only_there);
    assert_eq!(stand.run("snapshots --store m0 --json").events_of("snapshot").len(), 2);
    let done = stand.run("member merge m1 --store m0 --json");
    assert_eq!((done.code, &done.summary()["brought_snapshots"]), (0, &1.into()), "{}", done.err);
    let told = stand.run("snapshots --store m0 --json");
    assert_eq!((told.events_of("snapshot").len(), told.events_of("problem").len()), (3, 0));
    assert_eq!(stand.run(&format!("restore {only_there}:{{}}/src --to out --store m0 -q")).code, 0);
    assert_same_tree(&stand.path("src"), &stand.path("out"));
    assert_eq!(stand.run("check --read-data --store m0 -q").code, 0);
    let refused = stand.run("member merge n1 --store m0");
    assert_eq!(refused.code, 12, "{}", refused.err);
}

/// Both of two movers gave up, each naming the other one.
#[test]
fn a_mover_waits_for_another_one_when_told_to() {
    let movers = ["repair", "member rebalance"];
    each_at_once(movers.len(), &movers, |mover| {
        let stand = Stand::with_store();
        assert_eq!(stand.run("backup src --store m0 -q").code, 0);
        let store = Store::open(&stand.path("m0"), &Plan::default()).unwrap();
        let claim = store.claim().unwrap();
        for wait in ["", "--wait=3s"] {
            let line = format!("{mover} {wait} --store m0");
            let busy = stand.run(&line);
            assert_eq!(busy.code, 18, "{line}: {}", busy.err);
            assert_eq!(busy.err.contains("waiting"), !wait.is_empty(), "{line}: {}", busy.err);
        }
        drop(claim);
        let line = format!("{mover} --wait --store m0");
        let claim = store.claim().unwrap();
        let mut command = stand.command(&line);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        said.read_line(&mut first).unwrap();
        assert!(first.contains("waiting"), "{line}: {first}");
        assert!(child.try_wait().unwrap().is_none(), "{line}: it did not wait");
        drop(claim);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{line}");
    });
}
