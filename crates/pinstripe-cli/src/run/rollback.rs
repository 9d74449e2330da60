//! Detects that a store is older than this host has seen it, and remembers that.
//!
//! Invariant: once a store was found to be older, every run reports it until the missing snapshot
//! is back or a user accepts the state; a newer observation does not replace the finding.

use pinstripe::seen::{SeenSnapshot, Standing};
use pinstripe::snapshots::Known;
use pinstripe::{Store, seen, snapshots};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::snapshot::Snapshot;

use super::context::Run;
use super::known_stores::{KnownSnapshot, KnownStore, Proof, SeenState};
use crate::time;

/// The findings about a store.
#[derive(Default)]
pub struct Findings {
    /// Errors that say in what the store is older than this host has seen it.
    pub older: Vec<Error>,
    /// The store may be older than this host has seen it: without the key, that cannot be decided.
    pub unclear: Option<Error>,
}

/// Compares the store with what this host has seen of it, and remembers a store that is older.
///
/// # Errors
/// Fails with the errors of reading the store's snapshots.
pub fn find(run: &Run, store: &Store) -> Result<Findings> {
    let known = run.known_stores().get(store.config.store).cloned();
    // A store that is shown as it was is older than what was seen of it since.
    let Some(known) = known.filter(|_| !run.shows_past()) else {
        return Ok(Findings::default());
    };
    let mut found = Findings::default();
    let state = known.seen(run.token_of(store).as_deref());
    let seen = state.newest.as_ref().and_then(KnownSnapshot::seen);
    match (seen::compare(store, seen.as_ref())?, seen) {
        (Standing::Older(newest), Some(seen)) => found.older.push(gone(&seen, newest.as_ref())),
        // An earlier finding remains true until the snapshot is back.
        (Standing::Removed, Some(seen)) if state.older_since_seconds.is_some() => {
            let newest = SeenSnapshot::newest(&snapshots::all(store, &Default::default())?);
            found.older.push(gone(&seen, newest.as_ref()));
        }
        (Standing::Unknown, Some(seen)) => found.unclear = Some(gone(&seen, None)),
        _ => {}
    }
    let table = &store.table;
    if table.generation < known.table_generation {
        let error = Error::new(
            Kind::Changed,
            "this host has already seen a newer version of the store's table of members",
        )
        .expected(
            format!("generation {} or a later generation", known.table_generation),
            table.generation,
        );
        found.older.push(error.advice(ADVICE));
    }
    let is_older = !found.older.is_empty();
    if found.unclear.is_none() && is_older != state.older_since_seconds.is_some() {
        let since = is_older.then(|| clock::now().0);
        keep_state(run, store, |state| state.older_since_seconds = since);
    }
    Ok(found)
}

const ADVICE: &str = "the present members were reset to an earlier state, or another host removed \
                      the snapshot: attach the absent members; if this state is intended, run \
                      'pinstripe check --accept-older'";

fn gone(seen: &SeenSnapshot, newest: Option<&SeenSnapshot>) -> Error {
    let at = |seen: &SeenSnapshot| format!("{} of {}", seen.id.short(), time::date(seen.created.0));
    let what = format!(
        "this host has already seen a newer state of the store: snapshot {} is missing, and no \
         'pinstripe forget' on this host removed it",
        at(seen)
    );
    let error = Error::new(Kind::Changed, what).advice(ADVICE);
    match newest {
        Some(newest) => error.expected(at(seen), format!("{} as the newest snapshot", at(newest))),
        None => error,
    }
}

/// Reports a store that is older than seen before as a warning, for verbs that continue anyway.
///
/// # Errors
/// Fails with the errors of [`find`].
pub fn warn(run: &Run, store: &Store) -> Result<()> {
    let place =
        &store.member_slots.iter().find(|slot| slot.member.is_some()).map(|slot| &slot.place);
    let found = find(run, store)?;
    for error in found.older.into_iter().chain(found.unclear) {
        match place {
            Some(place) => run.monitor.warning(place, error),
            None => run.monitor.warning("", error),
        }
    }
    Ok(())
}

/// Remembers the newest of all snapshots, after they were listed or some were forgotten on this
/// host.
pub fn keep_newest(run: &Run, store: &Store, known: &[Known]) {
    let newest = SeenSnapshot::newest(known).map(|seen| KnownSnapshot::from_seen(&seen));
    keep_state(run, store, |state| {
        if state.older_since_seconds.is_none() {
            state.newest = newest;
        }
    });
}

/// Reads all snapshots and remembers the newest, after this host has forgotten some, or has deleted
/// forgotten ones.
pub fn look_again(run: &Run, store: &Store) {
    // Damage was reported already; a snapshot that cannot be read now is read the next time.
    let Ok(known) = snapshots::all(store, &Default::default()) else { return };
    let is_there = |newest: &KnownSnapshot| {
        let is_it = |id| known.iter().any(|it| !it.is_forgotten && it.snapshot.id == id);
        newest.seen().is_some_and(|seen| is_it(seen.id))
    };
    let token = run.token_of(store);
    keep(run, store, |record| {
        // Otherwise the store is older, and it is not this host that removed snapshots.
        if record.seen(token.as_deref()).older_since_seconds.is_none() {
            record.miss_no_longer(is_there);
        }
    });
    keep_newest(run, store, &known);
}

/// Remembers a snapshot that this host has just made.
pub fn keep_made(run: &Run, store: &Store, made: &Snapshot) {
    let made = SeenSnapshot::from_snapshot(made);
    keep_state(run, store, |state| {
        let seen = state.newest.as_ref().and_then(KnownSnapshot::seen);
        let is_newer = seen.is_none_or(|seen| seen.created <= made.created);
        if state.older_since_seconds.is_none() && is_newer {
            state.newest = Some(KnownSnapshot::from_seen(&made));
        }
    });
}

/// Accepts the present state of the store as the one that this host has seen.
///
/// # Errors
/// Fails with the errors of reading the store's snapshots; with [`Kind::Locked`] without the key.
pub fn accept(run: &Run, store: &Store) -> Result<()> {
    store.keys()?;
    let newest = SeenSnapshot::newest(&snapshots::all(store, &Default::default())?);
    let newest = newest.map(|seen| KnownSnapshot::from_seen(&seen));
    let token = run.token_of(store);
    keep(run, store, |known| {
        *known.seen_mut(token.as_deref()) = SeenState { newest, older_since_seconds: None };
        known.table_generation = store.table.generation;
    });
    run.screen.say("this host now treats the present state of the store as the newest state");
    Ok(())
}

fn keep_state(run: &Run, store: &Store, change: impl FnOnce(&mut SeenState)) {
    let token = run.token_of(store);
    keep(run, store, |known| change(known.seen_mut(token.as_deref())));
}

fn keep(run: &Run, store: &Store, change: impl FnOnce(&mut KnownStore)) {
    if run.shows_past() {
        return;
    }
    run.known_stores().keep(store, &[], Proof::Label, &run.monitor, change);
}
