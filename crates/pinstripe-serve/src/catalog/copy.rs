//! Rows in the binary format of COPY.
//!
//! ```text
//! signature 11, flags 4, length of the extension 4
//! for each row: count of fields 2; for each field: length 4 (-1: null), bytes; numbers big-endian
//! end: -1 as 2 bytes
//! ```

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Collects rows.
pub(super) struct CopyRows {
    bytes: Vec<u8>,
    is_empty: bool,
}

impl CopyRows {
    pub fn new(bytes: usize) -> Self {
        let mut all = Vec::with_capacity(bytes + SIGNATURE.len() + 2);
        all.extend_from_slice(SIGNATURE);
        CopyRows { bytes: all, is_empty: true }
    }

    /// Begins a row with this number of fields.
    pub fn row(&mut self, fields: u16) -> &mut Self {
        self.is_empty = false;
        self.bytes.extend_from_slice(&fields.to_be_bytes());
        self
    }

    pub(super) fn int(&mut self, value: i32) -> &mut Self {
        self.field(&value.to_be_bytes())
    }

    pub(super) fn bigint(&mut self, value: i64) -> &mut Self {
        self.field(&value.to_be_bytes())
    }

    pub fn null(&mut self) -> &mut Self {
        self.bytes.extend_from_slice(&(-1_i32).to_be_bytes());
        self
    }

    /// A field of bytes. It has less than 2 GiB, because a frame has less.
    pub fn field(&mut self, value: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(&(value.len() as i32).to_be_bytes());
        self.bytes.extend_from_slice(value);
        self
    }

    /// Returns all rows, or `None` without rows.
    pub fn finish(mut self) -> Option<Vec<u8>> {
        self.bytes.extend_from_slice(&(-1_i16).to_be_bytes());
        (!self.is_empty).then_some(self.bytes)
    }
}
