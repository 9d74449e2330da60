//! The write-intent bitmap of md; only the event counter in its superblock is used.
//!
//! Source: `struct bitmap_super_s` in `drivers/md/md-bitmap.h`. A bitmap with fewer events than the
//! array's superblock is stale to md, which then syncs everything.

use crate::format::md::{MdSuperblock, SECTOR_BYTES};
use pinstripe_base::error::Result;
use pinstripe_io::device::Device;

const MAGIC: u32 = 0x6d74_6962;
const EVENTS_AT: usize = 24;
const CLEARED_AT: usize = 32;

/// Sets a member's bitmap to `now` events, if it had nothing to sync at `before` events. A bitmap
/// in any other state is not changed; md then syncs everything.
///
/// # Errors
/// Fails with the errors of the device.
pub(super) fn date(
    device: &dyn Device,
    superblock: &MdSuperblock,
    before: u64,
    now: u64,
) -> Result<()> {
    let from = superblock.device.place.sector as i64;
    let sector = superblock.bitmap_sectors().map(|it| from + i64::from(it));
    let Some(at) = sector.filter(|it| *it > 0).map(|it| it as u64 * SECTOR_BYTES) else {
        return Ok(());
    };
    let mut bytes = [0; SECTOR_BYTES as usize];
    device.read_at(at, &mut bytes)?;
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let is_bitmap = bytes[..4] == MAGIC.to_le_bytes();
    if !is_bitmap || number(EVENTS_AT) < before {
        return Ok(());
    }
    for at in [EVENTS_AT, CLEARED_AT] {
        bytes[at..at + 8].copy_from_slice(&now.to_le_bytes());
    }
    device.write_at(at, &bytes)
}
