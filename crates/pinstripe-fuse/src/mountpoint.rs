//! Mountpoints: checks them, mounts file systems on them, and unmounts.

use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fuser::{BackgroundSession, Config, Filesystem, Session};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::{Stop, wait_readable};

/// The kernel's FUSE device.
const DEVICE: &str = "/dev/fuse";
/// The number of attempts to unmount while a file is open.
const UNMOUNT_ATTEMPTS: usize = 10;
/// The time between two attempts to unmount.
const UNMOUNT_RETRY: Duration = Duration::from_millis(50);
/// The read-ahead that the kernel is set to: as much as one answer may contain (FUSE_MAX_PAGES in
/// fs/fuse/fuse_i.h).
const READ_AHEAD_KIB: u32 = 1024;

/// A file system mounted on a directory.
pub struct Mount {
    session: BackgroundSession,
    mountpoint: PathBuf,
    reads_far_ahead: bool,
    /// Set when the last thread that answers the kernel has ended.
    ended: Arc<Stop>,
}

impl Mount {
    /// Mounts a file system on an empty directory. The file system sets `ended` when it is
    /// destroyed.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the directory or /dev/fuse does not exist, [`Kind::Usage`] if the path
    /// is not a directory, [`Kind::Exists`] if the directory is not empty, [`Kind::Busy`] if
    /// something is mounted there; [`Kind::Io`] if the system refuses to mount.
    pub fn new(
        file_system: impl Filesystem,
        mountpoint: &Path,
        config: &Config,
        ended: Arc<Stop>,
    ) -> Result<Self> {
        remove_stale(mountpoint);
        let mountpoint = check_mountpoint(mountpoint)?;
        check_device()?;
        let session = Session::new(file_system, &mountpoint, config)
            .and_then(Session::spawn)
            .map_err(|error| refused(&mountpoint, error))?;
        let reads_far_ahead = read_far_ahead(&mountpoint);
        Ok(Mount { session, mountpoint, reads_far_ahead, ended })
    }

    /// The absolute path of the mountpoint.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Whether the kernel reads ahead as far as one answer may be long. Only root can set this; for
    /// other users, the kernel requests 128 KiB at a time.
    pub fn reads_far_ahead(&self) -> bool {
        self.reads_far_ahead
    }

    /// Serves until the file system is unmounted or `stop` is set, and then unmounts it.
    ///
    /// # Errors
    /// [`Kind::Busy`] if a program still had a file open: the mount is then detached, and ends with
    /// this process; [`Kind::Io`] for errors of the system.
    pub fn serve(self, stop: &Stop) -> Result<()> {
        let Mount { session, mountpoint, ended, .. } = self;
        let waited = wait_readable(&[stop.as_fd(), ended.as_fd()], None);
        // Dropped, it would unmount once more (fuser 0.18 takes POLLERR for "mounted"), and hit a
        // file system that another process has mounted there since. The leak is a device that is
        // closed.
        let session = ManuallyDrop::new(session);
        if unmount(&mountpoint, &ended)? {
            ended.wait(Duration::MAX);
        } else {
            // Asks the helper that mounted.
            let joined = ManuallyDrop::into_inner(session).umount_and_join();
            joined.map_err(|error| Error::io("cannot unmount", &mountpoint, error))?;
        }
        waited
            .map(drop)
            .map_err(|error| Error::io("cannot wait for the end of the mount", &mountpoint, error))
    }
}

/// Unmounts the file system, unless the session has already ended because another process unmounted
/// it; returns `false` if this process may not unmount. A program that is about to close a file, or
/// has just inherited it, gets a little time; after that the mount is detached even if it is in
/// use.
fn unmount(mountpoint: &Path, ended: &Stop) -> Result<bool> {
    for _ in 0..UNMOUNT_ATTEMPTS {
        if ended.is_set() {
            return Ok(true);
        }
        match rustix::mount::unmount(mountpoint, UnmountFlags::empty()) {
            Ok(()) => return Ok(true),
            Err(Errno::BUSY) => _ = ended.wait(UNMOUNT_RETRY),
            Err(Errno::PERM) => return Ok(false),
            // Another process has unmounted it already.
            Err(Errno::INVAL) => return Ok(true),
            Err(errno) => return Err(Error::io("cannot unmount", mountpoint, errno)),
        }
    }
    match rustix::mount::unmount(mountpoint, UnmountFlags::DETACH) {
        Ok(()) => Err(Error::new(
            Kind::Busy,
            "a program still had a file of the mount open when it was unmounted",
        )
        .at(mountpoint)
        .advice(
            "stop the programs that read from the mount before you unmount it; from now on, \
                 reads of these programs fail",
        )),
        Err(errno) => Err(Error::io("cannot unmount", mountpoint, errno)),
    }
}

fn check_device() -> Result<()> {
    let device = std::fs::File::options().read(true).write(true).open(DEVICE);
    device.map(drop).map_err(|error| {
        Error::io("this device cannot be opened, so no file system can be mounted", DEVICE, error)
            .advice(
                "load the kernel module with 'modprobe fuse', or run where the device is permitted",
            )
    })
}

/// Removes the stale mount of a file system whose program was killed, in which nothing can be read
/// or written any more. If this process may not remove the mount, the mountpoint is refused.
fn remove_stale(mountpoint: &Path) {
    if rustix::fs::statfs(mountpoint).is_err_and(|errno| errno == Errno::NOTCONN) {
        let _ = rustix::mount::unmount(mountpoint, UnmountFlags::DETACH);
    }
}

const CANNOT_MOUNT_ON: &str = "nothing can be mounted on this directory";

/// Returns the absolute path of the directory, if it can be a mountpoint.
fn check_mountpoint(mountpoint: &Path) -> Result<PathBuf> {
    let busy = || {
        Error::new(Kind::Busy, "a file system is already mounted on this directory")
            .at(mountpoint)
            .advice(
                "unmount that file system with 'fusermount3 -u' or 'umount', or give another \
                 directory",
            )
    };
    let stale = || {
        Error::new(
            Kind::Busy,
            "the program that served the file system on this directory has ended",
        )
        .at(mountpoint)
        .advice("remove the dead mount with 'fusermount3 -u' or 'umount', then try again")
    };
    let refused = |error: std::io::Error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        // The mountpoint of a server that was killed.
        Some(Errno::NOTCONN) => stale(),
        Some(Errno::NOTDIR) => {
            Error::new(Kind::Usage, "this is not a directory, so nothing can be mounted on it")
                .at(mountpoint)
        }
        _ => Error::io(CANNOT_MOUNT_ON, mountpoint, error),
    };
    let found = rustix::fs::statx(CWD, mountpoint, AtFlags::empty(), StatxFlags::TYPE).map_err(
        |errno| match errno {
            // A path below a regular file.
            Errno::NOTDIR => Error::of_named(CANNOT_MOUNT_ON, mountpoint, errno),
            _ => refused(errno.into()),
        },
    )?;
    if found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        // Attributes may be known from a moment ago; this one is asked of the program itself.
        let is_stale = rustix::fs::statfs(mountpoint).is_err_and(|errno| errno == Errno::NOTCONN);
        return Err(if is_stale { stale() } else { busy() });
    }
    if std::fs::read_dir(mountpoint).map_err(refused)?.next().is_some() {
        return Err(Error::new(Kind::Exists, "the directory is not empty").at(mountpoint).advice(
            "give an empty directory, because the mount would hide the content of this one",
        ));
    }
    mountpoint.canonicalize().map_err(refused)
}

fn refused(mountpoint: &Path, error: std::io::Error) -> Error {
    Error::io("cannot mount a file system", mountpoint, error)
        .advice("run as root, or install fusermount3 (package fuse3)")
}

/// Raises the kernel's read-ahead for this file system, which is 128 KiB for FUSE whatever a server
/// requests; returns whether this worked.
fn read_far_ahead(mountpoint: &Path) -> bool {
    let Ok(stat) = rustix::fs::stat(mountpoint) else { return false };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    std::fs::write(setting, READ_AHEAD_KIB.to_string()).is_ok()
}
