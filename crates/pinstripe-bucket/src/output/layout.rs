//! The mapping of the bytes of an output to objects, and their names. Pure.

use std::ops::Range;

/// Bytes at the beginning that have an object of their own: the two pages of an output.
const HEAD_BYTES: u64 = 8192;
/// Bytes of every other object except the last.
const SEGMENT_BYTES: u64 = 8 << 20;
/// No output has as many bytes: greater offsets are errors.
pub const BYTES_MAX: u64 = 1 << 50;

/// The number of the object that contains an offset of the output, and the offset in that object.
pub(crate) fn object_of(offset: u64) -> (u64, u64) {
    match offset.checked_sub(HEAD_BYTES) {
        None => (0, offset),
        Some(behind) => (1 + behind / SEGMENT_BYTES, behind % SEGMENT_BYTES),
    }
}

/// The range of bytes of a full object.
pub(crate) fn range_of(number: u64) -> Range<u64> {
    match number.checked_sub(1) {
        None => 0..HEAD_BYTES,
        Some(segment) => {
            let start = HEAD_BYTES + segment * SEGMENT_BYTES;
            start..start + SEGMENT_BYTES
        }
    }
}

/// The bytes of an object that is full.
pub(crate) fn full_bytes(number: u64) -> u64 {
    range_of(number).end - range_of(number).start
}

/// Splits a range into its parts in each object: the object's number, the range in the object, and
/// the place in a buffer.
pub fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let left = (len - done) as u64;
        if left == 0 {
            return None;
        }
        let at = offset + done as u64;
        let ((number, from), end) = (object_of(at), range_of(object_of(at).0).end);
        debug_assert!(range_of(number).contains(&at), "the object has this byte");
        let many = left.min(end - at) as usize;
        debug_assert!(many > 0, "each object takes a part");
        let part = (number, from as usize..from as usize + many, done..done + many);
        done += many;
        Some(part)
    })
}

pub fn name(number: u64) -> String {
    match number.checked_sub(1) {
        None => "head".to_owned(),
        Some(segment) => format!("log-{segment:016x}"),
    }
}

pub fn number(name: &str) -> Option<u64> {
    if name == "head" {
        return Some(0);
    }
    let digits = name.strip_prefix("log-")?;
    let segment = u64::from_str_radix(digits, 16).ok()?;
    (segment < BYTES_MAX / SEGMENT_BYTES && name == self::name(segment + 1)).then(|| segment + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_one_object() {
        assert_eq!(object_of(HEAD_BYTES - 1), (0, HEAD_BYTES - 1));
        assert_eq!(object_of(HEAD_BYTES), (1, 0));
        assert_eq!(object_of(HEAD_BYTES + SEGMENT_BYTES), (2, 0));
        let (from, len) = (100, (2 * SEGMENT_BYTES + HEAD_BYTES) as usize);
        let mut at = from;
        for (number, inside, part) in parts(from, len) {
            assert_eq!(at, range_of(number).start + inside.start as u64);
            assert_eq!((inside.len(), part.start as u64), (part.len(), at - from));
            at += part.len() as u64;
        }
        assert_eq!(at, from + len as u64);
        assert_eq!(parts(5, 0).count(), 0);
    }

    #[test]
    fn names_come_back_and_others_do_not() {
        for at in [0, 1, 2, 1 << 20] {
            assert_eq!(number(&name(at)), Some(at));
        }
        for odd in ["", "log-", "log-0", "log-000000000000000G", "heads", "log-ffffffffffffffff"] {
            assert_eq!(number(odd), None, "{odd}");
        }
    }
}
