//! Finds out what uses a block device or a file.
//!
//! The information is in the kernel's tables: `/proc/self/mountinfo`, `/proc/swaps` and `/sys`. A
//! disk counts as in use when one of its partitions is. Uses that the tables do not show (another
//! namespace, a program that has the device open) are found when the device is opened exclusively,
//! or locked: see [`FileDevice`](super::FileDevice).

use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::FileDevice;
use crate::mounts::{self, MountInfo};
use pinstripe_base::error::{Error, Kind, Result};

/// The most stacked devices that are followed.
const MAX_STACK: usize = 8;

/// What uses a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// The device is mounted at this path.
    Mounted(PathBuf),
    /// It is swap.
    Swap,
    /// Another device is built on the device; this is the other device's name in the kernel and for
    /// people.
    Device(String),
    /// One of the device's partitions is in use.
    Partition(String, Box<Holder>),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Mounted(place) => write!(f, "mounted at {}", place.display()),
            Holder::Swap => f.write_str("used as swap"),
            Holder::Device(name) => write!(f, "used by {name}"),
            Holder::Partition(name, holder) => write!(f, "in use, because {name} is {holder}"),
        }
    }
}

impl Holder {
    /// The advice how to end that use.
    pub fn advice(&self) -> &'static str {
        match self {
            Holder::Mounted(_) => "unmount the device with 'umount', or give another device",
            Holder::Swap => "turn off the swap space with 'swapoff', or give another device",
            Holder::Device(_) => {
                "stop the device that is built on this one, or give another device"
            }
            Holder::Partition(_, holder) => holder.advice(),
        }
    }
}

/// Returns what uses a device, as far as the kernel's tables show it.
///
/// # Errors
/// Fails when the device cannot be examined. Tables that cannot be read count as empty.
pub fn holder(path: &Path) -> Result<Option<Holder>> {
    Ok(MountTables::of_system().holder(Whose::for_path(path)?))
}

/// Returns what uses the device below a loop device, except for the loop device itself.
///
/// # Errors
/// Fails with the errors of [`holder`].
pub fn holder_besides(path: &Path, loop_device: &str) -> Result<Option<Holder>> {
    let tables = MountTables { besides: Some(loop_device.to_owned()), ..MountTables::of_system() };
    Ok(tables.holder(Whose::for_path(path)?))
}

/// Refuses a device that is in use.
///
/// # Errors
/// Fails with [`Kind::Busy`], with the user of the device; otherwise with the errors of [`holder`].
pub fn refuse_held(path: &Path) -> Result<()> {
    match holder(path)? {
        None => Ok(()),
        Some(holder) => {
            let error = Error::new(Kind::Busy, format!("the device is {holder}")).at(path);
            Err(error.advice(holder.advice()))
        }
    }
}

impl FileDevice {
    /// Locks the device for this process alone. The lock works against processes that also lock, as
    /// all of pinstripe's do. The lock lasts until the device is closed, however the process ends.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when another process has locked the device; otherwise with the
    /// errors of the system.
    pub fn lock(&self) -> Result<()> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(()),
            Err(Errno::WOULDBLOCK) => {
                let error =
                    Error::new(Kind::Busy, "another process of pinstripe has this device open");
                Err(self.placed(error).advice(
                    "'pinstripe array status' shows whether the array is served; otherwise, wait \
                     until the other command has ended",
                ))
            }
            Err(errno) => Err(self.cannot("cannot be locked", errno)),
        }
    }

    fn placed(&self, error: Error) -> Error {
        error.at(super::Device::place(self))
    }
}

/// The device or file that is looked up in the tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// A block device, identified by its device number.
    Device(u64),
    /// A file by the number of its file system and its inode number.
    File(u64, u64),
}

impl Whose {
    fn for_path(path: &Path) -> Result<Whose> {
        let found = fs::metadata(path).map_err(|error| Error::io("cannot examine", path, error))?;
        Ok(match found.file_type().is_block_device() {
            true => Whose::Device(found.rdev()),
            false => Whose::File(found.dev(), found.ino()),
        })
    }

    /// Whether a path in a table is this device or file.
    fn is_at(self, path: &Path) -> bool {
        let Ok(found) = fs::metadata(path) else { return false };
        match self {
            Whose::Device(number) => found.file_type().is_block_device() && found.rdev() == number,
            Whose::File(device, inode) => (found.dev(), found.ino()) == (device, inode),
        }
    }
}

struct MountTables {
    mounts: String,
    swaps: String,
    sys: PathBuf,
    /// A loop device that is ignored.
    besides: Option<String>,
}

impl MountTables {
    fn of_system() -> Self {
        let text = |path: &str| {
            fs::read(path).map(|it| String::from_utf8_lossy(&it).into_owned()).unwrap_or_default()
        };
        MountTables {
            mounts: text("/proc/self/mountinfo"),
            swaps: text("/proc/swaps"),
            sys: PathBuf::from("/sys"),
            besides: None,
        }
    }

    fn holder(&self, whose: Whose) -> Option<Holder> {
        if let Some(holder) = self.mounted(whose).or_else(|| self.swap(whose)) {
            return Some(holder);
        }
        match whose {
            Whose::Device(number) => {
                let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
                let directory = self.sys.join("dev/block").join(format!("{major}:{minor}"));
                let stacked = fs::canonicalize(directory).ok();
                let stacked = stacked.and_then(|directory| self.stacked(&directory, MAX_STACK));
                stacked.or_else(|| self.looped(whose))
            }
            Whose::File(..) => self.looped(whose),
        }
    }

    /// Looks for a mount of the device; for btrfs, only the mount's source names the device.
    fn mounted(&self, whose: Whose) -> Option<Holder> {
        let Whose::Device(number) = whose else { return None };
        let wanted = mounts::numbers(number);
        let is_it = |it: &MountInfo| {
            it.device == wanted || it.source.is_absolute() && whose.is_at(&it.source)
        };
        mounts::parse(&self.mounts).find(is_it).map(|it| Holder::Mounted(it.at))
    }

    fn swap(&self, whose: Whose) -> Option<Holder> {
        let mut names =
            self.swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        names.any(|name| whose.is_at(&mounts::unescaped(name))).then_some(Holder::Swap)
    }

    /// The device that is built on the device of a sysfs directory, or on one of its partitions.
    fn stacked(&self, directory: &Path, depth: usize) -> Option<Holder> {
        let above = fs::read_dir(directory.join("holders")).ok().and_then(|mut it| it.next());
        if let Some(Ok(above)) = above {
            return Some(Holder::Device(self.described(&above.path())));
        }
        let parts = fs::read_dir(directory).ok()?.flatten();
        let parts = parts.filter(|part| part.path().join("partition").exists());
        parts.filter(|_| depth > 0).find_map(|part| {
            let number = fs::read_to_string(part.path().join("dev")).ok()?;
            let (major, minor) = number.trim().split_once(':')?;
            let number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
            let whose = Whose::Device(number);
            let holder = self.mounted(whose).or_else(|| self.swap(whose));
            let holder = holder.or_else(|| self.stacked(&part.path(), depth - 1));
            let holder = holder.or_else(|| self.looped(whose))?;
            let name = part.file_name().to_string_lossy().into_owned();
            Some(Holder::Partition(name, Box::new(holder)))
        })
    }

    /// A readable name of the device of a sysfs directory.
    fn described(&self, directory: &Path) -> String {
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
        if directory.join("md").exists() {
            return format!("the md array {name}");
        }
        let (called, uuid) = (text("dm/name"), text("dm/uuid"));
        let called = called.trim();
        match uuid.split('-').next() {
            Some("LVM") => format!("the LVM volume {called} ({name})"),
            Some("CRYPT") => format!("the encrypted device {called} ({name})"),
            _ if !called.is_empty() => format!("the mapped device {called} ({name})"),
            _ => name,
        }
    }

    /// The loop device on a file or device, which the kernel does not list as its holder.
    fn looped(&self, whose: Whose) -> Option<Holder> {
        let devices = fs::read_dir(self.sys.join("block")).ok()?.flatten();
        devices.into_iter().find_map(|device| {
            let name = device.file_name().to_string_lossy().into_owned();
            let is_asked = name.starts_with("loop") && self.besides.as_ref() != Some(&name);
            let file = is_asked.then(|| device.path().join("loop/backing_file"))?;
            let backing = fs::read(file).ok()?;
            let backing = backing.strip_suffix(b"\n").unwrap_or(&backing).to_vec();
            let backing = PathBuf::from(std::ffi::OsString::from_vec(backing));
            whose.is_at(&backing).then_some(Holder::Device(name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Access, Policy};
    use std::os::unix::fs::symlink;

    /// A system with sda (sda1 mounted, sda2 below an LVM volume), sdb below md0, sdc that is free.
    fn tables(root: &Path) -> MountTables {
        let make = |path: &str, number: &str| {
            let dir = root.join("devices").join(path);
            fs::create_dir_all(dir.join("holders")).unwrap();
            fs::write(dir.join("dev"), format!("{number}\n")).unwrap();
            let numbers = root.join("dev/block");
            fs::create_dir_all(&numbers).unwrap();
            symlink(&dir, numbers.join(number)).unwrap();
            dir
        };
        make("sda", "8:0");
        let parts = [make("sda/sda1", "8:1"), make("sda/sda2", "8:2")];
        parts.iter().for_each(|part| fs::write(part.join("partition"), "1\n").unwrap());
        let sdb = make("sdb", "8:16");
        make("sdc", "8:32");
        let volume = make("dm-0", "254:0");
        fs::create_dir(volume.join("dm")).unwrap();
        fs::write(volume.join("dm/name"), "vg-home\n").unwrap();
        fs::write(volume.join("dm/uuid"), "LVM-abc\n").unwrap();
        symlink(&volume, parts[1].join("holders/dm-0")).unwrap();
        let array = make("md0", "9:0");
        fs::create_dir(array.join("md")).unwrap();
        symlink(&array, sdb.join("holders/md0")).unwrap();
        MountTables {
            mounts: "22 1 8:1 / /the\\040root rw - ext4 /dev/sda1 rw\n".to_owned(),
            swaps: "Filename Type Size Used Priority\n".to_owned(),
            sys: root.to_owned(),
            besides: None,
        }
    }

    #[test]
    fn whoever_has_a_disk_is_named() {
        let root = tempfile::tempdir().unwrap();
        let tables = tables(root.path());
        let told = |major, minor| {
            let holder = tables.holder(Whose::Device(rustix::fs::makedev(major, minor)));
            holder.map(|holder| holder.to_string())
        };
        assert_eq!(told(8, 1).unwrap(), "mounted at /the root");
        assert_eq!(told(8, 2).unwrap(), "used by the LVM volume vg-home (dm-0)");
        assert_eq!(told(8, 16).unwrap(), "used by the md array md0");
        assert_eq!(told(8, 32), None);
        assert_eq!(told(77, 1), None);
        // Which of its partitions is met first is the directory's business.
        assert!(told(8, 0).unwrap().starts_with("in use, because sda"), "{:?}", told(8, 0));
    }

    #[test]
    fn a_file_that_is_swap_or_behind_a_loop_device_is_in_use() {
        let root = tempfile::tempdir().unwrap();
        let (swap, image) = (root.path().join("swap file"), root.path().join("image"));
        fs::write(&swap, "").unwrap();
        fs::write(&image, "").unwrap();
        let mut tables = tables(root.path());
        let name = swap.to_str().unwrap().replace(' ', "\\040");
        tables.swaps += &format!("{name} file 1024 0 -2\n");
        let dir = root.path().join("block/loop3/loop");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("backing_file"), format!("{}\n", image.display())).unwrap();
        let told = |path: &Path| {
            let found = fs::metadata(path).unwrap();
            tables.holder(Whose::File(found.dev(), found.ino()))
        };
        assert_eq!(told(&swap), Some(Holder::Swap));
        assert_eq!(told(&image), Some(Holder::Device("loop3".to_owned())));
        assert_eq!(told(root.path()), None);
        // The loop device itself does not count as a user when it is the one that asks.
        tables.besides = Some("loop3".to_owned());
        let found = fs::metadata(&image).unwrap();
        assert_eq!(tables.holder(Whose::File(found.dev(), found.ino())), None);
    }

    #[test]
    fn a_device_is_locked_until_it_is_closed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || FileDevice::open(file.path(), Access::Write, Policy::Buffered).unwrap();
        let (first, second) = (open(), open());
        first.lock().unwrap();
        first.lock().unwrap();
        assert_eq!(second.lock().unwrap_err().kind(), Kind::Busy);
        drop(first);
        second.lock().unwrap();
    }

    #[test]
    fn a_plain_file_is_free_on_this_system() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(holder(file.path()).unwrap(), None);
        refuse_held(file.path()).unwrap();
        assert_eq!(holder(Path::new("/nowhere/at/all")).unwrap_err().kind(), Kind::NotFound);
    }
}
