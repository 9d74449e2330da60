//! Sets up a writer without a walk: its caller provides the chunks.

use super::shared::Writing;
use crate::pipeline::limits::Limits;
use crate::pipeline::member_writers::MemberWriters;
use crate::pipeline::publish::Publisher;
use crate::pipeline::scratch_pool::ScratchPool;
use crate::store::Store;
use crate::store::index::Index;
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Monitor;
use pinstripe_stripe::{Abort, Claims};

/// Sets up members, claims and buffers for `work`, which writes records and publishes them.
///
/// # Errors
/// Fails with the errors that end any backup: a member is full, or more members are lost than
/// parity replaces.
pub(super) fn write_session<T>(
    store: &Store,
    index: &Index<'_>,
    limits: Limits,
    monitor: &Monitor,
    work: impl for<'w> FnOnce(&'w Writing<'w>, &'w Publisher<'w>) -> Result<T>,
) -> Result<T> {
    let abort = Abort::default();
    let claims = Claims::default();
    let records = ScratchPool::new(2 * limits.records_queued);
    let sealer = store.sealer()?;
    let keys = store.keys()?;
    let codec = store.config.codec.parse()?;
    let writing = Writing {
        keys,
        codec,
        index,
        claims: &claims,
        monitor,
        abort: &abort,
        sealer: &sealer,
        records: &records,
    };
    std::thread::scope(|scope| {
        let queued = limits.strips_queued(store.config.strip_bytes);
        let writers = MemberWriters::start(scope, store, queued, &abort, monitor);
        let publisher =
            Publisher::new(store, index, &sealer, &claims, &writers, monitor, limits.publish_packs);
        work(&writing, &publisher)
    })
}
