//! The contents of all members' stored keys together, and which objects in them count.
//!
//! Invariants: the current ring is the one through which this store was opened; without keys it is
//! the ring of the highest generation that has a slot, among those that as many members have as any
//! writer must have reached. Only the slots of the current ring open the store, so a member that
//! returns with slots from before a rotation makes none of them valid again; a removed slot opens
//! nothing, wherever it reappears. A ring, slot or removal that a single member forged never
//! counts.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Store, read_small};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;
use pinstripe_member::envelope::Object;
use pinstripe_member::key_ring::{KeyRing, KeySlot};
use pinstripe_member::keys::{GENERATIONS_MAX, Keys};
use pinstripe_member::label::Encryption;
use pinstripe_member::removed_slot::RemovedSlot;
use pinstripe_member::{ExtentKind, ExtentName, envelope};
use pinstripe_stripe::keys_changed;

/// The largest number of times that the keys are read if they change during the read. A member that
/// lists objects that it does not have causes this many reads.
const LOOKS: usize = 3;

/// A key object, and how many members have it.
#[derive(Debug)]
struct HeldKey<T> {
    object: T,
    bytes: Vec<u8>,
    /// The number of members that have exactly these bytes.
    holders: usize,
}

/// The contents of the stored keys of all present members together.
#[derive(Debug, Default)]
pub struct StoredKeys {
    rings: Vec<HeldKey<KeyRing>>,
    slots: Vec<HeldKey<KeySlot>>,
    removed: Vec<HeldKey<RemovedSlot>>,
    /// Objects without an intact copy on any present member.
    pub damaged: Vec<(ExtentName, Error)>,
    /// Objects that no holder of the keys made, or that too few members have, each with the defect.
    pub strays: Vec<(ExtentName, Error)>,
    /// Members that may have more: they are absent, or could not be read.
    pub(super) unread: BTreeSet<usize>,
    /// The commitment to the root key of the ring through which the store was opened.
    opened: Option<[u8; 32]>,
    /// The number of members that must have an object without a verified MAC.
    votes: usize,
    /// Whether the objects carry MACs that were verified.
    is_verified: bool,
}

/// A slot that is tried to open a store.
pub struct Try<'a> {
    /// The slot.
    pub slot: &'a KeySlot,
    /// The rings with the slot's commitment, the newest format first: there is more than one if
    /// some are forged.
    pub rings: Vec<&'a KeyRing>,
    /// The number of members that have the slot.
    pub holders: usize,
    /// An object says that the slot was removed; whether that object is genuine is known only after
    /// opening.
    pub may_be_removed: bool,
}

impl Store {
    /// Reads the stored keys of an encrypted store: every copy of each object, since members may
    /// differ. If an object is removed between listing and reading, the kinds are read again,
    /// because a rotation has put new objects before it removes old ones.
    ///
    /// # Errors
    /// Fails with [`Kind::KeysChanged`] when the keys were rotated since this process opened the
    /// store, with a member's own error when none can be listed, or with [`Kind::Unsupported`] when
    /// a newer version wrote an object that counts.
    pub fn stored_keys(&self) -> Result<StoredKeys> {
        for _ in 1..LOOKS {
            if let (stored, false) = self.read_stored_keys()? {
                return Ok(stored);
            }
            // Prefetched answers are older than the object that was just missed.
            self.prefetch(&[]);
        }
        Ok(self.read_stored_keys()?.0)
    }

    /// Reads the stored keys once; also returns whether an object that was listed could not be found.
    fn read_stored_keys(&self) -> Result<(StoredKeys, bool)> {
        let mut is_changed = false;
        let opened = self.unlocked.as_ref().map(|unlocked| unlocked.root.commitment());
        let is_verified = self.voucher.is_some();
        let votes_on_damage = self.votes_on_damage();
        let mut stored =
            StoredKeys { votes: self.votes(), opened, is_verified, ..StoredKeys::default() };
        let listed = self.key_holders(&mut stored.unread)?;
        for (id, holders) in listed {
            let name = ExtentName::In(ExtentKind::Keys, id);
            let (mut worst, mut is_sound, mut is_forged) = (None, false, is_verified);
            for number in &holders {
                let Some(member) = self.member_slots[*number].member.as_deref() else { continue };
                let at_place = |error: Error| error.at(member.place().join(name.path()));
                let bytes = match read_small(member, name) {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        is_changed |= error.kind() == Kind::NotFound;
                        if matches!(error.kind(), Kind::Io | Kind::Unanswered) {
                            stored.unread.insert(*number);
                        }
                        (worst, is_forged) = (Some(at_place(error)), false);
                        continue;
                    }
                };
                match judge_key_object(self, id, &bytes) {
                    Ok(()) if KeyRing::decode(&bytes).is_ok_and(|ring| self.is_newer(&ring)) => {
                        return Err(keys_changed());
                    }
                    Err(error) if error.kind() == Kind::KeysChanged => return Err(error),
                    Ok(()) => {
                        is_sound = true;
                        stored.keep(bytes);
                    }
                    Err(error) => {
                        is_forged &= envelope::open_any(&bytes).is_ok();
                        worst = Some(at_place(error));
                    }
                }
            }
            match worst {
                // Whole, and not made with the keys: no damage, on however many members it is.
                Some(error) if !is_sound && (is_forged || holders.len() < votes_on_damage) => {
                    stored.strays.push((name, error));
                }
                Some(error) if !is_sound && error.kind() == Kind::Unsupported => return Err(error),
                Some(error) if !is_sound => stored.damaged.push((name, error)),
                _ => {}
            }
        }
        stored.unread.extend(self.absent());
        Ok((stored, is_changed))
    }

    /// Returns the present members that have each key object, and adds those that cannot be listed to
    /// `unread`. Every member has all key objects, so one member that can be listed is enough.
    fn key_holders(&self, unread: &mut BTreeSet<usize>) -> Result<BTreeMap<[u8; 16], Vec<usize>>> {
        let mut holders: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        let (mut is_listed, mut last) = (false, None);
        for (number, member) in self.present() {
            match member.list(ExtentKind::Keys) {
                Ok(listed) => {
                    is_listed = true;
                    listed
                        .into_iter()
                        .for_each(|(id, _)| holders.entry(id).or_default().push(number));
                }
                Err(error) => {
                    unread.insert(number);
                    last = Some(error);
                }
            }
        }
        match last {
            Some(error) if !is_listed => Err(error),
            _ => Ok(holders),
        }
    }
}

impl StoredKeys {
    /// Returns the ring that counts, with its slots, oldest first. Returns `None` when there is no
    /// ring with a slot.
    pub fn current(&self) -> Option<(&KeyRing, Vec<&KeySlot>)> {
        let ring = &self.current_ring()?.object;
        let mut slots: Vec<_> = self.slots_of(ring).map(|slot| &slot.object).collect();
        slots.sort_by_key(|slot| (slot.created_seconds, &slot.label, slot.id));
        slots.dedup_by_key(|slot| slot.id);
        Some((ring, slots))
    }

    fn current_ring(&self) -> Option<&HeldKey<KeyRing>> {
        let has_slot = |ring: &&HeldKey<KeyRing>| {
            let commitment = ring.object.commitment;
            self.slots.iter().any(|slot| slot.object.ring_commitment == commitment)
        };
        let rank = |ring: &&HeldKey<KeyRing>| (ring.object.generation, ring.object.format());
        let with_slots = || self.rings.iter().filter(has_slot);
        match self.opened {
            Some(opened) => {
                with_slots().filter(|ring| ring.object.commitment == opened).max_by_key(rank)
            }
            // The members may differ so much that no ring has the votes. The ring that most of them
            // hold is then shown; nothing is deleted because of it.
            None => with_slots()
                .filter(|ring| ring.holders >= self.votes)
                .max_by_key(rank)
                .or_else(|| with_slots().max_by_key(|ring| (ring.holders, rank(ring)))),
        }
    }

    /// Returns the slots that open a ring.
    fn slots_of<'a>(&'a self, ring: &'a KeyRing) -> impl Iterator<Item = &'a HeldKey<KeySlot>> {
        let is_its = move |slot: &&HeldKey<KeySlot>| {
            slot.object.ring_commitment == ring.commitment && !self.is_removed(&slot.object)
        };
        // If the copies of a slot differ, the version that most members have.
        let is_best = |slot: &&HeldKey<KeySlot>| {
            let twins = self.slots.iter().filter(|it| it.object.id == slot.object.id);
            twins.max_by_key(|it| it.holders).is_some_and(|best| best.bytes == slot.bytes)
        };
        self.slots.iter().filter(is_its).filter(is_best)
    }

    /// Returns every slot with the rings that it may open, in no particular order. Forged slots and
    /// rings are included, because only an attempt to open them shows that they are forged.
    pub(super) fn tries(&self) -> Vec<Try<'_>> {
        let of_slot = |slot: &HeldKey<KeySlot>| {
            let rings = self.rings.iter().map(|ring| &ring.object);
            let mut rings: Vec<_> =
                rings.filter(|ring| ring.commitment == slot.object.ring_commitment).collect();
            rings.sort_by_key(|ring| std::cmp::Reverse((ring.generation, ring.format())));
            rings
        };
        let tries = self.slots.iter().map(|slot| Try {
            slot: &slot.object,
            rings: of_slot(slot),
            holders: slot.holders,
            may_be_removed: self.removed.iter().any(|it| removes(&it.object, &slot.object)),
        });
        tries.filter(|it| !it.rings.is_empty()).collect()
    }

    /// Returns the slots without a ring on any member that was read, those on most members first. A
    /// rotation puts the slot first: it was interrupted then, or its ring is on other members.
    pub(super) fn without_ring(&self) -> Vec<&KeySlot> {
        let has_ring = |slot: &KeySlot| {
            self.rings.iter().any(|ring| ring.object.commitment == slot.ring_commitment)
        };
        let mut slots: Vec<_> = self.slots.iter().filter(|it| !has_ring(&it.object)).collect();
        slots.sort_by_key(|slot| (std::cmp::Reverse(slot.holders), slot.object.id));
        slots.into_iter().map(|slot| &slot.object).collect()
    }

    /// Returns the rings of a later generation than this one, and for each whether as many members
    /// have it as any writer must have reached.
    pub(super) fn later_rings(&self, than: &KeyRing) -> impl Iterator<Item = (&KeyRing, bool)> {
        let is_later = move |it: &&HeldKey<KeyRing>| it.object.generation > than.generation;
        self.rings.iter().filter(is_later).map(|it| (&it.object, it.holders >= self.votes))
    }

    /// Whether a slot was removed, as seen by the process that just opened it, which can verify the
    /// store's MACs if there are any.
    pub(super) fn removes(
        &self,
        slot: &KeySlot,
        verify: Option<&impl Fn(ExtentName, &[u8]) -> Result<()>>,
    ) -> bool {
        let mut removed = self.removed.iter().filter(|it| removes(&it.object, slot));
        removed.any(|it| match verify {
            Some(verify) => {
                verify(ExtentName::In(ExtentKind::Keys, it.object.own_name()), &it.bytes).is_ok()
            }
            None => it.holders >= self.votes,
        })
    }

    /// Whether the slot was removed, according to an object that a holder of the keys made or that
    /// as many members have as any writer must have reached.
    fn is_removed(&self, slot: &KeySlot) -> bool {
        let mut removed = self.removed.iter().filter(|it| removes(&it.object, slot));
        removed.any(|it| self.is_verified || it.holders >= self.votes)
    }

    /// Returns a removal from this ring with the first free number, and with no slot set yet.
    pub(super) fn next_removal(&self, ring: &KeyRing) -> RemovedSlot {
        let is_damaged = |name| self.damaged.iter().any(|(damaged, _)| *damaged == name);
        let is_taken = |name| {
            self.removed.iter().any(|it| it.object.own_name() == name)
                || is_damaged(ExtentName::In(ExtentKind::Keys, name))
        };
        let KeyRing { store, generation, .. } = *ring;
        let mut removal = RemovedSlot { store, generation, number: 0, slot: [0; 16] };
        while is_taken(removal.own_name()) {
            removal.number += 1;
        }
        removal
    }

    /// Returns names and bytes of the objects that count and that every member must have: removals
    /// of slots first, the ring last.
    pub fn wanted(&self) -> Vec<(ExtentName, &[u8])> {
        let Some(ring) = self.current_ring() else { return Vec::new() };
        let name = |id| ExtentName::In(ExtentKind::Keys, id);
        let generation = ring.object.generation;
        let counts = |it: &&HeldKey<RemovedSlot>| {
            it.object.generation == generation && (self.is_verified || it.holders >= self.votes)
        };
        let removed = self.removed.iter().filter(counts);
        let removed = removed.map(|it| (name(it.object.own_name()), it.bytes.as_slice()));
        let slots = self.slots_of(&ring.object);
        // Without the keys only what as many members have as any writer must have reached.
        let slots = slots.filter(|slot| self.opened.is_some() || slot.holders >= self.votes);
        let slots = slots.map(|slot| (name(slot.object.id), slot.bytes.as_slice()));
        let ring_name = name(KeyRing::name(ring.object.store, generation));
        let ring = Some((ring_name, ring.bytes.as_slice()))
            .filter(|_| self.opened.is_some() || ring.holders >= self.votes);
        removed.chain(slots).chain(ring).collect()
    }

    /// Returns the names of objects that do not count any more: other slots first, then the rings
    /// of earlier generations. Returns none, unless the store was opened through the current ring.
    pub(super) fn stale(&self) -> Vec<ExtentName> {
        let Some(ring) = self.current_ring().filter(|_| self.opened.is_some()) else {
            return Vec::new();
        };
        let ring = &ring.object;
        let slots = self.slots.iter().map(|slot| &slot.object);
        // A slot of a later generation may belong to a rotation in progress, whose ring is missing
        // yet: deleting it would leave that ring without a slot.
        let slots = slots.filter(|slot| match slot.ring_commitment == ring.commitment {
            true => self.is_removed(slot),
            false => slot.generation <= ring.generation,
        });
        // Slots of an earlier ring open nothing, whether they were removed or not.
        let removed = self.removed.iter().map(|it| &it.object);
        let removed = removed.filter(|it| it.generation < ring.generation);
        let rings = self.rings.iter().map(|it| &it.object);
        let rings = rings.filter(|other| other.generation < ring.generation);
        let mut names: Vec<_> = slots.map(|slot| slot.id).collect();
        names.extend(removed.map(RemovedSlot::own_name));
        names.extend(rings.map(|ring| KeyRing::name(ring.store, ring.generation)));
        names.dedup();
        names.into_iter().map(|id| ExtentName::In(ExtentKind::Keys, id)).collect()
    }

    /// Whether any member has a ring that a rotation has replaced.
    pub(super) fn has_earlier_rings(&self) -> bool {
        let Some(ring) = self.current_ring().filter(|_| self.opened.is_some()) else {
            return false;
        };
        self.rings.iter().any(|other| other.object.generation < ring.object.generation)
    }

    /// Returns the names of slots without an intact copy on any member.
    pub(crate) fn damaged_slots(&self, store: StoreId) -> impl Iterator<Item = [u8; 16]> {
        let ids = self.damaged.iter().filter_map(|(name, _)| match name {
            ExtentName::In(_, id) => Some(*id),
            ExtentName::Label => None,
        });
        ids.filter(move |&id| !is_ring(store, id))
    }

    /// Stores the bytes of an intact object.
    fn keep(&mut self, bytes: Vec<u8>) {
        if let Ok(slot) = KeySlot::decode(&bytes) {
            hold(&mut self.slots, slot, bytes);
        } else if let Ok(removed) = RemovedSlot::decode(&bytes) {
            hold(&mut self.removed, removed, bytes);
        } else if let Ok(ring) = KeyRing::decode(&bytes) {
            hold(&mut self.rings, ring, bytes);
        }
    }
}

fn hold<T>(held: &mut Vec<HeldKey<T>>, object: T, bytes: Vec<u8>) {
    match held.iter_mut().find(|it| it.bytes == bytes) {
        Some(same) => same.holders += 1,
        None => held.push(HeldKey { object, bytes, holders: 1 }),
    }
}

fn removes(removed: &RemovedSlot, slot: &KeySlot) -> bool {
    (removed.slot, removed.generation) == (slot.id, slot.generation)
}

/// Verifies that these bytes are a key object of the store with this name and, if the store was
/// opened, that a holder of its keys made it.
///
/// # Errors
/// Fails with the errors of decoding it, or with [`Kind::Corrupt`] for an object of another store
/// or with another name.
pub(crate) fn judge_key_object(store: &Store, id: [u8; 16], bytes: &[u8]) -> Result<()> {
    let wrong = || {
        Err(Error::new(Kind::Corrupt, "this key object belongs to another name or another store"))
    };
    let config = &store.config;
    if config.encryption == Encryption::None {
        let keys = Keys::decode(bytes)?;
        let is_ours = store.keys.as_ref().is_none_or(|ours| *ours == keys);
        return if keys.store == config.store && is_ours { Ok(()) } else { wrong() };
    }
    let (owner, name) = if envelope::is_of(Object::Keys, bytes) {
        let ring = KeyRing::decode(bytes)?;
        (ring.store, KeyRing::name(ring.store, ring.generation))
    } else if envelope::is_of(Object::RemovedSlot, bytes) {
        let removed = RemovedSlot::decode(bytes)?;
        (removed.store, removed.own_name())
    } else {
        let slot = KeySlot::decode(bytes)?;
        (slot.store, slot.id)
    };
    if (owner, name) != (config.store, id) {
        return wrong();
    }
    store.verify(ExtentName::In(ExtentKind::Keys, id), bytes)
}

/// Whether an object with this name is a ring. The names of slots are random.
fn is_ring(store: StoreId, id: [u8; 16]) -> bool {
    // As many generations as a ring may hold.
    (0..GENERATIONS_MAX as u32).any(|generation| KeyRing::name(store, generation) == id)
}
