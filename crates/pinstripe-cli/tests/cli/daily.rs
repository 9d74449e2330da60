//! Backups of every day: the config file, lists, a dry run, what is refused.

use std::fs;
use std::io::Write;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::stand::{Stand, assert_same_tree, noise};

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
    assert_eq!(
        stand.run("init --encryption none --member n0 --config bad.toml -q").code,
        0,
        "init reads no config"
    );
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
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&dump).unwrap();
    assert!(child.wait().unwrap().success());
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

/// Starts a slow backup and waits until it is at work.
fn slow_backup(stand: &Stand) -> Child {
    let line = "backup src --store m0 --fault op=any,delay=20ms";
    let mut command = stand.command(line);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = || stand.path("m0/tmp").read_dir().is_ok_and(|mut it| it.next().is_some());
    while !begun() {
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn a_signal_ends_a_backup_in_order_and_the_next_one_goes_on() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let stand = Stand::with_store();
        for n in 0..40 {
            fs::write(stand.path(&format!("src/{n}")), noise(n, 900_000)).unwrap();
        }
        let child = slow_backup(&stand);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        if ended.status.code() == Some(0) {
            continue; // The signal came too late.
        }
        assert_eq!(ended.status.code(), Some(code), "{said}");
        assert!(said.contains("run the same command again"), "{said}");
        assert_eq!(fs::read_dir(stand.path("m0/tmp")).unwrap().count(), 0);
        assert_eq!(stand.run("snapshots --store m0 --json").events_of("snapshot").len(), 0);
        let again = stand.run("backup src --store m0 --json");
        assert_eq!(again.code, 0, "{}", again.err);
        assert!(again.events_of("note")[0]["text"].as_str().unwrap().contains("going on"));
        assert_eq!(stand.run("restore latest:{}/src --to out --store m0 -q").code, 0);
        assert_same_tree(&stand.path("src"), &stand.path("out"));
    }
}

#[test]
fn a_second_signal_ends_at_once_with_the_same_code() {
    let stand = Stand::with_store();
    for n in 0..40 {
        fs::write(stand.path(&format!("src/{n}")), noise(n, 900_000)).unwrap();
    }
    let mut child = slow_backup(&stand);
    for _ in 0..2 {
        // The child may be gone already: that is what is asked for.
        let _ = kill_process(Pid::from_child(&child), Signal::INT);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!([Some(130), Some(0)].contains(&child.wait().unwrap().code()));
    let ran = stand.run("backup src --store m0 -q");
    assert_eq!(ran.code, 0, "{}", ran.err);
}
