//! Index records: this module makes all of them, sealed as the store requires, and reads them back.

use std::cell::RefCell;
use std::ops::Range;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::pack_index::PackIndex;
use pinstripe_member::record::RecordKind;
use pinstripe_member::{CacheKey, ExtentName, SealedCache};
use pinstripe_stripe::{OpenedRecord, Opener, Sealer, SetReader};

/// Makes the record that holds a part of an index.
pub(super) fn write(kind: RecordKind, body: &[u8], sealer: &Sealer) -> Result<Vec<u8>> {
    sealer.record(kind, 0, &[], body.len() as u32, body)
}

/// Returns the part in the record at the beginning of `bytes`, and the length of the record.
pub(super) fn parse<'b>(
    kind: RecordKind,
    bytes: &'b mut [u8],
    opener: &Opener,
) -> Result<(&'b [u8], usize)> {
    let OpenedRecord { head, stored, bytes: used } = opener.record(bytes)?;
    if head.kind != kind || head.codec != 0 {
        return Err(Error::new(
            Kind::Corrupt,
            "the record at the position of an index is not an index",
        ));
    }
    Ok((&bytes[stored], used))
}

/// Like [`read`], for a part that every verb reads: it comes from the cache of this host, if it is
/// there and `judge` accepts it.
///
/// # Errors
/// Fails with the errors of [`read`].
pub(super) fn read_kept<T>(
    reader: &SetReader,
    kept: Option<&SealedCache>,
    range: Range<u64>,
    judge: impl Fn(&mut [u8]) -> Result<T>,
) -> Result<T> {
    let Some(kept) = kept else { return read(reader, range, judge) };
    let key = kept_as(reader.name(), &range);
    if let Some(judged) = kept.get(key).and_then(|mut bytes| judge(&mut bytes).ok()) {
        return Ok(judged);
    }
    // As it came: `judge` opens it in place.
    let sealed = RefCell::new(Vec::new());
    let judged = read(reader, range, |bytes| {
        *sealed.borrow_mut() = bytes.to_vec();
        judge(bytes)
    })?;
    kept.put(key, &sealed.into_inner());
    Ok(judged)
}

/// Returns the key of a part in the cache of this host.
pub(super) fn kept_as(name: ExtentName, range: &Range<u64>) -> CacheKey {
    let place = [range.start.to_le_bytes(), range.end.to_le_bytes()].concat();
    CacheKey::derive("index part", &[name.path().as_bytes(), &place])
}

/// Reads a range without verifying strips and, if `judge` rejects it, again with every strip
/// verified.
///
/// # Errors
/// Fails with the errors of the reader, or with that of `judge` for verified bytes.
pub(super) fn read<T>(
    reader: &SetReader,
    range: Range<u64>,
    judge: impl Fn(&mut [u8]) -> Result<T>,
) -> Result<T> {
    let mut bytes = Vec::new();
    reader.read(range.clone(), &mut bytes)?;
    judge(&mut bytes).or_else(|error| {
        if error.kind().is_about_keys() {
            return Err(error);
        }
        bytes.clear();
        reader.read_verified(range, &mut bytes)?;
        judge(&mut bytes)
    })
}

/// Makes the record with a pack's index, which is stored at the end of the pack.
///
/// # Errors
/// Fails with the errors of the seal.
pub(crate) fn index_record(index: &PackIndex, sealer: &Sealer) -> Result<Vec<u8>> {
    write(RecordKind::PackIndex, &index.encode(), sealer)
}

/// Reads the record with a pack's index; returns its length too.
pub(super) fn parse_index_record(bytes: &mut [u8], opener: &Opener) -> Result<(PackIndex, usize)> {
    let (body, used) = parse(RecordKind::PackIndex, bytes, opener)?;
    Ok((PackIndex::decode(body)?, used))
}
