//! `stats`: what the store holds, what it takes, and what each sort of dedup contributes.
//!
//! Told from chunk lists alone: no content is read. Two files whose lists are equal are equal.

use std::collections::HashSet;

use crate::dedup::distinct::{Count, Distinct, key_of};
use crate::error::Result;
use crate::format::entry::Entry;
use crate::format::meta::FileKind;
use crate::format::snapshot::Snapshot;
use crate::member::Room;
use crate::monitor::{Counter, Monitor};
use crate::pipeline::limits::Limits;
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::tree::TreeReader;
use crate::store::{Store, snapshots};

/// What some snapshots hold together.
#[derive(Debug, Clone, Default)]
pub struct Holds {
    /// Entries of all kinds.
    pub entries: u64,
    /// Regular files; names of one inode in one snapshot count once.
    pub files: u64,
    /// Bytes of those files, holes included.
    pub logical_bytes: u64,
    /// Files with the same name, length and content are one.
    pub by_name: Count,
    /// Files with the same content are one.
    pub by_content: Count,
    /// Equal chunks are one: what the store does.
    pub by_chunk: Count,
}

/// What the members hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stored {
    /// Packs.
    pub packs: u64,
    /// Chunks that are in packs: content, pages and lists.
    pub chunks: u64,
    /// Their bytes before compression.
    pub raw_bytes: u64,
    /// Their records: after compression, with heads.
    pub record_bytes: u64,
    /// All that packs and index take on the members that are present, with parity.
    pub member_bytes: u64,
}

/// What `stats` found.
#[derive(Debug, Clone)]
pub struct Stats {
    /// Each snapshot by itself, oldest first.
    pub snapshots: Vec<(Snapshot, Holds)>,
    /// All of them together.
    pub all: Holds,
    /// The store.
    pub stored: Stored,
}

/// Bytes of one key in a count, with what the map needs around it.
const KEY_BYTES: u64 = 40;

/// The counts of one sum.
struct Sum {
    holds: Holds,
    by_name: Distinct,
    by_content: Distinct,
    by_chunk: Distinct,
}

impl Sum {
    fn new(most: usize) -> Self {
        let count = || Distinct::new(most);
        Sum { holds: Holds::default(), by_name: count(), by_content: count(), by_chunk: count() }
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

/// Goes through the snapshots, or the one that is named. What cannot be read is a loss.
///
/// # Errors
/// [`Kind::NotFound`](crate::error::Kind::NotFound) for a snapshot that is not there; otherwise as
/// the members say.
pub fn run(
    store: &Store,
    snapshot: Option<&str>,
    limits: Limits,
    monitor: &Monitor,
) -> Result<Stats> {
    let mut known = snapshots::load(store, monitor)?;
    if let Some(name) = snapshot {
        known = vec![snapshots::find(&known, name)?.clone()];
    }
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    let most = (limits.ahead_bytes() / KEY_BYTES / 6) as usize;
    let mut all = Sum::new(most);
    let mut single = Vec::new();
    for snapshot in known {
        let mut sum = Sum::new(most);
        let chunks = ChunkReader::new(&packs, &index);
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
            match keys_of(&entry, &mut tree) {
                Ok(file) => {
                    sum.add_file(&file);
                    all.add_file(&file);
                }
                Err(error) => monitor.loss(crate::beneath::shown_from_root(&entry.path), error),
            }
        }
        all.holds.entries += sum.holds.entries;
        single.push((snapshot, sum.finish()));
    }
    let mut stored = Stored::default();
    for (_, pack) in index.packs().iter() {
        stored.packs += 1;
        stored.record_bytes += pack.bytes;
    }
    index.frozen().for_each(&mut |_, _, place| {
        stored.chunks += 1;
        stored.raw_bytes += u64::from(place.raw_bytes);
        Ok(())
    })?;
    for (_, member) in store.present() {
        for room in [Room::Packs, Room::Index] {
            match member.list(room) {
                Ok(listed) => {
                    stored.member_bytes += listed.iter().map(|(_, bytes)| bytes).sum::<u64>()
                }
                Err(error) => monitor.warning(member.place(), error),
            }
        }
    }
    Ok(Stats { snapshots: single, all: all.finish(), stored })
}

fn keys_of(entry: &Entry, tree: &mut TreeReader<'_>) -> Result<FileKeys> {
    let rows = tree.content(&entry.content)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&entry.size.to_le_bytes());
    for run in entry.data_extents() {
        hasher.update(&run.start.to_le_bytes()).update(&run.end.to_le_bytes());
    }
    for row in &rows {
        hasher.update(&row.id.0);
    }
    let content = key_of(hasher.finalize().as_bytes());
    let name = entry.path.rsplit(|&byte| byte == b'/').next().unwrap_or(&entry.path);
    let with_name = key_of(hasher.update(name).finalize().as_bytes());
    let chunks = rows.iter().map(|row| (key_of(&row.id.0), u64::from(row.raw_bytes))).collect();
    Ok(FileKeys { size: entry.size, with_name, content, chunks })
}
