//! The copies of one small object: the good bytes, and the members whose copies differ.
//!
//! Invariant: bytes that are copied from member to member were made with the store's keys, or are
//! equal on as many members as a writer must have reached. A snapshot of a store without encryption
//! is the only exception: it is committed with its first copy, so one copy is enough.
//!
//! Not in this module: what a verb does about the result.

use std::collections::BTreeMap;

use super::judge::judge;
use crate::store::{Store, read_small};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::forgotten::Mark;
use pinstripe_member::label::{Encryption, Format};
use pinstripe_member::{ExtentKind, ExtentName, SharedMember, envelope};

/// The copies of one object on the present members.
pub(super) struct Copies<'a> {
    /// The bytes that every member should have; `None` when no copy can be trusted.
    pub good: Option<Vec<u8>>,
    /// The members that have other bytes or no copy, each with the defect.
    pub unsound: Vec<(usize, &'a SharedMember, Error)>,
    /// Intact copies exist, but on fewer members than must agree.
    pub are_too_few: bool,
    name: ExtentName,
    /// The number of members that must have an object before it counts as damaged.
    votes_on_damage: usize,
}

impl<'a> Copies<'a> {
    /// Reads all copies of an object that is equal on every member: anything but a label.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] when a newer version wrote a copy, or with
    /// [`Kind::KeysChanged`] when a process with newer keys did: such a copy is not damaged.
    pub fn read(store: &'a Store, name: ExtentName) -> Result<Self> {
        Self::read_with(store, name, &mut ReadAhead::default())
    }

    /// Reads all copies of an object, using copies that were prefetched.
    ///
    /// # Errors
    /// Fails with the errors of [`read`](Self::read).
    pub fn read_with(store: &'a Store, name: ExtentName, ahead: &mut ReadAhead) -> Result<Self> {
        Self::read_by(store, name, store.votes(), ahead)
    }

    /// Reads all copies of an object on which `votes` members have to agree.
    ///
    /// # Errors
    /// Fails with the errors of [`read`](Self::read).
    pub fn read_by(
        store: &'a Store,
        name: ExtentName,
        votes: usize,
        ahead: &mut ReadAhead,
    ) -> Result<Self> {
        let mut unsound = Vec::new();
        let mut said: BTreeMap<Vec<u8>, Vec<Copy<'_>>> = BTreeMap::new();
        for (number, member) in store.present() {
            let read = ahead
                .read(number, member, name)
                .and_then(|bytes| judge(store, number, name, &bytes).map(|()| bytes));
            match read {
                Ok(bytes) => {
                    let says = envelope::without_voucher(&bytes);
                    said.entry(says).or_default().push((number, member, bytes));
                }
                Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::KeysChanged) => {
                    return Err(error);
                }
                // Reported when it stopped answering; its objects are unknown.
                Err(error) if error.kind() == Kind::Unanswered => {}
                Err(error) => unsound.push((number, member, error)),
            }
        }
        let is_any_sound = !said.is_empty();
        let best = said.iter().max_by_key(|(_, holders)| holders.len());
        let votes = |says: &[u8]| match is_proof(store, name) || keeps(name, says) {
            true => 1,
            false => votes,
        };
        let good = best.filter(|(says, holders)| holders.len() >= votes(says));
        let (says, good) = match good {
            Some((says, holders)) => (Some(says.clone()), Some(holders[0].2.clone())),
            None => (None, None),
        };
        for (_, holders) in said.into_iter().filter(|(bytes, _)| Some(bytes) != says.as_ref()) {
            let differs = |(number, member, _)| {
                let what = "too few members have an identical copy of this object";
                (number, member, Error::new(Kind::Corrupt, what))
            };
            unsound.extend(holders.into_iter().map(differs));
        }
        unsound.sort_by_key(|(number, ..)| *number);
        let are_too_few = good.is_none() && is_any_sound;
        let votes_on_damage = store.votes_on_damage();
        Ok(Copies { are_too_few, good, unsound, name, votes_on_damage })
    }

    /// Whether no member has the object any more: it was removed during the read. So was an object
    /// that some members lack, if the other members cannot read it and are too few to report damage:
    /// a failing disk keeps its copy. An object of the stored keys that some members lack and no
    /// member can read was removed by a rotation.
    pub fn is_gone(&self) -> bool {
        let is_key = matches!(self.name, ExtentName::In(ExtentKind::Keys, _));
        let kinds = || self.unsound.iter().map(|(_, _, error)| error.kind());
        let is_anywhere = self.good.is_some() || self.are_too_few;
        let (lacking, all) = (kinds().filter(|it| *it == Kind::NotFound).count(), kinds().count());
        let is_removed = match is_key {
            true => kinds().all(|it| matches!(it, Kind::NotFound | Kind::Io)),
            false => all - lacking < self.votes_on_damage,
        };
        !is_anywhere && (all == 0 || lacking == all || lacking > 0 && is_removed)
    }
}

/// The largest number of objects that are prefetched at once from each member, and the largest
/// length of each in bytes: longer objects are read one at a time. The product of the two limits
/// bounds the memory that a malicious member can make a reader use.
pub(super) const AHEAD_OBJECTS: usize = 64;
const AHEAD_BYTES: u64 = 64 << 10;

/// Objects that were prefetched from members, many with each request.
#[derive(Default)]
pub(super) struct ReadAhead(BTreeMap<(usize, ExtentName), Vec<u8>>);

impl ReadAhead {
    /// Prefetches these objects from these members, at most [`AHEAD_OBJECTS`] from each member. An
    /// object that cannot be prefetched is read when it is needed.
    pub fn of(store: &Store, wanted: impl IntoIterator<Item = (usize, ExtentName)>) -> Self {
        let mut by_member: BTreeMap<usize, Vec<ExtentName>> = BTreeMap::new();
        for (number, name) in wanted {
            by_member.entry(number).or_default().push(name);
        }
        let mut ahead = ReadAhead::default();
        for (number, member) in store.present() {
            let names = by_member.remove(&number).unwrap_or_default();
            let names = &names[..names.len().min(AHEAD_OBJECTS)];
            if names.is_empty() {
                continue;
            }
            let read = names.iter().zip(member.read_whole(names, AHEAD_BYTES));
            ahead.0.extend(read.filter_map(|(name, read)| Some(((number, *name), read.ok()?))));
        }
        ahead
    }

    /// Returns a member's copy of an object; a prefetched copy is used once.
    ///
    /// # Errors
    /// Fails with the errors of [`read_small`].
    pub fn read(
        &mut self,
        number: usize,
        member: &SharedMember,
        name: ExtentName,
    ) -> Result<Vec<u8>> {
        self.0.remove(&(number, name)).map_or_else(|| read_small(&**member, name), Ok)
    }
}

/// A member's number, the member, and its copy.
type Copy<'a> = (usize, &'a SharedMember, Vec<u8>);

/// Whether this is a mark that keeps a snapshot: such a mark is copied from any member to every
/// member.
fn keeps(name: ExtentName, says: &[u8]) -> bool {
    matches!(name, ExtentName::In(ExtentKind::Forgotten, _))
        && Mark::decode(says).is_ok_and(|mark| mark.counts_on_one())
}

/// Whether an intact copy proves by itself that the object belongs in the store.
fn is_proof(store: &Store, name: ExtentName) -> bool {
    let is_snapshot = matches!(name, ExtentName::In(ExtentKind::Snapshots, _));
    match store.config.encryption {
        Encryption::None => is_snapshot,
        _ if store.is_locked() => false,
        // A sealed snapshot is opened when it is judged; of other objects only MACs prove it.
        _ => is_snapshot || store.format > Format::V1,
    }
}
