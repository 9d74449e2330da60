//! A member that is to take another one's place, and gets all that the other one gets.
//!
//! Invariant: once it failed to take anything, it is given nothing more, and says so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::member::Member;
use crate::error::Result;

/// The place of a twin.
#[derive(Default)]
pub struct Twin {
    member: RwLock<Option<Arc<Member>>>,
    has_failed: AtomicBool,
}

impl Twin {
    /// Who stands there.
    pub fn member(&self) -> Option<Arc<Member>> {
        self.member.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts a member there, or takes it away. Returns who stood there, if it did not fail.
    pub fn set(&self, twin: Option<Arc<Member>>) -> Option<Arc<Member>> {
        let mut member = self.member.write().unwrap_or_else(PoisonError::into_inner);
        let has_failed = self.has_failed.swap(false, Ordering::AcqRel);
        std::mem::replace(&mut *member, twin).filter(|_| !has_failed)
    }

    /// Whether it did not take something.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Does to the twin what is done to the member.
    pub(super) fn with(&self, act: impl FnOnce(&Member) -> Result<()>) {
        let member = self.member.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(member) = &*member
            && !self.has_failed()
            && act(member).is_err()
        {
            self.has_failed.store(true, Ordering::Release);
        }
    }
}
