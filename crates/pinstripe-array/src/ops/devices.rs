//! Checks devices before an array uses them: whether a device is in use, has known content, is
//! named twice, or shares a disk with another. Opens them exclusively.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::signature::signature;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::device::{
    Access, Device, FileDevice, Policy, SharedDevice, Unwatched, WatchedDevice, refuse_held, within,
};
use pinstripe_io::disk::disk_of;
use pinstripe_io::fault::{FaultyDevice, Plan};
use pinstripe_io::paths;

/// The deadline of calls of a device, unless [`set_device_timeout`] sets another one.
const TIMEOUT: Duration = Duration::from_secs(30);

static CHOSEN_TIMEOUT: OnceLock<Duration> = OnceLock::new();

/// Sets the deadline of every call of a device, once for this process. A call that moves data gets a
/// second more for each MiB.
pub fn set_device_timeout(timeout: Duration) {
    // The first one stays.
    let _ = CHOSEN_TIMEOUT.set(timeout);
}

fn timeout() -> Duration {
    CHOSEN_TIMEOUT.get().copied().unwrap_or(TIMEOUT)
}

/// The time in which the process that serves an array must answer: a request may call several
/// devices, one after the other.
pub(crate) fn answer_timeout() -> Duration {
    timeout() * 4
}

/// Does `work`, which asks about a device, within the deadline.
///
/// # Errors
/// Fails with [`Kind::Unanswered`] after the deadline; with the error of `work`.
pub(crate) fn in_time<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> Result<T> + Send + 'static,
) -> Result<T> {
    let own = path.to_path_buf();
    within(path, timeout(), move || work(&own))
}

/// Identifies the file or disk that a path leads to: the result is equal for paths to the same one.
pub fn identity(path: &Path) -> Result<(u64, u64)> {
    in_time(path, |path| {
        let found = paths::metadata(path);
        let found = found.map_err(|error| Error::of_named("cannot examine", path, error))?;
        Ok(match found.file_type().is_block_device() {
            true => (u64::MAX, found.rdev()),
            false => (found.dev(), found.ino()),
        })
    })
}

/// Refuses a device that is named twice.
///
/// # Errors
/// Fails with [`Kind::Usage`].
pub(crate) fn refuse_twice(paths: &[PathBuf]) -> Result<()> {
    let mut seen = SeenDevices::default();
    paths.iter().try_for_each(|path| seen.add(path))
}

/// Devices, to find one that is named twice.
#[derive(Default)]
pub(crate) struct SeenDevices(Vec<((u64, u64), PathBuf)>);

impl SeenDevices {
    /// Adds a device.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] if another path leads to the device; with the errors of
    /// [`identity`].
    pub fn add(&mut self, path: &Path) -> Result<()> {
        let own = identity(path)?;
        if let Some((_, other)) = self.0.iter().find(|(known, _)| *known == own) {
            let what = format!("this is the same device as {}", other.display());
            return Err(Error::new(Kind::Usage, what)
                .at(path)
                .advice("give each device only once"));
        }
        self.0.push((own, path.to_path_buf()));
        Ok(())
    }
}

/// Opens a device exclusively, with the faults that are planned for the `number`th.
///
/// # Errors
/// Fails with [`Kind::Busy`] if the device is in use (the error names the user); with
/// [`Kind::Unanswered`] if the device does not answer; with the errors of [`FileDevice::open`].
pub fn open(path: &Path, number: usize, faults: &Plan) -> Result<SharedDevice> {
    let (own, plan) = (path.to_path_buf(), faults.for_member(number as u32));
    let open = move || {
        refuse_held(&own)?;
        let device = FileDevice::open(&own, Access::Write, Policy::Buffered)?;
        device.lock()?;
        let device = device.with_direct_long_writes()?;
        Ok(match plan.faults.is_empty() {
            true => Unwatched::File(device),
            false => Unwatched::Other(Arc::new(FaultyDevice::new(device, plan))),
        })
    };
    Ok(Arc::new(WatchedDevice::open(path, timeout(), open)?))
}

/// Opens a device that is only read, and may be in use.
///
/// # Errors
/// Fails with the errors of [`FileDevice::open`]; with [`Kind::Unanswered`] if the device does not
/// answer.
pub(crate) fn open_to_read(path: &Path) -> Result<SharedDevice> {
    let own = path.to_path_buf();
    let open = move || FileDevice::open(own, Access::Read, Policy::Buffered).map(Unwatched::File);
    Ok(Arc::new(WatchedDevice::open(path, timeout(), open)?))
}

/// Opens a device whose content will be lost.
///
/// # Errors
/// Fails with the errors of [`open`]; with [`Kind::Refused`] if the device has known content and
/// `force` is not set.
pub(crate) fn open_blank(
    path: &Path,
    number: usize,
    faults: &Plan,
    force: bool,
) -> Result<SharedDevice> {
    let device = open(path, number, faults)?;
    refuse_carrying(&device, force)?;
    Ok(device)
}

/// Refuses a device with known content, unless `force` allows its loss.
///
/// # Errors
/// Fails with [`Kind::Refused`] for known content; with the errors of the device.
pub(crate) fn refuse_carrying(device: &SharedDevice, force: bool) -> Result<()> {
    match signature(device)? {
        Some(found) if !force => {
            let error = Error::new(Kind::Refused, format!("the device contains {found}"));
            let error = error.at(device.place());
            Err(error.advice("give another device, or overwrite this one with --force"))
        }
        _ => Ok(()),
    }
}

/// Warns about devices that share a disk: they fail together, and compete for the same arm.
pub(crate) fn warn_of_shared_disks(paths: &[PathBuf], monitor: &Monitor) {
    for (number, path) in paths.iter().enumerate() {
        let Some(disk) = disk_of(path) else { continue };
        let other = paths[..number].iter().find(|it| disk_of(it).as_ref() == Some(&disk));
        if let Some(other) = other {
            let what = format!("this device is on the same disk ({disk}) as {}", other.display());
            let error = Error::new(Kind::Refused, what).advice(
                "if that disk fails, both devices are lost: use a separate disk for each member",
            );
            monitor.warning(path, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::made_files::MadeFiles;
    use super::*;

    #[test]
    fn one_device_under_two_names_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b, link] = ["a", "b", "link"].map(|name| dir.path().join(name));
        MadeFiles::of([&a, &b], Some(4096)).unwrap().keep();
        std::os::unix::fs::symlink(&a, &link).unwrap();
        refuse_twice(&[a.clone(), b.clone()]).unwrap();
        let error = refuse_twice(&[a.clone(), b, link]).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.what().contains(a.to_str().unwrap()), "{error}");
    }

    #[test]
    fn what_a_device_carries_is_given_up_by_force_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        MadeFiles::of([&path], Some(1 << 20)).unwrap().keep();
        fs::write(&path, [b"XFSB".to_vec(), vec![0; 1 << 20]].concat()).unwrap();
        let none = Plan::default();
        let error = open_blank(&path, 0, &none, false).err().unwrap();
        assert_eq!(error.kind(), Kind::Refused);
        assert!(error.what().contains("XFS"), "{error}");
        let held = open_blank(&path, 0, &none, true).unwrap();
        assert_eq!(open(&path, 0, &none).err().unwrap().kind(), Kind::Busy);
        drop(held);
        open(&path, 0, &none).unwrap();
    }
}
