//! Counts bytes moved to and from a member, and measures the time of the transfers; the counts can
//! be read at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The areas of a member that transfers go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MemberArea {
    /// Data and parity.
    Data = 0,
    /// Records of the log.
    Log = 1,
    /// Checksums, regions, superblocks.
    Tables = 2,
}

/// The number of classes of latencies: class n counts transfers of at least 2^(n-1) and less than
/// 2^n microseconds, the last class all longer ones.
pub(crate) const LATENCY_CLASSES: usize = 24;

/// Times of one kind of transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    /// The number.
    pub count: u64,
    /// Nanoseconds in all.
    pub sum_ns: u64,
    /// Nanoseconds, the longest.
    pub max_ns: u64,
    /// See [`LATENCY_CLASSES`].
    pub classes: [u64; LATENCY_CLASSES],
}

/// Bytes moved to and from one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemberTraffic {
    /// Bytes read, by [`MemberArea`].
    pub read_bytes: [u64; 3],
    /// Bytes written, by [`MemberArea`].
    pub written_bytes: [u64; 3],
    /// The times of reads of data; zero without a timer.
    pub reads: Latency,
    /// Writes of data.
    pub writes: Latency,
    /// Syncs.
    pub syncs: Latency,
}

/// A clock: returns the time since some fixed moment.
pub(crate) type Timer = fn() -> Duration;

#[derive(Debug, Default)]
pub(super) struct Gauge {
    count: AtomicU64,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
    classes: [AtomicU64; LATENCY_CLASSES],
}

/// The counters behind a [`MemberTraffic`].
#[derive(Debug, Default)]
pub(super) struct Traffic {
    read_bytes: [AtomicU64; 3],
    written_bytes: [AtomicU64; 3],
    pub reads: Gauge,
    pub writes: Gauge,
    pub syncs: Gauge,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Gauge {
    /// Runs a function and records how long it took, if there is a timer.
    pub fn measure<T>(&self, timer: Option<&Timer>, act: impl FnOnce() -> T) -> T {
        let Some(timer) = timer else { return act() };
        let before = timer();
        let result = act();
        self.note(timer().saturating_sub(before));
        result
    }

    fn note(&self, took: Duration) {
        let ns = took.as_nanos() as u64;
        let class = (u64::BITS - (ns / 1000).leading_zeros()) as usize;
        add(&self.count, 1);
        add(&self.sum_ns, ns);
        add(&self.classes[class.min(LATENCY_CLASSES - 1)], 1);
        if get(&self.max_ns) < ns {
            self.max_ns.fetch_max(ns, Ordering::Relaxed);
        }
    }

    fn snapshot(&self) -> Latency {
        Latency {
            count: get(&self.count),
            sum_ns: get(&self.sum_ns),
            max_ns: get(&self.max_ns),
            classes: std::array::from_fn(|class| get(&self.classes[class])),
        }
    }
}

impl Traffic {
    pub fn read(&self, part: MemberArea, bytes: usize) {
        add(&self.read_bytes[part as usize], bytes as u64);
    }

    pub fn written(&self, part: MemberArea, bytes: usize) {
        add(&self.written_bytes[part as usize], bytes as u64);
    }

    pub fn snapshot(&self) -> MemberTraffic {
        MemberTraffic {
            read_bytes: std::array::from_fn(|part| get(&self.read_bytes[part])),
            written_bytes: std::array::from_fn(|part| get(&self.written_bytes[part])),
            reads: self.reads.snapshot(),
            writes: self.writes.snapshot(),
            syncs: self.syncs.snapshot(),
        }
    }
}

/// The number of row pieces that were written, by method of parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteMethodCounts {
    /// All data was new, so nothing was read.
    pub full: u64,
    /// Parity was changed by the difference.
    pub read_modify_write: u64,
    /// Parity was computed from all data.
    pub reconstruct_write: u64,
    /// Pieces with copies, or without parity.
    pub plain: u64,
}

/// The counters behind [`Pieces`].
#[derive(Debug, Default)]
pub struct Tally([AtomicU64; 4]);

impl Tally {
    pub(super) fn count(&self, method: super::plan::Method) {
        use super::plan::Method::*;
        let number = match method {
            Full => 0,
            ReadModifyWrite => 1,
            Reconstruct => 2,
            MirrorCopy | Plain => 3,
            Read | Rebuild => return,
        };
        add(&self.0[number], 1);
    }

    /// The counts so far, by method.
    pub fn snapshot(&self) -> WriteMethodCounts {
        let [full, read_modify_write, reconstruct_write, plain] = self.0.each_ref().map(get);
        WriteMethodCounts { full, read_modify_write, reconstruct_write, plain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_in_the_class_below_their_power_of_two() {
        let gauge = Gauge::default();
        for (us, class) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1 << 40, 23)] {
            let before = gauge.snapshot().classes[class];
            gauge.note(Duration::from_micros(us));
            assert_eq!(gauge.snapshot().classes[class], before + 1, "{us} us");
        }
        let told = gauge.snapshot();
        assert_eq!((told.count, told.max_ns), (7, (1 << 40) * 1000));
    }
}
