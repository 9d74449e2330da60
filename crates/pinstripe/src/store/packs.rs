//! Reads records from packs, damaged or not.
//!
//! All reads of records take the same path: a range is read without verifying strips, and the
//! checksums of its record are verified; if they do not match, the strips below it are verified one
//! by one, damaged strips count as erasures, and the record is read again from parity. Rebuilt
//! strips are reported to the caller's [`Monitor`].

mod span;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

pub(crate) use span::FetchedSpan;
pub use span::Reach;
use span::Windows;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ChunkId, SetId};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_member::record::{RecordHead, RecordKind};
use pinstripe_member::{
    CacheKey, ExtentName, FetchedPart, RunPart, SetServer, SharedMember, server_of,
};
use pinstripe_stripe::{Decoder, ReadReport, SetReader};

pub use super::index::RecordPlace;
use super::index::{Index, Place};
use super::locks::{RankedMutex, StoreLock};
use super::{Store, newcomers};

/// The number of readers kept open at once; each holds a trailer (about 16 bytes per strip).
const READERS_MAX: usize = 64;

/// A record's bytes, with its verified head.
pub struct FetchedRecord {
    /// The decoded head.
    pub head: RecordHead,
    bytes: Vec<u8>,
    stored: Range<usize>,
}

impl FetchedRecord {
    /// Returns the stored bytes, which are verified.
    pub fn stored(&self) -> &[u8] {
        &self.bytes[self.stored.clone()]
    }

    /// Returns the emptied buffer, for another record.
    pub(crate) fn into_buffer(mut self) -> Vec<u8> {
        self.bytes.clear();
        self.bytes
    }
}

/// Reads records; shared by threads.
pub struct PackReader<'a> {
    members: Vec<Option<SharedMember>>,
    store: &'a Store,
    monitor: &'a Monitor,
    open: RankedMutex<HashMap<SetId, Opening>>,
    reach: OnceLock<Option<Reach>>,
    /// The server that reads sets over all members.
    server: Option<Arc<dyn SetServer>>,
}

/// A set that is open, or is being opened by the thread that holds the lock.
type Opening = Arc<RankedMutex<Option<Arc<SetReader>>>>;

impl<'a> PackReader<'a> {
    /// Makes a reader over the store's members.
    pub fn new(store: &'a Store, monitor: &'a Monitor) -> Self {
        let members = store.members_to_read();
        let server = server_of(members.iter().flatten().map(|member| &**member));
        PackReader {
            members,
            server: server.map(|(server, _)| server),
            store,
            monitor,
            open: RankedMutex::new(StoreLock::OpenPacks, HashMap::new()),
            reach: OnceLock::new(),
        }
    }

    /// Returns the reader of one pack's stripe set.
    ///
    /// # Errors
    /// Fails when no member has an intact trailer of the set.
    pub fn set(&self, set: SetId) -> Result<Arc<SetReader>> {
        let opening = self.opening(set);
        // Threads that want one set wait for the one that opens it.
        let mut opening = opening.lock();
        if let Some(reader) = &*opening {
            return Ok(Arc::clone(reader));
        }
        let (name, store) = (ExtentName::pack(set), self.store.config.store);
        let reader = match SetReader::open(&self.members, name, store, set) {
            // All members that have it may have joined since.
            Err(error) if newcomers::may_have_moved(&error) && self.store.has_newcomers()? => {
                SetReader::open(&self.store.members_to_read(), name, store, set)?
            }
            opened => opened?,
        };
        Ok(Arc::clone(opening.insert(Arc::new(reader))))
    }

    fn opening(&self, set: SetId) -> Opening {
        let mut open = self.open.lock();
        if open.len() >= READERS_MAX && !open.contains_key(&set) {
            open.clear();
        }
        Arc::clone(
            open.entry(set)
                .or_insert_with(|| Arc::new(RankedMutex::new(StoreLock::PackReader, None))),
        )
    }

    /// Fetches a record and verifies it, using parity if necessary.
    ///
    /// # Errors
    /// Fails with [`Kind::TooManyLosses`] when parity cannot rebuild it, or with [`Kind::Corrupt`]
    /// when the strips are as written but the record is damaged.
    pub fn fetch(&self, set: SetId, offset: u64, bytes: u32) -> Result<FetchedRecord> {
        self.fetch_copied(set, offset, bytes, None)
    }

    /// Fetches a record like [`fetch`](Self::fetch); `sealed` also gets the record in its stored
    /// form.
    fn fetch_copied(
        &self,
        set: SetId,
        offset: u64,
        bytes: u32,
        mut sealed: Option<&mut Vec<u8>>,
    ) -> Result<FetchedRecord> {
        if let Some(record) = self.fetch_served(set, offset, bytes, sealed.as_deref_mut()) {
            return Ok(record);
        }
        match self.fetch_once(set, offset, bytes, sealed.as_deref_mut()) {
            // Extents may have moved to other members since the set was opened. Or the trailer that
            // was used to open it differs from that of the others.
            Err(error) if newcomers::may_have_moved(&error) || error.kind() == Kind::Corrupt => {
                if newcomers::may_have_moved(&error) {
                    self.store.meet_newcomers()?;
                }
                let again = SetReader::open_agreed(
                    &self.store.members_to_read(),
                    ExtentName::pack(set),
                    self.store.config.store,
                    set,
                )?;
                *self.opening(set).lock() = Some(Arc::new(again));
                self.fetch_once(set, offset, bytes, sealed)
            }
            fetched => fetched,
        }
    }

    /// Fetches a record from a server that has all members. `None` if there is no such server, or
    /// it does not return a sound record: the members are read then.
    fn fetch_served(
        &self,
        set: SetId,
        offset: u64,
        bytes: u32,
        sealed: Option<&mut Vec<u8>>,
    ) -> Option<FetchedRecord> {
        let stored = self.read_served(set, offset, bytes)?;
        if let Some(sealed) = sealed {
            sealed.clone_from(&stored);
        }
        self.verified(stored).ok()
    }

    /// Reads a part of a pack from a server that has all members.
    fn read_served(&self, set: SetId, offset: u64, bytes: u32) -> Option<Vec<u8>> {
        let part = RunPart { name: ExtentName::pack(set), offset, bytes };
        let FetchedPart { bytes: stored, rebuilt } = self.server.as_ref()?.fetch(part).ok()?;
        self.monitor.add(Counter::FetchedBytes, u64::from(bytes));
        self.monitor.add(Counter::RebuiltStrips, rebuilt);
        Some(stored)
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
            Err(error) if error.kind().is_about_keys() => return Err(error),
            Err(_) => {
                buffer.clear();
                let report = reader.read_verified(range, &mut buffer)?;
                self.count(&report, bytes);
                copy(&buffer);
                let opened = opener.record(&mut buffer);
                opened.map_err(|error| error.at(format!("pack {set}, record at byte {offset}")))?
            }
        };
        Ok(FetchedRecord { head: opened.head, bytes: buffer, stored: opened.stored })
    }

    /// Fetches a record by the number that an index has for its pack.
    ///
    /// # Errors
    /// Fails with the errors of [`fetch`](Self::fetch).
    pub(crate) fn fetch_place(
        &self,
        index: &Index<'_>,
        place: RecordPlace,
    ) -> Result<FetchedRecord> {
        let set = index.set_of(place.pack).ok_or_else(|| unknown_pack(place))?;
        self.fetch(set, place.offset, place.bytes)
    }

    /// Fetches a record with a page of a tree, from the cache of this host if that has the record.
    ///
    /// # Errors
    /// Fails with the errors of [`fetch`](Self::fetch).
    fn fetch_page(
        &self,
        index: &Index<'_>,
        place: RecordPlace,
        windows: Option<&mut Windows>,
    ) -> Result<FetchedRecord> {
        let set = index.set_of(place.pack).ok_or_else(|| unknown_pack(place))?;
        let (kept, key) = (self.store.kept(), kept_as(set, place.offset, place.bytes));
        if kept.is_none() && windows.is_none() {
            return self.fetch(set, place.offset, place.bytes);
        }
        let found = kept.and_then(|kept| kept.get(key));
        if let Some(record) = found.and_then(|bytes| self.verified(bytes).ok()) {
            return Ok(record);
        }
        let mut sealed = windows.and_then(|windows| windows.sealed(self, index, place));
        let fetched = match sealed.as_ref().and_then(|it| self.verified(it.clone()).ok()) {
            Some(fetched) => fetched,
            None => {
                let sealed = Some(sealed.get_or_insert_default());
                self.fetch_copied(set, place.offset, place.bytes, sealed)?
            }
        };
        if let (Some(kept), Some(sealed)) = (kept, sealed)
            && fetched.head.kind == RecordKind::Tree
        {
            kept.put(key, &sealed);
        }
        Ok(fetched)
    }

    /// Verifies a record that was read.
    pub(crate) fn verified(&self, mut bytes: Vec<u8>) -> Result<FetchedRecord> {
        let opened = self.store.opener().record(&mut bytes)?;
        Ok(FetchedRecord { head: opened.head, bytes, stored: opened.stored })
    }

    fn count(&self, report: &ReadReport, bytes: u32) {
        self.monitor.add(Counter::FetchedBytes, u64::from(bytes));
        self.monitor.add(Counter::RebuiltStrips, report.rebuilt.len() as u64);
        self.monitor.add(Counter::SparedStrips, report.spared);
    }
}

/// Reads single chunks, and keeps the last few records decoded: for trees, whose pages are often in
/// the same record.
pub struct ChunkReader<'a> {
    packs: &'a PackReader<'a>,
    index: &'a Index<'a>,
    decoder: Decoder,
    recent: Vec<(RecordPlace, Arc<Vec<u8>>)>,
    /// For a reader that needs most of the pages: parts of packs that were read at once.
    windows: Option<Windows>,
}

/// The number of records that a [`ChunkReader`] keeps decoded: one with nodes, one with pages, and
/// one more of each.
const RECENT_MAX: usize = 4;

impl<'a> ChunkReader<'a> {
    /// Makes a reader of chunks that `index` has.
    pub fn new(packs: &'a PackReader<'a>, index: &'a Index<'a>) -> Self {
        ChunkReader { packs, index, decoder: Decoder::new(), recent: Vec::new(), windows: None }
    }

    /// Makes a reader of what a tree has at and below a path. If the path is the complete tree,
    /// many pages are fetched at a time from remote members.
    pub fn below(packs: &'a PackReader<'a>, index: &'a Index<'a>, path: &[u8]) -> Self {
        let is_all = path.is_empty() && packs.reach().is_some();
        ChunkReader { windows: is_all.then(Windows::default), ..Self::new(packs, index) }
    }

    /// Reads a chunk and verifies its id. If several packs have the chunk, the first intact copy is
    /// used.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] when no pack has it, and the errors of [`PackReader::fetch`].
    pub fn read(&mut self, id: &ChunkId) -> Result<Vec<u8>> {
        let place = self.index.find(id)?.ok_or_else(|| missing_chunk(id))?;
        self.read_at(id, &place).or_else(|error| self.read_elsewhere(id, place.record).ok_or(error))
    }

    /// Reads a chunk from another record than the one that was tried, or from a record to which it
    /// was moved since.
    pub(crate) fn read_elsewhere(&mut self, id: &ChunkId, tried: RecordPlace) -> Option<Vec<u8>> {
        loop {
            let places = self.index.places(id).ok()?;
            let mut others = places.iter().filter(|place| place.record != tried);
            let found = others.find_map(|place| self.read_at(id, place).ok());
            // A collector may have moved the chunk to another pack: search again as long as the
            // steps of deletion change.
            if found.is_some() || !self.index.follow_deletion().unwrap_or(false) {
                return found;
            }
        }
    }

    /// Reads a chunk from one place and verifies its id.
    ///
    /// # Errors
    /// Fails with the errors of [`read`](Self::read).
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
            let fetched = self.packs.fetch_page(self.index, place, self.windows.as_mut())?;
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

/// Returns the key, in the cache of this host, of a record of a tree.
pub(crate) fn kept_as(set: SetId, offset: u64, bytes: u32) -> CacheKey {
    let at = [offset.to_le_bytes(), u64::from(bytes).to_le_bytes()].concat();
    CacheKey::derive("record", &[&set.0, &at])
}

/// Returns the error for a chunk that is in no pack.
pub(crate) fn missing_chunk(id: &ChunkId) -> Error {
    Error::new(Kind::NotFound, format!("chunk {id} is in no pack"))
        .advice("run 'pinstripe check' to see what else is affected")
}

/// Returns the error for a pack that is not in the index's list.
fn unknown_pack(place: RecordPlace) -> Error {
    Error::new(Kind::NotFound, format!("the index does not list pack {}", place.pack))
}

/// Returns the error for a chunk that is not at its place in the index.
pub(crate) fn wrong_place(id: &ChunkId) -> Error {
    Error::new(Kind::Corrupt, format!("the content of chunk {id} does not match its id"))
        .advice("run 'pinstripe check --read-data'")
}
