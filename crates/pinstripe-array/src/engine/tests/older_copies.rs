//! Copies of members from an earlier time, put in the place of these.

use super::filling::{BYTES, check_without_each, copy, disk, used};
use super::*;

const POLICIES: [Consistency; 3] = [Consistency::Log, Consistency::Bitmap, Consistency::None];

fn made(level: Level, count: usize, consistency: Consistency) -> (Flusher, Vec<Arc<MemoryDevice>>) {
    let disks = disks(count);
    let options = CreateOptions { consistency, ..create_options(level) };
    (create(&options, shared(&disks)).unwrap(), disks)
}

fn write_all(flusher: &mut Flusher, byte: u8) -> Vec<u8> {
    let model = vec![byte; BYTES];
    flusher.array().write(0, &model, Duration::ZERO).unwrap();
    flusher.sync().unwrap();
    model
}

fn finish(flusher: &mut Flusher) {
    while flusher.step(1 << 20).unwrap() != Step::Idle {}
    assert!(flusher.array().absent().is_empty());
}

/// Writes, fails member 1, writes again, stops, and assembles the array with an older copy of that
/// member. Returns also what was written last.
fn returned_older(
    mut flusher: Flusher,
    disks: &mut [Arc<MemoryDevice>],
    older: Arc<MemoryDevice>,
) -> (Flusher, Vec<u8>) {
    write_all(&mut flusher, 2);
    flusher.fail(1).unwrap();
    let model = write_all(&mut flusher, 3);
    flusher.stop().unwrap();
    disks[1] = older;
    (assemble(shared(disks)).unwrap(), model)
}

/// All that is read is new, also without any other member.
fn check_added(mut flusher: Flusher, disks: &[Arc<MemoryDevice>], model: &[u8], what: &str) {
    finish(&mut flusher);
    check(flusher.array(), model, what);
    flusher.stop().unwrap();
    check_without_each(disks, model, what);
}

/// The array was used in some sessions between the copy and its return.
#[test]
fn an_older_copy_that_is_added_is_filled_whole() {
    for (level, count) in redundant() {
        for (policy, sessions) in POLICIES.into_iter().zip([1, 2, 3]) {
            let what = format!("{level}, {policy:?}, {sessions} sessions");
            let (mut flusher, mut disks) = made(level, count, policy);
            write_all(&mut flusher, 1);
            flusher.stop().unwrap();
            let older = copy(&disks[1]);
            let mut model = Vec::new();
            for session in 0..sessions {
                let mut flusher = assemble(shared(&disks)).unwrap();
                model = write_all(&mut flusher, 2 + session);
                flusher.stop().unwrap();
            }
            disks[1] = older;
            let mut flusher = assemble(shared(&disks)).unwrap();
            assert!(flusher.array().absent().has(1), "{what}: it is left out");
            let added = flusher.add(disks[1].clone()).unwrap();
            assert_eq!(added, AddedAs::Rebuilding { slot: 1 }, "{what}");
            check_added(flusher, &disks, &model, &what);
        }
    }
}

/// The copy was made while the array was in use, in the session in which the member failed.
#[test]
fn a_copy_of_the_same_session_is_filled_whole_or_lacks_only_what_is_noted() {
    for (level, count) in redundant() {
        for policy in POLICIES {
            let what = format!("{level}, {policy:?}");
            let (mut flusher, mut disks) = made(level, count, policy);
            write_all(&mut flusher, 1);
            let older = copy(&disks[1]);
            let (mut flusher, model) = returned_older(flusher, &mut disks, older);
            flusher.add(disks[1].clone()).unwrap();
            check_added(flusher, &disks, &model, &what);
        }
    }
}

/// A second member fails while changes are noted for another one.
#[test]
fn notes_that_began_for_another_member_serve_a_copy_that_is_no_older() {
    let (mut flusher, mut disks) = made(Level::Raid6, 5, Consistency::Log);
    write_all(&mut flusher, 1);
    flusher.fail(0).unwrap();
    flusher.checkpoint().unwrap();
    let older = copy(&disks[1]);
    let (mut flusher, model) = returned_older(flusher, &mut disks, older);
    for slot in [1, 0] {
        let added = flusher.add(disks[slot].clone()).unwrap();
        assert_eq!(added, AddedAs::Recovering { slot });
        while flusher.step(1 << 20).unwrap() != Step::Idle {}
    }
    check_added(flusher, &disks, &model, "noted for another one");
}

/// A spare that was copied before it became a member holds nothing.
#[test]
fn an_older_copy_of_a_spare_is_not_taken_for_the_member_that_it_became() {
    for is_killed in [false, true] {
        let mut dice = Dice(7);
        let (mut flusher, mut disks, _) = used(Level::Raid5, 4, &mut dice);
        let spare = disk("spare");
        flusher.add_spare(spare.clone()).unwrap();
        let older = copy(&spare);
        flusher.fail(1).unwrap();
        finish(&mut flusher);
        let model = write_all(&mut flusher, 9);
        disks[1] = older;
        match is_killed {
            true => drop(flusher),
            false => flusher.stop().unwrap(),
        }
        let flusher = assemble(shared(&disks)).unwrap();
        assert!(flusher.array().absent().has(1));
        check(flusher.array(), &model, "without the spare");
        check_added(flusher, &disks, &model, "an older spare");
    }
}

/// One that was a spare, became a member of level 6 and failed, while another member was away all
/// the time; and one that was copied while it was being filled.
#[test]
fn a_copy_that_was_never_complete_is_filled_whole() {
    for steps in [0, 2] {
        let mut dice = Dice(7);
        let (mut flusher, mut disks, _) = used(Level::Raid6, 5, &mut dice);
        flusher.fail(0).unwrap();
        flusher.fail(1).unwrap();
        let spare = disk("spare");
        flusher.add_spare(spare.clone()).unwrap();
        (0..steps).for_each(|_| _ = flusher.step(CHUNK).unwrap());
        let older = copy(&spare);
        while flusher.step(1 << 20).unwrap() != Step::Idle {}
        let slots = flusher.array().superblock().slots;
        let taken = slots
            .iter()
            .position(|slot| matches!(slot, crate::format::superblock::Slot::Present(_)));
        assert_eq!(taken, Some(0));
        flusher.fail(0).unwrap();
        let model = write_all(&mut flusher, 9);
        flusher.stop().unwrap();
        disks[0] = older;
        let mut flusher = assemble(shared(&disks)).unwrap();
        if !flusher.array().status().spares.is_empty() {
            while flusher.step(1 << 20).unwrap() != Step::Idle {}
        } else {
            let added = flusher.add(disks[0].clone()).unwrap();
            assert_eq!(added, AddedAs::Rebuilding { slot: 0 });
            while flusher.step(1 << 20).unwrap() != Step::Idle {}
        }
        check(flusher.array(), &model, "filled");
        flusher.fail(2).unwrap();
        check(flusher.array(), &model, "by the copy");
    }
}
