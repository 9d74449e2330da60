//! An open index run: its filter and fences are in memory, its pages on the members.
//!
//! An open run takes about 1.2 bytes of memory per chunk. A page is read through the stripe set,
//! from parity if necessary, and cached in the index's [`PageCache`].

use std::collections::VecDeque;
use std::sync::Arc;

use pinstripe_base::error::{Error, Result};
use pinstripe_base::id::{ChunkId, SetId};
use pinstripe_member::index_run::{
    Fences, PAGE_ROWS, Page, Row, RunHead, RunPack, decode_packs, fence, filter_key, unbind,
};
use pinstripe_member::record::RecordKind;
use pinstripe_member::{ExtentName, SealedCache};
use pinstripe_stripe::{Filter, Opener, SetReader, Shape};

use super::page_cache::PageCache;
use super::part;

/// The number of pages read at once by a reader of a complete run.
const PAGES_AHEAD: u32 = 16;

/// The part of a segment that is in memory.
#[derive(Debug)]
struct RunSegment {
    first_page: u32,
    offset: u64,
    fences_offset: u64,
    rows: u32,
    fences: Box<[u64]>,
    filter: Filter,
}

impl RunSegment {
    /// The number of rows that a page must have: all pages but the last are full.
    fn rows_on(&self, page: usize) -> usize {
        (self.rows as usize - page * PAGE_ROWS).min(PAGE_ROWS)
    }
}

/// An open run.
pub struct Run {
    /// The name.
    pub set: SetId,
    /// The number of rows in all pages.
    pub rows: u64,
    /// The number of rows whose chunk has another row in this run.
    pub duplicates: u64,
    reader: SetReader,
    kept: Option<Arc<SealedCache>>,
    /// Whether the parts of the run carry the run's name.
    is_bound: bool,
    page_bytes: u32,
    segments: Box<[RunSegment]>,
    /// For each of its packs, the number in the index's list; `u32::MAX` for packs that are gone.
    packs: Box<[u32]>,
    /// Packs that the run records as lost.
    lost: Box<[SetId]>,
}

/// An opened run whose packs have no numbers in the index yet.
pub(super) struct Opened {
    run: Run,
    pub(super) packs: Vec<RunPack>,
}

impl Opened {
    /// Gives the packs their numbers.
    pub(super) fn numbered(mut self, number: impl Fn(&RunPack) -> u32) -> Run {
        self.run.packs = self.packs.iter().map(number).collect();
        self.run.lost = self.packs.iter().filter(|pack| pack.is_lost).map(|p| p.set).collect();
        self.run
    }
}

/// Opens a run of the format with pages.
///
/// # Errors
/// Fails when a part cannot be read or is not the expected one.
pub(super) fn open(
    reader: SetReader,
    set: SetId,
    opener: &Opener,
    kept: Option<&Arc<SealedCache>>,
) -> Result<Opened> {
    let from = (&reader, kept.map(|kept| &**kept));
    let head = read_part(from, reader.index(), opener, RunHead::decode)?;
    if head.set != set {
        return Err(Error::corrupt(
            "this object has the head of another index run",
            ExtentName::index(set).path(),
        )
        .expected(set, head.set));
    }
    let mut packs = Vec::new();
    for (number, (offset, bytes)) in (0..).zip(&head.tables) {
        let range = *offset..offset + u64::from(*bytes);
        let table =
            read_part(from, range, opener, |body| decode_packs(own_part(&head, number, body)?))?;
        packs.extend(table);
    }
    let mut segments = Vec::with_capacity(head.segments.len());
    let (mut first_page, mut rows) = (0, 0);
    for (number, place) in (0..).zip(&head.segments) {
        let range = place.fences_offset..place.fences_offset + u64::from(place.fences_bytes);
        let (fences, filter) = read_part(from, range, opener, |body| {
            let (fences, fingerprints) = Fences::decode(own_part(&head, number, body)?)?;
            let Fences { seed, segment_log2, filter_segments: segments, .. } = fences;
            let filter = Filter::from_parts(Shape { seed, segment_log2, segments }, fingerprints)?;
            Ok((fences, filter))
        })?;
        if fences.fences.len() != place.pages as usize {
            return Err(Error::corrupt(
                "a segment of an index run lacks entries of its page directory",
                name(set),
            )
            .expected(place.pages, fences.fences.len()));
        }
        // Only the last page of all may have room left, so that rows can be counted by pages.
        if rows != u64::from(first_page) * PAGE_ROWS as u64 {
            return Err(Error::corrupt("a page of the index run is not full", name(set)));
        }
        rows += u64::from(fences.rows);
        let (offset, fences_offset) = (place.offset, place.fences_offset);
        let (rows, fences) = (fences.rows, fences.fences);
        segments.push(RunSegment { first_page, offset, fences_offset, rows, fences, filter });
        first_page += place.pages;
    }
    if rows != head.rows {
        return Err(Error::corrupt(
            "the sum of the counts of an index run's segments is wrong",
            name(set),
        )
        .expected(head.rows, rows));
    }
    let run = Run {
        set,
        rows,
        duplicates: head.duplicates,
        reader,
        kept: kept.cloned(),
        is_bound: head.is_bound,
        page_bytes: head.page_bytes,
        segments: segments.into(),
        packs: Box::default(),
        lost: Box::default(),
    };
    Ok(Opened { run, packs })
}

/// Returns the body of a part of this run, after verifying that it belongs to the run, unless the
/// run has an older form.
fn own_part<'b>(head: &RunHead, number: u32, body: &'b [u8]) -> Result<&'b [u8]> {
    if head.is_bound { unbind(head.set, number, body) } else { Ok(body) }
}

fn name(set: SetId) -> String {
    ExtentName::index(set).path()
}

fn read_part<T>(
    (reader, kept): (&SetReader, Option<&SealedCache>),
    range: std::ops::Range<u64>,
    opener: &Opener,
    decode: impl Fn(&[u8]) -> Result<T>,
) -> Result<T> {
    part::read_kept(reader, kept, range, |bytes| {
        decode(part::parse(RecordKind::RunPart, bytes, opener)?.0)
    })
}

impl Run {
    /// Returns the number in the index's list of a pack of this run, or `None` when the pack is
    /// gone.
    pub(super) fn number(&self, pack: u32) -> Option<u32> {
        self.packs.get(pack as usize).copied().filter(|&number| number != u32::MAX)
    }

    /// Returns the numbers of all packs of the run that are not gone.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.packs.iter().copied().filter(|&number| number != u32::MAX)
    }

    /// Bytes of memory that grow with the run's length.
    pub(super) fn memory_bytes(&self) -> usize {
        let segment = |segment: &RunSegment| {
            size_of::<RunSegment>() + 8 * segment.fences.len() + segment.filter.fingerprints().len()
        };
        let checksums = self.reader.layout().rows() as usize * 16 * self.members();
        self.segments.iter().map(segment).sum::<usize>() + 4 * self.packs.len() + checksums
    }

    /// Returns the number of members over which the run is striped.
    pub(super) fn members(&self) -> usize {
        self.reader.geometry().members()
    }

    /// Whether the run records lost packs.
    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Returns the packs that the run records as lost.
    pub(super) fn lost(&self) -> &[SetId] {
        &self.lost
    }

    /// Whether the filters say that the chunk may be in the run: never `false` if it is.
    pub fn may_have(&self, id: &ChunkId) -> bool {
        let key = filter_key(id);
        self.segments_with(fence(id)).iter().any(|segment| segment.filter.contains(key))
    }

    /// Returns segments whose pages may have ids with this fence.
    fn segments_with(&self, fence: u64) -> &[RunSegment] {
        let first = |segment: &RunSegment| segment.fences[0];
        let end = self.segments.partition_point(|segment| first(segment) <= fence);
        // The last one below it may end with such ids.
        let start = self.segments.partition_point(|segment| first(segment) < fence);
        &self.segments[start.saturating_sub(1)..end]
    }

    /// Passes every row of a chunk to the function, with its position among all rows; rows of packs
    /// that are gone are skipped. The pack in each row is a number in the index's list.
    ///
    /// # Errors
    /// Fails when a page cannot be read.
    pub(super) fn rows_of(
        &self,
        id: &ChunkId,
        pages: &Pages<'_>,
        show: &mut dyn FnMut(u64, Row),
    ) -> Result<()> {
        let (wanted, key) = (fence(id), filter_key(id));
        for segment in self.segments_with(wanted) {
            if !segment.filter.contains(key) {
                continue;
            }
            let end = segment.fences.partition_point(|&first| first <= wanted);
            let start = segment.fences.partition_point(|&first| first < wanted).saturating_sub(1);
            for at in start..end {
                let number = segment.first_page + at as u32;
                let page =
                    pages.cache.get(self.set, number, || self.page(segment, at, pages.opener))?;
                for row in page.lower_bound(id)..page.len() {
                    let found = page.row(row);
                    if found.id != *id {
                        break;
                    }
                    if let Some(pack) = self.number(found.pack) {
                        let ordinal = u64::from(number) * PAGE_ROWS as u64 + row as u64;
                        show(ordinal, Row { pack, ..found });
                    }
                }
            }
        }
        Ok(())
    }

    fn page(&self, segment: &RunSegment, at: usize, opener: &Opener) -> Result<Page> {
        let start = segment.offset + at as u64 * u64::from(self.page_bytes);
        let end = (start + u64::from(self.page_bytes)).min(segment.fences_offset);
        let decode = |bytes: &mut [u8]| self.decode_page(segment, at, bytes, opener);
        part::read_kept(&self.reader, self.kept.as_deref(), start..end, decode)
            .map_err(|error| error.at(name(self.set)))
    }

    fn decode_page(
        &self,
        segment: &RunSegment,
        at: usize,
        bytes: &mut [u8],
        opener: &Opener,
    ) -> Result<Page> {
        let body = part::parse(RecordKind::RunPart, bytes, opener)?.0;
        let number = segment.first_page + at as u32;
        let body = if self.is_bound { unbind(self.set, number, body)? } else { body };
        let page = Page::decode(body, number, self.packs.len() as u32)?;
        if page.len() != segment.rows_on(at) {
            return Err(Error::corrupt("a page of an index run is not full", name(self.set))
                .expected(segment.rows_on(at), page.len()));
        }
        let first = fence(&page.row(0).id);
        if first != segment.fences[at] {
            return Err(Error::corrupt(
                "a page of an index run begins with an unexpected chunk id",
                name(self.set),
            )
            .expected(segment.fences[at], first));
        }
        Ok(page)
    }

    /// Reads some pages of a segment, from number `at` on; the length of the result decides how
    /// many.
    fn pages(&self, segment: &RunSegment, at: usize, opener: &Opener) -> Result<Vec<Page>> {
        let start = segment.offset + at as u64 * u64::from(self.page_bytes);
        let most = start + u64::from(PAGES_AHEAD) * u64::from(self.page_bytes);
        let range = start..most.min(segment.fences_offset);
        let read = part::read(&self.reader, range, |bytes| {
            let pages = bytes.chunks_mut(self.page_bytes as usize).enumerate();
            pages.map(|(more, bytes)| self.decode_page(segment, at + more, bytes, opener)).collect()
        });
        read.map_err(|error: Error| error.at(name(self.set)))
    }

    /// Returns all rows in order, except those of packs that are gone.
    pub(super) fn cursor<'r>(&'r self, opener: &'r Opener) -> Cursor<'r> {
        Cursor {
            run: self,
            opener,
            segment: 0,
            page: 0,
            ordinal: 0,
            ahead: VecDeque::new(),
            row: 0,
        }
    }
}

/// Reads a run from beginning to end.
pub(super) struct Cursor<'r> {
    run: &'r Run,
    opener: &'r Opener,
    segment: usize,
    /// The number of the next page of the segment to be read.
    page: usize,
    ordinal: u64,
    ahead: VecDeque<Page>,
    /// The number of the next row in the first of the pages in memory.
    row: usize,
}

impl Cursor<'_> {
    /// Returns the next row, with its position among all rows.
    ///
    /// # Errors
    /// Fails when a page cannot be read.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Row)>> {
        loop {
            while let Some(page) = self.ahead.front() {
                if self.row == page.len() {
                    self.ahead.pop_front();
                    self.row = 0;
                    continue;
                }
                let row = page.row(self.row);
                let ordinal = self.ordinal;
                self.row += 1;
                self.ordinal += 1;
                if let Some(pack) = self.run.number(row.pack) {
                    return Ok(Some((ordinal, Row { pack, ..row })));
                }
            }
            let Some(segment) = self.run.segments.get(self.segment) else { return Ok(None) };
            if self.page == segment.fences.len() {
                (self.segment, self.page) = (self.segment + 1, 0);
                continue;
            }
            self.ahead = self.run.pages(segment, self.page, self.opener)?.into();
            self.page += self.ahead.len();
        }
    }
}

/// How pages are read: through a cache, and with the store's seal.
pub(super) struct Pages<'i> {
    pub(super) cache: &'i PageCache,
    pub(super) opener: &'i Opener,
}
