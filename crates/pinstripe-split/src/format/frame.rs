//! The frame: everything in a log begins with a frame head of the same form.
//!
//! ```text
//!  0  magic "psFR"                  4
//!  4  version                       1
//!  5  kind                          1   see `FrameKind`
//!  6  codec                         1   of data: how its bytes are stored
//!  7  zero                          1
//!  8  stored bytes                  4   that follow the head
//! 12  zero                          4
//! 16  raw bytes                     8   of the source that it stands for
//! 24  offset                        8   in the source
//! 32  tag                           8   of the split
//! 40  XXH3-128 of stored bytes     16
//! 56  XXH3-128 of 0..56, its first  8
//! ```
//!
//! Invariant: a frame head is accepted only when its own checksum matches and its tag is that of
//! the split, so that bytes of an earlier file in the same sectors never count as a frame.

use pinstripe_base::byte_enum;
use pinstripe_base::checksum::{Checksum, checksum};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::hex;
use pinstripe_base::wire::{Reader, Writer};

/// Bytes of a frame's head.
pub const FRAME_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"psFR";
const VERSION: u8 = 1;
const SUM_AT: usize = 56;
const SUM_BYTES: usize = 8;

const _: () =
    assert!(4 + 4 + 4 + 4 + 8 + 8 + 8 + 16 == SUM_AT && SUM_AT + SUM_BYTES == FRAME_BYTES);

/// The beginning of a split's id, which all of its frames carry.
pub type Tag = [u8; 8];

byte_enum! {
    /// The kind of a frame.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum FrameKind {
        /// The stored bytes of a block.
        Data = 1,
        /// Blocks of zeros; no bytes follow.
        Zeros = 2,
        /// A hole in the source, which reads as zeros; no bytes follow.
        Hole = 3,
        /// The length of the batch that begins here.
        Batch = 4,
        /// A part of the index: the places of batches.
        Index = 5,
        /// The summary of the whole split.
        Manifest = 6,
        /// Padding without content, up to the next possible start of a frame.
        Pad = 7,
        /// The head of a block whose bytes are in the plain output that belongs to this log.
        Beside = 8,
    }
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The kind.
    pub kind: FrameKind,
    /// The codec of the stored bytes of a data frame: [`Codec::id`](pinstripe_stripe::Codec::id).
    pub codec: u8,
    /// Bytes that follow.
    pub stored_bytes: u32,
    /// The number of bytes of the source that the frame stands for.
    pub raw_bytes: u64,
    /// The offset in the source of the bytes that the frame stands for.
    pub offset: u64,
    /// Checksum of the bytes that follow the head, or of those in the plain output.
    pub sum: Checksum,
}

impl Frame {
    /// Makes the head of a frame for `stored`, the bytes that follow it.
    pub fn over(kind: FrameKind, codec: u8, place: std::ops::Range<u64>, stored: &[u8]) -> Self {
        let stored_bytes = match kind {
            FrameKind::Beside => 0,
            _ => stored.len() as u32,
        };
        let raw_bytes = place.end - place.start;
        let sum = checksum(stored);
        Frame { kind, codec, stored_bytes, raw_bytes, offset: place.start, sum }
    }

    /// The length of the complete frame in the log.
    pub fn log_bytes(&self) -> u64 {
        FRAME_BYTES as u64 + u64::from(self.stored_bytes)
    }

    /// The head's bytes.
    pub fn encode(&self, tag: Tag) -> [u8; FRAME_BYTES] {
        let mut out = Vec::with_capacity(FRAME_BYTES);
        let mut w = Writer::new(&mut out);
        w.raw(&MAGIC).u8(VERSION).u8(self.kind as u8).u8(self.codec).zeros(1);
        w.u32(self.stored_bytes).zeros(4).u64(self.raw_bytes).u64(self.offset);
        w.raw(&tag).raw(&self.sum);
        let sum = checksum(&out);
        out.extend_from_slice(&sum[..SUM_BYTES]);
        out.try_into().expect("the fields fill the header")
    }

    /// Reads a frame head back.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when these are not the bytes of a head of this split, or with
    /// [`Kind::Unsupported`] when a newer version wrote them.
    pub fn decode(bytes: &[u8; FRAME_BYTES], tag: Tag) -> Result<Self> {
        let mut r = Reader::new(bytes, "frame");
        if r.array()? != MAGIC || checksum(&bytes[..SUM_AT])[..SUM_BYTES] != bytes[SUM_AT..] {
            return Err(r.corrupt("no frame of a split begins here"));
        }
        if r.u8()? != VERSION {
            return Err(Error::new(
                Kind::Unsupported,
                "this frame was written by a newer version of pinstripe",
            )
            .advice("read the output with a newer version of pinstripe"));
        }
        let kind = FrameKind::from_byte(r.u8()?);
        let (codec, zero, stored_bytes, zeros) = (r.u8()?, r.u8()?, r.u32()?, r.u32()?);
        let (raw_bytes, offset) = (r.u64()?, r.u64()?);
        if r.array()? != tag {
            return Err(r.corrupt("this frame belongs to another split"));
        }
        let sum = r.array()?;
        match kind {
            Some(kind) if zero == 0 && zeros == 0 && offset.checked_add(raw_bytes).is_some() => {
                Ok(Frame { kind, codec, stored_bytes, raw_bytes, offset, sum })
            }
            _ => Err(r.corrupt("a frame of the split has impossible values")),
        }
    }

    /// Returns the first offset in `bytes` where a head may begin, judged by its magic alone.
    pub fn find(bytes: &[u8]) -> Option<usize> {
        bytes.windows(MAGIC.len()).position(|window| window == MAGIC)
    }

    /// Verifies that the stored bytes, whether they follow the head or are in the plain output, are
    /// those that were written.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when the bytes differ from those that were written.
    pub fn verify(&self, stored: &[u8]) -> Result<()> {
        match checksum(stored) == self.sum {
            true => Ok(()),
            false => Err(Error::new(Kind::Corrupt, "the checksum of a block does not match")
                .expected(hex(&self.sum), hex(&checksum(stored)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_back_and_every_flipped_bit_is_seen() {
        let frame = Frame::over(FrameKind::Data, 2, 65536..131_072, b"stored");
        let bytes = frame.encode(*b"the-tag.");
        assert_eq!(Frame::decode(&bytes, *b"the-tag.").unwrap(), frame);
        assert_eq!(frame.log_bytes(), 70);
        assert!(Frame::decode(&bytes, *b"another.").is_err());
        for bit in 0..FRAME_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::decode(&flipped, *b"the-tag.").is_err(), "bit {bit}");
        }
        assert!(frame.verify(b"stored").is_ok() && frame.verify(b"Stored").is_err());
    }

    #[test]
    fn a_head_is_found_among_other_bytes() {
        let head = Frame::over(FrameKind::Zeros, 0, 0..4096, &[]).encode(*b"the-tag.");
        for before in [0, 1, 3, 64, 5000] {
            let bytes = [&vec![b'p'; before][..], &head, &head].concat();
            assert_eq!(Frame::find(&bytes), Some(before));
        }
        assert_eq!(Frame::find(&head[1..]), None);
        assert_eq!(Frame::find(b"psF"), None);
    }
}
