//! Measures how the speed of the disk changes: the time of a short read, always the same, before
//! and after every run. A disk behind a hypervisor is shared with other virtual machines that no
//! counter of this machine shows; their load is noticed only because the same read takes a
//! different time.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use pinstripe_base::random::Noise;
use pinstripe_io::device::AlignedBuf;
use pinstripe_stats::median;

/// The size of the file, and of each read.
const FILE_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 4096;
/// The number of reads of a probe, and the time after which no further read is started.
const READS: u64 = 64;
const MOST: Duration = Duration::from_millis(30);

/// An unnamed file on the disk, which is read with direct I/O.
#[derive(Debug)]
pub(crate) struct MoodProbe {
    file: File,
    buffer: AlignedBuf,
}

impl MoodProbe {
    /// Creates a probe in a directory. Returns `None` if `place` is not a directory, or if its file
    /// system does not support unnamed files or direct I/O.
    pub fn make(place: &Path) -> Option<Self> {
        let flag = |flags: rustix::fs::OFlags| flags.bits() as i32;
        let mut options = fs::OpenOptions::new();
        let unnamed = flag(rustix::fs::OFlags::TMPFILE);
        let mut made = options.read(true).write(true).custom_flags(unnamed).open(place).ok()?;
        let mut bytes = vec![0; FILE_BYTES];
        std::io::Read::read_exact(&mut Noise(1), &mut bytes).ok()?;
        made.write_all(&bytes).and_then(|()| made.sync_data()).ok()?;
        let again = format!("/proc/self/fd/{}", made.as_raw_fd());
        let direct = flag(rustix::fs::OFlags::DIRECT);
        let file = fs::OpenOptions::new().read(true).custom_flags(direct).open(again).ok()?;
        let mut buffer = AlignedBuf::new(READ_BYTES);
        buffer.resize(READ_BYTES);
        let mut probe = MoodProbe { file, buffer };
        probe.time().map(|_| probe)
    }

    /// The time that a read takes now, in microseconds: the median of several reads; `None` if a
    /// read fails.
    pub fn time(&mut self) -> Option<f64> {
        let began = Instant::now();
        let mut places = Noise(2);
        let mut times = Vec::new();
        while times.len() < READS as usize && (times.is_empty() || began.elapsed() < MOST) {
            let at = places.below((FILE_BYTES / READ_BYTES) as u64) * READ_BYTES as u64;
            let one = Instant::now();
            self.file.read_exact_at(&mut self.buffer, at).ok()?;
            times.push(one.elapsed().as_secs_f64() * 1e6);
        }
        median(&times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_leaves_nothing_behind_and_reads_the_same_again() {
        let dir = tempfile::tempdir().unwrap();
        if let Some(mut probe) = MoodProbe::make(dir.path()) {
            assert!(probe.time().is_some_and(|it| it > 0.0));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(MoodProbe::make(&dir.path().join("nothing")).is_none());
    }
}
