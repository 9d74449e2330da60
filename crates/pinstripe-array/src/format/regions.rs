//! The state of a region, which is the part of a member that one page of checksums covers.
//!
//! ```text
//! 2 bytes: bits 0 and 1: 0 unwritten, 1 clean, 2 dirty
//!          bit 2: written since a member went away, which lacks it
//!          bits 3 to 15: version of the page, as it was last written
//! ```
//!
//! A page is written before the map says so. A power cut may therefore leave some leaves at a
//! version ahead of the one in the map, but never behind it: a leaf that is behind proves that the
//! disk lost a write.

use super::sector::{CONTENT_BYTES, SectorContent};
pub use super::version::Version;

/// The number of regions that a sector of the map describes.
pub(crate) const SECTOR_REGIONS: usize = CONTENT_BYTES / 2;

/// The state of a region of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Region(u16);

const STATE: u16 = 3;
const CLEAN: u16 = 1;
const DIRTY: u16 = 2;
const BEHIND: u16 = 4;
const VERSION_SHIFT: u32 = 3;

impl Region {
    /// The region was never written: it has no checksums, and reads as zeros.
    pub(crate) const UNWRITTEN: Region = Region(0);

    /// Whether the region was ever written.
    pub fn is_written(self) -> bool {
        self.0 & STATE != 0
    }

    /// Whether the region has writes in progress that are in no log.
    pub fn is_dirty(self) -> bool {
        self.0 & STATE == DIRTY
    }

    /// Whether a member that is away may lack the content of the region.
    pub fn is_behind(self) -> bool {
        self.0 & BEHIND != 0
    }

    /// The region, marked as never written.
    #[must_use]
    pub(crate) fn unwritten(self) -> Self {
        Region(self.0 & !STATE)
    }

    /// The version of the region's page of checksums.
    pub fn version(self) -> Version {
        Version(self.0 >> VERSION_SHIFT)
    }

    /// The region with another version of its page.
    #[must_use]
    pub fn at(self, version: Version) -> Self {
        Region(self.0 & (STATE | BEHIND) | version.0 << VERSION_SHIFT)
    }

    /// With something written.
    #[must_use]
    pub fn written(self) -> Self {
        if self.is_written() { self } else { Region(self.0 | CLEAN) }
    }

    /// The region, marked as being written.
    #[must_use]
    pub fn dirty(self) -> Self {
        Region(self.0 & !STATE | DIRTY)
    }

    /// The region, marked as not being written any more.
    #[must_use]
    pub fn clean(self) -> Self {
        if self.is_dirty() { Region(self.0 & !STATE | CLEAN) } else { self }
    }

    /// The region, with or without the note that a member which is away may lack its content.
    #[must_use]
    pub fn behind(self, is_behind: bool) -> Self {
        Region(self.0 & !BEHIND | if is_behind { BEHIND } else { 0 })
    }
}

/// The content of a sector of the map: at most [`SECTOR_REGIONS`] regions.
pub fn encode(regions: &[Region]) -> SectorContent {
    let mut out = [0; CONTENT_BYTES];
    for (to, region) in out.as_chunks_mut::<2>().0.iter_mut().zip(regions) {
        *to = region.0.to_le_bytes();
    }
    out
}

/// Reads the content of a sector of the map back.
pub fn decode(content: &SectorContent) -> [Region; SECTOR_REGIONS] {
    let mut regions = [Region::UNWRITTEN; SECTOR_REGIONS];
    for (region, bytes) in regions.iter_mut().zip(content.as_chunks::<2>().0) {
        *region = Region(u16::from_le_bytes(*bytes));
    }
    regions
}

#[cfg(test)]
mod tests {
    use super::super::version::VERSIONS;
    use super::*;

    #[test]
    fn note_state_and_version_do_not_meet() {
        for (note, version) in [(false, Version(0)), (true, Version(VERSIONS - 1))] {
            let region = Region::UNWRITTEN.behind(note).at(version);
            assert!(!region.is_written() && !region.is_dirty());
            let dirty = region.dirty();
            assert!(dirty.is_written() && dirty.is_dirty());
            let clean = dirty.written().clean();
            assert!(clean.is_written() && !clean.is_dirty());
            assert_eq!(region.written(), clean);
            assert!([region, dirty, clean].iter().all(|region| region.is_behind() == note));
            assert!([region, dirty, clean].iter().all(|region| region.version() == version));
            assert_eq!(clean.at(version.plus(1)).at(version), clean);
        }
        assert_eq!(
            Region::UNWRITTEN.written().behind(true).unwritten().behind(false),
            Region::UNWRITTEN
        );
        assert_eq!(Region::UNWRITTEN.behind(true).behind(false), Region::UNWRITTEN);
    }

    #[test]
    fn a_sector_of_regions_comes_back() {
        let region = |n: usize| Region(n as u16 * 257);
        let regions: [Region; SECTOR_REGIONS] = std::array::from_fn(region);
        assert_eq!(decode(&encode(&regions)), regions);
        assert_eq!(decode(&encode(&regions[..3]))[3], Region::UNWRITTEN);
    }

    #[test]
    fn versions_begin_again_after_the_last_one() {
        let last = Version(VERSIONS - 1);
        assert_eq!(last.plus(1), Version(0));
        assert_eq!((last.plus(3).since(last), last.since(last.plus(3))), (3, VERSIONS - 3));
        assert!(last.or_ahead().eq((0..=Version::AHEAD_MAX).map(|later| last.plus(later))));
        assert!(!last.or_ahead().any(|it| it == Version(VERSIONS - 2)), "none that is behind");
    }
}
