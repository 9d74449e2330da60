//! The ways to open the store of a story, and which of them must open it.

use pinstripe::Store;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::key_ring::KdfCosts;
use pinstripe_stripe::{Credential, NewSlot};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opens {
    Yes,
    No,
    /// What concerns it was cut off, or two verbs beside each other decided.
    Unsure,
}

/// A key file.
#[derive(Clone)]
pub struct Key {
    pub label: String,
    secret: Vec<u8>,
    pub opens: Opens,
}

impl Key {
    /// The key that every store is made with.
    pub fn first() -> Self {
        Key { label: "test".to_owned(), secret: vec![b'7'; 64], opens: Opens::Yes }
    }

    pub fn of_file(secret: &[u8]) -> Self {
        // The label that the frozen stores give it is not known.
        Key { label: "key file".to_owned(), secret: secret.to_vec(), opens: Opens::Yes }
    }

    pub fn new(number: u64) -> Self {
        let secret = format!("{:064x}", number + 1).into_bytes();
        Key { label: format!("key {number}"), secret, opens: Opens::Yes }
    }

    pub fn credential(&self) -> Credential {
        Credential::of_key_file(&self.secret).unwrap()
    }

    pub fn slot(&self) -> NewSlot {
        let (credential, label) = (self.credential(), self.label.clone());
        NewSlot { credential, costs: KdfCosts::DEFAULT, label, now_seconds: 0 }
    }
}

/// Whether a key opens nothing: it is another one, or only members that cannot be read have its ring.
pub fn opens_nothing(error: &Error) -> bool {
    matches!(error.kind(), Kind::WrongKey | Kind::TooManyLosses)
}

/// Unlocks with the first key that opens. If none does, the error says that a ring is missing, if one
/// of them did.
pub fn unlock(store: &mut Store, keys: &[Key]) -> Result<()> {
    let mut wrong = None;
    for key in keys.iter().filter(|key| key.opens != Opens::No) {
        match store.unlock(&key.credential()) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == Kind::WrongKey => wrong = wrong.or(Some(error)),
            Err(error) if opens_nothing(&error) => wrong = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(wrong.unwrap_or_else(|| Error::new(Kind::WrongKey, "the story knows no key")))
}
