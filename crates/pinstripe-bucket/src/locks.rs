//! The order of the locks of members in buckets (`pinstripe_base::ranked`).

pub(crate) use pinstripe_base::ranked::Ranked;

/// A mutex of this crate.
pub(crate) type RankedMutex<T> = pinstripe_base::ranked::RankedMutex<BucketLock, T>;

pinstripe_base::lock_ranks! {
    /// The locks of this crate, outermost first. None of these locks is held during a request.
    pub(crate) enum BucketLock {
        /// Protects the members that were opened.
        Members,
        /// Protects the endpoints that were reached.
        Endpoints,
        /// Protects the bytes of an output of `split` that are not sent yet.
        Output,
        /// Protects the list of objects that a probe left behind.
        Left,
        /// Protects the refusal that a probe met.
        Refused,
        /// Protects puts that were begun before the calls that wait for them.
        Puts,
        /// Protects the facts about a member.
        Facts,
        /// The current prefetch.
        Round,
        /// Protects the prefetched listings of a member that may still be used.
        Hints,
        /// Protects the prefetched ends of extents.
        Ends,
        /// Protects the known listings of a member.
        Known,
        /// Blocks of extents.
        Blocks,
        /// Ends of extents.
        Tails,
        /// Protects the cache on a local disk.
        Kept,
        /// Requests at once.
        Window,
        /// Protects the limit of bytes per second.
        RateLimit,
        /// Protects the credentials in force.
        Credentials,
        /// Protects the latency of an endpoint.
        Latency,
        /// Protects the state whether an endpoint answers.
        Health,
    }
}
