//! What goes on right now, for whoever watches from another thread, and how it is asked to stop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pinstripe::error::{Error, Kind, Result};
use pinstripe::monitor::{Counter, Monitor};

/// Where the execution of a plan stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stage {
    /// `preparing`, `warming up`, `measuring`.
    pub label: String,
    /// The variant that is run; empty while nothing is.
    pub variant: String,
    /// Runs made so far.
    pub runs: u64,
    /// How many there will be at least.
    pub runs_at_least: u64,
    /// How long it still takes, as far as one can tell.
    pub left: Option<Duration>,
}

/// Shared by those who measure and those who watch.
pub struct Live {
    stop: Arc<AtomicBool>,
    bytes: AtomicU64,
    /// Where more bytes are counted meanwhile.
    ledger: Mutex<Option<(Arc<Monitor>, Counter)>>,
    stage: Mutex<Stage>,
}

impl Live {
    /// To be stopped by this flag.
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        Live { stop, bytes: AtomicU64::new(0), ledger: Mutex::default(), stage: Mutex::default() }
    }

    /// Whether it was asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What is set when it is asked to stop.
    pub fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Goes on unless it was asked to stop.
    ///
    /// # Errors
    /// [`Kind::Interrupted`].
    pub fn check(&self) -> Result<()> {
        match self.is_stopped() {
            true => Err(Error::new(Kind::Interrupted, "interrupted; what was measured is kept")),
            false => Ok(()),
        }
    }

    /// Counts bytes that were moved, of whatever sort.
    pub fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts what an operation of the library counts, while it goes on.
    pub fn counting<R>(&self, counter: Counter, operation: impl FnOnce(&Monitor) -> R) -> R {
        let monitor = Arc::new(Monitor::default());
        *self.ledger() = Some((Arc::clone(&monitor), counter));
        let result = operation(&monitor);
        let mut ledger = self.ledger();
        self.moved(monitor.get(counter));
        *ledger = None;
        result
    }

    fn ledger(&self) -> MutexGuard<'_, Option<(Arc<Monitor>, Counter)>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes moved so far.
    pub fn bytes(&self) -> u64 {
        let ledger = self.ledger();
        let counted = ledger.as_ref().map_or(0, |(monitor, counter)| monitor.get(*counter));
        self.bytes.load(Ordering::Relaxed) + counted
    }

    /// Says what comes next.
    pub fn enter(&self, stage: Stage) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }

    /// What goes on.
    pub fn stage(&self) -> Stage {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
