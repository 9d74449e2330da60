//! Ids of objects: chunk, stripe set, store, snapshot, session. Ids are random or hashed, and are
//! printed as lowercase hex digits.

use std::fmt;

use crate::error::{Error, Kind, Result};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $bytes]);

        impl $name {
            /// Length in bytes.
            pub const LEN: usize = $bytes;

            /// The first eight hex digits, for people.
            pub fn short(&self) -> String {
                self.to_string()[..8].to_owned()
            }

            /// Reads the complete lowercase hex form of an id.
            pub fn from_hex(text: &str) -> Option<Self> {
                unhex(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }
    };
}

id!(
    /// Keyed BLAKE3-256 of a chunk's content.
    ChunkId, 32
);
id!(
    /// The random name of a stripe set, which also determines the permutation of its rows.
    SetId, 16
);
id!(
    /// Random name of a store.
    StoreId, 16
);
id!(
    /// Random name of a snapshot.
    SnapshotId, 16
);
id!(
    /// Random name of a writer's session.
    SessionId, 16
);
id!(
    /// Random name of a split.
    SplitId, 16
);
id!(
    /// Random name of an array.
    ArrayId, 16
);
id!(
    /// The random name of a member of an array, which the member keeps in every slot.
    MemberId, 16
);
id!(
    /// The random name of a condemnation, which is one round of deletion.
    CondemnationId, 16
);

/// Formats bytes as lowercase hexadecimal digits, two per byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the complete lowercase hex form of some bytes.
pub fn unhex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let text = text.as_bytes();
    if text.len() != 2 * BYTES {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |d: u8| (d as char).to_digit(16).filter(|_| !d.is_ascii_uppercase());
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(bytes)
}

/// The least number of digits of an id that name an object.
pub const NAME_MIN_DIGITS: usize = 4;

/// Finds the item whose id begins with `name`. `what` is the word for the items in messages.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when no id begins with `name`, [`Kind::Usage`] when several do or
/// `name` has fewer than four digits.
pub fn find_by_name<'a, T, I: fmt::Display>(
    list: &'a [T],
    id: impl Fn(&T) -> I,
    name: &str,
    what: &str,
) -> Result<&'a T> {
    let mut matching = list.iter().filter(|it| id(it).to_string().starts_with(name));
    match (matching.next(), matching.next()) {
        (Some(found), None) if name.len() >= NAME_MIN_DIGITS => Ok(found),
        (Some(_), _) => {
            Err(Error::new(Kind::Usage, format!("'{name}' is too short to identify one {what}")))
        }
        (None, _) => Err(Error::new(Kind::NotFound, format!("there is no {what} '{name}'"))),
    }
}

/// The source of random names for new objects: the system's randomness, unless a test replaces it
/// to get the same names each time.
pub trait Names: Send + Sync {
    /// Fills `bytes` with a new random name.
    ///
    /// # Errors
    /// Fails if the source has no random bytes.
    fn fill(&self, bytes: &mut [u8]) -> Result<()>;
}

/// Fresh random bytes from the operating system.
///
/// # Errors
/// Fails with [`Kind::Io`] when the system has no random bytes.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(Kind::Io, format!("the system did not supply random bytes: {error}"))
    })?;
    Ok(bytes)
}
