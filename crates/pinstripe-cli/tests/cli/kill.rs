//! The real command, killed at any moment: what was finished stays, what was not never shows. That
//! holds for snapshots in the store and for files in the target of a restore.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Instant;

use crate::stand::{Stand, assert_same_tree, noise};

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
        let harmless =
            ["left behind", "the member does not have this extent", "superseded index run"]
                .iter()
                .any(|it| what.contains(it));
        assert!(harmless, "{what}");
    }
}

#[test]
#[ignore = "with --all: it takes 15 s"]
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
        // The newest, and the others in turn. The check reads all data of all snapshots, and in
        // the end each is restored: what a kill cost would be seen in its round, and stay.
        let by_round: BTreeMap<_, _> = finished.iter().map(|(name, of)| (*of, name)).collect();
        let chosen = by_round.iter().nth(round as usize % by_round.len());
        let newest = by_round.last_key_value();
        let chosen = chosen.filter(|it| Some(*it) != newest);
        for (of, snapshot) in newest.into_iter().chain(chosen) {
            assert_restores(&stand, snapshot, *of);
        }
        assert_nothing_lost(&stand);
    }
    assert!(killed > 0, "no backup was killed before its end");
    for (snapshot, round) in &finished {
        assert_restores(&stand, snapshot, *round);
    }
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    assert_restores(&stand, "latest", ROUNDS);
    for member in ["m0", "m1", "m2", "m3"] {
        let left: Vec<_> = fs::read_dir(stand.path(member).join("tmp")).unwrap().collect();
        assert!(left.is_empty(), "the next backup sweeps up: {left:?}");
    }
    assert_eq!(stand.run("repair --store m0 -q").code, 0);
    assert_eq!(stand.run("check --read-data --store m0 -q").code, 0);
}

/// The names in a target: files, and marks of a restore that has not ended.
fn restored(stand: &Stand) -> (Vec<String>, Vec<String>) {
    let names = fs::read_dir(stand.path("out")).map(|found| {
        found.map(|it| it.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    });
    names.unwrap_or_default().into_iter().partition(|name| !name.starts_with(".pinstripe-"))
}

#[test]
#[ignore = "with --all: it takes 10 s"]
fn a_killed_restore_is_known_and_what_is_whole_in_it_too() {
    let stand = Stand::with_store();
    fs::remove_dir_all(stand.path("src/sub")).unwrap();
    for file in 0..30 {
        fs::write(stand.path(&format!("src/{file}")), noise(file, 300_000)).unwrap();
    }
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    // So slow that the last file comes long after the first.
    let slow = "--fault op=read,room=packs,member=0,rate=2M";
    let line = format!("restore latest:{{}}/src --to out --store m0 -q {slow}");
    let (mut met_unfinished, mut met_finished) = (false, false);
    for round in 0..ROUNDS {
        let mut child =
            (stand.command(&line).stdout(Stdio::null()).stderr(Stdio::null())).spawn().unwrap();
        // Killed when so many files have begun: that is sooner or later in every round, and
        // never behind the end, which has more.
        let (mut files, mut marks) = restored(&stand);
        while files.len() + marks.len() <= round as usize {
            assert!(child.try_wait().unwrap().is_none(), "the restore ended by itself");
            (files, marks) = restored(&stand);
        }
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().code(), None, "killed before its end");
        (files, marks) = restored(&stand);
        assert_eq!(marks.len(), 1, "the target says that it is not complete");
        for name in files {
            // The time of the last change is set last: what has it is whole.
            let [there, wanted] = ["out", "src"].map(|tree| stand.path(tree).join(&name));
            let time = |path: &std::path::Path| fs::metadata(path).unwrap().modified().unwrap();
            let is_whole =
                fs::symlink_metadata(&there).unwrap().is_file() && time(&there) == time(&wanted);
            met_finished |= is_whole;
            met_unfinished |= !is_whole;
            assert!(!is_whole || fs::read(&there).unwrap() == fs::read(&wanted).unwrap(), "{name}");
        }
        if round % SPARED == 0 {
            let refused = stand.run("restore latest:{}/src --to out --store m0 -q");
            assert_eq!(refused.code, 14, "{}", refused.err);
            assert!(refused.err.contains("was interrupted"), "{}", refused.err);
            let again = stand.run("restore latest:{}/src --to out --in-place --store m0 -q");
            assert_eq!(again.code, 0, "{}", again.err);
            assert_eq!(stand.run("restore latest:{}/src --to new --store m0 -q").code, 0);
            assert_same_tree(&stand.path("new"), &stand.path("out"));
            fs::remove_dir_all(stand.path("new")).unwrap();
        }
        fs::remove_dir_all(stand.path("out")).unwrap();
    }
    assert!(met_unfinished, "no file was being written when a restore was killed");
    assert!(met_finished, "no file was complete when a restore was killed");
}

#[test]
fn a_killed_backup_is_gone_on_with() {
    let stand = Stand::with_store();
    for file in 0..60 {
        fs::write(stand.path(&format!("src/{file}")), noise(file, 900_000)).unwrap();
    }
    // Ended in order, so that there is a checkpoint; then killed while it goes on from there.
    let slow = "backup src --store m0 -q --memory 64M --fault op=append,member=0,rate=4M";
    let started = |stand: &Stand| {
        let mut child =
            (stand.command(slow).stdout(Stdio::null()).stderr(Stdio::null())).spawn().unwrap();
        while !stand.is_being_filled("m0") {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it began to write");
        }
        child
    };
    let mut child = started(&stand);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut child = started(&stand);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None);
    assert_nothing_lost(&stand);
    let again = stand.run("backup src --store m0 --json");
    assert_eq!(again.code, 0, "{}", again.err);
    let notes = again.events_of("note");
    assert!(
        notes
            .iter()
            .any(|it| it["text"].as_str().unwrap().contains("continues an interrupted backup")),
        "{notes:?}"
    );
    assert!(again.summary()["unchanged_files"].as_u64() > Some(0), "nothing was taken over");
    assert_eq!(stand.run("restore latest:{}/src --to out --store m0 -q").code, 0);
    assert_same_tree(&stand.path("src"), &stand.path("out"));
    assert_eq!(stand.run("check --read-data --store m0 -q").code, 0);
}

/// The names of the extents of index runs that a member has.
fn runs_on(stand: &Stand, member: &str) -> BTreeSet<OsString> {
    let listed = fs::read_dir(stand.path(member).join("index")).unwrap();
    listed.map(|entry| entry.unwrap().file_name()).collect()
}

/// While it seals a merge of index runs: one member has its part then, and the others wait.
/// Whether that part is the one with the run's head is chance, so it is done again and again. The
/// next backup drops what the one before it has left.
#[test]
fn a_killed_merge_of_index_runs_costs_nothing() {
    const KILLS: usize = 12;
    let stand = Stand::with_store();
    for file in 0..4 {
        fs::write(stand.path(&format!("src/{file}")), noise(file, 20_000)).unwrap();
        assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    }
    // A pack of each backup lacks an extent, within parity.
    let mut thin = 0;
    for directory in fs::read_dir(stand.path("m3/packs")).unwrap() {
        for extent in fs::read_dir(directory.unwrap().path()).unwrap() {
            fs::remove_file(extent.unwrap().path()).unwrap();
            thin += 1;
        }
    }
    assert!(thin >= 4, "{thin}");
    // A backup has a run of its own when a directory above the source has changed, which other
    // tests do: it never comes to that, since its packs wait, too.
    let stuck = "backup src --store m0 -q --fault op=seal,room=index,member=1,delay=3600s \
                 --fault op=seal,room=packs,delay=3600s";
    let whole = runs_on(&stand, "m1");
    let mut seen = runs_on(&stand, "m0");
    for kill in 0..KILLS {
        let mut child =
            (stand.command(stuck).stdout(Stdio::null()).stderr(Stdio::null())).spawn().unwrap();
        while runs_on(&stand, "m0").is_subset(&seen) {
            assert!(child.try_wait().unwrap().is_none(), "kill {kill}: it merged nothing");
        }
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().code(), None);
        seen.extend(runs_on(&stand, "m0"));
        assert_nothing_lost(&stand);
    }
    assert_eq!((whole.len(), seen.len()), (4, 4 + KILLS));
    assert_eq!(runs_on(&stand, "m1"), whole);
    assert_eq!(runs_on(&stand, "m0").len(), 5, "one more than is whole");
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    assert_nothing_lost(&stand);
    assert_eq!(stand.run("restore latest:{}/src --to out --store m0 -q").code, 0);
    assert_same_tree(&stand.path("src"), &stand.path("out"));
    assert_eq!(stand.run("repair --store m0 -q").code, 0);
    assert_eq!(stand.run("check --read-data --store m0 -q").code, 0);
    assert_eq!(runs_on(&stand, "m0"), runs_on(&stand, "m1"));
}
