//! Members that join while this process has the store open.
//!
//! `member replace` and `member rebalance` may move extents to members that a process which opened
//! the store earlier does not know. Before such a process counts anything as lost, it reads the
//! table of members again, and reads from members that have joined.
//!
//! Invariants: a newcomer is only read: it gets none of the objects that this process puts, and has
//! no vote. A process that deletes stops when it has found a newcomer.

use std::sync::MutexGuard;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::ranked::Ranked;
use pinstripe_member::SharedMember;
use pinstripe_member::label::{MemberRow, MemberTable};

use super::Store;
use super::locks::{RankedMutex, StoreLock};

/// Whether an error may be caused by extents that have moved to a member that this process does not
/// know yet. If one copy has moved and the member with the other copy fails, the error is that of the
/// member that fails.
pub(crate) fn may_have_moved(error: &Error) -> bool {
    matches!(error.kind(), Kind::TooManyLosses | Kind::NotFound | Kind::Io | Kind::Unanswered)
}

/// The newcomers found so far, with their numbers.
pub(super) struct Newcomers(RankedMutex<Vec<(usize, SharedMember)>>);

impl Default for Newcomers {
    fn default() -> Self {
        Newcomers(RankedMutex::new(StoreLock::Newcomers, Vec::new()))
    }
}

impl Newcomers {
    fn met(&self) -> Ranked<MutexGuard<'_, Vec<(usize, SharedMember)>>> {
        self.0.lock()
    }
}

impl Store {
    /// Reads the labels of the members again, and opens members that have joined since this process
    /// opened the store. Returns whether any member was opened; such a member may have the missing
    /// objects. A caller calls this before it counts anything as lost.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when every member that this process knows has left the store, or
    /// with [`Kind::KeysChanged`] when the keys were rotated.
    pub(crate) fn meet_newcomers(&self) -> Result<bool> {
        let tables: Vec<MemberTable> =
            self.labels_there()?.labels.into_iter().map(|label| label.table).collect();
        let newest = tables.iter().reduce(|one, it| if it.replaces(one) { it } else { one });
        let Some(newest) = newest.filter(|newest| newest.replaces(&self.table)) else {
            return Ok(false);
        };
        // Without MACs one member alone could forge a place.
        let later = tables.iter().filter(|it| it.replaces(&self.table)).count();
        if later < self.votes_on_tables().min(tables.len()) {
            return Ok(false);
        }
        let is_known = |row: &&MemberRow| {
            let number = usize::from(row.number);
            self.table.row(number).is_some_and(|own| own.id == row.id)
                || self.newcomers.met().iter().any(|(met, _)| *met == number)
        };
        let mut is_news = false;
        for row in newest.rows.iter().filter(|row| !is_known(row)) {
            is_news |= self.meet(row);
        }
        Ok(is_news)
    }

    /// Whether members have joined since this process opened the store, whether found now or
    /// before.
    ///
    /// # Errors
    /// Fails with the errors of [`meet_newcomers`](Self::meet_newcomers).
    pub(crate) fn has_newcomers(&self) -> Result<bool> {
        Ok(self.meet_newcomers()? || !self.newcomers.met().is_empty())
    }

    /// Opens the member in a row of the table, if it is at its place.
    fn meet(&self, row: &MemberRow) -> bool {
        let number = usize::from(row.number);
        let place = self.options.reached(&self.named, self.config.store, row);
        let Ok((member, label)) = self.options.read_member(&place) else { return false };
        if label.config.store != self.config.store || label.member != row.number {
            return false;
        }
        self.newcomers.met().push((number, self.options.share(member, number)));
        true
    }

    /// Returns the members to read from, by number: those of [`members`](Self::members), and the
    /// newcomers.
    pub(crate) fn members_to_read(&self) -> Vec<Option<SharedMember>> {
        let mut members = self.members();
        for (number, newcomer) in self.newcomers() {
            members.resize_with(members.len().max(number + 1), || None);
            members[number] = Some(newcomer);
        }
        members
    }

    /// Returns the newcomers found so far, with their numbers.
    pub(crate) fn newcomers(&self) -> Vec<(usize, SharedMember)> {
        self.newcomers.met().clone()
    }

    /// Refuses to continue in a process that deletes and has found newcomers, because its listings
    /// are incomplete.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] then.
    pub(crate) fn refuse_newcomers(&self) -> Result<()> {
        if self.newcomers.met().is_empty() {
            return Ok(());
        }
        Err(Error::new(Kind::Busy, "the members of this store changed while this command ran")
            .at(self.named())
            .advice("nothing was deleted; run this command again"))
    }
}
