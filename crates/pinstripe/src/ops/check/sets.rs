//! Checks that the stripe sets are as they were written.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;

use super::records::{Records, overlaps};
use super::{CheckOptions, CheckOutcome};
use crate::ops::standing::{Standing::Gone, Standings};
use crate::store::index::{self, Index, Place, indexed_sets};
use crate::store::packs::{ChunkReader, RecordPlace};
use crate::store::{Store, deletion, newcomers};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ChunkId, SetId};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::pool::each;
use pinstripe_member::{ExtentKind, ExtentName};
use pinstripe_stripe::{SetReader, Verification};

/// The unreadable parts of one pack.
pub(in crate::ops) struct BadPack {
    pub(super) set: SetId,
    /// Whether an index run names the pack; without the key no run can be read, and all packs count
    /// as named.
    pub(super) is_known: bool,
    lost: Vec<Range<u64>>,
    /// The damage to report, which is a loss only if a chunk is lost with it.
    damage: Vec<(PathBuf, Error)>,
}

impl BadPack {
    /// Describes a pack in which any strip may be damaged.
    pub(in crate::ops) fn doubtful(set: SetId) -> BadPack {
        BadPack { set, is_known: true, lost: everything(), damage: Vec::new() }
    }
}

fn everything() -> Vec<Range<u64>> {
    std::iter::once(0..u64::MAX).collect()
}

/// Returns the sets that other processes removed during the check: they are not damaged.
fn gone_meanwhile(
    store: &Store,
    kind: ExtentKind,
    sets: &[(SetId, Vec<usize>)],
) -> Result<HashSet<SetId>> {
    if kind == ExtentKind::Packs {
        return deletion::going_packs(store);
    }
    let there = index::sets_in(store, kind)?;
    Ok(sets.iter().map(|(set, _)| *set).filter(|set| !there.contains_key(set)).collect())
}

/// Checks every stripe set except superseded index runs, which nothing needs; returns the lost
/// ranges of the packs.
pub(super) fn stripe_sets(
    store: &Store,
    superseded: &HashSet<SetId>,
    options: &CheckOptions,
    monitor: &Monitor,
    outcome: &mut CheckOutcome,
) -> Result<Vec<BadPack>> {
    let indexed: HashSet<SetId> = indexed_sets(store)?.into_iter().collect();
    let (mut bad, standings) = (Vec::new(), Standings::default());
    for kind in [ExtentKind::Packs, ExtentKind::Index] {
        let mut sets = index::standing_sets(store, kind)?;
        if kind == ExtentKind::Packs {
            for set in &indexed {
                sets.entry(*set).or_default();
            }
        }
        let is_wanted =
            |(set, _): &(SetId, _)| kind == ExtentKind::Packs || !superseded.contains(set);
        let sets: Vec<_> = sets.into_iter().filter(is_wanted).collect();
        let results = each(options.limits.set_readers(store, 0), &sets, |(set, members)| {
            let leftover = kind == ExtentKind::Packs
                && !indexed.contains(set)
                && index::is_leftover(store, *set, members);
            if leftover {
                return Ok(None);
            }
            Ok(Some(examine(store, kind, *set, options, monitor)))
        })?;
        let gone = gone_meanwhile(store, kind, &sets)?;
        for ((set, members), result) in sets.into_iter().zip(results) {
            let name = ExtentName::In(kind, set.0);
            if gone.contains(&set) {
                continue;
            }
            if kind == ExtentKind::Packs && members.is_empty() && store.absent().next().is_none() {
                let gone = Error::new(Kind::NotFound, "no member has any part of this pack")
                    .advice(
                        "the losses of snapshots are listed below; run 'pinstripe repair' to \
                         remove the pack from the index; after that, a backup stores again the \
                         lost data that its sources still have",
                    );
                monitor.warning(name.path(), gone);
                outcome.repairable += 1;
                continue;
            }
            let Some(examined) = result else {
                let leftover = match store.is_locked() {
                    false => {
                        "the pack was left behind by an interrupted backup, and no snapshot needs \
                         it"
                    }
                    true => {
                        "the pack is on too few members, and it can be determined only with the \
                         key whether a snapshot needs the pack"
                    }
                };
                let leftover = Error::new(Kind::NotFound, leftover);
                monitor.warning(name.path(), leftover);
                continue;
            };
            outcome.packs += u64::from(kind == ExtentKind::Packs);
            let is_known = store.is_locked() || indexed.contains(&set);
            let (lost, damage) = tally(store, name, examined, monitor, outcome);
            // A later gc may have removed the record of the deletion too.
            let is_wanted = || Ok(standings.of_pack(store, set, indexed.contains(&set))? != Gone);
            let is_damaged = !(lost.is_empty() && damage.is_empty());
            if kind == ExtentKind::Packs && is_damaged && is_wanted()? {
                bad.push(BadPack { set, is_known, lost, damage });
            }
        }
    }
    Ok(bad)
}

struct ExaminedSet {
    /// The number of members over which the set is striped.
    width: usize,
    verification: Verification,
    /// Records that cannot be decoded although their strips match their checksums.
    records: Vec<(Range<u64>, Error)>,
}

fn examine(
    store: &Store,
    kind: ExtentKind,
    set: SetId,
    options: &CheckOptions,
    monitor: &Monitor,
) -> Result<ExaminedSet> {
    let name = ExtentName::In(kind, set.0);
    let mut examined = examine_once(store, name, set, options, monitor);
    let lacks = |it: &ExaminedSet| it.verification.damage.iter().any(|it| it.reason.is_missing());
    if examined.as_ref().map_or_else(newcomers::may_have_moved, lacks) && store.meet_newcomers()? {
        examined = examine_once(store, name, set, options, monitor);
    }
    monitor.add(Counter::CheckedPacks, 1);
    examined
}

fn examine_once(
    store: &Store,
    name: ExtentName,
    set: SetId,
    options: &CheckOptions,
    monitor: &Monitor,
) -> Result<ExaminedSet> {
    let reader = store.open_to_check(name, set)?;
    let (verification, records) = match name {
        _ if !options.read_data => (reader.verify_ends_only(), Vec::new()),
        ExtentName::In(ExtentKind::Packs, _) => verify_pack(store, &reader, set, monitor),
        _ => (reader.verify(&mut |bytes| monitor.add(Counter::CheckedBytes, bytes)), Vec::new()),
    };
    Ok(ExaminedSet { width: reader.geometry().members(), verification, records })
}

/// Verifies every strip of a pack, and decodes every record.
fn verify_pack(
    store: &Store,
    reader: &SetReader,
    set: SetId,
    monitor: &Monitor,
) -> (Verification, Vec<(Range<u64>, Error)>) {
    let mut progress = |bytes| monitor.add(Counter::CheckedBytes, bytes);
    if store.is_locked() {
        let verification = reader.verify(&mut progress);
        return (verification, index::unsound_records(store, set));
    }
    match index::index_of_pack(reader, set, store.opener()) {
        Ok(index) => {
            let mut records = Records::new(store, index, monitor);
            let mut show = |start, strip: &[u8]| records.show(start, strip);
            let verification = reader.verify_and_show(&mut progress, &mut show);
            let bad = records.undecodable(&verification.lost_ranges);
            (verification, bad)
        }
        Err(error) => (reader.verify(&mut progress), vec![(0..0, error)]),
    }
}

const REPAIR: &str = "run 'pinstripe repair'";
const LAY_ANEW: &str = "run 'pinstripe repair'; if the damage remains, no member is available for \
                        the missing extent: add a member, or run 'pinstripe gc' to rewrite the \
                        pack";

/// Counts the findings for one set. Returns the set's unreadable ranges, and the errors to report
/// once their consequences are known. The consequences for a pack that is in no index run are not
/// known yet.
fn tally(
    store: &Store,
    name: ExtentName,
    examined: Result<ExaminedSet>,
    monitor: &Monitor,
    outcome: &mut CheckOutcome,
) -> (Vec<Range<u64>>, Vec<(PathBuf, Error)>) {
    let derived = matches!(name, ExtentName::In(ExtentKind::Index, _));
    let examined = match examined {
        Ok(examined) => examined,
        Err(error) if derived => {
            let error =
                error.advice("no data is lost; run 'pinstripe repair' to rebuild the extent");
            monitor.warning(name.path(), error);
            outcome.repairable += 1;
            return (Vec::new(), Vec::new());
        }
        Err(error) => return (everything(), vec![(name.path().into(), error)]),
    };
    // With more slots than members, repair cannot write this one: each member has another slot of
    // it.
    let is_short = !derived
        && examined.width > store.takers().iter().flatten().count()
        && store.absent().next().is_none();
    // Absent members were reported once; as many slots of each set may be with them.
    let mut with_absent = store.absent().count();
    let mut beyond_parity = Vec::new();
    for damage in &examined.verification.damage {
        // A member that no longer answers was reported; its extents are unknown.
        if damage.member.is_some_and(|number| store.silent().any(|silent| silent == number)) {
            continue;
        }
        let member_slot =
            damage.member.and_then(|number| Some((number, store.member_slots.get(number)?)));
        let (place, text) = match member_slot {
            Some((number, member_slot)) => (
                member_slot.place.join(name.path()),
                format!("member {number}, {}: {}", damage.part, damage.reason),
            ),
            None if with_absent > 0 => {
                with_absent -= 1;
                continue;
            }
            None => (
                name.path().into(),
                format!("no member has the extent for slot {} of the pack", damage.slot),
            ),
        };
        let error = Error::new(Kind::Corrupt, text);
        if damage.repairable || derived {
            monitor.warning(place, error.advice(if is_short { LAY_ANEW } else { REPAIR }));
            outcome.repairable += 1;
        } else {
            beyond_parity.push((place, error));
        }
    }
    let mut lost = examined.verification.lost_ranges;
    for (range, error) in examined.records {
        beyond_parity.push((name.path().into(), error));
        lost.push(range);
    }
    (lost, beyond_parity)
}

/// Reports damage that parity cannot repair: as a loss where a chunk is lost, which is the case in
/// the packs of `hurt`, or in all packs if that is unknown.
pub(super) fn report(
    bad: Vec<BadPack>,
    hurt: Option<&HashSet<SetId>>,
    monitor: &Monitor,
    outcome: &mut CheckOutcome,
) {
    for BadPack { set, damage, .. } in bad {
        let is_hurt = hurt.is_none_or(|hurt| hurt.contains(&set));
        for (place, error) in damage {
            if is_hurt {
                monitor.loss(place, error);
                outcome.lost += 1;
            } else {
                monitor.warning(place, error.advice(STANDS_ELSEWHERE));
                outcome.repairable += 1;
            }
        }
    }
}

/// Reports the damage of packs in which no chunk is lost that a snapshot needs, even if they are in
/// `hurt`.
pub(super) fn report_unneeded(
    bad: Vec<BadPack>,
    hurt: &HashSet<SetId>,
    monitor: &Monitor,
    outcome: &mut CheckOutcome,
) {
    for BadPack { set, damage, .. } in bad {
        let advice = if hurt.contains(&set) { UNNEEDED } else { STANDS_ELSEWHERE };
        outcome.repairable += damage.len() as u64;
        damage.into_iter().for_each(|(place, error)| monitor.warning(place, error.advice(advice)));
    }
}

/// Reports the damage of packs that no index run names: as a loss if snapshots lack chunks that
/// these packs may have held.
pub(super) fn report_unknown(bad: Vec<BadPack>, monitor: &Monitor, outcome: &mut CheckOutcome) {
    let is_loss = outcome.hurt_snapshots > 0;
    for (place, error) in bad.into_iter().flat_map(|pack| pack.damage) {
        if is_loss {
            monitor.loss(place, error);
            outcome.lost += 1;
        } else {
            monitor.warning(place, error.advice(NEEDED_BY_NONE));
        }
    }
}

const NEEDED_BY_NONE: &str = "no data is lost: the pack was left behind by an interrupted backup, \
                              and no snapshot needs it; 'pinstripe gc' deletes the pack";

const UNNEEDED: &str = "no data is lost: every snapshot has all its data; 'pinstripe gc' deletes \
                        data that no snapshot needs";

const STANDS_ELSEWHERE: &str = "no data is lost: the content of the pack is also in other packs, \
                                or can still be read; 'pinstripe repair' rewrites the pack";

/// Returns the chunks in lost ranges that cannot be read from any place, with the packs that had
/// them; only packs that the index knows are examined.
///
/// A strip that does not match its checksum may still contain complete records, which a restore
/// verifies by their own checksums: a record in a lost range is lost only if reading it fails.
pub(in crate::ops) fn lost_chunks(
    index: &Index<'_>,
    chunks: &mut ChunkReader<'_>,
    bad: &[BadPack],
) -> Result<(HashSet<ChunkId>, HashSet<SetId>)> {
    let packs = index.packs();
    let mut hurt = HashSet::new();
    let numbered = bad.iter().filter_map(|pack| Some((packs.find(&pack.set)?, &pack.lost)));
    let bad: HashMap<u32, &Vec<Range<u64>>> = numbered.collect();
    let mut lost = HashSet::new();
    if bad.is_empty() {
        return Ok((lost, hurt));
    }
    let is_doubtful = |RecordPlace { pack, offset, bytes }| {
        let range = offset..offset + u64::from(bytes);
        bad.get(&pack).is_some_and(|ranges| ranges.iter().any(|lost| overlaps(lost, &range)))
    };
    let mut doubtful = index.over_rows(|rows| {
        let mut doubtful = Vec::new();
        rows.for_each(&mut |_, id, place| {
            if is_doubtful(place.record) {
                doubtful.push((place.record, *id));
            }
            Ok(())
        })?;
        Ok(doubtful)
    })?;
    // Record by record: each is read and decoded once.
    doubtful.sort_unstable();
    let mut gone = HashSet::new();
    let mut is_readable = |id: &ChunkId, place: &Place| {
        if !is_doubtful(place.record) {
            return true;
        }
        if gone.contains(&place.record) {
            return false;
        }
        chunks
            .read_at(id, place)
            .map_err(|error| {
                if error.kind() == Kind::TooManyLosses {
                    gone.insert(place.record);
                }
            })
            .is_ok()
    };
    for (record, id) in doubtful {
        if lost.contains(&id) || !index.places(&id)?.iter().any(|place| is_readable(&id, place)) {
            lost.insert(id);
            hurt.extend(packs.get(record.pack).map(|pack| pack.set));
        }
    }
    Ok((lost, hurt))
}
