//! The replacement of a member, which is being filled and receives every write to that member.
//!
//! Invariant: after its first failed write, the replacement receives nothing more, and reports that
//! it failed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use super::ArrayMember;
use pinstripe_base::error::Result;
use pinstripe_base::sync::{read, write};

/// The slot for a replacement, which may be empty.
#[derive(Default)]
pub(crate) struct ReplacementMember {
    member: RwLock<Option<Arc<ArrayMember>>>,
    has_failed: AtomicBool,
}

impl ReplacementMember {
    /// The replacement of this member, if there is one.
    pub fn member(&self) -> Option<Arc<ArrayMember>> {
        read(&self.member).clone()
    }

    /// Sets or removes the replacement. Returns the former replacement if it has not failed.
    pub fn set(&self, replacement: Option<Arc<ArrayMember>>) -> Option<Arc<ArrayMember>> {
        let mut member = write(&self.member);
        let has_failed = self.has_failed.swap(false, Ordering::AcqRel);
        std::mem::replace(&mut *member, replacement).filter(|_| !has_failed)
    }

    /// Whether a write to the replacement failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Applies an operation on the member to its replacement as well.
    pub(crate) fn with(&self, act: impl FnOnce(&ArrayMember) -> Result<()>) {
        let member = read(&self.member);
        if let Some(member) = &*member
            && !self.has_failed()
            && act(member).is_err()
        {
            self.has_failed.store(true, Ordering::Release);
        }
    }
}
