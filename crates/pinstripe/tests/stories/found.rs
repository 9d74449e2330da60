//! Stories that failed once, as they were shortened: each must hold from now on.

use crate::driver;
use pinstripe_sim::{Cut, End, KeyWork, Operation, Partner, Story, Trouble};

fn holds(seed: u64, members: usize, parity: u8, operations: Vec<Operation>) {
    let played = driver::play(&Story { seed, members, parity, operations }, false);
    assert_eq!(played.wrong, None);
}

/// A rotation was cut off when one member had the new ring, and that member left.
#[test]
fn keys_that_one_member_alone_has_do_not_leave_with_it() {
    let rotate = Operation::Keys {
        work: KeyWork::Rotate,
        end: End::PowerCut(Cut::after(20), 16594735147645832090),
    };
    holds(1810, 3, 1, vec![rotate, Operation::RemoveMember { member: 12, end: End::Whole }]);
}

/// The member that was replaced was none any more, and the store was to be opened through it.
#[test]
fn a_replacement_that_was_cut_off_late_is_ended_through_another_member() {
    let troubled = |source, member, trouble, after| Operation::TroubledBackup {
        source,
        member,
        trouble,
        after,
    };
    let end = End::PowerCut(Cut::after(220), 444807535059007342);
    let operations = vec![
        troubled(1, 6, Trouble::Fails, 2),
        troubled(0, 8, Trouble::Flips, 0),
        Operation::SwapMember { member: 13, end },
    ];
    holds(1335, 4, 2, operations);
    // The only other member was hurt.
    let cut = Cut::within(pinstripe_member::ExtentKind::Sessions, 3);
    let swap = Operation::SwapMember { member: 10, end: End::PowerCut(cut, 9746797507322198664) };
    holds(65493, 2, 1, vec![troubled(1, 9, Trouble::Flips, 8), swap]);
}

/// What a killed backup left had as many extents as reading takes, until one was damaged.
#[test]
fn damage_to_what_a_killed_backup_left_is_no_loss() {
    let operations = vec![
        Operation::Check,
        Operation::Backup { source: 1, end: End::Killed(Cut::after(83)) },
        Operation::Damage { member: 12, seed: 3482059964382706976 },
    ];
    holds(5408, 5, 2, operations);
}

/// A pack of a killed backup lacked more than parity replaces, and so was not moved to the new
/// member as it was.
#[test]
fn a_member_is_replaced_whatever_a_killed_backup_left() {
    let cut = End::PowerCut(Cut::after(34), 15143774344628266821);
    let operations = vec![
        Operation::Backup { source: 1, end: End::Whole },
        Operation::Backup { source: 1, end: End::Whole },
        Operation::Backup { source: 0, end: cut },
        Operation::Repair { end: End::Whole },
        Operation::Destroy { member: 3 },
        Operation::SwapMember { member: 6, end: End::Whole },
    ];
    holds(20441, 5, 2, operations);
}

/// gc asks for a snapshot to be given up of which the only copy was damaged; then it goes on.
#[test]
fn a_snapshot_that_can_only_be_given_up_is_given_up() {
    let cut = End::PowerCut(Cut::after(82), 12814275185008745176);
    let troubled =
        Operation::TroubledBackup { source: 1, member: 12, trouble: Trouble::Fails, after: 7 };
    let damage = Operation::Damage { member: 4, seed: 6958730487056953871 };
    let operations = vec![Operation::Backup { source: 0, end: cut }, troubled, damage];
    holds(40672, 2, 1, operations);
}

/// A mark of a forgotten snapshot is damaged away: scrub leaves it to `repair`, as it may just have
/// been removed.
#[test]
fn a_mark_that_a_member_lacks_is_left_by_scrub() {
    let beside = |snapshot| Operation::CollectBeside {
        partner: Partner::Backup,
        snapshot,
        waste: 10,
        end: End::Whole,
        of_partner: true,
    };
    let operations = vec![
        beside(32),
        Operation::Forget { snapshot: 13, end: End::Whole },
        beside(8),
        Operation::Damage { member: 6, seed: 17463424857714069629 },
        Operation::Scrub { part: 100, end: End::Whole },
    ];
    holds(528336, 3, 1, operations);
}
