//! Real results of fio 3.33, with the lines that it mixes in, and fio itself where it is there.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pinstripe_base::error::Kind;
use pinstripe_io::device::Policy;

use super::*;
use crate::io::{Area, Content, Direction, Engine, Job, Order, Pattern};
use crate::result::tests::results;
use crate::run::Live;

/// `fio --rw=write --bs=64k --size=4m --end_fsync=1 --output-format=json`.
const PLAIN: &str = include_str!("../../tests/data/fio-3.33.json");
/// `fio --rw=randrw --rwmixread=60 --iodepth=8 --output-format=json+`, with the note that the depth
/// is capped, which fio writes to the same place.
const MIXED: &str = include_str!("../../tests/data/fio-3.33-json-plus.txt");

#[test]
fn what_fio_measured_is_read_whole() {
    let results = import(&[PLAIN]).unwrap();
    assert_eq!(results.program, "fio-3.33");
    assert_eq!(results.variants.len(), 1);
    let variant = &results.variants[0];
    assert_eq!(variant.name, "seq write");
    assert!(variant.parameters.iter().any(|it| (&*it.name, &*it.value) == ("bs", "64k")));
    let run = &variant.runs[0];
    assert_eq!(
        (run.measured.operations, run.measured.written_bytes, run.measured.read_bytes),
        (64, 4 << 20, 0)
    );
    assert_eq!(run.measured.latency["write"].count(), 64);
}

#[test]
fn both_sides_of_a_mix_are_read_with_all_their_buckets() {
    let results = import(&[MIXED]).unwrap();
    let names: Vec<&str> = results.variants.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["mix read", "mix write"]);
    let read = &results.variants[0].runs[0];
    assert_eq!(read.measured.read_bytes, 206_471_168);
    assert!((read.measured.value - 103.183_992).abs() < 1e-9);
    assert_eq!(read.measured.latency["read"].count(), read.measured.operations);
}

/// Lines as fio prints them between others: what it says when it meets trouble, and its progress.
const NOISE: [&str; 5] = [
    "fio: this platform does not support process shared mutexes, forcing use of threads. Use the 'thread' option",
    "Jobs: 1 (f=1): [m(1)][50.0%][r=98.2MiB/s,w=65.3MiB/s][r=25.1k,w=16.7k IOPS][eta 00m:01s]",
    "[eta 00m:01s]",
    "",
    "fio: io_u error on file a: Input/output error: read offset=0, buflen=4096",
];

#[test]
fn lines_mixed_in_anywhere_change_nothing() {
    let clean = import(&[MIXED]).unwrap();
    for every in [1, 2, 7, 50] {
        let mut text = NOISE.join("\n");
        for (at, line) in MIXED.lines().enumerate() {
            text += &format!("\n{line}");
            if at % every == 0 {
                text += &format!("\n{}", NOISE[at % NOISE.len()]);
            }
        }
        text += &format!("\n{}\n", NOISE[1]);
        assert_eq!(import(&[&text]).unwrap(), clean, "{every}");
    }
}

#[test]
fn results_written_on_one_line_are_read_too() {
    let one_line = text::document(PLAIN).unwrap().to_string();
    let text = format!("fio: noise\n{one_line}\nmore noise");
    assert_eq!(import(&[&text]).unwrap(), import(&[PLAIN]).unwrap());
}

#[test]
fn jobs_of_one_name_are_runs_of_one_variant() {
    let results = import(&[PLAIN, PLAIN, PLAIN]).unwrap();
    assert_eq!(results.variants[0].runs.len(), 3);
    let orders: Vec<u64> = results.variants[0].runs.iter().map(|run| run.order).collect();
    assert_eq!(orders, [0, 1, 2]);
}

#[test]
fn what_is_cut_off_or_nothing_of_fio_s_is_refused() {
    let refused = |text: &str| {
        let error = import(&[text]).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{text}");
        error.to_string()
    };
    assert!(refused(&PLAIN[..PLAIN.len() / 2]).contains("near line"));
    assert!(refused("no braces here").contains("no JSON from fio"));
    assert!(refused("").contains("no JSON from fio"));
    assert!(refused("{\n}").contains("fio version"));
    assert!(refused("{\n\"fio version\" : \"fio-3.33\"\n}").contains("no fio jobs"));
    assert!(
        refused("{\n\"fio version\":\"fio-3.33\",\n\"jobs\":[]\n}").contains("transferred data")
    );
}

#[test]
fn what_is_exported_is_imported_again() {
    let ours = results(&[("a", &[97.1, 99.8]), ("b", &[110.2, 112.8])]);
    let text = serde_json::to_string_pretty(&export(&ours)).unwrap();
    let back = import(&[&text]).unwrap();
    let names: Vec<&str> = back.variants.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["a write", "b write"]);
    for (one, other) in ours.variants.iter().zip(&back.variants) {
        for (one, other) in one.runs.iter().zip(&other.runs) {
            assert!(
                (one.measured.value - other.measured.value).abs() < 1e-5,
                "{} {}",
                one.measured.value,
                other.measured.value
            );
            assert_eq!(one.measured.written_bytes, other.measured.written_bytes);
            let (times, again) = (&one.measured.latency["write"], &other.measured.latency["write"]);
            assert_eq!(times.quantile(0.5), again.quantile(0.5));
            assert_eq!(times.count(), again.count());
        }
    }
}

fn job(order: Order, direction: Direction) -> Job {
    let pattern = Pattern { order, direction, block_bytes: 4096 };
    Job { time: Some(Duration::from_millis(200)), ..Job::new(pattern) }
}

#[test]
fn fio_is_told_the_same_job() {
    let job = Job {
        engine: Engine::Uring,
        depth: 32,
        rate: Some(100.0),
        content: Content::Zeros,
        ..job(Order::Random, Direction::Mixed(0.6))
    };
    let paths = [PathBuf::from("/a:b"), PathBuf::from("/c")];
    let told = check::arguments(&job, &paths, 8192, Policy::Direct);
    for part in [
        "--rw=randrw",
        "--rwmixread=60",
        "--bs=4096",
        "--size=16384",
        "--ioengine=io_uring",
        "--iodepth=32",
        "--direct=1",
        "--runtime=200ms",
        "--time_based",
        "--end_fsync=1",
        "--rate_iops=100",
        "--zero_buffers",
        "--filename=/a\\:b:/c",
    ] {
        assert!(told.iter().any(|it| it == part), "{part}: {told:?}");
    }
    assert_eq!(check::refuse(&job, 2, false).unwrap_err().kind(), Kind::Usage);
    assert_eq!(check::refuse(&job, 1, true).unwrap_err().kind(), Kind::Usage);
    check::refuse(&job, 1, false).unwrap();
}

#[test]
fn fio_does_the_same_job() {
    if check::version().is_none() {
        return pinstripe_testing::not_installed("fio_does_the_same_job", "fio");
    }
    let dir = tempfile::tempdir().unwrap();
    let live = Live::new(Arc::new(AtomicBool::new(false)));
    let paths = [dir.path().join("a"), dir.path().join("b: c")];
    Area::make(&paths, 65_536, Content::Noise, Policy::Buffered, &live).unwrap();
    let once = Job { requests: Some(32), ..job(Order::Sequential, Direction::Write) };
    let outcome = check::run(&once, &paths, 65_536, Policy::Buffered, &live).unwrap();
    assert_eq!((outcome.measured.written_bytes, outcome.measured.operations), (131_072, 32));
    assert!(outcome.measured.value > 0.0 && outcome.measured.latency["write"].count() == 32);
    let mixed = job(Order::Random, Direction::Mixed(0.5));
    let outcome = check::run(&mixed, &paths, 65_536, Policy::Buffered, &live).unwrap();
    assert!(outcome.measured.read_bytes > 0 && outcome.measured.written_bytes > 0);

    let folder = [dir.path().to_path_buf()];
    let error = check::run(&once, &folder, 65_536, Policy::Buffered, &live).unwrap_err();
    assert!(error.kind() == Kind::Io && error.to_string().contains("fio failed"), "{error}");
    let stopped = Live::new(Arc::new(AtomicBool::new(true)));
    let error = check::run(&mixed, &paths, 65_536, Policy::Buffered, &stopped).unwrap_err();
    assert_eq!(error.kind(), Kind::Interrupted);
}

/// Where a percentile is between two requests, it is the later one, as fio counts.
#[test]
fn percentiles_are_those_of_fio() {
    for count in [200_u64, 512, 1000, 3188, 17_602] {
        let percentile = r#"{"1.0":1000,"50.0":2000,"99.0":10000,"99.5":20000,"99.9":40000}"#;
        let text =
            format!(r#"{{"clat_ns":{{"N":{count},"max":90000,"percentile":{percentile}}}}}"#);
        let times = import::histogram(&serde_json::from_str(&text).unwrap(), count).unwrap();
        assert_eq!(times.count(), count);
        for (part, nanos) in [(0.5, 2000.0), (0.99, 10000.0), (0.995, 20000.0), (0.999, 40000.0)] {
            let found = times.quantile(part).unwrap().as_nanos() as f64;
            assert!((found / nanos - 1.0).abs() < 0.05, "{count} {part}: {found}");
        }
    }
}
