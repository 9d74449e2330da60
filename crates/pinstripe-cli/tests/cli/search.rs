//! find, history, diff and the catalog, as a user meets them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::stand::Stand;

/// Three backups: as made, one file longer, one gone and one with another mode.
fn three_backups() -> Stand {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    fs::write(stand.path("src/sub/empty"), "no more").unwrap();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    fs::remove_file(stand.path("src/link")).unwrap();
    fs::set_permissions(stand.path("src/sub/noise"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    stand
}

#[test]
fn searching_from_the_first_question_to_a_broken_catalog() {
    let stand = three_backups();
    stand.tell("catalog status --store m0");
    stand.tell("find empty --store m0");
    stand.tell("find src/sub/* --store m1 --type file --min-size 1K");
    stand.tell("find nothing* --store m0");
    stand.tell("history {}/src/sub/empty --store m0");
    stand.tell("history {}/src/link --store m0");
    stand.tell("history {}/src/nowhere --store m0");
    stand.tell("catalog status --store m0");
    let place = fs::read_dir(stand.path("home/.cache/pinstripe")).unwrap().next().unwrap();
    let file = place.unwrap().path().join("catalog.sqlite");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    stand.act("the catalog is overwritten", || fs::write(&file, "lost").unwrap());
    stand.tell("find empty --store m0");
    stand.act("the catalog is removed", || fs::remove_file(&file).unwrap());
    stand.tell("history {}/src/sub/empty --store m0 --quiet");
    stand.tell("catalog rebuild --store m0");
    stand.tell("find a//b --store m0");
    stand.tell("find x --store m0 --newer 2024-05-01 --older 2024-04-01");
    stand.tell("find x --store m0 --newer tomorrow");
    stand.tell("catalog rebuild --store m0 --catalog src/hello");
    stand.assert("search");
    assert_eq!(fs::read(stand.path("src/hello")).unwrap(), b"hello\n");
}

#[test]
fn differences_between_two_snapshots() {
    let stand = three_backups();
    let ids: Vec<String> = (stand.run("snapshots --store m0 --json").events().iter())
        .filter_map(|event| Some(event["short"].as_str()?.to_owned()))
        .collect();
    assert_eq!(ids.len(), 3);
    let told = |from: &str, to: &str| {
        let ran = stand.run(&format!("diff {from} {to} --store m0"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        let dir = stand.path("src").canonicalize().unwrap();
        let told = ran.out.replace(dir.to_str().unwrap(), "[SRC]");
        // The directories above are in every snapshot, and others may change them meanwhile.
        let is_ours = |line: &&str| line.contains("[SRC]") || !line.contains('/');
        told.lines().filter(is_ours).map(|line| format!("{line}\n")).collect::<String>()
    };
    let all = told(&ids[0], "latest");
    let (paths, totals) = all.split_at(all.find("0 paths").unwrap());
    assert_eq!(paths, "m [SRC]/\nD [SRC]/link\nM [SRC]/sub/empty\nm [SRC]/sub/noise\n");
    assert!(totals.starts_with("0 paths added, 1 deleted, 1 modified, 0 with a changed type, "));
    assert!(
        totals.ends_with(" with only changed metadata; the size changed from 0 B to 7 B\n"),
        "{totals}"
    );
    assert_eq!(told(&ids[2], "latest"), "no difference\n");
    let back = stand.run(&format!("diff latest {} --store m0 --json", ids[0]));
    let added: Vec<_> = (back.events().into_iter())
        .filter(|event| event["change"] == "added")
        .map(|event| event["new_type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(added, ["symlink"]);
    assert_eq!(back.summary()["added"], 1);
    assert_eq!(stand.run("diff latest 00000000 --store m0").code, 11);
}

#[test]
fn found_versions_as_events() {
    let stand = three_backups();
    let found = stand.run("find empty --store m0 --json");
    let versions: Vec<_> =
        found.events().into_iter().filter(|event| event["event"] == "found").collect();
    assert_eq!(versions.len(), 2);
    assert_eq!((versions[0]["bytes"].as_u64(), versions[1]["bytes"].as_u64()), (Some(0), Some(7)));
    assert_eq!(versions[1]["snapshots"].as_array().unwrap().len(), 2);
    let latest = stand.run("find empty --store m0 --json --snapshot latest");
    assert_eq!(latest.summary()["versions"], 1);
    let line = format!("history {}/src/link --store m0 --json", "{}");
    let history = stand.run(&line);
    let what: Vec<_> = (history.events().into_iter())
        .filter(|event| event["event"] == "version")
        .map(|event| event["what"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(what, ["first", "gone"]);
}
