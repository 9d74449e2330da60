//! `restore`: bring a snapshot, or a subtree of it, back below a directory.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::select::{Selected, no_such_path, select};
use crate::error::{Error, Kind, Result};
use crate::format::snapshot::Snapshot;
use crate::monitor::Monitor;
use crate::pipeline::limits::Limits;
use crate::pipeline::restore::{self, Plan};
use crate::sink::TreeSink;
use crate::source;
use crate::store::Store;
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::tree::TreeReader;

/// What to restore, and how.
pub struct Options<'a> {
    /// `latest` or the beginning of an id.
    pub snapshot: &'a str,
    /// A path in the snapshot; empty for everything.
    pub path: &'a [u8],
    /// The target directory.
    pub to: &'a Path,
    /// Put restored files in the place of what is there.
    pub overwrite: bool,
    /// Read everything again when it is written.
    pub verify: bool,
    /// Threads and queues.
    pub limits: Limits,
}

/// Restores. What could not be restored is a loss in the ledger.
///
/// # Errors
/// [`Kind::Refused`] when the target is not empty and may not be overwritten; otherwise what
/// keeps the restore from beginning, or a full target.
pub fn run(store: &Store, options: &Options<'_>, monitor: &Monitor) -> Result<Snapshot> {
    let Selected { snapshot, below } = select(store, options.snapshot, options.path, monitor)?;
    for number in store.absent() {
        let absent =
            Error::new(Kind::NotFound, "the member is absent; its strips are rebuilt from parity");
        monitor.warning(&store.seats[number].place, absent);
    }
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    let tree = || TreeReader::new(ChunkReader::new(&packs, &index), &snapshot.root, &below);
    if !below.is_empty() && tree()?.next_entry()?.is_none() {
        return Err(no_such_path(&below));
    }
    if below.is_empty() {
        let bytes = ["new_bytes", "changed_bytes", "unchanged_bytes"];
        let bytes = bytes.iter().filter_map(|name| snapshot.count(name)).sum();
        monitor.expect(bytes, snapshot.root.entries);
    }
    let sink = TreeSink::create(options.to, options.overwrite)?;
    let plan = Plan {
        packs: &packs,
        index: &index,
        keys: store.keys()?,
        sink: &sink,
        to: options.to,
        strip: &below,
        limits: options.limits,
        monitor,
        disowned: AtomicU64::new(0),
        lost: Mutex::default(),
    };
    let mut first_names = plan.files(&mut tree()?)?;
    restore::finish_tree(&plan, &mut tree()?, &mut first_names)?;
    let disowned = plan.disowned.load(Ordering::Relaxed);
    if disowned > 0 {
        let what = format!("{disowned} entries belong to you now, not to who owned them");
        let advice = "only root may give files away: restore as root to keep their owners";
        monitor.warning(options.to, Error::new(Kind::Refused, what).advice(advice));
    }
    if options.verify {
        let target = source::open_directory(options.to)?;
        restore::verify(&plan, &mut tree()?, std::os::fd::AsFd::as_fd(&target))?;
    }
    Ok(snapshot)
}
