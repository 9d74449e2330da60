//! Changes of the table of members that too few labels have, which an interrupted change leaves.
//!
//! A process that opens the store finds the newest table through any label that has it. If the
//! members with those labels are lost, an earlier table counts again:
//!
//! - A new member is not listed any more, and the extents on it are lost as well. So a new member gets
//!   no extents until more labels list it than parity replaces members, or until the labels of all
//!   other present members do, unless too few other members have space. Until then it does not count
//!   among the members that vote on small objects.
//! - A member that left counts as absent again, and the store may lack too many members to be opened.
//!   Until then, [`redundancy`](super::redundancy) counts it as absent.
//!
//! Before the keys are known, and always in a store without MACs, the members vote on the table
//! (`agreement`). So it is not enough that one label with the newest table remains: the votes on it
//! must suffice after the loss of as many members as parity replaces.
//!
//! Verbs that write packs write the missing labels first.

use std::collections::BTreeSet;

use super::locks::{RankedMutex, StoreLock};
use super::votes::votes_needed;
use super::{Claim, Store, has_room};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::SharedMember;
use pinstripe_member::label::{Label, MemberRow, MemberState, MemberTable};

/// The members that joined or left by such changes.
pub(super) struct Unannounced(RankedMutex<Changes>);

#[derive(Default)]
struct Changes {
    /// The numbers of members that no more labels list than parity replaces members.
    unlisted: BTreeSet<usize>,
    /// The numbers of members that joined, which an earlier table may undo.
    joined: BTreeSet<usize>,
    /// The numbers of members that left, which an earlier table may undo.
    left: BTreeSet<usize>,
}

impl Unannounced {
    /// Finds the changes that led to a table and that too few labels of the present members have.
    /// `has_macs` says that a label with a later table makes a new member known, whatever the votes.
    pub fn find(table: &MemberTable, parity: u8, has_macs: bool, labels: &[&Label]) -> Self {
        let is_active = |label: &&Label| {
            let row = table.row(label.member.into());
            row.is_some_and(|row| row.state == MemberState::Active)
        };
        let labels: Vec<&Label> = labels.iter().copied().filter(is_active).collect();
        let may_undo = |row: &MemberRow, is_undone: &dyn Fn(&Label) -> bool| {
            let old = labels.iter().filter(|label| is_undone(label));
            old.into_iter().any(|old| may_count_again(&old.table, row, parity.into(), &labels))
        };
        let (mut unlisted, mut joined, mut left) =
            <(BTreeSet<_>, BTreeSet<_>, BTreeSet<_>)>::default();
        for row in &table.rows {
            let number = usize::from(row.number);
            let is_own = |label: &Label| label.member == row.number;
            unlisted.extend(is_unlisted(row, parity, &labels).then_some(number));
            let is_undone = |label: &Label| !is_own(label) && !lists(&label.table, row);
            joined.extend((!has_macs && may_undo(row, &is_undone)).then_some(number));
        }
        joined.extend(&unlisted);
        for row in labels.iter().flat_map(|label| &label.table.rows) {
            let has_left = row.state != MemberState::Left && !lists(table, row);
            let is_undone = |label: &Label| lists(&label.table, row);
            left.extend((has_left && may_undo(row, &is_undone)).then_some(usize::from(row.number)));
        }
        let changes = Changes { unlisted, joined, left };
        Unannounced(RankedMutex::new(StoreLock::Unannounced, changes))
    }

    fn is_empty(&self) -> bool {
        let changes = self.0.lock();
        changes.joined.is_empty() && changes.left.is_empty()
    }

    /// Whether too few labels list this member of the table.
    pub fn has(&self, number: usize) -> bool {
        self.0.lock().unlisted.contains(&number)
    }

    /// The number of members that left and count as absent again if too few of the present members
    /// are lost.
    pub fn left(&self) -> usize {
        self.0.lock().left.len()
    }

    /// Removes the members that too few labels list from the takers, by number, if more than
    /// `parity` other takers have space.
    pub(crate) fn leave_out_of(&self, takers: &mut [Option<SharedMember>], parity: usize) {
        if self.0.lock().joined.is_empty() {
            return;
        }
        let is_joined = |number: usize| self.0.lock().joined.contains(&number);
        let others = takers.iter().enumerate().filter(|(number, _)| !is_joined(*number));
        let with_room = others.filter_map(|(_, it)| it.as_ref()).filter(|it| has_room(it.caps()));
        if with_room.count() > parity {
            self.0.lock().joined.iter().for_each(|number| takers[*number] = None);
        }
    }

    /// The caller calls this function when all labels have the table.
    pub fn clear(&self) {
        *self.0.lock() = Changes::default();
    }
}

/// Whether no more labels of other members list the member of a row than parity replaces, and not all.
fn is_unlisted(row: &MemberRow, parity: u8, labels: &[&Label]) -> bool {
    let others = || labels.iter().filter(|label| label.member != row.number);
    let named = others().filter(|label| lists(&label.table, row)).count();
    named <= usize::from(parity) && named < others().count()
}

/// Whether an earlier table may count again when `parity` members are lost that differ from it in
/// whether they list the member of a row.
fn may_count_again(
    earlier: &MemberTable,
    row: &MemberRow,
    parity: usize,
    labels: &[&Label],
) -> bool {
    let is_voter = |voter: &&MemberRow| voter.state != MemberState::Left;
    let all = earlier.rows.iter().filter(is_voter).count();
    let votes = |label: &&&Label| earlier.row(label.member.into()).is_some_and(|it| is_voter(&it));
    let differs = |label: &&&Label| lists(&label.table, row) != lists(earlier, row);
    let found = labels.iter().filter(votes).count();
    let later = labels.iter().filter(votes).filter(differs).count();
    let absent = all - found.saturating_sub(parity).min(all);
    later.saturating_sub(parity) < votes_needed(all, parity, absent)
}

fn lists(table: &MemberTable, row: &MemberRow) -> bool {
    table.row(row.number.into()).is_some_and(|listed| listed.id == row.id)
}

impl Store {
    /// The number of further members without which this store still opens, whichever they are.
    pub(super) fn spare_members(&self) -> u64 {
        let missing = self.absent().count() + self.unannounced.left();
        usize::from(self.config.parity).saturating_sub(missing) as u64
    }

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
                let advice = "run 'pinstripe repair' to complete the change of the members";
                monitor.warning("labels of members", error.advice(advice));
                Ok(())
            }
            written => written.map(drop),
        }
    }

    /// For a verb that writes packs, rewrites labels that have outdated places, or lack an unannounced
    /// change. A failure causes a warning.
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
            let found = Unannounced::find(table, 1, true, &there.iter().collect::<Vec<_>>());
            assert_eq!(!found.has(3), is_announced, "{named} of {present}");
            assert!((0..3).all(|number| !found.has(number)));
        }
    }

    #[test]
    fn a_member_has_left_once_no_loss_makes_an_earlier_table_count() {
        let around = tempfile::tempdir().unwrap();
        let places = ["m0", "m1", "m2", "m3", "m4"].map(|name| around.path().join(name));
        init::run(&init::InitOptions::plain(places.to_vec(), 1)).unwrap();
        let labels = places.map(|place| read_member(&place).unwrap().1);
        let mut table = labels[0].table.clone();
        table.generation += 1;
        table.rows.pop();
        // Of four labels so many have the new table. When one of these is lost, an earlier table of
        // five members is changed by two labels of the three that remain.
        for (told, has_left) in [(1, false), (2, false), (3, true), (4, true)] {
            let new = |label: &Label| Label { table: table.clone(), ..label.clone() };
            let there = labels[..4].iter().enumerate();
            let there: Vec<Label> =
                there.map(|(at, it)| if at < told { new(it) } else { it.clone() }).collect();
            let found = Unannounced::find(&table, 1, true, &there.iter().collect::<Vec<_>>());
            assert_eq!(found.left(), usize::from(!has_left), "{told}");
            assert_eq!(found.is_empty(), has_left, "{told}");
            assert!((0..5).all(|number| !found.has(number)));
        }
    }

    #[test]
    fn a_member_has_joined_by_votes_once_no_loss_makes_an_earlier_table_count() {
        let around = tempfile::tempdir().unwrap();
        let places = ["m0", "m1", "m2", "m3", "m4"].map(|name| around.path().join(name));
        init::run(&init::InitOptions::plain(places.to_vec(), 1)).unwrap();
        let labels = places.map(|place| read_member(&place).unwrap().1);
        let table = &labels[0].table;
        for (told, has_joined) in [(1, false), (2, false), (3, true), (4, true)] {
            let mut there = labels.clone();
            there[told..4].iter_mut().for_each(|label| drop(label.table.rows.pop()));
            let found = Unannounced::find(table, 1, false, &there.iter().collect::<Vec<_>>());
            assert_eq!(found.is_empty(), has_joined, "{told}");
            assert_eq!(found.has(4), told <= 1, "{told}");
        }
    }
}
