//! The on-disk format of a cache's header and of a cell's row.

use pinstripe_base::checksum::{CHECKSUM_BYTES, Checksum, checksum};

use super::{CELL_BYTES, CellKey};

/// The version of the format.
pub(super) const VERSION: u32 = 1;
/// Bytes before the rows.
pub(super) const HEADER_BYTES: u64 = 4096;
/// Bytes of a row.
pub(super) const ROW_BYTES: u64 = 64;
const MAGIC: &[u8; 8] = b"PSCACHE\0";

/// The header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CacheHeader {
    pub(super) cells: u64,
}

impl CacheHeader {
    /// Encodes magic, version, bytes of a cell, number of cells, and a checksum; the rest is zero.
    pub(super) fn encode(self) -> Vec<u8> {
        let (version, cell) = (VERSION.to_le_bytes(), (CELL_BYTES as u32).to_le_bytes());
        let mut bytes = [&MAGIC[..], &version, &cell, &self.cells.to_le_bytes()].concat();
        bytes.extend(checksum(&bytes));
        bytes.resize(HEADER_BYTES as usize, 0);
        bytes
    }

    /// # Errors
    /// Fails with the version if it differs, or with `None` if the bytes are not a header.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Option<u32>> {
        let number = |at: usize| bytes.get(at..at + 4).and_then(|it| it.first_chunk().copied());
        let version = number(8).map(u32::from_le_bytes);
        if bytes.get(..8) != Some(MAGIC) || bytes.len() < 40 || version.is_none() {
            return Err(None);
        }
        if checksum(&bytes[..24]) != bytes[24..40] {
            return Err(None);
        }
        let cell = number(12).map(u32::from_le_bytes);
        if version != Some(VERSION) || cell != Some(CELL_BYTES as u32) {
            return Err(version);
        }
        let cells = bytes[16..24].first_chunk().copied().map_or(0, u64::from_le_bytes);
        Ok(CacheHeader { cells })
    }
}

/// A row, which describes the content of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CacheRow {
    pub(super) key: CellKey,
    pub(super) sum: Checksum,
    pub(super) bytes: u32,
}

impl CacheRow {
    /// Encodes key, checksum of the content, its length, and a checksum of these and the cell's
    /// number.
    pub(super) fn encode(&self, slot: u32) -> [u8; ROW_BYTES as usize] {
        let mut row = [0; ROW_BYTES as usize];
        row[..16].copy_from_slice(&self.key);
        row[16..32].copy_from_slice(&self.sum);
        row[32..36].copy_from_slice(&self.bytes.to_le_bytes());
        row[36..40].copy_from_slice(&slot.to_le_bytes());
        let sum = checksum(&row[..40]);
        row[40..40 + CHECKSUM_BYTES].copy_from_slice(&sum);
        row
    }

    /// Returns `None` for a cell that was never filled, and for a damaged row.
    pub(super) fn decode(bytes: &[u8], slot: u32) -> Option<Self> {
        let mut row = CacheRow::default();
        row.key.copy_from_slice(bytes.get(..16)?);
        row.sum.copy_from_slice(bytes.get(16..32)?);
        row.bytes = u32::from_le_bytes(*bytes.get(32..36)?.first_chunk()?);
        let is_whole = row.bytes > 0 && u64::from(row.bytes) <= CELL_BYTES;
        (is_whole && row.encode(slot) == bytes).then_some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_headers_are_read_as_they_were_written() {
        let row = CacheRow { key: [7; 16], sum: [9; 16], bytes: 65536 };
        assert_eq!(CacheRow::decode(&row.encode(5), 5), Some(row));
        assert_eq!(CacheRow::decode(&row.encode(5), 6), None, "a row that strayed");
        assert_eq!(CacheRow::decode(&[0; 64], 0), None);
        assert_eq!(CacheRow::decode(&row.encode(5)[..63], 5), None);
        for at in 0..56 {
            let mut damaged = row.encode(5);
            damaged[at] ^= 1;
            assert_eq!(CacheRow::decode(&damaged, 5), None, "{at}");
        }
        let header = CacheHeader { cells: 1 << 40 };
        assert_eq!(CacheHeader::decode(&header.encode()), Ok(header));
        for at in 0..40 {
            let mut damaged = header.encode();
            damaged[at] ^= 1;
            assert_eq!(CacheHeader::decode(&damaged), Err(None), "{at}");
        }
        assert_eq!(CacheHeader::decode(b"PSCACHE\0"), Err(None));
    }
}
