//! The objects of a deletion: condemned, acknowledged, reaping and tombstone; and the void.
//!
//! Each step of a condemnation is an object of its own that is put once and never changed; its name
//! follows from its content, so no two steps have the same name and no step can be taken for
//! another. The module `store/deletion` defines the meaning of the steps and the order in which
//! they are put.

use super::envelope::{self, Object};
use pinstripe_base::error::Result;
use pinstripe_base::id::{CondemnationId, SessionId, SetId, SnapshotId, StoreId};
use pinstripe_base::wire::{Reader, Writer};

/// The largest number of packs in one condemnation; it keeps the objects small, at 16 bytes for
/// each pack.
pub const PACKS_MAX: usize = 512 << 10;
/// The largest number of snapshots in one condemnation, at 20 bytes for each.
pub const SNAPSHOTS_MAX: usize = 128 << 10;

/// What a condemnation wants to delete. The lists are sorted in ascending order, without
/// duplicates.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Lists {
    /// Packs to delete.
    pub packs: Vec<SetId>,
    /// Forgotten snapshots to delete, each with the generation of the mark that says that it is
    /// forgotten.
    pub snapshots: Vec<(SnapshotId, u32)>,
    /// Snapshots of dead writers that were never finished: an absent member may have a copy, which
    /// no reader may use.
    pub abandoned: Vec<SnapshotId>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeletionStep {
    /// No writer may begin to rely on these packs and snapshots any more; running writers have to
    /// answer which of them they use.
    Condemned(Lists),
    /// The packs of a condemnation on which a session relies.
    Ack {
        /// The session that answers the condemnation.
        session: SessionId,
        /// The condemned packs that this session needs.
        packs: Vec<SetId>,
    },
    /// The packs and snapshots of the condemnation that remain after all answers: from now on they
    /// are deleted.
    Reaping(Lists),
    /// These packs and snapshots are deleted: extents and copies of them on an absent member are
    /// garbage.
    Tombstone(Lists),
    /// Takes the name of the object that a session would have put: that session has ended.
    Void {
        /// The session.
        session: SessionId,
    },
}

impl DeletionStep {
    const fn number(&self) -> u8 {
        match self {
            DeletionStep::Condemned(_) => 1,
            DeletionStep::Ack { .. } => 2,
            DeletionStep::Reaping(_) => 3,
            DeletionStep::Tombstone(_) => 4,
            DeletionStep::Void { .. } => 5,
        }
    }
}

/// One object of a deletion.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GcObject {
    /// The store.
    pub store: StoreId,
    /// The condemnation; in a void, the name that the void takes.
    pub condemnation: CondemnationId,
    /// The session of the collector that condemned; in an answer the session that answers, in a
    /// void the session that it ends.
    pub by: SessionId,
    /// The step.
    pub step: DeletionStep,
}

/// The name of the reaping step of a condemnation, which is the point of no return.
pub fn reaping_name(condemnation: CondemnationId) -> [u8; 16] {
    hashed(3, condemnation, None)
}

fn hashed(step: u8, condemnation: CondemnationId, session: Option<SessionId>) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[step]).update(&condemnation.0);
    if let Some(session) = session {
        hasher.update(&session.0);
    }
    *hasher.finalize().as_bytes().first_chunk().expect("32 bytes have a first 16")
}

impl GcObject {
    /// The object's name. The name of a void is that of the object whose place it takes.
    pub fn name(&self) -> [u8; 16] {
        match &self.step {
            DeletionStep::Void { .. } => self.condemnation.0,
            DeletionStep::Ack { session, .. } => hashed(2, self.condemnation, Some(*session)),
            step => hashed(step.number(), self.condemnation, None),
        }
    }

    /// The framed object.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut writer = Writer::new(&mut body);
        writer.raw(&self.store.0).raw(&self.condemnation.0).raw(&self.by.0).u8(self.step.number());
        match &self.step {
            DeletionStep::Condemned(lists)
            | DeletionStep::Reaping(lists)
            | DeletionStep::Tombstone(lists) => {
                write_ids(&mut writer, &lists.packs, |id| &id.0);
                writer.varint(lists.snapshots.len() as u64);
                for (snapshot, generation) in &lists.snapshots {
                    writer.raw(&snapshot.0).u32(*generation);
                }
                write_ids(&mut writer, &lists.abandoned, |id| &id.0);
            }
            DeletionStep::Ack { session, packs } => {
                writer.raw(&session.0);
                write_ids(&mut writer, packs, |id| &id.0);
            }
            DeletionStep::Void { session } => {
                writer.raw(&session.0);
            }
        }
        envelope::close(Object::Gc, &body)
    }

    /// Reads a framed object of deletion.
    ///
    /// # Errors
    /// Fails with the errors of [`envelope::open`]; lists that are out of order are refused.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(envelope::open(Object::Gc, bytes)?, "gc object");
        let store = StoreId(reader.array()?);
        let condemnation = CondemnationId(reader.array()?);
        let by = SessionId(reader.array()?);
        let step = match reader.u8()? {
            1 => DeletionStep::Condemned(read_lists(&mut reader)?),
            2 => DeletionStep::Ack {
                session: SessionId(reader.array()?),
                packs: read_ids(&mut reader, SetId)?,
            },
            3 => DeletionStep::Reaping(read_lists(&mut reader)?),
            4 => DeletionStep::Tombstone(read_lists(&mut reader)?),
            5 => DeletionStep::Void { session: SessionId(reader.array()?) },
            other => return Err(reader.corrupt(format!("the step of deletion {other} is unknown"))),
        };
        reader.finish()?;
        Ok(GcObject { store, condemnation, by, step })
    }
}

fn write_ids<T>(writer: &mut Writer<'_>, ids: &[T], bytes: impl Fn(&T) -> &[u8; 16]) {
    writer.varint(ids.len() as u64);
    for id in ids {
        writer.raw(bytes(id));
    }
}

fn read_ids<T: Ord>(reader: &mut Reader<'_>, id: impl Fn([u8; 16]) -> T) -> Result<Vec<T>> {
    let ids =
        (0..reader.count(16)?).map(|_| Ok(id(reader.array()?))).collect::<Result<Vec<T>>>()?;
    if !ids.is_sorted_by(|left, right| left < right) {
        return Err(reader.corrupt("a list of ids is not in order"));
    }
    Ok(ids)
}

fn read_lists(reader: &mut Reader<'_>) -> Result<Lists> {
    let packs = read_ids(reader, SetId)?;
    let snapshots = (0..reader.count(20)?)
        .map(|_| Ok((SnapshotId(reader.array()?), reader.u32()?)))
        .collect::<Result<Vec<_>>>()?;
    if !snapshots.is_sorted_by(|left, right| left.0 < right.0) {
        return Err(reader.corrupt("a list of ids is not in order"));
    }
    Ok(Lists { packs, snapshots, abandoned: read_ids(reader, SnapshotId)? })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ids<T>(make: fn([u8; 16]) -> T) -> impl Strategy<Value = Vec<T>>
    where
        T: std::fmt::Debug,
    {
        prop::collection::btree_set(any::<[u8; 16]>(), 0..5)
            .prop_map(move |set| set.into_iter().map(make).collect())
    }

    fn lists() -> impl Strategy<Value = Lists> {
        let marked = prop::collection::btree_map(any::<[u8; 16]>(), any::<u32>(), 0..5);
        (ids(SetId), marked, ids(SnapshotId)).prop_map(|(packs, marked, abandoned)| {
            let snapshots = marked.into_iter().map(|(id, at)| (SnapshotId(id), at)).collect();
            Lists { packs, snapshots, abandoned }
        })
    }

    fn step() -> impl Strategy<Value = DeletionStep> {
        let session = any::<[u8; 16]>().prop_map(SessionId);
        prop_oneof![
            lists().prop_map(DeletionStep::Condemned),
            (session.clone(), ids(SetId))
                .prop_map(|(session, packs)| DeletionStep::Ack { session, packs }),
            lists().prop_map(DeletionStep::Reaping),
            lists().prop_map(DeletionStep::Tombstone),
            session.prop_map(|session| DeletionStep::Void { session }),
        ]
    }

    proptest! {
        #[test]
        fn a_step_comes_back(store: [u8; 16], name: [u8; 16], by: [u8; 16], step in step()) {
            let object = GcObject {
                store: StoreId(store), condemnation: CondemnationId(name), by: SessionId(by), step,
            };
            prop_assert_eq!(GcObject::decode(&object.encode()).unwrap(), object);
        }

        #[test]
        fn arbitrary_bodies_never_panic(bytes: Vec<u8>) {
            let _ = GcObject::decode(&bytes);
            let _ = GcObject::decode(&envelope::close(Object::Gc, &bytes));
        }
    }

    #[test]
    fn every_step_has_a_name_of_its_own() {
        let lists = Lists::default;
        let session = |n| SessionId([n; 16]);
        let steps = [
            DeletionStep::Condemned(lists()),
            DeletionStep::Reaping(lists()),
            DeletionStep::Tombstone(lists()),
            DeletionStep::Ack { session: session(1), packs: Vec::new() },
            DeletionStep::Ack { session: session(2), packs: Vec::new() },
        ];
        let object = |step| GcObject {
            store: StoreId([1; 16]),
            condemnation: CondemnationId([2; 16]),
            by: session(3),
            step,
        };
        let names: BTreeSet<_> = steps.into_iter().map(|step| object(step).name()).collect();
        assert_eq!(names.len(), 5);
        assert!(names.contains(&reaping_name(CondemnationId([2; 16]))));
        let packs = vec![SetId([2; 16]), SetId([1; 16])];
        let wrong = object(DeletionStep::Condemned(Lists { packs, ..Lists::default() }));
        assert!(GcObject::decode(&wrong.encode()).is_err(), "lists ascend");
    }
}
