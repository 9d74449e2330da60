//! The LZO1X decoder: a loop over instructions in which every access is checked.

use super::{AFTER_RUN_BYTES, MIDDLE_BYTES};

/// The number of bytes that one step of copying a match or literals moves.
const STEP_BYTES: usize = 16;

/// The reason why a stream cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LzoError {
    /// The stream ends inside an instruction or without the end mark.
    Cut,
    /// A match begins before the first byte of the output.
    BeforeStart,
    /// The stream holds more bytes than the output has room for.
    TooLong,
    /// Bytes follow the end mark, or the end mark is malformed.
    BadEnd,
}

impl LzoError {
    /// A description of the damage.
    pub fn text(self) -> &'static str {
        match self {
            LzoError::Cut => "the stream is incomplete",
            LzoError::BeforeStart => "a match refers to an offset before the first byte",
            LzoError::TooLong => "the stream decompresses to more bytes than its recorded length",
            LzoError::BadEnd => "the end marker is not at the end of the stream",
        }
    }
}

/// The number of literals copied by the last instruction, which decides what a first byte below 16
/// means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behind {
    NoLiterals,
    FewLiterals,
    LiteralRun,
}

/// Decodes `stored` into the beginning of `out`; returns the number of bytes written.
///
/// # Errors
/// Fails with an [`LzoError`] when `stored` is not a complete LZO1X stream or does not fit in
/// `out`; the content of `out` is then unspecified.
pub fn decompress(stored: &[u8], out: &mut [u8]) -> Result<usize, LzoError> {
    let mut input = LzoInput { bytes: stored, at: 0 };
    let mut output = Output { bytes: out, at: 0 };
    // A first byte above 17 is a run of (byte - 17) literals: at the start of a stream a match
    // would have nothing to refer to.
    let mut behind = match stored.first() {
        Some(&first @ 18..) => {
            input.at = 1;
            copy_literals(&mut input, &mut output, usize::from(first) - 17)?;
            if first < 21 { Behind::FewLiterals } else { Behind::LiteralRun }
        }
        _ => Behind::NoLiterals,
    };
    loop {
        let first = input.byte()?;
        let (distance, len, trailing) = match first {
            64.. => {
                let distance = usize::from(first >> 2 & 7) + (usize::from(input.byte()?) << 3) + 1;
                (distance, usize::from(first >> 5) + 1, first & 3)
            }
            32.. => {
                let len = input.length(first & 31, 31)? + 2;
                let pair = input.pair()?;
                (usize::from(pair >> 2) + 1, len, pair as u8 & 3)
            }
            16.. => {
                let len = input.length(first & 7, 7)? + 2;
                let pair = input.pair()?;
                let distance = (usize::from(first & 8) << 11) + usize::from(pair >> 2);
                // The end mark: a far match of no distance and fixed length, with nothing after it.
                if distance == 0 {
                    let whole = len == 3 && pair == 0 && input.at == stored.len();
                    return if whole { Ok(output.at) } else { Err(LzoError::BadEnd) };
                }
                (distance + MIDDLE_BYTES, len, pair as u8 & 3)
            }
            // Two runs never follow each other, so after literals the same byte is a short match.
            _ if behind == Behind::NoLiterals => {
                let len = input.length(first, 15)? + 3;
                copy_literals(&mut input, &mut output, len)?;
                behind = Behind::LiteralRun;
                continue;
            }
            _ => {
                let distance = usize::from(first >> 2) + (usize::from(input.byte()?) << 2) + 1;
                match behind {
                    Behind::LiteralRun => (distance + AFTER_RUN_BYTES, 3, first & 3),
                    _ => (distance, 2, first & 3),
                }
            }
        };
        output.copy_match(distance, len)?;
        behind = Behind::NoLiterals;
        if trailing > 0 {
            copy_few(&mut input, &mut output, usize::from(trailing))?;
            behind = Behind::FewLiterals;
        }
    }
}

/// The stream, and how much of it has been read.
struct LzoInput<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl LzoInput<'_> {
    #[inline(always)]
    fn byte(&mut self) -> Result<u8, LzoError> {
        let byte = *self.bytes.get(self.at).ok_or(LzoError::Cut)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline(always)]
    fn pair(&mut self) -> Result<u16, LzoError> {
        let pair = self.bytes.get(self.at..self.at + 2).ok_or(LzoError::Cut)?;
        self.at += 2;
        Ok(u16::from_le_bytes([pair[0], pair[1]]))
    }

    /// Reads a length whose bits in the instruction are `bits`; if these are zero, the length is
    /// `base` plus the bytes that follow.
    #[inline(always)]
    fn length(&mut self, bits: u8, base: usize) -> Result<usize, LzoError> {
        if bits != 0 {
            return Ok(usize::from(bits));
        }
        let mut len = base;
        loop {
            let byte = self.byte()?;
            if byte != 0 {
                return Ok(len + usize::from(byte));
            }
            len += 255;
        }
    }
}

/// The output, and how much of it is filled; no byte at or after `at` is part of the result yet.
struct Output<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Output<'_> {
    /// Copies `len` bytes from `distance` bytes back; if source and destination overlap, the copy
    /// repeats bytes that it has just written.
    #[inline(always)]
    fn copy_match(&mut self, distance: usize, len: usize) -> Result<(), LzoError> {
        let from = self.at.checked_sub(distance).ok_or(LzoError::BeforeStart)?;
        let end = self.at + len;
        if distance >= STEP_BYTES && end + STEP_BYTES <= self.bytes.len() {
            // Whole steps may write past `end`, never past the slice; later bytes overwrite that.
            let (mut from, mut to) = (from, self.at);
            loop {
                self.bytes.copy_within(from..from + STEP_BYTES, to);
                (from, to) = (from + STEP_BYTES, to + STEP_BYTES);
                if to >= end {
                    break;
                }
            }
        } else if end <= self.bytes.len() {
            self.repeat(from, distance, len);
        } else {
            return Err(LzoError::TooLong);
        }
        self.at = end;
        Ok(())
    }

    /// The exact form of [`Self::copy_match`], for near matches and those at the end of the slice.
    fn repeat(&mut self, from: usize, distance: usize, len: usize) {
        let end = self.at + len;
        if distance == 1 {
            let byte = self.bytes[from];
            self.bytes[self.at..end].fill(byte);
            return;
        }
        // Each copy doubles what can be copied without overlap.
        let mut to = self.at;
        while to < end {
            let take = (to - from).min(end - to);
            self.bytes.copy_within(from..from + take, to);
            to += take;
        }
    }
}

/// Copies `len` literals from the stream to the output.
#[inline(always)]
fn copy_literals(input: &mut LzoInput, output: &mut Output, len: usize) -> Result<(), LzoError> {
    if len <= STEP_BYTES {
        return copy_few(input, output, len);
    }
    copy_exactly(input, output, len)
}

/// Copies at most [`STEP_BYTES`] literals: as one full step if both input and output have room for
/// it.
#[inline(always)]
fn copy_few(input: &mut LzoInput, output: &mut Output, len: usize) -> Result<(), LzoError> {
    let from = input.bytes.get(input.at..input.at + STEP_BYTES);
    let to = output.bytes.get_mut(output.at..output.at + STEP_BYTES);
    let (Some(from), Some(to)) = (from, to) else { return copy_exactly(input, output, len) };
    to.copy_from_slice(from);
    input.at += len;
    output.at += len;
    Ok(())
}

/// Copies `len` literals, and writes no byte after them.
#[inline(always)]
fn copy_exactly(input: &mut LzoInput, output: &mut Output, len: usize) -> Result<(), LzoError> {
    let from = input.bytes.get(input.at..input.at + len).ok_or(LzoError::Cut)?;
    let to = output.bytes.get_mut(output.at..output.at + len).ok_or(LzoError::TooLong)?;
    to.copy_from_slice(from);
    input.at += len;
    output.at += len;
    Ok(())
}
