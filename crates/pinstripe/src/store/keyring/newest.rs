//! Checks whether the keys of this process are the store's newest.
//!
//! A rotation puts a ring of the next generation. A process that opened the store earlier cannot
//! open that ring, but the chain in it proves that a holder of the process's own keys made it. From
//! then on such a process changes nothing: it fails with [`Kind::KeysChanged`].
//!
//! Invariants: an object of a later generation counts as newer only if a ring of a later generation
//! is proven genuine, so a malicious member stops no process. The ring is on the members before any
//! object that was made with it. An old ring is removed only after every session that began with
//! older keys has ended or was ended.
//!
//! Not in this module: opening rings (`unlock`) and making them (`keyring`).

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::objects::{Belief, Quorum};
use super::super::{Store, read_small, sessions};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::key_ring::KeyRing;
use pinstripe_member::label::Format;
use pinstripe_member::session::{Session, Work};
use pinstripe_member::{ExtentKind, ExtentName, PrefetchHint, envelope};
use pinstripe_stripe::{keys_changed, succeeds};

/// The time that a rotation gives writers to see the new ring before it ends their sessions:
/// several of the intervals at which a writer checks the keys, which are longer with remote
/// members.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
const ANSWER_WAIT_FAR: Duration = Duration::from_secs(150);
/// The wait between two checks of a rotation, because the file systems of members wake no waiter.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

impl Store {
    /// Verifies that no member has a ring of a later generation, and puts the ring of this process
    /// on members that lack it, so that as long as an object put next can be read, it can also be
    /// verified. Does nothing in a store without encryption, or without the keys.
    ///
    /// # Errors
    /// Fails with [`Kind::KeysChanged`] when the keys were rotated since this process opened the
    /// store, or with a member's own error when none can be listed.
    pub fn confirm_keys(&self) -> Result<()> {
        if self.refuse_older_keys()? { Ok(()) } else { self.spread_missing_keys() }
    }

    /// Verifies that no member has a ring of a later generation, without writing anything. Returns
    /// whether every member that can be listed has the ring of this process.
    ///
    /// # Errors
    /// Fails with the errors of [`confirm_keys`](Self::confirm_keys).
    pub(crate) fn refuse_older_keys(&self) -> Result<bool> {
        let Some(unlocked) = &self.unlocked else { return Ok(true) };
        let own = KeyRing::name(self.config.store, unlocked.generation);
        let later = unlocked.later_rings(self.config.store);
        self.list_next(PrefetchHint::new(ExtentKind::Keys, 1), false);
        let (mut found, mut is_everywhere, mut last) = (BTreeSet::new(), true, None);
        let mut is_listed = false;
        for (_, member) in self.present() {
            match member.names(ExtentKind::Keys) {
                Ok(names) => {
                    is_listed = true;
                    is_everywhere &= names.contains(&own);
                    found.extend(names.into_iter().filter(|name| later.contains(name)));
                }
                Err(error) => last = Some(error),
            }
        }
        if let Some(error) = last.filter(|_| !is_listed) {
            return Err(error);
        }
        if self.is_any_proven(&found) { Err(keys_changed()) } else { Ok(is_everywhere) }
    }

    /// Whether a holder of the keys of this process made one of these rings.
    fn is_any_proven(&self, names: &BTreeSet<[u8; 16]>) -> bool {
        let Some(unlocked) = &self.unlocked else { return false };
        names.iter().any(|id| {
            let name = ExtentName::In(ExtentKind::Keys, *id);
            let mut rings: Vec<(KeyRing, usize)> = Vec::new();
            for (_, member) in self.present() {
                let read = read_small(&**member, name).and_then(|bytes| KeyRing::decode(&bytes));
                let Ok(ring) = read else { continue };
                if ring.store != self.config.store
                    || KeyRing::name(ring.store, ring.generation) != *id
                {
                    continue;
                }
                match rings.iter_mut().find(|(known, _)| *known == ring) {
                    Some((_, holders)) => *holders += 1,
                    None => rings.push((ring, 1)),
                }
            }
            // Rings of format version 1 have no chain: there the members vote.
            rings.iter().any(|(ring, holders)| match (self.format, ring.format()) {
                (Format::V1, Format::V1) => *holders >= self.votes(),
                _ => succeeds(ring, &unlocked.keys),
            })
        })
    }

    /// Whether a holder of the keys of this process made the ring, after the ring of this process.
    pub(super) fn is_newer(&self, ring: &KeyRing) -> bool {
        self.unlocked.as_ref().is_some_and(|unlocked| {
            ring.generation > unlocked.generation && succeeds(ring, &unlocked.keys)
        })
    }

    /// Returns the error for an object made with keys of a generation that this process does not
    /// have: newer if a later ring is proven genuine, otherwise forged. Other errors are returned
    /// unchanged.
    pub(crate) fn newer_or_forged(&self, error: Error) -> Error {
        if error.kind() != Kind::KeysChanged {
            return error;
        }
        match self.refuse_older_keys() {
            Err(newer) if newer.kind() == Kind::KeysChanged => newer,
            _ => Error::new(
                Kind::Corrupt,
                "this object was written with a generation of keys that the store does not have",
            ),
        }
    }

    /// Waits until the sessions that began with earlier keys have ended: their writers see the new
    /// ring and stop. Sessions that have not ended in time are ended from outside. Returns whether
    /// none of these sessions is left; while a member is absent, a session cannot be ended from
    /// outside.
    ///
    /// # Errors
    /// Fails with the errors of the members.
    pub(super) fn end_earlier_sessions(&self) -> Result<bool> {
        let patience = if self.is_far() { ANSWER_WAIT_FAR } else { ANSWER_WAIT };
        let began = clock::monotonic();
        loop {
            let left = self.earlier_sessions()?;
            if left.is_empty() {
                return Ok(true);
            }
            if clock::since(began) < patience {
                clock::sleep(BETWEEN_LOOKS);
                continue;
            }
            for session in &left {
                match sessions::fence(self, session) {
                    // It ended first.
                    Err(error) if error.kind() == Kind::Busy => {}
                    Err(error) if error.kind() == Kind::Refused => return Ok(false),
                    fenced => fenced?,
                }
            }
            return Ok(true);
        }
    }

    /// Returns the sessions of writers that may be running and have earlier keys than this process.
    /// Claims are not included: only one claim exists at a time.
    fn earlier_sessions(&self) -> Result<Vec<Session>> {
        let Some(unlocked) = self.unlocked.as_ref().filter(|_| self.has_macs()) else {
            return Ok(Vec::new());
        };
        let read = |id, bytes: &[u8]| {
            let generation = envelope::vouched(bytes).map(|vouched| vouched.generation);
            Ok((sessions::read(self, id, bytes)?, generation))
        };
        let found = self.objects(ExtentKind::Sessions, Quorum::Backup, Belief::One, read)?;
        let process = self.process();
        let is_earlier = |(session, generation): &(Session, Option<u32>)| {
            generation.is_some_and(|generation| generation < unlocked.generation)
                && session.work != Work::Rebalance
                && !sessions::is_dead(session, &process)
        };
        let earlier = found.sound.into_values().filter(is_earlier);
        Ok(earlier.map(|(session, _)| session).collect())
    }
}
