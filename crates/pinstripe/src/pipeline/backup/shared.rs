//! What the stages of one backup share, all of it by reference.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::checkpoint::SealCall;
use crate::chunk::Cutter;
use crate::codec::Codec;
use crate::dedup::ChunkIndex;
use crate::format::keys::Keys;
use crate::monitor::Monitor;
use crate::pipeline::abort::Abort;
use crate::pipeline::spare::Spare;
use crate::seal::Sealer;

/// What the workers of one backup share.
pub struct Ingest<'a> {
    /// The directory that all paths are relative to: the file system's root.
    pub root: BorrowedFd<'a>,
    /// Names chunks.
    pub keys: &'a Keys,
    /// Cuts content.
    pub cutter: &'a Cutter,
    /// Compresses records.
    pub codec: Codec,
    /// Knows chunks.
    pub chunks: &'a ChunkIndex,
    /// The ledger.
    pub monitor: &'a Monitor,
    /// The end of the run, if it comes early.
    pub abort: &'a Abort,
    /// Set by whoever wants the run to end early, with what is done by then.
    pub stop: &'a AtomicBool,
    /// Calls on the workers to hand over what they hold back.
    pub seal_call: &'a SealCall,
    /// Seals records.
    pub sealer: &'a Sealer,
    /// Buffers for finished records.
    pub records: &'a Spare,
    /// Buffers for segments of large files.
    pub segments: &'a Arc<Spare>,
}
