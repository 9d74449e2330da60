//! Reserved space of a member in a bucket, so that deleting, and adding a member, work even when
//! the endpoint's storage or the quota of the bucket is full.
//!
//! The reserve is a number of dummy objects. If the endpoint refuses to store an object that a
//! deletion needs because there is no space, the dummy objects are deleted one after the other, and
//! the object is sent again after each. The first step of `gc` after a deletion of packs creates the
//! missing ones again. They are not part of the store: nothing reads them, and their absence means
//! only that the reserve is used up.

use std::future::Future;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use object_store::PutPayload;
use object_store::path::Path as Key;
use pinstripe_member::label::MemberAbility;
use pinstripe_member::{ExtentKind, ExtentName, goes_on};

use crate::fault::Fault;
use crate::inner::Inner;
use crate::key;
use crate::place::BucketPlace;

/// The name below which the keys of the reserve are.
const DIR: &str = "pinstripe.reserve";
/// The number of objects: a quota may limit objects, too. `gc` needs four, and `forget` one for
/// each snapshot.
const OBJECTS: usize = 16;
/// The length of each object.
const OBJECT_BYTES: usize = 64 << 10;

/// The prefix of the keys of a member's reserve.
pub(crate) fn prefix(place: &BucketPlace) -> Key {
    key::key(place, DIR)
}

impl Inner {
    /// Creates the objects of the reserve that are missing in `there`. A member without a reserve
    /// can be used, but not when its endpoint is full.
    pub(crate) async fn fill_reserve(&self, there: &[Key]) {
        // In a bucket with versions, deleting them would free no space.
        if self.facts().knows(MemberAbility::Versions) == Some(true) {
            return;
        }
        let keys = (0..OBJECTS).map(|at| key::key(&self.place, &format!("{DIR}/{at:02}")));
        let payload = PutPayload::from(vec![0; OBJECT_BYTES]);
        let put = |key: Key| {
            let payload = payload.clone();
            async move { self.session.put(&key, &payload, None).await }
        };
        join_all(keys.filter(|key| !there.contains(key)).map(put)).await;
    }

    /// The objects of the reserve that exist.
    async fn reserve(&self) -> Result<Vec<Key>, Fault> {
        let prefix = prefix(&self.place);
        let mut keys =
            self.session.list(&prefix, 10 * OBJECTS, |it| Some(it.location.clone())).await?;
        keys.sort_unstable();
        Ok(keys)
    }

    /// Deletes the complete reserve of a member that is removed.
    pub(crate) async fn drop_reserve(&self) {
        let keys = self.reserve().await.unwrap_or_default();
        join_all(keys.iter().map(|key| self.session.delete(key))).await;
    }

    /// Deletes one object of the reserve. Returns false if the reserve is empty, or if the deletion
    /// fails.
    async fn release_one(&self) -> bool {
        match self.reserve().await.unwrap_or_default().last() {
            Some(last) => self.session.delete(last).await.is_ok(),
            None => false,
        }
    }

    /// Sends an object with `send`, or begins with the answer of an earlier attempt. If the endpoint
    /// is full and the object may use the reserve, releases objects of the reserve and sends it
    /// again.
    pub(crate) async fn with_reserve<T, F>(
        &self,
        name: ExtentName,
        earlier: Option<Result<T, Fault>>,
        send: impl Fn() -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let mut sent = match earlier {
            Some(earlier) => earlier,
            None => send().await,
        };
        // A stale listing may show an object again that was deleted.
        for _ in 0..OBJECTS {
            let is_full = matches!(&sent, Err(Fault::Refused(refusal)) if refusal.is_full());
            if !is_full || !name.may_use_reserve() || !self.release_one().await {
                break;
            }
            goes_on();
            sent = send().await;
        }
        let is_step = matches!(name, ExtentName::In(ExtentKind::Gc, _));
        if sent.is_ok() && is_step && self.has_freed.swap(false, Ordering::Relaxed) {
            // If it cannot be listed now, a later gc completes it.
            if let Ok(there) = self.reserve().await {
                self.fill_reserve(&there).await;
            }
        }
        sent
    }
}
