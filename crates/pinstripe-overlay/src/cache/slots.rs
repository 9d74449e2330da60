//! The content of the cells, and the eviction of old content.

use std::collections::HashMap;

use super::CellKey;
use super::row::CacheRow;
use pinstripe_base::checksum::checksum;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellStage {
    Free,
    /// The cell is being written, and cannot be found yet.
    Writing,
    Filled {
        /// Whether the cell was found since the hand of the clock passed it.
        is_recent: bool,
    },
}

/// The cells.
pub(super) struct Slots {
    rows: Vec<(CellStage, CacheRow)>,
    by_key: HashMap<CellKey, u32>,
    hand: usize,
}

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        let rows = vec![(CellStage::Free, CacheRow::default()); count.min(u32::MAX as usize)];
        Slots { rows, by_key: HashMap::new(), hand: 0 }
    }

    /// Adds a row of an existing cache.
    pub(super) fn add(&mut self, slot: u32, row: CacheRow) {
        if self.by_key.contains_key(&row.key) {
            return;
        }
        if let Some(place) = self.rows.get_mut(slot as usize) {
            *place = (CellStage::Filled { is_recent: false }, row);
            self.by_key.insert(row.key, slot);
        }
    }

    /// The cells of all keys, if all are cached.
    pub(super) fn find(&mut self, keys: &[CellKey]) -> Option<Vec<(u32, CacheRow)>> {
        let slots: Option<Vec<u32>> =
            keys.iter().map(|key| self.by_key.get(key).copied()).collect();
        let found = slots?.into_iter().map(|slot| {
            let (stage, row) = &mut self.rows[slot as usize];
            debug_assert!(matches!(stage, CellStage::Filled { .. }), "a found cell is filled");
            *stage = CellStage::Filled { is_recent: true };
            (slot, *row)
        });
        Some(found.collect())
    }

    /// Takes as many cells as are available for keys that are not cached, and evicts the content of
    /// these cells.
    pub(super) fn take(&mut self, cells: &[(CellKey, &[u8])]) -> Vec<(u32, CacheRow)> {
        let mut taken: Vec<(u32, CacheRow)> = Vec::with_capacity(cells.len());
        for (key, content) in cells {
            let is_taken = taken.iter().any(|(_, row)| row.key == *key);
            if content.is_empty() || is_taken || self.by_key.contains_key(key) {
                continue;
            }
            let Some(slot) = self.free_slot() else { break };
            debug_assert_eq!(self.rows[slot as usize].0, CellStage::Free, "a free cell is taken");
            let row = CacheRow { key: *key, sum: checksum(content), bytes: content.len() as u32 };
            self.rows[slot as usize] = (CellStage::Writing, row);
            taken.push((slot, row));
        }
        taken
    }

    /// Marks the cells as written.
    pub(super) fn fill(&mut self, rows: &[(u32, CacheRow)]) {
        for (slot, row) in rows {
            debug_assert_eq!(self.rows[*slot as usize].0, CellStage::Writing, "it was taken");
            // Another thread may have written the same block meanwhile.
            let holder = *self.by_key.entry(row.key).or_insert(*slot);
            self.rows[*slot as usize].0 = match holder == *slot {
                true => CellStage::Filled { is_recent: false },
                false => CellStage::Free,
            };
        }
    }

    /// Releases cells that could not be written.
    pub(super) fn give_back(&mut self, rows: &[(u32, CacheRow)]) {
        for (slot, _) in rows {
            debug_assert_eq!(self.rows[*slot as usize].0, CellStage::Writing, "it was taken");
            self.rows[*slot as usize].0 = CellStage::Free;
        }
    }

    /// Drops a cell with wrong content. Returns whether the cell still had the row that the lookup
    /// returned.
    pub(super) fn drop_damaged(&mut self, slot: u32, row: &CacheRow) -> bool {
        let (stage, held) = &mut self.rows[slot as usize];
        let is_same = matches!(stage, CellStage::Filled { .. }) && held == row;
        if is_same {
            *stage = CellStage::Free;
            self.by_key.remove(&row.key);
        }
        is_same
    }

    /// The number of used cells, and of all cells.
    pub(super) fn counts(&self) -> (usize, usize) {
        debug_assert!(self.by_key.len() <= self.rows.len(), "each key has a cell of its own");
        (self.by_key.len(), self.rows.len())
    }

    fn free_slot(&mut self) -> Option<u32> {
        // In the second round no cell is recent any more.
        for _ in 0..2 * self.rows.len() {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.rows.len();
            let (stage, row) = &mut self.rows[slot];
            match stage {
                CellStage::Free => return Some(slot as u32),
                CellStage::Writing => {}
                CellStage::Filled { is_recent } if *is_recent => *is_recent = false,
                CellStage::Filled { .. } => {
                    self.by_key.remove(&row.key);
                    *stage = CellStage::Free;
                    return Some(slot as u32);
                }
            }
        }
        None
    }
}
