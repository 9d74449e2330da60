//! The content that an array must have: an array of bytes, and after a power cut every content
//! that a sector may have.

use crate::disk::SECTOR;

/// Bytes of the array that the simulation uses, from the beginning.
pub const SPACE: usize = 384 << 10;
const BLOCK: usize = 4096;

pub struct Model {
    newest: Vec<u8>,
    synced: Vec<u8>,
    /// The writes since the last sync, oldest first.
    since: Vec<(usize, Vec<u8>)>,
    /// The unit that is written together: a block, or with a granule up to a row.
    unit: usize,
}

impl Model {
    pub fn new() -> Self {
        Model { newest: vec![0; SPACE], synced: vec![0; SPACE], since: Vec::new(), unit: BLOCK }
    }

    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.newest[at..at + bytes.len()].copy_from_slice(bytes);
        self.since.push((at, self.newest[at..at + bytes.len()].to_vec()));
    }

    pub fn sync(&mut self) {
        self.synced.clone_from(&self.newest);
        self.since.clear();
    }

    /// The first byte that differs.
    pub fn differs(&self, found: &[u8]) -> Option<usize> {
        found.iter().zip(&self.newest).position(|(is, wanted)| is != wanted)
    }

    /// Whether the bytes from a place on are these.
    pub fn is(&self, at: usize, found: &[u8]) -> bool {
        self.newest[at..at + found.len()] == *found
    }

    /// With a granule, what lies in a row with something that is written may be written again as it
    /// is.
    pub fn widens(&mut self, row_bytes: u64, has_granule: bool) {
        self.unit = if has_granule { row_bytes as usize } else { BLOCK };
    }

    /// Whether something of a block, or of what may be written with it, was written since the last
    /// sync.
    pub fn is_in_flux(&self, block: usize) -> bool {
        let start = block * BLOCK / self.unit * self.unit;
        let end = start + self.unit;
        self.since.iter().any(|(at, bytes)| *at < end && at + bytes.len() > start)
    }

    /// A sector that is neither what was synced nor any of what it became since.
    pub fn made_up(&self, found: &[u8]) -> Option<usize> {
        let mut history: Vec<&[u8]> = Vec::new();
        let (mut versions, mut all) = (self.synced.clone(), Vec::new());
        for (at, bytes) in &self.since {
            versions[*at..at + bytes.len()].copy_from_slice(bytes);
            all.push((*at..at + bytes.len(), versions.clone()));
        }
        let sector = SECTOR as usize;
        (0..SPACE / sector).find(|n| {
            let range = n * sector..(n + 1) * sector;
            history.clear();
            history.push(&self.synced[range.clone()]);
            let touches = all.iter().filter(|(it, _)| it.start < range.end && it.end > range.start);
            history.extend(touches.map(|(_, version)| &version[range.clone()]));
            !history.contains(&&found[range])
        })
    }

    /// Takes what was found after a power cut for what there is.
    pub fn adopt(&mut self, found: &[u8]) {
        self.newest.copy_from_slice(found);
        self.sync();
    }

    pub fn synced_block(&self, block: usize) -> &[u8] {
        &self.synced[block * BLOCK..(block + 1) * BLOCK]
    }
}
