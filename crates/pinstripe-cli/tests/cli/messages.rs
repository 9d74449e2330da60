//! What verbs say about their work: --quiet, --verbose, --log-file, --time-stamps, the journal.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::Value;

use crate::stand::Stand;

#[test]
fn quiet_verbs_print_nothing_on_success() {
    let stand = Stand::with_store();
    for line in [
        "backup src",
        "backup src --skip-if-unchanged",
        "tag add latest word",
        "tag add latest word",
        "restore latest --to to",
        "restore latest --to to --overwrite",
        "check --read-data",
        "scrub",
        "repair",
        "forget --keep-last 1",
        "undelete latest",
        "forget --keep-last 1 --gc",
        "gc",
        "member add m9 --same-disk",
        "member rebalance",
        "member remove 1",
        "catalog rebuild",
        "upgrade",
    ] {
        let ran = stand.run(&format!("{line} --quiet --store m0"));
        assert_eq!(ran.code, 0, "{line}: {}", ran.err);
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""), "{line}");
    }
}

/// The names below `src` or `to` that a verb lists, with what it did.
fn listed(out: &str) -> Vec<(String, String)> {
    let lines = out.lines().filter_map(|line| line.split_once(' '));
    let named = lines.filter_map(|(act, path)| {
        let below = path.rsplit_once("/src/").map(|(_, name)| name);
        let name = below.or_else(|| path.trim_start().strip_prefix("to/"))?;
        Some((act.to_owned(), name.to_owned()))
    });
    named.collect()
}

#[track_caller]
fn assert_lists(stand: &Stand, line: &str, wanted: &[(&str, &str)]) {
    let ran = stand.run(&format!("{line} -v --store m0"));
    assert!(matches!(ran.code, 0 | 3), "{line}: {}", ran.err);
    let found = listed(&ran.out);
    for (act, name) in wanted {
        let entry = ((*act).to_owned(), (*name).to_owned());
        assert!(found.contains(&entry), "{line}: {act} {name} is not in {found:?}");
    }
}

#[test]
fn verbose_verbs_list_each_entry_with_what_was_done() {
    let stand = Stand::with_store();
    fs::create_dir(stand.path("src/below")).unwrap();
    fs::write(stand.path("src/first"), "1").unwrap();
    fs::write(stand.path("src/below/two"), "2").unwrap();
    std::os::unix::fs::symlink("first", stand.path("src/pointer")).unwrap();
    let new = [("new", "first"), ("new", "below"), ("new", "below/two"), ("new", "pointer")];
    assert_lists(&stand, "backup src", &new);
    fs::write(stand.path("src/first"), "changed").unwrap();
    let lists = [("changed", "first"), ("unchanged", "below/two"), ("unchanged", "pointer")];
    assert_lists(&stand, "backup src", &lists);
    let source = stand.path("src").canonicalize().unwrap();
    let restore = format!("restore latest:{} --to to", source.display());
    let lists = [("restored", "first"), ("restored", "below"), ("restored", "pointer")];
    assert_lists(&stand, &restore, &lists);
    fs::write(stand.path("src/first"), "damaged").unwrap();
    fs::write(stand.path("src/below/extra"), "extra").unwrap();
    let lists = [
        ("restored", "first"),
        ("unchanged", "below/two"),
        ("unchanged", "pointer"),
        ("removed", "below/extra"),
    ];
    assert_lists(&stand, "restore latest --in-place --delete --yes", &lists);
    let events = stand.run("backup src -v --json --store m0").events_of("entry_done");
    let is_two = |event: &&Value| event["path"].as_str().unwrap().ends_with("/src/below/two");
    assert_eq!(events.iter().find(is_two).unwrap()["act"], "unchanged");
    // Without --verbose there is no list.
    let plain = stand.run("backup src --store m0");
    assert_eq!(listed(&plain.out), [], "{}", plain.out);
}

#[test]
fn a_log_file_gets_every_message_with_its_time() {
    let stand = Stand::with_store();
    let log = || fs::read_to_string(stand.path("logs/log")).unwrap();
    let line = "backup src src --quiet --verbose --log-file logs/log --store m0";
    stand.run(line).ends(0, line);
    for text in ["note: the path", "snapshot ", "new data: ", "new       /"] {
        assert!(log().contains(text), "{text}: {}", log());
    }
    let mode = fs::metadata(stand.path("logs/log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = log();
    let failed = stand.run("restore 0123abcd --to to --log-file logs/log --store m0");
    assert_eq!(failed.code, 11);
    assert!(log().starts_with(&before), "lines are appended");
    assert!(log().contains("error: there is no snapshot"), "{}", log());
    let first = before.lines().next().unwrap();
    let digits = first.chars().take(19).map(|c| if c.is_ascii_digit() { '0' } else { c });
    assert_eq!(digits.collect::<String>(), "0000-00-00 00:00:00", "{first}");
    let refused = stand.run("snapshots --log-file . --store m0");
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("--log-file"), "{}", refused.err);
}

#[test]
fn messages_have_the_time_or_the_priority_of_the_journal() {
    let stand = Stand::with_store();
    let ran = stand.run("restore 0123abcd --to to --time-stamps --store m0");
    let digits: String =
        ran.err.chars().take(19).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(digits, "0000-00-00 00:00:00", "{}", ran.err);
    let errors = File::create(stand.path("errors")).unwrap();
    let stat = errors.metadata().unwrap();
    let mut command = stand.command("backup src src missing --time-stamps --store m0");
    let command = command.env("JOURNAL_STREAM", format!("{}:{}", stat.dev(), stat.ino()));
    assert_eq!(command.stderr(errors).status().unwrap().code(), Some(3));
    let errors = fs::read_to_string(stand.path("errors")).unwrap();
    for (priority, text) in [("<6>", "note: the path"), ("<3>", "missing"), ("<3>", "what to do")] {
        let is_it = |line: &&str| line.starts_with(priority) && line.contains(text);
        assert!(errors.lines().any(|line| is_it(&line)), "{priority} {text}: {errors}");
    }
    // Another stream is not the journal.
    let other = stand.command("backup src src --store m0").env("JOURNAL_STREAM", "1:1").output();
    assert!(String::from_utf8(other.unwrap().stderr).unwrap().starts_with("pinstripe: note"));
}
