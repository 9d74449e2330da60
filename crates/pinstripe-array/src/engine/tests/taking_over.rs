//! Arrays whose level changes, or that use more of each member, while they are used.

use super::filling::{check_without_each, disk, used, work};
use super::*;
use crate::geometry::Rotation;
use pinstripe_io::device::Device;

fn created(
    level: Level,
    layout: Layout,
    count: usize,
    consistency: Consistency,
    dice: &mut Dice,
) -> (Flusher, Vec<Arc<MemoryDevice>>, Vec<u8>) {
    let disks = disks(count);
    let create_options = CreateOptions { layout, consistency, ..create_options(level) };
    let flusher = create(&create_options, shared(&disks)).unwrap();
    let mut model = vec![0; flusher.array().capacity() as usize];
    (0..30).for_each(|_| write(flusher.array(), &mut model, dice));
    (flusher, disks, model)
}

/// Before, layout before, members before, after.
fn changes() -> Vec<(Level, Layout, usize, Level)> {
    let rotated = |rotation| Layout::Parity(rotation);
    let last = rotated(Rotation::ParityLast);
    vec![
        (Level::Raid0, Layout::Fixed, 3, Level::Raid4),
        (Level::Raid0, Layout::Fixed, 3, Level::Raid5),
        (Level::Raid4, Layout::Fixed, 4, Level::Raid0),
        (Level::Raid4, Layout::Fixed, 3, Level::Raid5),
        (Level::Raid4, Layout::Fixed, 4, Level::Raid6),
        (Level::Raid5, last, 4, Level::Raid0),
        (Level::Raid5, last, 4, Level::Raid4),
        (Level::Raid5, rotated(Rotation::LeftSymmetric), 4, Level::Raid6),
        (Level::Raid5, rotated(Rotation::RightAsymmetric), 3, Level::Raid6),
        (Level::Raid5, rotated(Rotation::LeftSymmetric), 2, Level::Raid1),
        (Level::Raid6, rotated(Rotation::LeftSymmetric6), 5, Level::Raid5),
        (Level::Raid6, rotated(Rotation::ParityFirst6), 4, Level::Raid5),
        (Level::Raid1, Layout::Fixed, 2, Level::Raid5),
    ]
}

/// Whether a change of level needs a device.
fn needs_a_device(flusher: &Flusher, level: Level) -> bool {
    let (after, _) = flusher.array().geometry().taken_over(level).unwrap();
    after.members() > flusher.array().geometry().members()
}

#[test]
fn an_array_changes_its_level_while_it_is_used() {
    for policy in [Consistency::Log, Consistency::None] {
        for (before, layout, count, after) in changes() {
            let what = format!("{before} {layout} of {count} to {after}, {policy:?}");
            let mut dice = Dice(31 + count as u64);
            let (mut flusher, mut disks, mut model) =
                created(before, layout, count, policy, &mut dice);
            let is_wider = needs_a_device(&flusher, after);
            if is_wider {
                disks.push(disk("more"));
                let device = disks.last().unwrap().clone();
                flusher.change_level_with(after, device).unwrap();
                check(flusher.array(), &model, "not filled yet");
                let report = work(&mut flusher, &mut model, &mut dice);
                assert_eq!((report.slot, report.is_finished), (Some(count), true), "{what}");
            } else {
                flusher.change_level(after).unwrap();
            }
            assert_eq!(flusher.array().geometry().level(), after, "{what}");
            assert_eq!(flusher.array().capacity(), model.len() as u64, "{what}");
            (0..30).for_each(|_| write(flusher.array(), &mut model, &mut dice));
            check(flusher.array(), &model, &what);
            flusher.sync().unwrap();
            flusher.scrub(false).unwrap();
            let Step::Done(report) = flusher.step(u64::MAX).unwrap() else { panic!("{what}") };
            assert!(report.mismatches.is_empty(), "{what}: {report:?}");
            let is_narrower = flusher.array().geometry().members() < count;
            assert_eq!(flusher.array().status().spares.len(), usize::from(is_narrower), "{what}");
            flusher.stop().unwrap();
            let again = assemble(shared(&disks)).unwrap();
            assert_eq!(again.array().geometry().level(), after, "{what}");
            check(again.array(), &model, "assembled again");
            again.stop().unwrap();
            if after != Level::Raid0 {
                let members = if is_narrower { count - 1 } else { disks.len() };
                check_without_each(&disks[..members], &model, &what);
            }
        }
    }
}

#[test]
fn a_level_and_its_reverse_in_turn_give_the_same_array() {
    let mut dice = Dice(5);
    let (mut flusher, mut disks, mut model) = used(Level::Raid5, 4, &mut dice);
    disks.push(disk("more"));
    flusher.add_spare(disks[4].clone()).unwrap();
    for _ in 0..3 {
        flusher.change_level(Level::Raid6).unwrap();
        let report = work(&mut flusher, &mut model, &mut dice);
        assert_eq!(report.slot, Some(4));
        assert!(flusher.array().status().spares.is_empty());
        flusher.change_level(Level::Raid5).unwrap();
        assert_eq!(flusher.array().status().spares.len(), 1);
        (0..9).for_each(|_| write(flusher.array(), &mut model, &mut dice));
        check(flusher.array(), &model, "back");
    }
    flusher.stop().unwrap();
    check_without_each(&disks[..4], &model, "back");
}

#[test]
fn a_level_is_not_changed_while_members_are_absent_or_other_work_goes_on() {
    let mut dice = Dice(8);
    let (mut flusher, _, mut model) = used(Level::Raid5, 4, &mut dice);
    let more = disk("more");
    let kind = |done: Result<()>| done.unwrap_err().kind();
    assert_eq!(kind(flusher.change_level(Level::Raid6)), Kind::Refused, "there is no spare");
    assert_eq!(kind(flusher.change_level(Level::Raid0)), Kind::Unsupported);
    assert_eq!(kind(flusher.change_level(Level::Raid5)), Kind::Usage);
    flusher.fail(2).unwrap();
    assert_eq!(kind(flusher.change_level_with(Level::Raid6, more.clone())), Kind::Refused);
    assert_eq!(kind(flusher.grow_size()), Kind::Refused);
    flusher.add(more).unwrap();
    assert_eq!(kind(flusher.change_level(Level::Raid6)), Kind::Busy);
    assert_eq!(kind(flusher.grow_size()), Kind::Busy);
    work(&mut flusher, &mut model, &mut dice);
    assert_eq!(flusher.array().geometry().level(), Level::Raid5);
    check(flusher.array(), &model, "as before");
}

/// A disk that may get so long.
fn long_disk(name: &str, bytes: u64) -> Arc<MemoryDevice> {
    let disk = Arc::new(MemoryDevice::with_limit(name, 2 * MEMBER_BYTES));
    disk.set_len(bytes).unwrap();
    disk
}

#[test]
fn members_replaced_by_larger_ones_are_used_whole() {
    for (level, count) in LEVELS.into_iter().filter(|(level, _)| *level != Level::Raid0) {
        let mut dice = Dice(12);
        let (mut flusher, mut disks, mut model) = used(level, count, &mut dice);
        let before = flusher.array().capacity();
        for (slot, old) in disks.iter_mut().enumerate() {
            let refused = flusher.grow_size().unwrap_err();
            assert_eq!(refused.kind(), Kind::Refused, "{level}: {refused}");
            let larger = long_disk("larger", MEMBER_BYTES * 2 - slot as u64 * 4096);
            flusher.replace(slot, larger.clone()).unwrap();
            work(&mut flusher, &mut model, &mut dice);
            *old = larger;
        }
        flusher.grow_size().unwrap();
        let after = flusher.array().capacity();
        assert!(after > before + before / 2, "{level}: {before} to {after}");
        model.resize(after as usize, 0);
        check(flusher.array(), &model, "what is gained reads as zeros");
        (0..60).for_each(|_| write(flusher.array(), &mut model, &mut dice));
        let end = vec![9; 4096];
        flusher.array().write(after - 4096, &end, Duration::ZERO).unwrap();
        model[after as usize - 4096..].copy_from_slice(&end);
        assert_eq!(flusher.grow_size().unwrap_err().kind(), Kind::Refused, "all is used");
        flusher.stop().unwrap();
        check_without_each_long(&disks, &model, &format!("{level}"));
    }
}

fn check_without_each_long(disks: &[Arc<MemoryDevice>], model: &[u8], what: &str) {
    for gone in 0..disks.len() {
        let copy = |disk: &Arc<MemoryDevice>| {
            let mut bytes = vec![0; disk.len().unwrap() as usize];
            disk.read_at(0, &mut bytes).unwrap();
            let copy = long_disk("copy", bytes.len() as u64);
            copy.write_at(0, &bytes).unwrap();
            copy
        };
        let mut left = shared(&disks.iter().map(copy).collect::<Vec<_>>());
        left.remove(gone);
        check(assemble(left).unwrap().array(), model, &format!("{what}, without {gone}"));
    }
}

#[test]
fn devices_that_got_longer_are_used_as_far_as_their_tables_reach() {
    let mut dice = Dice(3);
    let disks: Vec<_> = (0..3).map(|n| long_disk(&format!("{n}"), MEMBER_BYTES)).collect();
    let mut flusher = create(&create_options(Level::Raid5), shared(&disks)).unwrap();
    let mut model = vec![0; flusher.array().capacity() as usize];
    (0..9).for_each(|_| write(flusher.array(), &mut model, &mut dice));
    let refused = flusher.grow_size().unwrap_err();
    assert_eq!(refused.kind(), Kind::Refused, "{refused}");
    let before = flusher.array().capacity();
    disks.iter().for_each(|disk| disk.set_len(2 * MEMBER_BYTES).unwrap());
    flusher.grow_size().unwrap();
    assert_eq!(flusher.array().capacity(), before + 2 * MEMBER_BYTES);
    model.resize(before as usize + 2 * MEMBER_BYTES as usize, 0);
    (0..40).for_each(|_| write(flusher.array(), &mut model, &mut dice));
    check(flusher.array(), &model, "longer");
    flusher.stop().unwrap();
    check(assemble(shared(&disks)).unwrap().array(), &model, "assembled again");
}

#[test]
fn far_copies_keep_their_places() {
    let far = Layout::parse(Level::Raid10, "f2").unwrap();
    let disks: Vec<_> = (0..3).map(|n| long_disk(&format!("{n}"), MEMBER_BYTES)).collect();
    let create_options = CreateOptions { layout: far, ..create_options(Level::Raid10) };
    let mut flusher = create(&create_options, shared(&disks)).unwrap();
    disks.iter().for_each(|disk| disk.set_len(2 * MEMBER_BYTES).unwrap());
    assert_eq!(flusher.grow_size().unwrap_err().kind(), Kind::Unsupported);
}
