//! A heartbeat of a session: its writer was running when it put this object. A heartbeat holds a
//! count and no time.
//!
//! Heartbeats are put once and never changed, each under a name made of session and count, so that
//! a listing alone shows which sessions have made progress. Heartbeats only protect a session from
//! being ended: `gc` compares two counts of the same session, never the clocks of two hosts.

use super::envelope::{self, Object};
use pinstripe_base::error::Result;
use pinstripe_base::id::{SessionId, StoreId};
use pinstripe_base::wire::{Reader, Writer};

/// The number of bytes of a session's id with which the names of its heartbeats begin.
const SESSION_BYTES: usize = 8;
/// The longest interval that a heartbeat may give: one day.
const EVERY_SECONDS_MAX: u32 = 86_400;

/// One heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Heartbeat {
    /// The store.
    pub store: StoreId,
    /// The session whose writer is running.
    pub session: SessionId,
    /// The number of heartbeats that the session has put, including this one.
    pub count: u64,
    /// The interval between heartbeats, in seconds: 1 to 86400.
    pub every_seconds: u32,
}

impl Heartbeat {
    /// The object's name.
    pub fn name(&self) -> [u8; 16] {
        name_of(self.session, self.count)
    }

    /// The framed object.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        Writer::new(&mut body)
            .raw(&self.store.0)
            .raw(&self.session.0)
            .u64(self.count)
            .u32(self.every_seconds);
        envelope::close(Object::Heartbeat, &body)
    }

    /// Reads a framed heartbeat.
    ///
    /// # Errors
    /// Fails with the errors of [`envelope::open`]; an interval that no writer has is refused.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(envelope::open(Object::Heartbeat, bytes)?, "heartbeat");
        let heartbeat = Heartbeat {
            store: StoreId(reader.array()?),
            session: SessionId(reader.array()?),
            count: reader.u64()?,
            every_seconds: reader.u32()?,
        };
        if !(1..=EVERY_SECONDS_MAX).contains(&heartbeat.every_seconds) {
            return Err(reader.corrupt(format!(
                "the heartbeat interval is {} seconds, but it must be from 1 to \
                 {EVERY_SECONDS_MAX} seconds",
                heartbeat.every_seconds
            )));
        }
        reader.finish()?;
        Ok(heartbeat)
    }
}

/// Returns the name of a session's heartbeat with this count.
pub fn name_of(session: SessionId, count: u64) -> [u8; 16] {
    let mut name = [0; 16];
    name[..SESSION_BYTES].copy_from_slice(&session.0[..SESSION_BYTES]);
    name[SESSION_BYTES..].copy_from_slice(&count.to_be_bytes());
    name
}

/// Returns the count in a name, if the name can be that of a heartbeat of this session.
pub fn count_of(session: SessionId, name: &[u8; 16]) -> Option<u64> {
    let (whose, count) = name.split_first_chunk::<SESSION_BYTES>()?;
    let count = u64::from_be_bytes(count.try_into().ok()?);
    (*whose == session.0[..SESSION_BYTES]).then_some(count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_heartbeat_comes_back(store: [u8; 16], session: [u8; 16], count: u64, every in 1u32..=86_400) {
            let heartbeat = Heartbeat {
                store: StoreId(store), session: SessionId(session), count, every_seconds: every,
            };
            prop_assert_eq!(Heartbeat::decode(&heartbeat.encode()).unwrap(), heartbeat);
            prop_assert_eq!(count_of(heartbeat.session, &heartbeat.name()), Some(count));
            let mut other = heartbeat.session;
            other.0[3] ^= 1;
            prop_assert_eq!(count_of(other, &heartbeat.name()), None);
        }

        #[test]
        fn arbitrary_bodies_never_panic(bytes: Vec<u8>) {
            let _ = Heartbeat::decode(&bytes);
            let _ = Heartbeat::decode(&envelope::close(Object::Heartbeat, &bytes));
        }
    }

    #[test]
    fn an_interval_that_would_keep_a_session_for_ever_is_refused() {
        let with = |every_seconds| Heartbeat {
            store: StoreId([1; 16]),
            session: SessionId([2; 16]),
            count: 1,
            every_seconds,
        };
        for every_seconds in [0, EVERY_SECONDS_MAX + 1, u32::MAX] {
            assert!(Heartbeat::decode(&with(every_seconds).encode()).is_err(), "{every_seconds}");
        }
    }
}
