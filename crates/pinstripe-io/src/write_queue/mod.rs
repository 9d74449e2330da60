//! Keeps several writes in flight on one device, by threads or by the kernel, with the same
//! interface.
//!
//! ```text
//! any thread -> write -> bounded queue -> workers -> device
//!                 ^                          |
//!                 +------ the buffer --------+
//! ```
//!
//! Invariants: every buffer that was accepted is returned once, written or not; writes are begun in
//! the order given and end in any order; a barrier covers everything that was accepted before it;
//! after the first error, which is kept, nothing more is begun, and all calls fail with that error;
//! a failed sync is such an error and is never tried again. Only an io_uring that breaks does not
//! return the buffers in it.

#![allow(
    clippy::disallowed_methods,
    reason = "this module starts the threads and queues of a write queue"
)]

use std::sync::Arc;
use std::thread::Scope;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::device::{Device, Engine, FileDevice, Ring, SharedDevice, WriteBuf};
use pinstripe_base::error::{Error, Kind, Result};

mod queue;

use queue::{Job, Queue, WhenEmpty, Write};

/// The number of writes in flight on one device, and of writes that wait in the queue (decision
/// 0019).
pub(crate) const LANE_DEPTH: usize = 4;

/// The device that a write queue writes to.
#[derive(Clone)]
pub enum QueueDevice {
    /// A file or block device, which either engine can write to.
    File(Arc<FileDevice>),
    /// Any other device, which only threads can write to.
    Other(SharedDevice),
}

impl QueueDevice {
    /// The device.
    pub fn device(&self) -> &dyn Device {
        match self {
            QueueDevice::File(device) => &**device,
            QueueDevice::Other(device) => &**device,
        }
    }
}

impl From<Arc<FileDevice>> for QueueDevice {
    fn from(device: Arc<FileDevice>) -> Self {
        QueueDevice::File(device)
    }
}

impl From<SharedDevice> for QueueDevice {
    fn from(device: SharedDevice) -> Self {
        QueueDevice::Other(device)
    }
}

/// The settings of a write queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteQueueSettings {
    /// The engine that carries out the writes.
    pub engine: Engine,
    /// The most writes in flight.
    pub depth: usize,
    /// The most writes that wait in the queue, in addition to those in flight.
    pub queued: usize,
}

impl Default for WriteQueueSettings {
    fn default() -> Self {
        WriteQueueSettings { engine: Engine::Auto, depth: LANE_DEPTH, queued: LANE_DEPTH }
    }
}

/// A buffer that a write queue returns.
#[derive(Debug)]
pub struct Returned {
    /// The offset at which the buffer was to be written.
    pub offset: u64,
    /// The buffer, unchanged.
    pub buf: WriteBuf,
    /// Whether all of the buffer was written; if not, the write queue's error says why.
    pub is_written: bool,
}

/// The counts of a write queue so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// The total number of bytes written.
    pub written_bytes: u64,
    /// The time during which at least one write or sync was being carried out.
    pub busy: Duration,
    /// Jobs that wait.
    pub queued: usize,
    /// Writes in flight.
    pub writing: usize,
}

/// The writes of one device. The workers of a write queue end after it was dropped and everything is
/// written.
pub struct WriteQueue<'a> {
    shared: Arc<WriteQueueShared<'a>>,
    engine: Engine,
    refusal: Option<Error>,
}

struct WriteQueueShared<'a> {
    queue: Queue,
    returned: Box<dyn Fn(Returned) + Send + Sync + 'a>,
}

/// A point in the sequence of a write queue's writes.
pub struct Barrier<'a> {
    answer: Receiver<Result<()>>,
    shared: Arc<WriteQueueShared<'a>>,
}

impl<'a> WriteQueue<'a> {
    /// Starts the workers. Starts the workers. Any thread may call `returned`, once for every
    /// buffer; this function must not wait for the write queue.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        device: impl Into<QueueDevice>,
        settings: WriteQueueSettings,
        returned: impl Fn(Returned) + Send + Sync + 'a,
    ) -> Self
    where
        'a: 'scope,
    {
        let queue = Queue::new(settings.queued);
        let shared = Arc::new(WriteQueueShared { queue, returned: Box::new(returned) });
        let depth = settings.depth.max(1);
        let (device, refusal): (SharedDevice, _) = match device.into() {
            QueueDevice::File(device) if is_for_the_kernel(settings.engine, &device) => {
                match Ring::new(depth) {
                    Ok(ring) => {
                        let worker = Arc::clone(&shared);
                        scope.spawn(move || worker.work_by_ring(&device, ring, depth));
                        return WriteQueue { shared, engine: Engine::Uring, refusal: None };
                    }
                    Err(error) => (device, Some(error)),
                }
            }
            QueueDevice::File(device) => (device, None),
            QueueDevice::Other(device) if settings.engine == Engine::Uring => {
                let error =
                    Error::new(Kind::Unsupported, "this engine works only with files and disks");
                let error = error.at(device.place());
                (device, Some(error))
            }
            QueueDevice::Other(device) => (device, None),
        };
        for _ in 0..depth {
            let (shared, device) = (Arc::clone(&shared), Arc::clone(&device));
            scope.spawn(move || shared.work(&device));
        }
        WriteQueue { shared, engine: Engine::Threads, refusal }
    }

    /// The engine in use: threads or io_uring.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// The reason why the requested or preferred engine is not used, if another one is.
    pub fn refusal(&self) -> Option<&Error> {
        self.refusal.as_ref()
    }

    /// Accepts a buffer to be written; waits while the queue is full. Ranges of writes between two
    /// barriers must not overlap: otherwise it is unspecified which write is kept.
    ///
    /// # Errors
    /// Fails with the write queue's first error, if there was one; the buffer is still returned like every
    /// other.
    pub fn write(&self, offset: u64, buf: impl Into<WriteBuf>) -> Result<()> {
        self.shared.queue.push(Write { offset, buf: buf.into() }).map_err(|(write, error)| {
            self.shared.give_back(write, false);
            error
        })
    }

    /// Marks this point in the sequence of writes, and begins to make all earlier writes durable,
    /// without waiting.
    pub fn begin_barrier(&self) -> Barrier<'a> {
        Barrier { answer: self.shared.queue.push_sync(), shared: Arc::clone(&self.shared) }
    }

    /// Waits until all writes accepted so far are durable.
    ///
    /// # Errors
    /// Fails with the write queue's first error, of a write or of a sync.
    pub fn barrier(&self) -> Result<()> {
        self.begin_barrier().wait()
    }

    /// Waits until all writes are durable, and ends the write queue.
    ///
    /// # Errors
    /// Fails with the errors of [`barrier`](Self::barrier).
    pub fn finish(self) -> Result<Traffic> {
        self.barrier().map(|()| self.traffic())
    }

    /// The counts of this write queue so far.
    pub fn traffic(&self) -> Traffic {
        self.shared.queue.traffic()
    }

    /// The first error of the write queue, if there was one.
    pub fn error(&self) -> Option<Error> {
        self.shared.queue.error()
    }
}

/// Whether the kernel's engine is to be used for a file or disk. Threads make the writes that go
/// through the page cache, because many file systems make io_uring carry these out one after the
/// other (decision 0019).
fn is_for_the_kernel(engine: Engine, device: &FileDevice) -> bool {
    match engine {
        Engine::Auto => device.policy().is_direct(),
        Engine::Threads => false,
        Engine::Uring => true,
    }
}

impl Drop for WriteQueue<'_> {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

impl Barrier<'_> {
    /// Waits until all writes before this point are durable.
    ///
    /// # Errors
    /// Fails with the write queue's first error, of a write or of a sync.
    pub fn wait(self) -> Result<()> {
        self.answer.recv().unwrap_or_else(|_| {
            let over = || Error::new(Kind::Io, "a writer thread ended before all writes were done");
            Err(self.shared.queue.error().unwrap_or_else(over))
        })
    }
}

impl WriteQueueShared<'_> {
    /// The body of a thread that writes.
    fn work(&self, device: &dyn Device) {
        let _guard = self.on_panic();
        while let Some(job) = self.queue.next(WhenEmpty::Wait) {
            match job {
                Job::Write(write) => {
                    let result = device.write_at(write.offset, &write.buf);
                    self.written(write, result);
                }
                Job::Sync(answer) => self.synced(&answer, device.sync()),
            }
        }
    }

    /// The body of the one thread that submits the writes to the kernel.
    fn work_by_ring(&self, device: &Arc<FileDevice>, mut ring: Ring, depth: usize) {
        let _guard = self.on_panic();
        loop {
            while ring.in_flight() < depth {
                let is_idle = ring.in_flight() == 0;
                match self.queue.next(if is_idle { WhenEmpty::Wait } else { WhenEmpty::Look }) {
                    // The token is the offset, which is all that is to be known again.
                    Some(Job::Write(Write { offset, buf })) => {
                        ring.submit_write(device, offset, buf, offset);
                    }
                    Some(Job::Sync(answer)) => self.synced(&answer, device.sync()),
                    None if is_idle => return,
                    None => break,
                }
            }
            match ring.reap() {
                Ok(done) => {
                    self.written(Write { offset: done.token, buf: done.buf }, done.result);
                }
                // Writes in flight are lost with the ring; the write queue's error says so.
                Err(error) => return self.fail(error.at(device.place())),
            }
        }
    }

    fn written(&self, write: Write, result: Result<()>) {
        let is_written = result.is_ok();
        if let Err(error) = result {
            self.fail(error);
        }
        let bytes = if is_written { write.buf.len() as u64 } else { 0 };
        // Given back before it is counted: a caller that has passed a barrier has its buffers.
        self.give_back(write, is_written);
        self.queue.wrote(bytes);
    }

    fn synced(&self, answer: &crossbeam_channel::Sender<Result<()>>, result: Result<()>) {
        if let Err(error) = &result {
            self.fail(error.duplicate());
        }
        self.queue.synced();
        // A dropped barrier has no receiver.
        let _ = answer.send(result);
    }

    fn fail(&self, error: Error) {
        for job in self.queue.fail(error) {
            match job {
                Job::Write(write) => self.give_back(write, false),
                Job::Sync(answer) => drop(answer), // The waiting caller then asks for the error.
            }
        }
    }

    fn give_back(&self, write: Write, is_written: bool) {
        let Write { offset, buf } = write;
        (self.returned)(Returned { offset, buf, is_written });
    }

    /// A guard that ends the write queue when its thread panics, so that no caller waits forever.
    fn on_panic(&self) -> impl Drop + '_ {
        struct WorkerGuard<'g, 'a>(&'g WriteQueueShared<'a>);
        impl Drop for WorkerGuard<'_, '_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.fail(Error::new(Kind::Io, "a writer thread panicked"));
                }
            }
        }
        WorkerGuard(self)
    }
}

#[cfg(test)]
mod tests;
