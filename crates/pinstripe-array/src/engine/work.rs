//! Long work in slices, which the flusher does between batches.

use super::Array;
use super::grow::Grow;
use super::heal::heal;
use super::logged::LoggedArray;
use super::rebuild::{DURABLE_BYTES, Fill};
use super::resync::Resync;
use super::scrub::Scrub;
use super::status::{WorkKind, WorkStatus};
use super::step::{Step, WorkReport};
use crate::format::superblock::Slot;
use crate::geometry::RowMap;
use pinstripe_base::error::Result;

/// Long work in progress.
#[derive(Debug, Default)]
pub(super) struct LongWork {
    pub fill: Option<Fill>,
    pub scrub: Option<Scrub>,
    pub resync: Option<Resync>,
    pub grow: Option<Grow>,
    /// Bytes that a fill writes between two updates of its recorded point; `None` means the
    /// default.
    pub between_points: Option<u64>,
}

impl LongWork {
    /// Whether no member can be filled now: another one is being filled, a resync is pending, or
    /// the array grows.
    pub fn is_filling(&self) -> bool {
        self.fill.is_some() || self.resync.is_some() || self.grow.is_some()
    }

    /// Tells the current fill, if any, that a row was written.
    pub fn note(&mut self, map: &RowMap) {
        if let Some(fill) = &mut self.fill {
            fill.note(map);
        }
    }

    /// Resyncs a row before it is written, unless a running resync has already passed it. Returns
    /// whether that wrote anything.
    pub(crate) fn resync_first(&mut self, array: &Array, row: u64) -> Result<bool> {
        match &mut self.resync {
            Some(resync) => resync.resync_early(array, row),
            None => Ok(false),
        }
    }

    /// Like [`Flusher::step`](super::Flusher::step).
    pub fn step(&mut self, logged: &mut LoggedArray, most_bytes: u64) -> Result<Step> {
        let step = self.step_first(logged, most_bytes)?;
        self.publish(&logged.array);
        Ok(step)
    }

    fn step_first(&mut self, logged: &mut LoggedArray, most_bytes: u64) -> Result<Step> {
        // A member that does not answer fails reads, which alone do not mark it failed.
        logged.array.fail_silent()?;
        let step;
        // Resync comes first because all other kinds rely on parity. A scrub waits for a fill,
        // which would change what it compares.
        if let Some(resync) = self.resync.take() {
            (step, self.resync) = resync.step(logged, most_bytes)?;
            return Ok(step);
        }
        heal(logged)?;
        if let Some(grow) = self.grow.take() {
            (step, self.grow) = grow.step(logged, most_bytes)?;
            return Ok(step);
        }
        if self.fill.is_none() {
            self.take_spare(logged)?;
        }
        if let Some(fill) = self.fill.take() {
            (step, self.fill) =
                fill.step(logged, most_bytes, self.between_points.unwrap_or(DURABLE_BYTES))?;
        } else if let Some(scrub) = self.scrub.take() {
            (step, self.scrub) = scrub.step(logged, most_bytes)?;
        } else {
            step = Step::Idle;
        }
        Ok(step)
    }

    /// Like [`Flusher::cancel_work`](super::Flusher::cancel_work).
    pub fn cancel(&mut self, array: &Array) -> Result<Option<WorkReport>> {
        let Some(scrub) = self.scrub.take() else { return Ok(None) };
        array.update_superblocks(|superblock| superblock.scrub = None)?;
        self.publish(array);
        Ok(Some(scrub.report))
    }

    /// Resumes the work that the superblock records, after a resync if one is needed.
    ///
    /// # Errors
    /// Fails with [`Kind::TooManyLosses`](pinstripe_base::error::Kind::TooManyLosses) when too many
    /// members failed.
    pub fn resume(&mut self, array: &Array, is_unsure: bool) -> Result<()> {
        let superblock = array.superblock();
        self.fill = Fill::resumed(array, &superblock);
        if let Some(fill) = self.fill.as_mut().filter(|_| is_unsure) {
            fill.copy_unsure_again(array)?;
        }
        self.scrub = Scrub::resumed(&superblock);
        self.grow = Grow::resumed(&superblock);
        self.resync = is_unsure.then(Resync::new);
        self.publish(array);
        Ok(())
    }

    /// Publishes the progress to the array's status.
    pub fn publish(&self, array: &Array) {
        let geometry = array.geometry();
        let chunk_bytes = u64::from(geometry.chunk_bytes());
        let by_rows = |kind, done_rows| WorkStatus {
            kind,
            slot: None,
            done_bytes: done_rows * chunk_bytes,
            of_bytes: geometry.rows() * chunk_bytes,
        };
        let fill = self.fill.as_ref().map(|fill| WorkStatus {
            kind: fill.kind,
            slot: Some(fill.slot),
            done_bytes: fill.done_bytes,
            of_bytes: geometry.member_bytes(),
        });
        let scrub = self.scrub.as_ref().map(|it| by_rows(it.report.kind, it.done_rows));
        let resync = self.resync.as_ref().map(|it| by_rows(WorkKind::Resync, it.done_rows));
        let shape = array.shape();
        let grow = shape.stretches().map(|(moved, all)| WorkStatus {
            kind: WorkKind::Grow,
            slot: None,
            done_bytes: moved * shape.stretch_bytes(),
            of_bytes: all * shape.stretch_bytes(),
        });
        array.live.lock().work = resync.or(grow).or(fill).or(scrub);
    }
}

impl Array {
    /// Whether [`Flusher::step`](super::Flusher::step) has something to do.
    pub fn wants_work(&self) -> bool {
        let is_empty = |slot: &Slot| matches!(slot, Slot::Missing | Slot::Failed(_));
        let is_degraded =
            self.members.with_superblock(|superblock| superblock.slots.iter().any(is_empty));
        let has_spare = self.members.has_spare();
        let has_bad_blocks = !self.bad_blocks.lock().is_empty();
        let is_working = self.live.lock().work.is_some();
        is_working || has_bad_blocks || self.has_silent() || is_degraded && has_spare
    }
}
