//! What goes in comes out, whatever its size and layout, whole or in part.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use super::{LAYOUTS, content, names};
use crate::stand::Stand;

const MIB: u64 = 1 << 20;

#[test]
#[ignore = "with --all: it takes 8 s"]
fn every_size_comes_back_from_every_layout() {
    // Around a block, a unit; and, where a row of the log is 8 KiB and a set of 256 rows 2 MiB,
    // around these: a batch frame has 112 bytes, each block another 64.
    let (row, set) = (8192 - 112 - 64, 2 * MIB - 112 - 32 * 64);
    let around =
        |edges: &[u64]| edges.iter().flat_map(|it| [it - 1, *it, it + 1]).collect::<Vec<_>>();
    let (plain, striped) = (around(&[65_536, 4 * MIB]), around(&[row, set]));
    for (layout, outputs) in LAYOUTS {
        let edges = if layout.contains("strip") { &striped } else { &plain };
        for bytes in [0, 1, 2 * 4 * MIB + 5].iter().chain(edges) {
            let stand = Stand::in_memory();
            let source = stand.source(*bytes);
            let codec = if layout.contains("codec") { "" } else { "--codec raw" };
            stand.split(&format!("{layout} {codec}"), outputs);
            stand.assert_whole(outputs, &source);
        }
    }
}

#[test]
fn every_codec_and_block_size_comes_back() {
    let stand = Stand::in_memory();
    let source = stand.source(5 * MIB + 12_345);
    for codec in ["auto", "raw", "lzo", "snappy", "lz4", "zstd", "zstd:-5", "zstd:7"] {
        stand.split(&format!("--codec {codec} --force"), 2);
        stand.assert_whole(2, &source);
    }
    for block in ["4K", "1M", "4M", "8M", "16M"] {
        for more in ["", "--parity 1"] {
            stand.split(&format!("--block-size {block} --codec lz4 {more} --force"), 2);
            stand.assert_whole(2, &source);
        }
    }
}

#[test]
#[ignore = "with --all: it takes 4 s"]
fn any_range_is_that_part_of_the_source() {
    let stand = Stand::in_memory();
    let source = stand.source(9 * MIB + 1);
    let end = source.len();
    for (layout, outputs) in LAYOUTS {
        stand.split(&format!("{layout} --force"), outputs);
        let outs = names(outputs);
        for range in [0..0, 0..1, 65_535..65_537, 4_194_303..4_194_305, end - 1..end, end..end] {
            let told = format!("{}..{}", range.start, range.end);
            let cat = stand.command(&format!("cat {outs} --range {told}")).output().unwrap();
            assert!(cat.status.success() && cat.stdout == source[range.clone()], "{told}");
            let (ran, joined) = stand.join(&format!("{outs} --range {told}"));
            assert!(ran.code == 0 && joined.unwrap() == source[range], "{told}");
        }
        let cat = stand.command(&format!("cat {outs} --range 9M..")).output().unwrap();
        assert!(cat.stdout == source[end - 1..]);
        let cat = stand.command(&format!("cat {outs} --range ..4097")).output().unwrap();
        assert!(cat.stdout == source[..4097]);
        for (bad, words) in [
            ("9M..10M", "the range is beyond the end of the source"),
            ("10M..", "the range is beyond the end of the source"),
            ("5..4", "the range ends before it begins"),
            ("5", "write two sizes"),
            ("-1..4", "write"),
        ] {
            let ran = stand.run(&format!("cat {outs} --range={bad}"));
            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{bad}: {}", ran.err);
            assert!(bad.starts_with('-') || ran.err.contains(words), "{bad}: {}", ran.err);
            let (ran, joined) = stand.join(&format!("{outs} --range={bad}"));
            assert_eq!((ran.code, joined.is_none()), (2, true), "{bad}: {}", ran.err);
        }
    }
}

#[test]
fn plain_ranges_are_the_source_one_after_the_other() {
    let stand = Stand::new();
    let mut source = content(9 * MIB);
    // Ends in zeros, which are not written.
    source.resize(13 * MIB as usize + 7, 0);
    fs::write(stand.path("src"), &source).unwrap();
    stand.split("--layout ranges --codec raw", 3);
    let cat: Vec<u8> = (0..3).flat_map(|n| fs::read(stand.output(n)).unwrap()).collect();
    assert!(cat == source);
    stand.assert_whole(3, &source);
}

#[test]
fn a_pipe_is_split_and_joined_into_a_pipe() {
    let stand = Stand::new();
    let source = stand.source(9 * MIB + 3);
    for more in ["", "--parity 1"] {
        let mut command = stand.command(&format!("split - o0 o1 --force -q {more}"));
        let file = fs::File::open(stand.path("src")).unwrap();
        // Through another process, so that it is a pipe.
        let mut cat =
            std::process::Command::new("cat").stdin(file).stdout(Stdio::piped()).spawn().unwrap();
        let status = command.stdin(cat.stdout.take().unwrap()).status().unwrap();
        assert!(status.success() && cat.wait().unwrap().success());
        let joined = stand.command("join o1 o0").output().unwrap();
        assert!(joined.status.success() && joined.stdout == source);
    }
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let stand = Stand::new();
    stand.source(9 * MIB);
    stand.split("", 2);
    for line in ["join o0 o1", "cat o0 o1 --range 0.."] {
        let mut command = stand.command(line);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(141), ""), "{line}");
    }
}

#[test]
fn inspect_says_what_an_output_is() {
    let stand = Stand::new();
    let source = stand.source(9 * MIB);
    stand.split("--parity 1 --codec lz4 --strip-size 64K --block-size 32K", 3);
    let ran = stand.run("inspect o1 --json");
    let output = &ran.events_of("output")[0];
    for (key, value) in [
        ("layout", "stripes"),
        ("codec", "lz4"),
        ("blake3", blake3::hash(&source).to_hex().as_str()),
    ] {
        assert_eq!(output[key], value);
    }
    for (key, value) in [
        ("output", 1),
        ("outputs", 3),
        ("parity", 1),
        ("strip_bytes", 65_536),
        ("block_bytes", 32_768),
        ("source_bytes", 9 * MIB),
    ] {
        assert_eq!(output[key], value, "{key}");
    }
    assert_eq!(output["complete"], true);
    let blocks: u64 =
        ran.events_of("codec").iter().map(|it| it["raw_bytes"].as_u64().unwrap()).sum();
    assert_eq!(blocks + output["zero_bytes"].as_u64().unwrap(), 9 * MIB);
    assert_eq!(stand.run("inspect src").code, 1);
    assert_eq!(stand.run("inspect nowhere").code, 11);
}
