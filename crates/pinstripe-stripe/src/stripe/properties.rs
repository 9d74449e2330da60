//! Property tests of complete sets: random geometry, length, append sizes and damage.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::report::ErasureReason;
use super::row::push_range;
use super::testing::*;
use super::*;
use pinstripe_base::error::Kind;
use pinstripe_member::stripe_set::HEADER_BYTES;

fn shapes() -> impl Strategy<Value = (Geometry, usize)> {
    (1u8..6, 0u8..3, 0u32..2, 0usize..120_000).prop_map(|(data, parity, shift, bytes)| {
        (Geometry::new(data, parity, 4096 << shift).unwrap(), bytes)
    })
}

/// Flips one bit in each of these strips, given as `(row, position, offset)`, each modulo the
/// number there is; at most `most` strips per row. Returns the damaged strips, by row and position.
fn hurt_strips(
    fixture: &Fixture,
    hits: &[(u64, usize, u64)],
    most: usize,
) -> BTreeSet<(u64, usize)> {
    let layout = &fixture.layout;
    let mut hit = BTreeSet::new();
    for &(row, position, at) in hits {
        let row = row % layout.rows().max(1);
        let position = position % layout.geometry().members();
        let in_row = hit.iter().filter(|&&(other, _)| other == row).count();
        if layout.rows() == 0 || in_row >= most || hit.contains(&(row, position)) {
            continue;
        }
        let len = u64::from(layout.row_shape(row).strip_len(position));
        if len > 0 {
            let member = layout.permutation(row).slot(position);
            fixture.flip(member, layout.strip_offset(row) + at % len);
            hit.insert((row, position));
        }
    }
    hit
}

fn hits() -> impl Strategy<Value = Vec<(u64, usize, u64)>> {
    prop::collection::vec((any::<u64>(), any::<usize>(), any::<u64>()), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_range_comes_back_with_up_to_p_members_gone(
        (geometry, bytes) in shapes(),
        portions in prop::collection::vec(1usize..20_000, 1..6),
        gone: [usize; 2],
        ranges in prop::collection::vec((any::<usize>(), any::<usize>()), 1..5),
    ) {
        let fixture = Fixture::appended(geometry, bytes, &portions);
        let at_once = Fixture::appended(geometry, bytes, &[usize::MAX]);
        prop_assert!(fixture.extents == at_once.extents, "portions show in the extents");

        let gone: Vec<usize> =
            gone.iter().take(geometry.parity()).map(|m| m % geometry.members()).collect();
        for set in [fixture.open(), fixture.open_without(&gone)] {
            fixture.assert_reads(&set);
            for &(a, b) in &ranges {
                let (a, b) = (a % (bytes + 1), b % (bytes + 1));
                let range = a.min(b)..a.max(b);
                for read in [SetReader::read, SetReader::read_verified] {
                    let mut out = Vec::new();
                    read(&set, range.start as u64..range.end as u64, &mut out).unwrap();
                    prop_assert!(out == fixture.content[range.clone()], "{:?}", range);
                }
            }
        }
    }

    #[test]
    fn damage_within_parity_is_healed_and_located((geometry, bytes) in shapes(), hits in hits()) {
        let fixture = Fixture::appended(geometry, bytes, &[usize::MAX]);
        let hit = hurt_strips(&fixture, &hits, geometry.parity());
        let set = fixture.open();

        let mut out = Vec::new();
        let report = set.read_verified(0..bytes as u64, &mut out).unwrap();
        prop_assert!(out == fixture.content);
        let rebuilt: BTreeSet<_> = report
            .rebuilt
            .iter()
            .map(|r| (r.row, fixture.layout.permutation(r.row).position(r.slot)))
            .collect();
        let data_hit: BTreeSet<_> =
            hit.iter().copied().filter(|&(_, position)| position < geometry.data()).collect();
        prop_assert_eq!(rebuilt, data_hit);
        prop_assert!(report.rebuilt.iter().all(|r| matches!(r.reason, ErasureReason::Checksum)));

        let mut expected: Vec<_> = hit
            .iter()
            .map(|&(row, position)| {
                (fixture.layout.permutation(row).slot(position), ExtentPart::Strip(row), true)
            })
            .collect();
        expected.sort_unstable();
        let found = set.verify(&mut |_| {});
        prop_assert_eq!(damage_of(&found), expected);
        prop_assert!(found.lost_ranges.is_empty());

        for (member, extent) in fixture.extents.iter().enumerate() {
            let anew = rewritten(&set, member).unwrap();
            prop_assert!(anew == *extent, "member {} differs", member);
        }
    }

    #[test]
    fn damage_beyond_parity_is_told_exactly((geometry, bytes) in shapes(), hits in hits()) {
        let fixture = Fixture::appended(geometry, bytes, &[usize::MAX]);
        let hit = hurt_strips(&fixture, &hits, usize::MAX);
        let set = fixture.open();
        let mut lost = Vec::new();
        for row in 0..fixture.layout.rows() {
            let in_row = hit.range((row, 0)..(row + 1, 0)).count();
            for position in 0..geometry.data() {
                let strip = fixture.layout.row_shape(row).strip_logical(position);
                let is_lost = in_row > geometry.parity() && hit.contains(&(row, position));
                let mut out = Vec::new();
                match set.read_verified(strip.clone(), &mut out) {
                    Ok(_) => {
                        prop_assert!(!is_lost);
                        let content = strip.start as usize..strip.end as usize;
                        prop_assert!(out == fixture.content[content]);
                    }
                    Err(error) => {
                        prop_assert!(is_lost);
                        prop_assert_eq!(error.kind(), Kind::TooManyLosses);
                    }
                }
                if is_lost {
                    push_range(&mut lost, strip);
                }
            }
        }
        let found = set.verify(&mut |_| {});
        prop_assert_eq!(found.damage.len(), hit.len());
        for damage in &found.damage {
            let ExtentPart::Strip(row) = damage.part else { panic!("{}", damage.part) };
            let in_row = hit.range((row, 0)..(row + 1, 0)).count();
            prop_assert_eq!(damage.repairable, in_row <= geometry.parity());
        }
        prop_assert_eq!(found.lost_ranges, lost);
    }

    #[test]
    fn a_lost_extent_is_written_anew_as_it_was((geometry, bytes) in shapes(), gone: [usize; 2]) {
        let fixture = Fixture::appended(geometry, bytes, &[usize::MAX]);
        for member in gone.iter().take(geometry.parity()) {
            fixture.remove(member % geometry.members());
        }
        let set = fixture.open();
        let found = set.verify(&mut |_| {});
        prop_assert!(found.damage.iter().all(|d| d.part == ExtentPart::Extent && d.repairable));
        for (member, extent) in fixture.extents.iter().enumerate() {
            let anew = rewritten(&set, member).unwrap();
            prop_assert!(anew == *extent, "member {} differs", member);
        }
    }

    #[test]
    fn a_cut_or_lengthened_extent_is_damage_and_no_more(
        (geometry, bytes) in shapes(),
        member: usize,
        len: usize,
        flip: usize,
    ) {
        let fixture = Fixture::appended(geometry, bytes, &[usize::MAX]);
        let member = member % geometry.members();
        let whole = fixture.extents[member].len();
        let len = len % (whole + 100);
        fixture.hurt(member, |extent| extent.resize(len, 0xee));
        if let Ok(set) = fixture.try_open() {
            let found = set.verify(&mut |_| {});
            prop_assert_eq!(found.is_whole(), len == whole);
            prop_assert!(found.damage.iter().all(|damage| damage.slot == member));
            prop_assert!(geometry.parity() == 0 || found.lost_ranges.is_empty());
            if geometry.parity() > 0 {
                fixture.assert_reads(&set);
            }
        } else {
            prop_assert_eq!(geometry.members(), 1);
        }

        // Any one flipped bit anywhere is one damage, and a header or trailer costs nothing.
        fixture.mend();
        let at = flip % whole;
        fixture.flip(member, at as u64);
        if let Ok(set) = fixture.try_open() {
            let found = set.verify(&mut |_| {});
            prop_assert_eq!(found.damage.len(), 1);
            let part = found.damage[0].part;
            let trailer = fixture.layout.trailer_offset(member) as usize;
            prop_assert_eq!(part == ExtentPart::Header, at < HEADER_BYTES);
            prop_assert_eq!(part == ExtentPart::Trailer, at >= trailer);
            let mended = rewritten(&set, member);
            if geometry.parity() > 0 || !matches!(part, ExtentPart::Strip(_)) {
                prop_assert!(mended.unwrap() == fixture.extents[member]);
            } else {
                prop_assert_eq!(mended.unwrap_err().kind(), Kind::TooManyLosses);
            }
        } else {
            prop_assert!(geometry.members() == 1 && at >= HEADER_BYTES);
        }
    }
}
