//! Turns a snapshot's entries into tasks: which record is needed, and where its chunks must be
//! written.

mod compare;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::Sender;
use pinstripe_prefetch::Runner;

use super::ChosenReader;
use super::linked;
use super::spans::Span;
use super::target::{OpenFiles, Target};
use super::{
    FirstPass, FoundDirectory, PlacedChunk, RecordTask, RestorePlan, Reuse, StoredRecords,
};
use crate::pipeline::limits::{PLAN_CHUNKS, PLAN_OPEN_FILES};
use crate::store::index::Place;
use crate::store::packs::{RecordPlace, missing_chunk, wrong_place};
use crate::store::tree::SEE_WHAT_IS_LOST;
pub(crate) use compare::differing_bytes;
use compare::{Doubtful, are_there};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_io::descriptors;
use pinstripe_member::entry::{Content, Entry};
use pinstripe_member::meta::FileKind;
use pinstripe_member::record::ChunkRow;
use pinstripe_stripe::Abort;

/// One chunk that must be written into one file, and whose pack has not been looked up yet.
pub(super) struct Unplaced {
    pub row: ChunkRow,
    pub file_offset: u64,
    pub target: Arc<Target>,
}

/// Turns entries into tasks.
pub(super) struct Planner<'p, 'a> {
    plan: &'p RestorePlan<'a>,
    abort: &'p Abort,
    runner: &'p Runner<StoredRecords<'a>>,
    tasks: Sender<RecordTask<'p, 'a>>,
    pieces: Vec<Unplaced>,
    /// Chunks that may be in the target already.
    doubtful: Vec<Doubtful>,
    open_files: usize,
    open_files_most: usize,
    all_open: Arc<OpenFiles>,
    first: FirstPass,
    /// The files to restore, by their inodes in the snapshot; all files if `None`.
    only: Option<HashSet<(u64, u64)>>,
}

impl<'p, 'a> Planner<'p, 'a> {
    pub(super) fn new(
        plan: &'p RestorePlan<'a>,
        abort: &'p Abort,
        runner: &'p Runner<StoredRecords<'a>>,
        tasks: Sender<RecordTask<'p, 'a>>,
        first: FirstPass,
        only: Option<HashSet<(u64, u64)>>,
    ) -> Self {
        let (pieces, doubtful) = (Vec::new(), Vec::new());
        // Files of the plan before may still be open.
        let open_files_most = descriptors::share(PLAN_OPEN_FILES, 4);
        Planner {
            plan,
            abort,
            runner,
            tasks,
            pieces,
            doubtful,
            open_files: 0,
            open_files_most,
            all_open: Arc::default(),
            first,
            only,
        }
    }

    /// Plans everything; returns what the later passes need.
    pub(super) fn run(mut self, tree: &mut ChosenReader<'_>) -> FirstPass {
        loop {
            let entry = match tree.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(_) if self.only.is_some() => continue,
                Err(error) => {
                    self.plan.monitor.add(Counter::LostEntries, tree.lost_entries());
                    self.plan.monitor.loss("snapshot", error.advice(SEE_WHAT_IS_LOST));
                    continue;
                }
            };
            if self.abort.is_raised() {
                break;
            }
            self.entry(tree, &entry);
            if self.is_full() || self.open_files >= self.open_files_most {
                self.hand_out();
            }
        }
        self.hand_out();
        self.first
    }

    fn entry(&mut self, tree: &mut ChosenReader<'_>, entry: &Entry) {
        match entry.meta.kind {
            FileKind::Directory if self.only.is_none() => {
                let path = self.plan.below(&entry.path);
                let found = match self.plan.sink.may_hold_anything() {
                    true => self.plan.find_directory(entry),
                    false => Some(FoundDirectory::Missing).filter(|_| !path.is_empty()),
                };
                self.first.directories.push(found.unwrap_or(FoundDirectory::Same));
                if !path.is_empty()
                    && let Err(error) =
                        self.plan.with_parents(path, || self.plan.sink.make_directory(path))
                {
                    self.plan.lose(path, error);
                }
            }
            FileKind::File => {
                let path = self.plan.target_path(entry).to_vec();
                if self.is_wanted(entry, &path) {
                    self.file(tree, entry, path);
                }
            }
            _ => {}
        }
    }

    /// Whether a file must be restored under this name, and not linked to another one.
    fn is_wanted(&mut self, entry: &Entry, path: &[u8]) -> bool {
        let key = linked::key(entry);
        if let Some(only) = &self.only
            && (!key.is_some_and(|key| only.contains(&key)) || self.plan.is_lost(path))
        {
            return false;
        }
        let first_names = &mut self.first.first_names;
        key.is_none_or(|key| first_names.entry(key).or_insert_with(|| path.to_vec()) == path)
    }

    fn is_full(&self) -> bool {
        self.pieces.len() + self.doubtful.len() >= PLAN_CHUNKS
    }

    fn file(&mut self, tree: &mut ChosenReader<'_>, entry: &Entry, path: Vec<u8>) {
        let reuse = self.plan.reuse;
        let existing = reuse.and_then(|_| self.plan.sink.existing(&path)).map(Arc::new);
        if let Some(existing) = &existing
            && reuse == Some(Reuse::ByTime)
            && existing.looks_like(entry.size, &entry.meta)
            && self.plan.linked.may_trust(entry)
        {
            self.plan.monitor.add(Counter::KeptBytes, entry.size);
            let target = Target::new(entry, path, None, None);
            return self.plan.keep(&target, existing, &entry.data_extents(), self.abort);
        }
        let is_long = match &entry.content {
            Content::Chunks(rows) => rows.len() > 1,
            Content::Lists(_) => true,
        };
        let may_stay_open = existing.is_some() || is_long;
        self.open_files += usize::from(may_stay_open);
        let open = may_stay_open.then(|| self.all_open.add());
        let target = Arc::new(Target::new(entry, path, existing, open));
        let planned = match &entry.content {
            Content::Chunks(rows) => {
                let mut offsets = Offsets::new(entry);
                self.rows(rows, &mut offsets, &target)
            }
            Content::Lists(lists) => {
                let mut offsets = Offsets::new(entry);
                lists.iter().try_for_each(|list| {
                    let rows = tree.list(&list.id)?;
                    self.rows(&rows, &mut offsets, &target)?;
                    if self.is_full() {
                        self.hand_out();
                    }
                    Ok(())
                })
            }
        };
        self.plan.end_planning(&target, planned, self.abort);
    }

    fn rows(
        &mut self,
        rows: &[ChunkRow],
        offsets: &mut Offsets,
        target: &Arc<Target>,
    ) -> Result<()> {
        for row in rows {
            let file_offset = offsets.next(row.raw_bytes)?;
            target.add_piece();
            let piece = Unplaced { row: *row, file_offset, target: Arc::clone(target) };
            match &target.existing {
                Some(existing) => self.doubtful.push((Arc::clone(existing), piece)),
                None => self.pieces.push(piece),
            }
        }
        Ok(())
    }

    /// Removes the chunks from the plan that are in the target already.
    fn look_at_what_is_there(&mut self) {
        let doubtful = std::mem::take(&mut self.doubtful);
        let plan = self.plan;
        let there = are_there(plan.limits.workers, plan.keys, &doubtful).unwrap_or_default();
        for (number, (_, piece)) in doubtful.into_iter().enumerate() {
            if there.get(number) != Some(&true) {
                self.pieces.push(piece);
                continue;
            }
            plan.monitor.add(Counter::KeptBytes, u64::from(piece.row.raw_bytes));
            piece
                .target
                .keep(piece.file_offset..piece.file_offset + u64::from(piece.row.raw_bytes));
            plan.settle_piece(&piece.target, Ok(()), self.abort);
        }
    }

    /// Finds the place of each piece by looking up the chunks in the order of their ids, so that
    /// each page of the index is read once. A file with a chunk that no pack has is abandoned.
    fn place(&mut self) -> Vec<PlacedChunk> {
        let mut unplaced = std::mem::take(&mut self.pieces);
        unplaced.sort_by_key(|piece| piece.row.id);
        let mut placed = Vec::with_capacity(unplaced.len());
        let mut last: Option<(ChunkRow, Place)> = None;
        for Unplaced { row, file_offset, target } in unplaced {
            let place = match last {
                Some((known, place)) if known == row => Ok(place),
                _ => self.place_of(&row),
            };
            match place {
                Ok(place) => {
                    last = Some((row, place));
                    let Place { record, raw_offset, .. } = place;
                    placed.push(PlacedChunk { record, raw_offset, row, file_offset, target });
                }
                Err(error) => self.plan.settle_piece(&target, Err(error), self.abort),
            }
        }
        placed
    }

    fn place_of(&self, row: &ChunkRow) -> Result<Place> {
        let place = self.plan.index.find(&row.id)?.ok_or_else(|| missing_chunk(&row.id))?;
        if place.raw_bytes != row.raw_bytes {
            return Err(wrong_place(&row.id));
        }
        Ok(place)
    }

    /// Sends out the planned pieces, in the order of the packs.
    fn hand_out(&mut self) {
        // Many short plans would fit into the queues at once, with all of their files open.
        let own = std::mem::take(&mut self.open_files);
        self.all_open.wait_for(self.open_files_most + own);
        self.look_at_what_is_there();
        let mut pieces = self.place();
        pieces.sort_by_key(|piece| (piece.record, piece.raw_offset));
        let mut records: Vec<RecordPlace> = pieces.iter().map(|piece| piece.record).collect();
        records.dedup();
        let mut pieces = pieces.into_iter().peekable();
        for Span { place, records } in self.runner.source().spans.spans(&records) {
            // All pins before the first task: its decoder may be done before the next one is taken.
            let pins: Vec<_> =
                records.iter().map(|_| self.runner.pin(place, u64::from(place.bytes))).collect();
            self.runner.start([place]);
            for (record, span) in records.iter().copied().zip(pins) {
                let mut of_record = Vec::new();
                while let Some(piece) = pieces.next_if(|piece| piece.record == record) {
                    of_record.push(piece);
                }
                if self.tasks.send(RecordTask { record, span, pieces: of_record }).is_err() {
                    return; // The decoders are gone only when one panicked.
                }
            }
        }
    }
}

/// The offset of each chunk in its file.
pub(crate) struct Offsets {
    extents: std::vec::IntoIter<Range<u64>>,
    current: Range<u64>,
}

impl Offsets {
    pub fn new(entry: &Entry) -> Self {
        Offsets { extents: entry.data_extents().into_iter(), current: 0..0 }
    }

    pub fn next(&mut self, bytes: u32) -> Result<u64> {
        if self.current.is_empty() {
            self.current = self.extents.next().unwrap_or(0..0);
        }
        let start = self.current.start;
        self.current.start += u64::from(bytes);
        if self.current.start > self.current.end {
            return Err(Error::new(
                Kind::Corrupt,
                "a chunk extends past the end of its file extent",
            ));
        }
        Ok(start)
    }

    /// The offset in the file where the next `bytes` bytes of content end.
    pub fn after(&self, bytes: u64) -> u64 {
        let mut left = bytes;
        for run in std::iter::once(&self.current).chain(self.extents.as_slice()) {
            let here = run.end - run.start;
            if left <= here {
                return run.start + left;
            }
            left -= here;
        }
        u64::MAX
    }

    /// Skips `bytes` bytes of content.
    pub fn skip(&mut self, mut bytes: u64) -> Result<()> {
        while bytes > 0 {
            if self.current.is_empty() {
                self.current = self.extents.next().ok_or_else(|| {
                    Error::new(
                        Kind::Corrupt,
                        "a file's list of chunks extends past the end of the file's data",
                    )
                })?;
            }
            let here = bytes.min(self.current.end - self.current.start);
            self.current.start += here;
            bytes -= here;
        }
        Ok(())
    }
}
