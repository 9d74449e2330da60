//! Directories that the kernel is listing.
//!
//! The names of a directory are read at once, their entries by parallel calls for a window of
//! names: so a slow source is waited for once per window, not once per name. A listing is kept
//! while the kernel reads it.

use std::collections::VecDeque;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};

use crate::calls::{CallPool, CallReply};
use crate::locks::{OverlayLock, RankedMutex};
use crate::nodes::SourceNode;
use crate::source::{ListedName, RangeSource, SourceEntry};

/// The most directories whose listings are kept.
const KEPT_MAX: usize = 16;
/// The number of names whose entries are requested together.
const WINDOW: usize = 64;

/// The listings that are kept, least recently used first.
pub(crate) struct Listings(RankedMutex<VecDeque<(u64, Arc<Listing>)>>);

impl Default for Listings {
    fn default() -> Self {
        Listings(RankedMutex::new(OverlayLock::Listings, VecDeque::new()))
    }
}

/// One directory, as it was when its listing began.
pub(crate) struct Listing {
    names: Vec<Box<[u8]>>,
    told: RankedMutex<NameWindow>,
}

/// The entries of the names from `from` on; `None` for a name that no longer exists.
struct NameWindow {
    from: usize,
    entries: Vec<Option<SourceEntry>>,
}

impl Listings {
    /// The listing of a directory: a new one if the kernel reads from the first name, else the kept
    /// one.
    pub(crate) fn of<S: RangeSource>(
        &self,
        directory: u64,
        node: &SourceNode,
        is_new: bool,
        source: &Arc<S>,
        calls: &CallPool,
    ) -> Result<Arc<Listing>> {
        if !is_new && let Some(kept) = self.kept(directory) {
            return Ok(kept);
        }
        let (asked, path) = (Arc::clone(source), node.path.clone());
        let names = calls.call(move |reply: CallReply<_>| reply.give(asked.list(&path)))??;
        let listing = Arc::new(Listing::new(names));
        let mut kept = self.0.lock();
        kept.retain(|(other, _)| *other != directory);
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back((directory, Arc::clone(&listing)));
        debug_assert!(kept.len() <= KEPT_MAX, "few listings are kept");
        Ok(listing)
    }

    /// Drops a listing that the kernel has read to the end.
    pub(crate) fn done(&self, directory: u64) {
        self.0.lock().retain(|(other, _)| *other != directory);
    }

    fn kept(&self, directory: u64) -> Option<Arc<Listing>> {
        let mut kept = self.0.lock();
        let at = kept.iter().position(|(other, _)| *other == directory)?;
        let found = kept.remove(at)?;
        kept.push_back((directory, Arc::clone(&found.1)));
        Some(found.1)
    }
}

impl Listing {
    fn new(mut listed: Vec<ListedName>) -> Self {
        // An invalid name would lead out of the directory, or nowhere.
        listed.retain(|(name, _)| is_name(name));
        // Sorted and without duplicates, so that positions mean the same in the next listing.
        listed.sort_by(|(one, _), (other, _)| one.cmp(other));
        listed.dedup_by(|(one, _), (other, _)| one == other);
        let is_told = listed.iter().all(|(_, entry)| entry.is_some());
        let mut entries = Vec::new();
        let mut names = Vec::with_capacity(listed.len());
        for (name, entry) in listed {
            names.push(name);
            if is_told {
                entries.push(entry);
            }
        }
        debug_assert!(names.is_sorted(), "positions mean the same in the next listing");
        debug_assert!(entries.is_empty() || entries.len() == names.len(), "all entries or none");
        Listing {
            names,
            told: RankedMutex::new(OverlayLock::Window, NameWindow { from: 0, entries }),
        }
    }

    /// The name at a position, and its entry if it still exists; `None` at the end of the listing.
    pub(crate) fn at<S: RangeSource>(
        &self,
        place: usize,
        node: &SourceNode,
        source: &Arc<S>,
        calls: &CallPool,
    ) -> Option<Result<(&[u8], Option<SourceEntry>)>> {
        let name = self.names.get(place)?;
        let mut told = self.told.lock();
        let within = |told: &NameWindow| {
            let at = place.checked_sub(told.from)?;
            told.entries.get(at).cloned()
        };
        if let Some(entry) = within(&told) {
            return Some(Ok((name, entry)));
        }
        let names = &self.names[place..self.names.len().min(place + WINDOW)];
        match ask(names, node, source, calls) {
            Ok(entries) => *told = NameWindow { from: place, entries },
            Err(error) => return Some(Err(error)),
        }
        Some(Ok((name, within(&told).flatten())))
    }
}

/// The entries of several names of a directory, all requested in parallel.
fn ask<S: RangeSource>(
    names: &[Box<[u8]>],
    node: &SourceNode,
    source: &Arc<S>,
    calls: &CallPool,
) -> Result<Vec<Option<SourceEntry>>> {
    let asked = names.iter().map(|name| {
        let (source, path) = (Arc::clone(source), node.below(name));
        move |reply: CallReply<Result<SourceEntry>>| reply.give(source.stat(&path))
    });
    let or_gone = |answer: Result<Result<SourceEntry>>| match answer.and_then(|answer| answer) {
        Ok(entry) => Ok(Some(entry)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    };
    calls.call_all(asked).into_iter().map(or_gone).collect()
}

/// Whether an error concerns only one entry, which is then left out.
fn is_gone(error: &Error) -> bool {
    matches!(error.kind(), Kind::NotFound | Kind::Unsupported)
}

/// Whether a name is valid in a directory.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}
