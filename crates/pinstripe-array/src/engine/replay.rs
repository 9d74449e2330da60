//! Recovery after a power cut: brings the checksum tables up to date with the log, and makes the
//! rows of the log's last two records consistent again.
//!
//! Any sector of the blocks in the newest record may be old or new. The same holds for the record
//! before it if no write of the newest record was begun: a batch begins only when everything before
//! it is durable. Everything older is in place, so older records only update checksums.
//!
//! A record that holds its data is written in place again (`redo`). Then the checksums of a column
//! decide its state: after the newest record, after the one before, or before both; a state may
//! have at most as many mismatching blocks as parity replaces. The blocks that do not match are
//! rebuilt, whatever damaged them (`take_state`). If the blocks of a column match no single state,
//! its parity is computed again from its present data. If a data shard that was not written is
//! absent, the logged part of parity replaces it: the part in the newest record whose writes were
//! begun. A shard that was being written and is absent now has the content that parity gives, if
//! parity and the other shards are all of one state; otherwise the shard is lost.
//!
//! A block that matches none of the checksums that it ever had is torn or damaged. The block counts
//! as valid if a record wrote it and neither a sync nor a later batch proves that write durable:
//! some of its sectors are old, some new, as a disk leaves them, and sectors that the write did not
//! change are intact. Any other block that matches no checksum was durable before it was damaged;
//! its content is lost. A record without pieces proves that everything before it is durable
//! ([`LoggedArray::mark_durable`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use pinstripe_kernel::parity::update;

use super::Array;
use super::log::Payloads;
use super::logged::LoggedArray;
use crate::format::BLOCK_BYTES;
use crate::format::log::RecordHeader;
use crate::format::sums::Sum;
use crate::geometry::RowMap;
use crate::member::ArrayMember;
use crate::set::ShardSet;
use pinstripe_base::error::Result;

mod state;

use state::{completed, is_begun};

const BLOCK: usize = BLOCK_BYTES as usize;

/// What one record says about one column of blocks of a row.
#[derive(Debug, Clone, Default)]
struct LoggedWrite {
    /// Shards that were written, and the checksums of their new content.
    written: Vec<(usize, Sum)>,
    /// P and Q of the unchanged data; `None` where it was not logged or is lost.
    unchanged: [Option<Vec<u8>>; 2],
    /// Logged data of shards: of those that were absent at that time, or of all that were written.
    logged: Vec<(usize, Option<Vec<u8>>)>,
    /// Every data shard was written.
    is_full: bool,
}

impl LoggedWrite {
    fn sum(&self, shard: usize) -> Option<Sum> {
        self.written.iter().find(|(written, _)| *written == shard).map(|(_, sum)| *sum)
    }

    /// Data shards that this record changed, present or absent.
    fn changed(&self, map: &RowMap) -> ShardSet {
        let written: ShardSet = self.written.iter().map(|(shard, _)| *shard).collect();
        written.or(self.logged.iter().map(|(shard, _)| *shard).collect()).and(map.data_shards())
    }

    /// Whether the record changed the content of a shard, or would have changed it if its member
    /// were present. A member that was absent has no checksum in the record, yet parity and copies
    /// follow the data.
    fn changes(&self, map: &RowMap, shard: usize) -> bool {
        let changed = self.changed(map);
        let follows = map.mirrors() || map.parity_shards().has(shard);
        self.sum(shard).is_some() || changed.has(shard) || (follows && !changed.is_empty())
    }

    /// Parity of the unchanged data: zeros where no data is unchanged; `None` where it was not
    /// logged or is lost.
    fn stayed(&self, n: usize) -> Option<Vec<u8>> {
        match self.is_full {
            true => Some(vec![0; BLOCK]),
            false => self.unchanged[n].clone(),
        }
    }

    /// The logged new bytes of a shard.
    fn bytes(&self, shard: usize) -> Option<&Vec<u8>> {
        let logged = self.logged.iter().find(|(logged, _)| *logged == shard);
        logged.and_then(|(_, bytes)| bytes.as_ref())
    }

    /// Whether all data that the record wrote is logged completely, and parity can be computed:
    /// from its logged part, or from all data if `is_complete`.
    fn is_redoable(&self, map: &RowMap, is_complete: bool) -> bool {
        let written = |shard: &usize| self.written.iter().any(|(it, _)| it == shard);
        let has_parity = |shard: usize| self.unchanged[shard - map.data()].is_some();
        self.changed(map).iter().all(|shard| self.bytes(shard).is_some())
            && (is_complete
                || self.is_full
                || map.parity_shards().iter().filter(written).all(has_parity))
    }
}

/// Writes by row and block of the column.
type Writes = BTreeMap<(u64, u64), LoggedWrite>;

/// Brings the tables up to date with the log, and makes the rows of its last two records
/// consistent. Returns the number of records in the log.
///
/// # Errors
/// Fails with the errors of the members.
pub(super) fn replay(logged: &mut LoggedArray) -> Result<usize> {
    let LoggedArray { array, log, .. } = &mut *logged;
    let members = array.members();
    let mut replay = ColumnReplay { array, is_newest_begun: false };
    let mut last: [Option<RecordHeader>; 2] = [None, None];
    let mut records = 0;
    while let Some(head) = log.read_next(&members) {
        if head.pieces.is_empty() {
            // All before it is in place.
            let pieces = last.iter().flatten().flat_map(|done| &done.pieces);
            pieces.into_iter().try_for_each(|piece| array.install_checksums(piece))?;
            last = [None, None];
            continue;
        }
        records += 1;
        // The last two records wait for `finish`: only of older ones is it certain that they
        // are in place, so that their checksums can be installed without looking.
        let [older, newest] = last;
        if let Some(done) = older {
            done.pieces.iter().try_for_each(|piece| array.install_checksums(piece))?;
        }
        last = [newest, Some(head)];
    }
    let is_whole = last[1].as_ref().is_none_or(|head| log.is_whole(head, &members));
    let [before, newest] = last.map(|head| head.map(|head| replay.writes(&head, &members)));
    // A record that is incomplete on some member was never durable, so its writes were not begun;
    // or one member's part of it is damaged, and the other parts have the data.
    let newest = newest.filter(|writes| is_whole || replay.are_redoable(writes));
    let (before, newest) = (before.unwrap_or_default(), newest.unwrap_or_default());
    replay.is_newest_begun = replay.is_any_begun(&before, &newest);
    let all: std::collections::BTreeSet<_> = before.keys().chain(newest.keys()).collect();
    for key in all {
        replay.finish(*key, before.get(key), newest.get(key))?;
        replay.copy_to_replacements(*key);
    }
    logged.checkpoint()?;
    Ok(records)
}

/// The columns of an array, and the state of replay after the log's last two records.
struct ColumnReplay<'a> {
    array: &'a Array,
    /// Something of the newest record is in place, so everything before that record was durable.
    is_newest_begun: bool,
}

impl ColumnReplay<'_> {
    /// Whether all data of a record is logged and complete.
    fn are_redoable(&self, writes: &Writes) -> bool {
        let is_complete = self.array.absent().is_empty();
        let map = |row: u64| self.array.shape().map(row);
        writes.iter().all(|((row, _), write)| write.is_redoable(&map(*row), is_complete))
    }

    /// What a record says about each column of blocks.
    fn writes(&self, head: &RecordHeader, members: &[Option<Arc<ArrayMember>>]) -> Writes {
        let mut payloads = Payloads::read(head, members);
        let mut writes = Writes::new();
        for piece in &head.pieces {
            let map = self.array.shape().map(piece.row);
            let (len, blocks) = (piece.column.len(), piece.column.len() / BLOCK);
            let written = ShardSet::from_bits(piece.written);
            let away = ShardSet::from_bits(piece.has.data);
            let mut unchanged = [None, None];
            let mut data: BTreeMap<usize, Option<Vec<u8>>> =
                away.iter().map(|shard| (shard, None)).collect();
            for (n, has) in [piece.has.p, piece.has.q].into_iter().enumerate() {
                let parity = map.data() + n;
                if !written.has(parity) || !map.parity_shards().has(parity) {
                    continue;
                }
                let slot = map.member(parity);
                unchanged[n] = if has { payloads.take(slot, len) } else { None };
                for kept in data.values_mut() {
                    *kept = payloads.take(slot, len).or(kept.take());
                }
            }
            if piece.has.own {
                for shard in written.and(map.data_shards()).iter() {
                    let own = payloads.take(map.member(shard), len);
                    let kept = data.entry(shard).or_default();
                    *kept = own.or(kept.take());
                }
            }
            for block in 0..blocks {
                let part = |bytes: &Option<Vec<u8>>| {
                    bytes.as_ref().map(|bytes| bytes[block * BLOCK..(block + 1) * BLOCK].to_vec())
                };
                let sums = written.iter().enumerate();
                let write = LoggedWrite {
                    written: sums.map(|(n, it)| (it, piece.sums[n * blocks + block])).collect(),
                    unchanged: [part(&unchanged[0]), part(&unchanged[1])],
                    logged: data.iter().map(|(shard, bytes)| (*shard, part(bytes))).collect(),
                    is_full: !piece.has.p && !piece.has.q,
                };
                let column = u64::from(piece.column.start) / BLOCK_BYTES + block as u64;
                writes.insert((piece.row, column), write);
            }
        }
        writes
    }

    /// Makes one column of blocks consistent after the last two records.
    fn finish(
        &self,
        (row, column): (u64, u64),
        before: Option<&LoggedWrite>,
        newest: Option<&LoggedWrite>,
    ) -> Result<()> {
        let map = self.array.shape().map(row);
        let mut on_disk: Vec<Option<Vec<u8>>> =
            (0..map.shards()).map(|shard| self.on_disk(&map, shard, column)).collect();
        let completed = [before, newest].map(|it| Some(completed(&map, it?, &on_disk)));
        let [before, newest] = [completed[0].as_ref(), completed[1].as_ref()];
        self.redo(&map, column, [before, newest], &mut on_disk)?;
        let records: Vec<&LoggedWrite> = [newest, before].into_iter().flatten().collect();
        let known = self.with_stayed(&map, column, &records, &on_disk);
        for newer in 0..=records.len() {
            if self.take_state(&map, column, &records, newer, &known)? {
                return Ok(());
            }
        }
        // No state explains the column. First, since it may turn torn blocks into zeros, and all
        // below is computed from `on_disk`.
        let strangers = self.strangers(&map, column, [before, newest], &on_disk);
        let torn = self.torn(strangers, [before, newest]);
        self.clear_torn(&map, column, before, newest, &mut on_disk)?;
        let Some(write) = newest.filter(|it| is_begun(it, before, &on_disk)).or(before).or(newest)
        else {
            return Ok(());
        };
        let written: ShardSet = [before, newest]
            .into_iter()
            .flatten()
            .flat_map(|write| write.written.iter().map(|(shard, _)| *shard))
            .collect();
        // No parity to compute: whichever state the first copy is in, the others follow it.
        if map.mirrors() {
            let first = [written.minus(strangers), written.and(torn)];
            return self.same_copies(&map, column, written, first, &on_disk);
        }
        // With a changed shard gone since, its new content is unknown, and so is the parity over
        // it.
        let is_away = |shard: usize| on_disk[shard].is_none();
        if write.changed(&map).iter().any(|shard| is_away(shard) && write.sum(shard).is_some()) {
            return self.leave(&map, column, &[newest, before], written, &on_disk);
        }
        self.follow(&map, column, write, written, strangers.minus(torn), &on_disk)
    }

    /// Parity of a column: computed from all data if it is present and sound, otherwise from what
    /// was logged.
    pub(super) fn parity(
        &self,
        map: &RowMap,
        column: u64,
        n: usize,
        write: &LoggedWrite,
        on_disk: &[Option<Vec<u8>>],
    ) -> Option<Vec<u8>> {
        let changed = write.changed(map);
        let stayed = map.data_shards().minus(changed);
        let sound = |shard: usize| self.sound(map, shard, column, on_disk);
        let from_data = || {
            let mut sum = vec![0; BLOCK];
            for shard in stayed.iter() {
                update(&[(map.coefficient(shard), &sound(shard)?)], &mut [(n, &mut sum)]);
            }
            Some(sum)
        };
        let mut parity = from_data().or_else(|| write.stayed(n))?;
        for shard in changed.iter() {
            let bytes = match &on_disk[shard] {
                Some(bytes) => bytes,
                None => write.bytes(shard)?,
            };
            update(&[(map.coefficient(shard), bytes)], &mut [(n, &mut parity)]);
        }
        Some(parity)
    }

    /// Leaves a column as it is on disk, because a shard that was being written is absent. Nothing
    /// is lost if all present shards are of one state: after the newest record, after the one
    /// before, or before both.
    fn leave(
        &self,
        map: &RowMap,
        column: u64,
        records: &[Option<&LoggedWrite>],
        written: ShardSet,
        on_disk: &[Option<Vec<u8>>],
    ) -> Result<()> {
        let there = |shard: &usize| on_disk[*shard].is_some();
        let is_as_after = |records: &[Option<&LoggedWrite>]| {
            written.iter().filter(there).all(|shard| {
                // Newest first; a shard that none of these records wrote is expected as the table
                // has it.
                let recorded = records.iter().flatten().find_map(|record| record.sum(shard));
                let bytes = on_disk[shard].as_ref().expect("it is there");
                recorded.or_else(|| self.sum(map, shard, column)).is_some_and(|sum| {
                    match sum.is_written() {
                        true => sum.suits(bytes),
                        false => bytes.iter().all(|byte| *byte == 0),
                    }
                })
            })
        };
        let is_consistent = (0..=records.len()).any(|newer| is_as_after(&records[newer..]));
        for shard in written.iter().filter(there) {
            // Each step leaves out one more record: `[newest, before]`, `[before]`, `[]`. One state
            // has to fit every shard, or parity is of another state than the data.
            let sum = Sum::from_block(on_disk[shard].as_ref().expect("it is there"));
            let is_sound = is_consistent || !map.parity_shards().has(shard);
            // Mixed parity would make up the absent shard. Data stay readable: they are what was
            // written.
            self.set(map, shard, column, if is_sound { sum } else { Sum::LOST })?;
        }
        Ok(())
    }

    /// Copies a column from members to their replacements.
    fn copy_to_replacements(&self, (row, column): (u64, u64)) {
        let map = self.array.shape().map(row);
        for shard in 0..map.shards() {
            let offset = map.place(shard).start + column * BLOCK_BYTES;
            let Some(member) = self.array.holder(&map, shard) else { continue };
            member.replacement().with(|replacement| match self.on_disk(&map, shard, column) {
                Some(bytes) if replacement.is_filled(offset + BLOCK_BYTES) => {
                    replacement.write(offset, &bytes)
                }
                _ => Ok(()),
            });
        }
    }

    /// Makes all copies equal to the first valid copy. The sets are tried in order, and the first
    /// copy found is used. If no set has a valid copy, the block is lost.
    fn same_copies(
        &self,
        map: &RowMap,
        column: u64,
        written: ShardSet,
        may_be_taken: [ShardSet; 2],
        on_disk: &[Option<Vec<u8>>],
    ) -> Result<()> {
        let mut copies = may_be_taken.iter().flat_map(|set| set.iter());
        let Some(first) = copies.find_map(|shard| on_disk[shard].as_ref()) else {
            return written.iter().try_for_each(|shard| self.set(map, shard, column, Sum::LOST));
        };
        for shard in written.iter() {
            let place = map.place(shard);
            let Some(member) = self.array.holder(map, shard) else { continue };
            if on_disk[shard].as_ref() != Some(first) {
                member.write(place.start + column * BLOCK_BYTES, first)?;
            }
            self.set(map, shard, column, Sum::from_block(first))?;
        }
        Ok(())
    }

    /// A member's bytes of a block, even if they fail the checksum; `None` if the member is absent
    /// or the block is unreadable.
    fn on_disk(&self, map: &RowMap, shard: usize, column: u64) -> Option<Vec<u8>> {
        let place = map.place(shard);
        let mut bytes = vec![0; BLOCK];
        let member = self.array.holder(map, shard)?;
        member.read(place.start + column * BLOCK_BYTES, &mut bytes).ok()?;
        Some(bytes)
    }

    fn sum(&self, map: &RowMap, shard: usize, column: u64) -> Option<Sum> {
        let place = map.place(shard);
        let block = place.start / BLOCK_BYTES + column;
        let sums = self.array.holder(map, shard)?.sums(block..block + 1).ok()?;
        sums.first().copied()
    }

    fn set(&self, map: &RowMap, shard: usize, column: u64, sum: Sum) -> Result<()> {
        let block = map.place(shard).start / BLOCK_BYTES + column;
        let set = |member: &ArrayMember| member.set_sums(block, &[sum]);
        match self.array.holder(map, shard) {
            Some(_) => self.array.with_sums(map.member(shard), &(block..block + 1), set),
            None => Ok(()),
        }
    }
}
