//! Rows in memory: those of packs that no index run lists, and those of runs of the first format.

use pinstripe_base::error::Result;
use pinstripe_base::id::{ChunkId, SetId};
use pinstripe_member::index_run::Row;

use super::list::Packs;
use super::{Extents, SealedPack};

/// The rows of some packs, sorted by id; 52 bytes each.
pub(super) struct Loose {
    /// The rows, whose pack numbers are those of the index's list.
    rows: Box<[Row]>,
    /// The packs.
    pub(super) sets: Vec<SetId>,
    /// The run of the first format from which these rows came.
    pub(super) run: Option<SetId>,
    /// The number of extents that each pack had when it was read, if any lacked an extent: these
    /// packs are read but not relied upon, and read again when one has gained or lost an extent.
    pub(super) partial: Option<Vec<usize>>,
}

impl Loose {
    pub(super) fn new(mut rows: Vec<Row>, sets: Vec<SetId>, run: Option<SetId>) -> Self {
        rows.sort_unstable_by_key(|row| (row.id, row.pack));
        Loose { rows: rows.into(), sets, run, partial: None }
    }

    /// Whether its packs still have as many extents as when they were read, as far as that matters.
    pub(super) fn is_as_asked(&self, extents: &Extents) -> bool {
        let Some(partial) = &self.partial else { return true };
        let now = self.sets.iter().map(|set| extents.get(set).map_or(0, Vec::len));
        now.eq(partial.iter().copied())
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the rows of one chunk, and the position of the first among all rows.
    pub(super) fn rows_of(&self, id: &ChunkId) -> (u64, &[Row]) {
        let start = self.rows.partition_point(|row| row.id < *id);
        let count = self.rows[start..].iter().take_while(|row| row.id == *id).count();
        (start as u64, &self.rows[start..start + count])
    }
}

pub(super) fn loose(list: &Packs, packs: &[SealedPack], run: Option<SetId>) -> Result<Loose> {
    let mut rows = Vec::with_capacity(packs.iter().map(SealedPack::chunks).sum());
    for pack in packs {
        let number = list.find(&pack.index.set).expect("every pack was given a number");
        pack.rows(number, &mut rows)?;
    }
    Ok(Loose::new(rows, packs.iter().map(|pack| pack.index.set).collect(), run))
}
