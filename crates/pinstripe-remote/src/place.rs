//! The places of members behind a server: `pst://HOST:PORT/VOLUME/MEMBER`.
//!
//! A place contains no secret: it is stored in labels.

use std::fmt;
use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;

use crate::join_string::is_address;

const SCHEME: &str = "pst://";

/// Whether a place is behind a server.
#[must_use]
pub fn is_served(place: &Path) -> bool {
    place.as_os_str().as_encoded_bytes().starts_with(SCHEME.as_bytes())
}

/// The parts of a place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServedPlace {
    /// The server's address, as HOST:PORT.
    pub address: String,
    /// The store, or the exported directory.
    pub volume: StoreId,
    /// The number of the member.
    pub member: u16,
}

impl ServedPlace {
    /// Reads a place.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for a text that is not such a place.
    pub fn parse(place: &Path) -> Result<Self> {
        let read = || {
            let (address, rest) = place.to_str()?.strip_prefix(SCHEME)?.split_once('/')?;
            let (volume, member) = rest.split_once('/')?;
            let is_number = |text: &str| {
                text == "0" || !text.starts_with('0') && text.bytes().all(|it| it.is_ascii_digit())
            };
            let member = member.parse().ok().filter(|_| is_number(member))?;
            let volume = StoreId::from_hex(volume)?;
            is_address(address).then(|| ServedPlace { address: address.to_owned(), volume, member })
        };
        read().ok_or_else(|| {
            Error::new(Kind::Usage, "this is not a place behind a pinstripe server")
                .at(place)
                .advice("name the join string that 'pinstripe token add' printed on the server")
        })
    }

    /// The place as a path.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(self.to_string())
    }
}

impl fmt::Display for ServedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}", self.address, self.volume, self.member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_others_refused() {
        let place = ServedPlace {
            address: "[::1]:7473".to_owned(),
            volume: StoreId([0xab; 16]),
            member: 12,
        };
        assert_eq!(ServedPlace::parse(&place.path()).unwrap(), place);
        let volume = place.volume;
        for wrong in [
            format!("pst://a:1/{volume}"),
            format!("pst://a:1/{volume}/"),
            format!("pst://a:1/{volume}/01"),
            format!("pst://a:1/{volume}/-1"),
            format!("pst://a:1/{volume}/65536"),
            format!("pst://a:1/{volume}/1/2"),
            format!("pst://a/{volume}/1"),
            format!("http://a:1/{volume}/1"),
            "pst://a:1/short/1".to_owned(),
        ] {
            let error = ServedPlace::parse(Path::new(&wrong)).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{wrong}");
        }
    }
}
