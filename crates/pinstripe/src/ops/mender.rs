//! Rewrites slots of a stripe set: chooses the members, and writes the extents.
//!
//! Invariants: no member gets two slots of one set. A member's copy of a slot is replaced by
//! another slot only when an intact copy remains on another member. A place that the plan treats as
//! free is never overwritten.
//!
//! Not in this module: what a verb reports, and whether a set may be changed at all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::store::{Claim, Store};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::{Replace, SharedMember};
use pinstripe_stripe::{ExtentDamage, ExtentPart, SetReader};

/// Repairs one set.
pub(super) struct Mender<'a> {
    pub(super) store: &'a Store,
    pub(super) reader: &'a SetReader,
    /// Without a claim no copy is given up, because another process may be moving the other copy.
    pub(super) claim: Option<&'a Claim>,
}

/// A slot to be written on one member.
pub(super) struct Job<'a> {
    pub(super) slot: usize,
    /// The member. `None` when every member that could take the slot has another slot of the set.
    pub(super) to: Option<usize>,
    /// The damage of the slot.
    pub(super) damage: Vec<&'a ExtentDamage>,
    onto: Onto,
}

/// The present content of the place that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Onto {
    /// The same slot, damaged.
    Itself,
    /// Nothing.
    Nothing,
    /// A slot that another member has a copy of.
    Twin,
}

/// The result of a job.
pub(super) enum Done {
    Written,
    /// No member can take the slot.
    Homeless,
    /// The member has no space for the slot.
    Full(Error),
    Failed(Error),
}

impl Mender<'_> {
    /// Decides where every damaged slot is written: to its member, if it has one; otherwise to a
    /// member without an extent of the set; otherwise to a member of whose extent another member
    /// has a copy.
    pub(super) fn plan<'d>(&self, damage: impl Iterator<Item = &'d ExtentDamage>) -> Vec<Job<'d>> {
        let mut by_place: BTreeMap<(usize, Option<usize>), Vec<&ExtentDamage>> = BTreeMap::new();
        for one in damage {
            by_place.entry((one.slot, one.member)).or_default().push(one);
        }
        let is_missing =
            |damage: &[&ExtentDamage]| damage.iter().any(|one| one.part == ExtentPart::Extent);
        let (missing, hurt): (Vec<_>, Vec<_>) =
            by_place.into_iter().partition(|(_, damage)| is_missing(damage));

        let takers = self.store.takers();
        let takes = |number: &usize| takers.get(*number).is_some_and(Option::is_some);
        // A member that has lost a slot is kept for that slot.
        let homes: BTreeSet<usize> =
            missing.iter().filter_map(|((_, home), _)| *home).filter(takes).collect();
        let free = self.reader.free_members().into_iter();
        let mut free: VecDeque<usize> =
            free.filter(|number| takes(number) && !homes.contains(number)).collect();
        let is_hurt = |number: usize| hurt.iter().any(|((_, member), _)| *member == Some(number));
        let mut spare: VecDeque<usize> = self.spare(is_hurt).into_iter().filter(takes).collect();

        let mut jobs = Vec::new();
        for ((slot, home), damage) in missing {
            let (to, onto) = match home.filter(takes).or_else(|| free.pop_front()) {
                Some(number) => (Some(number), Onto::Nothing),
                None => (spare.pop_front(), Onto::Twin),
            };
            jobs.push(Job { slot, to, damage, onto });
        }
        let given_up: BTreeSet<_> = jobs.iter().filter_map(|job| job.to).collect();
        debug_assert!(
            given_up.len() == jobs.iter().filter(|job| job.to.is_some()).count(),
            "no member gets two slots of a set"
        );
        let stays = |number: usize| !given_up.contains(&number);
        let hurt = hurt.into_iter().filter(|((_, member), _)| member.is_none_or(stays));
        let in_place = |((slot, to), damage)| Job { slot, to, damage, onto: Onto::Itself };
        // A copy that stays is repaired before another one of it is given up.
        hurt.map(in_place).chain(jobs).collect()
    }

    /// Returns members with a slot that another member has a copy of; the copy that remains is an
    /// intact one, if there is any.
    fn spare(&self, is_hurt: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut spare = Vec::new();
        if self.claim.is_none() {
            return spare;
        }
        for slot in 0..self.reader.geometry().members() {
            let holders = self.reader.holders_of(slot);
            let stays = holders.iter().find(|number| !is_hurt(**number)).or(holders.first());
            spare.extend(holders.iter().copied().filter(|number| Some(number) != stays));
        }
        spare
    }

    /// Carries out the jobs of a plan in order; `told` receives the result of each.
    ///
    /// # Errors
    /// Fails with the errors of `told`, or with [`Kind::Busy`] when the claim was ended.
    pub(super) fn carry_out(
        &self,
        jobs: &[Job<'_>],
        told: &mut dyn FnMut(&Job<'_>, Done) -> Result<()>,
    ) -> Result<()> {
        let mut is_all_well = true;
        for job in jobs {
            // After a failure, the copy that would be given up may be needed.
            let to = job.to.filter(|_| is_all_well || job.onto != Onto::Twin);
            let member = to.and_then(|number| self.store.member_slots.get(number)?.member.as_ref());
            let Some(member) = member else {
                told(job, Done::Homeless)?;
                continue;
            };
            let replace = match job.onto {
                Onto::Nothing => Replace::Never,
                Onto::Itself | Onto::Twin => Replace::Allowed,
            };
            if let (Onto::Twin, Some(claim)) = (job.onto, self.claim) {
                claim.confirm()?;
            }
            match lay(self.reader, job.slot, member, replace) {
                Ok(()) => told(job, Done::Written)?,
                // Another process has written something there meanwhile.
                Err(error) if error.kind() == Kind::Exists => {}
                // A full member does not count: the slot may get another member, or the pack be
                // rewritten.
                Err(error) if error.kind() == Kind::NoSpace => {
                    is_all_well = false;
                    told(job, Done::Full(error))?;
                }
                Err(error) => {
                    is_all_well = false;
                    if error.kind() == Kind::TooManyLosses && job.onto != Onto::Twin {
                        let salvaged = salvage(self.reader, job.slot, member, replace);
                        // As above.
                        salvaged.map(drop).or_else(|error| match error.kind() {
                            Kind::Exists => Ok(()),
                            _ => Err(error),
                        })?;
                    }
                    told(job, Done::Failed(error))?;
                }
            }
        }
        Ok(())
    }
}

/// Durably writes a slot's extent to a member: its own strips where they match their checksums,
/// rebuilt strips elsewhere.
///
/// # Errors
/// Fails with [`Kind::TooManyLosses`] when strips of it are beyond repair, or with the errors of
/// the member.
pub(super) fn lay(
    reader: &SetReader,
    slot: usize,
    to: &SharedMember,
    replace: Replace,
) -> Result<()> {
    let mut writer = to.create(reader.name(), replace)?;
    reader.rebuild_extent(slot, &mut *writer)?;
    writer.seal()
}

/// Durably writes what is left of a slot with strips that cannot be repaired, so that every other
/// row has its parity again. Returns the number of rows that cannot be repaired. Nothing is written
/// if no row can be repaired, or if an existing extent would be replaced by one with less readable
/// data.
///
/// # Errors
/// Fails with the errors of the member.
pub(super) fn salvage(
    reader: &SetReader,
    slot: usize,
    to: &SharedMember,
    replace: Replace,
) -> Result<u64> {
    let mut writer = to.create(reader.name(), replace)?;
    let salvaged = reader.salvage_extent(slot, &mut *writer)?;
    let is_worth_it = salvaged.sound_rows + salvaged.copied_rows > 0;
    if is_worth_it && (replace == Replace::Never || salvaged.lost_rows == 0) {
        writer.seal()?;
    }
    Ok(salvaged.copied_rows + salvaged.lost_rows)
}

/// Returns a slot that no present member has: `first` if it is such a slot.
pub(super) fn open_slot(reader: &SetReader, first: usize) -> Option<usize> {
    let slots = 0..reader.geometry().members();
    let first = Some(first).filter(|slot| slots.contains(slot));
    first.into_iter().chain(slots).find(|slot| reader.is_nowhere(*slot))
}
