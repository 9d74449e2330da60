//! A record of the ledger.
//!
//! ```text
//! kind 1 (position in ExtentKind::ALL), name 16, commit 16, bytes 8, seconds 8, host length 1, host
//! BLAKE3 of all before, its first 4 bytes
//! ```
//!
//! `commit` is the object that a session will put at its end; zeros for other kinds. `seconds` is
//! the time since 1970 at which the server accepted the object.

use pinstripe_base::wire::{Reader, Writer};
use pinstripe_member::{ExtentKind, ExtentName};

const HEAD_BYTES: usize = 1 + 16 + 16 + 8 + 8 + 1;
const SUM_BYTES: usize = 4;

/// The owner of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    pub host: String,
    pub commit: [u8; 16],
    pub bytes: u64,
    pub seconds: i64,
}

/// Returns the record of an object.
pub(super) fn encode(name: ExtentName, owned: &Owned) -> Vec<u8> {
    let ExtentName::In(kind, id) = name else { unreachable!("a label has no owner") };
    let kind = ExtentKind::ALL.iter().position(|it| *it == kind).expect("every kind is in ALL");
    let host = &owned.host.as_bytes()[..owned.host.len().min(255)];
    let mut bytes = Vec::with_capacity(HEAD_BYTES + host.len() + SUM_BYTES);
    let mut writer = Writer::new(&mut bytes);
    writer.u8(kind as u8).raw(&id).raw(&owned.commit).u64(owned.bytes).i64(owned.seconds);
    writer.u8(host.len() as u8).raw(host);
    let sum = blake3::hash(&bytes);
    bytes.extend_from_slice(&sum.as_bytes()[..SUM_BYTES]);
    bytes
}

/// The first record of these bytes, with its length; `None` if they begin with no complete one.
pub(super) fn decode(bytes: &[u8]) -> Option<(ExtentName, Owned, usize)> {
    let host_bytes = usize::from(*bytes.get(HEAD_BYTES - 1)?);
    let length = HEAD_BYTES + host_bytes;
    let (body, sum) = (bytes.get(..length)?, bytes.get(length..length + SUM_BYTES)?);
    if blake3::hash(body).as_bytes()[..SUM_BYTES] != *sum {
        return None;
    }
    let mut reader = Reader::new(body, "ledger");
    let kind = *ExtentKind::ALL.get(usize::from(reader.u8().ok()?))?;
    let name = ExtentName::In(kind, reader.array().ok()?);
    let (commit, bytes) = (reader.array().ok()?, reader.u64().ok()?);
    let seconds = reader.i64().ok()?;
    reader.u8().ok()?;
    let host = String::from_utf8(reader.rest().to_vec()).ok()?;
    Some((name, Owned { host, commit, bytes, seconds }, length + SUM_BYTES))
}
