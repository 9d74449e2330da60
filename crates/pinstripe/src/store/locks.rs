//! The order of the locks of an open store (`pinstripe_base::ranked`).

/// A mutex of an open store.
pub(super) type RankedMutex<T> = pinstripe_base::ranked::RankedMutex<StoreLock, T>;
/// A lock of an open store that many may hold to read.
pub(super) type RankedRwLock<T> = pinstripe_base::ranked::RankedRwLock<StoreLock, T>;

pinstripe_base::lock_ranks! {
    /// The locks of an open store, outermost first. Only the reader of a pack is held across I/O:
    /// threads that need the same set wait for the one that opens it. All others are held for a
    /// read or a change in memory.
    pub(super) enum StoreLock {
        /// The packs that are open.
        OpenPacks,
        /// The reader of one pack.
        PackReader,
        /// The chunks that are marked as needed.
        Marks,
        /// The steps of deletion that were seen last.
        Deletions,
        /// The runs and packs of the index.
        View,
        /// Decoded pages of the index.
        Pages,
        /// The heartbeats that were seen last.
        Sightings,
        /// The members that joined since the store was opened.
        Newcomers,
        /// The members that too few labels name.
        Unannounced,
        /// The members that failed.
        Failed,
    }
}
