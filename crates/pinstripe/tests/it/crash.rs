//! The power goes off at every single step: write, sync, rename, unlink, new directory.
//!
//! Whatever is left then, every finished snapshot is whole, the next backup works, and nothing
//! has a final name that is not whole.

use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pinstripe::{Store, check, read_small, repair, snapshots};
use pinstripe_base::error::Kind;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{ExtentKind, ExtentName, PowerCut, SharedMember, Steps};
use pinstripe_stripe::SetReader;

use pinstripe_sim::{Image, Ledger, NoWait, Site, backup, check, limits, noise, read_files};
use pinstripe_sim::{Tree, look};

/// Sites that work through the cuts side by side.
const THREADS: u64 = 3;
/// Every so many cuts the snapshots are restored whole, not only checked.
const RESTORE_EVERY: u64 = 8;

/// A store with one snapshot, and a source tree that has changed since.
struct Bench {
    site: Site,
    image: Image,
    first: Snapshot,
    first_tree: Tree,
    second_tree: Tree,
}

impl Bench {
    fn new() -> Self {
        let site = Site::new(3, 1);
        let source = site.source();
        fs::create_dir(source.join("d")).unwrap();
        fs::write(source.join("kept"), noise(1, 9000)).unwrap();
        fs::write(source.join("d/changed"), noise(2, 5000)).unwrap();
        let (first, first_tree) = (site.save(), look(&source));
        let image = site.image();
        fs::write(source.join("d/changed"), noise(3, 6000)).unwrap();
        fs::write(source.join("new"), noise(4, 3000)).unwrap();
        let second_tree = look(&source);
        Bench { site, image, first, first_tree, second_tree }
    }

    /// All that must hold whatever happened: reopen, check, back up, and now and then restore.
    fn assert_sound(&self, cut: u64) -> Vec<Snapshot> {
        let store = self.site.store();
        assert_no_half_objects(&store);
        let ledger = Ledger::new();
        let found = snapshots::run(&store, &ledger.monitor).unwrap();
        assert!(found.contains(&self.first), "cut {cut}: the first snapshot is gone");
        let outcome = check(&store, true, &ledger);
        ledger.assert_no_losses();
        assert_eq!((outcome.lost, outcome.hurt_paths), (0, 0), "cut {cut}");

        let ledger = Ledger::new();
        let last = backup(&store, &self.site.source(), &ledger).unwrap();
        ledger.assert_no_losses();
        for member in &self.site.members {
            assert_eq!(fs::read_dir(member.join("tmp")).unwrap().count(), 0, "cut {cut}");
        }
        let store = self.site.store();
        let ledger = Ledger::new();
        check(&store, true, &ledger);
        ledger.assert_no_losses();
        if cut.is_multiple_of(RESTORE_EVERY) {
            self.site.assert_restores(&store, &self.first, &self.first_tree);
            let after = found.iter().filter(|snapshot| **snapshot != self.first);
            for snapshot in after.chain([&last]) {
                self.site.assert_restores(&store, snapshot, &self.second_tree);
            }
        }
        found
    }
}

/// Nothing has a name that is not whole, each extent by itself.
fn assert_no_half_objects(store: &Store) {
    for (number, member) in store.present() {
        for kind in ExtentKind::ALL {
            for (id, _) in member.list(kind).unwrap() {
                let name = ExtentName::In(kind, id);
                match kind {
                    ExtentKind::Packs | ExtentKind::Index => {
                        assert_whole_extent(store, number, member, name)
                    }
                    _ => {
                        let bytes = read_small(&**member, name).unwrap();
                        check::judge(store, number, name, &bytes).unwrap();
                    }
                }
            }
        }
    }
}

fn assert_whole_extent(store: &Store, number: usize, member: &SharedMember, name: ExtentName) {
    let ExtentName::In(_, id) = name else { unreachable!("an extent is in a room") };
    let mut alone = vec![None; store.member_slots.len()];
    alone[number] = Some(Arc::clone(member));
    let set = pinstripe_base::id::SetId(id);
    let reader = SetReader::open(&alone, name, store.config.store, set).unwrap();
    let found = reader.verify(&mut |_| {});
    let own: Vec<_> = found.damage.iter().filter(|damage| damage.member == Some(number)).collect();
    assert!(own.is_empty(), "{name}: {own:?}");
}

/// Runs `work` for every number of a range, each on one of several benches.
fn on_benches(cuts: Range<u64>, work: impl Fn(&Bench, u64) + Sync) {
    let next = AtomicU64::new(cuts.start);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let bench = Bench::new();
                loop {
                    let cut = next.fetch_add(1, Ordering::Relaxed);
                    if cut >= cuts.end {
                        break;
                    }
                    bench.site.put_image(&bench.image);
                    work(&bench, cut);
                }
            });
        }
    });
}

/// The number of steps that `work` takes when nothing stops it.
fn count_steps(work: impl FnOnce(Arc<dyn Steps>)) -> u64 {
    let counter = Arc::new(PowerCut::new(u64::MAX));
    work(Arc::clone(&counter) as Arc<dyn Steps>);
    counter.steps_done()
}

#[test]
fn a_backup_cut_off_at_any_step_leaves_every_snapshot_whole() {
    let bench = Bench::new();
    let steps = count_steps(|steps| {
        let store = bench.site.open(0, "", steps).unwrap();
        backup(&store, &bench.site.source(), &Ledger::new()).unwrap();
    });
    assert!(steps > 60, "{steps}");
    let (committed, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    on_benches(0..steps + 1, |bench, cut| {
        let power = Arc::new(PowerCut::new(cut));
        let store = bench.site.open(0, "", Arc::clone(&power) as Arc<dyn Steps>).unwrap();
        let done = backup(&store, &bench.site.source(), &Ledger::new());
        drop(store);
        power.after_power_cut(cut * 7919).unwrap();
        let found = bench.assert_sound(cut);
        if let Ok(snapshot) = done {
            assert!(found.contains(&snapshot), "cut {cut}: reported as done, and gone");
            committed.fetch_add(1, Ordering::Relaxed);
        } else {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    });
    // Both kinds of ends were seen, so that neither half of the test was empty.
    assert!(committed.into_inner() > 0 && lost.into_inner() > 40);
}

/// A program that is killed loses nothing that it wrote; the leftovers must not hurt either.
#[test]
fn a_backup_killed_at_any_step_leaves_every_snapshot_whole() {
    on_benches(0..60, |bench, turn| {
        let cut = turn * 2;
        let power = Arc::new(PowerCut::new(cut));
        let store = bench.site.open(0, "", power).unwrap();
        let _ = backup(&store, &bench.site.source(), &Ledger::new());
        drop(store);
        bench.assert_sound(cut);
    });
}

/// Nothing on member 1 is as it was.
fn hurt_one_member(site: &Site) {
    let member = &site.members[1];
    let mut files = std::collections::BTreeMap::new();
    read_files(member, &mut files);
    for (turn, (path, bytes)) in files.into_iter().enumerate() {
        let is_pack = path.starts_with(member.join("packs"));
        match turn % 3 {
            // What is left of the packs says whose they are.
            _ if is_pack => fs::write(path, &bytes[..4200]).unwrap(),
            0 => fs::remove_file(path).unwrap(),
            1 => fs::write(path, &bytes[..30]).unwrap(),
            _ => fs::write(path, b"something else").unwrap(),
        }
    }
}

#[test]
fn a_repair_cut_off_at_any_step_loses_nothing_and_the_next_one_ends_it() {
    let run = |site: &Site, steps: Arc<dyn Steps>| {
        let mut store = site.open_doomed(0, "", steps).unwrap();
        repair::run(&mut store, limits(), &Ledger::new().monitor)
    };
    let bench = Bench::new();
    hurt_one_member(&bench.site);
    let steps = count_steps(|steps| {
        run(&bench.site, steps).unwrap();
    });
    assert!(bench.site.image() == bench.image, "repair brings back what was there");
    assert!(steps > 25, "{steps}");
    on_benches(0..steps + 1, |bench, cut| {
        hurt_one_member(&bench.site);
        let power = Arc::new(PowerCut::new(cut));
        let done = run(&bench.site, Arc::clone(&power) as Arc<dyn Steps>);
        // It may have had to do no more than to say that it is done.
        assert!(done.is_ok() || power.is_off(), "cut {cut}");
        power.after_power_cut(cut * 104_729).unwrap();
        let ledger = Ledger::new();
        let outcome = check(&bench.site.store(), true, &ledger);
        ledger.assert_no_losses();
        assert_eq!((outcome.lost, outcome.hurt_paths), (0, 0), "cut {cut}");
        if done.is_ok() {
            assert_eq!(outcome.repairable, 0, "cut {cut}: {:#?}", ledger.seen());
        }
        run(&bench.site, Arc::new(NoWait)).unwrap();
        let (now, temp) = (bench.site.image(), bench.site.members[1].join("tmp"));
        for (path, bytes) in now.0.iter().filter(|(path, _)| !path.starts_with(&temp)) {
            assert!(bench.image.0.get(path) == Some(bytes), "cut {cut}: {}", path.display());
        }
        bench.assert_sound(cut);
    });
}

#[test]
fn an_init_cut_off_at_any_step_is_a_whole_store_or_none() {
    let site = Site::bare(2);
    let steps = count_steps(|steps| site.init(1, "4K", steps).unwrap());
    assert!(steps > 20, "{steps}");
    let (mut whole, mut none) = (0, 0);
    for cut in 0..=steps {
        let site = Site::bare(2);
        fs::write(site.source().join("file"), noise(cut, 2000)).unwrap();
        let power = Arc::new(PowerCut::new(cut));
        let done = site.init(1, "4K", Arc::clone(&power) as Arc<dyn Steps>);
        power.after_power_cut(cut * 31).unwrap();
        let opened: Vec<_> = (0..2).map(|m| site.open(m, "", Arc::new(NoWait))).collect();
        if done.is_ok() {
            assert!(opened.iter().all(Result::is_ok), "cut {cut}");
        }
        if let Some(store) = opened.iter().flatten().next() {
            whole += 1;
            let (wanted, ledger) = (look(&site.source()), Ledger::new());
            let snapshot = backup(store, &site.source(), &ledger).unwrap();
            ledger.assert_no_losses();
            site.assert_restores(store, &snapshot, &wanted);
        } else {
            none += 1;
            let kinds: Vec<_> = opened.iter().map(|it| it.as_ref().err().unwrap().kind()).collect();
            assert_eq!(kinds, [Kind::NotFound; 2], "cut {cut}");
        }
    }
    assert!(whole > 0 && none > 0);
}
