//! Assembles an array from its devices.

use std::path::{Path, PathBuf};

use super::devices::{self, SeenDevices};
use super::examine::examine;
use super::register::Metadata;
use super::{Entry, Register};
use crate::engine::{self, AssembleOptions, Flusher};
use crate::member::reason_of;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::device::SharedDevice;
use pinstripe_io::fault::Plan;

/// Opens the devices that exist. A missing device is reported, and left out; so is a device of a
/// registered array that cannot be opened, unless another process has a member of the array open.
///
/// # Errors
/// Fails with the errors of [`devices::open`], except for devices that are left out; with
/// [`Kind::Usage`] for a device that is named twice.
pub(crate) fn open_all(
    paths: &[PathBuf],
    registered: Option<&Entry>,
    faults: &Plan,
    monitor: &Monitor,
) -> Result<Vec<SharedDevice>> {
    let mut opened = Vec::with_capacity(paths.len());
    let mut seen = SeenDevices::default();
    for (number, path) in paths.iter().enumerate() {
        match seen.add(path).and_then(|()| devices::open(path, number, faults)) {
            Ok(device) => opened.push(device),
            Err(error) if error.kind() == Kind::NotFound => monitor.warning(path, error),
            Err(error) => match registered.filter(|entry| is_absent(path, &error, entry)) {
                Some(entry) => report_absent(path, &error, entry, monitor),
                None => return Err(error),
            },
        }
    }
    Ok(opened)
}

/// Whether a registered device that cannot be opened counts as absent. A device that is in use does
/// if it is not a member of the array.
fn is_absent(path: &Path, error: &Error, entry: &Entry) -> bool {
    if error.kind() != Kind::Busy {
        return true;
    }
    match examine(path) {
        Ok(found) => found.found.array() != entry.array,
        Err(error) => error.kind() == Kind::NotFound,
    }
}

/// Reports a device at a registered path that is not used.
pub(crate) fn report_absent(path: &Path, error: &Error, entry: &Entry, monitor: &Monitor) {
    let told =
        Error::new(error.kind(), format!("this device counts as absent: {}", reason_of(error)));
    let advice = match entry.metadata {
        Metadata::Md => {
            "the array runs without this device; manage the members of the array with mdadm"
                .to_owned()
        }
        Metadata::Pinstripe => format!(
            "the array runs without this device; to rebuild a device at this path, run 'pinstripe \
             array manage {name} --add {path}'; to forget the path, run 'pinstripe array manage \
             {name} --remove {path}'",
            name = entry.name,
            path = path.display()
        ),
    };
    monitor.warning(path, told.advice(advice));
}

/// Whether a registered device is a member of the array. Reports a device that is not, which counts
/// as absent.
///
/// # Errors
/// Fails with [`Kind::Unsupported`] for a superblock of a newer version.
fn is_usable(device: &SharedDevice, entry: &Entry, monitor: &Monitor) -> Result<bool> {
    let error = match engine::examine_member(device) {
        Ok(own) if own.array.to_string() == entry.array => return Ok(true),
        Ok(own) => Error::new(
            Kind::WrongMember,
            format!("this device now belongs to another array: '{}'", own.name),
        ),
        Err(error) if error.kind() == Kind::Unsupported => return Err(error),
        Err(error) => error,
    };
    report_absent(device.place(), &error, entry, monitor);
    Ok(false)
}

/// Refuses a name under which another array than this one is registered.
///
/// # Errors
/// Fails with [`Kind::Exists`].
pub(crate) fn refuse_name_of_other(known: Option<&Entry>, array: &str) -> Result<()> {
    match known.filter(|known| known.array != array) {
        None => Ok(()),
        Some(known) => {
            let what = format!("another array is registered with the name '{}'", known.name);
            Err(Error::new(Kind::Exists, what).expected(&known.array, array).advice(format!(
                "choose another name with 'pinstripe array assemble NAME DEVICE...', or first \
                 remove the other array from the register with 'pinstripe array forget {}'",
                known.name
            )))
        }
    }
}

/// Refuses members that are older than the last state of their array that this host saw, because
/// the members that were written since are absent. After a write to the old members, it could not
/// be decided which of two versions of a block is right.
fn refuse_older(devices: &[SharedDevice], entry: &Entry) -> Result<()> {
    let own = devices.iter().filter_map(engine::probe);
    let newest = own.filter(|it| it.array.to_string() == entry.array).map(|it| it.generation).max();
    match newest.filter(|newest| *newest < entry.generation) {
        None => Ok(()),
        Some(newest) => {
            let what = format!(
                "the members of the array '{}' that have the newest data are absent",
                entry.name
            );
            Err(Error::new(Kind::Refused, what)
                .expected(format!("generation {}", entry.generation), newest)
                .advice(format!(
                    "attach the absent members; to continue with the older data of the present \
                     members, and lose all later writes, run 'pinstripe array assemble {} --force'",
                    entry.name
                )))
        }
    }
}

/// Assembles an array from these devices, replays its log, and registers it under a name. Without
/// given devices, uses the devices that are registered under the name. With `force`, unusable
/// devices are left out, and parity that may be stale is trusted.
///
/// # Errors
/// Fails with the errors of [`engine::assemble`]; with [`Kind::WrongMember`] for a device of
/// another array than that of the name or of the other devices; with [`Kind::TooManyLosses`] if too
/// few devices are present; with [`Kind::Busy`] if a device is in use.
pub fn assemble(
    name: &str,
    paths: &[PathBuf],
    force: bool,
    register: &Register,
    faults: &Plan,
    monitor: &Monitor,
) -> Result<Flusher> {
    super::register::check_name(name)?;
    let known = match register.read(name) {
        Ok(entry) => Some(entry),
        Err(error) if paths.is_empty() => return Err(error),
        Err(_) => None,
    };
    let paths = match &known {
        Some(entry) if paths.is_empty() => entry.devices.clone(),
        _ => paths.to_vec(),
    };
    let registered = known.as_ref().filter(|entry| entry.devices == paths);
    let mut opened = open_all(&paths, registered, faults, monitor)?;
    if let Some(entry) = registered {
        let usable = opened.iter().map(|device| is_usable(device, entry, monitor));
        let mut usable = usable.collect::<Result<Vec<_>>>()?.into_iter();
        opened.retain(|_| usable.next().unwrap_or(false));
    }
    if let Some(own) = opened.iter().find_map(engine::probe) {
        refuse_name_of_other(known.as_ref(), &own.array.to_string())?;
    }
    if opened.is_empty() {
        return Err(Error::new(Kind::TooManyLosses, format!("no device of '{name}' is present"))
            .advice("attach the devices, or give their present paths"));
    }
    if let Some(entry) = known.as_ref().filter(|_| !force) {
        refuse_older(&opened, entry)?;
    }
    let engine::Assembly { flusher, left_out, records, was_clean, .. } =
        engine::assemble(opened, &AssembleOptions { force })?;
    for it in left_out {
        let error = Error::new(Kind::WrongMember, format!("this device is left out: {}", it.why));
        let advice = match it.is_replaced {
            true => format!(
                "to remove the device from the array, run 'pinstripe array manage {name} --remove \
                 {}'",
                it.path.display()
            ),
            false => "add the device again with 'pinstripe array manage'".to_owned(),
        };
        monitor.warning(&it.path, error.advice(advice));
    }
    if !was_clean {
        monitor.note(&format!(
            "array {name} was not closed properly; {records} log records were replayed"
        ));
    }
    let superblock = flusher.array().superblock();
    let mut entry = Entry::new(name, superblock.array, &paths)?;
    entry.generation = superblock.generation;
    if let Some(known) = known.filter(|it| it.array == entry.array) {
        entry.settings = known.settings;
    }
    register.write(&entry)?;
    Ok(flusher)
}
