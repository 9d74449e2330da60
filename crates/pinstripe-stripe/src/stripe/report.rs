//! A reader's report in addition to the bytes: rebuilt strips, damaged parts, losses.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind};

/// Why a strip, or the extent it is in, counts as an erasure.
#[derive(Debug, Clone)]
pub enum ErasureReason {
    /// No member has this number.
    MemberMissing,
    /// The member is present, the extent is not.
    ExtentMissing,
    /// The header is damaged, or that of another store, set or geometry.
    Header(Arc<Error>),
    /// The member could not give the bytes: an I/O error, or the extent is too short.
    Unreadable(Arc<Error>),
    /// The bytes are not those that were written.
    Checksum,
    /// The strip could not be rebuilt when its extent was rewritten, and is marked as lost.
    GivenUp,
    /// It is remote and was not read: not damage.
    Spared,
}

impl ErasureReason {
    /// The reason that follows from a member's refusal to read.
    pub(super) fn unreadable(error: Error) -> Self {
        match error.kind() {
            Kind::NotFound => ErasureReason::ExtentMissing,
            _ => ErasureReason::Unreadable(Arc::new(error)),
        }
    }

    /// Whether the whole extent is out of reach, so that no read of it can succeed.
    pub fn is_missing(&self) -> bool {
        matches!(self, ErasureReason::MemberMissing | ErasureReason::ExtentMissing)
    }
}

impl fmt::Display for ErasureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErasureReason::MemberMissing => f.write_str("the member is missing"),
            ErasureReason::ExtentMissing => f.write_str("the member has no such extent"),
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

/// The content of a strip that was lost when its extent was rewritten, repeated: its checksum never
/// matches, so that every reader treats it as an erasure.
const LOST_MARK: &[u8; 16] = b"pinstripe: lost\n";

/// Fills a strip with the mark of lost ones.
pub(super) fn mark_lost(strip: &mut [u8]) {
    for part in strip.chunks_mut(LOST_MARK.len()) {
        part.copy_from_slice(&LOST_MARK[..part.len()]);
    }
}

/// Whether a strip has the mark of lost ones. A strip shorter than the mark never does.
pub(super) fn is_lost_mark(strip: &[u8]) -> bool {
    strip.len() >= LOST_MARK.len()
        && strip.chunks(LOST_MARK.len()).all(|part| *part == LOST_MARK[..part.len()])
}

/// The result of writing an extent with strips beyond repair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Rows whose strip is intact.
    pub sound_rows: u64,
    /// Rows whose strip was copied from a member although it does not match its checksum: records
    /// in it may be sound.
    pub copied_rows: u64,
    /// Rows whose strip no member gives; it is marked as lost.
    pub lost_rows: u64,
}

/// A strip that was rebuilt from the others of its row.
#[derive(Debug, Clone)]
pub struct Rebuilt {
    /// The slot whose strip it is.
    pub slot: usize,
    /// The member that should have given it, when one is present.
    pub member: Option<usize>,
    /// The row.
    pub row: u64,
    /// Why it did not.
    pub reason: ErasureReason,
}

/// The work of a read other than returning bytes.
#[derive(Debug, Clone, Default)]
pub struct ReadReport {
    /// The strips, or parts of strips, that had to be rebuilt, in row order.
    pub rebuilt: Vec<Rebuilt>,
    /// Bytes read from members, those for rebuilding included.
    pub fetched_bytes: u64,
    /// Strips, or parts of strips, that were made from near ones instead of being fetched from afar.
    pub spared: u64,
}

/// A part of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExtentPart {
    /// All of it: the member or the extent is missing.
    Extent,
    /// The first 4096 bytes.
    Header,
    /// The strip of this row.
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
    /// The member that has it, or has lost it. `None` when that may be one that is missing.
    pub member: Option<usize>,
    /// Which part of its extent.
    pub part: ExtentPart,
    /// The kind of damage.
    pub reason: ErasureReason,
    /// Whether the other members have enough strips to rebuild it.
    pub repairable: bool,
}

/// The state of a whole set.
#[derive(Debug, Clone, Default)]
pub struct Verification {
    /// Everything that is not as it was written, by slot, then by part.
    pub damage: Vec<ExtentDamage>,
    /// The ranges of the logical run that parity cannot bring back: sorted, disjoint, not touching.
    pub lost_ranges: Vec<Range<u64>>,
    /// Bytes read from members; those of a damaged header or trailer are not counted.
    pub fetched_bytes: u64,
}

impl Verification {
    /// Whether every byte of every slot is as it was written.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty()
    }
}
