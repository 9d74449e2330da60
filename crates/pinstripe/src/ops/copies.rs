//! The copies of one small object: the good bytes, and the members that have other ones.
//!
//! Invariant: bytes that are copied from member to member were made with the store's keys, or stand
//! equally on as many members as any writer must have reached. A snapshot of a store without
//! encryption is the one exception: it commits with its first copy, so one is enough.
//!
//! Never here: the consequences that a verb draws.

use std::collections::BTreeMap;

use super::check::judge;
use crate::format::envelope;
use crate::format::label::{Encryption, Format};
use crate::member::{ExtentName, Room, SharedMember};
use crate::store::{Store, read_small};
use pinstripe_base::error::{Error, Kind, Result};

/// The copies of one name on the present members.
pub(super) struct Copies<'a> {
    /// The bytes that every member should have; `None` when no copy can be trusted.
    pub good: Option<Vec<u8>>,
    /// The members that have other bytes or none, with the defect.
    pub unsound: Vec<(usize, &'a SharedMember, Error)>,
}

impl<'a> Copies<'a> {
    /// Reads all copies of an object that is the same on every member: anything but a label.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when a newer version wrote one: it is not damaged.
    pub fn read(store: &'a Store, name: ExtentName) -> Result<Self> {
        let mut unsound = Vec::new();
        let mut said: BTreeMap<Vec<u8>, Vec<Copy<'_>>> = BTreeMap::new();
        for (number, member) in store.present() {
            let read = read_small(&**member, name)
                .and_then(|bytes| judge(store, number, name, &bytes).map(|()| bytes));
            match read {
                Ok(bytes) => {
                    let says = envelope::without_voucher(&bytes);
                    said.entry(says).or_default().push((number, member, bytes));
                }
                Err(error) if error.kind() == Kind::Unsupported => return Err(error),
                // Named when it fell silent; what it has is not known.
                Err(error) if error.kind() == Kind::Unanswered => {}
                Err(error) => unsound.push((number, member, error)),
            }
        }
        let votes = if is_proof(store, name) { 1 } else { store.votes() };
        let best = said.iter().max_by_key(|(_, holders)| holders.len());
        let good = best.filter(|(_, holders)| holders.len() >= votes);
        let (says, good) = match good {
            Some((says, holders)) => (Some(says.clone()), Some(holders[0].2.clone())),
            None => (None, None),
        };
        for (_, holders) in said.into_iter().filter(|(bytes, _)| Some(bytes) != says.as_ref()) {
            let differs = |(number, member, _)| {
                let what = "too few members agree with this one";
                (number, member, Error::new(Kind::Corrupt, what))
            };
            unsound.extend(holders.into_iter().map(differs));
        }
        unsound.sort_by_key(|(number, ..)| *number);
        Ok(Copies { good, unsound })
    }

    /// Whether the object is on no member at all: removed while this was at it.
    pub fn is_gone(&self) -> bool {
        self.good.is_none()
            && self.unsound.iter().all(|(_, _, error)| error.kind() == Kind::NotFound)
    }
}

/// A member's number, the member, and the bytes that it has.
type Copy<'a> = (usize, &'a SharedMember, Vec<u8>);

/// Whether a copy that was judged sound proves by itself that it belongs there.
fn is_proof(store: &Store, name: ExtentName) -> bool {
    let is_snapshot = matches!(name, ExtentName::In(Room::Snapshots, _));
    match store.config.encryption {
        Encryption::None => is_snapshot,
        _ if store.is_locked() => false,
        // A sealed snapshot is opened when it is judged; of other objects only MACs prove it.
        _ => is_snapshot || store.format > Format::V1,
    }
}
