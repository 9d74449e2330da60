//! The kind and geometry of a stripe set: the fields that header and trailer share.

use super::{
    CHECKSUM_BYTES, FOOTER_BYTES, MEMBERS_MAX, PARITY_MAX, PARITY_SUPPORTED, STRIP_BYTES_MAX,
    STRIP_BYTES_MIN, TRAILER_FIXED_BYTES, newer,
};
use pinstripe_base::byte_enum;
use pinstripe_base::error::{Error, Kind, Result};

byte_enum! {
    /// The kind of a stripe set's content.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum SetKind {
        /// Records of chunks, with a record index.
        Pack = 1,
        /// An index run: it maps chunk ids to places.
        IndexRun = 2,
        /// A source that `split` distributed over outputs.
        Split = 3,
    }
}

impl SetKind {
    pub(super) fn decode(byte: u8) -> Result<Self> {
        Self::from_byte(byte).ok_or_else(|| newer("kind of stripe set", "1, 2 or 3", byte))
    }
}

/// The geometry of a set: D data and P parity strips per row, and the strip size.
///
/// Always valid: D >= 1, P <= 2, D + P <= 255, strip size a power of two from 4 KiB to 16 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Geometry {
    pub(super) data: u8,
    pub(super) parity: u8,
    pub(super) strip_bytes: u32,
}

impl Geometry {
    /// Validates the three numbers and returns the geometry.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for numbers that do not form a valid geometry, or with
    /// [`Kind::Unsupported`] for three or four parity strips, which the format allows but this
    /// program does not implement.
    pub fn new(data: u8, parity: u8, strip_bytes: u32) -> Result<Self> {
        let usage = |what: &str| Err(Error::new(Kind::Usage, what));
        if data == 0 {
            return usage("a stripe set needs at least one data strip in each row (stripe)");
        }
        if parity > PARITY_MAX {
            return usage("a stripe set can have at most 4 parity strips in each row (stripe)");
        }
        if usize::from(data) + usize::from(parity) > MEMBERS_MAX {
            return usage("a stripe set can have at most 255 members");
        }
        let sizes = STRIP_BYTES_MIN..=STRIP_BYTES_MAX;
        if !strip_bytes.is_power_of_two() || !sizes.contains(&strip_bytes) {
            return usage("the strip size must be a power of two from 4 KiB to 16 MiB");
        }
        if parity > PARITY_SUPPORTED {
            return Err(newer("number of parity strips", "0, 1 or 2", parity));
        }
        Ok(Geometry { data, parity, strip_bytes })
    }

    /// Data strips per row, D.
    pub fn data(self) -> usize {
        self.data.into()
    }

    /// Parity strips per row, P: the number of members that may be missing.
    pub fn parity(self) -> usize {
        self.parity.into()
    }

    /// Bytes of a full strip.
    pub fn strip_bytes(self) -> u32 {
        self.strip_bytes
    }

    /// Members, N = D + P.
    pub fn members(self) -> usize {
        self.data() + self.parity()
    }

    /// Logical bytes in a full row.
    pub fn row_bytes(self) -> u64 {
        u64::from(self.data) * u64::from(self.strip_bytes)
    }

    /// The number of rows of a logical run of this length; the last row may be short.
    pub fn rows(self, logical_bytes: u64) -> u64 {
        logical_bytes.div_ceil(self.row_bytes())
    }

    /// The length of trailer and footer for a set with this number of rows.
    pub fn tail_bytes(self, rows: u64) -> u64 {
        let checksums = rows * (self.members() * CHECKSUM_BYTES) as u64;
        (TRAILER_FIXED_BYTES + FOOTER_BYTES) as u64 + checksums
    }

    pub(super) fn decode(data: u8, parity: u8, strip_bytes: u32) -> Result<Self> {
        Geometry::new(data, parity, strip_bytes).map_err(|error| match error.kind() {
            Kind::Usage => Error::new(
                Kind::Corrupt,
                format!("the stripe set has an impossible geometry: {error}"),
            ),
            _ => error,
        })
    }
}
