//! Handles the parts of a stream that are not simply recorded: the edges of spans, the parts
//! outside spans, and gaps.

use std::sync::Arc;

use pinstripe_base::error::Result;

use super::{CopyTurn, EngineWriter, StreamCopy};
use crate::engine::gate::{Fate, Span};
use crate::engine::roll::{Front, RollArea};
use crate::limits::DRAIN_BYTES;

impl EngineWriter<'_> {
    /// Begins a file where a span begins, unless a file was just created for the span.
    pub(super) fn enter(&self, copy: &mut StreamCopy, span: Span) -> Result<()> {
        if copy.span == Some(span.from) {
            return Ok(());
        }
        let frame_bytes = copy.piece.facts.shape.frame_bytes();
        let frame = copy.consumer.ring().place_in_take(copy.at - span.front) / frame_bytes;
        if !copy.piece.is_fresh_at(frame) {
            // The file that was made ahead is that of an input which began later than the take, too.
            match span.is_first && copy.piece.begin_at(frame) {
                true => self.directory.note_file(&copy.piece),
                false => self.begin_piece(copy, frame)?,
            }
        }
        copy.piece.set_idle(false);
        let area = copy.roll.take();
        if span.front > 0 {
            self.go_on_behind(copy, area, span.front)?;
        }
        copy.span = Some(span.from);
        Ok(())
    }

    /// Continues in the same file after its front, into which the pre-roll is copied.
    fn go_on_behind(
        &self,
        copy: &mut StreamCopy,
        area: Option<RollArea>,
        front_bytes: u64,
    ) -> Result<()> {
        let front = Arc::clone(&copy.piece);
        copy.piece = self.shared.piece_behind(self.directory, &front, front_bytes)?;
        let places = copy.at - front_bytes..copy.at;
        let frame_bytes = front.facts.shape.frame_bytes();
        for gap in area.iter().flat_map(|it| it.gaps_in(&places)) {
            let frame = copy.consumer.ring().place_in_take(gap.start) / frame_bytes;
            let bytes = gap.end - gap.start;
            self.shared.note_gap(self.directory, copy.stream, frame, bytes / frame_bytes);
            if copy.copy == 0 {
                self.shared.streams[copy.stream as usize].keep_losses(bytes);
            }
        }
        self.directory.fronts.add(Front { piece: front, area, places });
        Ok(())
    }

    /// Ends a stream. Ends a copy; a stream without samples since the take began still gets its
    /// front.
    pub(super) fn pass_end(&self, copy: &mut StreamCopy) -> Result<CopyTurn> {
        let span = self.shared.streams[copy.stream as usize].gate.span_at(copy.at);
        if span.fate == Fate::Recorded && span.front > 0 {
            self.enter(copy, span)?;
        }
        Ok(CopyTurn::Over)
    }

    /// Completes the file of a span that has ended.
    pub(super) fn leave_span(&self, copy: &mut StreamCopy, span: Span) {
        if copy.span.replace(span.from) == Some(span.from) {
            return;
        }
        copy.piece.set_idle(true);
        if span.fate == Fate::Dropped {
            copy.roll = None;
        }
        if copy.piece.written_bytes() > 0 {
            copy.piece.end(None);
        }
    }

    /// Passes over bytes that are not recorded: they are kept as pre-roll, or only their level is
    /// measured.
    pub(super) fn pass_bytes(&self, copy: &mut StreamCopy, bytes: u64) -> Result<CopyTurn> {
        let mut left = bytes;
        while left > 0 {
            let run = copy.consumer.bytes(left);
            self.measure(copy, run);
            let count = run.len() as u64;
            if let Some(area) = &mut copy.roll {
                self.timed(|| area.put(copy.at, copy.consumer.bytes(count)))?;
            }
            copy.consumer.take(count);
            copy.at += count;
            left -= count;
        }
        Ok(CopyTurn::Worked)
    }

    /// Advances through a gap; if the stream is recorded, silence is written for the gap, and the
    /// gap is reported at its end.
    pub(super) fn pass_gap(&self, copy: &mut StreamCopy, bytes: u64) -> Result<CopyTurn> {
        let span = self.shared.streams[copy.stream as usize].gate.span_at(copy.at);
        let left = (bytes - copy.gap_done).min(span.left);
        let passed = match span.fate {
            Fate::Recorded => {
                self.enter(copy, span)?;
                self.fill_gap(copy, left)?
            }
            Fate::Waiting | Fate::Dropped => {
                self.leave_span(copy, span);
                if let Some(area) = &mut copy.roll {
                    let silence = self.silence_of(copy.piece.facts.shape.format.silence());
                    self.timed(|| area.put_gap(copy.at, left, silence))?;
                }
                left
            }
            Fate::Over => return Ok(CopyTurn::Over),
        };
        copy.at += passed;
        copy.gap_done += passed;
        let is_over = copy.gap_done == bytes;
        if is_over || passed == span.left {
            self.report_gap(copy);
        }
        if is_over {
            copy.consumer.take_gap();
            copy.gap_done = 0;
        }
        Ok(CopyTurn::Worked)
    }

    /// Writes silence for a part of a gap; returns the number of bytes written.
    fn fill_gap(&self, copy: &mut StreamCopy, bytes: u64) -> Result<u64> {
        let room = self.room(copy)?;
        let frame_bytes = copy.piece.facts.shape.frame_bytes();
        let most = bytes.min(DRAIN_BYTES / frame_bytes * frame_bytes).min(room);
        let silence = self.silence_of(copy.piece.facts.shape.format.silence());
        self.write(copy, &silence[..most as usize])?;
        copy.gap_recorded += most;
        Ok(most)
    }

    /// Reports the recorded part of a gap that ends here.
    fn report_gap(&self, copy: &mut StreamCopy) {
        let frame_bytes = copy.piece.facts.shape.frame_bytes();
        let frames = std::mem::take(&mut copy.gap_recorded) / frame_bytes;
        if frames > 0 {
            let end = copy.consumer.ring().place_in_take(copy.at) / frame_bytes;
            self.shared.note_gap(self.directory, copy.stream, end - frames, frames);
        }
    }
}
