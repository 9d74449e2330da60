//! Fills a member from the other members while batches continue.
//!
//! A member that is being filled is used below an offset (the point) that the superblocks record,
//! and counts as absent above it. Batches write to the member below the point. Above the point,
//! batches note the first filled chunk that they made stale, and filling resumes at that chunk: a
//! write costs at most the bytes between that chunk and the end of the filled part. While batches
//! write above the point, the point is recorded after every slice, and no batch comes between a
//! slice and the record of its point.
//!
//! Invariant: the point is moved only when everything below it is durable on the member, checksums
//! included, and no chunk below it was written since it was filled. So an interrupted fill resumes
//! at the recorded point.

mod begin;

use std::sync::Arc;

use super::Array;
use super::logged::LoggedArray;
use super::status::WorkKind;
use super::step::{PASSED_MAX, Step, WorkReport};
use crate::executor::{TaskKind, each_of};
use crate::format::superblock::{Slot, Superblock, Work};
use crate::geometry::{ArrayGeometry, RowMap};
use crate::member::{ArrayMember, Failure};
use pinstripe_base::error::Result;
use pinstripe_base::id::MemberId;

/// Bytes of a member that are filled between two updates of the recorded point, unless batches
/// write there.
pub(super) const DURABLE_BYTES: u64 = 64 << 20;
/// The number of slices after which the point is recorded each time, once a batch wrote above the
/// point.
const BUSY_SLICES: u32 = 16;
/// The most chunks that are filled in parallel.
const GROUP_MAX: u64 = 256;
/// The most bytes of the chunks that are filled in parallel.
const GROUP_BYTES: u64 = 16 << 20;

/// A member that is being filled.
#[derive(Debug)]
pub(super) struct Fill {
    pub kind: WorkKind,
    pub slot: usize,
    /// The member that is filled.
    id: MemberId,
    /// The last error of its device.
    failure: Failure,
    /// Bytes of the member's data that are filled.
    pub done_bytes: u64,
    /// The point up to which the filled bytes are durable and used.
    durable_bytes: u64,
    /// The offset of the first chunk between the durable point and the end of the filled part that
    /// was written after it was filled.
    stale_from: Option<u64>,
    /// The number of slices that are still to be followed by a record of the point.
    busy_slices: u32,
    report: WorkReport,
}

impl Fill {
    fn new(kind: WorkKind, slot: usize, id: MemberId, done_bytes: u64) -> Self {
        let report = WorkReport::new(kind, Some(slot));
        let (durable_bytes, stale_from, busy_slices) = (done_bytes, None, 0);
        let failure = Failure::default();
        Fill { kind, slot, id, failure, done_bytes, durable_bytes, stale_from, busy_slices, report }
    }

    fn for_member(kind: WorkKind, slot: usize, member: &ArrayMember) -> Self {
        let mut fill = Fill::new(kind, slot, member.id(), 0);
        fill.report.path = Some(member.path().to_owned());
        fill.failure = member.failure().clone();
        fill
    }

    /// The fill that the superblock records as in progress.
    pub fn resumed(array: &Array, superblock: &Superblock) -> Option<Self> {
        let mut fill = Fill::recorded(superblock)?;
        if let Some(member) = array.member(fill.slot) {
            let filled =
                if member.id() == fill.id { Some(member) } else { member.replacement().member() };
            if let Some(filled) = filled {
                fill.report.path = Some(filled.path().to_owned());
                fill.failure = filled.failure().clone();
            }
        }
        Some(fill)
    }

    fn recorded(superblock: &Superblock) -> Option<Self> {
        if let Work::Replace { slot, with, done_bytes } = superblock.work {
            return Some(Fill::new(WorkKind::Replace, slot.into(), with, done_bytes));
        }
        let filled = superblock.slots.iter().enumerate().find_map(|(slot, it)| match it {
            Slot::Rebuilding(id) => Some((slot, *id)),
            _ => None,
        });
        let (filling, id) = filled?;
        Some(match superblock.work {
            Work::Rebuild { slot, done_bytes, only_behind } if usize::from(slot) == filling => {
                Fill::new(kind_of(only_behind), filling, id, done_bytes)
            }
            _ => Fill::new(WorkKind::Rebuild, filling, id, 0),
        })
    }

    /// Notes that a row was written, so that a chunk that was filled before is filled again.
    pub fn note(&mut self, map: &RowMap) {
        // A replacement receives every write to its member, so nothing has to be repeated for it.
        if let Some(shard) = map.shard_on(self.slot)
            && self.kind != WorkKind::Replace
        {
            let start = map.place(shard).start;
            if (self.durable_bytes..self.done_bytes).contains(&start) {
                self.stale_from = Some(self.stale_from.map_or(start, |first| first.min(start)));
            }
        }
    }

    /// Sets a copy to a replacement back to the first region in which a write without a log was
    /// interrupted. The resync makes the member and parity match in that region, but the
    /// replacement may have another version of a block.
    pub(crate) fn copy_unsure_again(&mut self, array: &Array) -> Result<()> {
        let member = array.member(self.slot).filter(|_| self.kind == WorkKind::Replace);
        let Some(replacement) = member.as_ref().and_then(|it| it.replacement().member()) else {
            return Ok(());
        };
        let chunk_bytes = u64::from(array.geometry().chunk_bytes());
        let first = member.and_then(|member| member.first_unsure()).unwrap_or(u64::MAX);
        if first >= self.done_bytes {
            return Ok(());
        }
        self.done_bytes = first / chunk_bytes * chunk_bytes;
        self.durable_bytes = self.done_bytes;
        replacement.set_filled(Some(self.done_bytes));
        let work = self.work();
        array.update_superblocks(|superblock| superblock.work = work)
    }

    /// The report of a fill that is not complete.
    fn failed(self) -> WorkReport {
        WorkReport { reason: self.failure.reason(), ..self.report }
    }

    fn work(&self) -> Work {
        let (slot, done_bytes) = (self.slot as u16, self.done_bytes);
        match self.kind {
            WorkKind::Replace => Work::Replace { slot, with: self.id, done_bytes },
            kind => Work::Rebuild { slot, done_bytes, only_behind: kind == WorkKind::Recover },
        }
    }

    /// The member to fill, if it is still present. If the member to be replaced has failed, its
    /// replacement is filled from the other members instead, from the durable point on.
    fn member(&mut self, array: &Array) -> Option<Arc<ArrayMember>> {
        let member = array.member(self.slot)?;
        if member.id() != self.id {
            return member.replacement().member().filter(|it| it.id() == self.id);
        }
        if self.kind == WorkKind::Replace {
            self.kind = WorkKind::Rebuild;
            self.done_bytes = self.durable_bytes;
        }
        Some(member)
    }
}

impl Fill {
    /// The next chunks, about `most_bytes` of them, which can be filled in any order.
    fn take_group(&self, geometry: &ArrayGeometry, most_bytes: u64) -> Vec<u64> {
        let chunk_bytes = u64::from(geometry.chunk_bytes());
        let most = most_bytes.min(GROUP_BYTES).div_ceil(chunk_bytes).clamp(1, GROUP_MAX) as usize;
        let starts = (self.done_bytes..geometry.member_bytes()).step_by(chunk_bytes as usize);
        starts.take(most).collect()
    }

    /// Goes back to the first chunk that was written after it was filled.
    fn drop_stale(&mut self) {
        if let Some(first) = self.stale_from.take() {
            self.done_bytes = first;
            self.busy_slices = BUSY_SLICES;
        }
    }
}

impl Array {
    /// Shows in the status that a spare is about to be filled for a slot.
    pub(super) fn announce_fill(&self, slot: usize) {
        self.live.lock().work = Some(self.fill_not_begun(slot));
    }
}

impl Fill {
    /// Fills a slice of the member. Returns the rest of the fill, if any is left. The recorded
    /// point is updated after at most `between_points` bytes.
    pub fn step(
        mut self,
        logged: &mut LoggedArray,
        most_bytes: u64,
        between_points: u64,
    ) -> Result<(Step, Option<Self>)> {
        let array = Arc::clone(&logged.array);
        let end = array.geometry().member_bytes();
        let Some(member) = self.member(&array) else {
            return Ok((Step::Done(self.failed()), None));
        };
        self.drop_stale();
        let (mut bytes, mut passed) = (0, 0);
        while bytes < most_bytes && passed < PASSED_MAX {
            let group = self.take_group(&array.geometry(), most_bytes - bytes);
            if group.is_empty() {
                break;
            }
            let filled = fill_group(logged, &member, &self, &group);
            for (chunk, filled) in group.iter().zip(filled) {
                let Ok(filled) = filled else {
                    array.stop_filling(&self)?;
                    return Ok((Step::Done(self.failed()), None));
                };
                passed += u64::from(filled.bytes == 0);
                bytes += filled.bytes;
                self.report.lost_blocks += filled.lost_blocks;
                self.done_bytes = (chunk + u64::from(array.geometry().chunk_bytes())).min(end);
            }
            if self.kind == WorkKind::Replace {
                member.set_filled(Some(self.done_bytes));
            }
        }
        self.report.bytes += bytes;
        let is_busy = self.busy_slices > 0;
        self.busy_slices = self.busy_slices.saturating_sub(1);
        let is_due = is_busy || self.done_bytes - self.durable_bytes >= between_points;
        if is_due || self.done_bytes >= end {
            return self.settle(logged, bytes);
        }
        Ok((Step::Moved { bytes }, Some(self)))
    }

    /// Makes the filled part durable, and lets readers use the member up to there.
    fn settle(mut self, logged: &mut LoggedArray, bytes: u64) -> Result<(Step, Option<Self>)> {
        let array = Arc::clone(&logged.array);
        let kind = self.kind;
        let work = self.work();
        let is_finished = self.done_bytes >= array.geometry().member_bytes();
        // The checkpoint makes data and tables durable before the superblock below says so.
        logged.checkpoint()?;
        let Some(member) = self.member(&array) else {
            return Ok((Step::Done(self.failed()), None));
        };
        if self.kind != kind {
            // The member to be replaced failed in the checkpoint: its replacement is filled as a
            // rebuild.
            return Ok((Step::Moved { bytes }, Some(self)));
        }
        if !is_finished {
            array.update_superblocks(|superblock| superblock.work = work)?;
            if kind != WorkKind::Replace {
                member.set_filled(Some(self.done_bytes));
            }
            self.durable_bytes = self.done_bytes;
            return Ok((Step::Moved { bytes }, Some(self)));
        }
        array.take_place(self.slot, &member)?;
        // It fails there if it does not take the superblock that says that it is complete.
        let is_finished = array.member(self.slot).is_some_and(|it| it.id() == self.id);
        let report = if is_finished { self.report } else { self.failed() };
        Ok((Step::Done(WorkReport { is_finished, ..report }), None))
    }
}

/// Fills chunks, in parallel where that is faster.
fn fill_group(
    logged: &LoggedArray,
    member: &ArrayMember,
    fill: &Fill,
    group: &[u64],
) -> Vec<Result<Filled, FillError>> {
    let fill_chunk = |number: usize| logged.array.fill_chunk(member, fill, group[number]);
    each_of(&*logged.executor, TaskKind::Fill, group.len(), fill_chunk)
}

impl Array {
    /// Puts a completely filled member into a slot, in place of the member that it replaces; the
    /// old member keeps the slot if the superblock cannot be written to the new one.
    fn take_place(&self, slot: usize, member: &Arc<ArrayMember>) -> Result<()> {
        let id = member.id();
        if let Some(replaced) = self.member(slot).filter(|it| it.id() != id) {
            // Before it can be seen in the slot, or readers would take it for absent.
            member.set_filled(None);
            if !self.members.succeed(slot, member, || self.survives_absent())? {
                return self.drop_replacement(&replaced);
            }
            self.live.lock().errors[slot] = Default::default();
        } else {
            self.update_superblocks(|superblock| {
                superblock.work = Work::None;
                superblock.slots[slot] = Slot::Present(id);
            })?;
            member.set_filled(None);
        }
        // Blocks that could not be healed without this member may be healed now.
        self.bad_blocks.lock().retry_unhealable();
        self.note_changes(&self.superblock());
        Ok(())
    }

    /// Marks the member that is being filled as failed.
    fn stop_filling(&self, fill: &Fill) -> Result<()> {
        match self.member(fill.slot).filter(|member| member.id() != fill.id) {
            Some(member) => self.drop_replacement(&member),
            None => self.fail(fill.slot),
        }
    }
}

/// The outcome for a chunk.
#[derive(Default)]
pub(super) struct Filled {
    /// Bytes that were written.
    pub bytes: u64,
    /// Blocks whose content could not be rebuilt.
    pub lost_blocks: u64,
}

/// The reason why a chunk could not be filled.
pub(super) enum FillError {
    /// The member cannot be written.
    Write,
}

fn kind_of(only_behind: bool) -> WorkKind {
    if only_behind { WorkKind::Recover } else { WorkKind::Rebuild }
}
