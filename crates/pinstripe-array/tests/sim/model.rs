//! The content that an array must have: an array of bytes, and after a power cut every content
//! that a sector may have.

use std::ops::Range;

use crate::disk::SECTOR;

/// Bytes of the array that the simulation uses, from the beginning.
pub const SPACE: usize = 384 << 10;
const BLOCK: usize = 4096;

/// `newest` and `synced` differ only where `since` has something.
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
        for (at, bytes) in self.since.drain(..) {
            let range = at..at + bytes.len();
            self.synced[range.clone()].copy_from_slice(&self.newest[range]);
        }
    }

    /// The first byte that differs.
    pub fn differs(&self, found: &[u8]) -> Option<usize> {
        if *found == self.newest {
            return None;
        }
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
        self.is_any_written(block, self.unit)
    }

    /// Whether something of the row of a block was written since the last sync.
    pub fn is_row_in_flux(&self, block: usize, row_bytes: u64) -> bool {
        self.is_any_written(block, row_bytes as usize)
    }

    fn is_any_written(&self, block: usize, unit: usize) -> bool {
        let start = block * BLOCK / unit * unit;
        let end = start + unit;
        self.since.iter().any(|(at, bytes)| *at < end && at + bytes.len() > start)
    }

    /// A sector that is neither what was synced nor any of what it became since.
    pub fn made_up(&self, found: &[u8]) -> Option<usize> {
        self.made_up_but(found, |_| false)
    }

    /// The same, but for blocks that are excepted.
    pub fn made_up_but(&self, found: &[u8], is_excepted: impl Fn(usize) -> bool) -> Option<usize> {
        (0..SPACE).step_by(SECTOR as usize).position(|at| {
            let range = at..at + SECTOR as usize;
            !self.is_version(&found[range.clone()], range) && !is_excepted(at / BLOCK)
        })
    }

    /// Whether a sector with these bytes was synced, or came to be since.
    fn is_version(&self, found: &[u8], range: Range<usize>) -> bool {
        if *found == self.synced[range.clone()] {
            return true;
        }
        let mut version = self.synced[range.clone()].to_vec();
        let written = |(at, _): &&(usize, Vec<u8>)| *at < range.end;
        self.since.iter().filter(written).any(|(at, bytes)| {
            let (start, end) = (range.start.max(*at), range.end.min(at + bytes.len()));
            if start >= end {
                return false;
            }
            version[start - range.start..end - range.start]
                .copy_from_slice(&bytes[start - at..end - at]);
            version == found
        })
    }

    /// Takes what was found after a power cut for what there is.
    pub fn adopt(&mut self, found: &[u8]) {
        self.newest.copy_from_slice(found);
        self.synced.copy_from_slice(found);
        self.since.clear();
    }

    pub fn synced_block(&self, block: usize) -> &[u8] {
        &self.synced[block * BLOCK..(block + 1) * BLOCK]
    }
}

#[test]
fn a_sector_may_have_any_version_since_the_last_sync_and_no_other() {
    let mut model = Model::new();
    model.write(0, &[1; 1024]);
    model.sync();
    model.write(0, &[2; 1024]);
    model.write(256, &[3; 512]);
    let mut found = vec![0; SPACE];
    let mut is_made_up = |first: [u8; 2], second: u8| {
        found[..256].fill(first[0]);
        found[256..512].fill(first[1]);
        found[512..768].fill(second);
        found[768..1024].fill(if second == 3 { 2 } else { second });
        model.made_up(&found)
    };
    for sound in [[1, 1], [2, 2], [2, 3]] {
        assert!((1..=3).all(|second| is_made_up(sound, second).is_none()), "{sound:?}");
    }
    assert_eq!(is_made_up([1, 3], 1), Some(0));
    assert_eq!(is_made_up([2, 2], 4), Some(1));
}
