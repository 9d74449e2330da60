//! Plain writers for comparison with the recorder, in the same run: a simple first version of a
//! recorder, and the least work that is necessary.
//!
//! *Naive* is one thread that takes 64 KiB of each stream in turn and writes them, with 1 MiB for each
//! stream; in a second variant it also syncs each file once a second. *Bare* is the writer of the
//! research: the same thread, and 16 more of real-time I/O class that sync all files each second.
//! Neither makes samples, has rings, checksums, a journal or headers: their rings are arithmetic.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pinstripe_record::{be_served_first, thread_time};

use super::storm::Storm;
use crate::Result;

/// The ring that a plain writer has for each stream.
pub const RING_BYTES: u64 = 1 << 20;
/// What it writes at a time.
const BLOCK: u64 = 64 << 10;
const SYNC_THREADS: usize = 16;

/// How written data becomes durable.
#[derive(Clone, Copy, PartialEq)]
pub enum Syncs {
    /// Nobody.
    Never,
    /// The writer itself, each second.
    Writer,
    /// Threads of their own, each second.
    Threads,
}

/// A writer.
#[derive(Clone, Copy)]
pub struct Plain {
    pub streams: usize,
    /// Bytes per second of a stream.
    pub rate: u64,
    pub seconds: u64,
    pub syncs: Syncs,
}

/// What it came to.
#[derive(Default)]
pub struct Written {
    pub overruns: u64,
    pub lost_bytes: u64,
    pub peak_bytes: u64,
    pub longest: Duration,
    pub lag: Duration,
    pub bytes: u64,
    /// Processor time of the writer, and of the threads that sync.
    pub cpu: [f64; 2],
}

impl Written {
    /// Processor seconds per GB of writer and syncs.
    pub fn cpu_per_gb(&self) -> [f64; 2] {
        self.cpu.map(|it| it / (self.bytes.max(1) as f64 / 1e9))
    }

    /// The fullest that a ring was or would have been, in percent.
    pub fn percent(&self) -> f64 {
        100.0 * self.peak_bytes as f64 / RING_BYTES as f64
    }
}

impl Plain {
    /// Its name in tables.
    pub fn name(&self) -> &'static str {
        match self.syncs {
            Syncs::Never => "naive, 1 thread, 1 MiB, no fsync",
            Syncs::Writer => "naive, 1 thread, 1 MiB, fsync each second",
            Syncs::Threads => "bare, 1 thread and 16 that sync",
        }
    }

    /// Writes during a storm; the files are removed afterwards.
    pub fn write(&self, work: &Path, storm: Storm) -> Result<(Written, f64)> {
        let dir = work.join("plain");
        let told = storm.beside(work, || {
            self.write_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))
        });
        crate::trees::remove(&dir)?;
        told
    }

    fn write_all(&self, dir: &Path) -> std::io::Result<Written> {
        fs::create_dir_all(dir)?;
        let file = |number: usize| {
            let file = File::create(dir.join(number.to_string()))?;
            self.reserve(&file);
            Ok(file)
        };
        let files = (0..self.streams).map(file).collect::<std::io::Result<Vec<_>>>()?;
        let shared = Shared {
            plain: self,
            files: &files,
            began: Instant::now(),
            taken: files.iter().map(|_| AtomicU64::new(0)).collect(),
            durable: files.iter().map(|_| AtomicU64::new(0)).collect(),
            lag_nanos: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        };
        let threads = if self.syncs == Syncs::Threads { SYNC_THREADS } else { 0 };
        let (written, sync_cpu) = std::thread::scope(|scope| {
            let syncers: Vec<_> =
                (0..threads).map(|_| scope.spawn(|| shared.sync_in_turn())).collect();
            let written = shared.write();
            shared.is_over.store(true, Ordering::Relaxed);
            let times: Vec<_> = syncers.into_iter().map(|it| it.join()).collect();
            (written, times)
        });
        let mut written = written?;
        for time in sync_cpu {
            let time = time.map_err(|_| std::io::Error::other("a thread that syncs panicked"))?;
            written.cpu[1] += time?;
        }
        written.lag = Duration::from_nanos(shared.lag_nanos.into_inner());
        Ok(written)
    }

    /// Blocks for all that will be written, with the size set, as the recorder has them.
    fn reserve(&self, file: &File) {
        if self.syncs == Syncs::Threads {
            let bytes = (self.rate * (self.seconds + 1)) as libc::off_t;
            // SAFETY: the descriptor is open as long as `file` is.
            let _ = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) };
        }
    }
}

struct Shared<'a> {
    plain: &'a Plain,
    files: &'a [File],
    began: Instant,
    taken: Vec<AtomicU64>,
    durable: Vec<AtomicU64>,
    lag_nanos: AtomicU64,
    /// The next file of all that are synced in turn, again and again.
    next: AtomicUsize,
    is_over: AtomicBool,
}

impl Shared<'_> {
    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn write(&self) -> std::io::Result<Written> {
        let block = vec![1; BLOCK as usize];
        let (mut found, cpu) = (Written::default(), thread_time());
        let mut next_sync = 1.0;
        while self.now() < self.plain.seconds as f64 {
            let mut is_idle = true;
            for (file, taken) in self.files.iter().zip(&self.taken) {
                if self.is_due(taken, &mut found) {
                    is_idle = false;
                    let (mut file, write) = (file, Instant::now());
                    file.write_all(&block)?;
                    found.longest = found.longest.max(write.elapsed());
                    taken.fetch_add(BLOCK, Ordering::Relaxed);
                    found.bytes += BLOCK;
                }
            }
            if self.plain.syncs == Syncs::Writer && self.now() >= next_sync {
                (0..self.files.len()).try_for_each(|number| self.sync(number))?;
                next_sync = self.now().max(next_sync + 1.0);
            }
            if is_idle {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        found.cpu[0] = (thread_time() - cpu).as_secs_f64();
        Ok(found)
    }

    /// Whether a stream has a block, by the clock; what is too much for its ring is lost.
    fn is_due(&self, taken: &AtomicU64, found: &mut Written) -> bool {
        let made = (self.now() * self.plain.rate as f64) as u64;
        let waiting = made.saturating_sub(taken.load(Ordering::Relaxed));
        found.peak_bytes = found.peak_bytes.max(waiting);
        if let Some(lost) = waiting.checked_sub(RING_BYTES).filter(|it| *it > 0) {
            found.overruns += 1;
            found.lost_bytes += lost;
            taken.fetch_add(lost, Ordering::Relaxed);
        }
        waiting.min(RING_BYTES) >= BLOCK
    }

    fn sync(&self, number: usize) -> std::io::Result<()> {
        let taken = self.taken[number].load(Ordering::Relaxed);
        self.files[number].sync_data()?;
        let durable = self.durable[number].swap(taken, Ordering::Relaxed);
        let age = (self.now() - durable as f64 / self.plain.rate as f64).max(0.0);
        self.lag_nanos.fetch_max((age * 1e9) as u64, Ordering::Relaxed);
        Ok(())
    }

    /// One of several threads that sync all files once a second.
    fn sync_in_turn(&self) -> std::io::Result<f64> {
        // If this is not permitted, the thread continues without it, as the recorder does.
        let _ = be_served_first();
        let cpu = thread_time();
        while !self.is_over.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let round = number / self.files.len();
            let due = (round + 1) as f64;
            while self.now() < due && !self.is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            self.sync(number % self.files.len())?;
        }
        Ok((thread_time() - cpu).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_of_arithmetic_loses_what_it_cannot_hold() {
        let plain = Plain { streams: 1, rate: 1 << 40, seconds: 0, syncs: Syncs::Never };
        let shared = Shared {
            plain: &plain,
            files: &[],
            began: Instant::now().checked_sub(Duration::from_millis(1)).unwrap(),
            taken: vec![AtomicU64::new(0)],
            durable: Vec::new(),
            lag_nanos: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        };
        let mut found = Written::default();
        assert!(shared.is_due(&shared.taken[0], &mut found));
        assert!(found.overruns == 1 && found.lost_bytes >= (1 << 30) - RING_BYTES);
        assert!(found.percent() > 100.0);
    }
}
