//! Files that are made for devices which are to join an array.

#![allow(clippy::disallowed_methods, reason = "removes files that it made")]

use std::fs;
use std::path::PathBuf;

use pinstripe_base::error::Result;
use pinstripe_io::device::{Access, Device, FileDevice, Policy};
use pinstripe_io::paths;

/// Files that were made. They are removed again unless the array can use them.
#[derive(Default)]
pub struct MadeFiles {
    files: Vec<PathBuf>,
}

impl MadeFiles {
    /// Makes files of a length for the devices that do not exist; none without a length.
    ///
    /// # Errors
    /// Those of the system; the files made before are gone again.
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

    /// Keeps the files: they are members from now on.
    pub fn keep(mut self) {
        self.files.clear();
    }
}

impl Drop for MadeFiles {
    fn drop(&mut self) {
        for file in &self.files {
            // Empty files that nothing uses: one that cannot be removed harms nothing.
            let _ = fs::remove_file(file);
        }
    }
}
