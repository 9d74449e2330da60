//! The label of a member: it says which store the member belongs to and which of its members it is,
//! and has the table of all members.
//!
//! Every member carries a label, so a store opens through any of its members. Tables change: if two
//! labels have different tables, the table that [`MemberTable::replaces`] the other counts,
//! whichever label it was found in. Places are hints: a place counts only when the label found
//! there confirms which member it is.

mod facts;

pub use facts::{MemberAbility, MemberFacts, Retention};

use super::envelope::{self, Object};
use pinstripe_base::byte_enum;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;
use pinstripe_base::wire::{Reader, Writer};

/// The largest number of members of a store: rows and checksums count members in one byte.
pub const MEMBERS_MAX: usize = 255;
/// The largest number of parity strips per row that the format allows.
pub(crate) const PARITY_MAX: u8 = 4;

/// The settings that are the same for all members of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// The store.
    pub store: StoreId,
    /// The number of parity strips per row.
    pub parity: u8,
    /// The length of a strip: the bytes of each member in a row.
    pub strip_bytes: u32,
    /// The chunking, as written on the command line ("1M", "fixed:64K").
    pub chunking: String,
    /// The codec, as written on the command line ("zstd:3").
    pub codec: String,
    /// When the store was made, in seconds since 1970; only for people.
    pub created_seconds: i64,
    /// The seal of records and snapshots.
    pub encryption: Encryption,
    /// The gear table that cuts content.
    pub chunker: Chunker,
    /// The padding of sealed records.
    pub padding: Padding,
}

macro_rules! setting {
    ($(#[$doc:meta])* $name:ident, $what:literal, $($(#[$value_doc:meta])* $value:ident = $byte:literal $text:literal),+) => {
        byte_enum! {
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            pub enum $name { $($(#[$value_doc])* $value = $byte),+ }
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
                    _ => Err(Error::new(Kind::Usage, format!("'{text}' is not a known {}", $what))
                        .expected([$($text),+].join(", "), text)),
                }
            }
        }
    };
}

setting!(
    /// The cipher that seals records and snapshots, with the number that a record's seal byte has
    /// for it.
    Encryption, "encryption",
    /// Not at all.
    None = 0 "none",
    /// AES-256 in Galois/counter mode.
    Aes256Gcm = 1 "aes256-gcm",
    /// ChaCha20 with Poly1305.
    ChaCha20Poly1305 = 2 "chacha20-poly1305"
);

setting!(
    /// The gear table that cuts content.
    Chunker, "chunker",
    /// A gear table that is derived from the store's secrets.
    Keyed = 0 "keyed",
    /// The gear table that is the same in every store.
    Plain = 1 "plain"
);

setting!(
    /// How lengths of sealed records are rounded up, so that they tell an observer less.
    Padding, "padding",
    /// Nothing.
    None = 0 "none",
    /// Few possible lengths per power of two, at most 12 % longer: see Nikitin and others,
    /// "Reducing Metadata Leakage from Encrypted Files and Communication with PURBs" (2019).
    Padme = 1 "padme"
);

byte_enum! {
    /// What a member is used for in its store.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum MemberState {
        /// The member gets its share of all new data.
        Active = 0,
        /// The member is being emptied: it is read, and gets nothing new.
        Leaving = 1,
        /// The member is empty, except for extents of writers that began before it was leaving; no
        /// writer may commit anything that relies on it any more.
        Left = 2,
    }
}

/// One member in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRow {
    /// The number of the member, which no other member of the store had before or will have later.
    pub number: u16,
    /// Drawn at random when the member joined, so that two directories that claim the same number
    /// can be told apart. Zeros in stores of version 1.
    pub id: [u8; 16],
    /// What the member is used for in the store.
    pub state: MemberState,
    /// The place where the member was last seen, as raw path bytes.
    pub place: Vec<u8>,
    /// The facts found when the member joined; empty before version 4 of the label.
    pub facts: MemberFacts,
}

/// All members of a store, as one label lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberTable {
    /// The generation of the table, which grows with every change; 0 in stores of version 1.
    pub generation: u64,
    /// The number that the next member gets: a lower number that is not in the table belonged to a
    /// member that left.
    pub next: u16,
    /// The members, by ascending number.
    pub rows: Vec<MemberRow>,
}

impl MemberTable {
    /// Returns the row of a member, or `None` if there is no member of this number or it has left.
    pub fn row(&self, number: usize) -> Option<&MemberRow> {
        self.rows.iter().find(|row| usize::from(row.number) == number)
    }

    /// Whether this table replaces another one of the same store: the later table does. Two tables
    /// that were made at the same time are put in an order that is the same for every process.
    pub fn replaces(&self, other: &MemberTable) -> bool {
        let rank = |table: &MemberTable| {
            let mut bytes = Vec::new();
            table.encode(&mut Writer::new(&mut bytes), table.has_facts());
            (table.generation, bytes)
        };
        rank(self) > rank(other)
    }

    /// Whether the table has facts about any member.
    fn has_facts(&self) -> bool {
        self.rows.iter().any(|row| row.facts != MemberFacts::default())
    }

    fn encode(&self, writer: &mut Writer<'_>, has_facts: bool) {
        writer.u64(self.generation).u16(self.next).varint(self.rows.len() as u64);
        for row in &self.rows {
            writer.u16(row.number).raw(&row.id).u8(row.state as u8).bytes(&row.place);
            if has_facts {
                row.facts.encode(writer);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>, has_facts: bool) -> Result<Self> {
        let (generation, next) = (reader.u64()?, reader.u16()?);
        let mut rows = Vec::new();
        for _ in 0..reader.count(20)? {
            let (number, id) = (reader.u16()?, reader.array()?);
            let state = setting(reader, "state of a member", MemberState::from_byte)?;
            let place = reader.bytes()?.to_vec();
            let facts = if has_facts { MemberFacts::decode(reader)? } else { <_>::default() };
            rows.push(MemberRow { number, id, state, place, facts });
        }
        let ascends = rows.windows(2).all(|pair| pair[0].number < pair[1].number);
        if !ascends || rows.last().is_none_or(|last| last.number >= next) {
            return Err(reader.corrupt(
                "the member numbers in the label are not in ascending order, or are impossible",
            ));
        }
        Ok(MemberTable { generation, next, rows })
    }

    /// Decodes the table of label version 1, which lists places by number.
    fn decode_places(reader: &mut Reader<'_>, members: usize) -> Result<Self> {
        let count = reader.count(1)?;
        if count != members {
            return Err(reader.corrupt("the number of members in the label is impossible"));
        }
        let row = |number| {
            let place = reader.bytes()?.to_vec();
            let (state, facts) = (MemberState::Active, MemberFacts::default());
            Ok(MemberRow { number, id: [0; 16], state, place, facts })
        };
        let rows = (0..count as u16).map(row).collect::<Result<_>>()?;
        Ok(MemberTable { generation: 0, next: count as u16, rows })
    }
}

byte_enum! {
    /// The version of a store's format, which decides what its objects carry.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Format {
        /// Version 1: small objects carry only a checksum.
        V1 = 1,
        /// Version 2: in a store with encryption, the small objects on which decisions depend carry
        /// a MAC under a key of the store's ring.
        #[default]
        V2 = 2,
    }
}

/// One member's label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The version of the store's format. In a store with encryption, the key ring repeats the
    /// version and takes precedence: otherwise a process that can write labels could turn the MACs
    /// off.
    pub format: Format,
    /// The store's settings, equal on all members.
    pub config: StoreConfig,
    /// The number of this member.
    pub member: u16,
    /// The table of all members, including this one.
    pub table: MemberTable,
}

impl Label {
    /// The framed object.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let config = &self.config;
        let mut writer = Writer::new(&mut body);
        writer
            .raw(&config.store.0)
            .u16(self.member)
            .u8(config.parity)
            .u32(config.strip_bytes)
            .i64(config.created_seconds)
            .bytes(config.chunking.as_bytes())
            .bytes(config.codec.as_bytes())
            .u8(config.encryption as u8)
            .u8(config.chunker as u8)
            .u8(config.padding as u8);
        // Version 2 of the label had no such byte: a store of version 1 is left readable by the
        // programs that made it.
        if self.format > Format::V1 {
            writer.u8(self.format as u8);
        }
        // A label without facts keeps the version that older programs read.
        let has_facts = self.format > Format::V1 && self.table.has_facts();
        self.table.encode(&mut writer, has_facts);
        let version = match self.format {
            Format::V1 => 2,
            Format::V2 if has_facts => Object::Label.version(),
            Format::V2 => 3,
        };
        envelope::close_version(Object::Label, version, &body)
    }

    /// Reads a framed label.
    ///
    /// # Errors
    /// Fails with the errors of [`envelope::open`], or with
    /// [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for fields that contradict each
    /// other.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (version, body) = envelope::open_version(Object::Label, bytes)?;
        let mut reader = Reader::new(body, "member label");
        let store = StoreId(reader.array()?);
        let (member, data) = match version {
            1 => (u16::from(reader.u8()?), usize::from(reader.u8()?)),
            _ => (reader.u16()?, 1),
        };
        let parity = reader.u8()?;
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
        let format = match version {
            1 | 2 => Format::V1,
            _ => setting(&mut reader, "format of a store", Format::from_byte)?,
        };
        let table = match version {
            1 => MemberTable::decode_places(&mut reader, data + usize::from(parity))?,
            _ => MemberTable::decode(&mut reader, version > 3)?,
        };
        // Each label has one form.
        if version > 3 && (format == Format::V1 || !table.has_facts()) {
            return Err(reader.corrupt(
                "the label lacks the recorded abilities of members, although its version requires \
                 them",
            ));
        }
        let active = table.rows.iter().filter(|row| row.state != MemberState::Left).count();
        if data == 0 || parity > PARITY_MAX || active > MEMBERS_MAX {
            return Err(reader.corrupt("the number of members in the label is impossible"));
        }
        if table.row(member.into()).is_none() || !strip_bytes.is_power_of_two() {
            return Err(
                reader.corrupt("the member number or the strip size in the label is impossible")
            );
        }
        reader.finish()?;
        let config = StoreConfig {
            store,
            parity,
            strip_bytes,
            chunking,
            codec,
            created_seconds,
            encryption,
            chunker,
            padding,
        };
        Ok(Label { format, config, member, table })
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
    String::from_utf8(bytes.to_vec())
        .map_err(|_| reader.corrupt("a text in the label is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u16, place: &[u8]) -> MemberRow {
        let (state, facts) = (MemberState::Active, MemberFacts::default());
        MemberRow { number, id: [9; 16], state, place: place.to_vec(), facts }
    }

    fn label() -> Label {
        let config = StoreConfig {
            store: StoreId([7; 16]),
            parity: 1,
            strip_bytes: 1 << 18,
            chunking: "1M".into(),
            codec: "zstd:3".into(),
            created_seconds: -5,
            encryption: Encryption::Aes256Gcm,
            chunker: Chunker::Plain,
            padding: Padding::Padme,
        };
        let mut rows = vec![row(0, b"/a"), row(2, b"/b\xff"), row(300, b"/c")];
        rows[1].state = MemberState::Leaving;
        let table = MemberTable { generation: 4, next: 301, rows };
        Label { format: Format::V2, config, member: 2, table }
    }

    #[test]
    fn a_label_of_each_format_comes_back() {
        for format in [Format::V1, Format::V2] {
            let label = Label { format, ..label() };
            assert_eq!(Label::decode(&label.encode()).unwrap(), label);
        }
        // What programs of before can read is written as they read it.
        let old = Label { format: Format::V1, ..label() }.encode();
        assert_eq!(envelope::open_version(Object::Label, &old).unwrap().0, 2);
    }

    #[test]
    fn what_was_found_out_comes_back_and_costs_others_nothing() {
        let version =
            |label: &Label| envelope::open_version(Object::Label, &label.encode()).unwrap().0;
        assert_eq!(version(&label()), 3, "programs of before read it");
        let mut known = label();
        let facts = MemberFacts::default()
            .with(MemberAbility::CreateIfAbsent, true)
            .with(MemberAbility::ObjectLock, true)
            .with(MemberAbility::ObjectLock, false);
        let retention = Some(Retention { seconds: 86_400, is_compliance: true });
        known.table.rows[1].facts = facts;
        known.table.rows[1].facts.retention = retention;
        assert_eq!(version(&known), 4);
        let read = Label::decode(&known.encode()).unwrap();
        assert_eq!(read, known);
        let facts = &read.table.rows[1].facts;
        assert_eq!(facts.knows(MemberAbility::CreateIfAbsent), Some(true));
        assert_eq!(facts.knows(MemberAbility::ObjectLock), Some(false));
        assert_eq!(facts.knows(MemberAbility::Versions), None);
        assert_eq!(read.table.rows[0].facts.knows(MemberAbility::CreateIfAbsent), None);
        // A store of version 1 keeps its label.
        let old = Label { format: Format::V1, ..known.clone() };
        assert_eq!(version(&old), 2);
        assert_eq!(Label::decode(&old.encode()).unwrap().table, label().table);
        // Of two tables of one generation all find the same one, with facts or without.
        let (one, other) = (known.table, label().table);
        assert!(one.replaces(&other) != other.replaces(&one));
    }

    #[test]
    fn facts_that_make_no_sense_are_refused() {
        let mut known = label();
        let facts = MemberFacts::default().with(MemberAbility::Versions, true);
        known.table.rows.truncate(1);
        (known.member, known.table.rows[0].facts) = (0, facts);
        let framed = known.encode();
        let (_, body) = envelope::open_version(Object::Label, &framed).unwrap();
        // The facts of the last row end the body: tried, able, seconds, mode.
        let at = body.len() - 13;
        for (offset, byte) in [(0, 0), (4, 0xff), (8, 1), (12, 1), (12, 3)] {
            let mut wrong = body.to_vec();
            wrong[at + offset] = byte;
            let framed = envelope::close_version(Object::Label, 4, &wrong);
            assert!(Label::decode(&framed).is_err(), "{offset} {byte}");
        }
        // Nothing found out is written as version 3, and only so.
        let mut none = body.to_vec();
        (none[at], none[at + 4]) = (0, 0);
        let framed = envelope::close_version(Object::Label, 4, &none);
        assert!(Label::decode(&framed).is_err());
    }

    #[test]
    fn labels_that_make_no_sense_are_refused() {
        let wrong: [fn(&mut Label); 5] = [
            |label| label.member = 1,
            |label| label.table.next = 300,
            |label| label.table.rows.swap(0, 1),
            |label| label.table.rows[1].number = 0,
            |label| label.config.parity = PARITY_MAX + 1,
        ];
        for change in wrong {
            let mut label = label();
            change(&mut label);
            assert!(Label::decode(&label.encode()).is_err(), "{label:?}");
        }
    }

    #[test]
    fn of_two_tables_one_replaces_the_other() {
        let old = label().table;
        let mut new = old.clone();
        new.generation += 1;
        new.rows.pop();
        assert!(new.replaces(&old) && !old.replaces(&new) && !old.replaces(&old));
        let mut other = old.clone();
        other.rows[0].place = b"/elsewhere".to_vec();
        assert!(other.replaces(&old) != old.replaces(&other));
    }

    /// The bytes of a store of version 1, whose places stand by number.
    #[test]
    fn a_label_of_version_1_is_read() {
        let mut body = Vec::new();
        let mut writer = Writer::new(&mut body);
        writer.raw(&[7; 16]).u8(1).u8(1).u8(1).u32(4096).i64(3).bytes(b"64K").bytes(b"raw");
        writer.varint(2).bytes(b"/a").bytes(b"/b");
        let label = Label::decode(&envelope::close_version(Object::Label, 1, &body)).unwrap();
        assert_eq!((label.member, label.table.generation, label.table.next), (1, 0, 2));
        let places: Vec<_> = label.table.rows.iter().map(|row| &row.place[..]).collect();
        assert_eq!(places, [b"/a", b"/b"]);
        assert_eq!(label.config.encryption, Encryption::None);
    }
}
