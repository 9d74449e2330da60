//! Takes in several directories, and what happens to their files and to the recorder meanwhile.

use std::fs;
use std::process::Command;

use crate::record::{FAST, Recorder, manifest};
use crate::stand::Stand;

fn with_directories() -> Stand {
    let stand = Stand::new();
    for name in ["a", "b", "elsewhere"] {
        fs::create_dir(stand.path(name)).unwrap();
    }
    stand
}

#[test]
fn a_take_in_several_directories_is_read_from_anywhere() {
    let stand = with_directories();
    let line = format!("record t --to a --to b {FAST} test:streams=2,frames=9000,pace=free");
    assert_eq!(stand.run(&line).code, 0);
    let mut verify = stand.command(&format!("verify {}", stand.path("a/t").display()));
    let ran = verify.current_dir(stand.path("elsewhere")).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    for directory in manifest(&stand, "b/t")["directories"].as_array().unwrap() {
        assert!(directory.as_str().unwrap().starts_with('/'), "{directory}");
    }
}

#[test]
fn a_recorder_is_told_in_any_directory_of_its_take() {
    let stand = with_directories();
    let line = format!("record t --to a --to b --mirror {FAST} test:streams=2");
    let mut recorder = Recorder::start(&stand, &line);
    recorder.await_event("recording");
    for directory in ["a", "b"] {
        let ran = stand.run(&format!("record ctl status {directory}/t"));
        assert_eq!(ran.code, 0, "{directory}: {}", ran.err);
    }
    fs::remove_dir_all(stand.path("a")).unwrap();
    assert_eq!(stand.run("record ctl stop b/t").code, 0);
    recorder.await_event("summary");
    recorder.child.wait().unwrap();
    assert!(!stand.path("b/t/take.ctl").exists());
}

#[test]
fn a_file_that_was_removed_meanwhile_is_a_loss() {
    let stand = with_directories();
    let mut recorder = Recorder::start(&stand, &format!("record t --to a {FAST} test:streams=2"));
    recorder.await_event("recording");
    fs::remove_file(stand.path("a/t/02-test-2.wav")).unwrap();
    let summary = recorder.interrupt();
    assert_eq!(summary["exit_code"], 3, "{summary}");
}

#[test]
fn an_interrupt_that_comes_twice_ends_a_take_in_order() {
    let stand = with_directories();
    let mut recorder = Recorder::start(&stand, &format!("record t --to a {FAST} test:streams=64"));
    recorder.await_event("recording");
    let id = recorder.child.id().to_string();
    for _ in 0..3 {
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    }
    assert_eq!(recorder.await_event("summary")["exit_code"], 0);
    assert_eq!(recorder.child.wait().unwrap().code(), Some(0));
    assert_eq!(manifest(&stand, "a/t")["state"], "complete");
    assert_eq!(stand.run("verify a/t").code, 0);
}
