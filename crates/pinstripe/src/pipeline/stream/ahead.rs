//! One record on its way: named by the feed, filled by a reader, waited for by the caller.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use crossbeam_channel::Receiver;

use super::Origin;
use super::decoded::DecodedRecord;
use crate::codec::Decoder;
use crate::format::record::ChunkRow;
use crate::store::packs::RecordPlace;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;

/// A record, and the room that it takes until its last user drops it.
pub(super) struct Ahead {
    pub place: RecordPlace,
    decoded: OnceLock<Result<DecodedRecord>>,
    _charge: Charge,
}

impl Ahead {
    pub fn new(place: RecordPlace, charge: Charge) -> Arc<Self> {
        Arc::new(Ahead { place, decoded: OnceLock::new(), _charge: charge })
    }

    /// Waits for the record and returns one of its chunks.
    pub fn chunk(&self, raw_offset: u32, row: &ChunkRow) -> Result<&[u8]> {
        self.decoded.wait().as_ref().map_err(Error::duplicate)?.chunk(raw_offset, row)
    }
}

/// A reader's thread: fills every record that is still wanted.
pub(super) fn read(origin: Origin<'_>, queue: &Receiver<Arc<Ahead>>) {
    let mut decoder = Decoder::new();
    for ahead in queue {
        if Arc::strong_count(&ahead) == 1 {
            continue; // The caller has ended early.
        }
        let fill = Fill(&ahead);
        let Origin { packs, index, keys, .. } = origin;
        let decoded = DecodedRecord::read(packs, index, keys, ahead.place, &mut decoder);
        let _ = fill.0.decoded.set(decoded);
    }
}

/// Fails the record if its thread panics, so that the caller does not wait for it.
struct Fill<'a>(&'a Ahead);

impl Drop for Fill<'_> {
    fn drop(&mut self) {
        let panicked = Error::new(Kind::Io, "a worker thread of the run panicked");
        let _ = self.0.decoded.set(Err(panicked));
    }
}

/// The memory that records on their way may take.
pub(super) struct Room {
    most: u64,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    used: u64,
    /// No more content is taken: a thread that waits for room must not wait for that.
    is_closed: bool,
}

/// A part of the room, given back when it is dropped.
pub(super) struct Charge {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    pub fn new(most: u64) -> Arc<Self> {
        Arc::new(Room { most, state: Mutex::default(), freed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// One record fits always, however long it is.
    fn is_full_for(&self, state: &State, bytes: u64) -> bool {
        !state.is_closed && state.used > 0 && state.used + bytes > self.most
    }

    /// Takes room if there is some.
    pub fn try_take(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let mut state = self.lock();
        if self.is_full_for(&state, bytes) {
            return None;
        }
        state.used += bytes;
        Some(Charge { room: Arc::clone(self), bytes })
    }

    /// Waits for room. The caller must hold none itself.
    pub fn take(self: &Arc<Self>, bytes: u64) -> Charge {
        let waited = self.freed.wait_while(self.lock(), |state| self.is_full_for(state, bytes));
        waited.unwrap_or_else(|poisoned| poisoned.into_inner()).used += bytes;
        Charge { room: Arc::clone(self), bytes }
    }

    /// Lets all waiting threads through, now and later.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.freed.notify_all();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.room.lock().used -= self.bytes;
        self.room.freed.notify_all();
    }
}
