//! The choice of snapshots by name, host, path and tag, by verbs that take a snapshot.

use std::fs;

use crate::stand::{Stand, assert_ends};

/// A store with three snapshots: one of `src`, with a file `old`; one of `src` and `more`, without
/// it; and one of `src`, of the host `bee` and with the tag `best`, with another file `old`.
fn with_hosts() -> Stand {
    let stand = Stand::with_store();
    let backup = |line: &str| stand.run(&format!("backup --store m0 {line}")).ends(0, line);
    fs::write(stand.path("src/old"), "first").unwrap();
    backup("src");
    fs::remove_file(stand.path("src/old")).unwrap();
    fs::create_dir(stand.path("more")).unwrap();
    fs::write(stand.path("more/file"), "more").unwrap();
    backup("src more");
    fs::write(stand.path("src/old"), "of bee").unwrap();
    backup("src --host bee --tag best");
    stand
}

/// The ids of the snapshots that are listed, oldest first.
fn listed(stand: &Stand, line: &str) -> Vec<String> {
    let ran = stand.run(&format!("snapshots --json --store m0 {line}"));
    assert_eq!(ran.code, 0, "{line}: {}", ran.err);
    let events = ran.events_of("snapshot");
    events.iter().map(|event| event["short"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn latest_means_the_latest_snapshot_of_this_host() {
    let stand = with_hosts();
    let [first, second, bee] = &listed(&stand, "")[..] else { panic!("three snapshots") };
    let root = stand.path("").to_str().unwrap().to_owned();
    for (name, snapshot) in [
        ("latest", second),
        ("latest~1", first),
        ("latest --all-hosts", bee),
        ("latest~1 --all-hosts", second),
        ("latest --host bee", bee),
        ("latest --tag best --all-hosts", bee),
        ("latest --path more", second),
        (bee.as_str(), bee),
    ] {
        let (name, options) = name.split_once(' ').unwrap_or((name, ""));
        let line = format!("restore {name} --to to {options} --store m0");
        let restored = stand.run(&line);
        assert!(restored.ends(0, &line).contains(snapshot), "{line}");
        fs::remove_dir_all(stand.path("to")).unwrap();
        let line = format!("stats {name} {options} --store m0");
        assert!(stand.run(&line).ends(0, &line).contains(snapshot), "{line}");
    }
    let of = |options: &str| listed(&stand, options);
    assert_eq!(of("--host bee"), [bee.as_str()]);
    assert_eq!(of("--path src --tag best"), [bee.as_str()]);
    assert_eq!(of(&format!("--path {root}/more")), [second.as_str()]);
    let differs = stand.run("diff latest~1 latest --store m0");
    assert!(differs.out.contains("D /") && differs.out.contains("/src/old"), "{}", differs.out);
}

#[test]
fn a_choice_without_a_snapshot_is_named() {
    let stand = with_hosts();
    let bee = listed(&stand, "--host bee").remove(0);
    for (line, code, part) in [
        ("restore latest~2 --to to", 11, "only 2 snapshots match"),
        ("ls latest --host cat", 11, "the host 'cat' has no snapshot"),
        ("snapshots --tag none", 11, "no snapshot matches"),
        ("forget --keep-last 1 --host cat", 11, "the host 'cat' has no snapshot"),
        ("find old --tag none", 11, "no snapshot matches"),
        ("history src --tag none", 11, "no snapshot"),
        ("ls latest --host=", 2, "is empty"),
        ("ls latest --host bee --all-hosts", 2, "cannot be used with"),
        ("ls latest~x", 2, "does not name a snapshot"),
        ("undelete latest", 11, "no forgotten snapshot"),
    ] {
        assert_ends(&stand.run(&format!("{line} --store m0")), code, part);
    }
    let line = format!("ls {bee} --tag none --store m0");
    assert_ends(&stand.run(&line), 2, "does not match --host, --path and --tag");
    // A machine without a snapshot takes none of another one.
    let only = Stand::with_store();
    only.run("backup src --host bee --store m0").ends(0, "backup");
    let none = only.run("restore latest --in-place --store m0");
    assert_ends(&none, 11, "has no snapshot of this host");
    assert!(none.err.contains("has snapshots of bee: add --host NAME"), "{}", none.err);
    // Unless the config file says that this machine's backups have that name.
    fs::write(only.path("config"), "[backup.all]\npaths = ['/etc']\nhost = 'bee'\n").unwrap();
    assert_ends(&only.run("ls latest --store m0 --config config"), 0, "");
}

#[test]
fn latest_with_a_path_means_the_latest_snapshot_that_has_it() {
    let stand = with_hosts();
    let first = listed(&stand, "").remove(0);
    let old = stand.path("src/old");
    let old = old.to_str().unwrap();
    let shown = stand.run(&format!("cat latest:{old} --store m0"));
    assert_eq!((shown.code, shown.out.as_str()), (0, "first"));
    let note = format!("snapshot {first} is used: the later snapshot has no {old}");
    assert!(shown.err.contains(&note), "{}", shown.err);
    let of_all = stand.run(&format!("cat latest:{old} --all-hosts --store m0"));
    assert_eq!((of_all.out.as_str(), of_all.err.as_str()), ("of bee", ""));
    let missing = stand.run(&format!("cat latest:{old}er --store m0"));
    assert_ends(&missing, 11, "the snapshot has no entry at this path");
    let exact = stand.run(&format!("cat latest~0:{old} --store m0"));
    assert_ends(&exact, 11, "the snapshot has no entry at this path");
}

#[test]
fn rules_and_searches_keep_to_the_choice() {
    let stand = with_hosts();
    let found = stand.run("find old --tag best --store m0 --json");
    assert_eq!(found.events_of("found").len(), 1, "{}", found.out);
    assert_eq!(stand.run("find old --store m0 --json").events_of("found").len(), 2);
    let line = format!("history {} --host bee --store m0 --json", stand.path("src/old").display());
    assert_eq!(stand.run(&line).events_of("version").len(), 1);
    stand.run("forget latest --host bee --store m0 --allow-empty").ends(0, "forget");
    assert_eq!(listed(&stand, "").len(), 2);
    stand.run("undelete latest --host bee --store m0").ends(0, "undelete");
    assert_eq!(listed(&stand, "").len(), 3);
    stand.run("forget --keep-last 1 --path src --host bee --store m0").ends(0, "forget");
    assert_eq!(listed(&stand, "").len(), 3);
}

#[test]
fn snapshots_are_shortened_and_ordered() {
    let stand = with_hosts();
    let [first, second, bee] = &listed(&stand, "")[..] else { panic!("three snapshots") };
    fs::write(stand.path("src/large"), vec![7; 100_000]).unwrap();
    stand.run("backup src --store m0").ends(0, "backup");
    let all = listed(&stand, "");
    // Of this host and `src`, of this host and both paths, and of the other host.
    let latest = listed(&stand, "--latest 1");
    assert_eq!(latest, [second.clone(), bee.clone(), all[3].clone()]);
    assert_eq!(listed(&stand, "--latest 2").len(), 4);
    assert_eq!(listed(&stand, "--sort size")[0], all[3]);
    let by_host = listed(&stand, "--sort host");
    assert!([&by_host[0], &by_host[3]].contains(&bee), "{by_host:?}");
    assert!(listed(&stand, "").contains(first));
    let compact = stand.run("snapshots --compact --store m0").ends(0, "snapshots");
    assert!(compact.lines().next().unwrap().starts_with("snapshot  time"), "{compact}");
    assert!(compact.contains("best") && !compact.contains("/src"), "{compact}");
    assert_ends(&stand.run("snapshots --latest 0 --store m0"), 2, "--latest");
}

#[test]
fn entries_are_listed_to_a_depth_and_by_size() {
    let stand = Stand::with_store();
    fs::create_dir_all(stand.path("top/one/two")).unwrap();
    for (name, bytes) in [("top/a", 10), ("top/one/b", 3000), ("top/one/two/c", 200)] {
        fs::write(stand.path(name), vec![1; bytes]).unwrap();
    }
    stand.run("backup top --store m0").ends(0, "backup");
    let names = |options: &str| -> Vec<String> {
        let line = format!("ls latest:{{}}/top {options} --json --store m0");
        let events = stand.run(&line).events_of("entry");
        let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
        events.iter().map(|event| name(event["path"].as_str().unwrap())).collect()
    };
    assert_eq!(names(""), ["top", "a", "one", "b", "two", "c"]);
    assert_eq!(names("--depth 0"), ["top"]);
    assert_eq!(names("--depth 1"), ["top", "a", "one"]);
    assert_eq!(names("--depth 2 --sort size")[0], "b");
    let by_size = names("--sort size");
    let at = |name: &str| by_size.iter().position(|it| it == name).unwrap();
    assert!(at("b") < at("c") && at("c") < at("a"), "{by_size:?}");
    assert_eq!(names("--sort time").len(), 6);
}
