//! The records of a pack, decoded out of its strips while these are verified: a pack is read once.
//!
//! Invariants: a record is decoded from verified bytes only; one with a part that was not shown, or
//! that is not intact as shown, is fetched in the way of all readers, which reports the error.

use std::ops::Range;

use crate::store::Store;
use crate::store::packs::{FetchedRecord, PackReader};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::pack_index::{IndexedRecord, PackIndex};
use pinstripe_stripe::Decoder;

/// The records of one pack, and how far they are decoded.
pub(super) struct Records<'a> {
    store: &'a Store,
    packs: PackReader<'a>,
    index: PackIndex,
    /// The record that is being put together, by its number, and what was shown of it.
    next: usize,
    gathered: Vec<u8>,
    /// Those to be fetched, by number.
    unread: Vec<usize>,
    decoder: Decoder,
    raw: Vec<u8>,
}

impl<'a> Records<'a> {
    pub(super) fn new(store: &'a Store, index: PackIndex, monitor: &'a Monitor) -> Self {
        Records {
            store,
            packs: PackReader::new(store, monitor),
            index,
            next: 0,
            gathered: Vec::new(),
            unread: Vec::new(),
            decoder: Decoder::new(),
            raw: Vec::new(),
        }
    }

    /// Takes a verified part of the pack. It is behind all parts shown before.
    pub(super) fn show(&mut self, start: u64, bytes: &[u8]) {
        let end = start + bytes.len() as u64;
        while let Some(record) = self.index.records.get(self.next) {
            let wanted = record.offset + self.gathered.len() as u64;
            if wanted >= end {
                return;
            }
            let missing = record.bytes as usize - self.gathered.len();
            if wanted < start {
                self.leave();
                continue;
            }
            let shown = &bytes[(wanted - start) as usize..];
            self.gathered.extend_from_slice(&shown[..missing.min(shown.len())]);
            if shown.len() < missing {
                return;
            }
            let sealed = std::mem::take(&mut self.gathered);
            let opened = self.packs.verified(sealed);
            let decoded = opened.and_then(|record| self.decode(record));
            match decoded {
                Ok(buffer) => {
                    self.gathered = buffer;
                    self.next += 1;
                }
                Err(_) => self.leave(),
            }
        }
    }

    /// Leaves the next record to be fetched.
    fn leave(&mut self) {
        self.unread.push(self.next);
        self.next += 1;
        self.gathered.clear();
    }

    /// Decodes a record and compares each chunk with its id; returns its empty buffer.
    fn decode(&mut self, record: FetchedRecord) -> Result<Vec<u8>> {
        let head = &record.head;
        self.decoder.decode(head.codec, record.stored(), head.raw_bytes as usize, &mut self.raw)?;
        let mut at = 0;
        for chunk in &head.chunks {
            let end = at + chunk.raw_bytes as usize;
            if self.store.keys()?.chunk_id(&self.raw[at..end]) != chunk.id {
                let what = format!("chunk {} does not match its id", chunk.id);
                return Err(Error::new(Kind::Corrupt, what));
            }
            at = end;
        }
        Ok(record.into_buffer())
    }

    /// Fetches the remaining records, except those in lost ranges, and returns those that do not
    /// decode although their strips match their checksums.
    pub(super) fn undecodable(mut self, lost: &[Range<u64>]) -> Vec<(Range<u64>, Error)> {
        let mut left = std::mem::take(&mut self.unread);
        left.extend(self.next..self.index.records.len());
        let mut bad = Vec::new();
        for number in left {
            let IndexedRecord { offset, bytes, .. } = self.index.records[number];
            let range = offset..offset + u64::from(bytes);
            if lost.iter().any(|lost| overlaps(lost, &range)) {
                continue;
            }
            let fetched = self.packs.fetch(self.index.set, offset, bytes);
            if let Err(error) = fetched.and_then(|record| self.decode(record)) {
                bad.push((range, error));
            }
        }
        bad
    }
}

pub(super) fn overlaps(left: &Range<u64>, right: &Range<u64>) -> bool {
    left.start < right.end && right.start < left.end
}
