//! A device with a deadline for every call.
//!
//! A call that the kernel does not answer cannot be ended from outside, so a thread that can be
//! abandoned makes it, and the caller waits until the deadline. A device that misses one is silent
//! from then on: every call, including those that wait, fails with [`Kind::Unanswered`]. Opening,
//! and dropping the device, have a deadline as well.
//!
//! Invariant: the buffers of a call belong to the thread that makes it, so that an abandoned thread
//! never accesses its caller.
//!
//! Not in this module: what a silent device means to its user.

use std::ops::Range;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::{AlignedBuf, Caps, Device, FileDevice, SharedDevice};
use crate::calls::{Call, CallThreads};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use pinstripe_base::units::MIB;

/// The interval at which a waiting caller checks the deadline: a call that hangs wakes no waiter.
const LOOK: Duration = Duration::from_millis(50);
/// A call that takes longer is overdue: its device may be given up before the deadline.
const OVERDUE: Duration = Duration::from_secs(1);
/// Bytes per second that a device must move; their time is added to the deadline of a call.
const BYTES_PER_SECOND: u64 = MIB;
/// Buffers that are kept for the next calls, and their largest size.
const BUFFERS_KEPT: usize = 8;
const BUFFER_MAX_BYTES: usize = 2 << 20;

/// The devices of this process, for [`give_up_overdue`].
static WATCHED: Mutex<Vec<Weak<DeviceCalls>>> = Mutex::new(Vec::new());

/// A device whose calls have deadlines.
pub struct WatchedDevice {
    /// Present until the drop.
    inner: Option<SharedDevice>,
    /// The same, if its cached bytes can be read without waiting.
    file: Option<Arc<FileDevice>>,
    caps: Caps,
    /// Bytes written since the last sync, whose time is added to its deadline.
    unsynced_bytes: AtomicU64,
    calls: Arc<DeviceCalls>,
}

/// A device that was opened, for [`WatchedDevice::open`].
pub enum Unwatched {
    /// A file or disk as it is.
    File(FileDevice),
    /// Any other device.
    Other(SharedDevice),
}

/// The calls of one device.
struct DeviceCalls {
    place: PathBuf,
    limit: Duration,
    is_silent: AtomicBool,
    /// Callers that have waited for longer than [`OVERDUE`].
    overdue: AtomicUsize,
    threads: CallThreads,
    buffers: Mutex<Vec<AlignedBuf>>,
}

/// Makes a call about a path in a thread, and waits for the answer for at most `limit`.
///
/// # Errors
/// Fails with [`Kind::Unanswered`] after that; with the error of `work`.
pub fn within<T: Send + 'static>(
    place: &Path,
    limit: Duration,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    DeviceCalls::new(place, limit).call(0, work)
}

/// Gives up the devices of a path that have not answered a call for a second.
pub fn give_up_overdue(place: &Path) {
    for calls in lock(&WATCHED).iter().filter_map(Weak::upgrade) {
        if calls.place == place && calls.is_overdue() {
            calls.is_silent.store(true, Ordering::Release);
        }
    }
}

/// Whether a device of a path has not answered a call for a second.
pub fn is_overdue(place: &Path) -> bool {
    let watched = lock(&WATCHED);
    watched.iter().filter_map(Weak::upgrade).any(|it| it.place == place && it.is_overdue())
}

impl DeviceCalls {
    fn new(place: &Path, limit: Duration) -> Self {
        DeviceCalls {
            place: place.to_path_buf(),
            limit,
            is_silent: AtomicBool::new(false),
            overdue: AtomicUsize::new(0),
            threads: CallThreads::new(usize::MAX, "device"),
            buffers: Mutex::default(),
        }
    }

    fn is_overdue(&self) -> bool {
        self.overdue.load(Ordering::Acquire) > 0
    }

    /// Has a thread do `work`, which moves this many bytes, and waits for the result.
    fn call<T: Send + 'static>(
        &self,
        bytes: u64,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.is_silent.load(Ordering::Acquire) {
            return Err(self.silence());
        }
        let call = self.threads.start(work).map_err(|error| {
            Error::io("cannot start a thread for this device", &self.place, error)
        })?;
        if let Some(done) = answer(&call) {
            return done;
        }
        let mut wait = CallWait { calls: self, began: clock::monotonic(), is_overdue: false };
        let deadline = self.limit + Duration::from_secs(bytes / BYTES_PER_SECOND);
        loop {
            if let Some(done) = answer(&call) {
                return done;
            }
            if wait.is_over(deadline) {
                call.abandon();
                return Err(self.silence());
            }
        }
    }

    /// The error of a device that does not answer.
    fn silence(&self) -> Error {
        Error::new(Kind::Unanswered, "the device does not answer")
            .at(&self.place)
            .expected(format!("an answer within {} s", self.limit.as_secs_f64()), "none")
            .advice("check its disk or network; --member-timeout changes the time limit")
    }

    /// An empty buffer for this many bytes.
    fn buffer(&self, bytes: usize) -> AlignedBuf {
        let kept = lock(&self.buffers).pop().filter(|it| it.capacity() >= bytes);
        let mut buffer = kept.unwrap_or_else(|| AlignedBuf::new(bytes));
        buffer.clear();
        buffer
    }

    fn keep(&self, buffer: AlignedBuf) {
        let mut kept = lock(&self.buffers);
        if kept.len() < BUFFERS_KEPT && buffer.capacity() <= BUFFER_MAX_BYTES {
            kept.push(buffer);
        }
    }
}

/// The answer of a call, if it comes soon; a panic of the call continues in the caller.
fn answer<T>(call: &Call<Result<T>>) -> Option<Result<T>> {
    call.wait(LOOK).map(|done| done.unwrap_or_else(|panic| resume_unwind(panic)))
}

/// A caller that waits for an answer.
struct CallWait<'a> {
    calls: &'a DeviceCalls,
    began: Instant,
    is_overdue: bool,
}

impl CallWait<'_> {
    /// Whether to wait no longer: the deadline is over, or the device was given up.
    fn is_over(&mut self, deadline: Duration) -> bool {
        let waited = clock::since(self.began) + LOOK;
        if waited > deadline {
            self.calls.is_silent.store(true, Ordering::Release);
        }
        if waited > OVERDUE && !self.is_overdue {
            self.is_overdue = true;
            self.calls.overdue.fetch_add(1, Ordering::AcqRel);
        }
        self.calls.is_silent.load(Ordering::Acquire)
    }
}

impl Drop for CallWait<'_> {
    fn drop(&mut self) {
        if self.is_overdue {
            self.calls.overdue.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl WatchedDevice {
    /// Opens a device, and has all calls of it answered within `limit`, and a second more for each
    /// MiB that a call moves or a sync makes durable.
    ///
    /// # Errors
    /// Fails with [`Kind::Unanswered`] if `open` does not return in time; with the error of `open`.
    pub fn open(
        place: &Path,
        limit: Duration,
        open: impl FnOnce() -> Result<Unwatched> + Send + 'static,
    ) -> Result<Self> {
        let calls = Arc::new(DeviceCalls::new(place, limit));
        let (inner, file): (SharedDevice, _) = match calls.call(0, open)? {
            Unwatched::File(file) => {
                let file = Arc::new(file);
                (Arc::clone(&file) as _, Some(file))
            }
            Unwatched::Other(device) => (device, None),
        };
        let mut watched = lock(&WATCHED);
        watched.retain(|it| it.strong_count() > 0);
        watched.push(Arc::downgrade(&calls));
        drop(watched);
        let (caps, unsynced_bytes) = (inner.caps(), AtomicU64::new(0));
        Ok(WatchedDevice { inner: Some(inner), file, caps, unsynced_bytes, calls })
    }

    fn call<T: Send + 'static>(
        &self,
        bytes: u64,
        work: impl FnOnce(&dyn Device) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = self.inner.clone().expect("it is present until the drop");
        self.calls.call(bytes, move || work(&*inner))
    }

    /// Has a thread write these parts, which it gets as one copy.
    fn write(
        &self,
        parts: &[&[u8]],
        write: impl FnOnce(&dyn Device, &[u8]) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let mut own = self.calls.buffer(bytes);
        parts.iter().for_each(|part| own.extend_from_slice(part));
        self.unsynced_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let (own, done) = self.call(bytes as u64, move |inner| {
            let done = write(inner, &own);
            Ok((own, done))
        })?;
        self.calls.keep(own);
        done
    }
}

/// Cuts bytes into parts of these lengths.
fn cut<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let part = |len: &usize| {
        let (part, rest) = bytes.split_at(*len);
        bytes = rest;
        part
    };
    lengths.iter().map(part).collect()
}

impl Device for WatchedDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let is_silent = self.calls.is_silent.load(Ordering::Acquire);
        let file = self.file.as_ref().filter(|_| !is_silent);
        if file.is_some_and(|file| file.read_cached(offset, buf)) {
            return Ok(());
        }
        let mut own = self.calls.buffer(buf.len());
        own.set_len(buf.len());
        let own = self.call(buf.len() as u64, move |inner| {
            inner.read_at(offset, &mut own)?;
            Ok(own)
        })?;
        buf.copy_from_slice(&own);
        self.calls.keep(own);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(&[bytes], move |inner, own| inner.write_at(offset, own))
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        self.write(parts, move |inner, own| inner.write_long_at(offset, &cut(own, &lengths)))
    }

    fn len(&self) -> Result<u64> {
        self.call(0, |inner| inner.len())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.call(0, move |inner| inner.set_len(bytes))
    }

    fn sync(&self) -> Result<()> {
        let unsynced = self.unsynced_bytes.swap(0, Ordering::Relaxed);
        self.call(unsynced, |inner| inner.sync())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.call(0, move |inner| inner.discard(range))
    }

    fn caps(&self) -> Caps {
        self.caps
    }

    fn place(&self) -> &Path {
        &self.calls.place
    }
}

impl Drop for WatchedDevice {
    /// Closing may wait for the device, too.
    fn drop(&mut self) {
        let (inner, file) = (self.inner.take(), self.file.take());
        let close = move || {
            drop((inner, file));
            Ok(())
        };
        if self.calls.is_silent.load(Ordering::Acquire) {
            // Without a thread of its own it would be closed here, and wait.
            let started = std::thread::Builder::new().name("device".to_owned()).spawn(close);
            drop(started);
            return;
        }
        // It is closed in any case; nothing else follows from the answer.
        let _ = self.calls.call(0, close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Access, MemoryDevice, Policy, conformance};
    use crate::fault::{FaultyDevice, Plan};

    const LIMIT: Duration = Duration::from_millis(300);

    fn watched(plan: &str) -> WatchedDevice {
        let plan: Plan = plan.parse().unwrap();
        let open = move || {
            let device = MemoryDevice::new("memory");
            device.set_len(1 << 20)?;
            Ok(Unwatched::Other(Arc::new(FaultyDevice::new(device, plan))))
        };
        WatchedDevice::open(Path::new("memory"), LIMIT, open).unwrap()
    }

    #[test]
    fn it_keeps_the_rules_of_the_seam() {
        let dir = tempfile::tempdir().unwrap();
        let number = AtomicUsize::new(0);
        conformance::run(&|| {
            let path = dir.path().join(number.fetch_add(1, Ordering::Relaxed).to_string());
            let own = path.clone();
            let open = move || {
                FileDevice::open(own, Access::CreateNew, Policy::Buffered).map(Unwatched::File)
            };
            Box::new(WatchedDevice::open(&path, Duration::from_secs(30), open).unwrap())
        });
    }

    #[test]
    fn a_device_that_misses_a_deadline_is_silent_for_all_calls() {
        for operation in ["read", "write", "sync", "len"] {
            let device = watched(&format!("op={operation},hang=yes"));
            let ask = |operation: &str| match operation {
                "read" => device.read_at(0, &mut [0; 8]),
                "write" => device.write_at(0, &[0; 8]),
                "sync" => device.sync(),
                _ => device.len().map(drop),
            };
            let began = clock::monotonic();
            for operation in [operation, "read", "write", "sync", "len"] {
                assert_eq!(ask(operation).unwrap_err().kind(), Kind::Unanswered, "{operation}");
            }
            assert!(clock::since(began) < 10 * LIMIT);
        }
    }

    #[test]
    fn an_open_that_hangs_ends_at_the_deadline() {
        let open = || loop {
            std::thread::park();
        };
        let failed = WatchedDevice::open(Path::new("silent"), LIMIT, open).err().unwrap();
        assert_eq!(failed.kind(), Kind::Unanswered);
        assert_eq!(within(Path::new("here"), LIMIT, || Ok(5)).unwrap(), 5);
    }

    #[test]
    fn an_overdue_device_can_be_given_up_before_its_deadline() {
        let place = PathBuf::from("overdue");
        let open = || {
            let device = MemoryDevice::new("overdue");
            device.set_len(1 << 20)?;
            let plan = "op=read,hang=yes".parse()?;
            Ok(Unwatched::Other(Arc::new(FaultyDevice::new(device, plan))))
        };
        let device = WatchedDevice::open(&place, Duration::from_secs(3600), open).unwrap();
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| device.read_at(0, &mut [0; 8]));
            while !reads.is_finished() {
                give_up_overdue(&place);
                clock::sleep(LOOK);
            }
            assert_eq!(reads.join().unwrap().unwrap_err().kind(), Kind::Unanswered);
        });
    }
}
