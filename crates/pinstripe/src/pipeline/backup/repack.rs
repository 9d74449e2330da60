//! Moving what is needed of some packs into new ones, so that the old ones can go.
//!
//! Invariants: of a chunk that stands elsewhere too, that copy is read and verified before it is
//! relied upon; what is copied was verified; a pack of which anything needed is nowhere sound is
//! spared. The new packs are durable and in an index run on return.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::Sender;

use super::lay::lay;
use super::record::RecordBuilder;
use super::shared::Ingest;
use super::{joined, packer};
use crate::codec::Decoder;
use crate::error::{Error, Kind, Result};
use crate::format::pack_index::{IndexedRecord, PackIndex};
use crate::format::record::{ChunkRow, RecordKind};
use crate::id::{ChunkId, SetId};
use crate::member::ExtentName;
use crate::monitor::Counter;
use crate::monitor::Monitor;
use crate::pipeline::limits::Limits;
use crate::pipeline::pack::ToPacker;
use crate::store::index::{Index, pack_from_records, read_pack_index};
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::{Store, deletion};

/// A pack that is to go, and what of it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// Its name.
    pub set: SetId,
    /// Needed chunks: where the record begins in the pack, and the chunk in the record's raw
    /// bytes; ascending.
    pub needed: Vec<(u32, u32)>,
    /// Needed chunks of a pack that cannot be read: copies of what stands elsewhere.
    pub copies: Vec<ChunkId>,
}

/// Copies what is needed of `packs`, all of which the index has condemned, into new packs. Returns
/// those that must stay because something of them is nowhere sound; each is a loss in the ledger.
///
/// # Errors
/// Whatever ends a backup: a full member, more members lost than parity replaces.
pub fn repack(
    store: &Store,
    index: &Index<'_>,
    packs: &[Leaving],
    limits: Limits,
    monitor: &Monitor,
) -> Result<Vec<SetId>> {
    lay(store, index, limits, monitor, |shared, publisher| {
        let (next, spared) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|stages| {
            let (data, data_packer) = packer(stages, shared, publisher, limits.records_queued);
            let (tree, tree_packer) = packer(stages, shared, publisher, limits.records_queued);
            for _ in 0..limits.workers.min(packs.len()) {
                let (data, tree) = (data.clone(), tree.clone());
                let (next, spared) = (&next, &spared);
                stages.spawn(move || {
                    let _guard = shared.abort.on_panic();
                    if let Err(error) = work(store, shared, packs, next, spared, data, tree) {
                        shared.abort.raise(error);
                    }
                });
            }
            drop((data, tree));
            joined(data_packer);
            joined(tree_packer);
            shared.abort.check()
        })?;
        publisher.publish()?;
        confirm_copies(store, shared, packs, &spared)?;
        store.confirm_takers()?;
        Ok(spared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
    })
}

/// Reads the copies of what packs have that cannot be read, now that everything else was moved.
fn confirm_copies(
    store: &Store,
    shared: &Ingest<'_>,
    packs: &[Leaving],
    spared: &Mutex<Vec<SetId>>,
) -> Result<()> {
    let reader = PackReader::new(store, shared.monitor);
    let mut others = ChunkReader::new(&reader, shared.index);
    shared.index.refresh()?;
    for pack in packs {
        for id in &pack.copies {
            if !stands_elsewhere(shared.index, &mut others, id)? {
                let what = format!("chunk {id} stands nowhere else");
                spare(store, shared, spared, pack.set, Error::new(Kind::TooManyLosses, what))?;
                break;
            }
        }
    }
    Ok(())
}

/// Lets a pack stay of which something cannot be moved, and says why.
fn spare(
    store: &Store,
    shared: &Ingest<'_>,
    spared: &Mutex<Vec<SetId>>,
    set: SetId,
    error: Error,
) -> Result<()> {
    // Unless another gc was faster: what is needed of it stands elsewhere then.
    if !deletion::going_packs(store)?.contains(&set) {
        let place = ExtentName::pack(set).path();
        shared.monitor.loss(place, error.advice("the pack stays; run 'pinstripe check'"));
    }
    spared.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(set);
    Ok(())
}

/// One worker: takes the next pack until there is none.
fn work(
    store: &Store,
    shared: &Ingest<'_>,
    packs: &[Leaving],
    next: &AtomicUsize,
    spared: &Mutex<Vec<SetId>>,
    data: Sender<ToPacker>,
    tree: Sender<ToPacker>,
) -> Result<()> {
    let reader = PackReader::new(store, shared.monitor);
    let mut mover = Mover {
        store,
        shared,
        packs: &reader,
        others: ChunkReader::new(&reader, shared.index),
        decoder: Decoder::new(),
        data: RecordBuilder::of_kind(shared, RecordKind::Data, data)?,
        tree: RecordBuilder::of_kind(shared, RecordKind::Tree, tree)?,
    };
    while let Some(pack) = packs.get(next.fetch_add(1, Ordering::Relaxed)) {
        if shared.abort.is_raised() {
            return Ok(());
        }
        if let Err(Stuck(error)) = mover.pack(pack)? {
            spare(store, shared, spared, pack.set, error)?;
        }
    }
    mover.data.flush()?;
    mover.tree.flush()
}

/// Something of a pack cannot be moved: why.
struct Stuck(Error);

struct Mover<'w> {
    store: &'w Store,
    shared: &'w Ingest<'w>,
    packs: &'w PackReader<'w>,
    others: ChunkReader<'w>,
    decoder: Decoder,
    data: RecordBuilder<'w>,
    tree: RecordBuilder<'w>,
}

impl Mover<'_> {
    /// Moves one pack. All of it is tried, also when something cannot be moved.
    fn pack(&mut self, leaving: &Leaving) -> Result<Result<(), Stuck>> {
        if leaving.needed.is_empty() {
            return Ok(Ok(()));
        }
        let known = read_pack_index(self.store, leaving.set)
            .or_else(|_| pack_from_records(self.store, leaving.set).map(|(pack, _)| pack.index));
        let PackIndex { records, .. } = match known {
            Ok(known) => known,
            Err(error) => return Ok(Err(Stuck(error))),
        };
        let (mut found, mut stuck) = (0, Ok(()));
        for record in &records {
            let wanted = wanted(record, &leaving.needed);
            found += wanted.len();
            if wanted.is_empty() {
                continue;
            }
            if let Err(Stuck(error)) = self.record(leaving.set, record, &wanted)? {
                stuck = Err(Stuck(error));
            }
            let raw_bytes: u64 = wanted.iter().map(|(_, row)| u64::from(row.raw_bytes)).sum();
            let share = raw_bytes * u64::from(record.bytes) / u64::from(record.raw_bytes.max(1));
            self.shared.monitor.add(Counter::RepackedBytes, share);
        }
        if found < leaving.needed.len() {
            let error = Error::new(Kind::Corrupt, "a pack's index lacks chunks that are needed")
                .expected(leaving.needed.len(), found);
            stuck = Err(Stuck(error));
        }
        Ok(stuck)
    }

    fn record(
        &mut self,
        set: SetId,
        record: &IndexedRecord,
        wanted: &[(usize, ChunkRow)],
    ) -> Result<Result<(), Stuck>> {
        let mut raw = None;
        let mut stuck = Ok(());
        for (start, row) in wanted {
            if !self.shared.claims.take(&row.id) {
                continue;
            }
            if stands_elsewhere(self.shared.index, &mut self.others, &row.id)? {
                self.shared.claims.release(&row.id);
                continue;
            }
            let raw = raw.get_or_insert_with(|| self.read(set, record));
            let chunk = raw.get(*start..start + row.raw_bytes as usize).unwrap_or_default();
            let is_sound = self.shared.keys.chunk_id(chunk) == row.id;
            let builder = match record.kind {
                RecordKind::Tree => &mut self.tree,
                _ => &mut self.data,
            };
            if is_sound {
                builder.add_claimed(chunk, vec![*row])?;
                continue;
            }
            // Another copy, in whatever pack.
            match self.others.read(&row.id) {
                Ok(chunk) => builder.add_claimed(&chunk, vec![*row])?,
                Err(error) => stuck = Err(Stuck(error)),
            }
        }
        Ok(stuck)
    }

    /// The record's raw bytes; empty when they cannot be read.
    fn read(&mut self, set: SetId, record: &IndexedRecord) -> Vec<u8> {
        let mut raw = Vec::new();
        let decoded = self.packs.fetch(set, record.offset, record.bytes).and_then(|fetched| {
            let head = &fetched.head;
            self.decoder.decode(head.codec, fetched.stored(), head.raw_bytes as usize, &mut raw)
        });
        if decoded.is_err() {
            raw.clear();
        }
        raw
    }
}

/// Whether a sound copy stands in a pack that is not condemned, and that a writer may rely on.
fn stands_elsewhere(index: &Index<'_>, others: &mut ChunkReader<'_>, id: &ChunkId) -> Result<bool> {
    let list = index.packs();
    let stays = |number| list.get(number).is_some_and(|it| !it.is_condemned() && it.is_reliable());
    let places = index.places(id)?;
    let mut standing = places.iter().filter(|place| stays(place.record.pack));
    Ok(standing.any(|place| others.read_at(id, place).is_ok()))
}

/// The chunks of a record that are needed, each with its place in the raw bytes.
fn wanted(record: &IndexedRecord, needed: &[(u32, u32)]) -> Vec<(usize, ChunkRow)> {
    let mut start = 0_u32;
    let with_start = record.chunks.iter().map(|row| {
        let place = start;
        start = start.saturating_add(row.raw_bytes);
        (place, row)
    });
    let is_needed = |place: u32| {
        let offset = u32::try_from(record.offset).unwrap_or(u32::MAX);
        needed.binary_search(&(offset, place)).is_ok()
    };
    let wanted = with_start.filter(|(place, _)| is_needed(*place));
    wanted.map(|(place, row)| (place as usize, *row)).collect()
}
