//! What is to go wrong, where and when, and how people write it.
//!
//! Text form: faults separated by `;`, each a list of `key=value` separated by `,`:
//!
//! | key | value | meaning |
//! |---|---|---|
//! | `op` | `create append seal put read len list delete sync any` | which calls (default `any`) |
//! | `member` | number | the store's member (default all) |
//! | `room` | `packs index snapshots keys label` | extents of this room only |
//! | `after` | count | lets so many matching calls pass first |
//! | `times` | count | then strikes so often (default: always) |
//! | `chance` | 0 to 1 | strikes a matching call with this probability |
//! | `seed` | number | for `chance` and for the places of flipped bits |
//! | `error` | `EIO`, `ENOSPC`, `5` ... | the call fails |
//! | `delay` | `5ms`, `2s`, `100us` | the call takes longer |
//! | `rate` | `50M` | all matching calls together move so many bytes per second |
//! | `torn` | size | only the first bytes of an append or put arrive; success is reported |
//! | `lost` | `yes` | an append or put does nothing; success is reported |
//! | `flip` | count | so many bits are wrong in what is read or written |
//! | `short` | size | a read ends after so many bytes |
//!
//! Exactly one of the last seven. Example: `op=append,member=2,after=10,error=EIO`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Kind, Result};
use crate::member::{ExtentName, Room};
use crate::units::parse_size;

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
    /// How many calls are struck; `None` is no end.
    pub times: Option<u64>,
    /// Probability that a matching call is struck.
    pub chance: f64,
    /// Decides about `chance` and where bits flip.
    pub seed: u64,
    /// What happens.
    pub effect: Effect,
}

/// The calls of the seam.
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
    /// `Member::read_at`
    Read,
    /// `Member::len`
    Len,
    /// `Member::list`
    List,
    /// `Member::delete`
    Delete,
    /// `Member::sync`
    Sync,
}

/// Which extents a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The member's label.
    Label,
    /// A room.
    Room(Room),
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It fails with this error number and is not made.
    Error(i32),
    /// It takes so much longer.
    Delay(Duration),
    /// Bytes per second that the matching calls together can move.
    Rate(u64),
    /// Only so many of the bytes arrive; success is reported.
    Torn(u64),
    /// Nothing arrives; success is reported.
    Lost,
    /// So many bits, in places chosen by the seed, are wrong.
    Flip(u32),
    /// A read ends after so many bytes.
    Short(u64),
}

impl Operation {
    /// Every operation with its name in the text form.
    pub const ALL: [(Operation, &'static str); 9] = [
        (Operation::Create, "create"),
        (Operation::Append, "append"),
        (Operation::Seal, "seal"),
        (Operation::Put, "put"),
        (Operation::Read, "read"),
        (Operation::Len, "len"),
        (Operation::List, "list"),
        (Operation::Delete, "delete"),
        (Operation::Sync, "sync"),
    ];

    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

impl Target {
    const ALL: [(Target, &'static str); 5] = [
        (Target::Room(Room::Packs), "packs"),
        (Target::Room(Room::Index), "index"),
        (Target::Room(Room::Snapshots), "snapshots"),
        (Target::Room(Room::Keys), "keys"),
        (Target::Label, "label"),
    ];

    /// Where an extent belongs.
    pub fn of(name: ExtentName) -> Target {
        match name {
            ExtentName::Label => Target::Label,
            ExtentName::In(room, _) => Target::Room(room),
        }
    }
}

/// The error numbers that can be planned, by name.
const ERRORS: [(&str, i32); 16] = [
    ("EIO", libc::EIO),
    ("ENOSPC", libc::ENOSPC),
    ("EDQUOT", libc::EDQUOT),
    ("EROFS", libc::EROFS),
    ("EACCES", libc::EACCES),
    ("EPERM", libc::EPERM),
    ("ENOENT", libc::ENOENT),
    ("EEXIST", libc::EEXIST),
    ("ENODEV", libc::ENODEV),
    ("ENXIO", libc::ENXIO),
    ("ENOMEM", libc::ENOMEM),
    ("EMFILE", libc::EMFILE),
    ("EFBIG", libc::EFBIG),
    ("ESTALE", libc::ESTALE),
    ("ETIMEDOUT", libc::ETIMEDOUT),
    ("EREMOTEIO", libc::EREMOTEIO),
];

/// Linux has no larger error number.
const MAX_ERROR: i32 = 4095;

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

    /// Whether a call is one that this fault counts.
    pub(super) fn matches(&self, operation: Operation, target: Option<Target>) -> bool {
        let fits = match self.effect {
            Effect::Error(_) | Effect::Delay(_) => true,
            Effect::Rate(_) | Effect::Flip(_) => {
                matches!(operation, Operation::Append | Operation::Put | Operation::Read)
            }
            Effect::Torn(_) | Effect::Lost => {
                matches!(operation, Operation::Append | Operation::Put)
            }
            Effect::Short(_) => operation == Operation::Read,
        };
        fits && self.operation.is_none_or(|it| it == operation)
            && self.target.is_none_or(|it| Some(it) == target)
    }

    /// Refuses what could never strike.
    fn check(self) -> Result<Self> {
        if let Some(operation) = self.operation {
            let target = if operation == Operation::Sync { None } else { self.target };
            if !self.matches(operation, target) {
                return Err(Error::new(
                    Kind::Usage,
                    format!("the fault '{self}' can never strike {}", operation.name()),
                )
                .advice(
                    "flip and rate need append, put or read; torn and lost append or put; \
                         short read; sync has no room",
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

fn usage(what: String, advice: &str) -> Error {
    Error::new(Kind::Usage, what).advice(advice)
}

/// Finds a value by its name, or says which names there are.
fn choose<T: Copy>(key: &str, value: &str, known: &[(T, &str)]) -> Result<T> {
    let found = known.iter().find(|(_, name)| name.eq_ignore_ascii_case(value));
    found.map(|(it, _)| *it).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(_, name)| *name).collect();
        usage(format!("'{value}' is no {key} of a fault"), &format!("one of {}", names.join(", ")))
    })
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| {
        usage(format!("'{value}' is no number for the fault's {key}"), "write a whole number")
    })
}

fn chance(value: &str) -> Result<f64> {
    match value.parse() {
        Ok(chance) if (0.0..=1.0).contains(&chance) => Ok(chance),
        _ => Err(usage(format!("'{value}' is no chance"), "write a number from 0 to 1, as 0.01")),
    }
}

fn delay(value: &str) -> Result<Duration> {
    let bad = || usage(format!("'{value}' is no delay"), "write 100us, 5ms or 2s");
    let unit_at = value.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(bad)?;
    let (digits, unit) = value.split_at(unit_at);
    let amount = digits.parse().map_err(|_| bad())?;
    match unit {
        "us" => Ok(Duration::from_micros(amount)),
        "ms" => Ok(Duration::from_millis(amount)),
        "s" => Ok(Duration::from_secs(amount)),
        _ => Err(bad()),
    }
}

/// A key that names an effect; `None` for the others.
fn effect(key: &str, value: &str) -> Result<Option<Effect>> {
    Ok(Some(match key {
        "error" => match value.parse() {
            Ok(number @ 1..=MAX_ERROR) => Effect::Error(number),
            _ => {
                let known = ERRORS.map(|(name, number)| (number, name));
                Effect::Error(choose(key, value, &known)?)
            }
        },
        "delay" => Effect::Delay(delay(value)?),
        "rate" => match parse_size(value)? {
            0 => return Err(usage("a rate of 0 never ends".to_owned(), "write rate=50M")),
            rate => Effect::Rate(rate),
        },
        "torn" => Effect::Torn(parse_size(value)?),
        "lost" => choose(key, value, &[(Effect::Lost, "yes")])?,
        "flip" => Effect::Flip(number(key, value)?),
        "short" => Effect::Short(parse_size(value)?),
        _ => return Ok(None),
    }))
}

impl FromStr for Fault {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut found = None;
        // The effect is known only at the end; until then any will do.
        let mut fault = Fault::always(Effect::Lost);
        let mut seen = Vec::new();
        for pair in text.split(',') {
            let Some((key, value)) = pair.split_once('=') else {
                let what = format!("'{pair}' in the fault '{text}' is not key=value");
                return Err(usage(what, "write it as in op=append,after=10,error=EIO"));
            };
            let (key, value) = (key.trim(), value.trim());
            if seen.contains(&key) {
                return Err(usage(format!("the fault '{text}' names {key} twice"), "name it once"));
            }
            seen.push(key);
            match key {
                "op" if value == "any" => {}
                "op" => fault.operation = Some(choose("operation", value, &Operation::ALL)?),
                "member" => fault.member = Some(number(key, value)?),
                "room" => fault.target = Some(choose(key, value, &Target::ALL)?),
                "after" => fault.after_calls = number(key, value)?,
                "times" => fault.times = Some(number(key, value)?),
                "chance" => fault.chance = chance(value)?,
                "seed" => fault.seed = number(key, value)?,
                _ => match (effect(key, value)?, found) {
                    (Some(effect), None) => found = Some(effect),
                    (Some(_), Some(_)) => {
                        let what = format!("the fault '{text}' has two effects");
                        return Err(usage(what, "write two faults with ';' between them"));
                    }
                    (None, _) => {
                        let what = format!("a fault has no '{key}'");
                        return Err(usage(
                            what,
                            "op, member, room, after, times, chance, seed, and one of error, delay, rate, torn, lost, flip, short",
                        ));
                    }
                },
            }
        }
        fault.effect = found.ok_or_else(|| {
            let what = format!("the fault '{text}' does not say what happens");
            usage(what, "add one of error, delay, rate, torn, lost, flip, short")
        })?;
        fault.check()
    }
}

impl FromStr for Plan {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let faults = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        Ok(Plan { faults: faults.map(str::parse).collect::<Result<_>>()? })
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Error(number) => match ERRORS.iter().find(|(_, it)| it == number) {
                Some((name, _)) => write!(f, "error={name}"),
                None => write!(f, "error={number}"),
            },
            Effect::Delay(delay) => write!(f, "delay={}us", delay.as_micros()),
            Effect::Rate(rate) => write!(f, "rate={rate}"),
            Effect::Torn(bytes) => write!(f, "torn={bytes}"),
            Effect::Lost => f.write_str("lost=yes"),
            Effect::Flip(bits) => write!(f, "flip={bits}"),
            Effect::Short(bytes) => write!(f, "short={bytes}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op={}", self.operation.map_or("any", Operation::name))?;
        if let Some(member) = self.member {
            write!(f, ",member={member}")?;
        }
        if let Some((_, name)) = Target::ALL.iter().find(|(it, _)| Some(*it) == self.target) {
            write!(f, ",room={name}")?;
        }
        if self.after_calls > 0 {
            write!(f, ",after={}", self.after_calls)?;
        }
        if let Some(times) = self.times {
            write!(f, ",times={times}")?;
        }
        if self.chance != 1.0 {
            write!(f, ",chance={}", self.chance)?;
        }
        if self.seed != 0 {
            write!(f, ",seed={}", self.seed)?;
        }
        write!(f, ",{}", self.effect)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.faults.iter().enumerate() {
            let separator = if at == 0 { "" } else { ";" };
            write!(f, "{separator}{fault}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
