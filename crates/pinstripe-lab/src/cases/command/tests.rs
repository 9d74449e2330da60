//! Tests of the case.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::cases::tests::{effort, measured};
use crate::result::Results;
use crate::run::{Origin, measure};

fn planned(dir: &Path, given: &[(&str, &str)]) -> Result<Box<dyn Plan>> {
    let values = Values::read(OPTIONS, given)?;
    plan(&Setting { dirs: vec![dir.to_owned()], ..Setting::default() }, &values)
}

fn names(given: &[(&str, &str)]) -> Vec<String> {
    let plan = planned(&std::env::temp_dir(), given).unwrap();
    plan.variants().into_iter().map(|it| it.name).collect()
}

/// One run of each command; the results, or the first error.
fn tried(dir: &Path, given: &[(&str, &str)]) -> Result<Results> {
    let mut plan = planned(dir, given)?;
    let live = Arc::new(Live::new(Arc::default()));
    let origin = Origin { case: CASE.name.to_owned(), ..Origin::default() };
    measure(plan.as_mut(), &effort().exactly(1), &origin, &live, &mut |_| Ok(()))
}

#[test]
fn commands_are_timed_in_their_directory_and_leave_figures() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("here"), "").unwrap();
    let given = [("command", "test -e here"), ("command", "test -e here && test $0 = sh")];
    let results = measured(&CASE, dir.path(), &given);
    for variant in &results.variants {
        let run = &variant.runs[0].measured;
        assert!(run.value > 0.0, "{run:?}");
        for name in ["user_s", "system_s", "disk_read_bytes", "disk_written_bytes"] {
            assert!(run.figures[name] >= 0.0, "{name}");
        }
        let known = run.figures.keys().filter(|it| it.starts_with("peak_memory")).count();
        assert_eq!((known, run.figures["exit_code"]), (1, 0.0));
    }
    let table = tables::tables(&results).remove(0).shown();
    assert_eq!((table.len(), table[0].len(), &*table[1][0]), (3, 11, "test -e here"));
    assert!(results.notes[0].contains("the start of the shell 'sh'"), "{:?}", results.notes);
    assert_eq!(results.verdicts[0].baseline, "test -e here");
}

#[test]
fn parameters_are_measured_in_every_combination_and_only_where_they_are_used() {
    let given = [
        ("command", "a {n} {w}"),
        ("command", "b"),
        ("parameter-scan", "n 1 2"),
        ("parameter-list", "w x,y"),
    ];
    assert_eq!(names(&given), ["a 1 x", "a 1 y", "a 2 x", "a 2 y", "b"]);
    // A parameter that only a preparation uses is in the name.
    let given = [("command", "a"), ("prepare", "p {n}"), ("parameter-scan", "n 1 2")];
    assert_eq!(names(&given), ["a, n=1", "a, n=2"]);
    let given = [("command", "a {n}"), ("command-name", "it"), ("parameter-list", "n 1,2")];
    assert_eq!(names(&given), ["it, n=1", "it, n=2"]);
}

#[test]
fn the_reference_comes_first() {
    let two = [("command", "a {n}"), ("command", "b {n}"), ("parameter-scan", "n 1 2")];
    for (reference, wanted) in [
        ("a {n}", ["a 1", "a 2", "b 1", "b 2"]),
        ("b {n}", ["b 1", "b 2", "a 1", "a 2"]),
        ("b 2", ["b 2", "a 1", "a 2", "b 1"]),
    ] {
        assert_eq!(names(&[&two[..], &[("reference", reference)]].concat()), wanted);
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let a = ("command", "a {n}");
    let scan = ("parameter-scan", "n 1 2");
    for bad in [
        &[][..],
        &[("command", "")],
        &[("command", " ")],
        &[("command", "a"), ("prepare", "")],
        &[("command", "a"), scan],
        &[a, ("parameter-scan", "n 1 2"), ("parameter-step-size", "0")],
        &[a, ("parameter-scan", "n 1 1000000000000")],
        &[a, ("parameter-step-size", "2")],
        &[a, scan, ("parameter-list", "n 3,4")],
        &[a, ("parameter-list", "n 3,3")],
        &[("command", "a {n} {m}"), ("parameter-scan", "n 1 99"), ("parameter-scan", "m 1 99")],
        &[("command", "a"), ("command", "a")],
        &[("command", "a"), ("command", "b"), ("command-name", "x")],
        &[("command", "a"), ("command", "b"), ("command-name", "x"), ("command-name", "x")],
        &[("command", "a"), ("prepare", "x"), ("prepare", "y")],
        &[("command", "a"), ("reference", "c")],
        &[("command", "a"), ("same-output", ""), ("output", "null")],
        &[("command", "a"), ("same-output", ""), ("output", "inherit")],
        &[("command", "a"), ("timeout", "0")],
        &[("command", "a"), ("shell", "")],
        &[("command", "a 'b"), ("shell", "none")],
        &[("command", "''"), ("shell", "'")],
    ] {
        let refused = planned(&std::env::temp_dir(), bad).err().map(|it| it.kind());
        assert_eq!(refused, Some(Kind::Usage), "{bad:?}");
    }
    let values = Values::read(OPTIONS, &[("command", "a")]).unwrap();
    let setting = Setting { device: Some("/dev/none".into()), ..Setting::default() };
    assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage);
    let gone = planned(&std::env::temp_dir(), &[a, scan, ("input", "/no/file")]).unwrap();
    assert_eq!(gone.may_begin().unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn the_steps_come_in_order_and_the_last_ones_also_after_a_failure() {
    let log = |word: &str| format!("printf '%s ' {word} >> log");
    let texts = ["setup", "prepare", "run", "conclude", "cleanup"].map(log);
    let [setup, prepare, run, conclude, cleanup] = &texts;
    let given = [
        ("command", &**run),
        ("command", "printf '{n} ' >> log"),
        ("parameter-list", "n 1,2"),
        ("setup", setup),
        ("prepare", prepare),
        ("conclude", conclude),
        ("cleanup", cleanup),
    ];
    let dir = tempfile::tempdir().unwrap();
    tried(dir.path(), &given).unwrap();
    let wanted = "setup prepare run conclude prepare 1 conclude prepare 2 conclude cleanup ";
    assert_eq!(fs::read_to_string(dir.path().join("log")).unwrap(), wanted);
    for failing in ["command", "prepare"] {
        let dir = tempfile::tempdir().unwrap();
        let given = given.iter().filter(|(name, _)| *name != "parameter-list");
        let given = given.map(|(name, it)| (*name, if *name == failing { "exit 3" } else { it }));
        let given: Vec<_> = given.filter(|(_, it)| !it.contains("{n}")).collect();
        // Of the two commands one is left, or both fail in the same way.
        let given = &given[usize::from(failing == "command")..];
        let error = tried(dir.path(), given).unwrap_err();
        assert_eq!(error.kind(), Kind::Io);
        assert!(error.what().contains("failed with exit code 3"), "{error}");
        let wanted = match failing {
            "command" => "setup prepare conclude cleanup ",
            _ => "setup conclude cleanup ",
        };
        assert_eq!(fs::read_to_string(dir.path().join("log")).unwrap(), wanted, "{failing}");
    }
}

#[test]
fn a_failing_command_is_an_error_unless_failures_are_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let failing = [("command", "echo what >&2; exit 7")];
    let error = tried(dir.path(), &failing).unwrap_err();
    assert_eq!(error.kind(), Kind::Io);
    assert!(error.what().ends_with("failed with exit code 7: what"), "{error}");
    let accepted = [("command", "exit 7"), ("command", "kill -9 $$"), ("ignore-failure", "")];
    let results = tried(dir.path(), &accepted).unwrap();
    let table = tables::tables(&results).remove(0).shown();
    let codes: Vec<&str> = table.iter().map(|row| row[11].trim_matches(['(', ')'])).collect();
    assert_eq!(codes, ["exit code", "7", "137"]);
    let error = tried(dir.path(), &[("command", "/no/such/program"), ("shell", "none")]);
    assert_eq!(error.unwrap_err().kind(), Kind::NotFound);
    let error = tried(dir.path(), &[("command", "sleep 1000"), ("timeout", "0.02")]);
    assert_eq!(error.unwrap_err().kind(), Kind::Unanswered);
}

#[test]
fn outputs_are_compared_if_this_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let same = ("same-output", "");
    for output in ["pipe", "out"] {
        let file = dir.path().join("out").to_string_lossy().into_owned();
        let output = ("output", if output == "out" { &*file } else { output });
        let alike = [("command", "echo 1; echo 2"), ("command", "seq 2"), same, output];
        tried(dir.path(), &alike).unwrap();
        let other = [("command", "echo 1"), ("command", "echo 2"), same, output];
        let error = tried(dir.path(), &other).unwrap_err();
        assert_eq!(error.kind(), Kind::Changed);
        let what = "the output of 'echo 2' differs from that of 'echo 1'";
        assert!(error.what().starts_with(what), "{error}");
    }
    let alone = [("command", "cat"), ("shell", "none"), same];
    let input = dir.path().join("out").to_string_lossy().into_owned();
    tried(dir.path(), &[&alone[..], &[("input", &input)]].concat()).unwrap();
}
