//! The locking order of the locks of a take (`pinstripe_base::ranked`).

/// A mutex of a take, with its rank.
pub(crate) type RankedMutex<T> = pinstripe_base::ranked::RankedMutex<RecordLock, T>;

pinstripe_base::lock_ranks! {
    /// The locks of a take; a lock may be taken while those above it are held. The producer of a
    /// ring takes no lock. An order locks the gates of several streams at the same time, in the
    /// order of the streams. Gates have no rank: they are locked under `Orders` or one at a time.
    /// The journal and the decoder stay locked during I/O; no writer waits for them.
    pub(crate) enum RecordLock {
        /// Orders to begin, arm or split.
        Orders,
        /// The losses before the take began.
        Before,
        /// The gaps of the take.
        Gaps,
        /// The marks of the take.
        Marks,
        /// The refusals of priorities.
        Refusals,
        /// The journal of a directory.
        Journal,
        /// Events to be added to the journal.
        Events,
        /// Fronts that must still be filled.
        Fronts,
        /// The encoder of a stream.
        FlacWork,
        /// Samples that wait for the encoder.
        FlacWaiting,
        /// The decoder of a file.
        Decoder,
        /// The files of a directory.
        Files,
        /// The checksums of one file.
        File,
        /// Copies of streams that another directory hands over.
        Inbox,
        /// The reason why a directory failed.
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
