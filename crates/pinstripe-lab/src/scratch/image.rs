//! A loop device on an unnamed file.
//!
//! Invariants: file and device exist exactly as long as a process has the device open, however this
//! process ends. The file is never in a directory, and the device releases it automatically. The
//! file has no holes, so the measurement does not include the allocation of blocks.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};
use rustix::fs::{Advice, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::run::Live;

/// An unnamed file, and the loop device on it.
#[derive(Debug)]
pub struct Image {
    file: File,
    device: File,
    path: PathBuf,
    is_direct: bool,
}

/// Bytes written at a time while the file is created.
const PIECE_BYTES: usize = 1 << 20;
/// The number of attempts to get a free loop device, because other programs may take the same one
/// first.
const ATTEMPTS: usize = 32;

impl Image {
    /// Creates an image in a directory.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] if there is not enough space; [`Kind::Refused`] without permission;
    /// [`Kind::Interrupted`] after a stop request; other errors as the system reports them.
    pub fn make(dir: &Path, bytes: u64, live: &Live) -> Result<Image> {
        // First what costs nothing: much is written before the device is needed.
        let control = open(Path::new(CONTROL))?;
        let file = unnamed(dir)?;
        fill(&file, dir, bytes, live)?;
        let (device, path) = attach(&control, &file)?;
        let name = path.file_name().unwrap_or_default();
        let dio = fs::read_to_string(Path::new("/sys/block").join(name).join("loop/dio"));
        let is_direct = dio.is_ok_and(|it| it.trim() == "1");
        Ok(Image { file, device, path, is_direct })
    }

    /// The loop device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The loop device, opened.
    pub fn device(&self) -> &File {
        &self.device
    }

    /// The file.
    #[cfg(test)]
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Whether the loop device reads and writes its file with direct I/O.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Writes back and drops the pages of the file in the page cache.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn settle(&self) -> Result<()> {
        settle(&self.file).map_err(|error| {
            Error::io("the data of the image file cannot be made durable", &self.path, error)
        })
    }
}

/// Writes back and drops the pages of a file or device in the page cache.
///
/// # Errors
/// Returns errors as the system reports them.
pub fn settle(file: &File) -> io::Result<()> {
    file.sync_all()?;
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Creates a file without a name; if the file system does not support this, a file whose name is
/// removed at once.
fn unnamed(dir: &Path) -> Result<File> {
    let failed = |error: io::Error| Error::io("no image file can be created", dir, error);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(dir, flags | OFlags::TMPFILE, mode) {
        Ok(file) => Ok(File::from(file)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let path = dir.join(format!("pinstripe-lab-image-{}", std::process::id()));
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).open(&path);
            let file = file.map_err(failed)?;
            fs::remove_file(&path).map_err(failed)?;
            Ok(file)
        }
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Reserves and writes all of the file, because the first write to space that is only reserved
/// costs more than the second.
fn fill(file: &File, dir: &Path, bytes: u64, live: &Live) -> Result<()> {
    let failed = |error: io::Error| Error::io("cannot create an image file", dir, error);
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // Where it cannot be reserved, writing it does the same, and finds out later.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(errno) => return Err(failed(errno.into())),
    }
    live.set_total(bytes);
    let zeros = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < bytes {
        live.check()?;
        let piece = (bytes - at).min(PIECE_BYTES as u64);
        file.write_all_at(&zeros[..piece as usize], at).map_err(failed)?;
        // Written out as it goes: a flood at the end would hold up all others on this disk.
        if (at / PIECE_BYTES as u64) % 64 == 63 {
            file.sync_data().map_err(failed)?;
            let _ = rustix::fs::fadvise(file, 0, NonZeroU64::new(at), Advice::DontNeed);
        }
        live.moved(piece);
        at += piece;
    }
    settle(file).map_err(failed)
}

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct LoopInfo {
    read_only: [u64; 3],
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    names: [u8; 160],
    init: [u64; 2],
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    file: u32,
    block_bytes: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
/// The ioctl that sets or clears read-only: a loop device keeps the setting of its last user.
const BLKROSET: libc::Ioctl = 0x125d;
/// The flag that makes a loop device release its file when it is closed for the last time.
const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// The flag that makes a loop device use direct I/O if its file supports it; otherwise the flag is
/// ignored.
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// The device that allocates loop devices.
const CONTROL: &str = "/dev/loop-control";

fn open(path: &Path) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(|error| failed("cannot open", path, error))
}

fn failed(what: &str, place: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let error =
                Error::new(Kind::Refused, "this user is not permitted to create loop devices");
            error.at(place).advice(super::AS_ROOT)
        }
        _ => Error::io(what, place, error).advice("check with losetup(8) that loop devices exist"),
    }
}

/// Attaches a free loop device to a file.
fn attach(control: &File, file: &File) -> Result<(File, PathBuf)> {
    for _ in 0..ATTEMPTS {
        // SAFETY: it takes no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        if number < 0 {
            let error = io::Error::last_os_error();
            return Err(failed("this machine has no free loop device", Path::new(CONTROL), error));
        }
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = open(&path)?;
        let config = LoopConfig {
            file: file.as_raw_fd() as u32,
            block_bytes: 0,
            info: LoopInfo {
                read_only: [0; 3],
                offset: 0,
                size_limit: 0,
                number: 0,
                encryption: [0; 2],
                flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
                names: [0; 160],
                init: [0; 2],
            },
            reserved: [0; 8],
        };
        // SAFETY: the structure is the one that the kernel reads, and lives until it has.
        let set = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
        match (set, io::Error::last_os_error()) {
            (0, _) => {
                let writable: libc::c_int = 0;
                // SAFETY: it reads a number. Where it is refused, the first write fails.
                unsafe { libc::ioctl(device.as_raw_fd(), BLKROSET, &raw const writable) };
                return Ok((device, path));
            }
            (_, error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            (_, error) => {
                return Err(Error::io(
                    "a loop device cannot be attached to the image",
                    &path,
                    error,
                )
                .advice("Linux 5.8 or newer is needed"));
            }
        }
    }
    Err(Error::new(Kind::Busy, "other processes take each free loop device before it can be used")
        .at(CONTROL))
}
