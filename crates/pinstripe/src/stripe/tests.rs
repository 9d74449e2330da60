//! Sets as a whole: written, hurt, read back, verified, mended.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::row::push_range;
use super::testing::*;
use super::*;
use crate::error::{Error, Kind, Result};
use crate::format::stripe_set::{HEADER_BYTES, SetKind, checksum};
use crate::id::{SetId, StoreId};
use crate::member::ExtentName;

/// A set of 3+1 with two full rows and a short one whose strips are 64, 64 and 22 bytes.
fn small() -> Fixture {
    Fixture::new(3, 1, 2 * 3 * 4096 + 150)
}

fn damage_of(found: &Verification) -> Vec<(usize, Part, bool)> {
    found.damage.iter().map(|damage| (damage.member, damage.part, damage.repairable)).collect()
}

/// The bytes of a set are a promise: when this fails, the format has changed.
#[test]
fn the_layout_is_pinned() {
    let set = small();
    let lens: Vec<usize> = set.extents.iter().map(Vec::len).collect();
    assert_eq!(lens, [12_704, 12_662, 12_704, 12_704]);
    let hash = |set: &Fixture| blake3::hash(&set.extents.concat()).to_string();
    assert_eq!(hash(&set), "b6ff5efa53e0de1dddccf13b4c498501b4400d520d686d3862d0068c2eb2b1b8");
    assert_eq!(
        hash(&Fixture::new(4, 2, 70_000)),
        "8d955cd9a71d87dd6b03ce1246aa6baaeb061fbaa1daa04ddb7b02fb76c2ff6e"
    );
}

#[test]
fn a_set_tells_what_it_is() {
    let fixture = small();
    let bytes = fixture.content.len() as u64;
    let set = fixture.open();
    assert_eq!(set.kind(), SetKind::Pack);
    assert_eq!(set.geometry(), fixture.layout.geometry());
    assert_eq!(set.layout(), &fixture.layout);
    assert_eq!(set.logical_bytes(), bytes);
    assert_eq!(set.index(), bytes / 2..bytes);
    for (member, extent) in fixture.extents.iter().enumerate() {
        assert_eq!(fixture.layout.extent_bytes(member), extent.len() as u64);
        assert_eq!(fixture.summary.extent_bytes[member], extent.len() as u64);
    }
    assert_eq!(fixture.summary.logical_bytes, bytes);
}

#[test]
fn an_empty_set_is_a_set() {
    let fixture = Fixture::new(2, 1, 0);
    let set = fixture.open();
    fixture.assert_reads(&set);
    assert!(set.verify(&mut |_| {}).is_whole());
    assert!(set.index().is_empty());
}

#[test]
fn a_whole_set_verifies_and_every_byte_is_looked_at() {
    let fixture = small();
    let mut seen = 0;
    let found = fixture.open().verify(&mut |bytes| seen += bytes);
    assert!(found.is_whole() && found.lost_ranges.is_empty());
    assert_eq!(found.fetched_bytes, fixture.summary.extent_bytes.iter().sum::<u64>());
    assert_eq!(seen, found.fetched_bytes);
}

#[test]
fn a_fast_read_fetches_only_what_was_asked_for() {
    let fixture = small();
    let set = fixture.open();
    let mut out = Vec::new();
    let report = set.read(4000..4200, &mut out).unwrap();
    assert_eq!(out, fixture.content[4000..4200]);
    assert_eq!(report.fetched_bytes, 200);
    assert!(report.rebuilt.is_empty());
}

#[test]
fn a_range_beyond_the_set_is_refused() {
    let fixture = small();
    let set = fixture.open();
    let end = fixture.content.len() as u64;
    let backwards = Range { start: 2, end: 1 };
    for range in [end..end + 1, 0..end + 1, u64::MAX - 1..u64::MAX, backwards] {
        let mut out = b"kept".to_vec();
        for read in [SetReader::read, SetReader::read_verified] {
            let error = read(&set, range.clone(), &mut out).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            assert_eq!(out, b"kept");
        }
    }
    assert!(set.read(end..end, &mut Vec::new()).is_ok());
}

#[test]
fn a_broken_member_is_rebuilt_and_named() {
    let fixture = small();
    fixture.members[2].broken.store(true, Ordering::Relaxed);
    let set = fixture.open();
    let report = fixture.assert_reads(&set);
    let layout = &fixture.layout;
    let data_strips = (0..3).filter(|&row| {
        let position = layout.permutation(row).position(2);
        position < 3 && layout.row_shape(row).strip_len(position) > 0
    });
    assert_eq!(report.rebuilt.len(), data_strips.count());
    let rebuilt = &report.rebuilt[0];
    assert!(rebuilt.member == 2 && matches!(rebuilt.reason, Reason::Unreadable(_)));
    let text = set.describe(2, Part::Strip(rebuilt.row), &rebuilt.reason);
    assert!(text.contains("member 2") && text.contains("/disk2"), "{text}");
}

#[test]
fn a_damaged_header_is_found_and_costs_nothing() {
    for parity in [0, 1] {
        let fixture = Fixture::new(3, parity, 30_000);
        for member in 0..fixture.members.len() {
            fixture.flip(member, 20);
        }
        let set = fixture.open();
        fixture.assert_reads(&set);
        let found = set.verify(&mut |_| {});
        let all: Vec<_> =
            (0..fixture.members.len()).map(|member| (member, Part::Header, true)).collect();
        assert_eq!(damage_of(&found), all);
        assert!(matches!(found.damage[0].reason, Reason::Header(_)));
    }
}

#[test]
fn swapped_extents_are_erasures() {
    let fixture = Fixture::new(3, 2, 40_000);
    fixture.hurt(1, |extent| *extent = fixture.extents[4].clone());
    fixture.hurt(4, |extent| *extent = fixture.extents[1].clone());
    let set = fixture.open();
    let report = fixture.assert_reads(&set);
    assert!(!report.rebuilt.is_empty());
    for rebuilt in &report.rebuilt {
        assert!([1, 4].contains(&rebuilt.member));
        let Reason::Header(error) = &rebuilt.reason else { panic!("{}", rebuilt.reason) };
        assert_eq!(error.kind(), Kind::WrongMember);
    }
    let mut out = Vec::new();
    set.read_verified(0..40_000, &mut out).unwrap();
    assert_eq!(out, fixture.content);
}

#[test]
fn one_good_trailer_is_enough() {
    for good in 0..4 {
        let fixture = small();
        for member in (0..4).filter(|&member| member != good) {
            let at = fixture.extents[member].len() - 1 - member * 70;
            fixture.flip(member, at as u64);
        }
        let set = fixture.open();
        fixture.assert_reads(&set);
        let bad: Vec<_> =
            (0..4).filter(|&m| m != good).map(|member| (member, Part::Trailer, true)).collect();
        assert_eq!(damage_of(&set.verify(&mut |_| {})), bad);
    }
}

#[test]
fn why_a_set_cannot_be_opened_is_told() {
    let fixture = small();
    let opened = |store, set| SetReader::open(&fixture.shared(&[]), Fixture::name(), store, set);
    let kind = |result: Result<SetReader>| result.map(|_| ()).unwrap_err().kind();
    assert_eq!(kind(opened(StoreId([0; 16]), SET)), Kind::WrongMember);
    assert_eq!(kind(opened(STORE, SetId([0; 16]))), Kind::WrongMember);
    let elsewhere = ExtentName::index(SET);
    assert_eq!(kind(SetReader::open(&fixture.shared(&[]), elsewhere, STORE, SET)), Kind::NotFound);
    assert_eq!(kind(SetReader::open(&[], Fixture::name(), STORE, SET)), Kind::NotFound);

    for member in 0..4 {
        fixture.hurt(member, |extent| extent.truncate(member * 40));
    }
    assert_eq!(kind(fixture.try_open()), Kind::Corrupt);
    fixture.mend();
    for member in 0..4 {
        fixture.hurt(member, |extent| {
            let footer = extent.len() - 64;
            extent[footer + 8] = 2;
            let sum = checksum(&extent[footer..footer + 48]);
            extent[footer + 48..].copy_from_slice(&sum);
        });
    }
    fixture.remove(0);
    fixture.flip(1, fixture.extents[1].len() as u64 - 1);
    let error = fixture.try_open().map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.place().is_some() && error.advice_text().is_some());
}

#[test]
fn a_set_may_lie_on_the_first_members_only_and_late_ones_may_be_left_out() {
    let fixture = small();
    let mut more = fixture.shared(&[]);
    more.insert(4, None);
    more.push(more[0].clone());
    fixture.assert_reads(&SetReader::open(&more, Fixture::name(), STORE, SET).unwrap());
    let fewer = &fixture.shared(&[])[..3];
    fixture.assert_reads(&SetReader::open(fewer, Fixture::name(), STORE, SET).unwrap());
}

#[test]
fn too_many_losses_are_named_exactly() {
    let fixture = small();
    fixture.remove(0);
    let permutation = fixture.layout.permutation(1);
    let position = (0..3).find(|&position| permutation.member(position) != 0).unwrap();
    let hurt = permutation.member(position);
    fixture.flip(hurt, fixture.layout.strip_offset(1) + 5);

    let set = fixture.open();
    let mut out = b"kept".to_vec();
    let lost = fixture.layout.row_shape(1).strip_logical(position);
    let error = set.read_verified(lost.clone(), &mut out).unwrap_err();
    assert_eq!((error.kind(), out.as_slice()), (Kind::TooManyLosses, &b"kept"[..]));
    let text = error.to_string();
    let range = format!("{}..{}", lost.start, lost.end);
    for part in [&Fixture::name().path(), "row 1", "/disk0", &format!("/disk{hurt}")] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains(&range) || permutation.position(0) < 3, "{text}");

    let found = set.verify(&mut |_| {});
    let mut expected = vec![(0, Part::Extent, false), (hurt, Part::Strip(1), false)];
    expected.sort_unstable();
    assert_eq!(damage_of(&found), expected);
    let error = set.rebuild_extent(0, &mut Rewritten::default()).unwrap_err();
    assert_eq!(error.kind(), Kind::TooManyLosses);
    let bystander = (1..4).find(|&member| member != hurt).unwrap();
    let mut whole = Rewritten::default();
    set.rebuild_extent(bystander, &mut whole).unwrap();
    assert!(whole.0 == fixture.extents[bystander]);
}

#[test]
fn a_sink_that_fails_stops_the_writer() {
    struct Full;
    impl StripSink for Full {
        fn append(&mut self, _: usize, _: Vec<u8>) -> Result<()> {
            Err(Error::new(Kind::NoSpace, "full"))
        }
    }
    let geometry = Geometry::new(1, 1, 4096).unwrap();
    let writer = || SetWriter::new(STORE, SET, SetKind::Split, geometry);
    assert_eq!(writer().append(&[0; 4096], &mut Full).unwrap_err().kind(), Kind::NoSpace);
    assert_eq!(writer().finish(0..0, &mut Full).unwrap_err().kind(), Kind::NoSpace);
    let backwards = Range { start: 1, end: 0 };
    for index in [0..1, backwards] {
        let error = writer().finish(index, &mut Extents::default()).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
    }
}

#[test]
fn many_threads_read_through_one_reader() {
    let fixture = Fixture::new(3, 1, 100_000);
    fixture.remove(1);
    let set = fixture.open();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| fixture.assert_reads(&set));
        }
    });
}

fn shapes() -> impl Strategy<Value = (Geometry, usize)> {
    (1u8..6, 0u8..3, 0u32..2, 0usize..120_000).prop_map(|(data, parity, shift, bytes)| {
        (Geometry::new(data, parity, 4096 << shift).unwrap(), bytes)
    })
}

/// Flips a bit in each of these strips, `(row, position, where in it)` taken modulo what there
/// is; at most `most` per row. Says what was hit, by row and position.
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
            let member = layout.permutation(row).member(position);
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
            .map(|r| (r.row, fixture.layout.permutation(r.row).position(r.member)))
            .collect();
        let data_hit: BTreeSet<_> =
            hit.iter().copied().filter(|&(_, position)| position < geometry.data()).collect();
        prop_assert_eq!(rebuilt, data_hit);
        prop_assert!(report.rebuilt.iter().all(|r| matches!(r.reason, Reason::Checksum)));

        let mut expected: Vec<_> = hit
            .iter()
            .map(|&(row, position)| {
                (fixture.layout.permutation(row).member(position), Part::Strip(row), true)
            })
            .collect();
        expected.sort_unstable();
        let found = set.verify(&mut |_| {});
        prop_assert_eq!(damage_of(&found), expected);
        prop_assert!(found.lost_ranges.is_empty());

        for (member, extent) in fixture.extents.iter().enumerate() {
            let mut anew = Rewritten::default();
            set.rebuild_extent(member, &mut anew).unwrap();
            prop_assert!(anew.0 == *extent, "member {} differs", member);
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
            let Part::Strip(row) = damage.part else { panic!("{}", damage.part) };
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
        prop_assert!(found.damage.iter().all(|d| d.part == Part::Extent && d.repairable));
        for (member, extent) in fixture.extents.iter().enumerate() {
            let mut anew = Rewritten::default();
            set.rebuild_extent(member, &mut anew).unwrap();
            prop_assert!(anew.0 == *extent, "member {} differs", member);
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
            prop_assert!(found.damage.iter().all(|damage| damage.member == member));
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
            prop_assert_eq!(part == Part::Header, at < HEADER_BYTES);
            prop_assert_eq!(part == Part::Trailer, at >= trailer);
            let mut anew = Rewritten::default();
            let mended = set.rebuild_extent(member, &mut anew);
            if geometry.parity() > 0 || !matches!(part, Part::Strip(_)) {
                mended.unwrap();
                prop_assert!(anew.0 == fixture.extents[member]);
            } else {
                prop_assert_eq!(mended.unwrap_err().kind(), Kind::TooManyLosses);
            }
        } else {
            prop_assert!(geometry.members() == 1 && at >= HEADER_BYTES);
        }
    }
}
