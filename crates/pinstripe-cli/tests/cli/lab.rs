//! Experiments: cases run, shown, kept; what is refused.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pinstripe_testing::{in_own_mounts, is_root, mount, unmount};
use serde_json::Value;

use crate::lab_fs::Loop;
use crate::mount::Mounted;
use crate::stand::{Stand, assert_ends, each_at_once, interrupt, skipped};

/// Each run waits and watches the machine for a third of a second, in which another can be made.
const LINES_AT_ONCE: usize = 4;

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
    let shown = stand.run("lab show r.json").out;
    let (shown, again) = shown.split_once("\nto repeat the measurement, run:").unwrap();
    assert!(ran.out.starts_with(shown), "{shown}");
    assert!(again.contains("--modes rndwr --files 2 --total-size 256K"), "{again}");
    assert!(stand.run("lab show r.json --form markdown").out.contains("| variant"));
    assert!(stand.run("lab show r.json --form csv").out.starts_with("case,variant,"));
    let json = stand.run("lab show r.json --form json").out;
    let mut json: Value = serde_json::from_str(&json).unwrap();
    // With the tables of the case beside what is saved.
    let tables = json.as_object_mut().unwrap().remove("tables").unwrap();
    assert_eq!(tables[0]["columns"][2], "IOPS");
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
    interrupt(&child);
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(130), None));
    assert!(runs() >= 1);
    let shown = stand.run("lab show r.json");
    assert!(shown.code == 0 && shown.out.contains("interrupted"), "{}", shown.out);
    let left: Vec<_> = fs::read_dir(stand.path("")).unwrap().flatten().collect();
    assert!(left.iter().all(|it| !it.file_name().to_string_lossy().starts_with("pinstripe-lab")));
}

#[test]
fn an_interrupt_before_the_first_run_ends_saves_nothing() {
    let stand = Stand::new();
    let long = QUICK.replace("--run-time 0.02", "--run-time 600");
    let line = format!("lab run fileio {long} --modes rndrd --runs 1 --out r.json");
    let mut child = stand.command(&line).spawn().unwrap();
    let has_begun = || {
        let mut all = fs::read_dir(stand.path("")).unwrap().flatten();
        all.any(|it| it.file_name().to_string_lossy().starts_with("pinstripe-lab-fileio@"))
    };
    while !has_begun() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!stand.path("r.json").exists(), "there is nothing to keep");
    assert!(!has_begun(), "and nothing is left");
}

#[test]
fn what_killed_runs_left_is_removed_by_lab_clean_and_nothing_else() {
    let stand = Stand::new();
    let (left, kept) = (format!("pinstripe-lab-split-{}", i32::MAX), "pinstripe-lab-split-1");
    for name in [left.as_str(), kept] {
        fs::create_dir(stand.path(name)).unwrap();
        fs::write(stand.path(name).join("out.0"), [7; 4096]).unwrap();
    }
    let dry = stand.run("lab clean --dry-run");
    assert_eq!(dry.code, 0, "{}", dry.err);
    assert!(dry.out.contains(&format!("{left}: 1 file, 4.0 KiB")), "{}", dry.out);
    assert!(dry.out.starts_with("would remove "), "{}", dry.out);
    assert!(stand.path(&left).exists());
    let events = stand.run("lab clean --json .");
    assert_eq!(events.code, 0, "{}", events.err);
    assert!(events.out.contains("\"event\":\"lab_leftover\""), "{}", events.out);
    assert!(!stand.path(&left).exists() && stand.path(kept).join("out.0").exists());
    let again = stand.run("lab clean");
    assert!(
        again.code == 0 && again.out.contains("no files of killed runs were found"),
        "{}",
        again.out
    );
    let gone = stand.run("lab clean nowhere");
    assert!(gone.code == 11 && gone.err.contains("cannot be searched"), "{}", gone.err);
}

#[test]
fn what_a_run_that_was_killed_has_left_is_told() {
    let stand = Stand::new();
    // No process has this number; another has ours.
    let (left, kept) = (format!("pinstripe-lab-split-{}", i32::MAX), "pinstripe-lab-split-1");
    fs::create_dir(stand.path(&left)).unwrap();
    fs::create_dir(stand.path(kept)).unwrap();
    let ran = stand.run(&format!("lab run fileio {QUICK} --modes rndrd --runs 1"));
    assert!(
        ran.code == 0 && ran.err.contains(&format!("{left} is left over from a killed run")),
        "{}",
        ran.err
    );
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(stand.path(&left).exists(), "nothing is removed by its name");
}

/// The output of fio 3.33, with a note mixed in.
const FIO: &str = include_str!("../../../pinstripe-lab/tests/data/fio-3.33-json-plus.txt");

#[test]
fn results_of_fio_are_read_saved_and_compared() {
    let stand = Stand::new();
    fs::write(stand.path("a.json"), FIO).unwrap();
    fs::write(stand.path("b.json"), format!("fio: something went by\n{FIO}")).unwrap();
    let ran = stand.run("lab import a.json b.json --out both.json");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.contains("mix read") && ran.out.contains("2 of 2"), "{}", ran.out);
    assert_eq!(stand.run("lab show both.json").code, 0);
    // Executions of other times.
    let later = |at: i64| FIO.replace("\"timestamp\" : ", &format!("\"timestamp\" : {at}"));
    for at in 1..=5 {
        fs::write(stand.path(&format!("e{at}.json")), later(at)).unwrap();
    }
    let ran = stand.run("lab compare e1.json both.json");
    assert!(
        ran.code == 0 && ran.out.contains("the estimated difference of B from A"),
        "{}{}",
        ran.out,
        ran.err
    );
    assert!(ran.out.starts_with("A: e1.json\nB: both.json\n"), "{}", ran.out);
    assert!(ran.out.contains("mix read: A ") && ran.out.contains(" MB/s, B "), "{}", ran.out);
    let ran = stand.run("lab compare a.json a.json b.json");
    assert!(ran.code == 2 && ran.err.contains("lab compare A... -- B..."), "{}", ran.err);
    let ran = stand.run("lab compare a.json e1.json e2.json -- e3.json e4.json e5.json");
    assert!(ran.code == 0 && ran.out.contains("B is as good as A within 3 %"), "{}", ran.out);
    assert!(ran.out.contains("3 and 3 executions"), "{}", ran.out);
    let ran = stand.run("lab compare e1.json both.json --json");
    let verdicts = ran.events_of("lab_verdict");
    assert_eq!(verdicts.len(), 2);
    assert!(verdicts.iter().all(|it| it["unit"] == "MB/s" && it["before"].as_f64() > Some(0.0)));
    // The same execution, by whatever name and on whichever side, counts once.
    for (line, names) in [
        ("lab compare a.json e1.json a.json -- e3.json e4.json", "a.json and a.json"),
        ("lab compare a.json e1.json -- e2.json b.json", "a.json and b.json"),
        ("lab compare a.json b.json", "a.json and b.json"),
        ("lab report a.json b.json --out p.html", "a.json and b.json"),
    ] {
        let ran = stand.run(line);
        assert_eq!(ran.code, 2, "{line}: {}", ran.out);
        let told = format!("{names} contain results of the same execution");
        assert!(ran.err.contains(&told), "{line}: {}", ran.err);
    }
    let ran = stand.run("lab compare a.json e1.json -- --accept-noise e2.json e3.json");
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("everything after -- is a file name, also '--accept-noise'"),
        "{}",
        ran.err
    );
    stand.make_tree();
    assert_eq!(stand.run("lab run dedup --tree src --out tree.json --quiet").code, 0);
    let ran = stand.run("lab compare e1.json tree.json");
    assert!(ran.code == 2 && ran.out.is_empty(), "{}", ran.out);
    assert!(
        ran.err.contains("the results A and B have no variant in common: A measured fio ("),
        "{}",
        ran.err
    );
    // What is shown in fio's form is fio's to read again.
    fs::write(stand.path("again.json"), stand.run("lab show both.json --form fio").out).unwrap();
    assert!(stand.run("lab import again.json").out.contains("mix read read"));
}

#[test]
fn changes_are_seen_in_a_history_that_grew() {
    let stand = Stand::new();
    let none = stand.run("lab history");
    assert_eq!((none.code, none.out.as_str()), (11, ""));
    // A count cannot be disturbed: its history grows by each run.
    stand.make_tree();
    for _ in 0..2 {
        assert_eq!(stand.run("lab run dedup --tree src --quiet").code, 0);
    }
    assert_eq!(stand.run("lab history dedup --json").summary()["entries"], 2);
    let history = stand.path("home/.local/state/pinstripe/lab/history.jsonl");
    let entry: Value =
        serde_json::from_str(fs::read_to_string(history).unwrap().lines().next().unwrap()).unwrap();
    let mut text = String::new();
    for at in 0..12 {
        let mut entry = entry.clone();
        entry["started_seconds"] = Value::from(1_700_000_000 + at);
        entry["value"] = Value::from(if at < 6 { 100.0 } else { 80.0 } + (at % 3) as f64);
        entry["facts"]["kernel"] = Value::from(if at < 6 { "6.1" } else { "6.12" });
        text += &format!("{entry}\n");
    }
    fs::write(stand.path("h.jsonl"), &text).unwrap();
    let ran = stand.run("lab history dedup --file h.jsonl");
    let changed: Vec<&str> = ran.out.lines().filter(|line| line.ends_with("changed")).collect();
    assert_eq!(changed.len(), 1, "{}", ran.out);
    assert!(ran.out.lines().nth(9).unwrap().ends_with("changed"), "{}", ran.out);
    let title = ran.out.lines().next().unwrap();
    assert_eq!(title.matches(", tree ").count(), 1, "{title}");
    assert!(ran.out.lines().nth(1).unwrap() == "▇██▇██│▁▁▂▁▁▂", "{}", ran.out);
    let told = ran.out.lines().find(|it| it.contains("0.80 times as fast as before (95 %: 0."));
    assert!(told.is_some_and(|it| it.ends_with("6 executions before and 6 after)")), "{}", ran.out);
    assert!(ran.out.contains("\n  kernel: before 6.1, now 6.12\n"), "{}", ran.out);
    let events = stand.run("lab history --file h.jsonl --json").events_of("lab_history");
    let changed: Vec<&Value> = events.iter().filter(|it| it["is_change"] == true).collect();
    assert_eq!(changed.len(), 1);
    assert!(changed[0]["speed_low"].as_f64().unwrap() < 0.81, "{changed:?}");
    assert_eq!(changed[0]["differences"][0], "kernel: before 6.1, now 6.12");
    assert_eq!(stand.run("lab history dedup --file h.jsonl --json").summary()["changes"], 1);
    assert_ends(&stand.run("lab history iozone --file h.jsonl"), 11, "no results of the case");
    fs::write(stand.path("h.jsonl"), text + "{\n").unwrap();
    let ran = stand.run("lab history --file h.jsonl");
    assert!(ran.code == 1 && ran.err.contains("line 13"), "{}", ran.err);
}

#[test]
fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let stand = Stand::new();
    let ran = stand.run("lab run iozone --dir . --dry-run --tests write,read --file-size 1M");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("with up to 2.0 MiB of files"), "{}", ran.out);
    assert!(ran.out.contains("would run write (write a new file) 8 to 20 times"), "{}", ran.out);
    assert_eq!(fs::read_dir(stand.path("")).unwrap().count(), 0);
}

#[test]
fn a_device_is_touched_only_with_its_serial_number() {
    let test = "a_device_is_touched_only_with_its_serial_number";
    let stand = Stand::new();
    fs::File::create(stand.path("image")).unwrap().set_len(8 << 20).unwrap();
    let image = fs::canonicalize(stand.path("image")).unwrap();
    let Some(attached) = Loop::on(&image) else {
        return skipped(test, "no loop device can be made: not root, or none left");
    };
    let device = &attached.0;
    let line = format!("lab run fileio --modes rndwr {QUICK} --runs 1 --device {device} --out r");
    let refused = stand.run(&line);
    let wrong = stand.run(&format!("{line} --serial 123"));
    let dry = stand.run(&format!("{line} --dry-run"));
    let dry_wrong = stand.run(&format!("{line} --serial 123 --dry-run"));
    let long = line.replace("--total-size 256K", "--total-size 9M");
    let dry_long = stand.run(&format!("{long} --dry-run"));
    let untouched = fs::read(&image).unwrap().iter().all(|it| *it == 0);
    let allowed = stand.run(&format!("{line} --serial {}", image.display()));
    let touched = fs::read(&image).unwrap().iter().any(|it| *it != 0);
    let again = stand.run(&format!("{line} --serial {}", image.display()));
    let dry_again = stand.run(&format!("{line} --dry-run"));
    let meant = stand.run(&format!("{line} --overwrite-unknown --serial {}", image.display()));
    fs::write(&image, [&[0; 1024 + 0x38][..], &[0x53, 0xef], &[0; 8 << 20]].concat()).unwrap();
    let carries = stand.run(&format!("{line} --serial {}", image.display()));
    drop(attached);
    assert!(refused.code == 14 && refused.err.contains("serial number"), "{}", refused.err);
    assert!(wrong.code == 14 && wrong.err.contains("differs from the given one"), "{}", wrong.err);
    assert!(dry.code == 0 && dry.out.contains("would overwrite the first"), "{}", dry.err);
    assert!(dry.out.contains("the run would ask for the serial number of "), "{}", dry.out);
    assert!(
        dry_wrong.code == 14 && dry_wrong.err.contains("differs from the given one"),
        "{}",
        dry_wrong.err
    );
    assert!(dry_long.code == 2 && dry_long.err.contains("is shorter"), "{}", dry_long.err);
    assert!(untouched);
    assert_eq!(allowed.code, 0, "{}", allowed.err);
    assert!(touched);
    for ran in [again, dry_again] {
        assert!(ran.code == 14 && ran.err.contains("is not blank"), "{}", ran.err);
        assert!(ran.err.contains("--overwrite-unknown"), "{}", ran.err);
    }
    assert_eq!(meant.code, 0, "{}", meant.err);
    assert!(carries.code == 14 && carries.err.contains("contains an ext"), "{}", carries.err);
}

#[test]
fn an_output_of_split_on_a_device_is_not_overwritten() {
    let test = "an_output_of_split_on_a_device_is_not_overwritten";
    let stand = Stand::new();
    fs::File::create(stand.path("image")).unwrap().set_len(8 << 20).unwrap();
    fs::write(stand.path("source"), [5; 100_000]).unwrap();
    let image = fs::canonicalize(stand.path("image")).unwrap();
    let Some(attached) = Loop::on(&image) else {
        return skipped(test, "no loop device can be made: not root, or none left");
    };
    let device = &attached.0;
    let split = stand.run(&format!("split source {device} --force"));
    let line = format!("lab run fileio --modes rndwr {QUICK} --runs 1 --device {device} --out r");
    let line = format!("{line} --overwrite-unknown --serial {}", image.display());
    let refused = stand.run(&line);
    let joined = stand.run(&format!("join {device} -o back"));
    drop(attached);
    assert_eq!(split.code, 0, "{}", split.err);
    assert!(refused.code == 14, "{}", refused.err);
    assert!(refused.err.contains("contains an output of 'pinstripe split'"), "{}", refused.err);
    assert_eq!(joined.code, 0, "{}", joined.err);
    assert_eq!(fs::read(stand.path("back")).unwrap(), [5; 100_000]);
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
        ("lab run fileio --dir cut.json", 2, "not a directory"),
        ("lab run fileio --total-size 4000T --out r", 1, "too little space"),
        ("lab run fileio --total-size 4000T --dry-run", 1, "too little space"),
        ("lab run slices --total-size 4000T --dry-run", 1, "too little space"),
        ("lab run stripe --members-in memory --knob chunk=3,5 --dry-run", 2, "chunk size"),
        ("lab run stripe --members-in memory --knob chunk=64K,64K", 2, "has the same value twice"),
        ("lab run split --codecs foo", 2, "lzo, auto"),
        ("lab run dedup --tree /usr --tree /usr/lib", 2, "is inside"),
        ("lab run fileio --device /dev/null", 14, "not a block device"),
        ("lab run fileio --device /dev/null --dir .", 2, "--dir"),
        ("lab run fileio --serial 1", 2, "--device"),
        ("lab run fileio --overwrite-unknown", 2, "--device"),
        ("lab run fileio --store x", 2, "does not apply"),
        ("lab run fileio --cross-check fio --workers 2", 2, "fio"),
        ("lab compare newer.json newer.json", 13, "newer"),
        ("lab compare cut.json cut.json", 1, "line 1"),
        ("lab import cut.json", 1, "cut.json"),
        ("lab import gone.json", 11, "gone.json"),
        ("lab show newer.json", 13, "newer"),
        ("lab show cut.json", 1, "line 1"),
        ("lab show gone.json", 11, "gone.json"),
    ] {
        let ran = stand.run(line);
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
        assert!(ran.err.contains(part), "{line}: {}", ran.err);
    }
}

#[test]
fn a_report_is_a_page_that_is_read_like_a_file_of_results() {
    let stand = Stand::new();
    for line in ["lab report", "lab show"] {
        let none = stand.run(line);
        assert!(none.code == 11 && none.err.contains("nothing was measured yet"), "{}", none.err);
    }
    let case = format!("lab run fileio {QUICK} --modes rndrd,rndwr --runs 2 --seed 7");
    assert_eq!(stand.run(&case).code, 0);
    assert_eq!(stand.run(&format!("{case} --out r.json")).code, 0);
    // What was measured last, beside its results.
    let made = stand.run("lab report");
    assert_eq!((made.code, made.err.as_str()), (0, ""));
    assert!(made.out.contains("pinstripe/lab/results/fileio-") && made.out.contains(".html"));
    assert!(stand.run("lab show").out.starts_with("lab fileio\n"));
    // A named one, and then one made of the page.
    assert!(
        stand
            .run("lab report r.json --title <mine>")
            .out
            .contains("the report page was written to r.html")
    );
    let page = fs::read_to_string(stand.path("r.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<h1>&lt;mine&gt;</h1>"));
    assert_eq!(stand.run("lab show r.html").out, stand.run("lab show r.json").out);
    let refused = stand.run("lab report r.html");
    assert!(refused.code == 2 && refused.err.contains("--out"), "{}", refused.err);
    let copy = stand.run("lab report r.html r.json --out two.html");
    assert!(
        copy.code == 2 && copy.err.contains("contain results of the same execution"),
        "{}",
        copy.err
    );
    assert_eq!(stand.run(&format!("{case} --out s.json")).code, 0);
    let two = stand.run("lab report r.html s.json --out two.html --json");
    assert_eq!((two.code, &two.summary()["results"]), (0, &Value::from(2)));
    // What was measured before: a file that is named must be there.
    let gone = stand.run("lab report r.json --history gone.jsonl --out h.html");
    assert!(gone.code == 11 && gone.err.contains("gone.jsonl"), "{}", gone.err);
    let saved: Value =
        serde_json::from_str(&fs::read_to_string(stand.path("r.json")).unwrap()).unwrap();
    let variant = &saved["variants"][0];
    let both = [saved["parameters"].as_array().unwrap(), variant["parameters"].as_array().unwrap()];
    let entry = serde_json::json!({
        "version": 1, "started_seconds": 1_700_000_000, "program": "pinstripe 0.0.1", "case": "fileio",
        "host": saved["fingerprint"]["host"], "variant": variant["name"], "parameters": both.map(|it| it.as_slice()).concat(),
        "metric": variant["metric"], "value": 9.0, "low": 8.0, "high": 10.0, "runs": 5,
        "facts": {"place": saved["fingerprint"]["places"][0]["path"]},
    });
    fs::write(stand.path("h.jsonl"), format!("{entry}\n")).unwrap();
    let made = stand.run("lab report r.json --history h.jsonl --out h.html");
    assert_eq!((made.code, made.err.as_str()), (0, ""));
    let is_counted = variant["runs"]
        .as_array()
        .unwrap()
        .iter()
        .any(|it| it["disturbances"] == serde_json::json!([]));
    let has_history =
        fs::read_to_string(stand.path("h.html")).unwrap().contains("<h2>History</h2>");
    assert_eq!(has_history, is_counted, "a variant that no run counts of has no point of its own");
    // The usual one is no reason to make no page.
    let usual = stand.path("home/.local/state/pinstripe/lab/history.jsonl");
    fs::write(usual, "{\n").unwrap();
    let made = stand.run("lab report r.json --out h.html");
    assert!(made.code == 0 && made.err.contains("line 1 of the history"), "{}", made.err);
    let same = stand.run("lab compare r.html s.json");
    assert!(same.code == 0 && same.out.contains("rndrd"), "{}", same.out);
    assert!(stand.run("lab show two.html").err.contains("contains 2 results"));
}

#[test]
fn every_case_is_run_by_its_own_options_beside_those_of_the_program() {
    const LINES: [&str; 11] = [
        "streams --files 2 --file-size 64K --block-size 16K --policies buffered --engines psync",
        "record-probe --streams 2 --rate 1M --chunk 8K --run-time 0.1 --policies buffered --under idle",
        "split --size 1M --outputs 1,2 --codecs raw",
        "stripe --members-in memory --member-size 4M --granules auto,4K --loads write1m",
        "stride --record-size 16K --total-size 1M --ahead 0,2",
        "readahead --record-size 16K --file-size 64K --windows kernel,32K --clients 1",
        "slices --total-size 256K --record-size 16K --tests read",
        "opmix --clients 1 --run-time 0.1",
        "dedup --tree .",
        "walk --directories 3 --walkers walker,nftw",
        "catalog --rows 3700 --writers 2 --no-view",
    ];
    each_at_once(LINES_AT_ONCE, &LINES, |line| {
        let stand = Stand::new();
        let ran = stand.run(&format!("lab run {line} --runs 1 --warm-up 0 --patience 0 --out r"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        let case = line.split(' ').next().unwrap();
        assert!(ran.out.starts_with(&format!("lab {case}\n")), "{line}: {}", ran.out);
        let shown = stand.run("lab show r --form json").out;
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert!(!shown["tables"].as_array().unwrap().is_empty(), "{line}");
        check_lines(&stand, line);
    });
}

#[test]
#[ignore = "with --all: it measures for 11 s"]
fn cases_without_tables_are_measured_again_as_well() {
    const LINES: [&str; 4] = [
        "fileio --dir a --dir b --files 2 --total-size 64K --run-time 0.01 --sync-every 7 --rate 900",
        "fileio --files 2 --total-size 64K --run-time 0.01 --modes rndrd --cross-check fio",
        "iozone --file-size 64K --record-size 16K",
        "quick --total-size 4M --run-time 0.01",
    ];
    each_at_once(LINES_AT_ONCE, &LINES, |line| {
        let stand = Stand::new();
        fs::create_dir(stand.path("a")).unwrap();
        fs::create_dir(stand.path("b")).unwrap();
        let ran = stand.run(&format!("lab run {line} --runs 1 --warm-up 0 --patience 0 --out r"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        check_lines(&stand, line);
    });
}

/// Each line that is told to measure again what stands in `r` is taken, would measure it, and
/// leaves `r` alone.
fn check_lines(stand: &Stand, what: &str) {
    let shown = stand.run("lab show r --json");
    for variant in shown.events_of("lab_variant") {
        let name = variant["variant"].as_str().unwrap();
        let words = variant["command"].as_array().unwrap_or_else(|| panic!("{what}: {name}"));
        let words: Vec<&str> = words.iter().map(|it| it.as_str().unwrap()).collect();
        let line = format!("{} --dry-run", words[1..].join(" "));
        let ran = stand.run(&line);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        assert!(!words.iter().any(|it| ["--out", "--serial"].contains(it)), "{line}");
        // One runs, or it and what it cannot be measured without.
        let runs = ran.out.lines().filter(|it| it.starts_with("would run ")).count();
        let is_pair = ["slices", "catalog"].contains(&words[3]) || words.contains(&"--cross-check");
        let most = if is_pair { 2 } else { 1 };
        assert!((1..=most).contains(&runs), "{line}: {}", ran.out);
    }
    let text = stand.run("lab show r").out;
    let all = text
        .lines()
        .skip_while(|it| *it != "to repeat the measurement, run:")
        .nth(1)
        .unwrap()
        .trim();
    let dry = stand.run(&format!("{} --dry-run", all.strip_prefix("pinstripe ").unwrap()));
    assert_eq!((dry.code, dry.err.as_str()), (0, ""), "{all}");
    let runs = dry.out.lines().filter(|it| it.starts_with("would run ")).count();
    assert_eq!(runs, shown.events_of("lab_variant").len(), "{all}");
}

#[test]
fn standard_output_in_a_form_for_programs_has_nothing_else() {
    let stand = Stand::new();
    for form in ["json", "fio", "csv", "table-csv"] {
        let line = format!("lab run fileio {QUICK} --modes rndwr --runs 1 --form {form}");
        let ran = stand.run(&line);
        assert_eq!(ran.code, 0, "{form}: {}", ran.err);
        assert!(!ran.out.contains("saved in") && ran.err.contains("saved in"), "{form}");
        if matches!(form, "json" | "fio") {
            serde_json::from_str::<Value>(&ran.out).unwrap();
        }
    }
    let line = format!("lab run fileio {QUICK} --modes rndwr --runs 1 --dry-run --form json");
    let plan: Value = serde_json::from_str(&stand.run(&line).out).unwrap();
    assert_eq!((&plan["dry_run"], &plan["variants"][0]["runs"]), (&true.into(), &"once".into()));
}

#[test]
fn memory_is_labelled() {
    let stand = Stand::in_memory();
    if !stand.path("").starts_with("/dev/shm") {
        return skipped("memory_is_labelled", "no memory file system");
    }
    let ran = stand.run(&format!("lab run fileio {QUICK} --modes seqwr,rndrd --runs 1"));
    assert_eq!(ran.out.matches("memory, no disk").count(), 2, "{}", ran.out);
}

/// Measures in a directory, and returns what was printed.
fn measured_in(stand: &Stand, dir: &str) -> String {
    let line = format!("lab run fileio {QUICK} --modes seqwr,rndrd --runs 1 --dir {dir}");
    stand.run(&line).ends(0, &line)
}

#[test]
fn memory_below_an_overlay_and_ramfs_are_labelled() {
    const TEST: &str = "memory_below_an_overlay_and_ramfs_are_labelled";
    in_own_mounts(TEST, || {
        let stand = Stand::new();
        for dir in ["ram", "tmp", "low", "over"] {
            fs::create_dir(stand.path(dir)).unwrap();
        }
        if !mount("ramfs", "rw", Path::new("none"), &stand.path("ram")) {
            return skipped(TEST, "ramfs cannot be mounted here");
        }
        // ramfs reports a size of 0 bytes, which is no lack of space.
        let told = measured_in(&stand, "ram");
        assert_eq!(told.matches("memory, no disk").count(), 2, "{told}");
        let init = "init --encryption none --member ram/m --quiet";
        stand.run(init).ends(0, init);
        let backup = "backup low --store ram/m --quiet";
        stand.run(backup).ends(0, backup);
        unmount(&stand.path("ram"));

        assert!(mount("tmpfs", "rw", Path::new("none"), &stand.path("tmp")));
        for dir in ["tmp/up", "tmp/work"] {
            fs::create_dir(stand.path(dir)).unwrap();
        }
        let [low, up, work] = ["low", "tmp/up", "tmp/work"].map(|dir| stand.path(dir));
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            low.display(),
            up.display(),
            work.display()
        );
        if !mount("overlay", &layers, Path::new("none"), &stand.path("over")) {
            return skipped(TEST, "no overlay can be mounted here");
        }
        let told = measured_in(&stand, "over");
        assert_eq!(told.matches("memory, no disk").count(), 2, "{told}");
        unmount(&stand.path("over"));
        unmount(&stand.path("tmp"));
        // On a disk, the same is not labelled.
        if !measured_in(&stand, "low").contains("memory, no disk") {
            return;
        }
        skipped(TEST, "the directory of the test is in memory");
    });
}

#[test]
fn files_of_another_process_are_labelled() {
    const TEST: &str = "files_of_another_process_are_labelled";
    let bindfs = Command::new("bindfs").arg("--version").output();
    if bindfs.is_err() {
        return pinstripe_testing::not_installed(TEST, "bindfs");
    }
    in_own_mounts(TEST, || {
        let stand = Stand::new();
        let [below, shown] = ["below", "shown"].map(|dir| stand.path(dir));
        fs::create_dir(&below).unwrap();
        fs::create_dir(&shown).unwrap();
        if !Command::new("bindfs").args([&below, &shown]).status().unwrap().success() {
            return skipped(TEST, "FUSE cannot be mounted here");
        }
        let told = measured_in(&stand, "shown");
        unmount(&shown);
        assert_eq!(told.matches("memory, no disk").count(), 2, "{told}");
    });
}

/// The newest snapshot is a symlink in the mount: what it leads to is read.
#[test]
fn a_tree_of_a_mount_is_read_and_labelled() {
    const TEST: &str = "a_tree_of_a_mount_is_read_and_labelled";
    if !Path::new("/dev/fuse").exists() || !is_root() {
        return skipped(TEST, "FUSE cannot be mounted here");
    }
    let stand = Stand::with_store();
    stand.run("backup src --store m0 --quiet").ends(0, "backup");
    let mounted = Mounted::of(&stand, "mount mnt --store m0", "mnt");
    let quick = "--runs 1 --warm-up 0 --patience 0 --out r.json";
    let line = format!("lab run dedup --tree {{}}/mnt/latest {quick}");
    let told = stand.run(&line).ends(0, &line);
    assert!(told.contains("memory, no disk"), "{told}");
    let results: Value = serde_json::from_slice(&fs::read(stand.path("r.json")).unwrap()).unwrap();
    let run = &results["variants"][0]["runs"][0];
    assert!(run["read_bytes"].as_u64().unwrap() > 700_000, "{run}");
    assert_eq!(mounted.end(), 0);
}

/// Parts of pages go through the page cache.
#[test]
fn direct_requests_of_parts_of_pages_are_labelled() {
    let stand = Stand::new();
    for (bytes, is_labelled) in [("4K", false), ("512", true), ("6000", true)] {
        let quick = QUICK.replace("--block-size 4K", &format!("--block-size {bytes}"));
        let ran =
            stand.run(&format!("lab run fileio {quick} --modes rndwr --runs 1 --policy direct"));
        assert_eq!(ran.code, 0, "{}", ran.err);
        if !is_labelled && ran.out.contains("not direct") {
            return skipped("direct_requests_of_parts_of_pages_are_labelled", "no direct I/O here");
        }
        assert_eq!(ran.out.contains("not direct"), is_labelled, "{bytes}: {}", ran.out);
    }
}

#[test]
fn a_dry_run_refuses_what_the_run_refuses() {
    let stand = Stand::new();
    fs::write(stand.path("file"), "x").unwrap();
    for (line, code, part) in [
        ("dedup --tree none", 11, "cannot open the tree"),
        ("walk --tree file", 2, "the tree is not a directory"),
        ("split --size 0", 2, "a source of 0 bytes"),
        ("split --serial x --dir .", 2, "'--serial <TEXT>' cannot be used with"),
        ("split --time 0", 2, "longer than 0 seconds"),
    ] {
        assert_ends(&stand.run(&format!("lab run {line} --dry-run")), code, part);
    }
}
