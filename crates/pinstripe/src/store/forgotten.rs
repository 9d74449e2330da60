//! Which snapshots are wanted no more: the marks, read and put.
//!
//! Of all marks on a snapshot the highest generation holds (`format/forgotten.rs`), so nothing has
//! to be removed to take a mark back, and members that were away change nothing.

use std::collections::BTreeMap;

use crate::error::{Error, Kind, Result};
use crate::format::forgotten::Mark;
use crate::format::gc::{GcObject, Step};
use crate::id::SnapshotId;
use crate::member::{ExtentName, Room};

use super::Store;
use super::objects::Reach;

/// The generation that holds of each marked snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Marks(pub BTreeMap<SnapshotId, u32>);

impl Marks {
    /// Takes note of a mark.
    pub fn add(&mut self, snapshot: SnapshotId, generation: u32) {
        let known = self.0.entry(snapshot).or_insert(generation);
        *known = generation.max(*known);
    }

    /// The generation that holds; 0 when nobody ever said anything.
    pub fn generation(&self, snapshot: SnapshotId) -> u32 {
        self.0.get(&snapshot).copied().unwrap_or(0)
    }

    /// Whether the snapshot is wanted no more.
    pub fn is_forgotten(&self, snapshot: SnapshotId) -> bool {
        self.generation(snapshot) % 2 == 1
    }
}

/// Reads all marks. One whose every copy is damaged is as if it had not been put: a snapshot too
/// many is no loss.
///
/// # Errors
/// As [`Store::objects`].
pub fn load(store: &Store, reach: Reach) -> Result<Marks> {
    let found =
        store.objects(Room::Forgotten, reach, |name, bytes| read_mark(store, name, bytes))?;
    let mut marks = Marks::default();
    for Mark { snapshot, generation, .. } in found.sound.into_values().flatten() {
        marks.add(snapshot, generation);
    }
    Ok(marks)
}

/// Reads one mark, or the void in its place.
///
/// # Errors
/// [`Kind::Corrupt`] for anything else.
pub fn read_mark(store: &Store, name: [u8; 16], bytes: &[u8]) -> Result<Option<Mark>> {
    match Mark::decode(bytes) {
        Ok(mark) if mark.name() == name && mark.store == store.config.store => Ok(Some(mark)),
        Ok(_) => Err(Error::new(Kind::Corrupt, "this mark has another name")),
        Err(error) => match GcObject::decode(bytes) {
            Ok(GcObject { step: Step::Void { .. }, condemnation, .. })
                if condemnation.0 == name =>
            {
                Ok(None)
            }
            _ => Err(error),
        },
    }
}

/// The mark that says the contrary of the one that holds.
pub fn next_mark(store: &Store, marks: &Marks, snapshot: SnapshotId) -> Mark {
    let generation = marks.generation(snapshot) + 1;
    Mark { store: store.config.store, snapshot, generation }
}

/// Puts a mark.
///
/// # Errors
/// [`Kind::Exists`] when its session was ended from outside; those of the members.
pub fn put(store: &Store, mark: &Mark) -> Result<()> {
    store.put_all(ExtentName::In(Room::Forgotten, mark.name()), &mark.encode(), Reach::Backup)
}
