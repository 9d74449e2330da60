//! Members that are copied to others, which take their places.

use super::filling::{BYTES, check_without_each, disk, used, work};
use super::*;

fn replaced(disks: &[Arc<MemoryDevice>], slot: usize) -> Vec<Arc<MemoryDevice>> {
    let mut disks = disks.to_vec();
    disks[slot] = disk("other");
    disks
}

#[test]
fn a_member_is_replaced_while_the_array_is_used() {
    for (level, count) in LEVELS {
        let mut dice = Dice(61 + count as u64);
        let (mut flusher, disks, mut model) = used(level, count, &mut dice);
        let others = replaced(&disks, 1);
        assert_eq!(flusher.replace(1, disks[0].clone()).unwrap_err().kind(), Kind::Exists);
        flusher.replace(1, others[1].clone()).unwrap();
        assert_eq!(flusher.replace(0, disk("more")).unwrap_err().kind(), Kind::Busy);
        let report = work(&mut flusher, &mut model, &mut dice);
        assert_eq!((report.kind, report.is_finished), (WorkKind::Replace, true), "{level}");
        (0..9).for_each(|_| write(flusher.array(), &mut model, &mut dice));
        check(flusher.array(), &model, "replaced");
        let path = flusher.array().status().slots[1].path.clone().unwrap();
        assert_eq!(path.to_str(), Some("other"));
        flusher.stop().unwrap();
        let flusher = assemble(shared(&[&others[..], &disks[1..2]].concat())).unwrap();
        check(flusher.array(), &model, "replaced, and the old one left out");
        drop(flusher);
        if level != Level::Raid0 {
            check_without_each(&others, &model, &format!("{level}, replaced"));
        }
    }
}

/// What cannot be read from the member comes from the rest of the row.
#[test]
fn a_spare_that_replaces_a_damaged_member_gets_what_is_right() {
    let mut dice = Dice(67);
    let (mut flusher, disks, mut model) = used(Level::Raid5, 4, &mut dice);
    let others = replaced(&disks, 2);
    flusher.add_spare(others[2].clone()).unwrap();
    super::healing::flip(&flusher, &disks[2], 2);
    flusher.replace(2, others[2].clone()).unwrap();
    assert!(flusher.array().status().spares.is_empty());
    let report = work(&mut flusher, &mut model, &mut dice);
    assert!(report.is_finished && report.lost_blocks == 0, "{report:?}");
    flusher.stop().unwrap();
    check_without_each(&others, &model, "replaced");
}

#[test]
fn a_member_that_fails_while_it_is_replaced_is_rebuilt() {
    for (level, count) in redundant() {
        let mut dice = Dice(71 + count as u64);
        let (mut flusher, disks, mut model) = used(level, count, &mut dice);
        let others = replaced(&disks, 1);
        flusher.replace(1, others[1].clone()).unwrap();
        assert!(matches!(flusher.step(40 << 10).unwrap(), Step::Moved { .. }));
        write(flusher.array(), &mut model, &mut dice);
        flusher.sync().unwrap();
        flusher.fail(1).unwrap();
        assert_eq!(flusher.array().status().slots[1].state, SlotState::Rebuilding);
        check(flusher.array(), &model, "failed");
        let report = work(&mut flusher, &mut model, &mut dice);
        assert!(report.is_finished, "{level}: {report:?}");
        flusher.sync().unwrap();
        check_without_each(&others, &model, &format!("{level}, rebuilt"));
    }
}

/// The one that is to take the place fails: the member stays.
#[test]
fn a_replacement_that_fails_is_given_up() {
    use pinstripe_io::fault::{FaultyDevice, Plan};
    for from in [6, 9, 14, 30] {
        let mut dice = Dice(from);
        let (mut flusher, disks, mut model) = used(Level::Raid5, 4, &mut dice);
        let plan: Plan = format!("op=write,after={from},error=EIO").parse().unwrap();
        let bad = FaultyDevice::new(disk("bad") as SharedDevice, plan);
        if flusher.replace(1, Arc::new(bad)).is_ok() {
            for _ in 0..40 {
                write(flusher.array(), &mut model, &mut dice);
                flusher.flush(Duration::MAX, 9).unwrap();
                flusher.step(20 << 10).unwrap();
            }
        }
        assert!(flusher.array().absent().is_empty());
        assert!(flusher.array().status().work.is_none());
        flusher.stop().unwrap();
        let flusher = assemble(shared(&disks)).unwrap();
        assert!(flusher.array().absent().is_empty());
        check(flusher.array(), &model, "with the member that it had");
    }
}

/// At each write to the new member, the last one included: the member that it replaces stays until
/// the new one has a superblock that names it.
#[test]
fn a_replacement_that_fails_at_its_last_write_leaves_the_member() {
    use pinstripe_io::fault::{FaultyDevice, Plan};
    for from in 0.. {
        let mut dice = Dice(83);
        let (mut flusher, disks, model) = used(Level::Raid5, 4, &mut dice);
        let plan: Plan = format!("op=write,after={from},error=EIO").parse().unwrap();
        let bad = FaultyDevice::new(disk("bad") as SharedDevice, plan);
        let is_begun = flusher.replace(1, Arc::new(bad)).is_ok();
        while is_begun && flusher.step(64 << 10).unwrap() != Step::Idle {}
        let slot = flusher.array().status().slots[1].path.clone().unwrap();
        if slot.to_str() == Some("bad") {
            assert!(from > 2, "the writes to the new member failed");
            return;
        }
        assert!(flusher.array().absent().is_empty(), "after {from} writes");
        assert!(flusher.array().status().work.is_none(), "after {from} writes");
        flusher.stop().unwrap();
        let flusher = assemble(shared(&disks)).unwrap();
        assert!(flusher.array().absent().is_empty(), "assembled, after {from} writes");
        check(flusher.array(), &model, "with the member that it had");
    }
}

/// The power goes while a member is replaced; sometimes one of both is not seen again.
#[test]
fn replacing_goes_on_after_a_power_cut() {
    for (level, count) in redundant() {
        for seed in cut_seeds() {
            let mut dice = Dice(seed * 37 + count as u64);
            let (flusher, mut disks, model) = used(level, count, &mut dice);
            flusher.stop().unwrap();
            disks.push(disk("other"));
            let cut = PowerCut::amid(level, disks, model, seed, |cut, devices| {
                let Ok(mut flusher) = assemble(devices[..count].to_vec()) else { return };
                let Ok(()) = flusher.replace(1, devices[count].clone()) else { return };
                cut.go_on(&mut flusher);
            });
            let mut left = shared(&cut.disks);
            match seed % 3 {
                0 => _ = left.remove(1),
                1 => _ = left.remove(count),
                _ => {}
            }
            let flusher = assemble(left.clone());
            let mut flusher = flusher.or_else(|error| {
                // The other one was no member yet.
                assert_eq!(error.kind(), Kind::Corrupt, "{}: {error}", cut.what);
                left.pop();
                assemble(left)
            });
            let flusher = flusher.as_mut().unwrap_or_else(|error| panic!("{}: {error}", cut.what));
            cut.compare(flusher);
            while flusher.step(64 << 10).unwrap() != Step::Idle {}
            let found = cut.compare(flusher);
            flusher.sync().unwrap();
            if flusher.array().absent().is_empty() {
                let there = flusher.array().status().slots;
                let is_there = |disk: &&Arc<MemoryDevice>| {
                    let place = pinstripe_io::device::Device::place(&***disk);
                    there.iter().any(|slot| slot.path.as_deref() == Some(place))
                };
                let there: Vec<_> = cut.disks.iter().filter(is_there).cloned().collect();
                assert_eq!(there.len(), count);
                check_without_each(&there, &found, &cut.what);
            }
        }
    }
}

/// A long write begins below the point up to which the replacement is filled, and ends above it.
#[test]
fn a_replacement_receives_the_part_of_a_write_below_its_fill_point() {
    for (level, count) in LEVELS {
        let mut dice = Dice(83 + count as u64);
        let (mut flusher, disks, mut model) = used(level, count, &mut dice);
        flusher.long_write_bytes = 2 * CHUNK as usize;
        let others = replaced(&disks, 1);
        flusher.replace(1, others[1].clone()).unwrap();
        for byte in 1..=20 {
            // One chunk further, then all rows that are used, as one write to each member.
            if let Step::Done(report) = flusher.step(CHUNK).unwrap() {
                assert!(report.is_finished, "{level}: {report:?}");
                break;
            }
            model.fill(byte);
            flusher.array().write(0, &model, Duration::ZERO).unwrap();
            flusher.flush(Duration::MAX, 1000).unwrap();
        }
        while flusher.step(1 << 20).unwrap() != Step::Idle {}
        let member = flusher.array().member(1).unwrap();
        assert_eq!(member.path().to_str(), Some("other"), "{level}");
        let mut bytes = vec![0; BYTES];
        let bad = member.read_checked(0, &mut bytes).unwrap();
        assert!(bad.is_empty(), "{level}: stale blocks {bad:?}");
        check(flusher.array(), &model, &format!("{level}, replaced"));
        flusher.stop().unwrap();
        if level != Level::Raid0 {
            check_without_each(&others, &model, &format!("{level}, replaced"));
        }
    }
}
