//! Adjacent records of a pack that are fetched with one read.
//!
//! A read from a remote member costs a round trip at any length, so the records that a plan needs
//! from one part of a pack are read together. Each record in a span is verified separately, when it
//! is taken out; a damaged record is fetched alone, rebuilt from parity if necessary, without cost
//! to the others.

use super::{FetchedRecord, PackReader, RecordPlace, unknown_pack};
use crate::store::index::Index;
use pinstripe_base::error::Result;
use pinstripe_member::is_remote;

/// The largest part of a pack of tree pages that is read at once.
const WINDOW_MAX_BYTES: u64 = 4 << 20;
/// The number of such parts that a reader keeps: one for pages, one for nodes above them, and one
/// more.
const WINDOWS_MAX: usize = 3;

/// How remote members are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The number of parallel reads.
    pub reads: usize,
    /// The length of one read, if that much is needed.
    pub span_bytes: u64,
}

/// One or several records that one read returned.
pub(crate) struct FetchedSpan {
    place: RecordPlace,
    content: SpanContent,
}

enum SpanContent {
    /// A single record, already verified.
    Record(FetchedRecord),
    /// Several records in their stored form, with the bytes between them; empty if they could not
    /// be read at once.
    Stored(Vec<u8>),
}

impl FetchedSpan {
    /// Passes the record at a place within the span to `take`.
    ///
    /// # Errors
    /// Fails with the errors of [`PackReader::fetch`], or with the errors of `take`.
    pub(crate) fn take<T>(
        &self,
        (packs, index): (&PackReader<'_>, &Index<'_>),
        place: RecordPlace,
        take: impl FnOnce(&FetchedRecord) -> Result<T>,
    ) -> Result<T> {
        if let SpanContent::Record(record) = &self.content
            && place == self.place
        {
            return take(record);
        }
        match self.sealed(place).map(|sealed| packs.verified(sealed.to_vec())) {
            Some(Ok(record)) => take(&record),
            Some(Err(error)) if error.kind().is_about_keys() => Err(error),
            _ => take(&packs.fetch_place(index, place)?),
        }
    }

    /// Returns a record in its stored form, unverified, if it was fetched together with others.
    pub(super) fn sealed(&self, place: RecordPlace) -> Option<&[u8]> {
        let SpanContent::Stored(bytes) = &self.content else { return None };
        let start = place.offset.checked_sub(self.place.offset)?;
        let start = usize::try_from(start).ok().filter(|_| place.pack == self.place.pack)?;
        bytes.get(start..start.checked_add(place.bytes as usize)?)
    }
}

impl PackReader<'_> {
    /// Returns how the remote members are read, if there are not enough near members to read from
    /// instead.
    pub fn reach(&self) -> Option<Reach> {
        *self.reach.get_or_init(|| self.find_reach())
    }

    fn find_reach(&self) -> Option<Reach> {
        let there: Vec<_> = self.members.iter().flatten().collect();
        let data = self.members.len().saturating_sub(usize::from(self.store.config.parity)).max(1);
        let near = there.iter().filter(|member| !is_remote(member.place())).count();
        if near >= data {
            return None;
        }
        let far: Vec<_> = there.iter().filter_map(|member| member.caps().far).collect();
        let reads = far.iter().map(|far| far.reads).max()?;
        let span_bytes = far.iter().map(|far| far.span_bytes).min()?;
        Some(Reach { reads, span_bytes })
    }

    /// Fetches one record and verifies it.
    ///
    /// # Errors
    /// Fails with the errors of [`fetch`](Self::fetch).
    pub(crate) fn fetch_one(&self, index: &Index<'_>, place: RecordPlace) -> Result<FetchedSpan> {
        let content = SpanContent::Record(self.fetch_place(index, place)?);
        Ok(FetchedSpan { place, content })
    }

    /// Fetches the records within a place, which may be longer than one record, with one read. A
    /// failed read costs only time: the records are then fetched one by one.
    pub(crate) fn fetch_span(&self, index: &Index<'_>, place: RecordPlace) -> FetchedSpan {
        let stored = self.read_span(index, place).unwrap_or_default();
        FetchedSpan { place, content: SpanContent::Stored(stored) }
    }

    /// Fetches the part of a pack around a record, for a reader that needs most of it: as much as
    /// one request to a remote member should return. Returns `None` if the members are near.
    pub(super) fn fetch_around(
        &self,
        index: &Index<'_>,
        place: RecordPlace,
    ) -> Option<FetchedSpan> {
        let window = self.reach()?.span_bytes.clamp(1, WINDOW_MAX_BYTES);
        let set = self.set(index.set_of(place.pack)?).ok()?;
        let (record_end, start) =
            (place.offset + u64::from(place.bytes), place.offset / window * window);
        // Behind the records a pack has its index.
        let end = (start + window).min(set.index().start).max(record_end);
        let bytes = u32::try_from(end - start).ok()?;
        Some(self.fetch_span(index, RecordPlace { pack: place.pack, offset: start, bytes }))
    }

    fn read_span(&self, index: &Index<'_>, place: RecordPlace) -> Result<Vec<u8>> {
        let set = index.set_of(place.pack).ok_or_else(|| unknown_pack(place))?;
        if let Some(stored) = self.read_served(set, place.offset, place.bytes) {
            return Ok(stored);
        }
        let range = place.offset..place.offset + u64::from(place.bytes);
        let (stored, report) = self.set(set)?.read_span(range)?;
        self.count(&report, place.bytes);
        Ok(stored)
    }
}

/// Parts of packs of tree pages that were fetched at once, the latest at the end.
#[derive(Default)]
pub(super) struct Windows(Vec<FetchedSpan>);

impl Windows {
    /// Returns a record in its stored form, after fetching it with its neighbours if necessary, or
    /// `None` if that is not possible.
    pub(super) fn sealed(
        &mut self,
        packs: &PackReader<'_>,
        index: &Index<'_>,
        place: RecordPlace,
    ) -> Option<Vec<u8>> {
        let held = |windows: &[FetchedSpan]| {
            windows.iter().find_map(|window| window.sealed(place)).map(<[u8]>::to_vec)
        };
        held(&self.0).or_else(|| {
            let window = packs.fetch_around(index, place)?;
            if self.0.len() == WINDOWS_MAX {
                self.0.remove(0);
            }
            self.0.push(window);
            held(&self.0)
        })
    }
}
