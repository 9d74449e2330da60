//! Stories of pairs that failed once, as they were shortened: each must hold from now on.

use pinstripe_member::ExtentKind;

use super::play;
use super::story::{Act, Junk, Origin, Scene, Shape, Story, Trouble};
use super::verb::Verb;
use pinstripe_sim::{Cut, End};

fn shape(members: usize, parity: u8, is_sealed: bool) -> Shape {
    Shape { origin: Origin::New, members, parity, is_sealed }
}

fn act(verb: Verb, pick: u64, begins: u64) -> Act {
    Act { verb, pick, begins }
}

fn scene(trouble: Trouble, acts: &[Act]) -> Scene {
    Scene { trouble, acts: acts.to_vec(), end: End::Whole, killed: 0 }
}

fn holds(seed: u64, shape: Shape, scenes: Vec<Scene>) {
    assert_eq!(play(&Story { seed, shape, scenes }, false).wrong, None);
}

/// A repair that opened the store before a rotation set the new key ring aside.
#[test]
fn a_repair_beside_a_rotation_leaves_the_new_keys() {
    let acts = [
        act(Verb::KeyRotate, 10766151227669777120, 0),
        act(Verb::Backup, 14578373988637423624, 31),
        act(Verb::Repair, 15194071809138760195, 0),
    ];
    holds(1766, shape(1, 0, true), vec![scene(Trouble::Nothing, &acts)]);
}

/// One of three members had no room for the run of the index, and the backup ended with 1.
#[test]
fn a_backup_ends_well_when_one_member_is_full() {
    let full = Trouble::Full { member: 7, bytes: 3939 };
    let backup = act(Verb::Backup, 14136853975186025839, 0);
    holds(4, shape(3, 1, false), vec![scene(full, &[backup])]);
}

/// A member was dead and a strip of another one damaged: no verb retired the dead one.
#[test]
fn a_dead_member_is_retired_although_a_strip_is_lost() {
    let dies = Trouble::DiesBesideRot { member: 4, rotten: 5, seed: 957446088831203199 };
    let scrub = act(Verb::Scrub, 958013038630885518, 0);
    holds(2538, shape(3, 1, true), vec![scene(dies, &[scrub])]);
}

/// In a plain store an undelete was taken back when two members were away that had its mark.
#[test]
fn an_undelete_with_a_member_away_stays_when_others_are_away_later() {
    let returns = Trouble::Returns { member: 5, at: 4 };
    let undelete = act(Verb::Undelete, 2430912476676578133, 0);
    holds(46, shape(4, 2, false), vec![scene(returns, &[undelete])]);
}

/// In a plain store of one member the mark did not count when another one took its place.
#[test]
fn a_forgotten_snapshot_stays_so_when_the_only_member_is_replaced() {
    let replace = act(Verb::ReplaceDead, 13280386559877847780, 0);
    holds(30, shape(1, 0, false), vec![scene(Trouble::Nothing, &[replace])]);
}

/// The member was silent when the backup looked for sessions.
#[test]
fn a_backup_ends_well_when_a_member_hangs() {
    let hangs = Trouble::Hangs { member: 1, after: 15 };
    let shape = Shape { origin: Origin::Old, ..shape(3, 1, false) };
    holds(65, shape, vec![scene(hangs, &[act(Verb::Resume, 12743937557608647637, 0)])]);
}

/// The tombstone of a snapshot did not count in a larger table.
#[test]
fn a_deleted_snapshot_stays_so_when_a_member_joins() {
    let away = Trouble::Away { member: 2 };
    let scenes = vec![
        scene(away, &[act(Verb::Gc, 13200022921844848818, 0)]),
        scene(Trouble::Nothing, &[act(Verb::MemberAdd, 11617436953540816928, 0)]),
    ];
    holds(285, shape(3, 1, false), scenes);
}

/// Short junk among the snapshots of one of two members was a loss for every verb.
#[test]
fn junk_on_one_member_of_a_mirror_is_no_loss() {
    for (seed, junk) in [(0, Junk::Empty), (2, Junk::Short), (4, Junk::Noise)] {
        let (kind, at) = (ExtentKind::Snapshots, 0);
        let junk = Trouble::Junk { member: 1, is_on_all: false, kind, junk, at };
        holds(seed, shape(2, 1, true), vec![scene(junk, &[act(Verb::Check, 1, 0)])]);
    }
}

/// All members had a foreign object among the objects of deletion. It ended each backup.
#[test]
fn junk_among_the_steps_of_deletion_ends_no_backup() {
    let (kind, junk) = (ExtentKind::Gc, Junk::Short);
    let junk = Trouble::Junk { member: 5, is_on_all: true, kind, junk, at: 0 };
    holds(292, shape(1, 0, false), vec![scene(junk, &[act(Verb::Repair, 720428837220810845, 0)])]);
}

/// In a plain store of one member a mark was put after the new member got its own and before the table
/// named it.
#[test]
fn a_forget_beside_a_replacement_counts() {
    let acts = [
        act(Verb::Forget, 15471206339287964747, 0),
        act(Verb::ReplaceDead, 17918723411485127926, 0),
    ];
    let scene = Scene { killed: 1, ..scene(Trouble::Nothing, &acts) };
    holds(20025, shape(1, 0, false), vec![scene]);
}

/// A mark without a MAC was put after the upgrade had read what counts.
#[test]
fn a_forget_beside_an_upgrade_counts_or_ends() {
    let acts =
        [act(Verb::Upgrade, 2017857996940823213, 0), act(Verb::Forget, 14515140860134759607, 0)];
    let scene = Scene { killed: 1, ..scene(Trouble::Nothing, &acts) };
    holds(21261, Shape { origin: Origin::Old, ..shape(3, 1, true) }, vec![scene]);
}

/// The member that had the tombstone was away, and one that lacked the deletion was there.
#[test]
fn what_is_left_of_a_pack_that_was_being_deleted_is_no_loss() {
    let acts = [act(Verb::Gc, 11063565653813104910, 0), act(Verb::Repair, 16265713386618367501, 0)];
    let end = End::PowerCut(Cut::after(124), 3944777727040562833);
    let scene = Scene { killed: 1, end, ..scene(Trouble::Away { member: 1 }, &acts) };
    holds(21077, shape(3, 1, false), vec![scene]);
}

/// A rotation put its ring on the first member alone, which then became an older copy of itself.
#[test]
fn a_rotation_puts_its_ring_on_every_member() {
    let backup = act(Verb::Backup, 2721451886755318268, 0);
    let acts =
        [act(Verb::KeyRotate, 79471897313219468, 0), act(Verb::Backup, 9228004456231173749, 0)];
    let stale = Trouble::Stale { member: 5, at: 0 };
    let scenes =
        vec![scene(Trouble::Nothing, &[backup]), Scene { killed: 1, ..scene(stale, &acts) }];
    holds(50274, shape(5, 2, true), scenes);
}

/// The keys were listed before a rotation and read after it.
#[test]
fn a_store_opens_beside_a_rotation() {
    let acts = [
        act(Verb::KeyRotate, 12322020225114663383, 0),
        act(Verb::Resume, 5752378942739067121, 0),
        act(Verb::Gc, 18157673561933101700, 0),
    ];
    let scene = Scene { killed: 1, ..scene(Trouble::Nothing, &acts) };
    holds(51196, shape(4, 1, true), vec![scene]);
}

/// A gc gave the new member its own part of a pack that the replacement was about to move there.
#[test]
fn a_replacement_goes_on_beside_a_gc_that_lays_packs() {
    let acts =
        [act(Verb::ReplaceLiving, 5423891027620102243, 0), act(Verb::Gc, 5096844863399277113, 136)];
    holds(50599, shape(1, 0, true), vec![scene(Trouble::Nothing, &acts)]);
}

/// Of three members one hung and one was replaced: the only label left was one vote of two, and the
/// second replacement undid the first.
#[test]
fn two_replacements_beside_each_other_do_not_undo_each_other() {
    let acts = [
        act(Verb::ReplaceLiving, 9118790827577446059, 0),
        act(Verb::ReplaceLiving, 16054837429002866621, 42),
    ];
    let hangs = Trouble::Hangs { member: 3, after: 6 };
    let scene = Scene { killed: 1, ..scene(hangs, &acts) };
    holds(50422, shape(3, 1, false), vec![scene]);
}

/// A repair made an extent of the merge's index run before the merge did: the member counted as failed,
/// and did not get the snapshot.
#[test]
fn a_writer_accepts_what_a_repair_has_made_of_its_set() {
    let acts = [
        act(Verb::Merge, 9962082605694277357, 0),
        act(Verb::Repair, 14970945534534341782, 7),
        act(Verb::Repair, 2863877682183057004, 0),
    ];
    let replace = act(Verb::ReplaceDead, 12129197872935688695, 0);
    let scenes =
        vec![scene(Trouble::Nothing, &acts), scene(Trouble::Dies { member: 0 }, &[replace])];
    holds(60259, Shape { origin: Origin::Divided, ..shape(2, 1, false) }, scenes);
}

/// The second merge found the snapshot of the first, and took each member for a failed one.
#[test]
fn two_merges_beside_each_other_bring_a_snapshot_once() {
    let acts =
        [act(Verb::Merge, 9265901471670586429, 0), act(Verb::Merge, 11555242652843466364, 0)];
    let scene = Scene { killed: 1, ..scene(Trouble::Nothing, &acts) };
    holds(70755, Shape { origin: Origin::Divided, ..shape(2, 1, false) }, vec![scene]);
}

/// A gc removed the pack while it was moved, which ended with 11 after a warning of damage.
#[test]
fn a_replacement_beside_a_gc_passes_over_what_is_deleted() {
    let acts = [
        act(Verb::Scrub, 16521396198360680286, 0),
        act(Verb::Gc, 10928301509936712456, 0),
        act(Verb::ReplaceDead, 7330193495768938225, 0),
    ];
    let scene = Scene { killed: 1, ..scene(Trouble::Nothing, &acts) };
    holds(74132, shape(1, 0, false), vec![scene]);
}

/// A member that came back as an older copy lacked snapshots, and had no room for them.
#[test]
fn a_gc_makes_room_on_a_full_member_that_lacks_snapshots() {
    let stale = Trouble::Stale { member: 4, at: 9 };
    let full = Trouble::Full { member: 0, bytes: 659 };
    let scenes = vec![
        scene(stale, &[act(Verb::Backup, 8161890376814030698, 0)]),
        scene(full, &[act(Verb::Gc, 7632479859125425280, 0)]),
    ];
    holds(72235, shape(4, 2, false), scenes);
}

/// Extents had moved to a member that joined after the reader had opened the store.
#[test]
fn a_reader_finds_what_moved_to_a_member_that_joined() {
    let check = act(Verb::Check, 6115702724273703943, 0);
    let replace = act(Verb::ReplaceLiving, 5410830157701409952, 0);
    let scenes = vec![
        scene(Trouble::Nothing, &[act(Verb::Backup, 1372896462452130469, 0)]),
        scene(Trouble::Away { member: 5 }, &[check, replace]),
    ];
    holds(3606, shape(3, 1, true), scenes);
}

/// The only member was replaced: what the backup knew was empty, and counted as lost.
#[test]
fn a_backup_reports_no_loss_when_the_only_member_is_replaced() {
    let backup = act(Verb::Backup, 1195878555847158063, 0);
    let replace = act(Verb::ReplaceLiving, 15484103042778443216, 0);
    holds(2838, shape(1, 0, true), vec![scene(Trouble::Nothing, &[backup, replace])]);
    let backup = act(Verb::Backup, 4017911304597259269, 0);
    let replace = act(Verb::ReplaceDead, 7608786242327098982, 0);
    holds(1704, shape(1, 0, false), vec![scene(Trouble::Nothing, &[replace, backup])]);
}

/// The old directory had no label any more, and the repair took the new member alone for too few to
/// say that the table had changed: it made the old one a member again.
#[test]
fn a_repair_brings_no_member_back_that_was_replaced() {
    let acts = [
        act(Verb::Scrub, 18152041036023032381, 0),
        act(Verb::Repair, 8582568932399729487, 138),
        act(Verb::ReplaceDead, 14605319725464562584, 0),
    ];
    holds(1543, shape(1, 0, false), vec![scene(Trouble::Nothing, &acts)]);
}

/// `catalog` counted a junk object as a snapshot.
#[test]
fn junk_among_snapshots_is_no_loss_for_the_catalog() {
    let (kind, junk) = (ExtentKind::Snapshots, Junk::Empty);
    let junk = Trouble::Junk { member: 4, is_on_all: false, kind, junk, at: 18 };
    let scenes = vec![
        scene(junk, &[act(Verb::Undelete, 11990223178736801095, 0)]),
        scene(Trouble::Nothing, &[act(Verb::Catalog, 16764006282614436459, 0)]),
    ];
    holds(1123, shape(4, 2, true), scenes);
}

/// Junk among the sessions that turned up beside a gc ended it, and later every repair of a store
/// in which a member lacked something.
#[test]
fn junk_among_sessions_ends_no_gc_and_no_repair() {
    let junk = |member, junk, at| {
        let kind = ExtentKind::Sessions;
        Trouble::Junk { member, is_on_all: true, kind, junk, at }
    };
    let gc = act(Verb::Gc, 15396589795035849164, 0);
    holds(706, shape(1, 0, true), vec![scene(junk(1, Junk::Empty, 21), &[gc])]);
    let fails = Trouble::Fails { member: 0, after: 0 };
    let scenes = vec![
        scene(fails, &[act(Verb::Backup, 15213017799660128911, 38)]),
        scene(junk(7, Junk::Noise, 0), &[act(Verb::Undelete, 5353630216167319354, 0)]),
    ];
    holds(314, shape(5, 2, true), scenes);
}

/// The directory of a member went away while the gc had it open: "not found", as if the store were.
#[test]
fn a_gc_goes_on_when_the_directory_of_a_member_goes_away() {
    let stale = Trouble::Stale { member: 1, at: 74 };
    let gc = act(Verb::Gc, 2193803431479069979, 0);
    holds(20, shape(4, 1, true), vec![scene(stale, &[gc])]);
}

/// Every call on a member failed, and the step that failed there ended the verb.
#[test]
fn a_member_that_fails_is_left_out_as_one_that_falls_silent() {
    for (seed, shape, member, after, verb, pick) in [
        (40, shape(3, 1, true), 2, 17, Verb::Gc, 6795319103914226316),
        (81, shape(4, 2, true), 4, 5, Verb::Stream, 1618836786693978242),
        (570, shape(4, 1, false), 5, 5, Verb::Scrub, 9905520821018225504),
    ] {
        holds(seed, shape, vec![scene(Trouble::Fails { member, after }, &[act(verb, pick, 0)])]);
    }
}

/// The member at hand fell silent after the store was opened, and before the key was given.
#[test]
fn a_store_is_unlocked_although_the_member_at_hand_hangs() {
    let hangs = Trouble::Hangs { member: 0, after: 3 };
    let catalog = act(Verb::Catalog, 18126539526488284447, 0);
    holds(100, shape(4, 2, true), vec![scene(hangs, &[catalog])]);
}

/// A page of a tree was lost: the gc said "not found", as if its store were.
#[test]
fn a_gc_refuses_a_store_with_a_tree_that_cannot_be_read() {
    let dies = Trouble::DiesBesideRot { member: 6, rotten: 1, seed: 2401841133923688311 };
    let replace = act(Verb::ReplaceDead, 10501894661401788888, 0);
    holds(30894, shape(2, 1, false), vec![scene(dies, &[replace])]);
}

/// A replacement carried the snapshot to a member before the backup put it there: the member counted
/// as failed, and the backup ended with 1 although its snapshot was there.
#[test]
fn a_backup_ends_well_when_its_snapshot_is_carried_on_meanwhile() {
    let acts = [
        act(Verb::Repair, 1716086248232901328, 0),
        act(Verb::Backup, 16729392337714311428, 0),
        act(Verb::ReplaceLiving, 1977799992425979049, 98),
    ];
    holds(31442, shape(5, 2, false), vec![scene(Trouble::Nothing, &acts)]);
}

/// A run of the index was merged onto a member without room, beside one with room.
#[test]
fn runs_are_merged_over_members_with_room() {
    let full = Trouble::Full { member: 4, bytes: 55370 };
    let scenes = vec![
        scene(Trouble::Nothing, &[act(Verb::MemberAdd, 17185143115255411986, 0)]),
        scene(full, &[act(Verb::Dump, 13134126010312295580, 0)]),
        scene(Trouble::Nothing, &[act(Verb::Backup, 2625159346672860472, 0)]),
    ];
    holds(1248, shape(1, 0, false), scenes);
}

/// A repair set a mark aside that a forget was putting: the snapshot was listed again.
#[test]
fn a_forget_beside_a_repair_counts() {
    let acts = [
        act(Verb::Forget, 11209644888523709941, 0),
        act(Verb::Repair, 6975406669252900435, 0),
        act(Verb::Forget, 12916768395779037751, 115),
    ];
    let scene = Scene { killed: 1, ..scene(Trouble::Nothing, &acts) };
    holds(201356, shape(4, 1, false), vec![scene]);
}

/// The tombstone stood on the old member alone, and counted no more in the larger table.
#[test]
fn a_gc_beside_a_member_that_joins_deletes_for_good_or_ends() {
    let acts =
        [act(Verb::MemberAdd, 4594120505010296147, 0), act(Verb::Gc, 7107484451858589238, 0)];
    let replace = act(Verb::ReplaceDead, 7494863576780199905, 0);
    let scenes = vec![scene(Trouble::Nothing, &acts), scene(Trouble::Nothing, &[replace])];
    holds(2223, shape(1, 0, false), scenes);
}

/// A slot of format version 1 counted on too few members in the larger table.
#[test]
fn a_key_slot_counts_when_a_member_joins() {
    let away = Trouble::Away { member: 3 };
    let scenes = vec![
        scene(away, &[act(Verb::KeyAdd, 4971973467626504430, 0)]),
        scene(Trouble::Nothing, &[act(Verb::MemberAdd, 6433263448665679955, 0)]),
    ];
    holds(105097, Shape { origin: Origin::Old, ..shape(3, 1, true) }, scenes);
}

/// The member that was removed lacked extents, as it was older than they: packs over three members
/// stood on two, and neither `member remove` nor `repair` gave them their parity back.
#[test]
fn packs_that_a_removed_member_lacked_get_their_parity_back() {
    let stale = Trouble::Stale { member: 7, at: 0 };
    let scenes = vec![
        scene(stale, &[act(Verb::Scrub, 15454299719273219762, 0)]),
        scene(Trouble::Nothing, &[act(Verb::MemberRemove, 11378097602064298766, 0)]),
    ];
    holds(501260, shape(3, 1, true), scenes);
}

/// A member joined, and a label that was to name it could not be written: extents went to it, which
/// were lost with the labels that name it.
#[test]
fn a_member_that_few_labels_name_gets_no_extents() {
    let full = Trouble::Full { member: 6, bytes: 308 };
    let scenes = vec![
        scene(full, &[act(Verb::ReplaceLiving, 8409072831303417666, 0)]),
        scene(Trouble::Nothing, &[act(Verb::Rebalance, 11319912800802487701, 0)]),
    ];
    holds(608445, shape(4, 2, false), scenes);
}

/// The same, with an undelete while the members are away whose labels name the new one.
#[test]
fn an_undelete_counts_beside_a_member_that_few_labels_name() {
    let full = Trouble::Full { member: 1, bytes: 450 };
    let away = Trouble::Away { member: 6 };
    let scenes = vec![
        scene(full, &[act(Verb::MemberAdd, 18032916742900159526, 0)]),
        scene(away, &[act(Verb::Undelete, 739576525523589189, 0)]),
    ];
    holds(603041, shape(2, 1, true), scenes);
}

/// The slots of older keys were removed beside it, except on a disk that fails: scrub called them lost.
#[test]
fn older_key_slots_on_a_disk_that_fails_are_no_loss() {
    let hangs = Trouble::Hangs { member: 4, after: 9 };
    let fails = Trouble::Fails { member: 6, after: 42 };
    let acts = [
        act(Verb::Scrub, 731740355963738591, 0),
        act(Verb::KeyAdd, 12551601442287064181, 0),
        act(Verb::KeyRotate, 5676785177985999458, 0),
    ];
    let scenes = vec![
        scene(hangs, &[act(Verb::KeyRotate, 12068406704676619003, 0)]),
        Scene { killed: 2, ..scene(fails, &acts) },
    ];
    holds(720750, shape(4, 2, true), scenes);
}

/// A merge that knew the old and the new member spread a pack over both while one replaced the other: the
/// pack kept two of three extents, and lost its content with the next member.
#[test]
fn a_pack_over_a_member_and_its_replacement_gets_its_parity_back() {
    let junk = Trouble::Junk {
        member: 5,
        is_on_all: false,
        kind: ExtentKind::Forgotten,
        junk: Junk::Empty,
        at: 86,
    };
    let acts = [
        act(Verb::ReplaceLiving, 6676054184677297099, 0),
        act(Verb::Merge, 14162239587682407134, 85),
    ];
    let dies = Trouble::Dies { member: 7 };
    let scenes = vec![
        Scene { killed: 1, ..scene(junk, &acts) },
        scene(dies, &[act(Verb::ReplaceDead, 17534664665291302600, 0)]),
    ];
    holds(1000577, Shape { origin: Origin::Divided, ..shape(2, 1, true) }, scenes);
}

/// A member was away while another one was replaced, whose directory stayed: the old table counted it as
/// present although its label was gone, and the store opened without the newest member.
#[test]
fn the_directory_of_a_member_that_left_does_not_count_as_the_member() {
    let replace = act(Verb::ReplaceLiving, 8784160644095612109, 0);
    let repair = act(Verb::Repair, 15700028227122162376, 0);
    let scenes = vec![
        Scene { killed: 1, ..scene(Trouble::Nothing, &[replace, repair]) },
        scene(Trouble::Away { member: 6 }, &[act(Verb::ReplaceLiving, 17475145266836019596, 0)]),
    ];
    holds(2052410, shape(4, 2, true), scenes);
    let acts = [
        act(Verb::ReplaceLiving, 5238919693334452543, 0),
        act(Verb::Backup, 5304476813233343963, 0),
    ];
    let away = Scene { killed: 1, ..scene(Trouble::Away { member: 7 }, &acts) };
    holds(2052308, shape(3, 1, true), vec![away]);
}

/// A snapshot was forgotten while a member was away, and a gc was killed amid its deletion. With one
/// of the members that had the mark away, the mark did not count and the snapshot was listed again.
#[test]
fn a_snapshot_that_is_being_deleted_stays_forgotten_without_its_mark() {
    let acts = [
        act(Verb::ReplaceLiving, 5727291361420875356, 0),
        act(Verb::Forget, 18193105022175465412, 0),
    ];
    let end = End::PowerCut(Cut { after: 77, kind: None }, 13015414877729426302);
    let gc = scene(Trouble::Nothing, &[act(Verb::Gc, 6795099639835355812, 0)]);
    let scenes =
        vec![Scene { killed: 1, ..scene(Trouble::Away { member: 6 }, &acts) }, Scene { end, ..gc }];
    holds(3008470, shape(3, 1, false), scenes);
}

/// A repair opened a plain store of one member while that member was being replaced. The later table
/// was on the new member alone, which was no majority: the repair wrote the earlier table over it.
#[test]
fn a_repair_beside_a_replacement_of_the_only_member_keeps_the_new_table() {
    let acts = [
        act(Verb::Gc, 6048023025776751351, 0),
        act(Verb::ReplaceDead, 7112362248162988715, 31),
        act(Verb::Repair, 2216004125314702110, 189),
    ];
    holds(5013507, shape(1, 0, false), vec![scene(Trouble::Nothing, &acts)]);
}

/// A member became an older copy of itself when a rotation had put the new ring on it, and the error was
/// "exists already".
#[test]
fn a_rotation_reports_the_member_that_failed_in_between() {
    let acts = [
        act(Verb::KeyRotate, 2205373017930878975, 0),
        act(Verb::KeyRotate, 9894164630231042804, 0),
        act(Verb::Backup, 8972798990568364128, 0),
    ];
    let stale = Trouble::Stale { member: 3, at: 114 };
    holds(5019119, shape(3, 1, true), vec![Scene { killed: 1, ..scene(stale, &acts) }]);
}

/// An undelete during a replacement put its mark on the one member of a mirror that was left. The
/// new member did not get it, and lost the snapshot with the next member.
#[test]
fn a_mark_that_was_put_during_a_replacement_is_on_the_new_member() {
    let acts = [
        act(Verb::ReplaceDead, 6742919485740052414, 0),
        act(Verb::Undelete, 14531403575202750334, 0),
    ];
    let scenes = vec![
        Scene { killed: 1, ..scene(Trouble::Dies { member: 5 }, &acts) },
        scene(Trouble::Dies { member: 0 }, &[act(Verb::ReplaceDead, 7855384964392933666, 0)]),
    ];
    holds(5029017, shape(2, 1, true), scenes);
}

/// A process that opened the store before an upgrade added a member after it, and wrote labels without a
/// MAC on all members: the store did not open, and no verb repaired it.
#[test]
fn a_member_is_not_added_in_the_old_format_after_an_upgrade() {
    let acts = [
        act(Verb::Upgrade, 12787573597982892644, 0),
        act(Verb::MemberAdd, 2494148328468552500, 356),
    ];
    let shape = Shape { origin: Origin::Old, ..shape(3, 1, true) };
    holds(6002322, shape, vec![Scene { killed: 1, ..scene(Trouble::Nothing, &acts) }]);
}

/// A member died after an interrupted upgrade: it is replaced although some labels are of the later format.
#[test]
fn a_dead_member_is_replaced_after_an_interrupted_upgrade() {
    let acts =
        [act(Verb::Upgrade, 642229124091447702, 0), act(Verb::Repair, 5984206403715430771, 179)];
    let replace = act(Verb::ReplaceDead, 9662708642724247174, 0);
    let scenes = vec![
        Scene { killed: 1, ..scene(Trouble::Nothing, &acts) },
        scene(Trouble::Dies { member: 1 }, &[replace]),
    ];
    holds(6104302, Shape { origin: Origin::Old, ..shape(3, 1, true) }, scenes);
}

/// A check knew two members of a mirror. One was replaced meanwhile, and the other one failed: the
/// error was that of the member that failed, and the check did not look for the new member.
#[test]
fn a_check_finds_what_moved_away_while_the_other_member_fails() {
    let acts =
        [act(Verb::ReplaceDead, 2364961849155014778, 0), act(Verb::Check, 2840360701850079329, 0)];
    let fails = Trouble::Fails { member: 6, after: 133 };
    let scene = Scene { killed: 1, ..scene(fails, &acts) };
    holds(6401156, shape(2, 1, false), vec![scene]);
}

/// A backup loaded the index before a gc deleted packs, and read the steps of deletion when only the
/// tombstone was left: it relied on a chunk in a deleted pack.
#[test]
fn a_backup_relies_on_nothing_that_was_deleted_while_it_began() {
    let (kind, junk) = (ExtentKind::Gc, Junk::Empty);
    let junk = Trouble::Junk { member: 4, is_on_all: false, kind, junk, at: 0 };
    let acts = [act(Verb::Gc, 3310432650759694542, 0), act(Verb::Backup, 8060582811385229276, 0)];
    let scenes =
        vec![scene(junk, &acts), scene(Trouble::Nothing, &[act(Verb::Gc, 7795375465449686722, 0)])];
    holds(6401342, shape(2, 1, true), scenes);
}

/// A replacement was cut off after the label of the new member, and the store was opened through the
/// new member: a mark on all other members had too few votes.
#[test]
fn a_new_member_that_no_label_names_lowers_no_mark() {
    let seed = 13327373271518808297;
    let dies = Trouble::DiesBesideRot { member: 5, rotten: 2, seed };
    let cut = Cut { after: 1, kind: Some(ExtentKind::Forgotten) };
    let end = End::PowerCut(cut, 11549397094647324954);
    let replace = act(Verb::ReplaceDead, 3267417184706392473, 0);
    holds(6404994, shape(2, 1, false), vec![Scene { end, ..scene(dies, &[replace]) }]);
}

/// A rotation did not get its ring onto a full member. A later `key add` removed the earlier keys
/// from it, and nothing on it could be opened.
#[test]
fn a_full_member_keeps_the_keys_that_it_has() {
    let full = Trouble::Full { member: 5, bytes: 570 };
    let scenes = vec![
        scene(full, &[act(Verb::KeyRotate, 2233542238098715584, 0)]),
        scene(Trouble::Nothing, &[act(Verb::KeyAdd, 11525384317551747929, 0)]),
    ];
    holds(6514956, shape(2, 1, true), scenes);
}

/// A mark of format 1 that was put during an upgrade stayed under the name of the next mark, and no
/// process could forget the snapshot any more.
#[test]
fn a_mark_that_an_upgrade_left_behind_blocks_no_forget() {
    let scenes = vec![
        scene(Trouble::Nothing, &[act(Verb::KeyAdd, 14480346718578853801, 0)]),
        Scene {
            killed: 1,
            ..scene(
                Trouble::Nothing,
                &[
                    act(Verb::ForgetByRule, 14657005910376600745, 0),
                    act(Verb::Upgrade, 16139665526109024284, 0),
                ],
            )
        },
        scene(Trouble::Nothing, &[act(Verb::ForgetByRule, 12683475329564553360, 0)]),
    ];
    holds(7001299, Shape { origin: Origin::Old, ..shape(3, 1, true) }, scenes);
}

/// The only member of a store was replaced during a check, which found nothing any more and reported
/// that as losses.
#[test]
fn a_check_reports_no_loss_when_the_only_member_is_replaced() {
    let acts = [
        act(Verb::ReplaceLiving, 11338954765542996012, 0),
        act(Verb::Check, 15069070515688499257, 0),
        act(Verb::Undelete, 11598731559580014123, 0),
    ];
    holds(7006055, shape(1, 0, true), vec![scene(Trouble::Nothing, &acts)]);
}

/// A run of the index was merged into another one while a scrub looked for it on a member that had joined.
#[test]
fn a_scrub_passes_over_a_run_that_is_merged_meanwhile() {
    let acts = [
        act(Verb::Backup, 17928113256175559453, 0),
        act(Verb::MemberAdd, 14615910492898830834, 3),
        act(Verb::Scrub, 13951924969101505227, 5),
    ];
    let scenes = vec![
        scene(Trouble::Nothing, &[act(Verb::Backup, 7411919889917548372, 0)]),
        scene(Trouble::Nothing, &acts),
    ];
    holds(7508992, shape(5, 2, false), scenes);
}

/// A gc deleted a pack, and ended, between the repair's reading of the index and of the pack.
#[test]
fn a_repair_passes_over_a_pack_that_is_deleted_meanwhile() {
    let acts = [act(Verb::Repair, 17873748384097828008, 0), act(Verb::Gc, 8578975411116579875, 0)];
    let hangs = Trouble::Hangs { member: 4, after: 82 };
    holds(8019105, shape(5, 2, true), vec![scene(hangs, &acts)]);
}

/// A replacement was cut off when one label had the new table. Without this label the dead member counted
/// as absent again, and the store did not open, although a backup had ended well since.
#[test]
fn a_backup_finishes_a_replacement_that_was_cut_off_amid_the_labels() {
    let (shape, seed) = (shape(4, 1, true), 17673020479152118060);
    let replace = act(Verb::ReplaceDead, 18424024237645253134, 0);
    let backup = act(Verb::Backup, 13443696083220606486, 0);
    let cut = Cut { after: 1, kind: Some(ExtentKind::Checkpoints) };
    let end = End::PowerCut(cut, 392884331797016864);
    let dies = Trouble::DiesBesideRot { member: 6, rotten: 5, seed };
    holds(8361012, shape, vec![Scene { end, ..scene(dies, &[replace, backup]) }]);
    let end = End::PowerCut(Cut { after: 190, kind: None }, 392884331797016864);
    let cut_off = Scene { end, ..scene(Trouble::Dies { member: 2 }, &[replace]) };
    holds(8361012, shape, vec![cut_off.clone()]);
    holds(8361012, shape, vec![cut_off, scene(Trouble::Nothing, &[backup])]);
}

/// A gc deleted a snapshot while a scrub read its copies, and the third member failed.
#[test]
fn a_scrub_reports_no_loss_of_a_snapshot_that_is_deleted_meanwhile() {
    let acts = [act(Verb::Gc, 14131048168632541886, 0), act(Verb::Scrub, 3651942655734971506, 487)];
    let fails = Trouble::Fails { member: 2, after: 34 };
    holds(8357213, shape(3, 1, false), vec![scene(fails, &acts)]);
}

/// A rotation put its ring on one of two members, the other one was full. Then the first one fell silent,
/// and the new key was called wrong.
#[test]
fn a_key_whose_ring_is_on_a_member_that_hangs_is_not_called_wrong() {
    let full = Trouble::Full { member: 1, bytes: 560 };
    let hangs = Trouble::Hangs { member: 2, after: 21 };
    let scenes = vec![
        scene(full, &[act(Verb::KeyRotate, 2655648974650142170, 0)]),
        scene(hangs, &[act(Verb::Repair, 9246160388749798859, 0)]),
    ];
    holds(8202542, shape(2, 1, true), scenes);
}

/// A repair set aside two copies of a mark that a forget was putting; the forget saw that the mark
/// counted, and ended well with the mark on three of five members.
#[test]
fn a_forget_puts_the_copies_of_its_mark_again_that_a_repair_set_aside() {
    let acts = [
        act(Verb::Repair, 8124384817387942991, 0),
        act(Verb::Forget, 2372301548408484922, 18),
        act(Verb::Scrub, 8288506076417434075, 0),
    ];
    let backup = [act(Verb::Backup, 11207381825798024864, 0)];
    let scenes = vec![scene(Trouble::Nothing, &backup), scene(Trouble::Nothing, &acts)];
    holds(8400128, shape(5, 2, false), scenes);
}

/// A rotation put its ring on one of two members, the other one was full. An undelete put its mark on
/// both, with the new keys, and ended well; without the first member, nothing could verify the mark.
#[test]
fn what_is_done_after_a_rotation_met_a_full_member_survives_its_loss() {
    let rotate = act(Verb::KeyRotate, 18311954705207386966, 0);
    let undelete = act(Verb::Undelete, 1613959387293583312, 0);
    let scenes = vec![
        scene(Trouble::Full { member: 7, bytes: 681 }, &[rotate]),
        scene(Trouble::Nothing, &[undelete]),
    ];
    holds(8708391, shape(2, 1, true), scenes);
}

/// The power failed while a replacement was writing its second change of the table, which one label
/// had. The next process opened the store with the first change, and then took the second one for
/// the change of another process.
#[test]
fn a_change_of_the_members_that_does_not_count_stops_no_verb() {
    let merge = act(Verb::Merge, 1113307281368933105, 0);
    let replace = act(Verb::ReplaceDead, 12924069419427541409, 0);
    let cut = End::PowerCut(Cut { after: 60, kind: None }, 3825289593274290510);
    let hangs = scene(Trouble::Hangs { member: 5, after: 0 }, &[replace]);
    let scenes = vec![scene(Trouble::Nothing, &[merge]), Scene { end: cut, ..hangs }];
    holds(9402698, Shape { origin: Origin::Divided, ..shape(2, 1, false) }, scenes);
}

/// A member had no room for the snapshot that a merge copied, and the merge did not say that the other
/// member alone had it.
#[test]
fn a_merge_states_how_many_members_may_be_lost() {
    let divided = Shape { origin: Origin::Divided, ..shape(2, 1, true) };
    let full = Trouble::Full { member: 6, bytes: 206 };
    let scenes = vec![
        scene(Trouble::Nothing, &[act(Verb::Backup, 9457826502977130098, 0)]),
        scene(full, &[act(Verb::Merge, 10766063498096575691, 0)]),
    ];
    holds(9513150, divided, scenes);
    let acts = [
        act(Verb::ReplaceDead, 17175638955663480096, 0),
        act(Verb::Merge, 14730988454441677769, 0),
    ];
    let scenes = vec![
        scene(Trouble::Nothing, &[act(Verb::Backup, 9202490830599466549, 0)]),
        scene(Trouble::Dies { member: 4 }, &acts),
        scene(Trouble::Returns { member: 6, at: 31 }, &[act(Verb::Forget, 8015854660004305626, 0)]),
    ];
    holds(9515844, divided, scenes);
}

/// A forget put marks of the old format during an upgrade, and failed. Another forget found these
/// marks, and ended well; the upgrade passed over them.
#[test]
fn a_forget_does_not_rely_on_marks_that_an_upgrade_passes_over() {
    let acts = [
        act(Verb::Upgrade, 4173350311490213777, 0),
        act(Verb::ForgetByRule, 4321351949541463570, 15),
        act(Verb::ForgetByRule, 16601527591643313929, 20),
    ];
    let junk = Trouble::Junk {
        member: 7,
        is_on_all: false,
        kind: ExtentKind::Packs,
        junk: Junk::Empty,
        at: 0,
    };
    let scene = Scene { killed: 2, ..scene(junk, &acts) };
    holds(9601972, Shape { origin: Origin::Old, ..shape(3, 1, true) }, vec![scene]);
}

/// A member went away during a backup, which wrote its packs again without it; meanwhile an extent of
/// such a pack moved to a member that joined, and the backup reported the pack as lost.
#[test]
fn a_backup_reads_its_own_packs_from_a_member_that_joined() {
    let acts = [
        act(Verb::Backup, 15764405641362476872, 0),
        act(Verb::Forget, 9730060186201028804, 204),
        act(Verb::ReplaceLiving, 16651476591255096577, 1),
    ];
    let scenes = vec![scene(Trouble::Stale { member: 0, at: 64 }, &acts)];
    holds(9758102, shape(4, 1, true), scenes);
}

/// A backup wrote to a member after `member replace` had emptied it. The new member got a slot that
/// the backup had not written yet, and the slot of the old member was lost with it.
#[test]
fn what_a_backup_writes_to_a_replaced_member_goes_to_its_successor() {
    let acts = [
        act(Verb::ReplaceLiving, 11373412596438219353, 0),
        act(Verb::Resume, 6020756111382895460, 0),
    ];
    let dies = Trouble::Dies { member: 7 };
    let scenes = vec![
        scene(Trouble::Nothing, &acts),
        scene(dies, &[act(Verb::ReplaceDead, 12179250374900175133, 0)]),
    ];
    holds(9951114, shape(3, 1, true), scenes);
}
