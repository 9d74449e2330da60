//! Reading records out of packs, damaged or not.
//!
//! There is one path: a range is read without verifying strips, and its record's checksums are
//! checked; when they fail, the strips under it are verified one by one, bad ones count as
//! erasures, and the record is read again from parity. Rebuilt strips are reported to the caller's
//! [`Monitor`].

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::codec::Decoder;
use crate::format::record::{RecordHead, RecordKind};
use crate::member::{CacheKey, ExtentName, SharedMember};
use crate::stripe::{ReadReport, SetReader};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ChunkId, SetId};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::sync::lock;

use super::Store;
use super::index::{Index, Place};

/// Readers kept open at once; each holds a trailer (about 16 bytes per strip).
const READERS_MAX: usize = 64;

/// The place of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordPlace {
    /// Ordinal in the list of packs.
    pub pack: u32,
    /// First byte in the pack's logical run.
    pub offset: u64,
    /// Length of head, table and stored bytes.
    pub bytes: u32,
}

/// A record's bytes with its verified head.
pub struct FetchedRecord {
    /// The decoded head.
    pub head: RecordHead,
    bytes: Vec<u8>,
    stored: Range<usize>,
}

impl FetchedRecord {
    /// The stored bytes, verified.
    pub fn stored(&self) -> &[u8] {
        &self.bytes[self.stored.clone()]
    }
}

/// Reads records; shared by threads.
pub struct PackReader<'a> {
    members: Vec<Option<SharedMember>>,
    store: &'a Store,
    monitor: &'a Monitor,
    open: Mutex<HashMap<SetId, Arc<SetReader>>>,
}

impl<'a> PackReader<'a> {
    /// A reader over the store's members.
    pub fn new(store: &'a Store, monitor: &'a Monitor) -> Self {
        PackReader { members: store.members(), store, monitor, open: Mutex::default() }
    }

    /// The reader of one pack's stripe set.
    ///
    /// # Errors
    /// When no member has a sound trailer of it.
    pub fn set(&self, set: SetId) -> Result<Arc<SetReader>> {
        if let Some(reader) = lock(&self.open).get(&set) {
            return Ok(Arc::clone(reader));
        }
        // Opened without the lock: two threads may open the same set, the second one's is dropped.
        let reader = Arc::new(SetReader::open(
            &self.members,
            ExtentName::pack(set),
            self.store.config.store,
            set,
        )?);
        let mut open = lock(&self.open);
        if open.len() >= READERS_MAX {
            open.clear();
        }
        Ok(Arc::clone(open.entry(set).or_insert(reader)))
    }

    /// Fetches a record and verifies it, from parity where it must be.
    ///
    /// # Errors
    /// [`Kind::TooManyLosses`] when parity cannot give it, [`Kind::Corrupt`] when the strips are
    /// as written but the record is not.
    pub fn fetch(&self, set: SetId, offset: u64, bytes: u32) -> Result<FetchedRecord> {
        self.fetch_copied(set, offset, bytes, None)
    }

    /// The same; `sealed` gets the record as it is stored.
    fn fetch_copied(
        &self,
        set: SetId,
        offset: u64,
        bytes: u32,
        mut sealed: Option<&mut Vec<u8>>,
    ) -> Result<FetchedRecord> {
        match self.fetch_once(set, offset, bytes, sealed.as_deref_mut()) {
            // Members come and go: extents may have moved since the set was opened. Or the trailer
            // by which it was opened is not the one that the others have.
            Err(error) if matches!(error.kind(), Kind::TooManyLosses | Kind::Corrupt) => {
                let again = SetReader::open_agreed(
                    &self.members,
                    ExtentName::pack(set),
                    self.store.config.store,
                    set,
                )?;
                lock(&self.open).insert(set, Arc::new(again));
                self.fetch_once(set, offset, bytes, sealed)
            }
            fetched => fetched,
        }
    }

    fn fetch_once(
        &self,
        set: SetId,
        offset: u64,
        bytes: u32,
        mut sealed: Option<&mut Vec<u8>>,
    ) -> Result<FetchedRecord> {
        let reader = self.set(set)?;
        let range = offset..offset + u64::from(bytes);
        let mut buffer = Vec::with_capacity(bytes as usize);
        let report = reader.read(range.clone(), &mut buffer)?;
        self.count(&report, bytes);
        // Opening is done in place.
        let mut copy = |buffer: &[u8]| {
            if let Some(sealed) = sealed.as_deref_mut() {
                sealed.clear();
                sealed.extend_from_slice(buffer);
            }
        };
        copy(&buffer);
        let opener = self.store.opener();
        let opened = match opener.record(&mut buffer) {
            Ok(opened) => opened,
            Err(error) if error.kind() == Kind::Locked => return Err(error),
            Err(_) => {
                buffer.clear();
                let report = reader.read_verified(range, &mut buffer)?;
                self.count(&report, bytes);
                copy(&buffer);
                let opened = opener.record(&mut buffer);
                opened.map_err(|error| error.at(format!("pack {set}, record at {offset}")))?
            }
        };
        Ok(FetchedRecord { head: opened.head, bytes: buffer, stored: opened.stored })
    }

    /// The same by the number that an index has for the pack.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub(crate) fn fetch_place(
        &self,
        index: &Index<'_>,
        place: RecordPlace,
    ) -> Result<FetchedRecord> {
        let set = index.set_of(place.pack).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("the index knows no pack {}", place.pack))
        })?;
        self.fetch(set, place.offset, place.bytes)
    }

    /// The same of a page of a tree, or of what lies in one record with it: from what this host keeps
    /// of the store, if it is there.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    fn fetch_page(&self, index: &Index<'_>, place: RecordPlace) -> Result<FetchedRecord> {
        let (Some(kept), Some(set)) = (self.store.kept(), index.set_of(place.pack)) else {
            return self.fetch_place(index, place);
        };
        let at = [place.offset.to_le_bytes(), u64::from(place.bytes).to_le_bytes()].concat();
        let key = CacheKey::of("record", &[&set.0, &at]);
        if let Some(mut bytes) = kept.get(key)
            && let Ok(opened) = self.store.opener().record(&mut bytes)
        {
            return Ok(FetchedRecord { head: opened.head, bytes, stored: opened.stored });
        }
        let mut sealed = Vec::new();
        let fetched = self.fetch_copied(set, place.offset, place.bytes, Some(&mut sealed))?;
        if fetched.head.kind == RecordKind::Tree {
            kept.put(key, &sealed);
        }
        Ok(fetched)
    }

    fn count(&self, report: &ReadReport, bytes: u32) {
        self.monitor.add(Counter::FetchedBytes, u64::from(bytes));
        self.monitor.add(Counter::RebuiltStrips, report.rebuilt.len() as u64);
        self.monitor.add(Counter::SparedStrips, report.spared);
    }
}

/// Reads single chunks, keeping the last records decoded: for trees, whose pages are neighbours.
pub struct ChunkReader<'a> {
    packs: &'a PackReader<'a>,
    index: &'a Index<'a>,
    decoder: Decoder,
    recent: Vec<(RecordPlace, Arc<Vec<u8>>)>,
}

/// Records kept decoded by a [`ChunkReader`]: a node's and a page's, and one more of each.
const RECENT_MAX: usize = 4;

impl<'a> ChunkReader<'a> {
    /// A reader of chunks that `index` knows.
    pub fn new(packs: &'a PackReader<'a>, index: &'a Index<'a>) -> Self {
        ChunkReader { packs, index, decoder: Decoder::new(), recent: Vec::new() }
    }

    /// Reads a chunk and checks its id. One that stands in several packs is read from the first
    /// that has it sound.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when no pack has it, and those of [`PackReader::fetch`].
    pub fn read(&mut self, id: &ChunkId) -> Result<Vec<u8>> {
        let place = self.index.find(id)?.ok_or_else(|| missing_chunk(id))?;
        self.read_at(id, &place).or_else(|error| self.read_elsewhere(id, place.record).ok_or(error))
    }

    /// Reads a chunk from any other record than the one that was tried, also from one that it was
    /// moved to since.
    pub(crate) fn read_elsewhere(&mut self, id: &ChunkId, tried: RecordPlace) -> Option<Vec<u8>> {
        loop {
            let places = self.index.places(id).ok()?;
            let mut others = places.iter().filter(|place| place.record != tried);
            let found = others.find_map(|place| self.read_at(id, place).ok());
            // A collector may have moved the chunk to another pack: look again as long as the steps
            // of deletion change.
            if found.is_some() || !self.index.follow_deletion().unwrap_or(false) {
                return found;
            }
        }
    }

    /// Reads a chunk from one place and checks its id.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_at(&mut self, id: &ChunkId, place: &Place) -> Result<Vec<u8>> {
        let raw = self.record(place.record)?;
        let start = place.raw_offset as usize;
        let chunk = raw.get(start..start + place.raw_bytes as usize);
        let chunk = chunk.ok_or_else(|| wrong_place(id))?;
        if self.packs.store.keys()?.chunk_id(chunk) != *id {
            return Err(wrong_place(id));
        }
        Ok(chunk.to_vec())
    }

    fn record(&mut self, place: RecordPlace) -> Result<Arc<Vec<u8>>> {
        if let Some(at) = self.recent.iter().position(|(known, _)| *known == place) {
            let found = self.recent.remove(at);
            self.recent.push(found);
        } else {
            let fetched = self.packs.fetch_page(self.index, place)?;
            let mut raw = Vec::new();
            let head = &fetched.head;
            self.decoder.decode(head.codec, fetched.stored(), head.raw_bytes as usize, &mut raw)?;
            if self.recent.len() >= RECENT_MAX {
                self.recent.remove(0);
            }
            self.recent.push((place, Arc::new(raw)));
        }
        Ok(Arc::clone(&self.recent.last().expect("a record was just put there").1))
    }
}

/// The error for a chunk that is in no pack.
pub(crate) fn missing_chunk(id: &ChunkId) -> Error {
    Error::new(Kind::NotFound, format!("chunk {id} is in no pack"))
        .advice("run 'pinstripe check' to see what else is affected")
}

/// The error for a chunk that is not where the index says.
pub(crate) fn wrong_place(id: &ChunkId) -> Error {
    Error::new(Kind::Corrupt, format!("chunk {id} does not match its id"))
        .advice("run 'pinstripe check --read-data'")
}
