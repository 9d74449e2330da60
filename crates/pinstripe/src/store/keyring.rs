//! Key rings and slots on the members: opening them, and changing them.
//!
//! Invariants: slots are put before the ring they speak of, which alone makes them count; a ring's
//! name follows from its generation, so of two rotations at once one wins. A slot is removed by an
//! object that says so, and goes when that stands on every member. Nothing is sealed before the
//! current ring and its slots stand on every present member.

mod room;
mod unlock;

use std::collections::BTreeMap;

pub use room::{KeyRoom, judge_key_object};
pub use unlock::{COST_DEFAULT_KIB, Opened, UnlockLimits};

use super::{Store, keys_name, read_small};
use crate::error::{Error, Kind, Result};
use crate::format::key_ring::{KeyRing, KeySlot};
use crate::format::keys::{GENERATIONS_MAX, Keys};
use crate::format::label::Encryption;
use crate::format::removed_slot::RemovedSlot;
use crate::member::{ExtentName, Member, Room};
use crate::seal::{NewSlot, Opener, RootKey, locked};

/// How a store was unlocked; kept to add slots and to rotate.
pub(super) struct Unlocked {
    keys: Keys,
    root: RootKey,
    generation: u32,
}

impl Store {
    /// Whether the store is encrypted and was not unlocked.
    pub fn is_locked(&self) -> bool {
        self.keys.is_none()
    }

    /// Reads the key rooms of an encrypted store.
    ///
    /// # Errors
    /// When no member can be listed; [`Kind::Unsupported`] when a newer version wrote something
    /// there.
    pub fn key_room(&self) -> Result<KeyRoom> {
        let mut room = KeyRoom::default();
        for (id, holders) in self.key_holders()? {
            let name = ExtentName::In(Room::Keys, id);
            let mut last = None;
            for number in holders {
                let Some(member) = self.seats[number].member.as_deref() else { continue };
                match self.read_key_object(member, id) {
                    Ok(bytes) => {
                        room.keep(bytes);
                        last = None;
                        break;
                    }
                    Err(error) if error.kind() == Kind::Unsupported => return Err(error),
                    Err(error) => last = Some(error.at(member.place().join(name.path()))),
                }
            }
            room.damaged.extend(last.map(|error| (name, error)));
        }
        Ok(room)
    }

    /// Which present members have each key object. All have all of them, so one that can be listed
    /// is enough.
    fn key_holders(&self) -> Result<BTreeMap<[u8; 16], Vec<usize>>> {
        let mut holders: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        let (mut is_listed, mut last) = (false, None);
        for (number, member) in self.present() {
            match member.list(Room::Keys) {
                Ok(listed) => {
                    is_listed = true;
                    listed
                        .into_iter()
                        .for_each(|(id, _)| holders.entry(id).or_default().push(number));
                }
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if !is_listed => Err(error),
            _ => Ok(holders),
        }
    }

    fn read_key_object(&self, member: &dyn Member, id: [u8; 16]) -> Result<Vec<u8>> {
        let bytes = read_small(member, ExtentName::In(Room::Keys, id))?;
        judge_key_object(self, id, &bytes)?;
        Ok(bytes)
    }

    /// Names of the key objects that every member must have.
    ///
    /// # Errors
    /// As [`key_room`](Self::key_room).
    pub fn key_names(&self) -> Result<Vec<ExtentName>> {
        if self.config.encryption == Encryption::None {
            return Ok(vec![keys_name(&self.config)]);
        }
        let room = self.key_room()?;
        let damaged: Vec<_> = room.damaged.iter().map(|(name, _)| *name).collect();
        Ok(room.wanted().into_iter().map(|(name, _)| name).chain(damaged).collect())
    }

    /// Puts the current ring and its slots on every present member that lacks them, so that what
    /// is sealed now can be opened as long as it can be read.
    ///
    /// # Errors
    /// Those of the members, when more of them fail than parity replaces.
    pub fn spread_keys(&self) -> Result<()> {
        if self.config.encryption == Encryption::None {
            return Ok(());
        }
        self.spread(&self.key_room()?)
    }

    fn spread(&self, room: &KeyRoom) -> Result<()> {
        let mut spare = usize::from(self.config.parity).saturating_sub(self.absent().count());
        for (_, member) in self.present() {
            for (name, bytes) in room.wanted() {
                let put = match member.len(name) {
                    Ok(len) if len == bytes.len() as u64 => continue,
                    Ok(_) => super::replace_small(&**member, name, bytes),
                    Err(_) => member.put(name, bytes),
                };
                match put {
                    Ok(()) => {}
                    Err(error) if error.kind() == Kind::Exists => {}
                    Err(_) if spare > 0 => {
                        spare -= 1;
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Adds a slot to the current ring; returns it.
    ///
    /// # Errors
    /// [`Kind::Locked`] when the store was not unlocked, [`Kind::Busy`] when its keys were rotated
    /// since then; those of the members.
    pub fn add_slot(&self, new: &NewSlot) -> Result<KeySlot> {
        let (unlocked, room) = self.current_ring()?;
        let (ring, _) = room.current().ok_or_else(locked)?;
        let slot = new.wrap(&unlocked.root, ring)?;
        self.put_everywhere(ExtentName::In(Room::Keys, slot.id), &slot.encode())?;
        self.remove_stale_keys()?;
        Ok(slot)
    }

    /// Removes a slot of the current ring, or one that is damaged on all members. Whoever knew its
    /// password may have kept the root key: only a rotation shuts them out of what is written later.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when there is no such slot, [`Kind::Refused`] for the last one and while
    /// members are absent, [`Kind::Busy`] when another removal was first; those of the members.
    pub fn remove_slot(&self, id: [u8; 16]) -> Result<()> {
        self.refuse_absent("it would not hear that the slot was removed")?;
        let room = self.key_room()?;
        let (ring, slots) = room.current().ok_or_else(|| {
            Error::new(Kind::Refused, "no sound key slot would be left")
                .advice("put back a copy of what lies in a member's keys/ first")
        })?;
        let is_damaged = room.damaged_slots(self.config.store).any(|damaged| damaged == id);
        if !is_damaged && !slots.iter().any(|slot| slot.id == id) {
            return Err(Error::new(Kind::NotFound, "there is no such key slot")
                .advice("list them with: pinstripe key list"));
        }
        if !is_damaged && slots.len() == 1 {
            return Err(Error::new(Kind::Refused, "this is the last key slot")
                .advice("nothing could ever be read again; add another first: pinstripe key add"));
        }
        let removed = RemovedSlot { slot: id, ..room.next_removal(ring) };
        let (name, bytes) = (ExtentName::In(Room::Keys, removed.own_name()), removed.encode());
        let (_, first) = self.present().next().ok_or_else(locked)?;
        first.put(name, &bytes).map_err(|error| match error.kind() {
            Kind::Exists => Error::new(Kind::Busy, "another removal of a key slot was first")
                .advice("nothing was changed; look with 'pinstripe key list' and run it again"),
            _ => error,
        })?;
        for (_, member) in self.present().skip(1) {
            match member.put(name, &bytes) {
                // Somebody spreads keys already.
                Err(error) if error.kind() == Kind::Exists => {}
                put => put?,
            }
        }
        self.delete_all(ExtentName::In(Room::Keys, id))?;
        self.remove_stale_keys()
    }

    /// Makes a further generation of seal keys under a new root key, with one slot. Slots of before
    /// open the store no more, and nothing that is stored is written again. Returns the slot.
    ///
    /// # Errors
    /// [`Kind::Refused`] while members are absent, [`Kind::Busy`] when another rotation was first;
    /// those of the members.
    pub fn rotate_keys(&mut self, new: &NewSlot) -> Result<KeySlot> {
        self.refuse_absent("its old keys would not be replaced")?;
        let (unlocked, _) = self.current_ring()?;
        let mut keys = unlocked.keys.clone();
        if keys.seals.len() >= GENERATIONS_MAX {
            return Err(Error::new(Kind::Refused, "the keys were rotated too often")
                .expected(GENERATIONS_MAX, keys.seals.len() + 1));
        }
        keys.seals.push(crate::id::random()?);
        let root = RootKey::generate()?;
        let ring = root.seal(&keys, &self.config)?;
        let slot = new.wrap(&root, &ring)?;
        self.put_everywhere(ExtentName::In(Room::Keys, slot.id), &slot.encode())?;
        let name = ExtentName::In(Room::Keys, KeyRing::name(ring.store, ring.generation));
        let (_, first) = self.present().next().ok_or_else(locked)?;
        first.put(name, &ring.encode()).map_err(|error| match error.kind() {
            Kind::Exists => Error::new(Kind::Busy, "another rotation of the keys was first")
                .advice("nothing was changed; open the store with what that one set"),
            _ => error,
        })?;
        // From here on the new keys are the store's, whatever else fails.
        self.opener = Opener::new(&keys);
        self.keys = Some(keys.clone());
        self.unlocked = Some(Unlocked { keys, root, generation: ring.generation });
        self.remove_stale_keys().map_err(|error| {
            error.advice("the new password or key file is in force; 'pinstripe repair' ends this")
        })?;
        Ok(slot)
    }

    /// What this store was unlocked with, if it is still current.
    fn current_ring(&self) -> Result<(&Unlocked, KeyRoom)> {
        if self.config.encryption == Encryption::None {
            return Err(Error::new(
                Kind::Usage,
                "this store is not encrypted: it has no key slots",
            )
            .advice("encryption is chosen when a store is made: see 'pinstripe init --help'"));
        }
        let unlocked = self.unlocked.as_ref().ok_or_else(locked)?;
        let room = self.key_room()?;
        let generation = room.current().map(|(ring, _)| ring.generation);
        if generation != Some(unlocked.generation) {
            return Err(Error::new(Kind::Busy, "the keys were rotated meanwhile")
                .advice("run it again with the new password or key file"));
        }
        Ok((unlocked, room))
    }

    fn refuse_absent(&self, why: &str) -> Result<()> {
        match self.absent().next() {
            None => Ok(()),
            Some(number) => {
                Err(Error::new(Kind::Refused, format!("member {number} is absent: {why}"))
                    .at(&self.seats[number].place)
                    .advice("attach it, or rebuild it with 'pinstripe repair --member N --to DIR'"))
            }
        }
    }

    /// Puts a key object on every present member.
    fn put_everywhere(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        self.present().try_for_each(|(_, member)| member.put(name, bytes))
    }

    /// Removes slots and rings that count no more, when what counts stands everywhere.
    ///
    /// # Errors
    /// Those of the members.
    pub fn remove_stale_keys(&self) -> Result<()> {
        if self.config.encryption == Encryption::None {
            return Ok(());
        }
        // What goes is judged by what was spread: a rotation in between would make it wrong.
        let room = self.key_room()?;
        self.spread(&room)?;
        for name in room.stale() {
            for (_, member) in self.present() {
                member.delete(name)?;
            }
        }
        self.present().try_for_each(|(_, member)| member.sync())
    }
}
