//! Devices with holes: a trait of its own, separate from [`Device`].
//!
//! Only servers use it, and any device can be served without it: everything counts as data, and
//! zeros are written. So a device without this trait, for example a wrapper, is served more slowly
//! but still correctly.

use std::ops::Range;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::{Device, FileDevice, MemoryDevice, NullDevice, end_within, no_room, too_short};
use pinstripe_base::error::{Error, Kind, Result};

/// A run of bytes that are all data or all a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The length of the run in bytes; never 0.
    pub bytes: u64,
    /// Whether the run is a hole, which takes no space and reads as zeros.
    pub is_hole: bool,
}

/// What happens to the space of a range that becomes zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// The space may be freed.
    Free,
    /// The space is kept, so that a later write there succeeds.
    Keep,
}

/// A device that can have holes.
pub trait Sparse: Device {
    /// The run at the beginning of `range`, which is not empty. The run does not extend beyond the
    /// range. The run may end early: the next run may be of the same kind. A range that is being
    /// written at the same time counts as either before or after the write.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] beyond the end; otherwise with the errors of the system.
    fn run(&self, range: Range<u64>) -> Result<Run>;

    /// Makes `range` read as zeros in a way that is faster than writing them.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] when the device has no such way, and changes nothing; with
    /// [`Kind::NoSpace`] beyond the end, which is not moved; otherwise with the errors of the
    /// system.
    fn zero(&self, range: Range<u64>, space: Space) -> Result<()>;
}

/// Accepts only a range that is not empty and does not extend beyond the end.
fn check_run(device: &dyn Device, range: &Range<u64>) -> Result<u64> {
    let (len, wanted) = (device.len()?, range.end.saturating_sub(range.start));
    match wanted > 0 && range.end <= len {
        true => Ok(wanted),
        false => Err(too_short(device.place(), range.start, wanted.max(1) as usize, len)),
    }
}

/// Accepts only a range, possibly empty, that does not extend beyond the end.
fn check_zero(device: &dyn Device, range: &Range<u64>) -> Result<u64> {
    let (len, wanted) = (device.len()?, range.end.saturating_sub(range.start));
    match end_within(range.start, wanted as usize, len) {
        Some(_) => Ok(wanted),
        None if wanted == 0 => Ok(0),
        None => Err(no_room(device.place(), range.start, wanted as usize, len)),
    }
}

impl<D: Sparse + ?Sized> Sparse for Arc<D> {
    fn run(&self, range: Range<u64>) -> Result<Run> {
        (**self).run(range)
    }

    fn zero(&self, range: Range<u64>, space: Space) -> Result<()> {
        (**self).zero(range, space)
    }
}

impl Sparse for MemoryDevice {
    fn run(&self, range: Range<u64>) -> Result<Run> {
        Ok(Run { bytes: check_run(self, &range)?, is_hole: false })
    }

    fn zero(&self, range: Range<u64>, _: Space) -> Result<()> {
        check_zero(self, &range)?;
        // In memory, that writes zeros.
        self.discard(range)
    }
}

impl Sparse for NullDevice {
    fn run(&self, range: Range<u64>) -> Result<Run> {
        Ok(Run { bytes: check_run(self, &range)?, is_hole: true })
    }

    fn zero(&self, range: Range<u64>, _: Space) -> Result<()> {
        check_zero(self, &range).map(drop)
    }
}

impl Sparse for FileDevice {
    fn run(&self, range: Range<u64>) -> Result<Run> {
        let bytes = check_run(self, &range)?;
        // Nothing uses the descriptor's own position (lseek(2)).
        let data = match rustix::fs::seek(&self.file, SeekFrom::Data(range.start)) {
            Ok(data) => data,
            Err(Errno::NXIO) => range.end, // No data up to the end of the file.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => range.start, // A disk: all of it is data.
            Err(errno) => return Err(self.cannot("cannot find data", errno)),
        };
        if data > range.start {
            return Ok(Run { bytes: data.min(range.end) - range.start, is_hole: true });
        }
        let hole = match rustix::fs::seek(&self.file, SeekFrom::Hole(range.start)) {
            Ok(hole) => hole.min(range.end),
            // As above; or the file was cut meanwhile.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NXIO) => range.end,
            Err(errno) => return Err(self.cannot("cannot find holes", errno)),
        };
        // A hole made between the two calls is reported by the next one.
        let bytes = if hole > range.start { hole - range.start } else { bytes };
        Ok(Run { bytes, is_hole: false })
    }

    fn zero(&self, range: Range<u64>, space: Space) -> Result<()> {
        let bytes = check_zero(self, &range)?;
        if bytes == 0 {
            return Ok(());
        }
        let flags = match space {
            Space::Free => FallocateFlags::PUNCH_HOLE,
            Space::Keep => FallocateFlags::ZERO_RANGE,
        };
        let flags = flags | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, range.start, bytes) {
            Ok(()) => Ok(()),
            // A disk returns EINVAL for ranges that are not multiples of sectors.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Err(Error::new(
                Kind::Unsupported,
                "this device has no request that zeroes a range; the caller must write zeros",
            )
            .at(self.place())),
            Err(errno) => Err(self.cannot("cannot zero a range", errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Access, Policy, conformance};

    #[test]
    fn memory_and_files_keep_the_rules() {
        conformance::run_sparse(&|| Box::new(MemoryDevice::new("memory")));
        conformance::run_sparse(&|| Box::new(Arc::new(MemoryDevice::new("shared"))));
        let directory = tempfile::tempdir().unwrap();
        for policy in [Policy::Buffered, Policy::Direct] {
            conformance::run_sparse(&|| {
                let path = directory.path().join(policy.to_string());
                let _ = std::fs::remove_file(&path);
                Box::new(FileDevice::open(path, Access::CreateNew, policy).unwrap())
            });
        }
    }

    #[test]
    fn null_is_one_hole() {
        let device = NullDevice::new("null", 1 << 40);
        let all = Run { bytes: 1 << 40, is_hole: true };
        assert_eq!(device.run(0..1 << 40).unwrap(), all);
        device.zero(5..1 << 40, Space::Keep).unwrap();
        assert_eq!(device.zero(0..(1 << 40) + 1, Space::Free).unwrap_err().kind(), Kind::NoSpace);
    }

    #[test]
    fn a_file_of_holes_tells_them() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let device = FileDevice::open(&path, Access::Write, Policy::Buffered).unwrap();
        device.set_len(3 << 20).unwrap();
        device.write_at(1 << 20, &[7; 1 << 20]).unwrap();
        let runs = |device: &FileDevice| {
            let (mut at, mut runs) = (0, Vec::new());
            while at < 3 << 20 {
                let run = device.run(at..3 << 20).unwrap();
                runs.push((run.bytes, run.is_hole));
                at += run.bytes;
            }
            runs
        };
        let wanted = [(1 << 20, true), (1 << 20, false), (1 << 20, true)];
        if runs(&device) != wanted {
            let what = "this file system keeps no holes";
            return pinstripe_testing::skipped("a_file_of_holes_tells_them", what);
        }
        device.zero(1 << 20..2 << 20, Space::Free).unwrap();
        assert!(runs(&device).iter().all(|run| run.1));
    }
}
