//! The frame around every small object: label, keys, snapshot.
//!
//! ```text
//!  0  magic "PINSTRIP"              8
//!  8  object kind                   1   see `Object`
//!  9  zero                          1
//! 10  version                       2
//! 12  features                      4   bits a reader must know to go on
//! 16  body length                   4
//! 20  body
//!     BLAKE3-256 of all before     32
//! ```
//! Invariant: a body is handed out only when magic, kind, version, features, length and checksum
//! hold, in this order, so that a newer object is called newer and not damaged.

use super::wire::{Reader, Writer};
use crate::error::{Error, Kind, Result};

const MAGIC: &[u8; 8] = b"PINSTRIP";
const HEAD_BYTES: usize = 20;
const SUM_BYTES: usize = blake3::OUT_LEN;

/// Small objects are read whole; a longer one is not ours.
pub const OBJECT_MAX_BYTES: u64 = 16 << 20;

/// The kinds of small objects, with the newest version of each that this code reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Object {
    /// What store a member belongs to.
    Label = 1,
    /// The store's secrets.
    Keys = 2,
    /// One finished backup.
    Snapshot = 3,
    /// One way to open the store's secrets.
    KeySlot = 4,
    /// A writer at work.
    Session = 5,
    /// A step of deletion.
    Gc = 6,
    /// A snapshot that somebody wants no more.
    Forgotten = 7,
    /// What scrub verified when.
    Scrub = 8,
    /// A key slot that opens nothing any more.
    RemovedSlot = 9,
    /// The first page of an output of `split`.
    SplitHead = 10,
    /// The second: it is complete.
    SplitEnd = 11,
}

impl Object {
    /// The version this code writes, the newest that it reads.
    pub const fn version(self) -> u16 {
        match self {
            Object::Snapshot => 3,
            Object::Label | Object::Keys => 2,
            _ => 1,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Object::Label => "member label",
            Object::Keys => "keys object",
            Object::Snapshot => "snapshot object",
            Object::KeySlot => "key slot",
            Object::Session => "session object",
            Object::Gc => "gc object",
            Object::Forgotten => "mark of a forgotten snapshot",
            Object::Scrub => "scrub state",
            Object::RemovedSlot => "removed key slot",
            Object::SplitHead => "head of an output",
            Object::SplitEnd => "end of an output",
        }
    }
}

/// Frames a body in the newest version.
pub fn close(object: Object, body: &[u8]) -> Vec<u8> {
    close_version(object, object.version(), body)
}

/// Frames a body that is laid out as in an earlier version.
pub fn close_version(object: Object, version: u16, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + body.len() + SUM_BYTES);
    let body_bytes = u32::try_from(body.len()).expect("small objects are far below 4 GiB");
    Writer::new(&mut out)
        .raw(MAGIC)
        .u8(object as u8)
        .u8(0)
        .u16(version)
        .u32(0)
        .u32(body_bytes)
        .raw(body);
    let sum = blake3::hash(&out);
    out.extend_from_slice(sum.as_bytes());
    out
}

/// Whether bytes say that they are an object of this kind, sound or not.
pub fn is_of(object: Object, bytes: &[u8]) -> bool {
    bytes.get(MAGIC.len()) == Some(&(object as u8))
}

/// Takes the body out of its frame, of an object that has had one version only.
///
/// # Errors
/// As [`open_version`].
pub fn open(object: Object, bytes: &[u8]) -> Result<&[u8]> {
    open_version(object, bytes).map(|(_, body)| body)
}

/// Takes version and body out of the frame.
///
/// # Errors
/// [`Kind::Corrupt`] for damage or another kind of object, [`Kind::Unsupported`] for a newer
/// version or an unknown feature.
pub fn open_version(object: Object, bytes: &[u8]) -> Result<(u16, &[u8])> {
    let mut reader = Reader::new(bytes, object.name());
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(reader.corrupt("this is not a pinstripe object"));
    }
    let kind = reader.u8()?;
    if kind != object as u8 || reader.u8()? != 0 {
        return Err(reader.corrupt("another kind of object").expected(object as u8, kind));
    }
    let version = reader.u16()?;
    let features = reader.u32()?;
    let body_bytes = reader.u32()? as usize;
    // The checksum comes before the version is believed: a flipped bit must not read as "newer".
    let framed = HEAD_BYTES.checked_add(body_bytes).filter(|&at| bytes.len() == at + SUM_BYTES);
    let Some(sum_at) = framed else {
        return Err(reader
            .corrupt("wrong length")
            .expected(HEAD_BYTES + body_bytes + SUM_BYTES, bytes.len()));
    };
    if blake3::hash(&bytes[..sum_at])
        != blake3::Hash::from_slice(&bytes[sum_at..]).expect("32 bytes")
    {
        return Err(reader.corrupt("the checksum does not match"));
    }
    if version == 0 || version > object.version() || features != 0 {
        return Err(newer(object.name(), version, object.version(), features));
    }
    Ok((version, &bytes[HEAD_BYTES..sum_at]))
}

/// The refusal of what a newer version wrote.
pub fn newer(what: &str, version: u16, known: u16, features: u32) -> Error {
    let problem = if features == 0 {
        format!("the {what} has version {version}, this program reads up to {known}")
    } else {
        format!("the {what} needs features {features:#x} that this program does not have")
    };
    Error::new(Kind::Unsupported, problem).advice("use a newer pinstripe; nothing was changed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_comes_back_and_any_flip_is_seen() {
        let whole = close(Object::Label, b"the body");
        assert_eq!(open(Object::Label, &whole).unwrap(), b"the body");
        for at in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            assert_eq!(
                open(Object::Label, &damaged).unwrap_err().kind(),
                Kind::Corrupt,
                "bit {at}"
            );
        }
        for len in 0..whole.len() {
            assert_eq!(open(Object::Label, &whole[..len]).unwrap_err().kind(), Kind::Corrupt);
        }
        assert_eq!(open(Object::Keys, &whole).unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn newer_objects_are_called_newer() {
        for (at, value) in [(10, 99), (12, 1)] {
            let mut newer = close(Object::Snapshot, b"x");
            newer[at] = value;
            let sum_at = newer.len() - SUM_BYTES;
            let sum = blake3::hash(&newer[..sum_at]);
            newer[sum_at..].copy_from_slice(sum.as_bytes());
            assert_eq!(open(Object::Snapshot, &newer).unwrap_err().kind(), Kind::Unsupported);
        }
    }
}
