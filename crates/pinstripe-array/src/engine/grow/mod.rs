//! Growing by one member, while the array stays in use. `takeover` changes the level and `size`
//! uses more of each member; neither moves data.
//!
//! All content moves forward, a few stretches at a time (see [`Shape`]), to rows that are one chunk
//! wider. Content moves to free space; then the superblocks record the progress, and the old place
//! of the content becomes free. The first stretches have no free space: they move in place, through
//! a journal.
//!
//! Invariants:
//! - the superblocks call a stretch moved only when all of it is durable, checksums included, and
//!   its old place is overwritten only after that;
//! - no log record that may be replayed names rows of another shape;
//! - blocks that cannot be rebuilt stay lost, and so does their new parity.
//!
//! A member that fails during the growth must be filled completely afterwards; filling only what it
//! missed is not enough.

mod begin;
mod journal;
mod piece;
mod size;
mod takeover;

pub(super) use journal::finish_moving;

use journal::{journal_width, move_over};

use std::ops::Range;
use std::sync::Arc;

use super::Array;
use super::logged::LoggedArray;
use super::status::WorkKind;
use super::step::{Step, WorkReport};
use crate::executor::{TaskKind, each_of};
use crate::format::superblock::{Superblock, Work};
use crate::geometry::Shape;
use crate::member::ArrayMember;
use crate::set::MemberSet;
use pinstripe_base::error::{Error, Kind, Result};

/// The most bytes of a chunk that move at once.
const COLUMN_BYTES: u32 = 1 << 20;
/// The most bytes of the new rows in memory at once; a single piece may be longer.
const GROUP_BYTES: u64 = 16 << 20;

/// Growing in progress.
#[derive(Debug)]
pub(super) struct Grow {
    pub report: WorkReport,
}

impl Grow {
    pub(super) fn new() -> Self {
        Grow { report: WorkReport::new(WorkKind::Grow, None) }
    }

    /// The growth that the superblock records as in progress.
    pub(super) fn resumed(superblock: &Superblock) -> Option<Self> {
        matches!(superblock.work, Work::Grow { .. }).then(Grow::new)
    }
}

impl Grow {
    /// Moves a slice. Returns the rest of the growth, if any is left.
    pub fn step(
        mut self,
        logged: &mut LoggedArray,
        most_bytes: u64,
    ) -> Result<(Step, Option<Self>)> {
        let shape = logged.array.shape();
        let (moved, all) = shape.stretches().expect("an array that grows");
        if moved == all {
            finish_growth(logged, &shape)?;
            return Ok((Step::Done(WorkReport { is_finished: true, ..self.report }), None));
        }
        let count = match shape.free_stretches() {
            0 => move_over(logged, &shape, 0).map(|()| 1)?,
            free => {
                let wanted = (most_bytes / shape.stretch_bytes()).max(1);
                let count = wanted.min(free).min(all - moved);
                move_rows(logged, &shape, shape.next_rows(count))?;
                commit(logged, &shape, moved + count)?;
                count
            }
        };
        let bytes = count * shape.stretch_bytes();
        self.report.bytes += bytes;
        Ok((Step::Moved { bytes }, Some(self)))
    }
}

/// Fills rows of the new geometry, which are in free space.
fn move_rows(logged: &LoggedArray, shape: &Shape, rows: Range<u64>) -> Result<()> {
    let chunk = shape.geometry().chunk_bytes();
    let width = chunk.min(COLUMN_BYTES);
    let piece_bytes = u64::from(width) * shape.geometry().shards() as u64;
    let most = (GROUP_BYTES / piece_bytes).max(1) as usize;
    let columns = |row| (0..chunk).step_by(width as usize).map(move |at| (row, at..at + width));
    let pieces: Vec<_> = rows.flat_map(columns).collect();
    for group in pieces.chunks(most) {
        let array = &logged.array;
        let move_piece = |number: usize| {
            let (row, column) = &group[number];
            array.put_piece(&array.make_piece(shape, *row, column))
        };
        let failed = each_of(&*logged.executor, TaskKind::Fill, group.len(), move_piece);
        logged.array.fail_all(failed)?;
    }
    Ok(())
}

/// Records durably how far the array has moved, and switches readers and writers to the new places.
fn commit(logged: &mut LoggedArray, shape: &Shape, moved: u64) -> Result<()> {
    let work = Work::Grow { stretches: moved, columns: 0, journal: 0 };
    // Durable first: from `reshape` on the old places are free to be overwritten.
    logged.checkpoint_with(|superblock| superblock.work = work)?;
    logged.array.reshape(shape.moved_to(moved));
    // The numbers of these blocks stand for other content now.
    logged.array.bad_blocks.lock().retry_unhealable();
    Ok(())
}

/// Ends growing: every block after the moved rows counts as never written.
fn finish_growth(logged: &mut LoggedArray, shape: &Shape) -> Result<()> {
    let geometry = *shape.geometry();
    let (_, all) = shape.stretches().expect("an array that grows");
    let behind = shape.moved_to(0).next_place(all).end;
    let members = logged.array.members();
    let forget = |member: &Option<Arc<ArrayMember>>| {
        member.as_ref().is_none_or(|member| member.forget_from(behind).is_ok())
    };
    let failed: MemberSet = (0..members.len()).filter(|slot| !forget(&members[*slot])).collect();
    logged.array.fail_all(vec![failed])?;
    logged.checkpoint_with(|superblock| superblock.work = Work::None)?;
    logged.array.reshape(Shape::from_geometry(geometry));
    logged.array.note_changes(&logged.array.superblock());
    Ok(())
}

impl Array {
    /// Adds a slot, and changes to the wider shape.
    fn widen(&self, member: Option<Arc<ArrayMember>>, shape: Shape) {
        let slots = self.members().len();
        let mut live = self.live.lock();
        // A slot that was dropped left its counts behind.
        live.errors.truncate(slots);
        live.errors.push(Default::default());
        drop(live);
        self.members.push(member);
        self.reshape(shape);
    }

    /// Marks all members in these sets as failed.
    fn fail_all(&self, failed: Vec<MemberSet>) -> Result<()> {
        let all = failed.into_iter().fold(MemberSet::EMPTY, MemberSet::or);
        all.iter().try_for_each(|slot| self.fail(slot))
    }
}

fn no_spare() -> Error {
    Error::new(Kind::Refused, "there is no spare to become a member")
        .advice("add a spare first, or give a device with --add")
}
