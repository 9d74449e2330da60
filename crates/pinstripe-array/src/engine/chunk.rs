//! Fills one chunk of a member, with its checksums, from the other members.

use std::ops::Range;

use super::Array;
use super::content::ShardContent;
use super::rebuild::{Fill, FillError, Filled};
use super::status::WorkKind;
use crate::member::ArrayMember;

impl Array {
    /// Fills the chunk at an offset of a member from the other members.
    ///
    /// # Errors
    /// Fails when the member cannot be written.
    pub(super) fn fill_chunk(
        &self,
        member: &ArrayMember,
        fill: &Fill,
        start: u64,
    ) -> Result<Filled, FillError> {
        let Some(held) = self.shape().held(fill.slot, start) else {
            return Ok(Filled::default());
        };
        let map = self.shape().map(held.row);
        let wanted = |member: &ArrayMember, range: &Range<u64>| match fill.kind {
            WorkKind::Recover => member.any_region(range, |region| region.is_behind()),
            _ => member.any_region(range, |region| region.is_written()),
        };
        if !self.any_holder(&map, wanted) {
            return Ok(Filled::default());
        }
        let (bytes, lost) = self.recover_column(&map, held.shard, &(0..map.len()));
        let part = ShardContent::from_bytes(bytes, |number| lost.contains(&number));
        part.put(member, start).map_err(|_| FillError::Write)?;
        Ok(Filled { bytes: part.bytes.len() as u64, lost_blocks: lost.len() as u64 })
    }
}
