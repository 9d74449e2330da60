//! Stories that once broke a promise, kept short: each must hold from now on.

use pinstripe_member::{ExtentKind, ExtentName};
use pinstripe_sim::World;
use pinstripe_sim::is_named;
use pinstripe_sim::{Cut, End, Operation, Story};
use pinstripe_sim::{Ledger, Site, check};

use crate::process::Threads;

fn play(members: usize, parity: u8, operations: Vec<Operation>) {
    World::play(&Threads, &Story { seed: 0, members, parity, operations }, true);
}

/// Packs of a backup that was killed before its index run were relied on by the next backup, and
/// counted no more when a member lost its part of them.
#[test]
fn packs_of_a_killed_backup_that_the_next_one_uses_bear_the_loss_of_a_member() {
    for steps in (30..110).step_by(4) {
        play(
            4,
            2,
            vec![
                Operation::Backup { source: 1, end: End::Killed(Cut::after(steps)) },
                Operation::Backup { source: 1, end: End::Whole },
                Operation::TroubledRestore { snapshot: 0, member: 1, seed: steps },
                Operation::Lose { member: 2 },
            ],
        );
    }
}

/// A short index run can be read from fewer members than a pack needs: repair passed over one that
/// a power cut had left on some members, and check complained of it for ever.
#[test]
fn an_index_run_left_on_some_members_is_mended_or_removed() {
    for steps in 0..24 {
        let cut = End::PowerCut(Cut::after(90 + 4 * steps), steps);
        let repair = Operation::Repair { end: End::Whole };
        play(5, 2, vec![Operation::Backup { source: 1, end: cut }, repair]);
    }
}

/// Short names are what `check` says; with full ones this could never fire.
#[test]
fn a_loss_in_a_finished_snapshot_is_recognized() {
    let mut world = World::plain(&Threads, Site::new(3, 1), 1);
    world.backup(0, End::Whole);
    world.check();
    // Content that nothing can bring back: as if it had been lost.
    let store = world.store();
    for (_, member) in store.present() {
        for (id, _) in member.list(ExtentKind::Packs).unwrap() {
            member.delete(ExtentName::In(ExtentKind::Packs, id)).unwrap();
        }
    }
    let kept = world.kept[0].id();
    let ledger = Ledger::new();
    check(&store, true, &ledger);
    let losses = ledger.losses();
    assert!(!losses.is_empty());
    assert!(losses.iter().all(|seen| is_named(kept, &seen.place.to_string_lossy())), "{losses:#?}");
    let told =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.check())).unwrap_err();
    let told = told.downcast_ref::<String>().unwrap();
    assert!(told.contains("a finished snapshot is hurt"), "{told}");
}
