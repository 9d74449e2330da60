//! LZO1X by hand-made streams, round trips and damage; liblzo2 is asked in `tests/oracle/lzo.rs`.

use proptest::prelude::*;

use super::super::tests::{memory_like, random, text};
use super::decode::LzoError;
use super::*;

fn compressed(raw: &[u8]) -> Vec<u8> {
    let mut out = vec![0; max_stored_bytes(raw.len())];
    let bytes = compress(raw, &mut Dictionary::default(), &mut out);
    out.truncate(bytes);
    out
}

fn round_trip(raw: &[u8]) -> usize {
    let stored = compressed(raw);
    let mut back = vec![0xaa; raw.len()];
    assert_eq!(decompress(&stored, &mut back), Ok(raw.len()));
    assert!(back == raw, "{} bytes", raw.len());
    stored.len()
}

fn decoded(stored: &[u8]) -> Result<Vec<u8>, LzoError> {
    let mut out = vec![0; 100_000];
    let bytes = decompress(stored, &mut out)?;
    out.truncate(bytes);
    Ok(out)
}

#[test]
fn every_instruction_is_understood() {
    let literals = b"\x15abcd"; // 21: four literals, as a run
    let with = |rest: &[u8]| decoded(&[&literals[..], rest, &END].concat());
    // 01LDDDSS and 1LLDDDSS: 3 and 8 bytes from 4 back; one literal behind the first.
    assert_eq!(with(b"\x4d\x00e").unwrap(), b"abcdabce");
    assert_eq!(with(b"\xec\x00").unwrap(), b"abcdabcdabcd");
    // 001LLLLL: 2 + 3 bytes from 4 back, then 31 + 5 + 2 bytes from 1 back.
    assert_eq!(with(b"\x23\x0c\x00").unwrap(), b"abcdabcda");
    assert_eq!(with(b"\x20\x05\x00\x00").unwrap(), [b"abc".as_slice(), &[b'd'; 39]].concat());
    // 0000DDSS behind one literal: 2 bytes from 2 back. Behind none: a run of 3 + 1.
    assert_eq!(with(b"\x4d\x00e\x04\x00").unwrap(), b"abcdabcece");
    assert_eq!(with(b"\x4c\x00\x01efgh").unwrap(), b"abcdabcefgh");
    // The first byte: 18 is one literal, and 0000DDSS may follow it.
    assert_eq!(decoded(b"\x12x\x00\x00\x11\x00\x00").unwrap(), b"xxx");
    assert_eq!(decoded(&END).unwrap(), b"");
}

#[test]
fn far_instructions_are_understood() {
    // 20000 literals: 0, then 255 for each zero byte; 18 + 255 * 78 + 92 = 20000.
    let raw = random(1, 20_000);
    let run = [&[0; 79][..], &[92], &raw].concat();
    // 0001HLLL from 16384 + 7 back, three bytes; then 7 + 9 + 2 bytes from there again.
    let near = decoded(&[&run[..], &[0x11, 7 << 2, 0, 0x10, 9, 7 << 2, 0], &END].concat()).unwrap();
    let from = 20_000 - 16_391;
    assert_eq!(near[20_000..], raw[from..from + 21]);
    // 0000DDSS behind a run: three bytes from 2049 + 3 + (5 << 2) back.
    let after_run = decoded(&[&run[..], &[0x0c, 5], &END].concat()).unwrap();
    let from = 20_000 - 2072;
    assert_eq!(after_run[20_000..], raw[from..from + 3]);
}

#[test]
fn damage_is_named() {
    assert_eq!(decoded(b""), Err(LzoError::Cut));
    assert_eq!(decoded(b"\x15abc"), Err(LzoError::Cut));
    assert_eq!(decoded(b"\x15abcd"), Err(LzoError::Cut));
    assert_eq!(decoded(b"\x15abcd\x11\x00"), Err(LzoError::Cut));
    assert_eq!(decoded(&[0; 1000]), Err(LzoError::Cut));
    assert_eq!(decoded(b"\x15abcd\x50\x00\x11\x00\x00"), Err(LzoError::BeforeStart));
    assert_eq!(decoded(b"\x15abcd\x11\x00\x00x"), Err(LzoError::BadEnd));
    assert_eq!(decoded(b"\x15abcd\x12\x00\x00"), Err(LzoError::BadEnd));
    for room in 0..12 {
        assert_eq!(
            decompress(b"\x15abcd\xec\x00\x11\x00\x00", &mut vec![0; room]),
            Err(LzoError::TooLong)
        );
    }
}

#[test]
fn all_short_lengths_round_trip() {
    for bytes in 0..600 {
        round_trip(&vec![7; bytes]);
        round_trip(&random(2, bytes));
        round_trip(&text(3, bytes));
        // Literal runs of each length between two matches.
        let raw = [&[1; 40][..], &random(4, bytes), &[1; 40]].concat();
        round_trip(&raw);
    }
}

#[test]
fn all_match_lengths_and_distances_round_trip() {
    let random = random(5, 120_000);
    for distance in [
        4, 5, 8, 15, 16, 17, 2047, 2048, 2049, 16_383, 16_384, 16_385, 32_768, 49_150, 49_151,
        49_152, 65_536, 65_537,
    ] {
        for len in [4, 5, 8, 9, 10, 11, 33, 34, 35, 264, 265, 1000] {
            let mut raw = random[..distance].to_vec();
            for at in 0..len {
                raw.push(raw[at]);
            }
            raw.extend_from_slice(&random[distance + 1000..][..50]);
            round_trip(&raw);
        }
    }
}

#[test]
fn long_inputs_shrink_as_they_should() {
    for bytes in [48 << 10, 65_535, 65_536, 65_537, 131_073, 1 << 20, 4 << 20] {
        assert!(round_trip(&vec![0; bytes]) < bytes / 200);
        assert!(round_trip(&text(6, bytes)) < bytes * 2 / 3);
        assert!(round_trip(&memory_like(7, bytes)) < bytes / 2);
        assert!(round_trip(&random(8, bytes)) <= max_stored_bytes(bytes));
    }
}

#[test]
fn a_used_dictionary_changes_nothing() {
    let mut dictionary = Dictionary::default();
    let mut out = vec![0; max_stored_bytes(200_000)];
    for seed in 0..10 {
        let raw = memory_like(seed, 150_000 + seed as usize);
        let bytes = compress(&raw, &mut dictionary, &mut out);
        assert!(out[..bytes] == compressed(&raw));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn repetitive_bytes_round_trip(
        parts in prop::collection::vec((0usize..5000, 0usize..80, any::<u8>()), 0..200),
    ) {
        let mut raw = Vec::new();
        for (back, len, byte) in parts {
            let from = raw.len().saturating_sub(back);
            raw.push(byte);
            for at in from..from + len {
                raw.push(raw[at]);
            }
        }
        round_trip(&raw);
    }

    #[test]
    fn any_bytes_decode_or_fail_within_the_room(
        stored in prop::collection::vec(prop_oneof![any::<u8>(), 0u8..64], 0..300),
        room in 0usize..2000,
    ) {
        let mut out = vec![0; room];
        if let Ok(bytes) = decompress(&stored, &mut out) {
            prop_assert!(bytes <= room);
        }
    }

    #[test]
    fn damaged_streams_decode_or_fail(
        seed in any::<u64>(),
        bytes in 1usize..30_000,
        room in 0usize..40_000,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut stored = compressed(&memory_like(seed, bytes));
        for (at, byte) in changes {
            *at.get_mut(&mut stored) = byte;
        }
        let mut out = vec![0; room];
        if let Ok(bytes) = decompress(&stored, &mut out) {
            prop_assert!(bytes <= room);
        }
    }
}
