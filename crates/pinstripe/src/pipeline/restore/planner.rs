//! Turns a snapshot's entries into tasks: which record, and which of its chunks go where.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crossbeam_channel::Sender;

use super::{FirstNames, Piece, Plan, Target, Task};
use crate::error::{Error, Kind, Result};
use crate::format::entry::{Content, Entry};
use crate::format::meta::FileKind;
use crate::format::record::ChunkRow;
use crate::pipeline::abort::Abort;
use crate::pipeline::limits::{PLAN_CHUNKS, PLAN_OPEN_FILES};
use crate::store::index::Place;
use crate::store::packs::{missing_chunk, wrong_place};
use crate::store::tree::TreeReader;

/// One chunk on its way into one file, when it is not known yet where it is.
struct Unplaced {
    row: ChunkRow,
    file_offset: u64,
    target: Arc<Target>,
}

/// Turns entries into tasks.
pub(super) struct Planner<'p, 'a> {
    plan: &'p Plan<'a>,
    abort: &'p Abort,
    tasks: Sender<Task>,
    pieces: Vec<Unplaced>,
    open_files: usize,
    first_names: FirstNames,
}

impl<'p, 'a> Planner<'p, 'a> {
    pub(super) fn new(plan: &'p Plan<'a>, abort: &'p Abort, tasks: Sender<Task>) -> Self {
        let first_names = FirstNames::new();
        Planner { plan, abort, tasks, pieces: Vec::new(), open_files: 0, first_names }
    }

    /// Plans everything; returns the first names of inodes that have several.
    pub(super) fn run(mut self, tree: &mut TreeReader<'_>) -> FirstNames {
        loop {
            let entry = match tree.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error) => {
                    self.plan.monitor.loss("snapshot", error);
                    continue;
                }
            };
            if self.abort.is_raised() {
                break;
            }
            self.entry(tree, &entry);
            if self.pieces.len() >= PLAN_CHUNKS || self.open_files >= PLAN_OPEN_FILES {
                self.hand_out();
            }
        }
        self.hand_out();
        self.first_names
    }

    fn entry(&mut self, tree: &mut TreeReader<'_>, entry: &Entry) {
        match entry.meta.kind {
            FileKind::Directory => {
                let path = self.plan.below(&entry.path);
                if !path.is_empty()
                    && let Err(error) = self.plan.sink.make_directory(path)
                {
                    self.plan.lose(path, error);
                }
            }
            FileKind::File => {
                let path = self.plan.target_path(entry).to_vec();
                let key = (entry.device, entry.inode);
                let is_later_name = entry.is_hard_linked()
                    && *self.first_names.entry(key).or_insert_with(|| path.clone()) != path;
                if !is_later_name {
                    self.file(tree, entry, path);
                }
            }
            _ => {}
        }
    }

    fn file(&mut self, tree: &mut TreeReader<'_>, entry: &Entry, path: Vec<u8>) {
        let target = Arc::new(Target {
            path,
            size: entry.size,
            meta: entry.meta.clone(),
            left: AtomicUsize::new(1),
            failed: AtomicBool::new(false),
            sink: Mutex::default(),
        });
        let planned = match &entry.content {
            Content::Chunks(rows) => {
                self.open_files += usize::from(rows.len() > 1);
                let mut offsets = Offsets::new(entry);
                self.rows(rows, &mut offsets, &target)
            }
            Content::Lists(lists) => {
                self.open_files += 1;
                let mut offsets = Offsets::new(entry);
                lists.iter().try_for_each(|list| {
                    let rows = tree.list(&list.id)?;
                    self.rows(&rows, &mut offsets, &target)?;
                    if self.pieces.len() >= PLAN_CHUNKS {
                        self.hand_out();
                    }
                    Ok(())
                })
            }
        };
        self.plan.settle(&target, planned, self.abort);
    }

    fn rows(
        &mut self,
        rows: &[ChunkRow],
        offsets: &mut Offsets,
        target: &Arc<Target>,
    ) -> Result<()> {
        for row in rows {
            let file_offset = offsets.next(row.raw_bytes)?;
            target.left.fetch_add(1, Ordering::Relaxed);
            self.pieces.push(Unplaced { row: *row, file_offset, target: Arc::clone(target) });
        }
        Ok(())
    }

    /// Finds out where each piece is, asking for the chunks in the order of their ids, so that each
    /// page of the index is read once. A file that has a chunk that nobody has is given up.
    fn place(&mut self) -> Vec<Piece> {
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
                    placed.push(Piece { record, raw_offset, row, file_offset, target });
                }
                Err(error) => self.plan.settle(&target, Err(error), self.abort),
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

    /// Hands out what is planned, in the order in which the packs hold it.
    fn hand_out(&mut self) {
        self.open_files = 0;
        let mut pieces = self.place();
        pieces.sort_by_key(|piece| (piece.record, piece.raw_offset));
        let mut pieces = pieces.into_iter().peekable();
        while let Some(first) = pieces.next() {
            let record = first.record;
            let mut task = Task { record, pieces: vec![first] };
            while let Some(next) = pieces.next_if(|piece| piece.record == record) {
                task.pieces.push(next);
            }
            if self.tasks.send(task).is_err() {
                return; // The fetchers are gone only when one panicked.
            }
        }
    }
}

/// Where in its file each chunk begins.
pub(super) struct Offsets {
    extents: std::vec::IntoIter<std::ops::Range<u64>>,
    current: std::ops::Range<u64>,
}

impl Offsets {
    pub(super) fn new(entry: &Entry) -> Self {
        Offsets { extents: entry.data_extents().into_iter(), current: 0..0 }
    }

    pub(super) fn next(&mut self, bytes: u32) -> Result<u64> {
        if self.current.is_empty() {
            self.current = self.extents.next().unwrap_or(0..0);
        }
        let start = self.current.start;
        self.current.start += u64::from(bytes);
        if self.current.start > self.current.end {
            return Err(Error::new(Kind::Corrupt, "a chunk reaches beyond its run of data"));
        }
        Ok(start)
    }
}
