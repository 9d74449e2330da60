//! Repairs the index runs of a store: unreadable ones are rebuilt from the packs.

use std::sync::Arc;

use crate::store::{Store, deletion};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_member::index_run::RunPack;

use super::Index;
use super::load::sets_spoken_of;
use super::merge::{Merge, whole};
use super::run::Run;

/// What a repair changed about the runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mended {
    /// Runs that were written.
    pub written: u64,
    /// Runs that could not be read and were removed.
    pub removed: u64,
}

/// Returns the packs that intact runs list, except those that are recorded as gone, deleted or
/// being deleted.
///
/// # Errors
/// Fails when a present member cannot be listed.
pub(crate) fn indexed_sets(store: &Store) -> Result<Vec<SetId>> {
    let packs = sets_spoken_of(store)?.into_iter().filter_map(|(_, packs)| packs.ok()).flatten();
    let packs = packs.filter(|pack: &RunPack| !pack.is_lost).map(|pack| pack.set);
    let packs: Vec<SetId> = packs.collect();
    let going = deletion::going_packs(store)?;
    Ok(packs.into_iter().filter(|set| !going.contains(set)).collect())
}

impl Index<'_> {
    /// Reads every run completely. Writes a run for packs that no intact run lists; the new run
    /// also replaces runs that list missing packs or that lack an extent on a member. Removes runs
    /// that cannot be read, except runs of a newer version and runs that an absent member may have
    /// an extent of.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] for a run of a newer version, or with the errors of the
    /// members.
    pub fn repair(&self) -> Result<Mended> {
        let mut bad = Vec::new();
        for (run, packs) in sets_spoken_of(self.store)? {
            match packs {
                Err(error) if error.kind() == Kind::Unsupported || error.kind().is_about_keys() => {
                    return Err(error);
                }
                Ok(_) if !self.marks(|marks| marks.bad.contains(&run)) => {}
                _ => bad.push(run),
            }
        }
        bad.extend(self.leave_out_unreadable(&self.view().runs)?);
        // First: when the merge has forgotten packs that are gone, a run that still lists them
        // is redundant no more.
        self.remove_redundant()?;
        let mut merge = self.plan_mending();
        if !bad.is_empty() {
            // The bad runs' lists of packs that are gone are lost with them. An entry that names no
            // pack changes the losses mark, so a backup checks its parent closely once.
            merge.remember.push(SetId(self.store.new_name()?));
        }
        let mut written = 0;
        if !merge.is_empty() {
            written = match self.merge(merge, &|| false) {
                Ok(run) => u64::from(run.is_some()),
                // Nothing can be written now, so what cannot be read stays for the next time.
                Err(error) if error.kind() == Kind::TooManyLosses => return Ok(Mended::default()),
                Err(error) => return Err(error),
            };
        }
        self.remove_runs(bad.iter().copied())?;
        self.remove_redundant()?;
        Ok(Mended { written, removed: bad.len() as u64 })
    }

    /// Whether any run is known to be unreadable. Pages that were not read yet are not checked.
    ///
    /// # Errors
    /// Fails when a present member cannot be listed.
    pub(crate) fn has_unreadable_runs(&self) -> Result<bool> {
        let is_bad = |set: &SetId| self.marks(|marks| marks.bad.contains(set));
        let runs = sets_spoken_of(self.store)?;
        Ok(runs.iter().any(|(set, packs)| packs.is_err() || is_bad(set)))
    }

    /// Reads every page of some runs; returns the runs with an unreadable page, which are ignored
    /// from then on: their packs are read directly.
    pub(super) fn leave_out_unreadable(&self, runs: &[Arc<Run>]) -> Result<Vec<SetId>> {
        let mut bad = Vec::new();
        for run in runs {
            let mut cursor = run.cursor(self.store.opener());
            let read = loop {
                match cursor.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            if let Err(error) = read {
                self.leave_out(run.set, error)?;
                bad.push(run.set);
            }
        }
        Ok(bad)
    }

    fn plan_mending(&self) -> Merge {
        let view = self.view();
        let all_present = self.store.absent().next().is_none();
        let is_gone = |number: u32| view.packs.get(number).is_some_and(|p| p.extents() == 0);
        let is_stale = |run: &Run| all_present && run.numbers().any(is_gone);
        let runs = view.runs.iter().filter(|run| is_stale(run) || self.is_thin(run));
        Merge {
            loose: whole(&view.loose),
            runs: runs.map(Arc::clone).collect(),
            remember: Vec::new(),
        }
    }
}
