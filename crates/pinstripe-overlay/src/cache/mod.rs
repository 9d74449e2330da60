//! A cache of blocks of files on a local disk, kept between runs.
//!
//! ```text
//! DIR/index   a header, then a row for each cell: key, length, checksum of the content
//! DIR/cells   the cells, of 64 KiB each
//! ```
//!
//! The key of a cell is a hash of the source's name, the path, the version of the content and the
//! place in it: cells of a changed file are never found. Eviction is by the clock algorithm.
//!
//! Invariants: bytes are returned only if they match the checksum in the row of their cell; the row
//! itself has a checksum, too. So the cache is never synced, and after a power cut, cells that did
//! not reach the disk are not found. One process uses a directory at a time. A failure of the cache
//! never fails a read: the cache is then used less.

#![allow(clippy::disallowed_methods, reason = "this module stores blocks in its own files")]

mod row;
mod slots;
#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::FlockOperation;

use pinstripe_base::checksum::checksum;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::units::MIB;

use crate::locks::{OverlayLock, RankedMutex};
use crate::source::ContentVersion;
use row::{CacheHeader, CacheRow, HEADER_BYTES, ROW_BYTES};
use slots::Slots;

/// Bytes of a cell.
const CELL_BYTES: u64 = 64 << 10;
/// A smaller cache has no benefit.
const BYTES_MIN: u64 = 16 * MIB;
/// The number of rows that are read at once when the cache is opened.
const ROWS_AT_ONCE: u64 = 4096;
const INDEX: &str = "index";
const CELLS: &str = "cells";

/// Names a cell.
type CellKey = [u8; 16];

/// The cache.
pub struct BlockCache {
    place: PathBuf,
    source: blake3::Hash,
    index: File,
    cells: File,
    slots: RankedMutex<Slots>,
    monitor: Arc<Monitor>,
    is_read_only: AtomicBool,
    counts: CacheCounts,
}

#[derive(Default)]
struct CacheCounts {
    found: AtomicU64,
    missed: AtomicU64,
    stored: AtomicU64,
    damaged: AtomicU64,
}

/// The content and the counters of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheUsage {
    /// The most bytes that the cache may hold.
    pub bytes_max: u64,
    /// Bytes of the cells that are in use.
    pub bytes: u64,
    /// Bytes that were found in the cache.
    pub found: u64,
    /// Bytes that were requested and not found in the cache.
    pub missed: u64,
    /// Bytes that were added to the cache.
    pub stored: u64,
    /// The number of cells whose content did not match their rows.
    pub damaged: u64,
}

impl BlockCache {
    /// Opens the cache in a directory, which is created if it is missing; the cache takes at most
    /// `bytes`. `source` names the cached source; several sources can use one cache in turn.
    ///
    /// # Errors
    /// Fails with [`Kind::Exists`] for a directory with other content, [`Kind::Busy`] while another
    /// process uses the cache, [`Kind::Corrupt`] for a damaged header, [`Kind::Unsupported`] for a
    /// cache of another version, [`Kind::Usage`] for less than 16 MiB; with the errors of the
    /// system.
    pub fn open(place: &Path, bytes: u64, source: &[u8], monitor: Arc<Monitor>) -> Result<Self> {
        if bytes < BYTES_MIN {
            return Err(
                Error::new(Kind::Usage, "the size of a cache must be at least 16 MiB").at(place)
            );
        }
        let told = |error| Error::io("cannot use the cache", place, error);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(place);
        made.map_err(told)?;
        check_owned(place)?;
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).mode(0o600).open(place.join(name))
        };
        let (index, cells) = (open(INDEX).map_err(told)?, open(CELLS).map_err(told)?);
        match rustix::fs::flock(&index, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(Error::new(Kind::Busy, "another process uses this cache").at(place));
            }
            locked => locked.map_err(|errno| told(errno.into()))?,
        }
        let count = bytes / CELL_BYTES;
        let mut slots = Slots::new(count as usize);
        // A file whose creation was interrupted is created again.
        let is_new = index.metadata().map_err(told)?.len() == 0;
        let known = if is_new { 0 } else { load(&index, place, &mut slots)? };
        let resize = || {
            cells.set_len(count * CELL_BYTES)?;
            if known != count {
                index.write_all_at(&CacheHeader { cells: count }.encode(), 0)?;
                index.sync_all()?;
            }
            index.set_len(HEADER_BYTES + count * ROW_BYTES)
        };
        resize().map_err(told)?;
        let cache = BlockCache {
            place: place.to_path_buf(),
            source: blake3::hash(source),
            index,
            cells,
            slots: RankedMutex::new(OverlayLock::Slots, slots),
            monitor,
            is_read_only: AtomicBool::new(false),
            counts: CacheCounts::default(),
        };
        Ok(cache)
    }

    /// Appends the bytes of a range to `out` if all of it is cached; the range begins at a cell
    /// boundary.
    pub(crate) fn get(
        &self,
        path: &[u8],
        version: &ContentVersion,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> bool {
        let (base, length) = (out.len(), range.end - range.start);
        let keys = self.keys(path, version, &range);
        let found = self.slots.lock().find(&keys);
        let is_whole = found.is_some_and(|found| {
            out.resize(base + length as usize, 0);
            self.read(&found, &mut out[base..])
        });
        let counter = if is_whole { &self.counts.found } else { &self.counts.missed };
        counter.fetch_add(length, Ordering::Relaxed);
        if !is_whole {
            out.truncate(base);
        }
        is_whole
    }

    /// Caches the bytes of a range, which begins at a cell boundary.
    pub(crate) fn put(
        &self,
        path: &[u8],
        version: &ContentVersion,
        range: Range<u64>,
        bytes: &[u8],
    ) {
        if self.is_read_only.load(Ordering::Relaxed) {
            return;
        }
        let keys = self.keys(path, version, &range);
        let cells: Vec<(CellKey, &[u8])> =
            keys.into_iter().zip(bytes.chunks(CELL_BYTES as usize)).collect();
        let rows = self.slots.lock().take(&cells);
        if let Err(error) = self.write(&rows, &cells) {
            self.is_read_only.store(true, Ordering::Relaxed);
            let error = Error::io(
                "the cache cannot be written, so no data is added to it",
                &self.place,
                error,
            );
            self.monitor.warning(&self.place, error);
            self.slots.lock().give_back(&rows);
            return;
        }
        self.slots.lock().fill(&rows);
        self.counts.stored.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    /// The content and the counters.
    pub fn usage(&self) -> CacheUsage {
        let (used, all) = self.slots.lock().counts();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheUsage {
            bytes_max: all as u64 * CELL_BYTES,
            bytes: used as u64 * CELL_BYTES,
            found: count(&self.counts.found),
            missed: count(&self.counts.missed),
            stored: count(&self.counts.stored),
            damaged: count(&self.counts.damaged),
        }
    }

    fn keys(&self, path: &[u8], version: &ContentVersion, range: &Range<u64>) -> Vec<CellKey> {
        let mut file = blake3::Hasher::new();
        file.update(self.source.as_bytes());
        file.update(&version.size.to_le_bytes());
        file.update(&version.tag);
        file.update(path);
        let key = |cell: u64| {
            let hash = file.clone().update(&cell.to_le_bytes()).finalize();
            *hash.as_bytes().first_chunk().expect("a hash is longer")
        };
        (range.start / CELL_BYTES..range.end.div_ceil(CELL_BYTES)).map(key).collect()
    }

    /// Reads consecutive cells. Reads the content of several cells; returns whether all cells match
    /// their rows.
    fn read(&self, rows: &[(u32, CacheRow)], out: &mut [u8]) -> bool {
        let mut rest = &mut *out;
        for run in rows.chunk_by(|one, next| is_next(one.0, next.0)) {
            let length: usize = run.iter().map(|(_, row)| row.bytes as usize).sum();
            if length > rest.len() {
                return false;
            }
            let (part, behind) = rest.split_at_mut(length);
            if self.cells.read_exact_at(part, u64::from(run[0].0) * CELL_BYTES).is_err() {
                return false;
            }
            rest = behind;
        }
        if !rest.is_empty() {
            return false;
        }
        let mut rest = &*out;
        for (slot, row) in rows {
            let (cell, behind) = rest.split_at(row.bytes as usize);
            if checksum(cell) != row.sum {
                // If the cell was given to another block meanwhile, the row is not damaged.
                let is_damaged = self.slots.lock().drop_damaged(*slot, row);
                self.counts.damaged.fetch_add(is_damaged.into(), Ordering::Relaxed);
                return false;
            }
            rest = behind;
        }
        true
    }

    fn write(&self, rows: &[(u32, CacheRow)], cells: &[(CellKey, &[u8])]) -> io::Result<()> {
        let content = |row: &CacheRow| cells.iter().find(|(key, _)| *key == row.key).map(|it| it.1);
        for run in rows.chunk_by(|one, next| is_next(one.0, next.0)) {
            let at = u64::from(run[0].0);
            let parts: Vec<&[u8]> = run.iter().filter_map(|(_, row)| content(row)).collect();
            self.cells.write_all_at(&parts.concat(), at * CELL_BYTES)?;
            let rows: Vec<u8> = run.iter().flat_map(|(slot, row)| row.encode(*slot)).collect();
            self.index.write_all_at(&rows, HEADER_BYTES + at * ROW_BYTES)?;
        }
        Ok(())
    }
}

/// Whether the cell `next` follows the cell `one`.
fn is_next(one: u32, next: u32) -> bool {
    one.checked_add(1) == Some(next)
}

/// Refuses a directory that has other content than a cache.
fn check_owned(place: &Path) -> Result<()> {
    let told = |error| Error::io("cannot read the cache directory", place, error);
    for entry in fs::read_dir(place).map_err(told)? {
        let name = entry.map_err(told)?.file_name();
        if name != INDEX && name != CELLS {
            return Err(Error::new(
                Kind::Exists,
                "this directory contains files that are not part of a cache",
            )
            .at(place.join(name))
            .advice("give an empty directory, or a directory that does not exist"));
        }
    }
    Ok(())
}

/// Loads the rows of an existing cache, without damaged ones. Returns the number of cells of the
/// cache.
fn load(index: &File, place: &Path, slots: &mut Slots) -> Result<u64> {
    let damaged = || {
        Error::corrupt("the header of the cache is damaged", place.join(INDEX))
            .advice("remove the directory of the cache: the next start creates a new cache")
    };
    let mut header = [0; HEADER_BYTES as usize];
    index.read_exact_at(&mut header, 0).map_err(|_| damaged())?;
    let header = CacheHeader::decode(&header).map_err(|version| match version {
        None => damaged(),
        Some(version) => {
            Error::new(Kind::Unsupported, "a different version of pinstripe created the cache")
                .at(place)
                .expected(row::VERSION, version)
        }
    })?;
    let count = header.cells.min(slots.counts().1 as u64);
    let mut rows = vec![0; (ROWS_AT_ONCE * ROW_BYTES) as usize];
    let mut first = 0;
    while first < count {
        let part = &mut rows[..((count - first).min(ROWS_AT_ONCE) * ROW_BYTES) as usize];
        // A truncated file has no more rows.
        if index.read_exact_at(part, HEADER_BYTES + first * ROW_BYTES).is_err() {
            break;
        }
        for (slot, bytes) in (first..).zip(part.chunks_exact(ROW_BYTES as usize)) {
            if let Some(row) = CacheRow::decode(bytes, slot as u32) {
                slots.add(slot as u32, row);
            }
        }
        first += ROWS_AT_ONCE;
    }
    Ok(header.cells)
}
