//! What dedup of every sort would save on a tree: read by many threads, nothing stored.
//!
//! ```text
//! caller (walks) -> jobs of files -> readers, which cut and hash in every way -> shared counts
//! ```
//! Invariants: each inode is counted once; memory is bounded whatever the tree holds, and where that
//! makes a number an estimate, the number says so. Never writes anything.

use std::collections::HashSet;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;

use crossbeam_channel::{Receiver, bounded};
use rustix::io::Errno;

use crate::chunk::{Chunking, Cutter};
use crate::codec::{Codec, Encoder};
use crate::dedup::distinct::{Count, Distinct, key_of};
use crate::error::{Error, Kind, Result};
use crate::format::meta::FileKind;
use crate::monitor::{Counter, Monitor};
use crate::pipeline::limits::Limits;
use crate::source::{SourceFile, open_directory};
use crate::walk::{Item, Options, Walker};

/// Lengths of blocks, and averages of content-defined chunks, that are held side by side.
pub const LENGTHS: [u32; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Which of them compression is tried on.
const COMPRESSED: usize = 2;
/// One of so many new chunks is compressed.
const COMPRESSED_ONE_IN: u64 = 16;
/// How much of a file is in memory at once: several of the longest chunks.
const WINDOW_BYTES: usize = 8 << 20;
/// Bytes of one key in a count, with what the map needs around it.
const KEY_BYTES: u64 = 40;

/// What was found. Every count is of the same content.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// Files with the same name, length and content are one.
    pub by_name: Count,
    /// Files with the same content are one.
    pub by_content: Count,
    /// Equal blocks are one, by [`LENGTHS`].
    pub fixed: Vec<Count>,
    /// Equal content-defined chunks are one, by [`LENGTHS`] as averages.
    pub defined: Vec<Count>,
    /// Bytes of distinct chunks of 64 KiB that were compressed to see how well that goes.
    pub tried_bytes: u64,
    /// What they became.
    pub compressed_bytes: u64,
}

struct Counts {
    by_name: Mutex<Distinct>,
    by_content: Mutex<Distinct>,
    /// Fixed, then content-defined.
    cut: Vec<Mutex<Distinct>>,
    tried: Mutex<(u64, u64)>,
}

/// Reads everything at and below `path`. What cannot be read is a loss in the ledger.
///
/// # Errors
/// When `path` cannot be looked at.
pub fn survey(path: &Path, options: Options, limits: Limits, monitor: &Monitor) -> Result<Survey> {
    let (root, name) = match (open_directory(path), path.parent(), path.file_name()) {
        (Ok(root), ..) => (root, Vec::new()),
        (Err(error), Some(parent), Some(name))
            if error.raw_os_error() == Some(Errno::NOTDIR.raw_os_error()) =>
        {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            (open_directory(parent)?, name.as_bytes().to_vec())
        }
        (Err(error), ..) => return Err(error),
    };
    let walker = Walker::new(path, path.as_os_str().as_bytes().to_vec(), options)?;
    let most = (limits.ahead_bytes() / KEY_BYTES / (2 * LENGTHS.len() as u64 + 2)) as usize;
    let count = || Mutex::new(Distinct::new(most));
    let counts = Counts {
        by_name: count(),
        by_content: count(),
        cut: (0..2 * LENGTHS.len()).map(|_| count()).collect(),
        tried: Mutex::default(),
    };
    let cutters = cutters()?;
    std::thread::scope(|scope| {
        let (files, queue) = bounded::<Vec<u8>>(1024);
        for _ in 0..limits.workers {
            let (queue, counts, cutters, root) = (queue.clone(), &counts, &cutters, &root);
            scope.spawn(move || read_all(&queue, root.as_fd(), path, cutters, counts, monitor));
        }
        drop(queue);
        let mut linked = HashSet::new();
        for batch in walker.batches() {
            for item in batch.iter() {
                match item {
                    Item::Trouble(trouble) => monitor.loss(path, trouble.error.duplicate()),
                    Item::Found(found) => {
                        monitor.add(Counter::WalkedEntries, 1);
                        let stat = found.stat;
                        let is_first = stat.links < 2 || linked.insert(stat.identity());
                        if stat.kind == FileKind::File && is_first {
                            let below = if found.path.is_empty() {
                                name.clone()
                            } else {
                                found.path.to_vec()
                            };
                            // The readers are gone only when one panicked.
                            let _ = files.send(below);
                        }
                    }
                }
            }
        }
    });
    Ok(counts.into_survey())
}

fn cutters() -> Result<Vec<Cutter>> {
    let fixed = LENGTHS.iter().map(|&bytes| Chunking::fixed(bytes));
    let defined = LENGTHS.iter().map(|&avg| Chunking::content_defined(avg));
    fixed.chain(defined).map(|chunking| Cutter::new(chunking?, 0)).collect()
}

fn read_all(
    queue: &Receiver<Vec<u8>>,
    root: BorrowedFd<'_>,
    shown: &Path,
    cutters: &[Cutter],
    counts: &Counts,
    monitor: &Monitor,
) {
    let mut reader = match Encoder::new(Codec::default()) {
        Ok(encoder) => Reader { cutters, counts, encoder, window: Vec::new(), out: Vec::new() },
        Err(error) => return monitor.loss(shown, error),
    };
    for path in queue {
        if let Err(error) = reader.file(root, &path, monitor) {
            monitor.loss(shown.join(crate::beneath::shown(&path)), error);
        }
    }
}

struct Reader<'a> {
    cutters: &'a [Cutter],
    counts: &'a Counts,
    encoder: Encoder,
    window: Vec<u8>,
    out: Vec<u8>,
}

impl Reader<'_> {
    fn file(&mut self, root: BorrowedFd<'_>, path: &[u8], monitor: &Monitor) -> Result<()> {
        let file = SourceFile::open(root, path)?;
        let mut hasher = blake3::Hasher::new();
        let mut data_bytes = 0;
        for run in file.data_extents()? {
            data_bytes += run.end - run.start;
            hasher.update(&run.start.to_le_bytes());
            self.run(&file, run, &mut hasher, monitor)?;
        }
        hasher.update(&file.stat().size_bytes.to_le_bytes());
        let content = key_of(hasher.finalize().as_bytes());
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        hasher.update(name);
        let with_name = key_of(hasher.finalize().as_bytes());
        lock(&self.counts.by_content).add(content, data_bytes);
        lock(&self.counts.by_name).add(with_name, data_bytes);
        Ok(())
    }

    /// Cuts one run of data in every way while it goes through the window.
    fn run(
        &mut self,
        file: &SourceFile,
        run: Range<u64>,
        hasher: &mut blake3::Hasher,
        monitor: &Monitor,
    ) -> Result<()> {
        let mut at = vec![run.start; self.cutters.len()];
        let mut base = run.start;
        self.window.clear();
        loop {
            let filled = self.window.len();
            let end = base + filled as u64;
            let more = (run.end - end).min((WINDOW_BYTES - filled) as u64) as usize;
            self.window.resize(filled + more, 0);
            let read = file.read_at(end, &mut self.window[filled..])?;
            if read < more {
                let error = Error::new(Kind::Changed, "became shorter while it was read");
                return Err(error.expected(run.end, end + read as u64));
            }
            monitor.add(Counter::ReadBytes, more as u64);
            hasher.update(&self.window[filled..]);
            let end = base + self.window.len() as u64;
            let is_last = end == run.end;
            for (number, at) in at.iter_mut().enumerate() {
                self.cut(number, at, base, is_last);
            }
            if is_last {
                return Ok(());
            }
            let done = at.iter().min().map_or(0, |&at| at - base);
            self.window.drain(..done as usize);
            base += done;
        }
    }

    fn cut(&mut self, number: usize, at: &mut u64, base: u64, is_last: bool) {
        let cutter = &self.cutters[number];
        let mut chunks = Vec::new();
        loop {
            let data = &self.window[(*at - base) as usize..];
            if data.is_empty() || (!is_last && data.len() < cutter.max_bytes()) {
                break;
            }
            let length = cutter.next_cut(*at, data, is_last);
            let key = key_of(blake3::hash(&data[..length]).as_bytes());
            chunks.push((key, *at, length));
            *at += length as u64;
        }
        let is_tried = number == LENGTHS.len() + COMPRESSED;
        let mut new = Vec::new();
        {
            let mut count = lock(&self.counts.cut[number]);
            for &(key, at, length) in &chunks {
                // The low bits have nothing to do with the sample of the count.
                if count.add(key, length as u64) && is_tried && key % COMPRESSED_ONE_IN == 0 {
                    new.push((at, length));
                }
            }
        }
        for (at, length) in new {
            let data = &self.window[(at - base) as usize..][..length];
            if let Ok(encoded) = self.encoder.encode(data, &mut self.out) {
                let stored = encoded.stored(data, &self.out).len() as u64;
                let mut tried = lock(&self.counts.tried);
                *tried = (tried.0 + length as u64, tried.1 + stored);
            }
        }
    }
}

fn lock<T>(counts: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Counts {
    fn into_survey(self) -> Survey {
        let cut: Vec<_> = self.cut.iter().map(|count| lock(count).count()).collect();
        let (tried_bytes, compressed_bytes) = *lock(&self.tried);
        let (fixed, defined) = cut.split_at(LENGTHS.len());
        Survey {
            by_name: lock(&self.by_name).count(),
            by_content: lock(&self.by_content).count(),
            fixed: fixed.to_vec(),
            defined: defined.to_vec(),
            tried_bytes,
            compressed_bytes,
        }
    }
}
