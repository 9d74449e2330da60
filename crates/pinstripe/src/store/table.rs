//! Changes the table of members, in an order that survives a power cut at any step.
//!
//! A changed table has a higher generation and is written into the label of every present member. A
//! process that opens the store during the change uses the highest generation that it finds, so the
//! change takes effect as soon as the first label is durable. Until enough labels have the change, it
//! can be undone by the loss of members (`unannounced`); the next verb that writes packs or changes
//! members writes the other labels. A new member gets its label first, and the other labels list it
//! last: until then no process uses the member.
//!
//! Invariant: labels are written only under a [`Claim`], so every change is based on the previous
//! one, and no change is overwritten by an earlier one.
//!
//! Not in this module: moving the data of members (pipeline/, ops/).

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::votes::votes_needed;
use super::{Claim, MemberSlot, Store, read_small, replace_small};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::label::{
    Encryption, Format, Label, MemberFacts, MemberRow, MemberState, MemberTable,
};
use pinstripe_member::{
    ExtentKind, ExtentName, NewMember, PrefetchHint, SharedMember, is_remote, real,
};
use pinstripe_stripe::{Voucher, locked_error};

/// The labels that the present members have now.
#[derive(Default)]
pub(super) struct LabelsThere {
    /// The labels of this store.
    pub labels: Vec<Label>,
    /// Members that have left: they had a label when the store was opened and have none now, or
    /// their last label says so and does not have a later table. If labels count by votes, such a
    /// member still has a vote of its own: no later table is written to it.
    struck: Vec<usize>,
}

impl Store {
    /// Writes the label of every present member on which it is missing, damaged or different from
    /// what this store knows; returns the number of labels written.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when another process is changing the members, or has changed them
    /// since this store was opened, or with a member's own error when it cannot be written, unless
    /// it is leaving.
    pub fn write_labels(&self) -> Result<u64> {
        if self.outdated_labels(&self.table_now()).next().is_none() {
            return Ok(0);
        }
        self.require_voucher()?;
        self.write_labels_with(&self.claim()?)
    }

    /// Like [`write_labels`](Self::write_labels), for a caller that has the claim.
    ///
    /// # Errors
    /// Fails with the errors of [`write_labels`](Self::write_labels).
    pub(crate) fn write_labels_with(&self, claim: &Claim) -> Result<u64> {
        claim.confirm()?;
        self.require_voucher()?;
        self.confirm_table()?;
        // A rotation that was cut off may have left its ring on one member alone, which may be the
        // one that leaves: no later opener could verify the MACs of these labels then.
        self.spread_missing_keys()?;
        let (table, mut written) = (self.table_now(), 0);
        for (number, member, label) in self.outdated_labels(&table) {
            let bytes = self.vouch(ExtentName::Label, label.encode());
            match replace_small(&**member, ExtentName::Label, &bytes) {
                Ok(()) => written += 1,
                Err(_) if self.state(number) != Some(MemberState::Active) => {}
                Err(error) => return Err(error),
            }
        }
        self.unannounced.clear();
        Ok(written)
    }

    /// Writes every label that does not have this store's format, or does not have the MAC that
    /// `voucher` would make: the first step of an upgrade.
    ///
    /// # Errors
    /// Fails with the errors of [`write_labels`](Self::write_labels).
    pub(crate) fn write_vouched_labels(
        &self,
        claim: &Claim,
        voucher: Option<&Voucher>,
    ) -> Result<u64> {
        claim.confirm()?;
        self.confirm_table()?;
        let mut written = 0;
        for (number, member) in self.present() {
            let label = self.label(number).encode();
            let bytes = voucher.map_or(label.clone(), |it| it.vouch(ExtentName::Label, &label));
            if read_small(&**member, ExtentName::Label).is_ok_and(|there| there == bytes) {
                continue;
            }
            replace_small(&**member, ExtentName::Label, &bytes)?;
            written += 1;
        }
        Ok(written)
    }

    /// Verifies that no upgrade is running, or has run since this process opened the store. The
    /// caller calls this after it put an object of the old format, and before it reports that. An
    /// upgrade writes the labels first and then reads the objects that count, so one of the two
    /// sees the other.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`].
    pub(crate) fn refuse_running_upgrade(&self) -> Result<()> {
        if self.format != Format::V1 {
            return Ok(());
        }
        let is_newer = |(_, member): &(usize, &SharedMember)| {
            self.label_there(member).is_ok_and(|label| label.format > Format::V1)
        };
        match self.present().filter(is_newer).count() >= self.votes_on_leaving() {
            false => Ok(()),
            true => Err(Error::new(Kind::Busy, "this store is being upgraded").advice(
                "finish the upgrade with 'pinstripe upgrade', or undo it with 'pinstripe upgrade \
                 --back'",
            )),
        }
    }

    /// Verifies that the store was not upgraded since this process opened it, by what a process
    /// that opens it now would find. An interrupted upgrade does not count.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when the store was upgraded, or with a member's own error when it
    /// cannot be listed.
    pub(super) fn refuse_finished_upgrade(&self) -> Result<()> {
        if self.format != Format::V1 {
            return Ok(());
        }
        let is_upgraded = match self.config.encryption {
            Encryption::None => format_of(self.labels_there()?.labels.iter()) > Format::V1,
            _ => self.has_later_ring()?,
        };
        match is_upgraded {
            false => Ok(()),
            true => Err(Error::new(Kind::Busy, "this store was upgraded while this command ran")
                .advice("run this command again")),
        }
    }

    /// Returns the members whose label differs from the one that they should have, with the latter.
    fn outdated_labels<'a>(
        &'a self,
        table: &'a MemberTable,
    ) -> impl Iterator<Item = (usize, &'a SharedMember, Label)> {
        self.present().filter_map(|(number, member)| {
            let label = Label { table: table.clone(), ..self.label(number) };
            // Compared by content: a label of an earlier version is left as it is.
            let is_it = self.label_there(member).is_ok_and(|it| it == label);
            (!is_it).then_some((number, member, label))
        })
    }

    /// Returns the label on a member, if it can be trusted.
    fn label_there(&self, member: &SharedMember) -> Result<Label> {
        let bytes = read_small(&**member, ExtentName::Label)?;
        let label = Label::decode(&bytes)?;
        self.verify(ExtentName::Label, &bytes)?;
        Ok(label)
    }

    /// Refuses to write labels that no process could authenticate.
    fn require_voucher(&self) -> Result<()> {
        if self.lacks_macs() { Err(locked_error()) } else { Ok(()) }
    }

    /// Whether this store has MACs that this process cannot make, because it lacks the keys.
    pub(crate) fn lacks_macs(&self) -> bool {
        let is_sealed = self.config.encryption != Encryption::None;
        is_sealed && self.format > Format::V1 && self.voucher.is_none()
    }

    /// The number of members whose table must have changed before this process believes the change
    /// and stops. All members of the own table vote, as when the store is opened (`agreement`): an
    /// interrupted change that does not count there must not stop this process for ever.
    pub(super) fn votes_on_tables(&self) -> usize {
        match self.voucher {
            Some(_) => 1,
            None => {
                let absent = self.absent().count();
                votes_needed(self.all_members(), self.config.parity.into(), absent)
            }
        }
    }

    /// Returns the state of a member, or `None` when it has left.
    pub fn state(&self, number: usize) -> Option<MemberState> {
        self.member_slots.get(number)?.row.as_ref().map(|row| row.state)
    }

    /// Changes the table and writes it to all present members.
    ///
    /// # Errors
    /// Fails with the errors of [`write_labels`](Self::write_labels).
    pub fn change_table(
        &mut self,
        claim: &Claim,
        change: impl FnOnce(&mut MemberTable),
    ) -> Result<()> {
        claim.confirm()?;
        // The change must be based on the table that is in force.
        self.confirm_table()?;
        let mut table = self.table_now();
        table.generation = self.table.generation + 1;
        change(&mut table);
        debug_assert!(table.generation > self.table.generation, "a change makes a later table");
        debug_assert!(table.next >= self.table.next, "no number is given twice");
        self.adopt(table);
        self.write_labels_with(claim)?;
        self.confirm_table()
    }

    /// Verifies that no other process has changed the table since this process read it.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when another process has changed it.
    pub(crate) fn confirm_table(&self) -> Result<()> {
        let there = self.labels_there()?;
        let is_later = |label: &&Label| label.table.replaces(&self.table);
        let later: Vec<_> = there.labels.iter().filter(is_later).collect();
        match later.first() {
            Some(label) if later.len() + there.struck.len() >= self.votes_on_tables() => {
                let place = self.member_slots.get(usize::from(label.member)).map(|it| &it.place);
                Err(Error::new(Kind::Busy, "another process is changing the members of this store")
                    .at(place.unwrap_or(&self.named))
                    .advice(
                        "let the other process finish, then run this command again: it continues \
                         where it stopped",
                    ))
            }
            _ => Ok(()),
        }
    }

    /// Verifies that no member to which this process may have written has left since the store was
    /// opened. The caller calls this once packs are durable, before an index run or a snapshot
    /// names them. The process that removes a member examines it again after it has left
    /// (ops/member), so one side sees the other.
    ///
    /// A checkpoint does not need this check. A checkpoint is on any members that accepted it, and
    /// one copy is enough, since everything below it is durable. A backup that resumes from a
    /// checkpoint reuses an entry only if the index has the entry's chunks, and a pack that no run
    /// lists counts only if it is complete. A checkpoint whose own pages are in packs that do not
    /// count is useless: it only costs time.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when a member has left to which this process may have written.
    pub(crate) fn confirm_takers(&self) -> Result<()> {
        let labels = PrefetchHint { label: true, ..PrefetchHint::new(ExtentKind::Keys, 1) };
        self.list_next(labels, false);
        // A label that was written with newer keys could not be verified.
        self.refuse_older_keys()?;
        let LabelsThere { labels, struck } = self.labels_there()?;
        let tables = labels.into_iter().map(|label| label.table);
        let later: Vec<_> = tables.filter(|table| table.replaces(&self.table)).collect();
        let own = self.table.rows.iter().filter(|row| row.state == MemberState::Active);
        for row in own.filter(|row| self.member_slots[usize::from(row.number)].member.is_some()) {
            let has_left = |table: &&MemberTable| {
                let now = table.row(row.number.into());
                !now.is_some_and(|now| now.id == row.id && now.state != MemberState::Left)
            };
            let own_vote = usize::from(!later.is_empty() && struck.contains(&row.number.into()));
            let votes = later.iter().filter(has_left).count() + own_vote;
            if votes >= self.votes_on_leaving() {
                return Err(Error::new(
                    Kind::Busy,
                    format!(
                        "member {} was removed from the store while this command ran",
                        row.number
                    ),
                )
                .at(&self.member_slots[usize::from(row.number)].place)
                .advice(
                    "run this command again: the data that it stored on other members is kept",
                ));
            }
        }
        Ok(())
    }

    /// Returns a member to which this process has just put its commit object and that has been
    /// replaced or removed in the meantime. The process that removes a member copies such objects
    /// after the table says that the member has left, so one of the two processes sees the other.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when all members have left: the commit object may not be in the
    /// store any more.
    pub(crate) fn left_meanwhile(&self) -> Result<Option<usize>> {
        let tables = self.labels_there()?.labels.into_iter().map(|label| label.table);
        let newest = tables.reduce(|one, other| if other.replaces(&one) { other } else { one });
        let Some(newest) = newest.filter(|table| table.replaces(&self.table)) else {
            return Ok(None);
        };
        let has_left = |number: usize| {
            let (own, now) = (self.table.row(number), newest.row(number));
            !own.zip(now)
                .is_some_and(|(own, now)| own.id == now.id && now.state != MemberState::Left)
        };
        let left: Vec<usize> =
            self.present().map(|(number, _)| number).filter(|number| has_left(*number)).collect();
        if left.len() == self.present().count() {
            return Err(all_left(&self.named));
        }
        Ok(left.first().copied())
    }

    /// Verifies that at least one member is still in the store by its own label.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when no member is.
    pub(crate) fn confirm_labels(&self) -> Result<()> {
        self.labels_there().map(drop)
    }

    /// Returns the labels of this store that present members have now, each read once.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when all members have left the store by their own labels, or have
    /// none.
    pub(super) fn labels_there(&self) -> Result<LabelsThere> {
        let (mut there, mut is_any_left) = (LabelsThere::default(), false);
        for (number, member) in self.present() {
            let label = self.label_there(member);
            let is_gone = label.as_ref().err().is_some_and(|it| it.kind() == Kind::NotFound);
            let is_struck = is_gone && self.member_slots[number].bad_label.is_none();
            let has_left = label.as_ref().is_ok_and(has_left);
            let is_later = label.as_ref().is_ok_and(|it| it.table.replaces(&self.table));
            there.struck.extend((is_struck || has_left && !is_later).then_some(number));
            is_any_left |= !is_struck && !has_left;
            let is_ours = |label: &Label| label.config.store == self.config.store;
            there.labels.extend(label.ok().filter(is_ours));
        }
        if is_any_left { Ok(there) } else { Err(all_left(&self.named)) }
    }

    /// Returns the number of members that must say that a member has left before a writer believes
    /// it: more than parity replaces, so that this many malicious members cannot stop every backup.
    /// The process that removes a member writes this to as many members as any writer uses before
    /// it searches for late extents, so a writer sees enough honest copies even with that many
    /// malicious members.
    fn votes_on_leaving(&self) -> usize {
        self.votes_on_tables().min(usize::from(self.config.parity) + 1)
    }

    /// Makes a directory a new member, or continues with one for which only this step was done: its
    /// label is written, and no other member lists it yet. Returns its number.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] when the directory is not empty, belongs to another store, or
    /// was a member of this one and still has extents.
    pub fn join(&mut self, place: &Path) -> Result<usize> {
        if let Some(number) = self.joined(place)? {
            return Ok(number);
        }
        let NewMember { member, facts } = match self.options.read_member(place) {
            // A member that got a number that is not its own any more, or never became one.
            Ok((member, label)) if label.config == self.config && !has_left(&label) => {
                let holds_any = [ExtentKind::Packs, ExtentKind::Index].into_iter();
                for kind in holds_any {
                    if !member.list(kind)?.is_empty() {
                        return Err(Error::new(
                            Kind::Refused,
                            "this directory was a member of the store, and it still has extents",
                        )
                        .at(place)
                        .advice(
                            "if the content of this directory is not needed, empty the directory, \
                             then run this command again",
                        ));
                    }
                }
                // Its own label may have the facts that were found out about it.
                let own = label.table.row(label.member.into());
                NewMember { member, facts: own.map_or(MemberFacts::default(), |row| row.facts) }
            }
            Err(error) if error.kind() == Kind::Unanswered => return Err(error),
            _ => {
                let places = self.options.places();
                self.options.ask(place, move |place| places.create(place))?
            }
        };
        let place = absolute(place)?;
        let number = usize::from(self.table.next);
        let mut table = self.table_now();
        table.generation = self.table.generation + 1;
        table.next = table.next.checked_add(1).ok_or_else(|| {
            Error::new(Kind::Unsupported, "this store has used all 65,535 member numbers")
        })?;
        table.rows.push(MemberRow {
            number: number as u16,
            id: self.new_name()?,
            state: MemberState::Active,
            place: place.as_os_str().as_bytes().to_vec(),
            // A label of the first format has no room for them.
            facts: if self.format > Format::V1 { facts } else { MemberFacts::default() },
        });
        self.adopt(table);
        self.require_voucher()?;
        let label = self.vouch(ExtentName::Label, self.label(number).encode());
        replace_small(&*member, ExtentName::Label, &label)?;
        member.sync()?;
        let options = self.options.clone();
        self.member_slots[number].take(&options, place, member, number);
        self.report_facts();
        Ok(number)
    }

    /// Returns the number of a directory that is a member already, according to its own label.
    fn joined(&mut self, place: &Path) -> Result<Option<usize>> {
        let (member, label) = match self.options.read_member(place) {
            Ok(found) => found,
            Err(error) if error.kind() == Kind::Unanswered => return Err(error),
            Err(_) => return Ok(None),
        };
        if label.config.store != self.config.store {
            return Err(Error::new(Kind::Refused, "this directory is a member of another store")
                .at(place)
                .advice("give an empty directory"));
        }
        let number = usize::from(label.member);
        // One that is leaving is one of ours, though its label may not say yet how far that is.
        let slot = self
            .member_slots
            .get(number)
            .filter(|slot| slot.row.is_some() && slot.member.is_some());
        if slot.is_some_and(|slot| absolute(place).is_ok_and(|place| place == slot.place)) {
            return Ok(Some(number));
        }
        let own = label.table.row(number).cloned();
        if self.table.row(number).cloned() == own && own.is_some() {
            return Ok(Some(number));
        }
        // Its table is ours and itself: it was about to join when that was cut off.
        let mut without = label.table.rows.iter().filter(|row| Some(*row) != own.as_ref());
        let is_next = label.member == self.table.next
            && label.table.generation == self.table.generation + 1
            && self.table.rows.iter().all(|row| without.next() == Some(row));
        if !is_next {
            return Ok(None);
        }
        self.adopt(label.table);
        let options = self.options.clone();
        self.member_slots[number].take(&options, absolute(place)?, member, number);
        Ok(Some(number))
    }

    /// Removes a member from the table. The last label of the removed member stays: it says that
    /// the member has left, and leads a process that knows an older table to the members that
    /// joined later. A directory without a label would count as the member that an older table
    /// lists there.
    ///
    /// # Errors
    /// Fails with the errors of [`change_table`](Self::change_table).
    pub(crate) fn retire(&mut self, claim: &Claim, number: usize) -> Result<()> {
        self.member_slots[number].member = None;
        self.change_table(claim, |table| table.rows.retain(|row| usize::from(row.number) != number))
    }

    /// Passes the table's facts about each remote member to the code that opens it.
    pub(super) fn report_facts(&self) {
        let Some(remote) = &self.options.remote else { return };
        for slot in self.member_slots.iter().filter(|slot| is_remote(&slot.place)) {
            if let Some(row) = &slot.row {
                remote.agree(&slot.place, &row.facts);
            }
        }
    }

    /// Returns the label that a member should have.
    fn label(&self, number: usize) -> Label {
        let (config, table) = (self.config.clone(), self.table.clone());
        Label { format: self.format, config, member: number as u16, table }
    }

    /// Returns the table with the places where the members were found; it has a higher generation
    /// if they have moved.
    fn table_now(&self) -> MemberTable {
        let mut table = self.table.clone();
        for row in &mut table.rows {
            let found = &self.member_slots[usize::from(row.number)].place;
            if *found != self.options.reached(&self.named, self.config.store, row) {
                let place = found.as_os_str().as_bytes();
                // The facts that were found out are those of the old place.
                row.facts = row.facts.elsewhere();
                row.place = place.to_vec();
            }
        }
        if table != self.table {
            table.generation += 1;
        }
        table
    }

    /// Changes the slots to those of a table.
    fn adopt(&mut self, table: MemberTable) {
        self.member_slots.resize_with(table.next.into(), MemberSlot::default);
        for (number, slot) in self.member_slots.iter_mut().enumerate() {
            slot.row = table.row(number).cloned();
            if slot.row.is_none() {
                *slot = MemberSlot::default();
            }
        }
        debug_assert!(table.rows.iter().all(|row| row.number < table.next));
        self.table = table;
    }
}

/// Whether a member has left the store according to its own label.
pub(super) fn has_left(label: &Label) -> bool {
    label.table.row(label.member.into()).is_none_or(|row| row.state == MemberState::Left)
}

/// Returns the format version of a store with these labels. A change of the format is made on one
/// member after the other; it has taken effect when most members have it.
pub(super) fn format_of<'l>(labels: impl Iterator<Item = &'l Label>) -> Format {
    let (old, new): (Vec<_>, Vec<_>) = labels.partition(|label| label.format == Format::V1);
    if old.len() >= new.len().max(1) { Format::V1 } else { Format::V2 }
}

fn absolute(place: &Path) -> Result<std::path::PathBuf> {
    real(place).map_err(|error| Error::io("cannot determine the absolute path", place, error))
}

fn all_left(named: &Path) -> Error {
    Error::new(Kind::Busy, "all members were removed from the store while this command ran")
        .at(named)
        .advice("give a current member of the store with --store, and run this command again")
}
