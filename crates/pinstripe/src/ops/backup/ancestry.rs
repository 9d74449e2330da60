//! Finds what a backup builds on: the latest snapshot of the same host and sources, and the
//! checkpoints of backups that were interrupted since.

use super::LOSSES_MARK;
use super::sources::topmost;
use crate::pipeline::backup::{Earlier, Previous};
use crate::store::index::Index;
use crate::store::packs::ChunkReader;
use crate::store::tree::TreeReader;
use crate::store::{Store, checkpoints, snapshots};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::ExtentName;
use pinstripe_member::meta::Time;
use pinstripe_member::snapshot::Snapshot;

/// The largest number of interrupted backups whose checkpoints are used.
const BEGUN_MAX: usize = 8;

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

/// The earlier backups of the same host and sources.
pub(crate) struct Ancestry {
    /// The latest snapshot.
    pub parent: Option<Snapshot>,
    /// Checkpoints of backups interrupted since then, newest first.
    pub begun: Vec<Snapshot>,
    /// All checkpoints, to be removed when this backup is finished.
    pub superseded: Vec<ExtentName>,
}

impl Ancestry {
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
        let is_ours = |it: &Snapshot| is_of(it, sources);
        let known = snapshots::load(store, monitor)?;
        warn_of_clocks(&known, monitor);
        let latest = |sources: &[Vec<u8>]| {
            let ours = known.iter().filter(|it| is_of(it, sources));
            snapshots::latest(ours, clock::now()).cloned()
        };
        // Before sources below others were recorded, such a backup had only the topmost ones.
        let parent = latest(sources).or_else(|| latest(&topmost(sources)));
        let is_newer = |it: &Snapshot| {
            parent.as_ref().is_none_or(|parent| snapshots::created(parent) < snapshots::created(it))
        };
        let (mut begun, mut superseded) = (Vec::<Snapshot>::new(), Vec::new());
        for (name, checkpoint) in checkpoints::load(store, monitor)? {
            if !is_ours(&checkpoint) {
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
        Ok(Ancestry { parent, begun, superseded })
    }

    /// Whether the store may lack chunks that an earlier backup stored: the set of lost packs has
    /// changed since, or some packs are in no index run, for example because a run was lost.
    pub fn is_doubtful(&self, index: &Index<'_>) -> bool {
        let now = index.losses_mark();
        let is_other = |it: &Snapshot| it.count(LOSSES_MARK).unwrap_or(0) != now;
        let is_first = self.begun.is_empty() && self.parent.is_none();
        let any_other = self.begun.iter().chain(&self.parent).any(is_other);
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
        let earlier = |snapshot: &Snapshot, is_whole| {
            let began = Time { seconds: snapshot.created_seconds, nanos: snapshot.created_nanos };
            Ok(Earlier { tree: TreeReader::new(chunks(), &snapshot.root, b"")?, began, is_whole })
        };
        let begun = self.begun.iter().map(|it| earlier(it, false));
        let whole = self.parent.iter().map(|it| earlier(it, true));
        Ok(Previous::new(begun.chain(whole).collect::<Result<_>>()?))
    }
}
