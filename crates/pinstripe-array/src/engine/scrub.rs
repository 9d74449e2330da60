//! Scrubbing: everything is read and compared, blocks with their checksums, parity with data,
//! copies with each other.
//!
//! A block that fails its checksum is the bad one. Where all checksums match and parity does not
//! fit the data, the two parities of level 6 name the bad shard if there is only one. Otherwise the
//! bad shard is unknown; repair then makes parity follow the data, and copies follow the first one.

use std::ops::Range;
use std::sync::Arc;

use pinstripe_kernel::parity::update;

use super::Array;
use super::heal::Healed;
use super::logged::LoggedArray;
use super::status::WorkKind;
use super::work::{LongWork, Mismatch, PASSED_MAX, Step, WorkReport};
use crate::executor::{TaskKind, each_of};
use crate::format::BLOCK_BYTES;
use crate::format::sums::Sum;
use crate::format::superblock::{Superblock, Work};
use crate::geometry::RowMap;
use crate::plan::Transfer;
use crate::set::ShardSet;
use pinstripe_base::error::{Error, Kind, Result};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Bytes of each member between two notes of progress in the superblock.
const RECORD_BYTES: u64 = 256 << 20;
/// Bytes of each member that are examined side by side.
const GROUP_BYTES: u64 = 4 << 20;
/// Mismatches that a report names.
const NAMED_MAX: usize = 1000;

/// A scrub in progress.
#[derive(Debug)]
pub(super) struct Scrub {
    repair: bool,
    pub done_rows: u64,
    recorded_rows: u64,
    pub report: WorkReport,
}

impl Scrub {
    fn new(repair: bool, done_rows: u64) -> Self {
        let kind = if repair { WorkKind::Repair } else { WorkKind::Check };
        Scrub { repair, done_rows, recorded_rows: done_rows, report: WorkReport::new(kind, None) }
    }

    /// The scrub that the superblock says was going on.
    pub fn resumed(superblock: &Superblock) -> Option<Self> {
        match superblock.work {
            Work::Scrub { repair, done_rows } => Some(Scrub::new(repair, done_rows)),
            _ => None,
        }
    }

    fn work(&self) -> Work {
        Work::Scrub { repair: self.repair, done_rows: self.done_rows }
    }
}

/// A row as its members have it.
pub(super) struct RowImage {
    map: RowMap,
    /// By shard; `None` where its member is absent.
    bytes: Vec<Option<Vec<u8>>>,
    /// Shards that are unreadable or fail their checksum, by block of the column.
    pub bad: Vec<ShardSet>,
}

/// The shard that is to blame for a mismatch.
pub(super) enum Blame {
    /// This one, and the bytes that it should have.
    Known(usize, Vec<u8>),
    /// More than one shard can be to blame.
    Unknown,
}

/// A block that does not hold what it should.
struct BlockMismatch {
    shard: usize,
    block: usize,
    /// `None` if it fails its own checksum.
    blame: Option<Blame>,
}

impl LongWork {
    /// Begins to read and compare everything, and to repair it if `repair` is set.
    ///
    /// # Errors
    /// [`Kind::Busy`] when that is being done already; [`Kind::TooManyLosses`] as for all that
    /// writes.
    pub fn begin_scrub(&mut self, array: &Array, repair: bool) -> Result<()> {
        if self.scrub.is_some() {
            return Err(Error::new(Kind::Busy, "the array is being scrubbed already")
                .advice("wait until that is done, or cancel it"));
        }
        if self.grow.is_some() {
            return Err(
                Error::new(Kind::Busy, "the array is growing").advice("wait until that is done")
            );
        }
        let scrub = Scrub::new(repair, 0);
        if self.fill.is_none() {
            let work = scrub.work();
            array.update_superblocks(|superblock| superblock.work = work)?;
        }
        array.live.lock().mismatches = 0;
        self.scrub = Some(scrub);
        self.publish(array);
        Ok(())
    }
}

impl Scrub {
    /// Compares a slice of rows. Returns the rest of the work, if there is more.
    pub fn step(
        mut self,
        logged: &mut LoggedArray,
        most_bytes: u64,
    ) -> Result<(Step, Option<Self>)> {
        let array = Arc::clone(&logged.array);
        let chunk_bytes = u64::from(array.geometry().chunk_bytes());
        let rows = array.geometry().rows();
        let (mut bytes, mut passed) = (0, 0);
        while self.done_rows < rows && bytes < most_bytes && passed < PASSED_MAX {
            let group_rows = (most_bytes - bytes).min(GROUP_BYTES).div_ceil(chunk_bytes) as usize;
            let mut group = Vec::new();
            while self.done_rows < rows && group.len() < group_rows && passed < PASSED_MAX {
                let map = array.shape().map(self.done_rows);
                let has_any = array.any_holder(&map, |member, range| {
                    member.any_region(range, |region| region.is_written())
                });
                match has_any {
                    true => group.push(map),
                    false => passed += 1,
                }
                self.done_rows += 1;
            }
            bytes += group.iter().map(|map| u64::from(map.len())).sum::<u64>();
            for (row, mismatches) in compare_rows(logged, &group) {
                self.report_and_repair(logged, &row, mismatches)?;
            }
        }
        self.report.bytes += bytes;
        if self.done_rows == array.geometry().rows() {
            array.update_superblocks(|superblock| superblock.work = Work::None)?;
            let done = WorkReport { is_finished: true, ..self.report };
            return Ok((Step::Done(done), None));
        }
        if (self.done_rows - self.recorded_rows) * chunk_bytes >= RECORD_BYTES {
            self.recorded_rows = self.done_rows;
            let work = self.work();
            array.update_superblocks(|superblock| superblock.work = work)?;
        }
        Ok((Step::Moved { bytes }, Some(self)))
    }

    /// Records the mismatches of a row, and repairs them if `repair` is set.
    fn report_and_repair(
        &mut self,
        logged: &mut LoggedArray,
        row: &RowImage,
        mismatches: Vec<BlockMismatch>,
    ) -> Result<()> {
        let array = Arc::clone(&logged.array);
        if self.repair {
            // A record in the log could be replayed over what is written below.
            logged.checkpoint()?;
        }
        for BlockMismatch { shard, block, blame } in mismatches {
            let is_mended = self.repair && array.mend(row, shard, block, blame.as_ref())?;
            let is_known = !matches!(blame, Some(Blame::Unknown));
            self.note(&array, row, (shard, block), is_known, is_mended);
        }
        match self.repair {
            true => logged.checkpoint(),
            false => Ok(()),
        }
    }
}

/// Reads rows, side by side where that pays, and returns those in which something is wrong.
fn compare_rows(logged: &LoggedArray, rows: &[RowMap]) -> Vec<(RowImage, Vec<BlockMismatch>)> {
    // No row is held for this: rows change only by the flusher, and the flusher is busy here.
    let look = |number: usize| {
        let row = logged.array.find(rows[number]);
        let mismatches = row.mismatches();
        (!mismatches.is_empty()).then_some((row, mismatches))
    };
    each_of(&*logged.executor, TaskKind::Scrub, rows.len(), look).into_iter().flatten().collect()
}

impl Scrub {
    fn note(
        &mut self,
        array: &Array,
        row: &RowImage,
        (shard, block): (usize, usize),
        is_known: bool,
        is_mended: bool,
    ) {
        let place = row.map.place(shard);
        let path = array.members.path(place.member);
        let mut live = array.live.lock();
        live.mismatches += 1;
        if self.report.mismatches.len() < NAMED_MAX {
            self.report.mismatches.push(Mismatch {
                slot: is_known.then_some(place.member),
                path: path.filter(|_| is_known),
                member_offset: place.start + (block * BLOCK) as u64,
                is_mended,
            });
        }
        self.report.lost_blocks += u64::from(self.repair && !is_mended);
    }
}

impl Array {
    /// Reads a row as it stands.
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

    /// Repairs a block. Returns whether it holds what it should now.
    fn mend(
        &self,
        row: &RowImage,
        shard: usize,
        block: usize,
        blame: Option<&Blame>,
    ) -> Result<bool> {
        let Some(blame) = blame else {
            let place = row.map.place(shard);
            let number = place.start / BLOCK_BYTES + block as u64;
            return Ok(self.heal_block(place.member, number)? == Healed::Yes);
        };
        // `heal_block` occupies the row itself; here readers are to be kept off while it is
        // written.
        let _only = self.occupy(row.map.index());
        self.correct_block(row, block, blame).map(|()| true)
    }

    /// Writes the right content of one block of a column. The caller occupies the row.
    pub(super) fn correct_block(&self, row: &RowImage, block: usize, blame: &Blame) -> Result<()> {
        let mended = match blame {
            Blame::Known(shard, bytes) => vec![(*shard, bytes.clone())],
            Blame::Unknown => row.content_from_data(block),
        };
        for (shard, bytes) in mended {
            let Some(member) = self.holder(&row.map, shard) else { continue };
            let start = row.map.place(shard).start + (block * BLOCK) as u64;
            if member.write(start, &bytes).is_err()
                || member.set_sums(start / BLOCK_BYTES, &[Sum::of(&bytes)]).is_err()
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

    /// Blocks that are not what they should be.
    fn mismatches(&self) -> Vec<BlockMismatch> {
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

    /// Whether all shards fit each other over their whole length. Most rows do, and one pass over
    /// the row is faster than one per block. With a data shard absent there is nothing to compare
    /// parity with.
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
    pub(super) fn compare(&self, block: usize) -> Option<(usize, Blame)> {
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

    /// By parity, the difference between its bytes and what the data give; `None` where a shard is
    /// absent.
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

    /// The data shard that explains the error of both parities, if one does.
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

    /// The right parity of a block by its data, or all copies as the first one is.
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
