//! Decides whether a device may be overwritten: only if it is not in use, has no signature of a
//! known format, is blank, and the user has typed its serial number.
//!
//! A device without a known format that is not blank is accepted if the user says that it may be
//! overwritten anyway. No other objection can be overridden.
//!
//! Invariant: a property that cannot be determined is a reason to refuse. This module neither
//! writes nor prompts.

mod blank;
mod blkid;
mod openers;

use std::fmt;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pinstripe_array::signature;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::format_size;
use pinstripe_io::device::{Access, Device, FileDevice, Holder, Policy, holder, holder_besides};

use crate::fingerprint;

/// The findings about a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SafetyReport {
    /// The device.
    pub path: PathBuf,
    /// The serial number that the user has to type; for a loop device, the path of its file.
    pub serial: Option<String>,
    /// The length.
    pub bytes: u64,
    /// The reasons why the device must not be overwritten; empty if there is none.
    pub objections: Vec<Objection>,
    /// The offset of the first bytes that belong to no known format; `None` for a blank device.
    pub written_at: Option<u64>,
}

/// The user's statements about a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Consent<'a> {
    /// The serial number that the user typed.
    pub serial: Option<&'a str>,
    /// Whether bytes of an unknown format may be overwritten.
    pub overwrite_unknown: bool,
}

/// A reason why a device must not be overwritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objection {
    /// The path is not a block device, but a file, a directory or something else.
    NoBlockDevice,
    /// The device is read-only.
    ReadOnly,
    /// The device is mounted, used for swap, part of an array or a volume, or used by another
    /// device.
    InUse(String),
    /// The device has partitions, and all of its partitions are unused now.
    HasParts(String),
    /// The device below it is in use: the disk of a partition, by another partition or as a whole
    /// disk; or the file or device behind a loop device, by another process.
    WholeInUse(String, String),
    /// The device has a file system or a partition table, or is a member of an array or a volume.
    Carries(String),
    /// The disk that contains this partition has a signature of its own, for example of a file
    /// system on the whole disk, whose data extends into the partition.
    WholeCarries(String, String),
    /// The device has no serial number that the user could type.
    NoSerial,
    /// The device could not be examined.
    Unknown(String),
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Objection::NoBlockDevice => f.write_str("the path is not a block device"),
            Objection::ReadOnly => f.write_str("the device is read-only"),
            Objection::InUse(holder) => write!(f, "the device is {holder}"),
            Objection::HasParts(parts) => write!(f, "the device has the partitions {parts}"),
            Objection::WholeInUse(disk, holder) => {
                write!(f, "the underlying device {disk} is {holder}")
            }
            Objection::Carries(what) => write!(f, "the device contains {what}"),
            Objection::WholeCarries(disk, what) => {
                write!(f, "the disk {disk} of the device contains {what}")
            }
            Objection::NoSerial => f.write_str("the device has no serial number"),
            Objection::Unknown(why) => write!(f, "the device cannot be examined: {why}"),
        }
    }
}

impl Objection {
    /// Converts an objection to one about the device that contains this device, or that is below
    /// it.
    fn of(self, whole: &str) -> Objection {
        match self {
            Objection::InUse(holder) => Objection::WholeInUse(whole.to_owned(), holder),
            other => other,
        }
    }
}

/// The kernel's suffix for the name of a file that was removed.
const DELETED: &str = " (deleted)";

/// Examines a device without changing anything.
///
/// # Errors
/// [`Kind::NotFound`] if the path does not exist. Any other property that cannot be determined is
/// an objection.
pub fn examine(path: &Path) -> Result<SafetyReport> {
    let found =
        fs::metadata(path).map_err(|error| Error::of_named("cannot examine", path, error))?;
    let mut examined = SafetyReport {
        path: path.to_path_buf(),
        serial: None,
        bytes: 0,
        objections: Vec::new(),
        written_at: None,
    };
    if !found.file_type().is_block_device() {
        examined.objections.push(Objection::NoBlockDevice);
        return Ok(examined);
    }
    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    let sys = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"));
    examined.objections.extend(used(holder(path)));
    match sys {
        Ok(sys) => examined.look_at(&sys),
        Err(error) => examined.objections.push(Objection::Unknown(error.to_string())),
    }
    if examined.objections.is_empty() {
        examined.objections.extend(agreed(|| taken_now(path)));
        examined.objections.extend(agreed(|| opened_now(major, minor)));
        examined.read();
    }
    if examined.serial.is_none() {
        examined.objections.push(Objection::NoSerial);
    }
    Ok(examined)
}

impl SafetyReport {
    /// Reads the information about the device in sysfs.
    fn look_at(&mut self, sys: &Path) {
        let text = |name: &str| fs::read_to_string(sys.join(name)).unwrap_or_default();
        self.serial = fingerprint::serial_of(&self.path);
        if let Some(file) = loop_file(sys) {
            let name = sys.file_name().unwrap_or_default().to_string_lossy();
            // No process that starts now can open a file that has no name any more.
            if let Some(objection) = used(holder_besides(Path::new(&file), &name)) {
                let gone = matches!(objection, Objection::Unknown(_)) && file.ends_with(DELETED);
                self.objections.extend((!gone).then(|| objection.of(&file)));
            }
            self.serial = Some(file);
        }
        if text("ro").trim() != "0" {
            self.objections.push(Objection::ReadOnly);
        }
        let parts = parts(sys);
        if !parts.is_empty() {
            self.objections.push(Objection::HasParts(parts.join(", ")));
        }
        if sys.join("partition").exists() {
            match sys.parent().and_then(Path::file_name) {
                Some(name) => self.look_at_whole(&Path::new("/dev").join(name)),
                None => self
                    .objections
                    .push(Objection::Unknown("the disk of this partition is unknown".to_owned())),
            }
        }
    }

    /// Reads the same information for the disk that contains the partition, except for the
    /// partition table.
    fn look_at_whole(&mut self, disk: &Path) {
        let name = disk.display().to_string();
        self.objections.extend(used(holder(disk)).map(|objection| objection.of(&name)));
        let opened = fs::metadata(disk).ok().map(|it| it.rdev()).and_then(|number| {
            let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
            agreed(|| opened_now(major, minor))
        });
        self.objections.extend(opened.map(|objection| objection.of(&name)));
        match carried(disk) {
            Ok((_, Some(what))) if !what.contains("partition table") => {
                self.objections.push(Objection::WholeCarries(name, what));
            }
            Ok(_) => {}
            Err(error) => self.objections.push(Objection::Unknown(error.to_string())),
        }
    }

    /// Reads the signatures on the device.
    fn read(&mut self) {
        let found = carried(&self.path).and_then(|(bytes, what)| {
            self.bytes = bytes;
            match what {
                None => blkid::probe(&self.path),
                some => Ok(some),
            }
        });
        match found {
            Ok(None) => match self.look_for_bytes() {
                Ok(found) => self.written_at = found,
                Err(error) => self.objections.push(Objection::Unknown(error.to_string())),
            },
            Ok(what) => self.objections.extend(what.map(Objection::Carries)),
            Err(error) => self.objections.push(Objection::Unknown(error.to_string())),
        }
    }

    fn look_for_bytes(&self) -> Result<Option<u64>> {
        let device = FileDevice::open(&self.path, Access::Read, Policy::Buffered)?;
        blank::written_at(&device, self.bytes)
    }

    /// Accepts the device with the user's statements, if the program can still ask for a missing
    /// serial number; a given number must match the device.
    ///
    /// # Errors
    /// The errors of [`SafetyReport::allow`], except for a missing serial number.
    pub fn allow_to_ask(&self, consent: Consent<'_>) -> Result<()> {
        match consent.serial {
            Some(_) => self.allow(consent),
            None => self.allow_but_for_serial(consent),
        }
    }

    /// Accepts the device with the user's statements.
    ///
    /// # Errors
    /// [`Kind::Refused`] with every objection; if the device is not blank and may not be
    /// overwritten anyway; if the serial number is wrong or missing.
    pub fn allow(&self, consent: Consent<'_>) -> Result<()> {
        self.allow_but_for_serial(consent)?;
        match (consent.serial.map(str::trim), &self.serial) {
            (Some(typed), Some(serial)) if typed == serial.trim() => Ok(()),
            (Some(_), _) => self.refuse(
                "the serial number of this device differs from the given one",
                "check whether this is the intended device",
            ),
            (None, _) => self.refuse(
                "this device would be overwritten, so its serial number must be given",
                "look up the serial number with 'lsblk -o NAME,SIZE,SERIAL', and give it with \
                 --serial",
            ),
        }
    }

    fn allow_but_for_serial(&self, consent: Consent<'_>) -> Result<()> {
        if !self.objections.is_empty() {
            let why: Vec<String> = self.objections.iter().map(ToString::to_string).collect();
            return self.refuse(
                &format!(
                    "this device would be overwritten, but that is not permitted: {}",
                    why.join("; ")
                ),
                "give a device that is unused and empty, or measure a directory with --dir",
            );
        }
        if let (Some(at), false) = (self.written_at, consent.overwrite_unknown) {
            return self.refuse(
                &format!(
                    "this device would be overwritten, but it is not blank: it contains data in an \
                     unknown format at offset {}",
                    format_size(at)
                ),
                "if that data may be lost, add --overwrite-unknown to --serial; to make the device \
                 blank, use 'blkdiscard --zeroout' or 'dd if=/dev/zero'",
            );
        }
        Ok(())
    }

    fn refuse(&self, what: &str, advice: &str) -> Result<()> {
        Err(Error::new(Kind::Refused, what).at(&self.path).advice(advice))
    }
}

/// The user of the device according to the kernel's tables.
fn used(found: Result<Option<Holder>>) -> Option<Objection> {
    match found {
        Ok(holder) => holder.map(|holder| Objection::InUse(holder.to_string())),
        Err(error) => Some(Objection::Unknown(error.to_string())),
    }
}

/// Returns an objection to a use of the device only if several checks find the use.
///
/// A program that looks for a free loop device, or reads the content of a new one (udev), opens the
/// device for an instant; that does not count as use. On a busy machine the instant can be long,
/// and one such program can follow another, so the intervals between the checks increase, up to 1.3
/// s in total.
fn agreed(look: impl Fn() -> Option<Objection>) -> Option<Objection> {
    const FIRST: Duration = Duration::from_millis(20);
    const WAITS: u32 = 6;
    for number in 0..WAITS {
        match look() {
            Some(Objection::InUse(_)) => std::thread::sleep(FIRST * (1 << number)),
            other => return other,
        }
    }
    look()
}

/// An objection that names the processes that have the device open, not exclusively.
fn opened_now(major: u32, minor: u32) -> Option<Objection> {
    let openers = openers::openers(major, minor);
    let names: Vec<String> = openers.iter().map(ToString::to_string).collect();
    (!names.is_empty()).then(|| Objection::InUse(format!("opened by {}", names.join(", "))))
}

/// An objection if the device is open exclusively by a user that no table shows: a mount in another
/// namespace, a file system on several devices, another program, or another pinstripe process.
fn taken_now(path: &Path) -> Option<Objection> {
    let mut options = fs::OpenOptions::new();
    let alone = options.read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(path);
    let locked = match alone {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            let who = "in use, because another process has opened it exclusively";
            return Some(Objection::InUse(who.to_owned()));
        }
        Err(error) => return Some(Objection::Unknown(error.to_string())),
        Ok(_) => FileDevice::open(path, Access::Read, Policy::Buffered).and_then(|it| it.lock()),
    };
    match locked {
        Ok(()) => None,
        Err(error) if error.kind() == Kind::Busy => {
            Some(Objection::InUse("locked by another process".to_owned()))
        }
        Err(error) => Some(Objection::Unknown(error.to_string())),
    }
}

/// Returns the length of a device, and the format of its content.
fn carried(path: &Path) -> Result<(u64, Option<String>)> {
    let device = FileDevice::open(path, Access::Read, Policy::Buffered)?;
    Ok((device.len()?, signature(&device)?.map(|it| it.to_string())))
}

/// Partitions in a directory of sysfs.
fn parts(sys: &Path) -> Vec<String> {
    let found = fs::read_dir(sys).into_iter().flatten().flatten();
    let parts = found.filter(|it| it.path().join("partition").exists());
    let mut names: Vec<String> =
        parts.map(|it| it.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The file behind a loop device, which has no serial number.
fn loop_file(sys: &Path) -> Option<String> {
    let file = fs::read_to_string(sys.join("loop/backing_file")).ok()?;
    Some(file.trim_end_matches('\n').to_owned())
}

#[cfg(test)]
pub(crate) mod tests;
