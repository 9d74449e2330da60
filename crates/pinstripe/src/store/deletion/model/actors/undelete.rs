//! An undelete: it puts its session first, then checks whether it is too late.

use super::super::{Flaw, World};
use super::{Actor, Next};
use crate::store::deletion::decide::is_too_late;
use pinstripe_base::id::{SessionId, SnapshotId};
use pinstripe_member::session::Work;

/// Makes a forgotten snapshot wanted again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Undelete {
    id: SessionId,
    snapshot: SnapshotId,
    /// Steps done.
    at: u8,
    generation: u32,
}

impl Undelete {
    pub fn new(number: u8, snapshot: SnapshotId) -> Self {
        Undelete { id: SessionId([80 + number; 16]), snapshot, at: 0, generation: 0 }
    }

    pub(super) fn steps(&self, world: &World) -> Next {
        const END: u8 = 5;
        let mut next = Vec::new();
        if self.at > END {
            return next;
        }
        let (mut ahead, mut undelete) = (world.clone(), self.clone());
        undelete.at += 1;
        match self.at {
            0 => undelete.generation = world.marks.generation(self.snapshot),
            1 => ahead.begin(self.id, Work::Undelete, [99; 16], vec![self.snapshot]),
            2 => {
                let (reaping, tombstones) = (world.cases.reaping(), world.cases.tombstones());
                let is_late = is_too_late(self.snapshot, reaping, tombstones);
                if is_late && world.flaw != Flaw::Careless {
                    undelete.at = END;
                }
            }
            3 => {
                if !world.snapshots.contains_key(&self.snapshot) {
                    undelete.at = END;
                }
            }
            4 => {
                ahead.marks.add(self.snapshot, self.generation + 1);
                ahead.promised.insert(self.snapshot);
            }
            _ => drop(ahead.sessions.remove(&self.id)),
        }
        next.push((ahead, Actor::Undelete(undelete)));
        if self.at > 1
            && let Some(ahead) = world.after_death(self.id)
        {
            let dead = Undelete { at: END + 1, ..self.clone() };
            next.push((ahead, Actor::Undelete(dead)));
        }
        next
    }
}
