//! The state of a region: what one page of the table of checksums speaks of.
//!
//! ```text
//! a byte: state, in the low bits: 0 unwritten, 1 clean, 2 dirty
//!         bit 7: written since a member went away, which lacks it
//! ```

/// What is known of a region of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Region(u8);

const STATE: u8 = 0x7f;
const CLEAN: u8 = 1;
const DIRTY: u8 = 2;
const BEHIND: u8 = 0x80;

impl Region {
    /// Nothing was ever written to it: it has no checksums, and reads as zeros.
    pub const UNWRITTEN: Region = Region(0);

    /// From what is stored.
    pub fn from_byte(byte: u8) -> Self {
        Region(byte)
    }

    /// As it is stored.
    pub fn to_byte(self) -> u8 {
        self.0
    }

    /// Whether anything was ever written to it.
    pub fn is_written(self) -> bool {
        self.0 & STATE != 0
    }

    /// Whether something was being written to it that no log tells of.
    pub fn is_dirty(self) -> bool {
        self.0 & STATE == DIRTY
    }

    /// Whether a member that is away may lack what it has.
    pub fn is_behind(self) -> bool {
        self.0 & BEHIND != 0
    }

    /// With nothing that counts.
    #[must_use]
    pub fn unwritten(self) -> Self {
        Region(self.0 & BEHIND)
    }

    /// With something written.
    #[must_use]
    pub fn written(self) -> Self {
        if self.is_written() { self } else { Region(self.0 | CLEAN) }
    }

    /// With something being written.
    #[must_use]
    pub fn dirty(self) -> Self {
        Region(self.0 & BEHIND | DIRTY)
    }

    /// With nothing being written any more.
    #[must_use]
    pub fn clean(self) -> Self {
        if self.is_dirty() { Region(self.0 & BEHIND | CLEAN) } else { self }
    }

    /// With a note that a member which is away may lack it, or without.
    #[must_use]
    pub fn behind(self, is_behind: bool) -> Self {
        Region(self.0 & STATE | if is_behind { BEHIND } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_and_a_state_do_not_meet() {
        for note in [false, true] {
            let region = Region::UNWRITTEN.behind(note);
            assert!(!region.is_written() && !region.is_dirty());
            let dirty = region.dirty();
            assert!(dirty.is_written() && dirty.is_dirty());
            let clean = dirty.written().clean();
            assert!(clean.is_written() && !clean.is_dirty());
            assert_eq!(region.written(), clean);
            assert!([region, dirty, clean].iter().all(|region| region.is_behind() == note));
            assert_eq!(Region::from_byte(clean.to_byte()), clean);
        }
        assert_eq!(
            Region::UNWRITTEN.written().behind(true).unwritten().behind(false),
            Region::UNWRITTEN
        );
        assert_eq!(Region::UNWRITTEN.behind(true).behind(false), Region::UNWRITTEN);
    }
}
