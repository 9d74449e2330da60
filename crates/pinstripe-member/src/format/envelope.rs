//! The frame around every small object, such as a label, a key ring or a snapshot.
//!
//! ```text
//!  0  magic "PINSTRIP"              8
//!  8  object kind                   1   see `Object`
//!  9  zero                          1
//! 10  version                       2
//! 12  features                      4   bits a reader must know to go on
//! 16  body length                   4
//! 20  body
//!     generation of the keys        4   only with the feature `VOUCHED`
//!     MAC                          32   only with the feature `VOUCHED`
//!     BLAKE3-256 of all before     32
//! ```
//!
//! The checksum shows damage; the MAC, which `seal::Voucher` makes and verifies, proves that a
//! holder of the store's keys wrote the object. This module only frames an object.
//!
//! Invariant: the body of an object is returned only when magic, kind, version, features, length
//! and checksum are right; they are checked in this order, so that an object of a newer version is
//! reported as newer and not as damaged.

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::wire::{Reader, Writer};

const MAGIC: &[u8; 8] = b"PINSTRIP";
const HEAD_BYTES: usize = 20;
const SUM_BYTES: usize = blake3::OUT_LEN;
/// The feature bit of an object that carries a MAC after its body.
const VOUCHED: u32 = 1;
const FEATURES_AT: usize = 12;
/// Generation and MAC.
const VOUCHER_BYTES: usize = 4 + MAC_BYTES;

/// Length of a MAC.
pub(crate) const MAC_BYTES: usize = blake3::OUT_LEN;

/// The largest length of a small object, which is read in one piece; a longer object is foreign.
pub const OBJECT_MAX_BYTES: u64 = 16 << 20;

/// The kinds of small objects, with the newest version of each that this code reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Object {
    /// The label: it says which store a member belongs to.
    Label = 1,
    /// The store's secrets.
    Keys = 2,
    /// One finished backup.
    Snapshot = 3,
    /// A key slot: one way to open the store's secrets.
    KeySlot = 4,
    /// A running writer.
    Session = 5,
    /// A step of deletion.
    Gc = 6,
    /// A mark: it says whether a snapshot is wanted.
    Forgotten = 7,
    /// The state of scrubbing.
    Scrub = 8,
    /// Says that a key slot was removed and opens nothing any more.
    RemovedSlot = 9,
    /// The first page of an output of `split`.
    SplitHead = 10,
    /// The second page of an output of `split`: it says that the output is complete.
    SplitEnd = 11,
    /// The progress of a backup that has not ended.
    Checkpoint = 12,
    /// A sign of life of a running writer.
    Heartbeat = 13,
}

impl Object {
    /// The version that this code writes, which is also the newest that it reads.
    pub const fn version(self) -> u16 {
        match self {
            Object::Label => 4,
            Object::Snapshot => 5,
            Object::Keys => 3,
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
            Object::Forgotten => "mark (of a forgotten snapshot)",
            Object::Scrub => "scrub state",
            Object::RemovedSlot => "removed key slot",
            Object::SplitHead => "head of an output of 'pinstripe split'",
            Object::SplitEnd => "end of an output of 'pinstripe split'",
            Object::Checkpoint => "checkpoint object",
            Object::Heartbeat => "heartbeat",
        }
    }
}

/// Frames a body in the newest version.
pub fn close(object: Object, body: &[u8]) -> Vec<u8> {
    close_version(object, object.version(), body)
}

/// Frames a body that has the layout of an earlier version.
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

/// A framed object with the MAC that it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vouched<'a> {
    /// The bytes that the MAC covers: head, body and generation.
    pub said: &'a [u8],
    /// The generation of the store's keys with which the MAC was made.
    pub generation: u32,
    /// The MAC.
    pub mac: [u8; MAC_BYTES],
}

/// Adds a MAC to a framed object: `mac` computes it over head, body and generation. A MAC that the
/// object carries already is replaced.
///
/// # Panics
/// Panics for bytes that no `close` function of this module made.
pub fn vouch(framed: &[u8], generation: u32, mac: impl Fn(&[u8]) -> [u8; MAC_BYTES]) -> Vec<u8> {
    let body_bytes = u32::from_le_bytes(framed[16..20].try_into().expect("four bytes"));
    let mut out = framed[..HEAD_BYTES + body_bytes as usize].to_vec();
    out[FEATURES_AT..FEATURES_AT + 4].copy_from_slice(&VOUCHED.to_le_bytes());
    out.extend_from_slice(&generation.to_le_bytes());
    let mac = mac(&out);
    out.extend_from_slice(&mac);
    let sum = blake3::hash(&out);
    out.extend_from_slice(sum.as_bytes());
    out
}

/// Returns the object without its MAC, as [`close`] framed it.
///
/// # Panics
/// Like [`vouch`].
pub fn without_voucher(framed: &[u8]) -> Vec<u8> {
    let body_bytes = u32::from_le_bytes(framed[16..20].try_into().expect("four bytes"));
    let mut out = framed[..HEAD_BYTES + body_bytes as usize].to_vec();
    out[FEATURES_AT..FEATURES_AT + 4].fill(0);
    let sum = blake3::hash(&out);
    out.extend_from_slice(sum.as_bytes());
    out
}

/// Returns the MAC of an object that was opened, or `None` when the object carries none.
pub fn vouched(framed: &[u8]) -> Option<Vouched<'_>> {
    let features = u32::from_le_bytes(framed.get(FEATURES_AT..16)?.try_into().ok()?);
    if features & VOUCHED == 0 {
        return None;
    }
    let mac_at = framed.len().checked_sub(SUM_BYTES + MAC_BYTES)?;
    let said = framed.get(..mac_at)?;
    let generation = u32::from_le_bytes(said.last_chunk().copied()?);
    let mac = framed.get(mac_at..mac_at + MAC_BYTES)?.try_into().ok()?;
    Some(Vouched { said, generation, mac })
}

/// Whether the magic and kind of `bytes` are those of an object of this kind, damaged or not.
pub fn is_of(object: Object, bytes: &[u8]) -> bool {
    bytes.get(MAGIC.len()) == Some(&(object as u8))
}

/// Takes the body out of the frame of an object whose kind has had only one version.
///
/// # Errors
/// Fails with the errors of [`open_version`].
pub fn open(object: Object, bytes: &[u8]) -> Result<&[u8]> {
    open_version(object, bytes).map(|(_, body)| body)
}

/// Verifies that the frame of an object of any kind and version is intact.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] when the frame is damaged.
pub fn open_any(bytes: &[u8]) -> Result<()> {
    let body = Reader::new(bytes, "small object");
    let head: [u8; HEAD_BYTES] =
        bytes.first_chunk().copied().ok_or_else(|| body.corrupt("the bytes end too early"))?;
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let voucher_bytes = if number(FEATURES_AT) & VOUCHED == 0 { 0 } else { VOUCHER_BYTES };
    let sum_at = HEAD_BYTES + number(16) as usize + voucher_bytes;
    let is_sound = bytes.len() == sum_at + SUM_BYTES
        && head.starts_with(MAGIC)
        && blake3::hash(&bytes[..sum_at]).as_bytes() == &bytes[sum_at..];
    if is_sound { Ok(()) } else { Err(body.corrupt("this small object is damaged")) }
}

/// Takes version and body out of the frame.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for damage or another kind of object, and with
/// [`Kind::Unsupported`] for a newer version or an unknown feature.
pub(crate) fn open_version(object: Object, bytes: &[u8]) -> Result<(u16, &[u8])> {
    let mut reader = Reader::new(bytes, object.name());
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(reader.corrupt("this is not an object of pinstripe"));
    }
    let kind = reader.u8()?;
    if kind != object as u8 || reader.u8()? != 0 {
        return Err(reader
            .corrupt("this object has another kind than expected")
            .expected(object as u8, kind));
    }
    let version = reader.u16()?;
    let features = reader.u32()?;
    let body_bytes = reader.u32()? as usize;
    let body_end = HEAD_BYTES + body_bytes;
    let sum_at = match features {
        0 => body_end,
        VOUCHED => body_end + VOUCHER_BYTES,
        // A feature of a newer version may put anything behind the body; the sum stays last.
        _ => bytes.len().saturating_sub(SUM_BYTES).max(body_end),
    };
    // The checksum is verified before the version is used: a flipped bit must not read as "newer".
    if bytes.len() != sum_at + SUM_BYTES {
        return Err(reader.corrupt("wrong length").expected(sum_at + SUM_BYTES, bytes.len()));
    }
    if blake3::hash(&bytes[..sum_at])
        != blake3::Hash::from_slice(&bytes[sum_at..]).expect("32 bytes")
    {
        return Err(reader.corrupt("the checksum does not match"));
    }
    if version == 0 || version > object.version() || features & !VOUCHED != 0 {
        return Err(newer(object.name(), version, object.version(), features & !VOUCHED));
    }
    Ok((version, &bytes[HEAD_BYTES..body_end]))
}

/// Returns the error for an object that a newer version wrote.
pub fn newer(what: &str, version: u16, known: u16, features: u32) -> Error {
    let problem = if features == 0 {
        format!(
            "the {what} has version {version}, but this program can read only versions up to \
             {known}"
        )
    } else {
        format!("the {what} needs features that this program does not have ({features:#x})")
    };
    Error::new(Kind::Unsupported, problem)
        .advice("use a newer version of pinstripe; nothing was changed")
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
    fn a_mac_is_over_head_body_and_generation_and_comes_off_again() {
        let plain = close(Object::Gc, b"the body");
        let mac = |said: &[u8]| *blake3::keyed_hash(&[7; 32], said).as_bytes();
        let whole = vouch(&plain, 9, mac);
        assert_eq!(open(Object::Gc, &whole).unwrap(), b"the body");
        let vouched = super::vouched(&whole).unwrap();
        assert_eq!((vouched.generation, vouched.mac), (9, mac(vouched.said)));
        assert_eq!(&vouched.said[HEAD_BYTES..], [b"the body".as_slice(), &[9, 0, 0, 0]].concat());
        assert_eq!(without_voucher(&whole), plain);
        assert_eq!(vouch(&whole, 9, mac), whole, "a MAC takes the place of the one before");
        assert_eq!(super::vouched(&plain), None);
        for at in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            assert_eq!(open(Object::Gc, &damaged).unwrap_err().kind(), Kind::Corrupt, "bit {at}");
        }
    }

    #[test]
    fn newer_objects_are_called_newer() {
        for (at, value) in [(10, 99), (12, 2)] {
            let mut newer = close(Object::Snapshot, b"x");
            newer[at] = value;
            let sum_at = newer.len() - SUM_BYTES;
            let sum = blake3::hash(&newer[..sum_at]);
            newer[sum_at..].copy_from_slice(sum.as_bytes());
            assert_eq!(open(Object::Snapshot, &newer).unwrap_err().kind(), Kind::Unsupported);
        }
    }
}
