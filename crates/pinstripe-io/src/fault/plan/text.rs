//! Plans of faults as people write them, read and written. The table of keys stands above.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Effect, Fault, Operation, Plan, Target};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::parse_size;

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
pub(super) const MAX_ERROR: i32 = 4095;

fn usage(what: String, advice: &str) -> Error {
    Error::new(Kind::Usage, what).advice(advice)
}

/// Finds a value by its name, or says which names there are.
fn choose<T: Copy>(key: &str, value: &str, known: &[(T, &str)]) -> Result<T> {
    let found = known.iter().find(|(_, name)| name.eq_ignore_ascii_case(value));
    found.map(|(it, _)| *it).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(_, name)| *name).collect();
        usage(
            format!("'{value}' is not a known {key} for a fault"),
            &format!("one of {}", names.join(", ")),
        )
    })
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| {
        usage(format!("'{value}' is not a number for the fault's {key}"), "write a whole number")
    })
}

fn chance(value: &str) -> Result<f64> {
    match value.parse() {
        Ok(chance) if (0.0..=1.0).contains(&chance) => Ok(chance),
        _ => Err(usage(
            format!("'{value}' is not a probability"),
            "write a number from 0 to 1, for example 0.01",
        )),
    }
}

fn delay(value: &str) -> Result<Duration> {
    let bad = || {
        usage(format!("'{value}' is not a delay"), "write a delay, for example 100us, 5ms or 2s")
    };
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
            0 => {
                return Err(usage(
                    "with a rate of 0, the operation would never end".to_owned(),
                    "write rate=50M",
                ));
            }
            rate => Effect::Rate(rate),
        },
        "torn" => Effect::Torn(parse_size(value)?),
        "lost" => choose(key, value, &[(Effect::Lost, "yes")])?,
        "flip" => Effect::Flip(number(key, value)?),
        "short" => Effect::Short(parse_size(value)?),
        "hang" => choose(key, value, &[(Effect::Hang, "yes")])?,
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
                let what =
                    format!("'{pair}' in the fault '{text}' does not have the form key=value");
                return Err(usage(what, "write a fault, for example op=append,after=10,error=EIO"));
            };
            let (key, value) = (key.trim(), value.trim());
            if seen.contains(&key) {
                return Err(usage(
                    format!("the fault '{text}' has {key} twice"),
                    "give it only once",
                ));
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
                        let what = format!("a fault cannot have the key '{key}'");
                        return Err(usage(
                            what,
                            "the keys are op, member, room, after, times, chance, seed, and one of \
                             error, delay, rate, torn, lost, flip, short, hang",
                        ));
                    }
                },
            }
        }
        fault.effect = found.ok_or_else(|| {
            let what = format!("the fault '{text}' has no effect");
            usage(what, "add one of error, delay, rate, torn, lost, flip, short, hang")
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
            Effect::Hang => f.write_str("hang=yes"),
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
