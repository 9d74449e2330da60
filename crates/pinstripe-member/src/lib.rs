//! The member trait: the operations of a store on one failure domain, be it a directory or a
//! bucket.
//!
//! A member is a shelf of write-once runs of bytes ("extents"). Every call moves a whole buffer or
//! fails; nothing is ever changed after it was sealed, and a name appears only when its bytes are
//! durable. Methods take `&self`, and the trait is object safe.
//!
//! Invariants every implementation keeps, tested by the one conformance suite:
//! - an extent that was not sealed is never listed, read or counted, whatever happens;
//! - after `seal` or `put` returned, the bytes survive a power cut;
//! - `put` has exactly one winner.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod fault;
mod format;
mod process;
mod secret;

mod directory;
mod memory;
mod places;
mod sealed_cache;
mod shared;
mod stat;
mod steps;
mod timed;
mod watched;

#[cfg(any(test, feature = "conformance"))]
mod conformance;

#[cfg(any(test, feature = "conformance"))]
pub use conformance::run as check_conformance;
pub use directory::DirectoryMember;
pub(crate) use directory::RESERVE;
pub use fault::{FaultMember, PowerCut, Quota};
pub use format::{
    entry, envelope, forgotten, gc, heartbeat, index_run, key_ring, keys, label, meta, pack_index,
    record, removed_slot, scrub, session, snapshot, stripe_set, tar, tree,
};
pub use memory::MemoryMember;
pub use places::{NewMember, Places, RemoteMembers, is_remote};
pub use places::{of_bytes, real, refuse_inside_member};
pub use process::{is_gone as process_is_gone, is_of_an_earlier_boot, own as own_process};
pub use sealed_cache::{CacheCounts, CacheKey, SealedCache};
pub use secret::{SecretBytes, SecretKey};
pub use stat::stat_of;
pub use steps::{DiskStep, Steps};
pub use timed::{MemberReads, ReadMeter, TimedMember};
pub use watched::{Patience, WatchedMember, goes_on};

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, SnapshotId};

/// The parts of a member that hold extents; each is a directory or a name prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Room {
    /// Stripe sets of records.
    Packs,
    /// Stripe sets with the places of chunks; derived, may be lost.
    Index,
    /// Commit points, one small object per finished backup.
    Snapshots,
    /// The store's keys: key rings and key slots.
    Keys,
    /// Running writers: one small object each.
    Sessions,
    /// Marks of snapshots that are not wanted any more.
    Forgotten,
    /// The records of deletion: condemned packs, writers' answers, tombstones.
    Gc,
    /// Checkpoints of unfinished backups.
    Checkpoints,
    /// The state of scrubbing.
    Scrub,
    /// Strays from other rooms: set aside, read by no verb.
    Strays,
    /// Heartbeats of long sessions.
    Heartbeats,
}

impl Room {
    /// Every room.
    pub const ALL: [Room; 11] = [
        Room::Packs,
        Room::Index,
        Room::Snapshots,
        Room::Keys,
        Room::Sessions,
        Room::Forgotten,
        Room::Gc,
        Room::Checkpoints,
        Room::Scrub,
        Room::Strays,
        Room::Heartbeats,
    ];

    /// The directory's name.
    pub const fn dir(self) -> &'static str {
        match self {
            Room::Packs => "packs",
            Room::Index => "index",
            Room::Snapshots => "snapshots",
            Room::Keys => "keys",
            Room::Sessions => "sessions",
            Room::Forgotten => "forgotten",
            Room::Gc => "gc",
            Room::Checkpoints => "checkpoints",
            Room::Scrub => "scrub",
            Room::Strays => "strays",
            Room::Heartbeats => "heartbeats",
        }
    }
}

/// Names one extent on a member: `packs/ab/abcd…`, `snapshots/…`; or the member's own label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExtentName {
    /// `pinstripe.member`, which names the store and the member's number in it.
    Label,
    /// An extent in a room, named by 16 bytes.
    In(Room, [u8; 16]),
}

impl ExtentName {
    /// The name of a pack's extent.
    pub fn pack(set: SetId) -> Self {
        ExtentName::In(Room::Packs, set.0)
    }

    /// The name of an index run's extent.
    pub fn index(set: SetId) -> Self {
        ExtentName::In(Room::Index, set.0)
    }

    /// The name of a snapshot object.
    pub fn snapshot(id: SnapshotId) -> Self {
        ExtentName::In(Room::Snapshots, id.0)
    }

    /// The path below the member's root: two levels in `packs`, to limit the size of directories.
    pub fn path(&self) -> String {
        match self {
            ExtentName::Label => "pinstripe.member".to_owned(),
            ExtentName::In(Room::Packs, id) => format!("packs/{:02x}/{}", id[0], SetId(*id)),
            ExtentName::In(room, id) => format!("{}/{}", room.dir(), SetId(*id)),
        }
    }
}

impl fmt::Display for ExtentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}

/// Whether a new extent may replace one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// The name must be free; otherwise `Kind::Exists` at seal, and the old bytes stay.
    Never,
    /// For repair only: the old extent stays complete until the new one is durable.
    Allowed,
}

/// An announced listing of a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance {
    /// The room.
    pub room: Room,
    /// The number of calls that the same listing answers.
    pub times: u8,
    /// One more call needs a listing begun after the end of the first.
    pub again: bool,
    /// The member's label will be read, too.
    pub label: bool,
    /// The listing may not be needed: prefetch it only if that takes no request of its own.
    pub maybe: bool,
}

impl Glance {
    /// A listing that answers this many calls.
    pub const fn of(room: Room, times: u8) -> Self {
        Glance { room, times, again: false, label: false, maybe: false }
    }

    /// The same, if it takes no request of its own.
    pub const fn maybe(room: Room, times: u8) -> Self {
        Glance { maybe: true, ..Self::of(room, times) }
    }
}

/// The properties of a member, queried once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// The device (`st_dev`), if there is one: members on the same device fail together.
    pub device: Option<u64>,
    /// Free bytes, if known.
    pub free_bytes: Option<u64>,
    /// It has little more room than its reserve for deleting: nothing else should be written there.
    pub is_full: bool,
    /// The parameters for hiding its latency, if that is necessary.
    pub far: Option<Far>,
}

/// The part of the free space that is left to the file system: 1 in this many bytes.
const SPARED_PARTS: u64 = 16;

impl Caps {
    /// Bytes that may be filled, if known: a part of the free space is left to the file system, at
    /// most `spared_most` bytes.
    pub fn usable_bytes(&self, spared_most: u64) -> Option<u64> {
        self.free_bytes.map(|free| free - (free / SPARED_PARTS).min(spared_most))
    }
}

/// Parameters for hiding the latency of a remote member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Far {
    /// Extents that are sealed concurrently.
    pub lanes: usize,
    /// The length that an extent of a pack should not exceed: it is buffered until it is sealed.
    pub extent_bytes: u64,
    /// Reads that are requested concurrently.
    pub reads: usize,
    /// The preferred length of long reads: each costs a round trip.
    pub span_bytes: u64,
}

/// Counts of a call that extends the retention of extents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptLonger {
    /// Extents whose retention was read.
    pub looked: u64,
    /// Extents whose retention was extended.
    pub extended: u64,
}

/// One failure domain that holds a part of a store. No call has a default: a wrapper that lacks one
/// does not compile.
pub trait Member: Send + Sync {
    /// Begins an extent; nothing is visible under its name before [`ExtentWriter::seal`].
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>>;
    /// Writes one small object durably, in one atomic step, if no object has the name.
    /// `Kind::Exists` if another call was first.
    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()>;
    /// Fills `buf` from `offset`; a short extent is `Kind::Corrupt`, a missing one
    /// `Kind::NotFound`.
    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Like [`read_at`](Self::read_at), if the bytes are in memory and reading them cannot wait;
    /// otherwise `false`, and the content of `buf` is undefined.
    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool;
    /// Length in bytes; `Kind::NotFound` when there is no such extent.
    fn len(&self, name: ExtentName) -> Result<u64>;
    /// Every sealed extent of a room with its length, in name order. Other names are skipped.
    fn list(&self, room: Room) -> Result<Vec<([u8; 16], u64)>>;
    /// Removes an extent; not an error if it is missing.
    fn delete(&self, name: ExtentName) -> Result<()>;
    /// Makes every seal, put and delete so far survive a power cut.
    fn sync(&self) -> Result<()>;
    /// Removes unsealed data of writers that have died. Returns the number of files. Running
    /// writers, in this process or another, are not disturbed.
    fn sweep(&self) -> Result<u64>;
    /// The properties.
    fn caps(&self) -> Caps;
    /// The path, for messages.
    fn place(&self) -> &Path;
    /// The batched calls; `None` if the calls above do as well. Callers use the methods of `dyn
    /// Member`, which fall back to the calls above.
    fn batched(&self) -> Option<&dyn BatchedMember>;
}

/// Calls for several objects at once, or ahead of their use: they hide the latency of a remote
/// member. A local member ignores the hints.
pub trait BatchedMember: Send + Sync {
    /// Begins a [`put`](Member::put), which the caller repeats later with the same name and bytes
    /// to get its result.
    fn put_ahead(&self, name: ExtentName, bytes: &[u8]);
    /// Like [`read_at`](Member::read_at), for a long range that a plan chose: no bytes around it are
    /// read.
    fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>>;
    /// Reads extents completely, in the order of `names`, as one request; one that is longer than
    /// `most_bytes` is `Kind::Corrupt`. Each extent has its own result.
    fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>>;
    /// Like [`list`](Member::list) without the lengths: each may cost a request.
    fn names(&self, room: Room) -> Result<Vec<[u8; 16]>>;
    /// Hint: these rooms will be listed soon, and their small extents read. A later call may answer
    /// from this moment unless this process has changed the member since. An empty list discards
    /// what was prefetched.
    fn foresee(&self, wanted: &[Glance]);
    /// Hint: these extents will be opened next, each once.
    fn open_ahead(&self, names: &[ExtentName]);
    /// Extends the retention of extents once half of it has passed, on a member that has one.
    fn keep_longer(&self, names: &[ExtentName]) -> Result<KeptLonger>;
    /// The measured latency of short answers; `None` if it is negligible.
    fn latency(&self) -> Option<Duration>;
}

/// The batched calls of any member: its own, or one simple call after the other.
impl dyn Member + '_ {
    /// See [`BatchedMember::put_ahead`].
    pub fn put_ahead(&self, name: ExtentName, bytes: &[u8]) {
        if let Some(batched) = self.batched() {
            batched.put_ahead(name, bytes);
        }
    }

    /// See [`BatchedMember::read_span`].
    ///
    /// # Errors
    /// The errors of [`Member::read_at`].
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
    /// The errors of [`Member::list`].
    pub fn names(&self, room: Room) -> Result<Vec<[u8; 16]>> {
        match self.batched() {
            Some(batched) => batched.names(room),
            None => Ok(self.list(room)?.into_iter().map(|(id, _)| id).collect()),
        }
    }

    /// See [`BatchedMember::foresee`].
    pub fn foresee(&self, wanted: &[Glance]) {
        if let Some(batched) = self.batched() {
            batched.foresee(wanted);
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
    /// The errors of the member.
    pub fn keep_longer(&self, names: &[ExtentName]) -> Result<KeptLonger> {
        self.batched().map_or(Ok(KeptLonger::default()), |it| it.keep_longer(names))
    }

    /// See [`BatchedMember::latency`].
    pub fn latency(&self) -> Option<Duration> {
        self.batched()?.latency()
    }
}

/// The batched calls for a wrapper, which has them only if the wrapped member does.
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

/// [`BatchedMember::read_whole`] by [`Member::len`] and [`Member::read_at`], one extent after the other.
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

/// The length of an extent that is to be read completely, if it is at most `most_bytes`.
fn expect_short(bytes: u64, most_bytes: u64, place: &Path, name: ExtentName) -> Result<usize> {
    if bytes > most_bytes {
        let error =
            Error::corrupt("the content is too long for a small object", place.join(name.path()));
        return Err(error.expected(format!("at most {most_bytes} bytes"), bytes));
    }
    Ok(bytes as usize)
}

/// An extent being written. Dropping it without [`seal`](ExtentWriter::seal) leaves nothing behind.
pub trait ExtentWriter: Send {
    /// Adds bytes at the end.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes all bytes durable, verifies the length and gives the extent its name, durably.
    fn seal(self: Box<Self>) -> Result<()>;
}

/// Seals an extent of a set that this process writes. No other writer uses the name: an extent that
/// exists under it was rebuilt from other members by a repair.
///
/// # Errors
/// The errors of [`ExtentWriter::seal`], except [`Kind::Exists`].
pub fn seal_own(writer: Box<dyn ExtentWriter>) -> Result<()> {
    match writer.seal() {
        Err(error) if error.kind() == Kind::Exists => Ok(()),
        sealed => sealed,
    }
}

/// A member that several threads hold.
pub type SharedMember = Arc<dyn Member>;
