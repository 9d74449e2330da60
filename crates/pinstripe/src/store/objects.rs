//! Small objects on all members: put, found and removed as one, whoever else is at it.
//!
//! An object counts when it stands on so many members that any two processes must meet on one of
//! them. Members are gone through in the order of their numbers, so that of two processes that
//! put different objects under one name, the first member decides and the other one hears of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Kind, Result};
use crate::format::snapshot;
use crate::id::SnapshotId;
use crate::member::{ExtentName, Room};

use super::{Store, deletion, read_small, snapshots};

/// How many members have to take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// As many as a backup needs: all but those that parity replaces.
    Backup,
    /// So many that no writer can have met only others: the same where more than half of the
    /// members remain, else all.
    Deletion,
}

/// The objects of a room.
pub struct Found<T> {
    /// The sound ones by name.
    pub sound: BTreeMap<[u8; 16], T>,
    /// Names of which no copy is sound, and why.
    pub unsound: Vec<(ExtentName, Error)>,
}

impl Store {
    /// Least members that must take part.
    pub fn least_members(&self, reach: Reach) -> usize {
        let all = self.present().count() + self.absent().count();
        let parity = usize::from(self.config.parity);
        match reach {
            Reach::Deletion if all <= 2 * parity => all,
            _ => all.saturating_sub(parity),
        }
    }

    /// Puts an object on every present member. One that is there with the same bytes is as good.
    ///
    /// # Errors
    /// [`Kind::Exists`] when another object has the name, and then on no further member; a
    /// member's own error when too few took it.
    pub fn put_all(&self, name: ExtentName, bytes: &[u8], reach: Reach) -> Result<()> {
        let (mut took, mut failed) = (0, None);
        for (_, member) in self.present() {
            match member.put(name, bytes) {
                Ok(()) => took += 1,
                Err(error) if error.kind() == Kind::Exists => {
                    let there = read_small(&**member, name);
                    if there.is_ok_and(|there| there != bytes) {
                        return Err(error);
                    }
                    took += 1;
                }
                Err(error) => failed = Some(failed.unwrap_or(error)),
            }
        }
        if took >= self.least_members(reach) {
            return Ok(());
        }
        Err(failed.unwrap_or_else(|| {
            Error::new(Kind::TooManyLosses, format!("too few members for {name}"))
                .expected(self.least_members(reach), took)
        }))
    }

    /// Removes an object from every present member, durably.
    ///
    /// # Errors
    /// The first member's that could not; the others were tried all the same.
    pub fn delete_all(&self, name: ExtentName) -> Result<()> {
        let deleted = self.drop_all(name);
        deleted.and(self.sync_all())
    }

    /// Removes an object from every present member. After a power cut it may be there again.
    ///
    /// # Errors
    /// As [`delete_all`](Self::delete_all).
    pub fn drop_all(&self, name: ExtentName) -> Result<()> {
        let deleted = self.present().map(|(_, member)| member.delete(name));
        deleted.fold(Ok(()), Result::and)
    }

    /// Makes durable on every present member what was put and removed.
    ///
    /// # Errors
    /// The first member's that could not; the others were tried all the same.
    pub fn sync_all(&self) -> Result<()> {
        let synced = self.present().map(|(_, member)| member.sync());
        synced.fold(Ok(()), Result::and)
    }

    /// The small objects that every member should have: keys, snapshots, marks and tombstones. Not
    /// those that come and go with a process.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub fn lasting_objects(&self) -> Result<BTreeSet<ExtentName>> {
        let mut names: BTreeSet<_> = self.key_names()?.into_iter().collect();
        let snapshots = self.list(Room::Snapshots)?.into_keys().map(SnapshotId);
        let is_void = |id: &SnapshotId| {
            let snapshot = |bytes: &[u8]| snapshot::parse(bytes).map(drop);
            self.read_object(ExtentName::snapshot(*id), snapshot).is_err()
                && snapshots::is_void(self, *id)
        };
        names.extend(snapshots.filter(|id| !is_void(id)).map(ExtentName::snapshot));
        let marks = self.list(Room::Forgotten)?.into_keys();
        names.extend(marks.map(|id| ExtentName::In(Room::Forgotten, id)));
        names.extend(deletion::tombstone_names(self)?);
        Ok(names)
    }

    /// The names of all objects of a room, sound or not.
    ///
    /// # Errors
    /// A member's own when too few can be listed.
    pub fn names(&self, room: Room, reach: Reach) -> Result<BTreeSet<[u8; 16]>> {
        let mut names = BTreeSet::new();
        let (mut listed, mut failed) = (0, None);
        for (_, member) in self.present() {
            match member.list(room) {
                Ok(found) => {
                    names.extend(found.into_iter().map(|(id, _)| id));
                    listed += 1;
                }
                Err(error) => failed = Some(failed.unwrap_or(error)),
            }
        }
        if listed >= self.least_members(reach) {
            return Ok(names);
        }
        Err(failed.unwrap_or_else(|| {
            Error::new(Kind::TooManyLosses, format!("too few members to list {}", room.dir()))
                .expected(self.least_members(reach), listed)
        }))
    }

    /// Reads every object of a room, each from whichever member has it sound. What vanishes
    /// meanwhile counts as gone.
    ///
    /// # Errors
    /// A member's own when too few can be listed; [`Kind::Unsupported`] when a newer version
    /// wrote one.
    pub fn objects<T>(
        &self,
        room: Room,
        reach: Reach,
        decode: impl Fn([u8; 16], &[u8]) -> Result<T>,
    ) -> Result<Found<T>> {
        let names = self.names(room, reach)?;
        let mut found = Found { sound: BTreeMap::new(), unsound: Vec::new() };
        for id in names {
            let name = ExtentName::In(room, id);
            let mut worst = None;
            for (_, member) in self.present() {
                let read = read_small(&**member, name).and_then(|bytes| {
                    decode(id, &bytes).map_err(|error| error.at(member.place().join(name.path())))
                });
                match read {
                    Ok(object) => {
                        found.sound.insert(id, object);
                        worst = None;
                        break;
                    }
                    Err(error) if error.kind() == Kind::Unsupported => return Err(error),
                    Err(error) if error.kind() == Kind::NotFound => {}
                    Err(error) => worst = Some(error),
                }
            }
            found.unsound.extend(worst.map(|error| (name, error)));
        }
        Ok(found)
    }
}
