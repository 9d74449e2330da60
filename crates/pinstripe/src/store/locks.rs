//! The order in which the locks of an open store may be taken (`pinstripe_base::ranked`).

/// A mutex of an open store.
pub(super) type RankedMutex<T> = pinstripe_base::ranked::RankedMutex<StoreLock, T>;
/// A read-write lock of an open store.
pub(super) type RankedRwLock<T> = pinstripe_base::ranked::RankedRwLock<StoreLock, T>;

pinstripe_base::lock_ranks! {
    /// The locks of an open store, outermost first. Only the lock of a pack's reader is held during
    /// I/O: threads that need the same set wait for the one that opens it. All other locks are held
    /// only for a read or a change in memory.
    pub(super) enum StoreLock {
        /// The lock of the list of open packs.
        OpenPacks,
        /// The lock of the reader of one pack.
        PackReader,
        /// The lock of the chunks that are marked as needed.
        Marks,
        /// The lock of the steps of deletion that were seen last.
        Deletions,
        /// The lock of the runs and packs of the index.
        View,
        /// The lock of the decoded pages of the index.
        Pages,
        /// The lock of the heartbeats that were seen last.
        Sightings,
        /// The lock of the members that joined since the store was opened.
        Newcomers,
        /// The lock of the members that too few labels name.
        Unannounced,
        /// The lock of the members that failed.
        Failed,
    }
}
