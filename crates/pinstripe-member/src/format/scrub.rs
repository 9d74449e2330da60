//! The state of scrubbing: one small object, whose size is the same for any store.
//!
//! Stripe sets are grouped by the first byte of their random ids into 256 shares of the store; each
//! share has the time at which its last verification *began*, so that everything in the share was
//! read after that time. A cursor records the position of the current round. The times are for
//! people; no decision depends on them.

use super::envelope::{self, Object};
use pinstripe_base::error::Result;
use pinstripe_base::id::{SetId, StoreId};
use pinstripe_base::wire::{Reader, Writer};

/// The number of shares of a store: one for each first byte of a set id.
pub(crate) const SHARES: usize = 256;

/// One share, as its last complete verification found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScrubShare {
    /// When the last complete verification of the share began, in seconds since 1970; 0 if there
    /// was none.
    pub began_seconds: i64,
    /// The number of stripe sets that were verified. If the share has more sets now, the others
    /// were added later.
    pub sets: u64,
    /// The number of bytes that were verified, on all members together.
    pub bytes: u64,
}

/// The state of scrubbing: the position reached, and the time of each share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubState {
    /// The store whose scrubbing this state describes.
    pub store: StoreId,
    /// Grows by one with each state that is written; the state with the highest generation is the
    /// newest.
    pub generation: u64,
    /// The last stripe set that was verified; the scrub continues with the next set id, or from the
    /// lowest one after the last.
    pub cursor: SetId,
    /// The share that contains the cursor, as far as it is verified; `began_seconds` is 0 when its
    /// verification has not begun or must not count.
    pub open: ScrubShare,
    /// The shares, in the order of the first byte.
    pub shares: Vec<ScrubShare>,
}

impl ScrubState {
    /// The state of a store that was never scrubbed.
    pub fn new(store: StoreId) -> Self {
        let shares = vec![ScrubShare::default(); SHARES];
        // Behind the last id there may be, so that the first one is next.
        let cursor = SetId([0xff; SetId::LEN]);
        ScrubState { store, generation: 0, cursor, open: ScrubShare::default(), shares }
    }

    /// The framed object.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut writer = Writer::new(&mut body);
        writer.raw(&self.store.0).u64(self.generation).raw(&self.cursor.0);
        for share in std::iter::once(&self.open).chain(&self.shares) {
            writer.i64(share.began_seconds).u64(share.sets).u64(share.bytes);
        }
        envelope::close(Object::Scrub, &body)
    }

    /// Reads a framed state.
    ///
    /// # Errors
    /// Fails with the errors of [`envelope::open`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(envelope::open(Object::Scrub, bytes)?, "scrub state");
        let (store, generation) = (StoreId(reader.array()?), reader.u64()?);
        let cursor = SetId(reader.array()?);
        let mut share = || -> Result<ScrubShare> {
            let (began_seconds, sets, bytes) = (reader.i64()?, reader.u64()?, reader.u64()?);
            Ok(ScrubShare { began_seconds, sets, bytes })
        };
        let open = share()?;
        let shares = (0..SHARES).map(|_| share()).collect::<Result<_>>()?;
        reader.finish()?;
        Ok(ScrubState { store, generation, cursor, open, shares })
    }

    /// Takes over the shares that another scrub verified later than this one did.
    pub fn merge(&mut self, other: &ScrubState) {
        self.generation = self.generation.max(other.generation);
        for (own, theirs) in self.shares.iter_mut().zip(&other.shares) {
            if theirs.began_seconds > own.began_seconds {
                *own = *theirs;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_state_comes_back_and_has_one_size() {
        let mut state = ScrubState::new(StoreId([7; 16]));
        let bytes = state.encode().len();
        assert_eq!(ScrubState::decode(&state.encode()).unwrap(), state);
        state.generation = u64::MAX;
        state.open = ScrubShare { began_seconds: -5, sets: 3, bytes: 1 << 50 };
        state.shares[255] = ScrubShare { began_seconds: i64::MAX, sets: u64::MAX, bytes: u64::MAX };
        assert_eq!(ScrubState::decode(&state.encode()).unwrap(), state);
        assert_eq!(state.encode().len(), bytes);
    }

    #[test]
    fn the_later_verification_of_each_share_is_kept() {
        let mut ours = ScrubState::new(StoreId([7; 16]));
        let mut theirs = ours.clone();
        let at = |began_seconds| ScrubShare { began_seconds, sets: 1, bytes: 1 };
        (ours.shares[1], ours.shares[2]) = (at(10), at(30));
        (theirs.shares[1], theirs.shares[2], theirs.generation) = (at(20), at(20), 9);
        ours.merge(&theirs);
        assert_eq!((ours.shares[1], ours.shares[2], ours.generation), (at(20), at(30), 9));
    }

    proptest! {
        #[test]
        fn arbitrary_bodies_never_panic(body: Vec<u8>) {
            let _ = ScrubState::decode(&envelope::close(Object::Scrub, &body));
            let _ = ScrubState::decode(&body);
        }
    }
}
