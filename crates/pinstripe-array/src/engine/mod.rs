//! A running array: writes gather in the cache and are put on the members in batches.
//!
//! ```text
//! write --> cache --> batch: plan, read and check, compute --> log, sync --> in place, checksums
//! read  --> members, checked, rebuilt where they must --> what the cache has over it
//! ```
//!
//! [`Array`] may be used by any number of threads; one [`Flusher`] puts rows on the members.
//!
//! Invariants:
//! - a batch's record is durable on all present members before anything of the batch is written in
//!   place, and everything of earlier batches is durable then as well;
//! - a failed member is not written any more, and the superblocks of the others record the failure
//!   durably before any write that it misses is reported as done;
//! - bytes that are read match their checksum, or were computed from bytes that do.
//!
//! The words for repairs (`ARCHITECTURE.md` says when each is done):
//!
//! | word | what it does | file |
//! |---|---|---|
//! | replay | brings tables and the rows of the last two records up to date | `replay.rs` |
//! | resync | makes parity match the data after an unclean stop without a log | `resync.rs` |
//! | recover | computes a shard's bytes from the rest of its row; writes nothing | `recover.rs` |
//! | heal | rewrites one block that was unreadable or failed its checksum | `heal.rs` |
//! | rebuild | fills a member: whole, what it missed, or as a copy; md: recover | `rebuild.rs` |
//! | scrub | reads everything and compares; a *repair* corrects what it finds | `scrub.rs` |
//! | mend | the step of a repair for one block: heals it, or corrects a mismatch | `scrub.rs` |
//! | salvage | writes new data into rows that lost more than parity replaces | `salvage.rs` |
//! | grow | moves all data to rows that are one chunk wider; md: reshape | `grow/` |
//!
//! Not in this module: threads and clocks.

mod assemble;
mod batch;
mod chunk;
mod content;
mod create;
mod devices;
mod fetch;
mod flusher;
mod grow;
mod heal;
mod image;
mod job;
mod log;
mod logged;
mod manage;
mod members;
#[cfg(test)]
mod races;
mod read;
mod rebuild;
mod recover;
mod replay;
mod resync;
mod rows;
mod salvage;
mod scrub;
mod shape;
#[cfg(test)]
mod slow_sync;
mod status;
mod step;
mod superblocks;
#[cfg(test)]
mod tests;
mod unwritten;
mod work;
mod write;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

pub(crate) use assemble::examine_member;
pub use assemble::{AssembleOptions, Assembly, assemble, probe, shape_of};
pub(crate) use create::create_with;
pub use create::{CreateOptions, check_create, check_room, create};
pub(crate) use devices::not_used;
pub use devices::{DeviceRole, FailedAs};
pub(crate) use flusher::BATCH_ROWS;
pub use flusher::Flusher;
pub use manage::AddedAs;
pub use status::{Errors, SlotState, SlotStatus, WorkKind, WorkStatus};
pub use step::{Mismatch, Step, WorkReport};
pub use write::DirtyStats;

use self::heal::{Bad, BadBlockList};
use self::members::{MemberSlots, Members};
use self::status::Live;
use super::cache::Cache;
use super::geometry::{ArrayGeometry, RowMap, Shape};
use super::member::ArrayMember;
use super::plan::{Class, Mark, RowPlan, Transfer};
use super::set::{MemberSet, ShardSet};
use crate::format::BLOCK_BYTES;
use crate::format::log::LogPiece;
use crate::format::superblock::Superblock;
use crate::ranked::{RankedMutex, RankedRwLock};
use pinstripe_base::error::{Error, Kind, Result};

/// An array that is assembled.
///
/// Reading the status never waits for a disk or for the flusher.
// Lock order, outermost first, as `Rank` has it; debug builds check it at every lock. A thread may
// skip locks, but never takes one while it holds the same or a later one:
//
//     Flusher     the flusher of a `Volume`
//     Row         a row that is held or occupied (`hold`, `occupy`, `begin`)
//     Publishing  `members.newest`: the order in which superblocks are written
//     Volume      what the threads of a `Volume` tell each other
//     Members     `members.state`: slots, spares, superblock
//     Status      `live`
//     BadBlocks   `bad_blocks`
//     Cache       `cache`
//     Shape       `shape`
//
// A row, for which threads wait at the condvar of `cache`, comes before the superblocks because the
// flusher marks members failed while it occupies a row. The first three are held across transfers,
// so a status takes none of them, and a reader takes a row only. No other lock is held while its
// thread waits for a disk.
//
// Below these, unranked, are the two locks of a member. That of its replacement is held to read
// across transfers to the replacement; only the flusher takes it to write, between batches. That of
// its tables is held across no transfer.
pub struct Array {
    /// The placement of rows; only the flusher changes it, together with the cache's copy (see
    /// `reshape`).
    shape: RankedRwLock<Shape>,
    /// Counts the changes of `shape`: a reader starts again if the count changed while it read.
    reshaped: AtomicU64,
    /// A reshape in place failed: the rows that it was moving are lost until the array is assembled
    /// again.
    relocation_lost: AtomicBool,
    members: Members,
    cache: RankedMutex<Cache>,
    live: RankedMutex<Live>,
    /// Blocks that were found bad and wait for the flusher to rewrite them.
    bad_blocks: RankedMutex<BadBlockList>,
    /// Called when a block begins to wait for healing.
    on_bad_block: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Bytes that have gone from the cache to the members.
    drained_bytes: AtomicU64,
    /// Some rows may have parity that does not match their data.
    has_unsure: AtomicBool,
}

impl Array {
    /// The geometry; while the array grows, the geometry after the growth.
    pub fn geometry(&self) -> ArrayGeometry {
        *self.shape().geometry()
    }

    /// User bytes.
    pub fn capacity(&self) -> u64 {
        self.shape().capacity()
    }

    /// A copy of the newest superblock that is durable. Never waits for a disk.
    pub fn superblock(&self) -> Superblock {
        self.members.superblock()
    }

    /// Slots whose members are absent or still being filled.
    pub fn absent(&self) -> MemberSet {
        self.absent_where(|_, member| member.is_filled(u64::MAX))
    }

    /// Slots that are absent for this row: a member that is being filled counts as present if the
    /// row is in its filled part.
    fn absent_at(&self, map: &RowMap) -> MemberSet {
        self.absent_where(|slot, member| {
            member.is_filled(u64::MAX)
                || map.shard_on(slot).is_some_and(|shard| {
                    member.is_filled(map.place(shard).start + u64::from(map.len()))
                })
        })
    }

    /// Whether all data can still be read without these members.
    pub fn survives(&self, absent: MemberSet) -> bool {
        self.shape().survives(absent)
    }

    fn absent_where(&self, is_there: impl Fn(usize, &ArrayMember) -> bool) -> MemberSet {
        let members = self.members();
        let absent = members.iter().enumerate().filter(|(slot, member)| {
            !member.as_ref().is_some_and(|member| is_there(*slot, member))
        });
        absent.map(|(slot, _)| slot).collect()
    }

    fn check(&self, offset: u64, bytes: usize, kind: Kind) -> Result<()> {
        let end = offset.checked_add(bytes as u64);
        if end.is_some_and(|end| end <= self.capacity()) {
            return Ok(());
        }
        let end = u128::from(offset) + bytes as u128;
        let what = format!("within {}", self.capacity());
        Err(Error::new(kind, "the range is beyond the end of the array").expected(what, end))
    }

    fn member(&self, slot: usize) -> Option<Arc<ArrayMember>> {
        self.members.get(slot)
    }

    /// All slots with their present members.
    fn members(&self) -> MemberSlots {
        self.members.slots()
    }

    /// The member that has a shard; `None` if that member is absent.
    fn holder(&self, map: &RowMap, shard: usize) -> Option<Arc<ArrayMember>> {
        let place = map.place(shard);
        let end = place.start + u64::from(map.len());
        self.member(place.member).filter(|member| member.is_filled(end))
    }

    /// Carries out the reads of a plan, by transfer, and marks the blocks that are bad.
    fn fetch_all(&self, plan: &RowPlan) -> (Vec<Vec<u8>>, Vec<Mark>) {
        let (reads, bad): (Vec<_>, Vec<_>) = plan.reads.iter().map(|it| self.fetch(it)).unzip();
        (reads, bad.into_iter().flatten().collect())
    }

    /// Stores the checksums of a record's piece: from now on, the blocks are expected to match
    /// them.
    fn install_checksums(&self, piece: &LogPiece) -> Result<()> {
        let map = self.shape().map(piece.row);
        let blocks = piece.column.len() / BLOCK_BYTES as usize;
        for (shard, sums) in
            ShardSet::from_bits(piece.written).iter().zip(piece.sums.chunks(blocks))
        {
            let first = (map.place(shard).start + u64::from(piece.column.start)) / BLOCK_BYTES;
            let (slot, all) = (map.member(shard), first..first + sums.len() as u64);
            if self.holder(&map, shard).is_some()
                && self.with_sums(slot, &all, |member| member.set_sums(first, sums)).is_err()
            {
                // A block without its new checksum would pass for the old one: the member is marked
                // up.
                self.fail(slot)?;
            }
        }
        Ok(())
    }

    /// Reads a transfer's bytes, marks the bad blocks, and queues these blocks for healing.
    fn fetch(&self, it: &Transfer) -> (Vec<u8>, Vec<Mark>) {
        let (bytes, bad) = self.inspect(it);
        bad.iter().for_each(|bad| self.note_bad_block(it, bad));
        let mark = |bad: Bad| Mark { shard: it.shard, class: Class::Erased, column: bad.column };
        (bytes, bad.into_iter().map(mark).collect())
    }

    /// Reads a transfer's bytes and returns the blocks that are unreadable or fail their checksum.
    /// Blocks that were never written read as zeros.
    fn inspect(&self, it: &Transfer) -> (Vec<u8>, Vec<Bad>) {
        let mut bytes = vec![0; it.column.len()];
        let blocks = it.member_range.start / BLOCK_BYTES..it.member_range.end / BLOCK_BYTES;
        let member = self.member(it.member);
        let sums = member.as_ref().and_then(|member| member.sums(blocks).ok());
        let (Some(member), Some(sums)) = (member, sums) else {
            return (bytes, vec![Bad { column: it.column.clone(), is_unreadable: true }]);
        };
        let is_whole = member.read(it.member_range.start, &mut bytes).is_ok();
        let mut bad = Vec::new();
        for (number, (block, sum)) in bytes.chunks_mut(BLOCK_BYTES as usize).zip(sums).enumerate() {
            let at = number as u64 * BLOCK_BYTES;
            let start = it.column.start + at as u32;
            if !sum.is_written() {
                block.fill(0);
                continue;
            }
            // Block by block, so that one unreadable sector does not condemn the whole transfer.
            let is_unreadable =
                !is_whole && member.read(it.member_range.start + at, block).is_err();
            let from = it.member_range.start + at;
            let is_wrong = || !sum.suits(block) && !member.is_doubtful(&(from..from + BLOCK_BYTES));
            if is_unreadable || is_wrong() {
                bad.push(Bad { column: start..start + BLOCK_BYTES as u32, is_unreadable });
            }
        }
        (bytes, bad)
    }
}
