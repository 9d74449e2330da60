use super::*;
use fastcdc::v2020::{Normalization, get_gear_with_seed, select_masks};
use proptest::prelude::*;

/// Bytes from xorshift64*, whose high bits are good enough to be called noise.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Every candidate by the definition: the hash of the window that ends at the place.
fn by_definition(gear: &Gear, masks: Masks, data: &[u8]) -> Vec<CutCandidate> {
    let hash_at = |end: usize| {
        let window = &data[end.saturating_sub(WINDOW - 1)..=end];
        let ages = (0..window.len()).rev();
        window.iter().zip(ages).fold(0u64, |hash, (&byte, age)| {
            hash.wrapping_add(gear.table[usize::from(byte)] << age)
        })
    };
    (0..data.len()).filter_map(|at| CutCandidate::judge(at as u64, hash_at(at), masks)).collect()
}

fn scanned(gear: &Gear, masks: Masks, data: &[u8]) -> Vec<CutCandidate> {
    let mut out = Vec::new();
    gear.scan(masks, &[], data, 0, &mut out);
    out
}

#[test]
fn tables_are_those_of_fastcdc() {
    for seed in [0, 1, 0x8000_0000_0000_0001, 0x0123_4567_89ab_cdef] {
        let (table, doubled) = get_gear_with_seed(seed);
        let gear = Gear::new(seed);
        assert_eq!((&gear.table[..], &gear.doubled[..]), (&table[..], &doubled[..]));
    }
}

#[test]
fn masks_are_those_of_fastcdc() {
    let powers = (7..=24).map(|bits| 1u32 << bits);
    for average in powers.chain([182, 12_288, 92_681, 92_682, 92_683, 3_000_000, 11_863_283]) {
        let masks = Masks::for_average(average).unwrap();
        let oracle = select_masks(average as usize, Normalization::Level1);
        assert_eq!((masks.strict, masks.loose), oracle, "{average}");
        assert_eq!((masks.strict | masks.loose) >> 63, 0);
    }
    for average in [0, 1, 64, 80, 1 << 25, u32::MAX] {
        assert_eq!(Masks::for_average(average), None, "{average}");
    }
}

/// The positions were computed by a separate program from the definition and MD5.
#[test]
fn candidates_of_noise_are_pinned() {
    let pinned = |seed, average| -> Vec<(u64, bool, bool)> {
        let masks = Masks::for_average(average).unwrap();
        let found = scanned(&Gear::new(seed), masks, &noise(1, 100_000));
        found.iter().map(|found| (found.position, found.strict, found.loose)).collect()
    };
    assert_eq!(pinned(0, 65_536), [(48_855, false, true), (58_797, false, true)]);
    assert_eq!(
        pinned(0xfeed_f00d, 16_384),
        [
            (9_507, true, true),
            (13_805, true, true),
            (21_365, true, true),
            (28_320, true, true),
            (30_309, true, true),
            (51_867, false, true),
            (60_429, false, true),
            (75_985, false, true),
            (80_665, false, true),
            (92_194, false, true),
        ]
    );
}

#[test]
fn a_run_of_one_byte_is_all_candidates_or_none() {
    let masks = Masks::for_average(1 << 12).unwrap();
    // After a full window of zeros the hash is -table[0]; this seed makes that -2^63.
    let gear = Gear::new(GEAR[0] ^ (1 << 63));
    let found = scanned(&gear, masks, &vec![0; 70_000]);
    assert!(found.iter().all(|found| found.strict && found.loose));
    assert!(found.iter().map(|found| found.position).eq(0..70_000));
    assert_eq!(scanned(&Gear::new(0), masks, &vec![0; 70_000]), []);
}

#[test]
fn a_byte_is_forgotten_after_a_window() {
    let masks = Masks::for_average(256).unwrap();
    let gear = Gear::new(7);
    let data = noise(3, 40_000);
    for (before, base) in [(WINDOW - 1, 9_000), (WINDOW, 9_000), (500, 9_001)] {
        let mut out = Vec::new();
        gear.scan(masks, &data[base - before..base], &data[base..], base as u64, &mut out);
        let mut whole = scanned(&gear, masks, &data);
        whole.retain(|found| found.position >= base as u64);
        assert!(out.len() > 100);
        assert_eq!(out, whole);
    }
}

/// Noise, text-like bytes, runs, and short periods: what the hash sees in practice, and its edges.
fn any_data(max_len: usize) -> impl Strategy<Value = Vec<u8>> {
    (0..4u8, any::<u64>(), 0..max_len).prop_map(|(kind, seed, len)| {
        let noise = noise(seed, len);
        match kind {
            0 => noise,
            1 => noise.iter().map(|byte| b"etaoin shrdlu\n.,"[usize::from(byte & 15)]).collect(),
            2 => (0..len).map(|at| noise[at / 1000]).collect(),
            _ => (0..len).map(|at| noise[at % 7]).collect(),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Lengths around none, one and several blocks of either lane; averages so small that there
    /// are many candidates.
    #[test]
    fn lanes_find_what_the_definition_finds(
        data in any_data(80_000),
        seed in any::<u64>(),
        average_bits in 7..14u32,
    ) {
        let (gear, masks) = (Gear::new(seed), Masks::for_average(1 << average_bits).unwrap());
        let mut plain = Vec::new();
        gear.scan_plain(masks, &[], &data, 0, &mut plain);
        prop_assert_eq!(&plain, &by_definition(&gear, masks, &data));
        prop_assert_eq!(&plain, &scanned(&gear, masks, &data));
    }

    #[test]
    fn pieces_find_what_the_whole_finds(
        data in any_data(120_000),
        seed in any::<u64>(),
        mut ends in prop::collection::vec(0..120_000usize, 0..6),
    ) {
        let (gear, masks) = (Gear::new(seed), Masks::for_average(1 << 9).unwrap());
        ends.retain(|&end| end < data.len());
        ends.push(data.len());
        ends.sort_unstable();
        let (mut found, mut at) = (Vec::new(), 0usize);
        for end in ends {
            let before = &data[at.saturating_sub(WINDOW)..at];
            gear.scan(masks, before, &data[at..end], at as u64, &mut found);
            at = end;
        }
        prop_assert_eq!(found, scanned(&gear, masks, &data));
    }
}
