//! Replies to requests: simple replies, and the chunks of structured ones.

use pinstripe_base::error::{Error, Kind};

use super::error;

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
const FLAG_DONE: u16 = 1;
/// The id of `base:allocation` in replies.
pub(super) const ALLOCATION_ID: u32 = 1;
const STATE_HOLE: u32 = 1;
const STATE_ZERO: u32 = 2;
/// The longest text with an error, in bytes.
const MESSAGE_BYTES_MAX: usize = 512;

mod chunk {
    pub const NONE: u16 = 0;
    pub const DATA: u16 = 1;
    pub(crate) const HOLE: u16 = 2;
    pub(crate) const STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = (1 << 15) + 1;
    pub(crate) const ERROR_OFFSET: u16 = (1 << 15) + 2;
}

/// A run of an export: either a hole, which reads as zeros, or data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The length of the run; never 0.
    pub bytes: u32,
    /// Whether the run is a hole.
    pub is_hole: bool,
}

/// The form of replies that client and server agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A reply is one head, followed by the data.
    Simple,
    /// A reply is one or more chunks; the last one is marked as such.
    Structured,
}

impl Form {
    /// Bytes of a reply before the data of a read.
    pub(crate) const fn data_head_bytes(self) -> usize {
        match self {
            Form::Simple => 16,
            Form::Structured => 28,
        }
    }

    /// Adds the head before `len` bytes that were read at `offset`. In the simple form, a reply
    /// cannot be divided, so `len` must be all bytes of the read.
    pub fn data(self, out: &mut Vec<u8>, cookie: u64, offset: u64, len: u32, is_last: bool) {
        match self {
            Form::Simple => simple(out, cookie, 0),
            Form::Structured => {
                chunk(out, cookie, chunk::DATA, is_last, len + 8);
                out.extend_from_slice(&offset.to_be_bytes());
            }
        }
    }

    /// Adds the reply to a request that was carried out.
    pub fn done(self, out: &mut Vec<u8>, cookie: u64) {
        match self {
            Form::Simple => simple(out, cookie, 0),
            Form::Structured => chunk(out, cookie, chunk::NONE, true, 0),
        }
    }

    /// Adds the reply to a request that failed; if the form allows it, with a text for people, and
    /// the offset where a read failed, if that is known.
    pub fn error(self, out: &mut Vec<u8>, cookie: u64, number: u32, text: &str, at: Option<u64>) {
        if self == Form::Simple {
            return simple(out, cookie, number);
        }
        let text = beginning(text, MESSAGE_BYTES_MAX).as_bytes();
        let (kind, place_bytes) = match at {
            Some(_) => (chunk::ERROR_OFFSET, 8),
            None => (chunk::ERROR, 0),
        };
        chunk(out, cookie, kind, true, 6 + text.len() as u32 + place_bytes);
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&(text.len() as u16).to_be_bytes());
        out.extend_from_slice(text);
        if let Some(at) = at {
            out.extend_from_slice(&at.to_be_bytes());
        }
    }
}

/// Adds a part of a structured read that consists of zeros.
pub fn hole(out: &mut Vec<u8>, cookie: u64, offset: u64, len: u32, is_last: bool) {
    chunk(out, cookie, chunk::HOLE, is_last, 12);
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
}

/// Adds the answer to a request for block status; there must be at least one extent.
pub fn status(out: &mut Vec<u8>, cookie: u64, extents: &[Extent]) {
    chunk(out, cookie, chunk::STATUS, true, 4 + 8 * extents.len() as u32);
    out.extend_from_slice(&ALLOCATION_ID.to_be_bytes());
    for extent in extents {
        let state = if extent.is_hole { STATE_HOLE | STATE_ZERO } else { 0 };
        out.extend_from_slice(&extent.bytes.to_be_bytes());
        out.extend_from_slice(&state.to_be_bytes());
    }
}

fn simple(out: &mut Vec<u8>, cookie: u64, number: u32) {
    out.extend_from_slice(&SIMPLE_MAGIC.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
}

fn chunk(out: &mut Vec<u8>, cookie: u64, kind: u16, is_last: bool, len: u32) {
    let flags = if is_last { FLAG_DONE } else { 0 };
    out.extend_from_slice(&CHUNK_MAGIC.to_be_bytes());
    out.extend_from_slice(&flags.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
}

/// As much of a text as fits into `most` bytes, in complete characters.
fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// The protocol's number for an error of a device.
pub fn number_of(failure: &Error) -> u32 {
    match failure.kind() {
        Kind::NoSpace => error::ENOSPC,
        Kind::Unsupported => error::ENOTSUP,
        Kind::Interrupted => error::ESHUTDOWN,
        _ => error::EIO,
    }
}
