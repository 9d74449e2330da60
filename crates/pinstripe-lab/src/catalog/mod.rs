//! Writes the catalogue of many machines into a new store: the rows are in memory before the clock
//! starts, and the streams are written one after the other or all at once.

mod workload;

use std::fs;
use std::path::Path;
use std::time::Instant;

use pinstripe::index::Index;
use pinstripe::{Acknowledger, Limits, MEMORY_DEFAULT_BYTES, Store, init, sessions, write_tree};
use pinstripe_base::error::{Error, Result};
use pinstripe_base::id::{SnapshotId, random};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::fault::Plan;
use pinstripe_io::remove::remove_tree;
use pinstripe_member::entry::Entry;
use pinstripe_member::session::Work;
use pinstripe_member::snapshot::Snapshot;

pub use workload::{NODES, ROWS, STREAMS, Workload};

use crate::io::at_once;
use crate::run::Live;

/// The number of members of the store, which tolerates the loss of one member.
pub const MEMBERS: usize = 4;

/// The cost of writing streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WriteCost {
    /// The time from rows in memory to snapshots that are synced.
    pub seconds: f64,
    /// Bytes stored on the members.
    pub bytes: u64,
}

/// Creates an empty store, replacing anything at this path.
///
/// # Errors
/// Returns errors as the system reports them.
pub fn new_store(at: &Path) -> Result<Store> {
    match remove_tree(at) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("cannot remove", at, error));
        }
        _ => fs::create_dir_all(at).map_err(|error| Error::io("cannot make", at, error))?,
    }
    let options = init::InitOptions {
        members: (0..MEMBERS).map(|number| at.join(format!("m{number}"))).collect(),
        parity: 1,
        strip_bytes: u64::from(init::STRIP_BYTES_DEFAULT),
        chunking: init::CHUNKING_DEFAULT.parse()?,
        codec: pinstripe_stripe::Codec::default(),
        seal: init::Seal::none(),
        same_disk: true,
        now_seconds: 0,
    };
    init::run(&options)?;
    Store::open(&at.join("m0"), &Plan::default())
}

/// Writes all streams into an empty store, by several writers at once. Writer i of n writes the
/// streams i, i + n, i + 2n and so on.
///
/// # Errors
/// Errors that end a backup; an interrupt.
pub fn write_streams(
    workload: &Workload,
    store: &Store,
    writers: usize,
    live: &Live,
) -> Result<WriteCost> {
    let monitor = Monitor::default();
    let index = Index::load(store, &monitor)?;
    let began = Instant::now();
    let write = |writer: usize| -> Result<()> {
        let mut streams = (writer..workload.streams.len()).step_by(writers);
        streams.try_for_each(|number| {
            live.check()?;
            write_stream(workload, number, store, &index, &monitor)?;
            live.counted(workload.streams[number].rows() as u64);
            Ok(())
        })
    };
    at_once(writers, write).into_iter().collect::<Result<()>>()?;
    Ok(WriteCost {
        seconds: began.elapsed().as_secs_f64(),
        bytes: monitor.get(Counter::WrittenBytes),
    })
}

fn write_stream(
    workload: &Workload,
    number: usize,
    store: &Store,
    index: &Index<'_>,
    monitor: &Monitor,
) -> Result<()> {
    let stream = &workload.streams[number];
    let mut at = 0;
    let mut fill = |entry: &mut _| {
        let is_there = workload.fill(stream, at, entry);
        at += 1;
        is_there
    };
    let host = format!("node{:02}", stream.node);
    commit_stream(store, index, monitor, &mut fill, &host, number, 0)
}

/// Writes one snapshot of a source of its own, dated this number of days after the first snapshot.
///
/// # Errors
/// Errors that end a backup.
pub fn commit_stream(
    store: &Store,
    index: &Index<'_>,
    monitor: &Monitor,
    fill: &mut dyn FnMut(&mut Entry) -> bool,
    host: &str,
    source: usize,
    day: i64,
) -> Result<()> {
    let id = SnapshotId(random()?);
    let limits = Limits::new(1, MEMBERS, MEMORY_DEFAULT_BYTES / 4);
    let header = |root| Snapshot {
        store: store.config.store,
        id,
        created_seconds: 1_700_000_000 + day * 86_400,
        created_nanos: 0,
        host: host.as_bytes().to_vec(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        sources: vec![format!("srv/{source}").into_bytes()],
        parent: None,
        root,
        counts: Vec::new(),
        tags: Vec::new(),
        comment: String::new(),
    };
    let session = sessions::begin(store, Work::Backup, id.0, Vec::new())?;
    let mut acknowledger = Acknowledger::new(session.session.id);
    write_tree(store, index, &mut acknowledger, limits, monitor, fill, header)?;
    session.end()
}
