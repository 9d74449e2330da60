//! The requests for complete stripe sets: `pack` sends the logical run of a set once, and the server
//! lays strips and parity on its members; `fetch` reads parts of logical runs.
//!
//! ```text
//! pack     header pinstripe-set: base64url of D 1, P 1, strip bytes 4, start of the index 8, its bytes 8,
//!          members 2 each, by slot; body: the logical run
//!          answer: for each slot 0 = laid, 1 and an error
//! fetch    count; kind 1, name 16, offset 8, bytes 4 of each part
//!          answer: for each part, in order: rebuilt strips; the bytes, or an error
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::wire::{Reader, Writer};
use pinstripe_member::stripe_set::Geometry;
use pinstripe_member::{ExtentName, FetchedPart, RunPart, RunToLay};

use crate::objects::StepResult;
use crate::protocol::{error_from, kind_number, read_kind};

/// The header of a request `pack` that describes the set.
pub const SET_HEADER: &str = "pinstripe-set";
/// The longest logical run that a server accepts.
pub const RUN_MAX_BYTES: u64 = 256 << 20;
/// The most parts in a request `fetch`.
pub(crate) const PARTS_MAX: usize = 4096;
/// The most bytes that a request `fetch` may return.
pub const PARTS_MAX_BYTES: u64 = 64 << 20;

/// The description of a set in the header of a request `pack`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetHead {
    /// The geometry of the set.
    pub geometry: Geometry,
    /// The numbers of the members that get the extents, by slot.
    pub members: Vec<u16>,
    /// The first byte of the record index in the run, and its length; zeros if there is no index.
    pub index: (u64, u64),
}

impl SetHead {
    pub(crate) fn of(run: &RunToLay) -> Self {
        let index = (run.index.start, run.index.end - run.index.start);
        SetHead { geometry: run.geometry, members: run.members.clone(), index }
    }

    pub(crate) fn encode(&self) -> String {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.u8(self.geometry.data() as u8).u8(self.geometry.parity() as u8);
        writer.u32(self.geometry.strip_bytes()).u64(self.index.0).u64(self.index.1);
        for member in &self.members {
            writer.u16(*member);
        }
        URL_SAFE_NO_PAD.encode(&out)
    }

    /// Decodes the header.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for a text that does not describe a set whose slots are on
    /// different members.
    pub fn decode(text: &str) -> Result<Self> {
        let invalid = || Error::new(Kind::Usage, "the request does not describe a stripe set");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| invalid())?;
        let mut reader = Reader::new(&bytes, "description of a stripe set");
        let decode = || {
            let (data, parity) = (reader.u8()?, reader.u8()?);
            let geometry = Geometry::new(data, parity, reader.u32()?)?;
            let index = (reader.u64()?, reader.u64()?);
            let members = (0..geometry.members()).map(|_| reader.u16()).collect::<Result<_>>()?;
            reader.finish()?;
            Ok(SetHead { geometry, members, index })
        };
        let head: SetHead = decode().map_err(|_: Error| invalid())?;
        let is_again = |at: usize| head.members[..at].contains(&head.members[at]);
        match (0..head.members.len()).any(is_again) {
            true => Err(invalid()),
            false => Ok(head),
        }
    }
}

/// Decodes the answer to a request `pack` with this number of slots.
pub(crate) fn decode_laid(bytes: &[u8], slots: usize) -> Result<Vec<Result<()>>> {
    let mut reader = Reader::new(bytes, "answer to a stripe set");
    let mut results = Vec::with_capacity(slots);
    for _ in 0..slots {
        results.push(match reader.u8()? {
            0 => Ok(()),
            1 => Err(error_from(reader.bytes()?)),
            _ => return Err(reader.corrupt("the answer has an unknown result")),
        });
    }
    reader.finish()?;
    Ok(results)
}

/// Encodes the answer to a request `pack`.
#[must_use]
pub fn encode_laid(results: Vec<Result<()>>) -> Vec<u8> {
    let mut out = Vec::new();
    for result in results {
        match result {
            Ok(()) => StepResult::Done.encode(&mut out),
            Err(error) => StepResult::Failed(error).encode(&mut out),
        }
    }
    out
}

/// Encodes a request `fetch`; the names are those of stripe sets.
pub(crate) fn encode_parts(parts: &[RunPart]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.varint(parts.len() as u64);
    for RunPart { name, offset, bytes } in parts {
        let ExtentName::In(kind, id) = name else { unreachable!("a label is not a stripe set") };
        writer.u8(kind_number(*kind)).raw(id).u64(*offset).u32(*bytes);
    }
    out
}

/// Decodes a request `fetch`.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for bytes that are no such request, or that ask for too much.
pub fn decode_parts(bytes: &[u8]) -> Result<Vec<RunPart>> {
    let mut reader = Reader::new(bytes, "request for parts of stripe sets");
    let count = reader.count(29)?;
    let mut parts = Vec::with_capacity(count.min(PARTS_MAX));
    let mut wanted_bytes = 0;
    for _ in 0..count {
        let name = ExtentName::In(read_kind(&mut reader)?, reader.array()?);
        let (offset, bytes) = (reader.u64()?, reader.u32()?);
        wanted_bytes += u64::from(bytes);
        if !name.is_of_set() || parts.len() == PARTS_MAX || wanted_bytes > PARTS_MAX_BYTES {
            return Err(reader.corrupt("the request asks for too much, or for no stripe set"));
        }
        parts.push(RunPart { name, offset, bytes });
    }
    reader.finish()?;
    Ok(parts)
}

/// Appends one part to the answer to a request `fetch`.
pub fn encode_part(out: &mut Vec<u8>, part: &Result<FetchedPart>) {
    let rebuilt = part.as_ref().map_or(0, |part| part.rebuilt);
    Writer::new(out).varint(rebuilt);
    match part {
        Ok(part) => {
            Writer::new(out).u8(0).bytes(&part.bytes);
        }
        Err(error) => StepResult::Failed(error.duplicate()).encode(out),
    }
}

/// Decodes the answer to a request `fetch`.
pub(crate) fn decode_fetched(bytes: &[u8], parts: &[RunPart]) -> Result<Vec<Result<FetchedPart>>> {
    let mut reader = Reader::new(bytes, "answer with parts of stripe sets");
    let mut fetched = Vec::with_capacity(parts.len());
    for part in parts {
        let (rebuilt, flag) = (reader.varint()?, reader.u8()?);
        let bytes = reader.bytes()?;
        fetched.push(match flag {
            0 if bytes.len() == part.bytes as usize => {
                Ok(FetchedPart { bytes: bytes.to_vec(), rebuilt })
            }
            1 => Err(error_from(bytes)),
            _ => return Err(reader.corrupt("a part of the answer has another length than asked")),
        });
    }
    reader.finish()?;
    Ok(fetched)
}

#[cfg(test)]
mod tests {
    use pinstripe_base::id::SetId;

    use super::*;

    fn head() -> SetHead {
        let geometry = Geometry::new(2, 1, 4096).unwrap();
        SetHead { geometry, members: vec![3, 0, 9], index: (100, 20) }
    }

    #[test]
    fn a_description_is_read_as_it_was_written() {
        let text = head().encode();
        assert_eq!(SetHead::decode(&text).unwrap(), head());
        for cut in 0..text.len() {
            assert_eq!(SetHead::decode(&text[..cut]).unwrap_err().kind(), Kind::Usage, "{cut}");
        }
        let refused = |head: SetHead| SetHead::decode(&head.encode()).unwrap_err();
        assert_eq!(refused(SetHead { members: vec![3, 0], ..head() }).kind(), Kind::Usage);
        assert_eq!(refused(SetHead { members: vec![3, 0, 3], ..head() }).kind(), Kind::Usage);
    }

    #[test]
    fn parts_are_read_as_they_were_written() {
        let part = |offset| RunPart { name: ExtentName::pack(SetId([7; 16])), offset, bytes: 3 };
        let parts = vec![part(0), part(u64::MAX)];
        let bytes = encode_parts(&parts);
        assert_eq!(decode_parts(&bytes).unwrap(), parts);
        assert!((0..bytes.len()).all(|cut| decode_parts(&bytes[..cut]).is_err()));
        let long = RunPart { bytes: u32::MAX, ..part(0) };
        assert!(decode_parts(&encode_parts(&[long])).is_err());
        let object =
            RunPart { name: ExtentName::In(pinstripe_member::ExtentKind::Keys, [0; 16]), ..long };
        assert!(decode_parts(&encode_parts(&[RunPart { bytes: 1, ..object }])).is_err());

        let mut answer = Vec::new();
        encode_part(&mut answer, &Ok(FetchedPart { bytes: b"abc".to_vec(), rebuilt: 2 }));
        encode_part(&mut answer, &Err(Error::new(Kind::TooManyLosses, "lost")));
        let fetched = decode_fetched(&answer, &parts).unwrap();
        assert_eq!(fetched[0].as_ref().unwrap().rebuilt, 2);
        assert_eq!(fetched[1].as_ref().unwrap_err().kind(), Kind::TooManyLosses);
        assert!((0..answer.len()).all(|cut| decode_fetched(&answer[..cut], &parts).is_err()));
        let other = [RunPart { bytes: 4, ..parts[0] }, parts[1]];
        assert!(decode_fetched(&answer, &other).is_err());
    }

    #[test]
    fn the_results_of_slots_are_read_as_they_were_written() {
        let full = Error::new(Kind::NoSpace, "full");
        let bytes = encode_laid(vec![Ok(()), Err(full)]);
        let laid = decode_laid(&bytes, 2).unwrap();
        assert!(laid[0].is_ok());
        assert_eq!(laid[1].as_ref().unwrap_err().kind(), Kind::NoSpace);
        assert!(decode_laid(&bytes, 1).is_err() && decode_laid(&bytes, 3).is_err());
    }
}
