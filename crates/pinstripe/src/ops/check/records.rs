//! Decodes the records of a pack from its strips while the strips are verified, so that a pack is
//! read only once.
//!
//! Invariants: a record is decoded from verified bytes only; a record with a part that was not
//! passed to `show`, or that is damaged as it was passed, is fetched as all readers do it, which
//! reports the error.

use std::ops::Range;

use crate::store::Store;
use crate::store::packs::{FetchedRecord, PackReader};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::pack_index::{IndexedRecord, PackIndex};
use pinstripe_stripe::Decoder;

/// The records of one pack, and how many of them are decoded.
pub(super) struct Records<'a> {
    store: &'a Store,
    packs: PackReader<'a>,
    index: PackIndex,
    /// The number of the record that is being assembled, and its bytes so far.
    next: usize,
    gathered: Vec<u8>,
    /// The numbers of the records that must be fetched.
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

    /// Takes a verified part of the pack. Parts come in the order of the pack.
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

    /// Leaves the current record to be fetched later.
    fn leave(&mut self) {
        self.unread.push(self.next);
        self.next += 1;
        self.gathered.clear();
    }

    /// Decodes a record and verifies each chunk against its id; returns the record's empty buffer.
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

    /// Fetches the remaining records, except those in lost ranges, and returns those that cannot be
    /// decoded although their strips match their checksums.
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
