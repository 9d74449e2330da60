//! The object that stands for an extent which is longer than one request takes, and names its parts.

use pinstripe_base::id::hex;

/// What an object that names parts begins with.
pub(crate) const MAGIC: &[u8; 8] = b"PINPARTS";
/// The magic, the length of the extent, the id of its writer.
pub(crate) const MANIFEST_BYTES: usize = 8 + 8 + 16;
/// The length of every part of an extent but the last.
pub(crate) const PART_BYTES: usize = 32 << 20;

/// An object that names parts.
pub(crate) struct Manifest {
    /// Those of the extent.
    pub(crate) bytes: u64,
    /// Drawn by the writer: parts of two are never mixed.
    pub(crate) writer: [u8; 16],
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&MAGIC[..], &self.bytes.to_le_bytes(), &self.writer].concat()
    }

    pub(crate) fn decode(object: &[u8]) -> Option<Self> {
        let (magic, rest) = object.split_first_chunk::<8>()?;
        let (bytes, writer) = rest.split_first_chunk::<8>()?;
        let writer = writer.try_into().ok()?;
        (magic == MAGIC).then(|| Manifest { bytes: u64::from_le_bytes(*bytes), writer })
    }

    pub(crate) fn part(&self, number: u64) -> String {
        format!("{}.{number}", hex(&self.writer))
    }

    pub(crate) fn parts(&self) -> u64 {
        self.bytes.div_ceil(PART_BYTES as u64)
    }
}
