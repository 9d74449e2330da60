//! Sets as a whole, case by case: written, hurt, read back, verified, mended.

use std::ops::Range;
use std::sync::Arc;

use super::report::ErasureReason;
use super::testing::*;
use super::*;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, StoreId};
use pinstripe_io::fault::Operation;
use pinstripe_member::stripe_set::{HEADER_BYTES, SetKind, checksum};
use pinstripe_member::{ExtentName, FaultMember, MemoryMember};

/// A set of 3+1 with two full rows and a short one whose strips are 64, 64 and 22 bytes.
fn small() -> Fixture {
    Fixture::new(3, 1, 2 * 3 * 4096 + 150)
}

/// The bytes of a set are a promise: when this fails, the format has changed.
#[test]
fn the_layout_is_pinned() {
    let set = small();
    let lens: Vec<usize> = set.extents.iter().map(Vec::len).collect();
    assert_eq!(lens, [12_704, 12_662, 12_704, 12_704]);
    let hash = |set: &Fixture| blake3::hash(&set.extents.concat()).to_string();
    assert_eq!(hash(&set), "1187ccc3e87875fc9aaa5c29d439e2482001a2b50d3f2b1321ef01af37fe2d52");
    assert_eq!(
        hash(&Fixture::new(4, 2, 70_000)),
        "288956be4c3673c6e98af3e1078fe655ab84d5b3e660cd48fe35ba631c0b2c80"
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
fn a_verification_shows_the_run_in_order_but_for_what_is_damaged() {
    let fixture = small();
    let shown = |set: &SetReader| {
        let mut shown: Vec<(u64, Vec<u8>)> = Vec::new();
        set.verify_and_show(&mut |_| {}, &mut |at, bytes| shown.push((at, bytes.to_vec())));
        shown
    };
    let parts = shown(&fixture.open());
    let whole: Vec<u8> = parts.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    assert!(whole == fixture.content);
    let mut end = 0;
    for (at, bytes) in &parts {
        assert_eq!(*at, end);
        end += bytes.len() as u64;
    }
    // A strip of the first row and one of the second, on the same member.
    fixture.flip(1, HEADER_BYTES as u64);
    fixture.flip(1, HEADER_BYTES as u64 + 4096);
    let left = shown(&fixture.open());
    let data_strips = (0..2).filter(|row| {
        fixture.layout.permutation(*row).position(1) < fixture.layout.geometry().data()
    });
    assert_eq!(left.len(), parts.len() - data_strips.count());
    for (at, bytes) in left {
        assert!(bytes == fixture.content[at as usize..at as usize + bytes.len()]);
    }
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
fn a_span_is_what_was_appended_in_as_few_reads_as_extents() {
    for (data, parity, bytes) in [(1, 0, 100_000), (1, 0, 4096), (3, 1, 100_000), (4, 2, 70_001)] {
        let fixture = Fixture::new(data, parity, bytes);
        let watch = |number: usize| {
            let member = MemoryMember::new(format!("/disk{number}"));
            member.overwrite(Fixture::name(), fixture.extents[number].clone());
            Arc::new(FaultMember::new(member, Default::default()))
        };
        let watched: Vec<_> = (0..fixture.extents.len()).map(watch).collect();
        let shared: Vec<_> = watched.iter().map(|it| Some(Arc::clone(it) as _)).collect();
        let set = SetReader::open(&shared, Fixture::name(), STORE, SET).unwrap();
        let bytes = bytes as u64;
        for range in [0..bytes, 1..bytes - 1, bytes / 2..bytes / 2 + 1, 4000..4096, 7..7] {
            let (span, report) = set.read_span(range.clone()).unwrap();
            assert!(span == fixture.content[range.start as usize..range.end as usize], "{range:?}");
            assert_eq!(report.fetched_bytes, range.end - range.start);
        }
        if data == 1 {
            // The trailer tells whose extent it is, and rows are joined.
            let reads =
                |it: &FaultMember<MemoryMember>| it.statistics().counts(Operation::Read).calls;
            let before = reads(&watched[0]);
            set.read_span(0..bytes).unwrap();
            assert_eq!(reads(&watched[0]) - before, 1);
        }
    }
}

#[test]
fn a_span_is_rebuilt_where_it_must_be() {
    let fixture = small();
    let bytes = fixture.content.len() as u64;
    for plan in ["op=read,after=2,error=EIO", "op=read,short=1000"] {
        let (span, report) = open_with_fault(&fixture, plan).read_span(0..bytes).unwrap();
        assert!(span == fixture.content, "{plan}");
        assert!(!report.rebuilt.is_empty(), "{plan}");
    }
    for range in [bytes..bytes + 1, u64::MAX - 1..u64::MAX] {
        assert_eq!(fixture.open().read_span(range).unwrap_err().kind(), Kind::Corrupt);
    }
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

/// Opens a set whose member 2 misbehaves by this plan.
fn open_with_fault(fixture: &Fixture, plan: &str) -> SetReader {
    let member = MemoryMember::new("/disk2");
    member.overwrite(Fixture::name(), fixture.extents[2].clone());
    let mut members = fixture.shared(&[]);
    members[2] = Some(Arc::new(FaultMember::new(member, plan.parse().unwrap())));
    SetReader::open(&members, Fixture::name(), STORE, SET).unwrap()
}

#[test]
fn a_member_that_gives_wrong_or_short_bytes_is_rebuilt() {
    for plan in ["op=read,flip=3,seed=5", "op=read,short=1000", "op=read,after=2,error=EIO"] {
        let fixture = small();
        let set = open_with_fault(&fixture, plan);
        let mut out = Vec::new();
        let report = set.read_verified(0..set.logical_bytes(), &mut out).unwrap();
        assert!(out == fixture.content, "{plan}");
        assert!(!report.rebuilt.is_empty(), "{plan}");
        assert!(report.rebuilt.iter().all(|rebuilt| rebuilt.slot == 2), "{plan}");
    }
}

#[test]
fn a_broken_member_is_rebuilt_and_named() {
    let fixture = small();
    let set = open_with_fault(&fixture, "op=any,error=EIO");
    let report = fixture.assert_reads(&set);
    let layout = &fixture.layout;
    let data_strips = (0..3).filter(|&row| {
        let position = layout.permutation(row).position(2);
        position < 3 && layout.row_shape(row).strip_len(position) > 0
    });
    assert_eq!(report.rebuilt.len(), data_strips.count());
    let rebuilt = &report.rebuilt[0];
    assert!(rebuilt.slot == 2 && matches!(rebuilt.reason, ErasureReason::Unreadable(_)));
    let text = set.describe(2, ExtentPart::Strip(rebuilt.row), &rebuilt.reason);
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
            (0..fixture.members.len()).map(|member| (member, ExtentPart::Header, true)).collect();
        assert_eq!(damage_of(&found), all);
        assert!(matches!(found.damage[0].reason, ErasureReason::Header(_)));
    }
}

#[test]
fn extents_may_lie_on_any_members() {
    let fixture = Fixture::new(3, 2, 40_000);
    fixture.hurt(1, |extent| *extent = fixture.extents[4].clone());
    fixture.hurt(4, |extent| *extent = fixture.extents[1].clone());
    let set = fixture.open();
    assert!(fixture.assert_reads(&set).rebuilt.is_empty());
    assert!(set.verify(&mut |_| {}).is_whole());
    assert_eq!((set.member_of(1), set.holders_of(4)), (Some(4), &[1][..]));

    // Numbers that were never taken, or are not there now, change nothing.
    let mut members = vec![None; 20];
    for (at, member) in [(19, 0), (3, 1), (7, 2), (0, 3), (12, 4)] {
        members[at] = fixture.shared(&[])[member].clone();
    }
    let set = SetReader::open(&members, Fixture::name(), STORE, SET).unwrap();
    assert!(fixture.assert_reads(&set).rebuilt.is_empty());
    assert_eq!((set.member_of(0), set.member_of(3)), (Some(19), Some(0)));
}

#[test]
fn a_slot_on_two_members_is_read_from_whichever_is_sound() {
    let fixture = Fixture::new(2, 1, 40_000);
    let mut members = fixture.shared(&[]);
    let copy = Arc::new(MemoryMember::new("/copy"));
    copy.overwrite(Fixture::name(), fixture.extents[1].clone());
    members.push(Some(copy));
    let open = || SetReader::open(&members, Fixture::name(), STORE, SET).unwrap();
    assert_eq!(open().holders_of(1), [1, 3]);
    assert!(open().free_members().is_empty());
    for damage in [20, fixture.layout.strip_offset(2) + 7] {
        fixture.mend();
        fixture.flip(1, damage);
        let mut out = Vec::new();
        let report = open().read_verified(0..40_000, &mut out).unwrap();
        assert!(out == fixture.content && report.rebuilt.is_empty());
    }
    fixture.remove(1);
    assert!(fixture.assert_reads(&open()).rebuilt.is_empty());
    assert_eq!(open().free_members(), [1]);
}

#[test]
fn an_extent_with_a_damaged_header_is_known_by_its_strips() {
    let fixture = Fixture::new(3, 0, 60_000);
    let mut members = fixture.shared(&[]);
    members.rotate_left(1);
    fixture.flip(0, 30);
    fixture.flip(2, 30);
    let set = SetReader::open(&members, Fixture::name(), STORE, SET).unwrap();
    fixture.assert_reads(&set);
    assert_eq!([0, 1, 2].map(|slot| set.member_of(slot)), [Some(2), Some(0), Some(1)]);
    let found = damage_of(&set.verify(&mut |_| {}));
    assert_eq!(found, [(0, ExtentPart::Header, true), (2, ExtentPart::Header, true)]);
}

#[test]
fn a_slot_that_is_nowhere_has_a_home_only_if_that_can_be_told() {
    let fixture = Fixture::new(3, 1, 30_000);
    fixture.remove(1);
    let mut members = fixture.shared(&[]);
    let open = |members: &[_]| SetReader::open(members, Fixture::name(), STORE, SET).unwrap();
    let set = open(&members);
    assert_eq!((set.member_of(1), set.free_members()), (Some(1), vec![1]));
    // A member that came later never had an extent: which of the two has lost one is open.
    members.push(Some(Arc::new(MemoryMember::new("/new"))));
    let set = open(&members);
    assert_eq!((set.member_of(1), set.free_members()), (None, vec![1, 4]));
    // A number whose member left for good is nobody's, and one that is absent may have the slot.
    let left = [members[..4].to_vec(), vec![None]].concat();
    assert_eq!(open(&left).member_of(1), None);
    assert_eq!(open(&left).with_everybody_there(true).member_of(1), Some(1));
    members[1] = None;
    let set = open(&members);
    assert_eq!((set.member_of(1), set.free_members()), (None, vec![4]));
    let found = set.verify(&mut |_| {});
    assert!(matches!(found.damage[..], [ExtentDamage { slot: 1, member: None, .. }]));
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
        let bad: Vec<_> = (0..4)
            .filter(|&m| m != good)
            .map(|member| (member, ExtentPart::Trailer, true))
            .collect();
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
    let position = (0..3).find(|&position| permutation.slot(position) != 0).unwrap();
    let hurt = permutation.slot(position);
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
    let mut expected = vec![(0, ExtentPart::Extent, false), (hurt, ExtentPart::Strip(1), false)];
    expected.sort_unstable();
    assert_eq!(damage_of(&found), expected);
    let error = rewritten(&set, 0).unwrap_err();
    assert_eq!(error.kind(), Kind::TooManyLosses);
    let bystander = (1..4).find(|&member| member != hurt).unwrap();
    assert!(rewritten(&set, bystander).unwrap() == fixture.extents[bystander]);
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
