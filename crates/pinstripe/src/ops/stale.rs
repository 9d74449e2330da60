//! Reports of members that were absent and are back.

use std::collections::BTreeMap;

use crate::store::Store;
use crate::store::index::Stale;
use pinstripe_base::error::{Error, Kind};
use pinstripe_base::monitor::Monitor;

/// The superseded index runs were removed; the rest is for others.
pub(super) const REMOVED: &str = "the superseded index runs were removed; 'pinstripe scrub' or \
                                  'pinstripe repair' restores the objects that the member lacks";
/// Nothing was done about it.
pub(super) const UNTOUCHED: &str = "the other members are intact; 'pinstripe scrub' or 'pinstripe \
                                    repair' updates this member";
/// All is being done about it.
pub(super) const UPDATED: &str = "this member is being brought up to date";

const BEHIND: &str = "the listings of this member's endpoint are outdated or incomplete: check \
                      again later; 'pinstripe probe PLACE' tests what the endpoint supports";

/// Reports each member that was absent, with its extra and its missing objects.
pub(super) fn tell(store: &Store, stale: &BTreeMap<usize, Stale>, advice: &str, monitor: &Monitor) {
    for (number, one) in stale {
        let advice = if one.lists_too_little() { BEHIND } else { advice };
        let what = one.describe(*number, store.is_full(*number));
        monitor.warning(
            &store.member_slots[*number].place,
            Error::new(Kind::Changed, what).advice(advice),
        );
    }
}
