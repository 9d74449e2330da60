//! The keys that open the store of a story: key files, because a password costs time. At least one
//! key must always open the store.

use pinstripe::{Store, key};
use pinstripe_base::error::{Error, Kind};
use pinstripe_member::key_ring::KdfCosts;
use pinstripe_stripe::{Credential, NewSlot};

use crate::operation::{End, KeyWork};
use crate::process::under;
use crate::world::World;

/// Whether a key opens nothing: it is another one, or only absent members have its ring.
fn opens_nothing(error: &Error) -> bool {
    matches!(error.kind(), Kind::WrongKey | Kind::TooManyLosses)
}

/// A key file.
#[derive(Clone)]
pub struct Key {
    label: String,
    digits: String,
    /// Whether the key must open the store, because no operation on it was interrupted.
    firm: bool,
}

impl Key {
    /// Returns the first key, with which the store was created.
    pub fn first() -> Self {
        Key { label: "test".to_owned(), digits: "7".repeat(64), firm: true }
    }

    fn credential(&self) -> Credential {
        Credential::of_key_file(self.digits.as_bytes()).unwrap()
    }

    fn slot(&self) -> NewSlot {
        let (credential, label) = (self.credential(), self.label.clone());
        NewSlot { credential, costs: KdfCosts::DEFAULT, label, now_seconds: 0 }
    }
}

impl World {
    /// Unlocks with a key that must open the store, or with the first key that does.
    pub fn unlock(&self, store: &mut Store) -> Result<(), Error> {
        if let Some(key) = self.keys.iter().find(|key| key.firm) {
            return store.unlock(&key.credential()).map(drop);
        }
        let mut wrong = None;
        for key in &self.keys {
            match store.unlock(&key.credential()) {
                Ok(_) => return Ok(()),
                Err(error) if opens_nothing(&error) => wrong = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(wrong.expect("there is a key"))
    }

    pub fn assert_keys_open(&self) {
        for key in self.keys.iter().filter(|key| key.firm) {
            assert!(self.opens(key), "key '{}' opens no more", key.label);
        }
    }

    fn opens(&self, key: &Key) -> bool {
        let mut store = self.store();
        match store.unlock(&key.credential()) {
            Ok(_) => true,
            Err(error) if opens_nothing(&error) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Records, after a repair with all members, which keys open the store.
    pub fn settle_keys(&mut self) {
        let keys = std::mem::take(&mut self.keys);
        let candidates = keys.clone();
        self.keys = keys;
        let opening = candidates.into_iter().filter(|key| self.opens(key));
        self.keys = opening.map(|key| Key { firm: true, ..key }).collect();
        assert!(!self.keys.is_empty());
    }

    pub fn change_keys(&mut self, work: KeyWork, end: End) {
        // What a cut left undecided is decided by a repair with all members.
        if self.keys.iter().any(|key| !key.firm) {
            return;
        }
        let all_here = self.absent() == 0;
        self.written();
        self.made_keys += 1;
        let number = self.made_keys;
        let digits = format!("{number:064x}");
        let new = Key { label: format!("key {number}"), digits, firm: true };
        let old = self.keys[0].clone();
        let ((done, before), cut) = under(self.stage, end, |who| {
            let store = self.open("", who);
            let mut store = match store {
                Ok(store) => store,
                Err(error) => return (Err(error), 0),
            };
            let done = match work {
                KeyWork::Add => key::add(&store, &new.slot()).map(drop),
                KeyWork::Remove => key::remove(&store, &old.label).map(drop),
                KeyWork::Rotate => key::rotate(&mut store, &new.slot()).map(drop),
            };
            (done, self.keys.len())
        });
        self.untidy |= cut;
        if cut {
            if work != KeyWork::Remove {
                self.keys.push(new);
            }
            self.keys.iter_mut().for_each(|key| key.firm = false);
            return;
        }
        match (work, done) {
            (KeyWork::Add, Ok(())) => self.keys.push(new),
            (KeyWork::Remove, Ok(())) => {
                assert!(all_here && before > 1);
                self.keys.remove(0);
                assert!(!self.opens(&old), "a key that was removed opens the store");
            }
            (KeyWork::Rotate, Ok(())) => {
                assert!(all_here);
                self.keys = vec![new];
                assert!(!self.opens(&old), "a key of before the rotation opens the store");
            }
            (KeyWork::Remove | KeyWork::Rotate, Err(error))
                if error.kind() == Kind::Refused && (!all_here || before == 1) => {}
            (_, Err(error)) => panic!("{work:?} failed: {error}"),
        }
    }
}
