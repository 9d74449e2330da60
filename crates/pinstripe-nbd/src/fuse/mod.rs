//! Shows a device as a file that every program can use: a FUSE file system with one file.
//!
//! Invariants: the file has the bytes of the device, at any offset and for any number of readers at
//! once; nothing can be written except to a device that is shown as writable; the file system is
//! unmounted however serving ends, unless the process is killed. The crate `fuser` starts the
//! threads that answer the kernel. This module does not interpret the bytes.

mod device_file;
mod file_system;
mod options;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use fuser::{Config, MountOption, SessionACL};

use device_file::DeviceFile;
use file_system::FileSystem;
pub use options::MountOptions;
use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::{Stop, lock};
use pinstripe_io::device::Sparse;

/// A device that is mounted as a file.
pub struct DeviceMount {
    mount: pinstripe_fuse::Mount,
    file: PathBuf,
    openers: Arc<AtomicUsize>,
    failure: Arc<Mutex<Option<Error>>>,
}

impl DeviceMount {
    /// Mounts a file system with the device as its only file on an empty directory. If the length
    /// changes later, the change is visible only if the options say that the device may change.
    ///
    /// # Errors
    /// Fails with the errors of [`pinstripe_fuse::Mount::new`]; with the errors of the device.
    pub fn new(device: Arc<dyn Sparse>, mountpoint: &Path, options: &MountOptions) -> Result<Self> {
        let content = DeviceFile { device, is_read_only: options.is_read_only };
        let (failure, ended) = (Arc::default(), Arc::new(Stop::new()?));
        let file_system =
            FileSystem::new(content, options, Arc::clone(&failure), Arc::clone(&ended))?;
        let openers = file_system.openers();
        let mount = pinstripe_fuse::Mount::new(file_system, mountpoint, &config(options), ended)?;
        let file = mount.mountpoint().join(&options.name);
        Ok(DeviceMount { mount, file, openers, failure })
    }

    /// The path of the device's file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The number of times that the file is open: by programs, and by devices that the kernel made
    /// of it.
    pub fn openers(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.openers)
    }

    /// Serves the file until the file system is unmounted or `stop` is set, and then unmounts it.
    ///
    /// # Errors
    /// Fails with the errors of [`pinstripe_fuse::Mount::serve`]; with the first error of the
    /// device that a reader met.
    pub fn serve(self, stop: &Stop) -> Result<()> {
        let served = self.mount.serve(stop);
        let failure = lock(&self.failure).take();
        served?;
        failure.map_or(Ok(()), Err)
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
