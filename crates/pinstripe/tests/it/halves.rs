//! A store that was cut in two, each half with its own backups, and what happens when they meet.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pinstripe::member::Brought;
use pinstripe::{OpenOptions, Store, gc, member, snapshots};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{ExtentKind, ExtentName, Steps};

use crate::gc::forget_one;
use pinstripe_sim::{
    Ledger, NoWait, Site, assert_whole, backup, check, credential, limits, noise, small_tree,
};
use pinstripe_sim::{Tree, look};

/// Two members with one for parity; each has gone on without the other, with a new one beside it:
/// the first half in the place of the second one's.
struct Halves {
    site: Site,
    /// The directory of the second half.
    old: PathBuf,
    /// Of both, of the first and of the second half, with what they are of.
    saved: Vec<(Snapshot, Tree)>,
}

/// The ways in which a half goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum How {
    Replace,
    Add,
}

impl Halves {
    /// Of a store that is `sealed`, or not; the second half went on like this.
    fn new(sealed: bool, second: How) -> Self {
        Halves::both(sealed, [How::Replace, second])
    }

    fn both(sealed: bool, [first, second]: [How; 2]) -> Self {
        let site = if sealed { Site::new(2, 1) } else { Site::clear(2, 1) };
        let mut halves = Halves { old: site.members[1].clone(), site, saved: Vec::new() };
        let (m0, m1) = (halves.site.members[0].clone(), halves.site.members[1].clone());
        let (aside, n1) = (halves.site.path("aside"), halves.site.path("n1"));
        small_tree(&halves.site.source(), 1);
        halves.save(0);
        fs::rename(&m1, &aside).unwrap();
        halves.go_on(0, first, "n1");
        fs::write(halves.site.source().join("of the first"), noise(1, 40_000)).unwrap();
        halves.save(0);
        fs::rename(&aside, &m1).unwrap();
        fs::rename(&m0, &aside).unwrap();
        fs::rename(&n1, halves.site.path("n1 aside")).unwrap();
        halves.go_on(1, second, "n0");
        fs::write(halves.site.source().join("of the second"), noise(2, 400_000)).unwrap();
        halves.save(1);
        fs::rename(&aside, &m0).unwrap();
        fs::rename(halves.site.path("n1 aside"), &n1).unwrap();
        halves
    }

    fn go_on(&self, number: usize, how: How, with: &str) {
        let (mut store, monitor) = (self.site.store_through(number), Ledger::new().monitor);
        let new = self.site.path(with);
        match how {
            How::Add => drop(member::add(&mut store, &new, true, &monitor).unwrap()),
            How::Replace => {
                let other = 1 - number;
                member::replace(&mut store, other, &new, true, &limits(), &monitor).unwrap();
            }
        }
    }

    fn save(&mut self, through: usize) {
        let store = self.site.store_through(through);
        let ledger = Ledger::new();
        let snapshot = backup(&store, &self.site.source(), &ledger).unwrap();
        ledger.assert_no_losses();
        self.saved.push((snapshot, look(&self.site.source())));
    }

    /// The half that a directory belongs to.
    fn half(&self, place: &Path) -> Store {
        let steps: Option<Arc<dyn Steps>> = Some(Arc::new(NoWait));
        let options = OpenOptions { half: true, steps, ..OpenOptions::default() };
        let mut store = Store::open_with(place, options).unwrap();
        if self.site.sealed {
            store.unlock(&credential()).unwrap();
        }
        store
    }

    /// The store as it is opened through the first half, where the second one is met.
    fn met(&self) -> Store {
        let steps: Option<Arc<dyn Steps>> = Some(Arc::new(NoWait));
        let also = vec![self.old.clone()];
        let options = OpenOptions { also, steps, ..OpenOptions::default() };
        let mut store = Store::open_with(&self.site.members[0], options).unwrap();
        if self.site.sealed {
            store.unlock(&credential()).unwrap();
        }
        store
    }

    fn merge(&self, store: &Store, dry_run: bool, ledger: &Ledger) -> Result<Brought> {
        member::merge(store, &self.half(&self.old), dry_run, &limits(), &ledger.monitor)
    }

    #[track_caller]
    fn assert_all_here(&self) {
        let store = self.site.store();
        assert_whole(&store);
        assert_eq!(store.other_halves().unwrap(), []);
        for (snapshot, tree) in &self.saved {
            self.site.assert_restores(&store, snapshot, tree);
        }
    }
}

#[test]
fn a_half_that_meets_the_other_counts_what_only_that_one_has_and_brings_it_over() {
    use How::{Add, Replace};
    let ways = [[Replace, Replace], [Replace, Add], [Add, Add], [Add, Replace]];
    for (sealed, ways) in [true, false].into_iter().flat_map(|it| ways.map(|ways| (it, ways))) {
        let halves = Halves::both(sealed, ways);
        let only_there = halves.saved[2].0.id;
        let store = halves.met();
        let met = store.other_halves().unwrap();
        assert_eq!(met.len(), 1, "sealed {sealed}, {ways:?}: {met:?}");
        assert_eq!(met[0].snapshots, BTreeSet::from([only_there]), "sealed {sealed}, {ways:?}");
        assert!(met[0].places.contains(&halves.old), "{met:?}");
        assert!(!store.list(ExtentKind::Snapshots).unwrap().contains_key(&only_there.0));

        let before = halves.site.image();
        let told = halves.merge(&store, true, &Ledger::new()).unwrap();
        assert!(before == halves.site.image(), "a dry run writes nothing");
        let ledger = Ledger::new();
        let merged = halves.merge(&store, false, &ledger).unwrap();
        ledger.assert_no_losses();
        assert_eq!(told, merged);
        assert_eq!(merged.brought, [only_there]);
        assert_eq!((merged.known_snapshots, merged.deleted_snapshots), (1, 0));
        // What both have is not stored twice.
        let bytes: u64 = ledger.get(Counter::DedupedBytes);
        assert!((400_000..440_000).contains(&bytes), "{bytes}");

        let store = halves.half(&halves.site.members[0]);
        // Where members were added to both halves, the second one's is absent from the first.
        let ledger = Ledger::new();
        let found = check(&store, true, &ledger);
        ledger.assert_no_losses();
        assert_eq!((found.snapshots, found.hurt_paths), (3, 0), "{found:?}");
        for (snapshot, tree) in &halves.saved {
            halves.site.assert_restores(&store, snapshot, tree);
        }
        let again = halves.merge(&store, false, &Ledger::new()).unwrap();
        assert_eq!((again.brought_snapshots, again.known_snapshots), (0, 2));
    }
}

#[test]
fn the_half_that_was_named_is_opened_and_says_what_the_other_one_has() {
    for (sealed, how) in [(true, How::Add), (false, How::Add), (true, How::Replace)] {
        let halves = Halves::new(sealed, how);
        let store = halves.site.store_through(1);
        assert_ne!(store.table, halves.site.store().table);
        halves.site.assert_restores(&store, &halves.saved[2].0, &halves.saved[2].1);
        let known = snapshots::run(&store, &Ledger::new().monitor).unwrap();
        assert_eq!(known.len(), 2);
        if how == How::Add {
            // Its table still names the member that the other half has.
            let met = store.other_halves().unwrap();
            assert_eq!(met.len(), 1, "{met:?}");
            assert_eq!(met[0].snapshots, BTreeSet::from([halves.saved[1].0.id]));
        }
    }
}

/// As long as the last gc is remembered. What the other half still needs of it is brought over.
#[test]
fn what_was_deleted_in_one_half_stays_deleted() {
    let halves = Halves::new(true, How::Add);
    let store = halves.site.store();
    forget_one(&store, &halves.saved[0].0);
    forget_one(&store, &halves.saved[1].0);
    let all = gc::GcOptions {
        max_waste: 0.0,
        dry_run: false,
        wait: Duration::ZERO,
        limits: limits(),
        detector: Default::default(),
    };
    gc::run(&store, &all, &Ledger::new().monitor).unwrap();
    assert!(store.list(ExtentKind::Packs).unwrap().is_empty());
    drop(store);
    let merged = halves.merge(&halves.site.store(), false, &Ledger::new()).unwrap();
    let (snapshot, tree) = &halves.saved[2];
    assert_eq!(merged.brought, [snapshot.id], "{merged:?}");
    assert_eq!((merged.known_snapshots, merged.deleted_snapshots), (0, 1));
    let store = halves.site.store();
    assert_whole(&store);
    halves.site.assert_restores(&store, snapshot, tree);
}

/// A snapshot forgotten in the other half and not deleted yet is neither counted nor copied over.
#[test]
fn what_was_forgotten_in_the_other_half_stays_there() {
    for sealed in [true, false] {
        let halves = Halves::new(sealed, How::Add);
        forget_one(&halves.half(&halves.old), &halves.saved[2].0);
        let store = halves.met();
        assert_eq!(store.other_halves().unwrap(), []);
        let merged = halves.merge(&store, false, &Ledger::new()).unwrap();
        assert_eq!(merged.brought, []);
    }
}

#[test]
fn what_the_other_half_has_lost_is_named_and_the_rest_is_brought_over() {
    let halves = Halves::new(true, How::Add);
    // Its own pack, on both of its members.
    let known: Vec<_> =
        (halves.site.store().list(ExtentKind::Packs).unwrap()).into_keys().collect();
    let half = halves.half(&halves.old);
    let own = half.list(ExtentKind::Packs).unwrap().into_keys().filter(|id| !known.contains(id));
    let largest = own
        .map(|id| halves.old.join(ExtentName::In(ExtentKind::Packs, id).path()))
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();
    let copy = halves.site.path("n0").join(largest.strip_prefix(&halves.old).unwrap());
    for extent in [largest, copy] {
        let mut bytes = fs::read(&extent).unwrap();
        bytes[100_000] ^= 1;
        fs::write(&extent, bytes).unwrap();
    }
    drop(half);
    let ledger = Ledger::new();
    let merged = halves.merge(&halves.site.store(), false, &ledger).unwrap();
    assert_eq!(merged.brought, [halves.saved[2].0.id]);
    assert!(ledger.losses().iter().all(|loss| loss.place.ends_with("of the second")));
    assert!(!ledger.losses().is_empty());
    let ledger = Ledger::new();
    let found = check(&halves.site.store(), true, &ledger);
    assert_eq!((found.hurt_paths, found.hurt_snapshots), (1, 1), "{found:?}");
}

#[test]
fn what_is_no_other_half_is_refused() {
    let halves = Halves::new(true, How::Add);
    let store = halves.site.store();
    let own = halves.half(&halves.site.members[0]);
    let refused = |other: &Store| {
        let ledger = Ledger::new();
        member::merge(&store, other, false, &limits(), &ledger.monitor).unwrap_err()
    };
    let error = refused(&own);
    assert_eq!(error.kind(), Kind::WrongMember);
    assert!(error.to_string().contains("already a member"), "{error}");
    let stranger = Site::new(2, 1);
    let error = refused(&stranger.store());
    assert_eq!(error.kind(), Kind::WrongMember);
    assert!(error.to_string().contains("another store"), "{error}");
    halves.merge(&store, false, &Ledger::new()).unwrap();
    halves.assert_all_here();
}

/// A member that was replaced while it was away, and has nothing of its own, is no half.
#[test]
fn a_replaced_member_that_comes_back_is_said_nothing_of() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    fs::rename(&site.members[2], site.path("aside")).unwrap();
    let mut store = site.store();
    let new = site.path("new");
    member::replace(&mut store, 2, &new, true, &limits(), &Ledger::new().monitor).unwrap();
    fs::rename(site.path("aside"), &site.members[2]).unwrap();
    for through in 0..3 {
        assert_eq!(site.store_through(through).other_halves().unwrap(), [], "{through}");
    }
}
