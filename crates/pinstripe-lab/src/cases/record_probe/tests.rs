//! Few streams for a short time.

use std::time::Duration;

use pinstripe_io::device::FileDevice;
use pinstripe_record::{DiskFolder, Manifest, TakeState};

use super::*;
use crate::cases::tests::{measured, run_once};
use crate::io::recorder::can_take;

const SMALL: [(&str, &str); 6] = [
    ("streams", "3"),
    ("rate", "1M"),
    ("chunk", "8K"),
    ("run-time", "0.2"),
    ("storm-size", "2M"),
    ("sync-every", "0.05"),
];

#[test]
fn streams_are_recorded_by_every_policy_beside_nothing_and_beside_a_storm() {
    let dir = tempfile::tempdir().unwrap();
    let results = measured(&CASE, dir.path(), &SMALL);
    assert_eq!(results.variants.len(), 8);
    for variant in &results.variants {
        let run = &variant.runs[0];
        assert!(run.measured.written_bytes > 0 && run.measured.value >= 8.0, "{}", variant.name);
        let is_storm = grid::parameter(variant, "under") == "storm";
        assert_eq!(run.measured.figures["storm_mb_per_s"] > 0.0, is_storm, "{}", variant.name);
        let ring = run.measured.figures["ring_needed_kib"];
        assert!(ring >= 16.0 && (ring as u64).is_power_of_two(), "{ring}");
    }
    assert_eq!(tables(&results)[0].to_json()["rows"].as_array().unwrap().len(), 8);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn chunks_that_are_not_whole_pages_are_not_direct() {
    let dir = tempfile::tempdir().unwrap();
    let plain = [("policies", "direct,direct+dsync,buffered"), ("under", "idle")];
    let probe = dir.path().join("probe");
    let supports = FileDevice::open(&probe, Access::Create, Policy::Direct).unwrap();
    let supports = supports.policy().is_direct();
    std::fs::remove_file(probe).unwrap();
    for (chunk, suits) in [("6000", false), ("8K", true)] {
        let results =
            measured(&CASE, dir.path(), &[&SMALL[..], &plain, &[("chunk", chunk)]].concat());
        for variant in &results.variants {
            let is_direct = grid::parameter(variant, "policy").starts_with("direct");
            let is_told = variant.runs[0].notes.contains(&Note::NotDirect);
            assert_eq!(is_told, is_direct && !(suits && supports), "{chunk}: {}", variant.name);
        }
    }
}

#[test]
fn the_ring_needed_is_a_chunk_and_what_comes_in_a_round_and_two_longest_writes() {
    let mut probe = RecordProbe {
        parameters: Vec::new(),
        dir: std::env::temp_dir(),
        folder: None,
        ways: Vec::new(),
        notes: Vec::new(),
        streams: 256,
        find_most: None,
        is_reserved: false,
        seed: 0,
        recording: Recording {
            rate: 288_000,
            chunk_bytes: 64 << 10,
            ring_bytes: 1 << 20,
            time: Duration::from_secs(1),
            writers: 1,
            sync_every: None,
            storm_bytes: 0,
            storm_sync_bytes: 0,
            class: SchedulingClass::Normal,
            seed: 0,
        },
        targets: Vec::new(),
        chunks: Vec::new(),
        take: None,
        storm: None,
    };
    let mut recorded = Recorded::default();
    recorded.writes.record_many(181_000_000, 1);
    recorded.writes.record_many(31_000, 999);
    // 64 KiB + 288 kB/s x (256 x 0.21 ms + 2 x 181 ms).
    let (needed, round) = probe.needed(&recorded, 256);
    assert!((round - 0.0543).abs() < 0.001, "{round}");
    assert!((needed - 185_500.0).abs() < 1000.0, "{needed}");
    assert_eq!(probe.figures(&recorded, 256)["ring_needed_kib"], 256.0);
    probe.recording.writers = 16;
    assert!((probe.needed(&recorded, 256).1 - 0.0034).abs() < 0.0001);
}

#[test]
fn a_ring_of_less_than_a_chunk_is_refused() {
    let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
    for bad in [("ring", "4K"), ("rate", "0"), ("chunk", "0"), ("ring", "100K"), ("chunk", "513K")]
    {
        let values = Values::read(OPTIONS, &[bad]).unwrap();
        assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage, "{bad:?}");
    }
}

#[test]
fn the_formula_stands_there_with_its_figures() {
    let dir = tempfile::tempdir().unwrap();
    let few = [("policies", "buffered"), ("under", "idle"), ("preallocate", "")];
    let mut results = measured(&CASE, dir.path(), &[&SMALL[..], &few].concat());
    // What counts is not what this is about.
    results.variants[0].runs[0].disturbances.clear();
    let table = tables(&results)[1].to_json();
    let column = table["columns"][2].as_str().unwrap();
    let text = table["rows"][0][column].as_str().unwrap();
    assert!(text.starts_with("8 KiB + 1024.0 KiB/s x ("), "{text}");
}

#[test]
fn the_most_streams_are_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let few = [("policies", "buffered"), ("under", "idle"), ("find-most", "7")];
    let results = measured(&CASE, dir.path(), &[&SMALL[..], &few].concat());
    let run = &results.variants[0].runs[0];
    let (most, over) = (run.measured.value, run.measured.figures.get("overran_at"));
    assert!(most <= 7.0 && over.is_none_or(|over| *over > most), "{most} {over:?}");
    assert!(run.measured.figures["tries"] >= 2.0 && run.measured.written_bytes > 0);
    assert_eq!(results.variants[0].metric.unit, "streams");
    assert_eq!(tables(&results)[0].to_json()["rows"].as_array().unwrap().len(), 1);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn streams_that_are_damaged_end_the_case() {
    let dir = tempfile::tempdir().unwrap();
    let setting = Setting { dirs: vec![dir.path().to_path_buf()], ..Setting::default() };
    let few = [("run-time", "1"), ("policies", "buffered")];
    let values = Values::read(OPTIONS, &[&SMALL[..], &few].concat()).unwrap();
    let mut plan = super::plan(&setting, &values).unwrap();
    let live = Live::new(Default::default());
    let folder = run_once(plan.as_mut(), &live, dir.path());
    std::fs::write(folder.join("stream.0001"), vec![0; 8192]).unwrap();
    assert_eq!(plan.check(VariantNo(0), &live).unwrap_err().kind(), Kind::Corrupt);
    plan.clean().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn real_time_is_measured_where_it_is_permitted_and_otherwise_left_out_aloud() {
    let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
    let values = Values::read(OPTIONS, &[("io-class", "normal,rt")]).unwrap();
    let plan = super::plan(&setting, &values).unwrap();
    let has_real_time = plan.variants().iter().any(|it| it.name == "direct, storm, rt");
    let is_said =
        plan.notes().iter().any(|it| it.starts_with("the real-time I/O class was not used"));
    assert_eq!(has_real_time, can_take(SchedulingClass::RealTime).is_ok());
    assert_ne!(has_real_time, is_said);
}

#[test]
fn the_recorder_is_measured_by_its_own_engine_with_the_settings_that_were_given() {
    let dir = tempfile::tempdir().unwrap();
    let setting = Setting { dirs: vec![dir.path().to_path_buf()], ..Setting::default() };
    let few = [("policies", "recorder,recorder-direct"), ("ring", "64K"), ("under", "storm")];
    let values = Values::read(OPTIONS, &[&SMALL[..], &few].concat()).unwrap();
    let mut plan = super::plan(&setting, &values).unwrap();
    let live = Live::new(Default::default());
    plan.prepare(&live).unwrap();
    let folder = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    for variant in [VariantNo(0), VariantNo(1)] {
        plan.ready(variant, &live).unwrap();
        let outcome = plan.run(variant, 0, &live).unwrap();
        // 0.2 s of 1 MiB/s in samples of two bytes, of three streams: a clock made them, whatever the
        // disk did, and what a ring could not hold is there as silence.
        assert_eq!(outcome.measured.written_bytes, 3 * 2 * 104_858);
        assert!(outcome.measured.operations > 3 && outcome.beside_written_bytes > 0);
        let figures = &outcome.measured.figures;
        assert!(figures["longest_write_ms"] > 0.0 && figures["durable_lag_s"] > 0.0, "{figures:?}");
        assert!(figures["cpu_writer_s_per_gb"] > 0.0 && !figures.contains_key("stalls"));
        assert_eq!(figures["fill_percent"], 100.0 * figures["backlog_kib"] / 64.0);
        // It is a take of the recorder, with these settings.
        let taken = DiskFolder::open(&folder.join("take")).unwrap();
        let manifest = Manifest::load(&taken).unwrap();
        assert_eq!((manifest.ring_bytes, manifest.chunk_bytes), (64 << 10, 8 << 10));
        assert_eq!((manifest.streams.len(), manifest.state), (3, TakeState::Complete));
        let told = manifest.figures.unwrap();
        assert_eq!(told.written_bytes, outcome.measured.written_bytes);
        assert_eq!(told.longest_write_ms, figures["longest_write_ms"]);
        assert_eq!(told.overruns as f64, figures["overruns"]);
        plan.check(variant, &live).unwrap();
    }
    let path = folder.join("take/02-test-2.wav");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(plan.check(VariantNo(1), &live).unwrap_err().kind(), Kind::Corrupt);
    plan.clean().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
