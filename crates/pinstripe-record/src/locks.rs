//! The order of the locks of a take (`pinstripe_base::ranked`).

/// A mutex of a take.
pub(crate) type RankedMutex<T> = pinstripe_base::ranked::RankedMutex<RecordLock, T>;

pinstripe_base::lock_ranks! {
    /// The locks of a take, outermost first. The producer of a ring takes none. An order holds the
    /// gates of several streams at once, in the order of the streams: gates have no rank, and are
    /// locked under `Orders` or one at a time. The journal and the decoder are held across I/O; no
    /// writer waits for them.
    pub(crate) enum RecordLock {
        /// An order to begin, arm or split.
        Orders,
        /// Losses before the take began.
        Before,
        /// Gaps of the take.
        Gaps,
        /// Marks of the take.
        Marks,
        /// Orders that were refused.
        Refusals,
        /// The journal of a directory.
        Journal,
        /// Events that wait for the journal.
        Events,
        /// Fronts that are to be filled.
        Fronts,
        /// Samples that are being encoded.
        FlacWork,
        /// Samples that wait for the encoder.
        FlacWaiting,
        /// The decoder of a file.
        Decoder,
        /// The files of a directory.
        Pieces,
        /// The sums of one file.
        Piece,
        /// Copies that another directory hands over.
        Inbox,
        /// Why a directory failed.
        Failure,
        /// The first error of a round of the committer.
        FirstError,
        /// The slowest commit.
        Slowest,
        /// When samples came.
        Arrivals,
        /// The clocks of the inputs.
        Clocks,
    }
}
