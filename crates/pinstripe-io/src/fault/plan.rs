//! The plan of faults: what fails, where and when, and its text form.
//!
//! Text form: faults separated by `;`, each a list of `key=value` separated by `,`:
//!
//! | key | value | meaning |
//! |---|---|---|
//! | `op` | `create append seal put read len list delete sync any` | which calls (default `any`) |
//! | | of devices: `write read len set_len discard sync` | |
//! | `member` | number | the store's member, or the output of a split (default all) |
//! | `room` | `packs index snapshots keys label` | extents of this room only |
//! | `after` | count | lets this many matching calls pass first |
//! | `times` | count | then applies this many times (default: always) |
//! | `chance` | 0 to 1 | applies to a matching call with this probability |
//! | `seed` | number | for `chance` and for the places of flipped bits |
//! | `error` | `EIO`, `ENOSPC`, `5` ... | the call fails |
//! | `delay` | `5ms`, `2s`, `100us` | the call takes longer |
//! | `rate` | `50M` | all matching calls together move this many bytes per second |
//! | `torn` | size | only the first bytes of an append, put or write arrive; success is reported |
//! | `lost` | `yes` | an append, put or write does nothing; success is reported |
//! | `flip` | count | this many bits are wrong in the bytes read or written |
//! | `short` | size | a read ends after this many bytes |
//!
//! | `hang` | `yes` | the call never returns |
//!
//! Exactly one of the last eight. Example: `op=append,member=2,after=10,error=EIO`.

use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};

mod text;

/// A list of faults.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// All that match a call strike it, in this order.
    pub faults: Vec<Fault>,
}

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// Which calls; `None` is any.
    pub operation: Option<Operation>,
    /// Which member of the store; `None` is all. See [`Plan::for_member`].
    pub member: Option<u32>,
    /// Which extents; `None` is all.
    pub target: Option<Target>,
    /// Matching calls that pass before the first that is struck.
    pub after_calls: u64,
    /// The number of calls to strike; `None` is unlimited.
    pub times: Option<u64>,
    /// Probability that a matching call is struck.
    pub chance: f64,
    /// Decides about `chance` and where bits flip.
    pub seed: u64,
    /// The effect.
    pub effect: Effect,
}

/// The calls of the two seams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `Member::create`
    Create,
    /// `ExtentWriter::append`
    Append,
    /// `ExtentWriter::seal`
    Seal,
    /// `Member::put`
    Put,
    /// `Member::read_at`, `Device::read_at`
    Read,
    /// `Member::len`, `Device::len`
    Len,
    /// `Member::list`
    List,
    /// `Member::delete`
    Delete,
    /// `Member::sync`, `Device::sync`
    Sync,
    /// `Device::write_at`
    Write,
    /// `Device::set_len`
    SetLen,
    /// `Device::discard`
    Discard,
}

/// Which extents of a store's member a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Stripe sets of records.
    Packs,
    /// Runs of the index.
    Index,
    /// Snapshots.
    Snapshots,
    /// Keys and their slots.
    Keys,
    /// The member's label.
    Label,
}

/// The effect on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It fails with this error number and is not made.
    Error(i32),
    /// It takes so much longer.
    Delay(Duration),
    /// Bytes per second that the matching calls together can move.
    Rate(u64),
    /// Only this many bytes arrive; success is reported.
    Torn(u64),
    /// Nothing arrives; success is reported.
    Lost,
    /// This many bits, in places chosen by the seed, are wrong.
    Flip(u32),
    /// A read ends after this many bytes.
    Short(u64),
    /// The call never returns, as with a disk that does not answer any more.
    Hang,
}

impl Operation {
    /// Every operation with its name in the text form.
    pub const ALL: [(Operation, &'static str); 12] = [
        (Operation::Create, "create"),
        (Operation::Append, "append"),
        (Operation::Seal, "seal"),
        (Operation::Put, "put"),
        (Operation::Read, "read"),
        (Operation::Len, "len"),
        (Operation::List, "list"),
        (Operation::Delete, "delete"),
        (Operation::Sync, "sync"),
        (Operation::Write, "write"),
        (Operation::SetLen, "set_len"),
        (Operation::Discard, "discard"),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether it is given bytes to store.
    fn writes(self) -> bool {
        matches!(self, Operation::Append | Operation::Put | Operation::Write)
    }

    /// Whether devices have it: all others are operations of a store's members.
    pub fn is_of_devices(self) -> bool {
        use Operation::{Discard, Len, Read, SetLen, Sync, Write};
        matches!(self, Read | Write | Len | SetLen | Sync | Discard)
    }

    /// Whether it may be about an extent, which is in a room.
    fn has_room(self) -> bool {
        use Operation::{Discard, SetLen, Sync, Write};
        !matches!(self, Sync | Write | SetLen | Discard)
    }
}

impl Target {
    pub(super) const ALL: [(Target, &'static str); 5] = [
        (Target::Packs, "packs"),
        (Target::Index, "index"),
        (Target::Snapshots, "snapshots"),
        (Target::Keys, "keys"),
        (Target::Label, "label"),
    ];
}

impl Fault {
    /// A fault that strikes every call on everything.
    pub fn always(effect: Effect) -> Self {
        Fault {
            operation: None,
            member: None,
            target: None,
            after_calls: 0,
            times: None,
            chance: 1.0,
            seed: 0,
            effect,
        }
    }

    /// Whether this fault counts a call.
    pub(super) fn matches(&self, operation: Operation, target: Option<Target>) -> bool {
        let fits = match self.effect {
            Effect::Error(_) | Effect::Delay(_) | Effect::Hang => true,
            Effect::Rate(_) | Effect::Flip(_) => operation.writes() || operation == Operation::Read,
            Effect::Torn(_) | Effect::Lost => operation.writes(),
            Effect::Short(_) => operation == Operation::Read,
        };
        fits && self.operation.is_none_or(|it| it == operation)
            && self.target.is_none_or(|it| Some(it) == target)
    }

    /// Refuses what could never strike.
    fn check(self) -> Result<Self> {
        if let Some(operation) = self.operation {
            let target = self.target.filter(|_| operation.has_room());
            if !self.matches(operation, target) {
                return Err(Error::new(
                    Kind::Usage,
                    format!(
                        "the fault '{self}' can never occur for the operation {}",
                        operation.name()
                    ),
                )
                .advice(
                    "flip and rate need one of the operations append, put, write and read; torn \
                     and lost need append, put or write; short needs read; the operation sync and \
                     the operations of devices cannot have a room",
                ));
            }
        }
        Ok(self)
    }
}

impl Plan {
    /// The part of the plan that is about one member of the store.
    #[must_use]
    pub fn for_member(&self, number: u32) -> Plan {
        let about = |fault: &&Fault| fault.member.is_none_or(|it| it == number);
        Plan { faults: self.faults.iter().filter(about).cloned().collect() }
    }
}

#[cfg(test)]
mod tests;
