//! Decoded pages of index runs, cached.
//!
//! Invariant: no lock is held while a page is read, so several threads may read the same page at
//! once; the copy that was read first is kept.

use std::sync::Arc;

use pinstripe_base::error::Result;
use pinstripe_base::id::SetId;
use pinstripe_base::weighted_cache::WeightedCache;
use pinstripe_member::index_run::Page;

use super::super::locks::{RankedMutex, StoreLock};

/// The memory of a decoded page.
const PAGE_BYTES: u64 = 16 << 10;
/// The number of pages that are cached by default: most verbs look up chunks in the order of their
/// ids.
const PAGES: u64 = 48;

/// A page, by its run and its number.
type PageName = (SetId, u32);

/// The pages that were read last, from all runs of an index.
pub(super) struct PageCache(RankedMutex<WeightedCache<PageName, Arc<Page>>>);

impl Default for PageCache {
    fn default() -> Self {
        PageCache::with_bytes(0)
    }
}

impl PageCache {
    /// Makes a cache for as many pages as fit in `bytes`, but no fewer than by default.
    pub(super) fn with_bytes(bytes: u64) -> Self {
        let pages = WeightedCache::new(PAGES.max(bytes / PAGE_BYTES));
        PageCache(RankedMutex::new(StoreLock::Pages, pages))
    }

    /// Returns a page, which `read` reads if it is not cached.
    pub(super) fn get(
        &self,
        run: SetId,
        number: u32,
        read: impl FnOnce() -> Result<Page>,
    ) -> Result<Arc<Page>> {
        let name = (run, number);
        if let Some(page) = self.0.lock().get(&name) {
            return Ok(page);
        }
        let page = Arc::new(read()?);
        Ok(self.0.lock().keep(name, page, 1))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use pinstripe_base::error::{Error, Kind};
    use pinstripe_base::id::ChunkId;
    use pinstripe_member::index_run::Row;

    fn page() -> Page {
        let row = Row {
            id: ChunkId([7; 32]),
            pack: 0,
            offset: 0,
            bytes: 100,
            raw_offset: 0,
            raw_bytes: 9,
        };
        Page::decode(&pinstripe_member::index_run::encode_page(0, &[row]), 0, 1).unwrap()
    }

    #[test]
    fn a_page_is_read_once_while_it_is_kept_and_what_is_asked_for_stays() {
        let (cache, run, reads) = (PageCache::default(), SetId([1; 16]), Cell::new(0_u64));
        let get = |number: u64| {
            let read = || {
                reads.set(reads.get() + 1);
                Ok(page())
            };
            cache.get(run, number as u32, read).unwrap();
            reads.get()
        };
        for number in 0..PAGES {
            assert_eq!(get(number), number + 1);
        }
        assert_eq!(get(0), PAGES, "it is there");
        assert_eq!(get(PAGES), PAGES + 1);
        assert_eq!(get(0), PAGES + 1, "it was asked for, so another one went");
        assert_eq!(get(1), PAGES + 2, "which was this one");
        // A page of another run is another page, though it has the same number.
        let mut is_read = false;
        let other = || {
            is_read = true;
            Ok(page())
        };
        cache.get(SetId([2; 16]), 0, other).unwrap();
        assert!(is_read);
    }

    #[test]
    fn more_are_kept_where_there_is_room() {
        let (cache, reads) = (PageCache::with_bytes(10 << 20), Cell::new(0));
        for number in (0..640).chain(0..640) {
            let read = || {
                reads.set(reads.get() + 1);
                Ok(page())
            };
            cache.get(SetId([1; 16]), number, read).unwrap();
        }
        assert_eq!(reads.get(), 640);
    }

    #[test]
    fn a_page_that_cannot_be_read_is_not_kept() {
        let cache = PageCache::default();
        let refused = cache.get(SetId([1; 16]), 0, || Err(Error::new(Kind::Corrupt, "damaged")));
        assert_eq!(refused.unwrap_err().kind(), Kind::Corrupt);
        let mut is_read = false;
        let read = || {
            is_read = true;
            Ok(page())
        };
        cache.get(SetId([1; 16]), 0, read).unwrap();
        assert!(is_read, "it is asked for again");
    }
}
