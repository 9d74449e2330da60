//! Finds the geometry of stripe sets in the headers of their extents: sets differ, because members
//! join and leave.

use crate::store::Store;
use pinstripe_base::id::SetId;
use pinstripe_member::ExtentName;
use pinstripe_member::stripe_set::{Geometry, HEADER_BYTES, Header};
use pinstripe_stripe::SetReader;

/// Returns the geometry of a stripe set from the first intact header among its extents on
/// `members`, or otherwise the first intact trailer; `None` when none is intact.
pub fn geometry_of(store: &Store, name: ExtentName, members: &[usize]) -> Option<Geometry> {
    let header = |number: &usize| {
        let member = store.member_slots.get(*number)?.member.as_ref()?;
        let mut block = [0; HEADER_BYTES];
        member.read_at(name, 0, &mut block).ok()?;
        let header = Header::decode(&block).ok()?;
        let is_it = matches!(name, ExtentName::In(_, id) if id == header.set.0);
        (is_it && header.store == store.config.store).then_some(header)
    };
    let found = members.iter().find_map(header).map(|header| header.geometry);
    found.or_else(|| {
        let ExtentName::In(_, id) = name else { return None };
        let reader =
            SetReader::open(&store.members_to_read(), name, store.config.store, SetId(id)).ok()?;
        Some(reader.geometry())
    })
}

/// Whether a stripe set has enough extents to be read; `members` are those that have an extent. A
/// set without an intact header counts as having enough.
pub fn has_enough(store: &Store, name: ExtentName, members: &[usize]) -> bool {
    // A set on every member that the store ever had cannot need more.
    members.len() == store.member_slots.len()
        || geometry_of(store, name, members)
            .map_or(!members.is_empty(), |geometry| members.len() >= geometry.data())
}

/// Whether a pack that no index run lists was left by a backup that was interrupted while sealing
/// it: too few `members` have an extent for it to be read. A pack without an intact header or
/// trailer cannot be read either; it counts as such a leftover unless every member has an extent of
/// it, which suggests damage.
pub(crate) fn is_leftover(store: &Store, set: SetId, members: &[usize]) -> bool {
    let all = store.member_slots.iter().filter(|slot| slot.row.is_some()).count();
    match geometry_of(store, ExtentName::pack(set), members) {
        Some(geometry) => members.len() < geometry.data(),
        None => members.len() < all,
    }
}
