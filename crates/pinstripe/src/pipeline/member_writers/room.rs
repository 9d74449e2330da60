//! The room on a member for the extents of a run.
//!
//! Invariants: the bytes that open extents may still need are set aside and count as taken; their
//! written bytes are in the file system's count, and no longer set aside. Other programs may take
//! room at any time, so a write can still run out of space.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::ROOM_BYTES;
use pinstripe_member::{Caps, SharedMember};

/// Sets that may be open at once, so that the first one does not take the room of all.
const OPEN_SETS: u64 = 4;
/// The most free space that is left to the file system.
const SPARED_MOST_BYTES: u64 = 1 << 20;

/// The room on one member.
#[derive(Clone)]
pub(super) struct Room {
    pub(super) member: SharedMember,
    set_aside_bytes: Arc<AtomicU64>,
}

impl Room {
    pub(super) fn of(member: SharedMember) -> Self {
        Room { member, set_aside_bytes: Arc::default() }
    }

    /// Bytes that are free and not set aside; `None` if that is not known.
    fn free_bytes(&self, caps: &Caps) -> Option<u64> {
        let usable = caps.usable_bytes(SPARED_MOST_BYTES)?;
        Some(usable.saturating_sub(self.set_aside_bytes.load(Ordering::Relaxed)))
    }

    /// Whether another extent can be begun.
    pub(super) fn has_some(&self) -> bool {
        let caps = self.member.caps();
        !caps.is_full && self.free_bytes(&caps).is_none_or(|free| free >= ROOM_BYTES)
    }

    /// The length that the next extent may have; `None` where nothing limits it.
    pub(super) fn extent_bytes(&self) -> Option<u64> {
        let caps = self.member.caps();
        let near = self.free_bytes(&caps).map(|free| free / OPEN_SETS);
        caps.far.map(|far| far.extent_bytes).into_iter().chain(near).min()
    }

    /// Sets room aside for an extent.
    pub(super) fn set_aside(&self, bytes: u64) {
        self.set_aside_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Releases room that was set aside: it was written to, or will not be.
    pub(super) fn release(&self, bytes: u64) {
        let before = self.set_aside_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "no more is released than was set aside");
    }
}
