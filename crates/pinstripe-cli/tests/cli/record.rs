//! The recorder as its users meet it: takes made, killed, recovered, verified, controlled.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::stand::{Stand, noise};

pub const FAST: &str = "--ring 64K --chunk 8K --no-realtime";

/// A recorder that runs, and its events.
pub struct Recorder {
    pub child: Child,
    events: BufReader<std::process::ChildStdout>,
}

impl Recorder {
    pub fn start(stand: &Stand, line: &str) -> Self {
        let mut command = stand.command(&format!("{line} --json"));
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let events = BufReader::new(child.stdout.take().unwrap());
        Recorder { child, events }
    }

    /// The next event of this name.
    pub fn await_event(&mut self, name: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.events.read_line(&mut line).unwrap() > 0, "no event {name} came");
            let event: Value = serde_json::from_str(&line).unwrap();
            if event["event"] == name {
                return event;
            }
        }
    }

    /// The next problem of which this is said. A file system may be worth a word of its own.
    pub fn await_problem(&mut self, what: &str) -> Value {
        loop {
            let problem = self.await_event("problem");
            if problem["what"].as_str().unwrap().contains(what) {
                return problem;
            }
        }
    }

    /// Interrupts it as ^C does; its summary.
    pub fn interrupt(mut self) -> Value {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let summary = self.await_event("summary");
        self.child.wait().unwrap();
        summary
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

pub fn manifest(stand: &Stand, take: &str) -> Value {
    serde_json::from_slice(&fs::read(stand.path(take).join("take.json")).unwrap()).unwrap()
}

#[test]
fn a_take_is_recorded_measured_and_verified() {
    let stand = Stand::new();
    fs::create_dir(stand.path("a")).unwrap();
    let line = "record one --to a test:streams=4,rate=48000 --duration 1s --measure=200ms \
                --no-realtime --json";
    let ran = stand.run(line);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let calibration = &ran.events_of("calibration")[0];
    let needed = calibration["ring_needed_bytes"].as_u64().unwrap();
    let ring = calibration["ring_bytes"].as_u64().unwrap();
    assert!(ring >= needed && ring.is_power_of_two(), "{calibration}");
    assert_eq!(ran.events_of("take")[0]["ring_bytes"], ring);
    assert_eq!(ran.events_of("stream").len(), 4);
    assert_eq!(fs::read_dir(stand.path("a")).unwrap().count(), 1, "nothing is left of measuring");
    let verified = stand.run("verify a/one --json");
    assert_eq!(verified.code, 0, "{}", verified.err);
    assert_eq!(verified.summary()["right_frames"], 4 * 48_000);
    assert_eq!(stand.run("record one --to a --ring 64K test: --json").code, 1);
    let recovered = stand.run("recover a/one --json");
    assert_eq!(recovered.summary()["was_complete"], true);
}

/// Without a ring size a take begins at once. What it saw of the disk decides for the next one.
#[test]
fn a_take_begins_without_a_measurement_and_the_next_one_uses_what_it_saw() {
    let stand = Stand::new();
    let take = |name: &str, options: &str| {
        let input = "test:streams=2,rate=48000,frames=9600,pace=free";
        let ran =
            stand.run(&format!("record {name} --to . {options} --no-realtime --json {input}"));
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(ran.events_of("calibration").len(), usize::from(options.contains("measure")));
        let rings = ran.events_of("rings")[0].clone();
        (rings["source"].as_str().unwrap().to_owned(), rings["ring_bytes"].as_u64().unwrap())
    };
    // 4 s of 48 kHz and 24 bits.
    assert_eq!(take("a", ""), ("default".to_owned(), 1 << 20));
    assert_eq!(take("b", "--ring 64K"), ("option".to_owned(), 64 << 10));
    assert_eq!(take("c", "--measure=200ms").0, "measurement");
    assert_eq!(take("d", "").0, "measurement", "the last measurement of this disk");
    let files = stand
        .path("home/.local/state/pinstripe/record")
        .read_dir()
        .unwrap()
        .map(|it| it.unwrap().path());
    let file = files.last().expect("the observations of a disk");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\"is_measured\": true", "\"is_measured\": false")).unwrap();
    let (source, ring) = take("e", "");
    assert_eq!(source, "takes");
    assert!(ring >= 144_000, "a second of the stream: {ring}");
}

#[test]
fn what_makes_no_sense_is_refused_with_its_reason() {
    let stand = Stand::new();
    for (line, code, part) in [
        ("record t --to . --ring 128K test:streams=10000", 14, "1.2 GiB"),
        ("record t --to . --ring 100K test:", 2, "power of two"),
        ("record t --to . --ring 64K --mirror test:", 2, "two directories"),
        ("record t --to . --ring 64K pcm:f,rate=48000,channels=2,format=s25", 2, "s25"),
        ("record t --to missing --ring 64K test:", 11, "missing"),
        ("record a/b --to . --ring 64K test:", 2, "the name of a take"),
        ("record t --to . --ring 64K --segment 4q test:", 2, "30min"),
        ("record t --to . --pre-roll 1s --format flac test:", 2, "cannot have a pre-roll"),
        (
            "record t --to . --armed --play other --play-to null test:",
            2,
            "cannot be combined with --play",
        ),
        (
            "record t --to . --pre-roll 1s --play other --play-to null test:",
            2,
            "cannot be combined with --play",
        ),
        ("record t --to . --to ./ --ring 64K test:", 2, "twice"),
        ("record t --to . --ring 64K pcm:.,rate=48000,channels=1,format=s16", 2, "is a directory"),
        ("record t --to . --ring 64K raw:- pcm:-,rate=8,channels=1,format=u8", 2, "two inputs"),
        ("record t --to . --ring 64K test:rate=8000,rate=9000", 2, "twice"),
        ("record ctl status nowhere", 11, "no take is being recorded"),
        ("recover .", 11, "there is no take in this directory"),
    ] {
        let ran = stand.run(line);
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
        assert!(ran.err.contains(part), "{line}: {}", ran.err);
    }
    assert!(!stand.path("t").exists());
}

#[test]
fn killed_at_any_moment_a_take_keeps_all_that_was_durable() {
    let stand = Stand::new();
    for round in pinstripe_testing::chosen_seeds("PINSTRIPE_RECORD_SEEDS", 0..5) {
        let take = format!("t{round}");
        let line = format!("record {take} --to . {FAST} test:streams=16,rate=48000");
        let mut recorder = Recorder::start(&stand, &line);
        recorder.await_event("recording");
        recorder.await_event("recording");
        // Somewhere within the next commit: the seed says where.
        std::thread::sleep(std::time::Duration::from_millis(137 * round % 1000));
        let shown = stand.run(&format!("record ctl status {take} --json"));
        recorder.kill();
        let safe = safe_frames(&shown.events_of("recording")[0]);
        let before = headers(&stand, &take);
        let recovered = stand.run(&format!("recover {take} --json"));
        assert_eq!(recovered.code, 0, "{}", recovered.err);
        let files = recovered.events_of("recovered");
        assert_eq!(files.len(), 16);
        // Two seconds were told to go on; one of them at least is durable.
        for (file, promised) in files.iter().zip(before) {
            let frames = file["frames"].as_u64().unwrap();
            assert!(frames >= 30_000 && frames >= promised, "{file} {promised}");
            assert!(frames >= safe, "{file}: {safe} frames were older than the lag that was shown");
        }
        let verified = stand.run(&format!("verify {take} --json"));
        assert_eq!(verified.code, 0, "{}", verified.err);
        assert_eq!(verified.summary()["wrong_frames"], 0);
        let path = stand.path(&take).join("01-test-1.wav");
        match Command::new("soxi").arg("-s").arg(path).output() {
            Ok(told) => {
                let frames = String::from_utf8_lossy(&told.stdout).trim().parse::<u64>();
                assert_eq!(frames.ok(), files[0]["frames"].as_u64());
            }
            Err(_) => pinstripe_testing::not_installed("killed_at_any_moment", "soxi"),
        }
    }
}

/// Frames of each stream that were durable by what a status said: those older than its lag. On a
/// busy machine the clock of the test streams may be late and have made fewer, here by half a second at
/// most.
fn safe_frames(status: &Value) -> u64 {
    let seconds = |name: &str| status[name].as_f64().unwrap();
    let safe = seconds("elapsed_seconds") - seconds("durable_lag_ms") / 1e3 - 0.5;
    assert!(seconds("durable_lag_ms") > 0.0, "{status}");
    (safe.max(0.0) * 48_000.0) as u64
}

/// Frames that the headers of a take's files tell, by name.
fn headers(stand: &Stand, take: &str) -> Vec<u64> {
    let mut paths: Vec<_> = fs::read_dir(stand.path(take))
        .unwrap()
        .map(|it| it.unwrap().path())
        .filter(|it| it.extension().is_some_and(|it| it == "wav"))
        .collect();
    paths.sort();
    let frames = |path: &std::path::PathBuf| {
        let head = fs::read(path).unwrap();
        u64::from(u32::from_le_bytes(head[4092..4096].try_into().unwrap()) / 3)
    };
    paths.iter().map(frames).collect()
}

#[test]
fn a_running_recorder_answers_and_does_as_it_is_told() {
    let stand = Stand::new();
    let line = format!("record gig --to . {FAST} test:streams=3,rate=48000");
    let mut recorder = Recorder::start(&stand, &line);
    recorder.await_event("recording");
    let status = stand.run("record ctl status gig --json");
    assert_eq!(status.code, 0, "{}", status.err);
    let told = &status.events_of("recording")[0];
    assert_eq!((&told["is_recording"], &told["streams"]), (&true.into(), &3.into()));
    assert_eq!(stand.run("recover gig").code, 18, "it is being recorded");
    assert_eq!(stand.run("verify gig").code, 18);
    assert_eq!(stand.run("record ctl mark gig refrain").code, 0);
    assert_eq!(stand.run("record ctl split gig").code, 0);
    recorder.await_event("recording");
    recorder.await_event("recording");
    assert_eq!(stand.run("record ctl stop gig").code, 0);
    let summary = recorder.await_event("summary");
    assert_eq!((&summary["exit_code"], &summary["files"]), (&0.into(), &6.into()));
    recorder.child.wait().unwrap();
    let manifest = manifest(&stand, "gig");
    assert_eq!(manifest["marks"][0]["text"], "refrain");
    assert_eq!(stand.run("verify gig").code, 0);
    assert_eq!(stand.run("record ctl status gig").code, 11);
}

#[test]
fn an_armed_take_is_begun_armed_and_disarmed_from_outside() {
    let stand = Stand::new();
    let line = format!("record gig --to . {FAST} --armed test:streams=4,rate=48000");
    let mut recorder = Recorder::start(&stand, &line);
    assert_eq!(recorder.await_event("take")["phase"], "armed");
    let told = |what: &str| {
        let ran = stand.run(&format!("record ctl {what} --json"));
        assert_eq!(ran.code, 0, "{what}: {}", ran.err);
        ran.events_of("recording").remove(0)
    };
    let status = told("status gig");
    assert_eq!((&status["phase"], &status["is_recording"]), (&"armed".into(), &false.into()));
    assert!(status["left_seconds"].as_f64().is_some_and(|it| it > 0.0), "{status}");
    for (line, code, part) in [
        ("mark gig early", 14, "not begun"),
        ("split gig", 14, "not begun"),
        ("arm gig 5", 11, "no stream '5'"),
        ("arm gig", 2, "needs a stream"),
        ("start gig now", 2, "takes no text"),
    ] {
        let ran = stand.run(&format!("record ctl {line}"));
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
        assert!(ran.err.contains(part), "{line}: {}", ran.err);
    }
    assert_eq!(told("disarm gig 2,4")["armed_streams"], 2);
    let begun = told("start gig");
    assert_eq!((&begun["phase"], &begun["is_recording"]), (&"recording".into(), &true.into()));
    assert_eq!((&begun["take"], &begun["streams"]), (&"gig".into(), &4.into()));
    assert_eq!(begun["disarmed"], serde_json::json!(["test-2", "test-4"]));
    assert_eq!(stand.run("record ctl start gig").code, 14, "it has begun");
    while recorder.await_event("recording")["phase"] != "recording" {}
    recorder.await_event("recording");
    let plain = stand.run("record ctl arm gig test-4");
    assert!(plain.out.starts_with("recording 'gig': 3 of 4 streams, 0:00:0"), "{}", plain.out);
    recorder.await_event("recording");
    assert_eq!(told("stop gig")["phase"], "stopping");
    let summary = recorder.await_event("summary");
    assert_eq!((&summary["exit_code"], &summary["files"]), (&0.into(), &3.into()));
    recorder.child.wait().unwrap();
    let verified = stand.run("verify gig --json").summary();
    assert_eq!((&verified["wrong_frames"], &verified["damaged_bytes"]), (&0.into(), &0.into()));
    assert_eq!(verified["files"], 3, "one was made ahead and removed, since nothing came into it");
    let names: Vec<String> = fs::read_dir(stand.path("gig"))
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .filter(|it| it.ends_with(".wav"))
        .collect();
    // The one that was armed late says where it begins.
    let late = names.iter().filter(|it| it.starts_with("04-test-4@"));
    assert_eq!((names.len(), late.count()), (3, 1), "{names:?}");
}

#[test]
fn a_take_that_never_begins_leaves_nothing_and_killed_it_is_put_in_order() {
    let stand = Stand::new();
    let line = format!("record t --to . {FAST} --armed test:streams=3");
    let mut recorder = Recorder::start(&stand, &line);
    recorder.await_event("recording");
    assert_eq!(stand.run("record ctl stop t").code, 0);
    let summary = recorder.await_event("summary");
    assert_eq!((&summary["exit_code"], &summary["files"]), (&0.into(), &0.into()));
    recorder.child.wait().unwrap();
    assert!(!stand.path("t").exists());
    let line = format!("record t --to . {FAST} --pre-roll 1s test:streams=3");
    let mut recorder = Recorder::start(&stand, &line);
    recorder.await_event("recording");
    recorder.kill();
    assert_eq!(fs::metadata(stand.path("t/take.preroll")).unwrap().len(), 3 * 147_456);
    assert_eq!(stand.run("verify t").code, 0);
    let recovered = stand.run("recover t --json");
    assert_eq!(recovered.code, 0, "{}", recovered.err);
    assert_eq!(recovered.summary()["never_began"], true);
    let left: Vec<_> =
        fs::read_dir(stand.path("t")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(left.iter().all(|it| it == "take.json" || it == "take.journal"), "{left:?}");
    assert_eq!(stand.run("recover t --json").summary()["was_complete"], true);
}

#[test]
fn a_take_with_pre_roll_is_as_long_as_both_together() {
    let stand = Stand::new();
    let line = "record t --to . --ring 1M --chunk 8K --no-realtime --pre-roll 500ms --duration 750ms \
                test:streams=4,rate=48000";
    let mut recorder = Recorder::start(&stand, line);
    while recorder.await_event("recording")["pre_roll_seconds"] != 0.5 {}
    let begun = stand.run("record ctl start t --json");
    assert_eq!(begun.code, 0, "{}", begun.err);
    assert_eq!(begun.events_of("recording")[0]["pre_roll_seconds"], 0.5);
    let summary = recorder.await_event("summary");
    assert_eq!((&summary["exit_code"], &summary["files"]), (&0.into(), &4.into()));
    recorder.child.wait().unwrap();
    let verified = stand.run("verify t --json").summary();
    assert_eq!(
        (&verified["right_frames"], &verified["wrong_frames"]),
        (&240_000.into(), &0.into())
    );
    let manifest = manifest(&stand, "t");
    assert_eq!(manifest["marks"][0]["frames"], serde_json::json!([24_000, 24_000, 24_000, 24_000]));
    // Other programs find one file of that length, and the place of the order in it.
    match Command::new("soxi").arg("-s").arg(stand.path("t/01-test-1.wav")).output() {
        Ok(told) => assert_eq!(String::from_utf8_lossy(&told.stdout).trim(), "60000"),
        Err(_) => pinstripe_testing::not_installed("a_take_with_pre_roll", "soxi"),
    }
    assert_eq!(stand.run("play t --to pcm:out.raw").code, 0);
    assert_eq!(fs::metadata(stand.path("out.raw")).unwrap().len(), 4 * 3 * 60_000);
    assert_eq!(stand.run(&format!("record u --to . {FAST} --pre-roll 11m test:")).code, 2);
}

#[test]
fn an_interrupt_ends_a_take_whole() {
    let stand = Stand::new();
    let line = format!("record t --to . {FAST} test:streams=3");
    let mut recorder = Recorder::start(&stand, &line);
    recorder.await_event("recording");
    assert_eq!(recorder.interrupt()["exit_code"], 0);
    assert_eq!(stand.run("verify t").code, 0);
}

#[test]
fn samples_of_other_programs_come_out_as_they_went_in() {
    let stand = Stand::new();
    let samples = noise(7, 4 * 30_000);
    fs::write(stand.path("in.raw"), &samples).unwrap();
    let from_file = format!(
        "record file --to . {FAST} --format raw --poly pcm:in.raw,rate=48000,channels=2,format=s16"
    );
    assert_eq!(stand.run(&from_file).code, 0);
    assert_eq!(fs::read(stand.path("file/01-in.raw")).unwrap(), samples);
    // One file for each channel, from standard input.
    let line =
        format!("record pipe --to . {FAST} --format raw pcm:-,rate=48000,channels=2,format=s16");
    let mut child =
        stand.command(&line).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&samples).unwrap();
    assert!(child.wait().unwrap().success());
    let sides =
        ["pipe/01-stdin-1.raw", "pipe/02-stdin-2.raw"].map(|it| fs::read(stand.path(it)).unwrap());
    let joined: Vec<u8> =
        sides[0].chunks(2).zip(sides[1].chunks(2)).flat_map(|(l, r)| [l, r].concat()).collect();
    assert_eq!(joined, samples);
    // Two inputs in one take: any bytes from a socket, and a FIFO whose writer comes late.
    let listener = UnixListener::bind(stand.path("socket")).unwrap();
    assert!(Command::new("mkfifo").arg(stand.path("fifo")).status().unwrap().success());
    let line = format!(
        "record two --to . {FAST} --format raw raw:unix:socket --poly pcm:fifo,rate=48000,channels=1,format=s24be"
    );
    let mut recorder = Recorder::start(&stand, &line);
    let (mut socket, _) = listener.accept().unwrap();
    socket.write_all(&samples[..1234]).unwrap();
    drop(socket);
    recorder.await_event("recording");
    let mut fifo = fs::OpenOptions::new().write(true).open(stand.path("fifo")).unwrap();
    // Its last two bytes are no whole sample.
    fifo.write_all(&samples[..3002]).unwrap();
    drop(fifo);
    assert_eq!(recorder.await_problem("not a complete frame")["severity"], "warning");
    assert_eq!(recorder.await_event("summary")["exit_code"], 0);
    recorder.child.wait().unwrap();
    assert_eq!(fs::read(stand.path("two/01-socket.raw")).unwrap(), samples[..1234]);
    let swapped: Vec<u8> = samples[..3000].chunks(3).flat_map(|it| [it[2], it[1], it[0]]).collect();
    assert_eq!(fs::read(stand.path("two/02-fifo.raw")).unwrap(), swapped);
}

#[test]
fn a_disk_that_is_full_ends_a_take_with_its_loss_named() {
    let stand = Stand::new();
    let line = format!(
        "record t --to . {FAST} test:streams=2,rate=192000 --fault op=write,after=20,error=ENOSPC --json"
    );
    let ran = stand.run(&line);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("ended at frame"), "{}", ran.err);
    assert_eq!(stand.run("verify t").code, 0);
    // With a second directory the streams go on there.
    ["a", "b"].iter().for_each(|it| fs::create_dir(stand.path(it)).unwrap());
    let line = format!(
        "record t --to a --to b --mirror {FAST} test:streams=2,frames=90000,pace=free --fault op=sync,after=900,error=EIO --json"
    );
    let ran = stand.run(&line);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(stand.run("verify a/t").code, 0);
}

#[test]
fn a_take_is_played_as_it_was_recorded() {
    let stand = Stand::new();
    let samples = noise(9, 4 * 60_000);
    fs::write(stand.path("in.raw"), &samples).unwrap();
    // Two files for each channel.
    let line = format!(
        "record t --to . {FAST} --segment 100K pcm:in.raw,rate=48000,channels=2,format=s16"
    );
    assert_eq!(stand.run(&line).code, 0);
    assert_eq!(stand.run("play t --to pcm:out.raw").code, 0);
    assert!(fs::read(stand.path("out.raw")).unwrap() == samples);
    let part = stand.command("play t --to pcm:- --from 1s --duration 250ms").output().unwrap();
    assert!(part.stdout == samples[4 * 48_000..4 * 60_000], "{}", part.stdout.len());
    let second = stand.command("play t --to pcm:- --stream 2").output().unwrap().stdout;
    let expected: Vec<u8> = samples.chunks(4).flat_map(|it| it[2..].to_vec()).collect();
    assert!(second == expected);
    let timed = stand.run("play t --to null --duration 200ms --json").summary();
    assert_eq!((&timed["frames"], &timed["streams"]), (&9_600.into(), &2.into()));
    assert_eq!(stand.run("play t --stream 3").code, 2);
    assert_eq!(stand.run("play t --to alsa").code, 2);
}

#[test]
fn the_way_to_the_disk_is_told_with_its_reason_and_each_way_keeps_every_frame() {
    let stand = Stand::new();
    for (way, used) in [("direct", "direct"), ("buffered", "buffered"), ("auto", "buffered")] {
        let ran = stand.run(&format!(
            "record {way} --to . {FAST} --writes {way} test:streams=3,frames=50000,pace=free --json"
        ));
        assert_eq!(ran.code, 0, "{}", ran.err);
        let take = &ran.events_of("take")[0];
        assert_eq!(take["writes"], used, "{take}");
        assert!(take["why"].as_str().is_some_and(|it| !it.is_empty()), "{take}");
        assert!(ran.summary()["slowest_commit"]["ms"].as_f64().unwrap() > 0.0);
        let verified = stand.run(&format!("verify {way} --json"));
        assert_eq!(verified.summary()["right_frames"], 150_000, "{way}: {}", verified.err);
    }
    let refused = stand.run(&format!("record t --to . {FAST} --writes odirect test:"));
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("a write policy: buffered, direct or auto"), "{}", refused.err);
}

#[test]
fn events_have_the_levels_of_all_streams() {
    let stand = Stand::new();
    let line = "record t --to . --ring 1M --chunk 4K --no-realtime test:streams=3,rate=8000 \
                --duration 3s --json";
    let ran = stand.run(line);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let events = ran.events_of("recording");
    // From the first one on. The content of test streams is noise of full scale.
    let levels = events[0]["levels_dbfs"].as_array().unwrap();
    let is_loud = levels.iter().all(|it| it.as_f64().is_some_and(|it| it > -1.0));
    assert!(levels.len() == 3 && is_loud, "{events:?}");
}

#[test]
fn a_reader_of_what_is_played_may_go_away() {
    let stand = Stand::new();
    let line = format!("record t --to . {FAST} test:streams=2,frames=400000,pace=free");
    assert_eq!(stand.run(&line).code, 0);
    let mut child = stand
        .command("play t --to pcm:-")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr), (Some(141), Vec::new()));
}
