//! A writer's side of deletion: what it may not begin to rely on, and what it has to have.
//!
//! Invariants: packs are flagged before it is asked which of them were relied upon, so a worker
//! that looks at the flag after it marked a pack is either heard or hears; an answer, once given,
//! is the same each time it is put; a flag stays for the rest of the run, since a condemnation
//! that is gone may have been carried out.

use std::collections::BTreeMap;

use crate::error::{Kind, Result};
use crate::format::gc::Step;
use crate::id::{CondemnationId, SessionId, SetId};
use crate::store::Store;
use crate::store::index::Index;
use crate::store::objects::Reach;

/// Answers condemnations for one session.
pub struct Answers {
    session: SessionId,
    /// What was answered, and whether the answer stands on the members.
    given: BTreeMap<CondemnationId, (Vec<SetId>, bool)>,
}

impl Answers {
    /// One who has not looked yet.
    pub fn new(session: SessionId) -> Self {
        Answers { session, given: BTreeMap::new() }
    }

    /// Looks for condemnations, flags their packs as unknown, and puts an answer to each that is
    /// new. To be called before the first chunk is relied upon, and now and then from there on.
    ///
    /// # Errors
    /// Those of [`super::load`]; those of the members, when too few took an answer.
    pub fn look(&mut self, store: &Store, index: &Index<'_>) -> Result<()> {
        for (id, case) in super::load(store, Reach::Backup)?.said_by_any() {
            let lists = case.condemned.iter().chain(&case.reaping);
            for lists in lists.filter(|_| !self.given.contains_key(&id)) {
                index.set_condemned(&lists.packs, true);
            }
            let Some(condemned) = case.condemned.filter(|_| case.tombstone.is_none()) else {
                continue;
            };
            let answer = || (index.relied_on(&condemned.packs), false);
            let (packs, is_given) = self.given.entry(id).or_insert_with(answer);
            if *is_given {
                continue;
            }
            let step = Step::Ack { session: self.session, packs: packs.clone() };
            match super::put(store, id, self.session, step, Reach::Backup) {
                Ok(()) => *is_given = true,
                // A void: this session was ended from outside.
                Err(error) if error.kind() == Kind::Exists => *is_given = true,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
