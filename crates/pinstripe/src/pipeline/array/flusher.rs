//! The thread that puts rows on the members.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::VolumeSettings;
use super::state::{Situation, State, Task};
use crate::array::engine::{Array, BATCH_ROWS, Flusher};
use crate::clock;
use crate::error::{Error, Kind, Result};

/// What the thread and everybody else share.
pub(super) struct Shared {
    pub place: PathBuf,
    pub array: Arc<Array>,
    pub state: State,
    flusher: Mutex<Flusher>,
    /// When time began.
    began: Instant,
}

impl Shared {
    pub fn new(place: PathBuf, flusher: Flusher, settings: VolumeSettings) -> Self {
        let array = Arc::clone(flusher.array());
        let (state, flusher) = (State::new(settings), Mutex::new(flusher));
        Shared { place, array, state, flusher, began: clock::monotonic() }
    }

    pub fn now(&self) -> Duration {
        clock::monotonic() - self.began
    }

    /// Does something between two batches.
    pub fn with<T>(&self, act: impl FnOnce(&mut Flusher) -> T) -> T {
        let _guest = Guest::enter(&self.state);
        act(&mut self.flusher())
    }

    /// Closes it in order, when the thread has ended.
    pub fn close(&self) -> Result<()> {
        self.state.error().map_or(Ok(()), Err)?;
        self.flusher().close()
    }

    /// The thread, until it is told to stop.
    pub fn run(&self) {
        let _alarm = Alarm(&self.state);
        loop {
            let task = self.state.next(|| self.look());
            let done = match task {
                Task::End => return,
                Task::Sync(_) => {
                    let now = self.now();
                    self.flusher().sync_since(now)
                }
                Task::Flush(before) => self.flusher().flush(before, BATCH_ROWS).map(drop),
                Task::Work => Ok(()),
            };
            self.state.did(task, done);
        }
    }

    fn look(&self) -> Situation {
        Situation { gathered: self.array.gathered(), now: self.now(), work_at: None }
    }

    fn flusher(&self) -> MutexGuard<'_, Flusher> {
        self.flusher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who uses the flusher beside its thread, which waits for him even if he panics.
struct Guest<'a>(&'a State);

impl<'a> Guest<'a> {
    fn enter(state: &'a State) -> Self {
        state.enter();
        Guest(state)
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Tells everybody who waits when the thread panics.
struct Alarm<'a>(&'a State);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = "the thread that writes the array's rows panicked";
            self.0.did(Task::End, Err(Error::new(Kind::Io, what)));
        }
    }
}
