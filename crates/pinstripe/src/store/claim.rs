//! The claim: the right to move extents and to change the table of members, which one process has
//! at a time.
//!
//! A claim is a session object. A process puts its claim first and reads all sessions afterwards,
//! so of two concurrent claimants at least one sees the other. A process that sees no other claim
//! has the right. If two claimants see each other, the one with the lower id keeps its claim and
//! reads the sessions again, a bounded number of times; the other removes its own claim. So exactly
//! one of several claimants that start at the same moment gets the right, and a holder, which never
//! removes its own claim, is never displaced. In a store that allows one writer at a time, a
//! claimant removes its claim if it sees a writer of any kind. The claim is confirmed again before
//! anything is removed: if another process has ended the claim, this process stops.
//!
//! Invariants: a claim counts only if the sessions were read after it was put and no other claim
//! was found. The claim of a process that has certainly ended is taken over. An unreadable claim
//! blocks no other process, because its owner cannot read it either and stops.
//!
//! Not in this module: waiting for the holder of the claim. Callers decide whether to wait.

use std::time::Duration;

use super::objects::Belief;
use super::sessions::{self, name_of};
use super::{Quorum, Store, read_small};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SessionId;
use pinstripe_member::session::{Session, Work};
use pinstripe_member::{ExtentKind, ExtentName, SharedMember, is_of_an_earlier_boot};

/// The number of times that a claimant checks whether a concurrent one has removed its claim, with
/// a wait between checks: in total longer than it takes to put a claim and remove it. The file
/// systems of the members wake no waiter when a claim is removed.
const LOOKS: usize = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// The claim on moving extents and changing the table of members, held until this value is dropped.
pub struct Claim {
    session: SessionId,
    name: ExtentName,
    bytes: Vec<u8>,
    /// The members on which the claim was put.
    members: Vec<SharedMember>,
}

impl Store {
    /// Claims the right to move extents and to change the table of members.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when another process has the claim, or had it since this store was
    /// opened and changed the table or upgraded the store, with [`Kind::Unsupported`] for a session
    /// of a newer version, or with the errors of the members when too few of them accept the claim.
    pub fn claim(&self) -> Result<Claim> {
        let claim = self.claim_to_upgrade()?;
        // A label or a key of the old format would replace one of the new.
        self.refuse_finished_upgrade()?;
        Ok(claim)
    }

    /// Like [`claim`](Self::claim), for an upgrade, which may also resume an interrupted one.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub(crate) fn claim_to_upgrade(&self) -> Result<Claim> {
        let session = Session {
            store: self.config.store,
            id: SessionId(self.new_name()?),
            work: Work::Rebalance,
            commit: self.new_name()?,
            parents: Vec::new(),
            process: self.process(),
        };
        let name = name_of(session.id);
        let bytes = self.vouch(name, session.encode());
        let members = self.present().map(|(_, member)| member.clone()).collect();
        // Built before the put, so that dropping it removes the copies of a put that fails midway.
        let claim = Claim { session: session.id, name, bytes, members };
        self.put_all(name, &claim.bytes, Quorum::Backup)?;
        let mut looks = 0;
        while let Some(other) = self.other_claim(session.id)? {
            looks += 1;
            // The lower id stays: the other claimant sees it and gives way, unless it already holds
            // the right. A holder never gives way, so the number of checks is bounded.
            if other.id < session.id || looks == LOOKS {
                return Err(has_the_right(&other));
            }
            clock::sleep(BETWEEN_LOOKS);
        }
        if self.has_one_writer() {
            sessions::refuse_others(self, &session)?;
        }
        // Another claimant may have taken this process for dead while it waited.
        claim.confirm()?;
        // If the only member was replaced, this process may know only the old directory.
        self.confirm_labels()?;
        // No rotation begins while a claim is held; an earlier one may have changed the keys.
        self.refuse_older_keys()?;
        // The holder before this one may have changed the table since the store was opened; a
        // change based on the old table would undo that.
        self.confirm_table()?;
        Ok(claim)
    }

    /// Returns the claim with the lowest id of another process that may still be running. Claims of
    /// processes that have ended are removed first.
    fn other_claim(&self, own: SessionId) -> Result<Option<Session>> {
        let read = |id, bytes: &[u8]| sessions::read(self, id, bytes);
        let found = self.objects(ExtentKind::Sessions, Quorum::Backup, Belief::One, read)?;
        let found = found.sound.into_values();
        let mut others: Vec<Session> = Vec::new();
        for other in found.filter(|it| it.work == Work::Rebalance && it.id != own) {
            let process = self.process();
            // One of an earlier boot may be that of a copied machine; it then finds its claim gone.
            if sessions::is_dead(&other, &process)
                || is_of_an_earlier_boot(&other.process, &process)
            {
                self.delete_all(name_of(other.id))?;
            } else {
                others.push(other);
            }
        }
        Ok(others.into_iter().min_by_key(|it| it.id))
    }
}

/// Returns the error for a valid claim of another process.
fn has_the_right(other: &Session) -> Error {
    Error::new(
        Kind::Busy,
        "another process is moving extents of packs, changing members, or repairing the store",
    )
    .at(name_of(other.id).path())
    .advice(
        "let the other process finish, then run this command again, or use --wait; if that process \
         ran on a machine that has stopped, remove this file from all members",
    )
}

impl Claim {
    /// The session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Verifies that no other process has ended this claim.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when another process has ended it, or when no member has the
    /// claim.
    pub fn confirm(&self) -> Result<()> {
        let stands = |member: &SharedMember| {
            read_small(&**member, self.name).is_ok_and(|it| it == self.bytes)
        };
        if self.members.iter().any(stands) {
            return Ok(());
        }
        Err(Error::new(Kind::Busy, "another process took over the right to move extents of packs")
            .at(self.name.path())
            .advice("run this command again: it continues where it stopped"))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for member in &self.members {
            // A claim that cannot be removed now has ended when this process ends.
            let _ = member.delete(self.name).and_then(|()| member.sync());
        }
    }
}
