//! The case on small images: as root, where loop devices can be made.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use crate::cases::tests::{measured, measured_in};
use crate::io::at_once;
use crate::result::{Note, Results};
use crate::run::{Effort, Live, Origin, measure};
use crate::safety::{examine, tests::Loop};
use crate::scratch::tests::{assert_detached, image};
use pinstripe_testing::skipped;

const SMALL: [(&str, &str); 4] =
    [("files", "4"), ("total-size", "1M"), ("run-time", "0.02"), ("image-size", "320M")];

/// Whether loop devices can be made and mounted; otherwise the test is skipped.
fn can(test: &str) -> bool {
    image(test, 1 << 20).is_some()
}

fn planned(dir: &Path, given: &[(&str, &str)], system: &System) -> Result<FsPlan> {
    let setting = Setting { dirs: vec![dir.to_path_buf()], ..Setting::default() };
    FsPlan::new(&setting, &Values::read(OPTIONS, given)?, system)
}

fn refused(given: &[(&str, &str)]) -> Error {
    let dir = tempfile::tempdir().unwrap();
    planned(dir.path(), given, &System::default()).err().unwrap()
}

fn assert_nothing_is_left(dir: &Path) {
    assert_detached(dir);
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0);
}

#[test]
#[ignore = "with --all: it makes file systems on loop devices"]
fn every_file_system_here_is_measured_in_every_mode() {
    if !can("every_file_system_here_is_measured_in_every_mode") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = measured(&CASE, dir.path(), &SMALL);
    let names: BTreeSet<_> = results.variants.iter().map(|it| &it.parameters[1].value).collect();
    assert_eq!(results.variants.len(), 6 * names.len());
    for variant in &results.variants {
        let (run, name) = (&variant.runs[0], &variant.name);
        assert!(run.measured.value > 0.0 && run.measured.figures["mkfs_s"] > 0.0, "{name}");
        let is_filled = !name.starts_with("seqwr ");
        assert_eq!(run.measured.figures.contains_key("stored_share"), is_filled, "{name}");
        assert_eq!(run.measured.latency.contains_key("sync"), !name.contains("rd "), "{name}");
        // What was made, by what, and how it was mounted stands with the results.
        let maker = format!("{}: created by '", variant.parameters[1].value);
        let note = results.notes.iter().find(|it| it.starts_with(&maker)).unwrap();
        assert!(note.contains("mkfs.") && note.contains("mounted rw,relatime"), "{note}");
    }
    assert_nothing_is_left(dir.path());
    let [panel, costs] = &tables::tables(&results)[..] else { panic!("two tables") };
    let panel = panel.to_json();
    assert_eq!(panel["columns"].as_array().unwrap().len(), 7);
    assert_eq!(panel["rows"].as_array().unwrap().len(), names.len() + 1);
    assert_eq!(panel["rows"][names.len()]["file-system"], "best by worst");
    assert_eq!(costs.to_json()["rows"].as_array().unwrap().len(), names.len());
}

#[test]
#[ignore = "with --all: it makes a file system on a loop device"]
fn compression_shows_in_what_is_stored_and_does_not_look_like_a_cache() {
    let test = "compression_shows_in_what_is_stored_and_does_not_look_like_a_cache";
    if !can(test) || System::default().maker(&FILE_SYSTEMS[3]).is_err() {
        return skipped(test, "btrfs cannot be made here");
    }
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let candidates = "btrfs; btrfs mount=compress=zstd";
    let more = [
        ("candidates", candidates),
        ("modes", "seqrd"),
        ("content", "zeros:90%"),
        ("total-size", "16M"),
        ("run-time", "60"),
    ];
    let results = measured(&CASE, dir.path(), &[&SMALL[..], &more].concat());
    let [plain, small] = &results.variants[..] else { panic!("two variants") };
    let share = |variant: &crate::result::Variant| variant.runs[0].measured.figures["stored_share"];
    assert!(share(plain) > 0.9 && share(small) < 0.5, "{} {}", share(plain), share(small));
    for variant in [plain, small] {
        assert_eq!(variant.runs[0].measured.read_bytes, 16 << 20);
        assert!(!variant.notes().contains(&Note::PageCache), "{}", variant.name);
    }
}

#[test]
#[ignore = "with --all: it makes file systems on loop devices"]
fn a_device_is_measured_and_wiped_so_that_it_passes_again() {
    let test = "a_device_is_measured_and_wiped_so_that_it_passes_again";
    if !can(test) {
        return;
    }
    let Some(device) = Loop::new(&[]) else { return skipped(test, "no loop device can be made") };
    let setting = Setting { device: Some(device.path().to_owned()), ..Setting::default() };
    for _ in 0..2 {
        let more = [("file-systems", "ext4"), ("modes", "seqwr,rndrd")];
        let results = measured_in(&CASE, &setting, &[&SMALL[..], &more].concat());
        assert_eq!(results.variants.len(), 2);
        assert_eq!(examine(device.path()).unwrap().objections, []);
    }
    // It carries something by then: it is looked at once more before it is touched.
    let values = Values::read(OPTIONS, &SMALL).unwrap();
    let mut late = plan(&setting, &values).unwrap();
    std::fs::write(device.path(), [&[0; 1024 + 0x38][..], &[0x53, 0xef]].concat()).unwrap();
    let live = Live::new(Arc::default());
    assert_eq!(late.prepare(&live).unwrap_err().kind(), Kind::Refused);
    late.clean().unwrap();
    let carries = examine(device.path()).unwrap().objections;
    assert_eq!(carries.len(), 1, "it was not wiped either: {carries:?}");
}

/// Measures until it is stopped after some time, or by the number of runs that were made.
fn stopped(dir: &Path, given: &[(&str, &str)], after: Duration, runs: usize) -> Results {
    let setting = Setting { dirs: vec![dir.to_path_buf()], ..Setting::default() };
    let stop = Arc::new(AtomicBool::new(false));
    let live = Arc::new(Live::new(Arc::clone(&stop)));
    let mut results = at_once(2, |number| {
        if number == 0 {
            std::thread::sleep(after);
            stop.store(true, Ordering::Relaxed);
            return None;
        }
        let mut plan = plan(&setting, &Values::read(OPTIONS, given).unwrap()).unwrap();
        let effort = Effort { warm_up: 0, patience: Duration::ZERO, ..Effort::default() };
        let mut made = 0;
        let mut each = |_: &Results| {
            made += 1;
            stop.fetch_or(made == runs, Ordering::Relaxed);
            Ok(())
        };
        Some(measure(plan.as_mut(), &effort, &Origin::default(), &live, &mut each).unwrap())
    });
    results.pop().flatten().unwrap()
}

#[test]
#[ignore = "with --all: it makes file systems on loop devices"]
fn a_stop_at_any_moment_keeps_the_runs_and_leaves_nothing() {
    if !can("a_stop_at_any_moment_keeps_the_runs_and_leaves_nothing") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let more = [("file-systems", "ext3,ext4"), ("image-size", "32M")];
    let small = [&SMALL[..], &more].concat();
    // While the image is written, while a file system is made, mounted, filled, measured.
    for millis in [0, 20, 60, 130, 250, 400, 700] {
        let results = stopped(dir.path(), &small, Duration::from_millis(millis), usize::MAX);
        assert!(!results.is_complete, "{millis}");
        assert_nothing_is_left(dir.path());
    }
    // In the midst of a long run, which ends early.
    let long = [&small[..], &[("modes", "rndrd"), ("run-time", "600")]].concat();
    let results = stopped(dir.path(), &long, Duration::from_secs(2), usize::MAX);
    assert!(!results.is_complete);
    assert_nothing_is_left(dir.path());
    // Between two runs.
    let results = stopped(dir.path(), &small, Duration::from_millis(0), 3);
    assert!(!results.is_complete);
    assert_nothing_is_left(dir.path());
}

#[test]
fn what_is_not_there_is_left_out_unless_it_was_named() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = System { programs: vec![dir.path().join("bin")], ..System::default() };
    let error = planned(dir.path(), &[("file-systems", "ext4")], &nowhere).err().unwrap();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.advice_text().unwrap().contains("e2fsprogs"));
    let mut plan = planned(dir.path(), &[], &nowhere).unwrap();
    let error = plan.prepare(&Live::new(Arc::default())).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().contains("jfs is left out: mkfs.jfs is not installed"), "{error}");
    plan.clean().unwrap();
    assert_nothing_is_left(dir.path());
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_made() {
    for given in [
        [("candidates", "ext5")],
        [("candidates", ";")],
        [("candidates", "ext4 /dev/sda")],
        [("read-share", "2")],
        [("content", "x")],
        [("files", "9999999")],
    ] {
        assert_eq!(refused(&given).kind(), Kind::Usage, "{given:?}");
    }
    if System::default().maker(&FILE_SYSTEMS[1]).is_ok() {
        let twice = refused(&[("file-systems", "ext4"), ("candidates", "ext4")]);
        assert!(twice.to_string().contains("twice"), "{twice}");
        let small = refused(&[("file-systems", "ext4"), ("image-size", "1M")]);
        assert!(small.to_string().contains("at least 8.0 MiB"), "{small}");
    }
    let two = Setting { dirs: vec!["/".into(), "/".into()], ..Setting::default() };
    let values = Values::read(OPTIONS, &[]).unwrap();
    assert_eq!(plan(&two, &values).err().unwrap().kind(), Kind::Usage);
}

#[test]
fn what_cannot_be_made_or_mounted_or_held_is_known_before_anything_is_measured() {
    let test = "what_cannot_be_made_or_mounted_or_held_is_known_before_anything_is_measured";
    if !can(test) || System::default().maker(&FILE_SYSTEMS[1]).is_err() {
        return skipped(test, "ext4 cannot be made here");
    }
    let dir = tempfile::tempdir().unwrap();
    for (more, kind, said) in [
        (("candidates", "ext4; ext4 mount=no_such_thing"), Kind::Io, "no_such_thing"),
        (("candidates", "ext4; ext4 -O no_such_thing"), Kind::Io, "no_such_thing"),
        (("total-size", "300M"), Kind::NoSpace, "too little space for the files"),
        (("image-size", "4000T"), Kind::NoSpace, "too little space"),
    ] {
        let given = [&SMALL[..], &[("candidates", "ext4"), more]].concat();
        let mut plan = planned(dir.path(), &given, &System::default()).unwrap();
        let error = plan.prepare(&Live::new(Arc::default())).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(said), "{error}");
        assert!(error.advice_text().is_some(), "{error}");
        plan.clean().unwrap();
        assert_nothing_is_left(dir.path());
    }
}
