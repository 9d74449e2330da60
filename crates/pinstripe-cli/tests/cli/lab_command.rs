//! `lab run command`, which times commands, and `--knob-command` of every case.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use serde_json::Value;

use crate::stand::{Ran, Stand, assert_ends, interrupt, ran};

/// Without waiting for a quiet machine; a disturbed run counts, so that it is not repeated.
const AT_ONCE: &str = "--warm-up 0 --patience 0 --accept-noise --out r.json";

/// Runs `lab run command` with words that contain blanks.
fn command(stand: &Stand, words: &[&str]) -> Ran {
    ran(stand.command(&format!("lab run command {AT_ONCE}")).args(words))
}

fn log(stand: &Stand) -> String {
    fs::read_to_string(stand.path("log")).unwrap_or_default()
}

#[test]
fn commands_are_compared_saved_shown_and_repeated() {
    let stand = Stand::new();
    let words = ["--runs", "2", "true", "sh -c 'exit 0' {n}", "--parameter-scan", "n", "-1", "0"];
    let done = command(&stand, &words);
    assert_eq!((done.code, done.err.as_str()), (0, ""));
    for part in ["lab command\n", "Commands\n", "memory, MB", "sh -c 'exit 0' -1", "to repeat"] {
        let shown = done.out.clone() + &stand.run("lab show r.json").out;
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let saved: Value =
        serde_json::from_str(&fs::read_to_string(stand.path("r.json")).unwrap()).unwrap();
    let names: Vec<&Value> =
        saved["variants"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["true", "sh -c 'exit 0' -1", "sh -c 'exit 0' 0"]);
    assert_eq!(saved["verdicts"][1]["baseline"], "true");
    for (form, part) in
        [("csv", ",exit_code,"), ("markdown", "| variant"), ("table-csv", "user, s")]
    {
        let shown = stand.run(&format!("lab show r.json --form {form}")).out;
        assert!(shown.contains(part), "{form}: {shown}");
    }
    // Each variant alone, by words that a script passes on.
    for variant in stand.run("lab show r.json --json").events_of("lab_variant") {
        let again: Vec<&str> =
            variant["command"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        let dry = ran(stand.command("").args(&again[1..]).arg("--dry-run"));
        assert_eq!((dry.code, dry.err.as_str()), (0, ""), "{again:?}");
        let name = variant["variant"].as_str().unwrap();
        assert_eq!(dry.out.matches("would run ").count(), 2, "{}", dry.out);
        assert!(dry.out.contains(&format!("would run {name} (")), "{}", dry.out);
    }
}

#[test]
fn a_knob_command_is_run_before_and_after_each_turn_in_order() {
    let stand = Stand::new();
    let knob = ["--knob-command", "printf 'set ' >> log", "printf 'back ' >> log"];
    let words = [&["--runs", "2", "printf 'run ' >> log"][..], &knob].concat();
    let done = command(&stand, &words);
    assert_eq!((done.code, done.err.as_str()), (0, ""));
    assert_eq!(log(&stand), "run set run back set run back run ");
    let again = stand.run("lab show r.json").out;
    let knob = "--knob-command 'printf '\\''set '\\'' >> log' 'printf '\\''back '\\'' >> log'";
    assert!(again.contains(knob), "{again}");
    // Any other case takes it, too.
    let line = "lab run fileio --total-size 64K --files 2 --run-time 0.01 --modes rndrd --runs 1";
    let mut line = stand.command(&format!("{line} {AT_ONCE}"));
    fs::remove_file(stand.path("log")).unwrap();
    let done = ran(line.args(["--knob-command", "echo set >> log", "echo back >> log"]));
    assert_eq!((done.code, done.err.as_str(), &*log(&stand)), (0, "", "set\nback\n"));
    assert!(done.out.contains("rndrd, echo set >> log"), "{}", done.out);
}

#[test]
fn what_fails_ends_with_its_message_and_exit_code_1_after_all_is_put_back() {
    let stand = Stand::new();
    let failing = "test ! -e log || { echo broken >&2; exit 7; }";
    let knob = ["--knob-command", "printf 'set ' >> log", "printf 'back ' >> log"];
    let steps = ["--conclude", "printf 'conclude ' >> log", "--cleanup", "printf 'clean ' >> log"];
    let done =
        command(&stand, &[&["--runs", "2", "--setup", "rm -f log"][..], &steps, &knob].concat());
    assert_ends(&done, 2, "COMMAND");
    let words = [&["--runs", "2", failing][..], &knob].concat();
    let done = command(&stand, &words);
    assert_ends(&done, 1, "failed with exit code 7: broken");
    assert!(done.err.contains("--ignore-failure"), "{}", done.err);
    assert_eq!(log(&stand), "set back ");
    fs::remove_file(stand.path("log")).unwrap();
    let words = [&["--runs", "2", "exit 7", "--ignore-failure"][..], &steps].concat();
    assert_eq!(command(&stand, &words).code, 0);
    assert_eq!(log(&stand), "conclude conclude clean ");
    for (before, after, part) in [
        ("exit 3", "true", "BEFORE of --knob-command, 'exit 3', failed with exit code 3"),
        ("true", "exit 4", "AFTER of --knob-command, 'exit 4', failed with exit code 4"),
    ] {
        let done = command(&stand, &["true", "--runs", "1", "--knob-command", before, after]);
        assert_ends(&done, 1, part);
        assert!(done.err.contains("what to do: "), "{}", done.err);
    }
    let done = command(&stand, &["sleep 1000", "--runs", "1", "--timeout", "0.05"]);
    assert_ends(&done, 1, "--timeout");
    let done = command(&stand, &["/no/such/program", "--runs", "1", "--shell", "none"]);
    assert_ends(&done, 11, "/no/such/program");
    let done = command(&stand, &["echo 1", "echo 2", "--runs", "1", "--same-output"]);
    assert_ends(&done, 1, "the output of 'echo 2' differs from that of 'echo 1'");
}

#[test]
fn an_interrupt_kills_the_command_and_puts_everything_back() {
    let stand = Stand::new();
    let mut line = stand.command(&format!("lab run command --runs 2 {AT_ONCE}"));
    line.args([
        "test ! -e log || { echo run >> log; sleep 1000; }",
        "--conclude",
        "test ! -e log || echo conclude >> log",
    ]);
    line.args(["--cleanup", "echo clean >> log"]);
    line.args(["--knob-command", "echo set >> log", "echo back >> log"]);
    let mut child = line.stdout(std::process::Stdio::null()).spawn().unwrap();
    while log(&stand) != "set\nrun\n" {
        assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    interrupt(&child);
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(130), None));
    assert_eq!(log(&stand), "set\nrun\nback\nconclude\nclean\n");
}

#[test]
fn commands_and_parameters_that_make_no_sense_are_refused() {
    let stand = Stand::new();
    for (words, part) in [
        (&[][..], "COMMAND"),
        (&[""], "is empty"),
        (&["true", "true"], "the same name 'true'"),
        (&["true", "--reference", "false"], "the reference 'false' is not one of the commands"),
        (&["true", "--parameter-list", "n", "1,2"], "no command uses the parameter 'n'"),
        (&["x {n}", "--parameter-list", "n", "1,1"], "the value '1' twice"),
        (&["x {n}", "--parameter-list", "n n", "1"], "'n n' is not a valid value"),
        (&["x {n}", "--parameter-list", "n"], "--parameter-list"),
        (&["x {n}", "--parameter-scan", "n", "1", "2", "--parameter-step-size", "0"], "the step"),
        (&["x {n}", "--parameter-scan", "n", "1", "1000000000"], "the limit is 256"),
        (&["x {n}", "--parameter-scan", "n", "1", "b"], "'b' is not a number"),
        (&["true", "--same-output", "--output", "null"], "--same-output"),
        (&["true", "--knob-command", "true"], "--knob-command"),
        (&["true", "--knob-command", "true", ""], "is empty"),
        (&["true", "--shell", "none", "a 'b"], "not closed"),
        (&["true", "--agents", "a:1", "--token-file", "t", "--knob-command", "a", "b"], "--agents"),
    ] {
        let done = command(&stand, words);
        assert_ends(&done, 2, part);
    }
    assert!(!stand.path("r.json").exists());
    let twice = ["true", "--knob-command", "true", "true", "--knob-command", "true", "true"];
    assert_ends(&command(&stand, &twice), 2, "the same name");
}
