//! Damaged and missing outputs: healed as far as parity goes; beyond that, what is lost is named to
//! the byte and the rest is right.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{LAYOUTS, names};
use crate::stand::{Ran, Stand};

const MIB: u64 = 1 << 20;
const KINDS: [(u8, &str); 3] = [(4, "batch"), (5, "index"), (6, "manifest")];

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// An output that has a frame of a kind in its own log, and where the first one begins.
fn frame(stand: &Stand, kind: u8) -> (PathBuf, usize) {
    let place = |number| {
        let path = stand.output(number);
        let bytes = fs::read(&path).unwrap();
        let is_it = |at: &usize| bytes[*at..].starts_with(b"psFR") && bytes[at + 5] == kind;
        let at = (8192..bytes.len() - 64).find(is_it)?;
        Some((path, at))
    };
    // One of them may have been so slow that it got no batch.
    place(1).or_else(|| place(0)).expect("some log has one")
}

/// Gives the name of the first output to the longest: with a queue, an output whose writer gets no
/// processor in time has nothing that could be missed.
fn name_the_longest_first(stand: &Stand, outputs: usize) {
    let len = |number: &usize| fs::metadata(stand.output(*number)).unwrap().len();
    let longest = (0..outputs).rev().max_by_key(len).expect("a split has outputs");
    let aside = stand.path("aside");
    fs::rename(stand.output(0), &aside).unwrap();
    if longest > 0 {
        fs::rename(stand.output(longest), stand.output(0)).unwrap();
    }
    fs::rename(&aside, stand.output(longest)).unwrap();
}

/// The ranges that a run named as lost.
fn lost(ran: &Ran) -> Vec<Range<usize>> {
    let of = |what: &str| {
        let (start, end) =
            what.strip_prefix("bytes ")?.strip_suffix(" are lost")?.split_once("..")?;
        Some(start.parse().unwrap()..end.parse().unwrap())
    };
    ran.events_of("problem").iter().filter_map(|it| of(it["what"].as_str().unwrap())).collect()
}

/// Joins damaged outputs: refused, then with zeros for exactly what is named as lost.
#[track_caller]
fn assert_rescues(stand: &Stand, outs: &str, source: &[u8], what: &str) -> Vec<Range<usize>> {
    let (ran, joined) = stand.join(outs);
    assert_eq!((ran.code, joined.is_none()), (15, true), "{what}: {}", ran.err);
    let (ran, joined) = stand.join(&format!("{outs} --best-effort"));
    assert_eq!(ran.code, 3, "{what}: {}", ran.err);
    let (lost, joined) = (lost(&ran), joined.unwrap());
    assert!(!lost.is_empty(), "{what}");
    let mut expected = source.to_vec();
    lost.iter().for_each(|range| expected[range.clone()].fill(0));
    assert!(joined == expected, "{what}: {lost:?}");
    let bytes: usize = lost.iter().map(|range| range.len()).sum();
    assert_eq!(ran.summary()["lost_bytes"], bytes, "{what}");
    // What is not lost can be had by itself, the rest not.
    let out = |range: Range<usize>| {
        let line = format!("cat {outs} --range {}..{}", range.start, range.end);
        stand.command(&line).output().unwrap()
    };
    let gone = out(lost[0].start..lost[0].start + 1);
    assert!(!gone.status.success() && gone.stdout.is_empty(), "{what}");
    lost
}

#[test]
fn whatever_is_flipped_on_as_many_outputs_as_parity_is_healed() {
    for (parity, outputs) in [(1, 3), (2, 5)] {
        let stand = Stand::in_memory();
        let source = stand.source(5 * MIB + 77);
        let split = || stand.split(&format!("--parity {parity} --strip-size 4K --force"), outputs);
        split();
        let bytes = fs::read(stand.output(0)).unwrap();
        let trailer = |bytes: &[u8]| {
            let is_it = |at: &usize| bytes[*at..].starts_with(b"pstrSETt");
            (8192..bytes.len()).find(is_it).expect("every set has a trailer")
        };
        let end = bytes.len();
        for (what, place) in [
            ("head page", 100),
            ("end page", 4096 + 60),
            ("header of a set", 8192 + 20),
            ("batch frame or parity", 8192 + 4096 + 10),
            ("strip", 8192 + 4096 + 100_000),
            ("last strips", end - 16_000),
            ("trailer", trailer(&bytes) + 30),
            ("footer", trailer(&bytes) - 4096),
            ("manifest", end - 80),
        ] {
            split();
            // Other outputs each time, and as many as may be damaged.
            for number in 0..parity {
                flip(&stand.output((place + number) % outputs), place);
            }
            let (ran, joined) = stand.join(&names(outputs));
            assert_eq!(ran.code, 0, "{what}: {}", ran.err);
            assert!(joined.unwrap() == source, "{what}");
            let verified = stand.run(&format!("verify {}", names(outputs)));
            assert_eq!(verified.code, 10, "{what}: {}", verified.err);
        }
        // All of that at once on the same outputs.
        split();
        for number in 0..parity {
            for place in [100, 4096 + 60, 8192 + 20, 8192 + 5000, 200_000, end - 16_000, end - 80] {
                flip(&stand.output(number), place);
            }
        }
        let (ran, joined) = stand.join(&names(outputs));
        assert!(ran.code == 0 && joined.unwrap() == source, "{}", ran.err);
    }
}

#[test]
fn beyond_parity_what_is_lost_is_named_to_the_byte() {
    let stand = Stand::in_memory();
    let source = stand.source(9 * MIB);
    let options = "--parity 1 --strip-size 64K --block-size 4K --codec lz4 --force";
    for damage in ["strips", "two strips", "outputs", "truncated"] {
        stand.split(options, 4);
        let outs = match damage {
            "outputs" => "o0 o3".to_owned(),
            _ => names(4),
        };
        for number in [1, 2] {
            let path = stand.output(number);
            let len = fs::metadata(&path).unwrap().len();
            let file = fs::File::options().write(true).open(&path).unwrap();
            match damage {
                // The same row of both.
                "strips" => flip(&path, 8192 + 4096 + 3 * 65_536 + 100),
                "two strips" => {
                    flip(&path, 8192 + 4096 + 3 * 65_536 + 100);
                    flip(&path, 8192 + 4096 + 9 * 65_536 + 100);
                }
                "truncated" => file.set_len(len / 2).unwrap(),
                _ => {}
            }
        }
        let lost = assert_rescues(&stand, &outs, &source, damage);
        let bytes: usize = lost.iter().map(|range| range.len()).sum();
        // Two flipped bits are in two blocks at most, but for one that is a head's.
        let most = match damage {
            "strips" => 4 * 4096,
            "two strips" => 8 * 4096,
            _ => source.len(),
        };
        assert!(bytes <= most, "{damage}: {lost:?}");
        let verified = stand.run(&format!("verify {outs}"));
        let code = if damage == "outputs" { 15 } else { 3 };
        assert_eq!(verified.code, code, "{damage}: {}", verified.err);
    }
}

#[test]
#[ignore = "with --all: it takes 5 s"]
fn without_parity_a_flip_costs_a_block_and_only_where_it_is_of_one() {
    for layout in ["--layout queue --codec lz4", "--layout ranges --codec lz4"] {
        let stand = Stand::in_memory();
        let source = stand.source(9 * MIB);
        for place in ["head", "end", "batch", "index", "manifest", "block's head", "block"] {
            stand.split(&format!("{layout} --block-size 64K --force"), 2);
            let ((path, at), inside) = match place {
                "head" => ((stand.output(1), 0), 100),
                "end" => ((stand.output(1), 4096), 60),
                "block's head" => (frame(&stand, 1), 20),
                "block" => (frame(&stand, 1), 64 + 1000),
                _ => (frame(&stand, KINDS.iter().find(|it| it.1 == place).unwrap().0), 70),
            };
            flip(&path, at + inside);
            if place.starts_with("block") {
                let lost = assert_rescues(&stand, "o0 o1", &source, place);
                assert_eq!((lost.len(), lost[0].len()), (1, 65_536), "{layout}, {place}");
                assert_eq!(stand.run("verify o0 o1").code, 3);
                continue;
            }
            let (ran, joined) = stand.join("o0 o1");
            assert_eq!(ran.code, 0, "{layout}, {place}: {}", ran.err);
            assert!(joined.unwrap() == source, "{layout}, {place}");
            let verified = stand.run("verify o0 o1");
            assert_eq!(verified.code, 10, "{layout}, {place}: {}", verified.err);
        }
    }
}

#[test]
fn plain_outputs_are_held_against_the_checksums_beside_them() {
    let stand = Stand::in_memory();
    let source = stand.source(9 * MIB);
    stand.split("--layout ranges --codec raw", 2);
    flip(&stand.output(0), 70_000);
    let lost = assert_rescues(&stand, "o0 o1", &source, "a flip");
    assert_eq!((lost.len(), &lost[0]), (1, &(65_536..131_072)));
    // What is written of it is not what the damaged file has.
    flip(&stand.output(0), 70_000);
    stand.assert_whole(2, &source);
    fs::rename(stand.path("o0.pinstripe"), stand.path("elsewhere")).unwrap();
    let lost = assert_rescues(&stand, "o0 o1", &source, "no log");
    assert_eq!((lost.len(), &lost[0]), (1, &(0..8 << 20)));
    fs::remove_file(stand.output(1)).unwrap();
    assert_eq!(stand.run("join o1 -o joined").code, 11);
}

#[test]
#[ignore = "with --all: it takes 7 s"]
fn a_missing_or_shorter_output_costs_what_it_had() {
    for (layout, outputs) in LAYOUTS {
        let stand = Stand::in_memory();
        let source = stand.source(13 * MIB + 5);
        let parity =
            layout.strip_prefix("--parity ").map_or(0, |it| usize::from(it.as_bytes()[0] - b'0'));
        stand.split(&format!("{layout} --block-size 4K"), outputs);
        name_the_longest_first(&stand, outputs);
        // As many as may be missing, then one more.
        for missing in 0..=parity {
            let outs: String = (missing + 1..outputs).map(|it| format!("o{it} ")).collect();
            if missing < parity {
                let (ran, joined) = stand.join(&outs);
                assert!(ran.code == 0 && joined.unwrap() == source, "{layout}: {}", ran.err);
                assert_eq!(stand.run(&format!("verify {outs}")).code, 10, "{layout}");
            } else {
                assert_rescues(&stand, &outs, &source, layout);
            }
        }
        // Named, but not there.
        fs::rename(stand.output(0), stand.path("away")).unwrap();
        let (ran, _) = stand.join(&names(outputs));
        assert_eq!(ran.code, if parity > 0 { 0 } else { 15 }, "{layout}: {}", ran.err);
        assert!(ran.err.contains("o0"), "{layout}: {}", ran.err);
        fs::rename(stand.path("away"), stand.output(0)).unwrap();
        // Cut off: from the manifest to nothing at all.
        let len = fs::metadata(stand.output(0)).unwrap().len();
        for part in [len - 1, len * 2 / 3, len / 3, 8192, 5000, 100, 0] {
            fs::File::options().write(true).open(stand.output(0)).unwrap().set_len(part).unwrap();
            let what = format!("{layout}, {part} of {len}");
            let (ran, joined) = stand.join(&names(outputs));
            if ran.code == 0 {
                // Parity, or nothing but a manifest was cut off.
                assert!(joined.unwrap() == source, "{what}");
                assert!(parity > 0 || part == len - 1, "{what}");
                assert_eq!(stand.run(&format!("verify {}", names(outputs))).code, 10, "{what}");
            } else {
                assert_rescues(&stand, &names(outputs), &source, &what);
            }
        }
    }
}

#[test]
fn faults_while_reading_are_healed_or_named() {
    let stand = Stand::in_memory();
    let source = stand.source(9 * MIB);
    stand.split("--parity 1 --strip-size 64K", 3);
    for fault in ["op=read,member=1,after=4,error=EIO", "op=read,member=2,after=4,flip=3,seed=5"] {
        let (ran, joined) = stand.join(&format!("o0 o1 o2 --fault {fault}"));
        assert!(ran.code == 0 && joined.unwrap() == source, "{fault}: {}", ran.err);
    }
    let two =
        "o0 o1 o2 --fault op=read,member=1,after=4,error=EIO;op=read,member=2,after=9,error=EIO";
    let (ran, joined) = stand.join(two);
    assert_eq!((ran.code, joined.is_none()), (15, true), "{}", ran.err);
}
