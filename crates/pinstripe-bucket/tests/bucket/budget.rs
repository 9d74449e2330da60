//! Requests of whole verbs on a store in one bucket, counted by the proxy, so that none grows
//! without notice.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pinstripe::index::Index;
use pinstripe::{Limits, OpenOptions, Store, backup, check, gc, init, restore};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_member::key_ring::KdfCosts;
use pinstripe_member::{ExtentKind, ExtentName, Member, Places};
use pinstripe_stripe::{Credential, NewSlot};

use pinstripe_testing::Fate;

use crate::support::Site;

fn credential() -> Credential {
    Credential::of_key_file(&[b'7'; 64]).unwrap()
}

fn limits() -> Limits {
    Limits::new(2, 4, 256 << 20)
}

/// A store in one bucket, and what is asked of it.
struct Counted {
    site: Site,
    place: PathBuf,
    dir: tempfile::TempDir,
}

impl Counted {
    fn new(test: &str) -> Option<Self> {
        Self::of_strips(test, 4096)
    }

    fn of_strips(test: &str, strip_bytes: u64) -> Option<Self> {
        let site = Site::new(test)?;
        let place = site.fresh_place();
        let slot = NewSlot {
            credential: credential(),
            costs: KdfCosts::DEFAULT,
            label: "test".to_owned(),
            now_seconds: 0,
        };
        let options = init::InitOptions {
            members: vec![place.clone()],
            parity: 0,
            strip_bytes,
            chunking: "4K".parse().unwrap(),
            codec: "zstd:1".parse().unwrap(),
            seal: init::Seal::with(slot),
            same_disk: false,
            now_seconds: 0,
        };
        let remote: Arc<dyn pinstripe_member::RemoteMembers> = Arc::clone(&site.buckets) as _;
        let places = Places { remote: Some(remote), ..Places::default() };
        init::run_with(&options, &places).unwrap();
        let dir = tempfile::tempdir().unwrap();
        Some(Counted { site, place, dir })
    }

    /// What a process of its own asks to do something with the store: the lines of its requests.
    fn asked<T>(&self, work: impl FnOnce(&Store) -> T) -> (T, Vec<String>) {
        let buckets = Arc::new(crate::support::buckets(pinstripe_testing::KEY_SECRET));
        self.site.proxy.take_log();
        let options = OpenOptions { remote: Some(buckets), ..OpenOptions::default() };
        let mut store = Store::open_with(&self.place, options).unwrap();
        store.unlock(&credential()).unwrap();
        let done = work(&store);
        drop(store);
        (done, self.site.proxy.take_log())
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::create_dir_all(self.source()).unwrap();
        fs::write(self.source().join(name), bytes).unwrap();
    }

    fn back_up(&self, seed: u8) {
        (0..20).for_each(|file| self.write(&format!("{seed}-{file}"), &[seed ^ file; 5000]));
        self.back_up_source();
    }

    /// Backs 40 MiB up that cannot be compressed; returns how many packs that gives, and the bytes
    /// that were stored.
    fn back_up_noise(&self) -> (usize, u64) {
        self.write_noise();
        let (log, stored_bytes) = self.back_up_source();
        let is_pack = |line: &&String| line.starts_with("PUT ") && line.contains("/packs/");
        (log.iter().filter(is_pack).count(), stored_bytes)
    }

    fn write_noise(&self) {
        for file in 0..40_u32 {
            let mut noise = vec![0; 1 << 20];
            blake3::Hasher::new().update(&file.to_le_bytes()).finalize_xof().fill(&mut noise);
            self.write(&format!("{file}"), &noise);
        }
    }

    /// Backs the source up; returns what was asked for that, and how many bytes were stored.
    fn back_up_source(&self) -> (Vec<String>, u64) {
        self.back_up_within(limits())
    }

    fn back_up_within(&self, limits: Limits) -> (Vec<String>, u64) {
        pinstripe_testing::await_tick();
        let options = backup::BackupOptions::new(vec![self.source()], b"test", limits);
        let monitor = Monitor::default();
        let (_, log) = self.asked(|store| backup::run(store, options, &monitor).unwrap());
        (log, monitor.get(Counter::WrittenBytes))
    }
}

fn lists(log: &[String]) -> usize {
    log.iter().filter(|line| line.contains("list-type=")).count()
}

#[track_caller]
fn assert_within(what: &str, log: &[String], (most_lists, most): (usize, usize)) {
    let counted = (lists(log), log.len());
    println!("{what}: {} listings, {} requests", counted.0, counted.1);
    let text = log.join("\n");
    assert!(counted.0 <= most_lists && counted.1 <= most, "{what}: {counted:?}\n{text}");
}

#[test]
fn check_lists_once_and_asks_little_for_each_object() {
    let Some(counted) = Counted::new("check_lists_once") else { return };
    (1..4).for_each(|seed| counted.back_up(seed));
    let (outcome, log) = counted.asked(|store| {
        let options = check::CheckOptions { read_data: false, limits: limits() };
        check::run(store, &options, &Monitor::default()).unwrap()
    });
    assert_eq!((outcome.snapshots, outcome.lost, outcome.repairable, outcome.strays), (3, 0, 0, 0));
    assert_within("check", &log, CHECK);
}

#[test]
fn gc_asks_side_by_side_and_little() {
    let Some(counted) = Counted::new("gc_asks_side_by_side_and_little") else { return };
    (1..4).for_each(|seed| counted.back_up(seed));
    let gc = |dry_run| {
        let options = gc::GcOptions {
            max_waste: 0.1,
            dry_run,
            wait: Duration::from_secs(5),
            limits: limits(),
            detector: Arc::default(),
        };
        counted.asked(|store| gc::run(store, &options, &Monitor::default()).unwrap())
    };
    let (outcome, log) = gc(true);
    assert_eq!(outcome.deleted_packs, 0);
    assert_within("gc --dry-run", &log, GC_DRY);
    let (outcome, log) = gc(false);
    assert_eq!((outcome.kept_snapshots, outcome.deleted_packs), (3, 0));
    assert_within("gc with nothing to delete", &log, GC_IDLE);
}

/// A pack of a bucket costs its end and two long parts, and little beside.
#[test]
fn a_full_restore_asks_for_long_parts() {
    let Some(counted) = Counted::new("a_full_restore_asks_for_long_parts") else { return };
    let (packs, stored_bytes) = counted.back_up_noise();
    let to = counted.dir.path().join("restored");
    let path = counted.source().into_os_string().into_encoded_bytes();
    let monitor = Monitor::default();
    let ((), log) = counted.asked(|store| {
        let options = restore::RestoreOptions::new("latest", &path, &to, limits());
        restore::run(store, &options, &monitor).unwrap();
    });
    assert_eq!(monitor.get(Counter::Losses), 0);
    for file in 0..40 {
        let name = file.to_string();
        let read = |dir: &std::path::Path| fs::read(dir.join(&name)).unwrap();
        assert!(read(&to) == read(&counted.source()), "{name}");
    }
    assert_within("restore", &log, (2, 3 * packs + RESTORE_BESIDE));
    // Three of content and two of the tree. A request for each record would be three times as many.
    assert!(packs <= 6 && stored_bytes > 40 << 20, "{packs} packs");
}

/// A backup that was interrupted, or goes on elsewhere, has written packs and no run yet: opened one
/// after the other, a thousand of them would take minutes at 80 ms.
#[test]
fn packs_that_no_run_lists_are_opened_side_by_side() {
    let test = "packs_that_no_run_lists_are_opened";
    let Some(counted) = Counted::of_strips(test, 256 << 10) else { return };
    let (packs, _) = counted.back_up_noise();
    counted.asked(|store| {
        let (_, member) = store.present().next().unwrap();
        for run in member.names(ExtentKind::Index).unwrap() {
            member.delete(ExtentName::In(ExtentKind::Index, run)).unwrap();
        }
    });
    // Each pack's first request is held until all packs have one.
    let (asked, late) = (Arc::new((Mutex::new(HashSet::new()), Condvar::new())), Arc::default());
    let (ours, told) = (Arc::clone(&asked), Arc::<AtomicUsize>::clone(&late));
    counted.site.proxy.rule(move |request| {
        if request.method == "GET" && request.target.contains("/packs/") {
            let mut seen = asked.0.lock().unwrap();
            seen.insert(request.target.clone());
            asked.1.notify_all();
            let (limit, all) = (Duration::from_secs(5), |seen: &mut HashSet<_>| seen.len() < packs);
            let waited = asked.1.wait_timeout_while(seen, limit, all).unwrap().1.timed_out();
            told.fetch_add(usize::from(waited), Ordering::SeqCst);
        }
        Fate::Pass
    });
    let (found, log) = counted.asked(|store| {
        let monitor = Monitor::default();
        Index::load(store, &monitor).unwrap().packs().len()
    });
    assert_eq!((found, ours.0.lock().unwrap().len()), (packs, packs));
    assert_eq!(late.load(Ordering::SeqCst), 0, "packs were waited for one after the other");
    let of_packs = log.iter().filter(|line| line.contains("/packs/")).count();
    assert!(packs > 2 && of_packs <= 3 * packs, "{of_packs} requests for {packs} packs");
}

/// What a long backup has stored is known to others before it ends, and stays so if it never does.
#[test]
fn a_long_backup_writes_an_index_run_now_and_then() {
    let Some(counted) = Counted::new("a_long_backup_writes_an_index_run") else { return };
    counted.write_noise();
    let mut limits = limits();
    limits.publish_packs = 2;
    let (log, _) = counted.back_up_within(limits);
    let puts = |kind: &str| {
        let is_one = |line: &str| line.starts_with("PUT ") && line.contains(kind);
        log.iter().enumerate().filter(|(_, line)| is_one(line)).map(|(at, _)| at).collect()
    };
    let [packs, runs]: [Vec<usize>; 2] = ["/packs/", "/index/"].map(puts);
    assert!(runs.len() > 1 && runs[0] < *packs.last().unwrap(), "{packs:?} {runs:?}");
}

/// Checking content costs a request for each 4 MiB, and four for each pack: its end when it is opened
/// and when it is looked at, its header and its index.
#[test]
fn check_fetches_content_once() {
    for strip_bytes in [256 << 10, 4 << 20] {
        checks_content_once(strip_bytes);
    }
}

fn checks_content_once(strip_bytes: u64) {
    let test = "check_fetches_content_once";
    let Some(counted) = Counted::of_strips(test, strip_bytes) else { return };
    let (packs, stored_bytes) = counted.back_up_noise();
    let (outcome, log) = counted.asked(|store| {
        let options = check::CheckOptions { read_data: true, limits: limits() };
        check::run(store, &options, &Monitor::default()).unwrap()
    });
    assert_eq!((outcome.snapshots, outcome.lost, outcome.repairable), (1, 0, 0));
    let parts = (stored_bytes / (4 << 20)) as usize + packs;
    let of_packs = log.iter().filter(|line| line.starts_with("GET ") && line.contains("/packs/"));
    let of_packs = of_packs.count();
    println!("check: {of_packs} requests for {packs} packs of {parts} parts");
    assert!(of_packs <= parts + 4 * packs, "{of_packs}:\n{}", log.join("\n"));
}

/// Listings, and all requests, at most. A gc lists the keys at each look at others and before each of
/// its steps: a rotation may have begun.
const CHECK: (usize, usize) = (11, 60);
const GC_DRY: (usize, usize) = (8, 26);
const GC_IDLE: (usize, usize) = (48, 90);
/// What a restore asks beside the content: label, keys, snapshot, index, pages of the tree.
const RESTORE_BESIDE: usize = 10;
