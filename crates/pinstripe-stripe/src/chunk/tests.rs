use fastcdc::v2020::{Normalization, cut_gear, get_gear_with_seed, select_masks};
use pinstripe_kernel::gear::WINDOW;
use proptest::prelude::*;

use super::*;

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

fn cutter(min: u32, avg: u32, max: u32, seed: u64) -> Cutter {
    Cutter::new(Chunking::ContentDefined { min, avg, max }, seed).unwrap()
}

fn usual(text: &str, seed: u64) -> Cutter {
    Cutter::new(text.parse().unwrap(), seed).unwrap()
}

/// Lengths of chunks as the `fastcdc` crate cuts them.
fn by_oracle(chunking: Chunking, seed: u64, data: &[u8]) -> Vec<usize> {
    let Chunking::ContentDefined { min, avg, max } = chunking else {
        unreachable!("the oracle knows content-defined chunks only")
    };
    let [min, avg, max] = [min, avg, max].map(|length| length as usize);
    let (strict, loose) = select_masks(avg, Normalization::Level1);
    let (table, doubled) = get_gear_with_seed(seed);
    let (mut rest, mut lengths) = (data, Vec::new());
    while !rest.is_empty() {
        let (strict2, loose2) = (strict << 1, loose << 1);
        let (_, length) =
            cut_gear(rest, min, avg, max, strict, loose, strict2, loose2, &table, &doubled);
        lengths.push(length);
        rest = &rest[length..];
    }
    lengths
}

/// Lengths of chunks as cut one by one, with `seen` bytes in memory at a time.
fn one_by_one(cutter: &Cutter, data: &[u8], seen: usize) -> Vec<usize> {
    let (mut at, mut lengths) = (0, Vec::new());
    while at < data.len() {
        let end = data.len().min(at + seen);
        lengths.push(cutter.next_cut(at as u64, &data[at..end], end == data.len()));
        at += lengths.last().unwrap();
    }
    lengths
}

/// Lengths of chunks as cut in segments that end at `ends`; segments are scanned first, or not.
fn in_segments(
    cutter: &Cutter,
    offset: u64,
    data: &[u8],
    ends: &[usize],
    scanned: bool,
) -> Vec<usize> {
    let mut resolver = cutter.resolver(offset);
    let (mut at, mut cuts) = (0usize, Vec::new());
    for &end in ends.iter().chain([&data.len()]) {
        let before = &data[at.saturating_sub(WINDOW)..at];
        let found = match scanned {
            true => cutter.scan(before, &data[at..end], offset + at as u64),
            false => Candidates::default(),
        };
        resolver.push(&data[at..end], &found, &mut cuts);
        assert_eq!(resolver.chunk_start(), cuts.last().copied().unwrap_or(offset));
        at = end;
    }
    cuts.extend(resolver.finish());
    let starts = [offset].into_iter().chain(cuts.iter().copied());
    cuts.iter().zip(starts).map(|(end, start)| (end - start) as usize).collect()
}

#[test]
fn chunkings_are_read_and_written() {
    let content_defined = |avg| Chunking::content_defined(avg).unwrap();
    for (text, chunking, written) in [
        ("64K", content_defined(65_536), "64K"),
        ("65536", content_defined(65_536), "64K"),
        ("4KiB", content_defined(4096), "4K"),
        ("16m", content_defined(16 << 20), "16M"),
        ("fixed:4K", Chunking::Fixed { bytes: 4096 }, "fixed:4K"),
        ("FIXED:4M", Chunking::Fixed { bytes: 4 << 20 }, "fixed:4M"),
    ] {
        assert_eq!(text.parse::<Chunking>().unwrap(), chunking, "{text}");
        assert_eq!(chunking.to_string(), written);
        assert_eq!(written.parse::<Chunking>().unwrap(), chunking);
    }
    let own = Chunking::ContentDefined { min: 64, avg: 1000, max: 1 << 20 };
    assert_eq!(own.to_string(), "64..1000..1M");
}

#[test]
fn what_is_no_chunking_is_refused_with_advice() {
    for text in [
        "",
        "0",
        "64X",
        "2K",
        "32M",
        "48K",
        "100000",
        "9999G",
        "fixed",
        "fixed:",
        "fixed:2K",
        "fixed:8M",
        "fixed:12K",
        "random:64K",
        "fixed:9999G",
        "64K:fixed",
    ] {
        let error = text.parse::<Chunking>().expect_err(text);
        assert_eq!(error.kind(), Kind::Usage, "{text}");
        assert!(error.advice_text().is_some(), "{text}");
    }
    for (min, avg, max) in [
        (62, 1024, 4096),
        (65, 1024, 4096),
        (256, 1025, 4096),
        (256, 1024, 4097),
        (2048, 1024, 4096),
        (256, 1024, 1022),
        (64, 64, 4096),
        (1 << 20, 32 << 20, 64 << 20),
        (1 << 20, 16 << 20, (64 << 20) + 2),
    ] {
        let error = Cutter::new(Chunking::ContentDefined { min, avg, max }, 0).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{min} {avg} {max}");
    }
    for bytes in [0, (16 << 20) + 1] {
        assert!(Cutter::new(Chunking::Fixed { bytes }, 0).is_err());
    }
}

/// The lengths were computed by a separate program from the definition and MD5.
#[test]
fn chunks_of_noise_are_pinned() {
    let data = noise(2, 300_000);
    assert_eq!(
        one_by_one(&usual("64K", 0), &data, usize::MAX >> 1),
        [68_976, 77_079, 55_830, 87_260, 10_855]
    );
    assert_eq!(
        one_by_one(&usual("16K", 0xfeed_f00d), &data, usize::MAX >> 1),
        [
            24_752, 22_194, 21_727, 7_511, 19_273, 16_523, 20_242, 20_282, 22_416, 21_327, 15_854,
            23_021, 17_495, 4_427, 19_771, 9_310, 9_769, 4_106
        ]
    );
}

#[test]
fn chunks_of_zeros_are_the_longest() {
    let cutter = usual("4K", 0);
    let zeros = vec![0; 3 * 16_384 + 1];
    assert_eq!(one_by_one(&cutter, &zeros, 20_000), [16_384, 16_384, 16_384, 1]);
    assert_eq!(in_segments(&cutter, 0, &zeros, &[], true), [16_384, 16_384, 16_384, 1]);
}

/// With a seed under which the hash of a run of zeros meets both conditions, all places do.
#[test]
fn chunks_of_matching_zeros_are_the_shortest_and_scans_stay_small() {
    let first = get_gear_with_seed(0).0[0];
    let seed = first ^ (1 << 63);
    let cutter = usual("4K", seed);
    let zeros = vec![0; 1 << 20];
    let lengths = by_oracle(cutter.chunking(), seed, &zeros);
    assert!(lengths[..lengths.len() - 1].iter().all(|&length| length < 1024 + WINDOW));
    assert_eq!(one_by_one(&cutter, &zeros, usize::MAX >> 1), lengths);
    assert_eq!(in_segments(&cutter, 0, &zeros, &[400_001, 400_002], true), lengths);
    let found = cutter.scan(&[], &zeros, 0);
    assert!(found.list.len() < zeros.len() / 8, "a scan of matching content gives up");
    assert_eq!(found.through as usize, found.list.len());
}

/// Lengths at which something changes, with content that has no cut by itself and content that has.
#[test]
fn lengths_at_the_edges() {
    let (min, avg, max) = (256, 1024, 4096);
    let cutter = cutter(min, avg, max, 9);
    let edges = [0, 1, 2, min, min + 64, avg, max, max + min, 2 * max].map(|edge| edge as usize);
    for data in [vec![0; 9000], noise(5, 9000)] {
        for len in edges.iter().flat_map(|&edge| edge.saturating_sub(2)..=edge + 2) {
            let data = &data[..len];
            let lengths = by_oracle(cutter.chunking(), 9, data);
            assert_eq!(one_by_one(&cutter, data, max as usize), lengths, "{len}");
            assert_eq!(in_segments(&cutter, 0, data, &[], true), lengths, "{len}");
        }
    }
    assert_eq!(cutter.next_cut(0, &[], true), 0);
}

/// A cut at the very last byte counts when it is the second of a pair, not when it is the first;
/// a resolver must not decide before it knows which.
#[test]
fn half_a_pair_at_the_end_is_no_cut() {
    let cutter = cutter(64, 128, 4096, 3);
    let data = noise(11, 40_000);
    let (mut odd, mut even) = (0, 0);
    let mut start = 0;
    for length in by_oracle(cutter.chunking(), 3, &data) {
        let run = &data[start..data.len().min(start + length + 1)];
        let lengths = by_oracle(cutter.chunking(), 3, run);
        *if lengths.len() == 2 { &mut odd } else { &mut even } += 1;
        assert_eq!(in_segments(&cutter, 0, run, &[run.len() - 1], true), lengths);
        assert_eq!(in_segments(&cutter, 0, run, &[], true), lengths);
        assert_eq!(one_by_one(&cutter, run, 4096), lengths);
        start += length;
    }
    assert!(odd > 50 && even > 50, "{odd} {even}");
}

#[test]
fn fixed_cuts_lie_at_multiples_in_the_file() {
    let cutter = usual("fixed:4K", 0);
    assert_eq!((cutter.min_bytes(), cutter.max_bytes()), (4096, 4096));
    let data = vec![7; 10_000];
    assert_eq!(one_by_one(&cutter, &data, 4096), [4096, 4096, 1808]);
    assert_eq!(cutter.next_cut(4000, &data, true), 96);
    for ends in [vec![], vec![96], vec![95, 97, 8000]] {
        let lengths = in_segments(&cutter, 4000, &data, &ends, true);
        assert_eq!(lengths, [96, 4096, 4096, 1712]);
    }
    assert_eq!(in_segments(&cutter, 0, &data[..8192], &[], true), [4096, 4096]);
}

#[test]
fn a_seed_moves_the_cuts_and_stays_secret() {
    let data = noise(4, 400_000);
    let [plain, keyed] = [0, 0x1234_5678_9abc_def0].map(|seed| usual("16K", seed));
    assert_ne!(one_by_one(&plain, &data, 1 << 20), one_by_one(&keyed, &data, 1 << 20));
    assert_eq!(format!("{plain:?}"), format!("{keyed:?}"));
}

#[test]
fn many_threads_cut_as_one_does() {
    let data = noise(6, 3_000_000);
    let cutter = usual("32K", 77);
    let segments: Vec<&[u8]> = data.chunks(500_000).collect();
    let found: Vec<Candidates> = std::thread::scope(|scope| {
        let scan =
            |at: usize| cutter.scan(&data[..at * 500_000], segments[at], at as u64 * 500_000);
        let threads: Vec<_> = (0..segments.len()).map(|at| scope.spawn(move || scan(at))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (mut resolver, mut ends) = (cutter.resolver(0), Vec::new());
    for (segment, found) in segments.iter().zip(&found) {
        resolver.push(segment, found, &mut ends);
    }
    ends.extend(resolver.finish());
    let mut at = 0;
    let expected = one_by_one(&cutter, &data, cutter.max_bytes()).into_iter().map(|length| {
        at += length as u64;
        at
    });
    assert_eq!(ends, expected.collect::<Vec<_>>());
}

/// Noise, text-like bytes, runs, and short periods.
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

/// Any lengths that are even and in order: also averages between powers of two, and ones so close
/// to the shortest or the longest that the one or the other condition has no place.
fn any_chunking() -> impl Strategy<Value = Chunking> {
    let apart = || prop_oneof![0..80u32, 0..20_000u32];
    (prop_oneof![64..300u32, 64..3000u32], apart(), apart()).prop_map(|(min, more, most)| {
        let even = |length: u32| length & !1;
        let avg = even(min + more).max(128);
        Chunking::ContentDefined { min: even(min), avg, max: even(avg + most) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_way_of_cutting_is_the_oracles(
        data in any_data(150_000),
        chunking in any_chunking(),
        seed in prop_oneof![Just(0), any::<u64>()],
        offset in 0..1u64 << 40,
        more_seen in 0..20_000usize,
        mut ends in prop::collection::vec(0..150_000usize, 0..8),
    ) {
        let cutter = Cutter::new(chunking, seed).unwrap();
        let lengths = by_oracle(chunking, seed, &data);
        prop_assert_eq!(&one_by_one(&cutter, &data, cutter.max_bytes() + more_seen), &lengths);
        ends.retain(|&end| end <= data.len());
        ends.sort_unstable();
        for scanned in [true, false] {
            prop_assert_eq!(&in_segments(&cutter, offset, &data, &ends, scanned), &lengths);
        }
    }

    /// Segments far shorter than the window, so that every wait for more content happens.
    #[test]
    fn tiny_segments_are_cut_like_large_ones(
        data in any_data(6000),
        seed in any::<u64>(),
        step in 1..200usize,
    ) {
        let cutter = cutter(64, 256, 2048, seed);
        let lengths = by_oracle(cutter.chunking(), seed, &data);
        let ends: Vec<usize> = (0..data.len()).step_by(step).collect();
        for scanned in [true, false] {
            prop_assert_eq!(&in_segments(&cutter, 0, &data, &ends, scanned), &lengths);
        }
    }

    #[test]
    fn fixed_chunks_do_not_depend_on_segments(
        len in 0..50_000usize,
        offset in 0..100_000u64,
        mut ends in prop::collection::vec(0..50_000usize, 0..8),
    ) {
        let cutter = usual("fixed:4K", 0);
        let data = vec![0; len];
        ends.retain(|&end| end <= len);
        ends.sort_unstable();
        let whole = in_segments(&cutter, offset, &data, &[], false);
        prop_assert_eq!(&in_segments(&cutter, offset, &data, &ends, true), &whole);
        let mut at = offset;
        for length in whole {
            let rest = &data[(at - offset) as usize..];
            prop_assert_eq!(cutter.next_cut(at, rest, true), length);
            at += length as u64;
        }
        prop_assert_eq!(at, offset + len as u64);
    }
}

#[test]
fn what_is_one_chunk_is_never_cut() {
    for chunking in ["4K", "fixed:4K"] {
        let cutter = Cutter::new(chunking.parse().unwrap(), 1).unwrap();
        let data = vec![0x5a; 9000];
        for start in [0, 1, 1023, 4095, 4096, 5000] {
            for length in [1, 2, 1023, 1024, 1025, 4095, 4096, 4097, 8192] {
                let run = start..start + length as u64;
                let whole = cutter.next_cut(start, &data[..length], true) == length;
                assert!(whole || !cutter.is_one_chunk(&run), "{chunking} {run:?}");
                assert!(chunking == "4K" || whole == cutter.is_one_chunk(&run), "{run:?}");
            }
        }
        assert!(!cutter.is_one_chunk(&(5..5)));
    }
}
