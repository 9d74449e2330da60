//! The marks of snapshots that are no longer wanted: reads and puts them.
//!
//! The mark of the highest generation on a snapshot decides (`format/forgotten.rs`), so a mark is
//! reversed without removing anything, and marks of members that were absent change nothing.

use std::collections::{BTreeMap, BTreeSet};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::forgotten::Mark;
use pinstripe_member::gc::{DeletionStep, GcObject};
use pinstripe_member::{ExtentKind, ExtentName};

use super::objects::{Belief, Quorum};
use super::{Store, deletion};

/// For each marked snapshot, the generation of the mark that counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Marks(pub BTreeMap<SnapshotId, u32>);

impl Marks {
    /// Records a mark.
    pub fn add(&mut self, snapshot: SnapshotId, generation: u32) {
        let known = self.0.entry(snapshot).or_insert(generation);
        *known = generation.max(*known);
    }

    /// Records damaged marks on a snapshot: their generations follow from their names, and are not
    /// used again.
    fn pass_over(
        &mut self,
        store: &Store,
        snapshot: SnapshotId,
        taken: &BTreeMap<ExtentName, bool>,
    ) {
        let sound = self.generation(snapshot);
        let by = |generation| {
            let mark = Mark { store: store.config.store, snapshot, generation };
            let name = ExtentName::In(ExtentKind::Forgotten, mark.name());
            taken.get(&name).copied()
        };
        // A writer that meets a void skips two generations, so the one in between is never put: a
        // gap of one does not end the chain.
        let later = (sound.saturating_add(1)..u32::MAX).map_while(|generation| {
            let is_damaged = by(generation).or_else(|| by(generation + 1).map(|_| false))?;
            Some((generation, is_damaged))
        });
        if let Some((last, _)) = later.filter(|(_, is_damaged)| *is_damaged).last() {
            // Rounded up to even, which means wanted: damage never makes a snapshot deletable.
            self.add(snapshot, last + last % 2);
        }
    }

    /// Returns the generation of the mark that counts; 0 when the snapshot was never marked.
    pub fn generation(&self, snapshot: SnapshotId) -> u32 {
        self.0.get(&snapshot).copied().unwrap_or(0)
    }

    /// Counts a snapshot as forgotten, without a mark on the members.
    pub(crate) fn count_as_forgotten(&mut self, snapshot: SnapshotId) {
        if !self.is_forgotten(snapshot) {
            self.add(snapshot, self.generation(snapshot).saturating_add(1));
        }
    }

    /// Whether the snapshot is no longer wanted.
    pub fn is_forgotten(&self, snapshot: SnapshotId) -> bool {
        self.generation(snapshot) % 2 == 1
    }
}

/// Reads all marks, each from any member with an intact copy. A mark without an intact copy counts
/// as *kept*, whatever it was: an extra snapshot does no harm. For the same reason a *kept* mark
/// counts even on one member, while a *forgotten* mark counts by votes or if a deletion in progress
/// lists its snapshot.
///
/// # Errors
/// Fails with the errors of [`Store::objects`].
pub fn load(store: &Store, quorum: Quorum) -> Result<Marks> {
    let read = |name, bytes: &[u8]| read_mark(store, name, bytes);
    let found = store.objects(ExtentKind::Forgotten, quorum, Belief::Agreed, read)?;
    let mut marks = Marks::default();
    // Names that are taken by voids, and (true) by damaged objects.
    let mut taken: BTreeMap<_, bool> = BTreeMap::new();
    for (name, mark) in found.sound {
        match mark {
            Some(mark) => marks.add(mark.snapshot, mark.generation),
            None => drop(taken.insert(ExtentName::In(ExtentKind::Forgotten, name), false)),
        }
    }
    for mark in found.few.into_values().flatten().filter(Mark::counts_on_one) {
        marks.add(mark.snapshot, mark.generation);
    }
    for (snapshot, generation) in deletion::reaped_marks(store, quorum)? {
        marks.add(snapshot, generation);
    }
    let unsound = found.unsound.into_iter().map(|(name, _)| name);
    taken.extend(unsound.chain(found.doubtful).map(|name| (name, true)));
    if taken.values().any(|&is_damaged| is_damaged) {
        let there = store.list(ExtentKind::Snapshots)?.into_keys().map(SnapshotId);
        let marked = marks.0.keys().copied();
        for snapshot in there.chain(marked).collect::<BTreeSet<_>>() {
            marks.pass_over(store, snapshot, &taken);
        }
    }
    Ok(marks)
}

/// Returns the names of marks and voids that count, of *kept* marks on any number of members, and
/// of marks without an intact copy.
///
/// # Errors
/// Fails with the errors of [`Store::objects`].
pub fn names(store: &Store) -> Result<Vec<ExtentName>> {
    let read = |name, bytes: &[u8]| read_mark(store, name, bytes);
    let found = store.objects(ExtentKind::Forgotten, Quorum::Backup, Belief::Agreed, read)?;
    let is_kept = |mark: &Option<Mark>| mark.as_ref().is_some_and(Mark::counts_on_one);
    let few = found.few.into_iter().filter(|(_, mark)| is_kept(mark)).map(|(id, _)| id);
    let sound =
        found.sound.into_keys().chain(few).map(|id| ExtentName::In(ExtentKind::Forgotten, id));
    Ok(sound.chain(found.unsound.into_iter().map(|(name, _)| name)).collect())
}

/// Reads one mark, or the void that takes its place.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for anything else.
pub(crate) fn read_mark(store: &Store, name: [u8; 16], bytes: &[u8]) -> Result<Option<Mark>> {
    store.verify(ExtentName::In(ExtentKind::Forgotten, name), bytes)?;
    match Mark::decode(bytes) {
        Ok(mark) if mark.name() == name && mark.store == store.config.store => Ok(Some(mark)),
        Ok(_) => Err(Error::new(Kind::Corrupt, "the content of this mark does not match its name")),
        Err(error) => match GcObject::decode(bytes) {
            Ok(GcObject { step: DeletionStep::Void { .. }, condemnation, .. })
                if condemnation.0 == name =>
            {
                Ok(None)
            }
            _ => Err(error),
        },
    }
}

/// Returns the next mark of the snapshot, with the opposite effect of the present one.
pub(crate) fn next_mark(store: &Store, marks: &Marks, snapshot: SnapshotId) -> Mark {
    let generation = marks.generation(snapshot).saturating_add(1);
    Mark { store: store.config.store, snapshot, generation }
}

/// Puts a mark. Returns the number of members that have it.
///
/// # Errors
/// Fails with [`Kind::Exists`] when the session of the mark's writer was ended from outside, with
/// [`Kind::Corrupt`] when too many members have something else under the mark's name, or with the
/// errors of the members.
pub fn put(store: &Store, mark: &Mark) -> Result<usize> {
    let name = ExtentName::In(ExtentKind::Forgotten, mark.name());
    store.put_all_then(name, &mark.encode(), Quorum::Backup, None)
}
