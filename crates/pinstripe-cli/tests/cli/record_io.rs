//! What recorders read and write beside plain files: FLAC, and another take that is played meanwhile.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::record::Recorder;
use crate::stand::{Stand, noise};

const FAST: &str = "--ring 64K --chunk 8K --no-realtime";

/// Whether this system has libFLAC, which every program that knows FLAC brings.
fn lacks_flac(stand: &Stand, test: &str) -> bool {
    let line = format!("record look --to . {FAST} --format flac test:frames=9,pace=free");
    let lacks = stand.run(&line).code != 0;
    if lacks {
        pinstripe_testing::not_installed(test, "libFLAC");
    }
    lacks
}

/// Files of a take of this extension, in order.
fn files(directory: &Path, extension: &str) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|it| it.unwrap().path())
        .filter(|it| it.extension().is_some_and(|it| it == extension))
        .collect();
    paths.sort();
    paths
}

/// Frames that the head of a file of FLAC tells.
fn told_frames(path: &Path) -> u64 {
    let head = fs::read(path).unwrap();
    u64::from_be_bytes(head[18..26].try_into().unwrap()) & ((1 << 36) - 1)
}

#[test]
fn flac_that_was_killed_is_recovered_to_the_sample() {
    let stand = Stand::new();
    let test = "flac_that_was_killed_is_recovered_to_the_sample";
    if lacks_flac(&stand, test) {
        return;
    }
    for round in pinstripe_testing::chosen_seeds("PINSTRIPE_RECORD_SEEDS", 0..2) {
        let take = format!("t{round}");
        let line = format!("record {take} --to . {FAST} --format flac test:streams=4,rate=48000");
        let mut recorder = Recorder::start(&stand, &line);
        recorder.await_event("recording");
        recorder.await_event("recording");
        recorder.await_event("recording");
        // Somewhere within the next commit: the seed says where.
        std::thread::sleep(std::time::Duration::from_millis(137 * round % 1000));
        recorder.kill();
        let before: Vec<u64> =
            files(&stand.path(&take), "flac").iter().map(|it| told_frames(it)).collect();
        let recovered = stand.run(&format!("recover {take} --json"));
        assert_eq!(recovered.code, 0, "{}", recovered.err);
        let after = recovered.events_of("recovered");
        assert_eq!((after.len(), before.len()), (4, 4));
        for (file, promised) in after.iter().zip(before) {
            let frames = file["frames"].as_u64().unwrap();
            assert!(frames >= 30_000 && frames >= promised, "{file} {promised}");
            let path = stand.path(file["path"].as_str().unwrap());
            assert_eq!(told_frames(&path), frames);
            match Command::new("flac").args(["-t", "-s"]).arg(&path).output() {
                Ok(tested) => assert!(tested.status.success(), "{tested:?}"),
                Err(_) => pinstripe_testing::not_installed(test, "flac"),
            }
        }
        let verified = stand.run(&format!("verify {take} --json"));
        assert_eq!(verified.code, 0, "{}", verified.err);
        let frames: u64 = after.iter().map(|it| it["frames"].as_u64().unwrap()).sum();
        assert_eq!(verified.summary()["wrong_frames"], 0);
        assert!(verified.summary()["right_frames"].as_u64().unwrap() >= frames);
    }
}

#[test]
fn flac_is_played_as_it_was_recorded_and_what_it_has_not_is_refused() {
    let stand = Stand::new();
    if lacks_flac(&stand, "flac_is_played_as_it_was_recorded") {
        return;
    }
    let samples = noise(5, 4 * 60_000);
    fs::write(stand.path("in.raw"), &samples).unwrap();
    let line = format!(
        "record t --to . {FAST} --format flac --segment 100K --poly pcm:in.raw,rate=48000,channels=2,format=s16"
    );
    assert_eq!(stand.run(&line).code, 0);
    assert!(files(&stand.path("t"), "flac").len() > 1);
    assert_eq!(stand.run("play t --to pcm:out.raw").code, 0);
    assert!(fs::read(stand.path("out.raw")).unwrap() == samples);
    assert_eq!(stand.run("verify t").code, 0);
    let refused = stand.run(&format!("record f --to . {FAST} --format flac test:format=f32"));
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("cannot be encoded as FLAC"), "{}", refused.err);
    assert!(!stand.path("f").exists());
}

#[test]
fn a_take_is_played_through_another_program_while_it_is_recorded() {
    let stand = Stand::new();
    let samples = noise(11, 4 * 50_000);
    fs::write(stand.path("in.raw"), &samples).unwrap();
    let line = format!("record first --to . {FAST} pcm:in.raw,rate=48000,channels=2,format=s16");
    assert_eq!(stand.run(&line).code, 0);
    assert!(
        Command::new("mkfifo")
            .arg(stand.path("there"))
            .arg(stand.path("back"))
            .status()
            .unwrap()
            .success()
    );
    let script = "cat there > back";
    let mut effect =
        Command::new("sh").args(["-c", script]).current_dir(stand.path("")).spawn().unwrap();
    let line = format!(
        "record second --to . {FAST} --format raw --poly --play first --play-to pcm:there pcm:back,rate=48000,channels=2,format=s16 --json"
    );
    let ran = stand.run(&line);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(effect.wait().unwrap().success());
    assert_eq!(ran.summary()["played"]["frames"], 50_000);
    assert!(fs::read(stand.path("second/01-back.raw")).unwrap() == samples);
    let manifest = fs::read_to_string(stand.path("second/take.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(
        (&manifest["beside"]["path"], &manifest["beside"]["first_frame"]),
        (&"first".into(), &0.into())
    );
    for (rest, part) in [
        ("--play first test:", "--play-to"),
        ("--play first --play-to pcm:- test:", "FIFO"),
        ("--play first --play-to drum test:", "alsa:DEVICE"),
        ("--play-to null test:", "--play"),
    ] {
        let ran = stand.run(&format!("record third --to . {FAST} {rest}"));
        assert_eq!(ran.code, 2, "{rest}: {}", ran.err);
        assert!(ran.err.contains(part), "{rest}: {}", ran.err);
    }
    let ran = stand.run(&format!("record third --to . {FAST} --play nowhere --play-to null test:"));
    assert_eq!(ran.code, 11, "{}", ran.err);
    assert!(!stand.path("third").exists());
}
