//! Devices that are to join an array: files are made for those that do not exist, if that is wanted,
//! and all are looked at before anything is changed.

use std::fs;
use std::path::PathBuf;

use pinstripe_array::ops::devices::make_file;
use pinstripe_base::error::Result;

use crate::args::Size;

/// Files that were made for devices. They are removed again unless the array can use them.
#[derive(Default)]
pub struct Newcomers {
    made: Vec<PathBuf>,
}

impl Newcomers {
    /// Makes files of a size for the devices that do not exist; none without a size.
    ///
    /// # Errors
    /// Those of [`make_file`]; the files made before are gone again.
    pub fn make<'a>(
        devices: impl IntoIterator<Item = &'a PathBuf>,
        size: Option<Size>,
    ) -> Result<Self> {
        let mut newcomers = Newcomers::default();
        let Some(size) = size else { return Ok(newcomers) };
        for device in devices.into_iter().filter(|device| !device.exists()) {
            newcomers.made.push(device.clone());
            make_file(device, size.0)?;
        }
        Ok(newcomers)
    }

    /// Keeps the files: they are members from now on.
    pub fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for Newcomers {
    fn drop(&mut self) {
        for file in &self.made {
            // Empty files that nothing uses: one that cannot be removed harms nothing.
            let _ = fs::remove_file(file);
        }
    }
}
