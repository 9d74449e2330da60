//! From backup to repair over four members, as a user would go.

use std::fs;

use crate::stand::{Stand, assert_same_tree, odd_name};

#[test]
fn a_member_is_lost_and_everything_comes_back() {
    let stand = Stand::with_store();
    stand.tell("members --store m0");
    stand.tell("snapshots --store m0");
    stand.tell("backup src --store m1");
    stand.act("echo more >> src/hello; echo new > src/new", || {
        fs::write(stand.path("src/hello"), "hello\nmore\n").unwrap();
        fs::write(stand.path("src/new"), "new\n").unwrap();
    });
    stand.tell("backup src --store m2 --exclude *.tmp");
    stand.tell("ls latest {}/src --store m3");
    stand.tell("check --read-data --store m0");
    stand.act("rm -r m1", || fs::remove_dir_all(stand.path("m1")).unwrap());
    stand.tell("members --store m0");
    stand.tell("ls latest {}/src/hello --store m0");
    stand.tell("check --store m0");
    stand.tell("restore latest:{}/src --to back --verify --store m0");
    assert_same_tree(&stand.path("src"), &stand.path("back"));
    stand.tell("repair --store m0");
    stand.tell("member replace 1 --to m1-new --same-disk --store m0");
    stand.tell("check --read-data --store m1-new");
    stand.tell("members --store m1-new");
    stand.assert("lost-member");
}

#[test]
fn a_restore_counts_what_it_rebuilt() {
    let stand = Stand::new();
    stand.make_tree();
    let init = "init --encryption none --member m0 --member m1 --member m2 --member m3 --member m4 --parity 2 \
                --strip-size 4K --same-disk -q";
    assert_eq!(stand.run(init).code, 0);
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    fs::remove_dir_all(stand.path("m1")).unwrap();
    fs::remove_dir_all(stand.path("m4")).unwrap();
    let restored = stand.run("restore latest:{}/src --to out --store m0");
    assert_eq!(restored.code, 0, "{}", restored.err);
    assert!(restored.out.contains("strips from parity\n"), "{}", restored.out);
    assert_same_tree(&stand.path("src"), &stand.path("out"));
    let restored = stand.run("restore latest:{}/src --to again --store m2 --json");
    assert!(restored.summary()["rebuilt_strips"].as_u64().unwrap() > 0);
    assert_eq!(restored.summary()["warnings"], 2);
}

#[test]
fn without_a_path_everything_returns_under_its_full_path() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src/sub src/hello --store m0 -q").code, 0);
    assert_eq!(stand.run("restore latest --to all --store m0 -q").code, 0);
    let root = stand.path("src").canonicalize().unwrap();
    let below = stand.path("all").join(root.strip_prefix("/").unwrap());
    assert_same_tree(&stand.path("src/sub"), &below.join("sub"));
    assert_eq!(fs::read(below.join("hello")).unwrap(), b"hello\n");
    assert!(!below.join("link").exists(), "what was not backed up does not return");
}

#[test]
fn what_is_in_the_way_is_kept_unless_told_otherwise() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    fs::create_dir(stand.path("to")).unwrap();
    fs::write(stand.path("to/hello"), "mine").unwrap();
    stand.tell("restore latest:{}/src --to to --store m0");
    assert_eq!(fs::read(stand.path("to/hello")).unwrap(), b"mine");
    stand.tell("restore latest:{}/src --to to --store m0 --overwrite");
    assert_same_tree(&stand.path("src"), &stand.path("to"));
    stand.assert("overwrite");
}

#[test]
fn snapshots_are_found_by_the_beginning_of_their_id() {
    let stand = Stand::with_store();
    assert_eq!(stand.tell("ls latest --store m0").code, 11);
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    let id = stand.run("snapshots --store m0 --json").events_of("snapshot")[0]["snapshot"].clone();
    let id = id.as_str().unwrap();
    for name in [&id[..4], &id[..8], id] {
        assert_eq!(stand.run(&format!("ls {name} --store m0")).code, 0, "{name}");
    }
    let short = stand.run(&format!("ls {} --store m0", &id[..2]));
    assert_eq!(short.code, 2, "too short to be sure");
    assert!(short.err.contains("too short"), "{}", short.err);
    assert_eq!(stand.tell("ls xyz --store m0").code, 11);
    assert_eq!(stand.tell("ls latest /no/such/path --store m0").code, 11);
    assert_eq!(stand.tell("restore latest:/no/such/path --to out --store m0").code, 11);
    assert_eq!(stand.tell("backup no/such/path --store m0").code, 11);
    assert_eq!(stand.tell("ls latest --store src").code, 11);
    assert_eq!(stand.tell("ls latest --store nowhere").code, 11);
    assert_eq!(stand.tell("backup m0/packs --store m1").code, 14);
    stand.assert("not-found");
}

#[test]
fn the_table_of_snapshots_lines_up() {
    let stand = Stand::with_store();
    for _ in 0..2 {
        assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    }
    let table = stand.run("snapshots --store m0");
    let lines: Vec<_> = table.out.lines().collect();
    assert_eq!(lines.len(), 3, "{}", table.out);
    for name in ["time", "host", "paths"] {
        let column = lines[0].find(name).unwrap();
        for line in &lines {
            assert_eq!(&line[column - 2..column], "  ", "{}", table.out);
            assert_ne!(&line[column..=column], " ", "{}", table.out);
        }
    }
    assert!(lines[1].ends_with("/src"), "{}", table.out);
}

#[test]
fn names_of_any_bytes_are_shown_safely_and_come_back() {
    let stand = Stand::with_store();
    fs::write(stand.path("src").join(odd_name()), "odd\n").unwrap();
    std::os::unix::fs::symlink(odd_name(), stand.path("src/\x1b[31mred")).unwrap();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    let listed = stand.run("ls latest {}/src --store m0").out;
    assert!(listed.contains(r"/src/odd \xff\n"), "{listed}");
    assert!(listed.contains(r"/src/\x1b[31mred -> odd \xff\n"), "{listed}");
    let events = stand.run("ls latest {}/src --store m0 --json").events_of("entry");
    let ending = |key: &str, end: &str| {
        let ends =
            |event: &&serde_json::Value| event[key].as_str().is_some_and(|it| it.ends_with(end));
        events.iter().filter(ends).count()
    };
    assert_eq!(ending("path", "odd \u{fffd}\n"), 1);
    assert_eq!(ending("path_bytes", "6f646420ff0a"), 1);
    assert_eq!(ending("target_bytes", "6f646420ff0a"), 1);
    assert_eq!(ending("path", "/src/\u{1b}[31mred"), 1);
    assert_eq!(stand.run("restore latest:{}/src --to out --store m0 -q").code, 0);
    assert_same_tree(&stand.path("src"), &stand.path("out"));
}

#[test]
fn quiet_prints_what_was_asked_for_and_nothing_else() {
    let stand = Stand::with_store();
    let silent = |line: &str| {
        let ran = stand.run(line);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""), "{line}");
    };
    silent("backup src --store m0 --quiet");
    silent("check --store m0 --quiet");
    silent("restore latest --to out --store m0 --quiet");
    silent("repair --store m0 --quiet");
    assert_eq!(stand.run("snapshots --store m0 --quiet").out.lines().count(), 2);
    assert_eq!(stand.run("members --store m0 --quiet").out.lines().count(), 7);
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    for line in ["ls latest --store m0", "ls latest --store m0 --json", "man"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = stand.command(line).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{line}");
        assert_eq!(output.stderr, b"", "{line}");
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = stand.command("ls latest --store m0").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output.stderr.starts_with(b"pinstripe: error: cannot write to standard output: No space")
    );
}

/// An absent member was counted as a loss of files: exit code 3, and a mark on the snapshot.
#[test]
fn without_a_member_a_backup_is_degraded_and_nothing_is_lost() {
    let stand = Stand::with_store();
    fs::rename(stand.path("m3"), stand.path("aside")).unwrap();
    let degraded = stand.run("backup src --store m0");
    assert_eq!(degraded.code, 4, "{}", degraded.err);
    let advice = "pinstripe member replace 3 --to DIR";
    assert!(degraded.err.contains(advice), "{}", degraded.err);
    assert!(!degraded.err.contains("pinstripe init"), "{}", degraded.err);
    let told = stand.run("backup src --store m0 --json");
    let summary = told.summary();
    assert_eq!((told.code, &summary["degraded_members"]), (4, &1.into()), "{}", told.out);
    assert_eq!(summary["losses"], 0);
    let problem = &told.events_of("problem")[0];
    assert_eq!(problem["severity"], "degraded");
    assert!(problem["place"].as_str().unwrap().ends_with("/m3"), "{problem}");
    let listed = stand.run("snapshots --store m0");
    assert!(!listed.out.contains("losses"), "{}", listed.out);
    // A real loss beside it wins.
    let lossy = stand.run("backup src/hello src/gone --store m0");
    assert_eq!(lossy.code, 3, "{}", lossy.err);
    // With the verb that was there before, too.
    let replaced = stand.run("repair --member 3 --to m4 --same-disk --store m0");
    assert_eq!(replaced.code, 0, "{}", replaced.err);
    assert_eq!(stand.run("check --read-data --store m0").code, 0);
}
