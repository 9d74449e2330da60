//! The order of the locks of an overlay (`pinstripe_base::ranked`).

/// A mutex of an overlay.
pub(crate) type RankedMutex<T> = pinstripe_base::ranked::RankedMutex<OverlayLock, T>;

pinstripe_base::lock_ranks! {
    /// The locks of an overlay, outermost first. No thread takes one under another.
    pub(crate) enum OverlayLock {
        /// The entry of the root.
        Root,
        /// The listings that are kept.
        Listings,
        /// The part of a listing that was shown last.
        Window,
        /// The names of inode numbers.
        Nodes,
        /// Files of the source that are open.
        OpenFiles,
        /// The cells of the cache.
        Slots,
        /// Problems that were reported.
        Reported,
    }
}
