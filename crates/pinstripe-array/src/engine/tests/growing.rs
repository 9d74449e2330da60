//! Arrays that get one member more while they are used.

use super::filling::{check_without_each, disk, work};
use super::*;
use crate::geometry::Copies;

/// An array with something in all of it but its end, and the bytes that it has.
fn full(
    create_options: &CreateOptions,
    count: usize,
    dice: &mut Dice,
) -> (Flusher, Vec<Arc<MemoryDevice>>, Vec<u8>) {
    let disks = disks(count);
    let mut flusher = create(create_options, shared(&disks)).unwrap();
    let mut model = vec![0; flusher.array().capacity() as usize];
    fill(&mut flusher, &mut model, dice);
    (flusher, disks, model)
}

fn fill(flusher: &mut Flusher, model: &mut [u8], dice: &mut Dice) {
    let end = model.len() - 70_000;
    for (n, chunk) in model[..end].chunks_mut(CHUNK as usize).enumerate() {
        // There are holes as well.
        if n % 7 != 3 {
            let first = dice.below(256) as u8;
            let byte = |at: usize| first.wrapping_add((at >> 6) as u8);
            chunk.iter_mut().enumerate().for_each(|(at, to)| *to = byte(at));
            flusher.array().write(n as u64 * CHUNK, chunk, Duration::ZERO).unwrap();
        }
    }
    flusher.sync().unwrap();
}

/// Begins to grow by a disk.
fn grow(flusher: &mut Flusher, disks: &mut Vec<Arc<MemoryDevice>>) {
    disks.push(disk("more"));
    flusher.add_spare(disks.last().unwrap().clone()).unwrap();
    flusher.grow().unwrap();
}

/// What is gained can be used, and holds.
fn use_all(flusher: &mut Flusher, model: &mut Vec<u8>, dice: &mut Dice) {
    model.resize(flusher.array().capacity() as usize, 0);
    check(flusher.array(), model, "what is gained reads as zeros");
    fill(flusher, model, dice);
    check(flusher.array(), model, "what is gained is used");
}

const KINDS: [(Level, usize); 8] = [
    (Level::Raid0, 2),
    (Level::Raid0, 3),
    (Level::Raid4, 3),
    (Level::Raid5, 3),
    (Level::Raid5, 4),
    (Level::Raid6, 4),
    (Level::Raid10, 3),
    (Level::Raid10, 4),
];

#[test]
fn an_array_grows_by_a_member_while_it_is_used() {
    for (level, count) in KINDS {
        let mut dice = Dice(31 + count as u64);
        let (mut flusher, mut disks, mut model) = full(&create_options(level), count, &mut dice);
        let before = flusher.array().capacity();
        grow(&mut flusher, &mut disks);
        assert_eq!(flusher.array().capacity(), before, "nothing is gained before all is moved");
        let report = work(&mut flusher, &mut model, &mut dice);
        assert_eq!((report.kind, report.is_finished), (WorkKind::Grow, true), "{level}");
        assert_eq!(flusher.step(1 << 20).unwrap(), Step::Idle);
        assert!(flusher.array().capacity() > before);
        check(flusher.array(), &model, "grown");
        use_all(&mut flusher, &mut model, &mut dice);
        flusher.scrub(false).unwrap();
        let Step::Done(report) = flusher.step(u64::MAX).unwrap() else { panic!("it is over") };
        assert!(report.mismatches.is_empty(), "{level}: {report:?}");
        flusher.stop().unwrap();
        check(assemble(shared(&disks)).unwrap().array(), &model, "assembled again");
        if level != Level::Raid0 {
            check_without_each(&disks, &model, &format!("{level}, grown"));
        }
    }
}

#[test]
fn a_mirror_grows_by_a_copy() {
    let mut dice = Dice(3);
    let (mut flusher, mut disks, mut model) = full(&create_options(Level::Raid1), 2, &mut dice);
    grow(&mut flusher, &mut disks);
    let report = work(&mut flusher, &mut model, &mut dice);
    assert_eq!((report.kind, report.slot, report.is_finished), (WorkKind::Rebuild, Some(2), true));
    flusher.stop().unwrap();
    let flusher = assemble(shared(&disks[2..])).unwrap();
    check(flusher.array(), &model, "of the new copy alone");
    assert_eq!(flusher.array().geometry().members(), 3);
}

/// Stopped at any place, and assembled again, it goes on; all can be read in between, and without
/// each member.
#[test]
fn growing_goes_on_where_it_was_stopped() {
    for (level, count) in
        [(Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid10, 4), (Level::Raid0, 2)]
    {
        let mut dice = Dice(77 + count as u64);
        let (mut flusher, mut disks, mut model) = full(&create_options(level), count, &mut dice);
        grow(&mut flusher, &mut disks);
        let mut stops = 0;
        while let Step::Moved { .. } = flusher.step(dice.below(200 << 10)).unwrap() {
            (0..3).for_each(|_| write(flusher.array(), &mut model, &mut dice));
            flusher.stop().unwrap();
            stops += 1;
            if level != Level::Raid0 && stops % 5 == 0 {
                check_without_each(&disks, &model, &format!("{level}, growing"));
            }
            disks.reverse();
            flusher = assemble(shared(&disks)).unwrap();
            check(flusher.array(), &model, &format!("{level}, growing again"));
        }
        assert!(stops > 4, "{level}: {stops}");
        assert!(flusher.array().shape().stretches().is_none());
    }
}

/// A journal that has room for a block of each chunk, and one for some.
#[test]
fn a_short_log_moves_a_stretch_column_by_column() {
    for log_bytes in [24 << 10, 100 << 10] {
        let mut dice = Dice(log_bytes);
        let create_options = CreateOptions {
            log_bytes,
            consistency: Consistency::None,
            ..create_options(Level::Raid5)
        };
        let (mut flusher, mut disks, mut model) = full(&create_options, 4, &mut dice);
        grow(&mut flusher, &mut disks);
        work(&mut flusher, &mut model, &mut dice);
        check(flusher.array(), &model, "grown");
        flusher.stop().unwrap();
        check_without_each(&disks, &model, "grown");
    }
}

#[test]
fn a_member_that_fails_while_the_array_grows_is_done_without_and_filled_afterwards() {
    for (level, count) in KINDS.into_iter().filter(|(level, _)| *level != Level::Raid0) {
        for steps in [0, 2, 6] {
            let mut dice = Dice(steps * 9 + count as u64);
            let (mut flusher, mut disks, mut model) =
                full(&create_options(level), count, &mut dice);
            grow(&mut flusher, &mut disks);
            for _ in 0..steps {
                assert!(matches!(flusher.step(1).unwrap(), Step::Moved { .. }));
            }
            flusher.fail((steps as usize + 1) % (count + 1)).unwrap();
            check(flusher.array(), &model, "degraded");
            assert_eq!(flusher.add(disk("other")).unwrap(), AddedAs::Spare);
            let report = work(&mut flusher, &mut model, &mut dice);
            assert_eq!((report.kind, report.is_finished), (WorkKind::Grow, true), "{level}");
            let report = work(&mut flusher, &mut model, &mut dice);
            assert_eq!((report.kind, report.is_finished), (WorkKind::Rebuild, true), "{level}");
            assert!(flusher.array().absent().is_empty() && report.lost_blocks == 0);
            use_all(&mut flusher, &mut model, &mut dice);
        }
    }
}

/// Blocks that cannot be rebuilt stay lost, and the parity over them is not used to make them up.
#[test]
fn blocks_that_are_lost_stay_lost() {
    let mut dice = Dice(5);
    let (mut flusher, mut disks, model) = full(&create_options(Level::Raid5), 4, &mut dice);
    // Two blocks of one column: row 40.
    let map = flusher.array().geometry().map(40);
    for shard in [0, 1] {
        let member = flusher.array().member(map.member(shard)).unwrap();
        member.write(map.place(shard).start + 8192, &[0xee; 4096]).unwrap();
    }
    let lost: Vec<usize> = (0..2).map(|data| (40 * 3 + data) * CHUNK as usize + 8192).collect();
    grow(&mut flusher, &mut disks);
    while !matches!(flusher.step(1 << 20).unwrap(), Step::Done(_)) {}
    for (number, block) in model.chunks(4096).enumerate() {
        let mut found = vec![0; block.len()];
        match flusher.array().read(number as u64 * 4096, &mut found) {
            Ok(()) => assert!(found == block, "block {number}"),
            Err(error) => {
                assert_eq!(error.kind(), Kind::TooManyLosses);
                assert!(lost.contains(&(number * 4096)), "block {number}: {error}");
            }
        }
    }
    assert!(lost.iter().all(|at| flusher.array().read(*at as u64, &mut [0; 512]).is_err()));
    flusher.array().write(0, &model, Duration::ZERO).unwrap();
    flusher.sync().unwrap();
    check(flusher.array(), &model, "written again");
}

/// An array amid its growth, in which the power goes.
fn cut(level: Level, count: usize, seed: u64) -> PowerCut {
    let mut dice = Dice(seed * 7 + 1);
    let (mut flusher, mut disks, model) = full(&create_options(level), count, &mut dice);
    let steps = dice.below(9);
    if steps > 0 {
        grow(&mut flusher, &mut disks);
        for _ in 1..steps {
            flusher.step(dice.below(300 << 10)).unwrap();
        }
    } else {
        disks.push(disk("more"));
        flusher.add_spare(disks.last().unwrap().clone()).unwrap();
    }
    flusher.stop().unwrap();
    PowerCut::amid(level, disks, model, seed, |it, devices| {
        let Ok(mut flusher) = assemble(devices) else { return };
        if steps == 0 && flusher.grow().is_err() {
            return;
        }
        it.go_on(&mut flusher);
    })
}

/// Seeds of power cuts; `cargo xtask sim` chooses more.
fn seeds() -> std::ops::Range<u64> {
    pinstripe_testing::chosen_seeds("PINSTRIPE_GROW_SEEDS", 1..7)
}

#[test]
fn a_power_cut_while_the_array_grows_costs_nothing_that_was_synced() {
    for (level, count) in KINDS {
        for seed in seeds() {
            cut(level, count, seed).judge(None);
        }
    }
}

#[test]
fn a_power_cut_that_takes_a_member_with_it_while_the_array_grows() {
    for (level, count) in KINDS.into_iter().filter(|(level, _)| *level != Level::Raid0) {
        for seed in seeds() {
            cut(level, count, seed).judge(Some(seed as usize % (count + 1)));
        }
    }
}

/// Readers find the right bytes whatever is moved meanwhile.
#[test]
fn readers_and_writers_go_on_while_rows_are_moved() {
    let mut dice = Dice(19);
    let (mut flusher, mut disks, model) = full(&create_options(Level::Raid5), 3, &mut dice);
    grow(&mut flusher, &mut disks);
    let array = Arc::clone(flusher.array());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (array, model, is_over) = (&array, &model, &is_over);
            scope.spawn(move || {
                let mut dice = Dice(thread * 1000 + 7);
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let at = dice.below(model.len() as u64 - 1);
                    let len = (1 + dice.below(60_000)).min(model.len() as u64 - at) as usize;
                    let mut found = vec![0; len];
                    array.read(at, &mut found).unwrap();
                    let wanted = &model[at as usize..at as usize + len];
                    assert!(found == wanted, "{len} bytes at {at}");
                    // As it was: the content stays, and goes through the cache.
                    array.write(at, &wanted[..len.min(3000)], Duration::ZERO).unwrap();
                }
            });
        }
        loop {
            match flusher.step(20 << 10) {
                Ok(Step::Moved { .. }) => _ = flusher.flush(Duration::MAX, 3).unwrap(),
                Ok(Step::Done(_)) => break,
                other => panic!("{other:?}"),
            }
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    check(&array, &model, "grown");
}

#[test]
fn what_cannot_grow_is_refused_and_stays_as_it_is() {
    let mut dice = Dice(1);
    let (mut flusher, disks, mut model) = full(&create_options(Level::Raid5), 4, &mut dice);
    assert_eq!(flusher.grow().unwrap_err().kind(), Kind::Refused, "there is no spare");
    flusher.add_spare(disk("spare")).unwrap();
    flusher.scrub(false).unwrap();
    assert_eq!(flusher.grow().unwrap_err().kind(), Kind::Busy, "it is scrubbed");
    flusher.cancel_work().unwrap();
    flusher.fail(0).unwrap();
    assert_eq!(flusher.grow().unwrap_err().kind(), Kind::Refused, "a member is absent");
    work(&mut flusher, &mut model, &mut dice);
    flusher.add_spare(disk("another")).unwrap();
    flusher.grow().unwrap();
    flusher.step(1).unwrap();
    assert_eq!(flusher.grow().unwrap_err().kind(), Kind::Busy);
    assert_eq!(flusher.scrub(true).unwrap_err().kind(), Kind::Busy);
    assert_eq!(flusher.replace(1, disk("third")).unwrap_err().kind(), Kind::Busy);
    work(&mut flusher, &mut model, &mut dice);
    check(flusher.array(), &model, "grown");
    drop(disks);
    let far = CreateOptions {
        layout: Layout::Copies(Copies { near: 1, far: 2, offset: false }),
        ..create_options(Level::Raid10)
    };
    let short = CreateOptions {
        log_bytes: 8 << 10,
        consistency: Consistency::None,
        ..create_options(Level::Raid5)
    };
    for create_options in [far, short] {
        let (mut flusher, disks, model) = full(&create_options, 4, &mut dice);
        flusher.add_spare(disk("spare")).unwrap();
        assert_eq!(flusher.grow().unwrap_err().kind(), Kind::Unsupported);
        // What cannot become a member keeps what it carries.
        let other = disk("other");
        pinstripe_io::device::Device::write_at(&*other, 0, b"something").unwrap();
        assert_eq!(flusher.grow_by(other.clone()).unwrap_err().kind(), Kind::Unsupported);
        let mut found = [0; 9];
        pinstripe_io::device::Device::read_at(&*other, 0, &mut found).unwrap();
        assert_eq!(&found, b"something");
        flusher.stop().unwrap();
        let flusher = assemble(shared(&disks)).unwrap();
        assert_eq!(flusher.array().geometry().members(), 4);
        check(flusher.array(), &model, "as it was");
    }
}
