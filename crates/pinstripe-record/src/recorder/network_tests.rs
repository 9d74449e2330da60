//! Takes of what comes from a network.

use std::path::PathBuf;

use super::tests::{inputs, on_disk, plan};
use super::*;

/// Records what comes to an address until `send` is over and the frames are there.
fn over_network(
    (spec, port): (&str, u16),
    stop_at: u64,
    send: impl FnOnce() + Send,
) -> (PathBuf, tempfile::TempDir, TakeOutcome) {
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let made = || Ok(folders.clone());
    let plan = TakePlan { ring_bytes: 1 << 20, ..plan("t") };
    let began = std::time::Instant::now();
    let outcome = std::thread::scope(|scope| {
        let mut send = Some(send);
        let mut watch = |take: &Arc<RunningTake>, status: &TakeStatus| {
            if let Some(send) = send.take() {
                scope.spawn(move || {
                    await_listener(port);
                    send();
                });
            }
            // What never came is found missing; waited for, it would hang the test.
            let is_late = began.elapsed() > Duration::from_secs(60);
            if status.by_stream[0].frames >= stop_at || is_late {
                take.stop.set();
            }
        };
        record(&plan, inputs(&[spec]), &made, (&stop, &monitor), &mut watch).unwrap()
    });
    (dir.path().join("t"), dir, outcome)
}

/// Waits until what comes to a port is read: an input passes over what came before the take began. Junk
/// is sent several times, for that which was read first may have been passed over.
fn await_listener(port: u16) {
    let bound = format!(":{port:04X} ");
    let waits = || {
        let table = std::fs::read_to_string("/proc/net/udp").unwrap();
        let line = table.lines().find(|line| line.contains(&bound)).map(str::to_owned);
        let queues = line.and_then(|it| it.split_whitespace().nth(4).map(str::to_owned));
        queues.is_none_or(|it| !it.ends_with(":00000000"))
    };
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..5 {
        socket.send_to(b"junk", ("127.0.0.1", port)).unwrap();
        while waits() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A port of this machine that nothing listens at.
fn free_port() -> u16 {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn packets_from_a_network_are_placed_by_their_timestamps() {
    use crate::sample::fill_test;
    let port = free_port();
    let shape = crate::sample::StreamShape {
        format: crate::sample::SampleFormat::S24,
        channels: 2,
        rate: 48_000,
    };
    let packet = |number: u64| {
        let mut bytes = vec![0x80, 98];
        bytes.extend((number as u16).to_be_bytes());
        bytes.extend((48 * number as u32).wrapping_sub(100).to_be_bytes());
        bytes.extend([1, 2, 3, 4]);
        let mut samples = vec![0; 6 * 48];
        fill_test(&shape, 0, 48 * number, &mut samples);
        samples.chunks_mut(3).for_each(<[u8]>::reverse);
        bytes.extend(samples);
        bytes
    };
    const PACKETS: u64 = 400;
    let send = || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = ("127.0.0.1", port);
        for number in 0..PACKETS {
            // Number 50 is lost, 100 comes behind 101, 7 comes twice, junk comes between.
            let number = match number {
                50 => continue,
                100 => 101,
                101 => 100,
                number => number,
            };
            socket.send_to(&packet(number), to).unwrap();
            if number == 7 {
                socket.send_to(&packet(number), to).unwrap();
                socket.send_to(b"junk", to).unwrap();
            }
        }
    };
    let spec = format!("rtp:127.0.0.1:{port},format=L24,rate=48000,channels=2,pt=98");
    // What still waits in the window comes at the end.
    let (path, _dir, outcome) = over_network((&spec, port), 48 * (PACKETS - 60), send);
    let frames = 48 * PACKETS;
    assert!(outcome.manifest.pieces.iter().all(|it| it.frames == frames), "{outcome:?}");
    assert_eq!((outcome.last.missing_frames, outcome.last.overruns), (2 * 48, 0));
    let mut expected = vec![0; 6 * frames as usize];
    fill_test(&shape, 0, 0, &mut expected);
    expected[6 * 48 * 50..6 * 48 * 51].fill(0);
    let left = std::fs::read(path.join("01-rtp-1.wav")).unwrap();
    let right = std::fs::read(path.join("02-rtp-2.wav")).unwrap();
    for frame in 0..frames as usize {
        let here = 4096 + 3 * frame..4096 + 3 * (frame + 1);
        let both = [&left[here.clone()], &right[here]].concat();
        assert_eq!(both, expected[6 * frame..6 * (frame + 1)], "{frame}");
    }
}

#[test]
#[ignore = "with --all: it waits for ffmpeg for 3 s"]
fn ffmpeg_is_recorded_as_it_sends() {
    let port = free_port();
    let url = format!("rtp://127.0.0.1:{port}?pkt_size=300");
    let sine = "sine=1000:sample_rate=48000:samples_per_frame=48:duration=2";
    let args = ["-v", "error", "-re", "-f", "lavfi", "-i", sine, "-ac", "2", "-c:a", "pcm_s24be"];
    let mut ffmpeg = std::process::Command::new("ffmpeg");
    ffmpeg.args(args).args(["-f", "rtp", "-payload_type", "98", &url]);
    ffmpeg.stdout(std::process::Stdio::null());
    if std::process::Command::new("ffmpeg").arg("-version").output().is_err() {
        return pinstripe_testing::not_installed("ffmpeg_is_recorded_as_it_sends", "ffmpeg");
    }
    assert_recorded(ffmpeg, port);
}

/// Records what a program sends in two seconds.
fn assert_recorded(mut sender: std::process::Command, port: u16) {
    let send = move || assert!(sender.status().unwrap().success());
    let spec = format!("rtp:127.0.0.1:{port},format=L24,rate=48000,channels=2");
    let (_, _dir, outcome) = over_network((&spec, port), 48_000, send);
    // All that came is in place; on a machine that is busy some packets may come too late.
    let piece = &outcome.manifest.pieces[0];
    let end = piece.start_frame + piece.frames;
    assert!(piece.frames > 0 && (48_000..=192_000).contains(&end), "{piece:?}");
    assert!(outcome.last.missing_frames < 48_000, "{outcome:?}");
}

#[test]
#[ignore = "with --all: it starts GStreamer"]
fn gstreamer_is_recorded_as_it_sends() {
    let port = free_port();
    let mut gstreamer = std::process::Command::new("gst-launch-1.0");
    gstreamer
        .args("-q audiotestsrc num-buffers=100 samplesperbuffer=960 is-live=true !".split(' '));
    gstreamer.args("audio/x-raw,rate=48000,channels=2 ! audioconvert !".split(' '));
    gstreamer.args("rtpL24pay min-ptime=1000000 max-ptime=1000000 ! udpsink".split(' '));
    gstreamer.args(["host=127.0.0.1", &format!("port={port}")]);
    let is_there = |it: &str| {
        let mut inspect = std::process::Command::new("gst-inspect-1.0");
        inspect.arg(it).output().is_ok_and(|told| told.status.success())
    };
    let needed = ["audiotestsrc", "audioconvert", "rtpL24pay", "udpsink"];
    if !needed.iter().all(|it| is_there(it)) {
        let test = "gstreamer_is_recorded_as_it_sends";
        return pinstripe_testing::not_installed(test, "GStreamer with its base and good plug-ins");
    }
    assert_recorded(gstreamer, port);
}

/// A packet of one channel of 16 bits with 480 frames.
fn packet(number: u32) -> Vec<u8> {
    let mut bytes = vec![0x80, 96];
    bytes.extend((number as u16).to_be_bytes());
    bytes.extend((480 * number).to_be_bytes());
    bytes.extend([1, 2, 3, 4]);
    bytes.resize(12 + 960, 7);
    bytes
}

/// Records so long what `send` sends; the numbers of losses and warnings.
fn told(most: u64, send: impl FnOnce(&std::net::UdpSocket, u16) + Send) -> (TakeOutcome, u64, u64) {
    use pinstripe_base::monitor::Counter;
    let port = free_port();
    let dir = tempfile::tempdir().unwrap();
    let folders = on_disk(&[dir.path()], "t", None);
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let made = || Ok(folders.clone());
    let most = Some(Duration::from_millis(most));
    let plan = TakePlan { ring_bytes: 1 << 20, most, ..plan("t") };
    let spec = format!("rtp:127.0.0.1:{port},format=L16,rate=48000,channels=1");
    let outcome = std::thread::scope(|scope| {
        let mut send = Some(send);
        let mut watch = |_: &Arc<RunningTake>, _: &TakeStatus| {
            if let Some(send) = send.take() {
                let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                scope.spawn(move || send(&socket, port));
            }
        };
        record(&plan, inputs(&[&spec]), &made, (&stop, &monitor), &mut watch).unwrap()
    });
    (outcome, monitor.get(Counter::Losses), monitor.get(Counter::Warnings))
}

#[test]
fn a_sender_that_never_comes_is_told_and_is_a_loss() {
    let (outcome, losses, warnings) = told(700, |_, _| {});
    assert_eq!((losses, warnings), (1, 1));
    assert_eq!(outcome.manifest.pieces[0].frames, 0);
}

#[test]
fn a_sender_that_falls_silent_is_told_and_told_again_when_it_is_back() {
    let send = |socket: &std::net::UdpSocket, port: u16| {
        for number in 0..40 {
            // As long a silence as is told of, once.
            let wait = if number == 20 { 900 } else { 10 };
            std::thread::sleep(Duration::from_millis(wait));
            socket.send_to(&packet(number), ("127.0.0.1", port)).unwrap();
        }
    };
    let (_, _, warnings) = told(3000, send);
    assert!(warnings >= 2, "silent, and back: {warnings}");
}

#[test]
fn what_cannot_be_opened_is_refused_before_anything_is_made() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("gone").display().to_string();
    for text in [
        format!("rtp:127.0.0.1:{port},format=L16,rate=48000,channels=1"),
        format!("pcm:{gone},rate=48000,channels=1,format=s16"),
        format!("pcm:unix:{gone},rate=48000,channels=1,format=s16"),
    ] {
        assert!(crate::input::parse_input(&text).unwrap().open(false).is_err(), "{text}");
    }
}
