//! The space on a member for the extents of a run.
//!
//! Invariants: the bytes that open extents may still need are reserved and count as used; bytes
//! that were written are in the file system's count, and not reserved any more. Other programs may
//! use up space at any time, so a write can still run out of space.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::ROOM_BYTES;
use pinstripe_member::{Caps, SharedMember};

/// The number of sets that may be open at once, so that the first one does not reserve the space of
/// all.
const OPEN_SETS: u64 = 4;
/// The largest part of the free space that is left to the file system.
const SPARED_MOST_BYTES: u64 = 1 << 20;

/// The space on one member.
#[derive(Clone)]
pub(super) struct FreeSpace {
    pub(super) member: SharedMember,
    set_aside_bytes: Arc<AtomicU64>,
}

impl FreeSpace {
    pub(super) fn new(member: SharedMember) -> Self {
        FreeSpace { member, set_aside_bytes: Arc::default() }
    }

    /// Returns the number of bytes that are free and not reserved, or `None` if that is unknown.
    fn free_bytes(&self, caps: &Caps) -> Option<u64> {
        let usable = caps.usable_bytes(SPARED_MOST_BYTES)?;
        Some(usable.saturating_sub(self.set_aside_bytes.load(Ordering::Relaxed)))
    }

    /// Whether there is space for another extent.
    pub(super) fn has_some(&self) -> bool {
        let caps = self.member.caps();
        !caps.is_full && self.free_bytes(&caps).is_none_or(|free| free >= ROOM_BYTES)
    }

    /// Returns the length that the next extent may have, or `None` if nothing limits it.
    pub(super) fn extent_bytes(&self) -> Option<u64> {
        let caps = self.member.caps();
        let near = self.free_bytes(&caps).map(|free| free / OPEN_SETS);
        caps.far.map(|far| far.extent_bytes).into_iter().chain(near).min()
    }

    /// Reserves space for an extent.
    pub(super) fn set_aside(&self, bytes: u64) {
        self.set_aside_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Releases reserved space, because it was written to or is not needed.
    pub(super) fn release(&self, bytes: u64) {
        let before = self.set_aside_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "no more is released than was set aside");
    }
}
