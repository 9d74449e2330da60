//! What a mount is doing.

use std::path::PathBuf;
use std::sync::Arc;

use pinstripe_prefetch::{BudgetUsage, ReadersOfObject};

use super::SnapshotTree;
use super::inode::Inode;
use crate::store::Store;
use pinstripe_member::{MemberReads, ReadMeter, SharedMember, TimedMember};

/// The reads of all members of a store.
pub struct MemberMeters(Vec<(u32, PathBuf, Arc<ReadMeter>)>);

impl MemberMeters {
    /// Wraps each present member with a meter.
    pub fn put_before(store: &mut Store) -> Self {
        let mut meters = Vec::new();
        for (number, slot) in (0..).zip(&mut store.member_slots) {
            let Some(member) = slot.member.take() else { continue };
            let timed = TimedMember::new(member);
            meters.push((number, slot.place.clone(), timed.meter()));
            slot.member = Some(Arc::new(timed) as SharedMember);
        }
        MemberMeters(meters)
    }

    /// The number of each member, its place, and its reads so far.
    pub fn reads(&self) -> impl Iterator<Item = (u32, &PathBuf, MemberReads)> {
        self.0.iter().map(|(number, place, meter)| (*number, place, meter.reads()))
    }
}

impl SnapshotTree {
    /// Returns how much of the memory for content is used.
    pub fn memory(&self) -> BudgetUsage {
        self.content.usage()
    }

    /// Returns the readers of up to `files` files, each with the path in its snapshot and the size
    /// of the file; the most recently read file first.
    pub fn readers(&self, files: usize) -> Vec<(Vec<u8>, u64, ReadersOfObject)> {
        let named = |readers: ReadersOfObject| {
            let Inode::Entry { ordinal, number } = Inode::from_number(readers.object) else {
                return None;
            };
            // The readers of a forgotten snapshot are not reported.
            let found = self.entry(ordinal, number).ok()?;
            let entry = found.entry();
            Some((entry.path.clone(), entry.size, readers))
        };
        self.content.report(files).into_iter().filter_map(named).collect()
    }
}
