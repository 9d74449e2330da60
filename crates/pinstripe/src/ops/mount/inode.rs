//! Inode numbers of a mount. A number encodes where the entry is, so that no table of numbers is
//! needed.
//!
//! ```text
//! entry of a snapshot:     0 | ordinal 19 bits (from 1) | depth 8 bits | number of an entry 36 bits
//! directory of the mount:  0 | 0                        | 0            | its number, from 1
//! directory of `versions`: 1 | hash of its path 63 bits
//! ```
//!
//! Entries are counted in path order. A depth of 0 means the entry itself; a depth of n means the
//! directory made of the first n parts of its path, for which the snapshot has no entry: these are
//! the parents of the backed-up paths. The largest depth means the snapshot's top directory.

const NUMBER_BITS: u32 = 36;
const DEPTH_BITS: u32 = 8;
const DEPTH_MAX: u64 = (1 << DEPTH_BITS) - 1;
/// The bit that marks directories of `versions`.
pub(super) const OF_VERSIONS: u64 = 1 << 63;
/// The number of snapshots that one mount can show.
pub(super) const ORDINALS: u64 = 1 << (63 - NUMBER_BITS - DEPTH_BITS);

/// What an inode number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inode {
    /// A directory of the mount itself.
    Own(u64),
    /// The top of a snapshot.
    Top(u64),
    /// An entry of a snapshot.
    Entry {
        /// The snapshot.
        ordinal: u64,
        /// The entry.
        number: u64,
    },
    /// A directory for which the snapshot has no entry.
    Implied {
        /// The snapshot.
        ordinal: u64,
        /// The number of the first entry below the directory.
        number: u64,
        /// The number of parts of the directory's path.
        depth: u64,
    },
    /// A directory of `versions`, by its complete inode number.
    Union(u64),
}

impl Inode {
    /// Reads a number.
    pub(super) fn from_number(number: u64) -> Self {
        if number & OF_VERSIONS != 0 {
            return Inode::Union(number);
        }
        let ordinal = number >> (NUMBER_BITS + DEPTH_BITS);
        let depth = number >> NUMBER_BITS & DEPTH_MAX;
        let entry = number & ((1 << NUMBER_BITS) - 1);
        match (ordinal, depth) {
            (0, _) => Inode::Own(number),
            (_, 0) => Inode::Entry { ordinal, number: entry },
            (_, DEPTH_MAX) => Inode::Top(ordinal),
            _ => Inode::Implied { ordinal, number: entry, depth },
        }
    }

    /// Returns the inode number, or `None` for an object that cannot have one: the 2^36th entry, or
    /// a directory at depth 255 without an entry in the snapshot.
    pub(super) fn number(self) -> Option<u64> {
        let pack = |ordinal: u64, depth: u64, number: u64| {
            (number < 1 << NUMBER_BITS && ordinal < ORDINALS)
                .then_some(ordinal << (NUMBER_BITS + DEPTH_BITS) | depth << NUMBER_BITS | number)
        };
        match self {
            Inode::Own(number) | Inode::Union(number) => Some(number),
            Inode::Top(ordinal) => pack(ordinal, DEPTH_MAX, 0),
            Inode::Entry { ordinal, number } => pack(ordinal, 0, number),
            Inode::Implied { ordinal, number, depth } => {
                (depth > 0 && depth < DEPTH_MAX).then(|| pack(ordinal, depth, number))?
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_made() {
        let all = [
            Inode::Own(1),
            Inode::Own(12_345),
            Inode::Top(1),
            Inode::Top(ORDINALS - 1),
            Inode::Entry { ordinal: 1, number: 0 },
            Inode::Entry { ordinal: ORDINALS - 1, number: (1 << 36) - 1 },
            Inode::Implied { ordinal: 3, number: 9, depth: 1 },
            Inode::Implied { ordinal: 3, number: 9, depth: 254 },
            Inode::Union(OF_VERSIONS),
            Inode::Union(u64::MAX),
        ];
        for inode in all {
            assert_eq!(Inode::from_number(inode.number().unwrap()), inode);
        }
        assert_eq!(Inode::Implied { ordinal: 3, number: 9, depth: 255 }.number(), None);
        assert_eq!(Inode::Entry { ordinal: 1, number: 1 << 36 }.number(), None);
    }
}
