//! A part of a row of the new geometry: its data from rows of the old one, and its parity.

use std::ops::Range;

use pinstripe_kernel::parity::update;

use crate::engine::Array;
use crate::engine::content::ShardContent;
use crate::format::BLOCK_BYTES;
use crate::format::sums::Sum;
use crate::geometry::{RowMap, Shape};
use crate::set::MemberSet;

const BLOCK: usize = BLOCK_BYTES as usize;

/// A column of a row of the new geometry.
#[derive(Debug)]
pub(super) struct MovedPiece {
    pub map: RowMap,
    pub column: Range<u32>,
    /// By shard.
    pub parts: Vec<ShardContent>,
}

impl Array {
    /// The content of a column of a row of the new geometry.
    pub(super) fn make_piece(&self, shape: &Shape, row: u64, column: &Range<u32>) -> MovedPiece {
        let map = shape.geometry().map(row);
        let mut parts: Vec<ShardContent> =
            (0..map.data()).map(|data| self.moved_content(shape, row, data, column)).collect();
        if map.mirrors() {
            parts.resize(map.shards(), parts[0].clone());
            return MovedPiece { map, column: column.clone(), parts };
        }
        let mut parity = vec![vec![0; column.len()]; map.parity()];
        let data: Vec<(usize, &[u8])> = parts
            .iter()
            .enumerate()
            .filter(|(_, part)| part.is_written())
            .map(|(shard, part)| (map.coefficient(shard), &part.bytes[..]))
            .collect();
        let mut sums: Vec<_> = parity.iter_mut().map(Vec::as_mut_slice).enumerate().collect();
        update(&data, &mut sums);
        // Parity over a lost block is lost too: rebuilding from it would make up content.
        let lost: Vec<bool> = (0..column.len() / BLOCK)
            .map(|block| parts.iter().any(|part| part.sums[block] == Sum::LOST))
            .collect();
        parts.extend(
            parity.into_iter().map(|bytes| ShardContent::from_bytes(bytes, |block| lost[block])),
        );
        MovedPiece { map, column: column.clone(), parts }
    }

    /// The content of a data chunk by the old geometry.
    fn moved_content(
        &self,
        shape: &Shape,
        row: u64,
        data: usize,
        column: &Range<u32>,
    ) -> ShardContent {
        let nothing = || ShardContent::from_bytes(vec![0; column.len()], |_| false);
        let Some(spot) = shape.source(row, data) else { return nothing() };
        let map = shape.map_before(spot.row);
        if !self.any_holder(&map, |member, it| member.any_region(it, |it| it.is_written())) {
            return nothing();
        }
        let (bytes, lost) = self.recover_column(&map, spot.data, column);
        ShardContent::from_bytes(bytes, |block| lost.contains(&block))
    }

    /// Writes a piece to its members. Returns the members that could not be written.
    pub(super) fn put_piece(&self, piece: &MovedPiece) -> MemberSet {
        let could_not = |shard: &usize| {
            let place = piece.map.place(*shard);
            let start = place.start + u64::from(piece.column.start);
            !self.put_content(place.member, start, &piece.parts[*shard])
        };
        (0..piece.parts.len()).filter(could_not).map(|shard| piece.map.member(shard)).collect()
    }
}
