//! Which key slots are tried, in which order, and at what cost.
//!
//! Invariants: what all tries cost together is bounded, so nobody who can write slots decides how
//! long an opening takes or how much memory it asks for; a slot that is not tried is named. The
//! order decides only what an opening costs, never whether a slot is right.

use super::super::Store;
use super::Unlocked;
use crate::error::{Error, Kind, Result};
use crate::format::key_ring::{KeySlot, SlotWay};
use crate::format::label::Encryption;
use crate::id::{NAME_MIN_DIGITS, hex};
use crate::member::{ExtentName, Room};
use crate::seal::{Credential, Opener, unwrap};
use crate::units::{GIB, KIB, format_size};

/// KiB of memory times passes over it that all tries may cost together, unless a caller says
/// otherwise: a slot of the highest cost that `key add` sets, 4 GiB and three passes, and a third
/// of that for others.
pub const COST_DEFAULT_KIB: u64 = 16 * GIB / KIB;
/// Slots named one by one; the rest is counted.
const NAMED_MAX: usize = 8;

/// What trying a credential may cost, and what is known of the slots.
#[derive(Debug, Clone)]
pub struct UnlockLimits {
    /// Memory that one try may ask for.
    pub memory_bytes: u64,
    /// KiB of memory times passes over it, of all tries together.
    pub cost_kib: u64,
    /// The slot that opened the store before: it is tried first.
    pub known: Option<[u8; 16]>,
    /// Only the slot of this name is tried, its label or the beginning of its id, at any cost.
    pub only: Option<String>,
}

impl Default for UnlockLimits {
    fn default() -> Self {
        UnlockLimits { memory_bytes: u64::MAX, cost_kib: COST_DEFAULT_KIB, known: None, only: None }
    }
}

/// How a store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The slot that opened it.
    pub slot: [u8; 16],
    /// Slots that were tried, this one included.
    pub tries: usize,
}

/// A slot that is not tried, and what it asks for.
type Skipped<'a> = (&'a KeySlot, String);

impl Store {
    /// Opens an encrypted store's secrets; of a store that is not encrypted they are open already.
    /// Returns what is wrong with slots that could not be tried.
    ///
    /// # Errors
    /// As [`unlock_within`](Self::unlock_within).
    pub fn unlock(&mut self, credential: &Credential) -> Result<Vec<Error>> {
        let mut told = Vec::new();
        self.unlock_within(credential, &UnlockLimits::default(), &mut |error| told.push(error))?;
        Ok(told)
    }

    /// [`unlock`](Self::unlock) within limits; `tell` is given each slot that was not tried or is
    /// damaged. `None` for a store that is not encrypted.
    ///
    /// # Errors
    /// [`Kind::WrongKey`] when no slot opens with the credential; it does not tell which slots
    /// there are. [`Kind::Corrupt`] when neither a slot nor a ring is sound.
    pub fn unlock_within(
        &mut self,
        credential: &Credential,
        limits: &UnlockLimits,
        tell: &mut dyn FnMut(Error),
    ) -> Result<Option<Opened>> {
        if self.config.encryption == Encryption::None {
            return Ok(None);
        }
        let room = self.key_room()?;
        let Some((ring, slots)) = room.current() else {
            return Err(no_ring(room.damaged.first()));
        };
        let (slots, skipped) = self.chosen(slots, credential, limits)?;
        tell_skipped(&skipped, tell);
        let mut failed = 0;
        for (tries, slot) in slots.iter().enumerate() {
            match unwrap(slot, credential) {
                Ok(Some(root)) => {
                    let keys = root.open(ring, &self.config)?;
                    self.opener = Opener::new(&keys);
                    self.keys = Some(keys.clone());
                    let generation = ring.generation;
                    self.unlocked = Some(Unlocked { keys, root, generation });
                    room.damaged.iter().for_each(|(_, error)| tell(error.duplicate()));
                    return Ok(Some(Opened { slot: slot.id, tries: tries + 1 }));
                }
                Ok(None) => {}
                // Damaged, or there was no memory to try it: another one may open the store.
                Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Io) => {
                    failed += 1;
                    tell(error.at(slot_name(slot).path()));
                }
                Err(error) => return Err(error),
            }
        }
        Err(wrong_key(skipped.len() + failed, room.damaged.first(), limits))
    }

    /// The slots to try, in order, and those that are not to be tried, with the reason.
    fn chosen<'a>(
        &self,
        slots: Vec<&'a KeySlot>,
        credential: &Credential,
        limits: &UnlockLimits,
    ) -> Result<(Vec<&'a KeySlot>, Vec<Skipped<'a>>)> {
        let is_named = |slot: &KeySlot| match &limits.only {
            Some(name) => {
                let is_id = name.len() >= NAME_MIN_DIGITS && hex(&slot.id).starts_with(&**name);
                slot.label == *name || is_id
            }
            None => true,
        };
        let fits = slots.into_iter().filter(|slot| credential.fits(slot.way) && is_named(slot));
        let mut slots: Vec<&KeySlot> = fits.collect();
        // What stands on as many members as any writer must have reached comes before what one
        // member alone brings up.
        let holders = self.key_holders()?;
        let reached = self.table.rows.len().saturating_sub(self.config.parity.into());
        let is_rare = |slot: &KeySlot| {
            let holders = holders.get(&slot.id).map_or(0, Vec::len);
            holders + self.absent().count() < reached
        };
        slots.sort_by_key(|slot| {
            let is_known = limits.known == Some(slot.id);
            (!is_known, is_rare(slot), cost_kib(slot), slot.created_seconds, slot.id)
        });
        let (mut chosen, mut skipped, mut spent) = (Vec::new(), Vec::new(), 0);
        for slot in slots {
            let (memory, cost) = (memory_bytes(slot), cost_kib(slot));
            if memory > limits.memory_bytes {
                let at_hand = format_size(limits.memory_bytes);
                skipped.push((
                    slot,
                    format!("{} of memory, and {at_hand} are free", format_size(memory)),
                ));
            } else if limits.only.is_none() && cost > limits.cost_kib.saturating_sub(spent) {
                skipped.push((slot, "more time than all slots together may take".to_owned()));
            } else {
                spent += cost;
                chosen.push(slot);
            }
        }
        Ok((chosen, skipped))
    }
}

fn memory_bytes(slot: &KeySlot) -> u64 {
    match slot.way {
        SlotWay::Password(costs) => u64::from(costs.memory_kib) * KIB,
        SlotWay::KeyFile => 0,
    }
}

fn cost_kib(slot: &KeySlot) -> u64 {
    match slot.way {
        SlotWay::Password(costs) => u64::from(costs.memory_kib) * u64::from(costs.passes),
        SlotWay::KeyFile => 0,
    }
}

fn slot_name(slot: &KeySlot) -> ExtentName {
    ExtentName::In(Room::Keys, slot.id)
}

fn tell_skipped(skipped: &[Skipped<'_>], tell: &mut dyn FnMut(Error)) {
    for (slot, why) in skipped.iter().take(NAMED_MAX) {
        let what = format!("this key slot was not tried: it asks for {why}");
        let advice = format!(
            "if it is yours: --key-slot {}; if it is not: pinstripe key remove",
            &hex(&slot.id)[..8]
        );
        tell(Error::new(Kind::Refused, what).at(slot_name(slot).path()).advice(advice));
    }
    if let Some(more) = skipped.len().checked_sub(NAMED_MAX).filter(|&more| more > 0) {
        let what = format!("{more} more key slots were not tried: they ask for too much");
        tell(Error::new(Kind::Refused, what).advice("list them with: pinstripe key list"));
    }
}

fn no_ring(damaged: Option<&(ExtentName, Error)>) -> Error {
    let what = "no key ring with a slot that opens it is sound on any member";
    let wrong = match damaged {
        Some((name, error)) => {
            Error::new(Kind::Corrupt, format!("{what}: {}", error.what())).at(name.path())
        }
        None => Error::new(Kind::Corrupt, what),
    };
    wrong.advice(
        "attach the members that are absent, or put back a copy of what lies in a member's keys/; \
         without the keys nothing can be read",
    )
}

fn wrong_key(
    untried: usize,
    damaged: Option<&(ExtentName, Error)>,
    limits: &UnlockLimits,
) -> Error {
    let wrong = Error::new(
        Kind::WrongKey,
        "no key slot opens with the password or key file that was given",
    );
    if let Some((name, error)) = damaged {
        return wrong.advice(format!(
            "a key slot or ring is damaged on all members ({}: {}): it may have been the one; try \
             another password or key file",
            name.path(),
            error.what()
        ));
    }
    if limits.only.is_some() {
        return wrong.advice("the slot is not that one, or there is none: pinstripe key list");
    }
    match untried {
        0 => wrong.advice("try another; which slots there are: pinstripe key list"),
        count => wrong.advice(format!(
            "{count} key slots were not tried, which the lines above name: if one of them is \
             yours, name it with --key-slot"
        )),
    }
}
