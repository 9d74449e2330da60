//! Reads back the content of snapshots and cuts it by every method.
//!
//! Files with the same content are read once, however many snapshots hold them: their counts are
//! kept, as far as memory allows, and added again. Readers get several files at a time, in the
//! order of the tree, since neighbouring files share records.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::Survey;
use super::slicer::{Counts, Slicer, WAYS};
use crate::pipeline::stream::Origin;
use crate::store::packs::ChunkReader;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::sync::lock;
use pinstripe_member::record::ChunkRow;

/// The largest number of chunks and files in one job.
const JOB_CHUNKS: usize = 1024;
const JOB_FILES: usize = 64;
/// The memory for the counts of one content, including the map's overhead.
const TALLY_BYTES: u64 = 160;

/// A regular file of a snapshot.
pub struct StoredFile {
    /// The path, for messages.
    pub path: Vec<u8>,
    /// A number that identifies the file's content.
    pub content: u64,
    /// The data ranges of the file.
    pub runs: Vec<Range<u64>>,
    /// The chunks of that data, in order.
    pub rows: Vec<ChunkRow>,
}

/// The counts that one content adds, and how often the content was found.
#[derive(Default)]
struct ContentTally {
    items: [u64; WAYS],
    bytes: u64,
    times: u64,
}

type Tallies = Mutex<HashMap<u64, ContentTally>>;

/// Reads every file that `produce` outputs, on threads of its own. Returns the result of `produce`,
/// and the counts of blocks and chunks; complete files are counted by the caller, which knows their
/// names. A file that cannot be read is a loss in the ledger, and not counted.
///
/// # Errors
/// Fails with the errors of `produce`.
pub(crate) fn survey_stored<R>(
    origin: Origin<'_>,
    monitor: &Monitor,
    produce: impl FnOnce(&mut dyn FnMut(StoredFile)) -> Result<R>,
) -> Result<(R, Survey)> {
    let counts = Counts::new(origin.limits)?;
    let tallies = Tallies::default();
    let most = (origin.limits.ahead_bytes() / TALLY_BYTES) as usize;
    let produced = std::thread::scope(|scope| {
        let (jobs, queue) = bounded::<Vec<StoredFile>>(2 * origin.limits.workers);
        for _ in 0..origin.limits.workers {
            let (queue, counts, tallies) = (queue.clone(), &counts, &tallies);
            scope.spawn(move || read_all(&queue, origin, counts, tallies, monitor));
        }
        drop(queue);
        let (mut job, mut chunks) = (Vec::new(), 0);
        let produced = produce(&mut |file| {
            {
                let mut tallies = lock(&tallies);
                if let Some(tally) = tallies.get_mut(&file.content) {
                    tally.times += 1;
                    return;
                }
                if tallies.len() < most {
                    tallies.insert(file.content, ContentTally::default());
                }
            }
            chunks += file.rows.len();
            job.push(file);
            if job.len() >= JOB_FILES || chunks >= JOB_CHUNKS {
                chunks = 0;
                send(&jobs, std::mem::take(&mut job));
            }
        });
        send(&jobs, job);
        produced
    })?;
    for tally in lock(&tallies).values().filter(|tally| tally.times > 0) {
        for (way, items) in tally.items.iter().enumerate() {
            counts.add_again(way, tally.times * items, tally.times * tally.bytes);
        }
    }
    Ok((produced, counts.into_survey()))
}

fn send(jobs: &Sender<Vec<StoredFile>>, job: Vec<StoredFile>) {
    // The readers are gone only when one panicked.
    let _ = jobs.send(job);
}

fn read_all(
    queue: &Receiver<Vec<StoredFile>>,
    origin: Origin<'_>,
    counts: &Counts,
    tallies: &Tallies,
    monitor: &Monitor,
) {
    let mut chunks = ChunkReader::new(origin.packs, origin.index);
    let mut slicer = match Slicer::new(counts) {
        Ok(slicer) => slicer,
        Err(error) => return monitor.loss("snapshots", error),
    };
    for file in queue.iter().flatten() {
        slicer.take_items();
        match read(&file, &mut chunks, &mut slicer, monitor) {
            Ok(bytes) => {
                if let Some(tally) = lock(tallies).get_mut(&file.content) {
                    (tally.items, tally.bytes) = (slicer.take_items(), bytes);
                }
            }
            Err(error) => monitor.loss(pinstripe_io::beneath::shown_from_root(&file.path), error),
        }
    }
}

/// Cuts one file; returns the number of bytes of data in it.
fn read(
    file: &StoredFile,
    chunks: &mut ChunkReader<'_>,
    slicer: &mut Slicer<'_>,
    monitor: &Monitor,
) -> Result<u64> {
    let mut bytes = 0;
    let mut rows = file.rows.iter();
    let mut chunk = Vec::new();
    let mut given = 0;
    for run in &file.runs {
        bytes += run.end - run.start;
        slicer.begin(run.clone());
        while !slicer.is_done() {
            let mut room = slicer.room();
            while !room.is_empty() {
                if given == chunk.len() {
                    let row = rows.next().ok_or_else(|| {
                        Error::new(
                            Kind::Corrupt,
                            "the lengths of a file's chunks do not add up to the file's size",
                        )
                    })?;
                    (chunk, given) = (chunks.read(&row.id)?, 0);
                    continue;
                }
                let part = room.len().min(chunk.len() - given);
                room[..part].copy_from_slice(&chunk[given..given + part]);
                room = &mut room[part..];
                given += part;
                monitor.add(Counter::ReadBytes, part as u64);
            }
            slicer.cut();
        }
    }
    Ok(bytes)
}
