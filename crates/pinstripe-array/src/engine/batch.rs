//! A batch of jobs, from their plans to their writes, in reused buffers. Jobs of a batch move
//! different bytes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;

use super::fetch::{Fetch, TASK_TRANSFERS, carry_out};
use super::job::{Job, Memory};
use super::members::MemberSlots;
use crate::compute::ComputedBytes;
use crate::executor::{Executor, TaskKind};
use crate::format::BLOCK_BYTES;
use crate::format::log::{LogPiece, PayloadKinds, RecordHeader};
use crate::format::sums::Sum;
use crate::geometry::RowMap;
use crate::plan::Mark;
use crate::set::MemberSet;
use pinstripe_base::error::Result;
use pinstripe_base::sync::{into_inner, lock};

/// The most bytes that a batch moves where a log record takes long to become durable, so that many
/// rows share one sync.
const BATCH_BYTES: usize = 8 << 20;
/// The most bytes that a batch moves where a log record quickly becomes durable: such a batch stays
/// in the processor's cache, and its bytes are read from memory once.
const QUICK_BATCH_BYTES: usize = 2 << 20;

/// The most bytes of one long write: several long writes at once keep a disk busy.
const LONG_WRITE_MOST: usize = 2 << 20;

/// A write in place: slot, offset, bytes.
type PlacedWrite<'a> = (usize, u64, &'a [u8]);
/// Neighbouring writes, combined into one: slot, offset, parts.
type LongWrite<'a> = (usize, u64, Vec<&'a [u8]>);

/// Splits sorted writes into long writes (runs of neighbours with at least `long_write_bytes` bytes
/// in total) and the remaining short ones.
fn long_and_short<'a>(
    writes: &[PlacedWrite<'a>],
    long_write_bytes: usize,
) -> (Vec<LongWrite<'a>>, Vec<PlacedWrite<'a>>) {
    let (mut long, mut short): (Vec<LongWrite<'a>>, _) = (Vec::new(), Vec::new());
    let touch =
        |a: &PlacedWrite<'_>, b: &PlacedWrite<'_>| a.0 == b.0 && a.1 + a.2.len() as u64 == b.1;
    for run in writes.chunk_by(touch) {
        let bytes: usize = run.iter().map(|(_, _, bytes)| bytes.len()).sum();
        if bytes < long_write_bytes {
            short.extend_from_slice(run);
            continue;
        }
        let mut room = 0;
        for (slot, start, bytes) in run {
            match long.last_mut().filter(|_| bytes.len() <= room) {
                Some((_, _, parts)) => parts.push(bytes),
                None => {
                    long.push((*slot, *start, vec![bytes]));
                    room = LONG_WRITE_MOST.max(bytes.len());
                }
            }
            room -= bytes.len();
        }
    }
    (long, short)
}

/// Columns by row.
pub(super) type Fresh = HashMap<u64, Range<u32>>;

/// Some jobs.
#[derive(Default)]
pub(super) struct Batch {
    pub jobs: Vec<Job>,
    /// By slot, the member's part of the record.
    pub records: Vec<Vec<u8>>,
    made: ComputedBytes,
    read: Vec<u8>,
    /// By slot, the bytes that the jobs log on that member, without the head of the record.
    payload_bytes: Vec<u64>,
    /// Bytes that the jobs take in the head of the record.
    head_bytes: u64,
    moved_bytes: usize,
    pub(super) spare: Vec<Memory>,
    pub(super) sums: Vec<Sum>,
}

impl Batch {
    /// Whether the batch has no job.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Forgets the jobs and keeps their buffers.
    pub fn clear(&mut self) {
        self.spare.extend(self.jobs.drain(..).map(|job| job.memory));
        self.made.clear();
        self.payload_bytes.clear();
        (self.head_bytes, self.moved_bytes) = (0, 0);
    }

    /// By row, the columns in which the batch writes data blocks for the first time.
    pub fn fresh(&self, fresh: &mut Fresh) {
        fresh.clear();
        for job in &self.jobs {
            if let Some(column) = job.fresh() {
                let all = fresh.entry(job.map.index()).or_insert_with(|| column.clone());
                *all = all.start.min(column.start)..all.end.max(column.end);
            }
        }
    }

    /// Whether the batch writes in any of the columns in `fresh`.
    pub fn meets(&self, fresh: &Fresh) -> bool {
        let meets = |job: &Job| {
            let there = fresh.get(&job.map.index());
            there.is_some_and(|there| {
                let pieces = job.memory.plan.pieces.iter().map(|piece| &piece.column);
                pieces.into_iter().any(|it| it.start < there.end && there.start < it.end)
            })
        };
        !fresh.is_empty() && self.jobs.iter().any(meets)
    }

    /// Whether a job still fits into the batch's memory, and into a record of at most `most` bytes.
    pub fn has_room(&self, job: &Job, most: u64, is_slow: bool) -> bool {
        let mut longest = self.payload_bytes.iter().copied().max().unwrap_or(0);
        job.each_payload(|slot, bytes| {
            longest = longest.max(bytes + self.payload_bytes.get(slot).copied().unwrap_or(0));
        });
        let head = self.head_bytes + job.head_bytes();
        let moved = self.moved_bytes + job.memory.plan.moved_bytes() as usize;
        let most_moved = if is_slow { BATCH_BYTES } else { QUICK_BATCH_BYTES };
        // Head and payload are each rounded up to whole blocks, hence the two more.
        moved <= most_moved && RecordHeader::fits(head) && head + longest + 2 * BLOCK_BYTES <= most
    }

    /// Adds a job; the caller has checked with [`has_room`](Self::has_room) that it fits.
    pub fn push(&mut self, job: Job, members: usize) {
        self.payload_bytes.resize(members, 0);
        job.each_payload(|slot, bytes| self.payload_bytes[slot] += bytes);
        self.head_bytes += job.head_bytes();
        self.moved_bytes += job.memory.plan.moved_bytes() as usize;
        self.jobs.push(job);
    }

    /// Computes all bytes that the batch writes. Appends to each member's record, which has room
    /// for the head, the payload of that member. Returns the pieces for the head of the record.
    pub fn compute(&mut self, head_bytes: u64) -> Result<Vec<LogPiece>> {
        let Batch { jobs, made, read, records, .. } = self;
        made.clear();
        for Job { map, dirty, memory, .. } in jobs.iter_mut() {
            memory.makes_at.clear();
            made.reserve(map, &memory.plan, dirty, &mut memory.makes_at);
        }
        records.iter_mut().for_each(|record| record.resize(head_bytes as usize, 0));
        let mut pieces = Vec::new();
        for job in jobs.iter() {
            let operation = job.operation(read);
            operation.run_plan(made, &mut |slot, bytes| records[slot].extend_from_slice(bytes))?;
            pieces.extend(job.memory.plan.pieces.iter().map(|piece| LogPiece {
                row: job.map.index(),
                column: piece.column.clone(),
                written: piece.writes.to_bits(),
                has: PayloadKinds {
                    p: piece.log.p,
                    q: piece.log.q,
                    data: piece.log.data.to_bits(),
                    own: piece.log.own,
                },
                sums: made.sums(piece, &operation),
            }));
        }
        Ok(pieces)
    }

    /// Writes all jobs in place; neighbours with at least `long_write_bytes` bytes become long
    /// writes. Returns the slots of members that could not be written.
    pub fn write(
        &self,
        members: &MemberSlots,
        long_write_bytes: usize,
        executor: &dyn Executor,
    ) -> MemberSet {
        let mut writes: Vec<PlacedWrite<'_>> = Vec::new();
        for job in &self.jobs {
            let operation = job.operation(&self.read);
            for (number, it) in job.memory.plan.writes.iter().enumerate() {
                let bytes = self.made.bytes(number, &operation);
                writes.push((it.member, it.member_range.start, bytes));
            }
        }
        // By member and offset, so that each task moves forward over one part of one disk.
        writes.sort_unstable_by_key(|(slot, start, _)| (*slot, *start));
        let (long, short) = long_and_short(&writes, long_write_bytes);
        let failed = Mutex::new(MemberSet::EMPTY);
        let fail = |slot: usize| {
            let mut failed = lock(&failed);
            *failed = failed.with(slot);
        };
        let tasks: Vec<_> = short.chunks(TASK_TRANSFERS).collect();
        executor.each(TaskKind::Write, tasks.len(), &|number| {
            for (slot, start, bytes) in tasks[number] {
                let Some(member) = &members[*slot] else { continue };
                if member.write(*start, bytes).is_err() {
                    fail(*slot);
                }
            }
        });
        // After the short ones: a long write has its member to itself (`ArrayMember::write_long`).
        executor.each(TaskKind::Write, long.len(), &|number| {
            let (slot, start, parts) = &long[number];
            let Some(member) = &members[*slot] else { return };
            if member.write_long(*start, parts).is_err() {
                fail(*slot);
            }
        });
        into_inner(failed)
    }

    /// Carries out the reads of all jobs. Reports bad blocks to `report` and marks them; returns
    /// the numbers of the jobs that have bad blocks and must be planned again.
    pub fn fetch(
        &mut self,
        members: &MemberSlots,
        executor: &dyn Executor,
        mut report: impl FnMut(&RowMap, &Mark),
    ) -> Vec<usize> {
        let mut bytes = 0;
        for job in &mut self.jobs {
            job.memory.reads_at.clear();
            for it in &job.memory.plan.reads {
                job.memory.reads_at.push(bytes);
                bytes += it.column.len();
            }
        }
        if self.read.len() < bytes {
            self.read.resize(bytes, 0);
        }
        let mut rest = &mut self.read[..];
        let mut fetches = Vec::new();
        for (number, job) in self.jobs.iter().enumerate() {
            for it in &job.memory.plan.reads {
                let (buf, later) = rest.split_at_mut(it.column.len());
                rest = later;
                fetches.push(Fetch {
                    job: number,
                    shard: it.shard,
                    column: it.column.clone(),
                    slot: it.member,
                    member: members[it.member].as_deref(),
                    start: it.member_range.start,
                    buf,
                });
            }
        }
        let bad = carry_out(fetches, executor);
        let mut jobs: Vec<usize> = bad.iter().map(|(job, _)| *job).collect();
        for (job, mark) in bad {
            report(&self.jobs[job].map, &mark);
            self.jobs[job].memory.marks.push(mark);
        }
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }
}
