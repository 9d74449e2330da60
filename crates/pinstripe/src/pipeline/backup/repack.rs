//! Repacking: copies the needed part of some packs into new packs, so that the old ones can be
//! deleted.
//!
//! Invariants: a chunk that another pack has too is relied upon only after that copy was read and
//! verified. Copied bytes were verified. A pack with a needed chunk that has no intact copy is
//! kept. A page that should be in two packs gets as many copies as it lacks. The new packs are
//! durable and in an index run on return.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::Sender;

use super::other_copies::OtherCopies;
use super::record::RecordBuilder;
use super::shared::Writing;
use super::write_session::write_session;
use super::{joined, packer};
use crate::pipeline::limits::Limits;
use crate::pipeline::pack::{Laying, ToPacker};
use crate::store::index::{Index, Place, pack_from_records, read_pack_index};
use crate::store::packs::PackReader;
use crate::store::{Store, deletion, page_copies};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ChunkId, SetId};
use pinstripe_base::monitor::Counter;
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::{into_inner, lock};
use pinstripe_member::ExtentName;
use pinstripe_member::pack_index::{IndexedRecord, PackIndex};
use pinstripe_member::record::{ChunkRow, RecordKind};
use pinstripe_stripe::Decoder;

/// A pack that will be deleted, and the needed part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EvacuatingPack {
    /// The name.
    pub set: SetId,
    /// Needed chunks, ascending: the offset of the record in the pack, and the offset of the chunk
    /// in the record's raw bytes.
    pub needed: Vec<(u32, u32)>,
    /// Needed chunks of a pack that cannot be read, if other packs have copies of them.
    pub copies: Vec<ChunkId>,
}

/// What one call of [`repack`] does.
#[derive(Clone, Copy)]
pub(crate) struct RepackPlan<'p> {
    /// Packs that will be deleted, whose needed part is copied into new packs.
    pub packs: &'p [EvacuatingPack],
    /// Pages that are in too few packs and get another copy.
    pub thin: &'p [ChunkId],
    /// Packs that will be deleted, including those that other processes condemned: a copy in one of
    /// them does not count.
    pub excluded: &'p HashSet<SetId>,
}

/// Carries out a plan. Returns the packs that must be kept because no intact copy of some chunk
/// exists; each is a loss in the ledger.
///
/// # Errors
/// Fails with the errors that end any backup: a member is full, or more members are lost than
/// parity replaces.
pub(crate) fn repack(
    store: &Store,
    index: &Index<'_>,
    plan: RepackPlan<'_>,
    limits: Limits,
    monitor: &Monitor,
) -> Result<Vec<SetId>> {
    write_session(store, index, limits, monitor, |shared, publisher| {
        let spared = Mutex::new(Vec::new());
        let (next, next_thin) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let todo = Todo { store, shared, plan, next, next_thin, spared: &spared };
        std::thread::scope(|stages| {
            let packer = |laying| packer(stages, shared, publisher, limits.records_queued, laying);
            let (data, data_packer) = packer(Laying::Striped);
            let (tree, tree_packer) = packer(Laying::of_pages(store.config.parity));
            let (again, again_packer) = packer(Laying::Whole { copies: 1 });
            for _ in 0..limits.workers.min(plan.packs.len() + plan.thin.len()) {
                let (data, tree, again) = (data.clone(), tree.clone(), again.clone());
                let todo = &todo;
                stages.spawn(move || {
                    let _guard = shared.abort.on_panic();
                    if let Err(error) = todo.work(data, tree, again) {
                        shared.abort.raise(error);
                    }
                });
            }
            // A packer ends when its queue has no sender left, so these must not keep one.
            drop((data, tree, again));
            joined(data_packer);
            joined(tree_packer);
            joined(again_packer);
            shared.abort.check()
        })?;
        publisher.publish()?;
        // Only now: the copy that a pack counts on may be one that was moved above.
        confirm_copies(store, shared, plan, &spared)?;
        store.confirm_takers()?;
        Ok(into_inner(spared))
    })
}

/// Verifies that the chunks of unreadable packs have copies, after all other packs were moved.
fn confirm_copies(
    store: &Store,
    shared: &Writing<'_>,
    plan: RepackPlan<'_>,
    spared: &Mutex<Vec<SetId>>,
) -> Result<()> {
    let reader = PackReader::new(store, shared.monitor);
    let mut others = OtherCopies::new(&reader, shared.index, plan.excluded);
    shared.index.refresh()?;
    for pack in plan.packs {
        for id in &pack.copies {
            if others.count(id, 1)? == 0 {
                let what = format!("chunk {id} has no other copy");
                spare(store, shared, spared, pack.set, Error::new(Kind::TooManyLosses, what))?;
                break;
            }
        }
    }
    Ok(())
}

/// Keeps a pack with a chunk that cannot be moved, and reports why.
fn spare(
    store: &Store,
    shared: &Writing<'_>,
    spared: &Mutex<Vec<SetId>>,
    set: SetId,
    error: Error,
) -> Result<()> {
    // The missing extents may be on a member that joined meanwhile: then this gc ends.
    store.meet_newcomers()?;
    store.refuse_newcomers()?;
    // If another gc is deleting it, that gc has made sure that its needed data is in other packs.
    let name = ExtentName::pack(set);
    if !deletion::going_packs(store)?.contains(&set) && !is_removed(store, name) {
        shared
            .monitor
            .loss(name.path(), error.advice("the pack was not removed; run 'pinstripe check'"));
    }
    lock(spared).push(set);
    Ok(())
}

/// Whether no answering member has an extent of a pack that was complete when it was listed: its
/// writer has rewritten it without a member that failed.
fn is_removed(store: &Store, name: ExtentName) -> bool {
    let lens: Vec<_> =
        store.present().map(|(_, member)| member.len(name).map_err(|it| it.kind())).collect();
    lens.contains(&Err(Kind::NotFound))
        && lens.iter().all(|len| len.as_ref().is_err_and(|it| *it != Kind::Corrupt))
}

/// The state that the repack workers share.
struct Todo<'w> {
    store: &'w Store,
    shared: &'w Writing<'w>,
    plan: RepackPlan<'w>,
    next: AtomicUsize,
    next_thin: AtomicUsize,
    spared: &'w Mutex<Vec<SetId>>,
}

impl Todo<'_> {
    /// Runs one worker: it takes the next pack until none is left, then the next page.
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
            others: OtherCopies::new(&reader, shared.index, self.plan.excluded),
            decoder: Decoder::new(),
            data: RecordBuilder::of_kind(shared, RecordKind::Data, data)?,
            tree: RecordBuilder::of_kind(shared, RecordKind::Tree, tree)?,
            again: RecordBuilder::of_kind(shared, RecordKind::Tree, again)?,
        };
        while let Some(pack) = self.plan.packs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if shared.abort.is_raised() {
                return Ok(());
            }
            if let MovedRecord::CannotMove(error) = mover.pack(pack)? {
                spare(store, shared, self.spared, pack.set, error)?;
            }
        }
        while let Some(id) = self.plan.thin.get(self.next_thin.fetch_add(1, Ordering::Relaxed)) {
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

/// The result of moving the needed part of a pack or a record.
enum MovedRecord {
    /// All needed chunks are now in packs that are kept.
    All,
    /// Some needed chunk has no intact copy, for this reason, so the pack must be kept.
    CannotMove(Error),
}

struct Mover<'w> {
    store: &'w Store,
    shared: &'w Writing<'w>,
    packs: &'w PackReader<'w>,
    others: OtherCopies<'w>,
    decoder: Decoder,
    data: RecordBuilder<'w>,
    tree: RecordBuilder<'w>,
    /// A builder for pages that a pack has already and that need one more copy.
    again: RecordBuilder<'w>,
}

impl Mover<'_> {
    /// Moves one pack. Continues after a failure, so that everything that can be moved is safe
    /// whether or not the pack is kept.
    fn pack(&mut self, evacuating: &EvacuatingPack) -> Result<MovedRecord> {
        if evacuating.needed.is_empty() {
            return Ok(MovedRecord::All);
        }
        // The records themselves have the same information as the index, but are slower to read.
        let known = read_pack_index(self.store, evacuating.set)
            .or_else(|_| pack_from_records(self.store, evacuating.set).map(|(pack, _)| pack.index));
        let PackIndex { records, .. } = match known {
            Ok(known) => known,
            Err(error) => return self.unreadable(evacuating, error),
        };
        let (mut found, mut moved) = (0, MovedRecord::All);
        for record in &records {
            let wanted = wanted(record, &evacuating.needed);
            found += wanted.len();
            if wanted.is_empty() {
                continue;
            }
            if let MovedRecord::CannotMove(error) = self.record(evacuating.set, record, &wanted)? {
                moved = MovedRecord::CannotMove(error);
            }
            let raw_bytes: u64 = wanted.iter().map(|(_, row)| u64::from(row.raw_bytes)).sum();
            let share = raw_bytes * u64::from(record.bytes) / u64::from(record.raw_bytes.max(1));
            self.shared.monitor.add(Counter::RepackedBytes, share);
        }
        // A needed chunk that no record lists would be lost with the pack.
        if found < evacuating.needed.len() {
            let error =
                Error::new(Kind::Corrupt, "a pack's index lacks chunks that snapshots need")
                    .expected(evacuating.needed.len(), found);
            moved = MovedRecord::CannotMove(error);
        }
        Ok(moved)
    }

    /// Checks whether a pack that cannot be opened may be deleted: other packs must have its needed
    /// chunks.
    fn unreadable(&mut self, evacuating: &EvacuatingPack, error: Error) -> Result<MovedRecord> {
        let index = self.shared.index;
        let Some(number) = index.packs().find(&evacuating.set) else {
            return Ok(MovedRecord::CannotMove(error));
        };
        let needed = index.over_rows(|rows| {
            let mut needed = Vec::new();
            rows.for_each(&mut |_, id, Place { record, raw_offset, .. }| {
                let at = (record.offset as u32, raw_offset);
                if record.pack == number && evacuating.needed.binary_search(&at).is_ok() {
                    needed.push(*id);
                }
                Ok(())
            })?;
            Ok(needed)
        })?;
        for id in needed {
            if self.others.count(&id, 1)? == 0 {
                return Ok(MovedRecord::CannotMove(error));
            }
        }
        Ok(MovedRecord::All)
    }

    fn record(
        &mut self,
        set: SetId,
        record: &IndexedRecord,
        wanted: &[(usize, ChunkRow)],
    ) -> Result<MovedRecord> {
        let mut raw = None;
        let mut moved = MovedRecord::All;
        for (start, row) in wanted {
            // Another worker is copying the same chunk from another pack that will go.
            if !self.shared.claims.take(&row.id) {
                continue;
            }
            let copies = self.copies_of(record.kind);
            let found = self.others.count(&row.id, copies)?;
            if found >= copies {
                self.shared.claims.release(&row.id);
                continue;
            }
            // Read once for all its chunks, and only if one of them has to be copied.
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
            // Any other copy will do, in any pack.
            match self.others.reader.read(&row.id) {
                Ok(chunk) => builder.add_claimed(&chunk, vec![*row])?,
                Err(error) => moved = MovedRecord::CannotMove(error),
            }
        }
        Ok(moved)
    }

    /// Returns the number of packs that should have a chunk of this kind.
    fn copies_of(&self, kind: RecordKind) -> usize {
        match kind {
            RecordKind::Tree => page_copies(self.store.config.parity),
            _ => 1,
        }
    }

    /// Writes the missing copy of a page. A page that cannot be read is skipped: it is in no
    /// readable pack, so nothing more is lost.
    fn page(&mut self, id: &ChunkId) -> Result<()> {
        if !self.shared.claims.take(id) {
            return Ok(());
        }
        let copies = self.copies_of(RecordKind::Tree);
        let found = self.others.count(id, copies)?;
        let page = if found < copies { self.others.reader.read(id).ok() } else { None };
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

    /// Returns the record's raw bytes, or no bytes when they cannot be read.
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

/// Returns the needed chunks of a record, each with its offset in the raw bytes.
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
