//! Members that too few labels list, which an interrupted change of the table leaves.
//!
//! A process that opens the store finds the newest table through any label that has it. If the
//! members with those labels are lost, no label leads to the new member, and the extents on it are
//! lost as well. So a new member gets no extents until more labels list it than parity replaces
//! members, or until the labels of all other present members do, unless too few other members have
//! space. Until then it does not count among the members that vote on small objects. Verbs that write
//! packs write the missing labels first.

use std::collections::BTreeSet;

use super::locks::{RankedMutex, StoreLock};
use super::{Claim, Store, has_room};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::SharedMember;
use pinstripe_member::label::{Label, MemberState, MemberTable};

/// The numbers.
pub(super) struct Unannounced(RankedMutex<BTreeSet<usize>>);

impl Unannounced {
    /// Finds the members that too few labels list, by the labels of the present members.
    pub fn find(table: &MemberTable, parity: u8, labels: &[&Label]) -> Self {
        let is_active = |label: &&&Label| {
            let row = table.row(label.member.into());
            row.is_some_and(|row| row.state == MemberState::Active)
        };
        let labels: Vec<_> = labels.iter().filter(is_active).collect();
        let is_unannounced = |number: &usize| {
            let id = table.row(*number).map(|row| row.id);
            let others = || labels.iter().filter(|it| usize::from(it.member) != *number);
            let is_named = |label: &&&&Label| label.table.row(*number).map(|row| row.id) == id;
            let named = others().filter(is_named).count();
            named <= usize::from(parity) && named < others().count()
        };
        let numbers = table.rows.iter().map(|row| usize::from(row.number));
        Unannounced(RankedMutex::new(
            StoreLock::Unannounced,
            numbers.filter(is_unannounced).collect(),
        ))
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub fn has(&self, number: usize) -> bool {
        self.0.lock().contains(&number)
    }

    /// Removes the members that too few labels list from the takers, by number, if more than
    /// `parity` other takers have space.
    pub(crate) fn leave_out_of(&self, takers: &mut [Option<SharedMember>], parity: usize) {
        if self.is_empty() {
            return;
        }
        let others = takers.iter().enumerate().filter(|(number, _)| !self.has(*number));
        let with_room = others.filter_map(|(_, it)| it.as_ref()).filter(|it| has_room(it.caps()));
        if with_room.count() > parity {
            self.0.lock().iter().for_each(|number| takers[*number] = None);
        }
    }

    /// The caller calls this function when all labels have the table.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

impl Store {
    /// Finishes an interrupted change of the table, so that all members get extents. A label that
    /// cannot be written now causes a warning.
    ///
    /// # Errors
    /// Fails with the errors of [`Store::claim`] and
    /// [`write_labels_with`](Store::write_labels_with) that concern keys and claims.
    pub fn announce(&self, claim: &Claim, monitor: &Monitor) -> Result<()> {
        if self.unannounced.is_empty() {
            return Ok(());
        }
        match self.write_labels_with(claim) {
            Err(error) if matches!(error.kind(), Kind::Io | Kind::NoSpace | Kind::Unanswered) => {
                let advice = "run 'pinstripe repair' to complete the addition of a member";
                monitor.warning("labels of members", error.advice(advice));
                Ok(())
            }
            written => written.map(drop),
        }
    }

    /// For a verb that writes packs, rewrites labels that have outdated places or lack a member. A
    /// failure causes a warning.
    pub(crate) fn keep_labels_true(&self, monitor: &Monitor) {
        if (!self.moved.is_empty() || !self.unannounced.is_empty())
            && let Err(error) = self.write_labels()
        {
            monitor.warning("labels of members", error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::init;
    use crate::store::search::read_member;

    #[test]
    fn a_member_is_announced_by_more_labels_than_parity_or_all() {
        let around = tempfile::tempdir().unwrap();
        let places = ["m0", "m1", "m2", "m3"].map(|name| around.path().join(name));
        init::run(&init::InitOptions::plain(places.to_vec(), 1)).unwrap();
        let labels = places.map(|place| read_member(&place).unwrap().1);
        let old = |label: &Label| {
            let mut label = label.clone();
            label.table.rows.pop();
            label
        };
        let table = &labels[0].table;
        // The number of the three other members that are present, and of those that name it.
        for (present, named, is_announced) in
            [(3, 3, true), (3, 2, true), (3, 1, false), (3, 0, false), (1, 1, true), (0, 0, true)]
        {
            let others = labels[..present].iter().enumerate();
            let mut there: Vec<Label> =
                others.map(|(at, it)| if at < named { it.clone() } else { old(it) }).collect();
            there.push(labels[3].clone());
            let found = Unannounced::find(table, 1, &there.iter().collect::<Vec<_>>());
            assert_eq!(!found.has(3), is_announced, "{named} of {present}");
            assert!((0..3).all(|number| !found.has(number)));
        }
    }
}
