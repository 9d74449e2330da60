//! The protocol between a host and a server, version 1. Bodies are the bytes of objects; lists are
//! binary; only `hello`, properties and errors are JSON.
//!
//! ```text
//! GET    /v1/hello                               the server, and what the token may do
//! GET    /v1/VOLUME/MEMBER/properties            space of a member
//! GET    /v1/VOLUME/MEMBER/list/KIND?after=NAME  a page of names and lengths, ascending
//! HEAD   /v1/VOLUME/MEMBER/extent/KIND/NAME      the length of an extent
//! GET    /v1/VOLUME/MEMBER/extent/KIND/NAME      an extent, or one range of it
//! PUT    /v1/VOLUME/MEMBER/extent/KIND/NAME      a new extent (If-None-Match: *), or a replacement
//! DELETE /v1/VOLUME/MEMBER/extent/KIND/NAME      removes an extent
//! POST   /v1/VOLUME/MEMBER/read                  several ranges or complete extents, in one answer
//! POST   /v1/VOLUME/look                         listings of several members, with small extents
//! POST   /v1/VOLUME/objects                      puts and removes small objects on several members
//! POST   /v1/VOLUME/pack/KIND/NAME               a stripe set; the server lays strips and parity
//! POST   /v1/VOLUME/fetch                        parts of stripe sets, rebuilt from parity
//! POST   /v1/VOLUME/MEMBER/sync                  makes deletions durable
//! POST   /v1/VOLUME/MEMBER/sweep                 removes unsealed data of writers that have died
//! ```
//!
//! The label has the path `extent/label`. Numbers in lists are little-endian.

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_base::wire::{Reader, Writer};
use pinstripe_member::{ExtentKind, ExtentName};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// The newest version of the protocol that this code speaks.
pub const PROTOCOL: u32 = 1;
/// The header with the XXH3-128 of a body, as 32 hex digits.
pub const SUM_HEADER: &str = "pinstripe-sum";
/// The header that says that the last page of a listing was reached.
pub const LAST_HEADER: &str = "pinstripe-last";
/// The most names in a page of a listing.
pub const PAGE_NAMES: usize = 16 << 10;
/// The most ranges in one request for several.
pub const RANGES_MAX: usize = 4096;
/// The most bytes that one request for several ranges may return.
pub const RANGES_MAX_BYTES: u64 = 64 << 20;
/// The longest extent that a server accepts.
pub const EXTENT_MAX_BYTES: u64 = 1 << 30;
/// The most bytes of an answer that is not an extent.
pub(crate) const ANSWER_MAX_BYTES: usize = 1 << 20;

/// The checksum that goes with a body.
#[must_use]
pub fn sum_of(bytes: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(bytes))
}

/// The answer to `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The newest protocol that the server speaks.
    pub protocol: u32,
    /// The server's version, for people.
    pub version: String,
    /// The SHA-256 of the server's public key in hex, and that of the key that it will use next.
    pub pins: Vec<String>,
    /// The host that the token was made for.
    pub host: String,
    /// What the token may do.
    pub role: String,
    /// The volumes that the token may use.
    pub volumes: Vec<VolumeFacts>,
    /// The server's clock, in seconds since 1970.
    pub now_seconds: i64,
    /// Whether the token sees the snapshots of all hosts.
    #[serde(default)]
    pub all_hosts: bool,
}

/// A store, or an exported directory that can become a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeFacts {
    /// The volume's id in hex: that of the store, if it is one.
    pub id: String,
    /// The numbers of the members that the server has.
    pub members: Vec<u16>,
    /// Whether the volume is a store all of whose members this server has.
    pub is_store: bool,
}

/// The space of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberProperties {
    /// Free bytes, if known.
    pub free_bytes: Option<u64>,
    /// Whether the member has little more space than its reserve.
    pub is_full: bool,
    /// Whether the token may not delete what others rely on.
    pub is_append_only: bool,
}

/// An error as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentError {
    /// The name of the error's kind.
    pub kind: String,
    /// What failed.
    pub what: String,
    /// The expected value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// The actual value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// What the user can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl SentError {
    /// The facts of an error, without its place: paths of the server are not sent.
    pub fn from_error(error: &Error) -> Self {
        let (expected, found) = error.expected_found().unzip();
        SentError {
            kind: error.kind().name().to_owned(),
            what: error.what().to_owned(),
            expected: expected.map(str::to_owned),
            found: found.map(str::to_owned),
            advice: error.advice_text().map(str::to_owned),
        }
    }

    /// The error that was sent.
    pub fn into_error(self) -> Error {
        let error = Error::new(Kind::from_name(&self.kind).unwrap_or(Kind::Io), self.what);
        let error = match (self.expected, self.found) {
            (Some(expected), Some(found)) => error.expected(expected, found),
            _ => error,
        };
        match self.advice {
            Some(advice) => error.advice(advice),
            None => error,
        }
    }
}

/// The part of a path that names a kind.
#[must_use]
pub fn kind_from(text: &str) -> Option<ExtentKind> {
    ExtentKind::ALL.into_iter().find(|kind| kind.dir() == text)
}

/// The path of an extent below its member.
pub(crate) fn extent_path(name: ExtentName) -> String {
    match name {
        ExtentName::Label => "extent/label".to_owned(),
        ExtentName::In(kind, id) => format!("extent/{}/{}", kind.dir(), SetId(id)),
    }
}

/// One range of an extent that a request for several asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedRange {
    /// The extent.
    pub name: ExtentName,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes; with `is_whole`, the most that the complete extent may have.
    pub bytes: u64,
    /// Whether the complete extent is wanted.
    pub is_whole: bool,
}

const LABEL_BYTE: u8 = 0xff;

/// Encodes a request for several ranges.
pub(crate) fn encode_ranges(ranges: &[WantedRange]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.varint(ranges.len() as u64);
    for WantedRange { name, offset, bytes, is_whole } in ranges {
        write_name(&mut writer, *name);
        writer.u64(*offset).u64(*bytes).u8(u8::from(*is_whole));
    }
    out
}

pub(crate) fn kind_number(kind: ExtentKind) -> u8 {
    // The order of `ALL` is part of the protocol.
    ExtentKind::ALL.iter().position(|it| *it == kind).map_or(LABEL_BYTE, |at| at as u8)
}

/// Decodes a request for several ranges.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for bytes that are no such request, or that ask for too much.
pub fn decode_ranges(bytes: &[u8]) -> Result<Vec<WantedRange>> {
    let mut reader = Reader::new(bytes, "request for ranges");
    let count = reader.count(34)?;
    if count > RANGES_MAX {
        return Err(reader.corrupt("the request asks for too many ranges"));
    }
    let mut ranges = Vec::with_capacity(count);
    for _ in 0..count {
        let (kind, id) = (reader.u8()?, reader.array()?);
        let name = match kind {
            LABEL_BYTE => ExtentName::Label,
            kind => match ExtentKind::ALL.get(usize::from(kind)) {
                Some(kind) => ExtentName::In(*kind, id),
                None => return Err(reader.corrupt("the request names an unknown kind")),
            },
        };
        let (offset, bytes) = (reader.u64()?, reader.u64()?);
        let is_whole = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(reader.corrupt("a flag of the request is invalid")),
        };
        ranges.push(WantedRange { name, offset, bytes, is_whole });
    }
    reader.finish()?;
    Ok(ranges)
}

pub(crate) fn write_name(writer: &mut Writer<'_>, name: ExtentName) {
    let (kind, id) = match name {
        ExtentName::Label => (LABEL_BYTE, [0; 16]),
        ExtentName::In(kind, id) => (kind_number(kind), id),
    };
    writer.u8(kind).raw(&id);
}

pub(crate) fn read_kind(reader: &mut Reader<'_>) -> Result<ExtentKind> {
    let number = usize::from(reader.u8()?);
    let kind = ExtentKind::ALL.get(number).copied();
    kind.ok_or_else(|| reader.corrupt("the message names an unknown kind"))
}

/// Encodes a page of a listing.
#[must_use]
pub fn encode_page(page: &[([u8; 16], u64)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.len() * 24);
    let mut writer = Writer::new(&mut out);
    for (id, bytes) in page {
        writer.raw(id).u64(*bytes);
    }
    out
}

/// Decodes a page of a listing whose names come after `after`.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for names that are not ascending, because an endless listing would
/// look like that.
pub fn decode_page(bytes: &[u8], after: Option<[u8; 16]>) -> Result<Vec<([u8; 16], u64)>> {
    let mut reader = Reader::new(bytes, "page of a listing");
    let mut page = Vec::with_capacity(bytes.len() / 24);
    let mut last = after;
    while !reader.is_empty() {
        let id: [u8; 16] = reader.array()?;
        if last.is_some_and(|last| last >= id) {
            return Err(reader.corrupt("the names of a listing are not ascending"));
        }
        last = Some(id);
        page.push((id, reader.u64()?));
    }
    Ok(page)
}

/// Appends one result to the answer to a request for several ranges: the bytes, or an error.
pub fn encode_result(out: &mut Vec<u8>, result: &Result<Vec<u8>>) {
    let mut writer = Writer::new(out);
    match result {
        Ok(bytes) => writer.u8(0).u64(bytes.len() as u64).raw(bytes),
        Err(error) => {
            let text = serde_json::to_vec(&SentError::from_error(error)).unwrap_or_default();
            writer.u8(1).u64(text.len() as u64).raw(&text)
        }
    };
}

/// Decodes the answer to a request for several ranges: the results of the first ones, at least one.
/// The client asks again for the others.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for bytes that do not answer this request.
pub fn decode_results(bytes: &[u8], wanted: &[WantedRange]) -> Result<Vec<Result<Vec<u8>>>> {
    let mut reader = Reader::new(bytes, "answer to a request for ranges");
    let mut results = Vec::with_capacity(wanted.len());
    for it in wanted {
        if reader.is_empty() && !results.is_empty() {
            break;
        }
        let (flag, length) = (reader.u8()?, reader.u64()?);
        let length = usize::try_from(length).ok().filter(|length| *length <= reader.remaining());
        let Some(length) = length else { return Err(reader.corrupt("the answer is cut")) };
        let body = reader.take(length)?;
        let fits = if it.is_whole { length as u64 <= it.bytes } else { length as u64 == it.bytes };
        results.push(match flag {
            0 if fits => Ok(body.to_vec()),
            1 => Err(error_from(body)),
            _ => return Err(reader.corrupt("a part of the answer has another length than asked")),
        });
    }
    reader.finish()?;
    Ok(results)
}

/// The error that the body of an answer describes.
pub(crate) fn error_from(body: &[u8]) -> Error {
    match serde_json::from_slice::<SentError>(body) {
        Ok(sent) => sent.into_error(),
        Err(_) => Error::new(Kind::Io, "the server answered with an error that has no description"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Vec<WantedRange> {
        let id = |byte| [byte; 16];
        vec![
            WantedRange { name: ExtentName::Label, offset: 0, bytes: 10, is_whole: true },
            WantedRange {
                name: ExtentName::In(ExtentKind::Packs, id(7)),
                offset: 4096,
                bytes: 3,
                is_whole: false,
            },
        ]
    }

    #[test]
    fn requests_and_answers_are_read_as_they_were_written() {
        assert_eq!(decode_ranges(&encode_ranges(&wanted())).unwrap(), wanted());
        let mut answer = Vec::new();
        let lost = Error::new(Kind::NotFound, "gone").advice("look elsewhere");
        encode_result(&mut answer, &Err(lost));
        encode_result(&mut answer, &Ok(b"abc".to_vec()));
        let results = decode_results(&answer, &wanted()).unwrap();
        let error = results[0].as_ref().unwrap_err();
        assert_eq!((error.kind(), error.what()), (Kind::NotFound, "gone"));
        assert_eq!(results[1].as_ref().unwrap(), b"abc");
        let first = answer.len() - 12;
        for cut in (0..answer.len()).filter(|cut| *cut != first) {
            assert!(decode_results(&answer[..cut], &wanted()).is_err(), "{cut}");
        }
        assert_eq!(decode_results(&answer[..first], &wanted()).unwrap().len(), 1);
    }

    #[test]
    fn an_answer_of_another_length_is_refused() {
        let mut answer = Vec::new();
        encode_result(&mut answer, &Ok(vec![0; 11]));
        encode_result(&mut answer, &Ok(b"abc".to_vec()));
        assert_eq!(decode_results(&answer, &wanted()).unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn a_page_ascends_from_where_it_was_asked() {
        let page = vec![([1; 16], 5), ([2; 16], 0)];
        let bytes = encode_page(&page);
        assert_eq!(decode_page(&bytes, None).unwrap(), page);
        assert_eq!(decode_page(&bytes, Some([1; 16])).unwrap_err().kind(), Kind::Corrupt);
        let twice = encode_page(&[page[0], page[0]]);
        assert_eq!(decode_page(&twice, None).unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn requests_that_ask_for_too_much_are_refused() {
        let many = vec![wanted()[1]; RANGES_MAX + 1];
        assert_eq!(decode_ranges(&encode_ranges(&many)).unwrap_err().kind(), Kind::Corrupt);
        let mut odd = encode_ranges(&wanted()[1..]);
        odd[1] = ExtentKind::ALL.len() as u8;
        assert_eq!(decode_ranges(&odd).unwrap_err().kind(), Kind::Corrupt);
    }
}
