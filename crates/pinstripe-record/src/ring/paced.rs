//! A consumer that must take frames at a given pace.

use super::{Found, RingConsumer};

/// Consumes the frames of a stream that is played. Frames that are missing when due are skipped
/// when they arrive, so that all streams stay aligned. The consumer never blocks and never
/// allocates.
pub(crate) struct PacedConsumer {
    consumer: RingConsumer,
    /// The number of bytes that were due before they arrived; they are skipped when they arrive.
    late_bytes: u64,
}

impl PacedConsumer {
    /// A consumer without late bytes.
    pub fn new(consumer: RingConsumer) -> Self {
        PacedConsumer { consumer, late_bytes: 0 }
    }

    /// Whether this number of bytes is available, or the stream has ended.
    pub fn has(&self, bytes: u64) -> bool {
        match self.consumer.peek() {
            Found::Bytes { bytes: found, all } => all || found >= bytes + self.late_bytes,
            _ => true,
        }
    }

    /// Whether the stream has ended.
    pub fn is_over(&self) -> bool {
        self.consumer.peek() == Found::End
    }

    /// Appends available bytes until `out` contains `bytes` bytes. Returns whether the stream has
    /// ended. The caller must have reserved the capacity of `out` if it must not allocate.
    pub fn gather(&mut self, bytes: u64, out: &mut Vec<u8>) -> bool {
        loop {
            let missing = bytes.saturating_sub(out.len() as u64);
            match self.consumer.peek() {
                Found::End => return true,
                Found::Bytes { bytes: 1.., .. } if missing > 0 => {}
                _ => return false,
            }
            let run =
                self.consumer.bytes(if self.late_bytes > 0 { self.late_bytes } else { missing });
            match self.late_bytes > 0 {
                true => self.late_bytes -= run.len() as u64,
                false => out.extend_from_slice(run),
            }
            let count = run.len() as u64;
            debug_assert!(count > 0, "a consumer that finds bytes gets some");
            self.consumer.take(count);
        }
    }

    /// Records that this number of bytes was due but not available; these bytes are skipped when
    /// they arrive.
    pub fn leave_out(&mut self, bytes: u64) {
        self.late_bytes += bytes;
    }
}
