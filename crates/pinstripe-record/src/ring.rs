//! One locked arena of memory, and rings in it: one producer each, and a consumer for each copy
//! that is written.
//!
//! The producer never blocks, never allocates and makes no system call. Frames that do not fit are
//! lost and become a gap: its place and length are passed along with the bytes, so that the
//! consumer puts silence of exactly that length there.
//!
//! Invariants: `tail <= head <= tail + size` for each consumer that reads. A gap is visible before
//! any byte behind it. Memory between a tail and the head is only read, all other memory is
//! written by the producer only.

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

/// Consumers of one ring at most: a copy and its mirror.
pub(crate) const CONSUMERS: usize = 2;
/// The tail of a consumer that does not read any more.
const DETACHED: u64 = u64::MAX;

/// A value with a cache line for itself: producer and consumer write concurrently.
#[repr(align(128))]
#[derive(Default)]
struct CacheLine<T>(T);

#[derive(Default)]
struct GapSlot {
    at: AtomicU64,
    bytes: AtomicU64,
}

/// One ring. Counts are bytes since the beginning.
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
    /// Where the take begins; before that is known the greatest number.
    origin: AtomicI64,
    /// The end of the stream for the producer; bytes beyond it are dropped.
    end: AtomicU64,
    arrivals: Arrivals,
    touches: Touches,
}

impl Ring {
    /// A ring of `size` bytes, a power of two, at `offset` of the arena, and its producer. The
    /// rings of an arena must not overlap.
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
            return Err(Error::new(Kind::Usage, "an impossible ring size")
                .expected("a power of two, at least four frames", size));
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

    /// The most that was ever in it, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// The fill level, in bytes.
    pub(crate) fn fill_bytes(&self) -> u64 {
        let head = self.head.0.load(Ordering::Acquire);
        head - self.slowest(&self.tails, head)
    }

    /// Bytes that were lost because it was full.
    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes.load(Ordering::Relaxed)
    }

    /// The number of times that it became too full.
    pub fn overruns(&self) -> u64 {
        self.overruns.load(Ordering::Relaxed)
    }

    /// Bytes that the producer has made, lost ones included.
    pub(crate) fn made_bytes(&self) -> u64 {
        self.head.0.load(Ordering::Acquire) + self.lost_bytes() + self.missing_bytes()
    }

    /// Bytes of the take that the producer has made, including lost ones; 0 before the take begins.
    pub(crate) fn produced_bytes(&self) -> u64 {
        self.place_in_take(self.made_bytes())
    }

    /// Bytes of the take in front of a place, which is counted from the first byte of the ring.
    pub(crate) fn place_in_take(&self, place: u64) -> u64 {
        (place as i64).saturating_sub(self.origin()).max(0) as u64
    }

    /// The inverse: the place, counted from the first byte of the ring, of a number of bytes of the
    /// take.
    pub fn place_of(&self, bytes_of_take: u64) -> u64 {
        (bytes_of_take as i64).saturating_add(self.origin()).max(0) as u64
    }

    /// Notes the current time, for the ages of the bytes: called by the writer, and for requests of
    /// the lag.
    pub(crate) fn note_time(&self, now: Duration) {
        self.arrivals.note(now, || self.made_bytes());
    }

    /// The latest known moment at which no byte behind a place had arrived.
    pub(crate) fn all_before(&self, place: u64, now: Duration) -> Duration {
        match self.made_bytes() <= place {
            true => now,
            false => self.arrivals.all_before(place).min(now),
        }
    }

    /// Where the take begins, as it was said.
    pub fn origin(&self) -> i64 {
        self.origin.load(Ordering::Acquire)
    }

    /// Sets the place where the take begins: before the first byte if an input came later than
    /// others; the greatest number while this is unknown.
    pub(crate) fn set_origin(&self, bytes: i64) {
        self.origin.store(bytes, Ordering::Release);
    }

    /// Sets the most bytes that the producer makes.
    fn end_at(&self, bytes: u64) {
        self.end.store(bytes, Ordering::Release);
    }

    /// Whether the producer has made all that it makes.
    pub fn is_complete(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
            || self.made_bytes() >= self.end.load(Ordering::Acquire)
    }

    /// Bytes that the input skipped because they were missing.
    pub(crate) fn missing_bytes(&self) -> u64 {
        self.missing_bytes.load(Ordering::Relaxed)
    }

    /// The count of the consumer that is furthest behind; `head` if no consumer reads.
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

/// The side of an input.
pub struct RingProducer {
    ring: Arc<Ring>,
    /// Bytes that were lost since the last one that fitted.
    open_gap_bytes: u64,
    /// Where the take has its first bytes, if not at its own beginning.
    beginning: Option<Arc<InputBeginning>>,
    has_begun: bool,
}

impl RingProducer {
    /// Sets the object that fixes the position of the first bytes in the take. Must be called
    /// before the first bytes.
    pub(crate) fn begin_by(&mut self, beginning: &Arc<InputBeginning>) {
        self.beginning = Some(Arc::clone(beginning));
    }

    /// Admits the next `bytes` bytes, and returns how many of them are still to be made.
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

    /// Puts in whole frames; what does not fit is lost. Never blocks.
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

    /// Bytes that fit now, in whole frames: for inputs that can wait.
    pub fn room(&self) -> u64 {
        let ring = &*self.ring;
        let head = ring.head.0.load(Ordering::Relaxed);
        let free = ring.size - (head - ring.slowest(&ring.tails, head));
        free - free % ring.frame_bytes
    }

    /// The size of the ring.
    pub fn ring_bytes(&self) -> u64 {
        self.ring.size
    }

    /// Skips this many bytes of complete frames, as if they had not fitted: the input knows that
    /// they are missing.
    pub fn skip(&mut self, bytes: u64) {
        let bytes = self.admit(bytes);
        self.open_gap_bytes += bytes;
        self.ring.missing_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Passes the open gap to the consumers once it has this length: no data may follow for a
    /// while.
    pub(crate) fn tell_gap(&mut self, bytes: u64) {
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

    /// Passes the open gap in front of `head` to the consumers; false if too many gaps are queued.
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
    /// The end of the stream. Not for a thread that must not wait: a full queue of gaps is waited
    /// for as long as a consumer reads.
    fn drop(&mut self) {
        let head = self.ring.head.0.load(Ordering::Relaxed);
        while self.open_gap_bytes > 0 && !self.close_gap(head) {
            checked::yield_now();
        }
        self.ring.is_ended.store(true, Ordering::Release);
    }
}

/// What a consumer can find at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// This many bytes can be read; `all` if nothing more comes before a gap or the end.
    Bytes {
        /// How many.
        bytes: u64,
        /// Whether a gap or the end follows.
        all: bool,
    },
    /// This many bytes are missing here.
    Gap(u64),
    /// The stream is at its end.
    End,
}

/// The side of one copy.
pub(crate) struct RingConsumer {
    ring: Arc<Ring>,
    number: usize,
}

impl RingConsumer {
    /// The consumer with this number. Each number may have only one consumer.
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

    /// What the consumer finds next: bytes, a gap, the end, or nothing yet.
    pub fn look(&self) -> Found {
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

    /// Up to `most` of the available bytes, as far as they are contiguous.
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

    /// Releases this many bytes that were read.
    pub fn take(&mut self, bytes: u64) {
        let tail = self.tail().load(Ordering::Relaxed);
        debug_assert!(tail + bytes <= self.ring.head.0.load(Ordering::Relaxed), "it was put in");
        self.tail().store(tail + bytes, Ordering::Release);
    }

    /// Goes past the gap that was found.
    pub(crate) fn take_gap(&mut self) {
        let number = self.gap_tail().load(Ordering::Relaxed);
        self.gap_tail().store(number + 1, Ordering::Release);
    }

    /// Reads no more: the ring no longer waits for this consumer.
    pub fn detach(&mut self) {
        self.tail().store(DETACHED, Ordering::Release);
        self.gap_tail().store(DETACHED, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
