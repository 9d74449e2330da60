//! Members join, leave, are replaced and share evenly, also when the power goes off meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinstripe::member::{Added, Rebalanced, RemoveOutcome, Replaced};
use pinstripe::{Store, gc, index, member, members};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_member::label::MemberState;
use pinstripe_member::record::RecordKind;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{ExtentKind, ExtentName, PowerCut, Steps};
use pinstripe_testing::every;

use pinstripe_sim::{
    Image, Ledger, Meanwhile, NoWait, Site, assert_whole, backup, check, limits, noise, repair,
    small_tree,
};
use pinstripe_sim::{Tree, look};

fn add(store: &mut Store, place: &Path) -> Result<Added> {
    member::add(store, place, true, &Ledger::new().monitor)
}

fn remove(store: &mut Store, number: usize) -> Result<RemoveOutcome> {
    member::remove(store, number, &limits(), &Ledger::new().monitor)
}

fn replace(store: &mut Store, number: usize, place: &Path) -> Result<Replaced> {
    member::replace(store, number, place, true, &limits(), &Ledger::new().monitor)
}

fn rebalance(store: &mut Store, dry_run: bool) -> Result<Rebalanced> {
    member::rebalance(store, dry_run, &limits(), &Ledger::new().monitor)
}

/// A store with a snapshot, and room for another member.
struct Bench {
    site: Site,
    snapshot: Snapshot,
    tree: Tree,
    new: PathBuf,
}

impl Bench {
    fn new(members: usize, parity: u8) -> Self {
        Bench::of(Site::new(members, parity))
    }

    fn of(site: Site) -> Self {
        small_tree(&site.source(), 1);
        let (snapshot, tree, new) = (site.save(), look(&site.source()), site.path("new"));
        Bench { site, snapshot, tree, new }
    }

    /// With a fourth member that has nothing of the packs yet.
    fn with_room() -> Self {
        let mut bench = Bench::new(3, 1);
        add(&mut bench.site.store(), &bench.new).unwrap();
        bench.site.members.push(bench.new.clone());
        bench
    }

    fn assert_sound(&self) {
        let store = self.site.store();
        assert_whole(&store);
        self.site.assert_restores(&store, &self.snapshot, &self.tree);
    }
}

/// Names of all extents of a member's packs and runs.
fn extents(store: &Store, number: usize) -> BTreeSet<ExtentName> {
    let member = store.member_slots[number].member.as_ref().unwrap();
    let list = |kind| {
        let listed = member.list(kind).unwrap();
        listed.into_iter().map(move |(id, _)| ExtentName::In(kind, id))
    };
    [ExtentKind::Packs, ExtentKind::Index].into_iter().flat_map(list).collect()
}

fn numbers(store: &Store) -> Vec<usize> {
    store.present().map(|(number, _)| number).collect()
}

#[test]
fn a_new_member_is_written_to_at_once_and_carries_its_part() {
    let bench = Bench::new(2, 1);
    let added = add(&mut bench.site.store(), &bench.new).unwrap();
    assert_eq!((added.member, added.data), (2, 2));
    assert_eq!(added.copied_objects, 3, "a ring, a slot and a snapshot");
    bench.assert_sound();
    // Once more: nothing to do.
    assert_eq!(add(&mut bench.site.store(), &bench.new).unwrap().copied_objects, 0);
    small_tree(&bench.site.source(), 2);
    let (second, tree) = (bench.site.save(), look(&bench.site.source()));
    let mut store = bench.site.store();
    assert!(!extents(&store, 2).is_empty());
    // Packs of before and of now, whichever member is away.
    let aside = bench.site.path("aside");
    for number in 0..3 {
        let place = store.member_slots[number].place.clone();
        fs::rename(&place, &aside).unwrap();
        store = bench.site.store_through(usize::from(number == 0));
        bench.site.assert_restores(&store, &bench.snapshot, &bench.tree);
        bench.site.assert_restores(&store, &second, &tree);
        fs::rename(&aside, &place).unwrap();
        store = bench.site.store();
    }
}

#[test]
fn a_directory_that_will_not_do_is_refused_and_nothing_changes() {
    let bench = Bench::new(2, 1);
    let before = bench.site.image();
    let refused = |place: &Path, same_disk| {
        let mut store = bench.site.store();
        member::add(&mut store, place, same_disk, &Ledger::new().monitor).unwrap_err()
    };
    assert_eq!(refused(&bench.new, false).kind(), Kind::Refused, "a shared disk");
    assert_eq!(refused(&bench.site.source(), true).kind(), Kind::Refused, "not empty");
    assert_eq!(refused(&bench.site.members[0].join("packs"), true).kind(), Kind::Usage, "nested");
    let other = Site::new(1, 0);
    assert_eq!(refused(&other.members[0], true).kind(), Kind::Refused, "another store's");
    assert!(bench.site.image() == before);
}

#[test]
fn a_removed_member_is_emptied_and_not_taken_when_it_is_seen_again() {
    let bench = Bench::with_room();
    let held = extents(&bench.site.store(), 1);
    let removed = remove(&mut bench.site.store(), 1).unwrap();
    assert_eq!((removed.moved.moved_extents, removed.members), (held.len() as u64, 3));
    for through in [0, 2, 3] {
        let store = bench.site.store_through(through);
        assert_eq!((numbers(&store), store.absent().count()), (vec![0, 2, 3], 0));
        assert_eq!(extents(&store, 3), held);
    }
    bench.assert_sound();
    let error = bench.site.open(1, "", Arc::new(NoWait)).err().unwrap();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.to_string().contains("member 1 was removed from the store"), "{error}");
    // It keeps small objects that may have been deleted since: it joins again only when it was emptied.
    let error = add(&mut bench.site.store(), &bench.site.members[1]).unwrap_err();
    assert_eq!(error.kind(), Kind::Refused);
    fs::remove_dir_all(&bench.site.members[1]).unwrap();
    assert_eq!(add(&mut bench.site.store(), &bench.site.members[1]).unwrap().member, 4);
    bench.assert_sound();
}

#[test]
fn a_member_that_leaves_stays_when_it_is_added_again() {
    let bench = Bench::with_room();
    let power = Arc::new(PowerCut::new(45));
    remove(&mut bench.site.open_doomed(0, "", power).unwrap(), 1).unwrap_err();
    assert_eq!(bench.site.store().state(1), Some(MemberState::Leaving));
    assert_eq!(bench.site.store().takers().iter().flatten().count(), 3);
    assert_eq!(add(&mut bench.site.store(), &bench.site.members[1]).unwrap().data, 3);
    assert_eq!(bench.site.store().state(1), Some(MemberState::Active));
    bench.assert_sound();
}

#[test]
fn sets_over_all_members_are_laid_anew_over_those_that_remain() {
    let bench = Bench::new(4, 1);
    let before = bench.site.image();
    let mut locked = bench.site.locked_store();
    assert_eq!(remove(&mut locked, 1).unwrap_err().kind(), Kind::Locked);
    assert_eq!(remove(&mut bench.site.store(), 7).unwrap_err().kind(), Kind::Usage);
    assert!(bench.site.image() == before);
    let removed = remove(&mut bench.site.store(), 1).unwrap();
    assert_eq!(removed.members, 3);
    let store = bench.site.store();
    assert_eq!((numbers(&store), store.geometry().unwrap().data()), (vec![0, 2, 3], 2));
    bench.assert_sound();
    // Once more, down to two: data and its mirror.
    assert_eq!(remove(&mut bench.site.store(), 2).unwrap().members, 2);
    bench.assert_sound();
    let error = remove(&mut bench.site.store(), 3).unwrap_err();
    assert_eq!(error.kind(), Kind::TooManyLosses);
}

/// What a forgotten snapshot needs was left out when its packs were laid anew, and it could be
/// brought back all the same, with holes.
#[test]
fn a_forgotten_snapshot_can_be_brought_back_after_its_packs_were_laid_anew() {
    let bench = Bench::new(3, 1);
    fs::remove_file(bench.site.source().join("noise")).unwrap();
    fs::remove_file(bench.site.source().join("d/again")).unwrap();
    bench.site.save();
    crate::gc::forget_one(&bench.site.store(), &bench.snapshot);
    remove(&mut bench.site.store(), 1).unwrap();
    let store = bench.site.store();
    let name = bench.snapshot.id.to_string();
    pinstripe::forget::undelete(&store, &name, &Ledger::new().monitor).unwrap();
    bench.assert_sound();
}

/// The place that a lost extent left free was given to another one of its set. No repair could
/// bring the lost one back then: there was no member for it.
#[test]
fn what_is_missing_takes_no_place_from_what_moves() {
    let bench = Bench::new(3, 1);
    let store = bench.site.store();
    let set = store.list(ExtentKind::Packs).unwrap().into_keys().next().unwrap();
    fs::remove_file(bench.site.members[0].join(ExtentName::In(ExtentKind::Packs, set).path()))
        .unwrap();
    remove(&mut bench.site.store(), 1).unwrap();
    pinstripe_sim::repair(&mut bench.site.store(), &Ledger::new());
    bench.assert_sound();
}

/// Nothing of the set was on the member that left, so nothing said that it had become too wide.
#[test]
fn a_pack_that_the_removed_member_lacks_is_laid_anew_over_the_others() {
    let bench = Bench::new(4, 1);
    for set in bench.site.store().list(ExtentKind::Packs).unwrap().into_keys() {
        fs::remove_file(bench.site.members[3].join(ExtentName::In(ExtentKind::Packs, set).path()))
            .unwrap();
    }
    remove(&mut bench.site.store(), 3).unwrap();
    bench.assert_sound();
    let mut options = crate::gc::options();
    options.max_waste = 1.0;
    let done = gc::run(&bench.site.store(), &options, &Ledger::new().monitor).unwrap();
    assert_eq!(done.repacked_packs, 0, "nothing is left to lay anew");
}

#[test]
fn a_member_joins_when_too_few_are_left_for_new_packs() {
    let bench = Bench::new(3, 2);
    let aside = bench.site.path("aside");
    fs::create_dir(&aside).unwrap();
    for number in [1, 2] {
        fs::rename(&bench.site.members[number], aside.join(number.to_string())).unwrap();
    }
    let added = add(&mut bench.site.store(), &bench.new).unwrap();
    assert_eq!((added.member, added.data), (3, 0));
}

#[test]
fn nothing_is_begun_when_it_cannot_end() {
    let bench = Bench::new(3, 1);
    let one = Bench::new(1, 0);
    assert_eq!(remove(&mut one.site.store(), 0).unwrap_err().kind(), Kind::TooManyLosses);
    // Sets can be laid anew only when all are there; one that is absent is replaced, not removed.
    let bare = Bench::new(4, 1);
    fs::rename(&bare.site.members[3], bare.site.path("aside")).unwrap();
    let before = bare.site.image();
    let error = remove(&mut bare.site.store(), 1).unwrap_err();
    assert_eq!(error.kind(), Kind::Refused, "{error}");
    assert!(bare.site.image() == before);
    fs::rename(&bench.site.members[1], bench.site.path("aside")).unwrap();
    let error = remove(&mut bench.site.store(), 1).unwrap_err();
    assert_eq!(error.kind(), Kind::Refused);
    assert!(error.advice_text().unwrap().contains("replace 1"), "{error:?}");
}

#[test]
fn a_member_is_replaced_whether_it_is_there_or_not() {
    for is_present in [true, false] {
        let bench = Bench::new(3, 1);
        let held = extents(&bench.site.store(), 1);
        let aside = bench.site.path("aside");
        if !is_present {
            fs::rename(&bench.site.members[1], &aside).unwrap();
        }
        let done = replace(&mut bench.site.store(), 1, &bench.new).unwrap();
        let count = held.len() as u64;
        let (moved, rebuilt) = if is_present { (count, 0) } else { (0, count) };
        assert_eq!((done.replaced_by, done.lost_extents), (3, 0));
        assert_eq!((done.moved.moved_extents, done.rebuilt_extents), (moved, rebuilt));
        if !is_present {
            fs::rename(&aside, &bench.site.members[1]).unwrap();
        }
        let store = bench.site.store();
        assert_eq!((numbers(&store), extents(&store, 3)), (vec![0, 2, 3], held));
        bench.assert_sound();
    }
}

#[test]
fn what_a_member_that_is_replaced_lacks_is_rebuilt() {
    let bench = Bench::new(3, 1);
    let held = extents(&bench.site.store(), 1);
    for kind in ["packs", "index"] {
        fs::remove_dir_all(bench.site.members[1].join(kind)).unwrap();
    }
    let done = replace(&mut bench.site.store(), 1, &bench.new).unwrap();
    assert_eq!((done.moved.moved_extents, done.lost_extents), (0, 0));
    assert_eq!(done.rebuilt_extents, held.len() as u64);
    assert_eq!(extents(&bench.site.store(), 3), held);
    bench.assert_sound();
}

/// Damages the same row of a pack on some members.
fn hurt(bench: &Bench, members: &[usize]) {
    hurt_pack(bench, 0, members);
}

/// The place of a pack of content among all packs. A page of a tree also has the metadata of the
/// directories above the source, which change, so that it is not made again.
fn content_pack(bench: &Bench) -> usize {
    let store = bench.site.store();
    let mut packs = store.list(ExtentKind::Packs).unwrap().into_keys();
    let is_content = |set| {
        let index = index::read_pack_index(&store, SetId(set)).unwrap();
        index.records.iter().all(|record| record.kind == RecordKind::Data)
    };
    packs.position(is_content).unwrap()
}

fn hurt_pack(bench: &Bench, number: usize, members: &[usize]) {
    let set = bench.site.store().list(ExtentKind::Packs).unwrap().into_keys().nth(number).unwrap();
    for member in members {
        let path = bench.site.members[*member].join(ExtentName::In(ExtentKind::Packs, set).path());
        let mut bytes = fs::read(&path).unwrap();
        bytes[4096..4200].fill(7);
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn damage_on_the_way_is_mended_and_what_nothing_can_mend_goes_as_it_is() {
    let bench = Bench::with_room();
    hurt(&bench, &[1]);
    remove(&mut bench.site.store(), 1).unwrap();
    bench.assert_sound();
    let bench = Bench::with_room();
    hurt(&bench, &[0, 1]);
    let ledger = Ledger::new();
    let before = check(&bench.site.store(), true, &Ledger::new()).lost;
    member::remove(&mut bench.site.store(), 1, &limits(), &ledger.monitor).unwrap();
    assert_eq!(ledger.warnings().len(), 1, "{:?}", ledger.seen());
    assert_eq!(check(&bench.site.store(), true, &Ledger::new()).lost, before);
}

/// One dead disk and one rotten strip left a store that no verb could make whole, and that did not open
/// when the next disk died.
#[test]
fn a_member_is_replaced_although_a_row_is_lost_and_the_next_backup_stores_it_again() {
    let bench = Bench::new(4, 1);
    let site = &bench.site;
    hurt_pack(&bench, content_pack(&bench), &[1]);
    fs::remove_dir_all(&site.members[2]).unwrap();
    let ledger = Ledger::new();
    let mut store = site.store();
    let done =
        member::replace(&mut store, 2, &bench.new, true, &limits(), &ledger.monitor).unwrap();
    drop(store);
    assert!(done.lost_extents == 1 && done.given_up_chunks > 0, "{done:?}");
    assert!(
        ledger.losses().iter().all(|seen| seen.place.to_string_lossy().starts_with("snapshot ")),
        "{:#?}",
        ledger.seen()
    );
    assert_eq!(numbers(&site.store()), [0, 1, 3, 4]);
    // Everything that is left has its parity.
    let found = check(&site.store(), true, &Ledger::new());
    assert_eq!((found.repairable, found.lost), (0, 0), "{found:?}");
    assert!(found.hurt_paths > 0, "{found:?}");
    // The sources still have it: the snapshot is whole again.
    let again = backup(&site.store(), &site.source(), &Ledger::new()).unwrap();
    assert_whole(&site.store());
    let aside = site.path("aside");
    for place in [&site.members[0], &site.members[1], &site.members[3], &bench.new] {
        fs::rename(place, &aside).unwrap();
        let through = if *place == site.members[0] { 1 } else { 0 };
        let store = site.store_through(through);
        site.assert_restores(&store, &bench.snapshot, &bench.tree);
        site.assert_restores(&store, &again, &bench.tree);
        fs::rename(&aside, place).unwrap();
    }
}

/// Every kind of row may be the one that is lost: of content, of trees, of a pack's index.
#[test]
fn whichever_pack_lost_a_row_there_is_a_way_to_a_whole_store() {
    let packs = Bench::new(4, 1).site.store().list(ExtentKind::Packs).unwrap().len();
    for number in 0..packs {
        let bench = Bench::new(4, 1);
        let site = &bench.site;
        fs::remove_dir_all(&site.members[2]).unwrap();
        hurt_pack(&bench, number, &[1]);
        replace(&mut site.store(), 2, &bench.new).unwrap();
        let again = backup(&site.store(), &site.source(), &Ledger::new()).unwrap();
        site.assert_restores(&site.store(), &again, &bench.tree);
        // A lost page of the older tree lists directories above the source that have changed since.
        if check(&site.store(), true, &Ledger::new()).hurt_snapshots > 0 {
            crate::gc::forget_one(&site.store(), &bench.snapshot);
            crate::gc::collect_with(&site.store());
        }
        assert_whole(&site.store());
        site.assert_restores(&site.store(), &again, &bench.tree);
    }
}

/// A repair alone gives up what two rotten strips of one row cost, without a dead disk.
#[test]
fn what_repair_cannot_bring_back_is_stored_again_by_the_next_backup() {
    let bench = Bench::new(4, 1);
    let site = &bench.site;
    hurt_pack(&bench, content_pack(&bench), &[0, 1]);
    let ledger = Ledger::new();
    let done = pinstripe::repair::run(&mut site.store(), limits(), &ledger.monitor).unwrap();
    assert!(done.given_up_chunks > 0 && !ledger.losses().is_empty(), "{done:?}");
    backup(&site.store(), &site.source(), &Ledger::new()).unwrap();
    assert_whole(&site.store());
    site.assert_restores(&site.store(), &bench.snapshot, &bench.tree);
}

/// While a member is absent, what it has may complete a row: nothing is given up.
#[test]
fn nothing_is_given_up_while_a_member_is_absent() {
    let bench = Bench::new(4, 1);
    let site = &bench.site;
    let (aside, damaged) = (site.path("aside"), site.image());
    hurt(&bench, &[1]);
    fs::rename(&site.members[2], &aside).unwrap();
    let done = repair(&mut site.store(), &Ledger::new());
    assert_eq!(done.given_up_chunks, 0, "{done:?}");
    fs::rename(&aside, &site.members[2]).unwrap();
    repair(&mut site.store(), &Ledger::new());
    assert_whole(&site.store());
    assert!(site.image().0.len() >= damaged.0.len());
    site.assert_restores(&site.store(), &bench.snapshot, &bench.tree);
}

/// After extents have moved, the slot of a member's number may be on an absent one: `check` named
/// members that lacked nothing.
#[test]
fn check_names_no_member_as_damaged_for_what_an_absent_one_has() {
    let mut bench = Bench::with_room();
    let aside = bench.site.path("aside");
    fs::rename(&bench.site.members[3], &aside).unwrap();
    for seed in 0..6 {
        fs::write(bench.site.source().join(format!("more{seed}")), noise(seed + 9, 30_000))
            .unwrap();
        backup(&bench.site.store(), &bench.site.source(), &Ledger::new()).unwrap();
    }
    fs::rename(&aside, &bench.site.members[3]).unwrap();
    repair(&mut bench.site.store(), &Ledger::new());
    assert!(rebalance(&mut bench.site.store(), false).unwrap().moved.moved_extents > 0);
    for away in 0..4 {
        fs::rename(&bench.site.members[away], &aside).unwrap();
        let ledger = Ledger::new();
        check(&bench.site.store_through((away + 1) % 4), true, &ledger);
        let place = &bench.site.members[away];
        let blamed: Vec<_> =
            ledger.warnings().into_iter().filter(|seen| !seen.place.starts_with(place)).collect();
        assert!(blamed.is_empty(), "{away}: {blamed:#?}");
        fs::rename(&aside, &bench.site.members[away]).unwrap();
    }
    bench.site.members.pop();
}

#[test]
fn rebalance_spreads_what_is_there_and_a_dry_run_only_says_so() {
    let mut bench = Bench::with_room();
    for seed in 0..6 {
        fs::write(bench.site.source().join(format!("more{seed}")), noise(seed + 9, 30_000))
            .unwrap();
        let aside = bench.site.path("aside");
        // Packs over three of the four, so that sets have free members.
        fs::rename(&bench.site.members[3], &aside).unwrap();
        bench.snapshot = backup(&bench.site.store(), &bench.site.source(), &Ledger::new()).unwrap();
        bench.tree = look(&bench.site.source());
        fs::rename(&aside, &bench.site.members[3]).unwrap();
    }
    pinstripe::repair::run(&mut bench.site.store(), limits(), &Ledger::new().monitor).unwrap();
    let before = bench.site.image();
    let planned = rebalance(&mut bench.site.store(), true).unwrap();
    assert!(planned.moved.moved_extents > 3, "{planned:?}");
    assert!(bench.site.image() == before, "a dry run changes nothing");
    let done = rebalance(&mut bench.site.store(), false).unwrap();
    assert_eq!((done.moved, &done.shares), (planned.moved, &planned.shares));
    bench.assert_sound();
    let again = rebalance(&mut bench.site.store(), false).unwrap();
    assert_eq!(again.moved.moved_extents, 0);
    assert!(again.shares.iter().all(|share| share.after_bytes > 0));

    // An extent that stands twice goes, once.
    let set = bench.site.store().list(ExtentKind::Packs).unwrap().into_iter();
    let (id, holders) = set.into_iter().find(|(_, holders)| holders.len() == 3).unwrap();
    let free = (0..4).find(|number| !holders.contains(number)).unwrap();
    let path = |number: usize| {
        bench.site.members[number].join(ExtentName::In(ExtentKind::Packs, id).path())
    };
    fs::create_dir_all(path(free).parent().unwrap()).unwrap();
    fs::copy(path(holders[1]), path(free)).unwrap();
    assert_eq!(rebalance(&mut bench.site.store(), false).unwrap().moved.removed_copies, 1);
    assert_eq!(bench.site.store().list(ExtentKind::Packs).unwrap()[&id].len(), 3);
    bench.assert_sound();
}

#[test]
fn the_store_is_used_while_a_member_leaves() {
    let bench = Bench::with_room();
    let image = bench.site.image();
    let steps = count_steps(|steps| {
        remove(&mut bench.site.open(0, "", steps).unwrap(), 1).unwrap();
    });
    for cut in (0..steps).step_by(7) {
        bench.site.put_image(&image);
        // The reader and the writer opened the store before any of it.
        let (reader, writer) = (bench.site.store(), bench.site.store());
        let power = Arc::new(PowerCut::new(cut));
        let removed = remove(&mut bench.site.open_doomed(0, "", power).unwrap(), 1);
        assert!(removed.is_err() || bench.site.store().state(1).is_none(), "cut {cut}");
        bench.site.assert_restores(&reader, &bench.snapshot, &bench.tree);
        fs::write(bench.site.source().join("later"), noise(cut + 50, 9000)).unwrap();
        let saved = backup(&writer, &bench.site.source(), &Ledger::new());
        let wanted = look(&bench.site.source());
        fs::remove_file(bench.site.source().join("later")).unwrap();
        // It may come too late, but then it says so.
        let saved = match saved {
            Err(error) => {
                assert_eq!(error.kind(), Kind::Busy, "cut {cut}: {error}");
                None
            }
            Ok(saved) => Some(saved),
        };
        remove_to_the_end(&bench, cut);
        let store = bench.site.store();
        if let Some(saved) = saved {
            bench.site.assert_restores(&store, &saved, &wanted);
            let ledger = Ledger::new();
            assert_eq!(check(&store, true, &ledger).lost, 0, "cut {cut}");
        }
        // A writer that opened it before the member had gone can no longer commit.
        let error = backup(&writer, &bench.site.source(), &Ledger::new()).unwrap_err();
        assert_eq!(error.kind(), Kind::Busy, "cut {cut}: {error}");
        bench.site.assert_restores(&reader, &bench.snapshot, &bench.tree);
    }
}

/// One member lacks its extents, and is away afterwards: as when a disk begins to fail and then
/// does. What `act` moved meanwhile must not have been put on it.
fn fails_after(mut bench: Bench, act: impl FnOnce(&mut Store)) {
    for name in extents(&bench.site.store(), 0) {
        if matches!(name, ExtentName::In(ExtentKind::Packs, _)) {
            fs::remove_file(bench.site.members[0].join(name.path())).unwrap();
        }
    }
    act(&mut bench.site.store());
    fs::rename(&bench.site.members[0], bench.site.path("away")).unwrap();
    bench.site.members.remove(0);
    let (store, ledger) = (bench.site.store(), Ledger::new());
    check(&store, true, &ledger);
    ledger.assert_no_losses();
    bench.site.assert_restores(&store, &bench.snapshot, &bench.tree);
}

#[test]
fn rebalance_moves_nothing_of_a_set_onto_the_member_that_lacks_its_part() {
    fails_after(Bench::new(3, 1), |store| {
        let ledger = Ledger::new();
        let done = member::rebalance(store, false, &limits(), &ledger.monitor).unwrap();
        assert_eq!(done.moved.moved_extents, 0, "{done:?}");
        let told = ledger.warnings();
        assert!(
            told.iter()
                .any(|seen| seen.text.contains("an extent, so not all extents can be moved")),
            "{told:?}"
        );
    });
}

#[test]
fn remove_moves_nothing_of_a_set_onto_the_member_that_lacks_its_part() {
    fails_after(Bench::with_room(), |store| {
        remove(store, 2).unwrap();
    });
}

fn remove_to_the_end(bench: &Bench, cut: u64) {
    let mut store = bench.site.store();
    if store.state(1).is_none() {
        return;
    }
    // A pack of four that was written meanwhile is laid anew.
    remove(&mut store, 1).unwrap_or_else(|error| panic!("cut {cut}: {error}"));
}

fn count_steps(work: impl FnOnce(Arc<dyn Steps>)) -> u64 {
    let counter = Arc::new(PowerCut::new(u64::MAX));
    work(Arc::clone(&counter) as Arc<dyn Steps>);
    counter.steps_done()
}

/// Cuts a verb off at every step; nothing is lost, and running it again ends it.
fn survives(bench: &Bench, image: &Image, least: u64, verb: impl Fn(&mut Store) -> Result<()>) {
    let run = |steps| verb(&mut bench.site.open_doomed(0, "", steps).unwrap());
    bench.site.put_image(image);
    let steps = count_steps(|steps| run(steps).unwrap());
    assert!(steps > least, "{steps}");
    for cut in (0..=steps).step_by(every(5)) {
        bench.site.put_image(image);
        let power = Arc::new(PowerCut::new(cut));
        let done = run(Arc::clone(&power) as Arc<dyn Steps>);
        power.after_power_cut(cut * 7919).unwrap();
        let ledger = Ledger::new();
        let found = check(&bench.site.store(), true, &ledger);
        ledger.assert_no_losses();
        assert_eq!((found.lost, found.hurt_paths), (0, 0), "cut {cut}");
        if done.is_err() {
            match run(Arc::new(NoWait)) {
                Ok(()) => {}
                // Everything that counts had already been done.
                Err(error) if error.kind() == Kind::Usage => {}
                Err(error) => panic!("cut {cut}: {error}"),
            }
        }
        let store = bench.site.store();
        assert_eq!(store.absent().count(), 0, "cut {cut}");
        // Packs that were cut off while they were sealed are gc's to remove.
        crate::gc::collect_with(&store);
        assert_whole(&store);
        if cut % 15 == 0 {
            bench.site.assert_restores(&store, &bench.snapshot, &bench.tree);
        }
    }
}

#[test]
fn an_add_cut_off_at_any_step_goes_on() {
    let mut bench = Bench::new(2, 1);
    bench.site.members.push(bench.new.clone());
    let image = bench.site.image();
    survives(&bench, &image, 10, |store| add(store, &bench.new).map(drop));
    assert_eq!(numbers(&bench.site.store()), [0, 1, 2]);
}

#[test]
fn a_remove_cut_off_at_any_step_goes_on() {
    let bench = Bench::with_room();
    let image = bench.site.image();
    survives(&bench, &image, 20, |store| remove(store, 1).map(drop));
    assert_eq!(numbers(&bench.site.store()), [0, 2, 3]);
}

#[test]
fn a_remove_that_lays_sets_anew_cut_off_at_any_step_goes_on() {
    let bench = Bench::new(3, 1);
    let image = bench.site.image();
    survives(&bench, &image, 100, |store| remove(store, 1).map(drop));
    assert_eq!(numbers(&bench.site.store()), [0, 2]);
}

#[test]
fn a_replace_cut_off_at_any_step_goes_on() {
    for is_present in [true, false] {
        let mut bench = Bench::new(3, 1);
        bench.site.members.push(bench.new.clone());
        let mut image = bench.site.image();
        if !is_present {
            let gone = bench.site.members.remove(1);
            image.0.retain(|path, _| !path.starts_with(&gone));
            fs::remove_dir_all(gone).unwrap();
        }
        survives(&bench, &image, 20, |store| replace(store, 1, &bench.new).map(drop));
        assert_eq!(numbers(&bench.site.store()), [0, 2, 3]);
    }
}

#[test]
fn only_one_process_moves_extents_at_a_time() {
    let bench = Bench::with_room();
    let before = bench.site.image();
    let claim = bench.site.store().claim().unwrap();
    let new = bench.site.path("newer");
    let mut store = bench.site.store();
    let busy = [
        remove(&mut store, 1).err(),
        replace(&mut store, 1, &new).err(),
        add(&mut store, &new).err(),
        rebalance(&mut store, false).err(),
        store.claim().err(),
        pinstripe::repair::run(&mut store, limits(), &Ledger::new().monitor).err(),
    ];
    for error in busy {
        assert_eq!(error.unwrap().kind(), Kind::Busy);
    }
    rebalance(&mut store, true).unwrap();
    // A process that opened the store before another one changed the members opens it again.
    bench.site.store().change_table(&claim, |_| ()).unwrap();
    drop(claim);
    assert_eq!(remove(&mut store, 1).unwrap_err().kind(), Kind::Busy);
    let labels = |path: &PathBuf| path.ends_with("pinstripe.member");
    let files = |image: Image| image.0.into_iter().filter(|(path, _)| !labels(path));
    assert!(files(bench.site.image()).eq(files(before)), "nothing was begun");
    remove(&mut bench.site.store(), 1).unwrap();
    bench.assert_sound();
}

#[test]
fn the_claim_of_a_process_that_is_gone_is_taken_over() {
    let bench = Bench::with_room();
    let store = bench.site.open_doomed(0, "", Arc::new(NoWait)).unwrap();
    let claim = store.claim().unwrap();
    claim.confirm().unwrap();
    remove(&mut bench.site.store(), 1).unwrap();
    // Should it be alive after all, it stops.
    assert_eq!(claim.confirm().unwrap_err().kind(), Kind::Busy);
    bench.assert_sound();
}

/// A mover that was stopped for long between its look and its removal took away what another had
/// moved meanwhile.
#[test]
fn a_mover_whose_claim_was_ended_removes_nothing() {
    let bench = Bench::with_room();
    let packs = || {
        let held = extents(&bench.site.store(), 1).into_iter();
        held.filter(|name| matches!(name, ExtentName::In(ExtentKind::Packs, _))).collect::<Vec<_>>()
    };
    let (held, members) = (packs(), bench.site.members.clone());
    let meanwhile = Meanwhile::new("packs", move || {
        for member in &members {
            fs::remove_dir_all(member.join("sessions")).unwrap();
            fs::create_dir(member.join("sessions")).unwrap();
        }
    });
    let mut mover = bench.site.open(0, "", meanwhile).unwrap();
    assert_eq!(remove(&mut mover, 1).unwrap_err().kind(), Kind::Busy);
    assert_eq!(packs(), held);
    remove(&mut bench.site.store(), 1).unwrap();
    bench.assert_sound();
}

/// Two changes of the table within milliseconds: one that brought labels up to date put an earlier
/// table over a later one.
#[test]
fn an_earlier_table_is_never_written_over_a_later_one() {
    let mut bench = Bench::new(3, 1);
    let moved = bench.site.path("moved");
    fs::rename(&bench.site.members[2], &moved).unwrap();
    bench.site.members[2] = moved;
    let late = bench.site.store_through(2);
    assert_eq!(late.moved.len(), 1);
    let mut first = bench.site.store_through(2);
    let claim = first.claim().unwrap();
    first.change_table(&claim, |table| table.rows[1].state = MemberState::Leaving).unwrap();
    assert_eq!(late.write_labels().unwrap_err().kind(), Kind::Busy);
    drop(claim);
    assert_eq!(late.write_labels().unwrap_err().kind(), Kind::Busy);
    let store = bench.site.store();
    assert_eq!(store.state(1), Some(MemberState::Leaving));
    assert_whole(&store);
}

#[test]
fn a_new_member_on_the_disk_of_one_that_stays_is_refused() {
    let replace = |bench: &Bench, number| {
        let (mut store, ledger) = (bench.site.store(), Ledger::new());
        member::replace(&mut store, number, &bench.new, false, &limits(), &ledger.monitor)
    };
    let bench = Bench::new(3, 1);
    let before = bench.site.image();
    assert_eq!(replace(&bench, 1).unwrap_err().kind(), Kind::Refused);
    assert!(bench.site.image() == before && !bench.new.exists());
    // Only the one that leaves is there.
    let alone = Bench::new(1, 0);
    assert_eq!(replace(&alone, 0).unwrap().replaced_by, 1);
}

/// The index run of a backup that came too late to commit spoke of packs without the slot that it
/// had laid on the member that left, and the next backup relied on them.
#[test]
fn a_backup_after_one_that_came_too_late_bears_the_loss_of_a_member() {
    let bench = Bench::with_room();
    let late = bench.site.store();
    remove(&mut bench.site.store(), 1).unwrap();
    fs::write(bench.site.source().join("later"), noise(77, 90_000)).unwrap();
    let error = backup(&late, &bench.site.source(), &Ledger::new()).unwrap_err();
    assert_eq!(error.kind(), Kind::Busy);
    let ledger = Ledger::new();
    let saved = backup(&bench.site.store(), &bench.site.source(), &ledger).unwrap();
    ledger.assert_no_losses();
    let (tree, aside) = (look(&bench.site.source()), bench.site.path("aside"));
    for member in [0, 2, 3] {
        fs::rename(&bench.site.members[member], &aside).unwrap();
        let store = bench.site.store_through(if member == 0 { 2 } else { 0 });
        bench.site.assert_restores(&store, &saved, &tree);
        fs::rename(&aside, &bench.site.members[member]).unwrap();
    }
}

/// The change of the table that removes a dead member was cut off after the first label, and the backup
/// after it ended well. Without the member with this label the dead one counted again: the store did not
/// open.
#[test]
fn a_backup_after_a_replacement_that_was_cut_off_bears_the_loss_of_a_member() {
    for site in [Site::new(4, 1), Site::clear(4, 1)] {
        let mut bench = Bench::of(site);
        let gone = bench.site.members.remove(1);
        fs::remove_dir_all(gone).unwrap();
        bench.site.members.push(bench.new.clone());
        bears_a_loss_after(&bench, |store| replace(store, 1, &bench.new).map(drop));
    }
}

/// In a plain store the earlier table got the votes again, and the new member was no member any more.
#[test]
fn a_backup_after_an_addition_that_was_cut_off_bears_the_loss_of_a_member() {
    for site in [Site::new(4, 1), Site::clear(4, 1)] {
        let mut bench = Bench::of(site);
        bench.site.members.push(bench.new.clone());
        bears_a_loss_after(&bench, |store| add(store, &bench.new).map(drop));
    }
}

/// Cuts a verb off at each of its last steps, which change the table. Of a store that opens without
/// an absent member, each member may be lost as far as it is stated, and at any rate after a backup.
fn bears_a_loss_after(bench: &Bench, verb: impl Fn(&mut Store) -> Result<()>) {
    let image = bench.site.image();
    let run = |steps| {
        bench.site.put_image(&image);
        verb(&mut bench.site.open_doomed(0, "", steps).unwrap())
    };
    let steps = count_steps(|steps| run(steps).unwrap());
    let mut cut_off = 0;
    for cut in steps.saturating_sub(40)..steps {
        let power = Arc::new(PowerCut::new(cut));
        let done = run(Arc::clone(&power) as Arc<dyn Steps>);
        power.after_power_cut(cut * 7919).unwrap();
        let store = bench.site.store();
        if store.absent().next().is_some() || store.present().count() < bench.site.members.len() {
            continue;
        }
        cut_off += u64::from(done.is_err());
        let stated = members::redundancy(&store, &Ledger::new().monitor).unwrap().unwrap();
        if stated.survives > 0 {
            assert_each_may_be_lost(&bench.site, &bench.snapshot, &bench.tree, cut);
        }
        fs::write(bench.site.source().join("later"), noise(cut, 90_000)).unwrap();
        let ledger = Ledger::new();
        let saved = backup(&store, &bench.site.source(), &ledger).unwrap();
        ledger.assert_clean();
        assert_eq!(ledger.monitor.redundancy().map(|it| it.survives), Some(1), "cut {cut}");
        assert_each_may_be_lost(&bench.site, &saved, &look(&bench.site.source()), cut);
        fs::remove_file(bench.site.source().join("later")).unwrap();
    }
    assert!(cut_off > 5, "{cut_off} steps are within the change of the table");
}

fn assert_each_may_be_lost(site: &Site, snapshot: &Snapshot, tree: &Tree, cut: u64) {
    let aside = site.path("aside");
    for (number, member) in site.members.iter().enumerate() {
        fs::rename(member, &aside).unwrap();
        let store = site.open(usize::from(number == 0), "", Arc::new(NoWait));
        let store = store.unwrap_or_else(|error| panic!("cut {cut}, without {number}: {error}"));
        site.assert_restores(&store, snapshot, tree);
        fs::rename(&aside, member).unwrap();
    }
}
