//! The session object: it says that a writer is running, so that a collector waits for its answer
//! before it deletes.
//!
//! The session object names the snapshots on which the writer depends and the object that the
//! writer will put at the end; a process that ends the session from outside frees both. The
//! identity of the writer's process answers only one question: has the process certainly ended? The
//! object holds ids and numbers but no names, because it is stored in the clear.

use super::envelope::{self, Object};
use pinstripe_base::byte_enum;
use pinstripe_base::error::Result;
use pinstripe_base::id::{SessionId, SnapshotId, StoreId};
use pinstripe_base::wire::{Reader, Writer};

byte_enum! {
    /// What a writer is doing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Work {
        /// The writer makes a snapshot.
        Backup = 1,
        /// The writer deletes data, and repacks what is still needed into new packs.
        Collect = 2,
        /// The writer makes a forgotten snapshot wanted again.
        Undelete = 3,
        /// The writer redistributes packs over other members.
        Rebalance = 4,
    }
}

impl Work {
    /// The verb, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Backup => "backup",
            Work::Collect => "gc",
            Work::Undelete => "undelete",
            Work::Rebalance => "rebalance",
        }
    }
}

/// A process, as identified for another process on the same boot of the same machine, which can
/// then tell whether it still runs. Zeros where the system does not report a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Process {
    /// Hash of the machine's id.
    pub machine: [u8; 16],
    /// The kernel's id of the boot in which the process ran.
    pub boot: [u8; 16],
    /// The PID namespace of the process.
    pub namespace: u64,
    /// The number.
    pub pid: u32,
    /// When the process started, in kernel ticks since boot.
    pub started_ticks: u64,
}

/// A running writer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Session {
    /// The store that the session writes to.
    pub store: StoreId,
    /// The name.
    pub id: SessionId,
    /// The work.
    pub work: Work,
    /// The name of the object that the session will put at the end: a snapshot, or the step of a
    /// deletion that is the point of no return. A process that ends the session from outside first
    /// puts a void under this name.
    pub commit: [u8; 16],
    /// Snapshots that must not be deleted while the session runs.
    pub parents: Vec<SnapshotId>,
    /// The process.
    pub process: Process,
}

/// The number of random bytes in the id of a session with heartbeats; the remaining bytes follow
/// from them.
pub(crate) const DRAWN_BYTES: usize = 12;

/// Makes the id of a session whose writer puts heartbeats from random bytes: the last 4 bytes of
/// the id are a hash of the others. Ids from earlier versions are entirely random and look like
/// such an id by chance once in 2^32 times; a session with such an id can be ended while its writer
/// runs.
pub fn id_with_heartbeats(drawn: [u8; DRAWN_BYTES]) -> SessionId {
    let mut id = [0; SessionId::LEN];
    id[..DRAWN_BYTES].copy_from_slice(&drawn);
    let hash = blake3::derive_key("pinstripe 2026 id of a session with heartbeats", &drawn);
    id[DRAWN_BYTES..].copy_from_slice(&hash[..SessionId::LEN - DRAWN_BYTES]);
    SessionId(id)
}

impl Session {
    /// Whether the session's writer puts heartbeats while it is running, so that silence means that
    /// it is not.
    pub fn has_heartbeats(&self) -> bool {
        let drawn = self.id.0.first_chunk::<DRAWN_BYTES>();
        drawn.is_some_and(|drawn| id_with_heartbeats(*drawn) == self.id)
    }

    /// The framed object.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut writer = Writer::new(&mut body);
        writer.raw(&self.store.0).raw(&self.id.0).u8(self.work as u8).raw(&self.commit);
        writer.varint(self.parents.len() as u64);
        for parent in &self.parents {
            writer.raw(&parent.0);
        }
        let Process { machine, boot, namespace, pid, started_ticks } = &self.process;
        writer.raw(machine).raw(boot).u64(*namespace).u32(*pid).u64(*started_ticks);
        envelope::close(Object::Session, &body)
    }

    /// Reads a framed session.
    ///
    /// # Errors
    /// Fails with the errors of [`envelope::open`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(envelope::open(Object::Session, bytes)?, "session object");
        let store = StoreId(reader.array()?);
        let id = SessionId(reader.array()?);
        let work = reader.u8()?;
        let work = Work::from_byte(work).ok_or_else(|| {
            reader.corrupt(format!("the kind of work {work} of the session is unknown"))
        })?;
        let commit = reader.array()?;
        let parents = (0..reader.count(SnapshotId::LEN)?)
            .map(|_| Ok(SnapshotId(reader.array()?)))
            .collect::<Result<_>>()?;
        let process = Process {
            machine: reader.array()?,
            boot: reader.array()?,
            namespace: reader.u64()?,
            pid: reader.u32()?,
            started_ticks: reader.u64()?,
        };
        reader.finish()?;
        Ok(Session { store, id, work, commit, parents, process })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_session_comes_back(
            ids: [u8; 16], commit: [u8; 16], work in 1u8..=4, pid: u32, ticks: u64,
            parents in prop::collection::vec(any::<[u8; 16]>(), 0..4),
        ) {
            let process = Process {
                machine: ids, boot: commit, namespace: ticks ^ 7, pid, started_ticks: ticks,
            };
            let session = Session {
                store: StoreId(commit),
                id: SessionId(ids),
                work: Work::from_byte(work).unwrap(),
                commit,
                parents: parents.into_iter().map(SnapshotId).collect(),
                process,
            };
            prop_assert_eq!(Session::decode(&session.encode()).unwrap(), session);
        }

        #[test]
        fn ids_tell_whether_there_are_heartbeats(drawn: [u8; 12], at in 0usize..16) {
            let session = |id| Session {
                store: StoreId([0; 16]),
                id,
                work: Work::Backup,
                commit: [0; 16],
                parents: Vec::new(),
                process: Process::default(),
            };
            let id = id_with_heartbeats(drawn);
            prop_assert!(session(id).has_heartbeats());
            let mut other = id;
            other.0[at] ^= 1;
            prop_assert!(!session(other).has_heartbeats());
        }

        #[test]
        fn arbitrary_bodies_never_panic(bytes: Vec<u8>) {
            let _ = Session::decode(&bytes);
            let _ = Session::decode(&envelope::close(Object::Session, &bytes));
        }
    }
}
