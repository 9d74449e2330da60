//! The speed of each stage of a backup when all cores do nothing else.
//!
//! Every thread takes the next slab of the image, reads it, and then does the stage's work on it;
//! only the work is timed, except where reading is the stage. The rate is all bytes over the
//! longest time that one thread worked. Chunks are cut anew in each slab, and records have the
//! average length of chunks.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pinstripe_base::error::Error;
use pinstripe_stripe::{Chunking, Codec, Cutter, Encoder};

use crate::Result;

const SLAB_BYTES: usize = 16 << 20;

/// The rate of one stage.
pub struct Limit {
    /// The stage.
    pub stage: &'static str,
    /// Bytes of content per second, all cores together.
    pub bytes_per_second: f64,
}

/// A stage's work on one slab.
type Work = fn(&[u8]) -> Result<()>;

/// A stage by name, with its work.
struct Stage {
    name: &'static str,
    /// None where reading the slab is the work.
    work: Option<Work>,
}

const STAGES: &[Stage] = &[
    Stage { name: "read", work: None },
    Stage { name: "chunk + hash", work: Some(chunk_and_hash) },
    Stage { name: "codec", work: Some(encode) },
];

/// The default average chunk of a store.
const CHUNK_BYTES: u32 = 256 << 10;
/// Records are closed at this length.
const RECORD_BYTES: usize = 512 << 10;

fn chunk_and_hash(slab: &[u8]) -> Result<()> {
    let told = |error: Error| error.to_string();
    let cutter = Cutter::new(Chunking::content_defined(CHUNK_BYTES).map_err(told)?, 1);
    let cutter = cutter.map_err(told)?;
    let mut at = 0;
    while at < slab.len() {
        let length = cutter.next_cut(at as u64, &slab[at..], true);
        black_box(blake3::keyed_hash(&[1; 32], &slab[at..at + length]));
        at += length;
    }
    Ok(())
}

fn encode(slab: &[u8]) -> Result<()> {
    let told = |error: Error| error.to_string();
    let mut encoder = Encoder::new(Codec::default()).map_err(told)?;
    let mut out = Vec::new();
    for record in slab.chunks(RECORD_BYTES) {
        black_box(encoder.encode(record, &mut out).map_err(told)?);
    }
    Ok(())
}

/// Measures every stage on the image, which is in the page cache.
pub fn measure(image: &Path) -> Result<Vec<Limit>> {
    STAGES.iter().map(|stage| measure_stage(image, stage)).collect()
}

fn measure_stage(image: &Path, stage: &Stage) -> Result<Limit> {
    let told = |error| format!("{}: {error}", image.display());
    let file = File::open(image).map_err(told)?;
    let length = file.metadata().map_err(told)?.len();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(0);
    let work = || -> Result<Duration> {
        let mut slab = vec![0; SLAB_BYTES];
        let mut worked = Duration::ZERO;
        loop {
            let at = next.fetch_add(SLAB_BYTES as u64, Ordering::Relaxed);
            if at >= length {
                return Ok(worked);
            }
            let slab = &mut slab[..SLAB_BYTES.min((length - at) as usize)];
            let start = Instant::now();
            file.read_exact_at(slab, at).map_err(told)?;
            let read = Instant::now();
            match stage.work {
                None => worked += read - start,
                Some(work) => {
                    work(slab)?;
                    worked += read.elapsed();
                }
            }
        }
    };
    let longest = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let times = workers.into_iter().map(|worker| worker.join().expect("no worker panics"));
        times.collect::<Result<Vec<_>>>()
    })?;
    let longest = longest.into_iter().max().unwrap_or_default().as_secs_f64();
    Ok(Limit { stage: stage.name, bytes_per_second: length as f64 / longest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_worked_on_once() {
        static SUM: AtomicU64 = AtomicU64::new(0);
        let place = tempfile::tempdir().unwrap();
        let image = place.path().join("image");
        let bytes = SLAB_BYTES + 5;
        std::fs::write(&image, vec![1; bytes]).unwrap();
        let stage = Stage {
            name: "sum",
            work: Some(|slab| {
                SUM.fetch_add(slab.iter().map(|&b| u64::from(b)).sum(), Ordering::Relaxed);
                Ok(())
            }),
        };
        let limit = measure_stage(&image, &stage).unwrap();
        assert_eq!(SUM.load(Ordering::Relaxed), bytes as u64);
        assert!(limit.bytes_per_second > 0.0);
    }

    #[test]
    fn a_failing_stage_fails_the_measurement() {
        let place = tempfile::tempdir().unwrap();
        let image = place.path().join("image");
        std::fs::write(&image, "x").unwrap();
        let stage = Stage { name: "broken", work: Some(|_| Err("broken".to_owned())) };
        assert!(measure_stage(&image, &stage).is_err());
        assert!(measure(&image).unwrap().iter().any(|limit| limit.stage == "read"));
    }
}
