//! The request for a look, and its answer: listings of several members, with the bytes that a verb
//! reads next.

use pinstripe_base::error::Result;
use pinstripe_base::wire::{Reader, Writer};
use pinstripe_member::{ExtentKind, ExtentName};

use crate::protocol::{MemberProperties, kind_number, read_kind, write_name};

/// The most names of a kind in the answer to a look; longer listings are requested page by page.
pub const LOOK_NAMES: usize = 4096;
/// The most extents of a kind whose bytes the answer to a look has, for each member.
pub const LOOK_EXTENTS: usize = 64;
/// The longest extent whose bytes the answer to a look has.
pub const LOOK_EXTENT_BYTES: u64 = 64 << 10;
/// The most extents of a kind whose ends the answer to a look has, for each member.
pub const LOOK_ENDS: usize = 16;
/// The length of an end in the answer to a look: readers of an extent read this much first.
pub const LOOK_END_BYTES: u64 = 16 << 10;
/// The length of the head of an extent that is being opened: its header.
pub const LOOK_HEAD_BYTES: u64 = 4 << 10;
/// The most extents that are opened by one look.
const OPENED_MAX: usize = 16;
/// The most bytes of an answer to a look.
pub const LOOK_MAX_BYTES: usize = 32 << 20;

/// A request for listings of several members, with the bytes of the small extents in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookRequest {
    /// The members.
    pub members: Vec<u16>,
    /// The kinds to list.
    pub kinds: Vec<WantedKind>,
    /// Whether the labels are wanted too.
    pub labels: bool,
    /// Extents of stripe sets that are being opened.
    pub opened: Vec<ExtentName>,
}

/// The parts of an extent that a reader needs to open it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedExtent {
    /// The extent.
    pub name: ExtentName,
    /// Its length.
    pub length: u64,
    /// Its first [`LOOK_HEAD_BYTES`] bytes.
    pub head: Vec<u8>,
    /// Its last [`LOOK_END_BYTES`] bytes.
    pub end: Vec<u8>,
}

/// A kind that a look lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedKind {
    /// The kind.
    pub kind: ExtentKind,
    /// Whether the kind is listed a second time, when the first listing is complete.
    pub again: bool,
    /// Whether the answer has the bytes of small extents, and the ends of long index runs.
    pub content: bool,
}

impl WantedKind {
    /// One listing with content.
    #[must_use]
    pub fn new(kind: ExtentKind) -> Self {
        WantedKind { kind, again: false, content: true }
    }
}

/// The answer to a look for one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KindLook {
    /// All extents with their lengths, in name order.
    pub names: Vec<([u8; 16], u64)>,
    /// The bytes of small extents.
    pub extents: Vec<([u8; 16], Vec<u8>)>,
    /// The last [`LOOK_END_BYTES`] bytes of longer extents of stripe sets.
    pub ends: Vec<([u8; 16], Vec<u8>)>,
    /// The second listing, if it was wanted.
    pub again: Option<Vec<([u8; 16], u64)>>,
}

/// The answer to a look for one member. A kind that was not listed, or could not be, is omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberLook {
    /// The number of the member.
    pub member: u16,
    /// The label.
    pub label: Option<Vec<u8>>,
    /// The space of the member, if labels were asked for.
    pub properties: Option<MemberProperties>,
    /// By kind.
    pub kinds: Vec<(ExtentKind, KindLook)>,
    /// The extents that are being opened, as far as they can be read.
    pub opened: Vec<OpenedExtent>,
}

impl LookRequest {
    /// Encodes the request.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.u8(u8::from(self.labels)).varint(self.members.len() as u64);
        for member in &self.members {
            writer.u16(*member);
        }
        writer.varint(self.kinds.len() as u64);
        for WantedKind { kind, again, content } in &self.kinds {
            writer.u8(kind_number(*kind)).u8(u8::from(*again) | u8::from(*content) << 1);
        }
        writer.varint(self.opened.len() as u64);
        for name in &self.opened {
            write_name(&mut writer, *name);
        }
        out
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for bytes that are not a request for a look.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "request for a look");
        let labels = reader.u8()? == 1;
        let count = reader.count(2)?;
        let members = (0..count).map(|_| reader.u16()).collect::<Result<_>>()?;
        let mut kinds: Vec<WantedKind> = Vec::new();
        for _ in 0..reader.count(2)? {
            let (kind, flags) = (read_kind(&mut reader)?, reader.u8()?);
            if flags > 3 || kinds.iter().any(|it| it.kind == kind) {
                return Err(reader.corrupt("a kind has an unknown flag, or is named twice"));
            }
            kinds.push(WantedKind { kind, again: flags & 1 > 0, content: flags & 2 > 0 });
        }
        let count = reader.count(17)?;
        if count > OPENED_MAX {
            return Err(reader.corrupt("the request opens too many extents"));
        }
        let opened = (0..count).map(|_| read_set_name(&mut reader)).collect::<Result<_>>()?;
        reader.finish()?;
        Ok(LookRequest { members, kinds, labels, opened })
    }
}

/// The name of an extent of a stripe set.
fn read_set_name(reader: &mut Reader<'_>) -> Result<ExtentName> {
    let name = ExtentName::In(read_kind(reader)?, reader.array()?);
    let other = || reader.corrupt("the message names no extent of a stripe set");
    name.is_of_set().then_some(name).ok_or_else(other)
}

impl MemberLook {
    /// Appends the answer for this member.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u16(self.member).u8(u8::from(self.label.is_some()));
        writer.bytes(self.label.as_deref().unwrap_or_default());
        let properties = self.properties.and_then(|it| serde_json::to_vec(&it).ok());
        writer.bytes(&properties.unwrap_or_default()).varint(self.kinds.len() as u64);
        for (kind, KindLook { names, extents, ends, again }) in &self.kinds {
            writer.u8(kind_number(*kind));
            write_listing(&mut writer, names);
            for part in [extents, ends] {
                writer.varint(part.len() as u64);
                for (id, bytes) in part {
                    writer.raw(id).bytes(bytes);
                }
            }
            writer.u8(u8::from(again.is_some()));
            if let Some(again) = again {
                write_listing(&mut writer, again);
            }
        }
        writer.varint(self.opened.len() as u64);
        for OpenedExtent { name, length, head, end } in &self.opened {
            write_name(&mut writer, *name);
            writer.u64(*length).bytes(head).bytes(end);
        }
    }

    /// Decodes the answers of all members.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for bytes that are not such an answer.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>> {
        let mut reader = Reader::new(bytes, "answer to a look");
        let mut looks = Vec::new();
        while !reader.is_empty() {
            looks.push(Self::decode(&mut reader)?);
        }
        Ok(looks)
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let (member, has_label) = (reader.u16()?, reader.u8()? == 1);
        let label = reader.bytes()?.to_vec();
        let label = has_label.then_some(label);
        let properties = serde_json::from_slice(reader.bytes()?).ok();
        let mut kinds = Vec::new();
        for _ in 0..reader.count(3)? {
            let kind = read_kind(reader)?;
            let mut look = KindLook { names: read_listing(reader)?, ..KindLook::default() };
            for part in [&mut look.extents, &mut look.ends] {
                for _ in 0..reader.count(17)? {
                    part.push((reader.array()?, reader.bytes()?.to_vec()));
                }
            }
            look.again = (reader.u8()? == 1).then(|| read_listing(reader)).transpose()?;
            kinds.push((kind, look));
        }
        let mut opened = Vec::new();
        for _ in 0..reader.count(27)? {
            let (name, length) = (read_set_name(reader)?, reader.u64()?);
            let (head, end) = (reader.bytes()?.to_vec(), reader.bytes()?.to_vec());
            if end.len() as u64 != length.min(LOOK_END_BYTES) {
                return Err(reader.corrupt("the end of an extent has another length than asked"));
            }
            opened.push(OpenedExtent { name, length, head, end });
        }
        Ok(MemberLook { member, label, properties, kinds, opened })
    }
}

fn write_listing(writer: &mut Writer<'_>, names: &[([u8; 16], u64)]) {
    writer.varint(names.len() as u64);
    for (id, bytes) in names {
        writer.raw(id).u64(*bytes);
    }
}

fn read_listing(reader: &mut Reader<'_>) -> Result<Vec<([u8; 16], u64)>> {
    let mut names = Vec::new();
    for _ in 0..reader.count(24)? {
        names.push((reader.array()?, reader.u64()?));
    }
    match names.is_sorted_by(|a, b| a.0 < b.0) {
        true => Ok(names),
        false => Err(reader.corrupt("the names of a listing are not ascending")),
    }
}

#[cfg(test)]
mod tests {
    use pinstripe_base::error::Kind;

    use super::*;

    #[test]
    fn a_look_is_read_as_it_was_written() {
        let request = LookRequest {
            members: vec![0, 7],
            kinds: vec![
                WantedKind::new(ExtentKind::Keys),
                WantedKind { kind: ExtentKind::Gc, again: true, content: false },
            ],
            labels: true,
            opened: vec![ExtentName::In(ExtentKind::Packs, [3; 16])],
        };
        assert_eq!(LookRequest::decode(&request.encode()).unwrap(), request);
        let keys = KindLook {
            names: vec![([1; 16], 3), ([2; 16], 9)],
            extents: vec![([1; 16], b"abc".to_vec())],
            ends: vec![([2; 16], b"end".to_vec())],
            again: Some(vec![([2; 16], 9)]),
        };
        let looks = vec![
            MemberLook { kinds: vec![(ExtentKind::Keys, keys)], ..MemberLook::default() },
            MemberLook {
                member: 7,
                label: Some(b"label".to_vec()),
                opened: vec![OpenedExtent {
                    name: ExtentName::In(ExtentKind::Packs, [3; 16]),
                    length: 3,
                    head: b"abc".to_vec(),
                    end: b"abc".to_vec(),
                }],
                ..MemberLook::default()
            },
        ];
        let mut bytes = Vec::new();
        looks.iter().for_each(|look| look.encode(&mut bytes));
        assert_eq!(MemberLook::decode_all(&bytes).unwrap(), looks);
        let label = LookRequest { opened: vec![ExtentName::Label], ..request };
        assert_eq!(LookRequest::decode(&label.encode()).unwrap_err().kind(), Kind::Corrupt);
        for cut in 1..bytes.len() {
            let cut = MemberLook::decode_all(&bytes[..cut]);
            assert!(cut.is_err() || cut.unwrap().len() < looks.len());
        }
    }
}
