//! Files created for devices that will join an array.

#![allow(clippy::disallowed_methods, reason = "this module removes files that it created itself")]

use std::fs;
use std::path::PathBuf;

use pinstripe_base::error::Result;
use pinstripe_io::device::{Access, Device, FileDevice, Policy};
use pinstripe_io::paths;

/// Created files. Files that were created; they are removed on drop, unless the array uses them.
#[derive(Default)]
pub struct MadeFiles {
    files: Vec<PathBuf>,
}

impl MadeFiles {
    /// Creates files of the given length for the devices that do not exist; creates none if no
    /// length is given.
    ///
    /// # Errors
    /// Fails with the errors of the system; in that case the files created before are removed.
    pub fn of<'a>(
        devices: impl IntoIterator<Item = &'a PathBuf>,
        bytes: Option<u64>,
    ) -> Result<Self> {
        let mut made = MadeFiles::default();
        let Some(bytes) = bytes else { return Ok(made) };
        for device in devices.into_iter().filter(|device| !paths::exists(device)) {
            let file = FileDevice::open(device, Access::CreateNew, Policy::Buffered)?;
            made.files.push(device.clone());
            file.set_len(bytes)?;
            file.sync()?;
        }
        Ok(made)
    }

    /// Keeps the files, which are members now.
    pub fn keep(mut self) {
        self.files.clear();
    }
}

impl Drop for MadeFiles {
    fn drop(&mut self) {
        for file in &self.files {
            // Empty and unused files: one that cannot be removed does no harm.
            let _ = fs::remove_file(file);
        }
    }
}
