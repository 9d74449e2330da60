//! Object lock: objects that cannot be deleted before a given time, and how that time is extended.
//!
//! A bucket with object lock keeps versions. In a bucket with object lock, a deletion only hides an
//! object, and credentials that may delete versions cannot delete one before its time has elapsed.
//! Objects are put with their lock time; `gc` extends the time for objects that are still needed
//! (`retention.rs`).
//!
//! Invariant: only objects without which a store cannot be restored are locked: packs, snapshots,
//! keys and the label. Objects that exist only while a process runs are not locked, nor is the
//! index, which can be rebuilt.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use md5::{Digest, Md5};
use object_store::PutPayload;
use object_store::path::Path as Key;
use pinstripe_base::clock;
use pinstripe_member::label::Retention;
use pinstripe_member::{ExtentKind, ExtentName};

use crate::signed::Ask;
use crate::utc;

const MODE: &str = "x-amz-object-lock-mode";
pub(crate) const UNTIL: &str = "x-amz-object-lock-retain-until-date";

/// How an object is locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    mode: &'static str,
    until: i64,
}

impl Lock {
    /// The lock for an object with this name that is put now; `None` for objects that are not
    /// locked.
    pub(crate) fn for_extent(name: ExtentName, retention: Option<Retention>) -> Option<Self> {
        let is_lasting = match name {
            ExtentName::Label => true,
            ExtentName::In(kind, _) => {
                matches!(kind, ExtentKind::Packs | ExtentKind::Snapshots | ExtentKind::Keys)
            }
        };
        retention.filter(|_| is_lasting).map(Self::from_now)
    }

    /// A lock that begins now.
    pub(crate) fn from_now(retention: Retention) -> Self {
        let mode = if retention.is_compliance { "COMPLIANCE" } else { "GOVERNANCE" };
        Lock { mode, until: clock::now().0 + i64::from(retention.seconds) }
    }

    /// The request that puts an object with this lock.
    pub fn ask(&self, key: &Key, payload: &PutPayload, is_new: bool) -> Ask {
        let body = Bytes::from(payload.clone());
        let mut headers = vec![(MODE, self.mode.to_owned()), (UNTIL, utc::written(self.until))];
        // Endpoints want a checksum with a lock.
        headers.push(("content-md5", BASE64_STANDARD.encode(Md5::digest(&body))));
        if is_new {
            headers.push(("if-none-match", "*".to_owned()));
        }
        Ask { method: "PUT", key: Some(key.clone()), query: Vec::new(), headers, body }
    }

    /// The request that extends the lock of an object to this one.
    pub fn extend(&self, key: &Key) -> Ask {
        let body = format!(
            "<Retention xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Mode>{}</Mode>\
             <RetainUntilDate>{}</RetainUntilDate></Retention>",
            self.mode,
            utc::written(self.until)
        );
        let body = Bytes::from(body);
        let headers = vec![("content-md5", BASE64_STANDARD.encode(Md5::digest(&body)))];
        let query = vec![("retention", String::new())];
        Ask { method: "PUT", key: Some(key.clone()), query, headers, body }
    }
}
