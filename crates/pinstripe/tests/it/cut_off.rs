//! Writers that die while they seal something, and packs that lack an extent beside that: what can
//! be read stays readable, whatever becomes of the index.
//!
//! Names are chosen, so that the strip with the head of an index run is on the member that seals
//! it first. That is what it takes for a half-sealed run to look like a good one.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pinstripe::index::{Index, read_pack_index};
use pinstripe::{OpenOptions, Store, forget, gc, member, scrub};
use pinstripe_base::id::{Names, SetId};
use pinstripe_member::record::RecordKind;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{DiskStep, ExtentKind, ExtentName, Steps};
use pinstripe_stripe::Permutation;

use crate::gc::{forget_one, options};
use pinstripe_sim::{
    Ledger, NoWait, Site, assert_whole, backup, check, credential, limits, noise, repair,
};
use pinstripe_sim::{Tree, look};

/// Names that all begin alike, so that all sets have the same first row.
struct Chosen {
    first: u64,
    next: AtomicU64,
}

impl Names for Chosen {
    fn fill(&self, bytes: &mut [u8]) -> pinstripe_base::error::Result<()> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let name = [self.first.to_le_bytes(), number.to_le_bytes()].concat();
        bytes.copy_from_slice(&name[..bytes.len()]);
        Ok(())
    }
}

/// Sets over three members have their last data strip on the first of them.
fn heads_on_the_first_member() -> Arc<Chosen> {
    let is_so = |first: &u64| {
        let mut set = SetId([0; 16]);
        set.0[..8].copy_from_slice(&first.to_le_bytes());
        Permutation::new(set, 0, 3).slot(1) == 0
    };
    let first = (0..).find(is_so).expect("one of three has it");
    Arc::new(Chosen { first, next: AtomicU64::new(0) })
}

/// The process dies when so many extents of index runs have their names.
struct DiesInSealing {
    left: Mutex<i64>,
    died: Condvar,
    /// Rooms in which no extent gets its name before the process is dead: the merge of index runs
    /// runs beside a backup, which must not come to its end first.
    held: &'static [ExtentKind],
}

impl DiesInSealing {
    fn after_one(held: &'static [ExtentKind]) -> Arc<Self> {
        Arc::new(DiesInSealing { left: Mutex::new(1), died: Condvar::new(), held })
    }
}

impl Steps for DiesInSealing {
    fn take(
        &self,
        step: &DiskStep<'_>,
        act: &mut dyn FnMut() -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let names_in = |kind: &ExtentKind| match step {
            DiskStep::Rename { to, .. } => to.components().any(|it| it.as_os_str() == kind.dir()),
            _ => false,
        };
        // One step at a time: of two at once the second would still be taken.
        let mut left = self.left.lock().unwrap();
        if self.held.iter().any(names_in) {
            let (lives, deadline) = (|left: &mut i64| *left > 0, Duration::from_secs(60));
            left = self.died.wait_timeout_while(left, deadline, lives).unwrap().0;
        }
        if *left <= 0 {
            return Err(std::io::Error::other("dead"));
        }
        NoWait.take(step, act)?;
        *left -= i64::from(names_in(&ExtentKind::Index));
        self.died.notify_all();
        Ok(())
    }
}

/// A store over three members with snapshots, each of one file more.
struct Bench {
    site: Site,
    saved: Vec<(Snapshot, Tree)>,
}

impl Bench {
    /// As many that the next backup merges their index runs.
    fn new() -> Self {
        Bench::with(4)
    }

    fn with(snapshots: u64) -> Self {
        let mut bench = Bench { site: Site::new(3, 1), saved: Vec::new() };
        (0..snapshots).for_each(|_| bench.save());
        bench
    }

    /// A snapshot of one file more.
    fn save(&mut self) {
        let (number, source) = (self.saved.len() as u64, self.site.source());
        fs::write(source.join(format!("f{number}")), noise(number, 20_000)).unwrap();
        self.saved.push((self.site.save(), look(&source)));
    }

    /// A pack of content, not of trees.
    fn content_pack(&self) -> SetId {
        let store = self.site.store();
        let is_content = |set: &SetId| {
            let index = read_pack_index(&store, *set).unwrap();
            index.records.iter().all(|record| record.kind == RecordKind::Data)
        };
        let mut packs = store.list(ExtentKind::Packs).unwrap().into_keys().map(SetId);
        packs.find(is_content).expect("small files are in packs of their own")
    }

    fn extent(&self, member: usize, name: ExtentName) -> PathBuf {
        self.site.members[member].join(name.path())
    }

    /// A backup stores a new file and dies when its first index run would get a name; returns the
    /// packs that it leaves whole.
    fn die_before_the_index(&self) -> Vec<SetId> {
        let own = pinstripe_member::own_process();
        let started_ticks = own.started_ticks + 1;
        let options = OpenOptions {
            steps: Some(DiesInSealing::after_one(&[])),
            process: Some(pinstripe_member::session::Process { started_ticks, ..own }),
            ..OpenOptions::default()
        };
        let mut store = Store::open_with(&self.site.members[0], options).unwrap();
        store.unlock(&credential()).unwrap();
        let before = self.site.store().list(ExtentKind::Packs).unwrap();
        fs::write(self.site.source().join("left"), noise(77, 20_000)).unwrap();
        backup(&store, &self.site.source(), &Ledger::new()).unwrap_err();
        fs::remove_file(self.site.source().join("left")).unwrap();
        drop(store);
        let after = self.site.store().list(ExtentKind::Packs).unwrap().into_keys();
        after.filter(|set| !before.contains_key(set)).map(SetId).collect()
    }

    /// As when a member failed during a backup: within parity, and no rule of the store is broken.
    fn thin_out(&self) -> SetId {
        let set = self.content_pack();
        fs::remove_file(self.extent(0, ExtentName::pack(set))).unwrap();
        set
    }

    fn drop_runs(&self) {
        for member in &self.site.members {
            for run in fs::read_dir(member.join(ExtentKind::Index.dir())).unwrap() {
                fs::remove_file(run.unwrap().path()).unwrap();
            }
        }
    }

    fn assert_all_restore(&self) {
        for (snapshot, tree) in &self.saved {
            self.site.assert_restores(&self.site.store(), snapshot, tree);
        }
    }

    #[track_caller]
    fn assert_no_losses(&self) -> Ledger {
        let ledger = Ledger::new();
        let outcome = check(&self.site.store(), true, &ledger);
        ledger.assert_no_losses();
        assert_eq!((outcome.lost, outcome.lost_chunks, outcome.hurt_paths), (0, 0, 0));
        ledger
    }
}

/// A backup merges four runs, dies when one member has its part of the new one, and the next
/// backup ends well.
#[test]
fn a_merge_that_dies_in_sealing_costs_no_run() {
    let mut bench = Bench::new();
    // A merge beside the backup that wrote the fourth run may have seen that run already.
    while bench.site.store().list(ExtentKind::Index).unwrap().len() < 4 {
        bench.save();
    }
    bench.thin_out();
    let own = pinstripe_member::own_process();
    let dead = pinstripe_member::session::Process { started_ticks: own.started_ticks + 1, ..own };
    let options = OpenOptions {
        steps: Some(DiesInSealing::after_one(&[ExtentKind::Packs, ExtentKind::Snapshots])),
        process: Some(dead),
        names: Some(heads_on_the_first_member()),
        ..OpenOptions::default()
    };
    let mut store = Store::open_with(&bench.site.members[0], options).unwrap();
    store.unlock(&credential()).unwrap();
    let before = bench.site.store().list(ExtentKind::Index).unwrap();
    // No file is new: what it writes into the index first is the merge.
    backup(&store, &bench.site.source(), &Ledger::new()).unwrap_err();
    drop(store);
    let after = bench.site.store().list(ExtentKind::Index).unwrap();
    let cut: Vec<_> = after.iter().filter(|(run, _)| !before.contains_key(*run)).collect();
    assert!(matches!(&cut[..], [(_, members)] if members[..] == [0]), "{cut:?}");
    bench.assert_no_losses();
    backup(&bench.site.store(), &bench.site.source(), &Ledger::new()).unwrap();
    bench.assert_no_losses();
    bench.assert_all_restore();
    repair(&mut bench.site.store(), &Ledger::new());
    assert_whole(&bench.site.store());
}

#[test]
fn packs_are_read_though_every_run_is_gone_and_one_lacks_an_extent() {
    let bench = Bench::new();
    let thin = bench.thin_out();
    bench.drop_runs();
    let ledger = bench.assert_no_losses();
    let place = bench.extent(0, ExtentName::pack(thin));
    let told = ledger.warnings().into_iter().find(|seen| seen.place == place).unwrap();
    assert!(told.advice.contains("run 'pinstripe repair'"), "{told:?}");
    bench.assert_all_restore();
    // What only it has is not relied upon: the next backup stores it again.
    let (store, other) = (bench.site.store(), Ledger::new());
    let index = Index::load(&store, &other.monitor).unwrap();
    let record = &read_pack_index(&store, thin).unwrap().records[0];
    assert!(!index.rely_on(&record.chunks[0].id).unwrap());
    backup(&store, &bench.site.source(), &Ledger::new()).unwrap();
    let index = Index::load(&store, &other.monitor).unwrap();
    assert!(index.rely_on(&record.chunks[0].id).unwrap());
    repair(&mut bench.site.store(), &Ledger::new());
    assert_whole(&bench.site.store());
    bench.assert_all_restore();
}

/// The packs of forgotten snapshots are moved when a member leaves, for they can be brought back.
#[test]
fn a_forgotten_snapshot_comes_back_though_a_member_left_and_every_run_was_gone() {
    let bench = Bench::new();
    bench.thin_out();
    bench.drop_runs();
    bench.saved.iter().for_each(|(snapshot, _)| forget_one(&bench.site.store(), snapshot));
    let store = &mut bench.site.store();
    member::remove(store, 2, &limits(), &Ledger::new().monitor).unwrap();
    repair(&mut bench.site.store(), &Ledger::new());
    for (snapshot, _) in &bench.saved {
        let name = snapshot.id.to_string();
        forget::undelete(&bench.site.store(), &name, &Ledger::new().monitor).unwrap();
    }
    bench.assert_no_losses();
    bench.assert_all_restore();
}

/// Nothing says whether what a forgotten snapshot lacks is what nothing knows.
#[test]
fn what_a_forgotten_snapshot_may_lack_is_not_deleted_when_a_member_leaves() {
    let bench = Bench::new();
    let set = bench.content_pack();
    let name = ExtentName::pack(set);
    bench.drop_runs();
    let aside = |member: usize| bench.site.path(&format!("aside-{member}"));
    (0..2).for_each(|member| fs::rename(bench.extent(member, name), aside(member)).unwrap());
    bench.saved.iter().for_each(|(snapshot, _)| forget_one(&bench.site.store(), snapshot));
    let store = &mut bench.site.store();
    let error = member::remove(store, 2, &limits(), &Ledger::new().monitor).unwrap_err();
    assert!(error.advice_text().unwrap().contains("pinstripe gc"), "{error:?}");
    // It turns up again.
    (0..2).for_each(|member| fs::rename(aside(member), bench.extent(member, name)).unwrap());
    for (snapshot, _) in &bench.saved {
        let name = snapshot.id.to_string();
        forget::undelete(&bench.site.store(), &name, &Ledger::new().monitor).unwrap();
    }
    bench.assert_all_restore();
}

/// One extent of a pack is there, and that is damaged: nothing says any more how it was cut.
#[test]
fn what_a_dead_backup_left_of_a_pack_is_no_loss_when_it_is_damaged() {
    let bench = Bench::new();
    let name = ExtentName::In(ExtentKind::Packs, [7; 16]);
    let path = bench.extent(1, name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, b"something else").unwrap();
    let ledger = bench.assert_no_losses();
    let told = ledger.warnings();
    assert!(matches!(&told[..], [seen] if seen.text.contains("left behind")), "{told:?}");
    let ledger = Ledger::new();
    let repaired = repair(&mut bench.site.store(), &ledger);
    ledger.assert_no_losses();
    assert_eq!((repaired.lost_extents, path.exists()), (0, true));
    let scrubbed = scrub_all(&bench, &ledger);
    ledger.assert_no_losses();
    assert_eq!(scrubbed.lost, 0);
    gc::run(&bench.site.store(), &options(), &ledger.monitor).unwrap();
    assert!(!path.exists());
    assert_whole(&bench.site.store());
    bench.assert_all_restore();
}

fn scrub_all(bench: &Bench, ledger: &Ledger) -> scrub::ScrubOutcome {
    let options = scrub::ScrubOptions {
        budget: "100%".parse().unwrap(),
        rate: None,
        save_bytes: 20_000,
        limits: limits(),
    };
    scrub::run(&bench.site.store(), &options, &ledger.monitor, &|_| {}).unwrap()
}

/// What a dead backup stored is whole until more of it is damaged than parity replaces: in places,
/// so that its index can still be read, or all of it.
#[test]
fn what_a_dead_backup_left_is_no_loss_however_it_is_damaged() {
    for is_all in [false, true] {
        for with_repair in [false, true] {
            let bench = Bench::with(1);
            let left = bench.die_before_the_index();
            assert!(!left.is_empty());
            for set in &left {
                for member in 0..2 {
                    let path = bench.extent(member, ExtentName::pack(*set));
                    let mut bytes = fs::read(&path).unwrap();
                    match is_all {
                        true => bytes.fill(0x55),
                        // The strips behind the header, and not the index and trailer at the end.
                        false => bytes[4096..4096 + 200].fill(0x55),
                    }
                    fs::write(&path, bytes).unwrap();
                }
            }
            bench.assert_no_losses();
            let ledger = Ledger::new();
            assert_eq!(scrub_all(&bench, &ledger).lost, 0, "{:#?}", ledger.seen());
            if with_repair {
                let repaired = repair(&mut bench.site.store(), &ledger);
                assert_eq!(repaired.lost_extents, 0, "{:#?}", ledger.seen());
            }
            gc::run(&bench.site.store(), &options(), &ledger.monitor).unwrap();
            ledger.assert_no_losses();
            for set in left {
                assert!(!bench.extent(2, ExtentName::pack(set)).exists(), "{set} stays");
            }
            repair(&mut bench.site.store(), &Ledger::new());
            assert_whole(&bench.site.store());
            bench.assert_all_restore();
        }
    }
}
