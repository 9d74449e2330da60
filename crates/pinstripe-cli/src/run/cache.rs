//! This host's cache of stores in buckets, for verbs that may use it.
//!
//! Invariants: a verb that checks the content of members never uses the cache; a cache that cannot
//! be used is skipped, with a message.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pinstripe::Store;
use pinstripe_base::id::StoreId;
use pinstripe_base::sync::lock;
use pinstripe_member::SealedCache;

use super::context::Run;
use super::known_stores::KnownStore;
use crate::bucket_args::is_bucket;
use crate::xdg;

/// The size of the cache if neither `--cache-size` nor its key of the config file is given.
const DEFAULT_BYTES: u64 = 1 << 30;

impl Run {
    /// Allows the cache for a verb that needs the content of a store but does not check what its
    /// members have.
    pub fn allow_cache(&self) {
        self.may_use_cache.store(true, Ordering::Relaxed);
    }

    /// Uses the cache of the expected store, before the store is opened.
    pub fn expect_cached(&self, expected: Option<&KnownStore>) {
        let Some(known) = expected else { return };
        if known.places().iter().any(|place| is_bucket(place))
            && let Some(id) = StoreId::from_hex(&known.id)
            && let Some(cache) = self.cache_of(id)
        {
            self.buckets().keep_in(cache);
        }
    }

    /// Uses the cache of a store that was opened.
    pub fn use_cache(&self, store: &mut Store) {
        if store.present().any(|(_, member)| is_bucket(member.place()))
            && let Some(cache) = self.cache_of(store.config.store)
        {
            self.buckets().keep_in(Arc::clone(&cache));
            store.keep_in(cache);
        }
    }

    fn cache_of(&self, store: StoreId) -> Option<Arc<SealedCache>> {
        if !self.may_use_cache.load(Ordering::Relaxed) {
            return None;
        }
        let mut cache = lock(&self.cache);
        if cache.as_ref().is_none_or(|cache| cache.store() != store) {
            *cache = self.open_cache(store).map(Arc::new);
        }
        cache.clone()
    }

    fn open_cache(&self, store: StoreId) -> Option<SealedCache> {
        let given = self.common.buckets.cache_size.map(|size| size.0);
        let said = || self.config().ok().and_then(|config| config.cache_size);
        let bytes = given.or_else(said).unwrap_or(DEFAULT_BYTES);
        let dir = xdg::sealed_cache(store).filter(|_| bytes > 0)?;
        let monitor = Arc::clone(&self.monitor);
        let tell = move |_: &Path, error| {
            monitor.note(&format!("this run continues without a cache: {error}"))
        };
        match SealedCache::open(&dir, bytes, store, tell) {
            Ok(cache) => Some(cache),
            Err(error) => {
                // Said once, however often the run opens the store.
                self.may_use_cache.store(false, Ordering::Relaxed);
                self.monitor.note(&format!("this run continues without a cache: {error}"));
                None
            }
        }
    }
}
