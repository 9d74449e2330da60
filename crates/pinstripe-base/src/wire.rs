//! Reads and writes little-endian numbers in byte slices, with bounds checks: every decoder is
//! based on it.
//!
//! Invariants: [`Reader`] never reads past its bytes and never panics; every slice that it returns
//! is a part of its bytes, so that a decoder which sizes its buffers by [`Reader::count`] or by
//! slices never allocates more than its input justifies. Varints are LEB128 with exactly one valid
//! form per value, so that equal structs have equal bytes.
//!
//! This module does not know the meaning of fields. The caller knows the meaning, and checks the
//! values.

use crate::error::{Error, Kind, Result};

/// The most bytes of the varint of a `u64`.
pub(crate) const VARINT_MAX_BYTES: usize = 10;

/// Takes values from the front of a byte slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The name of the object being decoded, for messages: "pack trailer".
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// A reader of `bytes` from their start; `what` names them in errors ("pack trailer").
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Reader { bytes, at: 0, what }
    }

    /// The number of bytes that were not taken yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Whether all bytes were taken.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The number of bytes that were taken so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// An error of [`Kind::Corrupt`] about the bytes being read.
    pub fn corrupt(&self, problem: impl std::fmt::Display) -> Error {
        Error::new(Kind::Corrupt, format!("{} at byte {}: {problem}", self.what, self.at))
    }

    /// Takes `len` bytes.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when fewer bytes are left; this holds for every method that
    /// takes bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let left = &self.bytes[self.at..];
        let Some(taken) = left.get(..len) else {
            return Err(self.corrupt("the bytes end too early").expected(len, left.len()));
        };
        self.at += len;
        Ok(taken)
    }

    /// Takes all remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        self.at = self.bytes.len();
        rest
    }

    /// Takes a fixed number of bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("take returns exactly the length asked for"))
    }

    /// Takes one byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Takes a two-byte number.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Takes a four-byte number.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Takes an eight-byte number.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Takes an eight-byte signed number.
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// Takes a LEB128 number.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] also when the number exceeds 64 bits or is longer than
    /// necessary.
    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for index in 0..VARINT_MAX_BYTES {
            let byte = self.u8()?;
            let low = u64::from(byte & 0x7f);
            if index == VARINT_MAX_BYTES - 1 && low > 1 {
                return Err(self.corrupt("a varint exceeds 64 bits"));
            }
            value |= low << (7 * index);
            if byte & 0x80 == 0 {
                if byte == 0 && index > 0 {
                    return Err(self.corrupt("a varint is longer than its value needs"));
                }
                return Ok(value);
            }
        }
        Err(self.corrupt("a varint exceeds 64 bits"))
    }

    /// Takes a signed LEB128 number in zigzag form (small magnitudes are short).
    pub fn signed_varint(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Takes a varint count of items that need at least `min_item_bytes` each; a count that the
    /// remaining bytes cannot hold is refused before anything is allocated.
    pub fn count(&mut self, min_item_bytes: usize) -> Result<usize> {
        let count = self.varint()?;
        let most = self.remaining() / min_item_bytes.max(1);
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(self
                .corrupt("a count is too large for the number of bytes that follow")
                .expected(format!("at most {most}"), count)),
        }
    }

    /// Takes bytes that are preceded by their length, a varint.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.count(1)?;
        self.take(len)
    }

    /// Checks that all bytes were taken.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when bytes are left over.
    pub fn finish(self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            left => {
                Err(self.corrupt("there are more bytes than expected at the end").expected(0, left))
            }
        }
    }
}

/// Appends values to a byte vector; the counterpart of [`Reader`], method by method.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// A writer that appends to `out` and keeps the existing bytes.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Writer { out }
    }

    /// The number of bytes in the vector, including those before the first append.
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// Appends bytes unchanged, without a length.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// Appends `len` zero bytes.
    pub fn zeros(&mut self, len: usize) -> &mut Self {
        self.out.resize(self.out.len() + len, 0);
        self
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.raw(&[value])
    }

    /// Appends a two-byte number.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends a four-byte number.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends an eight-byte number.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends an eight-byte signed number.
    pub fn i64(&mut self, value: i64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends a LEB128 number.
    pub fn varint(&mut self, value: u64) -> &mut Self {
        if value < 0x80 {
            self.out.push(value as u8);
            return self;
        }
        let mut short = ShortRun::default();
        short.varint(value);
        self.raw(short.bytes())
    }

    /// Appends a signed LEB128 number in zigzag form.
    pub fn signed_varint(&mut self, value: i64) -> &mut Self {
        self.varint((value << 1 ^ value >> 63) as u64)
    }

    /// Appends bytes after their varint length.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.varint(bytes.len() as u64).raw(bytes)
    }
}

/// A few numbers that are collected before they are appended at once: an entry has a dozen of them,
/// and reserving room in the vector for each costs more than the numbers themselves.
pub struct ShortRun {
    bytes: [u8; SHORT_RUN_BYTES],
    len: usize,
}

const SHORT_RUN_BYTES: usize = 128;

impl Default for ShortRun {
    fn default() -> Self {
        ShortRun { bytes: [0; SHORT_RUN_BYTES], len: 0 }
    }
}

impl ShortRun {
    /// Appends one byte.
    ///
    /// # Panics
    /// Panics beyond 128 bytes, as all methods of this type do: the type is used only for data
    /// whose length is known beforehand.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes[self.len] = value;
        self.len += 1;
        self
    }

    /// Appends a LEB128 number.
    pub fn varint(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8)
    }

    /// Appends a signed LEB128 number in zigzag form.
    pub fn signed_varint(&mut self, value: i64) -> &mut Self {
        self.varint((value << 1 ^ value >> 63) as u64)
    }

    /// The bytes that were appended.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut Writer::new(&mut out));
        out
    }

    #[test]
    fn every_value_comes_back() {
        let bytes = written(|w| {
            w.u8(1)
                .u16(0x0203)
                .u32(4)
                .u64(5)
                .i64(-6)
                .varint(300)
                .bytes(b"seven")
                .zeros(2)
                .raw(b"8");
        });
        let mut reader = Reader::new(&bytes, "test");
        assert_eq!(reader.u8().unwrap(), 1);
        assert_eq!(reader.u16().unwrap(), 0x0203);
        assert_eq!(reader.u32().unwrap(), 4);
        assert_eq!(reader.u64().unwrap(), 5);
        assert_eq!(reader.i64().unwrap(), -6);
        assert_eq!(reader.varint().unwrap(), 300);
        assert_eq!(reader.bytes().unwrap(), b"seven");
        assert_eq!(reader.array::<2>().unwrap(), [0, 0]);
        assert_eq!(reader.clone().rest(), b"8");
        assert_eq!(reader.clone().finish().unwrap_err().kind(), Kind::Corrupt);
        reader.take(1).unwrap();
        reader.finish().unwrap();
    }

    #[test]
    fn a_varint_has_one_form() {
        for (bytes, value) in [
            (&[0][..], Some(0)),
            (&[0x7f], Some(127)),
            (&[0x80, 1], Some(128)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Some(u64::MAX)),
            (&[0x80, 0], None),
            (&[0x80], None),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], None),
            (&[0x80; 11], None),
        ] {
            assert_eq!(Reader::new(bytes, "test").varint().ok(), value, "{bytes:x?}");
        }
    }

    #[test]
    fn lengths_and_counts_are_checked_before_they_are_believed() {
        let huge = written(|w| {
            w.varint(u64::MAX).raw(b"abc");
        });
        assert_eq!(Reader::new(&huge, "test").bytes().unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(Reader::new(&huge, "test").count(8).unwrap_err().kind(), Kind::Corrupt);
        let three = written(|w| {
            w.varint(3).raw(&[0; 11]);
        });
        assert!(Reader::new(&three, "test").count(4).is_err());
        assert_eq!(Reader::new(&three, "test").count(3).unwrap(), 3);
    }

    proptest! {
        #[test]
        fn varints_come_back(value in any::<u64>(), shift in 0u32..64, signed in any::<i64>()) {
            let value = value >> shift;
            let bytes = written(|w| {
                w.varint(value).signed_varint(signed).signed_varint(signed >> shift);
            });
            let mut reader = Reader::new(&bytes, "test");
            prop_assert_eq!(reader.varint().unwrap(), value);
            prop_assert_eq!(reader.signed_varint().unwrap(), signed);
            prop_assert_eq!(reader.signed_varint().unwrap(), signed >> shift);
            reader.finish().unwrap();
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, steps in prop::collection::vec(0u8..8, 1..40)) {
            let mut reader = Reader::new(&bytes, "test");
            for step in steps {
                let before = reader.position();
                let failed = match step {
                    0 => reader.u8().is_err(),
                    1 => reader.u16().is_err(),
                    2 => reader.u64().is_err(),
                    3 => reader.varint().is_err(),
                    4 => reader.signed_varint().is_err(),
                    5 => reader.bytes().is_err(),
                    6 => reader.count(3).is_err(),
                    _ => reader.take(5).is_err(),
                };
                prop_assert!(failed || reader.position() > before);
                prop_assert!(reader.position() + reader.remaining() == bytes.len());
            }
        }
    }
}
