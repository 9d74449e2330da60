//! Describes the array that a device is a member of, by the superblock of the device.

use std::path::{Path, PathBuf};

use super::devices::open_to_read;
use crate::format::md;
use crate::format::superblock::{MAGIC, PLACES, SUPERBLOCK_BYTES, Superblock};
use crate::signature::{md_superblock, signature};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ArrayId;
use pinstripe_io::device::Device;

/// The findings about a device.
#[derive(Debug, Clone)]
pub struct Examined {
    /// The device.
    pub path: PathBuf,
    /// The length.
    pub bytes: u64,
    /// The content.
    pub found: FoundSuperblock,
}

/// The superblock that was found on a device.
#[derive(Debug, Clone)]
pub enum FoundSuperblock {
    /// A superblock of pinstripe: the newer readable one of the two copies, and the number of
    /// readable copies.
    Ours(Box<Superblock>, usize),
    /// A superblock of md.
    Md(Box<md::MdSuperblock>),
}

impl FoundSuperblock {
    /// The id of the array.
    pub(crate) fn array(&self) -> String {
        match self {
            FoundSuperblock::Ours(superblock, _) => superblock.array.to_string(),
            FoundSuperblock::Md(superblock) => ArrayId(superblock.array.set_uuid).to_string(),
        }
    }
}

/// Reads the superblock of a device, which may be in use.
///
/// # Errors
/// Fails with [`Kind::NotFound`] if the device has no superblock (the error names the content found
/// instead); with [`Kind::Corrupt`] and [`Kind::Unsupported`] for an unreadable superblock; with
/// the errors of the device.
pub fn examine(path: &Path) -> Result<Examined> {
    let device = open_to_read(path)?;
    let bytes = device.len()?;
    let found = find(&*device)?;
    Ok(Examined { path: path.to_path_buf(), bytes, found })
}

/// The superblock that is on a device.
///
/// # Errors
/// Fails with the errors of [`examine`].
pub fn find(device: &dyn Device) -> Result<FoundSuperblock> {
    let ours = superblocks(device)?;
    let readable = ours.iter().flatten().count();
    let newest = ours.iter().flatten().max_by_key(|it| it.generation).cloned();
    if let Some(newest) = newest {
        return Ok(FoundSuperblock::Ours(Box::new(newest), readable));
    }
    if let Some(error) = ours.into_iter().find_map(Result::err) {
        return Err(error.at(device.place()));
    }
    match md_superblock(device) {
        Ok(superblock) => Ok(FoundSuperblock::Md(Box::new(superblock))),
        Err(error) if error.kind() != Kind::NotFound => Err(error),
        Err(_) => {
            let carries = signature(device)?.map(|it| format!(": it contains {it}"));
            let what =
                format!("this device is not a member of an array{}", carries.unwrap_or_default());
            Err(Error::new(Kind::NotFound, what).at(device.place()))
        }
    }
}

/// The superblocks at both places, if they begin with the magic.
fn superblocks(device: &dyn Device) -> Result<Vec<Result<Superblock>>> {
    let len = device.len()?;
    let mut found = Vec::new();
    for place in PLACES.into_iter().filter(|place| place + SUPERBLOCK_BYTES as u64 <= len) {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        device.read_at(place, &mut bytes)?;
        if bytes.starts_with(MAGIC) {
            found.push(Superblock::decode(&bytes));
        }
    }
    Ok(found)
}
