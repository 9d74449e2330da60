//! Laying anew packs that parity cannot repair, and pages that lack their second copy, as gc does
//! it.
//!
//! Invariants: a pack goes only when everything needed of it was read and found sound, in it or
//! elsewhere, and stands in new packs; if anything prevents that, nothing is lost, and the damage
//! is reported as it is.

use std::collections::{HashMap, HashSet};

use super::{RepairOptions, RepairOutcome, Unmended};
use crate::member::Room;
use crate::ops::check::sets::{BadPack, lost_chunks};
use crate::ops::gc;
use crate::store::index::{self, Index};
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::{Store, page_copies};
use pinstripe_base::error::{Error, Result};
use pinstripe_base::id::SetId;
use pinstripe_base::monitor::Monitor;

/// Lays anew what can be; of the rest, names the losses.
pub(super) fn settle(
    store: &Store,
    unmended: Vec<Unmended>,
    options: &RepairOptions,
    monitor: &Monitor,
    outcome: &mut RepairOutcome,
) -> Result<()> {
    // It takes the key and all members.
    let may = !store.is_locked() && store.absent().next().is_none() && options.replace.is_none();
    let mut relaid = HashSet::new();
    if may {
        match lay_anew(store, &unmended, options, monitor) {
            Ok(sets) => relaid = sets,
            Err(error) => {
                let advice = "run it again, or see what is lost with: pinstripe check --read-data";
                monitor.warning("packs", cannot(&error).advice(advice));
            }
        }
    }
    outcome.relaid_packs += relaid.len() as u64;
    for Unmended { set, damage, .. } in unmended {
        if relaid.contains(&set) {
            continue;
        }
        outcome.lost_extents += damage.len() as u64;
        damage.into_iter().for_each(|(place, error)| monitor.loss(place, error));
    }
    Ok(())
}

fn cannot(error: &Error) -> Error {
    let what = format!("what parity cannot repair was not rewritten: {}", error.what());
    Error::new(error.kind(), what)
}

/// Lays packs anew of which nothing is lost, gives up those that no run and no snapshot needs, and
/// makes second copies of pages that lack them; returns the packs that are gone.
fn lay_anew(
    store: &Store,
    unmended: &[Unmended],
    options: &RepairOptions,
    monitor: &Monitor,
) -> Result<HashSet<SetId>> {
    let is_known: HashMap<SetId, bool> =
        unmended.iter().map(|pack| (pack.set, pack.is_known)).collect();
    let mut whole: HashSet<SetId> = is_known.keys().copied().collect();
    if !whole.is_empty() {
        let index = Index::load(store, monitor)?;
        let packs = PackReader::new(store, monitor);
        let mut chunks = ChunkReader::new(&packs, &index);
        let bad: Vec<BadPack> = whole.iter().copied().map(BadPack::doubtful).collect();
        let (_, hurt) = lost_chunks(&index, &mut chunks, &bad)?;
        // A pack that no run names is offered all the same: gc lets it go only if no snapshot needs
        // it.
        whole.retain(|set| !hurt.contains(set) || !is_known[set]);
    }
    if !whole.is_empty() {
        gc::retire(store, whole.clone(), options.limits, monitor)?;
    }
    if page_copies(store.config.parity) > 1 && gc::thin_pages(store, options.limits, monitor)? > 0 {
        gc::retire(store, HashSet::new(), options.limits, monitor)?;
    }
    let left = index::standing_sets(store, Room::Packs)?;
    whole.retain(|set| !left.contains_key(set));
    Ok(whole)
}
