//! Counts how much of each pack is needed, and which packs may be deleted.
//!
//! Invariants: a pack that other processes condemned counts as gone, but chunks that only such
//! packs have are not condemned a second time. A pack without rows is never condemned, since its
//! content is unknown. A pack that holds only copies of needed chunks is repacked, so that the
//! other copies are read before the pack is deleted. A pack that cannot be read is deleted only if
//! all needed chunks in it have copies in other packs. A chunk in several packs counts in as many
//! of them as should have it: two for a page in a store without parity, otherwise one.

use std::collections::HashSet;

use super::mark::Marked;
use crate::pipeline::backup::EvacuatingPack;
use crate::store::deletion::decide::{self, Need, Usage};
use crate::store::index::{Pack, Place, Rows};
use pinstripe_base::error::Result;
use pinstripe_base::id::{ChunkId, SetId};

/// The content of packs, as bytes of their chunks, by number.
#[derive(Debug, Clone, Copy, Default)]
struct PackContent {
    raw_bytes: u64,
    live_bytes: u64,
    /// The pack has a copy of a needed chunk that counts as live in another pack.
    has_copies: bool,
}

/// All rows of one chunk.
struct ChunkRows<'c> {
    id: ChunkId,
    /// The number of packs that should have the chunk; 0 if nothing needs it.
    copies: usize,
    places: &'c [Place],
}

impl ChunkRows<'_> {
    fn packs(&self) -> Vec<u32> {
        let mut packs: Vec<u32> = self.places.iter().map(|place| place.record.pack).collect();
        packs.dedup();
        packs
    }
}

/// Passes every chunk once to the function, with its places in the order of their packs.
fn for_each_chunk(
    rows: &Rows<'_>,
    marked: &Marked,
    show: &mut dyn FnMut(ChunkRows<'_>) -> Result<()>,
) -> Result<()> {
    let mut last: Option<ChunkId> = None;
    let (mut places, mut copies): (Vec<Place>, usize) = (Vec::new(), 0);
    rows.for_each(&mut |row, id, place| {
        if last != Some(*id) {
            flush(last, &mut places, copies, show)?;
            (last, copies) = (Some(*id), 0);
        }
        copies = copies.max(marked.copies_of(id, row));
        if rows.pack(place.record.pack).is_some() {
            places.push(place);
        }
        Ok(())
    })?;
    flush(last, &mut places, copies, show)
}

fn flush(
    id: Option<ChunkId>,
    places: &mut Vec<Place>,
    copies: usize,
    show: &mut dyn FnMut(ChunkRows<'_>) -> Result<()>,
) -> Result<()> {
    let Some(id) = id.filter(|_| !places.is_empty()) else { return Ok(()) };
    // Two runs may list one pack.
    places.sort_unstable_by_key(|it| (it.record, it.raw_offset));
    places.dedup();
    show(ChunkRows { id, copies, places })?;
    places.clear();
    Ok(())
}

/// The needed part of each pack that can be condemned.
pub(super) struct Usages {
    /// The packs in the order of the index's numbers.
    pub packs: Vec<Usage>,
    /// Packs that have copies of chunks that count in other packs.
    with_copies: HashSet<SetId>,
}

/// Counts the usage of packs. `others` are the packs that other processes have condemned;
/// `is_short` returns which packs lack an extent that no member can take.
///
/// # Errors
/// Fails when a page of the index cannot be read.
pub(super) fn count(
    rows: &Rows<'_>,
    marked: &Marked,
    others: &HashSet<SetId>,
    is_short: &dyn Fn(&Pack) -> bool,
) -> Result<Usages> {
    let mut held: Vec<PackContent> = Vec::new();
    let mut any_copies = false;
    for_each_chunk(rows, marked, &mut |chunk| {
        for place in chunk.places {
            at(&mut held, place.record.pack).raw_bytes += u64::from(place.raw_bytes);
        }
        let packs = if chunk.copies > 0 { chunk.packs() } else { Vec::new() };
        if packs.len() > chunk.copies {
            any_copies = true;
            return Ok(());
        }
        for pack in packs {
            at(&mut held, pack).live_bytes += u64::from(chunk.places[0].raw_bytes);
        }
        Ok(())
    })?;
    if any_copies {
        count_copies(rows, marked, others, &mut held)?;
    }
    let mut usages = Usages { packs: Vec::new(), with_copies: HashSet::new() };
    for (number, held) in held.iter().enumerate() {
        let Some(pack) = rows.pack(number as u32) else { continue };
        let is_known = held.raw_bytes > 0 && pack.extents() > 0 && !others.contains(&pack.set);
        if !is_known || (held.live_bytes > 0 && !pack.is_readable()) {
            continue;
        }
        let share = u128::from(pack.bytes) * u128::from(held.live_bytes);
        let live_bytes = (share / u128::from(held.raw_bytes)) as u64;
        let live_bytes = live_bytes.max(u64::from(held.live_bytes > 0));
        debug_assert!(held.live_bytes <= held.raw_bytes, "what is needed is part of the pack");
        let (set, bytes, is_short) = (pack.set, pack.bytes.max(1), is_short(pack));
        usages.packs.push(Usage { set, bytes, live_bytes, is_short });
        if held.has_copies {
            usages.with_copies.insert(pack.set);
        }
    }
    Ok(usages)
}

/// If a chunk is in more packs than it should be, those copies count that are in the packs which
/// are needed most anyway. A copy on which no writer may rely never counts while there is another
/// copy: its pack may permanently lack an extent.
fn count_copies(
    rows: &Rows<'_>,
    marked: &Marked,
    others: &HashSet<SetId>,
    held: &mut Vec<PackContent>,
) -> Result<()> {
    let singly: Vec<u64> = held.iter().map(|held| held.live_bytes).collect();
    let stands = |number: &u32| {
        rows.pack(*number).is_some_and(|pack| {
            pack.is_readable() && pack.is_reliable() && !others.contains(&pack.set)
        })
    };
    for_each_chunk(rows, marked, &mut |chunk| {
        let packs = chunk.packs();
        if packs.len() <= chunk.copies || chunk.copies == 0 {
            return Ok(());
        }
        let live = |number: &u32| (std::cmp::Reverse(singly[*number as usize]), *number);
        let mut best: Vec<u32> = packs.iter().copied().filter(stands).collect();
        best.sort_by_key(live);
        best.truncate(chunk.copies);
        for pack in packs {
            // If no copy is sure to stay, all count.
            if best.is_empty() || best.contains(&pack) {
                at(held, pack).live_bytes += u64::from(chunk.places[0].raw_bytes);
            } else {
                at(held, pack).has_copies = true;
            }
        }
        Ok(())
    })
}

fn at(held: &mut Vec<PackContent>, number: u32) -> &mut PackContent {
    let number = number as usize;
    if held.len() <= number {
        held.resize(number + 1, PackContent::default());
    }
    &mut held[number]
}

impl Usages {
    /// Returns the needed bytes of these packs.
    pub(crate) fn live_bytes(&self, sets: &[SetId]) -> u64 {
        let sets: HashSet<_> = sets.iter().collect();
        self.packs.iter().filter(|pack| sets.contains(&pack.set)).map(|pack| pack.live_bytes).sum()
    }

    /// Selects the packs to delete, so that at most a fraction `max_waste` of the remaining bytes
    /// is not needed.
    pub fn plan(&self, max_waste: f64) -> decide::GcPlan {
        let plan = decide::plan(&self.packs, max_waste);
        self.with_copies_read(plan)
    }

    /// Picks exactly these.
    pub(crate) fn plan_of(&self, sets: &HashSet<SetId>) -> decide::GcPlan {
        let mut plan = decide::GcPlan::default();
        for pack in &self.packs {
            match (sets.contains(&pack.set), pack.live_bytes) {
                (true, 0) => plan.dead.push(pack.set),
                (true, _) => plan.repack.push(pack.set),
                (false, live) => {
                    plan.kept_bytes += pack.bytes;
                    plan.waste_bytes += pack.bytes.saturating_sub(live);
                }
            }
        }
        self.with_copies_read(plan)
    }

    fn with_copies_read(&self, mut plan: decide::GcPlan) -> decide::GcPlan {
        let (copies, dead) = plan.dead.iter().partition(|set| self.with_copies.contains(set));
        plan.dead = dead;
        plan.repack.extend::<Vec<SetId>>(copies);
        plan
    }
}

/// Returns the needed part of each of these packs, in their order, and the pages that are in fewer
/// packs than they should be but in none of these.
///
/// # Errors
/// Fails when a page of the index cannot be read.
pub(super) fn evacuating(
    rows: &Rows<'_>,
    marked: &Marked,
    sets: &[SetId],
    others: &HashSet<SetId>,
) -> Result<(Vec<EvacuatingPack>, Vec<ChunkId>)> {
    let evacuating = |&set| EvacuatingPack { set, needed: Vec::new(), copies: Vec::new() };
    let mut packs: Vec<EvacuatingPack> = sets.iter().map(evacuating).collect();
    let by_set: std::collections::HashMap<_, _> = sets.iter().zip(0..).collect();
    let mut thin = Vec::new();
    for_each_chunk(rows, marked, &mut |chunk| {
        if chunk.copies > 1 {
            let known = chunk.packs().into_iter().filter_map(|number| rows.pack(number));
            let known: Vec<&Pack> = known.collect();
            let stands = |pack: &&&Pack| {
                pack.is_readable() && pack.is_reliable() && !others.contains(&pack.set)
            };
            let standing = known.iter().filter(stands).count();
            let leaves = known.iter().any(|pack| by_set.contains_key(&pack.set));
            if standing < chunk.copies && !leaves {
                thin.push(chunk.id);
            }
        }
        for place in chunk.places.iter().filter(|_| chunk.copies > 0) {
            let Some(pack) = rows.pack(place.record.pack) else { continue };
            let Some(&number) = by_set.get(&pack.set) else { continue };
            let evacuating: &mut EvacuatingPack = &mut packs[number];
            if pack.is_readable() {
                evacuating.needed.push((place.record.offset as u32, place.raw_offset));
            } else {
                evacuating.copies.push(chunk.id);
            }
        }
        Ok(())
    })?;
    packs.iter_mut().for_each(|pack| pack.needed.sort_unstable());
    Ok((packs, thin))
}

/// Returns the packs of `ours` that must be kept for needed chunks.
///
/// # Errors
/// Fails when a page of the index cannot be read.
pub(super) fn rescued(
    rows: &Rows<'_>,
    marked: &Marked,
    ours: &HashSet<SetId>,
    others: &HashSet<SetId>,
) -> Result<HashSet<SetId>> {
    let mut rescued = HashSet::new();
    for_each_chunk(rows, marked, &mut |chunk| {
        if chunk.copies > 0 {
            let packs = chunk.packs();
            let packs = packs.iter().filter_map(|number| rows.pack(*number));
            // A pack that cannot be read, or may lack an extent for good, must not be counted on.
            let stays = |set: &SetId| ours.contains(set) || others.contains(set);
            let counts = |pack: &&Pack| pack.is_readable() && pack.is_reliable();
            let places = packs.filter(|pack| counts(pack) || stays(&pack.set));
            if let Need::Rescue(set) = decide::need(places.map(|pack| pack.set), ours, others) {
                rescued.insert(set);
            }
        }
        Ok(())
    })?;
    Ok(rescued)
}
