//! Moving what is needed of some packs into new ones, so that the old ones can go.
//!
//! Invariants: of a chunk that stands elsewhere too, that copy is read and verified before it is
//! relied upon; what is copied was verified; a pack of which anything needed is nowhere sound is
//! spared; of a page that is to stand in two packs, so many copies are made that it does. The new
//! packs are durable and in an index run on return.

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
use crate::pipeline::pack::{Laying, ToPacker};
use crate::store::index::{Index, Place, pack_from_records, read_pack_index};
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::{Store, deletion, page_copies};

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

/// Copies what is needed of `packs`, all of which the index has condemned, into new packs, and makes
/// the second copies of `thin`: pages that stand in too few packs. Returns those packs that must stay because something of them is nowhere sound; each is a loss in the ledger.
///
/// # Errors
/// Whatever ends a backup: a full member, more members lost than parity replaces.
pub fn repack(
    store: &Store,
    index: &Index<'_>,
    packs: &[Leaving],
    thin: &[ChunkId],
    limits: Limits,
    monitor: &Monitor,
) -> Result<Vec<SetId>> {
    lay(store, index, limits, monitor, |shared, publisher| {
        let spared = Mutex::new(Vec::new());
        let (next, next_thin) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let todo = Todo { store, shared, packs, next, thin, next_thin, spared: &spared };
        std::thread::scope(|stages| {
            let packer = |laying| packer(stages, shared, publisher, limits.records_queued, laying);
            let (data, data_packer) = packer(Laying::Striped);
            let (tree, tree_packer) = packer(Laying::of_pages(store.config.parity));
            let (again, again_packer) = packer(Laying::Whole { copies: 1 });
            for _ in 0..limits.workers.min(packs.len() + thin.len()) {
                let (data, tree, again) = (data.clone(), tree.clone(), again.clone());
                let todo = &todo;
                stages.spawn(move || {
                    let _guard = shared.abort.on_panic();
                    if let Err(error) = todo.work(data, tree, again) {
                        shared.abort.raise(error);
                    }
                });
            }
            drop((data, tree, again));
            joined(data_packer);
            joined(tree_packer);
            joined(again_packer);
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
            if standing_copies(shared.index, &mut others, id, 1)? == 0 {
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

/// What the workers share.
struct Todo<'w> {
    store: &'w Store,
    shared: &'w Ingest<'w>,
    packs: &'w [Leaving],
    next: AtomicUsize,
    thin: &'w [ChunkId],
    next_thin: AtomicUsize,
    spared: &'w Mutex<Vec<SetId>>,
}

impl Todo<'_> {
    /// One worker: takes the next pack until there is none, then the next page.
    fn work(
        &self,
        data: Sender<ToPacker>,
        tree: Sender<ToPacker>,
        again: Sender<ToPacker>,
    ) -> Result<()> {
        let Todo { store, shared, .. } = *self;
        let reader = PackReader::new(store, shared.monitor);
        let mut mover = Mover {
            store,
            shared,
            packs: &reader,
            others: ChunkReader::new(&reader, shared.index),
            decoder: Decoder::new(),
            data: RecordBuilder::of_kind(shared, RecordKind::Data, data)?,
            tree: RecordBuilder::of_kind(shared, RecordKind::Tree, tree)?,
            again: RecordBuilder::of_kind(shared, RecordKind::Tree, again)?,
        };
        while let Some(pack) = self.packs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if shared.abort.is_raised() {
                return Ok(());
            }
            if let Err(Stuck(error)) = mover.pack(pack)? {
                spare(store, shared, self.spared, pack.set, error)?;
            }
        }
        while let Some(id) = self.thin.get(self.next_thin.fetch_add(1, Ordering::Relaxed)) {
            if shared.abort.is_raised() {
                return Ok(());
            }
            mover.page(id)?;
        }
        mover.data.flush()?;
        mover.tree.flush()?;
        mover.again.flush()
    }
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
    /// For pages of which one more copy is wanted.
    again: RecordBuilder<'w>,
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
            Err(error) => return self.unreadable(leaving, error),
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

    /// A pack that cannot be opened at all may go if all that is needed of it stands elsewhere.
    fn unreadable(&mut self, leaving: &Leaving, error: Error) -> Result<Result<(), Stuck>> {
        let index = self.shared.index;
        let Some(number) = index.packs().find(&leaving.set) else { return Ok(Err(Stuck(error))) };
        let needed = index.over_rows(|rows| {
            let mut needed = Vec::new();
            rows.for_each(&mut |_, id, Place { record, raw_offset, .. }| {
                let at = (record.offset as u32, raw_offset);
                if record.pack == number && leaving.needed.binary_search(&at).is_ok() {
                    needed.push(*id);
                }
                Ok(())
            })?;
            Ok(needed)
        })?;
        for id in needed {
            if standing_copies(index, &mut self.others, &id, 1)? == 0 {
                return Ok(Err(Stuck(error)));
            }
        }
        Ok(Ok(()))
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
            let copies = self.copies_of(record.kind);
            let found = standing_copies(self.shared.index, &mut self.others, &row.id, copies)?;
            if found >= copies {
                self.shared.claims.release(&row.id);
                continue;
            }
            let raw = raw.get_or_insert_with(|| self.read(set, record));
            let chunk = raw.get(*start..start + row.raw_bytes as usize).unwrap_or_default();
            let is_sound = self.shared.keys.chunk_id(chunk) == row.id;
            let builder = match record.kind {
                RecordKind::Tree if found > 0 => &mut self.again,
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

    /// In how many packs a chunk is to stand.
    fn copies_of(&self, kind: RecordKind) -> usize {
        match kind {
            RecordKind::Tree => page_copies(self.store.config.parity),
            _ => 1,
        }
    }

    /// Makes the copy of a page that it lacks. What cannot be read stands nowhere, which is known.
    fn page(&mut self, id: &ChunkId) -> Result<()> {
        if !self.shared.claims.take(id) {
            return Ok(());
        }
        let copies = self.copies_of(RecordKind::Tree);
        let found = standing_copies(self.shared.index, &mut self.others, id, copies)?;
        let page = if found < copies { self.others.read(id).ok() } else { None };
        let Some(page) = page else {
            self.shared.claims.release(id);
            return Ok(());
        };
        let row = ChunkRow { id: *id, raw_bytes: page.len() as u32 };
        let builder = if found > 0 { &mut self.again } else { &mut self.tree };
        builder.add_claimed(&page, vec![row])?;
        self.shared.monitor.add(Counter::DoubledPages, 1);
        Ok(())
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

/// In how many packs that are not condemned, and that a writer may rely on, a sound copy stands;
/// `enough` are not exceeded.
fn standing_copies(
    index: &Index<'_>,
    others: &mut ChunkReader<'_>,
    id: &ChunkId,
    enough: usize,
) -> Result<usize> {
    let list = index.packs();
    let stays = |number| list.get(number).is_some_and(|it| !it.is_condemned() && it.is_reliable());
    let mut found: Vec<u32> = Vec::new();
    for place in index.places(id)? {
        let pack = place.record.pack;
        if found.len() == enough {
            break;
        }
        if stays(pack) && !found.contains(&pack) && others.read_at(id, &place).is_ok() {
            found.push(pack);
        }
    }
    Ok(found.len())
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
