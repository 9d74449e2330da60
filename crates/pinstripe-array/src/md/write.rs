//! Writing to an md array: rows are written in place while the superblocks say that the set is
//! dirty.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{MdArray, bitmap};
use crate::cache::{Cache, Dirty, Due};
use crate::compute::{ComputedBytes, Operation};
use crate::format::md::SECTOR_BYTES;
use crate::geometry::Shape;
use crate::plan::{Planner, RowPlan, Rules};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use pinstripe_io::device::Device;

/// The number of rows that can be written at the same time.
const LOCKS: usize = 64;

/// The state of an array that is open for writing.
pub(super) struct Writing {
    now_seconds: u64,
    /// Locks of rows; a row uses the lock with its number modulo the number of locks, so that two
    /// writes never update one parity at a time.
    rows: [Mutex<()>; LOCKS],
    state: Mutex<WriteState>,
    /// Whether a member could not be written or synced, so that the set must not be marked clean
    /// any more.
    has_failed: AtomicBool,
}

/// The state that the superblocks record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteState {
    /// The set is clean: nothing was written yet.
    Untouched,
    /// The set is dirty.
    Dirty,
    /// The set is clean again: nothing is written any more.
    Finished,
}

impl Writing {
    pub fn new(now_seconds: u64) -> Self {
        Writing {
            now_seconds,
            rows: [const { Mutex::new(()) }; LOCKS],
            state: Mutex::new(WriteState::Untouched),
            has_failed: AtomicBool::new(false),
        }
    }
}

impl MdArray {
    pub(super) fn write(&self, writing: &Writing, offset: u64, bytes: &[u8]) -> Result<()> {
        if writing.has_failed.load(Ordering::Relaxed) {
            return Err(Error::new(
                Kind::Io,
                "the array is read-only, because a member failed during a write",
            )
            .at(&self.place)
            .advice("assemble the array with mdadm, which resyncs the array"));
        }
        self.mark_dirty(writing)?;
        let mut cache = Cache::new(Shape::from_geometry(self.geometry));
        for span in self.geometry.spans(offset..offset + bytes.len() as u64) {
            let from = (span.user.start - offset) as usize;
            cache.write(&span, &bytes[from..from + span.column.len()], Duration::ZERO);
        }
        for row in cache.due(Due::Since(Duration::MAX), usize::MAX, u64::MAX) {
            let _row = lock(&writing.rows[row as usize % LOCKS]);
            self.write_row(row, &cache.begin(row))?;
            cache.end(row);
        }
        Ok(())
    }

    fn write_row(&self, row: u64, dirty: &Dirty) -> Result<()> {
        let map = self.geometry.map(row);
        let mut plan = RowPlan::default();
        let marks = dirty.marks(SECTOR_BYTES as u32);
        // A set with absent members or known bad blocks is not opened for writing.
        Planner::default().plan_write(&map, self.absent(), &marks, Rules::default(), &mut plan)?;
        let (reads, bad) = self.fetch_all(&plan);
        if let Some(bad) = bad.first() {
            self.stop_writing();
            return Err(Error::new(Kind::Io, "a member could not be read during a write")
                .at(self.member_place(map.member(bad.shard)).unwrap_or(&self.place))
                .advice(
                    "assemble the array with mdadm, which can run the array without this member",
                ));
        }
        let (mut made, mut makes_at) = (ComputedBytes::default(), Vec::new());
        made.reserve(&map, &plan, dirty, &mut makes_at);
        let starts = reads.iter().scan(0, |end, it| Some(std::mem::replace(end, *end + it.len())));
        let (reads_at, read) = (starts.collect::<Vec<_>>(), reads.concat());
        let operation = Operation {
            row: &map,
            plan: &plan,
            dirty,
            read: &read,
            reads_at: &reads_at,
            makes_at: &makes_at,
        };
        operation.run_plan(&mut made, &mut |_, _| ())?;
        for (number, it) in plan.writes.iter().enumerate() {
            let Some(member) = &self.members[it.member] else { continue };
            let at = member.data_at + it.member_range.start;
            let written = member.device.write_at(at, made.bytes(number, &operation));
            written.inspect_err(|_| self.stop_writing())?;
        }
        Ok(())
    }

    /// Refuses further writes, and never marks the set clean again.
    pub(super) fn stop_writing(&self) {
        if let Some(writing) = &self.writing {
            writing.has_failed.store(true, Ordering::Relaxed);
        }
    }

    /// Makes all superblocks say that the set is dirty, before anything is written.
    fn mark_dirty(&self, writing: &Writing) -> Result<()> {
        let mut state = lock(&writing.state);
        match *state {
            WriteState::Dirty => Ok(()),
            WriteState::Finished => {
                Err(Error::new(Kind::Refused, "the array was closed").at(&self.place))
            }
            WriteState::Untouched => {
                self.write_superblocks(writing, 1, 0).inspect_err(|_| self.stop_writing())?;
                *state = WriteState::Dirty;
                Ok(())
            }
        }
    }

    /// Ends writing, when no write is in progress: makes everything durable, and marks the set
    /// clean again. Without this call, and after a write that failed, the set stays dirty.
    ///
    /// # Errors
    /// Fails with the errors of the members.
    pub fn finish(&self) -> Result<()> {
        let Some(writing) = &self.writing else { return Ok(()) };
        self.sync()?;
        let mut state = lock(&writing.state);
        let was_dirty = *state == WriteState::Dirty;
        *state = WriteState::Finished;
        if !was_dirty || writing.has_failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let before = self.superblock.state.events;
        for member in self.members.iter().flatten() {
            bitmap::date(&*member.device, &member.superblock, before, before + 2)?;
        }
        self.write_superblocks(writing, 2, u64::MAX)
    }

    /// Writes all superblocks durably, with the event counter raised by `events`, and with
    /// `resync_sectors` as the point up to which members agree.
    fn write_superblocks(&self, writing: &Writing, events: u64, resync_sectors: u64) -> Result<()> {
        for member in self.members.iter().flatten() {
            let mut superblock = member.superblock.clone();
            superblock.state.events = self.superblock.state.events + events;
            superblock.state.updated = writing.now_seconds;
            superblock.state.resync_sectors = resync_sectors;
            member.device.write_at(superblock.device.place.offset(), &superblock.encode())?;
            member.device.sync()?;
        }
        Ok(())
    }
}
