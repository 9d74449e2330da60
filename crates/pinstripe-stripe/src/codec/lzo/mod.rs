//! LZO1X: the block format of liblzo2, the kernel, kdump and squashfs; this implementation is
//! written from the public description of the stream, and no line comes from another one.
//!
//! A stream is a sequence of instructions. Each instruction copies a match (earlier output, given
//! by distance and length) and then 0 to 3 literals that follow the instruction; longer runs of
//! literals have an instruction of their own. Lengths too large for their bits continue in further
//! bytes: every zero byte adds 255, and the first other byte adds itself and ends the length.
//!
//! | first byte | match bytes | distance bytes | literals behind it |
//! |---|---|---|---|
//! | `0000LLLL` after no literals | none: a run of 4 or more literals | | |
//! | `0000DDSS` after 1..=3 literals | 2 | 1..=1024 | S |
//! | `0000DDSS` after a literal run | 3 | 2049..=3072 | S |
//! | `0001HLLL` | 3 and more | 16384..=49151; 16384 itself ends the stream | S of the distance |
//! | `001LLLLL` | 3 and more | 1..=16384 | S of the distance |
//! | `01LDDDSS`, `1LLDDDSS` | 3..=8 | 1..=2048 | S |
//! | 18..=255 as the stream's first byte | none: 1 and more literals | | |
//!
//! Invariants: [`compress`] always writes the end mark, and its output depends only on its input;
//! [`decompress`] accepts any bytes, never panics, and never writes outside the given slice.
//! Neither allocates. The newer run-length dialect ("lzo-rle") is not supported.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub use decode::decompress;
pub use encode::{Dictionary, compress, max_stored_bytes};

/// The largest distance of a match in a two-byte instruction.
const NEAR_BYTES: usize = 0x0800;
/// The largest distance of a match in a `001LLLLL` instruction.
const MIDDLE_BYTES: usize = 0x4000;
/// The largest distance of a match in a `0001HLLL` instruction, and so in the format.
const FAR_BYTES: usize = 0xbfff;
/// The number added to the distance of the three-byte match after a run of literals.
const AFTER_RUN_BYTES: usize = 0x0800;
/// The instruction that ends a stream: it has the form of a far match of distance 16384.
const END: [u8; 3] = [0x11, 0, 0];
