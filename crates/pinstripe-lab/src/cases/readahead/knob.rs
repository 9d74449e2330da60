//! The kernel's own window of read-ahead.

use std::fs;
use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};

use crate::fingerprint::number_of;

/// The kernel's read-ahead window for one disk or mount. The previous window is restored when this
/// value is dropped.
pub(super) struct Knob {
    path: PathBuf,
    /// As it was.
    pub(super) found: String,
}

impl Knob {
    /// Returns the window of the disk or mount that contains a directory.
    pub(super) fn for_dir(dir: &Path) -> Result<Knob> {
        let (major, minor) = number_of(dir).ok_or_else(|| {
            Error::new(Kind::Unsupported, "the file system of this directory has no device number")
                .at(dir)
        })?;
        let path = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
        let found = fs::read_to_string(&path).map_err(|error| {
            Error::io(
                "the read-ahead setting of the kernel cannot be read, so no read-ahead window can \
                 be set",
                &path,
                error,
            )
            .advice("leave out 'kernel' in --through")
        })?;
        Ok(Knob { path, found: found.trim().to_owned() })
    }

    pub(super) fn set(&self, kib: &str) -> Result<()> {
        fs::write(&self.path, kib).map_err(|error| {
            Error::io("cannot be set", &self.path, error).advice(
                "only root can change the kernel's read-ahead: run the case as root, or leave out \
                 'kernel' in --through",
            )
        })
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        // What could not be set was not changed either.
        let _ = fs::write(&self.path, &self.found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_is_put_back_whatever_was_set() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("read_ahead_kb");
        fs::write(&path, "128\n").unwrap();
        let knob = Knob { path: path.clone(), found: "128".to_owned() };
        knob.set("4096").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "4096");
        drop(knob);
        assert_eq!(fs::read_to_string(&path).unwrap(), "128");
    }
}
