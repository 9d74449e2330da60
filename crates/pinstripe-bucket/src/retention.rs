//! Extends locks: `gc` extends the locks of objects that are still needed once half of their time
//! has passed.

use std::collections::HashSet;

use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use pinstripe_base::clock;
use pinstripe_base::error::Result;
use pinstripe_member::{ExtentName, KeptLonger, goes_on};

use crate::endpoint::Load;
use crate::fault::Fault;
use crate::inner::Inner;
use crate::key;
use crate::lock::{Lock, UNTIL};
use crate::session::Session;
use crate::signed::Ask;
use crate::utc;

/// The number of retentions that are read and extended in parallel.
const AT_ONCE: usize = 16;

impl Inner {
    /// Extends the locks of the objects with these names, once half of their time has passed.
    ///
    /// # Errors
    /// Fails with the errors of the endpoint.
    pub fn keep_longer(&self, names: &[ExtentName]) -> Result<KeptLonger> {
        let Some(retention) = self.facts().retention else { return Ok(KeptLonger::default()) };
        let names: Vec<_> = names
            .iter()
            .filter(|name| Lock::for_extent(**name, Some(retention)).is_some())
            .collect();
        let done = self.runtime.block_on(async {
            let due = self.due(&names, clock::now().0 - i64::from(retention.seconds / 2)).await?;
            let (lock, session) = (Lock::from_now(retention), &*self.session);
            let least = clock::now().0 + i64::from(retention.seconds / 2);
            let extended = futures_util::stream::iter(&due)
                .map(|key| extend(session, key, &lock, least))
                .buffer_unordered(AT_ONCE)
                .inspect(|_| goes_on());
            let extended: Vec<bool> = extended.try_collect().await?;
            let extended = extended.into_iter().filter(|extended| *extended).count() as u64;
            Ok(KeptLonger { looked: due.len() as u64, extended })
        });
        done.map_err(|fault: Fault| self.error(&fault, "extend the retention of", ""))
    }

    /// The keys of those of these objects that are older than `before`, according to listings.
    async fn due(&self, names: &[&ExtentName], before: i64) -> Result<Vec<Key>, Fault> {
        let wanted: HashSet<_> =
            names.iter().map(|name| key::key(&self.place, &name.path())).collect();
        let mut rooms: Vec<_> = names
            .iter()
            .filter_map(|name| match name {
                ExtentName::In(room, _) => Some(*room),
                ExtentName::Label => None,
            })
            .collect();
        rooms.sort_unstable();
        rooms.dedup();
        let mut due = Vec::new();
        for room in rooms {
            let prefix = key::key(&self.place, room.dir());
            let is_due = |meta: &object_store::ObjectMeta| {
                let is_it =
                    meta.last_modified.timestamp() <= before && wanted.contains(&meta.location);
                is_it.then(|| meta.location.clone())
            };
            due.extend(self.session.list_room(&prefix, is_due).await?);
        }
        let label = key::key(&self.place, &ExtentName::Label.path());
        due.extend(wanted.contains(&label).then_some(label));
        Ok(due)
    }
}

/// Extends the lock of an object, unless the lock lasts until `least` or longer. Returns whether
/// the lock was extended; an object that no longer exists is skipped.
async fn extend(session: &Session, key: &Key, lock: &Lock, least: i64) -> Result<bool, Fault> {
    let look = Ask { method: "HEAD", key: Some(key.clone()), ..Ask::default() };
    let until = match session.signed(Load::default(), &look).await {
        Ok(answer) => answer.header(UNTIL).and_then(utc::read),
        Err(Fault::Missing) => return Ok(false),
        Err(fault) => return Err(fault),
    };
    if until.is_some_and(|until| until >= least) {
        return Ok(false);
    }
    match session.signed(Load::default(), &lock.extend(key)).await {
        Ok(_) => Ok(true),
        Err(Fault::Missing) => Ok(false),
        Err(fault) => Err(fault),
    }
}
