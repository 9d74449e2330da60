//! The manifest object of an extent that is longer than one request may be; it identifies the parts
//! of the extent.

use pinstripe_base::id::hex;

/// The first bytes of a manifest object.
pub(crate) const MAGIC: &[u8; 8] = b"PINPARTS";
/// The length of a manifest object: the magic, the length of the extent, and the id of its writer.
pub(crate) const MANIFEST_BYTES: usize = 8 + 8 + 16;
/// The length of every part of an extent except the last.
pub(crate) const PART_BYTES: usize = 32 << 20;

/// The content of a manifest object.
pub(crate) struct Manifest {
    /// The length of the extent in bytes.
    pub(crate) bytes: u64,
    /// A random id chosen by the writer, so that parts of two writers are never mixed.
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
