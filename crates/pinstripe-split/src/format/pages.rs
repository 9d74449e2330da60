//! The two pages at the beginning of every output: the head page, written first and never changed,
//! and the end page, written when everything else is durable.
//!
//! ```text
//! head:  split 16 | layout 1 | output 1 | outputs 1 | parity 1 | strip bytes 4 | block bytes 4 |
//!        unit bytes 4 | source bytes 8 | first byte 8 | made, seconds 8 | identity 1 + 40 |
//!        codec, then source: length 2, text
//! end:   split 16 | output 1 | zero 7 | manifest's place in the output 8, its bytes 8 | log bytes 8
//! ```
//!
//! Both pages are small objects (format/envelope) whose body is padded with zeros to one page.

use pinstripe_base::byte_enum;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SplitId;
use pinstripe_base::wire::{Reader, Writer};
use pinstripe_member::envelope::{self, Object};

use super::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, OUTPUTS_MAX, Tag, unit_bytes};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Length of both pages: the offset where the log begins.
pub const PAGES_BYTES: u64 = 2 * PAGE_BYTES as u64;
/// The number of bytes of a page that the envelope takes.
const ENVELOPE_BYTES: usize = 52;
/// The largest length of the source's name.
const NAME_MAX_BYTES: usize = 1024;
/// The value that stands for an unknown length.
const UNKNOWN: u64 = u64::MAX;

byte_enum! {
    /// How the source is distributed over the outputs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum SplitLayout {
        /// One log, striped over all outputs, with parity or without.
        Stripes = 1,
        /// One log per output; each batch goes to whichever output is free.
        Queue = 2,
        /// One log per output, for one contiguous range of the source.
        Ranges = 3,
        /// Each output holds one contiguous range of the source unchanged; its log is in a separate
        /// file.
        Plain = 4,
    }
}

impl SplitLayout {
    /// The name of the layout, for people.
    pub fn name(self) -> &'static str {
        match self {
            SplitLayout::Stripes => "stripes",
            SplitLayout::Queue => "queue",
            SplitLayout::Ranges => "ranges",
            SplitLayout::Plain => "ranges, plain",
        }
    }
}

/// Tells whether a source is still the same as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identity {
    /// st_dev.
    pub device: u64,
    /// st_ino of the file; for a generator, a hash of its specification.
    pub inode: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// st_mtime.
    pub modified_seconds: i64,
    /// And its nanoseconds.
    pub modified_nanos: u32,
}

/// The head page, which identifies an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The split.
    pub split: SplitId,
    /// The layout.
    pub layout: SplitLayout,
    /// The number of this output, below `outputs`; in a striped log, its slot.
    pub output: u8,
    /// The number of outputs.
    pub outputs: u8,
    /// The number of outputs that may be missing.
    pub parity: u8,
    /// Length of a strip; 0 if nothing is striped.
    pub strip_bytes: u32,
    /// Bytes of a block: a power of two.
    pub block_bytes: u32,
    /// Length of the source, if it is known in advance.
    pub source_bytes: Option<u64>,
    /// The offset in the source at which this output's range starts; 0 unless the layout has
    /// ranges.
    pub first_byte: u64,
    /// When the split began, in seconds since 1970.
    pub made_seconds: i64,
    /// Identifies the source.
    pub identity: Option<Identity>,
    /// The codec as it was requested.
    pub codec: String,
    /// The name of the source as the user gave it, for people.
    pub source: String,
}

impl Head {
    /// The tag that is in every frame.
    pub fn tag(&self) -> Tag {
        *self.split.0.first_chunk().expect("an id has 16 bytes")
    }

    /// Bytes of a unit.
    pub fn unit_bytes(&self) -> u32 {
        unit_bytes(self.block_bytes)
    }

    /// The page.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAGE_BYTES);
        let mut w = Writer::new(&mut out);
        w.raw(&self.split.0).u8(self.layout as u8).u8(self.output).u8(self.outputs);
        w.u8(self.parity).u32(self.strip_bytes).u32(self.block_bytes).u32(self.unit_bytes());
        w.u64(self.source_bytes.unwrap_or(UNKNOWN)).u64(self.first_byte).i64(self.made_seconds);
        w.u8(self.identity.is_some().into());
        let identity = self.identity.unwrap_or_default();
        w.u64(identity.device).u64(identity.inode).u64(identity.bytes);
        w.i64(identity.modified_seconds).u32(identity.modified_nanos).zeros(4);
        for text in [&self.codec, &self.source] {
            let end =
                (0..=text.len().min(NAME_MAX_BYTES)).rev().find(|at| text.is_char_boundary(*at));
            let text = &text[..end.unwrap_or(0)];
            w.u16(text.len() as u16).raw(text.as_bytes());
        }
        page(Object::SplitHead, out)
    }

    /// Reads a page back.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when the page is not a head, or with [`Kind::Unsupported`] when
    /// a newer version wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader::new(
            envelope::open(Object::SplitHead, bytes)?,
            "head of an output of 'pinstripe split'",
        );
        let (split, layout) = (SplitId(r.array()?), SplitLayout::from_byte(r.u8()?));
        let (output, outputs, parity) = (r.u8()?, r.u8()?, r.u8()?);
        let (strip_bytes, block_bytes, unit) = (r.u32()?, r.u32()?, r.u32()?);
        let (source_bytes, first_byte, made_seconds) = (r.u64()?, r.u64()?, r.i64()?);
        let has_identity = r.u8()?;
        let identity = Identity {
            device: r.u64()?,
            inode: r.u64()?,
            bytes: r.u64()?,
            modified_seconds: r.i64()?,
            modified_nanos: r.u32()?,
        };
        let zero = r.u32()?;
        let (codec, source) = (text(&mut r)?, text(&mut r)?);
        let is_block = block_bytes.is_power_of_two()
            && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes);
        let is_sound = is_block
            && unit == unit_bytes(block_bytes)
            && output < outputs
            && usize::from(outputs) <= OUTPUTS_MAX
            && parity < outputs
            && (has_identity == 1 || (has_identity == 0 && identity == Identity::default()))
            && zero == 0
            && r.rest().iter().all(|byte| *byte == 0);
        let Some(layout) = layout.filter(|_| is_sound) else {
            return Err(r.corrupt("a page of the output has impossible values"));
        };
        Ok(Head {
            split,
            layout,
            output,
            outputs,
            parity,
            strip_bytes,
            block_bytes,
            source_bytes: (source_bytes != UNKNOWN).then_some(source_bytes),
            first_byte,
            made_seconds,
            identity: (has_identity == 1).then_some(identity),
            codec,
            source,
        })
    }

    /// Verifies that another output belongs to the same split: all fields that the heads of a split
    /// share must be equal.
    ///
    /// # Errors
    /// Fails with [`Kind::WrongMember`], with both ids, when the output belongs to another split.
    pub fn belongs_with(&self, other: &Head) -> Result<()> {
        let alike = |head: &Head| Head { output: 0, first_byte: 0, ..head.clone() };
        match alike(self) == alike(other) {
            true => Ok(()),
            false => Err(Error::new(Kind::WrongMember, "this output belongs to another split")
                .expected(self.split.short(), other.split.short())
                .advice(
                    "give only outputs of one split: 'pinstripe inspect OUT' shows to which split \
                     an output belongs",
                )),
        }
    }
}

fn text(r: &mut Reader<'_>) -> Result<String> {
    let len = usize::from(r.u16()?);
    let bytes = r.take(len)?.to_vec();
    let text = String::from_utf8(bytes).ok().filter(|_| len <= NAME_MAX_BYTES);
    text.ok_or_else(|| r.corrupt("the page contains an impossible name"))
}

/// The end page, which says that an output is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The split.
    pub split: SplitId,
    /// The number of this output.
    pub output: u8,
    /// The start of the manifest's frame in the output.
    pub manifest_at: u64,
    /// Length of the manifest's frame.
    pub manifest_bytes: u64,
    /// Length of the output up to the manifest, without the two pages.
    pub log_bytes: u64,
}

impl End {
    /// The page.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAGE_BYTES);
        let mut w = Writer::new(&mut out);
        w.raw(&self.split.0).u8(self.output).zeros(7);
        w.u64(self.manifest_at).u64(self.manifest_bytes).u64(self.log_bytes);
        page(Object::SplitEnd, out)
    }

    /// Reads an end page back; returns `None` when none was written yet.
    ///
    /// # Errors
    /// Fails with the errors of [`Head::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let mut r = Reader::new(
            envelope::open(Object::SplitEnd, bytes)?,
            "end of an output of 'pinstripe split'",
        );
        let (split, output, zeros) = (SplitId(r.array()?), r.u8()?, r.array::<7>()?);
        let (manifest_at, manifest_bytes, log_bytes) = (r.u64()?, r.u64()?, r.u64()?);
        if zeros != [0; 7] || r.rest().iter().any(|byte| *byte != 0) {
            return Err(r.corrupt("a page of the output has impossible values"));
        }
        Ok(Some(End { split, output, manifest_at, manifest_bytes, log_bytes }))
    }
}

fn page(object: Object, mut body: Vec<u8>) -> Vec<u8> {
    body.resize(PAGE_BYTES - ENVELOPE_BYTES, 0);
    let page = envelope::close(object, &body);
    debug_assert_eq!(page.len(), PAGE_BYTES);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of a body.
    const ENVELOPE_HEAD_BYTES: usize = 20;

    fn head() -> Head {
        Head {
            split: SplitId([9; 16]),
            layout: SplitLayout::Stripes,
            output: 2,
            outputs: 4,
            parity: 1,
            strip_bytes: 256 << 10,
            block_bytes: 64 << 10,
            source_bytes: None,
            first_byte: 0,
            made_seconds: 1_700_000_000,
            identity: Some(Identity {
                device: 1,
                inode: 2,
                bytes: 3,
                modified_seconds: -4,
                modified_nanos: 5,
            }),
            codec: "auto".to_owned(),
            source: "/dev/sda".to_owned(),
        }
    }

    #[test]
    fn pages_come_back() {
        let page = head().encode();
        assert_eq!((page.len(), Head::decode(&page).unwrap()), (PAGE_BYTES, head()));
        let long = Head { source: "ä".repeat(3000), ..head() };
        assert_eq!(Head::decode(&long.encode()).unwrap().source, "ä".repeat(512));
        let end = End {
            split: SplitId([9; 16]),
            output: 1,
            manifest_at: 8192,
            manifest_bytes: 200,
            log_bytes: 0,
        };
        assert_eq!(End::decode(&end.encode()).unwrap(), Some(end));
        assert_eq!(End::decode(&[0; PAGE_BYTES]).unwrap(), None);
    }

    #[test]
    fn heads_that_make_no_sense_are_refused() {
        for wrong in [
            Head { block_bytes: 65_537, ..head() },
            Head { block_bytes: 2048, ..head() },
            Head { output: 4, ..head() },
            Head { parity: 4, ..head() },
        ] {
            assert_eq!(Head::decode(&wrong.encode()).unwrap_err().kind(), Kind::Corrupt);
        }
        // The inode of a source that has no identity; a name that is no text.
        let without = Head { identity: None, ..head() }.encode();
        let codec_at = ENVELOPE_HEAD_BYTES + 97 + 2;
        for at in [ENVELOPE_HEAD_BYTES + 65, codec_at] {
            let mut body = without[ENVELOPE_HEAD_BYTES..PAGE_BYTES - 32].to_vec();
            body[at - ENVELOPE_HEAD_BYTES] = 0xff;
            let page = envelope::close(Object::SplitHead, &body);
            assert_eq!(Head::decode(&page).unwrap_err().kind(), Kind::Corrupt, "{at}");
        }
    }

    #[test]
    fn outputs_of_one_split_belong_together() {
        assert!(head().belongs_with(&Head { output: 0, first_byte: 7, ..head() }).is_ok());
        let other = Head { split: SplitId([8; 16]), ..head() };
        assert_eq!(head().belongs_with(&other).unwrap_err().kind(), Kind::WrongMember);
    }
}
