//! Backups of every day: the config file, lists, a dry run, what is refused.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::stand::{Stand, assert_same_tree, noise, ran};

const CONFIG: &str = "default-store = 'main'
[store.main]
member = '~/../m0'
[backup.src]
paths = ['~/../src']
exclude = ['*.tmp']
tags = ['daily']
host = 'laptop'
";

fn with_config(text: &str) -> Stand {
    let stand = Stand::with_store();
    fs::create_dir_all(stand.path("home/.config/pinstripe")).unwrap();
    fs::write(stand.path("home/.config/pinstripe/config.toml"), text).unwrap();
    stand
}

#[test]
fn a_config_file_names_the_store_and_the_backup() {
    let stand = with_config(CONFIG);
    fs::write(stand.path("src/x.tmp"), "x").unwrap();
    stand.tell("config check");
    stand.tell("config show");
    let made = stand.run("backup --named src --tag more --json");
    assert_eq!(made.code, 0, "{}", made.err);
    let snapshot = &made.events_of("snapshot")[0];
    assert_eq!(snapshot["host"], "laptop");
    assert_eq!(snapshot["tags"], serde_json::json!(["more", "daily"]));
    assert_eq!(stand.run("restore latest:{}/src --to out -q").code, 0);
    fs::remove_file(stand.path("src/x.tmp")).unwrap();
    assert!(!stand.path("out/x.tmp").exists());
    assert_eq!(stand.run("snapshots --store main --json").events_of("snapshot").len(), 1);
    stand.tell("snapshots --store mian");
    stand.tell("backup --named scr");
    stand.tell("snapshots --config nowhere.toml");
    fs::write(stand.path("bad.toml"), "[backup.x]\npaths = ['/a']\nexlude = []\n").unwrap();
    stand.tell("config check --config bad.toml");
    stand.tell("snapshots --config bad.toml");
    // It may name a file of knobs, which would set something: nothing is made by half of what was
    // meant.
    let ran = stand.run("init --encryption none --member n0 --config bad.toml -q");
    assert!(ran.code == 2 && ran.err.contains("bad.toml:3"), "{}", ran.err);
    assert!(!stand.path("n0").exists());
    for line in ["--version", "init --help", "completions bash --config bad.toml"] {
        assert_eq!(stand.run(line).code, 0, "{line}");
    }
    fs::remove_file(stand.path("home/.config/pinstripe/config.toml")).unwrap();
    stand.tell("config check");
    stand.assert("config");
}

#[test]
fn a_dry_run_tells_what_a_backup_then_does() {
    let stand = Stand::with_store();
    stand.tell("backup src --dry-run --store m0");
    assert!(!stand.path("m0/snapshots").read_dir().is_ok_and(|mut it| it.next().is_some()));
    stand.tell("backup src --store m0 -q --host h --tag a --tag b");
    let told = stand.run("backup src --dry-run --store m0 --host h --json");
    assert_eq!(told.summary()["would_read_files"], 0);
    assert_eq!(told.summary()["unchanged_files"], 4);
    fs::write(stand.path("src/hello"), "other").unwrap();
    let told = stand.run("backup src --dry-run --store m0 --host h --json");
    assert_eq!(told.events_of("would_read")[0]["change"], "changed");
    stand.tell("backup src --dry-run");
    stand.tell("backup src --store m0 --tag a,b");
    stand.assert("dry-run");
}

#[test]
fn lists_name_what_to_take_and_what_to_leave() {
    let stand = Stand::with_store();
    let src = stand.path("src").canonicalize().unwrap();
    fs::write(stand.path("list"), format!("{0}/hello\n{0}/sub\n{0}/gone\n", src.display()))
        .unwrap();
    fs::write(stand.path("leave"), "# big\nnoise\n").unwrap();
    let ran = stand.run("backup --files-from list --exclude-file leave --store m0 --json");
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert_eq!(ran.events_of("problem").len(), 1);
    assert_eq!(ran.summary()["new_files"], 3);
    fs::write(stand.path("zeros"), format!("{0}/sub\0", src.display())).unwrap();
    let ran = stand.run("backup --files-from zeros --from0 --store m0 -q");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(stand.run("restore latest:{}/src/sub --to out --store m0 -q").code, 0);
    let content = |dir: &str| fs::read(stand.path(dir).join("noise")).unwrap();
    assert!(content("src/sub") == content("out"));
    stand.tell("backup --files-from zeros --store m0");
    stand.tell("backup --files-from missing --store m0");
    stand.tell("backup src --from0 --store m0");
    stand.assert("lists");
}

#[test]
fn standard_input_becomes_a_file() {
    let stand = Stand::with_store();
    let dump = noise(5, 6_000_000);
    let mut child = stand
        .command("backup --stdin dump.sql --store m0 --tag db --json")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&dump).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success());
    let told = String::from_utf8(ended.stdout).unwrap();
    assert!(told.contains("\"new_files\":1,") && told.contains("\"new_bytes\":6000000,"), "{told}");
    let listed = stand.run("ls latest --store m0 --json").events_of("entry");
    assert_eq!(
        listed.iter().map(|it| it["path"].as_str().unwrap()).collect::<Vec<_>>(),
        ["/dump.sql"]
    );
    assert_eq!(stand.run("restore latest --to out --store m0 -q").code, 0);
    assert!(fs::read(stand.path("out/dump.sql")).unwrap() == dump);
    stand.tell("backup --stdin a/b --store m0");
    stand.tell("backup src --stdin x --store m0");
    stand.assert("stdin");
}

#[test]
fn the_output_of_a_command_becomes_a_file_if_the_command_succeeds() {
    let stand = Stand::with_store();
    let snapshots = || stand.run("snapshots --json --store m0").events_of("snapshot").len();
    let backup = |command: &[&str]| {
        let line = "backup --store m0 --stdin out.txt --stdin-from-command --";
        ran(stand.command(line).args(command))
    };
    backup(&["sh", "-c", "echo one; echo two"]).ends(0, "a command");
    let cat = stand.run("cat latest:/out.txt --store m0");
    assert_eq!(cat.ends(0, "cat"), "one\ntwo\n");
    for (command, code, text) in [
        (&["sh", "-c", "echo lost; exit 3"][..], 1, "'sh' failed: exit status: 3"),
        (&["sh", "-c", "echo lost; kill -9 $$"], 1, "signal: 9"),
        (&["no-such-program"], 11, "cannot start the command"),
        (&[], 2, "needs a command"),
    ] {
        let failed = backup(command);
        assert_eq!(failed.code, code, "{command:?}: {}", failed.err);
        assert!(failed.err.contains(text), "{command:?}: {}", failed.err);
        assert_eq!(snapshots(), 1, "{command:?}");
    }
    let alone = stand.run("backup src --stdin-from-command --store m0");
    assert_eq!(alone.code, 2, "{}", alone.err);
    // A full store ends the command, which would never end by itself.
    let line = "backup --store m0 --stdin x --fault op=append,error=ENOSPC --stdin-from-command";
    let ended = stand.run(&format!("{line} -- cat /dev/urandom"));
    assert_ne!(ended.code, 0, "{}", ended.err);
    stand.run("gc --store m0").ends(0, "no session is left");
}

/// A source that is read no faster than the first member takes it: most of it still lies ahead when
/// the first bytes are written.
fn slow_source() -> Stand {
    let stand = Stand::with_store();
    for n in 0..60 {
        fs::write(stand.path(&format!("src/{n}")), noise(n, 900_000)).unwrap();
    }
    stand
}

/// The arguments of a slow backup of it; with so little memory, little is read ahead.
const SLOW: &str = "backup src --store m0 --memory 64M --fault op=append,member=0,rate=4M";

/// Starts it and waits until it is at work.
fn slow_backup(stand: &Stand) -> Child {
    let mut command = stand.command(SLOW);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !stand.is_being_filled("m0") {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it began to write");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

#[test]
fn a_signal_ends_a_backup_in_order_and_the_next_one_goes_on() {
    let stand = slow_source();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let child = slow_backup(&stand);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(code), "{said}");
        assert!(said.contains("run the same command again"), "{said}");
        assert_eq!(fs::read_dir(stand.path("m0/tmp")).unwrap().count(), 0);
        assert_eq!(stand.run("snapshots --store m0 --json").events_of("snapshot").len(), 0);
        let again = stand.run("backup src --store m0 --json");
        assert_eq!(again.code, 0, "{}", again.err);
        assert!(
            again.events_of("note")[0]["text"]
                .as_str()
                .unwrap()
                .contains("continues an interrupted backup")
        );
        assert_eq!(stand.run("restore latest:{}/src --to out --store m0 -q").code, 0);
        assert_same_tree(&stand.path("src"), &stand.path("out"));
        for made in ["m0", "m1", "m2", "m3", "home", "out"] {
            fs::remove_dir_all(stand.path(made)).unwrap();
        }
        stand.make_store();
    }
}

#[test]
fn a_second_signal_ends_at_once_with_the_same_code() {
    let stand = slow_source();
    let mut child = slow_backup(&stand);
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    // What was read is still to be written: the end in order is not reached before the second one.
    std::thread::sleep(Duration::from_millis(20));
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(!told.contains("run the same command again"), "it ended in order: {told}");
    assert!(fs::read_dir(stand.path("m0/tmp")).unwrap().count() > 0, "nothing was under way");
    let ran = stand.run("backup src --store m0 -q");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(fs::read_dir(stand.path("m0/tmp")).unwrap().count(), 0);
}

#[test]
fn the_rules_of_the_config_file_are_those_of_forget() {
    let stand = with_config(&format!("{CONFIG}[retention]\nkeep-last = 1\nkeep-tag = ['keep']\n"));
    for tag in ["keep", "a", "b"] {
        assert_eq!(stand.run(&format!("backup --named src --tag {tag} -q")).code, 0);
    }
    let stays = |line: &str| {
        let ran = stand.run(line);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let verdicts = ran.events_of("verdict").into_iter();
        verdicts.map(|verdict| verdict["why"].clone()).collect::<Vec<_>>()
    };
    let (none, last, tag) = (serde_json::json!([]), "last", "tag keep");
    assert_eq!(stays("forget --dry-run --json"), [[tag].into(), none.clone(), [last].into()]);
    // Rules on the command line stand alone.
    assert_eq!(
        stays("forget --keep-last 2 --dry-run --json"),
        [none.clone(), [last].into(), [last].into()]
    );
    let told = stand.run("forget");
    assert!(told.err.contains("the rules under [retention]"), "{}", told.err);
    assert!(told.out.contains("forgot 1 snapshot, kept 2"), "{}", told.out);
    assert_eq!(stand.run("snapshots --json").events_of("snapshot").len(), 2);
    assert_eq!(stand.run("config check").code, 0);
}

#[test]
fn a_store_has_its_own_rules_however_it_is_named() {
    let rules = "[store.main.retention]\nkeep-last = 2\n[store.other]\nmember = '~/../o0'\n\
                 [retention]\nkeep-last = 1\ngroup-by = 'none'\n";
    let stand = with_config(&format!("{CONFIG}{rules}"));
    assert_eq!(stand.run("init --encryption none --member o0 -q").code, 0);
    for host in ["a", "a", "a", "b"] {
        for store in ["main", "other"] {
            let line = format!("backup src --host {host} --store {store} -q");
            assert_eq!(stand.run(&line).code, 0);
        }
    }
    let kept = |line: &str| {
        let ran = stand.run(&format!("{line} --dry-run --json"));
        assert_eq!(ran.code, 0, "{}", ran.err);
        (ran.summary()["kept"].as_u64().unwrap(), ran.err)
    };
    // The groups are the general ones, as the store has none of its own.
    for line in ["forget", "forget --store main", "forget --store m1", "forget --store m0"] {
        let (kept, said) = kept(line);
        assert_eq!(kept, 2, "{line}");
        assert!(said.contains("the rules of this store in the config file"), "{line}: {said}");
    }
    for line in ["forget --store other", "forget --store o0"] {
        let (kept, said) = kept(line);
        assert_eq!(kept, 1, "{line}");
        assert!(said.contains("the rules under [retention]"), "{line}: {said}");
    }
    // Options take precedence, each for itself.
    assert_eq!(kept("forget --keep-last 3").0, 3);
    assert_eq!(kept("forget --group-by host").0, 3);
    assert_eq!(kept("forget --keep-last 3 --group-by host").0, 4);
    assert_eq!(stand.run("config check").code, 0);
    let shown = stand.run("config show --json").events_of("config").remove(0);
    assert_eq!(shown["store"]["main"]["retention"]["keep-last"], 2);
}
