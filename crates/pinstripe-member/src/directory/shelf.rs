//! The directories of a member, and which of them each extent is in. Pure.

use crate::{ExtentKind, ExtentName};
use pinstripe_base::id::SetId;

/// One directory of the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shelf {
    /// The member's own directory, where the label is.
    Root,
    /// The directory of growing extents, which have no name yet.
    Tmp,
    /// A kind.
    Kind(ExtentKind),
    /// `packs/ab`.
    Packs(u8),
}

impl Shelf {
    /// The number of shelves.
    pub const COUNT: usize = 2 + ExtentKind::ALL.len() + 256;

    /// The shelves that [`create_in_with`](super::DirectoryMember::create_in_with) makes: all
    /// except `packs/ab`.
    pub const FIXED: [Shelf; 1 + ExtentKind::ALL.len()] = [
        Shelf::Tmp,
        Shelf::Kind(ExtentKind::Packs),
        Shelf::Kind(ExtentKind::Index),
        Shelf::Kind(ExtentKind::Snapshots),
        Shelf::Kind(ExtentKind::Keys),
        Shelf::Kind(ExtentKind::Sessions),
        Shelf::Kind(ExtentKind::Forgotten),
        Shelf::Kind(ExtentKind::Gc),
        Shelf::Kind(ExtentKind::Checkpoints),
        Shelf::Kind(ExtentKind::Scrub),
        Shelf::Kind(ExtentKind::Strays),
        Shelf::Kind(ExtentKind::Heartbeats),
    ];

    /// The shelf of an extent.
    pub(crate) fn for_name(name: ExtentName) -> Shelf {
        match name {
            ExtentName::Label => Shelf::Root,
            ExtentName::In(ExtentKind::Packs, id) => Shelf::Packs(id[0]),
            ExtentName::In(kind, _) => Shelf::Kind(kind),
        }
    }

    /// Returns the shelf's number; the numbers are consecutive and below [`COUNT`](Shelf::COUNT).
    pub fn number(self) -> usize {
        match self {
            Shelf::Root => 0,
            Shelf::Tmp => 1,
            Shelf::Kind(kind) => 2 + kind as usize,
            Shelf::Packs(first) => 2 + ExtentKind::ALL.len() + usize::from(first),
        }
    }

    /// The directory that this shelf is in, and the shelf's name there; `None` for the root.
    pub fn parent(self) -> Option<(Shelf, String)> {
        match self {
            Shelf::Root => None,
            Shelf::Tmp => Some((Shelf::Root, "tmp".to_owned())),
            Shelf::Kind(kind) => Some((Shelf::Root, kind.dir().to_owned())),
            Shelf::Packs(first) => Some((Shelf::Kind(ExtentKind::Packs), format!("{first:02x}"))),
        }
    }

    /// The path below the member's root.
    pub fn path(self) -> String {
        match self {
            Shelf::Root => String::new(),
            Shelf::Tmp => "tmp".to_owned(),
            Shelf::Kind(kind) => kind.dir().to_owned(),
            Shelf::Packs(first) => format!("{}/{first:02x}", ExtentKind::Packs.dir()),
        }
    }
}

/// The name of an extent's file within its shelf.
pub(super) fn leaf(name: ExtentName) -> String {
    match name {
        ExtentName::Label => name.path(),
        ExtentName::In(_, id) => SetId(id).to_string(),
    }
}

/// Parses a file name in the form that [`leaf`] writes, or the name of a temp file.
pub(super) fn parse_leaf(name: &[u8]) -> Option<[u8; 16]> {
    SetId::from_hex(std::str::from_utf8(name).ok()?).map(|id| id.0)
}

/// Parses the name of a directory in `packs`.
pub(super) fn parse_first_byte(name: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(name).ok()?;
    let value = (text.len() == 2).then(|| u8::from_str_radix(text, 16).ok())??;
    (text == format!("{value:02x}")).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shelf_and_leaf_make_up_the_path_of_the_seam() {
        for name in [
            ExtentName::Label,
            ExtentName::In(ExtentKind::Packs, [0xab; 16]),
            ExtentName::In(ExtentKind::Index, [7; 16]),
            ExtentName::In(ExtentKind::Snapshots, [0; 16]),
            ExtentName::In(ExtentKind::Keys, [255; 16]),
        ] {
            let shelf = Shelf::for_name(name).path();
            let path =
                if shelf.is_empty() { leaf(name) } else { format!("{shelf}/{}", leaf(name)) };
            assert_eq!(path, name.path());
        }
    }

    #[test]
    fn numbers_are_dense_and_different() {
        let packs = (0..=255).map(Shelf::Packs);
        let mut numbers: Vec<usize> =
            [Shelf::Root].into_iter().chain(Shelf::FIXED).chain(packs).map(Shelf::number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..Shelf::COUNT).collect::<Vec<_>>());
    }

    #[test]
    fn only_our_own_spelling_is_read_back() {
        assert_eq!(parse_leaf(b"000102030405060708090a0b0c0d0e0f").unwrap()[15], 15);
        for stranger in [&b"lost+found"[..], b"000102030405060708090A0B0C0D0E0F", b"", b"\xff\xfe"]
        {
            assert_eq!(parse_leaf(stranger), None);
        }
        assert_eq!(parse_first_byte(b"ab"), Some(0xab));
        for stranger in [&b"AB"[..], b"a", b"+a", b"abc", b"zz", b"\xff\xff"] {
            assert_eq!(parse_first_byte(stranger), None);
        }
    }
}
