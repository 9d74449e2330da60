//! Erasing the superblocks of a device.

use std::path::Path;

use super::devices;
use super::examine::{FoundSuperblock, find};
use crate::format::md;
use crate::format::superblock::{PLACES, SUPERBLOCK_BYTES};
use pinstripe_base::error::{Kind, Result};
use pinstripe_io::device::Device;
use pinstripe_io::fault::Plan;

/// Overwrites the superblocks of a device durably, leaving its data; returns what the device was.
///
/// # Errors
/// [`Kind::NotFound`] when it has none; [`Kind::Busy`] when it is in use; with `force` also a
/// superblock that cannot be read is overwritten.
pub fn zero_superblock(path: &Path, force: bool) -> Result<Option<FoundSuperblock>> {
    let device = devices::open(path, 0, &Plan::default())?;
    let found = match find(&device) {
        Ok(found) => Some(found),
        Err(error) if force && matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => None,
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => {
            return Err(error.advice("overwrite it anyway with --force"));
        }
        Err(error) => return Err(error),
    };
    let len = device.len()?;
    let of_md = (md::SUPERBLOCK_OFFSET, md::SUPERBLOCK_BYTES);
    let ours = PLACES.map(|place| (place, SUPERBLOCK_BYTES));
    let places = match &found {
        Some(FoundSuperblock::Ours(..)) => ours.to_vec(),
        Some(FoundSuperblock::Md(_)) => vec![of_md],
        None => [&ours[..], &[of_md]].concat(),
    };
    for (place, bytes) in places {
        if place + bytes as u64 <= len {
            device.write_at(place, &vec![0; bytes])?;
        }
    }
    device.sync()?;
    Ok(found)
}
