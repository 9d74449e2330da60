//! Options that all verbs share, and the types of options. The options of each verb are in the file
//! of that verb.
//!
//! Values are also parsed here, so that an invalid one is refused before anything begins.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use pinstripe::MEMORY_DEFAULT_BYTES;
use pinstripe_base::error::{Error, Kind};
use pinstripe_base::units::{MIB, parse_size};
use pinstripe_io::fault::{Fault, Plan};

use crate::credential::CredentialArgs;
pub use crate::values::{Size, one_line, rate, size};

/// With less memory than this, there is no room for a strip, a record and a window at the same
/// time.
const MEMORY_MIN_BYTES: u64 = 64 * MIB;
/// No machine has more processors than this number of threads.
const THREADS_MAX: u64 = 1024;

/// A disk that spins up takes some ten seconds; a member that does not answer for longer is
/// considered broken.
const MEMBER_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// The option of verbs that can search the snapshots of all hosts.
#[derive(clap::Args)]
pub struct AllHosts {
    /// Include the snapshots of all hosts; 'latest' then means the latest of all of them
    ///
    /// For a store behind a server, the shared catalog of the server is searched. If the server has
    /// none, the catalog file of this host is searched; this file has only the snapshots that the
    /// token of this host may see. A token that may not see other hosts is
    /// refused by a shared catalog (exit code 22).
    #[arg(long)]
    pub all_hosts: bool,
}

/// Options of every verb.
#[derive(clap::Args)]
#[command(next_help_heading = "Options of every verb")]
pub struct Common {
    /// The store, given by any one of its members (a directory or s3://BUCKET/PREFIX), or by its
    /// name in the config file
    ///
    /// One member is enough for --store, because pinstripe finds the other members of the store
    /// through this member. If --store is given several times, pinstripe tries each given
    /// directory, and then the members that this host has recorded, until the store can be opened.
    /// A value without a slash is the name of a store if the config file defines a store of this
    /// name. Default: the environment variable PINSTRIPE_STORE (directories separated by ':'), or
    /// else 'default-store' in the config file, or else $XDG_DATA_HOME/pinstripe/store or
    /// ~/.local/share/pinstripe/store.
    #[arg(long, global = true, value_name = "DIR|NAME", value_hint = clap::ValueHint::DirPath)]
    pub store: Vec<PathBuf>,

    /// Open a store that is not encrypted, although an encrypted store is expected
    ///
    /// Without --i-know-it-is-plain, pinstripe refuses an unencrypted store (exit code 19) in three
    /// cases: a password or key file is given for the store; this host has opened the same store
    /// when it was encrypted; or this host has opened another, encrypted store in the same place.
    /// An attacker who can write to the members could replace an encrypted store by an unencrypted
    /// store, in order to read the next backup. With --i-know-it-is-plain, this host records that
    /// the user has accepted the unencrypted store.
    #[arg(long, global = true, hide_short_help = true)]
    pub i_know_it_is_plain: bool,

    /// Path of the config file
    ///
    /// Default: the path in the environment variable PINSTRIPE_CONFIG, or else
    /// $XDG_CONFIG_HOME/pinstripe/config.toml or ~/.config/pinstripe/config.toml, if this file
    /// exists.
    #[arg(long, global = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// Read default values of options from this file, which 'pinstripe lab tune' can create
    ///
    /// Default: the file that the key 'knobs' in the config file names, if the config file has this
    /// key.
    #[arg(long, global = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub knobs: Option<PathBuf>,

    /// Where buckets are.
    #[cfg(feature = "s3")]
    #[command(flatten)]
    pub buckets: crate::bucket_args::BucketArgs,

    /// Options for the key of an encrypted store.
    #[command(flatten)]
    pub key: CredentialArgs,

    /// Print only JSON lines on standard output
    ///
    /// Each line is one JSON object with the key "event"; the last line is the summary, even if the
    /// command fails. Human-readable messages are still printed on standard error.
    #[arg(long, global = true)]
    pub json: bool,

    /// Print problems and requested output, but no summaries or notes
    #[arg(long, short, global = true)]
    pub quiet: bool,

    /// List each entry with what was done: new, changed, unchanged, restored or removed
    ///
    /// 'backup' and 'restore' list entries. With 'array detail --scan' and 'array examine --scan',
    /// --verbose also prints the level and the devices in ARRAY lines, as mdadm does. Other verbs
    /// ignore it.
    #[arg(long, short, global = true, hide_short_help = true)]
    pub verbose: bool,

    /// Append all messages, with the time, to this file, which only its owner can read
    ///
    /// The file also gets the lines that --quiet suppresses.
    #[arg(long, global = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath,
          hide_short_help = true)]
    pub log_file: Option<PathBuf>,

    /// Begin each message on standard error with the time
    ///
    /// If standard error is the journal of systemd, each message has its priority instead.
    #[arg(long, global = true, hide_short_help = true)]
    pub time_stamps: bool,

    /// Do not draw a progress bar
    ///
    /// The progress bar is never drawn if standard error is not a terminal.
    #[arg(long, global = true)]
    pub no_progress: bool,

    /// Memory for buffers and queues, for example 256M or 1G
    ///
    /// The minimum of --memory is 64M. With more memory, more processors can work at the same time.
    #[arg(long, global = true, value_name = "SIZE", value_parser = memory,
          default_value_t = Size(MEMORY_DEFAULT_BYTES))]
    pub memory: Size,

    /// Number of threads that hash and compress data [default: one per processor]
    #[arg(long, global = true, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    pub threads: Option<u64>,

    /// Time limit for each operation on a member, for example 30s or 2m; a member that exceeds it
    /// counts as failed [default: 30s; for 'serve': 10s]
    ///
    /// The time limit of an operation that transfers data is one second longer for each MiB. A
    /// member that exceeds the time limit is reported once, and the command does not use it again.
    #[arg(long, global = true, value_name = "TIME", value_parser = duration,
          hide_short_help = true)]
    pub member_timeout: Option<Time>,

    /// Do not use member N, as if this member were absent; may be given more than once
    ///
    /// N is the number of the member, which 'pinstripe members' shows. The directory of the member
    /// is not accessed.
    #[arg(long, global = true, value_name = "N", hide_short_help = true)]
    pub without_member: Vec<usize>,

    /// Make members or devices fail on purpose, to test how a system reacts to failures
    ///
    /// PLAN is a list of key=value pairs separated by commas. The keys of a PLAN are op, member,
    /// room, after, times, chance, seed, and one effect: error=EIO, delay=5ms, rate=50M, torn=SIZE,
    /// lost=yes, flip=BITS, short=SIZE or hang=yes. For members of a store, the key op has one of
    /// the values create, append, seal, put, read, len, list, delete, sync and any. For the devices
    /// of split, join and array, the key op has one of the values read, write, len, set_len, sync,
    /// discard and any. The key room limits a fault to one kind of stored object: packs, index,
    /// snapshots, keys or label. To plan several faults, separate them by ';' in one PLAN, or give
    /// --fault several times. Example: --fault op=append,member=1,after=10,error=EIO
    #[arg(long = "fault", global = true, value_name = "PLAN", value_parser = plan,
          hide_short_help = true)]
    pub faults: Vec<Plan>,
}

impl Common {
    /// All planned faults as one plan.
    pub fn fault_plan(&self) -> Plan {
        Plan { faults: self.faults.iter().flat_map(|plan| plan.faults.clone()).collect() }
    }

    /// All planned faults as one plan, for a verb that uses devices and no members of a store.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for an operation or a room that devices do not have, because a
    /// fault for it would never occur.
    pub fn device_faults(&self) -> Result<Plan, Error> {
        let plan = self.fault_plan();
        let is_foreign = |fault: &&Fault| {
            fault.target.is_some() || fault.operation.is_some_and(|it| !it.is_of_devices())
        };
        let Some(foreign) = plan.faults.iter().find(is_foreign).cloned() else { return Ok(plan) };
        let foreign = Plan { faults: vec![foreign] };
        let what = format!(
            "the fault '{foreign}' can never occur, because this verb uses devices, not members of \
             a store"
        );
        Err(Error::new(Kind::Usage, what).advice(
            "a fault of a device can have the operations read, write, len, set_len, sync, discard \
             and any; only a fault of a member can have a room",
        ))
    }

    /// The time limit for an operation on a member, of verbs that have no other default.
    pub fn member_timeout(&self) -> Duration {
        self.member_timeout.map_or(MEMBER_TIMEOUT_DEFAULT, |it| it.0)
    }
}

/// A time as it is written in an option: `30s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            millis if millis % 1000 > 0 => write!(f, "{millis}ms"),
            millis => write!(f, "{}s", millis / 1000),
        }
    }
}

/// Reads a [`duration`]; a number without a unit is seconds, as mdadm has it.
///
/// # Errors
/// Fails with the errors of [`duration`].
pub fn seconds_or_duration(text: &str) -> Result<Time, String> {
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => duration(&format!("{text}s")),
        false => duration(text),
    }
}

/// Reads a time: numbers, each followed by its unit, as in `1h30m`. A number may have a fraction,
/// as in `1.5s`.
pub fn duration(text: &str) -> Result<Time, String> {
    let wrong = || {
        "write a duration as a number with ms, s, m or h, for example 500ms, 1.5s, 30min or 1h30m"
            .to_owned()
    };
    let (mut rest, mut nanos) = (text, 0_u128);
    while !rest.is_empty() {
        let unit_at = rest.find(|it: char| !it.is_ascii_digit() && it != '.').ok_or_else(wrong)?;
        let (number, behind) = rest.split_at(unit_at);
        let unit_end = behind.find(|it: char| !it.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(unit_end);
        let unit: u128 = match unit {
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(wrong()),
        };
        nanos += nanos_of(number, unit).ok_or_else(wrong)?;
        rest = next;
    }
    // Whole milliseconds, and as many as a 64-bit number has.
    match u64::try_from(nanos / 1_000_000) {
        Ok(millis) if millis > 0 => Ok(Time(Duration::from_millis(millis))),
        _ => Err(wrong()),
    }
}

/// Converts a decimal number of units to nanoseconds; a unit has `unit` nanoseconds.
fn nanos_of(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number =
        |it: &str| (1..=18).contains(&it.len()) && it.bytes().all(|it| it.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let parts = fraction.parse::<u128>().ok()? * unit / 10_u128.pow(fraction.len() as u32);
    Some(whole.parse::<u128>().ok()? * unit + parts)
}

/// A part of a source: from one byte to an optional end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    start: u64,
    end: Option<u64>,
}

impl ByteRange {
    /// The byte range in a source of this length.
    pub fn resolve(self, source_bytes: u64) -> std::ops::Range<u64> {
        self.start..self.end.unwrap_or(source_bytes.max(self.start))
    }
}

/// Reads `A..B`, `A..` or `..B`, where A and B are sizes with the usual units.
pub fn range(text: &str) -> Result<ByteRange, String> {
    let wrong =
        || "write two sizes with '..' between them, for example 1G..2G or 4096..".to_owned();
    let (start, end) = text.split_once("..").ok_or_else(wrong)?;
    let bytes = |text: &str| parse_size(text).map_err(one_line);
    let start = if start.is_empty() { 0 } else { bytes(start)? };
    let end = if end.is_empty() { None } else { Some(bytes(end)?) };
    match end {
        Some(end) if end < start => Err("the range ends before it begins".to_owned()),
        end => Ok(ByteRange { start, end }),
    }
}

const TAG_MAX_BYTES: usize = 255;

/// Reads a tag, which is one word, so that a rule about tags can list several.
pub fn tag(text: &str) -> Result<String, String> {
    let is_odd = |c: char| c.is_control() || c.is_whitespace() || c == ',';
    if text.is_empty() || text.len() > TAG_MAX_BYTES || text.chars().any(is_odd) {
        return Err(format!(
            "a tag must be one word without commas, of at most {TAG_MAX_BYTES} bytes"
        ));
    }
    Ok(text.to_owned())
}

const COMMENT_MAX_BYTES: usize = 1000;

/// Reads a comment: one line of text.
pub fn comment(text: &str) -> Result<String, String> {
    if text.len() > COMMENT_MAX_BYTES || text.chars().any(char::is_control) {
        return Err(format!("a comment must be one line, of at most {COMMENT_MAX_BYTES} bytes"));
    }
    Ok(text.trim().to_owned())
}

/// Reads a point in time that has passed: a local time, or `@` and seconds since 1970.
pub fn past_time(text: &str) -> Result<i64, String> {
    let time = crate::time::parse(text)?;
    match time > pinstripe_base::clock::now().0 {
        true => Err("the time must not be in the future".to_owned()),
        false => Ok(time),
    }
}

fn memory(text: &str) -> Result<Size, String> {
    let size = size(text)?;
    if size.0 < MEMORY_MIN_BYTES {
        return Err(format!("the memory must be at least {}", Size(MEMORY_MIN_BYTES)));
    }
    Ok(size)
}

fn plan(text: &str) -> Result<Plan, String> {
    text.parse().map_err(one_line)
}

/// Parses a value whose type lists the accepted texts in its error.
///
/// # Errors
/// The error is the advice of the parser's error, on one line.
pub fn parsed<T: std::str::FromStr<Err = Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(one_line)
}

/// Refuses a global option where it has no effect, instead of ignoring it.
///
/// # Errors
/// Fails with [`Kind::Usage`] when the option is given.
pub fn refuse_option(is_given: bool, option: &str, instead: &str) -> Result<(), Error> {
    if !is_given {
        return Ok(());
    }
    Err(Error::new(Kind::Usage, format!("{option} does not apply to this verb")).advice(instead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_they_are_read() {
        for text in ["500ms", "30s", "7200s"] {
            assert_eq!(duration(text).unwrap().to_string(), text);
        }
        for (text, told) in
            [("2m", "120s"), ("30min", "1800s"), ("1h30m", "5400s"), ("1.5s", "1500ms")]
        {
            assert_eq!(duration(text).unwrap().to_string(), told);
        }
        for text in
            ["", "s", "30", "0s", "-1s", "1.s", ".5s", "1h30", "1d", "99999999999999999999s"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
        assert_eq!(seconds_or_duration("90").unwrap().to_string(), "90s");
        assert_eq!(seconds_or_duration("2m").unwrap().to_string(), "120s");
        assert!(seconds_or_duration("").is_err() && seconds_or_duration("0").is_err());
    }

    #[test]
    fn sizes_are_written_as_they_are_read() {
        for text in ["0", "1", "1000", "4K", "1536K", "256M", "1025M", "2G", "2048G"] {
            assert_eq!(size(text).unwrap().to_string(), text);
        }
        assert_eq!(memory("64M"), Ok(Size(MEMORY_MIN_BYTES)));
        assert!(memory("63M").unwrap_err().contains("at least 64M"));
    }
}
