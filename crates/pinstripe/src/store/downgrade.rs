//! Detects stores that have both sealed keys and keys in the clear: a sign of an attacker who wants
//! the next backup to be readable, or of a copy of one store written over another.
//!
//! Invariants: a store whose labels say that it is not encrypted is refused as soon as one member
//! has a trace of encryption. An encrypted store is refused when keys in the clear are on more
//! members than parity replaces; on fewer members they are strays, which are not used.
//!
//! Not in this module: what a host remembers about a store (its callers have that).

use std::path::{Path, PathBuf};

use super::search::read_member_at;
use super::{OpenOptions, keys_name, read_small};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::key_ring::{KeyRing, KeySlot};
use pinstripe_member::keys::Keys;
use pinstripe_member::label::{Encryption, Label, StoreConfig};
use pinstripe_member::removed_slot::RemovedSlot;
use pinstripe_member::{ExtentKind, ExtentName, Places};

/// Refuses a store with both kinds of keys; `looked` has the places of its members with their
/// labels. A place that does not answer is ignored.
///
/// # Errors
/// Fails with [`Kind::NotEncrypted`].
pub(super) fn refuse(
    config: &StoreConfig,
    looked: &[(PathBuf, Result<Label>)],
    options: &OpenOptions,
) -> Result<()> {
    let ask = |place: &Path, what: fn(&Places, &StoreConfig, &Path) -> Option<PathBuf>| {
        let (places, config) = (options.places(), config.clone());
        options.ask(place, move |place| Ok(what(&places, &config, place))).ok().flatten()
    };
    if config.encryption == Encryption::None {
        // The label was read, agreed on, and seals nothing: check the other objects on its member.
        let sealing_at = |(place, label): &(PathBuf, Result<Label>)| {
            ask(place, if label.is_ok() { sealing_keys } else { sealing })
        };
        return match looked.iter().find_map(sealing_at) {
            None => Ok(()),
            Some(evidence) => Err(both(
                "the label says that this store is not encrypted, but this object exists only in \
                 an encrypted store",
                evidence,
            )),
        };
    }
    let plain = looked.iter().filter_map(|(place, _)| ask(place, keys_in_the_clear));
    let plain: Vec<_> = plain.collect();
    match plain.first() {
        Some(first) if plain.len() > usize::from(config.parity) => {
            Err(both("an encrypted store contains unencrypted keys", first.clone()).expected(
                "only an encrypted key ring",
                format!("a key ring and unencrypted keys on {} members", plain.len()),
            ))
        }
        _ => Ok(()),
    }
}

fn both(what: &str, place: PathBuf) -> Error {
    Error::new(Kind::NotEncrypted, what).at(place).advice(
        "another program than pinstripe changed the members: compare the members with a trusted \
         copy, and open the store through an unchanged member; --i-know-it-is-plain opens the \
         store without encryption, as stated in its label",
    )
}

/// Returns the objects at a place that only an encrypted store has: a label with encryption, a
/// ring, a slot.
fn sealing(places: &Places, config: &StoreConfig, place: &Path) -> Option<PathBuf> {
    let labelled = read_member_at(places, place).ok();
    if let Some((_, label)) = &labelled
        && label.config.store == config.store
        && label.config.encryption != Encryption::None
    {
        return Some(place.join(ExtentName::Label.path()));
    }
    match labelled {
        // The directory of another store is not evidence about this one.
        Some((_, label)) if label.config.store != config.store => None,
        _ => sealing_keys(places, config, place),
    }
}

/// Returns a key ring or key slot at a place.
fn sealing_keys(places: &Places, config: &StoreConfig, place: &Path) -> Option<PathBuf> {
    let member = places.open(place).ok()?;
    let names = member.list(ExtentKind::Keys).unwrap_or_default().into_iter();
    let mut names = names.map(|(id, _)| ExtentName::In(ExtentKind::Keys, id));
    let name = names.find(|&name| {
        read_small(&*member, name).is_ok_and(|bytes| sealed_owner(&bytes) == Some(config.store))
    })?;
    Some(place.join(name.path()))
}

/// Returns the store of a key object that only encrypted stores have.
fn sealed_owner(bytes: &[u8]) -> Option<pinstripe_base::id::StoreId> {
    let ring = KeyRing::decode(bytes).map(|ring| ring.store);
    let slot = || KeySlot::decode(bytes).map(|slot| slot.store);
    let removed = || RemovedSlot::decode(bytes).map(|removed| removed.store);
    ring.or_else(|_| slot()).or_else(|_| removed()).ok()
}

/// Returns the path of this store's keys in the clear, if the member at `place` has them.
fn keys_in_the_clear(places: &Places, config: &StoreConfig, place: &Path) -> Option<PathBuf> {
    let (name, member) = (keys_name(config), places.open(place).ok()?);
    let keys = Keys::decode(&read_small(&*member, name).ok()?).ok()?;
    (keys.store == config.store).then(|| place.join(name.path()))
}
