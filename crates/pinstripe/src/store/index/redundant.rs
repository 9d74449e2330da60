//! Redundant runs list nothing beyond what other runs list: they are not searched, and are removed
//! later.
//!
//! Invariant: a run that lacks an extent makes no other run redundant. Such a run may have been
//! left by a writer that died while sealing it; another loss, or the next listing, may then make it
//! unreadable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pinstripe_base::error::Result;
use pinstripe_base::id::SetId;
use pinstripe_member::ExtentName;

use super::run::Run;
use super::{Index, View};

impl Index<'_> {
    /// Whether a present member lacks its extent of a run, or no present member has some extent of
    /// it.
    pub(super) fn is_thin(&self, run: &Run) -> bool {
        self.lacks_extents(run, self.extents_of(ExtentName::index(run.set)))
    }

    /// Whether a run that has this many extents lacks an extent.
    pub(super) fn lacks_extents(&self, run: &Run, extents: usize) -> bool {
        let (present, absent) = (self.store.present().count(), self.store.absent().count());
        let reachable = if absent == 0 { run.members() } else { run.members().min(present) };
        extents < reachable
    }

    /// Removes runs whose packs are also listed by other runs that have all of their extents now.
    ///
    /// # Errors
    /// Fails with the errors of the members.
    pub(crate) fn remove_redundant(&self) -> Result<()> {
        let view = self.view();
        if view.redundant.is_empty() {
            return Ok(());
        }
        // Members are asked again: a run that made others redundant when the view was made may have
        // lost an extent since, and the others are then all that is left.
        let mut covered = vec![false; view.packs.len()];
        for run in view.runs.iter().filter(|run| !self.is_thin(run)) {
            run.numbers().for_each(|number| covered[number as usize] = true);
        }
        let is_said = |numbers: &[u32]| numbers.iter().all(|&number| covered[number as usize]);
        let redundant = view.redundant.iter().filter(|(_, numbers)| is_said(numbers));
        self.remove_runs(redundant.map(|(set, _)| *set))
    }
}

/// Drops runs from the view for which `keep` returns false.
pub(super) fn keep_runs(view: &mut View, keep: impl Fn(&SetId) -> bool) {
    let before = view.runs.len();
    view.runs.retain(|run| keep(&run.set));
    // A run that was redundant because of one that is gone may be needed now.
    let is_same = view.runs.len() == before;
    let mut redundant = std::mem::take(Arc::make_mut(&mut view.redundant));
    redundant.retain(|set, _| is_same && keep(set));
    view.redundant = Arc::new(redundant);
}

/// Drops runs and loose parts whose packs are all listed by larger runs that lack no extent. A
/// `thin` run makes no other redundant: it may have been left by a writer that died while sealing
/// it.
pub(super) fn drop_redundant(view: &mut View, thin: impl Fn(&Run) -> bool) {
    let mut redundant = BTreeMap::clone(&view.redundant);
    let thin: BTreeSet<SetId> =
        view.runs.iter().filter(|run| thin(run)).map(|run| run.set).collect();
    // Thin runs last, so that they are judged by what all whole runs cover. Larger runs first, so
    // that the small one of two goes. The name breaks ties: every process drops the same one.
    let order = |run: &Arc<Run>| (thin.contains(&run.set), std::cmp::Reverse(run.rows), run.set);
    view.runs.sort_by_key(order);
    let mut covered = vec![false; view.packs.len()];
    view.runs.retain(|run| {
        // No other run is known to remember the same losses.
        let mut adds = run.has_lost();
        for number in run.numbers() {
            let is_covered = &mut covered[number as usize];
            adds |= !*is_covered;
            *is_covered |= !thin.contains(&run.set);
        }
        if !adds {
            redundant.insert(run.set, run.numbers().collect());
        }
        adds
    });
    view.loose.retain(|loose| {
        let numbers = loose.sets.iter().filter_map(|set| view.packs.find(set));
        let numbers: Box<[u32]> = numbers.collect();
        let adds = numbers.iter().any(|&number| !covered[number as usize]);
        if !adds {
            redundant.extend(loose.run.map(|run| (run, numbers)));
        }
        adds
    });
    view.redundant = Arc::new(redundant);
}

/// Marks the packs on which a writer may rely: all but those that lack an extent and are in no run.
/// Loose parts are processed first: a run that lists the same pack overrides them.
pub(super) fn set_reliable(view: &View) {
    let mark = |number: u32, reliable: bool| {
        if let Some(pack) = view.packs.get(number) {
            pack.set_reliable(reliable);
        }
    };
    for loose in &view.loose {
        let numbers = loose.sets.iter().filter_map(|set| view.packs.find(set));
        numbers.for_each(|number| mark(number, loose.partial.is_none()));
    }
    view.runs.iter().flat_map(|run| run.numbers()).for_each(|number| mark(number, true));
}
