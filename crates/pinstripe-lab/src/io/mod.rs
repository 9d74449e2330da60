//! The engine that the cases share: requests on files or devices, by threads or by io_uring, each
//! of them timed.
//!
//! The n-th request follows from the job alone, whichever thread carries it out: see [`Pattern`].
//! With a rate, times count from when a request was due, so that a stalled one does not hide those
//! behind it. Bytes go through [`pinstripe_io::device`], as those of the other verbs do. Not in
//! this module: repeats, statistics, and a judgement.

mod ahead;
mod ceph;
mod content;
mod each;
pub mod loadfile;
pub mod opmix;
mod pattern;
pub mod recorder;
mod stored;
mod target;
pub mod walkers;
mod work;

use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};

use crate::histogram::Histogram;

pub(crate) use ahead::AheadDevice;
pub(crate) use ceph::CephDevice;
pub use content::Content;
pub use each::at_once;
pub(crate) use each::run_each;
pub use pattern::{Direction, Order, Pattern, Request};
pub(crate) use stored::StoredFiles;
#[cfg(test)]
pub use stored::packs_of;
pub use target::{Area, Target};
pub use work::run;

/// The engine that carries out requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Threads, one request of each at a time (pread(2), pwrite(2)).
    Psync,
    /// Threads that leave several requests at a time to the kernel (io_uring(7)).
    Uring,
}

/// When and how it is waited until bytes are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syncing {
    /// The number of requests between syncs, of all threads together; `None` for never.
    pub every: Option<u64>,
    /// At the end, when all requests are done.
    pub at_end: bool,
    /// With all metadata (fsync(2)), or only what is needed to read the bytes (fdatasync(2)).
    pub is_full: bool,
}

impl Syncing {
    /// Never.
    pub const NEVER: Syncing = Syncing { every: None, at_end: false, is_full: false };
    /// At the end.
    pub(crate) const AT_END: Syncing = Syncing { every: None, at_end: true, is_full: false };
}

/// The job to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Which requests.
    pub pattern: Pattern,
    /// The engine that carries them out.
    pub engine: Engine,
    /// Threads.
    pub threads: usize,
    /// Requests of each thread at a time, with [`Engine::Uring`].
    pub depth: usize,
    /// It ends after this number of requests,
    pub requests: Option<u64>,
    /// or after this time, whichever comes first.
    pub time: Option<Duration>,
    /// When it is waited until bytes are durable.
    pub syncing: Syncing,
    /// The content written.
    pub content: Content,
    /// The seed of all chance.
    pub seed: u64,
    /// Requests per second, of all threads together; `None` for the full speed.
    pub rate: Option<f64>,
    /// The number of requests for which the kernel is advised ahead of each request, with
    /// [`Engine::Psync`].
    pub ahead: u64,
}

impl Job {
    /// A job of one thread, as fast as possible, once over the area, noise.
    pub fn new(pattern: Pattern) -> Self {
        Job {
            pattern,
            engine: Engine::Psync,
            threads: 1,
            depth: 1,
            requests: None,
            time: None,
            syncing: Syncing::AT_END,
            content: Content::Noise,
            seed: 1,
            rate: None,
            ahead: 0,
        }
    }

    fn check(&self, area: &Area) -> Result<()> {
        let refuse = |what: &str| Err(Error::new(Kind::Usage, what));
        let block = self.pattern.block_bytes;
        if block == 0 || self.threads == 0 || self.depth == 0 {
            return refuse("the block size, the threads and the depth must be at least 1");
        }
        if area.blocks(block) == 0 {
            return refuse("a file is smaller than one block");
        }
        if self.requests.is_none() && self.time.is_none() {
            return refuse("a job needs a number of requests or a time after which it ends");
        }
        if self.engine == Engine::Psync && self.depth > 1 {
            return refuse("a depth greater than 1 needs the engine uring").map_err(
                |error: Error| {
                    error.advice(
                        "with psync, each thread has one request at a time: use more threads",
                    )
                },
            );
        }
        Ok(())
    }
}

/// The outcome of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Done {
    /// From the first request to the end of the last, without the sync at the end.
    pub seconds: f64,
    /// The time of the sync at the end.
    pub sync_s: f64,
    /// Requests.
    pub requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Times of reads.
    pub reads: Histogram,
    /// Times of writes.
    pub writes: Histogram,
    /// Times of syncs, those at the end too.
    pub syncs: Histogram,
    /// Times from when a request was due, with a rate.
    pub responses: Histogram,
    /// Requests began again from the first.
    pub has_wrapped: bool,
}

impl Done {
    /// Bytes moved.
    pub fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }

    fn merge(&mut self, other: &Done) {
        self.requests += other.requests;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.syncs.merge(&other.syncs);
        self.responses.merge(&other.responses);
    }
}

#[cfg(test)]
mod tests;
