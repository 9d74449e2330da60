//! Why a member failed: the last error of its device.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use pinstripe_io::device::{Device, SharedDevice};
use pinstripe_io::forward_device;

/// The last error of a device, shared by all who have to tell it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failure(Arc<FailureNote>);

#[derive(Debug, Default)]
struct FailureNote {
    is_silent: AtomicBool,
    reason: Mutex<Option<String>>,
}

impl Failure {
    /// The last error, in words.
    pub fn reason(&self) -> Option<String> {
        lock(&self.0.reason).clone()
    }

    /// Whether the device does not answer any more.
    pub fn is_silent(&self) -> bool {
        self.0.is_silent.load(Ordering::Acquire)
    }

    /// Sets the reason, unless the device does not answer: that stays the reason.
    pub fn set(&self, reason: String) {
        if !self.is_silent() {
            *lock(&self.0.reason) = Some(reason);
        }
    }

    fn note<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done {
            self.set(reason_of(error));
            if error.kind() == Kind::Unanswered {
                self.0.is_silent.store(true, Ordering::Release);
            }
        }
        done
    }
}

/// An error without its place and advice.
pub(crate) fn reason_of(error: &Error) -> String {
    match error.cause() {
        Some(cause) => format!("{}: {cause}", error.what()),
        None => error.what().to_owned(),
    }
}

/// A device whose last error is noted.
pub(super) struct NotedDevice {
    inner: SharedDevice,
    failure: Failure,
}

impl NotedDevice {
    pub fn new(inner: SharedDevice, failure: Failure) -> Self {
        NotedDevice { inner, failure }
    }
}

impl Device for NotedDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.failure.note(self.inner.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.failure.note(self.inner.write_at(offset, bytes))
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.failure.note(self.inner.write_long_at(offset, parts))
    }

    fn len(&self) -> Result<u64> {
        self.failure.note(self.inner.len())
    }

    fn sync(&self) -> Result<()> {
        self.failure.note(self.inner.sync())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.failure.note(self.inner.set_len(bytes))
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.failure.note(self.inner.discard(range))
    }

    forward_device!(inner: caps place);
}
