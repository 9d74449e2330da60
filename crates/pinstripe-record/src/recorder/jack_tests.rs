//! Takes of a real JACK server, with a real client that gives samples.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::monitor::Counter;
use pinstripe_base::units::MIB;
use rustix::process::{Pid, Signal};

use super::tests::{Folders, on_disk, plan, verified};
use super::*;
use crate::input::parse_input;
use crate::jack::JackClient;
use crate::jack::generator::{Generator, MODULUS, STEP};
use crate::jack::testing::{self, RATE, await_server, end};
use crate::take::{RecordedGap, TakeState};

/// Runs a test of this module with a server.
fn with_server(test: &str, body: fn(u32)) {
    testing::with_server(&format!("recorder::jack_tests::{test}"), body);
}

fn jack_plan(most: Option<Duration>) -> TakePlan {
    TakePlan { kind: FileKind::Raw, ring_bytes: MIB, most, ..plan("t") }
}

/// Records what `text` names; `each` is called every second.
fn record_jack(
    plan: &TakePlan,
    text: &str,
    folders: &Folders,
    each: &mut dyn FnMut(&Arc<RunningTake>),
) -> (TakeOutcome, Arc<Monitor>) {
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let input = parse_input(text).unwrap().open(false).unwrap();
    let made = || Ok(folders.clone());
    let told = record(plan, vec![input], &made, (&stop, &monitor), &mut |take, _| each(take));
    (told.unwrap(), monitor)
}

/// Samples of a stream of 24 bits, from the first that is not silence on.
fn content(dir: &Path, outcome: &TakeOutcome, stream: usize) -> Vec<u32> {
    let file = outcome.manifest.pieces.iter().find(|it| it.stream as usize == stream).unwrap();
    let bytes = std::fs::read(dir.join("t").join(&file.file)).unwrap();
    let samples = bytes.chunks_exact(3).map(|it| u32::from_le_bytes([it[0], it[1], it[2], 0]));
    samples.skip_while(|sample| *sample == 0).collect()
}

/// On a machine that is busy a jump of the server's clock may make others.
fn longest_gap(outcome: &TakeOutcome) -> &RecordedGap {
    outcome.manifest.gaps.iter().max_by_key(|it| it.frames).unwrap()
}

fn is_continuous(samples: &[u32]) -> bool {
    samples.windows(2).all(|pair| pair[1] == (pair[0] + STEP) % MODULUS)
}

#[test]
#[ignore = "with --all: it starts jackd"]
fn every_sample_of_a_client_is_recorded() {
    with_server("every_sample_of_a_client_is_recorded", |_| {
        await_server();
        let _generator = Generator::start("gen", 8);
        let dir = tempfile::tempdir().unwrap();
        let folders = on_disk(&[dir.path()], "t", None);
        let plan = jack_plan(Some(Duration::from_secs(2)));
        let (outcome, monitor) = record_jack(&plan, "jack:gen:out_*", &folders, &mut |_| {});
        assert_eq!(monitor.get(Counter::Losses), 0);
        let names: Vec<_> = outcome.manifest.streams.iter().map(|it| it.name.as_str()).collect();
        assert_eq!((names.len(), names[0], names[7]), (8, "gen-out_1", "gen-out_8"));
        for stream in 0..8 {
            let piece = &outcome.manifest.pieces[stream];
            // On a machine that is busy it may have begun a little later than the take.
            assert_eq!(piece.start_frame + piece.frames, 2 * u64::from(RATE));
            let samples = content(dir.path(), &outcome, stream);
            // From the first one on: all ports were connected before the take began.
            assert!(samples.len() as u64 + 1 >= piece.frames, "{}", samples.len());
            assert!(is_continuous(&samples), "stream {stream}");
        }
        assert_eq!(verified(&folders).1, 0);
    });
}

#[test]
#[ignore = "with --all: it starts jackd"]
fn a_port_that_comes_back_goes_on_behind_a_gap() {
    with_server("a_port_that_comes_back_goes_on_behind_a_gap", |_| {
        await_server();
        let mut leaves = Some(Generator::start("leaves", 1));
        let dir = tempfile::tempdir().unwrap();
        let folders = on_disk(&[dir.path()], "t", None);
        let mut seconds = 0;
        let plan = jack_plan(Some(Duration::from_secs(6)));
        let mut each = |_: &Arc<RunningTake>| {
            seconds += 1;
            match seconds {
                2 => leaves = None,
                4 => leaves = Some(Generator::start("leaves", 1)),
                _ => {}
            }
        };
        let (outcome, monitor) = record_jack(&plan, "jack:leaves:out_*", &folders, &mut each);
        // That it went, that it came back, and on a busy machine that the server missed a deadline.
        assert_eq!(monitor.get(Counter::Losses), 1);
        assert!(monitor.get(Counter::Warnings) >= 2);
        let gap = longest_gap(&outcome);
        assert!(gap.frames > 48_000 && gap.frame + gap.frames < 6 * 48_000, "{gap:?}");
        let mut back = content(dir.path(), &outcome, 0);
        let left = (6 * 48_000 - (gap.frame + gap.frames)) as usize;
        back.drain(..back.len() - left);
        let first = back.iter().position(|it| *it != 0).unwrap();
        assert!(first < 48_000 / 4 && is_continuous(&back[first..]), "{first}");
    });
}

#[test]
#[ignore = "with --all: it starts jackd"]
fn a_server_that_is_killed_ends_the_take_and_nothing_before_is_lost() {
    with_server("a_server_that_is_killed_ends_the_take_and_nothing_before_is_lost", |server| {
        await_server();
        let _generator = Generator::start("gen", 4);
        let dir = tempfile::tempdir().unwrap();
        let folders = on_disk(&[dir.path()], "t", None);
        let mut seconds = 0;
        let mut kill = |_: &Arc<RunningTake>| {
            seconds += 1;
            if seconds == 3 {
                end(server, Signal::KILL);
            }
        };
        let (outcome, monitor) = record_jack(&jack_plan(None), "jack:gen:*", &folders, &mut kill);
        assert_eq!(monitor.get(Counter::Losses), 1, "the server ended");
        assert_eq!(outcome.manifest.state, TakeState::Complete);
        for stream in 0..4 {
            let samples = content(dir.path(), &outcome, stream);
            assert!(!samples.is_empty() && is_continuous(&samples), "stream {stream}");
        }
        assert_eq!(verified(&folders).1, 0);
    });
}

#[test]
#[ignore = "with --all: it starts jackd"]
fn a_port_that_goes_away_leaves_silence_and_the_others_go_on() {
    with_server("a_port_that_goes_away_leaves_silence_and_the_others_go_on", |_| {
        await_server();
        let mut leaves = Some(Generator::start("leaves", 1));
        let _stays = Generator::start("stays", 1);
        let dir = tempfile::tempdir().unwrap();
        let folders = on_disk(&[dir.path()], "t", None);
        let mut seconds = 0;
        let plan = jack_plan(Some(Duration::from_secs(4)));
        let mut leave = |_: &Arc<RunningTake>| {
            seconds += 1;
            if seconds == 2 {
                leaves = None;
            }
        };
        let (outcome, monitor) = record_jack(&plan, "jack:out_*", &folders, &mut leave);
        // What did not come is counted, told, and stands in the manifest as one gap.
        assert_eq!(monitor.get(Counter::Losses), 1);
        let gap = longest_gap(&outcome);
        assert!(gap.frames <= outcome.last.missing_frames);
        assert_eq!(gap.frame + gap.frames, 4 * 48_000);
        let of = |name: &str| {
            outcome.manifest.streams.iter().position(|it| it.name.starts_with(name)).unwrap()
        };
        let mut gone = content(dir.path(), &outcome, of("leaves"));
        let silence = gone.iter().rev().take_while(|sample| **sample == 0).count();
        assert!(silence > RATE as usize / 2, "{silence} frames of silence");
        assert!((silence as u64).abs_diff(gap.frames) < u64::from(RATE) / 5, "{silence} {gap:?}");
        gone.truncate(gone.len() - silence);
        assert!(!gone.is_empty() && is_continuous(&gone));
        assert!(is_continuous(&content(dir.path(), &outcome, of("stays"))));
        let mut pieces = outcome.manifest.pieces.iter();
        assert!(pieces.all(|it| it.start_frame + it.frames == 4 * u64::from(RATE)));
    });
}

#[test]
#[ignore = "with --all: it starts jackd"]
fn no_server_and_no_port_are_said() {
    with_server("no_server_and_no_port_are_said", |server| {
        await_server();
        let open = |text: &str| parse_input(text).unwrap().open(false).err().unwrap();
        assert_eq!(open("jack:nobody:*").kind(), Kind::NotFound);
        end(server, Signal::TERM);
        while rustix::process::test_kill_process(Pid::from_raw(server as i32).unwrap()).is_ok()
            && JackClient::open("looks").is_ok()
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        let error = open("jack:nobody:*");
        assert_eq!(error.kind(), Kind::NotFound);
        assert!(error.to_string().contains("no JACK server"), "{error}");
    });
}
