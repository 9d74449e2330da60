//! A backup that is cut off is gone on with: what it had finished is not read again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinstripe::backup::{BackupOptions, Interval};
use pinstripe::{Store, backup, checkpoints};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{DiskStep, ExtentKind, ExtentName, PowerCut, Steps};
use pinstripe_testing::every;

use pinstripe_sim::look;
use pinstripe_sim::{Ledger, NoWait, Site, assert_whole, limits, noise};

/// Three jobs.
const FILES: u64 = 300;
const FILE_BYTES: u64 = 300;

/// After each job.
const ALWAYS: Interval = Interval { time: Duration::ZERO, read_bytes: 0, waits: true };

fn plant(source: &Path, seed: u64) {
    for n in 0..FILES {
        fs::write(source.join(format!("{n:04}")), noise(seed * 1000 + n, FILE_BYTES as usize))
            .unwrap();
    }
}

fn options(site: &Site) -> BackupOptions {
    pinstripe_testing::await_tick();
    let options = BackupOptions::new(vec![site.source()], b"test", limits());
    BackupOptions { checkpoints: Some(ALWAYS), ..options }
}

fn back_up(store: &Store, site: &Site, ledger: &Ledger) -> Result<Snapshot> {
    backup::run(store, options(site), &ledger.monitor)
}

/// Files that the furthest checkpoint has.
fn files_done(store: &Store, site: &Site) -> u64 {
    let found = checkpoints::load(store, &Ledger::new().monitor).unwrap();
    let above = site.source().ancestors().count() as u64 - 1;
    found.first().map_or(0, |(_, newest)| newest.root.entries.saturating_sub(above))
}

fn checkpoints_of(site: &Site) -> usize {
    let files = |member: &std::path::PathBuf| {
        fs::read_dir(member.join("checkpoints")).map_or(0, Iterator::count)
    };
    site.members.iter().map(files).sum()
}

/// Runs again and holds it against what was done.
#[track_caller]
fn assert_resumes(site: &Site, what: &str) -> u64 {
    let store = site.store();
    let done = files_done(&store, site);
    let ledger = Ledger::new();
    let snapshot = back_up(&store, site, &ledger).unwrap();
    ledger.assert_no_losses();
    assert_eq!(ledger.get(Counter::ReadBytes), (FILES - done) * FILE_BYTES, "{what}");
    assert_eq!(ledger.get(Counter::UnchangedFiles), done, "{what}");
    let store = site.store();
    site.assert_restores(&store, &snapshot, &look(&site.source()));
    assert_eq!(checkpoints_of(site), 0, "{what}: what is of no use is removed");
    done
}

#[test]
fn a_backup_cut_off_at_any_step_goes_on_where_it_was() {
    let site = Site::new(2, 1);
    plant(&site.source(), 1);
    let image = site.image();
    let counter = Arc::new(PowerCut::new(u64::MAX));
    let store = site.open(0, "", Arc::clone(&counter) as Arc<dyn Steps>).unwrap();
    back_up(&store, &site, &Ledger::new()).unwrap();
    let steps = counter.steps_done();
    assert!(steps > 30, "{steps}");
    let mut resumed = BTreeSet::new();
    for cut in (0..steps).step_by(every(5)) {
        site.put_image(&image);
        let power = Arc::new(PowerCut::new(cut));
        let store = site.open(0, "", Arc::clone(&power) as Arc<dyn Steps>).unwrap();
        let _ = back_up(&store, &site, &Ledger::new());
        drop(store);
        power.after_power_cut(cut * 31).unwrap();
        if site.store().list(ExtentKind::Snapshots).unwrap().is_empty() {
            let done = assert_resumes(&site, &format!("cut {cut}"));
            if resumed.insert(done) {
                assert_whole(&site.store());
            }
        }
    }
    let within = resumed.iter().filter(|done| (1..FILES).contains(*done)).count();
    assert!(within >= 2, "cuts met checkpoints on the way, behind other files each: {resumed:?}");
}

/// The power goes off so many steps after the first checkpoint is durable on both members.
struct OffBehind {
    books: PowerCut,
    /// Members on which it is durable, and steps left from then on.
    left: Mutex<(BTreeSet<PathBuf>, u64)>,
}

impl OffBehind {
    fn new(steps: u64) -> Arc<Self> {
        let left = Mutex::new((BTreeSet::new(), steps));
        Arc::new(OffBehind { books: PowerCut::new(u64::MAX), left })
    }
}

impl Steps for OffBehind {
    fn take(
        &self,
        step: &DiskStep<'_>,
        act: &mut dyn FnMut() -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut left = self.left.lock().unwrap();
        if left.0.len() == 2 {
            left.1 = left.1.checked_sub(1).ok_or_else(|| std::io::Error::other("off"))?;
        }
        self.books.take(step, act)?;
        if let DiskStep::SyncDirectory(path) = step
            && path.ends_with("checkpoints")
        {
            left.0.insert(path.to_path_buf());
        }
        Ok(())
    }
}

#[test]
fn checkpoints_beside_the_pipeline_hold_the_same() {
    let site = Site::with_chunks(2, 1, "64K");
    let content = |n| noise(n, 100_000);
    let plant = |from| {
        (from..from + 250).for_each(|n| {
            fs::write(site.source().join(format!("{n:04}")), content(n)).unwrap();
        });
    };
    plant(0);
    let beside = || BackupOptions {
        checkpoints: Some(Interval { waits: false, ..ALWAYS }),
        ..options(&site)
    };
    let image = site.image();
    for steps in [0, 1, 7, 30, 100] {
        site.put_image(&image);
        let power = OffBehind::new(steps);
        let store = site.open(0, "", Arc::clone(&power) as Arc<dyn Steps>).unwrap();
        let _ = backup::run(&store, beside(), &Ledger::new().monitor);
        drop(store);
        power.books.after_power_cut(steps).unwrap();
        let store = site.store();
        if !store.list(ExtentKind::Snapshots).unwrap().is_empty() {
            assert!(steps > 0, "the end comes behind the checkpoint");
            continue;
        }
        let done = files_done(&store, &site);
        assert!((1..=250).contains(&done), "{steps} steps behind: {done}");
        let ledger = Ledger::new();
        let snapshot = backup::run(&store, beside(), &ledger.monitor).unwrap();
        ledger.assert_no_losses();
        assert_eq!(ledger.get(Counter::ReadBytes), (250 - done) * 100_000, "{steps} steps behind");
        site.assert_restores(&site.store(), &snapshot, &look(&site.source()));
    }
}

/// Sets a flag after so many steps.
struct StopAfter(AtomicU64, Arc<AtomicBool>);

impl Steps for StopAfter {
    fn take(
        &self,
        step: &DiskStep<'_>,
        act: &mut dyn FnMut() -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.1.store(true, Ordering::Relaxed);
        }
        NoWait.take(step, act)
    }
}

#[test]
fn a_stopped_backup_leaves_a_checkpoint_and_says_so() {
    let site = Site::new(2, 1);
    plant(&site.source(), 2);
    let stop = Arc::new(AtomicBool::new(true));
    let store = site.store();
    // Stopped before the first entry: an empty tree is a checkpoint too.
    let stopped = BackupOptions { stop: Arc::clone(&stop), ..options(&site) };
    let error = backup::run(&store, stopped, &Ledger::new().monitor).unwrap_err();
    assert_eq!(error.kind(), Kind::Interrupted);
    assert!(error.advice_text().unwrap().contains("run the same command again"));
    assert_eq!(checkpoints_of(&site), 2);
    assert!(store.list(ExtentKind::Snapshots).unwrap().is_empty());
    drop(store);
    assert_eq!(assert_resumes(&site, "stopped at once"), 0);

    // A backup with a parent, stopped on its way: the rest comes from the parent.
    plant(&site.source(), 3);
    let mut done = 0;
    for steps in [6, 12, 20] {
        let stop = Arc::new(AtomicBool::new(false));
        let hook = StopAfter(AtomicU64::new(steps), Arc::clone(&stop));
        let store = site.open(0, "", Arc::new(hook)).unwrap();
        let options = BackupOptions { stop, ..options(&site) };
        match backup::run(&store, options, &Ledger::new().monitor) {
            Err(error) => assert_eq!(error.kind(), Kind::Interrupted, "{error}"),
            Ok(_) => break,
        }
        assert!(files_done(&store, &site) >= done, "it goes on, never back");
        done = files_done(&store, &site);
    }
    let ledger = Ledger::new();
    let snapshot = back_up(&site.store(), &site, &ledger).unwrap();
    assert!(ledger.get(Counter::ReadBytes) <= (FILES - done) * FILE_BYTES);
    let store = site.store();
    site.assert_restores(&store, &snapshot, &look(&site.source()));
    assert_eq!(checkpoints_of(&site), 0);
}

#[test]
fn what_changed_since_the_checkpoint_is_read_and_others_have_none_of_it() {
    let site = Site::new(2, 1);
    plant(&site.source(), 4);
    let power = OffBehind::new(0);
    let store = site.open(0, "", Arc::clone(&power) as Arc<dyn Steps>).unwrap();
    back_up(&store, &site, &Ledger::new()).unwrap_err();
    drop(store);
    power.books.after_power_cut(4).unwrap();
    let done = files_done(&site.store(), &site);
    assert!((1..FILES).contains(&done), "{done}");
    let ledger = Ledger::new();
    let other = BackupOptions { host: b"other".to_vec(), ..options(&site) };
    backup::run(&site.store(), other, &ledger.monitor).unwrap();
    assert_eq!(ledger.get(Counter::ReadBytes), FILES * FILE_BYTES, "another host's is its own");
    assert_eq!(files_done(&site.store(), &site), done, "and stays");
    fs::write(site.source().join("0000"), noise(77, FILE_BYTES as usize)).unwrap();
    let ledger = Ledger::new();
    let snapshot = back_up(&site.store(), &site, &ledger).unwrap();
    assert_eq!(ledger.get(Counter::ReadBytes), (FILES - done + 1) * FILE_BYTES);
    site.assert_restores(&site.store(), &snapshot, &look(&site.source()));
}

#[test]
fn a_damaged_checkpoint_costs_time_and_nothing_else() {
    let site = Site::new(2, 1);
    plant(&site.source(), 5);
    let stop = Arc::new(AtomicBool::new(true));
    let stopped = BackupOptions { stop, ..options(&site) };
    backup::run(&site.store(), stopped, &Ledger::new().monitor).unwrap_err();
    let store = site.store();
    let (name, _) = checkpoints::load(&store, &Ledger::new().monitor).unwrap().remove(0);
    let ExtentName::In(ExtentKind::Checkpoints, _) = name else { panic!("{name}") };
    for member in &site.members {
        fs::write(member.join(name.path()), b"PINSTRIPnothing").unwrap();
    }
    let ledger = Ledger::new();
    let snapshot = back_up(&store, &site, &ledger).unwrap();
    ledger.assert_no_losses();
    assert_eq!(ledger.warnings().len(), 1);
    site.assert_restores(&site.store(), &snapshot, &look(&site.source()));
}
