//! A running array: any number of threads write to its cache, one thread writes rows to the
//! members.
//!
//! ```text
//! write --> cache of the array --+--> flusher thread: rows that are full or old, syncs,
//!    ^                           |                    then a slice of pending work
//!    +-- slowed down near, and --+
//!        stopped at the limit
//! read  --> in the caller's thread
//! ```
//!
//! Pending work below its minimum rate comes first (`schedule.rs`).
//!
//! A row is written when it is full, when its first byte has waited for the deadline, when half of
//! the limit is dirty, and at a sync. Syncs that arrive while a sync is running share the next one.
//!
//! Invariants: writes that returned before a sync was called are durable when it returns. Dirty
//! bytes exceed the limit by at most one piece of a write per thread. When the array fails, all
//! waiting calls return its error, and every later call fails until a caller changes something
//! through [`Volume::with`].
//!
//! This module does not write rows to the members; the engine does (`array/engine`).

#![allow(clippy::disallowed_methods, reason = "this module starts the threads of an array")]

mod counters;
mod device;
mod flusher;
mod measured;
mod schedule;
mod settings;
mod state;
mod writer_pace;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

pub use counters::VolumeCounters;
pub use schedule::{FlusherInputs, FlusherTask, WorkPace};
pub use settings::VolumeSettings;

use crate::engine::{Array, Flusher, WorkReport};
use flusher::Shared;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;

/// An array with the thread that writes its rows to the members.
///
/// A drop without [`stop`](Volume::stop) also writes everything, but errors are not reported.
pub struct Volume {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Volume {
    /// Starts the flusher's thread.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for impossible settings; with [`Kind::Io`] if no thread can be
    /// started.
    pub fn start(flusher: Flusher, settings: VolumeSettings) -> Result<Self> {
        settings.check()?;
        let name = flusher.array().superblock().name;
        let place = PathBuf::from(format!("array {name}"));
        let shared = Arc::new(Shared::new(place, flusher, settings));
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("array".to_owned()).spawn(move || own.run());
        let thread = thread.map_err(|error| Error::io("cannot start", &shared.place, error))?;
        Ok(Volume { shared, thread: Mutex::new(Some(thread)) })
    }

    /// The array.
    pub fn array(&self) -> &Arc<Array> {
        &self.shared.array
    }

    /// Calls `act` with the flusher, between two batches. Afterwards, an array that had failed
    /// tries again.
    pub fn with<T: Send>(&self, act: impl FnOnce(&mut Flusher) -> T + Send) -> T {
        self.shared.with(act)
    }

    /// The present settings.
    pub fn settings(&self) -> VolumeSettings {
        self.shared.state.settings()
    }

    /// Changes settings while the array runs.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for impossible settings; in that case nothing is changed.
    pub fn set(&self, change: impl FnOnce(&mut VolumeSettings)) -> Result<()> {
        let mut settings = self.settings();
        change(&mut settings);
        settings.check()?;
        self.shared.state.change(settings);
        Ok(())
    }

    /// If the array failed, the reason why it no longer writes anything.
    pub fn error(&self) -> Option<Error> {
        self.shared.state.error()
    }

    /// The last reports of ended work since the array was started, each with its number.
    pub fn reports(&self) -> Vec<(u64, WorkReport)> {
        self.shared.reports()
    }

    /// Adds the report of work that a caller ended.
    pub(crate) fn keep_report(&self, report: WorkReport) {
        self.shared.keep(report);
    }

    /// The recent rate of pending work in bytes of each member per second; 0 while the work makes
    /// no progress.
    pub(crate) fn work_rate(&self) -> u64 {
        self.shared.work_rate()
    }

    /// Waits until nothing is dirty and no work is pending.
    ///
    /// # Errors
    /// Fails with the reason why the array failed, or with an error that says that the array was
    /// stopped.
    pub fn wait_idle(&self) -> Result<()> {
        self.shared.state.wait_idle()
    }

    /// Writes everything and closes the array cleanly. After this, every call except a read fails.
    ///
    /// # Errors
    /// Fails with the reason why not everything was written; the array is then not closed cleanly,
    /// and the log has all synced writes. Fails with [`Kind::Usage`] when `stop` is called a second
    /// time.
    pub fn stop(&self) -> Result<()> {
        let thread = lock(&self.thread).take();
        let Some(thread) = thread else {
            return Err(Error::new(Kind::Usage, "the array was stopped").at(&self.shared.place));
        };
        self.shared.state.stop();
        if thread.join().is_err() {
            let what = "the array's flusher thread panicked";
            return Err(Error::new(Kind::Io, what).at(&self.shared.place));
        }
        self.shared.close()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // A drop cannot return an error; a caller that needs it calls `stop`.
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests;
