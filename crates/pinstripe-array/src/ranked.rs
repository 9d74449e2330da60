//! The order of the array's locks (`pinstripe_base::ranked`).

pub(crate) use pinstripe_base::ranked::{LockRank, RankGuard, Ranked};

/// A mutex of an array.
pub(crate) type RankedMutex<T> = pinstripe_base::ranked::RankedMutex<Rank, T>;
/// A lock of an array that several threads may hold for reading.
pub(crate) type RankedRwLock<T> = pinstripe_base::ranked::RankedRwLock<Rank, T>;

pinstripe_base::lock_ranks! {
    /// The locks of a running array, outermost first. [`Array`](crate::engine::Array) documents
    /// what each lock protects.
    pub(crate) enum Rank {
        /// The flusher of a volume.
        Flusher,
        /// A row that is held or occupied. This is not a mutex: threads wait for the row at the
        /// cache's condvar.
        Row,
        /// The order in which superblocks are written.
        Publishing,
        /// The state through which the threads of a volume communicate.
        Volume,
        /// Members by slot, spares, and the newest superblock.
        Members,
        /// Errors and progress.
        Status,
        /// Blocks that wait to be healed.
        BadBlocks,
        /// Bytes that are not on the members yet.
        Cache,
        /// The placement of rows.
        Shape,
    }
}
