//! The actors of the model: writers, collectors, undelete, forget, and a process that ends
//! sessions.

mod collector;
mod fence;
mod undelete;
mod writer;

pub use collector::Collector;
pub use fence::Fence;
pub use undelete::Undelete;
pub use writer::Writer;

use super::World;
use pinstripe_base::id::SnapshotId;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Actor {
    Writer(Writer),
    Collector(Collector),
    Undelete(Undelete),
    /// Forgets a snapshot; the flag says whether it has done so.
    Forget(SnapshotId, bool),
    Fence(Fence),
}

type Next = Vec<(World, Actor)>;

impl Actor {
    pub fn steps(&self, world: &World) -> Next {
        match self {
            Actor::Writer(writer) => writer.steps(world),
            Actor::Collector(collector) => collector.steps(world),
            Actor::Undelete(undelete) => undelete.steps(world),
            Actor::Forget(_, true) => Vec::new(),
            Actor::Forget(id, _) => {
                let mut next = world.clone();
                if !next.marks.is_forgotten(*id) {
                    next.marks.add(*id, next.marks.generation(*id) + 1);
                }
                vec![(next, Actor::Forget(*id, true))]
            }
            Actor::Fence(fence) => fence.steps(world),
        }
    }
}
