//! The engine that cases share: it makes requests on files or devices, by threads or by io_uring,
//! and measures the time of each.
//!
//! The n-th request depends only on the job, not on the thread that carries it out: see
//! [`Pattern`]. If a rate is set, a request's time counts from when it was due, so that a stalled
//! request does not hide the delay of those after it. Bytes go through [`pinstripe_io::device`], as
//! in the other verbs. This module does not repeat jobs, compute statistics or judge results.

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
pub(crate) use target::suits_direct;
pub use target::{Area, Target};
pub use work::run;

/// The engine that carries out requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Threads that each make one request at a time (pread(2), pwrite(2)).
    Psync,
    /// Threads that leave several requests at a time to the kernel (io_uring(7)).
    Uring,
}

/// When and how the job waits until bytes are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syncing {
    /// The number of requests between syncs, counted over all threads; `None` for no syncs between
    /// requests.
    pub every: Option<u64>,
    /// Whether a sync is made at the end, when all requests are done.
    pub at_end: bool,
    /// Whether a sync includes all metadata (fsync(2)), or only what is needed to read the bytes
    /// (fdatasync(2)).
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
    /// The engine that carries out the requests.
    pub engine: Engine,
    /// Threads.
    pub threads: usize,
    /// The number of requests that each thread has in flight, with [`Engine::Uring`].
    pub depth: usize,
    /// The number of requests after which the job ends, unless its time elapses first.
    pub requests: Option<u64>,
    /// The time after which the job ends, unless its requests are done first.
    pub time: Option<Duration>,
    /// When the job waits until bytes are durable.
    pub syncing: Syncing,
    /// The content written.
    pub content: Content,
    /// The seed of all random choices.
    pub seed: u64,
    /// Requests per second, counted over all threads; `None` for the highest speed.
    pub rate: Option<f64>,
    /// The number of requests beyond the current one for which the kernel is advised, with
    /// [`Engine::Psync`].
    pub ahead: u64,
}

impl Job {
    /// A job of one thread that goes over the area once at the highest speed, with noise as
    /// content.
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
            return refuse("a job needs a number of requests, or a time after which the job ends");
        }
        if self.engine == Engine::Psync && self.depth > 1 {
            return refuse("only the engine uring supports a depth greater than 1").map_err(
                |error: Error| {
                    error.advice(
                        "with the engine psync, each thread has only one request in flight: use \
                         more threads",
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
    /// Seconds from the first request to the end of the last one, without the sync at the end.
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
    /// Times of syncs, including those at the end.
    pub syncs: Histogram,
    /// Response times, counted from when a request was due; empty without a rate.
    pub responses: Histogram,
    /// Whether the requests started again from the first block.
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
