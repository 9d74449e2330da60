//! What decides by the votes of members, carried to a member that joins.
//!
//! Marks and steps of deletion of a store without MACs count when enough members of the table have
//! them. A new member makes the table larger, so it gets them first: by the votes of the table under
//! which they were put. For the same reason what a member lacks that was away is written there before
//! the table changes.
//!
//! Never here: keys, labels and snapshots, which count on any member (`repair`).

use std::collections::BTreeSet;

use super::copies::Copies;
use crate::member::{ExtentName, Member};
use crate::store::{Store, deletion, forgotten, read_small, replace_small};
use pinstripe_base::error::Result;

/// Objects that count under the present table.
pub(super) struct Carried(Vec<(ExtentName, Vec<u8>)>);

impl Carried {
    /// Reads marks and steps of deletion, and writes marks and tombstones on every present member that
    /// lacks them.
    ///
    /// # Errors
    /// As [`Store::objects`]; those of the members.
    pub fn gather(store: &Store) -> Result<Self> {
        let marks: BTreeSet<_> = forgotten::names(store)?.into_iter().collect();
        let tombstones: BTreeSet<_> = deletion::tombstone_names(store)?.into_iter().collect();
        let names = marks.iter().copied().chain(deletion::names(store)?);
        let mut carried = Vec::new();
        for name in names {
            let copies = Copies::read(store, name)?;
            let Some(good) = copies.good else { continue };
            if marks.contains(&name) || tombstones.contains(&name) {
                for (_, member, _) in copies.unsound {
                    replace_small(&**member, name, &good)?;
                }
            }
            carried.push((name, good));
        }
        Ok(Carried(carried))
    }

    /// Writes all of it on a member that lacks it; returns how many.
    ///
    /// # Errors
    /// Those of the member.
    pub fn put_on(&self, member: &dyn Member) -> Result<u64> {
        let mut written = 0;
        for (name, bytes) in &self.0 {
            if !read_small(member, *name).is_ok_and(|there| there == *bytes) {
                replace_small(member, *name, bytes)?;
                written += 1;
            }
        }
        Ok(written)
    }
}
