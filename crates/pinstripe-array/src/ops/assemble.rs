//! Assembles an array from its devices.

use std::path::PathBuf;

use super::{Entry, Register, devices};
use crate::engine::{self, AssembleOptions, Flusher};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::device::SharedDevice;
use pinstripe_io::fault::Plan;
use pinstripe_io::paths;

/// Opens the devices that exist. A missing device is reported, and left out.
///
/// # Errors
/// Fails with the errors of [`devices::open`], except for devices that are missing.
pub(crate) fn open_all(
    paths: &[PathBuf],
    faults: &Plan,
    monitor: &Monitor,
) -> Result<Vec<SharedDevice>> {
    let mut opened = Vec::with_capacity(paths.len());
    for (number, path) in paths.iter().enumerate() {
        match devices::open(path, number, faults) {
            Ok(device) => opened.push(device),
            Err(error) if error.kind() == Kind::NotFound => monitor.warning(path, error),
            Err(error) => return Err(error),
        }
    }
    Ok(opened)
}

/// Whether a registered device of an array still belongs to the array; reports a device that
/// belongs to another array.
fn is_still_of(device: &SharedDevice, entry: &Entry, monitor: &Monitor) -> bool {
    let Some(own) = engine::probe(device).filter(|own| own.array.to_string() != entry.array) else {
        return true;
    };
    let what = format!("this device now belongs to another array: '{}'", own.name);
    let error = Error::new(Kind::WrongMember, what).advice(format!(
        "to remove the device from this array, run 'pinstripe array manage {} --remove {}'",
        entry.name,
        device.place().display()
    ));
    monitor.warning(device.place(), error);
    false
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
            let what = format!("the members of '{}' that were written last are absent", entry.name);
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
    let present: Vec<_> = paths.iter().filter(|path| paths::exists(path)).cloned().collect();
    devices::refuse_twice(&present)?;
    let mut opened = open_all(&paths, faults, monitor)?;
    if let Some(entry) = known.as_ref().filter(|entry| entry.devices == paths) {
        opened.retain(|device| is_still_of(device, entry, monitor));
    }
    if opened.is_empty() {
        return Err(Error::new(Kind::TooManyLosses, format!("no device of '{name}' is present"))
            .advice("attach the devices, or name their present paths"));
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
