//! Finds what a backup builds on: the latest snapshot of the same host and sources, or of each
//! source, and the checkpoints of backups that were interrupted since.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use super::LOSSES_MARK;
use super::sources::topmost;
use crate::pipeline::backup::{Earlier, Previous};
use crate::store::index::Index;
use crate::store::packs::ChunkReader;
use crate::store::tree::TreeReader;
use crate::store::{Store, checkpoints, snapshots};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::ExtentName;
use pinstripe_member::meta::Time;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::tree::{compare_paths, is_at_or_below};

/// The largest number of interrupted backups whose checkpoints are used.
const BEGUN_MAX: usize = 8;
/// The largest number of lists of sources whose snapshots may become bases.
const SERIES_MAX: usize = 32;

/// Warns if this machine's clock, or that of an earlier snapshot, is wrong.
fn warn_of_clocks(known: &[Snapshot], monitor: &Monitor) {
    let now = clock::now();
    let latest = known.iter().map(snapshots::created).max();
    if snapshots::is_before_all(now) || latest.is_some_and(|latest| latest > now) {
        let what = match latest {
            Some(latest) if latest > now => {
                "according to the clock of this machine, the latest snapshot is in the future"
            }
            _ => "the clock of this machine was never set",
        };
        let advice = "set the clock, because otherwise the time of this snapshot is wrong";
        monitor.warning("the clock", Error::new(Kind::Usage, what).advice(advice));
    }
    snapshots::warn_of_clocks(known, monitor);
}

/// A snapshot whose unchanged files are reused, and where.
pub(crate) struct Base {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Entries are taken at and below this path; everywhere if it is empty.
    below: Vec<u8>,
    /// The first path that another base is read for.
    until: Option<Vec<u8>>,
}

/// The earlier backups of the same host.
pub(crate) struct Ancestry {
    /// The latest snapshot of the same sources.
    pub parent: Option<SnapshotId>,
    /// The snapshots whose files are reused, in path order: the parent, or for sources that have
    /// none, the latest snapshots that have each of them.
    pub bases: Vec<Base>,
    /// Checkpoints of backups of the same sources interrupted since then, newest first.
    pub begun: Vec<Snapshot>,
    /// All checkpoints, to be removed when this backup is finished.
    pub superseded: Vec<ExtentName>,
}

impl Ancestry {
    /// One snapshot, whose tree is used as it is.
    pub fn of(snapshot: Snapshot) -> Self {
        Ancestry {
            parent: Some(snapshot.id),
            bases: vec![Base { snapshot, below: Vec::new(), until: None }],
            begun: Vec::new(),
            superseded: Vec::new(),
        }
    }

    /// Looks for them.
    ///
    /// # Errors
    /// Fails with the errors of [`snapshots::load`].
    pub fn find(
        store: &Store,
        host: &[u8],
        sources: &[Vec<u8>],
        monitor: &Monitor,
    ) -> Result<Self> {
        let is_of = |it: &Snapshot, sources: &[Vec<u8>]| it.host == host && it.sources == sources;
        let known = snapshots::load(store, monitor)?;
        warn_of_clocks(&known, monitor);
        let latest = |sources: &[Vec<u8>]| {
            let ours = known.iter().filter(|it| is_of(it, sources));
            snapshots::latest(ours, clock::now()).cloned()
        };
        let topmost = topmost(sources);
        // Before sources below others were recorded, such a backup had only the topmost ones.
        let parent = latest(sources).or_else(|| latest(&topmost));
        let is_newer = |it: &Snapshot| {
            parent.as_ref().is_none_or(|parent| snapshots::created(parent) < snapshots::created(it))
        };
        let (mut begun, mut superseded) = (Vec::<Snapshot>::new(), Vec::new());
        for (name, checkpoint) in checkpoints::load(store, monitor)? {
            if !is_of(&checkpoint, sources) {
                continue;
            }
            superseded.push(name);
            // The furthest checkpoint of a backup comes first; a backup that finished has a
            // snapshot.
            let is_known = known.iter().chain(&begun).any(|it| it.id == checkpoint.id);
            if !is_known && is_newer(&checkpoint) && begun.len() < BEGUN_MAX {
                begun.push(checkpoint);
            }
        }
        let id = parent.as_ref().map(|parent| parent.id);
        let bases = match parent {
            Some(snapshot) => vec![Base { snapshot, below: Vec::new(), until: None }],
            None => bases(&latest_of_series(&known, host), &topmost),
        };
        Ok(Ancestry { parent: id, bases, begun, superseded })
    }

    /// The snapshot that `parent` names.
    pub(super) fn series_parent(&self) -> Option<&Snapshot> {
        self.parent.and(self.bases.first()).map(|it| &it.snapshot)
    }

    /// The snapshots that must not be deleted while this backup runs.
    pub(super) fn base_ids(&self) -> Vec<SnapshotId> {
        let ids: BTreeSet<_> = self.bases.iter().map(|it| it.snapshot.id).collect();
        ids.into_iter().collect()
    }

    /// Says which snapshots are used in place of a parent.
    pub(super) fn note_bases(&self, monitor: &Monitor) {
        if self.parent.is_some() || self.bases.is_empty() {
            return;
        }
        let ids: Vec<_> = self.base_ids().into_iter().map(|id| id.short()).collect();
        monitor.note(&format!(
            "no snapshot of this host has exactly these paths; unchanged files are reused from {}",
            ids.join(", ")
        ));
    }

    /// Whether the store may lack chunks that an earlier backup stored: the set of lost packs has
    /// changed since, or some packs are in no index run, for example because a run was lost.
    pub fn is_doubtful(&self, index: &Index<'_>) -> bool {
        let now = index.losses_mark();
        let is_other = |it: &Snapshot| it.count(LOSSES_MARK).unwrap_or(0) != now;
        let is_first = self.begun.is_empty() && self.bases.is_empty();
        let bases = self.bases.iter().map(|it| &it.snapshot);
        let any_other = self.begun.iter().chain(bases).any(is_other);
        any_other || (is_first && now != 0) || index.has_loose()
    }

    /// Returns the entries that may be reused.
    ///
    /// # Errors
    /// Fails with the errors of [`TreeReader::new`].
    pub fn entries<'a>(
        &self,
        chunks: impl Fn() -> ChunkReader<'a>,
        monitor: &Monitor,
    ) -> Result<Previous<'a>> {
        if let Some(begun) = self.begun.first() {
            let entries = begun.root.entries;
            let entries = pinstripe_base::units::counted(entries, "entry", "entries");
            monitor.note(&format!(
                "this backup continues an interrupted backup, which had saved {entries}"
            ));
        }
        let earlier = |snapshot: &Snapshot, below: &[u8], until: &Option<Vec<u8>>, is_whole| {
            Ok(Earlier {
                tree: TreeReader::new(chunks(), &snapshot.root, below)?,
                began: Time { seconds: snapshot.created_seconds, nanos: snapshot.created_nanos },
                until: until.clone(),
                is_whole,
            })
        };
        let begun = self.begun.iter().map(|it| earlier(it, b"", &None, false));
        let whole = self.bases.iter().map(|it| earlier(&it.snapshot, &it.below, &it.until, true));
        Ok(Previous::new(begun.chain(whole).collect::<Result<_>>()?))
    }
}

/// Returns the latest snapshot of each list of sources of a host, newest first.
fn latest_of_series<'a>(known: &'a [Snapshot], host: &[u8]) -> Vec<&'a Snapshot> {
    let mut series = HashMap::<&[Vec<u8>], Vec<&Snapshot>>::new();
    for snapshot in known.iter().filter(|it| it.host == host) {
        series.entry(&snapshot.sources).or_default().push(snapshot);
    }
    let now = clock::now();
    let latest = |of: Vec<&'a Snapshot>| snapshots::latest(of.into_iter(), now);
    let mut latest: Vec<_> = series.into_values().filter_map(latest).collect();
    latest.sort_by_key(|it| Reverse(snapshots::created(it)));
    latest.truncate(SERIES_MAX);
    latest
}

/// Chooses the base of each source, and joins neighbours that have the same one.
fn bases(series: &[&Snapshot], topmost: &[Vec<u8>]) -> Vec<Base> {
    let mut bases = Vec::<Base>::new();
    for (source, snapshot) in topmost.iter().flat_map(|source| sources_with_base(series, source)) {
        match bases.last_mut() {
            Some(last) if last.snapshot.id == snapshot.id => {
                last.below.truncate(shared_directory(&last.below, &source));
            }
            last => {
                if let Some(last) = last {
                    last.until = Some(source.clone());
                }
                bases.push(Base { snapshot: snapshot.clone(), below: source, until: None });
            }
        }
    }
    bases
}

/// The latest snapshot that has a source, otherwise that has a directory above it. Without any, the
/// same for each known path below the source, in path order.
fn sources_with_base<'a>(series: &[&'a Snapshot], source: &[u8]) -> Vec<(Vec<u8>, &'a Snapshot)> {
    let find = |source: &[u8]| {
        let has = |it: &&&Snapshot| it.sources.iter().any(|it| it == source);
        let has_above = |it: &&&Snapshot| it.sources.iter().any(|it| is_at_or_below(source, it));
        series.iter().find(has).or_else(|| series.iter().find(has_above)).copied()
    };
    if let Some(base) = find(source) {
        return vec![(source.to_vec(), base)];
    }
    let known = series.iter().flat_map(|it| &it.sources);
    let mut below: Vec<_> = known.filter(|it| is_at_or_below(it, source)).cloned().collect();
    below.sort_by(|left, right| compare_paths(left, right));
    topmost(&below).into_iter().filter_map(|it| find(&it).map(|base| (it, base))).collect()
}

/// The length of the longest path that both paths are at or below.
fn shared_directory(left: &[u8], right: &[u8]) -> usize {
    let ends = (0..=left.len()).rev().filter(|&end| end == left.len() || left[end] == b'/');
    ends.map(|end| &left[..end]).find(|it| is_at_or_below(right, it)).map_or(0, <[u8]>::len)
}
