//! A member that was away for some nights and is back: it is named, what it brought back of index
//! runs goes, and nothing is said against the members that were there.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Barrier;

use pinstripe::restore::{Delete, RestoreOptions};
use pinstripe::{Reuse, Store, restore, scrub};
use pinstripe_base::error::Kind;
use pinstripe_base::monitor::Counter;
use pinstripe_member::{DirectoryMember, ExtentKind, Member};

use pinstripe_sim::look;
use pinstripe_sim::{Ledger, Site, assert_whole, backup, check, limits, noise, small_tree};

/// Backs up with something new each time; with a member away that is no loss.
fn nights(site: &Site, count: u64, first: u64) {
    for night in first..first + count {
        fs::write(site.source().join("new"), noise(night, 9_000)).unwrap();
        let ledger = Ledger::new();
        backup(&site.store(), &site.source(), &ledger).unwrap();
        ledger.assert_no_losses();
    }
}

fn scrub(store: &Store, ledger: &Ledger) -> scrub::ScrubOutcome {
    let options = scrub::ScrubOptions {
        budget: scrub::Budget::default(),
        rate: None,
        save_bytes: u64::MAX,
        limits: limits(),
    };
    scrub::run(store, &options, &ledger.monitor, &|_| {}).unwrap()
}

/// A store of which the last member was away while runs were merged; `narrow` ones, which another
/// member has no part of, because it was away before.
fn with_a_stale_member(members: usize, parity: u8, narrow: bool) -> Site {
    let site = Site::new(members, parity);
    small_tree(&site.source(), 1);
    if narrow {
        fs::rename(&site.members[1], site.path("aside")).unwrap();
    }
    nights(&site, 6, 0);
    if narrow {
        fs::rename(site.path("aside"), &site.members[1]).unwrap();
        scrub(&site.store(), &Ledger::new());
    }
    let last = &site.members[members - 1];
    fs::rename(last, site.path("aside")).unwrap();
    nights(&site, 9, 100);
    fs::rename(site.path("aside"), last).unwrap();
    site
}

fn runs_on(member: &Path) -> BTreeSet<[u8; 16]> {
    let listed = DirectoryMember::open(member).unwrap().list(ExtentKind::Index).unwrap();
    listed.into_iter().map(|(id, _)| id).collect()
}

/// The runs that only this member has: the others have merged them since.
fn superseded_on(site: &Site, stale: &Path) -> BTreeSet<[u8; 16]> {
    let others = site.members.iter().filter(|member| *member != stale);
    let there: BTreeSet<_> = others.flat_map(|member| runs_on(member)).collect();
    runs_on(stale).difference(&there).copied().collect()
}

#[test]
fn of_a_member_that_was_away_nothing_is_said_against_the_others() {
    for (members, parity, narrow) in
        [(4, 1, false), (3, 1, false), (3, 1, true), (5, 2, false), (5, 2, true)]
    {
        let site = with_a_stale_member(members, parity, narrow);
        let stale = site.members[members - 1].clone();
        let image = site.image();
        let (store, ledger) = (site.store(), Ledger::new());
        let found = check(&store, true, &ledger);
        ledger.assert_no_losses();
        // What it lacks is to be written, and nothing else.
        assert_eq!((found.repairable, found.lost), (9, 0), "{found:?}");
        let seen = ledger.warnings();
        assert_eq!(seen.len(), 1, "{seen:#?}");
        assert_eq!(seen[0].place, stale);
        let number = members - 1;
        let text = format!("member {number} was absent or failed: it lacks 9 snapshots");
        assert!(seen[0].text.contains(&text), "{}", seen[0].text);
        assert!(seen[0].text.contains("superseded index run"), "{}", seen[0].text);

        // Scrub brings it up to date and leaves nothing for repair.
        let ledger = Ledger::new();
        let outcome = scrub(&store, &ledger);
        assert_eq!((outcome.repairable, outcome.lost), (0, 0), "{outcome:?}");
        assert!(outcome.removed_runs > 0 && outcome.mended_objects == 9, "{outcome:?}");
        let blamed = ledger.seen().into_iter().find(|seen| !seen.place.starts_with(&stale));
        assert!(blamed.is_none(), "{blamed:#?}");
        assert_whole(&site.store());

        // So does a backup with the runs, and says so.
        site.put_image(&image);
        let superseded = superseded_on(&site, &stale);
        assert!(!superseded.is_empty());
        let ledger = Ledger::new();
        backup(&site.store(), &site.source(), &ledger).unwrap();
        ledger.assert_no_losses();
        assert!(ledger.warnings().iter().any(|seen| seen.place == stale), "{:#?}", ledger.seen());
        assert!(superseded.is_disjoint(&runs_on(&stale)));
        let ledger = Ledger::new();
        let found = check(&site.store(), true, &ledger);
        assert_eq!((found.repairable, found.lost), (9, 0), "{:#?}", ledger.seen());
        assert!(ledger.warnings().iter().all(|seen| seen.place == stale), "{:#?}", ledger.seen());
    }
}

/// A member that is absent was counted as a loss of files, kept in the snapshot.
#[test]
fn a_missing_member_is_no_loss_and_no_mark_on_the_snapshot() {
    let site = Site::new(4, 1);
    small_tree(&site.source(), 1);
    fs::rename(&site.members[3], site.path("aside")).unwrap();
    let ledger = Ledger::new();
    let snapshot = backup(&site.store(), &site.source(), &ledger).unwrap();
    ledger.assert_no_losses();
    assert_eq!(ledger.degraded().len(), 1);
    assert!(ledger.degraded()[0].place.ends_with("m3"));
    assert_eq!(snapshot.count("losses"), Some(0));
    assert_eq!(ledger.get(Counter::Losses), 0);

    // Nothing keeps a restore from making a tree what the snapshot has.
    let tree = look(&site.source());
    fs::write(site.source().join("later"), b"x").unwrap();
    let path = site.source();
    let options = RestoreOptions {
        overwrite: true,
        reuse: Some(Reuse::ByTime),
        delete: Some(Delete::WithinReason),
        ..RestoreOptions::new("latest", path.as_os_str().as_bytes(), &path, limits())
    };
    restore::run(&site.store(), &options, &Ledger::new().monitor).unwrap();
    pinstripe_sim::assert_same(&tree, &look(&path));
}

/// Two movers that began at the same moment saw each other, and both gave up.
#[test]
fn of_movers_that_begin_at_once_exactly_one_gets_the_right() {
    let site = Site::new(4, 1);
    for (round, movers) in [2, 2, 2, 3, 2, 2, 3, 2].into_iter().enumerate() {
        let stores: Vec<Store> = (0..movers).map(|_| site.store()).collect();
        let (begin, end) = (Barrier::new(movers), Barrier::new(movers));
        let won = std::thread::scope(|scope| {
            let claims: Vec<_> = (stores.iter())
                .map(|store| {
                    let (begin, end) = (&begin, &end);
                    scope.spawn(move || {
                        begin.wait();
                        let claim = store.claim();
                        end.wait();
                        match claim {
                            Ok(claim) => claim.confirm().is_ok(),
                            Err(error) => {
                                assert_eq!(error.kind(), Kind::Busy, "{error}");
                                assert!(error.advice_text().unwrap().contains("--wait"));
                                false
                            }
                        }
                    })
                })
                .collect();
            claims.into_iter().map(|it| it.join().unwrap()).filter(|won| *won).count()
        });
        assert_eq!(won, 1, "round {round} of {movers}");
    }
    // One that has the right is not overtaken, whatever the ids are.
    let (store, other) = (site.store(), site.store());
    let held = store.claim().unwrap();
    for _ in 0..6 {
        assert_eq!(other.claim().err().unwrap().kind(), Kind::Busy);
        held.confirm().unwrap();
    }
    drop(held);
    other.claim().unwrap();
}
