//! What a reader reports in addition to the bytes: rebuilt strips, damaged parts, losses.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind};

/// The reason why a strip, or its complete extent, counts as an erasure.
#[derive(Debug, Clone)]
pub enum ErasureReason {
    /// No member has this number.
    MemberMissing,
    /// The member is present, but it does not have the extent.
    ExtentMissing,
    /// The header is damaged, or belongs to another store, set or geometry.
    Header(Arc<Error>),
    /// The member did not return the bytes: an I/O error, or the extent is too short.
    Unreadable(Arc<Error>),
    /// The bytes are not those that were written: the checksum differs.
    Checksum,
    /// The strip could not be rebuilt when its extent was rewritten, and was marked as lost.
    GivenUp,
    /// The strip is remote and was not read; this is not damage.
    Spared,
}

impl ErasureReason {
    /// Returns the reason that corresponds to an error of the member.
    pub(super) fn unreadable(error: Error) -> Self {
        match error.kind() {
            Kind::NotFound => ErasureReason::ExtentMissing,
            _ => ErasureReason::Unreadable(Arc::new(error)),
        }
    }

    /// Whether the complete extent is unavailable, so that no read of it can succeed.
    pub fn is_missing(&self) -> bool {
        matches!(self, ErasureReason::MemberMissing | ErasureReason::ExtentMissing)
    }
}

impl fmt::Display for ErasureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErasureReason::MemberMissing => f.write_str("the member is missing"),
            ErasureReason::ExtentMissing => f.write_str("the member does not have this extent"),
            ErasureReason::Header(error) => write!(f, "this is not the expected extent: {error}"),
            ErasureReason::Unreadable(error) => write!(f, "this part cannot be read: {error}"),
            ErasureReason::Checksum => f.write_str("the checksum does not match"),
            ErasureReason::GivenUp => {
                f.write_str("this strip was already lost when this extent was rewritten")
            }
            ErasureReason::Spared => f.write_str("this member is remote and was not read"),
        }
    }
}

/// The content, repeated, of a strip that was lost when its extent was rewritten: its checksum
/// never matches, so every reader treats such a strip as an erasure.
const LOST_MARK: &[u8; 16] = b"pinstripe: lost\n";

/// Fills a strip with the content of lost strips.
pub(super) fn mark_lost(strip: &mut [u8]) {
    for part in strip.chunks_mut(LOST_MARK.len()) {
        part.copy_from_slice(&LOST_MARK[..part.len()]);
    }
}

/// Whether a strip has the content of lost strips. Always false for a strip shorter than 16 bytes.
pub(super) fn is_lost_mark(strip: &[u8]) -> bool {
    strip.len() >= LOST_MARK.len()
        && strip.chunks(LOST_MARK.len()).all(|part| *part == LOST_MARK[..part.len()])
}

/// The result of rewriting an extent some of whose strips cannot be repaired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// The number of rows whose strip is intact.
    pub sound_rows: u64,
    /// The number of rows whose strip was copied from a member although it does not match its
    /// checksum: records in it may be intact.
    pub copied_rows: u64,
    /// The number of rows whose strip no member returned; such a strip is marked as lost.
    pub lost_rows: u64,
}

/// A strip that was rebuilt from the other strips of its row.
#[derive(Debug, Clone)]
pub struct Rebuilt {
    /// The slot to which the strip belongs.
    pub slot: usize,
    /// The member that should have returned the strip, if it is present.
    pub member: Option<usize>,
    /// The row.
    pub row: u64,
    /// The reason why the strip had to be rebuilt.
    pub reason: ErasureReason,
}

/// What a read did, in addition to returning bytes.
#[derive(Debug, Clone, Default)]
pub struct ReadReport {
    /// The strips, or parts of strips, that had to be rebuilt, in row order.
    pub rebuilt: Vec<Rebuilt>,
    /// Bytes read from members, including those read for rebuilding.
    pub fetched_bytes: u64,
    /// The number of strips, or parts of strips, that were rebuilt from near ones instead of being
    /// fetched from a remote member.
    pub spared: u64,
}

/// A part of an extent of a stripe set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExtentPart {
    /// The complete extent: it is missing, or its member is.
    Extent,
    /// The header: the first 4096 bytes.
    Header,
    /// The strip of a certain row.
    Strip(u64),
    /// Trailer and footer, or the length of the extent.
    Trailer,
}

impl fmt::Display for ExtentPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExtentPart::Extent => f.write_str("the extent"),
            ExtentPart::Header => f.write_str("the header"),
            ExtentPart::Strip(row) => write!(f, "the strip of row {row}"),
            ExtentPart::Trailer => f.write_str("the trailer"),
        }
    }
}

/// One damaged part of one slot's extent.
#[derive(Debug, Clone)]
pub struct ExtentDamage {
    /// The slot.
    pub slot: usize,
    /// The member that has the damaged part, or has lost it. `None` when an absent member may have
    /// the damaged part.
    pub member: Option<usize>,
    /// The damaged part of the slot's extent.
    pub part: ExtentPart,
    /// The kind of damage.
    pub reason: ErasureReason,
    /// Whether the other members have enough strips to rebuild the part.
    pub repairable: bool,
}

/// The result of verifying a complete set.
#[derive(Debug, Clone, Default)]
pub struct Verification {
    /// Every part that is not as it was written, by slot, then by part.
    pub damage: Vec<ExtentDamage>,
    /// The ranges of the logical run that parity cannot rebuild: sorted, disjoint and not adjacent.
    pub lost_ranges: Vec<Range<u64>>,
    /// Bytes read from members; those of a damaged header or trailer are not included.
    pub fetched_bytes: u64,
}

impl Verification {
    /// Whether every byte of every slot is as it was first written.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty()
    }
}
