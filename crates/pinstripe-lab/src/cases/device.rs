//! Opens the parts of a device that cases measure, and checks that the device is long enough.
//!
//! This module does not decide whether the device may be overwritten.

use std::path::Path;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Access, Device, FileDevice, Policy};

use crate::io::{Area, Content, Target};
use crate::run::Live;

/// Opens several parts of a device that have the same length and begin at the given offsets. Before
/// reads, the parts are filled, because the device returns blocks that were never written without
/// accessing the medium.
///
/// # Errors
/// [`Kind::Usage`] if the device is too short; errors as the system reports them; an interrupt.
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
/// [`Kind::Usage`] if the device ends before `end`; other errors as the system reports them.
pub(crate) fn refuse_short(path: &Path, end: u64) -> Result<()> {
    let bytes = FileDevice::open(path, Access::Read, Policy::Buffered)?.len()?;
    if bytes >= end { Ok(()) } else { Err(too_short(path)) }
}

fn too_short(path: &Path) -> Error {
    Error::new(Kind::Usage, "the device is shorter than the size to measure")
        .at(path)
        .advice("measure a smaller size: see the options for sizes in --help")
}
