//! Facts about a member, found by tests when it joined, because endpoints do not always do what
//! they advertise. The table of members stores the facts, so that all hosts use the same ones.

use pinstripe_base::error::Result;
use pinstripe_base::wire::{Reader, Writer};

/// An ability that a remote member has or lacks. The numbers of the abilities are bit numbers, and
/// are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MemberAbility {
    /// If several writers create the same object concurrently, exactly one succeeds.
    CreateIfAbsent = 0,
    /// A listing shows every object that was put before it.
    ListAfterPut = 1,
    /// A listing omits every object that was deleted before it.
    ListAfterDelete = 2,
    /// The end of an object can be read without knowing the object's length.
    RangesFromTheEnd = 3,
    /// A deleted or replaced object is kept as an old version.
    Versions = 4,
    /// Objects can be put with a lock that prevents their deletion for some time.
    ObjectLock = 5,
}

impl MemberAbility {
    /// All abilities that this program knows.
    pub const ALL: [MemberAbility; 6] = [
        MemberAbility::CreateIfAbsent,
        MemberAbility::ListAfterPut,
        MemberAbility::ListAfterDelete,
        MemberAbility::RangesFromTheEnd,
        MemberAbility::Versions,
        MemberAbility::ObjectLock,
    ];

    /// The name of the ability in tables and events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            MemberAbility::CreateIfAbsent => "create-if-absent",
            MemberAbility::ListAfterPut => "list-after-put",
            MemberAbility::ListAfterDelete => "list-after-delete",
            MemberAbility::RangesFromTheEnd => "ranges-from-the-end",
            MemberAbility::Versions => "versions",
            MemberAbility::ObjectLock => "object-lock",
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u8
    }
}

/// The lock of objects on a member against deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How long an object is locked after it was put, in seconds.
    pub seconds: u32,
    /// If true, no account can delete a locked object. If false, accounts with a special permission
    /// can delete a locked object.
    pub is_compliance: bool,
}

/// The facts about a member. By default there are no facts: directories have none, nor have members
/// that joined before facts were stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberFacts {
    tried: u32,
    able: u32,
    /// The time for which objects that are put on the member cannot be deleted.
    pub retention: Option<Retention>,
}

impl MemberFacts {
    /// Whether the member has this ability; `None` if that was not tested.
    #[must_use]
    pub fn knows(&self, ability: MemberAbility) -> Option<bool> {
        (self.tried & ability.bit() != 0).then_some(self.able & ability.bit() != 0)
    }

    /// Returns the same facts with the result of a test of this ability added.
    #[must_use]
    pub fn with(mut self, ability: MemberAbility, is_there: bool) -> Self {
        self.tried |= ability.bit();
        self.able &= !ability.bit();
        self.able |= if is_there { ability.bit() } else { 0 };
        self
    }

    /// Returns the facts that remain true for a member that was found in another place: its
    /// retention, and that only one writer at a time may use it.
    #[must_use]
    pub fn elsewhere(self) -> Self {
        let moved = MemberFacts { retention: self.retention, ..MemberFacts::default() };
        match self.has_one_writer() {
            true => moved.with(MemberAbility::CreateIfAbsent, false),
            false => moved,
        }
    }

    /// Whether the member's endpoint lets several writers create the same object, so that only one
    /// writer may write at a time.
    #[must_use]
    pub fn has_one_writer(&self) -> bool {
        self.knows(MemberAbility::CreateIfAbsent) == Some(false)
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        let (seconds, mode) = match self.retention {
            None => (0, 0),
            Some(Retention { seconds, is_compliance }) => (seconds, 1 + u8::from(is_compliance)),
        };
        writer.u32(self.tried).u32(self.able).u32(seconds).u8(mode);
    }

    /// Bits that this program does not know are kept: a later version may have tested more
    /// abilities.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let (tried, able) = (reader.u32()?, reader.u32()?);
        let (seconds, mode) = (reader.u32()?, reader.u8()?);
        let retention = match (seconds, mode) {
            (0, 0) => None,
            (1.., 1 | 2) => Some(Retention { seconds, is_compliance: mode == 2 }),
            _ => {
                return Err(
                    reader.corrupt("the label records an impossible retention for a member")
                );
            }
        };
        if able & !tried != 0 {
            return Err(
                reader.corrupt("the label records an ability of a member that was not tested")
            );
        }
        Ok(MemberFacts { tried, able, retention })
    }
}
