//! Counts the intact copies of a chunk in packs that are kept, for chunks that may be deleted only
//! if another copy exists.
//!
//! Invariant: a copy counts only after it was read and verified.

use std::collections::HashSet;

use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
use pinstripe_base::error::Result;
use pinstripe_base::id::{ChunkId, SetId};

/// Counts copies of chunks in packs that are kept.
pub(super) struct OtherCopies<'w> {
    index: &'w Index<'w>,
    pub(super) reader: ChunkReader<'w>,
    /// Packs that will be deleted.
    excluded: &'w HashSet<SetId>,
}

impl<'w> OtherCopies<'w> {
    pub(super) fn new(
        packs: &'w PackReader<'w>,
        index: &'w Index<'w>,
        excluded: &'w HashSet<SetId>,
    ) -> Self {
        OtherCopies { index, reader: ChunkReader::new(packs, index), excluded }
    }

    /// Returns the number of packs that are kept, have an intact copy, and may be relied upon by
    /// writers; stops counting at `enough`.
    pub(super) fn count(&mut self, id: &ChunkId, enough: usize) -> Result<usize> {
        let list = self.index.packs();
        let stays = |number| {
            list.get(number).is_some_and(|it| !self.excluded.contains(&it.set) && it.is_reliable())
        };
        let mut found: Vec<u32> = Vec::new();
        for place in self.index.places(id)? {
            let pack = place.record.pack;
            if found.len() == enough {
                break;
            }
            if stays(pack) && !found.contains(&pack) && self.reader.read_at(id, &place).is_ok() {
                found.push(pack);
            }
        }
        Ok(found.len())
    }
}
