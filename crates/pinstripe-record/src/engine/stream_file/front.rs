//! Pieces that share a file: the front, into which the pre-roll is copied later, and the piece
//! after it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::StreamFile;
use crate::take::{FileBehind, TakeFile};

impl StreamFile {
    /// Creates a piece in the same file after the first `front_bytes` of another piece, the front,
    /// whose content is copied later. `file` is the shared file.
    pub(in crate::engine) fn behind_of(
        front: &Arc<StreamFile>,
        file: TakeFile,
        (number, front_bytes): (u32, u64),
        began: Duration,
    ) -> Self {
        let ids = (number, front.stream, front.copy);
        let shared = (Arc::clone(&front.ring), Arc::clone(&front.started));
        let (name, facts) = (front.name.clone(), front.facts.clone());
        let mut piece = StreamFile::of_file(ids, (name, facts, file), shared);
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

    /// Whether another piece follows in the same file, so that only the pre-roll remains to be
    /// copied into this one.
    pub(crate) fn is_front(&self) -> bool {
        self.front_until.get().is_some()
    }

    /// For a front, the moment up to which all samples are durable. The front's samples are older
    /// than the order to start, and none of them was durable until now.
    pub(super) fn front_covered(&self) -> Option<Duration> {
        let (until, bytes) = *self.front_until.get()?;
        let missing = bytes.saturating_sub(self.vouched_bytes());
        let missing = Duration::from_secs_f64(self.facts.shape.seconds(missing));
        Some(if missing.is_zero() { Duration::MAX } else { until.saturating_sub(missing) })
    }

    /// The position of a piece after another piece; `None` if the piece begins its file.
    pub fn behind(&self) -> Option<FileBehind> {
        let front = self.front.as_ref()?.number;
        Some(FileBehind { front, payload_at: self.payload_at })
    }

    /// The first frame of the file that contains this piece.
    pub(in crate::engine) fn file_start(&self) -> u64 {
        self.front.as_ref().map_or_else(|| self.start_frame(), |front| front.start_frame())
    }

    /// The number of bytes in the same file before this piece's payload.
    pub(super) fn front_bytes(&self) -> u64 {
        self.front.as_ref().map_or(0, |front| self.payload_at - front.payload_at)
    }

    /// Whether the file has no payload.
    pub fn is_empty(&self) -> bool {
        self.written_in_file() == 0 && !self.is_front()
    }

    /// The number of payload bytes written to the file, including the front.
    pub(in crate::engine) fn written_in_file(&self) -> u64 {
        self.front_bytes() + self.written_bytes()
    }

    /// The number of payload bytes of the file that the journal vouches for, without interruption
    /// from the first byte.
    pub(super) fn vouched_in_file(&self) -> u64 {
        match &self.front {
            Some(front) if !front.is_closed() => front.vouched_bytes(),
            _ => self.front_bytes() + self.vouched_bytes(),
        }
    }

    /// The frames of the file that the journal vouches for.
    pub(in crate::engine) fn file_frames(&self) -> Range<u64> {
        let from = self.file_start();
        from..from + self.frames(self.vouched_in_file())
    }
}
