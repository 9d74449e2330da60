//! What a scrub finds, names and mends.

use super::filling::{check_without_each, used};
use super::healing::flip;
use super::*;
use crate::format::sums::Sum;

fn scrub(flusher: &mut Flusher, repair: bool) -> WorkReport {
    flusher.scrub(repair).unwrap();
    loop {
        if let Step::Done(report) = flusher.step(40 << 10).unwrap() {
            return report;
        }
    }
}

#[test]
fn a_scrub_names_the_member_and_the_place_of_what_lies_and_mends_it() {
    for (level, count) in redundant() {
        let mut dice = Dice(23 + count as u64);
        let (mut flusher, disks, model) = used(level, count, &mut dice);
        assert!(scrub(&mut flusher, false).mismatches.is_empty(), "{level}: it was sound");
        let flipped = flip(&flusher, &disks[1], 1);
        let report = scrub(&mut flusher, false);
        let mut image: Vec<u64> = report.mismatches.iter().map(|it| it.member_offset).collect();
        image.sort_unstable();
        assert_eq!(image, flipped, "{level}");
        let is_named = |it: &Mismatch| it.slot == Some(1) && !it.is_mended;
        assert!(report.mismatches.iter().all(is_named), "{level}");
        assert_eq!(flusher.array().status().mismatches, flipped.len() as u64);
        let report = scrub(&mut flusher, true);
        assert!(report.mismatches.iter().all(|it| it.is_mended) && report.is_finished);
        assert_eq!((report.mismatches.len(), report.lost_blocks), (flipped.len(), 0));
        assert!(scrub(&mut flusher, false).mismatches.is_empty(), "{level}: it was mended");
        drop(flusher);
        check_without_each(&disks, &model, &format!("{level}, scrubbed"));
    }
}

/// A block that has a sound checksum and is not what it should be.
fn forge(flusher: &Flusher, slot: usize, offset: u64) {
    let member = flusher.array().member(slot).unwrap();
    let mut bytes = vec![0; 4096];
    member.read(offset, &mut bytes).unwrap();
    bytes[9] ^= 0x5a;
    member.write(offset, &bytes).unwrap();
    member.set_sums(offset / 4096, &[Sum::from_block(&bytes)]).unwrap();
}

/// Where checksums match, one parity shows that a shard is bad, two show which.
#[test]
fn a_lie_with_a_sound_checksum_is_named_by_two_parities_only() {
    for (level, count) in redundant() {
        let mut dice = Dice(29);
        let (mut flusher, disks, model) = used(level, count, &mut dice);
        let map = flusher.array().geometry().map(1);
        let victims = if map.mirrors() { 1..2 } else { 0..map.shards() };
        for shard in victims {
            let place = map.place(shard);
            forge(&flusher, place.member, place.start + 4096);
            let report = scrub(&mut flusher, false);
            let [it] = &report.mismatches[..] else { panic!("{level}: {report:?}") };
            let is_told = level == Level::Raid6;
            assert_eq!(it.slot, is_told.then_some(place.member), "{level}, shard {shard}");
            // Without a second parity, a repair has to trust the data.
            if is_told || map.mirrors() || shard >= map.data() {
                let report = scrub(&mut flusher, true);
                assert!(report.mismatches[0].is_mended, "{level}, shard {shard}");
            } else {
                forge(&flusher, place.member, place.start + 4096);
            }
            assert!(scrub(&mut flusher, false).mismatches.is_empty(), "{level}, shard {shard}");
        }
        check(flusher.array(), &model, "mended");
        flusher.stop().unwrap();
        check_without_each(&disks, &model, &format!("{level}, mended"));
    }
}

#[test]
fn a_scrub_goes_on_when_the_array_is_assembled_again_and_can_be_cancelled() {
    let mut dice = Dice(31);
    let (mut flusher, disks, _) = used(Level::Raid5, 4, &mut dice);
    flusher.scrub(true).unwrap();
    assert_eq!(flusher.scrub(false).unwrap_err().kind(), Kind::Busy);
    assert!(matches!(flusher.step(1).unwrap(), Step::Moved { bytes: CHUNK }));
    drop(flusher);
    let mut flusher = assemble(shared(&disks)).unwrap();
    let work = flusher.array().status().work.unwrap();
    assert_eq!((work.kind, work.slot), (WorkKind::Repair, None));
    assert!(work.of_bytes >= work.done_bytes + CHUNK);
    let report = flusher.cancel_work().unwrap().unwrap();
    assert!(!report.is_finished && flusher.cancel_work().unwrap().is_none());
    assert!(flusher.array().status().work.is_none() && !flusher.array().wants_work());
}
