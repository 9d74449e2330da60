//! Members that come and go while the array is used.

use super::*;

pub(super) const BYTES: usize = 512 << 10;

pub(super) fn disk(name: &str) -> Arc<MemoryDevice> {
    let disk = Arc::new(MemoryDevice::with_limit(name, MEMBER_BYTES));
    pinstripe_io::device::Device::set_len(&*disk, MEMBER_BYTES).unwrap();
    disk
}

/// An array that was written to.
pub(super) fn used(
    level: Level,
    count: usize,
    dice: &mut Dice,
) -> (Flusher, Vec<Arc<MemoryDevice>>, Vec<u8>) {
    let disks = disks(count);
    let mut flusher = create(&create_options(level), shared(&disks)).unwrap();
    let mut model = vec![0; BYTES];
    (0..30).for_each(|_| write(flusher.array(), &mut model, dice));
    flusher.sync().unwrap();
    (flusher, disks, model)
}

/// Steps to the end of some work, with writes in between.
pub(super) fn work(flusher: &mut Flusher, model: &mut [u8], dice: &mut Dice) -> WorkReport {
    for _ in 0..2000 {
        write(flusher.array(), model, dice);
        if dice.below(2) == 0 {
            flusher.flush(Duration::MAX, 4).unwrap();
        }
        match flusher.step(dice.below(100 << 10)).unwrap() {
            Step::Idle => panic!("there is work to do"),
            Step::Moved { .. } => check(flusher.array(), model, "amid work"),
            Step::Done(report) => return report,
        }
    }
    panic!("the work does not end");
}

/// What is said of an array is true without each of its members.
pub(super) fn check_without_each(disks: &[Arc<MemoryDevice>], model: &[u8], what: &str) {
    for gone in 0..disks.len() {
        let mut left = shared(&disks.iter().map(copy).collect::<Vec<_>>());
        left.remove(gone);
        let flusher = assemble(left).unwrap_or_else(|error| panic!("{what}: {error}"));
        check(flusher.array(), model, &format!("{what}, without member {gone}"));
    }
}

pub(super) fn copy(disk: &Arc<MemoryDevice>) -> Arc<MemoryDevice> {
    use pinstripe_io::device::Device;
    let mut bytes = vec![0; disk.len().unwrap() as usize];
    disk.read_at(0, &mut bytes).unwrap();
    let copy = self::disk("copy");
    copy.write_at(0, &bytes).unwrap();
    copy
}

#[test]
fn a_fresh_member_is_filled_while_the_array_is_used() {
    for (level, count) in redundant() {
        let mut dice = Dice(91 + count as u64);
        let (mut flusher, mut disks, mut model) = used(level, count, &mut dice);
        flusher.fail(1).unwrap();
        (0..9).for_each(|_| write(flusher.array(), &mut model, &mut dice));
        disks[1] = disk("fresh");
        assert_eq!(flusher.add(disks[1].clone()).unwrap(), AddedAs::Rebuilding { slot: 1 });
        let status = flusher.array().status();
        assert_eq!(status.slots[1].state, SlotState::Rebuilding);
        let report = work(&mut flusher, &mut model, &mut dice);
        assert!(report.is_finished && report.lost_blocks == 0, "{level}: {report:?}");
        assert_eq!(flusher.step(1 << 20).unwrap(), Step::Idle);
        assert!(flusher.array().absent().is_empty());
        check(flusher.array(), &model, "filled");
        flusher.sync().unwrap();
        drop(flusher);
        check_without_each(&disks, &model, &format!("{level}"));
    }
}

#[test]
fn a_member_that_comes_back_gets_only_what_it_lacks() {
    for (level, count) in redundant() {
        let mut dice = Dice(17 + count as u64);
        let (mut flusher, disks, _) = used(level, count, &mut dice);
        // Far from all that was written, so that most regions stay as they were.
        flusher.checkpoint().unwrap();
        flusher.fail(2 % count).unwrap();
        flusher.stop().unwrap();
        let mut flusher = assemble(shared(&disks)).unwrap();
        assert!(flusher.array().absent().has(2 % count), "what is old is left out");
        let mut model = vec![0; BYTES];
        flusher.array().read(0, &mut model).unwrap();
        let added = flusher.add(disks[2 % count].clone()).unwrap();
        assert_eq!(added, AddedAs::Recovering { slot: 2 % count });
        let report = loop {
            if let Step::Done(report) = flusher.step(1 << 20).unwrap() {
                break report;
            }
        };
        assert_eq!((report.kind, report.is_finished), (WorkKind::Recover, true));
        assert_eq!(report.bytes, 0, "{level}: nothing was written meanwhile");
        flusher.fail(2 % count).unwrap();
        (0..5).for_each(|_| write(flusher.array(), &mut model, &mut dice));
        flusher.sync().unwrap();
        flusher.add(disks[2 % count].clone()).unwrap();
        let report = work(&mut flusher, &mut model, &mut dice);
        assert!(report.is_finished && report.bytes > 0, "{level}: {report:?}");
        flusher.sync().unwrap();
        drop(flusher);
        check_without_each(&disks, &model, &format!("{level}, back"));
    }
}

#[test]
fn a_spare_takes_the_place_of_a_member_that_fails() {
    let mut dice = Dice(5);
    let (mut flusher, disks, mut model) = used(Level::Raid5, 4, &mut dice);
    let spare = disk("spare");
    assert_eq!(flusher.add(spare.clone()).unwrap(), AddedAs::Spare);
    assert_eq!(flusher.array().status().spares.len(), 1);
    assert_eq!(flusher.step(1).unwrap(), Step::Idle);
    flusher.stop().unwrap();
    let all: Vec<_> = disks.iter().cloned().chain([spare.clone()]).collect();
    let mut flusher = assemble(shared(&all)).unwrap();
    assert_eq!(flusher.array().status().spares.len(), 1);
    assert_eq!(flusher.add(spare.clone()).unwrap_err().kind(), Kind::Exists);
    flusher.fail(3).unwrap();
    let report = work(&mut flusher, &mut model, &mut dice);
    assert!(report.is_finished && report.slot == Some(3), "{report:?}");
    flusher.sync().unwrap();
    drop(flusher);
    check_without_each(&[&disks[..3], &[spare]].concat(), &model, "spare");
}

#[test]
fn a_member_that_cannot_take_what_it_is_filled_with_is_given_up() {
    use pinstripe_io::fault::{FaultyDevice, Plan};
    for from in [2, 7, 12, 20] {
        let mut dice = Dice(from);
        let (mut flusher, _, mut model) = used(Level::Raid6, 5, &mut dice);
        flusher.fail(0).unwrap();
        let plan: Plan = format!("op=write,after={from},error=EIO").parse().unwrap();
        let bad = FaultyDevice::new(disk("bad") as SharedDevice, plan);
        if flusher.add(Arc::new(bad)).is_ok() && flusher.array().member(0).is_some() {
            let report = work(&mut flusher, &mut model, &mut dice);
            assert!(!report.is_finished, "from {from}");
        }
        assert!(flusher.array().absent().has(0));
        check(flusher.array(), &model, "given up");
        assert_eq!(flusher.step(1 << 20).unwrap(), Step::Idle);
    }
}

#[test]
fn a_granule_is_remembered() {
    let mut dice = Dice(2);
    let (mut flusher, disks, _) = used(Level::Raid5, 4, &mut dice);
    for bad in [0, 2048, 12 << 10, 2 << 20] {
        assert_eq!(flusher.set_granule(Some(bad)).unwrap_err().kind(), Kind::Usage);
    }
    flusher.set_granule(Some(16 << 10)).unwrap();
    flusher.stop().unwrap();
    let flusher = assemble(shared(&disks)).unwrap();
    assert_eq!(flusher.rules.granule, Some(16 << 10));
    assert_eq!(flusher.array().status().granule, Some(16 << 10));
}

#[test]
fn the_array_refuses_to_fail_what_it_needs() {
    let mut dice = Dice(3);
    let (mut flusher, disks, model) = used(Level::Raid5, 4, &mut dice);
    assert_eq!(flusher.remove(2).unwrap_err().kind(), Kind::Refused);
    assert_eq!(flusher.fail(9).unwrap_err().kind(), Kind::Usage);
    flusher.fail(2).unwrap();
    assert_eq!(flusher.fail(1).unwrap_err().kind(), Kind::Refused);
    flusher.remove(2).unwrap();
    assert_eq!(flusher.array().status().slots[2].path, None);
    let small = Arc::new(MemoryDevice::new("small"));
    assert_eq!(flusher.add(small).unwrap_err().kind(), Kind::Usage);
    assert_eq!(flusher.add(disks[0].clone()).unwrap_err().kind(), Kind::Exists);
    check(flusher.array(), &model, "still there");
}

/// The power goes while a member is filled, fresh or back after it was away: filling resumes.
#[test]
fn filling_goes_on_after_a_power_cut() {
    for (level, count) in redundant() {
        for seed in cut_seeds() {
            let mut dice = Dice(seed * 31 + count as u64);
            let (mut flusher, mut disks, mut model) = used(level, count, &mut dice);
            flusher.fail(1).unwrap();
            (0..4).for_each(|_| write(flusher.array(), &mut model, &mut dice));
            flusher.stop().unwrap();
            if seed % 2 == 0 {
                disks[1] = disk("fresh");
            }
            let cut = PowerCut::amid(level, disks, model, seed, fill);
            let mut again = shared(&cut.disks);
            let mut flusher = match assemble(again.clone()) {
                Ok(flusher) => flusher,
                Err(error) => {
                    // The fresh one was no member yet.
                    assert_eq!(error.kind(), Kind::Corrupt, "{}: {error}", cut.what);
                    again.remove(1);
                    assemble(again).unwrap()
                }
            };
            cut.compare(&flusher);
            let status = flusher.array().status();
            let is_waiting = status.work.is_some() || !status.spares.is_empty();
            if !is_waiting && flusher.array().absent().has(1) {
                flusher.add(cut.disks[1].clone()).unwrap();
            }
            while flusher.step(64 << 10).unwrap() != Step::Idle {}
            assert!(flusher.array().absent().is_empty(), "{}", cut.what);
            let found = cut.compare(&flusher);
            flusher.sync().unwrap();
            drop(flusher);
            check_without_each(&cut.disks, &found, &cut.what);
        }
    }
}

fn fill(cut: &mut PowerCut, devices: Vec<SharedDevice>) {
    let mut there = devices.clone();
    there.remove(1);
    let Ok(mut flusher) = assemble(there) else { return };
    let Ok(_) = flusher.add(devices[1].clone()) else { return };
    cut.go_on(&mut flusher);
}

/// Between any two slices every row is written. A slice is a small part of the member, so a member
/// whose filled part had to stand still until it is durable would never be whole.
#[test]
fn a_member_is_filled_under_writes_to_all_of_the_array() {
    const SLICE: u64 = 4 * CHUNK;
    for (level, count) in redundant() {
        let mut dice = Dice(17 + count as u64);
        let (mut flusher, mut disks, mut model) = used(level, count, &mut dice);
        model.resize(flusher.array().capacity() as usize, 0);
        flusher.fail(1).unwrap();
        disks[1] = disk("fresh");
        flusher.add(disks[1].clone()).unwrap();
        let row_bytes = flusher.array().geometry().row_bytes() as usize;
        let slices = flusher.array().geometry().member_bytes() / SLICE;
        let mut steps = 0;
        loop {
            for at in (0..model.len()).step_by(row_bytes) {
                let block = vec![dice.below(256) as u8; 4096];
                flusher.array().write(at as u64, &block, Duration::ZERO).unwrap();
                model[at..at + 4096].copy_from_slice(&block);
            }
            flusher.flush(Duration::MAX, usize::MAX).unwrap();
            steps += 1;
            assert!(steps < 2 * slices + 20, "{level}: not whole after {steps} slices");
            if let Step::Done(report) = flusher.step(SLICE).unwrap() {
                assert!(report.is_finished && report.lost_blocks == 0, "{level}: {report:?}");
                break;
            }
        }
        check(flusher.array(), &model, "filled");
        flusher.stop().unwrap();
        check_without_each(&disks, &model, &format!("{level}"));
    }
}
