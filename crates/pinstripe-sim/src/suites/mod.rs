//! Suites that a store passes wherever its members are: each test opens the store of a site in its
//! own way, on directories or through a server.

pub mod faults;
pub mod hostile_members;

use std::ops::{Deref, DerefMut};
use std::path::Path;

use pinstripe::Store;
use pinstripe_member::snapshot::Snapshot;

use crate::support::{Ledger, Site, backup};

/// A site, and how its store is opened. A suite changes the directories of the members by itself.
pub trait SuiteSite: Deref<Target = Site> + DerefMut + Sized {
    /// Creates an encrypted store.
    fn new(members: usize, parity: u8) -> Self;

    /// Creates a store that is not encrypted.
    fn clear(members: usize, parity: u8) -> Self;

    /// Opens the store through a member, without a key, with faults of the members.
    fn locked_store_with_faults(&self, member: usize, faults: &str) -> Store;

    /// Whether a place is that of the member with this number.
    fn is_place_of(&self, place: &Path, number: usize) -> bool;

    /// The distance between the cases of a long list that are tested.
    fn stride() -> usize {
        1
    }

    /// Whether the members are opened without the keys before they are opened with them.
    fn has_keyless_server(&self) -> bool {
        false
    }

    /// Whether calls of members reach the members one by one, so that a fault after some calls
    /// occurs at the same point of a verb.
    fn counts_calls(&self) -> bool {
        true
    }

    fn store(&self) -> Store {
        self.store_through(0)
    }

    fn store_through(&self, member: usize) -> Store {
        let mut store = self.locked_store_with_faults(member, "");
        store.unlock(&crate::support::credential()).unwrap();
        store
    }

    fn store_with_faults(&self, faults: &str) -> Store {
        let mut store = self.locked_store_with_faults(0, faults);
        store.unlock(&crate::support::credential()).unwrap();
        store
    }

    fn locked_store(&self) -> Store {
        self.locked_store_through(0)
    }

    fn locked_store_through(&self, member: usize) -> Store {
        self.locked_store_with_faults(member, "")
    }

    /// Backs up the source without problems.
    #[track_caller]
    fn save(&self) -> Snapshot {
        let ledger = Ledger::new();
        let snapshot = backup(&self.store(), &self.source(), &ledger).unwrap();
        ledger.assert_clean();
        snapshot
    }
}

/// A store on directories.
pub struct OnDirectories(Site);

impl Deref for OnDirectories {
    type Target = Site;
    fn deref(&self) -> &Site {
        &self.0
    }
}

impl DerefMut for OnDirectories {
    fn deref_mut(&mut self) -> &mut Site {
        &mut self.0
    }
}

impl SuiteSite for OnDirectories {
    fn new(members: usize, parity: u8) -> Self {
        OnDirectories(Site::new(members, parity))
    }

    fn clear(members: usize, parity: u8) -> Self {
        OnDirectories(Site::clear(members, parity))
    }

    fn locked_store_with_faults(&self, member: usize, faults: &str) -> Store {
        self.0.open_locked(member, faults).unwrap()
    }

    fn is_place_of(&self, place: &Path, number: usize) -> bool {
        place.ends_with(format!("m{number}"))
    }
}
