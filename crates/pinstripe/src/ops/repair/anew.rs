//! Rewrites, as gc does, packs that parity cannot repair, packs that need more members than remain,
//! and pages that lack their second copy.
//!
//! The readable data of a pack that parity cannot repair is written into new packs. A chunk that
//! cannot be recovered is *given up*: the new packs do not have it, so that the store no longer
//! counts it as stored, and a backup whose source still has it stores it again. The damaged paths
//! are reported before that.
//!
//! Invariants: a pack is deleted only when all needed data in it was read and verified, in it or
//! elsewhere, and is in new packs, or is given up. A chunk is given up only with the key, while
//! every member is present and answers, and when the damage is certain ([`SetReader::is_certain`]).
//! If anything prevents the rewriting of a pack, nothing is removed, and the damage is only
//! reported.
//!
//! [`SetReader::is_certain`]: pinstripe_stripe::SetReader::is_certain

use std::collections::{HashMap, HashSet};

use super::Unmended;
use crate::ops::check::{
    self,
    sets::{BadPack, lost_chunks},
};
use crate::ops::gc;
use crate::ops::standing::{Standing, Standings};
use crate::pipeline::limits::Limits;
use crate::store::index::{self, Index, Pack};
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::{Store, page_copies};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ChunkId, SetId};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::{ExtentKind, ExtentName};

/// The result for packs that parity cannot repair.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::ops) struct Settled {
    /// Packs that were rewritten.
    pub relaid_packs: u64,
    /// Damaged extents of packs that are kept, or of packs with chunks that were given up.
    pub lost_extents: u64,
    /// Chunks that were given up.
    pub given_up_chunks: u64,
}

/// Rewrites packs where possible; reports what is lost, and gives it up.
pub(in crate::ops) fn settle(
    store: &Store,
    unmended: Vec<Unmended>,
    limits: Limits,
    monitor: &Monitor,
) -> Result<Settled> {
    let mut settled = Settled::default();
    let (mut relaid, mut given_up) = (HashSet::new(), GivenUp::default());
    if !store.is_locked() && store.absent().next().is_none() {
        let all: HashSet<SetId> = unmended.iter().map(|pack| pack.set).collect();
        match lay_anew(store, &unmended, limits, monitor) {
            Ok(sets) => relaid = sets,
            Err(error) => warn(monitor, &error),
        }
        let left: HashSet<SetId> = all.difference(&relaid).copied().collect();
        match give_up(store, &left, limits, monitor) {
            Ok(found) => given_up = found,
            Err(error) => warn(monitor, &error),
        }
    }
    settled.relaid_packs = (relaid.len() + given_up.packs.len()) as u64;
    settled.given_up_chunks = given_up.chunks;
    let standings = Standings::default();
    for Unmended { set, is_known, damage } in unmended {
        let is_named = is_known && !store.is_locked();
        if relaid.contains(&set)
            || !given_up.packs.contains(&set)
                && standings.of_pack(store, set, is_named)? == Standing::Gone
        {
            continue;
        }
        settled.lost_extents += damage.len() as u64;
        for (place, error) in damage {
            match given_up.packs.contains(&set) {
                // The affected paths were reported one by one.
                true => monitor.warning(place, error.advice_instead(GIVEN_UP)),
                false => monitor.loss(place, error),
            }
        }
    }
    Ok(settled)
}

/// Rewrites packs that lack an extent and need more members than remain, so that no member can take
/// it. A failure is a warning: gc does the same later.
pub(in crate::ops) fn rewrite_short_packs(
    store: &Store,
    limits: &Limits,
    monitor: &Monitor,
) -> Result<()> {
    // An absent member may have the extent.
    if store.is_locked() || store.absent().next().is_some() {
        return Ok(());
    }
    let index = Index::load(store, monitor)?;
    let members = store.takers().iter().flatten().count();
    let is_counted = |pack: &Pack| pack.is_reliable() && !pack.is_condemned();
    let packs = index.packs();
    let short = packs.iter().filter(|(_, it)| is_counted(it) && it.is_short_for(members));
    let short: HashSet<SetId> = short.map(|(_, pack)| pack.set).collect();
    if short.is_empty() {
        return Ok(());
    }
    drop(index);
    if let Err(error) = gc::retire(store, short, HashSet::new(), *limits, monitor) {
        let advice = "some packs need more members than the store still has, and these packs were \
                      not changed; run 'pinstripe gc' to rewrite them";
        monitor.warning("packs", error.advice(advice));
    }
    Ok(())
}

const GIVEN_UP: &str = "the intact data of the pack was rewritten; back up again: the backup \
                        stores lost data again if the source still has it, and this data completes \
                        the snapshots that lack it";

fn warn(monitor: &Monitor, error: &Error) {
    let advice = "run 'pinstripe repair' again; 'pinstripe check --read-data' lists what is lost";
    monitor.warning("packs", cannot(error).advice(advice));
}

/// Packs with chunks that were given up, and the number of those chunks.
#[derive(Default)]
struct GivenUp {
    packs: HashSet<SetId>,
    chunks: u64,
}

/// Rewrites the readable data of these packs and gives up the rest, after reporting the affected
/// paths. Packs whose damage is not certain are not changed.
fn give_up(
    store: &Store,
    sets: &HashSet<SetId>,
    limits: Limits,
    monitor: &Monitor,
) -> Result<GivenUp> {
    let sets: HashSet<SetId> = sets.iter().copied().filter(|set| is_certain(store, *set)).collect();
    if sets.is_empty() || store.silent().next().is_some() {
        return Ok(GivenUp::default());
    }
    let lost = lost_of(store, &sets, monitor)?;
    check::name_hurt(store, lost.clone(), monitor)?;
    let chunks = lost.len() as u64;
    gc::retire(store, sets.clone(), lost, limits, monitor)?;
    let standing = index::standing_sets(store, ExtentKind::Packs)?;
    let packs: HashSet<SetId> =
        sets.into_iter().filter(|set| !standing.contains_key(set)).collect();
    Ok(if packs.is_empty() { GivenUp::default() } else { GivenUp { packs, chunks } })
}

/// Whether all damage of a pack would certainly be found again.
fn is_certain(store: &Store, set: SetId) -> bool {
    match store.open_to_judge(ExtentName::pack(set), set) {
        Ok(reader) => {
            let damage = reader.verify(&mut |_| {}).damage;
            damage.iter().filter(|one| !one.repairable).all(|one| reader.is_certain(one))
        }
        // No trailer is intact: each member was asked for one.
        Err(error) => error.kind() == Kind::Corrupt,
    }
}

/// Returns the chunks of these packs that cannot be read from any place.
fn lost_of(store: &Store, sets: &HashSet<SetId>, monitor: &Monitor) -> Result<HashSet<ChunkId>> {
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    let mut chunks = ChunkReader::new(&packs, &index);
    let bad: Vec<BadPack> = sets.iter().copied().map(BadPack::doubtful).collect();
    Ok(lost_chunks(&index, &mut chunks, &bad)?.0)
}

fn cannot(error: &Error) -> Error {
    let what = format!("packs that parity cannot repair were not rewritten: {}", error.what());
    Error::new(error.kind(), what)
}

/// Rewrites packs that lost nothing, gives up those that no index run and no snapshot needs, and
/// makes second copies of pages that lack them; returns the packs that were deleted.
fn lay_anew(
    store: &Store,
    unmended: &[Unmended],
    limits: Limits,
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
        // A pack that no run lists is offered too: gc deletes it only if no snapshot needs it.
        whole.retain(|set| !hurt.contains(set) || !is_known[set]);
    }
    if !whole.is_empty() {
        gc::retire(store, whole.clone(), HashSet::new(), limits, monitor)?;
    }
    if page_copies(store.config.parity) > 1 && gc::thin_pages(store, limits, monitor)? > 0 {
        gc::retire(store, HashSet::new(), HashSet::new(), limits, monitor)?;
    }
    let left = index::standing_sets(store, ExtentKind::Packs)?;
    whole.retain(|set| !left.contains_key(set));
    Ok(whole)
}
