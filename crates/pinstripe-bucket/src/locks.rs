//! The order of the locks of members in buckets (`pinstripe_base::ranked`).

pub(crate) use pinstripe_base::ranked::Ranked;

/// A mutex of this crate.
pub(crate) type RankedMutex<T> = pinstripe_base::ranked::RankedMutex<BucketLock, T>;

pinstripe_base::lock_ranks! {
    /// The locks of this crate, outermost first. None is held across a request.
    pub(crate) enum BucketLock {
        /// The members that were opened.
        Members,
        /// The endpoints that were reached.
        Endpoints,
        /// The bytes of an output of `split` that are not sent yet.
        Output,
        /// What a probe left behind.
        Left,
        /// The refusal that a probe met.
        Refused,
        /// Puts that were begun before they were asked for.
        Puts,
        /// Facts about a member.
        Facts,
        /// The current prefetch.
        Round,
        /// The listings of it that may still be taken.
        Glances,
        /// The ends of extents that are prefetched.
        Ends,
        /// The known contents of a member's rooms.
        Known,
        /// Blocks of extents.
        Blocks,
        /// Ends of extents.
        Tails,
        /// The cache on a local disk.
        Kept,
        /// Requests at once.
        Window,
        /// The limit of bytes a second.
        RateLimit,
        /// The latency of an endpoint.
        Latency,
        /// Whether an endpoint answers.
        Health,
    }
}
