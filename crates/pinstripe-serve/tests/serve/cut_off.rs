//! A host that is cut off, or killed, after each byte of what it sends and of what it is sent: no
//! object is half there, no snapshot is there twice, and what was acknowledged comes back.

use std::collections::BTreeSet;
use std::time::Duration;

use pinstripe::{Store, snapshots};
use pinstripe_base::error::Result;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_remote::ServedVolumes;
use pinstripe_sim::SuiteSite;
use pinstripe_sim::{Image, Ledger, assert_whole, backup, check, noise, small_tree};
use pinstripe_sim::{Tree, look};

use crate::cutting_proxy::{CuttingProxy, Then, Way};
use crate::setup::PATIENCE;
use crate::site::Above;

/// A store with one snapshot behind a server, and a source that has changed since.
struct Bench {
    site: Above,
    proxy: CuttingProxy,
    image: Image,
    first: (Snapshot, Tree),
    tree: Tree,
}

impl Bench {
    /// With `large` bytes in one new file.
    fn new(large: usize) -> Self {
        let site = Above::new(2, 1);
        small_tree(&site.source(), 1);
        let first = (site.save(), look(&site.source()));
        let image = site.image();
        std::fs::write(site.source().join("new"), noise(3, large)).unwrap();
        let proxy = CuttingProxy::start(site.connection().address.parse().unwrap());
        let tree = look(&site.source());
        Bench { site, proxy, image, first, tree }
    }

    /// A host that backs up through the proxy.
    fn back_up(&self, patience: Duration, then: Then) -> Result<Snapshot> {
        let connection = self.proxy.connection(self.site.connection());
        let volumes = ServedVolumes::new(vec![connection.clone()], patience);
        let store = self.site.open_through(&connection, volumes, then == Then::Gone)?;
        backup(&store, &self.site.source(), &Ledger::new())
    }

    fn listed(&self, store: &Store) -> Vec<Snapshot> {
        let listed = snapshots::run(store, &Ledger::new().monitor).unwrap();
        let ids: BTreeSet<_> = listed.iter().map(|it| it.id).collect();
        assert_eq!(ids.len(), listed.len(), "a snapshot is listed twice");
        listed
    }

    /// One backup that is cut off, and what must hold then.
    fn play(&self, way: Way, after: u64, then: Then) {
        let what = format!("{way:?}, cut after {after}, {then:?}");
        self.site.put_image(&self.image);
        drop(self.site.store());
        self.proxy.cut(way, after, then);
        let patience = if then == Then::Gone { Duration::ZERO } else { PATIENCE };
        let saved = self.back_up(patience, then);
        let has_cut = self.proxy.has_cut();
        self.proxy.calm();
        if then == Then::Again || !has_cut {
            assert!(saved.is_ok(), "{what}: {}", saved.unwrap_err());
        }
        self.await_no_half_files(&what);
        let store = self.site.store();
        let listed = self.listed(&store);
        // A killed host may have made its snapshot without receiving the answer.
        assert!(listed.contains(&self.first.0) && listed.len() <= 2, "{what}: {listed:#?}");
        if let Ok(saved) = &saved {
            assert!(listed.contains(saved), "{what}: an acknowledged snapshot is lost");
        }
        let ledger = Ledger::new();
        let outcome = check(&store, true, &ledger);
        ledger.assert_no_losses();
        assert_eq!((outcome.lost, outcome.hurt_paths), (0, 0), "{what}: {:#?}", ledger.seen());
        for snapshot in listed.iter().filter(|it| **it != self.first.0) {
            self.site.assert_restores(&store, snapshot, &self.tree);
        }
        // The next backup is complete.
        let next = backup(&store, &self.site.source(), &Ledger::new()).unwrap();
        let store = self.site.store();
        assert_eq!(self.listed(&store).len(), listed.len() + 1, "{what}");
        self.site.assert_restores(&store, &next, &self.tree);
        self.site.assert_restores(&store, &self.first.0, &self.first.1);
        if then == Then::Again {
            assert_whole(&store);
        }
    }

    /// The server removes what a host had begun to send, as soon as it sees that the host is gone.
    fn await_no_half_files(&self, what: &str) {
        let half = || {
            let all = self.site.members.iter().map(|member| member.join("tmp"));
            all.flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten()).count()
        };
        for _ in 0..1000 {
            if half() == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{what}: {} half files stay", half());
    }

    /// The bytes that a backup without a cut moves.
    fn length(&self, way: Way) -> u64 {
        self.site.put_image(&self.image);
        drop(self.site.store());
        self.proxy.calm();
        self.back_up(PATIENCE, Then::Again).unwrap();
        self.proxy.passed(way)
    }

    /// Cuts after bytes that are evenly far apart.
    fn play_all(&self, way: Way, then: Then, distance: usize) {
        let (length, distance) = (self.length(way), distance as u64);
        let mut after = distance / 2 + 1;
        while after < length {
            self.play(way, after, then);
            after += distance;
        }
        // Right at the end, and not at all.
        self.play(way, length - 1, then);
        self.play(way, u64::MAX, then);
    }
}

const SMALL: usize = 100;

/// The distance of the cuts in short requests: each byte with `soak whole`.
fn distance() -> usize {
    pinstripe_testing::every(2503)
}

#[test]
fn a_host_whose_requests_are_cut_off_backs_up_once() {
    Bench::new(SMALL).play_all(Way::Up, Then::Again, distance());
}

#[test]
fn a_host_whose_answers_are_cut_off_backs_up_once() {
    Bench::new(SMALL).play_all(Way::Down, Then::Again, distance());
}

#[test]
fn a_host_that_is_killed_while_it_sends_leaves_nothing_half() {
    Bench::new(SMALL).play_all(Way::Up, Then::Gone, distance());
}

#[test]
fn a_host_that_is_killed_while_it_is_answered_leaves_nothing_half() {
    Bench::new(SMALL).play_all(Way::Down, Then::Gone, distance());
}

#[test]
#[ignore = "with --all: it takes minutes; short bodies are cut in the gate"]
fn long_bodies_that_are_cut_off_leave_nothing_half() {
    let bench = Bench::new(400_000);
    for then in [Then::Again, Then::Gone] {
        bench.play_all(Way::Up, then, pinstripe_testing::count(40_009, 1009));
    }
}
