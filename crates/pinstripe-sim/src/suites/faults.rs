//! Disks that fail in the middle: the backup goes on where parity allows, says so, and repair
//! makes the store whole; where it does not, everything earlier is untouched.

use std::fs;

use pinstripe::index::Index;
use pinstripe::redundancy;
use pinstripe_base::error::Kind;
use pinstripe_base::monitor::Counter;
use pinstripe_member::snapshot::Snapshot;

use crate::look::{Tree, look};
use crate::suites::SuiteSite;
use crate::support::{Image, Ledger, Seen, assert_whole, backup, check, noise, repair, small_tree};

/// A store with one snapshot, and a source that has changed since.
struct Bench<S> {
    site: S,
    image: Image,
    first: (Snapshot, Tree),
    second_tree: Tree,
}

impl<S: SuiteSite> Bench<S> {
    fn new(members: usize, parity: u8) -> Self {
        let site = S::new(members, parity);
        small_tree(&site.source(), 1);
        let first = (site.save(), look(&site.source()));
        let image = site.image();
        small_tree(&site.source(), 2);
        fs::write(site.source().join("more"), noise(9, 120_000)).unwrap();
        let second_tree = look(&site.source());
        Bench { site, image, first, second_tree }
    }

    fn assert_first_is_whole(&self) {
        let store = self.site.store();
        let (snapshot, tree) = &self.first;
        self.site.assert_restores(&store, snapshot, tree);
        let ledger = Ledger::new();
        check(&store, true, &ledger);
        ledger.assert_no_losses();
    }
}

/// Every point at which a disk may begin to fail.
const POINTS: &[&str] = &[
    "op=create,room=packs",
    "op=append,room=packs",
    "op=append,room=packs,after=5",
    "op=append,room=packs,after=12",
    "op=seal,room=packs",
    "op=seal,room=packs,after=1",
    "op=create,room=index",
    "op=append,room=index",
    "op=seal,room=index",
    "op=put,room=snapshots",
];

/// Those of them at which one failure more than parity replaces ends a backup.
fn points_that_matter<S: SuiteSite>(
    site: &S,
    parity: u8,
) -> impl Iterator<Item = &'static str> + use<S> {
    // Packs of pages lie on one member each without parity: another one may have them.
    let passed_over = (parity == 0).then_some("op=seal,room=packs,after=1");
    points(site).filter(move |point| Some(*point) != passed_over)
}

/// The points that a backup reaches.
fn points<S: SuiteSite>(site: &S) -> impl Iterator<Item = &'static str> + use<S> {
    let is_reached = |point: &&str| !point.contains("op=append,room=packs,after=");
    let counts = site.counts_calls();
    let reached = POINTS.iter().copied().filter(move |point| counts || is_reached(point));
    // From the last point on, because the snapshot is the object that counts.
    reached.rev().step_by(S::stride())
}

pub fn a_member_that_fails_is_done_without_and_repaired_later<S: SuiteSite>() {
    for (members, parity) in [(4, 1_u8), (5, 2)] {
        let bench = Bench::<S>::new(members, parity);
        let site = &bench.site;
        for point in points(site) {
            site.put_image(&bench.image);
            let faults: Vec<_> =
                (0..parity).map(|n| format!("{point},member={},error=EIO", 1 + 2 * n)).collect();
            let store = site.store_with_faults(&faults.join(";"));
            let ledger = Ledger::new();
            let second = backup(&store, &site.source(), &ledger).unwrap();
            drop(store);
            ledger.assert_no_losses();
            let degraded = ledger.degraded();
            assert_eq!(degraded.len(), usize::from(parity), "{point}: {:#?}", ledger.seen());
            assert!(degraded.iter().all(|seen| seen.kind == Kind::Io), "{degraded:#?}");
            for n in 0..parity {
                let is_named = |seen: &Seen| site.is_place_of(&seen.place, 1 + 2 * usize::from(n));
                assert!(degraded.iter().any(is_named), "{degraded:#?}");
            }
            // As it was left, then repaired.
            let mut store = site.store();
            site.assert_restores(&store, &second, &bench.second_tree);
            repair(&mut store, &Ledger::new());
            let store = site.store();
            assert_whole(&store);
            let restored = site.assert_restores(&store, &second, &bench.second_tree);
            assert_eq!(restored.get(Counter::RebuiltStrips), 0, "{point}");
            bench.assert_first_is_whole();
        }
    }
}

pub fn one_failure_more_than_parity_ends_the_backup_and_hurts_nothing<S: SuiteSite>() {
    for parity in [0_u8, 1] {
        let bench = Bench::<S>::new(3, parity);
        let site = &bench.site;
        for point in points_that_matter(site, parity) {
            site.put_image(&bench.image);
            let faults: Vec<_> =
                (0..=parity).map(|n| format!("{point},member={n},error=EIO")).collect();
            let store = site.store_with_faults(&faults.join(";"));
            let error = backup(&store, &site.source(), &Ledger::new()).unwrap_err();
            drop(store);
            assert_eq!(error.kind(), Kind::Io, "{point}: {error}");
            assert!(error.place().is_some() && error.advice_text().is_some(), "{point}: {error}");
            bench.assert_first_is_whole();
            let ledger = Ledger::new();
            let next = backup(&site.store(), &site.source(), &ledger).unwrap();
            ledger.assert_no_losses();
            site.assert_restores(&site.store(), &next, &bench.second_tree);
        }
    }
}

/// A full member ended the backup, although the others sufficed.
pub fn a_full_member_is_passed_over_where_parity_allows_and_else_ends_the_backup<S: SuiteSite>() {
    for (parity, code) in [(0_u8, "ENOSPC"), (1, "ENOSPC"), (1, "EDQUOT")] {
        let bench = Bench::<S>::new(3, parity);
        let site = &bench.site;
        for point in points_that_matter(site, parity) {
            site.put_image(&bench.image);
            let store = site.store_with_faults(&format!("{point},member=1,error={code}"));
            let ledger = Ledger::new();
            let saved = backup(&store, &site.source(), &ledger);
            drop(store);
            if parity == 0 {
                let error = saved.unwrap_err();
                assert_eq!(error.kind(), Kind::NoSpace, "{point}: {error}");
                assert!(error.advice_text().unwrap().contains("pinstripe gc"), "{error}");
                bench.assert_first_is_whole();
                continue;
            }
            let second = saved.unwrap();
            ledger.assert_no_losses();
            let degraded = ledger.degraded();
            assert_eq!(degraded.len(), 1, "{point}: {degraded:#?}");
            assert!(site.is_place_of(&degraded[0].place, 1), "{point}: {degraded:#?}");
            assert_eq!(degraded[0].kind, Kind::NoSpace);
            let mut store = site.store();
            site.assert_restores(&store, &second, &bench.second_tree);
            assert_survives_each_loss(site, &second, &bench.second_tree);
            repair(&mut store, &Ledger::new());
            assert_whole(&site.store());
            site.assert_restores(&site.store(), &second, &bench.second_tree);
            bench.assert_first_is_whole();
        }
    }
}

/// Whether a snapshot can be read without any one of the members but the one that ran full: a pack
/// that was open on that one had no parity left.
fn assert_survives_each_loss<S: SuiteSite>(site: &S, snapshot: &Snapshot, tree: &Tree) {
    let aside = site.path("aside");
    for (number, member) in site.members.iter().enumerate() {
        fs::rename(member, &aside).unwrap();
        let store = site.store_through((number + 1) % site.members.len());
        site.assert_restores(&store, snapshot, tree);
        fs::rename(&aside, member).unwrap();
    }
    // A server in front of the members sees again that all are there.
    drop(site.store());
}

/// A member that fails amid a backup took the parity from all packs that were open then.
pub fn what_was_open_on_a_member_that_fails_is_laid_again_with_its_parity<S: SuiteSite>() {
    for fault in ["op=append,room=packs,member=1,after=1,error=EIO", "op=seal,member=1,error=EIO"] {
        let bench = Bench::<S>::new(4, 1);
        let site = &bench.site;
        let ledger = Ledger::new();
        let store = site.store_with_faults(fault);
        let second = backup(&store, &site.source(), &ledger).unwrap();
        assert_eq!(ledger.degraded().len(), 1, "{fault}: {:#?}", ledger.seen());
        // Of earlier packs the failed member has a part, which counts as lost.
        assert_eq!(ledger.monitor.redundancy().map(|it| it.survives), Some(0), "{fault}");
        drop(store);
        let store = site.store();
        let index = Index::load(&store, &ledger.monitor).unwrap();
        let counted = redundancy(&store, &index, &[]).unwrap();
        assert_eq!((counted.survives, counted.thin_packs), (1, 0), "{fault}");
        assert_survives_each_loss(site, &second, &bench.second_tree);
    }
}

/// Of more full members than parity replaces nothing new is begun.
pub fn more_full_members_than_parity_replaces_end_the_backup<S: SuiteSite>() {
    let bench = Bench::<S>::new(4, 1);
    let site = &bench.site;
    let full = "op=append,room=packs,member=1,error=ENOSPC;\
                op=append,room=packs,member=2,after=3,error=ENOSPC";
    let error = backup(&site.store_with_faults(full), &site.source(), &Ledger::new()).unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace, "{error}");
    assert!(error.advice_text().unwrap().contains("pinstripe forget"), "{error}");
    bench.assert_first_is_whole();
}

pub fn writes_that_are_lost_or_torn_are_healed<S: SuiteSite>() {
    let bench = Bench::<S>::new(4, 1);
    let site = &bench.site;
    for fault in [
        "op=append,member=2,after=3,times=1,lost=yes",
        "op=append,member=2,after=4,times=2,torn=100",
        "op=append,member=2,chance=0.3,seed=5,flip=3",
        "op=append,member=2,torn=0",
        "op=put,member=2,room=snapshots,torn=20",
        "op=put,member=2,room=snapshots,lost=yes",
    ]
    .into_iter()
    .step_by(S::stride())
    {
        site.put_image(&bench.image);
        let store = site.store_with_faults(fault);
        let second = backup(&store, &site.source(), &Ledger::new()).unwrap();
        drop(store);
        let mut store = site.store();
        site.assert_restores(&store, &second, &bench.second_tree);
        let ledger = Ledger::new();
        assert!(check(&store, true, &ledger).repairable > 0, "{fault}: not even noticed");
        ledger.assert_no_losses();
        repair(&mut store, &Ledger::new());
        assert_whole(&site.store());
        bench.assert_first_is_whole();
    }
}

pub fn reads_that_fail_lie_or_end_early_are_healed<S: SuiteSite>() {
    let bench = Bench::<S>::new(4, 1);
    let site = &bench.site;
    let (snapshot, tree) = &bench.first;
    for fault in [
        "op=read,member=1,error=EIO",
        "op=read,member=1,room=packs,after=2,error=EIO",
        "op=read,member=3,room=packs,flip=2",
        "op=read,member=0,room=index,flip=1,seed=3",
        "op=read,member=2,room=packs,chance=0.5,seed=1,flip=1",
        "op=read,member=2,short=10",
        "op=len,member=2,error=EIO",
        "op=read,member=1,room=snapshots,flip=1",
        "op=read,member=0,room=keys,error=EIO",
    ] {
        let store = site.store_with_faults(fault);
        site.assert_restores(&store, snapshot, tree);
        let ledger = Ledger::new();
        let outcome = check(&store, true, &ledger);
        ledger.assert_no_losses();
        assert!(outcome.lost == 0 && outcome.hurt_paths == 0, "{fault}: {outcome:?}");
    }
}

/// A member whose directories cannot even be listed.
pub fn a_member_that_cannot_be_listed_is_done_without<S: SuiteSite>() {
    let bench = Bench::<S>::new(4, 1);
    let site = &bench.site;
    let (snapshot, tree) = &bench.first;
    for fault in ["op=list,member=2,error=EIO", "member=2,error=EIO"] {
        let store = site.store_with_faults(fault);
        site.assert_restores(&store, snapshot, tree);
        let ledger = Ledger::new();
        let outcome = check(&store, true, &ledger);
        ledger.assert_no_losses();
        assert!(outcome.repairable > 0 && outcome.lost == 0, "{fault}: {outcome:?}");
    }
    let store = S::new(2, 0);
    small_tree(&store.source(), 1);
    let snapshot = store.save();
    let open = store.store_with_faults("op=list,member=1,error=EIO");
    let to = store.target();
    let error = crate::support::restore(
        &open,
        &snapshot.id.to_string(),
        &store.source(),
        &to,
        &Ledger::new(),
    );
    assert_eq!(error.unwrap_err().kind(), Kind::Io);
}
