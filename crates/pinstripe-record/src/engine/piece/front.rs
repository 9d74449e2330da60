//! Pieces that share a file: the pre-roll in front, which is filled in later, and the piece behind
//! it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::Piece;
use crate::take::{PieceBehind, TakeFile};

impl Piece {
    /// A piece in the same file behind the first `front_bytes` of another one, which will be filled
    /// in later. `file` is that file.
    pub(in crate::engine) fn behind_of(
        front: &Arc<Piece>,
        file: TakeFile,
        (number, front_bytes): (u32, u64),
        began: Duration,
    ) -> Self {
        let ids = (number, front.stream, front.copy);
        let shared = (Arc::clone(&front.ring), Arc::clone(&front.started));
        let (name, facts) = (front.name.clone(), front.facts.clone());
        let mut piece = Piece::of_file(ids, (name, facts, file), shared);
        debug_assert!(front.front.is_none(), "a front has none in front of it");
        piece.payload_at = front.payload_at + front_bytes;
        piece.start_frame = (front.start_frame() + front.frames(front_bytes)).into();
        // From now on this one reserves what comes.
        let mut state = front.state.lock();
        let reserved = std::mem::take(&mut state.reserved);
        state.is_reserving_refused = true;
        drop(state);
        piece.state.lock().reserved = reserved;
        front.front_until.get_or_init(|| (began, front_bytes));
        piece.front = Some(Arc::clone(front));
        piece
    }

    /// Whether another piece follows in the same file, and only the pre-roll remains to be filled
    /// in.
    pub(crate) fn is_front(&self) -> bool {
        self.front_until.get().is_some()
    }

    /// For a front: the moment up to which all samples are durable. The front's samples came before
    /// the order, and none of them was durable until now.
    pub(super) fn front_covered(&self) -> Option<Duration> {
        let (until, bytes) = *self.front_until.get()?;
        let missing = bytes.saturating_sub(self.vouched_bytes());
        let missing = Duration::from_secs_f64(self.facts.shape.seconds(missing));
        Some(if missing.is_zero() { Duration::MAX } else { until.saturating_sub(missing) })
    }

    /// The position behind another piece, or `None` if the piece begins its file.
    pub fn behind(&self) -> Option<PieceBehind> {
        let front = self.front.as_ref()?.number;
        Some(PieceBehind { front, payload_at: self.payload_at })
    }

    /// The first frame of its file.
    pub(in crate::engine) fn file_start(&self) -> u64 {
        self.front.as_ref().map_or_else(|| self.start_frame(), |front| front.start_frame())
    }

    /// Bytes in front of its payload that belong to the same file.
    pub(super) fn front_bytes(&self) -> u64 {
        self.front.as_ref().map_or(0, |front| self.payload_at - front.payload_at)
    }

    /// Whether its file has no payload.
    pub fn is_empty(&self) -> bool {
        self.written_in_file() == 0 && !self.is_front()
    }

    /// Payload bytes of its file, the front's included, that were written.
    pub(in crate::engine) fn written_in_file(&self) -> u64 {
        self.front_bytes() + self.written_bytes()
    }

    /// Payload bytes of its file that the journal vouches for, from the first one on.
    pub(super) fn vouched_in_file(&self) -> u64 {
        match &self.front {
            Some(front) if !front.is_closed() => front.vouched_bytes(),
            _ => self.front_bytes() + self.vouched_bytes(),
        }
    }

    /// The frames of its file that the journal vouches for.
    pub(in crate::engine) fn file_frames(&self) -> Range<u64> {
        let from = self.file_start();
        from..from + self.frames(self.vouched_in_file())
    }
}
