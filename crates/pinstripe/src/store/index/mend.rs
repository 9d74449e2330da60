//! Mending the runs of a store, for repair: what cannot be read is made anew from the packs.

use std::sync::Arc;

use crate::error::{Kind, Result};
use crate::format::index_run::RunPack;
use crate::id::{SetId, random};
use crate::store::{Store, deletion};

use super::Index;
use super::load::sets_spoken_of;
use super::merge::Merge;

/// What was done to the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mended {
    /// Runs that were written.
    pub written: u64,
    /// Runs that could not be read and were removed.
    pub removed: u64,
}

/// Packs that sound runs speak of; those that are remembered as gone, deleted or being deleted are
/// not among them.
///
/// # Errors
/// When a member that is present cannot be listed.
pub fn indexed_sets(store: &Store) -> Result<Vec<SetId>> {
    let packs = sets_spoken_of(store)?.into_iter().filter_map(|(_, packs)| packs.ok()).flatten();
    let packs = packs.filter(|pack: &RunPack| !pack.is_lost).map(|pack| pack.set);
    let packs: Vec<SetId> = packs.collect();
    let going = deletion::going_packs(store)?;
    Ok(packs.into_iter().filter(|set| !going.contains(set)).collect())
}

impl Index<'_> {
    /// Reads every run to its end; writes one for packs that no sound run speaks of and in the
    /// place of those that speak of packs that are gone; removes runs that cannot be read. Not
    /// so runs of a newer version, nor what an absent member may have.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for a run of a newer version; those of the members.
    pub fn mend(&self) -> Result<Mended> {
        let mut bad = Vec::new();
        for (run, packs) in sets_spoken_of(self.store)? {
            match packs {
                Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::Locked) => {
                    return Err(error);
                }
                Err(_) => bad.push(run),
                Ok(_) => {}
            }
        }
        bad.extend(self.read_to_the_end()?);
        let mut merge = self.plan_mending();
        if !bad.is_empty() {
            // What the bad ones said of packs that are gone is forgotten with them: whoever relies
            // on an earlier snapshot shall look closely once.
            merge.remember.push(SetId(random()?));
        }
        let mut written = 0;
        if !merge.is_empty() {
            written = u64::from(self.merge(merge, &|| false)?.is_some());
        }
        self.remove_runs(bad.iter().copied())?;
        self.remove_redundant()?;
        Ok(Mended { written, removed: bad.len() as u64 })
    }

    /// Leaves out every run that has a page which cannot be read; its packs are asked themselves.
    ///
    /// # Errors
    /// Those of the members.
    pub fn leave_out_unreadable(&self) -> Result<()> {
        self.read_to_the_end().map(drop)
    }

    /// Reads every page; returns the runs that have one that cannot be read, which are left out.
    fn read_to_the_end(&self) -> Result<Vec<SetId>> {
        let mut bad = Vec::new();
        loop {
            let view = self.view();
            let failed = view.runs.iter().find_map(|run| {
                let mut cursor = run.cursor(self.store.opener());
                loop {
                    match cursor.next() {
                        Ok(Some(_)) => {}
                        Ok(None) => return None,
                        Err(error) => return Some((run.set, error)),
                    }
                }
            });
            let Some((run, error)) = failed else { return Ok(bad) };
            self.leave_out(run, error)?;
            bad.push(run);
        }
    }

    fn plan_mending(&self) -> Merge {
        let view = self.view();
        let all_present = self.store.absent().next().is_none();
        let is_gone = |number: u32| view.packs.get(number).is_some_and(|p| p.extents() == 0);
        let runs = view.runs.iter().filter(|run| all_present && run.numbers().any(is_gone));
        Merge {
            loose: view.loose.clone(),
            runs: runs.map(Arc::clone).collect(),
            remember: Vec::new(),
        }
    }
}
