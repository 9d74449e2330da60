//! Erasing the superblocks of a device.

use std::path::Path;

use super::devices;
use super::examine::{FoundSuperblock, find};
use crate::format::md::{self, MdPlace};
use crate::format::superblock::{PLACES, SUPERBLOCK_BYTES};
use pinstripe_base::error::{Kind, Result};
use pinstripe_io::device::Device;
use pinstripe_io::fault::Plan;

/// Overwrites the superblocks of a device durably and keeps its data; returns what the device was.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when the device has no superblock; with [`Kind::Busy`] when the
/// device is in use; `force` also allows to overwrite an unreadable superblock.
pub fn zero_superblock(path: &Path, force: bool) -> Result<Option<FoundSuperblock>> {
    let device = devices::open(path, 0, &Plan::default())?;
    let found = match find(&device) {
        Ok(found) => Some(found),
        Err(error) if force && matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => None,
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => {
            return Err(error.advice("use --force to overwrite the superblock anyway"));
        }
        Err(error) => return Err(error),
    };
    let len = device.len()?;
    // A superblock of another version that an older array left would be found afterwards.
    let of_md: Vec<_> = MdPlace::all(len)
        .map(|it| (it.offset(), md::SUPERBLOCK_BYTES))
        .filter(|(place, _)| carries_md(&*device, *place))
        .collect();
    let ours = PLACES.map(|place| (place, SUPERBLOCK_BYTES));
    let places = match &found {
        Some(FoundSuperblock::Ours(..)) => ours.to_vec(),
        Some(FoundSuperblock::Md(_)) => of_md,
        None => [&ours[..], &of_md].concat(),
    };
    for (place, bytes) in places {
        if place + bytes as u64 <= len {
            device.write_at(place, &vec![0; bytes])?;
        }
    }
    device.sync()?;
    Ok(found)
}

/// Whether an md superblock, in either byte order, begins at a place.
fn carries_md(device: &dyn Device, place: u64) -> bool {
    let mut magic = [0; 4];
    let read = device.read_at(place, &mut magic);
    read.is_ok() && [u32::from_le_bytes(magic), u32::from_be_bytes(magic)].contains(&md::MAGIC)
}
