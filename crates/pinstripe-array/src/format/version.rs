//! The version of a page: a number that each write of the page increases.

/// The version of a page, which each write of the page increases. Versions count up, and start
/// again after the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Version(pub(super) u16);

pub(super) const VERSIONS: u16 = 1 << 13;

impl Version {
    /// The first version.
    pub const FIRST: Version = Version(0);
    /// The most versions that a leaf may be ahead of the map's version of its page.
    pub const AHEAD_MAX: u16 = 8;

    /// The version that is `later` steps after this one.
    #[must_use]
    pub fn plus(self, later: u16) -> Self {
        Version((self.0 + later % VERSIONS) % VERSIONS)
    }

    /// The number of versions since an earlier one.
    pub fn since(self, earlier: Self) -> u16 {
        (self.0 + VERSIONS - earlier.0) % VERSIONS
    }

    /// The versions that leaves may have if the map has this version, the likely one first.
    pub(crate) fn or_ahead(self) -> impl Iterator<Item = Version> {
        (0..=Self::AHEAD_MAX).map(move |later| self.plus(later))
    }

    /// The version as bytes, for the hash of a leaf.
    pub fn to_bytes(self) -> [u8; 2] {
        self.0.to_le_bytes()
    }
}
