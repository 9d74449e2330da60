//! The case on small files, and on a loop device.

use super::*;
use crate::cases::tests::{assert_accessed, measured, measured_in};

const SMALL: [(&str, &str); 4] =
    [("total-size", "1M"), ("record-size", "32K"), ("probe-rounds", "1"), ("probe-time", "0.005")];

#[test]
fn every_test_meets_as_many_bytes_on_one_area_as_on_two() {
    let dir = tempfile::tempdir().unwrap();
    let results = measured(&CASE, dir.path(), &SMALL);
    assert_eq!(results.variants.len(), 2 * 12 + 1);
    for variant in results.variants.iter().filter(|it| it.name != SPINDLE) {
        assert_accessed(variant, 1 << 20);
    }
    let [panel, spindle] = &tables::tables(&results)[..] else { panic!("two tables") };
    assert_eq!(panel.to_json()["rows"].as_array().unwrap().len(), 12);
    assert_eq!(spindle.to_json()["rows"][0]["verdict"], "unclear", "one round says nothing");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn several_sizes_are_measured_each_for_itself() {
    let dir = tempfile::tempdir().unwrap();
    let more = [("total-size", "1M,2M"), ("tests", "write,random-read,fread,spindle")];
    let results = measured(&CASE, dir.path(), &[&SMALL[1..], &more].concat());
    assert_eq!(results.variants.len(), 2 * 2 * 3 + 1, "the spindle is asked for once");
    for variant in results.variants.iter().filter(|it| it.name != SPINDLE) {
        assert_accessed(variant, if variant.name.contains(" 1M ") { 1 << 20 } else { 2 << 20 });
    }
    assert_eq!(results.groups().len(), 7, "{:?}", results.groups());
    let [small, large, _] = &tables::tables(&results)[..] else { panic!("three tables") };
    assert!(
        small.title().ends_with(", 1M") && large.title().ends_with(", 2M"),
        "{}",
        large.title()
    );
    assert_eq!(small.to_json()["rows"].as_array().unwrap().len(), 3);
    let values = Values::read(OPTIONS, &[("total-size", "1M,1M")]).unwrap();
    let setting = Setting { dirs: vec![dir.path().to_path_buf()], ..Setting::default() };
    assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage);
}

#[test]
fn two_directories_have_an_area_each_and_three_are_refused() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let paths: Vec<PathBuf> = dirs.iter().map(|it| it.path().to_path_buf()).collect();
    let setting = Setting { dirs: paths.clone(), ..Setting::default() };
    let values = Values::read(OPTIONS, &SMALL).unwrap();
    let mut made = plan(&setting, &values).unwrap();
    made.prepare(&Live::new(Default::default())).unwrap();
    assert!(dirs.iter().all(|it| std::fs::read_dir(it.path()).unwrap().count() == 1));
    made.clean().unwrap();
    let setting = Setting { dirs: [paths.clone(), paths].concat(), ..Setting::default() };
    assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage);
}

#[test]
#[ignore = "with --all: it measures a loop device"]
fn of_a_device_two_areas_begin_at_its_beginning_and_in_its_middle() {
    let test = "of_a_device_two_areas_begin_at_its_beginning_and_in_its_middle";
    let Some(device) = crate::safety::tests::Loop::new(&[]) else {
        return pinstripe_testing::skipped(test, "no loop device can be made");
    };
    let setting = Setting { device: Some(device.path().to_path_buf()), ..Setting::default() };
    let results = measured_in(&CASE, &setting, &SMALL);
    assert_eq!(results.variants.len(), 2 * 12, "nobody asks for the spindle");
    for variant in &results.variants {
        assert_accessed(variant, 1 << 20);
    }
    let bytes = std::fs::read(device.path()).unwrap();
    let is_written = |at: usize| bytes[at..at + 4096].iter().any(|byte| *byte != 0);
    let (half, middle) = (512 << 10, bytes.len() / 2);
    assert!(is_written(0) && is_written(2 * half - 4096) && !is_written(2 * half));
    assert!(is_written(middle) && is_written(middle + half - 4096) && !is_written(middle + half));
    let only = [("tests", SPINDLE)];
    let values = Values::read(OPTIONS, &only).unwrap();
    assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage);
}
