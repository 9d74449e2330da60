//! Key rings and key slots on the members: opens and changes them.
//!
//! Invariants: a slot is put before the ring to which it belongs, and counts only once that ring is
//! present; a ring's name follows from its generation, so of two concurrent rotations one wins. A
//! slot is removed by a removal object, and deleted once that object is on every member. Nothing is
//! sealed, and no label is written, before every present member has the current ring and its slots.
//! Only a process that has opened a ring deletes earlier rings, or any slot: a newer ring that a
//! single member claims to have deletes nothing.

mod newest;
mod stored_keys;
mod unlock;

pub use stored_keys::StoredKeys;
pub(crate) use stored_keys::judge_key_object;
pub use unlock::UnlockLimits;

use std::collections::HashSet;
use std::sync::OnceLock;

use super::{Store, keys_name, read_small};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;
use pinstripe_member::key_ring::{KeyRing, KeySlot};
use pinstripe_member::keys::{GENERATIONS_MAX, Keys};
use pinstripe_member::label::{Encryption, Format};
use pinstripe_member::removed_slot::RemovedSlot;
use pinstripe_member::{ExtentKind, ExtentName, Member, SharedMember};
use pinstripe_stripe::{NewSlot, Opener, RootKey, Voucher, keys_changed, locked_error};

/// A key ring of format version 2, in the form that is put on the members.
pub(crate) struct ChainedRing {
    /// The name.
    pub name: ExtentName,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The voucher for all other objects, with the same keys.
    pub voucher: Voucher,
}

/// The secrets with which a store was unlocked, kept for adding slots and for rotation.
pub(super) struct Unlocked {
    keys: Keys,
    pub(super) root: RootKey,
    generation: u32,
    /// The names of the rings of later generations, computed when first needed.
    later_rings: OnceLock<HashSet<[u8; 16]>>,
}

impl Unlocked {
    pub(super) fn new(keys: Keys, root: RootKey, generation: u32) -> Self {
        Unlocked { keys, root, generation, later_rings: OnceLock::new() }
    }

    /// Returns the names that rings of later generations of this store have.
    pub(super) fn later_rings(&self, store: StoreId) -> &HashSet<[u8; 16]> {
        self.later_rings.get_or_init(|| {
            let later = self.generation + 1..GENERATIONS_MAX as u32;
            later.map(|generation| KeyRing::name(store, generation)).collect()
        })
    }
}

impl Store {
    /// Whether the store is encrypted and was not unlocked.
    pub fn is_locked(&self) -> bool {
        self.keys.is_none()
    }

    /// Returns the names of the key objects that every member must have.
    ///
    /// # Errors
    /// Fails with the errors of [`stored_keys`](Self::stored_keys).
    pub fn key_names(&self) -> Result<Vec<ExtentName>> {
        if self.config.encryption == Encryption::None {
            return Ok(vec![keys_name(&self.config)]);
        }
        let stored = self.stored_keys()?;
        let damaged: Vec<_> = stored.damaged.iter().map(|(name, _)| *name).collect();
        Ok(stored.wanted().into_iter().map(|(name, _)| name).chain(damaged).collect())
    }

    /// Puts the current ring and its slots on every present member that lacks them, so that as long
    /// as sealed data can be read, it can also be opened.
    ///
    /// # Errors
    /// Fails with the errors of the members, when more of them fail than parity replaces, or with
    /// [`Kind::NoSpace`] when a member has no space for the keys.
    pub(crate) fn spread_keys(&self) -> Result<()> {
        self.spread_current(true)
    }

    /// Puts the current ring and its slots on members that lack them; damaged copies are left to
    /// `scrub` and `repair`.
    ///
    /// # Errors
    /// Fails with the errors of [`spread_keys`](Self::spread_keys).
    pub(super) fn spread_missing_keys(&self) -> Result<()> {
        self.spread_current(false)
    }

    fn spread_current(&self, mends: bool) -> Result<()> {
        match self.config.encryption {
            Encryption::None => Ok(()),
            _ => self.spread(&self.stored_keys()?, mends).map(drop),
        }
    }

    /// Returns whether every present member has all of it now.
    fn spread(&self, stored: &StoredKeys, mends: bool) -> Result<bool> {
        let mut is_everywhere = true;
        // Absent members lack the keys too: both together must stay within what parity replaces.
        let mut spare = usize::from(self.config.parity).saturating_sub(self.absent().count());
        for (_, member) in self.present() {
            for (name, bytes) in stored.wanted() {
                let put = match read_small(&**member, name) {
                    Ok(there) if there == bytes => continue,
                    Err(error) if error.kind() == Kind::NotFound => member.put(name, bytes),
                    _ if !mends => continue,
                    _ => super::replace_small(&**member, name, bytes),
                };
                match put {
                    Ok(()) => {}
                    Err(error) if error.kind() == Kind::Exists => {}
                    // A full member still takes marks, which nobody could verify without the keys.
                    Err(error) if spare > 0 && error.kind() != Kind::NoSpace => {
                        spare -= 1;
                        is_everywhere = false;
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(is_everywhere)
    }

    /// Adds a slot to the current ring, and returns the slot.
    ///
    /// # Errors
    /// Fails with [`Kind::Locked`] when the store was not unlocked, with [`Kind::Busy`] when its
    /// keys were rotated since then, or with the errors of the members.
    pub(crate) fn add_slot(&self, new: &NewSlot) -> Result<KeySlot> {
        let (unlocked, stored) = self.current_ring()?;
        let (ring, _) = stored.current().ok_or_else(locked_error)?;
        let slot = new.wrap(&unlocked.root, ring)?;
        let name = ExtentName::In(ExtentKind::Keys, slot.id);
        self.put_everywhere(name, &self.vouch(name, slot.encode()))?;
        // A rotation that was first has made the slot one that opens nothing, an upgrade one that
        // does not count.
        self.confirm_keys()?;
        self.refuse_running_upgrade()?;
        self.remove_stale_keys()?;
        Ok(slot)
    }

    /// Removes a slot of the current ring, or a slot that is damaged on all members. A user who
    /// knew its password may have kept the root key: only a rotation keeps that user from opening
    /// later data.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] when there is no such slot, with [`Kind::Refused`] for the
    /// last slot and while members are absent, with [`Kind::Busy`] when another removal was faster,
    /// or with the errors of the members.
    pub(crate) fn remove_slot(&self, id: [u8; 16]) -> Result<()> {
        self.refuse_absent("the member would keep the removed key slot")?;
        let stored = self.stored_keys()?;
        let (ring, slots) = stored.current().ok_or_else(|| {
            Error::new(Kind::Refused, "the store would have no intact key slot")
                .advice("first restore a copy of the keys/ directory of a member")
        })?;
        let is_damaged = stored.damaged_slots(self.config.store).any(|damaged| damaged == id);
        if !is_damaged && !slots.iter().any(|slot| slot.id == id) {
            return Err(Error::new(Kind::NotFound, "the store has no such key slot")
                .advice("'pinstripe key list' lists the key slots"));
        }
        if !is_damaged && slots.len() == 1 {
            return Err(Error::new(Kind::Refused, "this is the last key slot").advice(
                "without a key slot, nobody can read the store; first add another key slot with \
                 'pinstripe key add'",
            ));
        }
        let removed = RemovedSlot { slot: id, ..stored.next_removal(ring) };
        let name = ExtentName::In(ExtentKind::Keys, removed.own_name());
        let bytes = self.vouch(name, removed.encode());
        // Two concurrent removals choose the same number and thus the same name. A put never
        // replaces, so the first member decides between them, before any other one is touched.
        let (_, first) = self.present().next().ok_or_else(locked_error)?;
        first.put(name, &bytes).map_err(|error| match error.kind() {
            Kind::Exists => Error::new(
                Kind::Busy,
                "another process removed a key slot at the same time",
            )
            .advice(
                "this command changed nothing; list the key slots with 'pinstripe key list', then \
                 run this command again",
            ),
            _ => error,
        })?;
        for (_, member) in self.present().skip(1) {
            match member.put(name, &bytes) {
                // Another process has already spread the object to this member.
                Err(error) if error.kind() == Kind::Exists => {}
                put => put?,
            }
        }
        self.require_answers().map_err(|error| {
            error.advice("the key slot is removed from the other members; run 'pinstripe repair'")
        })?;
        self.confirm_keys()?;
        self.refuse_running_upgrade()?;
        // Only now: a copy of the slot that turns up later meets the removal on every member.
        self.delete_all(ExtentName::In(ExtentKind::Keys, id))?;
        self.remove_stale_keys()
    }

    /// Makes a new generation of seal keys under a new root key, with one slot. Earlier slots do
    /// not open the store any more, and no stored data is rewritten. Returns the slot.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] while members are absent, with [`Kind::Busy`] when another
    /// rotation was faster, or with the errors of the members.
    pub(crate) fn rotate_keys(&mut self, new: &NewSlot) -> Result<KeySlot> {
        self.refuse_absent("the old keys on the member would not be replaced")?;
        // Held to the end: nothing may move, mend or change members during a rotation.
        let _claim = self.claim()?;
        let (unlocked, _) = self.current_ring()?;
        let mut keys = unlocked.keys.clone();
        if keys.seals.len() >= GENERATIONS_MAX {
            return Err(Error::new(
                Kind::Refused,
                "the keys cannot be rotated again, because the maximum number of key generations \
                 is reached",
            )
            .expected(GENERATIONS_MAX, keys.seals.len() + 1));
        }
        let fresh: [u8; 32] = pinstripe_base::id::random()?;
        keys.seals.push(fresh.into());
        let root = RootKey::generate()?;
        let ring = root.seal(&keys, &self.config, self.format)?;
        let slot = new.wrap(&root, &ring)?;
        let voucher = self.voucher.as_ref().map(|_| Voucher::new(&keys));
        // The slot first: a ring that no slot opens would lock every holder of a password out. Its
        // MAC is made with the old keys, so that a slot left by an interrupted rotation is not a
        // forgery to a process that opens the store with those keys.
        let name = ExtentName::In(ExtentKind::Keys, slot.id);
        self.put_everywhere(name, &self.vouch(name, slot.encode()))?;
        let name = ExtentName::In(ExtentKind::Keys, KeyRing::name(ring.store, ring.generation));
        let bytes = ring.encode();
        let bytes = voucher.as_ref().map_or(bytes.clone(), |it| it.vouch(name, &bytes));
        // A member may have failed since the first test: it was left out of the last puts.
        self.refuse_absent("the old keys on the member would not be replaced")?;
        // Concurrent rotations use the same name: the first member decides between them.
        let (_, first) = self.present().next().ok_or_else(locked_error)?;
        first.put(name, &bytes).map_err(|error| match error.kind() {
            Kind::Exists => {
                Error::new(Kind::Busy, "another process rotated the keys at the same time").advice(
                    "this command changed nothing; open the store with the password or key file \
                     that the other process set",
                )
            }
            _ => error,
        })?;
        // The ring is on a member: the new keys are in force, even if a later step fails.
        self.opener = Opener::new(&keys);
        self.voucher = voucher;
        self.keys = Some(keys.clone());
        self.unlocked = Some(Unlocked::new(keys, root, ring.generation));
        let spread = self.put_everywhere(name, &bytes).and_then(|()| self.require_answers());
        spread.and_then(|()| self.remove_stale_keys()).map_err(|error| {
            error.advice(
                "the new password or key file is in effect; 'pinstripe repair' completes \
                the rotation",
            )
        })?;
        Ok(slot)
    }

    /// Makes the ring that upgrades a store of format version 1 to version 2: it has the same keys
    /// under the same root key, and comes with the voucher that is used from then on. Returns
    /// `None` for a store without encryption.
    ///
    /// # Errors
    /// Fails with [`Kind::Locked`] when the store was not unlocked, with [`Kind::Busy`] when its
    /// keys were rotated since then.
    pub(crate) fn chained_ring(&self) -> Result<Option<ChainedRing>> {
        if self.config.encryption == Encryption::None {
            return Ok(None);
        }
        let (unlocked, _) = self.current_ring()?;
        let voucher = Voucher::new(&unlocked.keys);
        let ring = unlocked.root.seal(&unlocked.keys, &self.config, Format::V2)?;
        let name = ExtentName::In(ExtentKind::Keys, KeyRing::name(ring.store, ring.generation));
        let bytes = voucher.vouch(name, &ring.encode());
        Ok(Some(ChainedRing { name, bytes, voucher }))
    }

    /// Whether a member has a ring of a later format version than this store: that ring is in
    /// force.
    ///
    /// # Errors
    /// Fails with a member's own error when it cannot be listed and is not left out.
    pub(super) fn has_later_ring(&self) -> Result<bool> {
        let is_later = |member: &SharedMember, id| {
            let ring = read_small(&**member, ExtentName::In(ExtentKind::Keys, id))
                .and_then(|bytes| KeyRing::decode(&bytes));
            ring.is_ok_and(|it| it.store == self.config.store && it.format() > self.format)
        };
        for (_, member) in self.present() {
            match member.names(ExtentKind::Keys) {
                Ok(names) if names.iter().any(|id| is_later(member, *id)) => return Ok(true),
                Ok(_) => {}
                Err(error) => self.or_without(member, Err(error))?,
            }
        }
        Ok(false)
    }

    /// Continues as a store of format version 2, whose ring is on the members already.
    pub(crate) fn adopt_ring(&mut self, ring: ChainedRing) {
        self.format = Format::V2;
        self.voucher = Some(ring.voucher);
    }

    /// Returns the secrets with which this store was unlocked, if they are still current.
    fn current_ring(&self) -> Result<(&Unlocked, StoredKeys)> {
        if self.config.encryption == Encryption::None {
            return Err(Error::new(
                Kind::Usage,
                "this store is not encrypted: it has no key slots",
            )
            .advice("encryption is chosen when a store is created: see 'pinstripe init --help'"));
        }
        let unlocked = self.unlocked.as_ref().ok_or_else(locked_error)?;
        let stored = self.stored_keys()?;
        let generation = stored.current().map(|(ring, _)| ring.generation);
        if generation != Some(unlocked.generation) {
            return Err(keys_changed());
        }
        Ok((unlocked, stored))
    }

    fn refuse_absent(&self, why: &str) -> Result<()> {
        match self.absent().next() {
            None => Ok(()),
            Some(number) => {
                Err(Error::new(Kind::Refused, format!("member {number} is absent: {why}"))
                    .at(&self.member_slots[number].place)
                    .advice(super::attach_or_replace(number)))
            }
        }
    }

    /// Fails if a member failed or fell silent during the verb: it was left out of the last puts.
    fn require_answers(&self) -> Result<()> {
        self.absent().next().map_or(Ok(()), |number| {
            let what = format!("member {number} failed, and may lack the change of the keys");
            Err(Error::new(Kind::Unanswered, what).at(&self.member_slots[number].place))
        })
    }

    /// Puts a key object on every present member. A copy that another process has put there already
    /// is accepted.
    fn put_everywhere(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        self.present().try_for_each(|(_, member)| match member.put(name, bytes) {
            Err(exists) if exists.kind() == Kind::Exists => match read_small(&**member, name) {
                Ok(there) if there == bytes => Ok(()),
                Ok(_) => Err(exists),
                Err(error) if error.kind() == Kind::NotFound => {
                    let what = "a key object is missing, although it was just written";
                    Err(Error::new(Kind::Io, what).at(name.path()))
                }
                Err(error) => Err(error),
            },
            put => put,
        })
    }

    /// Removes slots and rings that do not count any more, after every present member has those that
    /// count: a member that cannot take those has only the earlier keys. Without the keys nothing is
    /// removed, and only objects that as many members have as any writer must have reached are copied
    /// to others.
    ///
    /// # Errors
    /// Fails with the errors of the members.
    pub(crate) fn remove_stale_keys(&self) -> Result<()> {
        if self.config.encryption == Encryption::None {
            return Ok(());
        }
        // One listing decides what is spread and what is deleted: with a second one, a rotation in
        // between could delete a key that was not spread.
        let stored = self.stored_keys()?;
        if !self.spread(&stored, true)? {
            return Ok(());
        }
        if stored.has_earlier_rings() && !self.end_earlier_sessions()? {
            return Ok(());
        }
        for name in stored.stale() {
            self.drop_all(name)?;
        }
        self.sync_all()
    }
}
