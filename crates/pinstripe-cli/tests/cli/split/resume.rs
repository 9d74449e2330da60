//! A split that is killed is incomplete, says so, and is gone on with.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use super::{LAYOUTS, names};
use crate::stand::{Stand, each_at_once};

const MIB: u64 = 1 << 20;
/// How often an output is looked at. A busy machine may look much later than that: what is to be
/// killed is slow enough to have seconds left then.
const LOOK: Duration = Duration::from_millis(2);
const SOURCE_BYTES: u64 = 26 * MIB + 12_345;

/// Begins a split and kills it when its first output has so many bytes.
#[track_caller]
fn kill_at(stand: &Stand, line: &str, bytes: u64) {
    let mut command = stand.command(line);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Plain outputs have their length at once; their logs grow.
    let log = ["o0.pinstripe", "o0"].map(|it| stand.path(it));
    let grown = || log.iter().find_map(|it| Some(fs::metadata(it).ok()?.len())).unwrap_or(0);
    while grown() < bytes {
        assert!(child.try_wait().unwrap().is_none(), "{line}: it ended by itself");
        sleep(LOOK);
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None);
}

fn assert_incomplete(stand: &Stand, outputs: usize) {
    let outs = names(outputs);
    for verb in ["join", "verify", "cat --range 0..1"] {
        let ran = stand.run(&format!("{verb} {outs}"));
        assert_eq!(ran.code, 14, "{verb}: {}", ran.err);
        assert!(ran.err.contains("the split is incomplete"), "{verb}: {}", ran.err);
        assert!(ran.err.contains("--resume"), "{verb}: {}", ran.err);
    }
    let ran = stand.run(&format!("inspect {outs} --json"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let told = ran.events_of("output");
    assert!(told.len() == outputs && told.iter().all(|it| it["complete"] == false));
    assert!(stand.run("inspect o0").out.contains("no: the split was interrupted"));
}

/// What is there of it is right, wherever it is.
fn assert_best_effort(stand: &Stand, outputs: usize, source: &[u8]) -> u64 {
    let (ran, joined) = stand.join(&format!("{} --best-effort", names(outputs)));
    assert!([0, 3].contains(&ran.code), "{}", ran.err);
    let joined = joined.unwrap();
    assert_eq!(joined.len(), source.len());
    let mut rest = source.to_vec();
    for problem in ran.events_of("problem") {
        let what = problem["what"].as_str().unwrap();
        let Some(range) = what.strip_prefix("bytes ").and_then(|it| it.strip_suffix(" are lost"))
        else {
            continue;
        };
        let (start, end) = range.split_once("..").unwrap();
        rest[start.parse().unwrap()..end.parse().unwrap()].fill(0);
    }
    assert!(joined == rest);
    ran.summary()["lost_bytes"].as_u64().unwrap()
}

#[test]
#[ignore = "with --all: it takes 9 s"]
fn a_killed_split_of_any_layout_is_gone_on_with() {
    // The first part of each is slow on purpose.
    each_at_once(3, &LAYOUTS, |&(layout, outputs)| {
        let stand = Stand::new();
        let source = stand.source(SOURCE_BYTES);
        let codec = if layout.contains("codec") { "" } else { "--codec raw" };
        let line = format!("split src {} {layout} {codec} --memory 64M", names(outputs));
        let delay = if layout.contains("strip") { "1ms" } else { "150ms" };
        let slow = format!("{line} --depth 1 --fault op=write,delay={delay}");
        // A batch of the first output, or of three whole sets; of the log beside, two batches.
        let some = match layout {
            _ if layout.contains("codec raw") => 8192 + 2 * 8192,
            _ if layout.contains("strip") => 8192 + 7 * MIB / 2,
            _ if layout.contains("lz4") => 8192 + 3 * MIB,
            _ => 8192 + 5 * MIB,
        };
        kill_at(&stand, &slow, some);
        assert_incomplete(&stand, outputs);
        let lost = assert_best_effort(&stand, outputs, &source);
        assert!(lost < SOURCE_BYTES, "{layout}: nothing is there");
        // Killed again on its way, and then to the end.
        kill_at(&stand, &format!("{slow} --resume"), some + 1);
        assert_best_effort(&stand, outputs, &source);
        let ran = stand.run(&format!("{line} --resume --json"));
        assert_eq!(ran.code, 0, "{layout}: {}", ran.err);
        let summary = ran.summary();
        let (resumed, read) = (&summary["resumed_bytes"], &summary["read_bytes"]);
        assert!(resumed.as_u64() > Some(0), "{layout}: {summary}");
        assert_eq!(resumed.as_u64().unwrap() + read.as_u64().unwrap(), SOURCE_BYTES, "{layout}");
        assert_eq!(summary["blake3"], blake3::hash(&source).to_hex().as_str(), "{layout}");
        stand.assert_whole(outputs, &source);
        let ran = stand.run(&format!("{line} --resume"));
        assert_eq!(ran.code, 1, "{layout}: {}", ran.err);
        assert!(ran.err.contains("the split is already complete"), "{layout}: {}", ran.err);
        stand.assert_whole(outputs, &source);
    });
}

#[test]
fn only_the_same_split_is_gone_on_with() {
    let stand = Stand::new();
    let source = stand.source(SOURCE_BYTES);
    let line = "split src o0 o1 --codec raw --memory 64M";
    kill_at(&stand, &format!("{line} --depth 1 --fault op=write,delay=150ms"), 8192 + 5 * MIB);
    let before = fs::read(stand.output(0)).unwrap();
    fs::copy(stand.path("src"), stand.path("copy")).unwrap();
    for (other, code) in [
        ("split copy o0 o1 --resume", 12),
        ("split src o1 o0 --resume", 12),
        ("split src o0 --resume", 12),
        ("split src o0 o1 --resume --block-size 4K", 12),
        ("split src o0 o1 --resume --layout stripes", 12),
        ("split src o0 o1 --resume --layout ranges --codec lz4", 12),
        ("split src o0 o1 o2 --resume", 11),
        ("split src o0 o1", 1),
        ("split fake:26M o0 o1 --resume", 12),
    ] {
        let ran = stand.run(other);
        assert_eq!(ran.code, code, "{other}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
    }
    assert!(fs::read(stand.output(0)).unwrap() == before, "what was refused changed nothing");
    // Another codec is no other split.
    assert_eq!(stand.run("split src o0 o1 --codec lz4 --resume -q").code, 0);
    stand.assert_whole(2, &source);
    // A source that was written since.
    kill_at(
        &stand,
        &format!("{line} --force --depth 1 --fault op=write,delay=150ms"),
        8192 + 3 * MIB,
    );
    let mut changed = source.clone();
    changed[SOURCE_BYTES as usize / 2] ^= 1;
    fs::write(stand.path("src"), changed).unwrap();
    let ran = stand.run(&format!("{line} --resume"));
    assert_eq!(ran.code, 12, "{}", ran.err);
    assert!(
        ran.err.contains("this output does not belong to the split that was interrupted"),
        "{}",
        ran.err
    );
}

#[test]
fn a_killed_split_of_a_pipe_is_gone_on_with_and_another_pipe_is_noticed() {
    let stand = Stand::new();
    let source = stand.source(SOURCE_BYTES);
    let feed = |line: &str, bytes: usize| {
        use std::io::Write;
        let mut command = stand.command(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let bytes = source[..bytes].to_vec();
        let feeder = std::thread::spawn(move || {
            let _ = stdin.write_all(&bytes);
        });
        (child, feeder)
    };
    let line = "split - o0 o1 --codec raw --memory 64M";
    let slow = format!("{line} --depth 1 --fault op=write,delay=150ms");
    let (mut child, feeder) = feed(&slow, source.len());
    while !fs::metadata(stand.output(0)).is_ok_and(|it| it.len() > 8192 + 5 * MIB) {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        sleep(LOOK);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    feeder.join().unwrap();
    let (child, feeder) = feed(&format!("{line} --resume"), 5000);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("this stream differs from the stream whose first part is already split"),
        "{said}"
    );
    feeder.join().unwrap();
    let (child, feeder) = feed(&format!("{line} --resume"), source.len());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    feeder.join().unwrap();
    stand.assert_whole(2, &source);
}
