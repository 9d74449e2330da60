//! Growing by one member, while the array stays in use.
//!
//! All content moves forward, a few stretches at a time (see [`Shape`]), to rows that are one chunk
//! wider. It moves to free space; then the superblocks record the progress, and its old place is
//! free. The first stretches have no free space: they move in place, through a journal.
//!
//! Invariants:
//! - the superblocks call a stretch moved only when all of it is durable, checksums included, and
//!   its old place is not overwritten before they do;
//! - no record of the log that may be replayed speaks of rows of another shape;
//! - blocks that cannot be rebuilt stay lost, and so does their new parity.
//!
//! A member that fails meanwhile is filled anew later; it cannot just be brought up to date.

mod journal;
mod piece;

use std::ops::Range;
use std::sync::Arc;

use super::Array;
use super::flush::Flusher;
use super::status::WorkKind;
use super::work::{Step, WorkReport};
use crate::executor::{TaskKind, each_of};
use crate::format::superblock::{Slot, Superblock, Work};
use crate::geometry::{ArrayGeometry, Level, Shape};
use crate::member::ArrayMember;
use crate::set::MemberSet;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::SharedDevice;

/// Bytes of a chunk that move at once, at most.
const COLUMN_BYTES: u32 = 1 << 20;
/// Bytes of the new rows in memory at once, at most; a single piece may be longer.
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

    /// The growth that the superblock says was going on.
    pub(super) fn resumed(superblock: &Superblock) -> Option<Self> {
        matches!(superblock.work, Work::Grow { .. }).then(Grow::new)
    }
}

impl Flusher {
    /// Makes a spare one member more. The added capacity can be used when everything has moved; a
    /// mirror gets one copy more.
    ///
    /// # Errors
    /// [`Kind::Refused`] when members are absent, or there is no spare; [`Kind::Busy`] while other
    /// work goes on; [`Kind::Unsupported`] for copies that are not near, and for a log that is too
    /// short for a journal; those of the device.
    pub fn grow(&mut self) -> Result<()> {
        let shape = self.wider()?;
        if self.array.members.spares().is_empty() {
            return Err(no_spare());
        }
        if shape.before().is_none() {
            return self.add_copy(shape);
        }
        let superblock = self.array.superblock();
        let spare = self.array.members.take_last_spare().ok_or_else(no_spare)?;
        let slot = superblock.slots.len();
        // The new member has no log, so no record may be needed from it.
        self.checkpoint()?;
        let member = super::create::for_slot(&spare, &superblock, slot as u16)?;
        let begun = |superblock: &mut Superblock| {
            superblock.slots.push(Slot::Present(member.id()));
            superblock.work = Work::Grow { stretches: 0, columns: 0, journal: 0 };
        };
        // The new member is asked first: if it cannot take the superblock, no other one has
        // changed.
        let mut first = self.array.superblock();
        begun(&mut first);
        first.generation += 1;
        member.write_superblock(&first)?;
        member.sync()?;
        self.array.widen(Some(Arc::clone(&member)), shape);
        self.array.update_superblocks(begun)?;
        self.long.grow = Some(Grow::new());
        self.publish_work();
        Ok(())
    }

    /// The same with a device that becomes a spare first, and stays one if the array cannot grow.
    ///
    /// # Errors
    /// Those of [`grow`](Self::grow) and of [`add`](Self::add); the device is not written to where
    /// the array is known beforehand to be unable to grow.
    pub fn grow_by(&mut self, device: SharedDevice) -> Result<()> {
        self.wider()?;
        self.check_unused(&device)?;
        self.add_spare(device)?;
        self.grow()
    }

    /// The shape to grow to, if the array can grow. A mirror's copies keep their places.
    fn wider(&self) -> Result<Shape> {
        let long = &self.long;
        if long.fill.is_some() || long.resync.is_some() || long.scrub.is_some() || self.is_growing()
        {
            return Err(Error::new(Kind::Busy, "something else goes on with the array")
                .advice("wait until that is done"));
        }
        let superblock = self.array.superblock();
        if !superblock.slots.iter().all(|slot| matches!(slot, Slot::Present(_))) {
            return Err(Error::new(Kind::Refused, "the array grows only with all members there")
                .advice("replace what has failed first"));
        }
        let before = self.array.geometry();
        let wider = ArrayGeometry::new(
            before.level(),
            before.members() + 1,
            before.chunk_bytes().into(),
            before.layout(),
            before.member_bytes(),
        )?;
        if before.level() == Level::Raid1 {
            return Ok(Shape::of(wider));
        }
        let shape = Shape::growing(before, wider)?;
        self.journal_width(&shape)?;
        Ok(shape)
    }

    /// Whether it is being moved to one member more.
    pub(super) fn is_growing(&self) -> bool {
        self.long.grow.is_some()
    }

    /// Gives a mirror another slot, for which a spare is filled.
    fn add_copy(&mut self, wider: Shape) -> Result<()> {
        self.checkpoint()?;
        self.array.widen(None, wider);
        self.array.update_superblocks(|superblock| superblock.slots.push(Slot::Missing))?;
        self.take_spare().map(drop)
    }

    /// Moves a slice.
    pub(super) fn grow_some(&mut self, mut grow: Grow, most_bytes: u64) -> Result<Step> {
        let shape = self.array.shape();
        let (moved, all) = shape.stretches().expect("an array that grows");
        if moved == all {
            self.finish_growth(&shape)?;
            return Ok(Step::Done(WorkReport { is_finished: true, ..grow.report }));
        }
        let count = match shape.free_stretches() {
            0 => self.move_over(&shape, 0).map(|()| 1)?,
            free => {
                let wanted = (most_bytes / shape.stretch_bytes()).max(1);
                let count = wanted.min(free).min(all - moved);
                self.move_rows(&shape, shape.next_rows(count))?;
                self.commit(&shape, moved + count)?;
                count
            }
        };
        let bytes = count * shape.stretch_bytes();
        grow.report.bytes += bytes;
        self.long.grow = Some(grow);
        Ok(Step::Moved { bytes })
    }

    /// Fills rows of the new geometry in free space.
    fn move_rows(&mut self, shape: &Shape, rows: Range<u64>) -> Result<()> {
        let chunk = shape.geometry().chunk_bytes();
        let width = chunk.min(COLUMN_BYTES);
        let piece_bytes = u64::from(width) * shape.geometry().shards() as u64;
        let most = (GROUP_BYTES / piece_bytes).max(1) as usize;
        let columns = |row| (0..chunk).step_by(width as usize).map(move |at| (row, at..at + width));
        let pieces: Vec<_> = rows.flat_map(columns).collect();
        for group in pieces.chunks(most) {
            let array = &self.array;
            let move_piece = |number: usize| {
                let (row, column) = &group[number];
                array.put_piece(&array.make_piece(shape, *row, column))
            };
            let failed = each_of(&*self.executor, TaskKind::Fill, group.len(), move_piece);
            self.array.fail_all(failed)?;
        }
        Ok(())
    }

    /// Records durably how far the array has moved, and lets readers and writers use the new
    /// places.
    fn commit(&mut self, shape: &Shape, moved: u64) -> Result<()> {
        let work = Work::Grow { stretches: moved, columns: 0, journal: 0 };
        // Durable first: from `reshape` on the old places are free to be overwritten.
        self.checkpoint_with(|superblock| superblock.work = work)?;
        self.array.reshape(shape.moved_to(moved));
        // The numbers of these blocks stand for other content now.
        self.array.bad_blocks.lock().unhealable.clear();
        Ok(())
    }

    /// Ends growing: behind the moved rows every block counts as never written.
    fn finish_growth(&mut self, shape: &Shape) -> Result<()> {
        let geometry = *shape.geometry();
        let (_, all) = shape.stretches().expect("an array that grows");
        let behind = shape.moved_to(0).next_place(all).end;
        let members = self.array.members();
        let forget = |member: &Option<Arc<ArrayMember>>| {
            member.as_ref().is_none_or(|member| member.forget_from(behind).is_ok())
        };
        let failed: MemberSet =
            (0..members.len()).filter(|slot| !forget(&members[*slot])).collect();
        self.array.fail_all(vec![failed])?;
        self.checkpoint_with(|superblock| superblock.work = Work::None)?;
        self.array.reshape(Shape::of(geometry));
        self.array.note_changes(&self.array.superblock());
        Ok(())
    }
}

impl Array {
    /// Adds a slot, and changes to the wider shape.
    fn widen(&self, member: Option<Arc<ArrayMember>>, shape: Shape) {
        self.live.lock().errors.push(Default::default());
        self.members.push(member);
        self.reshape(shape);
    }

    /// Marks all these members failed.
    fn fail_all(&self, failed: Vec<MemberSet>) -> Result<()> {
        let all = failed.into_iter().fold(MemberSet::EMPTY, MemberSet::or);
        all.iter().try_for_each(|slot| self.fail(slot))
    }
}

fn no_spare() -> Error {
    Error::new(Kind::Refused, "there is no spare that could become a member")
        .advice("add a device first, or name one with --add")
}
