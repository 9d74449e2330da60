//! Goals that are about inputs: playing at the same time, clocks that drift, a network.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;
use pinstripe_lab::Table;
use pinstripe_record::{
    PlayOutcome, PlayPlan, PlaySink, RecordInput, SampleFormat, StreamShape, TestInput, fill_test,
    parse_input, play,
};

use super::Settings;
use super::goals::{asked, note, worst_row};
use super::take::{Asked, Told, keep, place, remove, take};
use crate::Result;
use crate::targets::{Target, figure_row, figures};

const DRIFT_PPM: f64 = 50.0;
const WITHIN_PPM: f64 = 10.0;

/// 256 streams recorded while 256 others are played from the disk.
pub fn both(settings: &Settings) -> Result<Table> {
    let asked = asked(settings, (256, 128 << 10, 32 << 10), 30);
    let mut table = figures("Recording while playing", note(settings, &asked));
    let (mut overruns, mut underruns, mut reads, mut fills) =
        <(Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
    for _ in 0..settings.rounds(1) {
        let (told, played) = beside_playing(settings, &asked)?;
        overruns.push(told.outcome.figures.overruns as f64);
        fills.push(told.outcome.figures.ring_worst_percent);
        underruns.push(played.underruns as f64);
        reads.push(played.longest_read.as_secs_f64() * 1e3);
    }
    worst_row(&mut table, "overruns", &overruns, 0, Target::AtMost(0.0));
    worst_row(&mut table, "underruns", &underruns, 0, Target::AtMost(0.0));
    worst_row(&mut table, "fullest ring, %", &fills, 0, Target::None);
    worst_row(&mut table, "longest read, ms", &reads, 1, Target::None);
    Ok(table)
}

fn beside_playing(settings: &Settings, asked: &Asked) -> Result<(Told, PlayOutcome)> {
    let old = settings.bench.work.join("played");
    let input: Box<dyn RecordInput> = Box::new(TestInput::with_shape(asked.shape, asked.streams));
    keep(&old, asked, vec![input])?;
    let path = place(&old);
    forget_pages(&path)?;
    let plan = PlayPlan {
        from: Duration::ZERO,
        most: Some(Duration::from_secs(asked.seconds)),
        ring_bytes: asked.ring,
        streams: Vec::new(),
    };
    let stop = Stop::new().map_err(|error| error.to_string())?;
    let told = std::thread::scope(|scope| {
        let playing =
            scope.spawn(|| play(&path, &plan, PlaySink::Null, (&stop, &Monitor::default())));
        let told = take(&settings.bench.work, asked);
        let played = playing.join().map_err(|_| "playing panicked".to_owned())?;
        Ok((told?, played.map_err(|error| error.to_string())?))
    });
    remove(&old)?;
    told
}

/// Has the kernel forget what it has of the files, so that they are read from the disk.
fn forget_pages(take: &std::path::Path) -> Result<()> {
    let told = |error: std::io::Error| format!("{}: {error}", take.display());
    for entry in std::fs::read_dir(take).map_err(told)? {
        let file = std::fs::File::open(entry.map_err(told)?.path()).map_err(told)?;
        file.sync_all().map_err(told)?;
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
    Ok(())
}

/// A source whose clock is 50 ppm fast: the difference reported after a minute.
pub fn drift(settings: &Settings) -> Result<Table> {
    let asked = asked(settings, (1, 1 << 20, 32 << 10), 60);
    let mut table = figures("A clock that is 50 ppm fast", note(settings, &asked));
    let mut off = Vec::new();
    for _ in 0..settings.rounds(3) {
        let text = format!("test:streams=1,rate={},ppm={DRIFT_PPM}", settings.rate);
        let input = parse_input(&text).and_then(|it| it.open(false));
        let told = keep(&settings.bench.work, &asked, vec![input.map_err(|it| it.to_string())?]);
        remove(&settings.bench.work)?;
        let told = told?.outcome.last.drifts.first().map(|it| (it.ppm - DRIFT_PPM).abs());
        off.push(told.unwrap_or(f64::NAN));
    }
    let certain = off.iter().filter(|it| !it.is_nan()).count() as f64 / off.len() as f64;
    figure_row(
        &mut table,
        "runs in which it was told, %",
        &[100.0 * certain],
        0,
        Target::AtLeast(100.0),
    );
    worst_row(&mut table, "what was told is off by, ppm", &off, 1, Target::AtMost(WITHIN_PPM));
    Ok(table)
}

/// Frames of a packet of one millisecond.
const PACKET_FRAMES: u64 = 48;
const CHANNELS: u16 = 8;

/// The planted errors: the number of packets per loss, per swapped pair, and per duplicate.
#[derive(Clone, Copy)]
struct Planted {
    lost: u64,
    swapped: u64,
    doubled: u64,
}

impl Planted {
    fn is(number: u64, of: u64) -> bool {
        of > 0 && number % of == of / 2
    }
}

/// 32 streams of 8 x 48 kHz in packets of a millisecond, on loopback: as they are sent, and with 1 %
/// lost, 1 % reordered and 0.1 % doubled.
pub fn network(settings: &Settings) -> Result<Table> {
    let own = asked(settings, (32, 1 << 20, 32 << 10), 60);
    let shape = StreamShape { format: SampleFormat::S24, channels: CHANNELS, rate: 48_000 };
    let own = Asked { shape, ..own };
    let mut table = figures("RTP", note(settings, &own));
    let clean = Planted { lost: 0, swapped: 0, doubled: 0 };
    let rough = Planted { lost: 100, swapped: 100, doubled: 1000 };
    for (name, planted) in [("as sent", clean), ("with losses planted", rough)] {
        let found = receive(settings, &own, planted)?;
        let row = |table: &mut Table, what: &str, value: f64| {
            worst_row(table, &format!("{name}: {what}"), &[value], 0, Target::AtMost(0.0));
        };
        row(&mut table, "frames by which the length differs", found.length_off as f64);
        row(
            &mut table,
            "lost frames that were not planted, or planted and not told",
            found.lost_off as f64,
        );
        row(&mut table, "wrong frames, in the places that were not planted", found.wrong as f64);
        row(&mut table, "overruns", found.told.outcome.figures.overruns as f64);
        let cpu = found.told.outcome.input_cpu.as_secs_f64() / own.seconds as f64 * 100.0;
        figure_row(&mut table, &format!("{name}: processor of inputs, %"), &[cpu], 0, Target::None);
    }
    Ok(table)
}

struct Received {
    told: Told,
    length_off: u64,
    lost_off: u64,
    wrong: u64,
}

fn receive(settings: &Settings, asked: &Asked, planted: Planted) -> Result<Received> {
    let told = |error: std::io::Error| format!("a socket: {error}");
    let ports = (0..asked.streams)
        .map(|_| UdpSocket::bind("127.0.0.1:0").and_then(|it| it.local_addr()).map(|it| it.port()));
    let ports = ports.collect::<std::io::Result<Vec<u16>>>().map_err(told)?;
    let input = |port: &u16| {
        let text = format!("rtp:127.0.0.1:{port},format=L24,rate=48000,channels={CHANNELS},pt=98");
        parse_input(&text).and_then(|it| it.open(true)).map_err(|error| error.to_string())
    };
    let inputs = ports.iter().map(input).collect::<Result<Vec<_>>>()?;
    let is_over = AtomicBool::new(false);
    let told = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&ports, planted, &is_over));
        let told = keep(&settings.bench.work, asked, inputs);
        is_over.store(true, Ordering::Relaxed);
        let sent = sending.join().map_err(|_| "the sender panicked".to_owned())?;
        sent.map_err(|error| format!("sending: {error}"))?;
        told
    })?;
    let found = compare(settings, asked, planted, told);
    remove(&settings.bench.work)?;
    found
}

/// Sends a packet to each port each millisecond, by the clock, once all of them are listened at.
fn send(ports: &[u16], planted: Planted, is_over: &AtomicBool) -> std::io::Result<()> {
    let is_bound = |port: &u16| {
        let table = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
        table.contains(&format!(":{port:04X} "))
    };
    while !ports.iter().all(is_bound) && !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let began = Instant::now();
    for number in 0.. {
        let is_early = || began.elapsed() < Duration::from_millis(number);
        while !is_over.load(Ordering::Relaxed) && is_early() {
            std::thread::sleep(Duration::from_micros(200));
        }
        // A sender that is behind its clock never waits, and has to end anyway.
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        for (stream, port) in (0..).zip(ports) {
            let put = |number| {
                // A receiver that has all that it wants refuses what comes after.
                let _ = socket.send_to(&packet(stream, number), ("127.0.0.1", *port));
            };
            // The second of a swapped pair was sent with the first.
            match number {
                _ if Planted::is(number, planted.lost) => {}
                _ if Planted::is(number + 20, planted.swapped) => {
                    put(number + 1);
                    put(number);
                }
                _ if Planted::is(number + 19, planted.swapped) => {}
                _ if Planted::is(number, planted.doubled) => {
                    put(number);
                    put(number);
                }
                _ => put(number),
            }
        }
    }
    Ok(())
}

/// Samples that can be computed again, most significant byte first.
fn packet(stream: u64, number: u64) -> Vec<u8> {
    let mut bytes = vec![0x80, 98];
    bytes.extend((number as u16).to_be_bytes());
    bytes.extend(((PACKET_FRAMES * number) as u32).to_be_bytes());
    bytes.extend((stream as u32 + 1).to_be_bytes());
    let shape = StreamShape { format: SampleFormat::S24, channels: CHANNELS, rate: 48_000 };
    let mut samples = vec![0; (PACKET_FRAMES * shape.frame_bytes()) as usize];
    fill_test(&shape, stream, PACKET_FRAMES * number, &mut samples);
    samples.chunks_mut(3).for_each(<[u8]>::reverse);
    bytes.extend(samples);
    bytes
}

/// Holds what is in the files against what was sent.
fn compare(settings: &Settings, asked: &Asked, planted: Planted, told: Told) -> Result<Received> {
    let shape = asked.shape;
    let frames = asked.seconds * u64::from(shape.rate);
    let size = (PACKET_FRAMES * shape.frame_bytes()) as usize;
    let lost_packets =
        (0..frames / PACKET_FRAMES).filter(|it| Planted::is(*it, planted.lost)).count() as u64;
    let missing = lost_packets * PACKET_FRAMES * asked.streams as u64;
    let (mut length_off, mut wrong) = (0, 0);
    for piece in &told.outcome.manifest.pieces {
        length_off += piece.frames.abs_diff(frames);
        let path = place(&settings.bench.work).join(&piece.file);
        let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut expected = vec![0; size];
        for (number, found) in (0..).zip(bytes[piece.payload_at as usize..].chunks_exact(size)) {
            if number * PACKET_FRAMES >= frames {
                break;
            }
            match Planted::is(number, planted.lost) {
                true => expected.fill(0),
                false => {
                    fill_test(&shape, piece.stream.into(), number * PACKET_FRAMES, &mut expected)
                }
            }
            wrong += if found == expected { 0 } else { PACKET_FRAMES };
        }
    }
    let lost_off = told.outcome.last.missing_frames.abs_diff(missing);
    Ok(Received { told, length_off, lost_off, wrong })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_is_behind_its_clock_ends_all_the_same() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // Each round takes longer than the millisecond that it has.
        let ports = vec![socket.local_addr().unwrap().port(); 20_000];
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let nothing = Planted { lost: 0, swapped: 0, doubled: 0 };
            ended.send(send(&ports, nothing, &AtomicBool::new(true)))
        });
        end.recv_timeout(Duration::from_secs(60)).expect("it ends").unwrap();
    }
}
