//! The gear hash and the scan for places where content-defined chunks may end.
//!
//! The hash after a byte is twice the hash before it plus a table value for that byte, modulo
//! 2^64. So a byte is forgotten 64 bytes later, the hash at a place depends on [`WINDOW`] bytes
//! only, and any piece of a long run can be scanned by itself once it knows the bytes before it.
//! That is used twice: [`Gear::scan`] hashes several places of a piece side by side, because one
//! hash is a chain of dependent additions that leaves most of the processor idle; and callers may
//! hand the pieces of a run to different threads.
//!
//! Invariants: the candidates of a run do not depend on how it was divided; they are the same as
//! those of [`Gear::scan_plain`], which examines one byte after the other. The table and the masks
//! are part of the format and are FastCDC's, so that other programs can check our cuts.
//!
//! Not in this module: where a chunk begins or ends. Candidates are properties of the data alone;
//! the rules that choose among them need the place of the previous cut and are not ours.

mod table;

use table::{GEAR, MASKS, MASKS_FIRST};

/// Bytes on which the hash at a place depends: that place's own and the 63 before it.
pub const WINDOW: usize = 64;

/// The number of places hashed side by side: as many as fit into the registers of x86-64.
const LANES: usize = 8;
/// Bytes per lane in the bulk of a piece.
const LONG_LANE: usize = 2048;
/// Bytes per lane in the rest, where warming up a lane costs an eighth of its length.
const SHORT_LANE: usize = 512;

/// The two conditions of normalized chunking: a hash meets one when all bits of the mask are clear.
///
/// Invariant: bit 63 is in neither mask, so a hash and a mask that are both shifted left by one bit
/// meet exactly when the unshifted ones do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Masks {
    strict: u64,
    loose: u64,
}

impl Masks {
    /// FastCDC's masks for chunks of about `average_bytes`, at normalization level 1: strict is
    /// twice as rare and loose twice as frequent as the nearest power of two.
    ///
    /// `None` outside of 128 bytes to 16 MiB, for which there are no masks.
    pub fn for_average(average_bytes: u32) -> Option<Masks> {
        let below = average_bytes.checked_ilog2()?;
        // Nearest in logarithm: up when average >= 2^(below + 1/2), compared as squares.
        let up = u64::from(average_bytes).pow(2) >= 1 << (2 * below + 1);
        let at = (below + u32::from(up)).checked_sub(MASKS_FIRST)? as usize;
        Some(Masks { strict: *MASKS.get(at + 1)?, loose: *MASKS.get(at.checked_sub(1)?)? })
    }

    /// Whether `hash` meets the strict condition, for places before the average length: it is
    /// rarely met, so few chunks are short.
    pub fn strict(self, hash: u64) -> bool {
        hash & self.strict == 0
    }

    /// Whether `hash` meets the loose condition, for places from the average length on: it is
    /// often met, so few chunks are long.
    pub fn loose(self, hash: u64) -> bool {
        hash & self.loose == 0
    }

    /// The bits in both masks: a hash that meets either condition has these clear.
    fn common(self) -> u64 {
        self.strict & self.loose
    }
}

/// A place whose hash meets a condition. The byte at the place is part of the hash, but a cut here
/// makes it the first byte of the next chunk (FastCDC's convention of 2020).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutCandidate {
    /// Offset of the place in the whole run, in bytes.
    pub position: u64,
    /// The strict condition is met.
    pub strict: bool,
    /// The loose condition is met.
    pub loose: bool,
}

impl CutCandidate {
    /// The candidate that `hash` makes of `position`, if it does.
    fn judge(position: u64, hash: u64, masks: Masks) -> Option<CutCandidate> {
        let (strict, loose) = (masks.strict(hash), masks.loose(hash));
        (strict || loose).then_some(CutCandidate { position, strict, loose })
    }
}

/// A table of the gear hash: the plain one, one of 2^64 that a secret seed selects, or any other.
#[derive(Clone)]
pub struct Gear {
    table: [u64; 256],
    /// Twice the values of `table`: two bytes then cost one shift.
    doubled: [u64; 256],
}

impl Gear {
    /// The shared table with every value XORed with `seed`; 0 is the shared table itself.
    pub fn new(seed: u64) -> Gear {
        Gear::of_table(&GEAR.map(|value| value ^ seed))
    }

    /// A table of one's own. Cuts are as good as its values are random.
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
    /// `base` is the position of `data[0]`; `before` ends right before it and has [`WINDOW`] - 1
    /// bytes or more, fewer only where the run has no more. There, at places less than a window
    /// from the beginning of the run, the hash begins at zero.
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

    /// The plain version of [`scan`](Gear::scan): one byte after the other.
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

    /// Scans `data` with one hash, which is `hash` before its first byte.
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

    /// Scans a block of [`LANES`] times `LANE` bytes, each lane with its own hash; `hash` is the
    /// first lane's, the others warm up on the bytes before them. Returns the hash at the end.
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

/// Writes down a candidate. Out of line, because it is rare and the loop around it is hot.
#[cold]
#[inline(never)]
fn note(out: &mut Vec<CutCandidate>, position: u64, hash: u64, masks: Masks) {
    out.extend(CutCandidate::judge(position, hash, masks));
}

/// The end of `bytes`, as far as the hash after it can depend on it.
fn last_window(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(WINDOW)..]
}

#[cfg(test)]
mod tests;
