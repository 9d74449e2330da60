//! The member trait: the operations of a store on one failure domain, such as a directory or a
//! bucket.
//!
//! A member holds write-once sequences of bytes ("extents"). Every call transfers a complete buffer
//! or fails; nothing is changed after it was sealed, and a name appears only when the bytes of its
//! extent are durable. Methods take `&self`, and the trait is object safe.
//!
//! Every implementation keeps these invariants, which one conformance suite tests:
//!
//! * An extent that was not sealed is never listed, read or counted, whatever happens.
//! * After `seal` or `put` has returned, the bytes survive a power cut.
//! * If several processes call `put` for one name, exactly one call succeeds.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod catalog;
mod fault;
mod format;
mod process;
mod secret;

mod directory;
mod memory;
mod places;
mod planned;
mod sealed_cache;
mod set_server;
mod shared;
mod stat;
mod steps;
mod timed;
mod watched;

#[cfg(any(test, feature = "conformance"))]
mod conformance;

pub use catalog::{
    AnswerRow, CatalogAnswer, CatalogQuestion, CatalogSize, Change, ChangeSink, Facts,
    FoundVersion, Glob, Holder, NameHint, PathPattern, PatternPlace, Query, SORTED_MAX,
    SharedCatalog, SharedHead, SnapshotSeries, SnapshotSync, Version, encode_names, fold_case,
    history_of, join_path, kind_and_mode, scan_names, sort_found, split_path,
};
#[cfg(any(test, feature = "conformance"))]
pub use conformance::run as check_conformance;
pub use directory::DirectoryMember;
pub(crate) use directory::RESERVE;
pub use fault::{FaultMember, PowerCut, Quota};
pub use format::{
    acl, entry, envelope, forgotten, gc, heartbeat, index_run, key_ring, keys, label, meta,
    pack_index, record, removed_slot, scrub, session, snapshot, stripe_set, tar, tree,
};
pub use memory::MemoryMember;
pub use places::{NewMember, Places, RemoteMembers, is_remote};
pub use places::{of_bytes, real, refuse_inside_member};
pub use planned::PlannedStep;
pub use process::{is_gone as process_is_gone, is_of_an_earlier_boot, own as own_process};
pub use sealed_cache::{CacheCounts, CacheKey, SealedCache};
pub use secret::{SecretBytes, SecretKey};
pub use set_server::{FetchedPart, RunPart, RunToLay, ServerOfMember, SetServer, server_of};
pub use stat::stat_of;
pub use steps::{DiskStep, Steps};
pub use timed::{MemberReads, ReadMeter, TimedMember};
pub use watched::{Deadlines, WatchedMember, goes_on};

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, SnapshotId};

/// The parts of a member that hold extents; each is a directory or a name prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExtentKind {
    /// Stripe sets of records.
    Packs,
    /// Stripe sets of index runs, which say where chunks are; they can be rebuilt if they are lost.
    Index,
    /// Snapshot objects, which are commit points: one small object per finished backup.
    Snapshots,
    /// The store's keys: key rings and key slots.
    Keys,
    /// Sessions of running writers: one small object each.
    Sessions,
    /// Marks that say whether a snapshot is wanted.
    Forgotten,
    /// The objects of deletion: condemned packs, writers' answers, tombstones.
    Gc,
    /// Checkpoints of unfinished backups.
    Checkpoints,
    /// The state of scrubbing.
    Scrub,
    /// Strays from other kinds: they are set aside, and no verb reads them.
    Strays,
    /// Heartbeats of sessions that last for a long time.
    Heartbeats,
}

impl ExtentKind {
    /// Every kind.
    pub const ALL: [ExtentKind; 11] = [
        ExtentKind::Packs,
        ExtentKind::Index,
        ExtentKind::Snapshots,
        ExtentKind::Keys,
        ExtentKind::Sessions,
        ExtentKind::Forgotten,
        ExtentKind::Gc,
        ExtentKind::Checkpoints,
        ExtentKind::Scrub,
        ExtentKind::Strays,
        ExtentKind::Heartbeats,
    ];

    /// The directory's name.
    pub const fn dir(self) -> &'static str {
        match self {
            ExtentKind::Packs => "packs",
            ExtentKind::Index => "index",
            ExtentKind::Snapshots => "snapshots",
            ExtentKind::Keys => "keys",
            ExtentKind::Sessions => "sessions",
            ExtentKind::Forgotten => "forgotten",
            ExtentKind::Gc => "gc",
            ExtentKind::Checkpoints => "checkpoints",
            ExtentKind::Scrub => "scrub",
            ExtentKind::Strays => "strays",
            ExtentKind::Heartbeats => "heartbeats",
        }
    }
}

/// The name of one extent on a member: `packs/ab/abcd…`, `snapshots/…`, or the member's own label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExtentName {
    /// The label `pinstripe.member`, which gives the store and the member's number in it.
    Label,
    /// An extent of a kind, named by 16 bytes.
    In(ExtentKind, [u8; 16]),
}

impl ExtentName {
    /// The name of a pack's extent.
    pub fn pack(set: SetId) -> Self {
        ExtentName::In(ExtentKind::Packs, set.0)
    }

    /// The name of an index run's extent.
    pub fn index(set: SetId) -> Self {
        ExtentName::In(ExtentKind::Index, set.0)
    }

    /// The name of a snapshot object.
    pub fn snapshot(id: SnapshotId) -> Self {
        ExtentName::In(ExtentKind::Snapshots, id.0)
    }

    /// Whether the object may use the reserve of a full member: only objects that deleting or adding
    /// a member needs, and keys, without which the member's copies of other objects prove nothing.
    pub fn may_use_reserve(self) -> bool {
        match self {
            ExtentName::Label => true,
            ExtentName::In(kind, _) => {
                matches!(
                    kind,
                    ExtentKind::Sessions
                        | ExtentKind::Forgotten
                        | ExtentKind::Gc
                        | ExtentKind::Keys
                )
            }
        }
    }

    /// Whether it is an extent of a stripe set, which can be long; all others are small objects.
    pub fn is_of_set(self) -> bool {
        matches!(self, ExtentName::In(ExtentKind::Packs | ExtentKind::Index, _))
    }

    /// Returns the path below the member's root, with two levels in `packs` to limit the size of
    /// directories.
    pub fn path(&self) -> String {
        match self {
            ExtentName::Label => "pinstripe.member".to_owned(),
            ExtentName::In(ExtentKind::Packs, id) => format!("packs/{:02x}/{}", id[0], SetId(*id)),
            ExtentName::In(kind, id) => format!("{}/{}", kind.dir(), SetId(*id)),
        }
    }
}

impl fmt::Display for ExtentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}

/// Whether a new extent may replace an existing one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// The name must be free; otherwise the seal fails with `Kind::Exists`, and the old bytes stay.
    Never,
    /// For repair only: the old extent stays complete until the new one is durable.
    Allowed,
}

/// An announcement that a kind will be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefetchHint {
    /// The kind.
    pub kind: ExtentKind,
    /// The number of calls that one listing of the kind can answer.
    pub times: u8,
    /// One more call needs a new listing that begins after the end of the first one.
    pub again: bool,
    /// The member's label will be read as well.
    pub label: bool,
    /// The listing may not be needed: it is prefetched only if that takes no extra request.
    pub maybe: bool,
}

impl PrefetchHint {
    /// Announces a listing that answers this many calls.
    pub const fn new(kind: ExtentKind, times: u8) -> Self {
        PrefetchHint { kind, times, again: false, label: false, maybe: false }
    }

    /// Announces a listing that is prefetched only if that takes no extra request.
    pub const fn maybe(kind: ExtentKind, times: u8) -> Self {
        PrefetchHint { maybe: true, ..Self::new(kind, times) }
    }
}

/// The properties of a member, queried once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// The device (`st_dev`) of the member, if it has one: members on the same device fail
    /// together.
    pub device: Option<u64>,
    /// Free bytes on the member, if known.
    pub free_bytes: Option<u64>,
    /// The member has little more space than its reserve for deleting: nothing else should be
    /// written there.
    pub is_full: bool,
    /// This process may not delete what others rely on: merges of index runs are left to others.
    pub is_append_only: bool,
    /// The parameters for hiding the member's latency, if that is necessary.
    pub far: Option<Far>,
}

/// The part of the free space that is left to the file system: 1 byte in this many.
const SPARED_PARTS: u64 = 16;

impl Caps {
    /// Returns the number of bytes that may be filled, if known: part of the free space is left to
    /// the file system, at most `spared_most` bytes.
    pub fn usable_bytes(&self, spared_most: u64) -> Option<u64> {
        self.free_bytes.map(|free| free - (free / SPARED_PARTS).min(spared_most))
    }
}

/// Parameters for hiding the latency of a remote member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Far {
    /// Extents that are sealed concurrently.
    pub seals: usize,
    /// The length that an extent of a pack should not exceed, because the extent is buffered until
    /// it is sealed.
    pub extent_bytes: u64,
    /// Reads that are requested concurrently.
    pub reads: usize,
    /// The preferred length of long reads: each read costs a round trip.
    pub span_bytes: u64,
}

/// The results of a call that extends the retention of extents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptLonger {
    /// Extents whose retention was read.
    pub looked: u64,
    /// Extents whose retention was extended.
    pub extended: u64,
}

/// One failure domain that holds a part of a store. No call has a default implementation, so a
/// wrapper that lacks a call does not compile.
pub trait Member: Send + Sync {
    /// Begins an extent; nothing is visible under its name before [`ExtentWriter::seal`] returns.
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>>;
    /// Writes one small object durably, in one atomic step, if no object has this name yet.
    /// Fails with `Kind::Exists` if another call put an object first.
    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()>;
    /// Fills `buf` from `offset`; fails with `Kind::Corrupt` if the extent is too short, and with
    /// `Kind::NotFound` if it is missing.
    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Like [`read_at`](Self::read_at), if the bytes are in memory and reading them cannot block;
    /// otherwise it returns `false`, and the content of `buf` is undefined.
    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool;
    /// Returns the length in bytes; fails with `Kind::NotFound` when there is no such extent.
    fn len(&self, name: ExtentName) -> Result<u64>;
    /// Lists every sealed extent of a kind with its length, in name order. Names that cannot be an
    /// extent's are skipped.
    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>>;
    /// Removes an extent; removing a missing extent is not an error.
    fn delete(&self, name: ExtentName) -> Result<()>;
    /// Ensures that every seal, put and deletion so far survives a power cut.
    fn sync(&self) -> Result<()>;
    /// Removes unsealed data of writers that have died. Returns the number of files that were
    /// removed. Running writers, in this process or another, are not disturbed.
    fn sweep(&self) -> Result<u64>;
    /// The properties.
    fn caps(&self) -> Caps;
    /// The member's path, for messages.
    fn place(&self) -> &Path;
    /// The batched calls of this member; `None` if the calls above are as good. Callers use the
    /// methods of `dyn Member`, which use the simple calls if there are no batched ones.
    fn batched(&self) -> Option<&dyn BatchedMember>;
}

/// Calls for several objects at once, or in advance: they hide the latency of a remote member. A
/// local member ignores the hints.
pub trait BatchedMember: Send + Sync {
    /// Begins a [`put`](Member::put); the caller gets the result by calling `put` later with the
    /// same name and bytes.
    fn put_ahead(&self, name: ExtentName, bytes: &[u8]);
    /// Hint: the caller carries out these steps next, each on the `members` members that get this
    /// hint, in the order of the hints. Members behind one server may carry them out as one request
    /// when the caller comes to the first step: the next step is begun when one has succeeded on all
    /// members, and only if the server has all of them. The call for each step returns its result.
    fn plan(&self, steps: &[PlannedStep], members: usize);
    /// Hint: the caller lists this kind next on all members that get this hint, once, and with
    /// `with_content` also reads the small objects in it. The listing is of a time after this hint,
    /// unless an earlier call of [`prefetch`](Self::prefetch) has announced it.
    fn list_next(&self, wanted: PrefetchHint, with_content: bool);
    /// Like [`read_at`](Member::read_at), for a long range that the caller planned: no bytes around
    /// the range are read.
    fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>>;
    /// Reads complete extents, in the order of `names`, as one request; an extent that is longer
    /// than `most_bytes` fails with `Kind::Corrupt`. The result of each extent is separate.
    fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>>;
    /// Like [`list`](Member::list) without the lengths, because each length may cost a request.
    fn names(&self, kind: ExtentKind) -> Result<Vec<[u8; 16]>>;
    /// Hint: these kinds will be listed soon, and the small extents in them will be read. A later
    /// call may return the state at the time of this hint, unless this process has changed the
    /// member since. An empty list discards what was prefetched.
    fn prefetch(&self, wanted: &[PrefetchHint]);
    /// Hint: these extents will be opened next, once each.
    fn open_ahead(&self, names: &[ExtentName]);
    /// On a member with retention, extends the retention of those extents for which half of it has
    /// passed.
    fn keep_longer(&self, names: &[ExtentName]) -> Result<KeptLonger>;
    /// The measured latency of short requests; `None` if it is negligible.
    fn latency(&self) -> Option<Duration>;
    /// The server that lays and reads stripe sets over this member and others; `None` if there is
    /// no such server.
    fn served(&self) -> Option<ServerOfMember>;
}

/// The batched calls for any member: the member's own, or one simple call after the other.
impl dyn Member + '_ {
    /// See [`BatchedMember::put_ahead`].
    pub fn put_ahead(&self, name: ExtentName, bytes: &[u8]) {
        if let Some(batched) = self.batched() {
            batched.put_ahead(name, bytes);
        }
    }

    /// See [`BatchedMember::plan`].
    pub fn plan(&self, steps: &[PlannedStep], members: usize) {
        if let Some(batched) = self.batched() {
            batched.plan(steps, members);
        }
    }

    /// See [`BatchedMember::list_next`].
    pub fn list_next(&self, wanted: PrefetchHint, with_content: bool) {
        if let Some(batched) = self.batched() {
            batched.list_next(wanted, with_content);
        }
    }

    /// See [`BatchedMember::read_span`].
    ///
    /// # Errors
    /// Fails with the errors of [`Member::read_at`].
    pub fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        match self.batched() {
            Some(batched) => batched.read_span(name, offset, bytes),
            None => span_of(self, name, offset, bytes),
        }
    }

    /// See [`BatchedMember::read_whole`].
    pub fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>> {
        match self.batched() {
            Some(batched) => batched.read_whole(names, most_bytes),
            None => each_whole(self, names, most_bytes),
        }
    }

    /// See [`BatchedMember::names`].
    ///
    /// # Errors
    /// Fails with the errors of [`Member::list`].
    pub fn names(&self, kind: ExtentKind) -> Result<Vec<[u8; 16]>> {
        match self.batched() {
            Some(batched) => batched.names(kind),
            None => Ok(self.list(kind)?.into_iter().map(|(id, _)| id).collect()),
        }
    }

    /// See [`BatchedMember::prefetch`].
    pub fn prefetch(&self, wanted: &[PrefetchHint]) {
        if let Some(batched) = self.batched() {
            batched.prefetch(wanted);
        }
    }

    /// See [`BatchedMember::open_ahead`].
    pub fn open_ahead(&self, names: &[ExtentName]) {
        if let Some(batched) = self.batched() {
            batched.open_ahead(names);
        }
    }

    /// See [`BatchedMember::keep_longer`].
    ///
    /// # Errors
    /// Fails with the errors of the member.
    pub fn keep_longer(&self, names: &[ExtentName]) -> Result<KeptLonger> {
        self.batched().map_or(Ok(KeptLonger::default()), |it| it.keep_longer(names))
    }

    /// See [`BatchedMember::latency`].
    pub fn latency(&self) -> Option<Duration> {
        self.batched()?.latency()
    }

    /// See [`BatchedMember::served`].
    pub fn served(&self) -> Option<ServerOfMember> {
        self.batched()?.served()
    }
}

/// The batched calls for a wrapper, which has them only if the wrapped member has them.
pub fn batched_of(inner: &(impl Member + ?Sized)) -> &dyn BatchedMember {
    inner.batched().expect("a wrapper has batched calls only where the inner member has")
}

/// [`BatchedMember::read_span`] by [`Member::read_at`].
///
/// # Errors
/// As that.
pub fn span_of(
    member: &(impl Member + ?Sized),
    name: ExtentName,
    offset: u64,
    bytes: usize,
) -> Result<Vec<u8>> {
    let mut span = vec![0; bytes];
    member.read_at(name, offset, &mut span)?;
    Ok(span)
}

/// Implements [`BatchedMember::read_whole`] by calling [`Member::len`] and [`Member::read_at`] for
/// one extent after the other.
pub fn each_whole(
    member: &(impl Member + ?Sized),
    names: &[ExtentName],
    most_bytes: u64,
) -> Vec<Result<Vec<u8>>> {
    let read = |name: &ExtentName| {
        goes_on();
        let bytes = member.len(*name)?;
        let mut whole = vec![0; expect_short(bytes, most_bytes, member.place(), *name)?];
        member.read_at(*name, 0, &mut whole)?;
        Ok(whole)
    };
    names.iter().map(read).collect()
}

/// Returns the length of an extent that is to be read completely, if it is at most `most_bytes`.
fn expect_short(bytes: u64, most_bytes: u64, place: &Path, name: ExtentName) -> Result<usize> {
    if bytes > most_bytes {
        let error =
            Error::corrupt("the content is too long for a small object", place.join(name.path()));
        return Err(error.expected(format!("at most {most_bytes} bytes"), bytes));
    }
    Ok(bytes as usize)
}

/// An extent being written. Dropping the writer without [`seal`](ExtentWriter::seal) leaves nothing
/// on the member.
pub trait ExtentWriter: Send {
    /// Appends bytes to the extent.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes all bytes durable, verifies the length, and durably gives the extent its name.
    fn seal(self: Box<Self>) -> Result<()>;
}

/// Seals an extent of a stripe set that this process writes. No other writer uses the name of such
/// an extent: if an extent with this name exists, a repair rebuilt it from other members.
///
/// # Errors
/// Fails with the errors of [`ExtentWriter::seal`], except [`Kind::Exists`].
pub fn seal_own(writer: Box<dyn ExtentWriter>) -> Result<()> {
    match writer.seal() {
        Err(error) if error.kind() == Kind::Exists => Ok(()),
        sealed => sealed,
    }
}

/// A member that several threads hold.
pub type SharedMember = Arc<dyn Member>;
