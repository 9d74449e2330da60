//! The plan of a write: for each run of columns, the method that reads the fewest bytes. The same
//! bytes are written by each method of computing parity, so the method with the fewest bytes read
//! moves the fewest bytes.

use super::sweep::Segment;
use super::view::{Sources, View};
use super::{Class, Method, Payload, PlanPiece, RmwLevel, RowPlan};
use crate::set::ShardSet;
use pinstripe_base::error::Result;

pub(super) fn plan(
    view: &View,
    segments: &[Segment],
    rmw: RmwLevel,
    plan: &mut RowPlan,
) -> Result<()> {
    for window in segments.chunk_by(|a, b| a.window == b.window) {
        let touched = window.iter().fold(ShardSet::EMPTY, |touched, segment| {
            touched.or(segment.class(Class::Dirty)).or(segment.class(Class::Partial))
        });
        if touched.is_empty() {
            continue;
        }
        let prefer_rmw = prefers_rmw(view, window, touched, rmw);
        for segment in window {
            let task = SegmentTask::new(view, segment, touched);
            let piece = task.piece(rmw, prefer_rmw).ok_or_else(|| view.too_many(segment))?;
            if let Some(piece) = piece {
                plan.push(piece);
            }
        }
    }
    Ok(())
}

/// Whether read-modify-write moves fewer bytes in a window than reconstruct-write, if both are
/// possible.
fn prefers_rmw(view: &View, window: &[Segment], touched: ShardSet, rmw: RmwLevel) -> bool {
    if rmw == RmwLevel::Never || view.parity.is_empty() {
        return false;
    }
    let (mut by_difference, mut anew) = (0, 0);
    for segment in window {
        let task = SegmentTask::new(view, segment, touched);
        if let (Some(difference), Some(all)) = (task.read_modify_write(), task.reconstruct()) {
            let bytes = u64::from(segment.column.end - segment.column.start);
            by_difference += difference.reads.len() as u64 * bytes;
            anew += all.reads.len() as u64 * bytes;
        }
    }
    by_difference < anew || rmw == RmwLevel::FewerOrEqual && by_difference == anew
}

/// The work on one segment.
struct SegmentTask<'a> {
    view: &'a View,
    segment: &'a Segment,
    sources: Sources,
    /// Shards whose bytes are all new.
    dirty: ShardSet,
    /// Shards that are written although only some of their bytes, or none, are new.
    fill: ShardSet,
}

impl<'a> SegmentTask<'a> {
    /// `touched` are the shards that are written anywhere in the window.
    fn new(view: &'a View, segment: &'a Segment, touched: ShardSet) -> Self {
        let sources = view.sources(segment);
        let (dirty, partial) = (segment.class(Class::Dirty), segment.class(Class::Partial));
        let partial = partial.minus(dirty);
        // Widening never makes work that only a rebuild could do.
        let widened = touched.minus(dirty).minus(partial);
        let widened = match view.mirrors {
            true if view.copy_to_read(&sources).is_none() => ShardSet::EMPTY,
            true => widened,
            false => widened.minus(sources.lost).minus(view.gone),
        };
        SegmentTask { view, segment, sources, dirty, fill: partial.or(widened) }
    }

    /// Returns `None` if the segment cannot be written, and `Some(None)` if there is nothing to do.
    fn piece(&self, rmw: RmwLevel, prefer_rmw: bool) -> Option<Option<PlanPiece>> {
        if self.dirty.or(self.fill).is_empty() {
            return Some(None);
        }
        if self.view.mirrors {
            return self.mirror_copy().map(Some);
        }
        if self.view.parity.is_empty() {
            return self.plain().map(Some);
        }
        if self.view.gone.len() > self.view.parity.len() {
            return None;
        }
        if self.view.parity.minus(self.view.gone).is_empty() {
            return self.plain().map(Some);
        }
        let difference = || self.read_modify_write().filter(|_| rmw != RmwLevel::Never);
        let piece = match prefer_rmw && !self.is_full() {
            true => difference().or_else(|| self.reconstruct()),
            false => self.reconstruct().or_else(difference),
        };
        piece.map(Some)
    }

    fn is_full(&self) -> bool {
        self.view.data.minus(self.dirty).is_empty()
    }

    fn read_modify_write(&self) -> Option<PlanPiece> {
        let parity = self.view.parity.minus(self.view.gone);
        let needed = self.dirty.or(self.fill).or(parity);
        if !needed.and(self.sources.lost).is_empty() {
            return None;
        }
        let piece = PlanPiece::new(self.segment, Method::ReadModifyWrite);
        Some(self.writing(piece.need(needed, &self.sources)))
    }

    fn reconstruct(&self) -> Option<PlanPiece> {
        let method = if self.is_full() { Method::Full } else { Method::Reconstruct };
        let needed = self.view.data.minus(self.dirty);
        let lost = needed.and(self.sources.lost);
        let needed = match lost.is_empty() {
            true => needed,
            false => self.view.solution(&self.sources)?.or(lost),
        };
        Some(self.writing(PlanPiece::new(self.segment, method).need(needed, &self.sources)))
    }

    /// The piece for a segment without present parity: each shard is written by itself.
    fn plain(&self) -> Option<PlanPiece> {
        let written = self.dirty.or(self.fill);
        let unstorable = written.and(self.view.gone).or(self.fill.and(self.sources.lost));
        if !unstorable.is_empty() {
            return None;
        }
        let piece = PlanPiece::new(self.segment, Method::Plain);
        Some(self.writing(piece.need(self.fill, &self.sources)))
    }

    fn mirror_copy(&self) -> Option<PlanPiece> {
        let writes = self.view.data.minus(self.view.gone);
        if writes.is_empty() {
            return None;
        }
        let mut piece = PlanPiece::new(self.segment, Method::MirrorCopy);
        if !self.fill.is_empty() {
            piece = piece.need(self.view.copy_to_read(&self.sources)?, &self.sources);
        }
        Some(PlanPiece { dirty: self.dirty, fill: self.fill, writes, ..piece })
    }

    /// Adds the writes and the log payloads to a piece.
    fn writing(&self, piece: PlanPiece) -> PlanPiece {
        let changed = self.dirty.or(self.fill);
        let parity = self.view.parity.minus(self.view.gone);
        let p = self.view.data.len();
        let partial = !matches!(piece.method, Method::Full | Method::Plain);
        PlanPiece {
            dirty: self.dirty,
            fill: self.fill,
            writes: changed.minus(self.view.gone).or(parity),
            log: Payload {
                own: false,
                p: partial && parity.has(p),
                q: partial && parity.has(p + 1),
                data: changed.and(self.view.gone),
            },
            ..piece
        }
    }
}
