//! Members come and go: labels agree on who is one, and new sets lie over those that are there.

use std::collections::BTreeSet;
use std::fs;

use pinstripe::error::Kind;
use pinstripe::member::Room;
use pinstripe::ops;
use pinstripe::store::Store;
use pinstripe::store::index::{geometry_of, sets_in};

use crate::look::look;
use crate::support::{Ledger, Site, assert_whole, backup, limits, small_tree};

/// Data strips of the packs, each number once.
fn widths(store: &Store) -> BTreeSet<usize> {
    let packs = sets_in(store, Room::Packs).unwrap();
    let width = |(set, members): (&pinstripe::id::SetId, &Vec<usize>)| {
        let name = pinstripe::member::ExtentName::pack(*set);
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
    let options = ops::repair::Options { replace: Some((1, new.clone())), limits: limits() };
    let ledger = Ledger::new();
    let outcome = ops::repair::run(&mut site.store(), &options, &ledger.monitor).unwrap();
    ledger.assert_no_losses();
    assert_eq!(outcome.replaced_by, Some(3));
    fs::rename(&aside, &site.members[1]).unwrap();
    for through in 0..3 {
        let store = site.store_through(through);
        assert_eq!(store.absent().count(), 0);
        assert!(store.seats[1].member.is_none());
        assert_eq!(store.seats[3].place, new);
        assert_whole(&store);
        site.assert_restores(&store, &snapshot, &tree);
    }
}
