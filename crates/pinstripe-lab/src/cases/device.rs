//! The parts of a device that cases measure, and whether it is long enough for them.
//!
//! Not in this module: whether it may be overwritten.

use std::path::Path;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Access, Device, FileDevice, Policy};

use crate::io::{Area, Content, Target};
use crate::run::Live;

/// Parts of a device of one length, by where they begin. Where anything will be read they are
/// filled first: blocks that were never written are read without the disk.
///
/// # Errors
/// [`Kind::Usage`] where it is too short; as reported by the system; an interrupt.
pub fn area(
    path: &Path,
    starts: &[u64],
    bytes: u64,
    policy: Policy,
    content: Option<(Content, &Live)>,
) -> Result<Area> {
    let open = |policy| {
        let parts = Area::parts(&Target::open(path, Access::Write, policy)?, starts, bytes);
        parts.map_err(|error| match error.kind() {
            Kind::Corrupt => too_short(path),
            _ => error,
        })
    };
    if let Some((content, live)) = content {
        open(Policy::Buffered)?.fill(content, live)?;
    }
    open(policy)
}

/// Refuses a device that ends before `end`.
///
/// # Errors
/// [`Kind::Usage`] where it does; as reported by the system.
pub(crate) fn refuse_short(path: &Path, end: u64) -> Result<()> {
    let bytes = FileDevice::open(path, Access::Read, Policy::Buffered)?.len()?;
    if bytes >= end { Ok(()) } else { Err(too_short(path)) }
}

fn too_short(path: &Path) -> Error {
    Error::new(Kind::Usage, "the device is shorter than the size to measure")
        .at(path)
        .advice("measure a smaller size: see the options for sizes in --help")
}
