//! The state of a column of blocks after a power cut, determined from its checksums.
//!
//! State n of a column is its content after n of its last records. In each state, every shard has a
//! checksum: that of the newest of these records that wrote the shard, otherwise that of the table.
//! Sectors that a power cut left half written and bytes that a disk damaged look alike, and are
//! rebuilt in the same way.

use super::{BLOCK, ColumnReplay, LoggedWrite, Writes};
use crate::compute::rebuilt;
use crate::format::BLOCK_BYTES;
use crate::format::sums::Sum;
use crate::geometry::RowMap;
use crate::member::ArrayMember;
use crate::set::ShardSet;
use pinstripe_base::error::Result;
use pinstripe_kernel::parity::{update, xor_into};

/// A shard's block in a state.
struct Expected {
    /// The checksum; `None` if it is unknown because the member with the table is absent.
    sum: Option<Sum>,
    /// Bytes that match the checksum; `None` where they are damaged or absent.
    bytes: Option<Vec<u8>>,
}

impl ColumnReplay<'_> {
    /// Writes the logged data of the last two records in place, for each shard the newest.
    pub(super) fn redo(
        &self,
        map: &RowMap,
        column: u64,
        [before, newest]: [Option<&LoggedWrite>; 2],
        on_disk: &mut [Option<Vec<u8>>],
    ) -> Result<()> {
        let is_rewritten = |shard: usize| newest.is_some_and(|it| it.sum(shard).is_some());
        if let Some(before) = before {
            self.redo_data(map, column, before, |shard| !is_rewritten(shard), on_disk)?;
        }
        // If the newest record was durable, all before it was in place. A shard that is not may be
        // damaged since: then parity of the newest replaces it, if no other shard is missing.
        let is_complete = on_disk.iter().all(Option::is_some);
        let is_begun = is_complete || before.is_none_or(|it| is_in_place(it, newest, on_disk));
        let Some(last) = newest.filter(|_| is_begun).or(before) else { return Ok(()) };
        self.redo_data(map, column, last, |_| true, on_disk)?;
        self.redo_parity(map, column, last, on_disk)
    }

    fn redo_data(
        &self,
        map: &RowMap,
        column: u64,
        write: &LoggedWrite,
        is_meant: impl Fn(usize) -> bool,
        on_disk: &mut [Option<Vec<u8>>],
    ) -> Result<()> {
        for shard in map.data_shards().iter().filter(|shard| is_meant(*shard)) {
            let Some(bytes) = write.bytes(shard).filter(|_| write.sum(shard).is_some()) else {
                continue;
            };
            self.redo_block(map, column, shard, bytes, on_disk)?;
        }
        Ok(())
    }

    /// The parity that a record leads to, if the record holds everything needed to compute it.
    fn redo_parity(
        &self,
        map: &RowMap,
        column: u64,
        write: &LoggedWrite,
        on_disk: &mut [Option<Vec<u8>>],
    ) -> Result<()> {
        for shard in map.parity_shards().iter() {
            let n = shard - map.data();
            let (Some(mut parity), Some(sum)) = (write.stayed(n), write.sum(shard)) else {
                continue;
            };
            let changed = write.changed(map);
            let bytes =
                changed.iter().map(|data| Some((map.coefficient(data), write.bytes(data)?)));
            let Some(bytes) = bytes.collect::<Option<Vec<_>>>() else { continue };
            let sources: Vec<_> = bytes.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
            update(&sources, &mut [(n, &mut parity)]);
            if sum.suits(&parity) {
                self.redo_block(map, column, shard, &parity, on_disk)?;
            }
        }
        Ok(())
    }

    fn redo_block(
        &self,
        map: &RowMap,
        column: u64,
        shard: usize,
        bytes: &Vec<u8>,
        on_disk: &mut [Option<Vec<u8>>],
    ) -> Result<()> {
        let Some(member) = self.array.holder(map, shard) else { return Ok(()) };
        // A block that cannot be read may be readable once it was written.
        if on_disk[shard].as_ref() != Some(bytes) {
            self.put(map, shard, column, &member, bytes)?;
            on_disk[shard] = Some(bytes.clone());
        }
        Ok(())
    }

    /// Writes a block in place, or marks the member as failed if it cannot be written.
    fn put(
        &self,
        map: &RowMap,
        shard: usize,
        column: u64,
        member: &ArrayMember,
        bytes: &[u8],
    ) -> Result<()> {
        match member.write(map.place(shard).start + column * BLOCK_BYTES, bytes) {
            Ok(()) => Ok(()),
            Err(_) => self.array.fail(map.member(shard)),
        }
    }

    /// The column as the members have it, with unchanged absent data computed from the logged part
    /// of parity, in which changed data counts as zeros.
    pub(super) fn with_stayed(
        &self,
        map: &RowMap,
        column: u64,
        records: &[&LoggedWrite],
        on_disk: &[Option<Vec<u8>>],
    ) -> Vec<Option<Vec<u8>>> {
        let mut known = on_disk.to_vec();
        let changed = records.iter().fold(ShardSet::EMPTY, |all, it| all.or(it.changed(map)));
        // A block that a member has and cannot read is rebuilt and written again like others.
        let is_absent = |shard: &usize| self.array.holder(map, *shard).is_none();
        let absent: ShardSet = map.data_shards().minus(changed).iter().filter(is_absent).collect();
        if map.mirrors() || absent.is_empty() {
            return known;
        }
        for write in records {
            let part = |shard: usize| match shard.checked_sub(map.data()) {
                Some(n) => write.stayed(n),
                None if write.changed(map).has(shard) => Some(vec![0; BLOCK]),
                // What it is after the other record is not what it was in this one.
                None if changed.has(shard) => None,
                None => self.sound(map, shard, column, on_disk),
            };
            let parts: Vec<_> = (0..map.shards()).map(part).collect();
            for shard in absent.iter() {
                known[shard] = rebuilt(map, &parts, shard, BLOCK).ok().or(known[shard].take());
            }
        }
        known
    }

    /// The bytes of a shard's block, if they match the checksum table.
    pub(super) fn sound(
        &self,
        map: &RowMap,
        shard: usize,
        column: u64,
        on_disk: &[Option<Vec<u8>>],
    ) -> Option<Vec<u8>> {
        let bytes = on_disk[shard].as_ref()?;
        let sum = self.sum(map, shard, column)?;
        match sum.is_written() {
            true => sum.suits(bytes).then(|| bytes.clone()),
            false => Some(vec![0; BLOCK]),
        }
    }

    /// Makes the column what it is after `records[newer..]`, newest first, if the blocks that
    /// contradict that state are few enough to be rebuilt from the others. Returns whether the
    /// column is in that state now.
    pub(super) fn take_state(
        &self,
        map: &RowMap,
        column: u64,
        records: &[&LoggedWrite],
        newer: usize,
        on_disk: &[Option<Vec<u8>>],
    ) -> Result<bool> {
        let expected =
            |shard: usize| self.expected(map, column, shard, records.split_at(newer), on_disk);
        let Some(mut state) = (0..map.shards()).map(expected).collect::<Option<Vec<_>>>() else {
            return Ok(false);
        };
        if !replace_damaged(map, &mut state) {
            return Ok(false);
        }
        let written: ShardSet =
            records.iter().flat_map(|it| it.written.iter().map(|(shard, _)| *shard)).collect();
        for (shard, block) in state.iter().enumerate() {
            let (Some(sum), Some(member)) = (block.sum, self.array.holder(map, shard)) else {
                continue;
            };
            let bytes = block.bytes.as_ref().expect("every block was replaced");
            if sum.is_written() && on_disk[shard].as_ref() != Some(bytes) {
                self.put(map, shard, column, &member, bytes)?;
            }
            if written.has(shard) {
                self.set(map, shard, column, sum)?;
            }
        }
        Ok(true)
    }

    /// A shard's block in a state; `None` if no bytes can match that state.
    fn expected(
        &self,
        map: &RowMap,
        column: u64,
        shard: usize,
        (later, records): (&[&LoggedWrite], &[&LoggedWrite]),
        on_disk: &[Option<Vec<u8>>],
    ) -> Option<Expected> {
        let is_written_later = later.iter().any(|write| write.sum(shard).is_some());
        let write = records.iter().find(|it| it.changes(map, shard));
        let recorded = write.and_then(|write| write.sum(shard));
        let sum = recorded.or_else(|| match write {
            // Changed while its member was absent: an older checksum is of an older state.
            Some(_) => None,
            None => self.sum(map, shard, column),
        });
        if sum == Some(Sum::LOST) {
            return None;
        }
        let bytes = match (sum, write) {
            (None, Some(write)) => write.bytes(shard).cloned(),
            // Without its table only what the log gives is to be believed.
            (None, None) if self.array.holder(map, shard).is_some() => None,
            (None, None) => on_disk[shard].clone(),
            // Any content is valid for this sum, so it proves nothing: see `clear_torn`.
            (Some(Sum::UNWRITTEN), _) if is_written_later => return None,
            (Some(Sum::UNWRITTEN), _) => Some(vec![0; BLOCK]),
            (Some(sum), _) => {
                let there = [on_disk[shard].as_ref(), write.and_then(|write| write.bytes(shard))];
                there.into_iter().flatten().find(|bytes| sum.suits(bytes)).cloned()
            }
        };
        Some(Expected { sum, bytes })
    }

    /// Used when no state explains the column: makes the checksums match the data as it is on disk,
    /// and computes parity from that data.
    pub(super) fn follow(
        &self,
        map: &RowMap,
        column: u64,
        write: &LoggedWrite,
        written: ShardSet,
        damaged: ShardSet,
        on_disk: &[Option<Vec<u8>>],
    ) -> Result<()> {
        // Where a shard is absent, its parity is needed, so it is computed from the blocks as they
        // stand. Else a damaged block is lost.
        let is_degraded = on_disk.iter().any(Option::is_none);
        let lost = if is_degraded { ShardSet::EMPTY } else { damaged };
        // The checksum follows the bytes. Data come before parity, because `parity` trusts a shard
        // that this record did not change only if it matches the table, and the record before may
        // have changed it.
        for shard in written.and(map.data_shards()).iter() {
            if let Some(bytes) = &on_disk[shard] {
                let sum = if lost.has(shard) { Sum::LOST } else { Sum::from_block(bytes) };
                self.set(map, shard, column, sum)?;
            }
        }
        for shard in written.and(map.parity_shards()).iter() {
            let n = shard - map.data();
            let parity = self.parity(map, column, n, write, on_disk);
            let parity = parity.filter(|_| lost.is_empty());
            let place = map.place(shard);
            let Some(member) = self.array.holder(map, shard) else { continue };
            // Without a base for it, parity must not be used to rebuild anything.
            let Some(parity) = parity else {
                self.set(map, shard, column, Sum::LOST)?;
                continue;
            };
            if on_disk[shard].as_ref() != Some(&parity) {
                member.write(place.start + column * BLOCK_BYTES, &parity)?;
            }
            self.set(map, shard, column, Sum::from_block(&parity))?;
        }
        Ok(())
    }

    /// Zeroes blocks that one of these records wrote for the first time and that do not match its
    /// checksum: they may contain bytes that were on the device before the array was created, which
    /// no reader may see. A block that both records wrote contains only bytes of these two, since
    /// the earlier write was durable when the newest began.
    pub(super) fn clear_torn(
        &self,
        map: &RowMap,
        column: u64,
        before: Option<&LoggedWrite>,
        newest: Option<&LoggedWrite>,
        on_disk: &mut [Option<Vec<u8>>],
    ) -> Result<()> {
        for (shard, on_disk) in on_disk.iter_mut().enumerate() {
            let recorded = [before, newest].map(|write| write.and_then(|write| write.sum(shard)));
            let ([None, Some(sum)] | [Some(sum), None]) = recorded else { continue };
            let Some(bytes) = on_disk else { continue };
            let is_fresh = self.sum(map, shard, column).is_some_and(|it| !it.is_written());
            if is_fresh && !sum.suits(bytes) {
                bytes.fill(0);
                if let Some(member) = self.array.holder(map, shard) {
                    let at = map.place(shard).start + column * BLOCK_BYTES;
                    member.write(at, bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Whether any block has the content that the newest record gives it and that it did not have
    /// before.
    pub(super) fn is_any_begun(&self, before: &Writes, newest: &Writes) -> bool {
        newest.iter().any(|(key, write)| {
            let ((row, column), map) = (*key, self.array.shape().map(key.0));
            let earlier = before.get(&(row, column));
            write.written.iter().any(|(shard, sum)| {
                earlier.and_then(|it| it.sum(*shard)) != Some(*sum)
                    && self.sum(&map, *shard, column) != Some(*sum)
                    && self.on_disk(&map, *shard, column).is_some_and(|it| sum.suits(&it))
            })
        })
    }

    /// The blocks that match no checksum and whose last write is not proven durable by a sync or by
    /// a later batch.
    pub(super) fn torn(
        &self,
        strangers: ShardSet,
        [before, newest]: [Option<&LoggedWrite>; 2],
    ) -> ShardSet {
        let wrote = |write: Option<&LoggedWrite>, shard: usize| {
            write.is_some_and(|write| write.sum(shard).is_some())
        };
        let may_be_torn =
            |shard: &usize| wrote(newest, *shard) || !self.is_newest_begun && wrote(before, *shard);
        strangers.iter().filter(may_be_torn).collect()
    }

    /// Data shards whose blocks match none of the checksums that they ever had.
    pub(super) fn strangers(
        &self,
        map: &RowMap,
        column: u64,
        records: [Option<&LoggedWrite>; 2],
        on_disk: &[Option<Vec<u8>>],
    ) -> ShardSet {
        let is_stranger = |shard: &usize| {
            let Some(bytes) = &on_disk[*shard] else { return false };
            let recorded = records.iter().flatten().filter_map(|write| write.sum(*shard));
            let recorded: Vec<Sum> = recorded.collect();
            let table = self.sum(map, *shard, column);
            // Content from before the first write is not foreign: it reads as zeros.
            let is_fresh = table == Some(Sum::UNWRITTEN) && recorded.len() < 2;
            !is_fresh && !recorded.into_iter().chain(table).any(|sum| sum.suits(bytes))
        };
        map.data_shards().iter().filter(is_stranger).collect()
    }
}

/// A record, completed with the bytes of written shards whose members are absent now: the
/// difference between parity in place and its logged part for the unchanged data is the parity of
/// the written data.
pub(super) fn completed(
    map: &RowMap,
    write: &LoggedWrite,
    on_disk: &[Option<Vec<u8>>],
) -> LoggedWrite {
    let mut write = write.clone();
    if map.mirrors() {
        return write;
    }
    let (changed, parity) = (write.changed(map), map.parity_shards());
    let of_written = |shard: usize| -> Option<Vec<u8>> {
        let in_place =
            on_disk[shard].as_ref().filter(|it| write.sum(shard).is_some_and(|sum| sum.suits(it)));
        if !parity.has(shard) {
            let stays = (!changed.has(shard)).then(|| vec![0; BLOCK]);
            return stays.or_else(|| in_place.or(write.bytes(shard)).cloned());
        }
        let mut bytes = write.stayed(shard - map.data())?;
        xor_into(&mut bytes, in_place?);
        Some(bytes)
    };
    let there: Vec<_> = (0..map.shards()).map(of_written).collect();
    for shard in changed.iter().filter(|shard| there[*shard].is_none()) {
        let bytes = rebuilt(map, &there, shard, BLOCK);
        let suits = |it: &Vec<u8>| write.sum(shard).is_some_and(|sum| sum.suits(it));
        if let Some(bytes) = bytes.ok().filter(suits) {
            write.logged.retain(|(logged, _)| *logged != shard);
            write.logged.push((shard, Some(bytes)));
        }
    }
    write
}

/// Whether any write of the newer of two records was made in this column.
pub(super) fn is_begun(
    newest: &LoggedWrite,
    before: Option<&LoggedWrite>,
    on_disk: &[Option<Vec<u8>>],
) -> bool {
    let suits = |shard: usize, sum: Sum| on_disk[shard].as_ref().is_some_and(|it| sum.suits(it));
    // The newest batch began only when the one before it was durable: a block that only the earlier
    // record wrote and that is not in place shows that the newest was not begun, unless something
    // of the newest is in place, and that block was damaged.
    let is_seen = newest.written.iter().any(|(shard, sum)| {
        before.and_then(|it| it.sum(*shard)) != Some(*sum) && suits(*shard, *sum)
    });
    is_seen || before.is_none_or(|before| is_in_place(before, Some(newest), on_disk))
}

/// Whether every present block is in place that a record wrote and the newest record did not write
/// again.
fn is_in_place(
    before: &LoggedWrite,
    newest: Option<&LoggedWrite>,
    on_disk: &[Option<Vec<u8>>],
) -> bool {
    before.written.iter().all(|(shard, sum)| {
        let is_rewritten = newest.is_some_and(|it| it.sum(*shard).is_some());
        is_rewritten || on_disk[*shard].as_ref().is_none_or(|it| sum.suits(it))
    })
}

/// Rebuilds damaged and absent blocks from the other blocks. Returns whether the other blocks
/// suffice, and every block with a checksum matches it.
fn replace_damaged(map: &RowMap, state: &mut [Expected]) -> bool {
    let there: Vec<_> = state.iter().map(|block| block.bytes.clone()).collect();
    for (shard, block) in state.iter_mut().enumerate().filter(|(_, block)| block.bytes.is_none()) {
        let Ok(bytes) = rebuilt(map, &there, shard, BLOCK) else { return false };
        if block.sum.is_some_and(|sum| sum.is_written() && !sum.suits(&bytes)) {
            return false;
        }
        block.bytes = Some(bytes);
    }
    true
}
