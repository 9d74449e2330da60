//! Jobs on small files, and on devices that fail or stall.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pinstripe_io::device::{Access, Caps, MemoryDevice, Policy, SharedDevice};
use pinstripe_io::fault::{FaultyDevice, Plan};

use super::*;
use crate::run::Live;

fn live() -> Live {
    Live::new(Arc::new(AtomicBool::new(false)))
}

fn pattern(order: Order, direction: Direction) -> Pattern {
    Pattern { order, direction, block_bytes: 4096 }
}

fn files(dir: &tempfile::TempDir, count: usize, bytes: u64) -> (Vec<PathBuf>, Area) {
    let paths: Vec<PathBuf> = (0..count).map(|it| dir.path().join(format!("f{it}"))).collect();
    let area = Area::make(&paths, bytes, Content::Noise, Policy::Buffered, &live()).unwrap();
    (paths, area)
}

#[test]
fn every_engine_makes_every_request_once_in_every_order() {
    let dir = tempfile::tempdir().unwrap();
    let (_, area) = files(&dir, 3, 40_960);
    for engine in [Engine::Psync, Engine::Uring] {
        for order in
            [Order::Sequential, Order::Backward, Order::Random, Order::Strided(7), Order::Same]
        {
            for (direction, reads) in
                [(Direction::Read, 30), (Direction::Write, 0), (Direction::Mixed(0.5), 15)]
            {
                let depth = if engine == Engine::Uring { 4 } else { 1 };
                let job = Job {
                    engine,
                    depth,
                    threads: 2,
                    requests: Some(30),
                    ..Job::new(pattern(order, direction))
                };
                let live = live();
                let done = run(&job, &area, &live).unwrap();
                assert_eq!(
                    (done.requests, done.reads.count()),
                    (30, reads),
                    "{order:?} {direction:?}"
                );
                assert_eq!(done.writes.count(), 30 - reads);
                assert_eq!(
                    (done.read_bytes, done.written_bytes),
                    (reads * 4096, (30 - reads) * 4096)
                );
                assert_eq!(live.bytes(), 30 * 4096);
                assert_eq!(done.syncs.count(), 3, "one for each file at the end");
                assert!(done.seconds > 0.0 && !done.has_wrapped);
            }
        }
    }
}

#[test]
fn what_is_written_is_the_content_at_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, area) = files(&dir, 2, 8192);
    let before: Vec<Vec<u8>> = paths.iter().map(|it| std::fs::read(it).unwrap()).collect();
    let job = Job {
        requests: Some(3),
        content: Content::Zeros,
        ..Job::new(pattern(Order::Sequential, Direction::Write))
    };
    run(&job, &area, &live()).unwrap();
    assert_eq!(std::fs::read(&paths[0]).unwrap(), vec![0; 8192]);
    let second = std::fs::read(&paths[1]).unwrap();
    assert_eq!(second[..4096], vec![0; 4096]);
    assert_eq!(second[4096..], before[1][4096..]);
}

#[test]
fn syncs_come_after_so_many_requests_for_every_file() {
    let dir = tempfile::tempdir().unwrap();
    let (_, area) = files(&dir, 4, 40_960);
    let syncing = Syncing { every: Some(10), at_end: true, is_full: true };
    let job =
        Job { requests: Some(35), syncing, ..Job::new(pattern(Order::Random, Direction::Write)) };
    assert_eq!(run(&job, &area, &live()).unwrap().syncs.count(), 3 * 4 + 4);
    let job = Job { syncing: Syncing::NEVER, ..job };
    assert!(run(&job, &area, &live()).unwrap().syncs.is_empty());
}

#[test]
fn going_round_again_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (_, area) = files(&dir, 1, 8192);
    let job = Job { requests: Some(3), ..Job::new(pattern(Order::Sequential, Direction::Read)) };
    assert!(run(&job, &area, &live()).unwrap().has_wrapped);
    let job = Job { requests: Some(3), ..Job::new(pattern(Order::Random, Direction::Read)) };
    assert!(!run(&job, &area, &live()).unwrap().has_wrapped);
}

fn memory(plan: &str) -> Area {
    let memory = MemoryDevice::new("memory");
    memory.set_len(40_960).unwrap();
    let plan: Plan = plan.parse().unwrap();
    let device: SharedDevice = Arc::new(FaultyDevice::new(memory, plan));
    Area::new(vec![Target::new(device)], 40_960)
}

use pinstripe_io::device::Device;

#[test]
fn the_first_error_ends_all_workers() {
    let area = memory("op=read,after=5,error=EIO");
    let job = Job {
        threads: 3,
        time: Some(Duration::from_secs(60)),
        ..Job::new(pattern(Order::Random, Direction::Read))
    };
    let error = run(&job, &area, &live()).unwrap_err();
    assert_eq!(error.kind(), Kind::Io, "{error}");
}

#[test]
fn a_stalled_request_does_not_hide_those_behind_it() {
    // One write of 200 ms, then quick ones; due each 2 ms.
    let area = memory("op=write,after=10,times=1,delay=200ms");
    let job = Job {
        requests: Some(60),
        rate: Some(500.0),
        ..Job::new(pattern(Order::Sequential, Direction::Write))
    };
    let done = run(&job, &area, &live()).unwrap();
    let late = |histogram: &Histogram| {
        histogram
            .buckets()
            .filter(|(nanos, _)| *nanos > 20_000_000)
            .map(|(_, count)| count)
            .sum::<u64>()
    };
    assert!(late(&done.writes) >= 1, "the stalled one is seen");
    assert!(
        late(&done.responses) > 5 * late(&done.writes),
        "and so are those that it kept waiting"
    );
    assert_eq!(done.responses.count(), 60);
}

#[test]
fn requests_that_are_due_later_wait_whoever_makes_them() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, _) = files(&dir, 1, 64 << 10);
    let area = Area::open(&paths, 64 << 10, Access::Read, Policy::Buffered).unwrap();
    for (engine, depth, threads) in
        [(Engine::Psync, 1, 2), (Engine::Uring, 1, 1), (Engine::Uring, 4, 2)]
    {
        let job = Job {
            requests: Some(40),
            rate: Some(1000.0),
            engine,
            depth,
            threads,
            ..Job::new(pattern(Order::Random, Direction::Read))
        };
        let done = match run(&job, &area, &live()) {
            Err(error) if error.kind() == Kind::Unsupported => {
                return pinstripe_testing::skipped(
                    "requests_that_are_due_later",
                    "no io_uring here",
                );
            }
            done => done.unwrap(),
        };
        assert_eq!((done.requests, done.responses.count()), (40, 40));
        // The last is due 39 ms after the first.
        assert!(done.seconds >= 0.039, "{engine:?}: {}", done.seconds);
        let stopped = Live::new(Arc::new(AtomicBool::new(true)));
        assert_eq!(run(&job, &area, &stopped).unwrap_err().kind(), Kind::Interrupted);
    }
}

#[test]
fn a_stop_ends_it_soon_and_is_told() {
    let stop = Arc::new(AtomicBool::new(true));
    let area = memory("");
    let job = Job {
        time: Some(Duration::from_secs(60)),
        ..Job::new(pattern(Order::Random, Direction::Read))
    };
    let error = run(&job, &area, &Live::new(stop)).unwrap_err();
    assert_eq!(error.kind(), Kind::Interrupted);
}

#[test]
fn jobs_that_make_no_sense_are_refused() {
    let area = memory("");
    let good = Job { requests: Some(1), ..Job::new(pattern(Order::Random, Direction::Read)) };
    let large = Pattern { block_bytes: 1 << 20, ..good.pattern };
    for bad in [
        Job { requests: None, ..good.clone() },
        Job { threads: 0, ..good.clone() },
        Job { depth: 2, ..good.clone() },
        Job { pattern: large, ..good.clone() },
        Job { engine: Engine::Uring, ..good.clone() },
    ] {
        assert_eq!(run(&bad, &area, &live()).unwrap_err().kind(), Kind::Usage, "{bad:?}");
    }
    run(&good, &area, &live()).unwrap();
}

#[test]
fn files_that_were_cut_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, _) = files(&dir, 1, 8192);
    let opened = Area::open(&paths, 8193, Access::Read, Policy::Buffered);
    assert_eq!(opened.err().unwrap().kind(), Kind::Corrupt);
}

#[test]
fn blocks_of_a_striped_area_lie_on_each_file_in_turn() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..3).map(|it| dir.path().join(it.to_string())).collect();
    let area = Area::open(&paths, 8192, Access::Create, Policy::Buffered).unwrap().striped();
    let pattern =
        Pattern { order: Order::Sequential, direction: Direction::Write, block_bytes: 4096 };
    let job = Job { requests: Some(4), ..Job::new(pattern) };
    run(&job, &area, &live()).unwrap();
    let lens = paths.iter().map(|it| std::fs::metadata(it).unwrap().len());
    assert_eq!(lens.collect::<Vec<_>>(), [8192, 4096, 4096]);
}

#[test]
fn a_job_on_several_areas_is_made_on_each_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let areas: Vec<Area> = (0..3)
        .map(|it| {
            let paths = [dir.path().join(it.to_string())];
            Area::open(&paths, 8192, Access::Create, Policy::Buffered).unwrap()
        })
        .collect();
    let pattern =
        Pattern { order: Order::Sequential, direction: Direction::Write, block_bytes: 4096 };
    let job = Job { requests: Some(2), ..Job::new(pattern) };
    let done = run_each(&job, &areas, &live()).unwrap();
    assert_eq!((done.requests, done.written_bytes, done.syncs.count()), (6, 3 * 8192, 3));
}

#[test]
fn only_multiples_of_the_alignment_of_a_device_bypass_the_page_cache() {
    let caps = |align_bytes| Caps { align_bytes, is_block_device: true, device: None };
    for (align_bytes, block_bytes, suits) in [
        (4096, 4096, true),
        (4096, 1 << 20, true),
        (4096, 512, false),
        (4096, 6000, false),
        (4096, (64 << 10) + 512, false),
        (16 << 10, 4096, false),
        (16 << 10, 64 << 10, true),
    ] {
        assert_eq!(
            suits_direct(&caps(align_bytes), block_bytes),
            suits,
            "{align_bytes} {block_bytes}"
        );
    }
}
