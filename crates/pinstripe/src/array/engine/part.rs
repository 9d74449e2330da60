//! What a member is to hold of a column, with its checksums: what is filled, and what is moved.

use super::Array;
use crate::array::member::Member;
use crate::error::Result;
use crate::format::array::BLOCK_BYTES;
use crate::format::array::sums::Sum;

/// What a shard is to hold of a column.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub bytes: Vec<u8>,
    /// By block.
    pub sums: Vec<Sum>,
}

impl Part {
    /// Bytes of which some blocks, by number, are lost. What is all zeros counts as never written.
    pub fn of(bytes: Vec<u8>, is_lost: impl Fn(usize) -> bool) -> Self {
        let sum = |(number, block): (usize, &[u8])| match () {
            // Nobody has it: reading it has to fail.
            () if is_lost(number) => Sum::LOST,
            () if block.iter().all(|byte| *byte == 0) => Sum::UNWRITTEN,
            () => Sum::of(block),
        };
        Part { sums: bytes.chunks(BLOCK_BYTES as usize).enumerate().map(sum).collect(), bytes }
    }

    /// Whether any block of it is more than zeros.
    pub fn is_written(&self) -> bool {
        self.sums.iter().any(|sum| sum.is_written())
    }

    /// Writes it to a place of a member's data, unless nothing was ever written there and it is zeros.
    ///
    /// # Errors
    /// Those of the device.
    pub fn put(&self, member: &Member, start: u64) -> Result<()> {
        let range = start..start + self.bytes.len() as u64;
        if self.is_written() {
            member.write(start, &self.bytes)?;
        } else if !member.any_region(&range, |region| region.is_written()) {
            return Ok(());
        }
        member.set_sums(start / BLOCK_BYTES, &self.sums)
    }
}

impl Array {
    /// Puts a part on the member of a slot. Returns whether it took it, or is absent.
    pub(super) fn put_part(&self, slot: usize, start: u64, part: &Part) -> bool {
        self.member(slot).is_none_or(|member| part.put(&member, start).is_ok())
    }
}
