//! Counting: how much of each pack is needed, and which packs may go.
//!
//! Invariants: a pack that others condemned counts as gone, but what only such packs have is
//! condemned by nobody else; a pack without rows is never condemned, since nobody knows what is
//! in it; a pack that is needed for nothing but has a copy of something needed is repacked, so
//! that the other copy is read before this one goes; one that cannot be read goes only if it has
//! nothing but such copies.

use std::collections::HashSet;

use super::mark::Bits;
use crate::error::Result;
use crate::id::{ChunkId, SetId};
use crate::pipeline::backup::Leaving;
use crate::store::deletion::decide::{self, Need, Usage};
use crate::store::index::{Pack, Place, Rows};

/// What packs hold, in bytes of their chunks, by number.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    raw_bytes: u64,
    live_bytes: u64,
    /// It has a copy of a needed chunk that counts as live in another pack.
    has_copies: bool,
}

/// All rows of one chunk, and whether it is needed.
struct Chunk<'c> {
    id: ChunkId,
    is_needed: bool,
    places: &'c [Place],
}

impl Chunk<'_> {
    fn packs(&self) -> Vec<u32> {
        let mut packs: Vec<u32> = self.places.iter().map(|place| place.record.pack).collect();
        packs.dedup();
        packs
    }
}

/// Shows every chunk once, with its places in the order of their packs.
fn for_each_chunk(
    rows: &Rows<'_>,
    needed: &Bits,
    show: &mut dyn FnMut(Chunk<'_>) -> Result<()>,
) -> Result<()> {
    let mut last: Option<ChunkId> = None;
    let (mut places, mut is_needed): (Vec<Place>, bool) = (Vec::new(), false);
    rows.for_each(&mut |row, id, place| {
        if last != Some(*id) {
            flush(last, &mut places, is_needed, show)?;
            (last, is_needed) = (Some(*id), false);
        }
        is_needed |= needed.has(row);
        if rows.pack(place.record.pack).is_some() {
            places.push(place);
        }
        Ok(())
    })?;
    flush(last, &mut places, is_needed, show)
}

fn flush(
    id: Option<ChunkId>,
    places: &mut Vec<Place>,
    is_needed: bool,
    show: &mut dyn FnMut(Chunk<'_>) -> Result<()>,
) -> Result<()> {
    let Some(id) = id.filter(|_| !places.is_empty()) else { return Ok(()) };
    // Two runs may speak of one pack.
    places.sort_unstable_by_key(|it| (it.record, it.raw_offset));
    places.dedup();
    show(Chunk { id, is_needed, places })?;
    places.clear();
    Ok(())
}

/// How much of each pack is needed: of those that can be condemned.
pub(super) struct Usages {
    /// In the order of the index's numbers.
    pub packs: Vec<Usage>,
    /// Packs that have copies of what counts elsewhere.
    with_copies: HashSet<SetId>,
}

/// Counts. `others` are the packs that others have condemned; `is_short` says which lack an extent
/// for which there is no member.
///
/// # Errors
/// When a page of the index cannot be read.
pub(super) fn count(
    rows: &Rows<'_>,
    needed: &Bits,
    others: &HashSet<SetId>,
    is_short: &dyn Fn(&Pack) -> bool,
) -> Result<Usages> {
    let mut held: Vec<Held> = Vec::new();
    let mut any_copies = false;
    for_each_chunk(rows, needed, &mut |chunk| {
        for place in chunk.places {
            at(&mut held, place.record.pack).raw_bytes += u64::from(place.raw_bytes);
        }
        if chunk.is_needed {
            match *chunk.packs() {
                [pack] => at(&mut held, pack).live_bytes += u64::from(chunk.places[0].raw_bytes),
                _ => any_copies = true,
            }
        }
        Ok(())
    })?;
    if any_copies {
        count_copies(rows, needed, others, &mut held)?;
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
        let (set, bytes, is_short) = (pack.set, pack.bytes.max(1), is_short(pack));
        usages.packs.push(Usage { set, bytes, live_bytes, is_short });
        if held.has_copies {
            usages.with_copies.insert(pack.set);
        }
    }
    Ok(usages)
}

/// Of a chunk in several packs one copy counts: that in the pack which is needed the most anyway.
/// Never one that no writer may rely on while there is another: it may lack an extent for good.
fn count_copies(
    rows: &Rows<'_>,
    needed: &Bits,
    others: &HashSet<SetId>,
    held: &mut Vec<Held>,
) -> Result<()> {
    let singly: Vec<u64> = held.iter().map(|held| held.live_bytes).collect();
    let stands = |number: &u32| {
        rows.pack(*number).is_some_and(|pack| {
            pack.is_readable() && pack.is_reliable() && !others.contains(&pack.set)
        })
    };
    for_each_chunk(rows, needed, &mut |chunk| {
        let packs = chunk.packs();
        if !chunk.is_needed || packs.len() < 2 {
            return Ok(());
        }
        let live = |number: &u32| (singly[*number as usize], std::cmp::Reverse(*number));
        let best = packs.iter().copied().filter(stands).max_by_key(live);
        for pack in packs {
            // Where none is sure to stay, all count.
            if best.is_none_or(|best| best == pack) {
                at(held, pack).live_bytes += u64::from(chunk.places[0].raw_bytes);
            } else {
                at(held, pack).has_copies = true;
            }
        }
        Ok(())
    })
}

fn at(held: &mut Vec<Held>, number: u32) -> &mut Held {
    let number = number as usize;
    if held.len() <= number {
        held.resize(number + 1, Held::default());
    }
    &mut held[number]
}

impl Usages {
    /// Bytes that are needed of these.
    pub fn live_bytes(&self, sets: &[SetId]) -> u64 {
        let sets: HashSet<_> = sets.iter().collect();
        self.packs.iter().filter(|pack| sets.contains(&pack.set)).map(|pack| pack.live_bytes).sum()
    }

    /// Picks what goes, so that at most `max_waste` of the rest is needed by nothing.
    pub fn plan(&self, max_waste: f64) -> decide::Plan {
        let plan = decide::plan(&self.packs, max_waste);
        self.with_copies_read(plan)
    }

    /// Picks exactly these.
    pub fn plan_of(&self, sets: &HashSet<SetId>) -> decide::Plan {
        let mut plan = decide::Plan::default();
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

    fn with_copies_read(&self, mut plan: decide::Plan) -> decide::Plan {
        let (copies, dead) = plan.dead.iter().partition(|set| self.with_copies.contains(set));
        plan.dead = dead;
        plan.repack.extend::<Vec<SetId>>(copies);
        plan
    }
}

/// What is needed of each of these packs, in their order.
///
/// # Errors
/// When a page of the index cannot be read.
pub(super) fn leaving(rows: &Rows<'_>, needed: &Bits, sets: &[SetId]) -> Result<Vec<Leaving>> {
    let leaving = |&set| Leaving { set, needed: Vec::new(), copies: Vec::new() };
    let mut packs: Vec<Leaving> = sets.iter().map(leaving).collect();
    let by_set: std::collections::HashMap<_, _> = sets.iter().zip(0..).collect();
    for_each_chunk(rows, needed, &mut |chunk| {
        for place in chunk.places.iter().filter(|_| chunk.is_needed) {
            let Some(pack) = rows.pack(place.record.pack) else { continue };
            let Some(&number) = by_set.get(&pack.set) else { continue };
            let leaving: &mut Leaving = &mut packs[number];
            if pack.is_readable() {
                leaving.needed.push((place.record.offset as u32, place.raw_offset));
            } else {
                leaving.copies.push(chunk.id);
            }
        }
        Ok(())
    })?;
    packs.iter_mut().for_each(|pack| pack.needed.sort_unstable());
    Ok(packs)
}

/// Which of `ours` have to stay, for what is needed.
///
/// # Errors
/// When a page of the index cannot be read.
pub(super) fn rescued(
    rows: &Rows<'_>,
    needed: &Bits,
    ours: &HashSet<SetId>,
    others: &HashSet<SetId>,
) -> Result<HashSet<SetId>> {
    let mut rescued = HashSet::new();
    for_each_chunk(rows, needed, &mut |chunk| {
        if chunk.is_needed {
            let packs = chunk.packs();
            let packs = packs.iter().filter_map(|number| rows.pack(*number));
            // What cannot be read is no place to count on, nor what may lack an extent for good.
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
