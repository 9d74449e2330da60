//! A cache on a local disk, kept between runs, of sealed bytes from a remote store: small objects
//! that every verb reads and that never change.
//!
//! ```text
//! DIR/seg-NUMBER-CHANCE.rows    a header, then a row for each cell: key, place, length
//! DIR/seg-NUMBER-CHANCE.cells   the cells: checksum, key, bytes
//! ```
//!
//! A cell's key is a hash of everything that identifies its content. Callers put only verified
//! bytes into the cache, and check the bytes that they get from it as if a member had sent them.
//! Each process appends to one segment. The oldest segment is removed as a unit; a cell that is
//! found in a segment that will be removed soon is written again.
//!
//! Invariants: bytes are returned only if their checksum and key match. For this reason the cache
//! needs no sync: after a power cut, cells that did not reach the disk are simply not found. Any
//! number of processes may use a cache directory at once, and the directory may be removed at any
//! time. A failure of the cache never fails a caller: the cache is only used less. The cache takes
//! at most its limit, plus one segment for each process.
//!
//! Not in this module: the content of a member. A cell proves that its bytes were read once, not
//! that they still exist on a member.

#![allow(clippy::disallowed_methods, reason = "this module stores sealed bytes in its own files")]

mod segment;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;
use pinstripe_base::sync::lock;
use pinstripe_base::units::MIB;

use segment::{CELL_HEAD_BYTES, CellRow, Cells, Owned, SegmentName};

/// The smallest useful size of a cache.
const BYTES_MIN: u64 = 16 * MIB;
/// A segment takes one in this many bytes of the cache's limit, within the bounds below.
const SEGMENTS: u64 = 16;
const SEGMENT_MIN: u64 = MIB;
const SEGMENT_MAX: u64 = 16 * MIB;
/// A cell counts as at least this many bytes against the limit. The minimum bounds the number of
/// rows, which are kept in memory.
const CELL_COST_MIN: u64 = 4096;
/// A cell that is found in the oldest 1 / `OLD_PART` of the segments is written again.
const OLD_PART: usize = 4;

/// Names a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey([u8; 16]);

impl CacheKey {
    /// Returns the key for the hash of these parts; `domain` separates different uses.
    #[must_use]
    pub fn derive(domain: &str, parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in [domain.as_bytes()].iter().chain(parts) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        CacheKey(*hasher.finalize().as_bytes().first_chunk().expect("a hash is longer"))
    }
}

/// Counters of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Cells that were found.
    pub found: u64,
    /// Lookups that found no cell.
    pub missed: u64,
    /// Cells that were added.
    pub stored: u64,
    /// Cells whose bytes did not match their checksums.
    pub damaged: u64,
}

/// Receives, once, the reason why nothing is added to the cache any more.
type Tell = Box<dyn Fn(&Path, Error) + Send + Sync>;

/// The cache.
pub struct SealedCache {
    dir: PathBuf,
    store: StoreId,
    bytes_max: u64,
    state: Mutex<State>,
    tell: Tell,
    found: AtomicU64,
    missed: AtomicU64,
    stored: AtomicU64,
    damaged: AtomicU64,
}

#[derive(Default)]
struct State {
    /// The segments by age, the oldest first.
    segments: Vec<Arc<Segment>>,
    rows: HashMap<CacheKey, (Arc<Segment>, CellRow)>,
    /// The segment that this process appends to.
    own: Option<Owned>,
    is_read_only: bool,
}

/// A segment that this process reads.
struct Segment {
    name: SegmentName,
    cells: Cells,
}

impl SealedCache {
    /// Opens the cache of a store in a directory, which is created if it is missing; the cache
    /// takes at most `bytes_max`. `tell` receives, once, the reason why nothing is added any more,
    /// such as a full disk.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for less than 16 MiB, or with the errors of the system.
    pub fn open(
        dir: &Path,
        bytes_max: u64,
        store: StoreId,
        tell: impl Fn(&Path, Error) + Send + Sync + 'static,
    ) -> Result<Self> {
        if bytes_max < BYTES_MIN {
            return Err(
                Error::new(Kind::Usage, "the size of a cache must be at least 16 MiB").at(dir)
            );
        }
        let told = |error| Error::io("cannot use the cache", dir, error);
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(told)?;
        let mut state = State::default();
        for name in segment::listed(dir).map_err(told)? {
            let (path, rows) = (name.cells(dir), segment::read_rows(&name.rows(dir), store));
            let segment = Arc::new(Segment { name, cells: Cells::at(path) });
            // Segments of other stores, and damaged ones: nothing is found in them, and they age
            // out.
            let rows = rows.unwrap_or_default().into_iter();
            state.rows.extend(rows.map(|(key, row)| (CacheKey(key), (Arc::clone(&segment), row))));
            state.segments.push(segment);
        }
        Ok(SealedCache {
            dir: dir.to_path_buf(),
            store,
            bytes_max,
            state: Mutex::new(state),
            tell: Box::new(tell),
            found: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
        })
    }

    /// The store that the cache belongs to.
    #[must_use]
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// Returns the bytes of a cell, if the cell exists and is undamaged.
    pub fn get(&self, key: CacheKey) -> Option<Vec<u8>> {
        let held = lock(&self.state).rows.get(&key).cloned();
        let Some((segment, row)) = held else {
            self.missed.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let Some(bytes) = segment.cells.read(&key.0, row) else {
            self.damaged.fetch_add(1, Ordering::Relaxed);
            let mut state = lock(&self.state);
            // It may have been replaced meanwhile.
            if state.rows.get(&key).is_some_and(|(_, now)| *now == row) {
                state.rows.remove(&key);
            }
            return None;
        };
        self.found.fetch_add(1, Ordering::Relaxed);
        let goes_soon = {
            let state = lock(&self.state);
            let old = state.segments.len() / OLD_PART;
            state.segments[..old].iter().any(|it| Arc::ptr_eq(it, &segment))
        };
        if goes_soon {
            self.add(key, &bytes);
        }
        Some(bytes)
    }

    /// Adds bytes to the cache, unless they are cached already or too long.
    pub fn put(&self, key: CacheKey, bytes: &[u8]) {
        if !lock(&self.state).rows.contains_key(&key) {
            self.add(key, bytes);
        }
    }

    /// The counters so far.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheCounts {
            found: count(&self.found),
            missed: count(&self.missed),
            stored: count(&self.stored),
            damaged: count(&self.damaged),
        }
    }

    fn segment_bytes(&self) -> u64 {
        (self.bytes_max / SEGMENTS).clamp(SEGMENT_MIN, SEGMENT_MAX)
    }

    fn add(&self, key: CacheKey, bytes: &[u8]) {
        let mut state = lock(&self.state);
        let cost = (bytes.len() as u64 + CELL_HEAD_BYTES).max(CELL_COST_MIN);
        if state.is_read_only || cost > self.segment_bytes() / 2 {
            return;
        }
        match self.append(&mut state, key, bytes, cost) {
            Ok(()) => {
                self.stored.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                (state.is_read_only, state.own) = (true, None);
                drop(state);
                let what = "the cache cannot be written, so no data is added to it";
                (self.tell)(&self.dir, Error::io(what, &self.dir, error));
            }
        }
    }

    fn append(&self, state: &mut State, key: CacheKey, bytes: &[u8], cost: u64) -> io::Result<()> {
        let is_full = |own: &Owned| own.cost + cost > self.segment_bytes();
        if state.own.as_ref().is_none_or(is_full) {
            state.own = Some(self.next_segment(state)?);
        }
        let Some(own) = &mut state.own else { return Ok(()) };
        let row = own.append(&key.0, bytes, cost)?;
        let own_name = own.name;
        let mut known = state.segments.iter().rev();
        if let Some(segment) = known.find(|segment| segment.name == own_name).cloned() {
            state.rows.insert(key, (segment, row));
        }
        Ok(())
    }

    /// Returns a segment that has space and to which no process appends, or a new one. Afterwards
    /// the oldest segments are removed until the cache is within its limit.
    fn next_segment(&self, state: &mut State) -> io::Result<Owned> {
        state.own = None;
        // The directory may have been removed meanwhile.
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let names = segment::listed(&self.dir)?;
        let most = self.segment_bytes() - CELL_COST_MIN;
        let adopted = names.iter().rev().take(4);
        let adopted = adopted.filter_map(|name| Owned::adopt(&self.dir, *name, self.store)).next();
        let own = match adopted.filter(|own| own.cost <= most) {
            Some(own) => own,
            None => {
                let number = names.last().map_or(0, |last| last.number.saturating_add(1));
                Owned::create(&self.dir, number, self.store)?
            }
        };
        if !state.segments.iter().any(|segment| segment.name == own.name) {
            let cells = Cells::at(own.name.cells(&self.dir));
            state.segments.push(Arc::new(Segment { name: own.name, cells }));
            state.segments.sort_by_key(|segment| segment.name);
        }
        self.remove_oldest(state, own.name)?;
        Ok(own)
    }

    fn remove_oldest(&self, state: &mut State, own: SegmentName) -> io::Result<()> {
        let names = segment::listed(&self.dir)?;
        let mut left: u64 = names.iter().map(|name| name.cost(&self.dir)).sum();
        let room = self.segment_bytes();
        for name in names.into_iter().filter(|name| *name != own) {
            if left + room <= self.bytes_max {
                break;
            }
            left = left.saturating_sub(name.cost(&self.dir));
            for path in [name.rows(&self.dir), name.cells(&self.dir)] {
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            state.segments.retain(|segment| segment.name != name);
            state.rows.retain(|_, (segment, _)| segment.name != name);
        }
        Ok(())
    }
}
