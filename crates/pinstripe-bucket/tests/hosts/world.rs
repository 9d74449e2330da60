//! The hosts, the endpoints, and the model beside them: the content of each snapshot, and whether it
//! is wanted. A wanted snapshot is listed and comes back, byte for byte, whatever happens.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pinstripe::forget::ForgetChoice;
use pinstripe::gc::GcOutcome;
use pinstripe::init::{InitOptions, Seal};
use pinstripe::{FailureDetector, Store, TIMEOUT_DEFAULT, forget, gc, init, snapshots};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::Places;
use pinstripe_member::snapshot::Snapshot;

use crate::endpoint::{Endpoint, Fate};
use crate::host::Host;
use crate::story::{Operation, Story};
use pinstripe_sim::Stamps;
use pinstripe_sim::{Ledger, STRIP_BYTES, backup, check, limits, new_slot, repair, restore};
use pinstripe_sim::{Tree, assert_same, look};

/// The clock of all detectors.
static NOW_SECONDS: AtomicU64 = AtomicU64::new(0);

fn now() -> Duration {
    Duration::from_secs(NOW_SECONDS.load(Ordering::SeqCst))
}

/// Whether a snapshot is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Yes,
    No,
    /// Its host was gone when it committed.
    Unsure,
}

struct Kept {
    snapshot: Snapshot,
    tree: Tree,
    wanted: Wanted,
}

pub struct World {
    endpoints: Vec<Arc<Endpoint>>,
    places: Vec<PathBuf>,
    parity: u8,
    dir: PathBuf,
    sources: [PathBuf; 2],
    stamps: Stamps,
    hosts: [Host; 2],
    /// Hosts there were: one that is gone is replaced by another.
    hosts_ever: u32,
    kept: Vec<Kept>,
    /// What was seen of sessions.
    detector: Arc<FailureDetector>,
    /// No session of a host that is gone is left.
    is_quiet: bool,
}

impl World {
    /// Plays a story to its end; panics where a promise is broken.
    pub fn play(story: &Story, dir: &Path, met: &mut BTreeMap<Fate, u64>) {
        let mut world = World::new(story, dir);
        for operation in &story.operations {
            world.carry_out(*operation);
        }
        // Two gcs later nothing is left of those that are gone.
        world.endpoints.iter().for_each(|endpoint| endpoint.set_calm(true));
        world.collect(0, 0, None);
        NOW_SECONDS.fetch_add(TIMEOUT_DEFAULT.as_secs(), Ordering::SeqCst);
        world.collect(0, 0, None);
        // What the sessions of those kept standing goes with the next one.
        world.is_quiet = true;
        world.collect(0, 0, None);
        world.judge(1);
        let ledger = Ledger::new();
        let outcome = check(&world.open(0), true, &ledger);
        ledger.assert_no_losses();
        assert_eq!((outcome.lost, outcome.hurt_paths), (0, 0), "{:#?}", ledger.seen());
        for endpoint in &world.endpoints {
            for (fate, count) in endpoint.met() {
                *met.entry(fate).or_default() += count;
            }
        }
    }

    fn new(story: &Story, dir: &Path) -> Self {
        let endpoints: Vec<_> = (0..story.endpoints)
            .map(|number| Endpoint::new(story.seed.wrapping_mul(31) + number as u64))
            .collect();
        let place = |number: usize| PathBuf::from(format!("s3+http://e{number}/bucket/store"));
        let places: Vec<_> = (0..story.endpoints).map(place).collect();
        let sources = ["one", "two"].map(|name| dir.join(name));
        let mut stamps = Stamps::default();
        for (number, source) in sources.iter().enumerate() {
            pinstripe_sim::make_source(source, story.seed + number as u64, &mut stamps);
        }
        let hosts = [Host::new(0, &endpoints), Host::new(1, &endpoints)];
        let options = InitOptions {
            members: places.clone(),
            parity: story.parity,
            strip_bytes: STRIP_BYTES,
            chunking: "4K".parse().unwrap(),
            codec: "zstd:1".parse().unwrap(),
            seal: Seal::with(new_slot()),
            same_disk: false,
            now_seconds: 0,
        };
        let remote = Places { remote: Some(hosts[0].buckets.clone()), ..Places::default() };
        init::run_with(&options, &remote).unwrap();
        let (dir, kept) = (dir.to_path_buf(), Vec::new());
        let parity = story.parity;
        let detector = Arc::new(FailureDetector::new(TIMEOUT_DEFAULT, Vec::new(), now));
        World {
            endpoints,
            places,
            parity,
            dir,
            sources,
            stamps,
            hosts,
            hosts_ever: 2,
            kept,
            detector,
            is_quiet: false,
        }
    }

    fn open(&self, host: usize) -> Store {
        self.hosts[host].open(&self.places[0]).unwrap()
    }

    /// What a host does, gone after so many requests; whether it was.
    fn on<T>(
        &self,
        host: usize,
        gone_after: Option<u64>,
        work: impl FnOnce(&Store) -> Result<T>,
    ) -> (Result<T>, bool) {
        let host = &self.hosts[host];
        if let Some(requests) = gone_after {
            host.line.end_after(requests);
        }
        let done = host.open(&self.places[0]).and_then(|store| work(&store));
        let is_gone = host.line.is_over();
        if !is_gone {
            // It ended before.
            host.line.end_after(u64::MAX);
        }
        (done, is_gone)
    }

    /// Puts another host in the place of one that is gone.
    fn replace_gone(&mut self) {
        for host in &mut self.hosts {
            if host.line.is_over() {
                *host = Host::new(self.hosts_ever, &self.endpoints);
                self.hosts_ever += 1;
            }
        }
    }

    fn carry_out(&mut self, operation: Operation) {
        match operation {
            Operation::Change { source, seed } => {
                pinstripe_sim::change_source(&self.sources[source], seed, &mut self.stamps);
            }
            Operation::Backup { host, gone_after } => self.backup(host, gone_after),
            Operation::Together { gone_after } => self.together(gone_after),
            Operation::Collect { host, waste, gone_after } => self.collect(host, waste, gone_after),
            Operation::CollectBeside { host, waste, gone_after } => {
                self.collect_beside(host, waste, gone_after);
            }
            Operation::Forget { host, snapshot } => self.forget(host, snapshot),
            Operation::Undelete { host, snapshot } => self.undelete(host, snapshot),
            Operation::Outage { host, endpoint } => self.outage(host, endpoint),
            Operation::Read { host } => self.judge(host),
        }
        self.replace_gone();
    }

    fn back_up(&self, host: usize, store: &Store) -> Result<Snapshot> {
        let ledger = Ledger::new();
        let saved = backup(store, &self.sources[host], &ledger)?;
        ledger.assert_no_losses();
        Ok(saved)
    }

    fn backup(&mut self, host: usize, gone_after: Option<u64>) {
        let tree = look(&self.sources[host]);
        let (saved, is_gone) = self.on(host, gone_after, |store| self.back_up(host, store));
        self.take_note(host, &tree, saved, is_gone);
    }

    fn together(&mut self, gone_after: Option<u64>) {
        let trees = self.sources.each_ref().map(|source| look(source));
        let world = &*self;
        let (one, two) = std::thread::scope(|scope| {
            let two = scope.spawn(|| world.on(1, None, |store| world.back_up(1, store)));
            let one = world.on(0, gone_after, |store| world.back_up(0, store));
            (one, two.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        self.take_note(1, &trees[1], two.0, two.1);
        self.take_note(0, &trees[0], one.0, one.1);
    }

    /// Keeps what a backup made.
    fn take_note(&mut self, host: usize, tree: &Tree, saved: Result<Snapshot>, is_gone: bool) {
        let wanted = if is_gone { Wanted::Unsure } else { Wanted::Yes };
        match saved {
            Ok(snapshot) => self.kept.push(Kept { snapshot, tree: tree.clone(), wanted }),
            Err(_) if is_gone => self.adopt(host, tree),
            Err(error) => panic!("a backup failed: {error}"),
        }
    }

    /// Takes in what a host had committed before it was gone, and perhaps on some members only.
    fn adopt(&mut self, host: usize, tree: &Tree) {
        // Requests that were on their way arrive.
        std::thread::sleep(Duration::from_secs(60));
        let source = self.sources[host].as_os_str().as_encoded_bytes()[1..].to_vec();
        for snapshot in self.listed(1 - host) {
            let is_known = self.kept.iter().any(|kept| kept.snapshot.id == snapshot.id);
            if !is_known && snapshot.sources == [source.clone()] {
                self.kept.push(Kept { snapshot, tree: tree.clone(), wanted: Wanted::Unsure });
            }
        }
    }

    fn listed(&self, host: usize) -> Vec<Snapshot> {
        snapshots::run(&self.open(host), &Ledger::new().monitor).unwrap()
    }

    /// A gc. Where another host may be at work it is run again, when that counts as gone.
    fn gc(&self, store: &Store, waste: u64) -> Result<GcOutcome> {
        let detector = Arc::clone(&self.detector);
        let options = gc::GcOptions {
            max_waste: waste as f64 / 100.0,
            dry_run: false,
            wait: Duration::from_secs(300),
            limits: limits(),
            detector,
        };
        let ledger = Ledger::new();
        let done = match gc::run(store, &options, &ledger.monitor) {
            Err(error) if error.kind() == Kind::Busy => {
                NOW_SECONDS.fetch_add(TIMEOUT_DEFAULT.as_secs(), Ordering::SeqCst);
                gc::run(store, &options, &ledger.monitor)
            }
            done => done,
        };
        ledger.assert_no_losses();
        done
    }

    fn collect(&mut self, host: usize, waste: u64, gone_after: Option<u64>) {
        let (done, is_gone) = self.on(host, gone_after, |store| self.gc(store, waste));
        self.take_note_of_gc(done, is_gone, false);
    }

    fn collect_beside(&mut self, host: usize, waste: u64, gone_after: Option<u64>) {
        let (other, world) = (1 - host, &*self);
        let tree = look(&self.sources[other]);
        let (done, saved) = std::thread::scope(|scope| {
            let back_up = || world.on(other, gone_after, |store| world.back_up(other, store));
            let saved = scope.spawn(back_up);
            let done = world.on(host, None, |store| world.gc(store, waste));
            (done, saved.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        // A backup that was taken for dead may have been at work.
        let was_ended = matches!(&saved, (Err(error), false) if error.kind() == Kind::Busy)
            && matches!(&done.0, Ok(done) if done.fenced_sessions > 0);
        self.take_note_of_gc(done.0, done.1, true);
        if !was_ended {
            self.take_note(other, &tree, saved.0, saved.1);
        }
    }

    fn take_note_of_gc(&mut self, done: Result<GcOutcome>, is_gone: bool, is_beside: bool) {
        match done {
            Ok(outcome) => assert_eq!(outcome.missing_chunks, 0, "{outcome:?}"),
            Err(_) if is_gone => {}
            // A gc of another host that is gone is about to delete what this one wants.
            Err(error) => {
                assert!(is_beside && error.kind() == Kind::Busy, "a gc failed: {error}");
            }
        }
        let listed: Vec<SnapshotId> = self.all(0);
        let is_taken = |kept: &Kept| !listed.contains(&kept.snapshot.id);
        for kept in &self.kept {
            assert!(!(kept.wanted == Wanted::Yes && is_taken(kept)), "a wanted snapshot was taken");
            assert!(
                !self.is_quiet || kept.wanted != Wanted::No || is_taken(kept),
                "a forgotten snapshot stayed"
            );
        }
        self.kept.retain(|kept| !is_taken(kept));
    }

    /// Every snapshot that can still be had, forgotten ones too.
    fn all(&self, host: usize) -> Vec<SnapshotId> {
        let host = if self.hosts[host].line.is_over() { 1 - host } else { host };
        let store = self.open(host);
        let known = pinstripe::load_snapshots(&store, &Ledger::new().monitor).unwrap();
        known.iter().map(|known| known.snapshot.id).collect()
    }

    fn pick(&self, snapshot: usize, wanted: Wanted) -> Option<usize> {
        let found = self.kept.iter().enumerate().filter(|(_, kept)| kept.wanted == wanted);
        let found: Vec<usize> = found.map(|(at, _)| at).collect();
        (!found.is_empty()).then(|| found[snapshot % found.len()])
    }

    fn forget(&mut self, host: usize, snapshot: usize) {
        let Some(at) = self.pick(snapshot, Wanted::Yes) else { return };
        let names = [self.kept[at].snapshot.id.to_string()];
        let options = forget::ForgetOptions {
            allow_empty: true,
            ..forget::ForgetOptions::new(ForgetChoice::Named(&names))
        };
        forget::run(&self.open(host), &options, &Ledger::new().monitor).unwrap();
        self.kept[at].wanted = Wanted::No;
    }

    fn undelete(&mut self, host: usize, snapshot: usize) {
        let Some(at) = self.pick(snapshot, Wanted::No) else { return };
        let name = self.kept[at].snapshot.id.to_string();
        match forget::undelete(&self.open(host), &name, &Ledger::new().monitor) {
            Ok(_) => self.kept[at].wanted = Wanted::Yes,
            // A gc that is gone was past its point of no return.
            Err(error) => {
                assert_eq!(error.kind(), Kind::NotFound, "{error}");
                self.kept.remove(at);
            }
        }
    }

    fn outage(&mut self, host: usize, endpoint: usize) {
        if self.parity == 0 {
            return;
        }
        let away = endpoint % self.endpoints.len();
        let through = self.places[(away + 1) % self.places.len()].clone();
        self.endpoints[away].set_down(true);
        let tree = look(&self.sources[host]);
        let open = || self.hosts[host].open(&through);
        // With two endpoints and one away there is no place for parity.
        let saved: Result<Snapshot, Error> =
            open().and_then(|store| self.back_up_degraded(host, &store));
        let store = open().unwrap();
        for kept in self.kept.iter().filter(|kept| kept.wanted == Wanted::Yes).take(1) {
            self.assert_restores(&store, kept);
        }
        drop(store);
        self.endpoints[away].set_down(false);
        // An endpoint that was silent is left alone for a while.
        std::thread::sleep(Duration::from_secs(200));
        match saved {
            Ok(snapshot) => self.kept.push(Kept { snapshot, tree, wanted: Wanted::Yes }),
            Err(error) => {
                let is_refusal = matches!(error.kind(), Kind::Refused | Kind::TooManyLosses);
                assert!(is_refusal && self.endpoints.len() == 2, "a backup failed: {error}");
            }
        }
        let mut store = self.open(host);
        let outcome = repair(&mut store, &Ledger::new());
        assert_eq!(outcome.lost_extents, 0, "{outcome:?}");
    }

    fn back_up_degraded(&self, host: usize, store: &Store) -> Result<Snapshot> {
        let ledger = Ledger::new();
        backup(store, &self.sources[host], &ledger)
    }

    /// Exactly the wanted snapshots are listed, and each comes back.
    fn judge(&self, host: usize) {
        let listed: Vec<SnapshotId> = self.listed(host).iter().map(|it| it.id).collect();
        for kept in &self.kept {
            let is_listed = listed.contains(&kept.snapshot.id);
            assert!(is_listed || kept.wanted != Wanted::Yes, "a wanted snapshot is gone");
            assert!(!is_listed || kept.wanted != Wanted::No, "a forgotten one is listed");
        }
        let is_known = |id: &SnapshotId| self.kept.iter().any(|kept| kept.snapshot.id == *id);
        assert!(listed.iter().all(is_known), "nobody made one of {listed:?}");
        let store = self.open(host);
        for kept in self.kept.iter().filter(|kept| listed.contains(&kept.snapshot.id)) {
            self.assert_restores(&store, kept);
        }
    }

    fn assert_restores(&self, store: &Store, kept: &Kept) {
        let (ledger, to) = (Ledger::new(), self.dir.join("restored"));
        let name = kept.snapshot.id.to_string();
        let source = Path::new("/").join(std::ffi::OsStr::new(
            std::str::from_utf8(&kept.snapshot.sources[0]).expect("a path of a story is text"),
        ));
        restore(store, &name, &source, &to, &ledger).unwrap();
        ledger.assert_no_losses();
        assert_same(&kept.tree, &look(&to));
        pinstripe_sim::remove_tree(&to);
    }
}
