//! A shared handle of a member is a member itself: so a wrapper may hold either.

use std::sync::Arc;

use crate::Member;

impl<M: Member + ?Sized> Member for Arc<M> {
    crate::forward_member!(
        *: create, put, put_ahead, read_at, read_at_hand, read_span, len, read_whole, list, names,
        foresee, open_ahead, delete, keep_longer, sync, sweep, caps, latency, place,
    );
}
