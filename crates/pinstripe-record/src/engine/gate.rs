//! Decides which parts of a stream are recorded: where the take begins and ends, where the stream
//! is armed or disarmed, and where a new file begins.
//!
//! A place is a number of bytes since the input was opened, including the silence that replaces
//! lost frames. A [`Gate`] depends only on the place, so both copies of a mirrored stream are cut
//! at the same places.
//!
//! Invariant: a decision is made only while the gate is locked, and only for places at or after the
//! input's current end. A writer reads the ring before the gate, so no writer is ahead of such a
//! place.

use std::sync::{Mutex, MutexGuard};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;

use crate::limits::SPANS_MAX;

/// How samples are treated at a place of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The take has not begun: samples are kept for a while as pre-roll, or dropped.
    Waiting,
    /// The stream is not armed: samples are dropped.
    Dropped,
    /// Samples are recorded; each span with this fate begins a file.
    Recorded,
    /// The take has ended.
    Over,
}

/// A run of samples with the same fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The fate.
    pub fate: Fate,
    /// Where it begins.
    pub from: u64,
    /// Bytes from the requested place to the end of the span.
    pub left: u64,
    /// Bytes before the span that were kept as pre-roll and belong to it.
    pub front: u64,
    /// Whether the take begins with this span.
    pub is_first: bool,
}

/// The spans of one stream.
#[derive(Debug)]
pub struct Gate {
    spans: Mutex<Spans>,
}

/// The spans of a locked gate.
#[derive(Debug)]
pub(crate) struct Spans {
    /// The fates by the place at which they begin, from 0 on; the last one has no end.
    all: Vec<(u64, Fate)>,
    /// The place where the take began, and the number of pre-roll bytes before it that belong to
    /// the take.
    begun: Option<(u64, u64)>,
    is_armed: bool,
}

impl Gate {
    /// A gate that records everything, or nothing before [`Spans::begin`] if `is_waiting`.
    pub fn new(is_waiting: bool) -> Self {
        let fate = if is_waiting { Fate::Waiting } else { Fate::Recorded };
        let begun = (!is_waiting).then_some((0, 0));
        Gate { spans: Mutex::new(Spans { all: vec![(0, fate)], begun, is_armed: true }) }
    }

    /// Returns how the samples at a place are treated, and up to which place this is valid.
    pub(crate) fn span_at(&self, place: u64) -> Span {
        let spans = lock(&self.spans);
        let behind = spans.all.partition_point(|(from, _)| *from <= place).max(1);
        let (from, fate) = spans.all[behind - 1];
        let end = spans.all.get(behind).map_or(u64::MAX, |(from, _)| *from);
        let begun = spans.begun.filter(|(at, _)| *at == from);
        let front = begun.map_or(0, |(_, front)| front);
        debug_assert!((from..end).contains(&place), "a span has the place that was asked for");
        Span { fate, from, left: end - place, front, is_first: begun.is_some() }
    }

    /// Whether the stream is armed.
    pub fn is_armed(&self) -> bool {
        lock(&self.spans).is_armed
    }

    /// The place at which the take has ended, once that is known.
    pub fn end(&self) -> Option<u64> {
        let spans = lock(&self.spans);
        spans.all.last().filter(|(_, fate)| *fate == Fate::Over).map(|(from, _)| *from)
    }

    /// Locks the gate. Writers wait meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Spans> {
        lock(&self.spans)
    }
}

impl Spans {
    /// Sets that the take begins at a place, with `front` bytes of pre-roll, and ends at `end`.
    pub fn begin(&mut self, place: u64, front: u64, end: Option<u64>) {
        self.begun = Some((place, front));
        self.all = vec![(0, Fate::Waiting)];
        self.put(place, if self.is_armed { Fate::Recorded } else { Fate::Dropped });
        if let Some(end) = end {
            self.put(end, Fate::Over);
        }
    }

    /// Whether the stream is armed.
    pub fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// Arms or disarms the stream; if the take has begun, this takes effect from a place on.
    ///
    /// # Errors
    /// [`Kind::Refused`] if this was done too often.
    pub fn arm(&mut self, place: u64, is_armed: bool) -> Result<()> {
        if self.begun.is_some() {
            self.check_room()?;
            self.put(place, if is_armed { Fate::Recorded } else { Fate::Dropped });
        }
        self.is_armed = is_armed;
        Ok(())
    }

    /// Begins a new file at a place, if the stream is armed.
    ///
    /// # Errors
    /// [`Kind::Refused`] if this was done too often.
    pub fn split(&mut self, place: u64) -> Result<()> {
        self.check_room()?;
        if self.is_armed && self.begun.is_some() {
            self.put(place, Fate::Recorded);
        }
        Ok(())
    }

    fn check_room(&self) -> Result<()> {
        if self.all.len() < SPANS_MAX {
            return Ok(());
        }
        Err(Error::new(Kind::Refused, "the stream was split, armed or disarmed too often")
            .expected(format!("at most {SPANS_MAX} changes"), self.all.len()))
    }

    /// Sets a fate from a place on, up to the end of the take.
    fn put(&mut self, place: u64, fate: Fate) {
        let over = self.all.last().filter(|(_, fate)| *fate == Fate::Over).copied();
        if over.is_some_and(|(end, _)| place >= end) {
            return;
        }
        // Decisions for this place and later ones are replaced; only the end stays.
        self.all.retain(|(from, _)| *from < place);
        self.all.push((place, fate));
        self.all.extend(over);
        debug_assert!(self.all.is_sorted_by_key(|(from, _)| *from), "spans are in order");
        debug_assert_eq!(self.all.first().map_or(0, |(from, _)| *from), 0, "the first begins at 0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(gate: &Gate, places: &[u64]) -> Vec<Fate> {
        places.iter().map(|it| gate.span_at(*it).fate).collect()
    }

    #[test]
    fn a_take_that_is_not_armed_has_everything_and_is_split_where_it_is_told() {
        let gate = Gate::new(false);
        let whole =
            Span { fate: Fate::Recorded, from: 0, left: u64::MAX - 7, front: 0, is_first: true };
        assert_eq!(gate.span_at(7), whole);
        gate.lock().split(90).unwrap();
        assert_eq!(gate.span_at(89), Span { left: 1, ..whole });
        let second = Span { from: 90, left: u64::MAX - 90, is_first: false, ..whole };
        assert_eq!(gate.span_at(90), second);
        // The same place twice is one file.
        gate.lock().split(90).unwrap();
        assert_eq!(gate.lock().all.len(), 2);
    }

    #[test]
    fn an_armed_take_begins_with_its_front_and_ends_in_time() {
        let gate = Gate::new(true);
        assert_eq!(fates(&gate, &[0, 1000]), [Fate::Waiting; 2]);
        gate.lock().begin(500, 200, Some(900));
        assert_eq!(
            fates(&gate, &[0, 499, 500, 899, 900, 5000]),
            [Fate::Waiting, Fate::Waiting, Fate::Recorded, Fate::Recorded, Fate::Over, Fate::Over]
        );
        assert_eq!((gate.span_at(500).front, gate.span_at(499).front), (200, 0));
        gate.lock().split(600).unwrap();
        assert_eq!((gate.span_at(600).front, gate.span_at(600).left), (0, 300));
        gate.lock().split(900).unwrap();
        assert_eq!(gate.span_at(900).fate, Fate::Over);
    }

    #[test]
    fn a_stream_is_recorded_where_it_is_armed() {
        let gate = Gate::new(true);
        gate.lock().arm(100, false).unwrap();
        assert!(!gate.is_armed());
        assert_eq!(gate.span_at(100).fate, Fate::Waiting, "the take has not begun");
        gate.lock().begin(500, 200, None);
        gate.lock().split(550).unwrap();
        gate.lock().arm(600, true).unwrap();
        gate.lock().arm(700, false).unwrap();
        let expected = [Fate::Dropped, Fate::Dropped, Fate::Recorded, Fate::Dropped];
        assert_eq!(fates(&gate, &[500, 599, 600, 700]), expected);
        // Changed twice before a sample came: what was said last counts.
        gate.lock().arm(800, true).unwrap();
        gate.lock().arm(800, false).unwrap();
        assert_eq!(fates(&gate, &[800]), [Fate::Dropped]);
        for place in 900.. {
            if gate.lock().arm(place, place % 2 == 0).is_err() {
                break;
            }
            assert!(place < 900 + SPANS_MAX as u64, "spans are bounded");
        }
    }
}
