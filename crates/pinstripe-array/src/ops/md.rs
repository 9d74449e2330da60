//! Arrays that Linux md made, examined and served in place: read-only, unless writing is requested.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::controller::ControlHandler;
use super::detail::{Counted, Detail, ErrorCounts, Served, SlotDetail, SlotStateDetail};
use super::devices;
use super::examine::{FoundSuperblock, examine};
use super::register::Metadata;
use super::request::{Reply, Request};
use super::{Entry, Register};
use crate::md::{MdArray, MdAssembleOptions, MdAssembly, MdLeftOut, assemble};
use crate::signature::md_superblock;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ArrayId, hex};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::device::SharedDevice;
use pinstripe_io::fault::Plan;

/// An open md array.
pub struct MdController {
    /// The array.
    pub array: Arc<MdArray>,
    name: String,
    served: OnceLock<Served>,
}

/// Opens an md array exclusively; `write` allows writes to it. An array that md would not start can
/// only be read, and only if it was assembled by force.
///
/// # Errors
/// Fails with the errors of [`open_all`](super::assemble::open_all) and of [`assemble`].
pub fn open(entry: &Entry, write: bool, faults: &Plan, monitor: &Monitor) -> Result<MdController> {
    let mut opened = super::assemble::open_all(&entry.devices, Some(entry), faults, monitor)?;
    opened.retain(|device| is_usable(device, entry, monitor));
    if opened.is_empty() {
        return Err(none_present(entry));
    }
    let write = write.then(|| clock::now().0 as u64);
    let options = MdAssembleOptions { write, force: entry.force };
    let MdAssembly { array, left_out } = assemble(opened, options)?;
    report_left_out(left_out, monitor);
    Ok(MdController { array: Arc::new(array), name: entry.name.clone(), served: OnceLock::new() })
}

/// Whether a registered device is a member of the array. Reports a device that is not, which counts
/// as absent.
fn is_usable(device: &SharedDevice, entry: &Entry, monitor: &Monitor) -> bool {
    let error = match md_superblock(&**device) {
        Ok(own) if ArrayId(own.array.set_uuid).to_string() == entry.array => return true,
        Ok(own) => Error::new(
            Kind::WrongMember,
            format!("this device now belongs to another array: '{}'", own.name()),
        ),
        Err(error) => error,
    };
    super::assemble::report_absent(device.place(), &error, entry, monitor);
    false
}

fn report_left_out(left_out: Vec<MdLeftOut>, monitor: &Monitor) {
    for it in left_out {
        monitor.warning(
            &it.place,
            Error::new(Kind::WrongMember, format!("this device is left out: {}", it.why)),
        );
    }
}

/// Refuses an md array that could not be served; reports devices that would be left out. A device
/// of a registered array that cannot be used counts as absent.
///
/// # Errors
/// Fails with the errors of [`open`].
pub fn check(entry: &Entry, is_registered: bool, monitor: &Monitor) -> Result<()> {
    let options = MdAssembleOptions { write: None, force: entry.force };
    let mut opened = Vec::with_capacity(entry.devices.len());
    for path in &entry.devices {
        match devices::open_to_read(path) {
            Ok(device) => opened.push(device),
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) if is_registered => {
                super::assemble::report_absent(path, &error, entry, monitor);
            }
            Err(error) => return Err(error),
        }
    }
    if is_registered {
        opened.retain(|device| is_usable(device, entry, monitor));
    }
    if opened.is_empty() {
        return Err(none_present(entry));
    }
    let MdAssembly { array, left_out } = assemble(opened, options)?;
    report_left_out(left_out, monitor);
    drop(array);
    Ok(())
}

/// The description of an md array from its devices, which are only read and may be in use.
///
/// # Errors
/// Fails with the errors of [`assemble`]; with [`Kind::TooManyLosses`] if no device is present.
pub fn inspect(entry: &Entry) -> Result<Detail> {
    let options = MdAssembleOptions { write: None, force: true };
    let found = assemble(opened_to_read(entry)?, options)?;
    Ok(detail(&entry.name, &found.array, None))
}

/// Opens the devices that can be opened and have a superblock of md.
fn opened_to_read(entry: &Entry) -> Result<Vec<SharedDevice>> {
    let opened = entry.devices.iter().filter_map(|path| devices::open_to_read(path).ok());
    let opened: Vec<_> = opened.filter(|device| md_superblock(&**device).is_ok()).collect();
    if opened.is_empty() {
        return Err(none_present(entry));
    }
    Ok(opened)
}

/// The error for an array without any device.
fn none_present(entry: &Entry) -> Error {
    let what = format!("no device of '{}' is present", entry.name);
    Error::new(Kind::TooManyLosses, what).advice(format!(
        "attach the devices, or assemble the array from their present paths; if the array no \
         longer exists, run 'pinstripe array forget {}'",
        entry.name
    ))
}

fn detail(name: &str, array: &MdArray, served: Option<Served>) -> Detail {
    let (geometry, superblock) = (array.geometry(), array.superblock());
    let absent = array.absent();
    let slot = |slot: usize| SlotDetail {
        slot,
        state: if absent.has(slot) { SlotStateDetail::Missing } else { SlotStateDetail::InSync },
        member: None,
        device: array.member_place(slot).map(PathBuf::from),
        replacement: None,
        reason: None,
        errors: ErrorCounts::default(),
    };
    // Seconds are the low 40 bits.
    let made_seconds = (superblock.array.created & ((1 << 40) - 1)) as i64;
    Detail {
        name: name.to_owned(),
        metadata: superblock.device.place.version.to_string(),
        array: hex(&superblock.array.set_uuid),
        level: geometry.level().to_string(),
        layout: geometry.layout().to_string(),
        chunk_bytes: geometry.chunk_bytes().into(),
        capacity_bytes: geometry.capacity(),
        member_bytes: geometry.member_bytes(),
        made_seconds,
        generation: superblock.state.events,
        consistency: "md".to_owned(),
        is_clean: superblock.is_clean(),
        is_usable: geometry.survives(absent),
        served,
        slots: (0..geometry.members()).map(slot).collect(),
        spares: Vec::new(),
        work: None,
        reports: Vec::new(),
        mismatches: 0,
        dirty_bytes: 0,
        settings: BTreeMap::new(),
        counters: Counted::default(),
    }
}

impl ControlHandler for MdController {
    fn answer(&self, request: &Request) -> Result<Reply> {
        match request {
            Request::Detail => Ok(Reply::Detail(Box::new(self.detail()))),
            _ => Err(Error::new(Kind::Refused, "pinstripe can only read and write md arrays")
                .advice("manage the members of md arrays with mdadm")),
        }
    }

    fn detail(&self) -> Detail {
        detail(&self.name, &self.array, self.served.get().cloned())
    }

    fn served_as(&self, served: Served) {
        let _ = self.served.set(served);
    }

    fn close(&self) -> Result<()> {
        self.array.finish()
    }
}

/// Registers an md array under a name, if the first device with a superblock is a member of an md
/// array; without devices, looks for an md array that is registered under the name. Nothing is
/// written to the devices. With `force`, an array that md would not start can be read, and foreign
/// devices are left out. Returns whether the array is an md array.
///
/// # Errors
/// Fails with the errors of [`check`].
pub fn assemble_md(
    name: &str,
    paths: &[PathBuf],
    force: bool,
    register: &Register,
    monitor: &Monitor,
) -> Result<bool> {
    super::register::check_name(name)?;
    let known = register.read(name).ok().filter(|it| it.metadata == Metadata::Md);
    let paths = match &known {
        Some(entry) if paths.is_empty() => &entry.devices,
        _ => paths,
    };
    let is_registered = known.as_ref().is_some_and(|entry| entry.devices == *paths);
    let (mut examined, mut there) = (Vec::with_capacity(paths.len()), Vec::new());
    for path in paths {
        match examine(path) {
            Ok(found) => {
                examined.push(found.found);
                there.push(path.clone());
            }
            // A blank device among them is distinguished when the others are known.
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) if examined.is_empty() && !is_registered && !force => return Err(error),
            Err(_) => {}
        }
    }
    let Some(FoundSuperblock::Md(superblock)) = examined.first() else {
        return Ok(false);
    };
    if !is_registered {
        devices::refuse_twice(&there)?;
    }
    let mut entry = Entry::new(name, ArrayId(superblock.array.set_uuid), paths)?;
    entry.metadata = Metadata::Md;
    entry.force = force;
    super::assemble::refuse_name_of_other(register.read(name).ok().as_ref(), &entry.array)?;
    check(&entry, is_registered, monitor)?;
    register.write(&entry).map(|()| true)
}
