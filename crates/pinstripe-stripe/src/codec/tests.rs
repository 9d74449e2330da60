//! The contract of the codecs, of the skip detector, and of their names.

use proptest::prelude::*;

use super::*;

const ALL: [Codec; 7] = [
    Codec::Raw,
    Codec::Zstd { level: -5 },
    Codec::Zstd { level: 1 },
    Codec::Zstd { level: 9 },
    Codec::Lz4,
    Codec::Snappy,
    Codec::Lzo,
];

/// Bytes that no codec can make smaller.
pub(super) fn random(seed: u64, bytes: usize) -> Vec<u8> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut out = vec![0; bytes];
    blake3::Hasher::new_keyed(&key).finalize_xof().fill(&mut out);
    out
}

/// Words in no order, with a number now and then.
pub(super) fn text(seed: u64, bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 12] = [
        "stripe", "parity", "member", "the", "of", "snapshot", "record", "pack", "is", "not",
        "extent", "which",
    ];
    let mut out = Vec::with_capacity(bytes + 16);
    for (at, die) in random(seed, bytes).into_iter().enumerate() {
        if out.len() >= bytes {
            break;
        }
        match WORDS.get(usize::from(die % 13)) {
            Some(word) => out.extend_from_slice(word.as_bytes()),
            None => out.extend_from_slice((at * usize::from(die)).to_string().as_bytes()),
        }
        out.push(if die % 11 == 0 { b'\n' } else { b' ' });
    }
    out.truncate(bytes);
    out
}

/// Pages as memory has them: zeros, structures of pointers, text, random.
pub(super) fn memory_like(seed: u64, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes + 4096);
    for (page, die) in random(seed, bytes / 4096 + 1).into_iter().enumerate() {
        let page_seed = seed ^ (page as u64) << 32;
        match die {
            0..115 => out.resize(out.len() + 4096, 0),
            115..175 => {
                let base = 0xffff_8880_0000_0000 | u64::from(die) << 20;
                for (at, low) in random(page_seed, 512).into_iter().enumerate() {
                    let word = if at % 3 == 0 { at as u64 } else { base + u64::from(low) * 64 };
                    out.extend_from_slice(&word.to_le_bytes());
                }
            }
            175..230 => out.extend_from_slice(&text(page_seed, 4096)),
            _ => out.extend_from_slice(&random(page_seed, 4096)),
        }
    }
    out.truncate(bytes);
    out
}

fn round_trip(codec: Codec, raw: &[u8]) -> (Encoded, usize) {
    let (mut stored, mut back) = (vec![1, 2, 3], vec![4, 5, 6]);
    let encoded = Encoder::new(codec).unwrap().encode(raw, &mut stored).unwrap();
    let stored = encoded.stored(raw, &stored);
    Decoder::new().decode(encoded.codec_id(), stored, raw.len(), &mut back).unwrap();
    assert!(back == raw, "{codec} {} bytes", raw.len());
    (encoded, stored.len())
}

#[test]
fn every_codec_brings_back_what_it_was_given() {
    for codec in ALL {
        for bytes in [0, 1, 2, 63, 64, 65, 1000, 4096, 65_534, 65_535, 65_536, 262_144, 4 << 20] {
            round_trip(codec, &vec![0; bytes]);
            round_trip(codec, &random(1, bytes));
            let (encoded, stored_bytes) = round_trip(codec, &text(2, bytes));
            if bytes >= 4096 && codec != Codec::Raw {
                assert_eq!(encoded, Encoded::Packed(codec.id()), "{codec} {bytes}");
                assert!(stored_bytes < bytes * 3 / 4, "{codec} {bytes}: {stored_bytes}");
            }
        }
    }
}

#[test]
fn what_does_not_get_smaller_is_stored_raw_and_not_copied() {
    for codec in ALL {
        let mut encoder = Encoder::new(codec).unwrap();
        // The first is skipped unseen, the second is too short for that, the third is empty.
        for bytes in [100_000, 1000, 0] {
            let mut out = b"left over".to_vec();
            let raw = random(3, bytes);
            assert_eq!(encoder.encode(&raw, &mut out).unwrap(), Encoded::Raw);
            assert!(out.is_empty());
        }
    }
}

#[test]
fn an_encoder_gives_the_same_bytes_whatever_came_before() {
    for codec in ALL {
        let mut used = Encoder::new(codec).unwrap();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for bytes in [300_000, 10, 70_000, 5000, 1 << 20] {
            let raw = memory_like(bytes as u64, bytes);
            used.encode(&raw, &mut first).unwrap();
            Encoder::new(codec).unwrap().encode(&raw, &mut second).unwrap();
            assert!(first == second, "{codec} {bytes}");
        }
    }
}

#[test]
fn a_length_that_is_not_the_raw_one_is_corrupt() {
    let raw = text(4, 10_000);
    let mut out = Vec::new();
    for codec in ALL {
        let encoded = Encoder::new(codec).unwrap().encode(&raw, &mut out).unwrap();
        let stored = encoded.stored(&raw, &out).to_vec();
        let mut back = Vec::new();
        for wrong in [0, 1, raw.len() - 1, raw.len() + 1, 2 * raw.len(), MAX_RAW_BYTES + 1] {
            let error = Decoder::new().decode(codec.id(), &stored, wrong, &mut back).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{codec} {wrong}");
            assert!(back.is_empty());
        }
    }
    let error = Decoder::new().decode(5, &[], 0, &mut out).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
}

#[test]
fn zstd_records_are_plain_frames_without_size_and_checksum() {
    let raw = text(5, 300_000);
    let mut stored = Vec::new();
    Encoder::new(Codec::default()).unwrap().encode(&raw, &mut stored).unwrap();
    assert_eq!(stored[..4], 0xfd2f_b528_u32.to_le_bytes());
    assert_eq!(stored[4], 0, "no content size, no single segment, no checksum, no dictionary");
    assert_eq!(zstd::bulk::decompress(&stored, raw.len()).unwrap(), raw);
}

#[test]
fn names_are_read_as_they_are_written() {
    for codec in ALL {
        assert_eq!(codec.to_string().parse::<Codec>().unwrap(), codec);
    }
    assert_eq!("zstd".parse::<Codec>().unwrap(), Codec::default());
    assert_eq!("zstd:-1".parse::<Codec>().unwrap(), Codec::Zstd { level: -1 });
    for text in ["", "gzip", "ZSTD", "zstd:", "zstd:0", "zstd:20", "zstd:-6", "zstd:x", "lz4:1"] {
        let error = text.parse::<Codec>().unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{text}");
        assert!(error.advice_text().is_some());
    }
    assert!(Encoder::new(Codec::Zstd { level: 0 }).is_err());
}

#[test]
fn ids_never_change() {
    let ids = [Codec::Raw, Codec::default(), Codec::Lz4, Codec::Snappy, Codec::Lzo].map(Codec::id);
    assert_eq!(ids, [0, 1, 2, 3, 4]);
}

#[test]
fn random_bytes_look_incompressible() {
    for seed in 0..20 {
        for bytes in [4096, 5000, 65_536, 262_144, 1 << 20, 4 << 20] {
            for look in [Look::Thorough, Look::Brief] {
                assert!(looks_incompressible(&random(seed, bytes), look), "{seed} {bytes}");
            }
        }
    }
}

#[test]
fn compressed_text_looks_incompressible() {
    let packed = zstd::bulk::compress(&text(6, 1 << 20), 19).unwrap();
    for record in packed.chunks_exact(64 << 10) {
        assert!(looks_incompressible(record, Look::Thorough));
    }
}

#[test]
fn what_has_structure_does_not_look_incompressible() {
    for bytes in [4096, 65_536, 1 << 20, 4 << 20] {
        let counting: Vec<u8> = (0..bytes / 4).flat_map(|n| (n as u32).to_le_bytes()).collect();
        let base64: Vec<u8> = random(7, bytes).iter().map(|byte| b'0' + byte % 64).collect();
        let every_byte: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
        let floats: Vec<u8> = random(8, bytes / 2)
            .chunks_exact(4)
            .flat_map(|n| f64::from(u32::from_le_bytes(n.try_into().unwrap())).to_le_bytes())
            .collect();
        for raw in [vec![0; bytes], text(9, bytes), counting, base64, every_byte, floats] {
            for look in [Look::Thorough, Look::Brief] {
                assert!(!looks_incompressible(&raw, look), "{:?} {bytes}", &raw[..16]);
            }
        }
    }
}

/// A program also holds bytes that are random, and records that are but for a little of them: of
/// these a part may pass.
#[test]
fn machine_code_does_not_look_incompressible() {
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    for record in own.chunks_exact(64 << 10) {
        assert!(!looks_incompressible(record, Look::Thorough) || shrinks_little(record));
    }
}

/// Whether zstd, asked for its best, saves less than a 16th.
fn shrinks_little(raw: &[u8]) -> bool {
    zstd::bulk::compress(raw, 19).unwrap().len() > raw.len() - raw.len() / 16
}

#[test]
fn repeated_random_blocks_do_not_look_incompressible() {
    let block = random(10, 4096);
    assert!(!looks_incompressible(&block.repeat(16), Look::Thorough));
    // Repetitions at odd distances, and only once, far away.
    for (bytes, gap) in [(30_001, 1), (120_000, 7), (500_003, 4097), (2_000_000, 12_345)] {
        let half = random(11, bytes);
        let raw = [&half[..], &random(12, gap), &half].concat();
        assert!(!looks_incompressible(&raw, Look::Thorough), "{bytes} {gap}");
    }
}

/// A compressible record is compressed even after many incompressible ones.
#[test]
fn an_encoder_that_lost_hope_finds_it_again() {
    let mut encoder = Encoder::new(Codec::Lz4).unwrap();
    let mut out = Vec::new();
    for (number, bytes) in (0..40).zip([4096, 65_536].into_iter().cycle()) {
        let encoded = encoder.encode(&random(number, bytes), &mut out).unwrap();
        assert_eq!(encoded, Encoded::Raw);
    }
    let half = [random(50, 32 << 10), text(51, 32 << 10)].concat();
    for raw in [text(52, 65_536), half] {
        assert!(matches!(encoder.encode(&raw, &mut out).unwrap(), Encoded::Packed(_)));
        for number in 0..40 {
            encoder.encode(&random(number, 65_536), &mut out).unwrap();
        }
    }
    // A repetition that no brief look sees is seen by a thorough one, soon.
    let repeated = random(53, 32 << 10).repeat(2);
    let found = (0..32).filter(|_| encoder.encode(&repeated, &mut out).unwrap() != Encoded::Raw);
    assert!(found.count() > 0);
}

#[test]
fn pages_half_random_half_zero_do_not_look_incompressible() {
    let page = |n: u64| [random(n, 2048), vec![0; 2048]].concat();
    let pages: Vec<u8> = (0..64).flat_map(page).collect();
    assert!(!looks_incompressible(&pages, Look::Thorough));
}

proptest! {
    #[test]
    fn damaged_records_never_panic_and_never_have_another_length(
        which in 1..ALL.len(),
        seed in any::<u64>(),
        bytes in 64usize..20_000,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let raw = memory_like(seed, bytes);
        let mut stored = Vec::new();
        let encoded = Encoder::new(ALL[which]).unwrap().encode(&raw, &mut stored).unwrap();
        prop_assume!(encoded != Encoded::Raw);
        for (at, byte) in changes {
            *at.get_mut(&mut stored) = byte;
        }
        if let Some(cut) = cut {
            stored.truncate(cut.index(stored.len()));
        }
        let mut back = Vec::new();
        match Decoder::new().decode(encoded.codec_id(), &stored, bytes, &mut back) {
            Ok(()) => prop_assert_eq!(back.len(), bytes),
            Err(error) => prop_assert_eq!(error.kind(), Kind::Corrupt),
        }
    }
}
