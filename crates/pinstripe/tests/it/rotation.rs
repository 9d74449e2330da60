//! Rotations of the keys beside everything else: a process from before a rotation changes nothing,
//! and says that it is behind.

use std::sync::Arc;

use pinstripe::forget::{ForgetChoice, ForgetOptions};
use pinstripe::{
    FailureDetector, Store, forget, gc, key, load_snapshot, load_snapshots, member, repair, scrub,
};
use pinstripe_base::error::{Kind, Result};
use pinstripe_member::envelope::Object;
use pinstripe_member::{ExtentKind, ExtentName, envelope};
use pinstripe_stripe::{Credential, NewSlot};

use pinstripe_sim::look;
use pinstripe_sim::{
    Ledger, Meanwhile, Site, assert_whole, backup, check, credential, limits, new_slot, repair,
    small_tree,
};

fn later() -> Credential {
    Credential::password("later").unwrap()
}

fn later_slot() -> NewSlot {
    NewSlot { credential: later(), ..new_slot() }
}

fn open(site: &Site, with: &Credential) -> Store {
    let mut store = site.locked_store();
    store.unlock(with).unwrap();
    store
}

fn gc_options() -> gc::GcOptions {
    gc::GcOptions {
        max_waste: 0.0,
        dry_run: false,
        wait: std::time::Duration::ZERO,
        limits: limits(),
        detector: Arc::new(FailureDetector::default()),
    }
}

fn forget_named(store: &Store, name: &str) -> Result<()> {
    let names = [name.to_owned()];
    let choice = ForgetChoice::Named(&names);
    let options = ForgetOptions { allow_empty: true, ..ForgetOptions::new(choice) };
    forget::run(store, &options, &Ledger::new().monitor).map(drop)
}

fn scrub_all(store: &Store) -> Result<()> {
    let options = scrub::ScrubOptions {
        budget: scrub::Budget::default(),
        rate: None,
        save_bytes: u64::MAX,
        limits: limits(),
    };
    scrub::run(store, &options, &Ledger::new().monitor, &|_| {}).map(drop)
}

/// What each verb of a process from before the rotation ends with.
fn late_verbs(site: &Site, forgotten: &str, kept: &str) -> Vec<(&'static str, Kind)> {
    type Verb<'a> = (&'static str, Box<dyn Fn(&mut Store) -> Result<()> + 'a>);
    let ledger = Ledger::new();
    let monitor = &ledger.monitor;
    let repaired = |store: &mut Store| repair::run(store, limits(), monitor).map(drop);
    let verbs: Vec<Verb<'_>> = vec![
        ("backup", Box::new(|store| backup(store, &site.source(), &ledger).map(drop))),
        ("gc", Box::new(|store| gc::run(store, &gc_options(), monitor).map(drop))),
        ("forget", Box::new(|store| forget_named(store, kept))),
        ("undelete", Box::new(|store| forget::undelete(store, forgotten, monitor).map(drop))),
        ("scrub", Box::new(|store| scrub_all(store))),
        ("key add", Box::new(|store| key::add(store, &new_slot()).map(drop))),
        ("key remove", Box::new(|store| key::remove(store, "test").map(drop))),
        ("key rotate", Box::new(|store| key::rotate(store, &new_slot()).map(drop))),
        (
            "member add",
            Box::new(|store| member::add(store, &site.path("more"), true, monitor).map(drop)),
        ),
        ("member remove", Box::new(|store| member::remove(store, 0, &limits(), monitor).map(drop))),
        (
            "member replace",
            Box::new(|store| {
                member::replace(store, 0, &site.path("other"), true, &limits(), monitor).map(drop)
            }),
        ),
        (
            "rebalance",
            Box::new(|store| member::rebalance(store, false, &limits(), monitor).map(drop)),
        ),
        ("snapshots", Box::new(|store| load_snapshots(store, monitor).map(drop))),
    ];
    let mut ended: Vec<(&'static str, Kind)> = Vec::new();
    let mut before: Vec<Store> = verbs.iter().map(|_| open(site, &credential())).collect();
    let mut repairing = open(site, &credential());
    let mut store = open(site, &credential());
    key::rotate(&mut store, &later_slot()).unwrap();
    // Objects of the new generation: a mark, and what a backup leaves.
    forget::undelete(&store, forgotten, monitor).unwrap();
    small_tree(&site.source(), 9);
    backup(&store, &site.source(), &ledger).unwrap();
    let image = site.image();
    for ((name, verb), store) in verbs.iter().zip(&mut before) {
        let error = verb(store).err().unwrap_or_else(|| panic!("{name} must end"));
        ended.push((name, error.kind()));
        assert!(site.image() == image, "{name} changed something");
    }
    ended.push(("repair", repaired(&mut repairing).map(drop).expect_err("repair must end").kind()));
    assert!(site.image() == image, "repair changed something");
    ledger.assert_no_losses();
    ended
}

/// C1: `repair` set the new key ring aside, `gc` deleted what a backup relied on, `undelete` was undone.
#[test]
fn a_process_from_before_a_rotation_changes_nothing_and_says_so() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    let (first, tree) = (site.save(), look(&site.source()));
    small_tree(&site.source(), 2);
    let second = site.save();
    forget_named(&site.store(), &first.id.to_string()).unwrap();
    let ended = late_verbs(&site, &first.id.to_string(), &second.id.to_string());
    for (name, kind) in ended {
        assert_eq!(kind, Kind::KeysChanged, "{name}");
    }
    let store = open(&site, &later());
    assert_whole(&store);
    site.assert_restores(&store, &first, &tree);
}

/// C1: the session of a backup under new keys was taken for a forged one.
#[test]
#[ignore = "with --all: it waits for 11 s"]
fn a_gc_that_began_before_a_rotation_deletes_nothing() {
    let site = Arc::new(Site::new(3, 1));
    small_tree(&site.source(), 1);
    let (first, tree) = (site.save(), look(&site.source()));
    small_tree(&site.source(), 2);
    site.save();
    forget_named(&site.store(), &first.id.to_string()).unwrap();
    let other = Arc::clone(&site);
    let beside = move || {
        let site = other;
        key::rotate(&mut site.store(), &later_slot()).unwrap();
        forget::undelete(&open(&site, &later()), "latest", &Ledger::new().monitor).unwrap();
    };
    // Amid its first step of deletion.
    let store = site.open(0, "", Meanwhile::new("gc", beside)).unwrap();
    let error = gc::run(&store, &gc_options(), &Ledger::new().monitor).unwrap_err();
    assert_eq!(error.kind(), Kind::KeysChanged, "{error}");
    let store = open(&site, &later());
    gc::run(&store, &gc_options(), &Ledger::new().monitor).unwrap();
    assert_whole(&store);
    site.assert_restores(&store, &first, &tree);
}

/// C1: a backup committed onto members that had left, since it could not verify newer labels.
#[test]
#[ignore = "with --all: it waits for 12 s"]
fn a_backup_that_began_before_a_rotation_is_ended_and_the_next_one_is_whole() {
    let site = Arc::new(Site::new(4, 1));
    small_tree(&site.source(), 1);
    let (first, tree) = (site.save(), look(&site.source()));
    small_tree(&site.source(), 2);
    let other = Arc::clone(&site);
    let beside = move || {
        let site = other;
        key::rotate(&mut site.store(), &later_slot()).unwrap();
        for member in [0, 1] {
            let place = site.path(&format!("new{member}"));
            let mut store = site.locked_store_through(3);
            store.unlock(&later()).unwrap();
            let monitor = Ledger::new().monitor;
            member::replace(&mut store, member, &place, true, &limits(), &monitor).unwrap();
        }
    };
    let store = site.open(3, "", Meanwhile::new("packs", beside)).unwrap();
    let error = backup(&store, &site.source(), &Ledger::new()).unwrap_err();
    assert_eq!(error.kind(), Kind::KeysChanged, "{error}");
    let mut store = site.locked_store_through(3);
    store.unlock(&later()).unwrap();
    let saved = backup(&store, &site.source(), &Ledger::new()).unwrap();
    site.assert_restores(&store, &first, &tree);
    site.assert_restores(&store, &saved, &look(&site.source()));
}

#[test]
fn a_rotation_waits_for_no_mover_and_ends_busy() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    let claim = site.store();
    let claim = claim.claim().unwrap();
    let before = site.image();
    let error = key::rotate(&mut site.store(), &later_slot()).unwrap_err();
    assert_eq!(error.kind(), Kind::Busy, "{error}");
    assert!(site.image() == before);
    drop(claim);
    key::rotate(&mut site.store(), &later_slot()).unwrap();
    assert_whole(&open(&site, &later()));
}

/// What claims a generation that no ring has is made up: it stops nothing.
#[test]
fn an_object_of_a_generation_that_no_ring_has_is_a_stray() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    for kind in [ExtentKind::Gc, ExtentKind::Sessions, ExtentKind::Forgotten, ExtentKind::Keys] {
        let framed = envelope::close(Object::Gc, b"made up");
        let forged = envelope::vouch(&framed, 99, |_| [7; 32]);
        let name = ExtentName::In(kind, [3; 16]);
        std::fs::write(site.members[1].join(name.path()), forged).unwrap();
    }
    small_tree(&site.source(), 2);
    site.save();
    let mut store = site.store();
    gc::run(&store, &gc_options(), &Ledger::new().monitor).unwrap();
    assert!(repair(&mut store, &Ledger::new()).strays > 0);
    assert_eq!(check(&site.store(), true, &Ledger::new()).repairable, 0);
}

/// A rotation that was cut off when its ring stood on one member: what is put with the new keys can
/// be verified by whoever opens the store without that member.
#[test]
fn nothing_is_put_under_a_ring_that_one_member_alone_has() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    let first = site.save();
    small_tree(&site.source(), 2);
    site.save();
    forget_named(&site.store(), &first.id.to_string()).unwrap();
    let before = site.image();
    key::rotate(&mut site.store(), &later_slot()).unwrap();
    for member in [1, 2] {
        let keys = site.members[member].join("keys");
        std::fs::remove_dir_all(&keys).unwrap();
        std::fs::create_dir(&keys).unwrap();
        for (path, bytes) in before.0.iter().filter(|(path, _)| path.starts_with(&keys)) {
            std::fs::write(path, bytes).unwrap();
        }
    }
    forget::undelete(&open(&site, &later()), &first.id.to_string(), &Ledger::new().monitor)
        .unwrap();
    std::fs::rename(&site.members[0], site.path("away")).unwrap();
    let mut store = site.locked_store_through(1);
    assert!(store.unlock(&credential()).is_err(), "the old ring does not win");
    store.unlock(&later()).unwrap();
    let known = load_snapshot(&store, &Ledger::new().monitor).unwrap();
    assert!(known.iter().any(|snapshot| snapshot.id == first.id));
}

/// A member with the old ring, the old label and old objects.
#[test]
fn a_member_that_returns_from_before_a_rotation_revives_nothing() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    let first = site.save();
    let before = site.image();
    key::rotate(&mut site.store(), &later_slot()).unwrap();
    small_tree(&site.source(), 2);
    let saved = backup(&open(&site, &later()), &site.source(), &Ledger::new()).unwrap();
    forget_named(&open(&site, &later()), &first.id.to_string()).unwrap();
    std::fs::remove_dir_all(&site.members[2]).unwrap();
    for (path, bytes) in before.0.iter().filter(|(path, _)| path.starts_with(&site.members[2])) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    for through in [0, 2] {
        let mut store = site.locked_store_through(through);
        assert_eq!(store.unlock(&credential()).unwrap_err().kind(), Kind::WrongKey);
        store.unlock(&later()).unwrap();
        let known = load_snapshot(&store, &Ledger::new().monitor).unwrap();
        assert_eq!(known.iter().map(|it| it.id).collect::<Vec<_>>(), [saved.id]);
    }
    repair(&mut open(&site, &later()), &Ledger::new());
    let mut store = site.locked_store_through(2);
    assert_eq!(store.unlock(&credential()).unwrap_err().kind(), Kind::WrongKey);
    let store = open(&site, &later());
    assert_whole(&store);
    site.assert_restores(&store, &saved, &look(&site.source()));
}

/// Moves a member's directory out of the way, or back.
fn without_first<T>(site: &Site, work: impl FnOnce() -> T) -> T {
    let aside = site.members[0].with_extension("aside");
    std::fs::rename(&site.members[0], &aside).unwrap();
    let done = work();
    std::fs::rename(&aside, &site.members[0]).unwrap();
    done
}

/// The ring of a rotation is on the first member, the second one was full. Without the first one the new
/// password is not called wrong, and the old one does not count as the newest.
#[test]
fn a_rotation_that_reached_one_member_is_named_when_only_the_other_one_is_there() {
    let site = Site::new(2, 1);
    small_tree(&site.source(), 1);
    let saved = site.save();
    let mut store = site.store_with_faults("op=put,member=1,room=keys,after=1,error=ENOSPC");
    let error = key::rotate(&mut store, &later_slot()).unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace);
    assert!(error.advice_text().unwrap().contains("is in effect"), "{error}");
    drop(store);
    without_first(&site, || {
        let error = site.locked_store_through(1).unlock(&later()).unwrap_err();
        assert_eq!(error.kind(), Kind::TooManyLosses, "{error}");
        assert!(error.advice_text().unwrap().contains("attach member 0"), "{error}");
        let told = site.locked_store_through(1).unlock(&credential()).unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].what().contains("member 0 may have newer keys"), "{told:?}");
        let other = Credential::password("of nobody").unwrap();
        let error = site.locked_store_through(1).unlock(&other).unwrap_err();
        assert_eq!(error.kind(), Kind::WrongKey);
    });
    assert_eq!(site.locked_store().unlock(&credential()).unwrap_err().kind(), Kind::WrongKey);
    repair(&mut open(&site, &later()), &Ledger::new());
    without_first(&site, || {
        let mut store = site.locked_store_through(1);
        assert_eq!(store.unlock(&credential()).unwrap_err().kind(), Kind::WrongKey);
        assert!(store.unlock(&later()).unwrap().is_empty());
        site.assert_restores(&store, &saved, &look(&site.source()));
    });
}

/// The rotation ended between its slot and its ring: the earlier keys are in force.
#[test]
fn a_password_of_a_rotation_that_changed_nothing_is_named_as_such() {
    let site = Site::new(2, 1);
    let mut store = site.store_with_faults("op=put,member=0,room=keys,after=1,error=ENOSPC");
    assert_eq!(key::rotate(&mut store, &later_slot()).unwrap_err().kind(), Kind::NoSpace);
    drop(store);
    let error = site.locked_store().unlock(&later()).unwrap_err();
    assert_eq!(error.kind(), Kind::WrongKey);
    assert!(error.advice_text().unwrap().contains("from before the rotation"), "{error}");
    assert!(site.locked_store().unlock(&credential()).unwrap().is_empty());
    key::rotate(&mut site.store(), &later_slot()).unwrap();
    open(&site, &later());
}

/// A member fails when the rotation has begun, and parity would replace it.
#[test]
fn a_rotation_changes_nothing_if_a_member_fails_before_its_ring() {
    let site = Site::new(3, 1);
    let mut store = site.store_with_faults("op=put,member=2,error=EIO");
    assert_eq!(key::rotate(&mut store, &later_slot()).unwrap_err().kind(), Kind::Refused);
    drop(store);
    open(&site, &credential());
    assert_eq!(site.locked_store().unlock(&later()).unwrap_err().kind(), Kind::WrongKey);
}
