//! The current checksums of a member's blocks: a bounded part of the table in memory.
//!
//! Invariant: a page that differs from the one on the member stays in memory until it is written.
//!
//! This module does not read or write the table. The caller loads pages that are missing.

use std::collections::HashMap;

use crate::format::regions::Version;
use crate::format::sums::{PAGE_BLOCKS, Sum, page_of};

/// The checksums of one page.
pub type Sums = [Sum; PAGE_BLOCKS as usize];

/// A page with the same sum for all blocks.
pub fn all(sum: Sum) -> Box<Sums> {
    Box::new([sum; PAGE_BLOCKS as usize])
}

#[derive(Debug, Clone)]
struct SumPage {
    sums: Box<Sums>,
    /// The newest version that any leaf of the page has on the member.
    version: Version,
    /// The number of changes to the page so far.
    changes: u64,
    /// The number of changes to the page when it was last written.
    written: u64,
    /// The number of the call in which the page was last used.
    used: u64,
}

impl SumPage {
    fn is_changed(&self) -> bool {
        self.changes != self.written
    }
}

/// A page whose newest content is not on the member yet.
#[derive(Debug, Clone)]
pub struct Changed {
    /// The page.
    pub page: u64,
    /// The checksums that the page should hold.
    pub sums: Box<Sums>,
    /// The newest version of the page on the member.
    pub version: Version,
    changes: u64,
}

/// A part of the table of checksums of one member.
#[derive(Debug)]
pub(crate) struct SumCache {
    pages: HashMap<u64, SumPage>,
    most: usize,
    calls: u64,
    changed: usize,
}

impl SumCache {
    /// An empty cache that keeps `most` unchanged pages.
    pub fn new(most: usize) -> Self {
        SumCache { pages: HashMap::new(), most, calls: 0, changed: 0 }
    }

    /// The pages with the sums of these blocks that are not cached.
    pub fn missing(&self, blocks: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
        let pages = match blocks.is_empty() {
            true => 0..0,
            false => page_of(blocks.start).0..page_of(blocks.end - 1).0 + 1,
        };
        pages.filter(|page| !self.pages.contains_key(page))
    }

    /// Adds a page as it is on the member; a page that is already cached is kept.
    pub fn bring(&mut self, page: u64, sums: Box<Sums>, version: Version) {
        let used = self.calls;
        let fresh = SumPage { sums, version, changes: 0, written: 0, used };
        self.pages.entry(page).or_insert(fresh);
        if self.pages.len() - self.changed > 2 * self.most {
            self.forget();
        }
    }

    /// The checksum of a block; `None` if its page is not cached.
    pub fn get(&mut self, block: u64) -> Option<Sum> {
        self.calls += 1;
        let (page, at) = page_of(block);
        let page = self.pages.get_mut(&page)?;
        page.used = self.calls;
        Some(page.sums[at])
    }

    /// Sets the checksum of a block.
    ///
    /// # Panics
    /// Panics if the page is not cached.
    pub fn set(&mut self, block: u64, sum: Sum) {
        let (number, at) = page_of(block);
        let page = self.pages.get_mut(&number).expect("the page was brought");
        if page.sums[at] != sum {
            page.sums[at] = sum;
            self.changed += usize::from(!page.is_changed());
            page.changes += 1;
        }
    }

    /// Marks a page as different from the one on the member.
    ///
    /// # Panics
    /// Panics if the page is not cached.
    pub fn touch(&mut self, page: u64) {
        let page = self.pages.get_mut(&page).expect("the page was brought");
        self.changed += usize::from(!page.is_changed());
        page.changes += 1;
    }

    /// Drops a page whose content is no longer valid.
    pub(crate) fn forget_page(&mut self, page: u64) {
        if self.pages.remove(&page).is_some_and(|page| page.is_changed()) {
            self.changed -= 1;
        }
    }

    /// The numbers of pages that differ from those on the member, ascending.
    pub(crate) fn changed_pages(&self) -> Vec<u64> {
        let changed = self.pages.iter().filter(|(_, page)| page.is_changed());
        let mut changed: Vec<_> = changed.map(|(number, _)| *number).collect();
        changed.sort_unstable();
        changed
    }

    /// The pages that differ from those on the member, with their new content.
    pub fn changed(&self) -> Vec<Changed> {
        let changed = |page: u64| {
            let SumPage { sums, version, changes, .. } = self.pages[&page].clone();
            Changed { page, sums, version, changes }
        };
        self.changed_pages().into_iter().map(changed).collect()
    }

    /// Records that a page was written in this state, under a version.
    pub fn written(&mut self, it: &Changed, version: Version) {
        if let Some(page) = self.pages.get_mut(&it.page) {
            let was_changed = page.is_changed();
            page.version = version;
            page.written = it.changes;
            self.changed -= usize::from(was_changed && !page.is_changed());
        }
    }

    /// Drops unchanged pages, least recently used first, down to the limit.
    fn forget(&mut self) {
        let unchanged = self.pages.iter().filter(|(_, page)| !page.is_changed());
        let mut ages: Vec<u64> = unchanged.map(|(_, page)| page.used).collect();
        if ages.len() <= self.most {
            return;
        }
        let surplus = ages.len() - self.most;
        let (_, newest, _) = ages.select_nth_unstable(surplus - 1);
        let newest = *newest;
        let mut left = surplus;
        self.pages.retain(|_, page| {
            let goes = left > 0 && !page.is_changed() && page.used <= newest;
            left -= usize::from(goes);
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER: u64 = PAGE_BLOCKS;

    fn bring(cache: &mut SumCache, page: u64) {
        cache.bring(page, all(Sum::UNWRITTEN), Version::FIRST);
    }

    #[test]
    fn it_says_which_pages_it_wants() {
        let mut cache = SumCache::new(8);
        assert!(cache.missing(PER - 1..PER + 1).eq([0, 1]));
        bring(&mut cache, 1);
        assert!(cache.missing(0..3 * PER).eq([0, 2]));
        assert!(cache.missing(PER..2 * PER).chain(cache.missing(5..5)).next().is_none());
        assert_eq!((cache.get(0), cache.get(PER)), (None, Some(Sum::UNWRITTEN)));
    }

    #[test]
    fn what_was_changed_stays_until_it_is_written() {
        let mut cache = SumCache::new(4);
        bring(&mut cache, 0);
        cache.set(3, Sum::from_block(b"a"));
        for page in 1..100 {
            bring(&mut cache, page);
        }
        assert!(cache.pages.len() <= 10, "{}", cache.pages.len());
        assert_eq!(cache.get(3), Some(Sum::from_block(b"a")));
        // A member's older page does not replace it.
        bring(&mut cache, 0);
        let changed = cache.changed();
        assert_eq!(
            (changed.len(), changed[0].page, changed[0].sums[3]),
            (1, 0, Sum::from_block(b"a"))
        );
        // Changed again while it was being written: it is still to be written.
        cache.set(3, Sum::from_block(b"b"));
        cache.written(&changed[0], Version::FIRST.plus(1));
        let changed = cache.changed();
        assert_eq!((changed.len(), changed[0].version), (1, Version::FIRST.plus(1)));
        cache.written(&changed[0], Version::FIRST.plus(2));
        assert!(cache.changed_pages().is_empty());
        assert_eq!(cache.changed, 0);
    }

    #[test]
    fn what_was_asked_for_last_is_kept() {
        let mut cache = SumCache::new(4);
        for page in 0..50 {
            bring(&mut cache, page);
            cache.get(0);
        }
        assert_eq!(cache.get(0), Some(Sum::UNWRITTEN));
    }
}
