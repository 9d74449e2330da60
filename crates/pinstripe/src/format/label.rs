//! The label of a member: which store, which of its members, laid out how, and where the others are.
//!
//! Every member carries one, so a store opens through any of them. The places of the others are
//! hints, never truth: a place counts only when the label found there says so.

use super::envelope::{self, Object};
use super::wire::{Reader, Writer};
use crate::error::{Error, Kind, Result};
use crate::id::StoreId;

/// Most members a store can have: rows and checksums are counted in one byte.
pub const MEMBERS_MAX: usize = 255;
/// Most parity strips per row that the format has room for.
pub const PARITY_MAX: u8 = 4;

/// What all members of a store agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// The store.
    pub store: StoreId,
    /// Data strips per row.
    pub data: u8,
    /// Parity strips per row.
    pub parity: u8,
    /// Bytes per member per row.
    pub strip_bytes: u32,
    /// How content is cut, as written on the command line ("1M", "fixed:64K").
    pub chunking: String,
    /// How records are compressed, as written on the command line ("zstd:3").
    pub codec: String,
    /// When the store was made, seconds since 1970; for people only.
    pub created_seconds: i64,
    /// How records and snapshots are sealed.
    pub encryption: Encryption,
    /// Whose gear table cuts content.
    pub chunker: Chunker,
    /// What sealed records are padded to.
    pub padding: Padding,
}

macro_rules! setting {
    ($(#[$doc:meta])* $name:ident, $what:literal, $($(#[$value_doc:meta])* $value:ident = $byte:literal $text:literal),+) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$value_doc])* $value = $byte),+ }

        impl $name {
            /// The setting that a byte stands for.
            pub fn from_byte(byte: u8) -> Option<Self> {
                match byte { $($byte => Some($name::$value),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($name::$value => $text),+ })
            }
        }

        impl std::str::FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                match text {
                    $($text => Ok($name::$value),)+
                    _ => Err(Error::new(Kind::Usage, format!("'{text}' is no {}", $what))
                        .expected([$($text),+].join(", "), text)),
                }
            }
        }
    };
}

setting!(
    /// How records and snapshots are sealed; the numbers are those of a record's seal byte.
    Encryption, "encryption",
    /// Not at all.
    None = 0 "none",
    /// AES-256 in Galois/counter mode.
    Aes256Gcm = 1 "aes256-gcm",
    /// ChaCha20 with Poly1305.
    ChaCha20Poly1305 = 2 "chacha20-poly1305"
);

setting!(
    /// Whose gear table cuts content.
    Chunker, "chunker",
    /// One that follows from the store's secrets.
    Keyed = 0 "keyed",
    /// The same in every store.
    Plain = 1 "plain"
);

setting!(
    /// What the lengths of sealed records are rounded up to, so that they tell less.
    Padding, "padding",
    /// Nothing.
    None = 0 "none",
    /// Few lengths per power of two: Nikitin and others, "Reducing Metadata Leakage from Encrypted
    /// Files and Communication with PURBs" (2019); at most 12 % more.
    Padme = 1 "padme"
);

impl StoreConfig {
    /// How many members the store has.
    pub fn member_count(&self) -> usize {
        usize::from(self.data) + usize::from(self.parity)
    }
}

/// One member's label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The store's settings, equal on all members.
    pub config: StoreConfig,
    /// Which member this is, from 0.
    pub member: u8,
    /// Last known place of every member, this one included: raw path bytes.
    pub places: Vec<Vec<u8>>,
}

impl Label {
    /// The framed object.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let config = &self.config;
        let mut writer = Writer::new(&mut body);
        writer
            .raw(&config.store.0)
            .u8(self.member)
            .u8(config.data)
            .u8(config.parity)
            .u32(config.strip_bytes)
            .i64(config.created_seconds)
            .bytes(config.chunking.as_bytes())
            .bytes(config.codec.as_bytes())
            .u8(config.encryption as u8)
            .u8(config.chunker as u8)
            .u8(config.padding as u8)
            .varint(self.places.len() as u64);
        for place in &self.places {
            writer.bytes(place);
        }
        envelope::close(Object::Label, &body)
    }

    /// Reads a framed label.
    ///
    /// # Errors
    /// Those of [`envelope::open`]; [`Kind::Corrupt`](crate::error::Kind::Corrupt) for fields
    /// that make no sense together.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (version, body) = envelope::open_version(Object::Label, bytes)?;
        let mut reader = Reader::new(body, "member label");
        let store = StoreId(reader.array()?);
        let (member, data, parity) = (reader.u8()?, reader.u8()?, reader.u8()?);
        let strip_bytes = reader.u32()?;
        let created_seconds = reader.i64()?;
        let chunking = text(&mut reader)?;
        let codec = text(&mut reader)?;
        let (encryption, chunker, padding) = match version {
            1 => (Encryption::None, Chunker::Keyed, Padding::None),
            _ => (
                setting(&mut reader, "encryption", Encryption::from_byte)?,
                setting(&mut reader, "chunker", Chunker::from_byte)?,
                setting(&mut reader, "padding", Padding::from_byte)?,
            ),
        };
        let count = reader.count(1)?;
        let places = (0..count).map(|_| Ok(reader.bytes()?.to_vec())).collect::<Result<_>>()?;
        let members = usize::from(data) + usize::from(parity);
        if data == 0 || parity > PARITY_MAX || members > MEMBERS_MAX || count != members {
            return Err(reader.corrupt("impossible number of members"));
        }
        if usize::from(member) >= members || !strip_bytes.is_power_of_two() {
            return Err(reader.corrupt("impossible member number or strip size"));
        }
        reader.finish()?;
        let config = StoreConfig {
            store,
            data,
            parity,
            strip_bytes,
            chunking,
            codec,
            created_seconds,
            encryption,
            chunker,
            padding,
        };
        Ok(Label { config, member, places })
    }
}

fn setting<T>(
    reader: &mut Reader<'_>,
    what: &str,
    from_byte: impl Fn(u8) -> Option<T>,
) -> Result<T> {
    let byte = reader.u8()?;
    from_byte(byte).ok_or_else(|| envelope::newer(what, u16::from(byte), 0, 0))
}

pub(super) fn text(reader: &mut Reader<'_>) -> Result<String> {
    let bytes = reader.bytes()?;
    String::from_utf8(bytes.to_vec()).map_err(|_| reader.corrupt("a text is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_comes_back() {
        let config = StoreConfig {
            store: StoreId([7; 16]),
            data: 3,
            parity: 1,
            strip_bytes: 1 << 18,
            chunking: "1M".into(),
            codec: "zstd:3".into(),
            created_seconds: -5,
            encryption: Encryption::Aes256Gcm,
            chunker: Chunker::Plain,
            padding: Padding::Padme,
        };
        let places = vec![b"/a".to_vec(), b"/b\xff".to_vec(), b"/c".to_vec(), b"/d".to_vec()];
        let label = Label { config, member: 2, places };
        assert_eq!(Label::decode(&label.encode()).unwrap(), label);
        let mut wrong = label.clone();
        wrong.places.pop();
        assert!(Label::decode(&wrong.encode()).is_err());
        wrong = label.clone();
        wrong.member = 4;
        assert!(Label::decode(&wrong.encode()).is_err());
    }
}
