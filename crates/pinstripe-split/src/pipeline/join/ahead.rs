//! Reads the batches of a join ahead of the threads that decode them.
//!
//! The order of the batches is known, so each batch is read once, and no planner has to predict it.
//! If there are more outputs than workers, one thread per output reads ahead, since workers that
//! decode keep no disk busy; otherwise the workers read into the same buffers themselves. The bytes
//! of plain outputs are always read by the workers themselves.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use pinstripe_prefetch::{FetchSource, Pinned, Runner};

use crate::outputs::batch::batch_bytes_max;
use crate::outputs::{Located, Reader};
use pinstripe_base::error::Result;
use pinstripe_base::sync::lock;
use pinstripe_base::units::MIB;

/// The largest number of threads that read ahead.
const THREADS_MAX: usize = 8;
/// The largest number of bytes of batches that are read ahead.
const AHEAD_BYTES: u64 = 96 * MIB;

/// Reads the bytes of batches from their logs, for the prefetcher.
pub(super) struct BatchBytes<'s> {
    reader: &'s Reader,
    batches: &'s [Located],
    spare: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// The bytes of one batch.
pub(super) struct LogBytes {
    bytes: Vec<u8>,
    is_read: bool,
    /// The list of free buffers to which this buffer returns.
    spare: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl LogBytes {
    /// Returns the bytes that were read, or `None` after an error.
    pub(super) fn fetched(&self) -> Option<&[u8]> {
        self.is_read.then_some(&*self.bytes)
    }
}

impl Drop for LogBytes {
    fn drop(&mut self) {
        lock(&self.spare).push(std::mem::take(&mut self.bytes));
    }
}

impl FetchSource for BatchBytes<'_> {
    /// The position of a batch in the list of batches.
    type Key = usize;
    type Unit = LogBytes;

    fn fetch(&self, number: usize) -> Result<LogBytes> {
        let mut bytes = lock(&self.spare).pop().unwrap_or_default();
        let is_read = self.reader.fetch(&self.batches[number], &mut bytes);
        Ok(LogBytes { bytes, is_read, spare: Arc::clone(&self.spare) })
    }
}

/// Hands out prefetched batches, in their order.
pub(super) struct Ahead<'r, 's> {
    runner: &'r Runner<BatchBytes<'s>>,
    batches: usize,
    /// The memory that each batch is charged: the length of a buffer, since buffers are reused.
    charge: u64,
    state: Mutex<AheadState<'r, 's>>,
}

#[derive(Default)]
struct AheadState<'r, 's> {
    /// The position of the next batch that was not handed out yet.
    next: usize,
    pinned: VecDeque<(usize, Pinned<'r, BatchBytes<'s>>)>,
}

/// Runs `body` with batches that are prefetched for this number of workers.
pub(super) fn with_batches_ahead<R>(
    reader: &Reader,
    batches: &[Located],
    workers: usize,
    body: impl FnOnce(&Ahead<'_, '_>) -> R,
) -> R {
    let charge = batch_bytes_max(reader.head().unit_bytes()) as u64;
    let outputs = reader.outputs().iter().flatten().count();
    let threads = if workers < outputs { outputs.min(THREADS_MAX) } else { 0 };
    // One for each worker, and as many waiting as are in flight.
    let ahead = (2 * threads as u64).min(AHEAD_BYTES / charge);
    let source = BatchBytes { reader, batches, spare: Arc::default() };
    Runner::scoped(source, (workers as u64 + ahead) * charge, threads, |runner| {
        body(&Ahead { runner, batches: batches.len(), charge, state: Mutex::default() })
    })
}

impl<'r, 's> Ahead<'r, 's> {
    /// Returns the next batch and its position in the list.
    pub(super) fn next(&self) -> Option<(usize, Pinned<'r, BatchBytes<'s>>)> {
        let mut state = lock(&self.state);
        while state.next < self.batches {
            let number = state.next;
            // Other workers make room for one more, and need no lock of this state for it.
            let pin = match state.pinned.is_empty() {
                true => self.runner.pin(number, self.charge),
                false => match self.runner.try_pin(number, self.charge) {
                    Some(pin) => pin,
                    None => break,
                },
            };
            // The first one is this worker's, who reads it if no thread has begun to.
            if !state.pinned.is_empty() {
                self.runner.start([number]);
            }
            state.pinned.push_back((number, pin));
            state.next += 1;
        }
        state.pinned.pop_front()
    }
}
