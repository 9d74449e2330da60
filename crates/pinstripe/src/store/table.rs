//! Changing the table of members, in an order that survives a power cut at any step.
//!
//! A changed table has a higher generation and is written into every present member's label.
//! Whoever opens the store meanwhile follows the highest generation that it finds, so a change is
//! made as soon as the first label is durable, and any later run writes the others. A new member
//! gets its label first and is named by the others last: before that nobody uses it.
//!
//! Invariant: a label is written under a [`Claim`] only, so no change is based on anything but the
//! one before it, and none is written over by an earlier one.
//!
//! Never here: moving what members hold (pipeline/, ops/).

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Claim, Seat, Store, read_member, read_small, replace_small};
use crate::error::{Error, Kind, Result};
use crate::format::label::{Label, MemberRow, MemberState, MemberTable};
use crate::member::directory::DirectoryMember;
use crate::member::{ExtentName, Member, Room, SharedMember};

impl Store {
    /// Writes the label of every present member on which it is missing, damaged or says something
    /// else than this store knows; returns how many.
    ///
    /// # Errors
    /// [`Kind::Busy`] when another process changes the members, or has since this store was
    /// opened; a member's own when it cannot be written, unless it is on its way out.
    pub fn write_labels(&self) -> Result<u64> {
        if self.outdated_labels(&self.table_now()).next().is_none() {
            return Ok(0);
        }
        self.write_labels_with(&self.claim()?)
    }

    /// [`write_labels`](Self::write_labels) for one that has the right to.
    ///
    /// # Errors
    /// As [`write_labels`](Self::write_labels).
    pub fn write_labels_with(&self, claim: &Claim) -> Result<u64> {
        claim.confirm()?;
        self.confirm_table()?;
        let (table, mut written) = (self.table_now(), 0);
        for (number, member, label) in self.outdated_labels(&table) {
            match replace_small(&**member, ExtentName::Label, &label.encode()) {
                Ok(()) => written += 1,
                Err(_) if self.state(number) != Some(MemberState::Active) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Members on which another label stands than should, and what should.
    fn outdated_labels<'a>(
        &'a self,
        table: &'a MemberTable,
    ) -> impl Iterator<Item = (usize, &'a SharedMember, Label)> {
        self.present().filter_map(|(number, member)| {
            let label = Label { table: table.clone(), ..self.label(number) };
            let there = read_small(&**member, ExtentName::Label);
            // Compared by what it says: one of an earlier version is left as it is.
            let is_it = there.and_then(|bytes| Label::decode(&bytes)).is_ok_and(|it| it == label);
            (!is_it).then_some((number, member, label))
        })
    }

    /// How a member takes part; `None` when it has left.
    pub fn state(&self, number: usize) -> Option<MemberState> {
        self.seats.get(number)?.row.as_ref().map(|row| row.state)
    }

    /// Changes the table and writes it to all present members.
    ///
    /// # Errors
    /// Those of [`write_labels`](Self::write_labels).
    pub fn change_table(
        &mut self,
        claim: &Claim,
        change: impl FnOnce(&mut MemberTable),
    ) -> Result<()> {
        claim.confirm()?;
        // What this is based on must be what stands.
        self.confirm_table()?;
        let mut table = self.table_now();
        table.generation = self.table.generation + 1;
        change(&mut table);
        self.adopt(table);
        self.write_labels_with(claim)?;
        self.confirm_table()
    }

    /// Makes sure that nobody has changed the table since this store knows it.
    ///
    /// # Errors
    /// [`Kind::Busy`] when somebody did.
    pub fn confirm_table(&self) -> Result<()> {
        for (_, member) in self.present() {
            let label =
                read_small(&**member, ExtentName::Label).and_then(|bytes| Label::decode(&bytes));
            if label.is_ok_and(|label| label.table.replaces(&self.table)) {
                return Err(Error::new(
                    Kind::Busy,
                    "another process changes the members of this store",
                )
                .at(member.place())
                .advice("let it finish, then run this again: it continues where it was"));
            }
        }
        Ok(())
    }

    /// Makes sure that no member on which this process may have laid something has left since the
    /// store was opened: to be asked when packs are durable, before an index run or a snapshot
    /// speaks of them. A member that leaves is looked at again after it has left (ops/member), so
    /// one side sees the other.
    ///
    /// A checkpoint need not ask. It stands on whatever members took it, and one copy is enough,
    /// since all below it is durable; but whoever goes on from it takes an entry over only when
    /// the index has its chunks, and a pack without a run counts only when it is whole. One whose
    /// own pages lie in packs that do not count is as good as none, and costs time.
    ///
    /// # Errors
    /// [`Kind::Busy`] when one has left.
    pub fn confirm_takers(&self) -> Result<()> {
        let mut newest = self.table.clone();
        for (_, member) in self.present() {
            let label =
                read_small(&**member, ExtentName::Label).and_then(|bytes| Label::decode(&bytes));
            match label {
                Ok(label) if label.config.store != self.config.store => {}
                Ok(label) if label.table.replaces(&newest) => newest = label.table,
                _ => {}
            }
        }
        let own = self.table.rows.iter().filter(|row| row.state == MemberState::Active);
        for row in own.filter(|row| self.seats[usize::from(row.number)].member.is_some()) {
            let now = newest.row(row.number.into());
            let stays = |now: &MemberRow| now.id == row.id && now.state != MemberState::Left;
            if !now.is_some_and(stays) {
                return Err(Error::new(
                    Kind::Busy,
                    format!("member {} left the store while this ran", row.number),
                )
                .at(&self.seats[usize::from(row.number)].place)
                .advice("run it again: what it has stored is kept where the others have it"));
            }
        }
        Ok(())
    }

    /// Seats a directory as a new member, or goes on with one that got no further than this:
    /// its label is written, and no other member knows it yet. Returns its number.
    ///
    /// # Errors
    /// [`Kind::Refused`] when the directory is not empty, belongs to another store, or was a
    /// member of this one and still has extents.
    pub fn join(&mut self, place: &Path) -> Result<usize> {
        if let Some(number) = self.joined(place)? {
            return Ok(number);
        }
        let steps = self.options.steps.clone();
        let member = match read_member(place) {
            // A member that got a number that is not its own any more, or never became one.
            Ok((member, label)) if label.config == self.config => {
                let holds_any = [Room::Packs, Room::Index].into_iter();
                for room in holds_any {
                    if !member.list(room)?.is_empty() {
                        return Err(Error::new(
                            Kind::Refused,
                            "this was a member of the store, and still holds extents",
                        )
                        .at(place)
                        .advice(
                            "empty the directory if nothing in it is needed, then run this again",
                        ));
                    }
                }
                match steps {
                    Some(steps) => member.with_steps(steps),
                    None => member,
                }
            }
            _ => DirectoryMember::create_in_with(place, steps)?,
        };
        let place = absolute(place)?;
        let number = usize::from(self.table.next);
        let mut table = self.table_now();
        table.generation = self.table.generation + 1;
        table.next = table.next.checked_add(1).ok_or_else(|| {
            Error::new(Kind::Unsupported, "this store has had 65,535 members, which is all it can")
        })?;
        table.rows.push(MemberRow {
            number: number as u16,
            id: self.new_name()?,
            state: MemberState::Active,
            place: place.as_os_str().as_bytes().to_vec(),
        });
        self.adopt(table);
        let label = self.label(number).encode();
        replace_small(&member, ExtentName::Label, &label)?;
        member.sync()?;
        let options = self.options.clone();
        self.seats[number].take(&options, place, member, number);
        Ok(number)
    }

    /// The number of a directory that is a member already, as far as its own label knows.
    fn joined(&mut self, place: &Path) -> Result<Option<usize>> {
        let Ok((member, label)) = read_member(place) else { return Ok(None) };
        if label.config.store != self.config.store {
            return Err(Error::new(Kind::Refused, "this is a member of another store")
                .at(place)
                .advice("name an empty directory"));
        }
        let number = usize::from(label.member);
        // One that is leaving is one of ours, though its label may not say yet how far that is.
        let seat =
            self.seats.get(number).filter(|seat| seat.row.is_some() && seat.member.is_some());
        if seat.is_some_and(|seat| absolute(place).is_ok_and(|place| place == seat.place)) {
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
        self.seats[number].take(&options, absolute(place)?, member, number);
        Ok(Some(number))
    }

    /// Strikes a member out of the table: from then on it is none. It is emptied of its label,
    /// where it is there.
    ///
    /// # Errors
    /// As [`change_table`](Self::change_table).
    pub fn retire(&mut self, claim: &Claim, number: usize) -> Result<()> {
        let member = self.seats[number].member.take();
        self.change_table(claim, |table| {
            table.rows.retain(|row| usize::from(row.number) != number)
        })?;
        if let Some(member) = member {
            // Nobody looks there any more: what cannot be removed is in nobody's way.
            let _ = member.delete(ExtentName::Label).and_then(|()| member.sync());
        }
        Ok(())
    }

    /// The label that a member should have.
    fn label(&self, number: usize) -> Label {
        Label { config: self.config.clone(), member: number as u16, table: self.table.clone() }
    }

    /// The table with the places where the members were found; a later one if they have moved.
    fn table_now(&self) -> MemberTable {
        let mut table = self.table.clone();
        for row in &mut table.rows {
            row.place = self.seats[usize::from(row.number)].place.as_os_str().as_bytes().to_vec();
        }
        if table != self.table {
            table.generation += 1;
        }
        table
    }

    /// Makes the seats those of a table.
    fn adopt(&mut self, table: MemberTable) {
        self.seats.resize_with(table.next.into(), Seat::default);
        for (number, seat) in self.seats.iter_mut().enumerate() {
            seat.row = table.row(number).cloned();
            if seat.row.is_none() {
                *seat = Seat::default();
            }
        }
        self.table = table;
    }
}

fn absolute(place: &Path) -> Result<std::path::PathBuf> {
    std::fs::canonicalize(place)
        .map_err(|error| Error::io("cannot make this path absolute", place, error))
}
