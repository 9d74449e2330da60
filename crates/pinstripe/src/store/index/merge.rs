//! Merges parts of an index into one run, row by row.
//!
//! Runs are in tiers by their number of rows, each tier four times as large as the one below; four
//! runs of one tier are merged into one of the next. So each row is rewritten once per tier, and
//! the number of runs stays small.
//!
//! Invariants: the new run is durable before the first old one is removed; a reader that finds a
//! run missing refreshes its view. Memory use is that of [`RunWriter`] plus a few pages per part.
//! Rows of missing packs are left out; the loss is recorded, unless deletion removed the pack. If
//! two writers merge the same runs, one of the new runs is redundant and is removed later.

use std::collections::BTreeSet;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_member::index_run::{Row, RunPack};
use pinstripe_member::stripe_set::Geometry;
use pinstripe_member::{ExtentKind, ExtentName};
use pinstripe_stripe::StripSink;

use super::find::Merged;
use super::load::sets_in;
use super::loose::Loose;
use super::run::Run;
use super::write::{RunWriter, lost_pack, write_run};
use super::{Index, View};

/// The number of runs of one tier that are merged.
const FANOUT: usize = 4;
/// Runs with fewer rows than this are all in the lowest tier.
const LOWEST_ROWS: u64 = 4096;
/// The number of rows between two checks whether the merge is still wanted.
const LOOK_ROWS: u64 = 4096;

/// Parts of the index that are to be merged.
#[derive(Default)]
pub struct Merge {
    pub(super) loose: Vec<Arc<Loose>>,
    pub(super) runs: Vec<Arc<Run>>,
    /// Packs that the new run must record as lost, in addition to those that the parts record.
    pub(super) remember: Vec<SetId>,
}

impl Merge {
    /// Whether there is nothing to merge.
    pub fn is_empty(&self) -> bool {
        self.loose.is_empty() && self.runs.is_empty() && self.remember.is_empty()
    }

    /// Returns the number of rows of all parts together, which is the cost of the merge.
    pub fn rows(&self) -> u64 {
        let loose: u64 = self.loose.iter().map(|loose| loose.len() as u64).sum();
        loose + self.runs.iter().map(|run| run.rows).sum::<u64>()
    }
}

fn tier(rows: u64) -> u32 {
    (rows / LOWEST_ROWS).max(1).ilog(FANOUT as u64)
}

/// Selects the runs to merge into one, by their numbers of rows: those of the lowest tier that is
/// full, and of the tiers below it.
fn choose(rows: &[u64]) -> Vec<usize> {
    let tiers: Vec<u32> = rows.iter().map(|rows| tier(*rows)).collect();
    let is_full = |wanted: &u32| tiers.iter().filter(|tier| *tier == wanted).count() >= FANOUT;
    let Some(full) = tiers.iter().copied().filter(is_full).min() else { return Vec::new() };
    (0..rows.len()).filter(|&run| tiers[run] <= full).collect()
}

impl Index<'_> {
    /// Whether merges are left to other processes, because this one may not remove the merged runs.
    pub(crate) fn is_append_only(&self) -> bool {
        self.store.is_append_only()
    }

    /// Returns the merge that a snapshot relying on this index needs: of packs that no run lists,
    /// and of runs that lack an extent on a member. Without this merge, no writer would rely on
    /// these packs any more as soon as a member loses its extent of them. The merge also converts
    /// runs of the first format. Packs that already lack an extent are left for `repair`.
    pub(crate) fn plan_loose(&self) -> Option<Merge> {
        let view = self.view();
        // One listing instead of a question for each run, where each costs a round trip.
        let listed =
            self.store.is_far().then(|| sets_in(self.store, ExtentKind::Index).ok()).flatten();
        let is_thin = |run: &&Arc<Run>| match &listed {
            Some(listed) => self.lacks_extents(run, listed.get(&run.set).map_or(0, Vec::len)),
            None => self.is_thin(run),
        };
        // A merge of runs removes them.
        let may_merge = !self.is_append_only();
        let runs: Vec<_> =
            view.runs.iter().filter(|_| may_merge).filter(is_thin).map(Arc::clone).collect();
        let loose = whole(&view.loose);
        let merge = Merge { loose, runs, ..Merge::default() };
        (!merge.is_empty()).then_some(merge)
    }

    /// Returns the runs to merge now, if there are any.
    pub(crate) fn plan_merge(&self) -> Option<Merge> {
        let view = self.view();
        let rows: Vec<u64> = view.runs.iter().map(|run| run.rows).collect();
        let runs: Vec<_> =
            choose(&rows).into_iter().map(|run| Arc::clone(&view.runs[run])).collect();
        let merge = Merge { runs, ..Merge::default() };
        (!merge.is_empty()).then_some(merge)
    }

    /// Returns the merge of runs that list packs which deletion removed: the new run does not list
    /// them any more.
    pub(crate) fn plan_forgetting(&self) -> Option<Merge> {
        let view = self.view();
        let all_present = self.store.absent().next().is_none();
        let reaped = self.marks(|marks| marks.reaped.clone());
        let is_gone = |number: u32| {
            view.packs.get(number).is_some_and(|p| p.extents() == 0 && reaped.contains(&p.set))
        };
        let speaks = |run: &&Arc<Run>| {
            run.lost().iter().any(|set| reaped.contains(set)) || run.numbers().any(is_gone)
        };
        let runs: Vec<_> =
            view.runs.iter().filter(|_| all_present).filter(speaks).map(Arc::clone).collect();
        let merge = Merge { runs, ..Merge::default() };
        (!merge.is_empty()).then_some(merge)
    }

    /// Returns the merge of all parts into one run, which drops all missing packs.
    pub(crate) fn plan_full_merge(&self) -> Option<Merge> {
        let view = self.view();
        let (loose, runs) = (whole(&view.loose), view.runs.clone());
        let merge = Merge { loose, runs, ..Merge::default() };
        (!merge.is_empty()).then_some(merge)
    }

    /// Merges. Returns `None` when the merge is no longer wanted, when nothing is left to write, or
    /// when one of the runs cannot be read, because another writer was faster or too much of it is
    /// lost: that run is ignored from then on, and a merge of its packs must be planned again.
    ///
    /// # Errors
    /// Fails with the errors of the members, or with [`Kind::TooManyLosses`] when there are too few
    /// members for a run.
    pub fn merge(&self, merge: Merge, is_over: &dyn Fn() -> bool) -> Result<Option<SetId>> {
        let view = self.view();
        let packs = self.packs_of(&view, &merge);
        let written = if packs.1.is_empty() {
            Ok(None) // Nothing is left to record.
        } else {
            let lay = |set, geometry, sink: &mut dyn StripSink| {
                self.lay_merged(&packs, &merge, (set, geometry), sink, is_over)
            };
            write_run(self.store, lay).map(|(set, ())| Some(set))
        };
        let set = match written {
            Ok(set) => set,
            Err(_) if is_over() => return Ok(None),
            // An unreadable source run must not fail the backup: its packs are read instead.
            Err(error) => {
                let is_unreadable = !self.leave_out_unreadable(&merge.runs)?.is_empty();
                return if is_unreadable { Ok(None) } else { Err(error) };
            }
        };
        // The new run is durable on the members now. Removed earlier, the old rows could be lost in
        // a power cut.
        let replaced = merge.runs.iter().map(|run| run.set);
        self.remove_runs(replaced.chain(merge.loose.iter().filter_map(|loose| loose.run)))?;
        self.gather(false)?;
        Ok(set)
    }

    fn lay_merged(
        &self,
        (numbers, packs): &(Vec<u32>, Vec<RunPack>),
        merge: &Merge,
        (set, geometry): (SetId, Geometry),
        sink: &mut dyn StripSink,
        is_over: &dyn Fn() -> bool,
    ) -> Result<()> {
        let loose: Vec<&Loose> = merge.loose.iter().map(|loose| &**loose).collect();
        let runs: Vec<&Run> = merge.runs.iter().map(|run| &**run).collect();
        let mut merged = Merged::new(&loose, &runs, self.store.opener())?;
        let sealer = self.store.sealer()?;
        let mut writer = RunWriter::new(self.store, set, geometry, &sealer, sink);
        // Rows of one chunk; a pack in two parts has each of its rows twice.
        let mut same: Vec<Row> = Vec::new();
        let mut seen = 0;
        loop {
            let next = merged.next()?.map(|(_, row)| row);
            if same.first().is_some_and(|first| next.is_none_or(|row| row.id != first.id)) {
                same.sort_unstable_by_key(|row| (row.pack, row.offset, row.raw_offset));
                same.dedup();
                same.drain(..).try_for_each(|row| writer.push(row))?;
            }
            let Some(row) = next else { break };
            let pack = numbers[row.pack as usize];
            if pack != u32::MAX {
                same.push(Row { pack, ..row });
            }
            seen += 1;
            if seen % LOOK_ROWS == 0 && is_over() {
                return Err(Error::new(Kind::Busy, "the merge of index runs was stopped"));
            }
        }
        writer.finish(packs).map(drop)
    }

    /// Returns the packs of a merge, and for each pack of the index its number in the new run.
    fn packs_of(&self, view: &View, merge: &Merge) -> (Vec<u32>, Vec<RunPack>) {
        let all_present = self.store.absent().next().is_none();
        let mut wanted: BTreeSet<u32> = merge.runs.iter().flat_map(|run| run.numbers()).collect();
        let sets = merge.loose.iter().flat_map(|loose| &loose.sets);
        wanted.extend(sets.filter_map(|set| view.packs.find(set)));
        let mut numbers = vec![u32::MAX; view.packs.len()];
        let mut packs = Vec::with_capacity(wanted.len());
        let remembered = merge.runs.iter().flat_map(|run| run.lost());
        let mut lost: BTreeSet<SetId> = remembered.chain(&merge.remember).copied().collect();
        for number in wanted {
            let Some(pack) = view.packs.get(number) else { continue };
            // With a member absent its extents may be there: only a complete store shows a loss.
            if pack.extents() == 0 && all_present {
                lost.insert(pack.set);
                continue;
            }
            numbers[number as usize] = packs.len() as u32;
            let (set, data, parity, bytes) = (pack.set, pack.data, pack.parity, pack.bytes);
            packs.push(RunPack { set, data, parity, is_lost: false, bytes });
        }
        // Packs that deletion removed are not a loss.
        self.marks(|marks| lost.retain(|set| !marks.reaped.contains(set)));
        packs.extend(lost.into_iter().map(lost_pack));
        (numbers, packs)
    }

    pub(super) fn remove_runs(&self, sets: impl Iterator<Item = SetId>) -> Result<()> {
        let mut removed = false;
        for set in sets {
            self.store.drop_all(ExtentName::index(set))?;
            removed = true;
        }
        if removed { self.store.sync_all() } else { Ok(()) }
    }
}

/// Returns the loose parts whose packs have all of their extents.
pub(super) fn whole(loose: &[Arc<Loose>]) -> Vec<Arc<Loose>> {
    loose.iter().filter(|loose| loose.partial.is_none()).map(Arc::clone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_tiers_are_merged_with_what_is_below() {
        assert!(choose(&[]).is_empty());
        assert!(choose(&[1, 2, 3]).is_empty());
        assert_eq!(choose(&[1, 2, 3, 4]), [0, 1, 2, 3]);
        let large = 5 * LOWEST_ROWS;
        assert!(choose(&[large, large, large, 1, 1, 1]).is_empty());
        assert_eq!(choose(&[large, 1, 1, large, 1, 1]), [1, 2, 4, 5]);
        assert_eq!(choose(&[large, large, 1, large, large]), [0, 1, 2, 3, 4]);
    }

    /// A store that grows by equal backups has few runs and writes each row few times.
    #[test]
    fn a_store_that_grows_has_few_runs() {
        let (mut runs, mut written, mut most) = (Vec::new(), 0_u64, 0);
        let (backups, rows) = (4096, 1000);
        for _ in 0..backups {
            runs.push(rows);
            while let chosen @ [_, ..] = &*choose(&runs) {
                let sum = chosen.iter().map(|&run| runs[run]).sum();
                written += sum;
                runs = (0..runs.len()).filter(|r| !chosen.contains(r)).map(|r| runs[r]).collect();
                runs.push(sum);
            }
            most = most.max(runs.len());
        }
        assert_eq!(runs.iter().sum::<u64>(), backups * rows);
        assert!(most <= 24, "{most} runs");
        assert!(written <= 10 * backups * rows, "{} times", written / (backups * rows));
    }
}
