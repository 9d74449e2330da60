//! The two files of a segment: one with the rows, and one with the cells that the rows point to.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pinstripe_base::checksum::{checksum, checksum_of_two};
use pinstripe_base::id::StoreId;
use rustix::fs::FlockOperation;

const MAGIC: &[u8; 8] = b"pstrKEPT";
const VERSION: u32 = 1;
/// The header has magic, version, zeros, the store and a checksum of these fields.
const HEADER_BYTES: usize = 48;
/// A row has key, place, length, and eight bytes of a checksum of these fields.
const ROW_BYTES: usize = 32;
/// Checksum and key.
pub(crate) const CELL_HEAD_BYTES: u64 = 32;
/// The largest length of a file of rows; a longer file is foreign.
const ROWS_MAX_BYTES: u64 = 16 << 20;

/// The name of a segment; names sort by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentName {
    pub number: u64,
    chance: u32,
}

impl SegmentName {
    fn path(self, dir: &Path, extension: &str) -> PathBuf {
        dir.join(format!("seg-{:016x}-{:08x}.{extension}", self.number, self.chance))
    }

    pub fn rows(self, dir: &Path) -> PathBuf {
        self.path(dir, "rows")
    }

    pub fn cells(self, dir: &Path) -> PathBuf {
        self.path(dir, "cells")
    }

    /// Returns the size that the segment counts in the cache: the bytes of both files, but at least
    /// the cost of its rows.
    pub fn cost(self, dir: &Path) -> u64 {
        let bytes = |path| fs::metadata(path).map_or(0, |file| file.len());
        let rows = bytes(self.rows(dir));
        (rows + bytes(self.cells(dir))).max(rows / ROW_BYTES as u64 * super::CELL_COST_MIN)
    }

    fn parse(name: &str) -> Option<Self> {
        let (number, chance) = name.strip_prefix("seg-")?.strip_suffix(".rows")?.split_once('-')?;
        let number = u64::from_str_radix(number, 16).ok()?;
        let found = SegmentName { number, chance: u32::from_str_radix(chance, 16).ok()? };
        found.rows(Path::new("")).to_str().is_some_and(|path| path == name).then_some(found)
    }
}

/// Lists the segments of a directory, the oldest first.
pub fn listed(dir: &Path) -> io::Result<Vec<SegmentName>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names.extend(entry?.file_name().to_str().and_then(SegmentName::parse));
    }
    names.sort_unstable();
    Ok(names)
}

/// The place of a cell, from its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CellRow {
    offset: u64,
    bytes: u32,
}

fn encode_row(key: &[u8; 16], row: CellRow) -> Vec<u8> {
    let mut out = key.to_vec();
    // A segment is far shorter than 4 GiB.
    out.extend_from_slice(&(row.offset as u32).to_le_bytes());
    out.extend_from_slice(&row.bytes.to_le_bytes());
    let sum = checksum(&out);
    out.extend_from_slice(&sum[..8]);
    out
}

fn decode_row(bytes: &[u8]) -> Option<([u8; 16], CellRow)> {
    let (covered, sum) = bytes.split_at_checked(ROW_BYTES - 8)?;
    if sum != &checksum(covered)[..8] {
        return None;
    }
    let (key, rest) = covered.split_first_chunk::<16>()?;
    let (offset, bytes) = rest.split_first_chunk::<4>()?;
    let (offset, bytes) = (u32::from_le_bytes(*offset), u32::from_le_bytes(bytes.try_into().ok()?));
    Some((*key, CellRow { offset: offset.into(), bytes }))
}

fn header(store: StoreId) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&store.0);
    let sum = checksum(&out);
    out.extend_from_slice(&sum);
    out
}

/// Reads the rows of a segment of this store, skipping damaged ones. If a key has several rows, the
/// last one counts.
pub fn read_rows(path: &Path, store: StoreId) -> Option<Vec<([u8; 16], CellRow)>> {
    if fs::metadata(path).ok()?.len() > ROWS_MAX_BYTES {
        return None;
    }
    rows_of(&fs::read(path).ok()?, store)
}

fn rows_of(bytes: &[u8], store: StoreId) -> Option<Vec<([u8; 16], CellRow)>> {
    let rows = bytes.strip_prefix(&header(store)[..])?;
    Some(rows.chunks_exact(ROW_BYTES).filter_map(decode_row).collect())
}

/// The file of cells, opened when it is first read.
pub struct Cells {
    path: PathBuf,
    file: OnceLock<Option<File>>,
}

impl Cells {
    pub fn at(path: PathBuf) -> Self {
        Cells { path, file: OnceLock::new() }
    }

    /// Reads the bytes of a cell; returns them only if their checksum and this key match.
    pub fn read(&self, key: &[u8; 16], row: CellRow) -> Option<Vec<u8>> {
        let file = self.file.get_or_init(|| File::open(&self.path).ok()).as_ref()?;
        let end = row.offset + CELL_HEAD_BYTES + u64::from(row.bytes);
        // A forged length must not size a buffer.
        if file.metadata().ok()?.len() < end {
            return None;
        }
        let mut head = [0; CELL_HEAD_BYTES as usize];
        file.read_exact_at(&mut head, row.offset).ok()?;
        let mut bytes = vec![0; row.bytes as usize];
        file.read_exact_at(&mut bytes, row.offset + CELL_HEAD_BYTES).ok()?;
        let (sum, found) = head.split_at(16);
        (found == key && sum == checksum_of_two(key, &bytes)).then_some(bytes)
    }
}

/// The number of attempts to create a segment, in case other processes lock the new file first.
const CREATE_TRIES: usize = 8;

/// The segment to which only this process appends.
pub struct Owned {
    pub name: SegmentName,
    /// Locked.
    rows: File,
    cells: File,
    rows_bytes: u64,
    cells_bytes: u64,
    /// The cost of the segment's cells.
    pub cost: u64,
}

impl Owned {
    /// Makes a segment. Another process that looks for a segment to adopt may lock the new file for
    /// a moment, until it finds that the file has no header: then another file is created.
    pub fn create(dir: &Path, number: u64, store: StoreId) -> io::Result<Self> {
        let mut made = Self::create_once(dir, number, store);
        for _ in 1..CREATE_TRIES {
            if !made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                break;
            }
            made = Self::create_once(dir, number, store);
        }
        made
    }

    fn create_once(dir: &Path, number: u64, store: StoreId) -> io::Result<Self> {
        let chance = pinstripe_base::id::random::<4>().map_err(io::Error::other)?;
        let name = SegmentName { number, chance: u32::from_le_bytes(chance) };
        let open = |path| {
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
        };
        let (cells, rows) = (open(name.cells(dir))?, open(name.rows(dir))?);
        if let Err(errno) = rustix::fs::flock(&rows, FlockOperation::NonBlockingLockExclusive) {
            // No process adopts a segment without a header: it would only occupy a name.
            for path in [name.rows(dir), name.cells(dir)] {
                let _ = std::fs::remove_file(path);
            }
            return Err(errno.into());
        }
        let header = header(store);
        rows.write_all_at(&header, 0)?;
        let rows_bytes = header.len() as u64;
        Ok(Owned { name, rows, cells, rows_bytes, cells_bytes: 0, cost: 0 })
    }

    /// Takes over a segment of this store to which no process appends.
    pub fn adopt(dir: &Path, name: SegmentName, store: StoreId) -> Option<Self> {
        let open = |path| OpenOptions::new().read(true).write(true).open(path).ok();
        let (rows, cells) = (open(name.rows(dir))?, open(name.cells(dir))?);
        rustix::fs::flock(&rows, FlockOperation::NonBlockingLockExclusive).ok()?;
        let known = rows.metadata().ok()?.len();
        if known > ROWS_MAX_BYTES {
            return None;
        }
        let mut bytes = vec![0; known as usize];
        rows.read_exact_at(&mut bytes, 0).ok()?;
        let found = rows_of(&bytes, store)?;
        // A truncated row is overwritten.
        let rows_bytes = known - (known - HEADER_BYTES as u64) % ROW_BYTES as u64;
        let cells_bytes = cells.metadata().ok()?.len();
        let least = super::CELL_COST_MIN;
        let cost = |row: &CellRow| (u64::from(row.bytes) + CELL_HEAD_BYTES).max(least);
        // Cells without a row and damaged rows take space, too.
        let counted = found.iter().map(|(_, row)| cost(row)).sum::<u64>();
        let rows_there = (rows_bytes - HEADER_BYTES as u64) / ROW_BYTES as u64;
        let cost = counted.max(cells_bytes).max(rows_there * least);
        Some(Owned { name, rows, cells, rows_bytes, cells_bytes, cost })
    }

    /// Appends a cell, and then its row.
    pub fn append(&mut self, key: &[u8; 16], bytes: &[u8], cost: u64) -> io::Result<CellRow> {
        let row = CellRow { offset: self.cells_bytes, bytes: bytes.len() as u32 };
        let mut cell = checksum_of_two(key, bytes).to_vec();
        cell.extend_from_slice(key);
        cell.extend_from_slice(bytes);
        self.cells.write_all_at(&cell, self.cells_bytes)?;
        self.cells_bytes += cell.len() as u64;
        self.rows.write_all_at(&encode_row(key, row), self.rows_bytes)?;
        self.rows_bytes += ROW_BYTES as u64;
        self.cost += cost;
        Ok(row)
    }
}
