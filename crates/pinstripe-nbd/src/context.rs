//! The state that all connections of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::export::Export;
use crate::memory::Memory;
use crate::settings::Settings;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;

/// The state that all connections share.
pub(super) struct ServerContext<'a> {
    pub exports: &'a [Export],
    pub settings: &'a Settings,
    pub monitor: &'a Monitor,
    pub memory: Arc<Memory>,
    /// Set when the server ends, for any reason; from then on, no more requests are received.
    pub is_ending: AtomicBool,
}

impl<'a> ServerContext<'a> {
    /// The shared state of a server of these exports.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for two exports with the same name.
    pub fn new(
        exports: &'a [Export],
        settings: &'a Settings,
        monitor: &'a Monitor,
    ) -> Result<Self> {
        for (at, export) in exports.iter().enumerate() {
            if exports[..at].iter().any(|other| other.name() == export.name()) {
                let what = format!("two exports have the name '{}'", export.name());
                return Err(Error::new(Kind::Usage, what));
            }
        }
        let memory = Memory::new(settings.memory_bytes);
        Ok(ServerContext { exports, settings, monitor, memory, is_ending: AtomicBool::new(false) })
    }

    /// Ends the receiving of requests.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }
}
