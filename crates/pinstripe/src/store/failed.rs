//! Members that failed a step that every member must take: from then on they count as absent.
//!
//! A member that cannot remove or put a small object does not end a verb as long as parity replaces
//! the member: the rest of the verb treats it like a member that does not answer any more.
//!
//! Invariants: no more members are left out than parity replaces, including absent ones. A member
//! is left out until the store is opened again, because it lacks what it failed to do.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::SharedMember;

use super::Store;
use super::locks::{RankedMutex, StoreLock};

/// The members that failed, by place, each with its first error.
pub(super) struct Failed(RankedMutex<BTreeMap<PathBuf, Error>>);

impl Default for Failed {
    fn default() -> Self {
        Failed(RankedMutex::new(StoreLock::Failed, BTreeMap::new()))
    }
}

impl Failed {
    pub fn has(&self, member: &SharedMember) -> bool {
        self.0.lock().contains_key(member.place())
    }

    pub fn why(&self, member: &SharedMember) -> Option<Error> {
        self.0.lock().get(member.place()).map(Error::duplicate)
    }
}

impl Store {
    /// Handles the result of a step that every member must take. A member that failed is left out
    /// from then on, like one that does not answer any more.
    ///
    /// # Errors
    /// Fails with the member's own error if it is not one of a failing disk, or if more members are
    /// now left out than parity replaces.
    pub(crate) fn or_without(&self, member: &SharedMember, done: Result<()>) -> Result<()> {
        let error = match done {
            Err(error) if matches!(error.kind(), Kind::Io | Kind::Unanswered) => error,
            done => return done,
        };
        let parity = usize::from(self.config.parity);
        // Under the lock, so that two that fail at once do not both count as the last one.
        let mut failed = self.failed.0.lock();
        let is_out = |it: &SharedMember| {
            let patience = self.options.patience.as_ref();
            failed.contains_key(it.place()) || patience.is_some_and(|p| p.is_silent(it.place()))
        };
        let is_in = |slot: &super::MemberSlot| slot.member.as_ref().is_some_and(|it| !is_out(it));
        let out = self.all_members() - self.member_slots.iter().filter(|slot| is_in(slot)).count();
        if out + usize::from(!is_out(member)) > parity {
            return Err(error);
        }
        debug_assert!(out <= parity || is_out(member), "no more are left out than parity replaces");
        if error.kind() == Kind::Io {
            failed.entry(member.place().to_path_buf()).or_insert(error);
        }
        Ok(())
    }
}
