//! Entries that this restore has made itself, which it does not replace.
//!
//! On a file system that ignores case, `README` and `readme` are one name: the second would replace
//! the first. An entry is known as our own by the time at which it was made, which no program sets.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{AtFlags, StatxFlags};

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::beneath::shown;

/// Longer than a tick of the clock that dates the entries of file systems.
const TICK: Duration = Duration::from_millis(20);

/// Seconds and nanoseconds, by the clock of the target's file system.
type Birth = (i64, u32);

/// When the restore made its first entry.
#[derive(Debug, Default)]
pub(super) struct FirstBirth {
    first: OnceLock<Option<Birth>>,
    has_waited: OnceLock<()>,
}

impl FirstBirth {
    /// Waits once before the first entry is made, so that it is younger than all existing ones.
    pub(super) fn prepare(&self) {
        self.has_waited.get_or_init(|| clock::sleep(TICK));
    }

    /// Takes note of the first entry; of later ones nothing is asked.
    pub(super) fn note(&self, directory: BorrowedFd<'_>, name: &[u8]) {
        self.first.get_or_init(|| birth(directory, name));
    }

    /// Refuses to replace what this restore has made.
    ///
    /// # Errors
    /// [`Kind::Refused`].
    pub(super) fn refuse_own(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
    ) -> Result<()> {
        let Some(&Some(first)) = self.first.get() else { return Ok(()) };
        if birth(directory, name).is_none_or(|birth| birth < first) {
            return Ok(());
        }
        let what = "the target already has an entry with this name, and that entry is not \
                    replaced, because it was created after this restore began";
        Err(Error::new(Kind::Refused, what).at(shown(path)).advice(
            "if the file system of the target ignores the case of letters, two entries of the \
             snapshot can have the same name there: restore one of them into another directory",
        ))
    }
}

/// Returns the creation time of an entry, or of the open directory if the name is empty. If the file
/// system reports no creation time, returns the time of the last change of an entry with one name.
/// Returns `None` if there is no such time, or if the entry cannot be examined.
fn birth(directory: BorrowedFd<'_>, name: &[u8]) -> Option<Birth> {
    let wanted = StatxFlags::BTIME | StatxFlags::BASIC_STATS;
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let found = rustix::fs::statx(directory, name, flags, wanted).ok()?;
    let is_given = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let is_plain = found.stx_nlink == 1;
    let time = match is_given {
        true => found.stx_btime,
        false if is_plain => found.stx_ctime,
        false => return None,
    };
    Some((time.tv_sec, time.tv_nsec))
}
