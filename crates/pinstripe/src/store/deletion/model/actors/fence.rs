//! A process that ends the session of another process.

use super::super::{Flaw, World};
use super::{Actor, Next};
use crate::store::deletion::decide;
use pinstripe_base::id::SessionId;
use pinstripe_member::gc::reaping_name;
use pinstripe_member::session::Work;

/// Ends a session from outside.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fence {
    session: SessionId,
    is_done: bool,
}

impl Fence {
    pub(crate) fn of_writer(number: u8) -> Self {
        Fence { session: SessionId([number; 16]), is_done: false }
    }

    pub(crate) fn of_collector(number: u8) -> Self {
        Fence { session: SessionId([50 + number; 16]), is_done: false }
    }

    /// Putting the void and removing the session are two steps; if the snapshot exists already,
    /// nothing happens, and if the session is that of a collector past its point of no return, only
    /// the session is removed.
    pub(super) fn steps(&self, world: &World) -> Next {
        let Some(session) = world.sessions.get(&self.session).filter(|_| !self.is_done) else {
            return Vec::new();
        };
        let (mut ahead, mut fence) = (world.clone(), self.clone());
        let name = session.commit;
        let is_late = match session.work {
            Work::Backup => decide::is_over(session, &world.snapshots.keys().copied().collect()),
            _ => world
                .cases
                .0
                .iter()
                .any(|(id, case)| reaping_name(*id) == name && case.reaping.is_some()),
        };
        if is_late {
            if session.work == Work::Collect {
                ahead.sessions.remove(&self.session);
            }
            fence.is_done = true;
        } else if world.voids.contains(&name) || world.flaw == Flaw::NoVoid {
            ahead.sessions.remove(&self.session);
            fence.is_done = true;
        } else {
            ahead.voids.insert(name);
        }
        vec![(ahead, Actor::Fence(fence))]
    }
}
