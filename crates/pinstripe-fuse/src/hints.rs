//! How programs tell a tree what they will read: by an ioctl, because a file system that is mounted
//! read-only accepts no extended attributes.

use std::fs::File;
use std::os::fd::AsRawFd;

use pinstripe_base::error::{Error, Kind, Result};

/// The most bytes of a hint, including the final NUL.
const HINT_BYTES: usize = 4096;
/// The number of the ioctl, `_IOW('P', 0x52, char[4096])`.
pub(crate) const HINT_REQUEST: u64 =
    1 << 30 | (HINT_BYTES as u64) << 16 | (b'P' as u64) << 8 | 0x52;

/// Sends a hint about later reads to the file system of an open file.
///
/// # Errors
/// [`Kind::Usage`] for a hint that is too long or unknown; [`Kind::Unsupported`] if the file is not
/// in a tree that pinstripe has mounted.
pub fn send_hint(file: &File, hint: &str) -> Result<()> {
    let mut text = [0_u8; HINT_BYTES];
    if hint.len() >= HINT_BYTES {
        return Err(Error::new(Kind::Usage, "a hint must be shorter than 4096 bytes"));
    }
    text[..hint.len()].copy_from_slice(hint.as_bytes());
    // SAFETY: the request says that it reads 4096 bytes, which `text` has; whatever the file is, the
    // kernel writes nothing for a request of that direction.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), HINT_REQUEST as libc::Ioctl, text.as_ptr()) };
    if done == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EINVAL) => Err(Error::new(Kind::Usage, "this is not a valid hint")),
        _ => Err(Error::new(
            Kind::Unsupported,
            format!("hints cannot be given for this file: {error}"),
        )),
    }
}
