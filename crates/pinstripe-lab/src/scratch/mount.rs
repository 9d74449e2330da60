//! Mounts a file system where no other process sees it.
//!
//! The mount is not attached to the directory tree (fsmount(2)): it exists as long as the
//! descriptor of its root is open, and ends when that is closed, however the process ends. Files
//! are accessed below that descriptor's name in `/proc`. Decision 0024.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::mounts::{self, MountInfo};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_change,
    move_mount,
};
use rustix::thread::UnshareFlags;

use crate::io::at_once;

/// A mounted file system; it is unmounted when it is dropped and no file on it is open any more.
#[derive(Debug)]
pub struct Mounted {
    root: OwnedFd,
    device: PathBuf,
}

/// Options that belong to the mount, not to the file system.
const ATTRIBUTES: &[(&str, MountAttrFlags)] = &[
    ("relatime", MountAttrFlags::MOUNT_ATTR_RELATIME),
    ("noatime", MountAttrFlags::MOUNT_ATTR_NOATIME),
    ("strictatime", MountAttrFlags::MOUNT_ATTR_STRICTATIME),
    ("nodiratime", MountAttrFlags::MOUNT_ATTR_NODIRATIME),
    ("nosuid", MountAttrFlags::MOUNT_ATTR_NOSUID),
    ("nodev", MountAttrFlags::MOUNT_ATTR_NODEV),
    ("noexec", MountAttrFlags::MOUNT_ATTR_NOEXEC),
    ("defaults", MountAttrFlags::empty()),
    ("rw", MountAttrFlags::empty()),
];

/// Checks that this user may mount file systems, and that this kernel supports unattached mounts.
///
/// # Errors
/// The errors of [`Mounted::new`] that do not concern a device.
pub fn may_mount() -> Result<()> {
    let here = Path::new("/");
    let asked = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC);
    asked.map(drop).map_err(|errno| failed(here, "tmpfs", errno, None, ""))
}

impl Mounted {
    /// Mounts a device.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if the kernel is too old or lacks the file system; [`Kind::Refused`]
    /// without permission; other errors with the kernel's message.
    pub fn new(device: &Path, kind: &str, options: &[String]) -> Result<Mounted> {
        let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)
            .map_err(|errno| failed(device, kind, errno, None, ""))?;
        let told = |option: &str, errno| failed(device, kind, errno, Some(&context), option);
        let source = device.as_os_str();
        fsconfig_set_string(context.as_fd(), "source", source).map_err(|it| told("", it))?;
        let mut attributes = MountAttrFlags::empty();
        for option in options {
            if let Some((_, flags)) = ATTRIBUTES.iter().find(|(name, _)| name == option) {
                attributes |= *flags;
                continue;
            }
            let set = match option.split_once('=') {
                Some((key, value)) => fsconfig_set_string(context.as_fd(), key, value),
                None => fsconfig_set_flag(context.as_fd(), option.as_str()),
            };
            set.map_err(|errno| told(option, errno))?;
        }
        fsconfig_create(context.as_fd()).map_err(|errno| told("", errno))?;
        let root = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes);
        let root = root.map_err(|errno| told("", errno))?;
        Ok(Mounted { root, device: device.to_path_buf() })
    }

    /// The path of the root; it is valid for this process only, as long as the file system is
    /// mounted.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.root.as_raw_fd()))
    }

    /// Bytes in use, by files and by the file system itself, and bytes that are free for this user.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn space(&self) -> Result<(u64, u64)> {
        let found = rustix::fs::fstatvfs(&self.root)
            .map_err(|errno| Error::io("cannot be examined", self.path(), errno))?;
        let used = found.f_blocks.saturating_sub(found.f_bfree) * found.f_frsize;
        Ok((used, found.f_bavail * found.f_frsize))
    }

    /// The mount options, including defaults, if the kernel reports them.
    ///
    /// The kernel reports options only for mounts that are attached to a directory, so this mount
    /// is attached for a moment, visible only to a thread that is about to end.
    pub fn options(&self) -> Option<String> {
        let show = |_| {
            // SAFETY: only the mounts are taken apart, not the descriptors.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.ok()?;
            let within = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", within).ok()?;
            let here = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            move_mount(&self.root, "", CWD, "/sys", here).ok()?;
            let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo").ok()?;
            options_of(&mounts, &self.device.to_string_lossy(), "/sys")
        };
        at_once(1, show).pop().flatten()
    }
}

/// The options of a device that is mounted at a directory, by proc(5): first the options of the
/// mount, then those of the file system.
fn options_of(mounts: &str, device: &str, place: &str) -> Option<String> {
    let is_it = |it: &MountInfo| it.at == Path::new(place) && it.source == Path::new(device);
    let found = mounts::parse(mounts).find(is_it)?.all_options();
    let mut options: Vec<&str> = Vec::new();
    for option in found.split(',') {
        if !options.contains(&option) {
            options.push(option);
        }
    }
    Some(options.join(","))
}

/// The error for a failed mount, with the kernel's message.
fn failed(
    device: &Path,
    kind: &str,
    errno: Errno,
    context: Option<&OwnedFd>,
    option: &str,
) -> Error {
    let refused = |kind: Kind, what: String| Error::new(kind, what).at(device);
    match (errno, context) {
        (Errno::NOSYS, _) => {
            refused(Kind::Unsupported, "this kernel cannot create a detached mount".into())
                .advice("Linux 5.8 or newer is needed")
        }
        (Errno::NODEV, None) => {
            refused(Kind::Unsupported, format!("this kernel cannot mount {kind}")).advice(format!(
                "load its kernel module with 'modprobe {kind}', if the module exists"
            ))
        }
        (Errno::PERM | Errno::ACCESS, _) => {
            refused(Kind::Refused, "this user is not permitted to mount file systems".to_owned())
                .advice(super::AS_ROOT)
        }
        _ => {
            let said = context.map(kernel_says).unwrap_or_default();
            let said = match (said.is_empty(), option.is_empty()) {
                (false, _) => format!(": {said}"),
                (true, false) => format!(", because of the option '{option}'"),
                (true, true) => String::new(),
            };
            Error::io(format!("cannot mount the device as {kind}{said}"), device, errno)
                .advice("the last lines of 'dmesg' may contain the reason")
        }
    }
}

/// The kernel's errors and warnings about a mount being created, without the letter that marks
/// their severity.
fn kernel_says(context: &OwnedFd) -> String {
    let mut said = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(len @ 1..) = rustix::io::read(context, &mut buffer) {
        let line = String::from_utf8_lossy(&buffer[..len]);
        said.push(line.trim().trim_start_matches(['e', 'w', 'i']).trim().to_owned());
    }
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_device_at_a_place_are_told_once_each() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
                      24 23 7:2 / /sys rw,noatime - btrfs /dev/loop2 rw,compress=zstd:3,subvol=/\n\
                      25 22 0:21 / /sys rw,nosuid - sysfs sysfs rw";
        let options = |device| options_of(mounts, device, "/sys");
        assert_eq!(options("/dev/loop2").unwrap(), "rw,noatime,compress=zstd:3,subvol=/");
        assert_eq!(options("/dev/sda1"), None);
    }
}
