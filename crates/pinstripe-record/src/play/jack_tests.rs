//! Takes that are played on a real JACK server, to a real client that keeps what it hears.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::input::parse_input;
use crate::jack::listener::CaptureClient;
use crate::jack::testing::{await_server, with_server};
use crate::recorder::tests::take_of;
use crate::sample::{SampleFormat, fill_test};

const FRAMES: u64 = 60_000;

fn test_take(dir: &Path, input: &str, is_poly: bool) {
    let input = parse_input(input).unwrap().open(is_poly).unwrap();
    take_of(dir, "t", vec![input]);
}

fn plan(from: Duration) -> PlayPlan {
    PlayPlan { from, most: None, ring_bytes: 16 << 10, streams: Vec::new() }
}

/// Plays to a client with so many ports; what each port heard, from the first sound on.
fn heard(dir: &Path, plan: &PlayPlan, ports: usize) -> (PlayOutcome, Vec<Vec<f32>>) {
    let samples = 5 * 48_000;
    let listener = CaptureClient::start("listener", ports, samples, 0);
    let (stop, monitor) = (Stop::new().unwrap(), Monitor::default());
    let sink = PlaySink::Jack("listener:in_*".to_owned());
    let outcome = play(&dir.join("t"), plan, sink, (&stop, &monitor)).unwrap();
    let mut kept = listener.stop();
    let first = kept.iter().map(|it| it.iter().position(|it| *it != 0.0).unwrap()).min().unwrap();
    kept.iter_mut().for_each(|it| {
        it.drain(..first);
    });
    (outcome, kept)
}

/// The samples of a channel of a test stream, as a server has them.
fn expected(shape: &StreamShape, stream: u64, channel: usize, frames: (u64, u64)) -> Vec<f32> {
    let size = shape.frame_bytes() as usize;
    let mut bytes = vec![0; frames.1 as usize * size];
    fill_test(shape, stream, frames.0, &mut bytes);
    let width = shape.format.bytes() as usize;
    let sample = |frame: &[u8]| match shape.format {
        SampleFormat::S16 => {
            let at = 2 * channel;
            f32::from(i16::from_le_bytes([frame[at], frame[at + 1]])) / 32_768.0
        }
        _ => {
            let at = width * channel;
            let word = [0, frame[at], frame[at + 1], frame[at + 2]];
            (i32::from_le_bytes(word) >> 8) as f32 / 8_388_608.0
        }
    };
    bytes.chunks_exact(size).map(sample).collect()
}

#[test]
#[ignore = "with --all: it starts jackd"]
fn a_client_hears_every_sample_from_any_place() {
    with_server("play::jack_tests::a_client_hears_every_sample_from_any_place", |_| {
        await_server();
        let dir = tempfile::tempdir().unwrap();
        test_take(dir.path(), "test:streams=3,frames=60000,pace=free,format=s24", false);
        let shape = StreamShape { format: SampleFormat::S24, channels: 1, rate: 48_000 };
        for (from, first) in [(Duration::ZERO, 0), (Duration::from_micros(250_000), 12_000)] {
            let (outcome, heard) = heard(dir.path(), &plan(from), 3);
            assert_eq!((outcome.streams, outcome.frames), (3, FRAMES - first));
            assert_eq!((outcome.underruns, outcome.missing_frames), (0, 0));
            for (stream, heard) in (0..).zip(&heard) {
                let wanted = expected(&shape, stream, 0, (first, FRAMES - first));
                assert!(heard[..wanted.len()] == wanted, "stream {stream} from {first}");
                assert!(heard[wanted.len()..].iter().all(|it| *it == 0.0), "silence behind it");
            }
        }
    });
}

#[test]
#[ignore = "with --all: it starts jackd"]
fn channels_of_one_stream_go_to_ports_of_their_own() {
    with_server("play::jack_tests::channels_of_one_stream_go_to_ports_of_their_own", |_| {
        await_server();
        let dir = tempfile::tempdir().unwrap();
        test_take(dir.path(), "test:streams=2,frames=60000,pace=free,format=s16", true);
        let shape = StreamShape { format: SampleFormat::S16, channels: 2, rate: 48_000 };
        let (outcome, heard) = heard(dir.path(), &plan(Duration::ZERO), 2);
        assert_eq!((outcome.streams, outcome.frames, outcome.underruns), (1, FRAMES, 0));
        for (channel, heard) in heard.iter().enumerate() {
            let wanted = expected(&shape, 0, channel, (0, FRAMES));
            assert!(heard[..wanted.len()] == wanted, "channel {channel}");
        }
    });
}

#[test]
#[ignore = "with --all: it starts jackd"]
fn what_cannot_be_played_is_said_before_it_begins() {
    with_server("play::jack_tests::what_cannot_be_played_is_said_before_it_begins", |_| {
        await_server();
        let dir = tempfile::tempdir().unwrap();
        test_take(dir.path(), "test:streams=2,frames=9,rate=96000,pace=free", false);
        let (stop, monitor) = (Stop::new().unwrap(), Monitor::default());
        let refused = |pattern: &str| {
            let sink = PlaySink::Jack(pattern.to_owned());
            play(&dir.path().join("t"), &plan(Duration::ZERO), sink, (&stop, &monitor))
        };
        let error = refused("").unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{error}");
        assert!(error.to_string().contains("different sample rates"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        test_take(dir.path(), "test:streams=1,frames=9,pace=free", false);
        let sink = PlaySink::Jack("nobody:*".to_owned());
        let told = play(&dir.path().join("t"), &plan(Duration::ZERO), sink, (&stop, &monitor));
        assert_eq!(told.unwrap_err().kind(), Kind::NotFound);
    });
}
