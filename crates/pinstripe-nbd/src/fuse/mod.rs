//! One source, or one device, as a file that every program can use: a FUSE file system with one
//! file.
//!
//! Invariants: the bytes are those of the source or device, at any place and for any number of
//! readers at once; nothing can be written except to a device that is shown as writable; nothing
//! stays mounted however serving ends, unless the process is killed. The threads that answer the
//! kernel are those of the crate `fuser`. Never here: the meaning of the bytes.

#![allow(clippy::disallowed_methods, reason = "mounts a file system")]

mod device_file;
mod file_system;
mod options;

use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use device_file::DeviceFile;
use file_system::FileSystem;
pub use options::MountOptions;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::{Stop, lock, wait_readable};
use pinstripe_io::device::Sparse;

/// The device by which the kernel accepts file systems from programs.
const DEVICE: &str = "/dev/fuse";
/// The number of attempts to unmount while the file is open.
const UNMOUNT_ATTEMPTS: usize = 10;
/// The time between two of them.
const UNMOUNT_RETRY: Duration = Duration::from_millis(50);
/// The read-ahead that the kernel is asked for: as much as one answer may hold (FUSE_MAX_PAGES in
/// fs/fuse/fuse_i.h).
const READ_AHEAD_KIB: u32 = 1024;

/// A device that is shown somewhere.
pub struct Mount {
    session: BackgroundSession,
    mountpoint: PathBuf,
    file: PathBuf,
    failure: Arc<Mutex<Option<Error>>>,
    /// Set when the last thread that answers the kernel has ended.
    ended: Arc<Stop>,
}

impl Mount {
    /// Mounts a file system with the device as its only file on an empty directory. A length that
    /// changes later is seen only where the device may change.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when there is no such directory or no /dev/fuse, [`Kind::Usage`] for what
    /// is no directory, [`Kind::Exists`] for one that is not empty, [`Kind::Busy`] when something is
    /// mounted there; [`Kind::Io`] when the system refuses to mount; those of the device.
    pub fn new(device: Arc<dyn Sparse>, mountpoint: &Path, options: &MountOptions) -> Result<Self> {
        let content = DeviceFile { device, is_read_only: options.is_read_only };
        let config = config(options);
        let (failure, ended) = (Arc::default(), Arc::new(Stop::new()?));
        let file_system =
            FileSystem::new(content, options, Arc::clone(&failure), Arc::clone(&ended))?;
        let mountpoint = check_mountpoint(mountpoint)?;
        check_device()?;
        let session = Session::new(file_system, &mountpoint, &config)
            .and_then(Session::spawn)
            .map_err(|error| refused(&mountpoint, error))?;
        read_far_ahead(&mountpoint);
        let file = mountpoint.join(&options.name);
        Ok(Mount { session, mountpoint, file, failure, ended })
    }

    /// The path of the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Serves until the file system is unmounted or `stop` is set, and then unmounts it.
    ///
    /// # Errors
    /// The first error of the device that a reader met; [`Kind::Busy`] when a program still had
    /// the file open: it is out of sight then, and ends with this process; [`Kind::Io`] as the
    /// system says.
    pub fn serve(self, stop: &Stop) -> Result<()> {
        let Mount { session, mountpoint, failure, ended, .. } = self;
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
        let failure = lock(&failure).take();
        waited.map_err(|error| Error::io("cannot wait for the end", &mountpoint, error))?;
        failure.map_or(Ok(()), Err)
    }
}

/// Unmounts, unless the session has ended, as it does when another process unmounts; `false` if this
/// process may not. A program that is about to close the file, or that has inherited it a moment
/// ago, gets a little time; then the mount is detached all the same.
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
        Ok(()) => Err(Error::new(Kind::Busy, "a program still had the file open")
            .at(mountpoint)
            .advice("stop the readers first; their reads fail from now on")),
        Err(errno) => Err(Error::io("cannot unmount", mountpoint, errno)),
    }
}

fn config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("pinstripe".to_owned()),
        MountOption::Subtype("pinstripe".to_owned()),
        if options.is_read_only { MountOption::RO } else { MountOption::RW },
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
    ];
    // Others may read what root shows; what a user shows is for that user, unless the system's
    // /etc/fuse.conf says otherwise.
    if rustix::process::geteuid().is_root() {
        config.acl = SessionACL::All;
    }
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    config
}

fn check_device() -> Result<()> {
    let device = std::fs::File::options().read(true).write(true).open(DEVICE);
    device.map(drop).map_err(|error| {
        Error::io("cannot be opened, so no file system can be shown", DEVICE, error).advice(
            "load the kernel module with 'modprobe fuse', or run where the device is permitted",
        )
    })
}

/// The directory's full name.
fn check_mountpoint(mountpoint: &Path) -> Result<PathBuf> {
    let busy = || {
        Error::new(Kind::Busy, "something is mounted there already")
            .at(mountpoint)
            .advice("unmount it ('fusermount3 -u' or 'umount'), or name another directory")
    };
    let refused = |error: std::io::Error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        // The mountpoint of a server that was killed.
        Some(Errno::NOTCONN) => busy(),
        Some(Errno::NOTDIR) => {
            Error::new(Kind::Usage, "is not a directory to mount on").at(mountpoint)
        }
        _ => Error::io("cannot be mounted on", mountpoint, error),
    };
    let found = rustix::fs::statx(CWD, mountpoint, AtFlags::empty(), StatxFlags::TYPE)
        .map_err(|errno| refused(errno.into()))?;
    if found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(busy());
    }
    if std::fs::read_dir(mountpoint).map_err(refused)?.next().is_some() {
        return Err(Error::new(Kind::Exists, "the directory is not empty")
            .at(mountpoint)
            .advice("name an empty one: its content would be hidden by the mount"));
    }
    mountpoint.canonicalize().map_err(refused)
}

fn refused(mountpoint: &Path, error: std::io::Error) -> Error {
    Error::io("cannot mount a file system", mountpoint, error)
        .advice("run as root, or install fusermount3 (package fuse3)")
}

/// Raises the kernel's read-ahead for this file system, which is 128 KiB for FUSE whatever a server
/// asks for. Only root may; for others it stays as it is.
fn read_far_ahead(mountpoint: &Path) {
    let Ok(stat) = rustix::fs::stat(mountpoint) else { return };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    let _ = std::fs::write(setting, READ_AHEAD_KIB.to_string());
}
