//! The real command, killed at any moment: what was finished stays, what was not never shows.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Instant;

use crate::stand::{Stand, noise};

const ROUNDS: u64 = 15;
/// One round in so many is left to finish, so that there are snapshots to lose.
const SPARED: u64 = 5;
/// Every call of every member takes longer, so that a kill meets all stages and not only two.
const SLOW: &str = "--fault op=any,delay=2ms";

/// The files of one round: those of the rounds before, and new ones.
fn write_round(stand: &Stand, round: u64) {
    let src = stand.path("src");
    fs::create_dir_all(&src).unwrap();
    for file in 0..8 {
        let seed = round * 100 + file;
        let bytes = if file == 0 { 300_000 } else { 5_000 };
        fs::write(src.join(format!("{round}-{file}")), noise(seed, bytes)).unwrap();
    }
}

fn assert_restores(stand: &Stand, snapshot: &str, rounds: u64) {
    let line = format!("restore {snapshot}:{{}}/src --to out --verify --store m0 -q");
    let restored = stand.run(&line);
    assert_eq!(restored.code, 0, "{}", restored.err);
    let out = stand.path("out");
    let mut names: Vec<_> = fs::read_dir(&out)
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut expected: Vec<_> =
        (0..=rounds).flat_map(|round| (0..8).map(move |file| format!("{round}-{file}"))).collect();
    expected.sort();
    assert_eq!(names, expected);
    for name in names {
        let same =
            fs::read(out.join(&name)).unwrap() == fs::read(stand.path("src").join(&name)).unwrap();
        assert!(same, "{name}");
    }
    fs::remove_dir_all(out).unwrap();
}

/// Nothing is damaged: at most, what a cut-off backup wrote is missing on some members.
fn assert_nothing_lost(stand: &Stand) {
    let checked = stand.run("check --read-data --store m0 --json");
    assert!([0, 10].contains(&checked.code), "{}", checked.err);
    let summary = checked.summary();
    for key in ["lost", "lost_chunks", "hurt_snapshots", "losses"] {
        assert_eq!(summary[key], 0, "{key}: {}", checked.err);
    }
    for problem in checked.events_of("problem") {
        let what = problem["what"].as_str().unwrap();
        let harmless = ["left over", "no such extent"].iter().any(|it| what.contains(it));
        assert!(harmless, "{what}");
    }
}

#[test]
fn a_killed_backup_leaves_every_finished_snapshot_whole() {
    let stand = Stand::with_store();
    fs::remove_dir_all(stand.path("src")).unwrap();
    write_round(&stand, 0);
    let began = Instant::now();
    assert_eq!(stand.run(&format!("backup src --store m0 -q {SLOW}")).code, 0);
    let whole = began.elapsed();
    // Which round each finished snapshot is of.
    let mut finished = BTreeMap::new();
    let mut killed = 0;
    for round in 0..=ROUNDS {
        if round > 0 {
            write_round(&stand, round);
            let mut child = stand
                .command(&format!("backup src --store m0 -q {SLOW}"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            if round % SPARED > 0 {
                // Spread over the run and beyond, in an order that has nothing to do with the
                // rounds. Later runs are longer than the first: they find more to do.
                let share = (round * 7 % ROUNDS) as f64 / ROUNDS as f64;
                sleep(whole.mul_f64(2.0 * share));
                // A child that came to its end before is no mistake.
                let _ = child.kill();
            }
            killed += u64::from(child.wait().unwrap().code().is_none());
        }
        let listed = stand.run("snapshots --store m0 --json");
        assert_eq!(listed.code, 0, "{}", listed.err);
        for snapshot in listed.events_of("snapshot") {
            finished.entry(snapshot["snapshot"].as_str().unwrap().to_owned()).or_insert(round);
        }
        for (snapshot, round) in &finished {
            assert_restores(&stand, snapshot, *round);
        }
        assert_nothing_lost(&stand);
    }
    assert!(killed > 0, "no backup was killed before its end");
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    assert_restores(&stand, "latest", ROUNDS);
    for member in ["m0", "m1", "m2", "m3"] {
        let left: Vec<_> = fs::read_dir(stand.path(member).join("tmp")).unwrap().collect();
        assert!(left.is_empty(), "the next backup sweeps up: {left:?}");
    }
    assert_eq!(stand.run("repair --store m0 -q").code, 0);
    assert_eq!(stand.run("check --read-data --store m0 -q").code, 0);
}
