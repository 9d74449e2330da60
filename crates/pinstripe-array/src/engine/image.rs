//! A row as its members have it in memory, and which of its blocks do not hold the expected
//! content, found without reading anything again.

use std::ops::Range;

use pinstripe_kernel::parity::update;

use super::Array;
use crate::format::BLOCK_BYTES;
use crate::format::sums::Sum;
use crate::format::superblock::Consistency;
use crate::geometry::RowMap;
use crate::plan::Transfer;
use crate::set::ShardSet;
use pinstripe_base::error::Result;

pub(super) const BLOCK: usize = BLOCK_BYTES as usize;

/// A row as its members have it.
pub(super) struct RowImage {
    pub map: RowMap,
    /// By shard; `None` where its member is absent.
    bytes: Vec<Option<Vec<u8>>>,
    /// Shards that are unreadable or fail their checksum, by block of the column.
    pub bad: Vec<ShardSet>,
}

/// The shard that is to blame for a mismatch.
pub(super) enum Blame {
    /// This shard is to blame; the bytes are what it should contain.
    Known(usize, Vec<u8>),
    /// More than one shard can be to blame.
    Unknown,
}

/// A block that does not hold the expected content.
pub(super) struct BlockMismatch {
    pub shard: usize,
    pub block: usize,
    /// The shard to blame; `None` if the block fails its own checksum.
    pub blame: Option<Blame>,
}

impl Array {
    /// Reads a row as it is on the members.
    pub(super) fn find(&self, map: RowMap) -> RowImage {
        let blocks = map.len().div_ceil(BLOCK_BYTES as u32) as usize;
        let mut image =
            RowImage { map, bytes: vec![None; map.shards()], bad: vec![ShardSet::EMPTY; blocks] };
        for shard in 0..map.shards() {
            if self.holder(&map, shard).is_none() {
                continue;
            }
            let place = map.place(shard);
            let member_range = place.start..place.start + u64::from(map.len());
            let column = 0..map.len();
            let (bytes, bad) =
                self.inspect(&Transfer { shard, member: place.member, member_range, column });
            for bad in bad {
                let blocks = bad.column.start as usize / BLOCK..bad.column.end as usize / BLOCK;
                blocks.for_each(|block| image.bad[block] = image.bad[block].with(shard));
            }
            image.bytes[shard] = Some(bytes);
        }
        image
    }

    /// Writes the right content of one block of a column. The caller occupies the row. Under the
    /// bitmap policy the regions are marked first: another member may have a mark that this one
    /// lacks, and after a power cut the old checksum would make the new content a damaged block.
    pub(super) fn correct_block(&self, row: &RowImage, block: usize, blame: &Blame) -> Result<()> {
        let mended = match blame {
            Blame::Known(shard, bytes) => vec![(*shard, bytes.clone())],
            Blame::Unknown => row.content_from_data(block),
        };
        for (shard, bytes) in mended {
            let Some(member) = self.holder(&row.map, shard) else { continue };
            let start = row.map.place(shard).start + (block * BLOCK) as u64;
            let written = start..start + BLOCK_BYTES;
            let is_marked = match self.consistency() {
                Consistency::Bitmap => member.mark_dirty(std::slice::from_ref(&written)),
                Consistency::Log | Consistency::None => Ok(()),
            };
            if is_marked.is_err()
                || member.write(start, &bytes).is_err()
                || member.set_sums(start / BLOCK_BYTES, &[Sum::from_block(&bytes)]).is_err()
            {
                self.fail(row.map.member(shard))?;
            }
        }
        Ok(())
    }
}

impl RowImage {
    fn block(&self, shard: usize, block: usize) -> Option<&[u8]> {
        self.bytes[shard].as_deref().map(|bytes| &bytes[self.range(block)])
    }

    /// Replaces the bytes that were read for a block.
    pub fn put(&mut self, shard: usize, block: usize, bytes: &[u8]) {
        let range = self.range(block);
        if let Some(all) = &mut self.bytes[shard] {
            all[range].copy_from_slice(bytes);
            self.bad[block] = self.bad[block].minus(ShardSet::one(shard));
        }
    }

    /// The content of a block of `shard` by the `sound` shards: a copy of it, or what parity gives
    /// where all other shards are intact.
    pub fn rebuilt(&self, shard: usize, block: usize, sound: &[usize]) -> Option<Vec<u8>> {
        if self.map.mirrors() {
            return sound.iter().find_map(|it| self.block(*it, block)).map(<[u8]>::to_vec);
        }
        if sound.len() + 1 < self.map.shards() {
            return None;
        }
        let wrong = self.differences(self.range(block))?;
        let by = shard.saturating_sub(self.map.data());
        Some(sum_of(self.block(shard, block)?, wrong.get(by)?))
    }

    /// Blocks that do not hold the expected content.
    pub fn mismatches(&self) -> Vec<BlockMismatch> {
        if self.bad.iter().all(|bad| bad.is_empty()) && self.agrees() {
            return Vec::new();
        }
        let of_block = |block: usize| {
            let bad = self.bad[block].iter().map(move |shard| BlockMismatch {
                shard,
                block,
                blame: None,
            });
            let mut mismatches: Vec<BlockMismatch> = bad.collect();
            if mismatches.is_empty() {
                let blame = self.compare(block);
                mismatches.extend(blame.map(|(shard, blame)| BlockMismatch {
                    shard,
                    block,
                    blame: Some(blame),
                }));
            }
            mismatches
        };
        (0..self.bad.len()).flat_map(of_block).collect()
    }

    /// Whether data, parity and copies of all shards match over their whole length. In most rows
    /// all shards match, and one pass over the row is faster than one pass per block. If a data
    /// shard is absent, parity cannot be compared with anything.
    fn agrees(&self) -> bool {
        if self.map.mirrors() {
            let there: Vec<&[u8]> = self.bytes.iter().flatten().map(Vec::as_slice).collect();
            return there.windows(2).all(|pair| pair[0] == pair[1]);
        }
        let wrong = self.differences(0..self.map.len() as usize);
        wrong.is_none_or(|wrong| wrong.iter().flatten().fold(0, |all, byte| all | byte) == 0)
    }

    /// Compares one block of a column in which all checksums match. Returns the shard to blame for
    /// a mismatch, if there is one.
    pub fn compare(&self, block: usize) -> Option<(usize, Blame)> {
        let map = &self.map;
        if map.mirrors() {
            let mut copies = (0..map.shards()).filter_map(|it| Some((it, self.block(it, block)?)));
            let (_, first) = copies.next()?;
            return copies.find(|(_, copy)| *copy != first).map(|(it, _)| (it, Blame::Unknown));
        }
        let wrong = self.differences(self.range(block))?;
        let is_wrong = |n: &usize| wrong[*n].iter().any(|byte| *byte != 0);
        let wrongs: Vec<usize> = (0..wrong.len()).filter(is_wrong).collect();
        match wrongs[..] {
            [] => None,
            // A wrong data shard shows in both parities; one that differs alone is wrong itself.
            [n] if map.parity() == 2 => {
                let parity = map.data() + n;
                let bytes = self.block(parity, block)?;
                Some((parity, Blame::Known(parity, sum_of(bytes, &wrong[n]))))
            }
            [_] => Some((map.data(), Blame::Unknown)),
            _ => Some(self.culprit(block, &wrong)),
        }
    }

    /// The bytes of a block within a shard.
    fn range(&self, block: usize) -> Range<usize> {
        block * BLOCK..((block + 1) * BLOCK).min(self.map.len() as usize)
    }

    /// For each parity shard, the difference between its bytes and the parity of the data; `None`
    /// where a shard is absent.
    fn differences(&self, part: Range<usize>) -> Option<Vec<Vec<u8>>> {
        let map = &self.map;
        let bytes = |shard: usize| self.bytes[shard].as_deref().map(|bytes| &bytes[part.clone()]);
        let data = (0..map.data()).map(|shard| Some((map.coefficient(shard), bytes(shard)?)));
        let data: Vec<_> = data.collect::<Option<_>>()?;
        let parity = (0..map.parity()).map(|n| bytes(map.data() + n).map(<[u8]>::to_vec));
        let mut wrong: Vec<_> = parity.collect::<Option<_>>()?;
        let mut sums: Vec<_> = wrong.iter_mut().map(Vec::as_mut_slice).enumerate().collect();
        update(&data, &mut sums);
        Some(wrong)
    }

    /// The data shard that explains the error of both parities, if there is exactly one.
    fn culprit(&self, block: usize, wrong: &[Vec<u8>]) -> (usize, Blame) {
        // If only this shard is wrong, by `d`, then P is off by `d` and Q by the shard's
        // coefficient times `d`: taking the one from the other leaves zeros.
        for shard in 0..self.map.data() {
            let mut left = wrong[1].clone();
            update(&[(self.map.coefficient(shard), &wrong[0])], &mut [(1, &mut left)]);
            if let Some(bytes) = self.block(shard, block)
                && left.iter().all(|byte| *byte == 0)
            {
                return (shard, Blame::Known(shard, sum_of(bytes, &wrong[0])));
            }
        }
        (self.map.data(), Blame::Unknown)
    }

    /// The correct parity of a block, computed from its data; for a mirror, all copies equal to the
    /// first one.
    fn content_from_data(&self, block: usize) -> Vec<(usize, Vec<u8>)> {
        if self.map.mirrors() {
            let first = (0..self.map.shards()).find_map(|shard| self.block(shard, block));
            let first = first.unwrap_or_default().to_vec();
            return (0..self.map.shards()).map(|shard| (shard, first.clone())).collect();
        }
        let wrong = self.differences(self.range(block)).unwrap_or_default();
        let right = |(n, wrong): (usize, &Vec<u8>)| {
            let shard = self.map.data() + n;
            Some((shard, sum_of(self.block(shard, block)?, wrong)))
        };
        wrong.iter().enumerate().filter_map(right).collect()
    }
}

fn sum_of(bytes: &[u8], difference: &[u8]) -> Vec<u8> {
    bytes.iter().zip(difference).map(|(a, b)| a ^ b).collect()
}
