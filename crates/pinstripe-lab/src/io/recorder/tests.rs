//! Streams in memory, with stalls and errors that were planted.

use std::sync::Arc;

use pinstripe_io::device::MemoryDevice;
use pinstripe_io::fault::FaultyDevice;

use super::*;

fn recording() -> Recording {
    Recording {
        rate: 1 << 20,
        chunk_bytes: 4096,
        ring_bytes: 1 << 20,
        time: Duration::from_millis(300),
        writers: 2,
        sync_every: Some(Duration::from_millis(50)),
        storm_bytes: 4 << 20,
        storm_sync_bytes: 2 << 20,
        class: SchedulingClass::Normal,
        seed: 3,
    }
}

fn targets(count: usize, faults: &str) -> Vec<Target> {
    let target = |number: usize| {
        let device = MemoryDevice::new(format!("stream{number}"));
        let plan = if faults.is_empty() { Default::default() } else { faults.parse().unwrap() };
        Target::new(Arc::new(FaultyDevice::new(device, plan)))
    };
    (0..count).map(target).collect()
}

#[test]
fn streams_come_at_their_rate_and_nothing_is_lost() {
    let live = Live::new(Default::default());
    let storm = &targets(1, "")[0];
    let began = Instant::now();
    let done = record(&recording(), &targets(3, ""), Some(storm), &live).unwrap();
    // How much less than was made depends on who else is at work here.
    let made = 3.0 * began.elapsed().as_secs_f64() * f64::from(1 << 20);
    assert!(done.written_bytes > 0 && done.written_bytes as f64 <= made, "{done:?}");
    assert_eq!(done.written_bytes, 4096 * done.writes.count());
    assert!(done.peak_bytes >= 4096 && done.storm_bytes > 0 && !done.syncs.is_empty());
    assert!(done.durable_lag > Duration::ZERO);
}

#[test]
fn a_stall_is_listed_and_fills_the_ring_until_bytes_are_lost() {
    let live = Live::new(Default::default());
    let recording = Recording { ring_bytes: 16 << 10, ..recording() };
    let slow = targets(1, "op=write,after=2,times=1,delay=150ms");
    let done = record(&recording, &slow, None, &live).unwrap();
    assert!(!done.stalls.is_empty(), "{done:?}");
    assert!(done.stalls.iter().all(|it| it.time > STALL));
    assert!(done.overruns > 0 && done.lost_bytes > 0 && done.peak_bytes > 100 << 10);
    assert!(done.responses.max() >= done.writes.max(), "a stall is seen in what waits");
}

#[test]
fn an_error_of_one_stream_ends_it_all() {
    let live = Live::new(Default::default());
    let broken = targets(3, "op=write,after=3,error=EIO");
    let recording = Recording { time: Duration::from_secs(60), ..recording() };
    assert!(record(&recording, &broken, None, &live).is_err());
}

#[test]
fn what_was_recorded_is_read_again_and_damage_is_found() {
    let live = Live::new(Default::default());
    let streams = targets(3, "");
    let recording = Recording { time: Duration::from_secs(1), ..recording() };
    let done = record(&recording, &streams, None, &live).unwrap();
    assert_eq!(done.chunks.iter().sum::<u64>() * 4096, done.written_bytes);
    check(&recording, &streams, &done.chunks, &live).unwrap();
    // A byte in the last chunk of the last stream.
    let at = (done.chunks[2] - 1) * 4096;
    let mut byte = [0];
    streams[2].device().read_at(at, &mut byte).unwrap();
    streams[2].device().write_at(at, &[byte[0] ^ 1]).unwrap();
    let error = check(&recording, &streams, &done.chunks, &live).unwrap_err();
    assert!(error.to_string().contains(&format!("byte {at}")), "{error}");
    // Another recording's bytes are none of this one.
    let other = Recording { seed: 4, ..recording };
    assert!(check(&other, &streams[..1], &done.chunks[..1], &live).is_err());
}
