//! Lists stripe sets, and verifies and repairs one of them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use super::budget::Throttle;
use super::finding::{Fate, Finding, Ledger};
use super::took;
use crate::ops::mender::{Done, Mender};
use crate::ops::standing::{Standing, Standings};
use crate::store::index::indexed_sets;
use crate::store::objects::Quorum;
use crate::store::{Store, deletion, sessions};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_base::monitor::Counter;
use pinstripe_member::{ExtentKind, ExtentName};
use pinstripe_stripe::{ExtentDamage, ExtentPart, SetReader, Verification};

/// One stripe set.
pub(super) struct Item {
    pub(super) set: SetId,
    kind: ExtentKind,
    /// The bytes of the set on all members.
    pub(super) bytes: u64,
    /// The number of members that have an extent of the set.
    extents: usize,
}

/// All stripe sets, and the data needed to decide about missing extents.
pub(super) struct Survey {
    /// The sets in the order in which they are verified.
    pub(super) sets: Vec<Item>,
    /// Packs that an index run lists: their writers have ended.
    indexed: HashSet<SetId>,
    /// Decides whether a pack is still wanted.
    standings: Standings,
    /// Writers are running: a set that no index run names may be unfinished.
    writers: bool,
}

/// Lists the sets. Writers are listed *after* the sets: a listed set whose writer has ended by then
/// is finished.
pub(super) fn survey(
    store: &Store,
    superseded: &HashSet<SetId>,
    ledger: &Ledger<'_>,
) -> Result<Survey> {
    let mut found: BTreeMap<(SetId, ExtentKind), (u64, usize)> = BTreeMap::new();
    let spare = usize::from(store.config.parity).saturating_sub(store.absent().count());
    let mut unlisted = BTreeSet::new();
    for kind in [ExtentKind::Packs, ExtentKind::Index] {
        for (number, member) in store.present() {
            let listed = match member.list(kind) {
                Ok(listed) => listed,
                // One that fails in both kinds is one member.
                Err(_) if unlisted.contains(&number) => continue,
                Err(error) if unlisted.len() < spare => {
                    unlisted.insert(number);
                    ledger.absent(number, error.advice("the disk may be failing: replace it"));
                    continue;
                }
                Err(error) => return Err(error),
            };
            for (id, bytes) in listed {
                let (sum, extents) = found.entry((SetId(id), kind)).or_default();
                *sum += bytes;
                *extents += 1;
            }
        }
    }
    let going = deletion::going_packs(store)?;
    found.retain(|(set, kind), _| match kind {
        ExtentKind::Packs => !going.contains(set),
        _ => !superseded.contains(set),
    });
    let item = |((set, kind), (bytes, extents))| Item { set, kind, bytes, extents };
    Ok(Survey {
        sets: found.into_iter().map(item).collect(),
        // When in doubt, a writer is assumed.
        writers: sessions::at_work(store, None, Quorum::Backup).map_or(true, |it| !it.is_empty()),
        indexed: indexed_sets(store)?.into_iter().collect(),
        standings: Standings::default(),
    })
}

impl Survey {
    /// Returns what to report about damage that parity cannot repair, and `None` for a pack that is
    /// not wanted any more. The caller calls this after the read that failed.
    fn beyond_parity(&self, store: &Store, name: ExtentName) -> Result<Option<Fate>> {
        let ExtentName::In(ExtentKind::Packs, id) = name else { return Ok(Some(Fate::Repairable)) };
        let set = SetId(id);
        Ok(match self.standings.of_pack(store, set, self.indexed.contains(&set))? {
            Standing::Gone => None,
            // Without the key no run can be read.
            Standing::Unnamed if store.is_locked() => Some(Fate::Lost),
            // A leftover of an interrupted backup: repair can find out.
            Standing::Unnamed => Some(Fate::Repairable),
            Standing::Named => Some(Fate::Lost),
        })
    }
}

/// Verifies one set and rewrites its damaged parts.
pub(super) fn verify(
    store: &Store,
    survey: &Survey,
    item: &Item,
    throttle: &Throttle,
    ledger: &Ledger<'_>,
) -> Result<()> {
    let name = ExtentName::In(item.kind, item.set.0);
    let derived = item.kind == ExtentKind::Index;
    let finished = !survey.writers || (!derived && survey.indexed.contains(&item.set));
    // Too few parts to read it, and no run names it: a leftover of an interrupted backup.
    let is_leftover =
        |needed: usize| !derived && item.extents < needed && !survey.indexed.contains(&item.set);
    let mut reader = match store.open_to_judge(name, item.set) {
        Ok(reader) => reader,
        Err(error) if error.kind() == Kind::Unsupported => return Err(error),
        // Removed since it was listed.
        Err(error) if error.kind() == Kind::NotFound => return Ok(()),
        Err(_) if !finished => return Ok(()),
        // It says nowhere how it is cut: a leftover, unless every member has an extent of it.
        Err(_) if is_leftover(store.member_slots.iter().filter(|it| it.row.is_some()).count()) => {
            return Ok(());
        }
        Err(error) => {
            if let Some(fate) = survey.beyond_parity(store, name)? {
                ledger.set(name, error, fate);
            }
            return Ok(());
        }
    };
    if is_leftover(reader.geometry().data()) {
        if store.is_locked() {
            let error = Error::new(
                Kind::TooManyLosses,
                "too few members have an extent of this pack, so it cannot be read",
            );
            let advice = "only a check with the password or key file can find out whether a \
                          snapshot needs this pack: run 'pinstripe check' with the password or key \
                          file";
            ledger.monitor.warning(name.path(), error.advice(advice));
        }
        return Ok(());
    }
    let mut verification = reader.verify(&mut |bytes| took(ledger.monitor, throttle, bytes));
    let lacks = verification.damage.iter().any(|it| it.reason.is_missing());
    if lacks && store.has_newcomers()? {
        // It may have moved to a member that joined.
        reader = match store.open_to_check(name, item.set) {
            // Removed since it was opened.
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            opened => opened?,
        };
        verification = reader.verify(&mut |bytes| took(ledger.monitor, throttle, bytes));
    }
    ledger.monitor.add(Counter::CheckedPacks, 1);
    if !verification.damage.is_empty() && deletion::is_going(store, name)? {
        return Ok(());
    }
    repair_damage(store, survey, &reader, name, &verification, finished, ledger)?;
    if verification.lost_ranges.is_empty() || derived {
        return Ok(());
    }
    if let Some(fate) = survey.beyond_parity(store, name)? {
        ledger.set(name, lost_data(&verification), fate);
    }
    Ok(())
}

fn lost_data(verification: &Verification) -> Error {
    let lost: u64 = verification.lost_ranges.iter().map(|range| range.end - range.start).sum();
    let lost = pinstripe_base::units::counted(lost, "byte", "bytes");
    Error::new(Kind::TooManyLosses, format!("lost data of the pack: {lost}"))
        .advice("run 'pinstripe check --read-data' to see which snapshots and paths are affected")
}

/// Rewrites every damaged slot. Extents that an absent member may have are left for `repair`.
fn repair_damage(
    store: &Store,
    survey: &Survey,
    reader: &SetReader,
    name: ExtentName,
    verification: &Verification,
    finished: bool,
    ledger: &Ledger<'_>,
) -> Result<()> {
    let derived = matches!(name, ExtentName::In(ExtentKind::Index, _));
    let all_present = store.absent().next().is_none();
    // With a member absent, which was named, what has no home may be there.
    let is_silent = |member: Option<usize>| store.silent().any(|it| Some(it) == member);
    // A member that joined since the store was opened is only read from.
    let is_known = |number: usize| number < store.member_slots.len();
    let is_ours = |damage: &&ExtentDamage| match damage.reason.is_missing() {
        _ if is_silent(damage.member) || !damage.member.is_none_or(is_known) => false,
        true => finished && (all_present || damage.member.is_some()),
        false => true,
    };
    let mender = Mender { store, reader, claim: None };
    let jobs = mender.plan(verification.damage.iter().filter(is_ours));
    mender.carry_out(&jobs, &mut |job, became| {
        let fate = match became {
            Done::Written => Fate::Mended,
            Done::Homeless | Done::Full(_) => Fate::Repairable,
            Done::Failed(error) if error.kind() == Kind::TooManyLosses && !derived => {
                match survey.beyond_parity(store, name)? {
                    Some(fate) => fate,
                    None => return Ok(()),
                }
            }
            Done::Failed(error) => {
                let place = job.to.map(|number| store.member_slots[number].place.as_path());
                let advice = "this extent is damaged and could not be rewritten";
                ledger.monitor.warning(place.unwrap_or(Path::new("")), error.advice(advice));
                Fate::Repairable
            }
        };
        let Some(number) = job.to else {
            let error = Error::new(
                Kind::Corrupt,
                format!("no member has the extent of slot {} of this stripe set", job.slot),
            );
            ledger.set(name, error, fate);
            return Ok(());
        };
        let describe = |damage: &&ExtentDamage| describe(ledger, reader, name, number, damage);
        let parts: Vec<_> = job.damage.iter().map(describe).collect();
        ledger.extent(number, name, &parts, fate);
        Ok(())
    })
}

fn describe(
    ledger: &Ledger<'_>,
    reader: &SetReader,
    name: ExtentName,
    member: usize,
    damage: &ExtentDamage,
) -> Finding {
    let layout = reader.layout();
    let (part, row, offset) = match damage.part {
        ExtentPart::Extent => ("extent", None, Some(0)),
        ExtentPart::Header => ("header", None, Some(0)),
        ExtentPart::Strip(row) => ("strip", Some(row), Some(layout.strip_offset(row))),
        ExtentPart::Trailer => ("trailer", None, Some(layout.trailer_offset(damage.slot))),
    };
    let what = format!("member {member}, {}: {}", damage.part, damage.reason);
    Finding { part, row, offset, ..ledger.finding(member, Some(name), &what) }
}
