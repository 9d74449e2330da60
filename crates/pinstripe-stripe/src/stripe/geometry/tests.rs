//! Tables and properties of the layout arithmetic.

use proptest::prelude::*;

use super::*;

fn layout(data: u8, parity: u8, logical_bytes: u64) -> SetLayout {
    let geometry = Geometry::new(data, parity, 4096).unwrap();
    SetLayout::new(geometry, SetId([7; 16]), logical_bytes).unwrap()
}

#[test]
fn the_generator_is_splitmix64() {
    let mut state = 1_234_567;
    for draw in [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423] {
        assert_eq!(splitmix64(&mut state), draw);
    }
}

#[test]
fn permutations_are_pinned() {
    // Computed by an independent implementation of the documented generator.
    let set = SetId(*b"0123456789abcdef");
    let rows = |count| -> Vec<Vec<usize>> {
        (0..4).map(|row| Permutation::new(set, row, count).slots().collect()).collect()
    };
    assert_eq!(rows(1), [[0], [0], [0], [0]]);
    assert_eq!(rows(4), [[2, 1, 0, 3], [1, 3, 2, 0], [2, 0, 1, 3], [0, 3, 1, 2]]);
    assert_eq!(
        rows(6),
        [[1, 3, 5, 2, 0, 4], [1, 3, 2, 5, 4, 0], [3, 1, 4, 0, 2, 5], [0, 4, 2, 5, 1, 3]]
    );
}

/// Over 40,000 rows each member holds each position near equally often: the bound is six standard
/// deviations of a fair draw, and the seed is fixed, so the test cannot waver.
#[test]
fn permutations_are_balanced() {
    for count in [2, 3, 4, 5, 8, 12] {
        let rows = 40_000;
        let mut held = vec![vec![0_u64; count]; count];
        for row in 0..rows {
            let permutation = Permutation::new(SetId([3; 16]), row, count);
            for (position, member) in permutation.slots().enumerate() {
                held[position][member] += 1;
            }
        }
        let chance = 1.0 / count as f64;
        let fair = rows as f64 * chance;
        let bound = 6.0 * (fair * (1.0 - chance)).sqrt();
        for (position, members) in held.iter().enumerate() {
            for (member, &times) in members.iter().enumerate() {
                let off = (times as f64 - fair).abs();
                assert!(off < bound, "{count}: {position} on {member} {times} times, fair {fair}");
            }
        }
    }
}

/// No stride of strips stays on few members: over 1,000 steps the busiest member of 8 serves at
/// most a fifth, where plain round robin would give it up to all.
#[test]
fn no_stride_pins_a_member() {
    let layout = layout(8, 0, 4096 * 64 * 1_000);
    for stride in 1..=64_u64 {
        let mut served = [0; 8];
        for step in 0..1_000 {
            let at = step * stride * 4096;
            served[layout.pieces(at..at + 1).next().unwrap().slot] += 1;
        }
        assert!(served.iter().all(|&times| times < 200), "stride {stride}: {served:?}");
    }
}

#[test]
fn short_rows_are_cut_and_not_padded() {
    // (data, bytes) -> strip bytes, length of each data strip
    for (data, bytes, strip_bytes, lens) in [
        (1, 1, 64, &[1][..]),
        (1, 4096, 4096, &[4096]),
        (3, 1, 64, &[1, 0, 0]),
        (3, 192, 64, &[64, 64, 64]),
        (3, 193, 128, &[128, 65, 0]),
        (3, 4096, 1408, &[1408, 1408, 1280]),
        (3, 3 * 4096 - 1, 4096, &[4096, 4096, 4095]),
        (3, 3 * 4096, 4096, &[4096, 4096, 4096]),
        (3, 9 * 4096, 4096, &[4096, 4096, 4096]),
        (5, 200, 64, &[64, 64, 64, 8, 0]),
    ] {
        let shape = RowShape::new(Geometry::new(data, 2, 4096).unwrap(), 1000, bytes);
        assert_eq!(shape.strip_bytes, strip_bytes, "{data} {bytes}");
        let found: Vec<u32> = (0..data.into()).map(|position| shape.strip_len(position)).collect();
        assert_eq!(found, lens, "{data} {bytes}");
        assert_eq!(shape.strip_len(usize::from(data) + 1), strip_bytes);
        assert!(shape.strip_logical(data.into()).is_empty());
    }
}

#[test]
fn extents_are_as_long_as_their_strips() {
    for (data, parity, logical_bytes, rows) in
        [(3, 1, 0, 0), (3, 1, 1, 1), (3, 1, 12_288, 1), (3, 1, 12_289, 2), (1, 0, 5_000, 2)]
    {
        let layout = layout(data, parity, logical_bytes);
        assert_eq!(layout.rows(), rows);
        let members = layout.geometry().members();
        for member in 0..members {
            let strips: u64 = (0..rows)
                .map(|row| layout.permutation(row).position(member) as u64 + (row << 8))
                .map(|row_position| (row_position >> 8, (row_position & 0xff) as usize))
                .map(|(row, position)| u64::from(layout.row_shape(row).strip_len(position)))
                .sum();
            let tail = 96 + rows * members as u64 * 16 + 64;
            assert_eq!(layout.extent_bytes(member), 4096 + strips + tail);
        }
    }
    let geometry = Geometry::new(1, 0, 4096).unwrap();
    let error = SetLayout::new(geometry, SetId([0; 16]), LOGICAL_BYTES_MAX + 1).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
}

proptest! {
    #[test]
    fn permutations_are_permutations(set: [u8; 16], row: u64, count in 1..=MEMBERS_MAX) {
        let permutation = Permutation::new(SetId(set), row, count);
        for position in 0..count {
            let member = permutation.slot(position);
            prop_assert!(member < count);
            prop_assert_eq!(permutation.position(member), position);
        }
    }

    #[test]
    fn pieces_cover_a_range_exactly(
        data in 1u8..6,
        logical_bytes in 0u64..100_000,
        start in 0u64..110_000,
        len in 0u64..60_000,
    ) {
        let layout = layout(data, 1, logical_bytes);
        let mut at = start;
        for piece in layout.pieces(start..start + len) {
            prop_assert_eq!(piece.logical.start, at);
            prop_assert!(!piece.logical.is_empty());
            let shape = layout.row_shape(piece.row);
            prop_assert!(piece.column.end <= shape.strip_len(piece.position));
            prop_assert_eq!(
                u64::from(piece.column.end - piece.column.start),
                piece.logical.end - piece.logical.start
            );
            prop_assert_eq!(piece.slot, layout.permutation(piece.row).slot(piece.position));
            let strip = layout.strip_offset(piece.row);
            prop_assert_eq!(piece.extent_offset, strip + u64::from(piece.column.start));
            at = piece.logical.end;
        }
        prop_assert_eq!(at, start.max((start + len).min(logical_bytes)));
    }
}
