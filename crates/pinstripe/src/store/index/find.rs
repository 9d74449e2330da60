//! Answers queries about a chunk: whether the store has it, whether a writer may rely on it, and
//! where it is; and iterates over all rows in order.
//!
//! A page that cannot be read even with parity makes its run unusable: the run is ignored from then
//! on, and the packs that only it lists are read directly. A run that is missing was merged by
//! another writer: the index is refreshed and the query repeated.

use std::sync::Arc;

use pinstripe_base::error::{Error, Result};
use pinstripe_base::id::{ChunkId, SetId};
use pinstripe_member::index_run::Row;
use pinstripe_member::{ExtentKind, ExtentName};
use pinstripe_stripe::Opener;

use super::cut::has_enough;
use super::load::sets_in;
use super::loose::Loose;
use super::redundant::keep_runs;
use super::run::{Cursor, Pages, Run};
use super::{Index, Pack, View};

/// The place of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordPlace {
    /// The number of the pack in the index's list of packs.
    pub pack: u32,
    /// The offset of the record in the pack's logical run.
    pub offset: u64,
    /// Length of head, chunk table and stored bytes.
    pub bytes: u32,
}

/// The place of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The record that holds the chunk.
    pub record: RecordPlace,
    /// The offset of the chunk in the record's raw bytes.
    pub raw_offset: u32,
    /// Length.
    pub raw_bytes: u32,
}

impl From<Row> for Place {
    fn from(row: Row) -> Self {
        let (pack, offset, bytes) = (row.pack, u64::from(row.offset), row.bytes);
        let record = RecordPlace { pack, offset, bytes };
        Place { record, raw_offset: row.raw_offset, raw_bytes: row.raw_bytes }
    }
}

/// The largest number of times that a query is repeated because runs had to be ignored.
const ATTEMPTS_MAX: usize = 16;

/// A run that could not be read, and the error.
struct BadRun(SetId, Error);

impl View {
    /// Calls `show` with every row of a chunk, the row's ordinal and its pack, until `show` returns
    /// that it needs no more.
    fn rows_of(
        &self,
        id: &ChunkId,
        pages: &Pages<'_>,
        show: &mut dyn FnMut(u64, Row, &Pack) -> bool,
    ) -> Result<(), BadRun> {
        let mut base = 0;
        for loose in &self.loose {
            let (first, rows) = loose.rows_of(id);
            for (ordinal, row) in (base + first..).zip(rows) {
                if self.packs.get(row.pack).is_some_and(|pack| show(ordinal, *row, pack)) {
                    return Ok(());
                }
            }
            base += loose.len() as u64;
        }
        for run in &self.runs {
            let mut is_enough = false;
            let mut show_row = |ordinal, row: Row| {
                is_enough = is_enough
                    || self.packs.get(row.pack).is_some_and(|p| show(base + ordinal, row, p));
            };
            run.rows_of(id, pages, &mut show_row).map_err(|error| BadRun(run.set, error))?;
            if is_enough {
                return Ok(());
            }
            base += run.rows;
        }
        Ok(())
    }
}

impl Index<'_> {
    /// Queries a view, and repeats the query without a run that cannot be read.
    fn ask<T>(&self, question: impl Fn(&View) -> Result<T, BadRun>) -> Result<T> {
        let mut attempts = 0;
        loop {
            match question(&self.view()) {
                Ok(answer) => return Ok(answer),
                Err(BadRun(set, error)) => {
                    attempts += 1;
                    if attempts > ATTEMPTS_MAX {
                        return Err(error);
                    }
                    if !self.reopen(set)? {
                        self.leave_out(set, error)?;
                    }
                }
            }
        }
    }

    /// Opens a run again, once: it may have moved to another member since it was opened. Returns
    /// whether this was the first time.
    fn reopen(&self, run: SetId) -> Result<bool> {
        let is_first = self.marks(|marks| marks.reopened.insert(run));
        if is_first {
            self.store.meet_newcomers()?;
            self.drop_run(run);
            self.gather(true)?;
        }
        Ok(is_first)
    }

    /// Refreshes the index without a run that could not be read. The run is damaged if enough
    /// members still have it; otherwise another writer merged it away, which is not damage.
    pub(super) fn leave_out(&self, run: SetId, error: Error) -> Result<()> {
        if error.kind().is_about_keys() {
            return Err(error);
        }
        let name = ExtentName::index(run);
        if let Some(members) = sets_in(self.store, ExtentKind::Index)?.get(&run)
            && self.marks(|marks| marks.bad.insert(run))
            && has_enough(self.store, name, members)
        {
            let error = error.advice(
                "the command uses the indexes in the packs instead; 'pinstripe repair' repairs \
                 this index run",
            );
            self.monitor.warning(name.path(), error);
        }
        self.gather(true)
    }

    /// Forgets that a run was opened.
    fn drop_run(&self, run: SetId) {
        loop {
            let old = self.view();
            let mut new = View::clone(&old);
            keep_runs(&mut new, |set| *set != run);
            if self.replace(&old, new) {
                return;
            }
        }
    }

    fn pages(&self) -> Pages<'_> {
        Pages { cache: &self.cache, opener: self.store.opener() }
    }

    /// Returns the place of a chunk in a readable pack, condemned or not.
    ///
    /// # Errors
    /// Fails when present members cannot be listed; with [`Kind::Busy`](pinstripe_base::error::Kind)
    /// when the chunk is not found and all members that this process knows have left the store.
    pub fn find(&self, id: &ChunkId) -> Result<Option<Place>> {
        match self.find_now(id)? {
            // A collector moves a live chunk to a new pack before it deletes the old one. Packs move
            // to members that join.
            None if self.follow_deletion()? | self.follow_members()? => self.find_now(id),
            found => Ok(found),
        }
    }

    /// Looks for packs again if members have joined since the store was opened, and says whether any
    /// have.
    fn follow_members(&self) -> Result<bool> {
        let have_joined = self.store.has_newcomers()?;
        if have_joined {
            self.refresh_packs()?;
        }
        Ok(have_joined)
    }

    fn find_now(&self, id: &ChunkId) -> Result<Option<Place>> {
        self.ask(|view| {
            let mut place = None;
            view.rows_of(id, &self.pages(), &mut |_, row, pack| {
                if pack.is_readable() {
                    place = Some(Place::from(row));
                }
                place.is_some()
            })?;
            Ok(place)
        })
    }

    /// Returns those of `ids` that are in no readable pack, condemned or not. If the ids are
    /// sorted, each page of the index is read at most once.
    ///
    /// # Errors
    /// Fails with the errors of [`find`](Self::find).
    pub fn missing(&self, ids: &[ChunkId]) -> Result<Vec<ChunkId>> {
        let mut missing = Vec::new();
        for id in ids {
            if self.find_now(id)?.is_none() && self.find(id)?.is_none() {
                missing.push(*id);
            }
        }
        Ok(missing)
    }

    /// Returns all places of a chunk in readable packs: if one copy is damaged, the next one can be
    /// used.
    ///
    /// # Errors
    /// Fails with the errors of [`find`](Self::find).
    pub fn places(&self, id: &ChunkId) -> Result<Vec<Place>> {
        self.ask(|view| {
            let mut places: Vec<Place> = Vec::new();
            view.rows_of(id, &self.pages(), &mut |_, row, pack| {
                let place = Place::from(row);
                if pack.is_readable() && !places.contains(&place) {
                    places.push(place);
                }
                false
            })?;
            Ok(places)
        })
    }

    /// Whether the store may have the chunk, judged by filters alone: never `false` for a chunk
    /// that it has. Reads nothing.
    pub fn may_have(&self, id: &ChunkId) -> bool {
        let view = self.view();
        view.loose.iter().any(|loose| !loose.rows_of(id).1.is_empty())
            || view.runs.iter().any(|run| run.may_have(id))
    }

    /// Whether a writer may refer to a chunk that it has not stored itself: the chunk is in a
    /// readable pack that is not condemned. The pack is then marked as used.
    ///
    /// # Errors
    /// Fails with the errors of [`find`](Self::find).
    pub fn rely_on(&self, id: &ChunkId) -> Result<bool> {
        self.ask(|view| {
            let mut may = false;
            view.rows_of(id, &self.pages(), &mut |_, _, pack| {
                may = pack.rely();
                may
            })?;
            Ok(may)
        })
    }

    /// Returns how many of these chunks are in packs that other writers finished since this index
    /// was loaded: such chunks were stored twice.
    ///
    /// # Errors
    /// Fails with the errors of [`find`](Self::find).
    pub fn raced<'i>(&self, ids: impl IntoIterator<Item = &'i ChunkId>) -> Result<u64> {
        let view = self.view();
        let own = self.marks(|marks| marks.own.clone());
        let is_other = |pack: &Pack| !self.first.contains(&pack.set) && !own.contains(&pack.set);
        if !view.packs.iter().any(|(_, pack)| is_other(pack)) {
            return Ok(0);
        }
        let mut raced = 0;
        for id in ids {
            raced += u64::from(self.ask(|view| {
                let mut found = false;
                view.rows_of(id, &self.pages(), &mut |_, _, pack| {
                    found = is_other(pack);
                    found
                })?;
                Ok(found)
            })?);
        }
        Ok(raced)
    }

    /// Calls `work` with the present rows, which do not change while others write; repeats the call
    /// if it failed because another writer merged index runs, or because a run cannot be read,
    /// which is then ignored.
    ///
    /// # Errors
    /// Fails with the errors of `work` that have another cause, or with the errors of the members.
    pub fn over_rows<T>(&self, mut work: impl FnMut(&Rows<'_>) -> Result<T>) -> Result<T> {
        let mut tries = 0;
        loop {
            let rows = self.frozen();
            let error = match work(&rows) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            // Still current after a refresh: no merge explains the error, so the runs are checked.
            self.refresh_packs()?;
            if rows.are_current(self) {
                self.leave_out_unreadable(&rows.view.runs)?;
            }
            tries += 1;
            if rows.are_current(self) || tries == ATTEMPTS_MAX {
                return Err(error);
            }
        }
    }

    pub(super) fn frozen(&self) -> Rows<'_> {
        Rows { view: self.view(), pages: self.pages() }
    }
}

/// All rows of an index at one moment. A row's *ordinal* is below [`count`](Self::count) and is the
/// same in every query; a chunk has as many rows as it was stored times, and ordinals of rows whose
/// pack is gone are never returned.
pub struct Rows<'i> {
    view: Arc<View>,
    pages: Pages<'i>,
}

impl Rows<'_> {
    /// All ordinals are below this number, which is the length of a bitmap over rows.
    pub fn count(&self) -> u64 {
        let runs: u64 = self.view.runs.iter().map(|run| run.rows).sum();
        runs + self.view.loose.iter().map(|loose| loose.len() as u64).sum::<u64>()
    }

    /// Whether `index` still uses every run from which these rows are read: if another writer has
    /// merged one, its rows cannot be read any more.
    fn are_current(&self, index: &Index<'_>) -> bool {
        self.view.runs.iter().all(|run| index.has_run(run.set))
    }

    /// Returns the name and flags of the pack to which a place refers.
    pub fn pack(&self, number: u32) -> Option<&Pack> {
        self.view.packs.get(number)
    }

    /// Passes all rows of some chunks to the function: the position in `ids`, the row's ordinal,
    /// the place. If the ids are sorted, each page is read at most once.
    ///
    /// # Errors
    /// Fails when a page cannot be read.
    pub fn find_many(
        &self,
        ids: &[ChunkId],
        show: &mut dyn FnMut(usize, u64, Place),
    ) -> Result<()> {
        for (at, id) in ids.iter().enumerate() {
            let found = self.view.rows_of(id, &self.pages, &mut |ordinal, row, _| {
                show(at, ordinal, Place::from(row));
                false
            });
            found.map_err(|BadRun(_, error)| error)?;
        }
        Ok(())
    }

    /// Passes every row to `show`, in the order of the ids. Ends at the first error of `show`.
    ///
    /// # Errors
    /// Fails with the errors of [`find_many`](Self::find_many), and the errors of `show`.
    pub fn for_each(&self, show: &mut dyn FnMut(u64, &ChunkId, Place) -> Result<()>) -> Result<()> {
        let runs: Vec<&Run> = self.view.runs.iter().map(|run| &**run).collect();
        let loose: Vec<&Loose> = self.view.loose.iter().map(|loose| &**loose).collect();
        let mut merged = Merged::new(&loose, &runs, self.pages.opener)?;
        while let Some((ordinal, row)) = merged.next()? {
            show(ordinal, &row.id, Place::from(row))?;
        }
        Ok(())
    }
}

/// One part of the index that is read from end to end.
enum PartReader<'v> {
    Loose(std::iter::Zip<std::ops::RangeFrom<u64>, std::slice::Iter<'v, Row>>),
    Run(Cursor<'v>),
}

impl PartReader<'_> {
    fn next(&mut self) -> Result<Option<(u64, Row)>> {
        match self {
            PartReader::Loose(rows) => Ok(rows.next().map(|(ordinal, row)| (ordinal, *row))),
            PartReader::Run(cursor) => cursor.next(),
        }
    }
}

/// The rows of several parts, in the order of their ids, and for equal ids in the order of their
/// packs.
pub(super) struct Merged<'v> {
    sources: Vec<(u64, PartReader<'v>)>,
    /// The next row of each part.
    heads: std::collections::BinaryHeap<std::cmp::Reverse<PartHead>>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PartHead {
    id: ChunkId,
    pack: u32,
    offset: u32,
    raw_offset: u32,
    source: usize,
    ordinal: u64,
    bytes: u32,
    raw_bytes: u32,
}

impl<'v> Merged<'v> {
    /// Begins to read all parts from their start. Ordinals first count the rows of loose parts,
    /// then those of runs, in this order.
    pub(super) fn new(loose: &[&'v Loose], runs: &[&'v Run], opener: &'v Opener) -> Result<Self> {
        let (mut base, mut sources) = (0, Vec::new());
        for part in loose {
            sources.push((base, PartReader::Loose((0..).zip(part.rows()))));
            base += part.len() as u64;
        }
        for run in runs {
            sources.push((base, PartReader::Run(run.cursor(opener))));
            base += run.rows;
        }
        let mut merged = Merged { sources, heads: std::collections::BinaryHeap::new() };
        (0..merged.sources.len()).try_for_each(|source| merged.advance(source))?;
        Ok(merged)
    }

    fn advance(&mut self, source: usize) -> Result<()> {
        let (base, rows) = &mut self.sources[source];
        if let Some((ordinal, row)) = rows.next()? {
            let Row { id, pack, offset, bytes, raw_offset, raw_bytes } = row;
            let ordinal = *base + ordinal;
            let head = PartHead { id, pack, offset, raw_offset, source, ordinal, bytes, raw_bytes };
            self.heads.push(std::cmp::Reverse(head));
        }
        Ok(())
    }

    /// Returns the next row with its ordinal.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Row)>> {
        let Some(std::cmp::Reverse(head)) = self.heads.pop() else { return Ok(None) };
        self.advance(head.source)?;
        let PartHead { id, pack, offset, bytes, raw_offset, raw_bytes, ordinal, .. } = head;
        Ok(Some((ordinal, Row { id, pack, offset, bytes, raw_offset, raw_bytes })))
    }
}
