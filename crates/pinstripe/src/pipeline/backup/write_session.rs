//! The setup of a writer without a walk: its chunks are handed to it.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::checkpoint::SealCall;
use super::shared::{Ingest, cutting};
use crate::dedup::Claims;
use crate::pipeline::abort::Abort;
use crate::pipeline::limits::{Limits, PUBLISH_CHUNKS};
use crate::pipeline::member_writers::MemberWriters;
use crate::pipeline::publish::Publisher;
use crate::pipeline::scratch_pool::ScratchPool;
use crate::source;
use crate::store::Store;
use crate::store::index::Index;
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Monitor;

/// Sets up members, claims and buffers for `work`, which lays records and publishes them.
///
/// # Errors
/// The reasons for which any backup ends: a full member, more members lost than parity replaces.
pub(super) fn write_session<T>(
    store: &Store,
    index: &Index<'_>,
    limits: Limits,
    monitor: &Monitor,
    work: impl for<'w> FnOnce(&'w Ingest<'w>, &'w Publisher<'w>) -> Result<T>,
) -> Result<T> {
    let root = source::open_root()?;
    let abort = Abort::default();
    let claims = Claims::default();
    let records = ScratchPool::new(2 * limits.records_queued);
    let sealer = store.sealer()?;
    let keys = store.keys()?;
    let (cutter, codec) = cutting(store)?;
    let shared = Ingest {
        root: root.as_fd(),
        keys,
        cutter: &cutter,
        codec,
        index,
        claims: &claims,
        monitor,
        abort: &abort,
        stop: &AtomicBool::new(false),
        seal_call: &SealCall::new(0),
        sealer: &sealer,
        records: &records,
        segments: &Arc::default(),
    };
    std::thread::scope(|scope| {
        let queued = limits.strips_queued(store.config.strip_bytes);
        let writers = MemberWriters::start(scope, store, queued, &abort, monitor);
        let publisher =
            Publisher::new(store, index, &sealer, &claims, &writers, monitor, PUBLISH_CHUNKS);
        work(&shared, &publisher)
    })
}
