//! The ends of recently read extents.
//!
//! A reader that opens an extent requests its length, then its trailer, then more bytes near its
//! end: one request can answer all three. So the first request fetches the end of the extent
//! together with the extent's length. For a short extent, the end is the complete extent.
//!
//! Invariants: ends are cached only for kinds whose extents never change, and never for the label.
//! Before this process deletes or replaces an extent, its cached end is dropped. The cached bytes
//! come from this run's own requests.

use std::collections::HashMap;
use std::sync::Arc;

use crate::locks::{BucketLock, RankedMutex};
use pinstripe_member::{ExtentKind, ExtentName};

/// The number of bytes of a tail, the cached end of an extent.
pub const TAIL_BYTES: u64 = 64 << 10;
/// The most tails that are cached.
const TAILS_MAX: usize = 128;

/// A tail: the end of an extent.
pub(crate) struct Tail {
    /// The length of the extent.
    pub extent_bytes: u64,
    /// The first bytes of the extent, if they were fetched together with the last ones.
    pub head: Vec<u8>,
    /// The last bytes.
    pub bytes: Vec<u8>,
}

impl Tail {
    /// The tail of an extent if only the length of the extent is known.
    pub(crate) fn without_bytes(extent_bytes: u64) -> Self {
        Tail { extent_bytes, head: Vec::new(), bytes: Vec::new() }
    }

    /// The bytes from `offset` on, if the tail contains all of them.
    pub fn get(&self, offset: u64, wanted: usize) -> Option<&[u8]> {
        let first = usize::try_from(offset).ok();
        let in_head = first.and_then(|from| self.head.get(from..from.checked_add(wanted)?));
        if in_head.is_some() {
            return in_head;
        }
        let start = self.extent_bytes.checked_sub(self.bytes.len() as u64)?;
        let from = usize::try_from(offset.checked_sub(start)?).ok()?;
        self.bytes.get(from..from.checked_add(wanted)?)
    }
}

/// The cached tails; the oldest is evicted first.
pub(crate) struct Tails(RankedMutex<KeptTails>);

impl Default for Tails {
    fn default() -> Self {
        Tails(RankedMutex::new(BucketLock::Tails, KeptTails::default()))
    }
}

#[derive(Default)]
struct KeptTails {
    tails: HashMap<ExtentName, (u64, Arc<Tail>)>,
    clock: u64,
    /// Counts the calls that forget a tail.
    epoch: u64,
}

/// Whether a tail of this extent is worth caching: the extent is written once and read in parts.
pub fn has_tail(name: ExtentName) -> bool {
    matches!(name, ExtentName::In(ExtentKind::Packs | ExtentKind::Index, _))
}

impl Tails {
    /// The tail of an extent, if it is cached.
    pub fn get(&self, name: ExtentName) -> Option<Arc<Tail>> {
        self.0.lock().tails.get(&name).map(|(_, tail)| Arc::clone(tail))
    }

    /// The present epoch, to be read before a tail is fetched and passed to [`keep`](Self::keep).
    pub fn epoch(&self) -> u64 {
        self.0.lock().epoch
    }

    /// Caches a tail, unless a tail was forgotten since `epoch`, because this one may then be of
    /// the previous extent.
    pub fn keep(&self, name: ExtentName, tail: Tail, epoch: u64) -> Arc<Tail> {
        debug_assert!(has_tail(name), "only extents that never change are cached");
        let tail = Arc::new(tail);
        let mut kept = self.0.lock();
        debug_assert!(epoch <= kept.epoch, "the epoch was read before the request");
        if kept.epoch != epoch {
            return tail;
        }
        kept.clock += 1;
        let clock = kept.clock;
        kept.tails.insert(name, (clock, Arc::clone(&tail)));
        if kept.tails.len() > TAILS_MAX {
            let oldest = kept.tails.iter().min_by_key(|(_, (clock, _))| *clock);
            if let Some(oldest) = oldest.map(|(name, _)| *name) {
                kept.tails.remove(&oldest);
            }
        }
        debug_assert!(kept.tails.len() <= TAILS_MAX, "few ends are kept");
        tail
    }

    /// Drops a cached tail that is fetched again. The extent did not change, so that tails that are
    /// being fetched may be cached.
    pub(crate) fn drop_held(&self, name: ExtentName) {
        self.0.lock().tails.remove(&name);
    }

    /// Forgets a tail, because its extent is about to change.
    pub fn forget(&self, name: ExtentName) {
        let mut kept = self.0.lock();
        kept.tails.remove(&name);
        kept.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_gives_what_lies_within_it() {
        let tail = Tail { extent_bytes: 10, head: b"01".to_vec(), bytes: b"6789".to_vec() };
        assert_eq!(tail.get(6, 4), Some(&b"6789"[..]));
        assert_eq!(tail.get(7, 2), Some(&b"78"[..]));
        assert_eq!((tail.get(0, 2), tail.get(1, 1)), (Some(&b"01"[..]), Some(&b"1"[..])));
        assert_eq!((tail.get(1, 2), tail.get(2, 1)), (None, None));
        for (offset, wanted) in [(5, 1), (6, 5), (10, 1), (u64::MAX, 1), (7, usize::MAX)] {
            assert_eq!(tail.get(offset, wanted), None);
        }
    }

    #[test]
    fn few_are_kept_and_the_oldest_goes() {
        let tails = Tails::default();
        let name =
            |number: usize| ExtentName::In(ExtentKind::Packs, (number as u128).to_be_bytes());
        for number in 0..TAILS_MAX + 10 {
            tails.keep(name(number), Tail { extent_bytes: 1, head: Vec::new(), bytes: vec![0] }, 0);
        }
        assert!(tails.get(name(9)).is_none());
        assert!(tails.get(name(10)).is_some());
        tails.forget(name(10));
        assert!(tails.get(name(10)).is_none());
        tails.keep(name(10), Tail { extent_bytes: 1, head: Vec::new(), bytes: vec![0] }, 0);
        assert!(tails.get(name(10)).is_none(), "it may be of the one before");
        assert!(
            !has_tail(ExtentName::Label) && !has_tail(ExtentName::In(ExtentKind::Keys, [0; 16]))
        );
    }
}
