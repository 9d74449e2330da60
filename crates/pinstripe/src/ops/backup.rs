//! `backup`: take paths into the store as a new snapshot.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::chunk::{Chunking, Cutter};
use crate::clock;
use crate::codec::Codec;
use crate::error::{Error, Kind, Result};
use crate::format::meta::Time;
use crate::format::snapshot::Snapshot;
use crate::format::tree::{compare_paths, is_at_or_below};
use crate::id::{SnapshotId, random};
use crate::monitor::{Counter, Monitor};
use crate::pipeline;
use crate::pipeline::limits::Limits;
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::tree::TreeReader;
use crate::store::{Store, snapshots};
use crate::walk::Exclude;

/// What to back up, and how.
pub struct Options {
    /// Files and directories, as they were named.
    pub paths: Vec<PathBuf>,
    /// What to leave out.
    pub exclude: Exclude,
    /// Do not enter other file systems.
    pub one_file_system: bool,
    /// The machine's name.
    pub host: Vec<u8>,
    /// Words that the snapshot is to carry.
    pub tags: Vec<String>,
    /// Count what there is to do, for a progress bar.
    pub estimate: bool,
    /// Threads and queues.
    pub limits: Limits,
}

/// Counts that are kept in the snapshot.
const KEPT: &[Counter] = &[
    Counter::WalkedEntries,
    Counter::NewFiles,
    Counter::ChangedFiles,
    Counter::UnchangedFiles,
    Counter::NewBytes,
    Counter::ChangedBytes,
    Counter::UnchangedBytes,
    Counter::DedupedBytes,
    Counter::CompressedBytes,
    Counter::WrittenBytes,
    Counter::Losses,
];

/// Under what losses the snapshot was made, kept among its counts: see [`Index::losses_mark`].
const LOSSES_MARK: &str = "losses_mark";

/// Runs the backup. Entries that could not be read are losses in the ledger; the snapshot exists
/// without them.
///
/// # Errors
/// When nothing could be committed: a path that does not exist, a full member, more members lost
/// than parity replaces. Earlier snapshots are untouched then.
pub fn run(store: &Store, options: Options, monitor: &Monitor) -> Result<Snapshot> {
    let (began_seconds, began_nanos) = clock::now();
    let sources = sources(&options.paths)?;
    refuse_members(store, &sources)?;
    report_absent(store, monitor);
    store.sweep(monitor);
    keep_labels_true(store, monitor);
    let exclude = exclude_members(store, options.exclude, &sources, monitor);
    let chunking: Chunking = store.config.chunking.parse()?;
    let cutter = Cutter::for_store(chunking, store.config.chunker, &store.keys()?.gear)?;
    let codec: Codec = store.config.codec.parse()?;
    let index = Index::load(store, monitor)?;
    let known = snapshots::load(store, monitor)?;
    let parent = known.iter().rev().find(|s| s.host == options.host && s.sources == sources);
    let packs = PackReader::new(store, monitor);
    let previous = match parent {
        Some(parent) => {
            let chunks = ChunkReader::new(&packs, &index);
            let began = Time { seconds: parent.created_seconds, nanos: parent.created_nanos };
            Some((TreeReader::new(chunks, &parent.root, b"")?, began))
        }
        None => None,
    };
    let plan = pipeline::backup::Plan {
        store,
        index: &index,
        is_doubtful: is_doubtful(&index, parent),
        sources: &sources,
        exclude: &exclude,
        one_file_system: options.one_file_system,
        previous,
        estimate: options.estimate,
        cutter: &cutter,
        codec,
        limits: options.limits.for_chunks(cutter.max_bytes()),
    };
    let id = SnapshotId(random()?);
    let losses_mark = index.losses_mark();
    pipeline::backup::run(plan, monitor, |root| Snapshot {
        store: store.config.store,
        id,
        created_seconds: began_seconds,
        created_nanos: began_nanos,
        host: options.host,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        sources: sources.clone(),
        parent: parent.map(|parent| parent.id),
        root,
        counts: counts(monitor, losses_mark),
        tags: options.tags,
    })
}

fn counts(monitor: &Monitor, losses_mark: u64) -> Vec<(String, u64)> {
    let kept = Counter::ALL.iter().filter(|(counter, _)| KEPT.contains(counter));
    let mut counts: Vec<_> =
        kept.map(|&(counter, name)| (name.to_owned(), monitor.get(counter))).collect();
    if losses_mark != 0 {
        counts.push((LOSSES_MARK.to_owned(), losses_mark));
    }
    counts
}

/// Whether the store may lack chunks that the previous snapshot had: it lost other packs than
/// were lost then, or there are packs that no index run speaks of, as when a run was lost.
fn is_doubtful(index: &Index<'_>, parent: Option<&Snapshot>) -> bool {
    let then = parent.and_then(|parent| parent.count(LOSSES_MARK)).unwrap_or(0);
    index.losses_mark() != then || index.has_loose()
}

/// Says which members a backup has to do without.
fn report_absent(store: &Store, monitor: &Monitor) {
    for number in store.absent() {
        let seat = &store.seats[number];
        let error = seat
            .absence
            .as_ref()
            .map_or_else(|| Error::new(Kind::NotFound, "the member is absent"), Error::duplicate);
        monitor.loss(
            &seat.place,
            error.advice(
                "the backup goes on without this member; run 'pinstripe repair' when it is back",
            ),
        );
    }
}

/// Labels that name places of long ago are written anew.
fn keep_labels_true(store: &Store, monitor: &Monitor) {
    if !store.moved.is_empty()
        && let Err(error) = store.write_labels()
    {
        monitor.warning("labels of moved members", error);
    }
}

/// Members that lie within a source are left out: else every backup would take in the packs of
/// the one before.
fn exclude_members(
    store: &Store,
    mut exclude: Exclude,
    sources: &[Vec<u8>],
    monitor: &Monitor,
) -> Exclude {
    for seat in &store.seats {
        let place = seat.place.as_os_str().as_bytes();
        let below_root = place.strip_prefix(b"/").unwrap_or(place);
        if sources.iter().any(|source| is_at_or_below(below_root, source)) {
            monitor
                .note(&format!("left out {}: it is a member of the store", seat.place.display()));
            exclude = exclude.with_place(place);
        }
    }
    exclude
}

/// The paths to walk, from the file system's root, in path order, none within another. The last
/// component of a path is never followed, so a symlink is backed up as one.
fn sources(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    let mut sources = paths.iter().map(|path| source(path)).collect::<Result<Vec<_>>>()?;
    sources.sort_by(|left, right| compare_paths(left, right));
    sources.dedup_by(|later, earlier| is_at_or_below(later, earlier));
    Ok(sources)
}

fn source(path: &Path) -> Result<Vec<u8>> {
    let io = |error| {
        Error::io("cannot back this path up", path, error)
            .advice("name files and directories that exist")
    };
    std::fs::symlink_metadata(path).map_err(io)?;
    let absolute = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            std::fs::canonicalize(parent).map_err(io)?.join(name)
        }
        // "/", "..", "a/..": no name that could be a symlink.
        _ => std::fs::canonicalize(path).map_err(io)?,
    };
    let bytes = absolute.as_os_str().as_bytes();
    Ok(bytes.strip_prefix(b"/").unwrap_or(bytes).to_vec())
}

/// A store must not back itself up: every run would find its own new packs.
fn refuse_members(store: &Store, sources: &[Vec<u8>]) -> Result<()> {
    for seat in store.seats.iter().filter(|seat| seat.member.is_some()) {
        let place = seat.place.as_os_str().as_bytes();
        let place = place.strip_prefix(b"/").unwrap_or(place);
        if let Some(source) = sources.iter().find(|source| is_at_or_below(source, place)) {
            return Err(Error::new(
                Kind::Refused,
                "this path lies within a member of the store itself",
            )
            .at(Path::new("/").join(OsStr::from_bytes(source)))
            .advice("a store cannot back itself up"));
        }
    }
    Ok(())
}
