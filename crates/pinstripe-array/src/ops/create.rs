//! Creating an array.

use std::path::PathBuf;

use super::detail::consistency;
use super::made_files::MadeFiles;
use super::register::check_name;
use super::{Entry, Register, devices};
use crate::engine::{self, CreateOptions};
use crate::format::superblock::Consistency;
use crate::geometry::{ArrayGeometry, Layout, Level};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::units::{KIB, MIB, parse_size};
use pinstripe_io::fault::Plan;

/// The parameters of a new array.
#[derive(Debug, Clone)]
pub struct CreateRequest {
    /// The name.
    pub name: String,
    /// The level.
    pub level: Level,
    /// The layout of rows.
    pub layout: Layout,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes of the log on each member; the default depends on the size of the member.
    pub log_bytes: Option<u64>,
    /// How parity survives a power cut.
    pub consistency: Consistency,
    /// Bytes of the granule; `None` follows the size of the requests.
    pub granule: Option<u32>,
    /// The devices in the order of their slots; `None` leaves a slot without a member.
    pub members: Vec<Option<PathBuf>>,
    /// Spare devices.
    pub spares: Vec<PathBuf>,
    /// The length of files to create for missing devices.
    pub file_bytes: Option<u64>,
    /// Whether the content of the devices may be lost, and an existing name replaced.
    pub force: bool,
}

/// The created array.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Created {
    /// The array's id.
    pub array: String,
    /// The name.
    pub name: String,
    /// User bytes.
    pub capacity_bytes: u64,
    /// Bytes of data on each member.
    pub member_bytes: u64,
}

/// Creates an array, and registers it under its name. All devices are opened and checked before
/// anything is written to any.
///
/// # Errors
/// Fails with [`Kind::Exists`] when the name is taken; with [`Kind::Refused`] for a device that has
/// known content; with [`Kind::Busy`] for a device in use; with [`Kind::Usage`] for options that
/// the level does not allow.
pub fn create(
    request: &CreateRequest,
    register: &Register,
    faults: &Plan,
    monitor: &Monitor,
) -> Result<Created> {
    check_name(&request.name)?;
    if register.has(&request.name) && !request.force {
        return Err(Error::new(
            Kind::Exists,
            format!("an array named '{}' already exists", request.name),
        )
        .advice(
            "choose another name; 'pinstripe array status' lists the names in use; --force removes \
             the registration of the other array",
        ));
    }
    // Impossible parameters are refused before any device is created or opened. The size of members
    // is not known yet, so a large one is assumed.
    let (slots, plenty) = (request.members.len(), u64::from(u32::MAX) * MIB / 64);
    ArrayGeometry::new(request.level, slots, request.chunk_bytes, request.layout, plenty)?;
    let paths: Vec<PathBuf> =
        request.members.iter().flatten().chain(&request.spares).cloned().collect();
    let made = MadeFiles::of(&paths, request.file_bytes)?;
    devices::refuse_twice(&paths)?;
    let open =
        |number: usize, path: &PathBuf| devices::open_blank(path, number, faults, request.force);
    let members = request.members.iter().enumerate();
    let members = members
        .map(|(slot, path)| path.as_ref().map(|path| open(slot, path)).transpose())
        .collect::<Result<Vec<_>>>()?;
    let spares = request.spares.iter().enumerate();
    let spares = spares
        .map(|(number, path)| open(members.len() + number, path))
        .collect::<Result<Vec<_>>>()?;
    devices::warn_of_shared_disks(&paths, monitor);
    let all = members.iter().flatten().chain(&spares);
    let lengths = all.map(|it| it.len()).collect::<Result<Vec<_>>>()?;
    let shortest = lengths.iter().copied().min().unwrap_or(0);
    let create_options = CreateOptions {
        name: request.name.clone(),
        level: request.level,
        layout: request.layout,
        chunk_bytes: request.chunk_bytes,
        log_bytes: request.log_bytes.unwrap_or_else(|| log_bytes(shortest)),
        consistency: request.consistency,
        now_seconds: clock::now().0,
    };
    let mut flusher = engine::create_with(&create_options, members, spares)?;
    if request.granule.is_some() {
        flusher.set_granule(request.granule)?;
    }
    let superblock = flusher.array().superblock();
    let capacity_bytes = flusher.array().capacity();
    flusher.stop()?;
    let mut entry = Entry::new(&request.name, superblock.array, &paths)?;
    entry.generation = superblock.generation;
    made.keep();
    register.write(&entry)?;
    Ok(Created {
        array: superblock.array.to_string(),
        name: request.name.clone(),
        capacity_bytes,
        member_bytes: superblock.data_bytes,
    })
}

/// Reads the size of a chunk in mdadm's form: a number without a unit counts KiB.
///
/// # Errors
/// Fails with [`Kind::Usage`] if the text is not a size.
pub fn chunk_bytes_of(text: &str) -> Result<u64> {
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit());
    let bytes = parse_size(text)?;
    Ok(if is_bare { bytes.saturating_mul(KIB) } else { bytes })
}

/// The policy with a given name.
///
/// # Errors
/// Fails with [`Kind::Usage`] if the name is unknown.
pub fn consistency_of(name: &str) -> Result<Consistency> {
    let all = [Consistency::Log, Consistency::Bitmap, Consistency::None];
    all.into_iter().find(|it| consistency(*it) == name).ok_or_else(|| {
        Error::new(Kind::Usage, format!("'{name}' is not a consistency policy"))
            .expected(all.map(consistency).join(", "), name)
    })
}

/// The default size of the log: 1/64 of the member, from 1 to 64 MiB.
fn log_bytes(member_bytes: u64) -> u64 {
    (member_bytes / 64).clamp(MIB, 64 * MIB) / MIB * MIB
}

#[cfg(test)]
mod tests;
