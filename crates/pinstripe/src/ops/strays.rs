//! Strays: objects on members that no process of this store finished writing.
//!
//! A stray is junk, an object of another store or name, an object that no holder of the keys made,
//! or one on fewer members than any writer must have reached. No reader uses a stray. `check`
//! reports strays; `repair` moves each to the kind `strays` on its member, so that it is reported
//! once and can still be examined.
//!
//! Invariants: an object that may still be in the process of being put is not set aside. Without
//! the keys of an encrypted store nothing is set aside. The copy in `strays` is durable before the
//! original is removed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::copies::{AHEAD_OBJECTS, Copies, ReadAhead};
use super::judge::judge;
use crate::store::objects::Quorum;
use crate::store::{Claim, Store, deletion, read_small, replace_small, sessions, snapshots};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SessionId, SnapshotId};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::forgotten::Mark;
use pinstripe_member::gc::DeletionStep;
use pinstripe_member::label::Encryption;
use pinstripe_member::scrub::ScrubState;
use pinstripe_member::{ExtentKind, ExtentName, SharedMember, envelope};

/// The kinds of small objects.
const KINDS: [ExtentKind; 7] = [
    ExtentKind::Keys,
    ExtentKind::Sessions,
    ExtentKind::Forgotten,
    ExtentKind::Gc,
    ExtentKind::Snapshots,
    ExtentKind::Checkpoints,
    ExtentKind::Scrub,
];

/// One stray object.
pub(super) struct Stray {
    /// The member that has the stray.
    pub member: usize,
    /// Under which name.
    pub name: ExtentName,
    /// The defect.
    pub error: Error,
    /// The object may belong to this store, but is on too few members.
    is_sound: bool,
    /// A running writer may have put the object, or an absent member may have it too.
    needs_quiet: bool,
    /// The object is complete, but was not made with the keys of this store.
    is_forged: bool,
}

impl Stray {
    /// The path.
    pub fn place(&self, store: &Store) -> PathBuf {
        store.member_slots[self.member].place.join(self.name.path())
    }
}

/// Returns all strays on the present members, except objects that a running writer may be putting;
/// `own` is the session of this process.
///
/// # Errors
/// Fails with the errors of [`Store::objects`].
pub(super) fn find(store: &Store, own: Option<SessionId>) -> Result<Vec<Stray>> {
    let mut strays = Vec::new();
    for kind in KINDS {
        let holders: Vec<_> = holders(store, kind).into_iter().collect();
        for holders in holders.chunks(AHEAD_OBJECTS) {
            let wanted = holders.iter().flat_map(|(id, members)| {
                members.iter().map(|number| (*number, ExtentName::In(kind, *id)))
            });
            let mut ahead = ReadAhead::of(store, wanted);
            for (id, holders) in holders {
                let name = ExtentName::In(kind, *id);
                strays.append(&mut among(store, name, holders, &mut ahead)?);
            }
        }
    }
    let is_quiet = || -> Result<bool> {
        let is_all_there = store.absent().next().is_none();
        Ok(is_all_there && sessions::readable_at_work(store, own, Quorum::Backup)?.is_empty())
    };
    if strays.iter().any(|stray| stray.needs_quiet) && !is_quiet()? {
        strays.retain(|stray| !stray.needs_quiet);
    }
    Ok(strays)
}

/// Returns the strays among the copies of one object.
fn among(
    store: &Store,
    name: ExtentName,
    holders: &[usize],
    ahead: &mut ReadAhead,
) -> Result<Vec<Stray>> {
    let found = holders.iter().filter_map(|member| stray(store, *member, name, ahead));
    let mut found: Vec<_> = found.collect();
    let (votes, votes_on_damage) = (store.votes(), store.votes_on_damage());
    // An object that no member can read has no effect, and its writer cannot continue from there.
    let is_spent = matches!(name, ExtentName::In(ExtentKind::Gc | ExtentKind::Sessions, _));
    for one in found.iter_mut().filter(|one| !one.is_sound && !one.is_forged) {
        one.needs_quiet = holders.len() >= votes_on_damage;
    }
    found.retain(|one| match (one.is_sound, one.needs_quiet) {
        (true, _) => holders.len() < votes,
        (false, is_on_many) => !is_on_many || is_spent,
    });
    let counts = holders.len() >= votes && !found.is_empty();
    if counts && Copies::read(store, name)?.good.is_some() {
        found.clear();
    }
    Ok(found)
}

/// Returns the members that have each object of a kind. A member that cannot be listed counts as
/// having no object.
fn holders(store: &Store, kind: ExtentKind) -> BTreeMap<[u8; 16], Vec<usize>> {
    let mut holders: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (number, member) in store.present() {
        let listed = member.list(kind).unwrap_or_default();
        listed.into_iter().for_each(|(id, _)| holders.entry(id).or_default().push(number));
    }
    holders
}

/// Decides about an object that is on too few members.
fn stray(store: &Store, member: usize, name: ExtentName, ahead: &mut ReadAhead) -> Option<Stray> {
    let ExtentName::In(kind, id) = name else { return None };
    let held = store.member_slots[member].member.as_ref()?;
    let bytes = ahead.read(member, held, name);
    let is_whole = bytes.as_ref().is_ok_and(|bytes| envelope::open_any(bytes).is_ok());
    let stray = |error: Error, is_sound: bool| {
        let is_forged = store.has_macs() && is_whole && error.kind() == Kind::Corrupt && !is_sound;
        Some(Stray { member, name, error, is_sound, needs_quiet: is_sound, is_forged })
    };
    // A scrub without the key records what it verified, without a MAC; no decision depends on it.
    let is_note = |bytes: &[u8]| {
        kind == ExtentKind::Scrub
            && ScrubState::decode(bytes).is_ok_and(|state| state.store == store.config.store)
    };
    if bytes.as_ref().is_ok_and(|bytes| is_note(bytes)) {
        return None;
    }
    let is_kept = bytes.as_ref().is_ok_and(|bytes| counts_on_one(store, name, bytes));
    match bytes.and_then(|bytes| judge(store, member, name, &bytes)) {
        Ok(()) if is_kept || !needs_votes(store, kind) => None,
        Ok(()) => stray(
            Error::new(Kind::Corrupt, "too few members have this object, so it is ignored")
                .expected(format!("at least {} members with this object", store.votes()), "fewer"),
            true,
        ),
        Err(error) if error.kind() == Kind::NotFound || error.kind().is_about_keys() => None,
        Err(_) if kind == ExtentKind::Snapshots && snapshots::is_void(store, SnapshotId(id)) => {
            None
        }
        Err(error) => stray(error, false),
    }
}

/// Whether an intact object counts even if a single member has it: a mark that keeps a snapshot,
/// and a tombstone that still hides objects which a member brought back.
fn counts_on_one(store: &Store, name: ExtentName, bytes: &[u8]) -> bool {
    let ExtentName::In(kind, id) = name else { return false };
    match kind {
        ExtentKind::Forgotten => Mark::decode(bytes).is_ok_and(|mark| mark.counts_on_one()),
        ExtentKind::Gc => deletion::read(store, id, bytes).is_ok_and(|object| match object.step {
            DeletionStep::Tombstone(lists) => lists.snapshots.iter().any(|(snapshot, _)| {
                let is_there = |member: &SharedMember| member.len(ExtentName::snapshot(*snapshot));
                store.present().any(|(_, member)| is_there(member).is_ok())
            }),
            _ => false,
        }),
        _ => false,
    }
}

/// Whether an intact object of a kind counts only if as many members have it as a writer must have
/// reached.
fn needs_votes(store: &Store, kind: ExtentKind) -> bool {
    let is_said_by_any = matches!(
        kind,
        ExtentKind::Sessions | ExtentKind::Snapshots | ExtentKind::Checkpoints | ExtentKind::Scrub
    );
    let is_sealed = store.config.encryption != Encryption::None;
    // Slots and rings are tried by opening, and a forged one opens nothing.
    let is_tried = is_sealed && kind == ExtentKind::Keys;
    !(is_said_by_any || store.has_macs() || is_tried)
}

/// A stray that was set aside.
struct Aside {
    stray: Stray,
    /// The name under the kind `strays`, and a description.
    name: ExtentName,
    bytes: Vec<u8>,
}

/// Sets all strays aside and reports them; returns their number. The claim prevents other processes
/// from changing the members at the same time.
///
/// # Errors
/// Fails with the errors of [`find`], or with the errors of [`Claim::confirm`]. A stray that cannot
/// be set aside is reported too.
pub(super) fn set_aside(store: &Store, claim: &Claim, monitor: &Monitor) -> Result<u64> {
    let strays = find(store, Some(claim.session()))?;
    let may_be_moved = !store.is_locked();
    let mut moved: BTreeMap<ExtentName, Vec<Aside>> = BTreeMap::new();
    for stray in strays {
        let place = stray.place(store);
        if !may_be_moved {
            let advice = "open the store with its key to set this object aside";
            monitor.warning(place, stray.error.advice(advice));
            continue;
        }
        claim.confirm()?;
        match move_aside(store, &stray) {
            Ok((name, bytes)) => {
                moved.entry(stray.name).or_default().push(Aside { stray, name, bytes });
            }
            Err(error) => monitor.warning(place, error),
        }
    }
    let mut left = 0;
    for (name, moved) in moved {
        if moved[0].stray.is_sound && counts_by_now(store, name, &moved) {
            moved.iter().try_for_each(|one| put_back(store, one))?;
            continue;
        }
        for Aside { stray, name, .. } in moved {
            left += 1;
            let advice = format!("the object was set aside as {}", name.path());
            monitor.warning(stray.place(store), stray.error.advice(advice));
        }
    }
    Ok(left)
}

/// Whether an object was put on enough members while it was set aside, which happens because a
/// running `forget` has no session. A `forget` checks its marks once more at its end, so one of the
/// two processes sees the other.
fn counts_by_now(store: &Store, name: ExtentName, moved: &[Aside]) -> bool {
    let holders = store.present().filter(|(_, member)| member.len(name).is_ok()).count();
    holders + moved.len() >= store.votes()
}

fn put_back(store: &Store, aside: &Aside) -> Result<()> {
    let Some(member) = &store.member_slots[aside.stray.member].member else { return Ok(()) };
    replace_small(&**member, aside.stray.name, &aside.bytes)?;
    member.delete(aside.name)
}

/// Durably copies a stray to the kind `strays` on its own member, and removes the original.
/// Returns the new name under that kind, and a description.
fn move_aside(store: &Store, stray: &Stray) -> Result<(ExtentName, Vec<u8>)> {
    let Some(member) = &store.member_slots[stray.member].member else {
        return Err(Error::new(Kind::NotFound, "the member is absent"));
    };
    let bytes = read_small(&**member, stray.name)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(stray.name.path().as_bytes()).update(&bytes);
    let id = *hasher.finalize().as_bytes().first_chunk().expect("32 bytes have a first 16");
    let aside = ExtentName::In(ExtentKind::Strays, id);
    match member.put(aside, &bytes) {
        Err(error) if error.kind() == Kind::Exists => {}
        put => put?,
    }
    member.delete(stray.name)?;
    member.sync()?;
    Ok((aside, bytes))
}
