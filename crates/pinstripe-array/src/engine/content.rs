//! The bytes and checksums to be written to a member for a column, when the member is filled or the
//! array grows.

use super::Array;
use crate::format::BLOCK_BYTES;
use crate::format::sums::Sum;
use crate::member::ArrayMember;
use pinstripe_base::error::Result;

/// The bytes and checksums of a shard in a column.
#[derive(Debug, Clone)]
pub(super) struct ShardContent {
    pub bytes: Vec<u8>,
    /// By block.
    pub sums: Vec<Sum>,
}

impl ShardContent {
    /// The content for these bytes. Blocks whose numbers are lost get [`Sum::LOST`]; blocks of
    /// zeros count as never written.
    pub fn from_bytes(bytes: Vec<u8>, is_lost: impl Fn(usize) -> bool) -> Self {
        let sum = |(number, block): (usize, &[u8])| match () {
            // No member has its content: reading it has to fail.
            () if is_lost(number) => Sum::LOST,
            () if block.iter().all(|byte| *byte == 0) => Sum::UNWRITTEN,
            () => Sum::from_block(block),
        };
        ShardContent {
            sums: bytes.chunks(BLOCK_BYTES as usize).enumerate().map(sum).collect(),
            bytes,
        }
    }

    /// Whether any of its blocks has other content than zeros.
    pub fn is_written(&self) -> bool {
        self.sums.iter().any(|sum| sum.is_written())
    }

    /// Writes the content to a member, unless it is zeros and nothing was ever written there.
    ///
    /// # Errors
    /// Fails with the errors of the device.
    pub fn put(&self, member: &ArrayMember, start: u64) -> Result<()> {
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
    /// Writes a part to the member of a slot. Returns true if the member was written or is absent.
    pub(super) fn put_content(&self, slot: usize, start: u64, part: &ShardContent) -> bool {
        self.member(slot).is_none_or(|member| part.put(&member, start).is_ok())
    }
}
