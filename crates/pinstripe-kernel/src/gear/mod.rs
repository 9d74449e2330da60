//! Computes the gear hash, and finds places where content-defined chunks may end.
//!
//! The hash after a byte is twice the hash before it plus a table value for that byte, modulo 2^64.
//! So a byte has no effect after 64 bytes, the hash at a place depends on only [`WINDOW`] bytes,
//! and any piece of a long run can be scanned separately once the bytes before it are known. The
//! limited range of the hash is used in two ways: [`Gear::scan`] computes the hashes of several
//! places of a piece in parallel, because a single hash is a chain of dependent additions that uses
//! only a small part of the processor; and callers may pass the pieces of a run to different
//! threads.
//!
//! Invariants: the candidates of a run do not depend on how it was divided; they are equal to those
//! of [`Gear::scan_plain`], which processes one byte after the other. The table and the masks are
//! part of the format; they are those of FastCDC, so that other programs can verify pinstripe's
//! cuts.
//!
//! This module does not decide where a chunk begins or ends. Candidates depend only on the data;
//! the rules that choose among them need the place of the previous cut, and are elsewhere.

mod table;

use table::{GEAR, MASKS, MASKS_FIRST};

/// The number of bytes on which the hash at a place depends: the byte at that place and the 63
/// bytes before it.
pub const WINDOW: usize = 64;

/// The number of places whose hashes are computed in parallel: as many as fit into the registers of
/// x86-64.
const LANES: usize = 8;
/// Bytes per lane in the bulk of a piece.
const LONG_LANE: usize = 2048;
/// Bytes per lane in the rest of a piece, where a lane's initial 64 bytes cost an eighth of its
/// length.
const SHORT_LANE: usize = 512;

/// The two conditions of normalized chunking; a hash meets a condition if all bits of the mask are
/// zero in it.
///
/// Invariant: bit 63 is in neither mask, so a hash and a mask that are both shifted left by one bit
/// give the same result as the unshifted ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Masks {
    strict: u64,
    loose: u64,
}

impl Masks {
    /// FastCDC's masks for chunks of about `average_bytes`, at normalization level 1: compared with
    /// the mask of the nearest power of two, the strict condition is met half as often and the
    /// loose condition twice as often.
    ///
    /// Returns `None` for averages outside of 128 bytes to 16 MiB, for which there are no masks.
    pub fn for_average(average_bytes: u32) -> Option<Masks> {
        let below = average_bytes.checked_ilog2()?;
        // Nearest in logarithm: up when average >= 2^(below + 1/2), compared as squares.
        let up = u64::from(average_bytes).pow(2) >= 1 << (2 * below + 1);
        let at = (below + u32::from(up)).checked_sub(MASKS_FIRST)? as usize;
        Some(Masks { strict: *MASKS.get(at + 1)?, loose: *MASKS.get(at.checked_sub(1)?)? })
    }

    /// Whether `hash` meets the strict condition, which applies to places before the average
    /// length: it is rarely met, so few chunks are short.
    pub fn strict(self, hash: u64) -> bool {
        hash & self.strict == 0
    }

    /// Whether `hash` meets the loose condition, which applies to places from the average length
    /// on: it is often met, so few chunks are long.
    pub fn loose(self, hash: u64) -> bool {
        hash & self.loose == 0
    }

    /// The bits that are in both masks; a hash that meets either condition has zeros in these bits.
    fn common(self) -> u64 {
        self.strict & self.loose
    }
}

/// A place whose hash meets a condition. The byte at the place is part of the hash, but a cut here
/// makes it the first byte of the next chunk (FastCDC's convention of 2020).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutCandidate {
    /// The offset of the place from the beginning of the run, in bytes.
    pub position: u64,
    /// Whether the strict condition is met.
    pub strict: bool,
    /// Whether the loose condition is met.
    pub loose: bool,
}

impl CutCandidate {
    /// Returns the candidate at `position`, if its hash meets a condition.
    fn judge(position: u64, hash: u64, masks: Masks) -> Option<CutCandidate> {
        let (strict, loose) = (masks.strict(hash), masks.loose(hash));
        (strict || loose).then_some(CutCandidate { position, strict, loose })
    }
}

/// A table of the gear hash: the standard table, one of 2^64 tables that a secret seed selects, or
/// any other.
#[derive(Clone)]
pub struct Gear {
    table: [u64; 256],
    /// Twice the values of `table`, so that two bytes need only one shift.
    doubled: [u64; 256],
}

impl Gear {
    /// The standard table with every value XORed with `seed`; seed 0 gives the standard table
    /// itself.
    pub fn new(seed: u64) -> Gear {
        Gear::of_table(&GEAR.map(|value| value ^ seed))
    }

    /// Creates a gear hash with a given table. The cuts are only as good as the table's values are
    /// random.
    pub fn of_table(table: &[u64; 256]) -> Gear {
        Gear { table: *table, doubled: table.map(|value| value << 1) }
    }

    /// The hash after `byte`, given the hash before it.
    #[inline]
    pub fn roll(&self, hash: u64, byte: u8) -> u64 {
        (hash << 1).wrapping_add(self.table[usize::from(byte)])
    }

    /// The hash after all of `bytes`, given the hash before them.
    fn roll_all(&self, hash: u64, bytes: &[u8]) -> u64 {
        bytes.iter().fold(hash, |hash, &byte| self.roll(hash, byte))
    }

    /// Appends the candidates in `data` to `out`, in order of position.
    ///
    /// `base` is the position of `data[0]`. `before` contains the bytes right before `data[0]`: at
    /// least [`WINDOW`] - 1 bytes, or fewer if the run begins less than that before `data`. At
    /// places less than a window from the beginning of the run, the hash begins at zero.
    pub fn scan(
        &self,
        masks: Masks,
        before: &[u8],
        data: &[u8],
        base: u64,
        out: &mut Vec<CutCandidate>,
    ) {
        let mut hash = self.roll_all(0, last_window(before));
        let mut at = 0;
        for lane_bytes in [LONG_LANE, SHORT_LANE] {
            while data.len() - at >= LANES * lane_bytes {
                let block = &data[at..at + LANES * lane_bytes];
                let base = base + at as u64;
                hash = match lane_bytes {
                    LONG_LANE => self.scan_lanes::<LONG_LANE>(masks, hash, block, base, out),
                    _ => self.scan_lanes::<SHORT_LANE>(masks, hash, block, base, out),
                };
                at += block.len();
            }
        }
        self.scan_from(masks, hash, &data[at..], base + at as u64, out);
    }

    /// The reference version of [`scan`](Gear::scan), which processes one byte after the other.
    pub fn scan_plain(
        &self,
        masks: Masks,
        before: &[u8],
        data: &[u8],
        base: u64,
        out: &mut Vec<CutCandidate>,
    ) {
        self.scan_from(masks, self.roll_all(0, last_window(before)), data, base, out);
    }

    /// Scans `data` with a single hash, whose value before the first byte is `hash`.
    fn scan_from(
        &self,
        masks: Masks,
        mut hash: u64,
        data: &[u8],
        base: u64,
        out: &mut Vec<CutCandidate>,
    ) {
        let common = masks.common();
        for (position, &byte) in (base..).zip(data) {
            hash = self.roll(hash, byte);
            if hash & common == 0 {
                out.extend(CutCandidate::judge(position, hash, masks));
            }
        }
    }

    /// Scans a block of [`LANES`] times `LANE` bytes, each lane with its own hash; `hash` is that
    /// of the first lane, and the others are computed from the bytes before each lane. Returns the
    /// hash at the end.
    #[inline(never)]
    fn scan_lanes<const LANE: usize>(
        &self,
        masks: Masks,
        hash: u64,
        block: &[u8],
        base: u64,
        out: &mut Vec<CutCandidate>,
    ) -> u64 {
        let (lanes, _) = block.as_chunks::<LANE>();
        let lanes: &[[u8; LANE]; LANES] = lanes.try_into().expect("a block is LANES lanes");
        let mut hashes = [hash; LANES];
        for k in 1..LANES {
            hashes[k] = self.roll_all(0, last_window(&lanes[k - 1]));
        }
        let (common, first_new) = (masks.common(), out.len());
        for pair in 0..LANE / 2 {
            for k in 0..LANES {
                let (even, odd) = (2 * pair, 2 * pair + 1);
                let position = |at: usize| base + (k * LANE + at) as u64;
                // Twice the hash at the even place, tested against twice the mask.
                let added = self.doubled[usize::from(lanes[k][even])];
                hashes[k] = (hashes[k] << 2).wrapping_add(added);
                if hashes[k] & (common << 1) == 0 {
                    note(out, position(even), hashes[k] >> 1, masks);
                }
                hashes[k] = hashes[k].wrapping_add(self.table[usize::from(lanes[k][odd])]);
                if hashes[k] & common == 0 {
                    note(out, position(odd), hashes[k], masks);
                }
            }
        }
        out[first_new..].sort_unstable_by_key(|candidate| candidate.position);
        hashes[LANES - 1]
    }
}

/// Appends a candidate. The function is not inlined, because candidates are rare and the loop
/// around the call is hot.
#[cold]
#[inline(never)]
fn note(out: &mut Vec<CutCandidate>, position: u64, hash: u64, masks: Masks) {
    out.extend(CutCandidate::judge(position, hash, masks));
}

/// Returns the last bytes of `bytes`, on which the hash after them depends.
fn last_window(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(WINDOW)..]
}

#[cfg(test)]
mod tests;
