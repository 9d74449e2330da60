//! A storm of writes during a take: one thread that writes as fast as the disk permits.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Result;

/// What the storm writes before it begins again at the front.
const BYTES: u64 = if cfg!(test) { 64 << 20 } else { 4 << 30 };
/// The number of bytes after which it waits until they are durable, while it syncs.
const SYNC_BYTES: u64 = 512 << 20;
const GUST: usize = 1 << 20;

/// What else is written meanwhile.
#[derive(Clone, Copy, PartialEq)]
pub enum Storm {
    /// Nothing.
    None,
    /// Flat out.
    Flat,
    /// Flat out, and 512 MiB at a time are made durable.
    Syncing,
    /// At full speed for this time, and syncing after that.
    Both(Duration),
}

impl Storm {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Storm::None => "none",
            Storm::Flat => "flat out",
            Storm::Syncing => "syncing",
            Storm::Both(_) => "flat out, then syncing",
        }
    }

    /// Does a job while the storm writes a file in `work`. Returns the job's result, and the
    /// storm's MB/s.
    pub fn beside<T>(self, work: &Path, job: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
        let (over, written) = (AtomicBool::new(self == Storm::None), AtomicU64::new(0));
        let path = work.join("storm");
        let began = Instant::now();
        let done = std::thread::scope(|scope| {
            let storm = scope.spawn(|| self.blow(&path, &over, &written));
            let done = job();
            over.store(true, Ordering::Relaxed);
            let blown = storm.join().map_err(|_| "the storm panicked".to_owned())?;
            blown.map_err(|error| format!("{}: {error}", path.display()))?;
            done
        });
        let rate = written.into_inner() as f64 / began.elapsed().as_secs_f64() / 1e6;
        let _ = fs::remove_file(&path);
        rustix::fs::sync();
        done.map(|it| (it, rate))
    }

    fn blow(self, path: &Path, over: &AtomicBool, written: &AtomicU64) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;
        let file = File::create(path)?;
        let gust = vec![0x5a; GUST];
        let (mut at, began) = (0, Instant::now());
        while !over.load(Ordering::Relaxed) {
            file.write_all_at(&gust, at % BYTES)?;
            at += GUST as u64;
            written.store(at, Ordering::Relaxed);
            let syncs = match self {
                Storm::Both(flat) => began.elapsed() >= flat,
                other => other == Storm::Syncing,
            };
            if syncs && at.is_multiple_of(SYNC_BYTES) {
                file.sync_data()?;
            }
        }
        Ok(())
    }
}
