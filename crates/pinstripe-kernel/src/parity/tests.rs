use super::*;
use proptest::prelude::*;

/// The definition, byte by byte, shards padded with zeros.
fn reference(data: &[&[u8]], row: usize, len: usize) -> Vec<u8> {
    let byte = |n: usize| {
        let products = data
            .iter()
            .enumerate()
            .map(|(i, shard)| gf256::mul(coefficient(row, i), shard.get(n).copied().unwrap_or(0)));
        products.fold(0, |sum, product| sum ^ product)
    };
    (0..len).map(byte).collect()
}

/// Bytes that no two places share by habit.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(next).collect()
}

fn encoded(level: InstructionSet, data: &[&[u8]], parity_count: usize, len: usize) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0xee; len]; parity_count];
    let mut slices: Vec<_> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    encode_at(level, data, &mut slices);
    parity
}

/// Data, then parity.
fn whole_row(data: &[Vec<u8>], parity_count: usize) -> Vec<Vec<u8>> {
    let slices: Vec<_> = data.iter().map(Vec::as_slice).collect();
    let len = data.iter().map(Vec::len).max().unwrap_or(0);
    let parity = encoded(best(), &slices, parity_count, len);
    data.iter().cloned().chain(parity).collect()
}

/// Loses `lost` of the row, rebuilds them at `level` and compares.
fn check_rebuild(level: InstructionSet, row: &[Vec<u8>], data_count: usize, lost: &[usize]) {
    let present: Vec<_> = row
        .iter()
        .enumerate()
        .map(|(n, shard)| (!lost.contains(&n)).then_some(shard.as_slice()))
        .collect();
    let mut outs: Vec<_> = lost.iter().map(|&n| vec![0xee; row[n].len()]).collect();
    let mut wanted: Vec<_> =
        lost.iter().zip(&mut outs).map(|(&n, out)| (n, out.as_mut_slice())).collect();
    rebuild_at(level, data_count, &present, &mut wanted).unwrap();
    for (&n, out) in lost.iter().zip(&outs) {
        assert!(*out == row[n], "shard {n} of {data_count}+, {lost:?} lost, {level}");
    }
}

#[test]
fn levels_start_plain_and_end_best() {
    let levels = levels();
    assert_eq!(levels.first(), Some(&InstructionSet::Scalar));
    assert_eq!(levels.last(), Some(&best()));
    assert!(levels.iter().all(|level| level.runs_here()));
    let names: Vec<_> = InstructionSet::ALL.iter().map(InstructionSet::to_string).collect();
    assert_eq!(names.join(" "), "scalar ssse3 avx2 avx2+gfni avx512+gfni neon");
}

#[test]
fn a_level_of_another_processor_gives_way() {
    let data = noise(1000, 1);
    for level in InstructionSet::ALL {
        assert_eq!(encoded(level, &[&data, &data[..7]], 2, 1000)[0][7..], data[7..]);
    }
}

/// Computed by hand from the definition in "The mathematics of RAID-6", as md does it: the
/// coefficients are 1, 2, 4, 8 .. over 0x11d, e.g. 0x80 * 2 = 0x1d, 0xff * 4 = 0xdb.
#[test]
fn p_and_q_are_those_of_md() {
    let cases: [(&[[u8; 1]], u8, u8); 7] = [
        (&[[0x5a]], 0x5a, 0x5a),
        (&[[0x01], [0x01]], 0x00, 0x03),
        (&[[0x00], [0x80]], 0x80, 0x1d),
        (&[[0x01], [0x02], [0x04]], 0x07, 0x01 ^ 0x04 ^ 0x10),
        (&[[0x00], [0x00], [0xff]], 0xff, 0xdb),
        (&[[0x12], [0x34], [0x56], [0x78]], 0x08, 0x12 ^ 0x68 ^ 0x45 ^ 0xe7),
        (&[[0], [0], [0], [0], [0], [0], [0], [0], [1]], 0x01, 0x1d),
    ];
    for (data, p, q) in cases {
        for level in levels() {
            let shards: Vec<_> = data.iter().map(|byte| byte.repeat(300)).collect();
            let slices: Vec<_> = shards.iter().map(Vec::as_slice).collect();
            assert_eq!(encoded(level, &slices, 2, 300), [vec![p; 300], vec![q; 300]]);
        }
    }
}

#[test]
fn q_has_its_255_coefficients() {
    let mut shards = vec![vec![0u8; 70]; 255];
    shards[254].fill(1);
    let slices: Vec<_> = shards.iter().map(Vec::as_slice).collect();
    for level in levels() {
        assert_eq!(encoded(level, &slices, 2, 70)[1], [0x8e; 70]);
    }
    let mut row = whole_row(&shards, 2);
    row[17] = noise(70, 3);
    let row = whole_row(&row[..255], 2);
    check_rebuild(best(), &row, 255, &[17, 254]);
}

/// Every square part up to 3 x 3 of the largest code has an inverse. The rest is Cauchy's theorem,
/// and the exhaustive losses below.
#[test]
fn the_code_brings_back_any_loss() {
    let columns: Vec<[u8; 4]> =
        (0..max_data(4)).map(|data| std::array::from_fn(|row| coefficient(row, data))).collect();
    let det2 = |a: [u8; 2], b: [u8; 2]| gf256::mul(a[0], b[1]) ^ gf256::mul(a[1], b[0]);
    for (x, a) in columns.iter().enumerate() {
        assert!(a.iter().all(|&factor| factor != 0));
        for b in &columns[..x] {
            for (r, s) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
                assert_ne!(det2([a[r], a[s]], [b[r], b[s]]), 0);
            }
        }
    }
    for (x, a) in columns.iter().enumerate() {
        for (y, b) in columns[..x].iter().enumerate() {
            for rows in [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]] {
                let [r, s, t] = rows;
                let minors = [
                    det2([a[s], a[t]], [b[s], b[t]]),
                    det2([a[r], a[t]], [b[r], b[t]]),
                    det2([a[r], a[s]], [b[r], b[s]]),
                ];
                for c in &columns[..y] {
                    let product = |n: usize| gf256::mul(minors[n], c[rows[n]]);
                    assert_ne!(product(0) ^ product(1) ^ product(2), 0);
                }
            }
        }
    }
}

#[test]
fn q_is_a_row_of_the_code() {
    (0..255).for_each(|n| assert_eq!(coefficient(1, n), gf256::exp(n)));
}

/// Every set of up to m lost shards, at every level, with shards of many lengths.
#[test]
fn every_loss_is_rebuilt() {
    for (data_count, parity_count) in [(1, 1), (5, 1), (1, 2), (2, 2), (9, 2), (5, 3), (6, 4)] {
        let lengths = [777, 777, 300, 777, 0, 512, 64, 1, 777];
        let data: Vec<_> = (0..data_count).map(|n| noise(lengths[n], n as u64 + 1)).collect();
        let row = whole_row(&data, parity_count);
        for set in 1u32..1 << row.len() {
            if set.count_ones() as usize > parity_count {
                continue;
            }
            let lost: Vec<_> = (0..row.len()).filter(|n| set >> n & 1 == 1).collect();
            levels().into_iter().for_each(|level| check_rebuild(level, &row, data_count, &lost));
        }
    }
}

#[test]
fn too_many_lost_is_an_error_and_writes_nothing() {
    let row = whole_row(&[noise(50, 1), noise(50, 2), noise(50, 3)], 2);
    let mut out = [0xee; 50];
    let present = [None, None, Some(&row[2][..]), None, Some(&row[4][..])];
    let lost = rebuild(3, &present, &mut [(0, &mut out)]).unwrap_err();
    assert_eq!(lost, TooManyLost { lost: 3, parity: 2 });
    assert_eq!(
        lost.to_string(),
        "3 shards (chunks of one stripe) are lost, but only 2 can be rebuilt"
    );
    assert_eq!(out, [0xee; 50]);
}

#[test]
fn a_part_of_the_lost_and_a_part_of_a_shard_can_be_wanted() {
    let row = whole_row(&[noise(90, 1), noise(90, 2), noise(90, 3)], 2);
    let present = [None, Some(&row[1][..]), None, Some(&row[3][..]), Some(&row[4][..])];
    let (mut short, mut long, mut copy) = ([0; 33], [0xee; 120], [0; 90]);
    rebuild(3, &present, &mut [(2, &mut short)]).unwrap();
    assert_eq!(short, row[2][..33]);
    rebuild(3, &present, &mut [(2, &mut short), (0, &mut long), (4, &mut copy)]).unwrap();
    assert_eq!((&short[..], &long[..90], &copy[..]), (&row[2][..33], &row[0][..], &row[4][..]));
    assert_eq!(long[90..], [0; 30]);
}

#[test]
fn edges_of_encoding() {
    encode(&[b"abc"], &mut []);
    let mut p = [1; 5];
    encode(&[], &mut [&mut p]);
    assert_eq!(p, [0; 5]);
    let (mut p, mut q) = ([1; 5], [1; 5]);
    encode(&[b"ab", b""], &mut [&mut p, &mut q]);
    assert_eq!((&p, &q), (b"ab\0\0\0", b"ab\0\0\0"));
    encode(&[&[], &[]], &mut [&mut [], &mut []]);
}

#[test]
#[should_panic(expected = "all are equally long")]
fn an_update_is_as_long_as_its_parity() {
    update(&[(0, b"abc")], &mut [(1, &mut [0; 2])]);
}

#[test]
#[should_panic(expected = "no data shard is longer than its parity")]
fn a_data_shard_may_not_be_longer_than_its_parity() {
    encode(&[b"abc"], &mut [&mut [0; 2]]);
}

#[test]
#[should_panic(expected = "too many data shards")]
fn q_takes_255_data_shards_at_most() {
    encode(&[&[][..]; 256], &mut [&mut [], &mut []]);
}

/// Larger than any cache this is likely to run on states, so that stores go past the caches; the
/// outputs begin off any alignment, together and apart.
#[test]
#[cfg(target_arch = "x86_64")]
fn stores_past_the_caches_are_the_same_bytes() {
    let len = x86::cache_bytes() / 3 + 1001;
    if len > 128 << 20 {
        return; // A cache of more than 384 MiB: its memory is too much for a test.
    }
    let data = noise(len, 9);
    let mut outs = [vec![0; len + 64], vec![0; len + 64]];
    for level in levels() {
        for (p_from, q_from) in [(5, 5), (1, 2)] {
            let [p, q] = &mut outs;
            let align = |v: &[u8]| v.as_ptr().align_offset(64);
            let (p_at, q_at) = ((align(p) + p_from) % 64, (align(q) + q_from) % 64);
            let (p, q) = (&mut p[p_at..][..len], &mut q[q_at..][..len]);
            encode_at(level, &[&data, &data[1..]], &mut [&mut *p, &mut *q]);
            assert!(p.iter().zip(&data).zip(&data[1..]).all(|((p, a), b)| *p == a ^ b));
            let expected = data.iter().zip(&data[1..]).map(|(a, b)| a ^ gf256::double(*b));
            assert!(q.iter().copied().zip(expected).all(|(q, e)| q == e), "{level}");
            assert_eq!((p[len - 1], q[len - 1]), (data[len - 1], data[len - 1]));
        }
    }
}

/// Shards of up to 1500 bytes, each at its own place in a buffer, of any length.
fn shards() -> impl Strategy<Value = (Vec<Vec<u8>>, Vec<usize>)> {
    let shard = (0usize..70, 0usize..1500, any::<u64>());
    let equal = any::<Option<u16>>();
    (prop::collection::vec(shard, 1..=20), equal).prop_map(|(shards, equal)| {
        let starts = shards.iter().map(|(start, ..)| *start).collect();
        let buffers = shards.iter().map(|(start, len, seed)| {
            noise(start + equal.map_or(*len, |len| usize::from(len) % 1500), *seed)
        });
        (buffers.collect(), starts)
    })
}

proptest! {
    #[test]
    fn all_levels_agree_with_the_definition(
        (buffers, starts) in shards(), parity_count in 1..=MAX_PARITY, out_start in 0usize..70,
        extra in prop_oneof![Just(0usize), 0usize..100],
    ) {
        let data: Vec<_> = buffers.iter().zip(&starts).map(|(b, &start)| &b[start..]).collect();
        let len = data.iter().map(|shard| shard.len()).max().unwrap_or(0) + extra;
        let expected: Vec<_> = (0..parity_count).map(|row| reference(&data, row, len)).collect();
        for level in levels() {
            let mut outs = vec![vec![0xee; out_start + len + 3]; parity_count];
            let mut parity: Vec<_> =
                outs.iter_mut().map(|out| &mut out[out_start..out_start + len]).collect();
            encode_at(level, &data, &mut parity);
            for (out, expected) in outs.iter().zip(&expected) {
                prop_assert!(out[out_start..out_start + len] == expected[..], "{level}");
                prop_assert!(out[..out_start].iter().all(|&b| b == 0xee));
                prop_assert_eq!(&out[out_start + len..], &[0xee; 3]);
            }
        }
    }

    #[test]
    fn any_loss_is_rebuilt(
        (data, _) in shards(), parity_count in 1..=MAX_PARITY, seed: prop::sample::Index,
        step in 1usize..7,
    ) {
        let row = whole_row(&data, parity_count);
        let mut lost: Vec<_> =
            (0..parity_count).map(|n| (seed.index(row.len()) + n * step) % row.len()).collect();
        lost.sort_unstable();
        lost.dedup();
        levels().into_iter().for_each(|level| check_rebuild(level, &row, data.len(), &lost));
    }

    /// Shards change, their old and new bytes are added, and the parity is that of the new row: for
    /// every choice of parity rows, in one call and in two.
    #[test]
    fn parity_follows_what_changes(
        count in 1usize..=20, len in 0usize..1500, parity_count in 1..=MAX_PARITY, rows in 1u8..16,
        changed in prop::collection::vec(any::<prop::sample::Index>(), 0..12), seed: u32, twice: bool,
    ) {
        let shard = |n: usize| noise(len, u64::from(seed) << 8 | n as u64);
        let old: Vec<_> = (0..count).map(shard).collect();
        let mut changed: Vec<_> = changed.iter().map(|index| index.index(count)).collect();
        changed.sort_unstable();
        changed.dedup();
        let mut new = old.clone();
        changed.iter().for_each(|&n| new[n] = shard(n + 100));
        let (before, after) = (whole_row(&old, parity_count), whole_row(&new, parity_count));
        let listed = |row: &usize| rows >> row & 1 == 1;
        let olds: Vec<_> = changed.iter().map(|&n| (n, old[n].as_slice())).collect();
        let news: Vec<_> = changed.iter().map(|&n| (n, new[n].as_slice())).collect();
        for level in levels() {
            let mut outs: Vec<_> = before[count..].to_vec();
            let mut parity: Vec<_> =
                outs.iter_mut().map(Vec::as_mut_slice).enumerate().filter(|(n, _)| listed(n)).collect();
            if twice {
                update_at(level, &olds, &mut parity);
                update_at(level, &news, &mut parity);
            } else {
                update_at(level, &[olds.clone(), news.clone()].concat(), &mut parity);
            }
            for (row, out) in outs.iter().enumerate() {
                let expected = if listed(&row) { &after } else { &before };
                prop_assert!(*out == expected[count + row], "row {row}, {level}");
            }
        }
    }

    #[test]
    fn xor_into_adds(
        target in prop::collection::vec(any::<u8>(), 0..900), cut: prop::sample::Index, seed: u64,
    ) {
        let source = noise(cut.index(target.len() + 1), seed);
        let mut sum = target.clone();
        xor_into(&mut sum, &source);
        for (n, byte) in sum.iter().enumerate() {
            prop_assert_eq!(*byte, target[n] ^ source.get(n).copied().unwrap_or(0));
        }
    }
}
