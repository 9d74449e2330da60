//! `member remove`: moves a member's extents to the other members, then removes it from the table.

use std::collections::{BTreeMap, HashSet};

use super::plan::{self, Emptied};
use super::{Moved, carry, finish_retiring, set_state, survey, takers, width_of};
use crate::ops::gc;
use crate::ops::repair::{self, RepairOutcome, anew};
use crate::pipeline::limits::Limits;
use crate::store::index::Index;
use crate::store::{Claim, Store, geometry_over};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::label::MemberState;
use pinstripe_member::{ExtentKind, ExtentName};

/// The number of times that the member is listed again for extents that others put there in the
/// meantime.
const PASSES: usize = 16;

/// The outcome.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct RemoveOutcome {
    /// The moves to other members.
    #[serde(flatten)]
    pub moved: Moved,
    /// Members that remain.
    pub members: usize,
}

/// Empties a member and removes it from the table. Extents are moved unchanged to members that have
/// none of their set; sets over all members are rewritten over the remaining ones. If the command
/// is interrupted, running it again resumes; until then the member is read as before, but gets
/// nothing new.
///
/// # Errors
/// Fails with [`Kind::Refused`] when it is absent, or when sets are striped over all members and
/// some are absent, with [`Kind::Locked`] when sets have to be rewritten and the key is not
/// available, with [`Kind::TooManyLosses`] when too few would remain for the parity, with
/// [`Kind::Busy`] when another process changes the members, or with the errors of the members.
pub fn remove(
    store: &mut Store,
    number: usize,
    limits: &Limits,
    monitor: &Monitor,
) -> Result<RemoveOutcome> {
    let claim = store.claim()?;
    let Some(member_slot) =
        store.member_slots.get(number).filter(|member_slot| member_slot.row.is_some())
    else {
        finish_retiring(store, &claim, number)?;
        return Ok(RemoveOutcome {
            members: takers(store).members.len(),
            ..RemoveOutcome::default()
        });
    };
    if member_slot.member.is_none() {
        return Err(Error::new(Kind::Refused, format!("member {number} is absent"))
            .at(&member_slot.place)
            .advice(format!(
                "attach the member, or replace it with 'pinstripe member replace {number} --to \
                 DIR'"
            )));
    }
    let members = takers(store).members.into_iter().filter(|taker| *taker != number).count();
    geometry_over(&store.config, members)?;
    let DrainingMember { moves, stuck, .. } = plan_for(store, number, None)?;
    refuse_stuck(store, &stuck)?;
    monitor.set_total(moves.iter().map(|it| it.bytes).sum(), moves.len() as u64);
    let moved = empty(store, &claim, number, None, limits, monitor)?;
    take_over_objects(store, monitor)?;
    anew::rewrite_short_packs(store, limits, monitor)?;
    store.retire(&claim, number)?;
    Ok(RemoveOutcome { moved, members })
}

/// The extents of a member, by what is done with them.
pub(super) struct DrainingMember {
    /// Extents that move to another member.
    pub moves: Vec<plan::Move>,
    /// Extents that another member has too.
    twins: Vec<ExtentName>,
    /// Sets that all other members have an extent of too: they are rewritten.
    stuck: Vec<ExtentName>,
}

/// Lists the extents of a member, and plans where they move.
///
/// # Errors
/// Fails when a member cannot be listed.
pub(super) fn plan_for(
    store: &Store,
    number: usize,
    preferred: Option<usize>,
) -> Result<DrainingMember> {
    let mut takers = takers(store);
    takers.members.retain(|taker| *taker != number);
    // A member that was chosen to take everything either has room for it, or is full with an error.
    if let Some(number) = preferred {
        takers.room_bytes.remove(&number);
    }
    let spreads = survey(store)?;
    // A member that no longer answers is not surveyed: it may have extents.
    if store.silent().any(|silent| silent == number) {
        return Err(store.absence(number));
    }
    let Emptied { mut moves, homeless } = plan::empty(&spreads, number, &takers, preferred);
    let (mut twins, mut stuck) = (Vec::new(), Vec::new());
    // A set with more slots than members remain would lack a slot for good, which no repair could
    // write. A set that lacks an extent already, on a member that is absent, could lose a second
    // one with that member if this extent went there.
    let absent = store.absent().count();
    let places = takers.members.len() + absent;
    let spreads: BTreeMap<_, _> = spreads.iter().map(|it| (it.name, it)).collect();
    moves.retain(|one| {
        // A new member takes this one's slot: the set lacks as much as before.
        if Some(one.to) == preferred {
            return true;
        }
        let spread = spreads[&one.name];
        // Index runs are derived.
        let is_pack = matches!(one.name, ExtentName::In(ExtentKind::Packs, _));
        let is_fit = |width: usize| width <= places && width <= spread.holders.len() + absent;
        let fits = !is_pack || width_of(store, spread).is_none_or(is_fit);
        if !fits {
            stuck.push(one.name);
        }
        fits
    });
    for name in homeless {
        match carry::has_twin(store, name, number)? {
            true => twins.push(name),
            false => stuck.push(name),
        }
    }
    Ok(DrainingMember { moves, twins, stuck })
}

/// Sets are rewritten as gc rewrites packs, which requires the key and all members.
fn refuse_stuck(store: &Store, stuck: &[ExtentName]) -> Result<()> {
    if stuck.is_empty() {
        return Ok(());
    }
    store.keys()?;
    if store.absent().next().is_none() {
        return Ok(());
    }
    let sets =
        pinstripe_base::units::counted(stuck.len() as u64, "stripe set uses", "stripe sets use");
    Err(Error::new(
        Kind::Refused,
        format!("{sets} all remaining members, so the extents on this member cannot be moved"),
    )
    .expected(
        "that all members are present, so that these stripe sets can be rewritten",
        "that some members are absent",
    )
    .advice("nothing was changed; attach or replace the absent members before you remove a member"))
}

fn cannot_be_laid_anew(stuck: &[ExtentName]) -> Error {
    let sets = pinstripe_base::units::counted(stuck.len() as u64, "stripe set", "stripe sets");
    Error::new(Kind::Refused, format!("{sets} of the member cannot be rewritten"))
        .at(stuck[0].path())
        .advice(
            "run 'pinstripe check', then 'pinstripe repair', and try again; 'pinstripe gc' removes \
         data that only forgotten snapshots need",
        )
}

/// Rewrites sets over the remaining members, and deletes the old sets.
fn lay_anew(store: &Store, stuck: &[ExtentName], limits: &Limits, monitor: &Monitor) -> Result<()> {
    let in_room = |wanted| {
        stuck.iter().filter_map(move |name| match name {
            ExtentName::In(kind, id) if *kind == wanted => Some(SetId(*id)),
            _ => None,
        })
    };
    let packs: HashSet<SetId> = in_room(ExtentKind::Packs).collect();
    if !packs.is_empty() {
        gc::retire(store, packs, HashSet::new(), *limits, monitor)?;
    }
    if in_room(ExtentKind::Index).next().is_some() {
        let index = Index::load(store, monitor)?;
        if let Some(merge) = index.plan_full_merge() {
            index.merge(merge, &|| false)?;
        }
        index.remove_redundant()?;
    }
    Ok(())
}

/// Copies small objects that were put on a member after it was read and before the table said that
/// it has left. A writer reads the table again after it put its object, so one of the two processes
/// sees the other.
pub(super) fn take_over_objects(store: &Store, monitor: &Monitor) -> Result<u64> {
    let mut outcome = RepairOutcome::default();
    repair::small_objects(store, monitor, &mut outcome)?;
    Ok(outcome.repaired_objects)
}

/// Empties a member that gets nothing new any more, until nothing is left and no backup can rely on
/// an extent that is added later.
///
/// The order of steps protects a backup that opened the store before: that backup makes its packs
/// durable, then checks whether the member has left, then commits. The process that removes a
/// member first marks it as left, and then lists it once more. So either that listing shows the
/// packs, or the backup sees that the member has left and does not commit.
pub(super) fn empty(
    store: &mut Store,
    claim: &Claim,
    number: usize,
    preferred: Option<usize>,
    limits: &Limits,
    monitor: &Monitor,
) -> Result<Moved> {
    let (mut moved, mut last_stuck) = (Moved::default(), Vec::new());
    for state in [MemberState::Leaving, MemberState::Left] {
        set_state(store, claim, number, state)?;
        for pass in 0.. {
            let DrainingMember { moves, twins, stuck } = plan_for(store, number, preferred)?;
            if !stuck.is_empty() && stuck == last_stuck {
                return Err(cannot_be_laid_anew(&stuck));
            }
            if moves.is_empty() && twins.is_empty() && stuck.is_empty() {
                break;
            }
            if pass == PASSES {
                return Err(Error::new(
                    Kind::Busy,
                    "other processes continue to write to the member",
                )
                .advice("wait until the running backups have ended, then run this command again"));
            }
            moved += carry::moves(store, claim, &moves, limits, monitor)?;
            lay_anew(store, &stuck, limits, monitor)?;
            last_stuck = stuck;
            for name in twins {
                moved += carry::drop_copy(store, claim, name, number)?;
            }
        }
    }
    Ok(moved)
}
