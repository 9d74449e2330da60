//! Makes the index of a pack from its records, if it cannot be read from a run or rebuilt from
//! parity.
//!
//! Records list their chunks, so the pack is read from its beginning, record by record. After an
//! unreadable record, the next one is found by its magic and confirmed by its checksums.

use std::ops::Range;

use crate::store::Store;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_member::ExtentName;
use pinstripe_member::pack_index::{IndexedRecord, PackIndex};
use pinstripe_member::record::{RECORD_HEAD_BYTES, parse_clear, whole_bytes};
use pinstripe_stripe::{OpenedRecord, Opener, SetReader};

use super::SealedPack;

/// The number of bytes read at a time in the search for a record.
const WINDOW_BYTES: u64 = 256 << 10;
/// Magic and version, with which a record begins.
const BEGIN: &[u8] = b"psRC\x01";

/// Makes the index of a pack from those records that can be read. The second value is the number of
/// bytes of the pack that are in no readable record.
///
/// # Errors
/// Fails when the set cannot be opened, or has no intact record at all.
pub(crate) fn pack_from_records(store: &Store, set: SetId) -> Result<(SealedPack, u64)> {
    let name = ExtentName::pack(set);
    let reader = SetReader::open(&store.members_to_read(), name, store.config.store, set)?;
    let end = match reader.index() {
        index if index.is_empty() => reader.logical_bytes(),
        index => index.start,
    };
    let mut index = PackIndex { set, records: Vec::new() };
    let (mut at, mut passed_over) = (0, 0);
    while at < end {
        match record_at(&reader, at, end, store.opener()) {
            Ok(record) => {
                at += u64::from(record.bytes);
                index.records.push(record);
            }
            Err(error) if error.kind().is_about_keys() => return Err(error),
            Err(_) => {
                let next = next_record(&reader, at + 1, end);
                passed_over += next - at;
                at = next;
            }
        }
    }
    if index.records.is_empty() && passed_over > 0 {
        return Err(
            Error::new(Kind::TooManyLosses, "no record of this pack can be read").at(name.path())
        );
    }
    Ok((SealedPack { index, geometry: reader.geometry() }, passed_over))
}

/// Reads a range with every strip verified or, if that fails, unverified: a record next to the
/// damage may be intact.
fn bytes_at(reader: &SetReader, range: Range<u64>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if reader.read_verified(range.clone(), &mut bytes).is_err() {
        bytes.clear();
        reader.read(range, &mut bytes)?;
    }
    Ok(bytes)
}

/// Reads and verifies the record that begins at `at`.
fn record_at(reader: &SetReader, at: u64, end: u64, opener: &Opener) -> Result<IndexedRecord> {
    let head = bytes_at(reader, at..(at + RECORD_HEAD_BYTES as u64).min(end))?;
    let length = whole_bytes(&head)?;
    if length > end - at {
        return Err(Error::new(Kind::Corrupt, "a record extends past the end of its pack"));
    }
    let mut bytes = bytes_at(reader, at..at + length)?;
    let OpenedRecord { head, .. } = opener.record(&mut bytes)?;
    if !head.kind.has_chunks() {
        return Err(Error::new(
            Kind::Corrupt,
            "a pack contains an index where only records with chunks are allowed",
        ));
    }
    Ok(IndexedRecord {
        offset: at,
        bytes: length as u32,
        kind: head.kind,
        raw_bytes: head.raw_bytes,
        chunks: head.chunks,
    })
}

/// Returns the next offset, from `at` on, where a record may begin, or `end` when there is none.
fn next_record(reader: &SetReader, mut at: u64, end: u64) -> u64 {
    let row_bytes = reader.geometry().row_bytes();
    while at < end {
        // Rows are lost as a whole, so no window reaches beyond one.
        let row_end = (at / row_bytes + 1) * row_bytes;
        let window = at..(at + WINDOW_BYTES).min(row_end).min(end);
        let bytes = bytes_at(reader, window.clone()).unwrap_or_default();
        // At the end of the window its beginning must do: whether it is one, its checksums say.
        let begins = |from: &usize| {
            let rest = &bytes[*from..];
            rest.starts_with(BEGIN) || BEGIN.starts_with(rest)
        };
        if let Some(found) = (0..bytes.len()).find(begins) {
            return at + found as u64;
        }
        at = window.end;
    }
    end
}

/// Returns the records of a pack that do not match their checksums, which is checked without a key:
/// the head of each record is in the clear, and leads to the next record.
pub fn unsound_records(store: &Store, set: SetId) -> Vec<(std::ops::Range<u64>, Error)> {
    let name = ExtentName::pack(set);
    let reader = match SetReader::open(&store.members_to_read(), name, store.config.store, set) {
        Ok(reader) => reader,
        Err(error) => return vec![(0..0, error)],
    };
    let (end, mut at, mut bytes) = (reader.logical_bytes(), 0, Vec::new());
    while at < end {
        let read = |at: u64, end: u64, bytes: &mut Vec<u8>| -> Result<()> {
            bytes.clear();
            reader.read(at..end, bytes).map(drop)
        };
        let head_end = end.min(at + RECORD_HEAD_BYTES as u64);
        let walked = read(at, head_end, &mut bytes).and_then(|()| {
            let length = whole_bytes(&bytes)?;
            let next = at.checked_add(length).filter(|next| *next <= end);
            let next =
                next.ok_or_else(|| Error::new(Kind::Corrupt, "a record is longer than its pack"))?;
            read(at, next, &mut bytes)?;
            parse_clear(&bytes).map(|_| next)
        });
        match walked {
            Ok(next) => at = next,
            // Where the next one begins is not known either.
            Err(error) => return vec![(at..end, error.at(name.path()))],
        }
    }
    Vec::new()
}
