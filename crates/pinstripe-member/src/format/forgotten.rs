//! A mark on a snapshot: it says that the snapshot is forgotten, or that it is kept after all. If a
//! snapshot has several marks, the one with the highest generation counts.
//!
//! Marks are only added, never changed: `forget` puts a mark of the next odd generation, undoing it
//! one of the next even generation. So a member that returns with old marks changes nothing, and
//! two processes that put marks of the same generation meant the same.

use super::envelope::{self, Object};
use pinstripe_base::error::Result;
use pinstripe_base::id::{SnapshotId, StoreId};
use pinstripe_base::wire::{Reader, Writer};

/// The highest generation at which a mark counts if only one member has it. A dishonest member can
/// forge a mark of any generation: it must not use up the generations that honest writers can put
/// after it.
const GENERATION_OF_ONE_MAX: u32 = 1 << 30;

/// Says whether a snapshot is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The store.
    pub store: StoreId,
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// The number of this mark on its snapshot: odd means forgotten, even means kept; 0 is the
    /// state without a mark.
    pub generation: u32,
}

impl Mark {
    /// Returns the name of the mark's object: there is one mark for each snapshot and generation.
    pub fn name(&self) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.snapshot.0).update(&self.generation.to_le_bytes());
        *hasher.finalize().as_bytes().first_chunk().expect("32 bytes have a first 16")
    }

    /// Whether the mark counts if only one member has it and no MAC proves its origin: it says that
    /// the snapshot is kept, and a store can have reached its generation.
    pub fn counts_on_one(&self) -> bool {
        !self.is_forgotten() && self.generation <= GENERATION_OF_ONE_MAX
    }

    /// Whether the mark says that the snapshot is not wanted any more.
    pub fn is_forgotten(&self) -> bool {
        self.generation % 2 == 1
    }

    /// The framed object.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        Writer::new(&mut body).raw(&self.store.0).raw(&self.snapshot.0).u32(self.generation);
        envelope::close(Object::Forgotten, &body)
    }

    /// Reads a framed mark.
    ///
    /// # Errors
    /// Fails with the errors of [`envelope::open`]; a generation of 0 is refused, since no writer
    /// puts it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(envelope::open(Object::Forgotten, bytes)?, "mark");
        let mark = Mark {
            store: StoreId(reader.array()?),
            snapshot: SnapshotId(reader.array()?),
            generation: reader.u32()?,
        };
        if mark.generation == 0 {
            return Err(
                reader.corrupt("the mark of a snapshot has generation 0, which is impossible")
            );
        }
        reader.finish()?;
        Ok(mark)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_mark_comes_back(store: [u8; 16], snapshot: [u8; 16], generation in 1u32..) {
            let mark =
                Mark { store: StoreId(store), snapshot: SnapshotId(snapshot), generation };
            prop_assert_eq!(Mark::decode(&mark.encode()).unwrap(), mark);
            let next = Mark { generation: generation.wrapping_add(1), ..mark };
            prop_assert_ne!(next.name(), mark.name());
        }

        #[test]
        fn arbitrary_bodies_never_panic(bytes: Vec<u8>) {
            let _ = Mark::decode(&bytes);
            let _ = Mark::decode(&envelope::close(Object::Forgotten, &bytes));
        }
    }
}
