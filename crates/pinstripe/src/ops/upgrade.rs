//! `upgrade`: upgrades a store of format version 1 to version 2, in place.
//!
//! ```text
//! claim · labels of version 2 · no writer at work? · MACs behind small objects · ring of version 2
//! ```
//!
//! The members are upgraded one after the other. In an encrypted store the ring decides: the first
//! copy of the new ring makes it a store of version 2; before that, the upgrade can be undone. In a
//! store without encryption, the labels that most members have decide.
//!
//! Invariants: an object gets a MAC only if it counted before; after a crash at any step, the store
//! has version 1 or version 2, and running the command again resumes the upgrade. A writer that
//! began under version 1 is either seen by the upgrade, or sees the new labels and gives up: the
//! writer first puts its session and then reads the labels, while the upgrade first writes the
//! labels and then reads the sessions.

use std::collections::BTreeSet;

use super::copies::Copies;
use crate::store::objects::Quorum;
use crate::store::{Claim, Store, read_small, replace_small, sessions, snapshots};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::envelope::Object;
use pinstripe_member::key_ring::KeyRing;
use pinstripe_member::label::Format;
use pinstripe_member::{ExtentKind, ExtentName, SharedMember, envelope};

/// Whether to upgrade or to undo an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Upgrade to the newest version.
    Forward,
    /// Return to format version 1, if an upgrade was interrupted.
    Back,
}

/// The outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct UpgradeOutcome {
    /// The present version of the store's format.
    pub format: u8,
    /// Labels written.
    pub labels: u64,
    /// The number of other small objects written, on all members together.
    pub objects: u64,
}

/// Upgrades the store, or undoes an interrupted upgrade.
///
/// # Errors
/// Fails with [`Kind::Refused`] while a member is absent or when there is no interrupted upgrade to
/// undo, with [`Kind::Busy`] while a writer is running or another process changes the members, with
/// [`Kind::Locked`] without the key, or with the errors of the members.
pub fn run(store: &mut Store, direction: Direction) -> Result<UpgradeOutcome> {
    store.keys()?;
    require_all(store)?;
    let mut outcome = UpgradeOutcome::default();
    if store.format == Format::V2 && direction == Direction::Back {
        return Err(Error::new(Kind::Refused, "this store has format version 2 on all members")
            .advice("a completed upgrade cannot be undone"));
    }
    let claim = store.claim_to_upgrade()?;
    if store.format == Format::V1 {
        match direction {
            Direction::Forward => forward(store, &claim, &mut outcome)?,
            Direction::Back => back(store, &claim, &mut outcome)?,
        }
    } else {
        // One that was killed amid its last step.
        store.spread_keys()?;
    }
    outcome.labels += store.write_labels_with(&claim)?;
    outcome.format = store.format as u8;
    Ok(outcome)
}

fn require_all(store: &Store) -> Result<()> {
    let Some(number) = store.absent().next() else { return Ok(()) };
    Err(Error::new(
        Kind::Refused,
        format!("member {number} is absent, so the upgrade would not include it"),
    )
    .at(&store.member_slots[number].place)
    .advice(format!(
        "attach the member, or rebuild it with 'pinstripe member replace {number} --to DIR'"
    )))
}

fn forward(store: &mut Store, claim: &Claim, outcome: &mut UpgradeOutcome) -> Result<()> {
    let ring = store.chained_ring()?;
    let format = store.format;
    store.format = Format::V2;
    // From here on no writer begins; those that began before have a session.
    let labels = store.write_vouched_labels(claim, ring.as_ref().map(|ring| &ring.voucher));
    store.format = format;
    outcome.labels += labels?;
    refuse_writers(store)?;
    let Some(ring) = ring else {
        store.format = Format::V2;
        return Ok(());
    };
    let counting = counting_objects(store)?;
    let members: Vec<SharedMember> = store.present().map(|(_, member)| member.clone()).collect();
    for member in &members {
        claim.confirm()?;
        for (name, bytes) in &counting {
            let vouched = ring.voucher.vouch(*name, bytes);
            outcome.objects += u64::from(write(member, *name, &vouched)?);
        }
        member.sync()?;
    }
    refuse_writers(store)?;
    for member in &members {
        claim.confirm()?;
        outcome.objects += u64::from(write(member, ring.name, &ring.bytes)?);
        member.sync()?;
    }
    store.adopt_ring(ring);
    Ok(())
}

/// Removes MACs again after an upgrade that did not finish. The caller writes the labels
/// afterwards.
fn back(store: &Store, claim: &Claim, outcome: &mut UpgradeOutcome) -> Result<()> {
    let names = names(store)?;
    for (_, member) in store.present() {
        claim.confirm()?;
        for name in &names {
            let there = read_small(&**member, *name);
            let Ok(there) = there.and_then(|bytes| envelope::open_any(&bytes).map(|()| bytes))
            else {
                continue;
            };
            if envelope::vouched(&there).is_some() {
                let plain = envelope::without_voucher(&there);
                outcome.objects += u64::from(write(member, *name, &plain)?);
            }
        }
        member.sync()?;
    }
    Ok(())
}

/// Writes an object, unless the member has it already; returns whether it was written.
fn write(member: &SharedMember, name: ExtentName, bytes: &[u8]) -> Result<bool> {
    if read_small(&**member, name).is_ok_and(|there| there == bytes) {
        return Ok(false);
    }
    replace_small(&**member, name, bytes).map(|()| true)
}

fn refuse_writers(store: &Store) -> Result<()> {
    let at_work = sessions::at_work(store, None, Quorum::Deletion)?;
    // The claim of this process is a session, too.
    let others = at_work.iter().filter(|it| it.process != store.process());
    let others: Vec<String> = others.map(|it| it.id.short().to_string()).collect();
    if others.is_empty() {
        return Ok(());
    }
    let who = others.join(", ");
    Err(Error::new(
        Kind::Busy,
        format!(
            "processes may be writing to the store (sessions {who})"
        ),
    )
    .advice(format!(
        "wait until these processes have finished, then run this command again; to end the session \
         of a stopped machine, run 'pinstripe gc --fence {}'; to undo the upgrade, run 'pinstripe \
         upgrade --back'",
        others[0]
    )))
}

/// The kinds whose objects get MACs. Sessions get none: no other writer is running.
const KINDS: [ExtentKind; 5] = [
    ExtentKind::Keys,
    ExtentKind::Forgotten,
    ExtentKind::Gc,
    ExtentKind::Scrub,
    ExtentKind::Snapshots,
];

/// Returns the names of all objects that may have a MAC: not those of rings and snapshots.
fn names(store: &Store) -> Result<BTreeSet<ExtentName>> {
    let mut names = BTreeSet::new();
    for kind in KINDS {
        let listed = store.names(kind, Quorum::Deletion)?.into_iter();
        names.extend(listed.map(|id| ExtentName::In(kind, id)));
    }
    let is_sealed = |name: &ExtentName| {
        let is_of = |bytes: &[u8]| match KeyRing::decode(bytes) {
            Ok(_) => Ok(()),
            Err(_) if envelope::is_of(Object::Snapshot, bytes) => Ok(()),
            Err(error) => Err(error),
        };
        store.read_object(*name, is_of).is_ok()
    };
    names.retain(|name| !is_sealed(name));
    Ok(names)
}

/// Returns the objects that count, without MACs: an object that one member forged gets no MAC.
fn counting_objects(store: &Store) -> Result<Vec<(ExtentName, Vec<u8>)>> {
    let mut counting = Vec::new();
    for name in names(store)? {
        let good = match name {
            ExtentName::In(ExtentKind::Snapshots, id) => {
                let void =
                    |bytes: &[u8]| snapshots::read_void(store, id, bytes).map(|()| bytes.to_vec());
                store.read_agreed(name, void).ok()
            }
            _ => Copies::read(store, name)?.good,
        };
        let plain = good.map(|bytes| envelope::without_voucher(&bytes));
        counting.extend(plain.map(|bytes| (name, bytes)));
    }
    Ok(counting)
}
