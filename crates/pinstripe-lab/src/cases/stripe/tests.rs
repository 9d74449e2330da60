//! Small arrays, in memory and on files.

use super::*;
use crate::cases::tests::{measured, measured_in};

const SMALL: [(&str, &str); 3] =
    [("granules", "auto,4K,64K"), ("member-size", "4M"), ("requests", "50")];

#[test]
#[ignore = "with --all: it measures for 9 s"]
fn every_load_is_made_with_every_granule_in_memory_and_on_files() {
    for place in ["memory", "dir"] {
        let dir = tempfile::tempdir().unwrap();
        let results = measured(&CASE, dir.path(), &[&SMALL[..], &[("members-in", place)]].concat());
        assert_eq!(results.variants.len(), 15);
        for variant in &results.variants {
            let run = &variant.runs[0];
            let is_write = grid::parameter(variant, "load").contains("write");
            assert_eq!(run.measured.written_bytes > 0, is_write, "{}", variant.name);
            assert_eq!(run.measured.read_bytes > 0, !is_write, "{}", variant.name);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
#[ignore = "with --all: it measures for 11 s"]
fn many_requests_in_flight_are_made_once_each() {
    let dir = tempfile::tempdir().unwrap();
    for place in ["memory", "dir"] {
        let more = [("members-in", place), ("workers", "2"), ("depth", "16"), ("requests", "999")];
        let results = measured(&CASE, dir.path(), &[&SMALL[..], &more].concat());
        for variant in &results.variants {
            let run = &variant.runs[0];
            let times: u64 = run.measured.latency.values().map(|it| it.count()).sum();
            assert_eq!(times, run.measured.operations, "{}", variant.name);
            if grid::parameter(variant, "load").starts_with("rand") {
                assert_eq!(run.measured.operations, 999, "{}", variant.name);
            }
        }
    }
}

#[test]
fn parity_is_seen_in_what_members_write_and_nothing_in_what_reads_do() {
    let dir = tempfile::tempdir().unwrap();
    let small = [&SMALL[..], &[("members-in", "memory"), ("loads", "write1m,read1m")]].concat();
    let results = measured(&CASE, dir.path(), &small);
    let of =
        |name: &str, figure: &str| results.variant(name).unwrap().runs[0].measured.figures[figure];
    let written = of("write1m auto", "members_written_of_each");
    assert!((written - 4.0 / 3.0).abs() < 0.05, "{written}");
    assert_eq!(of("read1m auto", "members_written_of_each"), 0.0);
    assert_eq!(tables(&results)[0].to_json()["rows"].as_array().unwrap().len(), 2);
}

#[test]
fn too_few_members_and_granules_that_are_none_are_refused() {
    let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
    for bad in [
        ("members", "2"),
        ("depth", "1025"),
        ("granules", "auto,wide"),
        ("granules", "6000"),
        ("knob", "colour=red,blue"),
        ("knob", "chunk"),
        ("knob", "rmw_level=1,9"),
        ("knob", "consistency-policy=log,hope"),
        ("knob", "sync_action=check,idle"),
        // What an array of these would refuse when it is created.
        ("knob", "chunk=3,5"),
        ("knob", "chunk=0,64K"),
        ("knob", "chunk=64K,128M"),
        // One against itself.
        ("knob", "chunk=64K,64K"),
        // A bare number counts KiB, as for `array create`.
        ("knob", "chunk=64K,64"),
        ("knob", "log-size=1,1M"),
        ("knob", "rmw_level=1,1"),
        ("granules", "4K,auto,4096"),
    ] {
        let values = Values::read(OPTIONS, &[bad]).unwrap();
        assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage, "{bad:?}");
    }
}

#[test]
#[ignore = "with --all: it measures for 7 s"]
fn a_knob_is_measured_before_and_after_with_a_verdict_for_each_load() {
    for (knob, name) in [
        ("chunk=64K,256K", "chunk"),
        ("consistency_policy=log,bitmap,none", "consistency-policy"),
        ("rmw-level=0,1", "rmw_level"),
        ("stripe_cache_size=1M,64M", "stripe_cache_size"),
    ] {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let places: Vec<PathBuf> = dirs.iter().map(|it| it.path().to_path_buf()).collect();
        let setting = Setting { dirs: places.clone(), device: None, seed: 7 };
        let given = [
            ("knob", knob),
            ("member-size", "4M"),
            ("requests", "50"),
            ("loads", "randwrite,write1m"),
        ];
        let values = Values::read(OPTIONS, &given).unwrap();
        let made = plan(&setting, &values).unwrap();
        assert_eq!(made.intents().len(), 2);
        assert!(made.notes()[0].contains("up to 2 of the 4 members"), "{:?}", made.notes());
        let results = measured_in(&CASE, &setting, &given);
        let count = knob.split(',').count();
        assert_eq!(results.variants.len(), 2 * count);
        assert_eq!(results.verdicts.len(), 2 * (count - 1), "{knob}");
        assert!(results.variants.iter().all(|it| it.parameters[1].name == name), "{knob}");
        assert!(tables(&results)[0].to_json()["columns"][1].as_str().unwrap().starts_with(name));
        let log = results.variant(&format!("randwrite {}", knob.rsplit(',').next().unwrap()));
        let log = log.unwrap().runs[0].measured.figures["log_written_of_each"];
        assert_eq!(log > 0.0, !knob.ends_with("none"), "{knob} {log}");
        assert!(places.iter().all(|it| std::fs::read_dir(it).unwrap().count() == 0));
    }
}
