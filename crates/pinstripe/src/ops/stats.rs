//! `stats`: reports the content of the store, its size, and the contribution of each kind of
//! deduplication.
//!
//! The figures are computed from chunk lists alone: content is read only on request, to compare
//! with blocks and chunks of other lengths. Two files with equal chunk lists have equal content.

use std::collections::HashSet;

use crate::pipeline::limits::Limits;
use crate::pipeline::stream::Origin;
use crate::pipeline::survey::{StoredFile, Survey, survey_stored};
use crate::store::choice::{SnapshotChoice, SnapshotName, find};
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::tree::TreeReader;
use crate::store::{Store, redundancy, snapshots};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_member::ExtentKind;
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;
use pinstripe_member::record::ChunkRow;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_stripe::{Count, Distinct, distinct_key};

/// The content of some snapshots together.
#[derive(Debug, Clone, Default)]
pub struct Holds {
    /// Entries of all kinds.
    pub entries: u64,
    /// Regular files; several names of one inode in the same snapshot count once.
    pub files: u64,
    /// Bytes of the regular files, including holes.
    pub logical_bytes: u64,
    /// Counts files with the same name, length and content once.
    pub by_name: Count,
    /// Counts files with the same content once.
    pub by_content: Count,
    /// Counts equal chunks once, as the store does.
    pub by_chunk: Count,
}

/// Totals of what the members store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredTotals {
    /// Packs.
    pub packs: u64,
    /// Chunks that are in packs: content, pages and lists.
    pub chunks: u64,
    /// The bytes of the chunks before compression.
    pub raw_bytes: u64,
    /// The bytes of records: after compression, including heads.
    pub record_bytes: u64,
    /// The bytes that packs and index take on the present members, including parity.
    pub member_bytes: u64,
}

/// The result of `stats`.
#[derive(Debug, Clone)]
pub struct Stats {
    /// Each snapshot on its own, oldest first.
    pub snapshots: Vec<(Snapshot, Holds)>,
    /// All snapshots together.
    pub all: Holds,
    /// If content was read: all content, cut by every method into blocks or chunks.
    pub survey: Option<Survey>,
    /// The store.
    pub stored: StoredTotals,
}

/// Options of `stats`.
pub struct StatsOptions<'a> {
    /// The snapshot; `None` for all snapshots that match `choice`.
    pub snapshot: Option<&'a str>,
    /// The snapshots that count.
    pub choice: &'a SnapshotChoice,
    /// Read all content, each chunk once, and cut it by every method.
    pub read_data: bool,
    /// Threads and memory.
    pub limits: Limits,
}

/// The memory of one key in a count, including the map's overhead.
const KEY_BYTES: u64 = 40;

/// The counts for one total.
struct SumCounts {
    holds: Holds,
    by_name: Distinct,
    by_content: Distinct,
    by_chunk: Distinct,
}

impl SumCounts {
    fn new(most: usize) -> Self {
        let count = || Distinct::new(most);
        SumCounts {
            holds: Holds::default(),
            by_name: count(),
            by_content: count(),
            by_chunk: count(),
        }
    }

    fn add_file(&mut self, file: &FileKeys) {
        self.holds.files += 1;
        self.holds.logical_bytes += file.size;
        self.by_name.add(file.with_name, file.size);
        self.by_content.add(file.content, file.size);
        for &(key, bytes) in &file.chunks {
            self.by_chunk.add(key, bytes);
        }
    }

    fn finish(self) -> Holds {
        Holds {
            by_name: self.by_name.count(),
            by_content: self.by_content.count(),
            by_chunk: self.by_chunk.count(),
            ..self.holds
        }
    }
}

struct FileKeys {
    size: u64,
    with_name: u64,
    content: u64,
    chunks: Vec<(u64, u64)>,
}

/// Counts all snapshots, or the one that is named. An unreadable part is a loss.
///
/// # Errors
/// Fails with [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) for a snapshot that does
/// not exist, or with the errors of the members.
pub fn run(store: &Store, options: &StatsOptions<'_>, monitor: &Monitor) -> Result<Stats> {
    let mut known = snapshots::load(store, monitor)?;
    let choice = options.choice;
    match options.snapshot {
        Some(name) => known = vec![find(&known, SnapshotName { name, choice }, monitor)?.clone()],
        None => known.retain(|snapshot| choice.has(snapshot)),
    }
    let index = Index::load(store, monitor)?;
    // A member that cannot be listed is reported by what needs it.
    let _ = redundancy::count(store, &index, monitor);
    let packs = PackReader::new(store, monitor);
    let limits = options.limits;
    let origin = Origin { packs: &packs, index: &index, keys: store.keys()?, limits };
    let ((snapshots, all), survey) = if options.read_data {
        let look = |read: &mut dyn FnMut(StoredFile)| look(known, origin, Some(read), monitor);
        let (looked, survey) = survey_stored(origin, monitor, look)?;
        (looked, Some(survey))
    } else {
        (look(known, origin, None, monitor)?, None)
    };
    Ok(Stats { snapshots, all, survey, stored: stored(store, &index, monitor)? })
}

type Looked = (Vec<(Snapshot, Holds)>, Holds);

/// Walks the trees, and sends on files whose content must be read.
fn look(
    known: Vec<Snapshot>,
    origin: Origin<'_>,
    mut read: Option<&mut dyn FnMut(StoredFile)>,
    monitor: &Monitor,
) -> Result<Looked> {
    let most = (origin.limits.ahead_bytes() / KEY_BYTES / 6) as usize;
    let mut all = SumCounts::new(most);
    let mut single = Vec::new();
    for snapshot in known {
        let mut sum = SumCounts::new(most);
        let chunks = ChunkReader::new(origin.packs, origin.index);
        let mut tree = TreeReader::new(chunks, &snapshot.root, b"")?;
        let mut linked = HashSet::new();
        let place = format!("snapshot {}", snapshot.id.short());
        loop {
            let entry = match tree.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error) => {
                    monitor.loss(&place, error);
                    continue;
                }
            };
            sum.holds.entries += 1;
            monitor.add(Counter::WalkedEntries, 1);
            let is_again = entry.is_hard_linked() && !linked.insert((entry.device, entry.inode));
            if entry.meta.kind != FileKind::File || is_again {
                continue;
            }
            let rows = match tree.content(&entry.content) {
                Ok(rows) => rows,
                Err(error) => {
                    monitor.loss(pinstripe_io::beneath::shown_from_root(&entry.path), error);
                    continue;
                }
            };
            let file = keys_of(&entry, &rows);
            sum.add_file(&file);
            all.add_file(&file);
            if let Some(read) = &mut read {
                let (content, runs) = (file.content, entry.data_extents());
                read(StoredFile { path: entry.path, content, runs, rows });
            }
        }
        all.holds.entries += sum.holds.entries;
        single.push((snapshot, sum.finish()));
    }
    Ok((single, all.finish()))
}

fn stored(store: &Store, index: &Index<'_>, monitor: &Monitor) -> Result<StoredTotals> {
    let mut stored = StoredTotals::default();
    for (_, pack) in index.packs().iter() {
        stored.packs += 1;
        stored.record_bytes += pack.bytes;
    }
    (stored.chunks, stored.raw_bytes) = index.over_rows(|rows| {
        let (mut chunks, mut raw_bytes) = (0, 0);
        rows.for_each(&mut |_, _, place| {
            chunks += 1;
            raw_bytes += u64::from(place.raw_bytes);
            Ok(())
        })?;
        Ok((chunks, raw_bytes))
    })?;
    for (_, member) in store.present() {
        for kind in [ExtentKind::Packs, ExtentKind::Index] {
            match member.list(kind) {
                Ok(listed) => {
                    stored.member_bytes += listed.iter().map(|(_, bytes)| bytes).sum::<u64>()
                }
                Err(error) => monitor.warning(member.place(), error),
            }
        }
    }
    Ok(stored)
}

fn keys_of(entry: &Entry, rows: &[ChunkRow]) -> FileKeys {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&entry.size.to_le_bytes());
    for run in entry.data_extents() {
        hasher.update(&run.start.to_le_bytes()).update(&run.end.to_le_bytes());
    }
    for row in rows {
        hasher.update(&row.id.0);
    }
    let content = distinct_key(hasher.finalize().as_bytes());
    let name = entry.path.rsplit(|&byte| byte == b'/').next().unwrap_or(&entry.path);
    let with_name = distinct_key(hasher.update(name).finalize().as_bytes());
    let chunks =
        rows.iter().map(|row| (distinct_key(&row.id.0), u64::from(row.raw_bytes))).collect();
    FileKeys { size: entry.size, with_name, content, chunks }
}
