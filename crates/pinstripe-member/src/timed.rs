//! A member whose reads are counted and timed.
//!
//! Invariant: every call has the same effect and result as the call of the inner member.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pinstripe_prefetch::Latencies;

use super::{
    BatchedMember, Caps, ExtentKind, ExtentName, ExtentWriter, KeptLonger, Member, PlannedStep,
    PrefetchHint, Replace, ServerOfMember, SharedMember, batched_of,
};
use pinstripe_base::clock::{monotonic, since};
use pinstripe_base::error::Result;

/// Measures the reads of one member while they run.
#[derive(Debug, Default)]
pub struct ReadMeter {
    in_flight: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
    latencies: Latencies,
}

/// The counts of a member's reads so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberReads {
    /// Reads that have not been answered yet.
    pub in_flight: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Reads that failed, which also count as answered.
    pub failed: u64,
    /// The median latency.
    pub median: Duration,
    /// The latency that 99 % of the answers did not exceed.
    pub percentile_99: Duration,
}

impl ReadMeter {
    /// Returns the counts of reads so far.
    pub fn reads(&self) -> MemberReads {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MemberReads {
            in_flight: of(&self.in_flight),
            reads: of(&self.reads),
            bytes: of(&self.bytes),
            failed: of(&self.failed),
            median: self.latencies.percentile(50),
            percentile_99: self.latencies.percentile(99),
        }
    }

    fn time(&self, bytes: usize, read: impl FnOnce() -> Result<()>) -> Result<()> {
        let flight = ReadInFlight::new(&self.in_flight);
        let began = monotonic();
        let answer = read();
        self.latencies.add(since(began));
        drop(flight);
        self.reads.fetch_add(1, Ordering::Relaxed);
        let (count, by) = match &answer {
            Ok(()) => (&self.bytes, bytes as u64),
            Err(_) => (&self.failed, 1),
        };
        count.fetch_add(by, Ordering::Relaxed);
        answer
    }
}

/// Decrements the count of reads in flight when dropped, however the read ended.
struct ReadInFlight<'m>(&'m AtomicU64);

impl<'m> ReadInFlight<'m> {
    fn new(in_flight: &'m AtomicU64) -> Self {
        in_flight.fetch_add(1, Ordering::Relaxed);
        ReadInFlight(in_flight)
    }
}

impl Drop for ReadInFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A member that counts and times its reads.
pub struct TimedMember {
    inner: SharedMember,
    meter: Arc<ReadMeter>,
}

impl TimedMember {
    /// Wraps a member with a meter.
    pub fn new(inner: SharedMember) -> Self {
        TimedMember { inner, meter: Arc::default() }
    }

    /// The meter.
    pub fn meter(&self) -> Arc<ReadMeter> {
        Arc::clone(&self.meter)
    }
}

impl Member for TimedMember {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        self.inner.create(name, replace)
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        self.inner.put(name, bytes)
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.meter.time(buf.len(), || self.inner.read_at(name, offset, buf))
    }

    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
        self.inner.read_at_hand(name, offset, buf)
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        self.inner.len(name)
    }

    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        self.inner.list(kind)
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        self.inner.delete(name)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn sweep(&self) -> Result<u64> {
        self.inner.sweep()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    fn place(&self) -> &Path {
        self.inner.place()
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        self.inner.batched().map(|_| self as &dyn BatchedMember)
    }
}

impl BatchedMember for TimedMember {
    fn put_ahead(&self, name: ExtentName, bytes: &[u8]) {
        batched_of(&self.inner).put_ahead(name, bytes);
    }

    fn plan(&self, steps: &[PlannedStep], members: usize) {
        batched_of(&self.inner).plan(steps, members);
    }

    fn list_next(&self, wanted: PrefetchHint, with_content: bool) {
        batched_of(&self.inner).list_next(wanted, with_content);
    }

    fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut span = Vec::new();
        self.meter.time(bytes, || {
            span = batched_of(&self.inner).read_span(name, offset, bytes)?;
            Ok(())
        })?;
        Ok(span)
    }

    fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>> {
        batched_of(&self.inner).read_whole(names, most_bytes)
    }

    fn names(&self, kind: ExtentKind) -> Result<Vec<[u8; 16]>> {
        batched_of(&self.inner).names(kind)
    }

    fn prefetch(&self, wanted: &[PrefetchHint]) {
        batched_of(&self.inner).prefetch(wanted);
    }

    fn open_ahead(&self, names: &[ExtentName]) {
        batched_of(&self.inner).open_ahead(names);
    }

    fn keep_longer(&self, names: &[ExtentName]) -> Result<KeptLonger> {
        batched_of(&self.inner).keep_longer(names)
    }

    fn latency(&self) -> Option<Duration> {
        batched_of(&self.inner).latency()
    }

    fn served(&self) -> Option<ServerOfMember> {
        batched_of(&self.inner).served()
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryMember;
    use super::*;
    use pinstripe_base::id::SetId;

    #[test]
    fn a_metered_member_is_a_member() {
        crate::conformance::run(&|| {
            Box::new(TimedMember::new(Arc::new(MemoryMember::new("memory"))))
        });
    }

    #[test]
    fn reads_are_counted_with_their_outcome() {
        let member = TimedMember::new(Arc::new(MemoryMember::new("memory")));
        let (name, other) = (ExtentName::pack(SetId([1; 16])), ExtentName::pack(SetId([2; 16])));
        member.put(name, b"content").unwrap();
        let meter = member.meter();
        assert_eq!(meter.reads(), MemberReads::default());
        member.read_at(name, 3, &mut [0; 4]).unwrap();
        assert!(member.read_at(other, 0, &mut [0; 4]).is_err());
        let MemberReads { in_flight, reads, bytes, failed, median, percentile_99 } = meter.reads();
        assert_eq!((in_flight, reads, bytes, failed), (0, 2, 4, 1));
        assert!(!median.is_zero() && median <= percentile_99);
    }

    #[test]
    fn a_read_is_in_flight_until_it_ends_or_panics() {
        let meter = ReadMeter::default();
        let look = || {
            assert_eq!(meter.reads().in_flight, 1);
            Ok(())
        };
        meter.time(1, look).unwrap();
        let panics = std::panic::AssertUnwindSafe(|| {
            let _ = meter.time(1, || std::panic::resume_unwind(Box::new("on purpose")));
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(meter.reads().in_flight, 0);
    }
}
