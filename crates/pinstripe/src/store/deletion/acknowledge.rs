//! A writer's side of deletion: the packs on which it may not begin to rely, and those that it
//! needs to be kept.
//!
//! Invariants: packs are flagged as condemned before the packs in use are collected. A worker marks
//! a pack as used first and reads the condemned flag afterwards, so either its use is in the answer
//! or the worker sees the flag. An answer, once given, is the same each time it is put. A flag
//! remains for the rest of the run, since a condemnation whose objects are gone may have been
//! carried out.

use std::collections::BTreeMap;

use crate::store::Store;
use crate::store::index::Index;
use crate::store::objects::Quorum;
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::{CondemnationId, SessionId, SetId};
use pinstripe_member::gc::DeletionStep;

/// Answers condemnations for one session.
pub struct Acknowledger {
    session: SessionId,
    /// The answers of this session, and whether each was put on the members.
    given: BTreeMap<CondemnationId, (Vec<SetId>, bool)>,
}

impl Acknowledger {
    /// Returns an acknowledger without answers, for a new session.
    pub fn new(session: SessionId) -> Self {
        Acknowledger { session, given: BTreeMap::new() }
    }

    /// Looks for condemnations, flags their packs as unusable, and puts an answer to each new
    /// condemnation. The caller must call this function before its run relies on any chunk, and at
    /// intervals from then on.
    ///
    /// # Errors
    /// Fails with the errors of [`super::load`], or with the errors of the members when too few
    /// accepted an answer.
    pub fn poll(&mut self, store: &Store, index: &Index<'_>) -> Result<()> {
        // A condemnation of a gc with newer keys could not be read.
        store.refuse_older_keys()?;
        for (id, case) in super::load(store, Quorum::Backup)?.said_by_any() {
            // The index may have listed packs that were deleted before this look.
            let lists = case.condemned.iter().chain(&case.reaping).chain(&case.tombstone);
            for lists in lists.filter(|_| !self.given.contains_key(&id)) {
                index.set_condemned(&lists.packs, true);
            }
            // After the tombstone no collector waits for an answer any more.
            if case.tombstone.is_some() {
                self.given.entry(id).or_insert((Vec::new(), true));
                continue;
            }
            let Some(condemned) = case.condemned else { continue };
            // Collected once, after the flags: a put that failed is repeated with the same content.
            let answer = || (index.relied_on(&condemned.packs), false);
            let (packs, is_given) = self.given.entry(id).or_insert_with(answer);
            if *is_given {
                continue;
            }
            let step = DeletionStep::Ack { session: self.session, packs: packs.clone() };
            match super::put(store, id, self.session, step, Quorum::Backup) {
                Ok(()) => *is_given = true,
                // A void: this session was ended from outside.
                Err(error) if error.kind() == Kind::Exists => *is_given = true,
                // It existed and is gone: put by an attempt whose answer was lost, and removed by
                // the collector that has ended this condemnation since.
                Err(error) if error.kind() == Kind::NotFound => *is_given = true,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
