//! This host's cache of small objects and ends of index runs, kept between runs.
//!
//! Invariants: a lookup needs the place, name, length and entity tag from a listing of this run, so
//! the cache never decides what exists. Only bytes with a valid checksum are cached, because a
//! damaged copy would stay damaged. Never cached are the label, keys (which may be revoked), and
//! the directories of running processes.

use std::sync::Arc;

use pinstripe_base::id::SetId;
use pinstripe_member::stripe_set::HEADER_BYTES;
use pinstripe_member::{CacheKey, ExtentKind, ExtentName, SealedCache, envelope};
use pinstripe_stripe::sound_end;

use crate::locks::{BucketLock, RankedMutex};
use crate::place::BucketPlace;
use crate::session::{Fetched, ObjectMark};
use crate::tails::has_tail;

/// The cache on this host, once it is set.
#[derive(Clone)]
pub struct Kept(Arc<RankedMutex<Option<Arc<SealedCache>>>>);

impl Default for Kept {
    fn default() -> Self {
        Kept(Arc::new(RankedMutex::new(BucketLock::Kept, None)))
    }
}

impl Kept {
    /// Uses this cache from now on.
    pub fn use_cache(&self, cache: Arc<SealedCache>) {
        *self.0.lock() = Some(cache);
    }

    fn cache(&self) -> Option<Arc<SealedCache>> {
        self.0.lock().clone()
    }

    /// The cached bytes of an object that a listing shows with this tag and length.
    pub fn get(
        &self,
        place: &BucketPlace,
        name: ExtentName,
        tag: &str,
        object_bytes: u64,
    ) -> Option<Fetched> {
        let bytes = self.cache()?.get(key(place, name, tag, object_bytes))?;
        let mark = ObjectMark { e_tag: tag.to_owned(), modified: 0 };
        if !has_tail(name) {
            return Some(Fetched { object_bytes, mark, head: Vec::new(), bytes });
        }
        let (head, end) = bytes.split_at_checked(HEADER_BYTES)?;
        let (head, bytes) = (head.to_vec(), end.to_vec());
        Some(Fetched { object_bytes, mark, head, bytes })
    }

    /// Caches fetched bytes, if their checksum is valid.
    pub fn put(&self, place: &BucketPlace, name: ExtentName, got: &Fetched) {
        let (Some(cache), ExtentName::In(kind, id)) = (self.cache(), name) else { return };
        let is_passing =
            matches!(kind, ExtentKind::Sessions | ExtentKind::Checkpoints | ExtentKind::Heartbeats);
        // Ends of packs are not prefetched by listings, so no listing shows their tags.
        if is_passing || matches!(kind, ExtentKind::Keys | ExtentKind::Packs) {
            return;
        }
        if got.mark.e_tag.is_empty() {
            return;
        }
        let kept = match has_tail(name) {
            true => ends(SetId(id), got),
            false => envelope::open_any(&got.bytes).is_ok().then(|| got.bytes.clone()),
        };
        if let Some(kept) = kept {
            cache.put(key(place, name, &got.mark.e_tag, got.object_bytes), &kept);
        }
    }
}

/// The header of an extent, followed by its trailer and footer.
fn ends(set: SetId, got: &Fetched) -> Option<Vec<u8>> {
    let is_whole = got.bytes.len() as u64 == got.object_bytes;
    let head = if is_whole { got.bytes.get(..HEADER_BYTES)? } else { &got.head[..] };
    let end = sound_end(set, head, &got.bytes)?;
    Some([head, &got.bytes[got.bytes.len() - end..]].concat())
}

fn key(place: &BucketPlace, name: ExtentName, tag: &str, object_bytes: u64) -> CacheKey {
    let (place, name) = (place.to_string(), name.path());
    let bytes = object_bytes.to_le_bytes();
    CacheKey::derive("object", &[place.as_bytes(), name.as_bytes(), tag.as_bytes(), &bytes])
}
