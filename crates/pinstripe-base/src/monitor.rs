//! The one ledger: stages count into it and report problems to it; progress bars, JSON and
//! summaries read it.
//!
//! Invariants: counters only grow, except that amounts counted for work that then failed are
//! subtracted; a problem that costs data also counts as a loss, and a member that does not take
//! part counts as degraded, so that the summary, standard error and the exit code always agree.
//! Nothing here prints.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::error::{Error, Kind};
use crate::sync::lock;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident => $key:literal,)*) => {
        /// The counters; the last word of a counter's name is its unit.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter { $($(#[$doc])* $name,)* }

        impl Counter {
            /// Every counter with its name in JSON output.
            pub const ALL: &[(Counter, &'static str)] = &[$((Counter::$name, $key),)*];
        }
    };
}

counters! {
    /// The number of entries of all types that the walker met.
    WalkedEntries => "walked_entries",
    /// Regular files with content that the previous snapshot does not have under this path.
    NewFiles => "new_files",
    /// Regular files whose content or metadata differ from the previous snapshot's.
    ChangedFiles => "changed_files",
    /// Regular files that were reused from the previous snapshot without being read.
    UnchangedFiles => "unchanged_files",
    /// Bytes in new files.
    NewBytes => "new_bytes",
    /// Bytes in changed files.
    ChangedBytes => "changed_bytes",
    /// Bytes in unchanged files.
    UnchangedBytes => "unchanged_bytes",
    /// Bytes in new, changed and unchanged files that are additional names (hard links) of files
    /// counted before.
    LinkedBytes => "linked_bytes",
    /// Entries of a snapshot that have an access control list.
    AclEntries => "acl_entries",
    /// Entries of a snapshot that have an SELinux label.
    LabelEntries => "label_entries",
    /// Entries that changed or vanished while they were read; what was read is saved.
    ChangedWhileRead => "changed_while_read",
    /// Content bytes read from the source.
    ReadBytes => "read_bytes",
    /// Chunks that the store did not have before.
    NewChunks => "new_chunks",
    /// Chunks that the store already had.
    KnownChunks => "known_chunks",
    /// Chunks that both this run and another writer stored at the same time.
    DuplicateChunks => "duplicate_chunks",
    /// Content bytes in chunks that the store did not have: the amount left after deduplication.
    DedupedBytes => "deduped_bytes",
    /// Content bytes in chunks that the store did not have, after compression.
    CompressedBytes => "compressed_bytes",
    /// Bytes written to members, with parity, headers and index.
    WrittenBytes => "written_bytes",
    /// Entries that were restored: created, replaced, or given missing metadata.
    RestoredEntries => "restored_entries",
    /// Entries that could not be restored completely; if a page of a tree is lost, its entries are
    /// counted without their names.
    LostEntries => "lost_entries",
    /// Content bytes restored.
    RestoredBytes => "restored_bytes",
    /// Entries that a restore in place found unchanged.
    KeptEntries => "kept_entries",
    /// Content bytes that a restore in place found unchanged in their files.
    KeptBytes => "kept_bytes",
    /// Entries that a restore in place removed because the snapshot does not have them.
    RemovedEntries => "removed_entries",
    /// Bytes in them.
    RemovedBytes => "removed_bytes",
    /// Bytes read from members.
    FetchedBytes => "fetched_bytes",
    /// Strips that were missing or damaged and were rebuilt from other strips while reading.
    RebuiltStrips => "rebuilt_strips",
    /// Strips on distant members that were computed from near ones instead of being fetched.
    SparedStrips => "spared_strips",
    /// Extents rewritten by repair.
    RepairedExtents => "repaired_extents",
    /// Extents that were written to another member.
    MovedExtents => "moved_extents",
    /// Bytes in them.
    MovedBytes => "moved_bytes",
    /// Bytes of records that gc moved to new packs.
    RepackedBytes => "repacked_bytes",
    /// Pages of trees whose second copy was missing and was written again by gc or repair.
    DoubledPages => "doubled_pages",
    /// Packs examined by check or repair.
    CheckedPacks => "checked_packs",
    /// Bytes examined by check.
    CheckedBytes => "checked_bytes",
    /// Versions of paths that were put into the catalog.
    CataloguedVersions => "catalogued_versions",
    /// Problems without a loss: reported once, counted, and without effect on the exit code.
    Warnings => "warnings",
    /// Members that should have taken part in writing and did not, which leads to exit code 4.
    DegradedMembers => "degraded_members",
    /// Objects that could not be saved, restored or verified, which leads to exit code 3.
    Losses => "losses",
}

/// The redundancy that is left in a store, counted per pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redundancy {
    /// The number of members that may be lost in addition to those that are absent or failed now:
    /// after the loss of any that many members, every snapshot can still be read.
    pub survives: u64,
    /// The parity of the store: the value of `survives` when every member has all of its extents.
    pub parity: u64,
    /// Packs that survive the loss of fewer members than `parity`.
    pub thin_packs: u64,
}

impl Redundancy {
    /// Describes the redundancy for people: `every snapshot survives the loss of any 1 more
    /// member`.
    pub fn describe(&self) -> String {
        let packs = match self.thin_packs {
            1 => "1 pack has".to_owned(),
            count => format!("{count} packs have"),
        };
        match self.survives {
            0 if self.parity == 0 => {
                "the store has no parity: the loss of any member loses data".to_owned()
            }
            0 if self.thin_packs == 0 => "the loss of one more member would lose data".to_owned(),
            0 => format!(
                "the loss of one more member would lose data, because {packs} no parity left"
            ),
            1 => "every snapshot survives the loss of any 1 more member".to_owned(),
            count => format!("every snapshot survives the loss of any {count} more members"),
        }
    }
}

/// The severity of a reported problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// A problem that is worth knowing, with nothing lost.
    Warning,
    /// An entry changed or vanished while it was read; what was read is saved.
    Changed,
    /// A member did not take part; nothing is lost, but the data is written to fewer members. The
    /// run continues and ends with exit code 4.
    Degraded,
    /// Something was not saved, restored or verified; the run continues and ends with exit code 3.
    Loss,
}

/// A problem that a run met, concerning one path or place.
#[derive(Debug)]
pub struct Problem {
    /// The severity.
    pub severity: Severity,
    /// The place of the problem: a source path, a target path, a member's extent.
    pub place: PathBuf,
    /// The failure.
    pub error: Error,
}

/// What a verb did with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryAct {
    /// The backup saved it; the parent snapshot does not have it.
    New,
    /// The backup saved it; it differs from that of the parent snapshot.
    Changed,
    /// It was reused from the parent snapshot, or kept in the target of a restore.
    Unchanged,
    /// It was restored.
    Restored,
    /// It was removed from the target of a restore.
    Removed,
}

impl EntryAct {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            EntryAct::New => "new",
            EntryAct::Changed => "changed",
            EntryAct::Unchanged => "unchanged",
            EntryAct::Restored => "restored",
            EntryAct::Removed => "removed",
        }
    }
}

/// Shows problems and notes when they occur: implemented by the command line, tests and servers.
pub trait Observer: Send + Sync {
    /// Shows a problem that does not end the run.
    fn problem(&self, problem: &Problem);
    /// Shows a remark for people ("the default store is ...").
    fn note(&self, text: &str);
    /// Whether [`entry`](Self::entry) is to be called; asked once.
    fn wants_entries(&self) -> bool {
        false
    }
    /// Shows what was done with an entry.
    fn entry(&self, _act: EntryAct, _path: &Path) {}
}

/// The kind of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Along {
    /// One of the outputs, identified by its name.
    Output,
    /// A stage in which all workers take part.
    Stage,
}

/// A part of a run whose rate is shown separately.
#[derive(Debug)]
pub struct Flow {
    /// The kind.
    pub along: Along,
    /// The name of the flow, for people.
    pub name: String,
    bytes: AtomicU64,
    nanos: AtomicU64,
}

impl Flow {
    /// Counts bytes that passed, and the time that they took.
    pub fn pass(&self, bytes: u64, time: Duration) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The time so far, added up over all threads.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

struct Silent;

impl Observer for Silent {
    fn problem(&self, _: &Problem) {}
    fn note(&self, _: &str) {}
}

/// The ledger of one run. All stages share it by reference.
pub struct Monitor {
    counters: [AtomicU64; Counter::ALL.len()],
    /// The total of bytes expected, 0 while unknown; a progress bar shows progress relative to it.
    expected_bytes: AtomicU64,
    /// The total of entries expected, 0 while unknown.
    expected_entries: AtomicU64,
    flows: Mutex<Vec<Arc<Flow>>>,
    /// The first error that shows that this process lacks the store's newest keys or members.
    outdated: Mutex<Option<Error>>,
    redundancy: Mutex<Option<Redundancy>>,
    wants_entries: bool,
    observer: Box<dyn Observer>,
}

impl Default for Monitor {
    fn default() -> Self {
        Monitor::new(Box::new(Silent))
    }
}

impl Monitor {
    /// A ledger whose problems and notes are shown by `observer`.
    pub fn new(observer: Box<dyn Observer>) -> Self {
        Monitor {
            counters: std::array::from_fn(|_| AtomicU64::new(0)),
            expected_bytes: AtomicU64::new(0),
            expected_entries: AtomicU64::new(0),
            flows: Mutex::default(),
            outdated: Mutex::default(),
            redundancy: Mutex::default(),
            wants_entries: observer.wants_entries(),
            observer,
        }
    }

    /// Shows what was done with the entry at `path`, if the observer wants to know.
    pub fn entry(&self, act: EntryAct, path: impl FnOnce() -> PathBuf) {
        if self.wants_entries {
            self.observer.entry(act, &path());
        }
    }

    /// Adds `amount` to the value of a counter.
    pub fn add(&self, counter: Counter, amount: u64) {
        self.counters[counter as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// Subtracts an amount that was counted for work that then failed.
    pub fn take_back(&self, counter: Counter, amount: u64) {
        self.counters[counter as usize].fetch_sub(amount, Ordering::Relaxed);
    }

    /// Reads a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Ordering::Relaxed)
    }

    /// Reports a problem without a loss.
    pub fn warning(&self, place: impl AsRef<Path>, error: Error) {
        if error.kind() != Kind::Unanswered {
            self.add(Counter::Warnings, 1);
        }
        self.report(Severity::Warning, place.as_ref(), error);
    }

    /// Reports an entry that changed or vanished while it was read; this is not a loss.
    pub fn changed(&self, place: impl AsRef<Path>, error: Error) {
        self.add(Counter::ChangedWhileRead, 1);
        self.report(Severity::Changed, place.as_ref(), error);
    }

    /// Reports a member that does not take part in writes.
    pub fn degraded(&self, place: impl AsRef<Path>, error: Error) {
        self.add(Counter::DegradedMembers, 1);
        self.report(Severity::Degraded, place.as_ref(), error);
    }

    /// Reports an object that could not be saved, restored or verified. Data that needs newer keys,
    /// or that other members have now, is not a loss: the run counts as outdated instead.
    pub fn loss(&self, place: impl AsRef<Path>, error: Error) {
        if matches!(error.kind(), Kind::KeysChanged | Kind::Busy) {
            lock(&self.outdated).get_or_insert(error);
            return;
        }
        self.add(Counter::Losses, 1);
        self.report(Severity::Loss, place.as_ref(), error);
    }

    /// Reports a member that does not answer. Later stages that meet the same member report it too,
    /// as [`Kind::Unanswered`]; these reports are counted and not shown again.
    pub fn silent_member(&self, place: impl AsRef<Path>, error: Error) {
        self.add(Counter::Warnings, 1);
        let place = place.as_ref().to_path_buf();
        self.observer.problem(&Problem { severity: Severity::Warning, place, error });
    }

    /// The error with which an outdated run ends: the run met data that only newer keys open, or
    /// all members that it knew have left. Taken once.
    pub fn take_outdated(&self) -> Option<Error> {
        lock(&self.outdated).take()
    }

    fn report(&self, severity: Severity, place: &Path, error: Error) {
        if error.kind() == Kind::Unanswered && severity != Severity::Loss {
            return;
        }
        self.observer.problem(&Problem { severity, place: place.to_path_buf(), error });
    }

    /// Sets the redundancy of the store at the end of the run.
    pub fn state_redundancy(&self, redundancy: Redundancy) {
        *lock(&self.redundancy) = Some(redundancy);
    }

    /// The redundancy that was set, if any.
    pub fn redundancy(&self) -> Option<Redundancy> {
        *lock(&self.redundancy)
    }

    /// Passes a remark to the observer.
    pub fn note(&self, text: &str) {
        self.observer.note(text);
    }

    /// Begins to count a flow.
    pub fn flow(&self, along: Along, name: impl Into<String>) -> Arc<Flow> {
        let (bytes, nanos) = (AtomicU64::new(0), AtomicU64::new(0));
        let flow = Arc::new(Flow { along, name: name.into(), bytes, nanos });
        lock(&self.flows).push(Arc::clone(&flow));
        flow
    }

    /// All flows, in the order in which they began.
    pub fn flows(&self) -> Vec<Arc<Flow>> {
        lock(&self.flows).clone()
    }

    /// Sets the total amount of work, as far as it is known now.
    pub fn set_total(&self, bytes: u64, entries: u64) {
        self.expected_bytes.store(bytes, Ordering::Relaxed);
        self.expected_entries.store(entries, Ordering::Relaxed);
    }

    /// The total amount of work, `(bytes, entries)`; 0 while unknown.
    pub fn expected(&self) -> (u64, u64) {
        (self.expected_bytes.load(Ordering::Relaxed), self.expected_entries.load(Ordering::Relaxed))
    }
}
