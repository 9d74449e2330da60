//! `member remove`: a member's extents go to the others, then it is none any more.

use super::plan::{self, Emptied};
use super::{Moved, carry, finish_retiring, set_state, survey, takers};
use crate::error::{Error, Kind, Result};
use crate::format::label::MemberState;
use crate::member::ExtentName;
use crate::monitor::Monitor;
use crate::pipeline::limits::Limits;
use crate::store::{Claim, Store, geometry_over};

/// Times that the member is looked at again for what others laid there meanwhile.
const PASSES: usize = 16;

/// What became of the member.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Removed {
    /// What went to other members.
    #[serde(flatten)]
    pub moved: Moved,
    /// Members that remain.
    pub members: usize,
}

/// Takes everything off a member and strikes it out. Nothing is begun unless every extent has a
/// place to go. Cut off, running it again goes on; until then the member is read as before, and
/// gets nothing new.
///
/// # Errors
/// [`Kind::Refused`] when it is absent, or when some sets lie over all members;
/// [`Kind::TooManyLosses`] when too few would remain for the parity; [`Kind::Busy`] when another
/// process changes the members; those of the members.
pub fn remove(
    store: &mut Store,
    number: usize,
    limits: &Limits,
    monitor: &Monitor,
) -> Result<Removed> {
    let claim = store.claim()?;
    let Some(seat) = store.seats.get(number).filter(|seat| seat.row.is_some()) else {
        finish_retiring(store, &claim, number)?;
        return Ok(Removed { members: takers(store).len(), ..Removed::default() });
    };
    if seat.member.is_none() {
        return Err(Error::new(Kind::Refused, format!("member {number} is absent"))
            .at(&seat.place)
            .advice(format!(
                "attach it, or put another in its place: pinstripe member replace {number} --to DIR"
            )));
    }
    let members = takers(store).into_iter().filter(|taker| *taker != number).count();
    geometry_over(&store.config, members)?;
    let (moves, _) = plan_for(store, number, None)?;
    monitor.expect(moves.iter().map(|it| it.bytes).sum(), moves.len() as u64);
    let moved = empty(store, &claim, number, None, limits, monitor)?;
    store.retire(&claim, number)?;
    Ok(Removed { moved, members })
}

type Twins = Vec<ExtentName>;

/// What is to move, and what needs only be removed because it stands elsewhere too.
///
/// # Errors
/// [`Kind::Refused`] when anything has no place to go.
pub(super) fn plan_for(
    store: &Store,
    number: usize,
    preferred: Option<usize>,
) -> Result<(Vec<plan::Move>, Twins)> {
    let mut takers = takers(store);
    takers.retain(|taker| *taker != number);
    let Emptied { moves, homeless } = plan::empty(&survey(store)?, number, &takers, preferred);
    let (mut twins, mut stuck) = (Vec::new(), 0_u64);
    for name in homeless {
        match carry::has_twin(store, name, number)? {
            true => twins.push(name),
            false => stuck += 1,
        }
    }
    if stuck == 0 {
        return Ok((moves, twins));
    }
    let sets = if stuck == 1 { "stripe set lies" } else { "stripe sets lie" };
    Err(Error::new(
        Kind::Refused,
        format!("{stuck} {sets} over all members that would remain, too"),
    )
    .expected("a member without a part of each", "none")
    .advice("nothing was changed; add a member first: pinstripe member add DIR"))
}

/// Moves everything off a member that gets nothing new any more, until nothing is left and
/// nobody may rely on what comes later.
///
/// The order is what keeps a backup safe that opened the store before: it makes its packs
/// durable, then looks whether the member has left, then commits. Here the member has left first,
/// and then it is looked at once more. So either that look finds the packs, or the backup sees
/// that the member has left and does not commit.
pub(super) fn empty(
    store: &mut Store,
    claim: &Claim,
    number: usize,
    preferred: Option<usize>,
    limits: &Limits,
    monitor: &Monitor,
) -> Result<Moved> {
    let mut moved = Moved::default();
    for state in [MemberState::Leaving, MemberState::Left] {
        set_state(store, claim, number, state)?;
        for pass in 0.. {
            let (moves, twins) = plan_for(store, number, preferred)?;
            if moves.is_empty() && twins.is_empty() {
                break;
            }
            if pass == PASSES {
                return Err(Error::new(Kind::Busy, "other processes keep writing to the member")
                    .advice("let the backups end that began before, then run this again"));
            }
            moved += carry::moves(store, claim, &moves, limits, monitor)?;
            for name in twins {
                moved += carry::drop_copy(store, claim, name, number)?;
            }
        }
    }
    Ok(moved)
}
