//! Places where something is mounted, and reads that are timed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};

use crate::Result;

/// A directory at which a command mounts something; unmounted when this is dropped.
pub(super) struct MountedAt(pub(super) PathBuf);

impl MountedAt {
    /// An empty directory of this name.
    pub(super) fn new(work: &Path, name: &str) -> Result<MountedAt> {
        let place = work.join(name);
        // One that an interrupted run has left.
        let _ = Command::new("umount").args(["-q", "-l"]).arg(&place).status();
        fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
        Ok(MountedAt(place))
    }
}

impl Drop for MountedAt {
    fn drop(&mut self) {
        let ended = Command::new("umount").args(["-q"]).arg(&self.0).status();
        if !ended.is_ok_and(|status| status.success()) {
            let _ = Command::new("umount").args(["-q", "-l"]).arg(&self.0).status();
        }
    }
}

/// Has the kernel forget what it keeps of a file.
pub(super) fn cool(path: &Path) -> Result<()> {
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(told)?;
    file.sync_all().map_err(told)?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|errno| told(errno.into()))
}

/// Reads of one length at many places, in order.
pub(super) struct Reads {
    pub(super) length: u64,
    pub(super) offsets: Vec<u64>,
}

impl Reads {
    /// `count` records of a length, `distance` from one to the next, or backwards from the last.
    pub(super) fn stride(length: u64, distance: u64, count: u64, is_backwards: bool) -> Reads {
        let mut offsets: Vec<u64> = (0..count).map(|record| record * distance).collect();
        if is_backwards {
            offsets.reverse();
        }
        Reads { length, offsets }
    }

    /// `count` reads at random places of a file of `size`.
    pub(super) fn random(length: u64, count: u64, size: u64) -> Reads {
        let mut x = 88_172_645_463_325_252_u64;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x % (size / length) * length
        };
        Reads { length, offsets: (0..count).map(|_| next()).collect() }
    }

    /// Reads a file so, in calls of at most 1 MiB, and gives each to `check`; returns MB/s.
    pub(super) fn rate(&self, path: &Path, check: &dyn Fn(u64, &[u8]) -> bool) -> Result<f64> {
        let told = |error: std::io::Error| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(told)?;
        let mut buffer = vec![0; self.length.min(1 << 20) as usize];
        let began = Instant::now();
        for record in &self.offsets {
            for at in (*record..record + self.length).step_by(buffer.len()) {
                file.read_exact_at(&mut buffer, at).map_err(told)?;
                if !check(at, &buffer) {
                    return Err(format!("{}: wrong bytes at {at}", path.display()));
                }
            }
        }
        let bytes = self.length as f64 * self.offsets.len() as f64;
        Ok(bytes / 1e6 / began.elapsed().as_secs_f64())
    }
}
