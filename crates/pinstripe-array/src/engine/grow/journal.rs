//! Moves a stretch in place: the content of its new rows is first written to a journal, column by
//! column, in the area of the log, which is empty during the move.
//!
//! Invariant: the superblocks declare a journal valid only while it is durable on all members, and
//! invalid before it is overwritten.

use std::ops::Range;

use super::commit;
use super::piece::MovedPiece;
use crate::engine::content::ShardContent;
use crate::engine::log::Log;
use crate::engine::logged::LoggedArray;
use crate::executor::{TaskKind, each_of};
use crate::format::BLOCK_BYTES;
use crate::format::journal::JournalPlace;
use crate::format::sums::Sum;
use crate::format::superblock::Work;
use crate::geometry::Shape;
use crate::member::ArrayMember;
use crate::set::MemberSet;
use pinstripe_base::error::{Error, Kind, Result};

/// The most bytes of a stretch's new rows in memory at once; one block of each chunk may exceed
/// this.
const MEMORY_BYTES: u64 = 32 << 20;

/// Moves the next stretch in place, from byte `done` of its chunks on.
///
/// # Errors
/// Fails with [`Kind::TooManyLosses`] when too many members failed. After this error, reads of the
/// stretch fail.
pub fn move_over(logged: &mut LoggedArray, shape: &Shape, done: u32) -> Result<()> {
    // The journal overwrites the log, so no record may be needed any more.
    logged.checkpoint()?;
    logged.array.reshape(shape.in_place());
    let moved = move_columns(logged, shape, done);
    if moved.is_err() {
        logged.array.lose_relocation();
    }
    moved
}

fn move_columns(logged: &mut LoggedArray, shape: &Shape, done: u32) -> Result<()> {
    let chunk = shape.geometry().chunk_bytes();
    let width = journal_width(&logged.log, shape)?;
    for start in (done..chunk).step_by(width as usize) {
        let column = start..(start + width).min(chunk);
        let rows: Vec<u64> = shape.next_rows(1).collect();
        let make = |number: usize| logged.array.make_piece(shape, rows[number], &column);
        let pieces = each_of(&*logged.executor, TaskKind::Fill, rows.len(), make);
        write_journals(logged, shape, &column, &pieces)?;
        let width = column.len() as u32;
        record_moved(logged, shape, column.start, width)?;
        // Only now may the old rows be overwritten: the journal is durable, and declared valid.
        let put = |number: usize| logged.array.put_piece(&pieces[number]);
        let failed = each_of(&*logged.executor, TaskKind::Fill, pieces.len(), put);
        logged.array.fail_all(failed)?;
        settle_column(logged, shape, &column)?;
    }
    let (moved, _) = shape.stretches().expect("an array that grows");
    commit(logged, shape, moved + 1)
}

/// Resumes a stretch whose move in place was interrupted by a power cut. The array has no readers
/// at this time.
///
/// # Errors
/// Fails with the errors of [`move_over`].
pub(crate) fn finish_moving(logged: &mut LoggedArray) -> Result<()> {
    let Work::Grow { columns, journal, .. } = logged.array.superblock().work else {
        return Ok(());
    };
    if columns == 0 && journal == 0 {
        return Ok(());
    }
    let shape = logged.array.shape();
    logged.array.reshape(shape.in_place());
    let column = columns..columns + journal;
    if journal > 0 {
        let members = logged.array.members();
        let redo = |slot: usize| match &members[slot] {
            Some(member) if !redo(logged, &shape, slot, member, &column) => MemberSet::one(slot),
            _ => MemberSet::EMPTY,
        };
        let failed = each_of(&*logged.executor, TaskKind::Fill, members.len(), redo);
        logged.array.fail_all(failed)?;
        settle_column(logged, &shape, &column)?;
    }
    move_columns(logged, &shape, column.end)
}

/// Ends the move of a column: makes the moved bytes durable before its journal is declared invalid.
fn settle_column(logged: &mut LoggedArray, shape: &Shape, column: &Range<u32>) -> Result<()> {
    logged.sync_members()?;
    logged.write_tables()?;
    record_moved(logged, shape, column.end, 0)
}

fn record_moved(logged: &LoggedArray, shape: &Shape, columns: u32, journal: u32) -> Result<()> {
    let (stretches, _) = shape.stretches().expect("an array that grows");
    let work = Work::Grow { stretches, columns, journal };
    logged.array.update_superblocks(|superblock| superblock.work = work)
}

/// The number of bytes of each chunk in one journal, limited by the size of the log and by memory.
///
/// # Errors
/// Fails with [`Kind::Unsupported`] when there is no room for a single block.
pub(crate) fn journal_width(log: &Log, shape: &Shape) -> Result<u32> {
    let geometry = shape.geometry();
    let rows = shape.next_rows(1);
    let shards = (rows.end - rows.start) * geometry.shards() as u64;
    let mut width = geometry.chunk_bytes();
    let fits = |width: u32| {
        let place = journal_place(log, shape, 0, &(0..width));
        place.bytes() <= log.area_bytes
            && (shards * u64::from(width) <= MEMORY_BYTES || u64::from(width) == BLOCK_BYTES)
    };
    while !fits(width) {
        width /= 2;
        if u64::from(width) < BLOCK_BYTES {
            let what = "the log area of the members is too short for a reshape";
            return Err(Error::new(Kind::Unsupported, what)
                .expected(
                    format!(
                        "{} bytes",
                        journal_place(log, shape, 0, &(0..BLOCK_BYTES as u32)).bytes()
                    ),
                    log.area_bytes,
                )
                .advice(
                    "create a new array with a larger --log-size, and copy the data to the new \
                     array",
                ));
        }
    }
    Ok(width)
}

fn journal_place(log: &Log, shape: &Shape, slot: usize, column: &Range<u32>) -> JournalPlace {
    let (stretch, _) = shape.stretches().expect("an array that grows");
    let place = shape.next_place(1);
    JournalPlace {
        array: log.array,
        slot: slot as u16,
        stretch,
        start: column.start,
        width: column.len() as u32,
        chunks: ((place.end - place.start) / u64::from(shape.geometry().chunk_bytes())) as u32,
    }
}

/// Writes each member's journal, which is durable on return.
fn write_journals(
    logged: &LoggedArray,
    shape: &Shape,
    column: &Range<u32>,
    pieces: &[MovedPiece],
) -> Result<()> {
    let chunk = u64::from(shape.geometry().chunk_bytes());
    let first = shape.next_place(1).start / chunk;
    let blocks = column.len() / BLOCK_BYTES as usize;
    logged.each_member(TaskKind::Log, &|slot, member| {
        let place = journal_place(&logged.log, shape, slot, column);
        // Chunks that belong to no row are neither written nor read back.
        let mut parts: Vec<Option<&ShardContent>> = vec![None; place.chunks as usize];
        for piece in pieces {
            for (shard, part) in piece.parts.iter().enumerate() {
                let at = piece.map.place(shard);
                if at.member == slot {
                    parts[(at.start / chunk - first) as usize] = Some(part);
                }
            }
        }
        let mut sums = Vec::with_capacity(parts.len() * blocks);
        for part in &parts {
            match part {
                Some(part) => sums.extend_from_slice(&part.sums),
                None => sums.resize(sums.len() + blocks, Sum::UNWRITTEN),
            }
        }
        member.write_log(0, &place.encode(&sums))?;
        for (number, part) in parts.iter().enumerate() {
            if let Some(part) = part {
                let at = place.head_bytes() + number as u64 * column.len() as u64;
                member.write_log(at, &part.bytes)?;
            }
        }
        member.sync()
    })?;
    logged.array.drop_failed_replacement()
}

/// Writes the content of a member's journal in place. Damaged blocks of the journal are marked
/// lost, to be rebuilt from the other members. Returns whether the member was written.
fn redo(
    logged: &LoggedArray,
    shape: &Shape,
    slot: usize,
    member: &ArrayMember,
    column: &Range<u32>,
) -> bool {
    let place = journal_place(&logged.log, shape, slot, column);
    let mut head = vec![0; place.head_bytes() as usize];
    let blocks = column.len() / BLOCK_BYTES as usize;
    let unknown = || vec![Sum::LOST; place.chunks as usize * blocks];
    let read = member.read_log(0, &mut head);
    let sums = read.and_then(|()| place.decode(&head)).unwrap_or_else(|_| unknown());
    sums.chunks(blocks).enumerate().all(|(number, sums)| {
        let mut bytes = vec![0; column.len()];
        let at = place.head_bytes() + number as u64 * column.len() as u64;
        let is_read = member.read_log(at, &mut bytes).is_ok();
        let sound = |(sum, block): (&Sum, &[u8])| match () {
            () if !sum.is_written() || is_read && sum.suits(block) => *sum,
            () => Sum::LOST,
        };
        let blocks = bytes.chunks(BLOCK_BYTES as usize);
        let sums = sums.iter().zip(blocks).map(sound).collect();
        let chunk = u64::from(shape.geometry().chunk_bytes());
        let start = shape.next_place(1).start + number as u64 * chunk;
        logged.array.put_content(
            slot,
            start + u64::from(column.start),
            &ShardContent { bytes, sums },
        )
    })
}
