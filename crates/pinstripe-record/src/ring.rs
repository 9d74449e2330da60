//! One locked arena of memory that contains rings; each ring has one producer, and a consumer for
//! each copy that is written.
//!
//! The producer never blocks, never allocates and makes no system call. Frames that do not fit are
//! lost and become a gap. The gap's place and length are passed along with the bytes, so that the
//! consumer inserts silence of exactly that length there.
//!
//! Invariants: `tail <= head <= tail + size` for each consumer that reads. A gap is visible to
//! consumers before any byte after it. Memory between a tail and the head is only read; all other
//! memory is written by the producer only.

mod arena;
mod arrivals;
mod beginning;
mod checked;
mod paced;

use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};

use crate::limits::GAPS_WAITING;

pub use arena::Arena;
use arrivals::Arrivals;
pub(crate) use beginning::{InputBeginning, TakeZero};
use checked::{AtomicBool, AtomicI64, AtomicU64, Ordering, SHOWS, Touches};
pub(crate) use paced::PacedConsumer;

/// The most consumers of one ring: a copy and its mirror.
pub(crate) const CONSUMERS: usize = 2;
/// The value of the tail of a consumer that does not read any more.
const DETACHED: u64 = u64::MAX;

/// A value with a cache line of its own, because producer and consumer write at the same time.
#[repr(align(128))]
#[derive(Default)]
struct CacheLine<T>(T);

#[derive(Default)]
struct GapSlot {
    at: AtomicU64,
    bytes: AtomicU64,
}

/// One ring. A ring, whose counters are bytes since the beginning.
pub struct Ring {
    arena: Arc<Arena>,
    offset: usize,
    size: u64,
    frame_bytes: u64,
    head: CacheLine<AtomicU64>,
    tails: [CacheLine<AtomicU64>; CONSUMERS],
    gaps: Box<[GapSlot; GAPS_WAITING]>,
    gap_head: CacheLine<AtomicU64>,
    gap_tails: [CacheLine<AtomicU64>; CONSUMERS],
    peak: AtomicU64,
    lost_bytes: AtomicU64,
    /// Bytes that the input reported as missing.
    missing_bytes: AtomicU64,
    overruns: AtomicU64,
    is_ended: AtomicBool,
    /// The place at which the take begins; the greatest number while that is unknown.
    origin: AtomicI64,
    /// The end of the stream for the producer; bytes beyond it are dropped.
    end: AtomicU64,
    arrivals: Arrivals,
    touches: Touches,
}

impl Ring {
    /// Creates a ring of `size` bytes (a power of two) at `offset` in the arena, and its producer.
    /// The rings of an arena must not overlap.
    ///
    /// # Errors
    /// [`Kind::Usage`] if the size is not a power of two or the ring is not within the arena.
    pub fn new(
        arena: &Arc<Arena>,
        offset: usize,
        size: u64,
        frame_bytes: u64,
        consumers: usize,
    ) -> Result<(Arc<Ring>, RingProducer)> {
        let end = (offset as u64).checked_add(size);
        let is_inside = end.is_some_and(|end| end <= arena.bytes as u64);
        if !size.is_power_of_two() || !is_inside || frame_bytes == 0 || frame_bytes * 4 > size {
            return Err(Error::new(Kind::Usage, "a ring buffer cannot have this size")
                .expected("a power of two, and at least four frames", size));
        }
        let tail =
            |number| CacheLine(AtomicU64::new(if number < consumers { 0 } else { DETACHED }));
        let ring = Arc::new(Ring {
            arena: Arc::clone(arena),
            offset,
            size,
            frame_bytes,
            head: CacheLine::default(),
            tails: std::array::from_fn(tail),
            gaps: Box::new(std::array::from_fn(|_| GapSlot::default())),
            gap_head: CacheLine::default(),
            gap_tails: std::array::from_fn(tail),
            peak: AtomicU64::new(0),
            lost_bytes: AtomicU64::new(0),
            missing_bytes: AtomicU64::new(0),
            overruns: AtomicU64::new(0),
            is_ended: AtomicBool::new(false),
            origin: AtomicI64::new(0),
            end: AtomicU64::new(u64::MAX),
            arrivals: Arrivals::default(),
            touches: Touches::new(size),
        });
        let producer = RingProducer {
            ring: Arc::clone(&ring),
            open_gap_bytes: 0,
            beginning: None,
            has_begun: false,
        };
        Ok((ring, producer))
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The most bytes that were in the ring at any time.
    pub fn peak_bytes(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// The number of bytes in the ring.
    pub(crate) fn fill_bytes(&self) -> u64 {
        let head = self.head.0.load(Ordering::Acquire);
        head - self.slowest(&self.tails, head)
    }

    /// The number of bytes that were lost because the ring was full.
    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes.load(Ordering::Relaxed)
    }

    /// The number of times that the ring was full.
    pub fn overruns(&self) -> u64 {
        self.overruns.load(Ordering::Relaxed)
    }

    /// The number of bytes that the producer has produced, including lost ones.
    pub(crate) fn made_bytes(&self) -> u64 {
        self.head.0.load(Ordering::Acquire) + self.lost_bytes() + self.missing_bytes()
    }

    /// The number of bytes of the take that the producer has produced, including lost ones; 0
    /// before the take begins.
    pub(crate) fn produced_bytes(&self) -> u64 {
        self.place_in_take(self.made_bytes())
    }

    /// The number of bytes of the take before a place; the place is counted from the first byte of
    /// the ring.
    pub(crate) fn place_in_take(&self, place: u64) -> u64 {
        (place as i64).saturating_sub(self.origin()).max(0) as u64
    }

    /// The place, counted from the first byte of the ring, that is after this number of bytes of
    /// the take.
    pub fn place_of(&self, bytes_of_take: u64) -> u64 {
        (bytes_of_take as i64).saturating_add(self.origin()).max(0) as u64
    }

    /// Records the current time, to determine the ages of bytes; called by the writer, and for
    /// requests of the lag.
    pub(crate) fn note_time(&self, now: Duration) {
        self.arrivals.note(now, || self.made_bytes());
    }

    /// The latest known moment at which no byte after a place had arrived.
    pub(crate) fn all_before(&self, place: u64, now: Duration) -> Duration {
        match self.made_bytes() <= place {
            true => now,
            false => self.arrivals.all_before(place).min(now),
        }
    }

    /// The place at which the take begins, as it was set.
    pub fn origin(&self) -> i64 {
        self.origin.load(Ordering::Acquire)
    }

    /// Sets the place at which the take begins: negative if the input began later than other
    /// inputs; the greatest number while this is unknown.
    pub(crate) fn set_origin(&self, bytes: i64) {
        self.origin.store(bytes, Ordering::Release);
    }

    /// Sets the most bytes that the producer may produce.
    fn end_at(&self, bytes: u64) {
        self.end.store(bytes, Ordering::Release);
    }

    /// Whether the producer has produced all its bytes.
    pub fn is_complete(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
            || self.made_bytes() >= self.end.load(Ordering::Acquire)
    }

    /// The number of bytes that the input skipped because they were missing.
    pub(crate) fn missing_bytes(&self) -> u64 {
        self.missing_bytes.load(Ordering::Relaxed)
    }

    /// The tail of the slowest consumer; `head` if no consumer reads.
    fn slowest(&self, tails: &[CacheLine<AtomicU64>; CONSUMERS], head: u64) -> u64 {
        let tails = tails.iter().map(|it| it.0.load(Ordering::Acquire));
        tails.filter(|tail| *tail != DETACHED).min().unwrap_or(head)
    }

    fn at(&self, count: u64) -> *mut u8 {
        let index = self.offset + (count & (self.size - 1)) as usize;
        debug_assert!(index < self.arena.bytes, "a ring lies within its arena");
        // SAFETY: `new` checked that offset + size is within the arena.
        unsafe { self.arena.base.as_ptr().add(index) }
    }
}

/// The input's side of a ring.
pub struct RingProducer {
    ring: Arc<Ring>,
    /// Bytes that were lost since the last byte that fitted.
    open_gap_bytes: u64,
    /// Where the first bytes are in the take, if not at its beginning.
    beginning: Option<Arc<InputBeginning>>,
    has_begun: bool,
}

impl RingProducer {
    /// Sets the object that determines the place of the first bytes in the take. The function must
    /// be called before the first bytes are stored.
    pub(crate) fn begin_by(&mut self, beginning: &Arc<InputBeginning>) {
        self.beginning = Some(Arc::clone(beginning));
    }

    /// Accounts for the next `bytes` bytes, and returns how many of them may still be produced.
    fn admit(&mut self, bytes: u64) -> u64 {
        if !self.has_begun && bytes > 0 {
            self.has_begun = true;
            self.beginning.iter().for_each(|it| it.fix(&self.ring, bytes));
        }
        match self.ring.end.load(Ordering::Relaxed) {
            u64::MAX => bytes,
            end => bytes.min(end.saturating_sub(self.ring.made_bytes())),
        }
    }

    /// Stores complete frames; frames that do not fit are lost. Never blocks.
    pub fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..self.admit(bytes.len() as u64) as usize];
        let ring = Arc::clone(&self.ring);
        let head = ring.head.0.load(Ordering::Relaxed);
        let free = ring.size - (head - ring.slowest(&ring.tails, head));
        if self.open_gap_bytes > 0 {
            // A ring that is still nearly full would only make many short gaps out of one.
            let is_roomy = free >= (ring.size / 4).max((bytes.len() as u64).min(ring.size));
            if !is_roomy || !self.close_gap(head) {
                return self.lose(bytes.len() as u64);
            }
        }
        debug_assert!(free <= ring.size, "no consumer is more than a ring behind");
        debug_assert_eq!(bytes.len() as u64 % ring.frame_bytes, 0, "frames are whole");
        let fits = (bytes.len() as u64).min(free - free % ring.frame_bytes);
        debug_assert!(
            fits <= free && fits.is_multiple_of(ring.frame_bytes),
            "what fits is whole frames"
        );
        self.copy(head, &bytes[..fits as usize]);
        let fill = ring.size - free + fits;
        if fill > ring.peak.load(Ordering::Relaxed) {
            ring.peak.store(fill, Ordering::Relaxed);
        }
        ring.head.0.store(head + fits, SHOWS);
        if fits < bytes.len() as u64 {
            ring.overruns.fetch_add(1, Ordering::Relaxed);
            self.lose(bytes.len() as u64 - fits);
        }
    }

    /// The number of bytes that fit now, in complete frames; for inputs that can wait.
    pub fn room(&self) -> u64 {
        let ring = &*self.ring;
        let head = ring.head.0.load(Ordering::Relaxed);
        let free = ring.size - (head - ring.slowest(&ring.tails, head));
        free - free % ring.frame_bytes
    }

    /// The size of the ring in bytes.
    pub fn ring_bytes(&self) -> u64 {
        self.ring.size
    }

    /// Skips this number of bytes of complete frames, as if they had not fitted, because the input
    /// knows that they are missing.
    pub fn skip(&mut self, bytes: u64) {
        let bytes = self.admit(bytes);
        self.open_gap_bytes += bytes;
        self.ring.missing_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Passes the open gap to the consumers if it has reached this length, because no data may
    /// follow for a while.
    pub(crate) fn report_gap(&mut self, bytes: u64) {
        if self.open_gap_bytes >= bytes {
            let head = self.ring.head.0.load(Ordering::Relaxed);
            self.close_gap(head);
        }
    }

    fn copy(&self, head: u64, bytes: &[u8]) {
        let ring = &*self.ring;
        debug_assert!(bytes.len() as u64 <= ring.size, "no more is copied than the ring holds");
        ring.touches.write(head, bytes.len() as u64);
        let first = bytes.len().min((ring.size - (head & (ring.size - 1))) as usize);
        // SAFETY: `push` checked that there is room for all of it, so no consumer reads there; the
        // first part ends where the ring ends, and the second begins at its beginning.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), ring.at(head), first);
            let rest = &bytes[first..];
            std::ptr::copy_nonoverlapping(rest.as_ptr(), ring.at(head + first as u64), rest.len());
        }
    }

    fn lose(&mut self, bytes: u64) {
        self.open_gap_bytes += bytes;
        self.ring.lost_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Passes the open gap before `head` to the consumers; returns false if too many gaps are
    /// queued.
    fn close_gap(&mut self, head: u64) -> bool {
        let ring = &*self.ring;
        let number = ring.gap_head.0.load(Ordering::Relaxed);
        if number - ring.slowest(&ring.gap_tails, number) >= GAPS_WAITING as u64 {
            return false;
        }
        debug_assert!(self.open_gap_bytes > 0, "a gap has a length");
        let slot = &ring.gaps[(number % GAPS_WAITING as u64) as usize];
        slot.at.store(head, Ordering::Relaxed);
        slot.bytes.store(self.open_gap_bytes, Ordering::Relaxed);
        ring.gap_head.0.store(number + 1, Ordering::Release);
        self.open_gap_bytes = 0;
        true
    }
}

impl Drop for RingProducer {
    /// Ends the stream. A thread that must not wait may not call this: while a consumer reads, it
    /// waits if the queue of gaps is full.
    fn drop(&mut self) {
        let head = self.ring.head.0.load(Ordering::Relaxed);
        while self.open_gap_bytes > 0 && !self.close_gap(head) {
            checked::yield_now();
        }
        self.ring.is_ended.store(true, Ordering::Release);
    }
}

/// What a consumer finds at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Bytes that can be read.
    Bytes {
        /// How many.
        bytes: u64,
        /// Whether a gap or the end follows.
        all: bool,
    },
    /// A gap: the value is the number of missing bytes.
    Gap(u64),
    /// The stream has ended.
    End,
}

/// The consumer's side of a ring, for one copy.
pub(crate) struct RingConsumer {
    ring: Arc<Ring>,
    number: usize,
}

impl RingConsumer {
    /// Creates the consumer with this number. Each consumer number may be used only once.
    pub fn new(ring: Arc<Ring>, number: usize) -> Self {
        RingConsumer { ring, number }
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    fn tail(&self) -> &AtomicU64 {
        &self.ring.tails[self.number].0
    }

    fn gap_tail(&self) -> &AtomicU64 {
        &self.ring.gap_tails[self.number].0
    }

    /// Returns what the consumer finds next: bytes, a gap, the end, or nothing yet.
    pub fn peek(&self) -> Found {
        let ring = &*self.ring;
        // In this order: what was put in before the end is seen when the end is, and a gap is seen
        // when a byte behind it is.
        let is_ended = ring.is_ended.load(Ordering::Acquire);
        let head = ring.head.0.load(Ordering::Acquire);
        let tail = self.tail().load(Ordering::Relaxed);
        let number = self.gap_tail().load(Ordering::Relaxed);
        if number < ring.gap_head.0.load(Ordering::Acquire) {
            let slot = &ring.gaps[(number % GAPS_WAITING as u64) as usize];
            let at = slot.at.load(Ordering::Relaxed);
            debug_assert!(at >= tail, "a gap is not behind what was read");
            return match at - tail {
                0 => Found::Gap(slot.bytes.load(Ordering::Relaxed)),
                bytes => Found::Bytes { bytes, all: true },
            };
        }
        debug_assert!(tail <= head && head - tail <= ring.size, "tail <= head <= tail + size");
        match head - tail {
            0 if is_ended => Found::End,
            bytes => Found::Bytes { bytes, all: is_ended },
        }
    }

    /// Returns at most `most` of the available bytes, as far as they are contiguous.
    pub fn bytes(&self, most: u64) -> &[u8] {
        let ring = &*self.ring;
        let tail = self.tail().load(Ordering::Relaxed);
        let head = ring.head.0.load(Ordering::Acquire);
        let to_end = ring.size - (tail & (ring.size - 1));
        let count = most.min(head - tail).min(to_end);
        debug_assert!(head - tail <= ring.size, "tail <= head <= tail + size");
        ring.touches.read(tail, count);
        // SAFETY: between tail and head the producer does not write, and only this consumer moves
        // this tail, for which it needs `&mut self`.
        unsafe { std::slice::from_raw_parts(ring.at(tail), count as usize) }
    }

    /// Releases this number of bytes after they were read.
    pub fn take(&mut self, bytes: u64) {
        let tail = self.tail().load(Ordering::Relaxed);
        debug_assert!(tail + bytes <= self.ring.head.0.load(Ordering::Relaxed), "it was put in");
        self.tail().store(tail + bytes, Ordering::Release);
    }

    /// Advances past the gap that was found.
    pub(crate) fn take_gap(&mut self) {
        let number = self.gap_tail().load(Ordering::Relaxed);
        self.gap_tail().store(number + 1, Ordering::Release);
    }

    /// Stops reading; the ring no longer waits for this consumer.
    pub fn detach(&mut self) {
        self.tail().store(DETACHED, Ordering::Release);
        self.gap_tail().store(DETACHED, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
