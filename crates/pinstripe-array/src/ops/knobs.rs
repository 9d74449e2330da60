//! The settings of an array that can be changed in use, by their names in md's sysfs.
//!
//! | name | value | kept |
//! |---|---|---|
//! | `stripe_size` | bytes of the granule, or `auto` | on the members |
//! | `stripe_cache_size` | bytes that may wait to be written | in the register |
//! | `rmw_level` | 0, 1 or 2, as md has it | in the register |
//! | `sync_speed_min` | KiB/s of each member, or with a unit; `max`: no limit | in the register |
//! | `sync_speed_max` | the same | in the register |
//! | `write_deadline` | milliseconds that a write may wait for its neighbours | in the register |
//! | `sync_action` | `check`, `repair`, `idle` | it is begun, or ended |
//!
//! All other names can only be read.

use std::collections::BTreeMap;
use std::time::Duration;

use super::detail::Detail;
use crate::plan::RmwLevel;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::{KIB, parse_size};

/// A knob together with its new value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knob {
    /// The granule; `None` follows the size of the requests.
    Granule(Option<u32>),
    /// Bytes that may wait to be written.
    CacheBytes(u64),
    /// When parity is updated by the difference (read-modify-write).
    Rmw(RmwLevel),
    /// The least rate of pending work while the array is in use, in bytes per second.
    SpeedMin(u64),
    /// The rate of pending work while the array is not in use, in bytes per second.
    SpeedMax(u64),
    /// How long a row may gather writes.
    Deadline(Duration),
    /// Begins a check of the entire array; repairs if true.
    Scrub(bool),
    /// Ends the work in progress.
    Idle,
}

/// Names of all knobs, for messages.
const NAMES: &str = "stripe_size, stripe_cache_size, rmw_level, sync_speed_min, sync_speed_max, \
                     write_deadline, sync_action";
const GRANULE_MIN: u64 = 4 * KIB;
const GRANULE_MAX: u64 = 1024 * KIB;

impl Knob {
    /// Reads a knob.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for an unknown or read-only name, or an invalid value.
    pub fn parse(name: &str, value: &str) -> Result<Self> {
        let bad = |expected: &str| {
            Error::new(Kind::Usage, format!("the setting {name} cannot have the value '{value}'"))
                .expected(expected, value)
        };
        match name {
            "stripe_size" if value == "auto" => Ok(Knob::Granule(None)),
            "stripe_size" => {
                let bytes = parse_size(value)?;
                let is_granule =
                    bytes.is_power_of_two() && (GRANULE_MIN..=GRANULE_MAX).contains(&bytes);
                match is_granule {
                    true => Ok(Knob::Granule(Some(bytes as u32))),
                    false => Err(bad("auto, or a power of two from 4K to 1M")),
                }
            }
            "stripe_cache_size" => Ok(Knob::CacheBytes(parse_size(value)?)),
            "rmw_level" => {
                let number = value.parse().map_err(|_| bad("0, 1 or 2"))?;
                RmwLevel::from_number(number).map(Knob::Rmw)
            }
            "sync_speed_min" => speed(value).map(Knob::SpeedMin),
            "sync_speed_max" => speed(value).map(Knob::SpeedMax),
            "write_deadline" => {
                let millis = value.parse().map_err(|_| bad("a number of milliseconds"))?;
                Ok(Knob::Deadline(Duration::from_millis(millis)))
            }
            "sync_action" => match value {
                "check" => Ok(Knob::Scrub(false)),
                "repair" => Ok(Knob::Scrub(true)),
                "idle" | "frozen" => Ok(Knob::Idle),
                _ => Err(bad("check, repair or idle")),
            },
            _ if READ_ONLY.contains(&name) => {
                Err(Error::new(Kind::Usage, format!("the setting {name} is read-only"))
                    .advice(format!("the settings that can be changed are {NAMES}")))
            }
            _ => Err(Error::new(Kind::Usage, format!("there is no setting '{name}'"))
                .advice(format!("the settings that can be changed are {NAMES}"))),
        }
    }

    /// Whether the register has to store this setting.
    pub fn is_kept(self) -> bool {
        !matches!(self, Knob::Granule(_) | Knob::Scrub(_) | Knob::Idle)
    }
}

/// Reads a speed in md's form: a number without a unit counts KiB/s.
fn speed(value: &str) -> Result<u64> {
    if value == "max" {
        return Ok(u64::MAX);
    }
    let bytes = parse_size(value)?;
    let is_bare = value.bytes().all(|byte| byte.is_ascii_digit());
    Ok(if is_bare { bytes.saturating_mul(KIB) } else { bytes })
}

/// Formats a speed; parsing the text gives the same speed.
pub(crate) fn speed_text(bytes: u64) -> String {
    match bytes {
        u64::MAX => "max".to_owned(),
        _ if bytes.is_multiple_of(KIB) => (bytes / KIB).to_string(),
        _ => format!("{bytes}B"),
    }
}

/// Knobs that can only be read.
const READ_ONLY: [&str; 11] = [
    "array_state",
    "chunk_size",
    "component_size",
    "consistency_policy",
    "degraded",
    "layout",
    "level",
    "metadata_version",
    "mismatch_cnt",
    "raid_disks",
    "sync_completed",
];

/// Checks that a name is that of a readable knob.
///
/// # Errors
/// Fails with [`Kind::Usage`].
pub fn check_name(name: &str) -> Result<()> {
    if READ_ONLY.contains(&name) || NAMES.split(", ").any(|known| known == name) {
        return Ok(());
    }
    Err(Error::new(Kind::Usage, format!("there is no setting '{name}'")).advice(format!(
        "the settings that can be changed are {NAMES}; the read-only settings are {}",
        READ_ONLY.join(", ")
    )))
}

/// The values of all readable knobs, by md's names and in md's units.
pub fn values(detail: &Detail) -> BTreeMap<String, String> {
    const SECTOR_BYTES: u64 = 512;
    const BLOCK_SECTORS: u64 = 8;
    let array_state = match (&detail.served, detail.is_clean) {
        (None, _) => "clear",
        (Some(_), true) => "clean",
        (Some(_), false) => "active",
    };
    let work = detail.work.as_ref();
    let completed = work.map(|work| {
        format!("{} / {}", work.done_bytes / SECTOR_BYTES, work.all_bytes / SECTOR_BYTES)
    });
    let read_only = [
        array_state.to_owned(),
        detail.chunk_bytes.to_string(),
        (detail.member_bytes / KIB).to_string(),
        detail.consistency.clone(),
        detail.degraded().to_string(),
        detail.layout.clone(),
        detail.level.clone(),
        detail.metadata.clone(),
        (detail.mismatches * BLOCK_SECTORS).to_string(),
        detail.slots.len().to_string(),
        completed.unwrap_or_else(|| "none".to_owned()),
    ];
    let mut values = detail.settings.clone();
    values.extend(READ_ONLY.into_iter().map(str::to_owned).zip(read_only));
    let action = work.map_or("idle", |work| &work.kind);
    values.insert("sync_action".to_owned(), action.to_owned());
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::detail::testing::detail;

    #[test]
    fn knobs_are_read_as_md_has_them() {
        for (name, value, knob) in [
            ("stripe_size", "auto", Knob::Granule(None)),
            ("stripe_size", "16384", Knob::Granule(Some(16384))),
            ("stripe_size", "1M", Knob::Granule(Some(1 << 20))),
            ("stripe_cache_size", "64M", Knob::CacheBytes(64 << 20)),
            ("rmw_level", "0", Knob::Rmw(RmwLevel::Never)),
            ("sync_speed_min", "1000", Knob::SpeedMin(1_024_000)),
            ("sync_speed_max", "1M", Knob::SpeedMax(1 << 20)),
            ("sync_speed_max", "max", Knob::SpeedMax(u64::MAX)),
            ("write_deadline", "20", Knob::Deadline(Duration::from_millis(20))),
            ("sync_action", "repair", Knob::Scrub(true)),
            ("sync_action", "idle", Knob::Idle),
        ] {
            assert_eq!(Knob::parse(name, value).unwrap(), knob, "{name}={value}");
        }
    }

    #[test]
    fn what_is_no_knob_or_no_value_is_refused() {
        for (name, value) in [
            ("stripe_size", "6000"),
            ("stripe_size", "2048"),
            ("stripe_size", "2M"),
            ("rmw_level", "3"),
            ("rmw_level", "x"),
            ("sync_action", "resync"),
            ("write_deadline", "-1"),
            ("degraded", "0"),
            ("frobnicate", "1"),
        ] {
            assert_eq!(Knob::parse(name, value).unwrap_err().kind(), Kind::Usage, "{name}");
        }
    }

    #[test]
    fn speeds_are_written_as_they_are_read() {
        for bytes in [0, 1, 1023, 1024, 1 << 30, u64::MAX] {
            assert_eq!(speed(&speed_text(bytes)).unwrap(), bytes);
        }
    }

    #[test]
    fn everything_can_be_read() {
        let values = values(&detail());
        for name in READ_ONLY {
            assert!(values.contains_key(name), "{name}");
        }
        assert_eq!((&*values["degraded"], &*values["sync_action"]), ("0", "idle"));
    }
}
