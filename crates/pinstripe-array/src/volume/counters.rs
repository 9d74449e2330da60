//! Counters of a running array.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Volume;
use crate::traffic::{MemberTraffic, Tally, WriteMethodCounts};

/// The counts since the array was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeCounters {
    /// The number of users' reads.
    pub reads: u64,
    /// Bytes that users read.
    pub read_bytes: u64,
    /// Writes by users.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Syncs by users.
    pub syncs: u64,
    /// Bytes that were written to the array and are not on the members yet.
    pub dirty_bytes: u64,
    /// Row pieces that were written, by method of parity.
    pub pieces: WriteMethodCounts,
    /// By slot, the traffic since the member was opened; `None` for absent members.
    pub members: Vec<Option<MemberTraffic>>,
}

/// Counts of users' requests.
pub(super) struct Counts {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
    tally: Arc<Tally>,
}

impl Counts {
    pub fn new(tally: Arc<Tally>) -> Self {
        let (reads, read_bytes, writes, written_bytes, syncs) = Default::default();
        Counts { reads, read_bytes, writes, written_bytes, syncs, tally }
    }

    pub fn read(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn wrote(&self, bytes: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn synced(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of bytes that users read and wrote.
    pub(crate) fn user_bytes(&self) -> u64 {
        let bytes = [&self.read_bytes, &self.written_bytes];
        bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }
}

impl Volume {
    /// The counters of the array so far.
    pub fn counters(&self) -> VolumeCounters {
        let (shared, get) = (&self.shared, |counter: &AtomicU64| counter.load(Ordering::Relaxed));
        VolumeCounters {
            reads: get(&shared.counts.reads),
            read_bytes: get(&shared.counts.read_bytes),
            writes: get(&shared.counts.writes),
            written_bytes: get(&shared.counts.written_bytes),
            syncs: get(&shared.counts.syncs),
            dirty_bytes: shared.array.dirty_bytes(),
            pieces: shared.counts.tally.snapshot(),
            members: shared.array.traffic(),
        }
    }
}
