//! A member whose reads are counted and timed.
//!
//! Invariant: it is the inner member, call for call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pinstripe_prefetch::latencies::Latencies;

use super::{ExtentName, Member, SharedMember};
use pinstripe_base::clock::{monotonic, since};
use pinstripe_base::error::Result;

/// The reads of one member, as they go on.
#[derive(Debug, Default)]
pub struct ReadMeter {
    in_flight: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
    latencies: Latencies,
}

/// The reads of one member so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberReads {
    /// Reads that have no answer yet.
    pub in_flight: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Reads that were an error; also counted among the answered ones.
    pub failed: u64,
    /// The time within which half of the answers came.
    pub median: Duration,
    /// The time within which 99 % of the answers came.
    pub percentile_99: Duration,
}

impl ReadMeter {
    /// The reads so far.
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
        let flight = Flight::new(&self.in_flight);
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

/// Counts a read out again, however it ends.
struct Flight<'m>(&'m AtomicU64);

impl<'m> Flight<'m> {
    fn new(in_flight: &'m AtomicU64) -> Self {
        in_flight.fetch_add(1, Ordering::Relaxed);
        Flight(in_flight)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A member with a meter.
pub struct TimedMember {
    inner: SharedMember,
    meter: Arc<ReadMeter>,
}

impl TimedMember {
    /// Puts a meter before a member.
    pub fn new(inner: SharedMember) -> Self {
        TimedMember { inner, meter: Arc::default() }
    }

    /// The meter.
    pub fn meter(&self) -> Arc<ReadMeter> {
        Arc::clone(&self.meter)
    }
}

impl Member for TimedMember {
    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.meter.time(buf.len(), || self.inner.read_at(name, offset, buf))
    }

    fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut span = Vec::new();
        self.meter.time(bytes, || {
            span = self.inner.read_span(name, offset, bytes)?;
            Ok(())
        })?;
        Ok(span)
    }

    // Reads at hand are not timed: where one succeeds, no caller waited.
    crate::forward_member!(
        inner: create, put, put_ahead, read_at_hand, len, read_whole, list, names, foresee,
        open_ahead, delete, keep_longer, sync, sweep, caps, latency, place,
    );
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

    /// By it readers choose among far members, behind a meter as well.
    #[test]
    fn how_late_a_member_answers_is_seen_through_the_meter() {
        struct Late(MemoryMember);
        impl Member for Late {
            fn latency(&self) -> Option<Duration> {
                Some(Duration::from_millis(80))
            }
            crate::forward_member!(
                0: create, put, read_at, len, list, delete, sync, sweep, caps, place,
            );
        }
        let member = TimedMember::new(Arc::new(Late(MemoryMember::new("far"))));
        assert_eq!(member.latency(), Some(Duration::from_millis(80)));
    }
}
