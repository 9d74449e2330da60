//! Pages of index runs, kept decoded.
//!
//! Invariant: no lock is held while a page is read, so that several threads may read the same page
//! at once; the first one's copy stays.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, Mutex};

use crate::format::index_run::Page;
use pinstripe_base::error::Result;
use pinstripe_base::id::SetId;
use pinstripe_base::sync::lock;

/// Memory of a decoded page.
const PAGE_BYTES: u64 = 16 << 10;
/// Pages kept where nothing else is asked for: most verbs ask for chunks in the order of their ids.
const PAGES: usize = 48;

/// A page by its run and number.
type PageName = (SetId, u32);

/// The pages read last, of all runs of an index. Pages leave by the clock: those that were asked for
/// since its hand came by stay for another round.
pub(super) struct PageCache {
    pages_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pages: HashMap<PageName, Kept>,
    /// All of them, in the order in which the hand comes by.
    clock: VecDeque<PageName>,
}

struct Kept {
    page: Arc<Page>,
    is_recent: bool,
}

impl Default for PageCache {
    fn default() -> Self {
        PageCache { pages_max: PAGES, state: Mutex::default() }
    }
}

impl PageCache {
    /// Keeps as many pages as fit into `bytes` from now on, and no fewer than by default.
    pub(super) fn keep_bytes(&mut self, bytes: u64) {
        self.pages_max = PAGES.max((bytes / PAGE_BYTES) as usize);
    }

    /// A page, read by `read` when it is not there.
    pub(super) fn get(
        &self,
        run: SetId,
        number: u32,
        read: impl FnOnce() -> Result<Page>,
    ) -> Result<Arc<Page>> {
        let name = (run, number);
        if let Some(kept) = lock(&self.state).pages.get_mut(&name) {
            kept.is_recent = true;
            return Ok(Arc::clone(&kept.page));
        }
        let page = Arc::new(read()?);
        let mut state = lock(&self.state);
        while state.pages.len() >= self.pages_max {
            state.drop_one();
        }
        let State { pages, clock } = &mut *state;
        match pages.entry(name) {
            Entry::Occupied(kept) => Ok(Arc::clone(&kept.get().page)),
            Entry::Vacant(place) => {
                clock.push_back(name);
                place.insert(Kept { page: Arc::clone(&page), is_recent: false });
                Ok(page)
            }
        }
    }
}

impl State {
    /// Moves the hand on until a page goes.
    fn drop_one(&mut self) {
        while let Some(name) = self.clock.pop_front() {
            match self.pages.get_mut(&name) {
                Some(kept) if kept.is_recent => {
                    kept.is_recent = false;
                    self.clock.push_back(name);
                }
                _ => {
                    self.pages.remove(&name);
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::format::index_run::Row;
    use pinstripe_base::error::{Error, Kind};
    use pinstripe_base::id::ChunkId;

    fn page() -> Page {
        let row = Row {
            id: ChunkId([7; 32]),
            pack: 0,
            offset: 0,
            bytes: 100,
            raw_offset: 0,
            raw_bytes: 9,
        };
        Page::decode(&crate::format::index_run::encode_page(0, &[row]), 0, 1).unwrap()
    }

    #[test]
    fn a_page_is_read_once_while_it_is_kept_and_what_is_asked_for_stays() {
        let (cache, run, reads) = (PageCache::default(), SetId([1; 16]), Cell::new(0));
        let get = |number: usize| {
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
        let other = || Ok(page());
        cache.get(SetId([2; 16]), 0, other).unwrap();
        let state = lock(&cache.state);
        assert_eq!((state.pages.len(), state.clock.len()), (PAGES, PAGES));
    }

    #[test]
    fn more_are_kept_where_there_is_room() {
        let (mut cache, reads) = (PageCache::default(), Cell::new(0));
        cache.keep_bytes(10 << 20);
        for number in (0..640).chain(0..640) {
            let read = || {
                reads.set(reads.get() + 1);
                Ok(page())
            };
            cache.get(SetId([1; 16]), number, read).unwrap();
        }
        assert_eq!(reads.get(), 640);
        cache.keep_bytes(0);
        assert_eq!(cache.pages_max, PAGES);
    }

    #[test]
    fn a_page_that_cannot_be_read_is_not_kept() {
        let cache = PageCache::default();
        let refused = cache.get(SetId([1; 16]), 0, || Err(Error::new(Kind::Corrupt, "damaged")));
        assert_eq!(refused.unwrap_err().kind(), Kind::Corrupt);
        assert!(lock(&cache.state).pages.is_empty());
        cache.get(SetId([1; 16]), 0, || Ok(page())).unwrap();
    }
}
