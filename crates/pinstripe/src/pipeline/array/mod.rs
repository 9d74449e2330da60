//! A running array: any number of threads write into its cache, one puts rows on the members.
//!
//! ```text
//! write --> cache of the array --+--> flusher thread: rows that are full or old, syncs,
//!    ^                           |                    then a slice of pending work
//!    +---- waits at the limit ---+
//! read  --> in the caller's thread
//! ```
//! A row is written when it is full, when its first byte is as old as the deadline, when half of the limit
//! is dirty, and at a sync. Syncs that come while one is going on share the next one.
//!
//! Invariants: what a sync found written is durable when it returns; dirty bytes exceed the limit by no more
//! than one piece of a write per thread; whoever waits is told when the array fails, and then everything
//! fails, until somebody changed something through [`Volume::with`].
//!
//! Never here: what becomes of a row (`array/engine`).

mod counters;
mod device;
mod flusher;
mod settings;
mod state;
mod team;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

pub use counters::Counters;
pub use settings::VolumeSettings;

use crate::array::engine::{Array, Flusher, WorkReport};
use crate::error::{Error, Kind, Result};
use flusher::Shared;

/// An array with the thread that puts its rows on the members.
///
/// Dropped without [`stop`](Volume::stop) it still writes everything, and nobody learns whether that went
/// well.
pub struct Volume {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Volume {
    /// Starts the flusher's thread.
    ///
    /// # Errors
    /// [`Kind::Usage`] for impossible settings; [`Kind::Io`] when there can be no more threads.
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

    /// Does something between two batches. If the array had failed, it is tried again afterwards.
    pub fn with<T: Send>(&self, act: impl FnOnce(&mut Flusher) -> T + Send) -> T {
        self.shared.with(act)
    }

    /// The settings as they are.
    pub fn settings(&self) -> VolumeSettings {
        self.shared.state.settings()
    }

    /// Changes settings while everything goes on.
    ///
    /// # Errors
    /// [`Kind::Usage`] for impossible ones, and nothing is changed.
    pub fn set(&self, change: impl FnOnce(&mut VolumeSettings)) -> Result<()> {
        let mut settings = self.settings();
        change(&mut settings);
        settings.check()?;
        self.shared.state.change(settings);
        Ok(())
    }

    /// Why nothing is written any more, if so.
    pub fn error(&self) -> Option<Error> {
        self.shared.state.error()
    }

    /// How pending work ended since the array was started, each with how many had ended before; the last
    /// ones.
    pub fn reports(&self) -> Vec<(u64, WorkReport)> {
        self.shared.reports()
    }

    /// Waits until nothing is dirty and no work is pending.
    ///
    /// # Errors
    /// Why the array failed, or that it was stopped.
    pub fn wait_idle(&self) -> Result<()> {
        self.shared.state.wait_idle()
    }

    /// Writes everything and closes the array in order. Whatever is asked of it afterwards fails, but reads.
    ///
    /// # Errors
    /// Why not everything was written; then the array is not closed in order, and the log has what was
    /// synced. [`Kind::Usage`] the second time.
    pub fn stop(&self) -> Result<()> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else {
            return Err(Error::new(Kind::Usage, "the array was stopped").at(&self.shared.place));
        };
        self.shared.state.stop();
        if thread.join().is_err() {
            let what = "the thread that writes the array's rows panicked";
            return Err(Error::new(Kind::Io, what).at(&self.shared.place));
        }
        self.shared.close()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Nobody is left to be told; whoever wants to know stops it.
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests;
