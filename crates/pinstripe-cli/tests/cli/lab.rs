//! Experiments: cases run, shown, kept; what is refused.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use serde_json::Value;

use crate::stand::Stand;

/// Small, and without waiting for a quiet machine.
const QUICK: &str =
    "--total-size 256K --files 2 --block-size 4K --run-time 0.02 --warm-up 0 --patience 0";

#[test]
fn a_case_is_run_saved_and_shown_again() {
    let stand = Stand::new();
    let line = format!("lab run fileio {QUICK} --modes rndrd,rndwr --runs 2 --seed 7 --out r.json");
    let ran = stand.run(&line);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    for part in ["rndrd", "rndwr", "block-size 4K", "seed 7", "saved in r.json", "Measured on"] {
        assert!(ran.out.contains(part), "{part}\n{}", ran.out);
    }
    let saved: Value =
        serde_json::from_str(&fs::read_to_string(stand.path("r.json")).unwrap()).unwrap();
    assert_eq!(saved["is_complete"], true);
    assert_eq!(saved["command"][1], "lab");
    assert_eq!(saved["variants"].as_array().unwrap().len(), 2);
    // The same again, in every form.
    let shown = stand.run("lab show r.json");
    assert!(ran.out.starts_with(&shown.out), "{}", shown.out);
    assert!(stand.run("lab show r.json --form markdown").out.contains("| variant"));
    assert!(stand.run("lab show r.json --form csv").out.starts_with("case,variant,"));
    let json: Value = serde_json::from_str(&stand.run("lab show r.json --form json").out).unwrap();
    assert_eq!(json, saved);
}

#[test]
fn without_a_place_results_are_kept_in_the_user_s_state() {
    let stand = Stand::new();
    for _ in 0..2 {
        let ran = stand.run(&format!("lab run fileio {QUICK} --modes rndrd --runs 1"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    }
    let kept = stand.path("home/.local/state/pinstripe/lab");
    assert_eq!(fs::read_dir(kept.join("results")).unwrap().count(), 2);
    assert!(stand.run("lab list").out.contains("fileio"));
}

#[test]
fn events_tell_every_run_every_variant_and_every_verdict() {
    let stand = Stand::new();
    fs::create_dir(stand.path("a")).unwrap();
    fs::create_dir(stand.path("b")).unwrap();
    let line =
        format!("lab run fileio {QUICK} --dir a --dir b --modes rndrd --runs 1 --out r --json");
    let ran = stand.run(&line);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.events_of("lab_run").len() >= 2);
    assert_eq!(ran.events_of("lab_variant").len(), 2);
    let verdicts = ran.events_of("lab_verdict");
    assert_eq!((verdicts.len(), &verdicts[0]["finding"]), (1, &Value::from("too_few_runs")));
    assert_eq!(ran.summary()["variants"], 2);
    assert_eq!(fs::read_dir(stand.path("a")).unwrap().count(), 0, "nothing is left behind");
    assert_eq!(stand.run("lab list --json").events_of("lab_case")[0]["case"], "fileio");
    assert_eq!(stand.run("lab show r --json").events_of("lab_variant").len(), 2);
}

#[test]
fn an_interrupt_keeps_what_was_measured_and_leaves_nothing_behind() {
    let stand = Stand::new();
    let line = "lab run fileio --dir . --total-size 256K --files 2 --modes rndrd --run-time 0.3 --runs 900 \
                --warm-up 0 --patience 0 --out r.json";
    let mut command = stand.command(line);
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let runs = || {
        let text = fs::read_to_string(stand.path("r.json")).unwrap_or_default();
        let saved: Value = serde_json::from_str(&text).unwrap_or_default();
        saved["variants"][0]["runs"].as_array().map_or(0, Vec::len)
    };
    while runs() < 1 {
        assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(130), None));
    assert!(runs() >= 1);
    let shown = stand.run("lab show r.json");
    assert!(shown.code == 0 && shown.out.contains("interrupted"), "{}", shown.out);
    let left: Vec<_> = fs::read_dir(stand.path("")).unwrap().flatten().collect();
    assert!(left.iter().all(|it| !it.file_name().to_string_lossy().starts_with("pinstripe-lab")));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let stand = Stand::new();
    fs::write(stand.path("newer.json"), r#"{"format":"pinstripe lab results","version":99}"#)
        .unwrap();
    fs::write(stand.path("cut.json"), r#"{"format":"pinstripe lab results","ver"#).unwrap();
    for (line, code, part) in [
        ("lab run nothing", 2, "nothing"),
        ("lab run", 2, ""),
        ("lab run fileio --modes seqwr,zigzag", 2, "zigzag"),
        ("lab run fileio --block-size lots", 2, "lots"),
        ("lab run fileio --engine aio", 2, "psync"),
        ("lab run fileio --depth 4", 2, "uring"),
        ("lab run fileio --content x", 2, "zeros"),
        ("lab run fileio --time never", 2, "seconds"),
        ("lab run fileio --dir nowhere", 11, "nowhere"),
        ("lab run fileio --dir cut.json", 2, "no directory"),
        ("lab run fileio --total-size 4000T --out r", 1, "too little room"),
        ("lab show newer.json", 13, "newer"),
        ("lab show cut.json", 1, "line 1"),
        ("lab show gone.json", 11, "gone.json"),
    ] {
        let ran = stand.run(line);
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
        assert!(ran.err.contains(part), "{line}: {}", ran.err);
    }
}
