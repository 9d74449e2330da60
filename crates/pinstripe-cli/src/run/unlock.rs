//! Unlocks the secrets of a store: determines the order in which keys are tried, and on which
//! slots.

use std::path::Path;

use pinstripe::{Store, UnlockLimits};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::units::KIB;
use pinstripe_member::key_ring::KdfCosts;
use pinstripe_member::label::Encryption;
use pinstripe_stripe::{Credential, locked_error};

use super::context::Run;
use super::known_stores::KnownStore;
use crate::credential::{ask, is_terminal, key_file, own_key_file};
use crate::run::screen::Priority;
use crate::system;

/// The number of times that the prompt asks for a password.
const TRIES: usize = 3;

/// What a verb that checks cannot do without the secrets.
pub const CHECKS_SKIPPED: &str = "pinstripe skips all checks that need the key";
/// What a verb that shows information cannot do without the secrets.
pub const SHOWS_LESS: &str = "pinstripe shows only information that needs no key";

/// Unlocks a store's secrets. `lack` says what the verb cannot do without the secrets; `None` means
/// that it cannot work without them.
///
/// # Errors
/// Fails with [`Kind::Locked`] when the secrets are needed and no password is given,
/// [`Kind::WrongKey`] when no key fits.
pub fn unlock(run: &Run, store: &mut Store, lack: Option<&str>) -> Result<Option<Credential>> {
    if store.config.encryption == Encryption::None {
        // A given key was judged when the store was opened.
        return Ok(None);
    }
    let Some((used, slot)) = unlock_sealed(run, store, lack)? else { return Ok(None) };
    run.remember_opened(store, slot);
    Ok(Some(used))
}

/// Unlocks the secrets of another half of a store with the password or key file that opened the
/// first half; the result is not remembered.
///
/// # Errors
/// Fails with [`Kind::WrongKey`] when that password or key file does not open the half.
pub fn unlock_half(run: &Run, half: &mut Store, credential: Option<&Credential>) -> Result<()> {
    match credential {
        Some(credential) if half.config.encryption != Encryption::None => {
            try_slots(run, half, credential).map(|_| ()).map_err(|error| match error.kind() {
                Kind::WrongKey => error.advice_instead(
                    "the other half of the store still has the key slots from before the division: \
                     give a password or key file that opens both halves",
                ),
                _ => error,
            })
        }
        _ => Ok(()),
    }
}

/// Returns the credential that opened the store, and the slot.
fn unlock_sealed(
    run: &Run,
    store: &mut Store,
    lack: Option<&str>,
) -> Result<Option<(Credential, [u8; 16])>> {
    let places: Vec<_> = store.member_slots.iter().map(|seat| &*seat.place).collect();
    let written = run.config()?.key_of(&places);
    let given = match run.common.key.read(&run.monitor)? {
        None => written.of_options(&run.monitor)?,
        given => given,
    };
    let own = || -> Result<Option<Credential>> {
        match own_key_file(store.config.store) {
            Some(file) if file.exists() => key_file(&file, &run.monitor).map(Some),
            _ => Ok(None),
        }
    };
    let credential = match given {
        Some(given) => Some(given),
        None => own()?,
    };
    if let Some(credential) = credential {
        let slot = try_slots(run, store, &credential)?;
        return Ok(Some((credential, slot)));
    }
    if !is_terminal() {
        let lack = lack.ok_or_else(locked_error)?;
        run.monitor.note(&format!("the store is encrypted, but no key was given, so {lack}"));
        return Ok(None);
    }
    for tries in 1..=TRIES {
        let question = match lack {
            None => "Password: ",
            Some(_) => "Password (empty: continue without the key): ",
        };
        let answer = ask(question)?;
        if answer.is_empty() {
            return if lack.is_none() { Err(locked_error()) } else { Ok(None) };
        }
        let credential = Credential::password(answer)?;
        match try_slots(run, store, &credential) {
            Ok(slot) => return Ok(Some((credential, slot))),
            Err(error) if error.kind() == Kind::WrongKey && tries < TRIES => {
                run.screen.complain(
                    Priority::Warning,
                    "pinstripe: this password does not open any key slot",
                );
            }
            Err(error) => return Err(error),
        }
    }
    Err(locked_error())
}

/// Tries the slots; the slot that opened the store last time is first.
fn try_slots(run: &Run, store: &mut Store, credential: &Credential) -> Result<[u8; 16]> {
    let known = run.known_stores().get(store.config.store).and_then(KnownStore::slot);
    let least = u64::from(KdfCosts::DEFAULT.memory_kib) * KIB;
    let limits = UnlockLimits {
        memory_bytes: system::free_memory_bytes().unwrap_or(u64::MAX).max(least),
        known,
        only: run.common.key.key_slot.clone(),
        ..UnlockLimits::default()
    };
    let opened = store.unlock_within(credential, &limits, &mut |error| {
        let place = error.place().map(Path::to_path_buf).unwrap_or_default();
        let advice = "add another key slot with 'pinstripe key add', then remove this key slot \
                      with 'pinstripe key remove'";
        run.monitor.warning(place, error.advice(advice));
    })?;
    Ok(opened.expect("an encrypted store is opened by a slot").slot)
}
