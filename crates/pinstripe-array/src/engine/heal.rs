//! Healing: blocks that were found bad are rewritten with the content that the rest of their rows
//! gives.
//!
//! A reader that finds a bad block notes it; the flusher heals it between batches.
//!
//! Invariant: no log record that may be replayed names a healed block; otherwise, a power cut
//! during the write of the block would compute parity from a torn block.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::Array;
use super::logged::LoggedArray;
use crate::format::BLOCK_BYTES;
use crate::format::sums::Sum;
use crate::member::ArrayMember;
use crate::plan::{Class, Mark, Transfer};
use pinstripe_base::error::{Error, Kind, Result};

/// The most blocks that wait to be healed. Bad blocks beyond this number are noted when they are
/// read again.
const OPEN_MAX: usize = 4096;
/// The number of blocks whose writes may fail before a member is marked as failed.
const BAD_BLOCKS_MAX: u64 = 20;

/// Blocks by slot and number.
#[derive(Debug, Default)]
pub(super) struct BadBlockList {
    open: BTreeSet<(usize, u64)>,
    /// Blocks that could not be healed; they are listed so that they are not tried repeatedly.
    unhealable: BTreeSet<(usize, u64)>,
}

impl BadBlockList {
    /// Adds a block, unless it could not be healed before or too many blocks wait. Returns whether
    /// the block was not in the list before.
    fn add(&mut self, block: (usize, u64)) -> bool {
        let is_taken = self.open.len() < OPEN_MAX && !self.unhealable.contains(&block);
        is_taken && self.open.insert(block)
    }

    /// Whether no block waits to be healed.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Lets blocks that could not be healed be tried again the next time they are read.
    pub(crate) fn retry_unhealable(&mut self) {
        self.unhealable.clear();
    }
}

/// A part of a transfer that is unreadable or fails its checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bad {
    /// Bytes of the chunk.
    pub column: Range<u32>,
    /// Whether the read failed; otherwise the checksum did not match.
    pub is_unreadable: bool,
}

/// The outcome for one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Healed {
    /// The block holds the expected content.
    Yes,
    /// The content cannot be rebuilt.
    Lost,
    /// The member could not be written.
    Refused,
}

impl Array {
    /// Counts a bad part of a transfer, and queues it for healing.
    pub(super) fn note_bad_block(&self, it: &Transfer, bad: &Bad) {
        {
            let errors = &mut self.live.lock().errors[it.member];
            *(if bad.is_unreadable { &mut errors.reads } else { &mut errors.checksums }) += 1;
        }
        let start = it.member_range.start + u64::from(bad.column.start - it.column.start);
        self.heal_later(it.member, start, bad.column.len() as u64);
    }

    /// Queues blocks of a slot that may be bad.
    pub(super) fn heal_later(&self, slot: usize, start: u64, bytes: u64) {
        let blocks = start / BLOCK_BYTES..(start + bytes) / BLOCK_BYTES;
        let mut bad_blocks = self.bad_blocks.lock();
        let mut is_new = false;
        for block in blocks.map(|block| (slot, block)) {
            is_new |= bad_blocks.add(block);
        }
        drop(bad_blocks);
        if is_new && let Some(on_bad_block) = self.on_bad_block.get() {
            on_bad_block();
        }
    }

    /// Sets `act`, which is called when a block begins to wait for healing; the thread that found
    /// the block calls it, and may hold a row. Only the first call has an effect.
    pub(crate) fn on_bad_block(&self, act: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_bad_block.set(Box::new(act));
    }

    /// Calls `act` with a member's checksums of blocks. If the array can do without the member,
    /// checksums that cannot be read are marked lost and `act` is called again; the other members
    /// then rebuild the blocks.
    ///
    /// # Errors
    /// Fails with the errors of the member.
    pub(super) fn with_sums<T>(
        &self,
        slot: usize,
        blocks: &Range<u64>,
        act: impl Fn(&ArrayMember) -> Result<T>,
    ) -> Result<T> {
        let member =
            self.member(slot).ok_or_else(|| Error::new(Kind::Io, "the member is absent"))?;
        act(&member).or_else(|error| {
            if !self.shape().survives(self.absent().with(slot)) {
                return Err(error);
            }
            member.mark_unreadable_lost(blocks)?;
            act(&member)
        })
    }

    /// Writes a block again with the content that the rest of its row gives.
    pub(super) fn heal_block(&self, slot: usize, block: u64) -> Result<Healed> {
        let held = self.shape().held(slot, block * BLOCK_BYTES);
        let Some(held) = held else { return Ok(Healed::Yes) };
        let _only = self.occupy(held.row);
        let map = self.shape().map(held.row);
        let Some(member) = self.holder(&map, held.shard) else { return Ok(Healed::Yes) };
        let blocks = block..block + 1;
        let sums = self.with_sums(slot, &blocks, |member| member.sums(blocks.clone()));
        let Some(sum) = sums.ok().and_then(|sums| sums.first().copied()) else {
            return Ok(Healed::Refused);
        };
        let mut is = vec![0; BLOCK_BYTES as usize];
        let mut is_sound = || member.read(block * BLOCK_BYTES, &mut is).is_ok() && sum.suits(&is);
        if !sum.is_written() || is_sound() {
            // The flusher has written it since it was found.
            return Ok(Healed::Yes);
        }
        let column = held.offset..held.offset + BLOCK_BYTES as u32;
        let erased = Mark { shard: held.shard, class: Class::Erased, column: column.clone() };
        let Ok(bytes) = self.recover(&map, held.shard, &column, &[erased]) else {
            return Ok(Healed::Lost);
        };
        // Parity is right by definition; rebuilt data has to match the checksum, or something else
        // is bad.
        let is_parity = map.parity_shards().has(held.shard);
        if !is_parity && sum != Sum::LOST && !sum.suits(&bytes) {
            return Ok(Healed::Lost);
        }
        let sum = match bytes.iter().all(|byte| *byte == 0) && sum == Sum::LOST {
            true => Sum::UNWRITTEN,
            false => Sum::from_block(&bytes),
        };
        let is_taken = !sum.is_written() || member.write(block * BLOCK_BYTES, &bytes).is_ok();
        // A block that the member refuses is rebuilt from the others from now on.
        let sum = if is_taken { sum } else { Sum::LOST };
        if member.set_sums(block, &[sum]).is_err() || !is_taken {
            return self.refused(slot).map(|()| Healed::Refused);
        }
        self.live.lock().errors[slot].healed += 1;
        Ok(Healed::Yes)
    }

    /// Counts a block that a member could not write, and marks the member as failed when there are
    /// many such blocks.
    fn refused(&self, slot: usize) -> Result<()> {
        let count = {
            let errors = &mut self.live.lock().errors[slot];
            errors.bad_blocks += 1;
            errors.bad_blocks
        };
        match count > BAD_BLOCKS_MAX && self.shape().survives(self.absent().with(slot)) {
            true => self.fail(slot),
            false => Ok(()),
        }
    }
}

/// Heals the blocks that were found.
///
/// # Errors
/// Fails with [`Kind::TooManyLosses`] when too many members failed.
pub(super) fn heal(logged: &mut LoggedArray) -> Result<()> {
    let array = Arc::clone(&logged.array);
    let open = std::mem::take(&mut array.bad_blocks.lock().open);
    if open.is_empty() {
        return Ok(());
    }
    // The first checkpoint ensures that no record names these blocks, the last that their checksums
    // are durable.
    logged.checkpoint()?;
    for (slot, block) in open {
        if array.heal_block(slot, block)? != Healed::Yes {
            array.bad_blocks.lock().unhealable.insert((slot, block));
        }
    }
    logged.checkpoint()
}
