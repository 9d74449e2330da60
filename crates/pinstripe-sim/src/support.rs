//! A store in a temporary directory, the verbs as tests call them, and their ledger.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pinstripe::{Limits, OpenOptions, Store, backup, check, init, member, repair, restore};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::monitor::{Counter, Monitor, Observer, Problem, Severity};
use pinstripe_io::fault::Plan;
use pinstripe_member::key_ring::KdfCosts;
use pinstripe_member::session::Process;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{DiskStep, ExtentKind, Places, Steps};
use pinstripe_stripe::{Credential, NewSlot};
pub use pinstripe_testing::noise;
use tempfile::TempDir;

use crate::look::{Tree, assert_same, look};

/// The strip size of tests, in bytes: small, so that small trees have many rows.
pub const STRIP_BYTES: u64 = 4096;

/// A process of another host.
pub const ELSEWHERE: Process =
    Process { machine: [9; 16], boot: [9; 16], namespace: 9, pid: 9, started_ticks: 9 };

/// Carries out every change but does not wait for the disk, because these tests cause damage by
/// hand.
pub struct NoWait;

impl Steps for NoWait {
    fn take(
        &self,
        step: &DiskStep<'_>,
        act: &mut dyn FnMut() -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        match step {
            DiskStep::SyncFile(_) | DiskStep::SyncDirectory(_) => Ok(()),
            _ => act(),
        }
    }
}

/// Performs an action once, just before a file gets its name in a directory with this name.
pub struct Meanwhile<'a> {
    directory: &'a str,
    act: Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>,
}

impl<'a> Meanwhile<'a> {
    pub fn new(directory: &'a str, act: impl FnOnce() + Send + 'a) -> Arc<Self> {
        Arc::new(Meanwhile { directory, act: Mutex::new(Some(Box::new(act))) })
    }
}

impl Steps for Meanwhile<'_> {
    fn take(
        &self,
        step: &DiskStep<'_>,
        act: &mut dyn FnMut() -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        if let DiskStep::Rename { to, .. } = step
            && to.components().any(|part| part.as_os_str() == self.directory)
            && let Some(meanwhile) = self.act.lock().unwrap().take()
        {
            meanwhile();
        }
        NoWait.take(step, act)
    }
}

/// One problem as it was reported.
#[derive(Debug, Clone)]
pub struct Seen {
    pub severity: Severity,
    pub place: PathBuf,
    pub kind: Kind,
    pub text: String,
    pub advice: String,
}

/// Counts and problems of one run.
pub struct Ledger {
    pub monitor: Monitor,
    seen: Arc<Mutex<Vec<Seen>>>,
}

struct Watcher(Arc<Mutex<Vec<Seen>>>);

impl Observer for Watcher {
    fn problem(&self, problem: &Problem) {
        self.0.lock().unwrap().push(Seen {
            severity: problem.severity,
            place: problem.place.clone(),
            kind: problem.error.kind(),
            text: problem.error.to_string(),
            advice: problem.error.advice_text().unwrap_or_default().to_owned(),
        });
    }

    fn note(&self, _: &str) {}
}

impl Ledger {
    pub fn new() -> Self {
        let seen = Arc::new(Mutex::default());
        Ledger { monitor: Monitor::new(Box::new(Watcher(Arc::clone(&seen)))), seen }
    }

    pub fn get(&self, counter: Counter) -> u64 {
        self.monitor.get(counter)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn with_severity(&self, severity: Severity) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.severity == severity).collect()
    }

    pub fn losses(&self) -> Vec<Seen> {
        let losses = self.with_severity(Severity::Loss);
        assert_eq!(losses.len() as u64, self.get(Counter::Losses));
        losses
    }

    pub fn degraded(&self) -> Vec<Seen> {
        let degraded = self.with_severity(Severity::Degraded);
        assert_eq!(degraded.len() as u64, self.get(Counter::DegradedMembers));
        degraded
    }

    pub fn warnings(&self) -> Vec<Seen> {
        let warnings = self.with_severity(Severity::Warning);
        assert_eq!(warnings.len() as u64, self.get(Counter::Warnings));
        warnings
    }

    #[track_caller]
    pub fn assert_no_losses(&self) {
        assert!(self.losses().is_empty(), "{:#?}", self.seen());
    }

    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.seen().is_empty(), "{:#?}", self.seen());
    }

    /// Returns the only loss whose place ends with this text.
    #[track_caller]
    pub fn loss_at(&self, end: &str) -> Seen {
        let found: Vec<_> = (self.losses().into_iter())
            .filter(|seen| seen.place.to_string_lossy().ends_with(end))
            .collect();
        assert_eq!(found.len(), 1, "losses at {end}: {:#?}", self.seen());
        found[0].clone()
    }
}

/// Every file of some directories with its bytes, for comparing and for restoring them.
#[derive(Clone, PartialEq, Eq)]
pub struct Image(pub BTreeMap<PathBuf, Vec<u8>>);

/// A store, a source tree and space for restored trees, in a temporary directory.
pub struct Site {
    dir: TempDir,
    pub members: Vec<PathBuf>,
    /// Whether the store of the site is encrypted, which is the default.
    pub sealed: bool,
    /// The number of directories for restored trees that were handed out.
    targets: AtomicUsize,
}

/// The credential of every encrypted store of these tests: a key file, which costs no time.
pub fn credential() -> Credential {
    Credential::of_key_file(&[b'7'; 64]).unwrap()
}

pub fn new_slot() -> NewSlot {
    let (credential, label) = (credential(), "test".to_owned());
    NewSlot { credential, costs: KdfCosts::DEFAULT, label, now_seconds: 0 }
}

impl Site {
    /// Creates a store that is not encrypted.
    pub fn clear(members: usize, parity: u8) -> Self {
        let site = Site { sealed: false, ..Site::bare(members) };
        site.init(parity, "4K", Arc::new(NoWait)).unwrap();
        site
    }

    /// Creates a store with this number of members, with chunks of about 4 KiB.
    pub fn new(members: usize, parity: u8) -> Self {
        Site::with_chunks(members, parity, "4K")
    }

    pub fn with_chunks(members: usize, parity: u8, chunking: &str) -> Self {
        let site = Site::bare(members);
        site.init(parity, chunking, Arc::new(NoWait)).unwrap();
        site
    }

    /// Returns a site whose member directories do not exist yet.
    pub fn bare(members: usize) -> Self {
        Site::bare_in(tempfile::tempdir().unwrap(), members)
    }

    /// Returns a site in the given directory, whose member directories do not exist yet.
    pub fn bare_in(dir: TempDir, members: usize) -> Self {
        let root = fs::canonicalize(dir.path()).unwrap();
        let members = (0..members).map(|number| root.join(format!("m{number}"))).collect();
        let site = Site { dir, members, sealed: true, targets: AtomicUsize::new(0) };
        fs::create_dir(site.source()).unwrap();
        site
    }

    pub fn init(&self, parity: u8, chunking: &str, steps: Arc<dyn Steps>) -> Result<()> {
        let seal = if self.sealed { init::Seal::with(new_slot()) } else { init::Seal::none() };
        self.init_sealed(parity, chunking, seal, steps)
    }

    pub fn init_sealed(
        &self,
        parity: u8,
        chunking: &str,
        seal: init::Seal,
        steps: Arc<dyn Steps>,
    ) -> Result<()> {
        let options = init::InitOptions {
            members: self.members.clone(),
            parity,
            strip_bytes: STRIP_BYTES,
            chunking: chunking.parse().unwrap(),
            codec: "zstd:1".parse().unwrap(),
            seal,
            same_disk: true,
            now_seconds: 0,
        };
        let places = Places { steps: Some(steps), ..Places::default() };
        init::run_with(&options, &places).map(drop)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.dir.path()).unwrap().join(name)
    }

    /// Keeps the directory after the test; returns its path.
    #[allow(dead_code, reason = "this is for tests with randomly generated stories")]
    pub fn keep(&mut self) -> PathBuf {
        self.dir.disable_cleanup(true);
        self.dir.path().to_path_buf()
    }

    /// The tree that is backed up.
    pub fn source(&self) -> PathBuf {
        self.path("source")
    }

    /// Returns a path for a restored tree, which does not exist yet.
    pub fn target(&self) -> PathBuf {
        let number = self.targets.fetch_add(1, Ordering::Relaxed);
        self.path(&format!("restored-{number}"))
    }

    pub fn store(&self) -> Store {
        self.store_through(0)
    }

    pub fn store_through(&self, member: usize) -> Store {
        self.open(member, "", Arc::new(NoWait)).unwrap()
    }

    pub fn store_with_faults(&self, faults: &str) -> Store {
        self.open(0, faults, Arc::new(NoWait)).unwrap()
    }

    pub fn open(&self, member: usize, faults: &str, steps: Arc<dyn Steps>) -> Result<Store> {
        self.open_as(member, faults, steps, None)
    }

    /// Opens the store as a process that all others consider dead, as after an interruption.
    pub fn open_doomed(&self, member: usize, faults: &str, steps: Arc<dyn Steps>) -> Result<Store> {
        let own = pinstripe_member::own_process();
        let doomed = Process { started_ticks: own.started_ticks + 1, ..own };
        self.open_as(member, faults, steps, Some(doomed))
    }

    /// Opens the store as a process of another host; no process on this host can tell whether it
    /// runs.
    pub fn open_elsewhere(&self, member: usize, steps: Arc<dyn Steps>) -> Result<Store> {
        self.open_as(member, "", steps, Some(ELSEWHERE))
    }

    fn open_as(
        &self,
        member: usize,
        faults: &str,
        steps: Arc<dyn Steps>,
        process: Option<Process>,
    ) -> Result<Store> {
        let faults = if faults.is_empty() { Plan::default() } else { faults.parse().unwrap() };
        let options = OpenOptions { faults, steps: Some(steps), process, ..OpenOptions::default() };
        let mut store = Store::open_with(&self.members[member], options)?;
        store.unlock(&credential())?;
        Ok(store)
    }

    /// Opens the store without a key.
    pub fn locked_store(&self) -> Store {
        self.locked_store_through(0)
    }

    pub fn locked_store_through(&self, member: usize) -> Store {
        self.open_locked(member, "").unwrap()
    }

    /// Opens the store without a key, with faults of its members.
    pub fn open_locked(&self, member: usize, faults: &str) -> Result<Store> {
        let faults = if faults.is_empty() { Plan::default() } else { faults.parse().unwrap() };
        let steps = Some(Arc::new(NoWait) as _);
        let options = OpenOptions { faults, steps, ..OpenOptions::default() };
        Store::open_with(&self.members[member], options)
    }

    /// Backs up the source without problems.
    #[track_caller]
    pub fn save(&self) -> Snapshot {
        let ledger = Ledger::new();
        let snapshot = backup(&self.store(), &self.source(), &ledger).unwrap();
        ledger.assert_clean();
        snapshot
    }

    /// Restores the source tree of a snapshot, verifies it, and compares it with `wanted`.
    #[track_caller]
    pub fn assert_restores(&self, store: &Store, snapshot: &Snapshot, wanted: &Tree) -> Ledger {
        let (ledger, to) = (Ledger::new(), self.target());
        let name = snapshot.id.to_string();
        restore(store, &name, &self.source(), &to, &ledger).unwrap();
        ledger.assert_no_losses();
        assert_same(wanted, &look(&to));
        remove_tree(&to);
        ledger
    }

    /// Returns every file of every member.
    pub fn image(&self) -> Image {
        let mut files = BTreeMap::new();
        self.members.iter().for_each(|member| read_files(member, &mut files));
        Image(files)
    }

    /// Restores the members to an earlier state.
    pub fn put_image(&self, image: &Image) {
        for member in &self.members {
            if member.exists() {
                fs::remove_dir_all(member).unwrap();
            }
            let kinds = ExtentKind::ALL.map(ExtentKind::dir);
            for kind in kinds.into_iter().chain(["tmp"]) {
                fs::create_dir_all(member.join(kind)).unwrap();
            }
        }
        for (path, bytes) in &image.0 {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }
}

pub fn read_files(directory: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_files(&path, files);
        // Space and inodes that are kept free are no part of a store.
        } else if !path.ends_with("pinstripe.reserve") && !directory.ends_with("pinstripe.inodes") {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
}

/// Removes a tree, even if the permissions of its directories forbid it.
pub fn remove_tree(path: &Path) {
    if !pinstripe_testing::is_root() {
        let mut open = vec![path.to_path_buf()];
        while let Some(directory) = open.pop() {
            let _ = rustix::fs::chmod(&directory, rustix::fs::Mode::RWXU);
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            let entries = entries.filter_map(std::result::Result::ok);
            open.extend(entries.filter(|e| e.file_type().unwrap().is_dir()).map(|e| e.path()));
        }
    }
    fs::remove_dir_all(path).unwrap();
}

pub fn limits() -> Limits {
    Limits::new(2, 4, 256 << 20)
}

/// Backs `source` up.
///
/// A file that was changed in the clock tick in which a backup begins is read again by the next
/// backup, and would count as changed in these tests; so this waits for the next tick.
pub fn backup(store: &Store, source: &Path, ledger: &Ledger) -> Result<Snapshot> {
    crate::tick::await_tick();
    let options = backup::BackupOptions::new(vec![source.to_path_buf()], b"test", limits());
    backup::run(store, options, &ledger.monitor)
}

/// Restores `path`, an absolute path, of a snapshot to `to`, and reads the result back.
pub fn restore(
    store: &Store,
    snapshot: &str,
    path: &Path,
    to: &Path,
    ledger: &Ledger,
) -> Result<Snapshot> {
    let path = path.as_os_str().as_bytes();
    let plain = restore::RestoreOptions::new(snapshot, path, to, limits());
    let options = restore::RestoreOptions { verify: true, ..plain };
    restore::run(store, &options, &ledger.monitor)
}

pub fn check(store: &Store, read_data: bool, ledger: &Ledger) -> check::CheckOutcome {
    let options = check::CheckOptions { read_data, limits: limits() };
    check::run(store, &options, &ledger.monitor).unwrap()
}

pub fn repair(store: &mut Store, ledger: &Ledger) -> repair::RepairOutcome {
    repair::run(store, limits(), &ledger.monitor).unwrap()
}

/// Replaces a member by a new one at `to`.
pub fn replace(
    store: &mut Store,
    number: usize,
    to: &Path,
    ledger: &Ledger,
) -> Result<member::Replaced> {
    member::replace(store, number, to, true, &limits(), &ledger.monitor)
}

/// Checks the complete store, and asserts that no problem is found.
#[track_caller]
pub fn assert_whole(store: &Store) {
    let ledger = Ledger::new();
    let outcome = check(store, true, &ledger);
    ledger.assert_clean();
    assert_eq!((outcome.repairable, outcome.lost, outcome.hurt_paths), (0, 0, 0));
}

/// Creates a small tree with every kind of entry that matters to a store.
pub fn small_tree(at: &Path, seed: u64) {
    fs::create_dir_all(at.join("d/e")).unwrap();
    fs::write(at.join("noise"), noise(seed, 60_000)).unwrap();
    fs::write(at.join("d/text"), format!("{seed} a line like many others\n").repeat(900)).unwrap();
    fs::write(at.join("d/e/short"), noise(seed + 1, 700)).unwrap();
    fs::write(at.join("empty"), b"").unwrap();
    if !at.join("link").exists() {
        fs::hard_link(at.join("noise"), at.join("d/again")).unwrap();
        std::os::unix::fs::symlink("noise", at.join("link")).unwrap();
    }
}
