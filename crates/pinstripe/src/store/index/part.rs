//! Index records: the one place that makes them and reads them back.

use std::ops::Range;

use crate::error::{Error, Kind, Result};
use crate::format::pack_index::PackIndex;
use crate::format::record::{self, RecordKind};
use crate::stripe::SetReader;

/// The record that holds a part of an index.
pub(super) fn write(kind: RecordKind, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(record::RECORD_HEAD_BYTES + body.len());
    record::write_head(&mut out, kind, 0, &[], body.len() as u32, body);
    out.extend_from_slice(body);
    out
}

/// The part in the record that `bytes` begin with, and the length of the record.
pub(super) fn parse(kind: RecordKind, bytes: &[u8]) -> Result<(&[u8], usize)> {
    let (head, body) = record::parse(bytes)?;
    if head.kind != kind || head.codec != 0 {
        return Err(Error::new(Kind::Corrupt, "a record of another kind where an index should be"));
    }
    Ok((body, record::RECORD_HEAD_BYTES + body.len()))
}

/// Reads a range the cheap way and, if `judge` refuses it, with every strip verified.
///
/// # Errors
/// Those of the reader; what `judge` says of verified bytes.
pub(super) fn read<T>(
    reader: &SetReader,
    range: Range<u64>,
    judge: impl Fn(&[u8]) -> Result<T>,
) -> Result<T> {
    let mut bytes = Vec::new();
    reader.read(range.clone(), &mut bytes)?;
    judge(&bytes).or_else(|_| {
        bytes.clear();
        reader.read_verified(range, &mut bytes)?;
        judge(&bytes)
    })
}

/// The record in which a pack's index stands at the pack's end.
pub fn index_record(index: &PackIndex) -> Vec<u8> {
    write(RecordKind::PackIndex, &index.encode())
}

/// Reads such a record; says how long it is.
pub(super) fn parse_index_record(bytes: &[u8]) -> Result<(PackIndex, usize)> {
    let (body, used) = parse(RecordKind::PackIndex, bytes)?;
    Ok((PackIndex::decode(body)?, used))
}
