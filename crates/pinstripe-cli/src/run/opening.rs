//! Opens the store that was named: through any of its places, else through the places where this
//! host remembers its members. Refuses a plain store that may have replaced an encrypted one.
//!
//! Invariants: a remembered place is used only if the store there has the remembered id; a store
//! that is not encrypted is never opened where an encrypted one is expected, unless the user allows
//! it; a place that did not open is reported, with the member that belongs there.

use std::path::{Path, PathBuf};

use pinstripe::{MemberSlot, OpenOptions, OtherHalf, Store};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::is_remote;
use pinstripe_member::label::Encryption;
use pinstripe_stripe::Credential;

use super::context::Run;
use super::known_stores::{self, KnownStore, KnownStores, Proof};
use super::unlock::unlock;
use crate::credential;
use crate::escape;

impl Run {
    /// Opens the store that was named, or the default one.
    ///
    /// # Errors
    /// Fails with the errors of [`Store::open`]; with [`Kind::NotFound`] when none was named and
    /// there is no default.
    pub fn open_store(&self) -> Result<Store> {
        self.open(&self.places()?)
    }

    /// Opens the store at one of these places, and unlocks its secrets.
    ///
    /// # Errors
    /// Fails with the errors of [`open`] and of [`unlock`].
    pub fn open(&self, places: &[PathBuf]) -> Result<Store> {
        let mut store = self.open_at(places)?;
        unlock(self, &mut store, None)?;
        self.warn_of_halves(&store);
        Ok(store)
    }

    /// Opens the store for a verb that also works without its secrets. Without a key, the secrets
    /// stay locked, and a note says what the verb cannot do.
    ///
    /// # Errors
    /// Fails with the errors of [`open`](Self::open).
    pub fn open_keyless(&self, lack: &str) -> Result<Store> {
        let mut store = self.open_locked()?;
        unlock(self, &mut store, Some(lack))?;
        self.warn_of_halves(&store);
        Ok(store)
    }

    /// Opens the store without asking for a key.
    ///
    /// # Errors
    /// Fails with the errors of [`open_store`](Self::open_store).
    pub fn open_locked(&self) -> Result<Store> {
        self.open_at(&self.places()?)
    }

    /// Opens the store and unlocks its secrets; also returns the credential that opened them, if
    /// they were sealed.
    ///
    /// # Errors
    /// Fails with the errors of [`open`](Self::open).
    pub fn open_with_credential(&self) -> Result<(Store, Option<Credential>)> {
        let mut store = self.open_locked()?;
        let used = unlock(self, &mut store, None)?;
        Ok((store, used))
    }

    fn open_at(&self, places: &[PathBuf]) -> Result<Store> {
        let store = open(self, places)?;
        for (number, old) in &store.moved {
            self.monitor.note(&format!(
                "member {number} is now at {}, and no longer at {}; 'pinstripe repair' records the \
                 new location",
                store.member_slots[*number].place.display(),
                old.display()
            ));
        }
        Ok(store)
    }

    /// The places of the store that was named, or the default one.
    fn places(&self) -> Result<Vec<PathBuf>> {
        self.existing_places()
    }

    /// Reports other halves of the store that were found while it was opened, and that have
    /// snapshots of their own.
    fn warn_of_halves(&self, store: &Store) {
        // The verb itself reports why a member cannot be listed.
        for OtherHalf { places, snapshots } in store.other_halves().unwrap_or_default() {
            let has = match snapshots.len() {
                1 => "1 snapshot that this half of the store lacks".to_owned(),
                many => format!("{many} snapshots that this half of the store lacks"),
            };
            let what = format!(
                "this member belongs to the other half of a divided store, and that half has {has}"
            );
            let advice = format!(
                "the members of the store were divided into two halves that were used \
                 independently; to import the snapshots of the other half, run 'pinstripe member \
                 merge {}'",
                escape::path(&places[0])
            );
            let error = Error::new(Kind::Changed, what).advice(advice);
            self.monitor.warning(&places[0], error);
        }
    }
}

/// A place through which the store could not be opened.
struct FailedPlace {
    place: PathBuf,
    error: Error,
}

/// Opens the store that these places name.
///
/// # Errors
/// Fails with the most informative of the errors of [`Store::open`]; with [`Kind::NotEncrypted`]
/// for a plain store where an encrypted one is expected; with [`Kind::WrongMember`] when the places
/// are of different stores.
fn open(run: &Run, named: &[PathBuf]) -> Result<Store> {
    // Sets the deadline of every later `real_path`.
    let _ = run.patience();
    let mut memory = run.known_stores();
    let expected = expected(&memory, named)?;
    #[cfg(feature = "s3")]
    run.expect_cached(expected.as_ref());
    let mut failed: Vec<FailedPlace> = Vec::new();
    let mut other = None;
    let mut found = None;
    let mut fail =
        |place: &Path, error| failed.push(FailedPlace { place: place.to_owned(), error });
    for place in named {
        match open_one(run, &memory, place) {
            Ok(store) if is_it(&store, expected.as_ref()) => {
                found = Some((place.clone(), store));
                break;
            }
            Ok(store) => {
                fail(place, another(&store, expected.as_ref()));
                other.get_or_insert((place.clone(), store));
            }
            Err(error) => fail(place, error),
        }
    }
    if let (None, None, Some(expected)) = (&found, &other, &expected) {
        for place in expected.members.iter().map(|it| it.place.path()) {
            if named.iter().any(|named| known_stores::absolute(named) == place) {
                continue;
            }
            match open_one(run, &memory, &place) {
                Ok(store) if is_it(&store, Some(expected)) => {
                    found = Some((place, store));
                    break;
                }
                Ok(store) => fail(&place, another(&store, Some(expected))),
                Err(error) => fail(&place, error),
            }
        }
    }
    if found.is_none()
        && let Some((place, store)) = other
    {
        // A store that was put there on purpose is used, but a note says so.
        failed.retain(|it| it.place != place);
        let known = expected.as_ref().map_or("another one", KnownStore::short);
        run.monitor.note(&format!(
            "store {} is now at {}, where this host has seen store {known} before",
            store.config.store.short(),
            escape::path(&place)
        ));
        found = Some((place, store));
    }
    let Some((place, mut store)) = found else {
        return Err(worst(failed, expected.as_ref()));
    };
    #[cfg(feature = "s3")]
    run.use_cache(&mut store);
    warn(run, &store, failed);
    keep(run, &mut memory, &store, named, &place);
    Ok(store)
}

/// The store that this host remembers at the named places.
fn expected(memory: &KnownStores, named: &[PathBuf]) -> Result<Option<KnownStore>> {
    let mut known = named.iter().filter_map(|place| Some((place, memory.at(place)?)));
    let Some((first, expected)) = known.next() else { return Ok(None) };
    match known.find(|(_, other)| other.id != expected.id) {
        None => Ok(Some(expected.clone())),
        Some((place, other)) => {
            let what = format!(
                "the given members belong to different stores: this host has seen {} as a member \
                 of store {}",
                escape::path(first),
                expected.short()
            );
            Err(Error::new(Kind::WrongMember, what)
                .at(place)
                .expected(expected.short(), other.short())
                .advice("give members of only one store"))
        }
    }
}

fn is_it(store: &Store, expected: Option<&KnownStore>) -> bool {
    expected.is_none_or(|expected| expected.id == store.config.store.to_string())
}

fn another(store: &Store, expected: Option<&KnownStore>) -> Error {
    Error::new(Kind::WrongMember, "this is a member of another store")
        .expected(expected.map_or("another", KnownStore::short), store.config.store.short())
}

/// Opens the half of a divided store to which a directory belongs.
///
/// # Errors
/// Fails with the errors of [`Store::open_with`].
pub fn open_half(run: &Run, place: &Path) -> Result<Store> {
    Store::open_with(place, OpenOptions { half: true, ..options(run) })
}

/// The options with which every store is opened.
fn options(run: &Run) -> OpenOptions {
    OpenOptions {
        accept_plain: run.common.i_know_it_is_plain,
        patience: Some(run.patience()),
        remote: run.remote(),
        ..OpenOptions::default()
    }
}

/// Opens the store through one place, unless it is a plain store where an encrypted one is
/// expected.
fn open_one(run: &Run, memory: &KnownStores, place: &Path) -> Result<Store> {
    let options = OpenOptions {
        faults: run.common.fault_plan(),
        without: run.common.without_member.clone(),
        also: memory.at(place).map(KnownStore::places).unwrap_or_default(),
        ..options(run)
    };
    let store = Store::open_with(place, options)?;
    if store.config.encryption == Encryption::None && !run.common.i_know_it_is_plain {
        refuse_plain(run, memory, &store, place)?;
    }
    Ok(store)
}

/// Refuses a store that is not encrypted where an encrypted one is expected.
fn refuse_plain(run: &Run, memory: &KnownStores, store: &Store, place: &Path) -> Result<()> {
    let (id, known) = (store.config.store, memory.get(store.config.store));
    let member_slots: Vec<_> = store.member_slots.iter().map(|slot| &*slot.place).collect();
    let is_accepted = known.is_some_and(|known| known.accepted_plain);
    let was_here = member_slots.iter().chain([&place]).find_map(|&place| {
        memory.at(place).filter(|other| other.encrypted && other.id != id.to_string())
    });
    let why = if run.common.key.is_given() {
        "a password or key file was given for this store".to_owned()
    } else if run.config()?.key_of(&member_slots).is_given() {
        "the config file has a password or key file for this store".to_owned()
    } else if let Some(other) = was_here {
        format!("this host has seen the encrypted store {} at this location", other.short())
    } else if is_accepted {
        return Ok(());
    } else if known.is_some_and(|known| known.encrypted) {
        "this host has opened this store as an encrypted one".to_owned()
    } else if let Some(variable) = credential::variable_at_hand() {
        format!("the variable {variable} is set")
    } else if let Some(file) = credential::own_key_file(id).filter(|file| file.exists()) {
        format!("the key file {} exists for this store", escape::path(&file))
    } else {
        return Ok(());
    };
    Err(Error::new(Kind::NotEncrypted, format!("this store is not encrypted, but {why}"))
        .at(place)
        .advice(
            "an attacker may have replaced the encrypted store by this one, in order to read the \
             next backup: attach the disk of the encrypted store; if this store is meant to be \
             readable without a key, confirm this once with --i-know-it-is-plain",
        ))
}

/// The error that best explains why no place opened the store.
fn worst(failed: Vec<FailedPlace>, expected: Option<&KnownStore>) -> Error {
    const TELLING: [Kind; 5] = [
        Kind::NotEncrypted,
        Kind::Unsupported,
        Kind::TooManyLosses,
        Kind::WrongMember,
        Kind::Usage,
    ];
    let rank = |it: &&FailedPlace| {
        TELLING.iter().position(|kind| *kind == it.error.kind()).unwrap_or(TELLING.len())
    };
    let Some(worst) = failed.iter().min_by_key(rank) else {
        return Error::new(Kind::Usage, "no member of the store was given")
            .advice("give a member directory of the store with --store DIR");
    };
    let error = worst.error.duplicate();
    if rank(&worst) < TELLING.len() && error.advice_text().is_some() {
        return error;
    }
    let error = error.at(&worst.place);
    match expected {
        None if error.kind() == Kind::NotFound => error.advice_instead(
            "give a member directory of a store, or create a store with 'pinstripe init --member \
             DIR'",
        ),
        None => error,
        // An endpoint says better what is wrong with a key, a clock or a name.
        Some(_) if is_remote(&worst.place) && error.advice_text().is_some() => error,
        Some(expected) => {
            let places: Vec<_> = expected
                .members
                .iter()
                .map(|it| format!("member {} at {}", it.member, escape::path(&it.place.path())))
                .collect();
            error.advice_instead(format!(
                "this host has seen store {} at this location, but no member of that store can be \
                 opened: attach the disks of its members ({})",
                expected.short(),
                places.join(", ")
            ))
        }
    }
}

/// Reports the places that did not open the store, and the members that this host remembers at
/// these places.
fn warn(run: &Run, store: &Store, failed: Vec<FailedPlace>) {
    for FailedPlace { place, error } in failed {
        let forms = known_stores::forms(&place);
        let is_it = |seat: &MemberSlot| seat.row.is_some() && forms.contains(&seat.place);
        let number = store.member_slots.iter().position(is_it);
        let advice = match number {
            Some(number) if store.member_slots[number].member.is_none() => format!(
                "the store was opened through another member, and this one is member {number}: \
                 attach the disk of this member, or replace the member with 'pinstripe member \
                 replace {number} --to DIR'"
            ),
            Some(number) => format!(
                "the store was opened through another member, and this one is member {number}; \
                 'pinstripe repair' repairs its label"
            ),
            None => "the store was opened through another member; 'pinstripe members' lists its \
                     members"
                .to_owned(),
        };
        run.monitor.warning(&place, error.advice_instead(advice));
    }
}

/// Remembers a store that was just created on these members.
pub fn made(run: &Run, members: &[PathBuf]) {
    // Problems are reported when it is opened to be used.
    let options = OpenOptions { remote: run.remote(), ..OpenOptions::default() };
    let Ok(store) = Store::open_with(&members[0], options) else { return };
    let is_plain = store.config.encryption == Encryption::None;
    let accepted = is_plain && run.common.i_know_it_is_plain;
    let proof = if is_plain && !accepted { Proof::Label } else { Proof::Sure };
    let mut memory = run.known_stores();
    let is_taken = |place: &&PathBuf| memory.at(place).is_some_and(|known| known.encrypted);
    if proof == Proof::Label
        && let Some(place) = members.iter().find(is_taken)
    {
        run.monitor.note(&format!(
            "this host has seen an encrypted store at {}, so the first command that opens the new \
             store needs the option --i-know-it-is-plain",
            escape::path(place)
        ));
    }
    memory.keep(&store, &members[..1], proof, &run.monitor, |it| it.accepted_plain |= accepted);
}

/// Remembers the facts about the store that need no key.
fn keep(run: &Run, memory: &mut KnownStores, store: &Store, named: &[PathBuf], place: &Path) {
    if run.shows_past() {
        return;
    }
    let is_plain = store.config.encryption == Encryption::None;
    let accepted = is_plain && run.common.i_know_it_is_plain;
    let proof = if accepted { Proof::Sure } else { Proof::Label };
    let names: Vec<_> = named.iter().filter(|name| *name == place).cloned().collect();
    memory.keep(store, &names, proof, &run.monitor, |known| known.accepted_plain |= accepted);
}
