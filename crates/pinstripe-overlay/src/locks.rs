//! The order of the locks of an overlay (`pinstripe_base::ranked`).

/// A mutex of an overlay.
pub(crate) type RankedMutex<T> = pinstripe_base::ranked::RankedMutex<OverlayLock, T>;

pinstripe_base::lock_ranks! {
    /// The locks of an overlay, outermost first. No thread takes one of these locks while it holds
    /// another.
    pub(crate) enum OverlayLock {
        /// Protects the entry of the root.
        Root,
        /// Protects the listings that are kept.
        Listings,
        /// Protects the part of a listing that was shown last.
        Window,
        /// Protects the names of inode numbers.
        Nodes,
        /// Protects the open files of the source.
        OpenFiles,
        /// Protects the cells of the cache.
        Slots,
        /// Protects the list of problems that were reported.
        Reported,
    }
}
