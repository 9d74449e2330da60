//! What a recorder gets that it should not get: inputs that give nothing, directories that vanish,
//! rights that are missing, texts and files of others.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Command;

use serde_json::Value;

use crate::record::{FAST, Recorder, manifest};
use crate::stand::{Stand, noise, set_home, skipped};

fn mkfifo(stand: &Stand) {
    assert!(Command::new("mkfifo").arg(stand.path("fifo")).status().unwrap().success());
}

const OF_FIFO: &str = "pcm:fifo,rate=48000,channels=2,format=s16";

#[test]
#[ignore = "with --all: it waits for 7 s"]
fn a_fifo_that_nobody_writes_is_waited_for_with_a_word_and_an_interrupt_ends_it() {
    let stand = Stand::new();
    mkfifo(&stand);
    let mut recorder = Recorder::start(&stand, &format!("record t --to . {FAST} {OF_FIFO}"));
    recorder.await_problem("no data was received for");
    assert_eq!(recorder.interrupt()["exit_code"], 0);
    let frames: Vec<_> = manifest(&stand, "t")["pieces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["frames"].clone())
        .collect();
    assert_eq!(frames, [0, 0]);
    assert_eq!(stand.run("verify t").code, 0);
    // A length that is given is a deadline, too.
    let ran = stand.run(&format!("record timed --to . {FAST} --duration 200ms {OF_FIFO} --json"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("no data was received from this input"), "{}", ran.err);
}

#[test]
fn a_writer_that_falls_silent_or_ends_leaves_a_take_of_what_came() {
    let stand = Stand::new();
    mkfifo(&stand);
    let samples = noise(3, 4 * 5_000);
    // It stays there and writes nothing more: the length that was given ends the take.
    let line = format!("record silent --to . {FAST} --format raw --duration 1s --poly {OF_FIFO}");
    let mut recorder = Recorder::start(&stand, &line);
    let mut fifo = OpenOptions::new().write(true).open(stand.path("fifo")).unwrap();
    fifo.write_all(&samples).unwrap();
    assert_eq!(recorder.await_event("summary")["exit_code"], 0);
    recorder.child.wait().unwrap();
    assert!(fs::read(stand.path("silent/01-fifo.raw")).unwrap() == samples);
    drop(fifo);
    // It is killed in the middle of a frame, while another input goes on.
    let line = format!(
        "record ended --to . {FAST} --format raw --poly {OF_FIFO} test:streams=1,rate=48000 --duration 1s"
    );
    let mut recorder = Recorder::start(&stand, &line);
    let script = "head -c 18003 in.raw > fifo; kill -9 $$";
    fs::write(stand.path("in.raw"), &samples).unwrap();
    let mut writer = pinstripe_testing::shell(script).current_dir(stand.path("")).spawn().unwrap();
    writer.wait().unwrap();
    recorder.await_problem("not a complete frame");
    assert_eq!(recorder.await_event("summary")["exit_code"], 0);
    recorder.child.wait().unwrap();
    assert!(fs::read(stand.path("ended/01-fifo.raw")).unwrap() == samples[..18_000]);
    assert_eq!(manifest(&stand, "ended")["pieces"][1]["frames"], 48_000);
}

#[test]
fn a_take_that_exists_is_refused_and_stays_as_it_is() {
    let stand = Stand::new();
    let line = format!("record t --to . {FAST} test:streams=2,frames=9000,pace=free");
    assert_eq!(stand.run(&line).code, 0);
    let all = || {
        let mut files: Vec<_> =
            fs::read_dir(stand.path("t")).unwrap().map(|it| it.unwrap().path()).collect();
        files.sort();
        files.into_iter().map(|it| (fs::read(&it).unwrap(), it)).collect::<Vec<_>>()
    };
    let before = all();
    let ran = stand.run(&line);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("never overwrites a take"), "{}", ran.err);
    assert!(all() == before);
    // Nor is it where it stands in the second directory only; the first one is left as it was.
    fs::create_dir(stand.path("a")).unwrap();
    let ran = stand.run(&format!("record t --to a --to . {FAST} test:streams=2"));
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(all() == before);
    assert!(!stand.path("a/t").exists());
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_measured_or_made() {
    let stand = Stand::new();
    let line = format!("record t --to . {FAST} test:streams=2,frames=9000,pace=free");
    assert_eq!(stand.run(&line).code, 0);
    let ran = stand.run("record t --to . --measure=1h test:");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("never overwrites a take"), "{}", ran.err);
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for input in [
        format!("rtp:127.0.0.1:{port},format=L24,rate=48000,channels=2"),
        "pcm:nowhere,rate=48000,channels=2,format=s16".to_owned(),
        "raw:unix:nowhere".to_owned(),
    ] {
        let ran = stand.run(&format!("record u --to . --measure=1h {input}"));
        assert!([1, 11].contains(&ran.code), "{input}: {} {}", ran.code, ran.err);
        assert!(!stand.path("u").exists(), "{input}");
    }
}

#[test]
fn a_directory_that_vanishes_ends_its_streams_and_a_mirror_goes_on() {
    let stand = Stand::new();
    for name in ["a", "b"] {
        fs::create_dir(stand.path(name)).unwrap();
    }
    let mut recorder = Recorder::start(&stand, &format!("record one --to a {FAST} test:streams=2"));
    recorder.await_event("recording");
    fs::remove_dir_all(stand.path("a/one")).unwrap();
    let summary = recorder.await_event("summary");
    assert_eq!(summary["exit_code"], 3, "{summary}");
    recorder.child.wait().unwrap();
    let line = format!("record two --to a --to b --mirror {FAST} test:streams=2");
    let mut recorder = Recorder::start(&stand, &line);
    recorder.await_event("recording");
    fs::remove_dir_all(stand.path("a")).unwrap();
    while recorder.await_event("recording")["failed_directories"] != 1 {}
    let summary = recorder.interrupt();
    assert_eq!(summary["exit_code"], 4, "no sample is lost: {summary}");
    let verified = stand.run("verify b/two --json").summary();
    let frames: u64 = manifest(&stand, "b/two")["pieces"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["directory"] == 1)
        .map(|it| it["frames"].as_u64().unwrap())
        .sum();
    assert!(frames > 0 && verified["right_frames"] == frames, "{frames}: {verified}");
}

#[test]
fn without_the_right_to_real_time_a_take_goes_on_and_says_so() {
    let stand = Stand::new();
    let plain = stand.command(
        "record t --to . --ring 64K --chunk 8K test:streams=3,frames=20000,pace=free \
         test:streams=1,rate=48000 --duration 300ms --json",
    );
    let mut command = Command::new("setpriv");
    command.args([
        "--bounding-set",
        "-sys_nice,-sys_admin,-ipc_lock,-sys_resource",
        "--inh-caps",
        "-all",
    ]);
    command.args(["prlimit", "--rtprio=0", "--nice=0", "--memlock=4096"]);
    command.arg(plain.get_program()).args(plain.get_args());
    command.current_dir(stand.path("")).env_clear();
    set_home(&mut command, &stand.path("home"));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("TZ", "UTC");
    let test = "without_the_right_to_real_time_a_take_goes_on_and_says_so";
    let Ok(ran) = command.output() else { return skipped(test, "no setpriv, of util-linux") };
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    if out.is_empty() {
        return skipped(test, &format!("rights cannot be given up here: {err}"));
    }
    assert_eq!(ran.status.code(), Some(0), "{err}");
    let summary: Value = out.lines().last().map(|it| serde_json::from_str(it).unwrap()).unwrap();
    let refusals = summary["refusals"].to_string();
    for part in [
        "the threads of the inputs do not have real-time priority",
        "the writer thread does not have real-time priority",
        "do not have the real-time I/O class",
    ] {
        assert!(refusals.contains(part) && err.contains(part), "{part}: {refusals} {err}");
    }
    assert_eq!(summary["is_locked"], false);
    assert!(err.contains("ulimit -l"), "{err}");
    assert_eq!(stand.run("verify t").code, 0);
}

#[test]
fn texts_that_name_no_format_input_or_size_are_refused_with_what_is_possible() {
    let (stand, mut wrong) = (Stand::new(), Vec::new());
    for (words, part) in [
        ("test:format=s25", "a sample format: u8, s16, s24, s32 or f32"),
        ("test:format=", "is not a known option"),
        ("test:rate=0", "rate"),
        ("test:streams=-1", "streams"),
        ("test:rate=48000,rate", "rate"),
        ("test:channels=99999", "channels"),
        ("pcm:f,rate=48000,channels=2,format=S24_4LE", "s24_32le"),
        ("pcm:f,rate=48000,channels=2,format=s16le,format=", "is not a known option"),
        ("pcm:f,rate=48000,channels=2", "format"),
        ("pcm:f,channels=2,format=s16", "rate"),
        ("pcm:,rate=1,channels=1,format=u8", "does not contain the path of a file"),
        ("pcm:tcp:nowhere,rate=1,channels=1,format=u8", "tcp:HOST:PORT"),
        ("rtp:127.0.0.1:5004,format=L20,rate=48000,channels=2", "L24"),
        ("rtp:127.0.0.1,format=L24,rate=48000,channels=2", "rtp"),
        ("jack:x,format=s25", "s24"),
        ("mic:1", "test"),
        ("test: --format wave", "wav"),
        ("test: --format WAV", "wav"),
        ("test: --ring 4K", "power of two"),
        ("test: --ring 128M", "power of two"),
        ("test: --chunk 1", "4K to 1M"),
        ("test: --chunk 64K", "half of a ring"),
    ] {
        let mut command = stand.command(&format!("record t --to . {words}"));
        if !words.contains("--ring") {
            command.args(["--ring", "64K"]);
        }
        let ran = command.output().unwrap();
        let err = String::from_utf8_lossy(&ran.stderr);
        let is_refused = ran.status.code() == Some(2) && err.contains(part);
        if !is_refused || stand.path("t").exists() {
            wrong.push(format!("{words}: {err}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn takes_of_others_are_refused_with_a_word_by_every_verb() {
    let stand = Stand::new();
    let line = format!("record t --to . {FAST} test:streams=2,frames=9000,pace=free");
    assert_eq!(stand.run(&line).code, 0);
    let (json, journal) = (stand.path("t/take.json"), stand.path("t/take.journal"));
    let (sound, vouched) = (fs::read_to_string(&json).unwrap(), fs::read(&journal).unwrap());
    let is_told = |what: &str, codes: &[i32]| {
        for verb in ["verify t", "recover t", "play t --to pcm:out.raw --duration 100ms"] {
            let ran = stand.run(verb);
            assert!(codes.contains(&ran.code), "{what}: {verb}: {} {}", ran.code, ran.err);
            assert!(ran.code == 0 || ran.err.contains("take."), "{what}: {verb}: {}", ran.err);
        }
    };
    for (what, text) in [
        ("no JSON", "{".to_owned()),
        ("another version", sound.replace("\"version\": 1", "\"version\": 9")),
        ("a file elsewhere", sound.replace("01-test-1.wav", "../../etc/passwd")),
        ("a file of ours", sound.replace("01-test-1.wav", "take.journal")),
        (
            "a longer file than any",
            sound.replace("\"frames\": 9000", "\"frames\": 9000000000000000000"),
        ),
        ("no rate", sound.replace("\"rate\": 48000", "\"rate\": 0")),
        ("no channels", sound.replace("\"channels\": 1", "\"channels\": 0")),
    ] {
        assert_ne!(text, sound, "{what}");
        fs::write(&json, text).unwrap();
        is_told(what, &[1, 13]);
    }
    fs::write(&json, &sound).unwrap();
    // A journal that is none, or another take's: play needs none.
    for (what, bytes) in [("no journal", &b""[..]), ("another journal", &vouched[..40])] {
        fs::write(&journal, bytes).unwrap();
        let ran = stand.run("verify t");
        assert!(
            ran.code != 0 && ran.err.contains("this journal does not belong to this take"),
            "{what}: {}",
            ran.err
        );
    }
}

/// A file system, or `ulimit -f`, limits the size of a file. SIGXFSZ ended the recorder, and EFBIG the
/// take.
#[test]
fn a_file_that_may_not_grow_is_continued_in_a_new_one() {
    let stand = Stand::new();
    let line = "record t --to . --ring 1M --no-realtime --poly --json \
                test:streams=2,rate=48000,channels=2,frames=1920000,pace=free";
    let recorder = stand.command(line);
    let mut limited = Command::new("prlimit");
    limited.arg("--fsize=4000000").arg(recorder.get_program()).args(recorder.get_args());
    limited.current_dir(stand.path("."));
    set_home(&mut limited, &stand.path("home"));
    let output = limited.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let files = fs::read_dir(stand.path("t")).unwrap().map(|it| it.unwrap().file_name());
    let files = files.filter(|it| it.to_string_lossy().ends_with(".wav")).count();
    assert!(files >= 6, "{files} files of 23 MB");
    let verified = stand.run("verify t --json");
    assert_eq!(verified.code, 0, "{}", verified.err);
    assert_eq!(verified.summary()["right_frames"], 1_920_000);
}

/// The process was stopped: the disk is not blamed.
#[test]
fn a_recorder_that_was_stopped_says_so() {
    let stand = Stand::new();
    let line = format!("record t --to . {FAST} test:streams=1,rate=96000 --duration 6s");
    let mut recorder = Recorder::start(&stand, &line);
    recorder.await_event("recording");
    let id = recorder.child.id().to_string();
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    };
    signal("-STOP");
    std::thread::sleep(std::time::Duration::from_secs(2));
    signal("-CONT");
    let problem = recorder.await_problem("frames were lost");
    let advice = problem["advice"].as_str().unwrap();
    assert!(advice.contains("the recorder did not run for"), "{problem}");
}
