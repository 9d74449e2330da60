//! Members come and go: labels agree on who is one, and new sets lie over those that are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pinstripe::index::{geometry_of, sets_in};
use pinstripe::{Store, scrub};
use pinstripe_base::error::Kind;
use pinstripe_member::ExtentKind;

use pinstripe_sim::look;
use pinstripe_sim::{
    Ledger, Site, assert_whole, backup, check, limits, repair, replace, small_tree,
};

/// Data strips of the packs, each number once.
fn widths(store: &Store) -> BTreeSet<usize> {
    let packs = sets_in(store, ExtentKind::Packs).unwrap();
    let width = |(set, members): (&pinstripe_base::id::SetId, &Vec<usize>)| {
        let name = pinstripe_member::ExtentName::pack(*set);
        geometry_of(store, name, members).unwrap().data()
    };
    packs.iter().map(width).collect()
}

#[test]
fn with_a_member_away_new_packs_are_narrower_and_whole() {
    let site = Site::new(4, 1);
    small_tree(&site.source(), 1);
    let first = (site.save(), look(&site.source()));
    let aside = site.path("aside");
    fs::rename(&site.members[2], &aside).unwrap();
    small_tree(&site.source(), 2);
    let second = backup(&site.store(), &site.source(), &Ledger::new()).unwrap();
    let second = (second, look(&site.source()));
    fs::rename(&aside, &site.members[2]).unwrap();
    assert_eq!(widths(&site.store()), [2, 3].into());
    // Any one member may go, whichever pack it is.
    for member in 0..4 {
        fs::rename(&site.members[member], &aside).unwrap();
        let store = site.store_through((member + 1) % 4);
        for (snapshot, tree) in [&first, &second] {
            site.assert_restores(&store, snapshot, tree);
        }
        fs::rename(&aside, &site.members[member]).unwrap();
    }
}

#[test]
fn too_few_members_for_the_parity_that_was_asked_for_are_refused() {
    let site = Site::new(2, 1);
    small_tree(&site.source(), 1);
    let first = (site.save(), look(&site.source()));
    fs::remove_dir_all(&site.members[1]).unwrap();
    small_tree(&site.source(), 2);
    let store = site.store();
    let error = backup(&store, &site.source(), &Ledger::new()).unwrap_err();
    assert_eq!(error.kind(), Kind::TooManyLosses, "{error}");
    assert!(error.advice_text().unwrap().contains("member add"), "{error:?}");
    site.assert_restores(&store, &first.0, &first.1);
}

#[test]
fn a_member_that_was_replaced_and_comes_back_is_not_taken() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    let (snapshot, tree) = (site.save(), look(&site.source()));
    let (aside, new) = (site.path("aside"), site.path("new"));
    fs::rename(&site.members[1], &aside).unwrap();
    let ledger = Ledger::new();
    let replaced = replace(&mut site.store(), 1, &new, &ledger).unwrap();
    ledger.assert_no_losses();
    assert_eq!(replaced.replaced_by, 3);
    fs::rename(&aside, &site.members[1]).unwrap();
    for through in 0..3 {
        let store = site.store_through(through);
        assert_eq!(store.absent().count(), 0);
        assert!(store.member_slots[1].member.is_none());
        assert_eq!(store.member_slots[3].place, new);
        assert_whole(&store);
        site.assert_restores(&store, &snapshot, &tree);
    }
}

/// A store of which member 1 was replaced: nothing tells any more where a slot 1 belongs.
fn replaced() -> (Site, PathBuf) {
    let mut site = Site::new(4, 2);
    small_tree(&site.source(), 1);
    site.save();
    fs::rename(&site.members[1], site.path("aside")).unwrap();
    let new = site.path("new");
    replace(&mut site.store(), 1, &new, &Ledger::new()).unwrap();
    site.members[1] = new.clone();
    (site, new)
}

fn lose_extents(member: &Path) {
    for kind in ["packs", "index"] {
        fs::remove_dir_all(member.join(kind)).unwrap();
        fs::create_dir(member.join(kind)).unwrap();
    }
}

fn scrub(store: &Store) -> scrub::ScrubOutcome {
    let options = scrub::ScrubOptions {
        budget: scrub::Budget::default(),
        rate: None,
        save_bytes: u64::MAX,
        limits: limits(),
    };
    scrub::run(store, &options, &Ledger::new().monitor, &|_| {}).unwrap()
}

/// A slot without a home was laid on a free member that was the home of another one, and that one
/// was then laid over it: a slot was on no member although one was free.
#[test]
fn no_slot_is_laid_over_another_one_that_was_just_repaired() {
    let (site, new) = replaced();
    [&site.members[2], &new].into_iter().for_each(|member| lose_extents(member));
    let image = site.image();
    let sets = sets_in(&site.store(), ExtentKind::Packs).unwrap().len() as u64;
    let runs = sets_in(&site.store(), ExtentKind::Index).unwrap().len() as u64;
    let outcome = repair(&mut site.store(), &Ledger::new());
    assert_eq!((outcome.repaired_extents, outcome.homeless_extents), (2 * (sets + runs), 0));
    assert_whole(&site.store());
    site.put_image(&image);
    assert_eq!(scrub(&site.store()).mended_extents, 2 * (sets + runs));
    assert_whole(&site.store());
}

/// Of a slot that stands twice only one copy was looked at, and the other one could be given up
/// for a slot that stood nowhere.
#[test]
fn a_damaged_copy_does_not_cost_the_sound_one() {
    for (hurt, copied_to) in [(0, 3), (3, 3), (0, 1), (1, 1)] {
        let site = Site::new(4, 1);
        small_tree(&site.source(), 1);
        site.save();
        // The slot of the member that has lost its own goes there.
        lose_extents(&site.members[copied_to]);
        for (set, _) in sets_in(&site.store(), ExtentKind::Packs).unwrap() {
            let path = |member: usize| {
                site.members[member].join(pinstripe_member::ExtentName::pack(set).path())
            };
            fs::create_dir_all(path(copied_to).parent().unwrap()).unwrap();
            fs::copy(path(0), path(copied_to)).unwrap();
            let mut bytes = fs::read(path(hurt)).unwrap();
            bytes[4096..4100].fill(7);
            fs::write(path(hurt), bytes).unwrap();
        }
        let found = check(&site.store(), true, &Ledger::new());
        assert!(found.lost == 0 && found.repairable > 0, "{found:?}");
        let outcome = repair(&mut site.store(), &Ledger::new());
        assert_eq!((outcome.lost_extents, outcome.homeless_extents), (0, 0));
        assert_whole(&site.store());
    }
}
