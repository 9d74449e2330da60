//! Arrays according to the superblocks of a set of devices, as mdadm's `--scan` finds them.

use std::path::{Path, PathBuf};

use super::Register;
use super::examine::{FoundSuperblock, examine};
use super::register::check_name;
use crate::format::superblock::{SPARE, Slot};
use crate::geometry::Level;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::hex;

/// An array with at least one device found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedArray {
    /// The name in the newest superblock; for md, the complete `host:name`.
    pub name: String,
    /// The format of the superblock: `pinstripe`, or md's version.
    pub metadata: String,
    /// The id of the array, as 32 hex digits.
    pub array: String,
    /// `raid5` and so on, or md's number for a level that pinstripe does not serve.
    pub level: String,
    /// The number of members without the spares.
    pub raid_devices: usize,
    /// The devices found, in the order in which they were named.
    pub devices: Vec<PathBuf>,
    /// The number of spares among the devices found.
    pub spares: usize,
    /// The highest number of events among the devices found.
    events: u64,
}

/// The outcome of a scan.
#[derive(Debug, Default)]
pub struct Scan {
    /// The arrays in the order in which they were found.
    pub arrays: Vec<ScannedArray>,
    /// Devices that could not be read, or have an unreadable superblock.
    pub failed: Vec<(PathBuf, Error)>,
}

impl ScannedArray {
    /// The name under which the array can be registered: for md, the name without the host.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] when the superblock has no valid name.
    pub fn register_name(&self) -> Result<&str> {
        let name = self.name.rsplit(':').next().unwrap_or_default();
        check_name(name).map(|()| name).map_err(|_| {
            Error::new(Kind::Usage, "the array has no name that can be registered")
                .at(&self.devices[0])
                .advice("give the array a name with 'pinstripe array assemble NAME DEVICE...'")
        })
    }

    /// The id as four words, in mdadm's form.
    pub fn uuid(&self) -> String {
        let words = self.array.as_bytes().chunks(8).map(String::from_utf8_lossy);
        words.collect::<Vec<_>>().join(":")
    }
}

/// Examines devices, and groups those with a superblock by their array. Devices without a
/// superblock are skipped.
pub fn scan(paths: &[PathBuf]) -> Scan {
    let mut scan = Scan::default();
    for path in paths {
        match examine(path) {
            Ok(examined) => scan.take(described(path, &examined.found)),
            Err(error) if error.kind() == Kind::NotFound && pinstripe_io::paths::exists(path) => {}
            Err(error) => scan.failed.push((path.clone(), error)),
        }
    }
    scan
}

/// The devices of all registered arrays, without duplicates.
///
/// # Errors
/// Fails when the register cannot be read; an unreadable entry is skipped.
pub fn registered_devices(register: &Register) -> Result<Vec<PathBuf>> {
    let mut devices = Vec::new();
    for name in register.names()? {
        for device in register.read(&name).map(|it| it.devices).unwrap_or_default() {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
    }
    Ok(devices)
}

impl Scan {
    fn take(&mut self, found: ScannedArray) {
        let Some(known) = self.arrays.iter_mut().find(|it| it.array == found.array) else {
            return self.arrays.push(found);
        };
        let devices = [std::mem::take(&mut known.devices), found.devices.clone()].concat();
        let spares = known.spares + found.spares;
        if found.events > known.events {
            *known = found;
        }
        (known.devices, known.spares) = (devices, spares);
    }
}

fn described(path: &Path, found: &FoundSuperblock) -> ScannedArray {
    let level_name = |number: i32| {
        Level::from_number(number).map_or_else(|_| number.to_string(), |level| level.to_string())
    };
    let devices = vec![path.to_path_buf()];
    match found {
        FoundSuperblock::Ours(it, _) => ScannedArray {
            name: it.name.clone(),
            metadata: "pinstripe".to_owned(),
            array: it.array.to_string(),
            level: level_name(it.level.into()),
            raid_devices: it.slots.len(),
            devices,
            spares: usize::from(it.slot == SPARE && !is_in_a_slot(&it.slots, it.member)),
            events: it.generation,
        },
        FoundSuperblock::Md(it) => ScannedArray {
            name: it.name(),
            metadata: it.device.place.version.to_string(),
            array: hex(&it.array.set_uuid),
            level: level_name(it.array.level),
            raid_devices: it.array.members as usize,
            devices,
            spares: usize::from(it.role() == crate::format::md::Role::Spare),
            events: it.state.events,
        },
    }
}

fn is_in_a_slot(slots: &[Slot], member: pinstripe_base::id::MemberId) -> bool {
    slots.iter().any(|slot| {
        matches!(slot, Slot::Present(it) | Slot::Failed(it) | Slot::Rebuilding(it) if *it == member)
    })
}
