//! Small splits, made-up and of own data.

use super::*;
use crate::cases::tests::{measured, run_once};

const SMALL: [(&str, &str); 3] = [("size", "3M"), ("outputs", "1,3"), ("codecs", "raw,lz4,auto")];

#[test]
fn every_codec_and_number_of_outputs_is_measured_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    let small = [&SMALL[..], &[("data", "dump"), ("policies", "buffered,direct")]].concat();
    let results = measured(&CASE, dir.path(), &small);
    assert_eq!(results.variants.len(), 12);
    let of =
        |name: &str| results.variant(name).unwrap().runs[0].measured.figures["written_of_each"];
    assert!(of("lz4, buffered, 1") < 0.9 * of("raw, buffered, 1"));
    let table = tables(&results)[0].to_json();
    assert_eq!(table["columns"], serde_json::json!(["way", "outputs 1", "outputs 3"]));
    let titles: Vec<String> = tables(&results).iter().map(|it| it.title().to_owned()).collect();
    for wanted in ["Seconds", "How many times as fast as with 1 output", "Minutes for 1 TB"] {
        assert!(titles.iter().any(|it| it == wanted), "{titles:?}");
    }
    let run = &results.variants[0].runs[0];
    let rate = run.measured.value;
    assert!((seconds(run).unwrap() - 3.0 * 1.048_576 / rate).abs() < 1e-9);
    // Of a run that counts and is the only one, the first column is 1.
    let of = |run: &Run| Some(run.measured.value);
    let times = grid::times_the_first(&results, "", "", ["way", "outputs"], of).to_json();
    let first = times["rows"][0]["outputs 1"]
        .as_str()
        .map_or(1.0, |it| it.trim_matches(['(', ')']).parse().unwrap());
    assert_eq!(first, 1.0, "{times}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn own_data_is_split_and_codecs_are_judged_by_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let sample = tempfile::tempdir().unwrap();
    let text = "what is written again and again gets small\n".repeat(5000);
    std::fs::write(sample.path().join("text"), text).unwrap();
    let place = sample.path().to_str().unwrap();
    let few = [("size", "2M"), ("outputs", "2"), ("codecs", "raw,lz4"), ("sample", place)];
    let results = measured(&CASE, dir.path(), &few);
    let of =
        |name: &str| results.variant(name).unwrap().runs[0].measured.figures["written_of_each"];
    assert!(of("lz4, 2") < 0.2 && of("raw, 2") >= 1.0);
    assert_eq!(results.groups(), ["2 outputs"]);
    assert_eq!(results.verdicts.len(), 1);
    let missing = [("size", "2M"), ("sample", "/nowhere")];
    let values = Values::read(OPTIONS, &missing).unwrap();
    let setting = Setting { dirs: vec![dir.path().to_path_buf()], ..Setting::default() };
    assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::NotFound);
}

#[test]
fn an_output_that_was_damaged_ends_the_case() {
    let dir = tempfile::tempdir().unwrap();
    let setting = Setting { dirs: vec![dir.path().to_path_buf()], ..Setting::default() };
    let values = Values::read(OPTIONS, &SMALL).unwrap();
    let mut plan = plan(&setting, &values).unwrap();
    let live = Live::new(Default::default());
    let folder = run_once(plan.as_mut(), &live, dir.path());
    let path = folder.join("out.0");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(plan.check(VariantNo(0), &live).is_err());
    plan.clean().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn codecs_that_are_none_and_no_outputs_are_refused() {
    let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
    for bad in [("codecs", "raw,zip"), ("outputs", "0,1")] {
        let values = Values::read(OPTIONS, &[bad]).unwrap();
        assert!(plan(&setting, &values).is_err(), "{bad:?}");
    }
}

#[test]
fn a_codec_that_is_none_is_refused_with_all_that_are_taken() {
    let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
    let values = Values::read(OPTIONS, &[("codecs", "raw,foo")]).unwrap();
    let error = plan(&setting, &values).err().unwrap();
    assert_eq!((error.kind(), error.what()), (Kind::Usage, "'foo' is not a codec"));
    let wanted = "choose a codec: raw, zstd, zstd:LEVEL, lz4, snappy, lzo, auto";
    assert_eq!(error.advice_text(), Some(wanted));
    // A level that is none has no list of names.
    let values = Values::read(OPTIONS, &[("codecs", "zstd:99")]).unwrap();
    let error = plan(&setting, &values).err().unwrap();
    assert!(!error.advice_text().unwrap().contains("auto"), "{error}");
}
