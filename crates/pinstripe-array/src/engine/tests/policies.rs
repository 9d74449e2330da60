//! Arrays without a log: after a power cut, parity is made true.

use super::filling::{BYTES, check_without_each};
use super::*;
use pinstripe_io::device::Device;

const POLICIES: [Consistency; 2] = [Consistency::Bitmap, Consistency::None];

fn made(level: Level, consistency: Consistency, disks: &[Arc<MemoryDevice>]) -> Flusher {
    create(&CreateOptions { consistency, ..create_options(level) }, shared(disks)).unwrap()
}

#[test]
fn a_power_cut_without_a_log_costs_only_a_resync() {
    for (level, count) in LEVELS {
        for (consistency, seed) in
            POLICIES.into_iter().flat_map(|it| cut_seeds().map(move |n| (it, n)))
        {
            let disks = disks(count);
            let mut flusher = made(level, consistency, &disks);
            let mut dice = Dice(seed * 41 + count as u64);
            let mut model = vec![0; BYTES];
            (0..9).for_each(|_| write(flusher.array(), &mut model, &mut dice));
            flusher.sync().unwrap();
            flusher.stop().unwrap();
            let cut = PowerCut::amid(level, disks, model, seed, PowerCut::run);
            let mut flusher = cut.open(None);
            cut.compare(&flusher);
            // Some rows are written before it is their turn.
            let mut model = vec![0; BYTES];
            flusher.array().read(0, &mut model).unwrap();
            (0..4).for_each(|_| write(flusher.array(), &mut model, &mut dice));
            flusher.flush(Duration::MAX, 9).unwrap();
            while flusher.step(64 << 10).unwrap() != Step::Idle {}
            check(flusher.array(), &model, &cut.what);
            flusher.stop().unwrap();
            let flusher = cut.open(None);
            assert!(!flusher.array().wants_work(), "{}: it was stopped in order", cut.what);
            flusher.stop().unwrap();
            if level != Level::Raid0 {
                check_without_each(&cut.disks, &model, &format!("{}, {consistency:?}", cut.what));
            }
        }
    }
}

/// Members of several regions.
fn large() -> Vec<Arc<MemoryDevice>> {
    let disk = |n: usize| {
        let disk = Arc::new(MemoryDevice::new(format!("large{n}")));
        disk.set_len(20 << 20).unwrap();
        disk
    };
    (0..4).map(disk).collect()
}

#[test]
fn only_regions_that_were_being_written_are_made_true() {
    let mut moved = Vec::new();
    for consistency in POLICIES {
        let disks = large();
        let flusher = made(Level::Raid5, consistency, &disks);
        let capacity = flusher.array().geometry().capacity();
        for at in [0, capacity / 2, capacity - 4096] {
            flusher.array().write(at, &[1; 4096], Duration::ZERO).unwrap();
        }
        flusher.stop().unwrap();
        let mut flusher = assemble(shared(&disks)).unwrap();
        assert!(!flusher.array().wants_work());
        flusher.array().write(capacity / 2, &[2; 4096], Duration::ZERO).unwrap();
        flusher.sync().unwrap();
        drop(flusher);
        let mut flusher = assemble(shared(&disks)).unwrap();
        assert_eq!(flusher.array().status().work.unwrap().kind, WorkKind::Resync);
        let report = loop {
            if let Step::Done(report) = flusher.step(1 << 20).unwrap() {
                break report;
            }
        };
        assert!(report.is_finished && report.kind == WorkKind::Resync);
        moved.push(report.bytes);
    }
    let [marked, all] = moved[..] else { unreachable!() };
    assert!(marked > 0 && 2 * marked < all, "{marked} of {all}");
}

/// Parity that may be stale does not stand in for an absent member, unless that is forced.
#[test]
fn a_dirty_array_is_not_assembled_with_a_member_absent() {
    for (consistency, is_refused) in
        [(Consistency::Bitmap, true), (Consistency::None, true), (Consistency::Log, false)]
    {
        let disks = disks(4);
        let mut flusher = made(Level::Raid5, consistency, &disks);
        flusher.array().write(0, &[7; 4096], Duration::ZERO).unwrap();
        flusher.sync().unwrap();
        drop(flusher);
        let refused = assemble(shared(&disks[1..])).err().map(|error| error.kind());
        assert_eq!(refused, is_refused.then_some(Kind::Refused), "{consistency:?}");
        let options = AssembleOptions { force: true };
        let forced = super::super::assemble(shared(&disks[1..]), &options).unwrap();
        let mut found = [0; 4096];
        forced.flusher.array().read(0, &mut found).unwrap();
        assert_eq!(found, [7; 4096]);
    }
}

/// Power goes between the writes of a row: parity is made what data say, unless a block of data
/// arrived alone, which then is what its checksum says.
#[test]
fn a_row_that_the_power_cut_left_half_written_is_made_true() {
    for (consistency, has_parity) in POLICIES.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let disks = disks(4);
        let mut flusher = made(Level::Raid5, consistency, &disks);
        flusher.array().write(0, &[7; 8192], Duration::ZERO).unwrap();
        flusher.sync().unwrap();
        let map = flusher.array().geometry().map(0);
        let data_at = flusher.array().superblock().areas.data_at;
        drop(flusher);
        let put = |shard: usize, content: u8| {
            let place = map.place(shard);
            disks[place.member].write_at(data_at + place.start, &[content; 4096]).unwrap();
        };
        // The new data arrived, its checksum did not; with parity of it in between, or without.
        put(0, 9);
        if has_parity {
            put(map.data(), 9);
        }
        let mut flusher = assemble(shared(&disks)).unwrap();
        let mut model = vec![7; 8192];
        model[..4096].fill(if has_parity { 9 } else { 7 });
        check(flusher.array(), &model, "before the resync");
        while flusher.step(1 << 20).unwrap() != Step::Idle {}
        check(flusher.array(), &model, "after the resync");
        flusher.stop().unwrap();
        check_without_each(&disks, &model, "made true");
    }
}

/// Damage that came before a power cut is no write that the cut interrupted.
#[test]
fn a_block_that_was_damaged_before_a_power_cut_is_rebuilt_and_not_taken_for_new_data() {
    for (level, count) in LEVELS.into_iter().filter(|(level, _)| *level != Level::Raid0) {
        for (consistency, shard) in POLICIES.into_iter().flat_map(|it| [(it, 0), (it, 1)]) {
            let disks = disks(count);
            let mut flusher = made(level, consistency, &disks);
            let mut model: Vec<u8> = (0..BYTES).map(|it| (it / 100) as u8 ^ it as u8).collect();
            flusher.array().write(0, &model, Duration::ZERO).unwrap();
            flusher.sync().unwrap();
            let map = flusher.array().geometry().map(0);
            let data_at = flusher.array().superblock().areas.data_at;
            flusher.stop().unwrap();
            let place = map.place(shard);
            disks[place.member].write_at(data_at + place.start + 5, &[0xee; 64]).unwrap();
            // A write elsewhere in the region, and the power goes.
            let mut flusher = assemble(shared(&disks)).unwrap();
            let last = BYTES - 4096;
            model[last..].fill(3);
            flusher.array().write(last as u64, &model[last..], Duration::ZERO).unwrap();
            flusher.sync().unwrap();
            drop(flusher);
            let what = format!("{level} {consistency:?} shard {shard}");
            // Twice: the first resync is cut off before it came to anything, too.
            drop(assemble(shared(&disks)).unwrap());
            let mut flusher = assemble(shared(&disks)).unwrap();
            check(flusher.array(), &model, &what);
            while flusher.step(1 << 20).unwrap() != Step::Idle {}
            check(flusher.array(), &model, &what);
            // Where the region was not marked, the copy is still damaged, as without a power cut.
            flusher.scrub(true).unwrap();
            while flusher.step(1 << 20).unwrap() != Step::Idle {}
            flusher.stop().unwrap();
            check_without_each(&disks, &model, &what);
        }
    }
}
