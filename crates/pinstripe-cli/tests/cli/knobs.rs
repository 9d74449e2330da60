//! Settings that were measured, written by one verb and read by others.

use std::fs;

use crate::stand::{Stand, noise};

const KNOBS: &str = "version = 1\n[split]\nblock-size = \"4K\"\ncodec = \"raw\"\n";

fn stand() -> Stand {
    let stand = Stand::in_memory();
    fs::write(stand.path("source"), noise(1, 100_000)).unwrap();
    fs::write(stand.path("knobs.toml"), KNOBS).unwrap();
    stand
}

#[test]
fn options_that_are_not_given_come_from_the_knobs() {
    let stand = stand();
    let ran = stand.run("split {}/source {}/out --knobs {}/knobs.toml");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("knobs.toml says --block-size=4K --codec=raw"), "{}", ran.out);
    let shown = stand.run("inspect {}/out --json");
    assert!(shown.out.contains("\"block_bytes\":4096"), "{}", shown.out);
    // What is given outranks the file; verbs that it says nothing of are as they were.
    let ran = stand.run("split {}/source {}/other --block-size 8K --knobs {}/knobs.toml");
    assert!(ran.out.contains("says --codec=raw\n"), "{}", ran.out);
    assert!(stand.run("inspect {}/other --json").out.contains("\"block_bytes\":8192"));
    let ran = stand.run("verify {}/out --knobs {}/knobs.toml");
    assert!(ran.code == 0 && !ran.out.contains("says"), "{}", ran.out);
}

#[test]
fn the_config_file_may_name_the_knobs() {
    let stand = stand();
    let config = format!("knobs = \"{}\"\n", stand.path("knobs.toml").display());
    fs::write(stand.path("config.toml"), config).unwrap();
    let ran = stand.run("split {}/source {}/out --config {}/config.toml");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("says --block-size=4K"), "{}", ran.out);
}

#[test]
fn knobs_that_make_no_sense_are_refused_by_name() {
    let stand = stand();
    for (text, told) in [
        ("[split]\n", "no version"),
        ("version = 2\n", "another version"),
        ("version = 1\n[split]\ncolour = \"red\"\n", "sets 'colour', which 'split' has not"),
        ("version = 1\n[split]\ndepth = 4\n", "the value of 'depth' is no text"),
        ("version = 1\n[split]\ndepth = \"none\"\n", "do not suit"),
        ("version = = 1", "no TOML"),
    ] {
        fs::write(stand.path("bad.toml"), text).unwrap();
        let ran = stand.run("split {}/source {}/out --knobs {}/bad.toml");
        assert!(ran.code != 0 && ran.err.contains(told), "{text}: {}", ran.err);
        assert!(!stand.path("out").exists());
    }
    let ran = stand.run("split {}/source {}/out --knobs {}/none.toml");
    assert!(ran.code != 0 && ran.err.contains("none.toml"), "{}", ran.err);
}

#[test]
fn a_disk_is_measured_and_what_to_set_is_written_down() {
    let stand = stand();
    let tuned = stand.run("lab tune {} --time 1 --total-size 8M --out {}/tuned.toml");
    // A machine that is never quiet says so, and writes nothing.
    if tuned.code != 0 {
        assert!(tuned.err.contains("too few runs counted"), "{}", tuned.err);
        assert!(!stand.path("tuned.toml").exists());
        return;
    }
    let text = fs::read_to_string(stand.path("tuned.toml")).unwrap();
    assert!(text.contains("version = 1\n") && text.contains("# "), "{text}");
    let ran = stand.run("split {}/source {}/out --knobs {}/tuned.toml");
    assert_eq!(ran.code, 0, "{text}\n{}", ran.err);
}

#[test]
fn a_quick_look_ends_with_a_page() {
    let stand = stand();
    let ran = stand.run("lab quick {} --time 1 --total-size 8M --out {}/page.html --json");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let summary = ran.events_of("summary");
    assert!(summary[0]["page"].as_str().unwrap().ends_with("page.html"), "{}", ran.out);
    assert!(summary[0]["advice"].is_array());
    let page = fs::read_to_string(stand.path("page.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.len() < 300_000);
    assert!(page.contains("make 4 KiB durable"));
    // The page holds its results.
    let shown = stand.run("lab show {}/page.html");
    assert!(shown.code == 0 && shown.out.contains("make 4 KiB durable"), "{}", shown.err);
}
