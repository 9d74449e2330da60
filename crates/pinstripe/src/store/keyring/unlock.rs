//! Tries key slots: decides which ones, in which order, and at what cost.
//!
//! Invariants: the total cost of all tries is bounded, so a process that can write slots but has no
//! key cannot make opening slow or memory-hungry; a slot that is not tried is reported. The order
//! affects only the cost of opening, never whether a slot is the right one.

use super::super::Store;
use super::Unlocked;
use super::stored_keys::{StoredKeys, Try};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{NAME_MIN_DIGITS, hex};
use pinstripe_base::units::{GIB, KIB, format_size};
use pinstripe_member::key_ring::{KeyRing, KeySlot, SlotWay};
use pinstripe_member::keys::Keys;
use pinstripe_member::label::{Encryption, Format};
use pinstripe_member::{ExtentKind, ExtentName};
use pinstripe_stripe::{Credential, Opener, RootKey, Voucher, succeeds, unwrap_key};

/// The default limit on the cost of all tries together, as KiB of memory times passes over it:
/// enough for one slot at the highest cost that `key add` sets, 4 GiB and three passes, and a third
/// of that for other slots.
pub(crate) const COST_DEFAULT_KIB: u64 = 16 * GIB / KIB;
/// The number of skipped slots that are listed one by one; the rest are only counted.
const NAMED_MAX: usize = 8;

/// Limits on the cost of trying a credential, and hints about which slots to try.
#[derive(Debug, Clone)]
pub struct UnlockLimits {
    /// The memory that a single try may require.
    pub memory_bytes: u64,
    /// The limit for all tries together, as KiB of memory times passes over it.
    pub cost_kib: u64,
    /// The slot that opened the store the last time, which is tried first.
    pub known: Option<[u8; 16]>,
    /// If set, only the slot with this name is tried, whatever its cost; the name is its label or
    /// the beginning of its id.
    pub only: Option<String>,
}

impl Default for UnlockLimits {
    fn default() -> Self {
        UnlockLimits { memory_bytes: u64::MAX, cost_kib: COST_DEFAULT_KIB, known: None, only: None }
    }
}

impl UnlockLimits {
    /// Whether the slot may be tried: it has the given name, or no name was given.
    fn names(&self, slot: &KeySlot) -> bool {
        self.only.as_ref().is_none_or(|name| {
            let is_id = name.len() >= NAME_MIN_DIGITS && hex(&slot.id).starts_with(&**name);
            slot.label == *name || is_id
        })
    }
}

/// The slot that opened a store, and the number of tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The slot that opened the store.
    pub slot: [u8; 16],
    /// The number of slots that were tried, including the one that opened.
    pub tries: usize,
}

/// A slot that is not tried, and its cost.
type Skipped<'a> = (&'a KeySlot, String);

impl Store {
    /// Opens the secrets of an encrypted store; those of a store without encryption are open
    /// already. Returns the errors of slots that could not be tried.
    ///
    /// # Errors
    /// Fails with the errors of [`unlock_within`](Self::unlock_within).
    pub fn unlock(&mut self, credential: &Credential) -> Result<Vec<Error>> {
        let mut told = Vec::new();
        self.unlock_within(credential, &UnlockLimits::default(), &mut |error| told.push(error))?;
        Ok(told)
    }

    /// Like [`unlock`](Self::unlock), but within limits; `tell` gets each slot that was not tried
    /// or is damaged. Returns `None` for a store that is not encrypted. From then on the members
    /// are those in the newest label that a holder of the keys made.
    ///
    /// # Errors
    /// Fails with [`Kind::WrongKey`] when no slot opens with the credential; the error does not
    /// list the slots. [`Kind::Corrupt`] when neither a slot nor a ring is intact, or no label was
    /// made with the keys.
    pub fn unlock_within(
        &mut self,
        credential: &Credential,
        limits: &UnlockLimits,
        tell: &mut dyn FnMut(Error),
    ) -> Result<Option<Opened>> {
        if self.config.encryption == Encryption::None {
            return Ok(None);
        }
        let stored = self.stored_keys()?;
        let (tries, skipped) = self.chosen(stored.tries(), credential, limits);
        if tries.is_empty() && skipped.is_empty() && stored.current().is_none() {
            return Err(no_ring(stored.damaged.first()));
        }
        report_skipped(&skipped, tell);
        let (mut failed, mut refused, mut found) = (0, None, None);
        for (tried, it) in tries.iter().enumerate() {
            let root = match unwrap_key(it.slot, credential) {
                Ok(Some(root)) => root,
                Ok(None) => continue,
                // Damaged, or there was no memory to try it: another one may open the store.
                Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Io) => {
                    failed += 1;
                    tell(error.at(slot_name(it.slot).path()));
                    continue;
                }
                Err(error) => return Err(error),
            };
            match self.open_ring(&stored, it, &root) {
                Ok(Some((keys, format))) => {
                    let generation = it.rings[0].generation;
                    let opened = Opened { slot: it.slot.id, tries: tried + 1 };
                    found = Some((opened, keys, root, generation, format));
                    break;
                }
                Ok(None) => {}
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        let Some((opened, keys, root, generation, format)) = found else {
            let untried = skipped.len() + failed;
            let spent = tries.iter().map(|it| cost_kib(it.slot)).sum();
            let error = refused.or_else(|| without_ring(&stored, credential, limits, spent));
            return Err(error.unwrap_or_else(|| wrong_key(untried, stored.damaged.first(), limits)));
        };
        // Before the members are settled: verifying their labels takes the voucher.
        self.format = format;
        self.opener = Opener::new(&keys);
        self.voucher = (format > Format::V1).then(|| Voucher::new(&keys));
        self.keys = Some(keys.clone());
        self.unlocked = Some(Unlocked::new(keys, root, generation));
        self.settle_members()?.into_iter().for_each(&mut *tell);
        // Read again with the keys, which distinguish forged objects from damaged ones.
        let stored = self.stored_keys()?;
        later_rotation(&stored, generation).into_iter().for_each(&mut *tell);
        stored.damaged.into_iter().for_each(|(_, error)| tell(error));
        Ok(Some(opened))
    }

    /// Opens the ring of a slot whose root key is known. Returns `None` when a holder of the ring's
    /// keys made a later ring, or removed the slot: the slot then opens nothing any more.
    fn open_ring(
        &self,
        stored: &StoredKeys,
        it: &Try<'_>,
        root: &RootKey,
    ) -> Result<Option<(Keys, Format)>> {
        let mut refused = None;
        for ring in &it.rings {
            let keys = match root.open(ring, &self.config) {
                Ok(keys) => keys,
                Err(error) => {
                    refused = refused.or(Some(error));
                    continue;
                }
            };
            let format = ring.format();
            let voucher = (format > Format::V1).then(|| Voucher::new(&keys));
            let verify = voucher.as_ref().map(|it| |name, bytes: &[u8]| it.verify(name, bytes));
            // Judged with this ring's own keys if there are MACs: a member without the keys can
            // forge neither a later ring nor a removal, and so cannot lock a holder out.
            if is_followed(stored, ring, &keys) || stored.removes(it.slot, verify.as_ref()) {
                return Ok(None);
            }
            return Ok(Some((keys, format)));
        }
        refused.map_or(Ok(None), Err)
    }

    /// Returns the slots to try, in order, and those that are not tried, with the reason.
    fn chosen<'a>(
        &self,
        tries: Vec<Try<'a>>,
        credential: &Credential,
        limits: &UnlockLimits,
    ) -> (Vec<Try<'a>>, Vec<Skipped<'a>>) {
        let fits = |it: &Try<'_>| credential.fits(it.slot.way) && limits.names(it.slot);
        let mut tries: Vec<_> = tries.into_iter().filter(fits).collect();
        tries.sort_by_key(|it| {
            let is_known = limits.known == Some(it.slot.id);
            // Slots that as many members hold as any writer must have reached come before those
            // that one member alone has: made-up slots must not use up the budget.
            let is_rare = it.holders < self.votes();
            let generation = std::cmp::Reverse(it.rings[0].generation);
            let rank = (!is_known, is_rare, generation, it.may_be_removed);
            (rank, cost_kib(it.slot), it.slot.created_seconds, it.slot.id)
        });
        let (mut chosen, mut skipped, mut spent) = (Vec::new(), Vec::new(), 0);
        for it in tries {
            let slot = it.slot;
            let (memory, cost) = (memory_bytes(slot), cost_kib(slot));
            if memory > limits.memory_bytes {
                let at_hand = format_size(limits.memory_bytes);
                skipped.push((
                    slot,
                    format!(
                        "it needs {} of memory, but only {at_hand} is free",
                        format_size(memory)
                    ),
                ));
            } else if limits.only.is_none() && cost > limits.cost_kib.saturating_sub(spent) {
                skipped.push((
                    slot,
                    "it needs more time than the limit for trying all key slots allows".to_owned(),
                ));
            } else {
                spent += cost;
                chosen.push(it);
            }
        }
        (chosen, skipped)
    }
}

/// Whether a holder of a ring's keys made a later ring. The chain in the later ring proves who made
/// that ring. Rings of format version 1 have no chain: in this case as many members must have the
/// later ring as any writer must have reached.
fn is_followed(stored: &StoredKeys, ring: &KeyRing, keys: &Keys) -> bool {
    stored.later_rings(ring).any(|(later, is_held)| match (ring.format(), later.format()) {
        (Format::V1, Format::V1) => is_held,
        _ => succeeds(later, keys),
    })
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
    ExtentName::In(ExtentKind::Keys, slot.id)
}

fn report_skipped(skipped: &[Skipped<'_>], tell: &mut dyn FnMut(Error)) {
    for (slot, why) in skipped.iter().take(NAMED_MAX) {
        let what = format!("this key slot was not tried: {why}");
        let advice = format!(
            "if this key slot is yours, use --key-slot {}; if it is not, remove it with 'pinstripe \
             key remove'",
            &hex(&slot.id)[..8]
        );
        tell(Error::new(Kind::Refused, what).at(slot_name(slot).path()).advice(advice));
    }
    if let Some(more) = skipped.len().checked_sub(NAMED_MAX).filter(|&more| more > 0) {
        let more =
            pinstripe_base::units::counted(more as u64, "more key slot was", "more key slots were");
        let what = format!("{more} not tried: the necessary memory or time exceeds the limit");
        tell(Error::new(Kind::Refused, what).advice("'pinstripe key list' lists the key slots"));
    }
}

fn no_ring(damaged: Option<&(ExtentName, Error)>) -> Error {
    let what = "no member has an intact key ring together with a key slot that opens it";
    let wrong = match damaged {
        Some((name, error)) => {
            Error::new(Kind::Corrupt, format!("{what}: {}", error.what())).at(name.path())
        }
        None => Error::new(Kind::Corrupt, what),
    };
    wrong.advice(
        "attach the absent members, or restore a copy of a member's keys/ directory; without the \
         keys nothing can be read",
    )
}

/// Returns the error for a credential that opens a slot whose ring no member has that was read: the
/// credential is not wrong. `spent` is the cost of the tries so far.
fn without_ring(
    stored: &StoredKeys,
    credential: &Credential,
    limits: &UnlockLimits,
    mut spent: u64,
) -> Option<Error> {
    let opens = |slot: &&KeySlot| {
        let cost = cost_kib(slot);
        let is_cheap = limits.only.is_some() || cost <= limits.cost_kib.saturating_sub(spent);
        if !is_cheap || memory_bytes(slot) > limits.memory_bytes {
            return false;
        }
        spent = spent.saturating_add(cost);
        matches!(unwrap_key(slot, credential), Ok(Some(_)))
    };
    let slots = stored.without_ring().into_iter();
    let slots = slots.filter(|slot| credential.fits(slot.way) && limits.names(slot));
    let slot = slots.into_iter().find(opens)?;
    let what = "the password or key file opens a key slot, but no member that was read has the key \
                ring of this slot";
    let (kind, advice) = match unread(stored) {
        Some(members) => (
            Kind::TooManyLosses,
            format!(
                "'pinstripe key rotate' did not reach every member: attach {members}, which may have \
                 the key ring, then run 'pinstripe repair'"
            ),
        ),
        None => (
            Kind::WrongKey,
            "'pinstripe key rotate' was interrupted, or the member with the key ring was replaced: \
             give a password or key file from before the rotation"
                .to_owned(),
        ),
    };
    Some(Error::new(kind, what).at(slot_name(slot).path()).advice(advice))
}

/// Returns a warning if a rotation after this generation began, and its ring may be on members that
/// could not be read: the keys that were opened may not be the newest.
fn later_rotation(stored: &StoredKeys, generation: u32) -> Option<Error> {
    let members = unread(stored)?;
    let slots = stored.without_ring();
    let slot = slots.into_iter().find(|slot| slot.generation > generation)?;
    let what = format!(
        "'pinstripe key rotate' began after the keys that were opened, and {members} may have newer \
         keys"
    );
    let advice = format!("attach {members}, then run 'pinstripe repair'");
    Some(Error::new(Kind::KeysChanged, what).at(slot_name(slot).path()).advice(advice))
}

/// Names the members that may have keys that could not be read.
fn unread(stored: &StoredKeys) -> Option<String> {
    let members: Vec<_> = stored.unread.iter().map(|number| format!("member {number}")).collect();
    (!members.is_empty()).then(|| members.join(", "))
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
            "a key slot or key ring is damaged on all members ({}: {}), and the password or key \
             file may belong to this damaged object; try another password or key file",
            name.path(),
            error.what()
        ));
    }
    if limits.only.is_some() {
        return wrong.advice(
            "the key slot that was given with --key-slot does not match or does not exist; \
             'pinstripe key list' lists the key slots",
        );
    }
    match untried {
        0 => wrong
            .advice("try another password or key file; 'pinstripe key list' lists the key slots"),
        count => wrong.advice(format!(
            "number of key slots that were not tried (see the warnings above): {count}; if one of \
             these key slots is yours, give it with --key-slot"
        )),
    }
}
