//! Reports members that were absent and have returned.

use std::collections::BTreeMap;

use crate::store::Store;
use crate::store::index::Stale;
use pinstripe_base::error::{Error, Kind};
use pinstripe_base::monitor::Monitor;

/// Advice: the superseded index runs were removed; other verbs handle the rest.
pub(super) const REMOVED: &str = "the superseded index runs were removed; run 'pinstripe scrub' or \
                                  'pinstripe repair' to restore the objects that the member lacks";
/// Advice: nothing was changed on the returned member.
pub(super) const UNTOUCHED: &str = "the other members are intact; run 'pinstripe scrub' or \
                                    'pinstripe repair' to bring this member up to date";
/// Advice: the returned member is being brought up to date completely.
pub(super) const UPDATED: &str = "this member is being brought up to date";

const BEHIND: &str = "the listings of this member's endpoint are outdated or incomplete: run the \
                      command again later; 'pinstripe probe PLACE' tests what the endpoint \
                      supports";

/// Reports each member that was absent, with its superfluous and its missing objects.
pub(super) fn report(
    store: &Store,
    stale: &BTreeMap<usize, Stale>,
    advice: &str,
    monitor: &Monitor,
) {
    for (number, one) in stale {
        let advice = if one.lists_too_little() { BEHIND } else { advice };
        let what = one.describe(*number, store.is_full(*number));
        monitor.warning(
            &store.member_slots[*number].place,
            Error::new(Kind::Changed, what).advice(advice),
        );
    }
}
