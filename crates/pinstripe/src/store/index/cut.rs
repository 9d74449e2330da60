//! The geometry of stripe sets, from the headers of their extents: sets differ, because members
//! come and go.

use crate::store::Store;
use pinstripe_base::id::SetId;
use pinstripe_member::ExtentName;
use pinstripe_member::stripe_set::{Geometry, HEADER_BYTES, Header};
use pinstripe_stripe::SetReader;

/// The geometry of a stripe set, as the first intact header says among those of its extents on
/// `members`, or else the first intact trailer; `None` when none is intact.
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

/// Whether a stripe set has as many extents as it takes to read it, `members` being those that have
/// one. A set without an intact header counts as having enough.
pub fn has_enough(store: &Store, name: ExtentName, members: &[usize]) -> bool {
    // A set on every member that the store ever had cannot need more.
    members.len() == store.member_slots.len()
        || geometry_of(store, name, members)
            .map_or(!members.is_empty(), |geometry| members.len() >= geometry.data())
}

/// Whether a pack that no index run lists was left by a backup that was interrupted while sealing
/// it: its extents on `members` are too few to read it. A pack without any sound geometry cannot be
/// read either; it is a leftover unless every member has an extent of it, which hints at damage.
pub(crate) fn is_leftover(store: &Store, set: SetId, members: &[usize]) -> bool {
    let all = store.member_slots.iter().filter(|slot| slot.row.is_some()).count();
    match geometry_of(store, ExtentName::pack(set), members) {
        Some(geometry) => members.len() < geometry.data(),
        None => members.len() < all,
    }
}
