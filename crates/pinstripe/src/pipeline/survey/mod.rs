//! A survey of what each kind of deduplication would save, on a tree that is not backed up or on
//! the content of snapshots. Many threads read; nothing is stored.
//!
//! ```text
//! caller (walks) -> jobs of files -> readers, which cut and hash in every way -> shared counts
//! ```
//!
//! Invariants: each inode is counted once; memory is bounded for a tree of any size, and a number
//! that is only an estimate for that reason says so. Never writes anything.

mod slicer;
mod stored;

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::io::Errno;

pub use stored::StoredFile;
pub(crate) use stored::survey_stored;

use slicer::{Counts, Slicer};

use crate::pipeline::limits::Limits;
use crate::source::{SourceFile, open_directory};
use crate::walk::{WalkItem, WalkOptions, Walker};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_member::meta::FileKind;
use pinstripe_stripe::{Count, distinct_key};

/// The lengths of blocks, and the mean lengths of content-defined chunks, that are compared.
pub const LENGTHS: [u32; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// The results. All counts are for the same content.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// Counts files with the same name, length and content once.
    pub by_name: Count,
    /// Counts files with the same content once.
    pub by_content: Count,
    /// Counts equal blocks once, for each length in [`LENGTHS`].
    pub fixed: Vec<Count>,
    /// Counts equal content-defined chunks once, for each mean length in [`LENGTHS`].
    pub defined: Vec<Count>,
    /// Bytes of distinct 64 KiB chunks that were compressed as a sample.
    pub tried_bytes: u64,
    /// The bytes of the same chunks after compression.
    pub compressed_bytes: u64,
}

/// Surveys everything at and below these paths together. A file that cannot be read is a loss in
/// the ledger.
///
/// # Errors
/// Fails when a path cannot be opened, or with [`Kind::Interrupted`] once `stop` is set.
pub fn survey(
    paths: &[PathBuf],
    options: WalkOptions,
    limits: Limits,
    stop: &AtomicBool,
    monitor: &Monitor,
) -> Result<Survey> {
    let trees =
        paths.iter().map(|path| SurveyTree::open(path, &options)).collect::<Result<Vec<_>>>()?;
    let counts = Counts::new(limits)?;
    let reading = SurveyReading { trees: &trees, stop, monitor };
    std::thread::scope(|scope| {
        let (files, queue) = bounded::<FoundFile>(1024);
        for _ in 0..limits.workers {
            let (queue, counts, reading) = (queue.clone(), &counts, &reading);
            scope.spawn(move || read_all(&queue, reading, counts));
        }
        // With a receiver kept here, a send would block for ever once all readers are gone.
        drop(queue);
        let mut linked = HashSet::new();
        for tree in &trees {
            walk(tree, &reading, &mut linked, &files);
        }
    });
    match stop.load(Ordering::Relaxed) {
        true => Err(stopped()),
        false => Ok(counts.into_survey()),
    }
}

/// Sends every file of a tree to the readers, each inode once.
fn walk<'a>(
    tree: &'a SurveyTree<'_>,
    reading: &SurveyReading<'_>,
    linked: &mut HashSet<(u64, u64)>,
    files: &Sender<FoundFile<'a>>,
) {
    for batch in tree.walker.batches() {
        if reading.stop.load(Ordering::Relaxed) {
            tree.walker.cancel();
            break;
        }
        for item in batch.iter() {
            match item {
                WalkItem::Trouble(trouble) => {
                    reading.monitor.loss(tree.shown, trouble.error.duplicate());
                }
                WalkItem::Found(found) => {
                    reading.monitor.add(Counter::WalkedEntries, 1);
                    let stat = found.stat;
                    // By the first name that comes; the others hold the same content.
                    let is_first = stat.links < 2 || linked.insert(stat.identity());
                    if stat.kind == FileKind::File && is_first {
                        let below = match found.path {
                            [] => tree.name.clone(),
                            path => path.to_vec(),
                        };
                        // A send fails only when all readers panicked, which the scope passes on.
                        let _ = files.send(FoundFile { tree, below });
                    }
                }
            }
        }
    }
}

fn stopped() -> Error {
    Error::new(Kind::Interrupted, "the survey stopped before all files were read")
}

/// One of the surveyed paths, opened.
struct SurveyTree<'a> {
    shown: &'a Path,
    /// The directory to which the paths of files are relative.
    root: OwnedFd,
    /// The name below `root` if the path is a file, otherwise empty.
    name: Vec<u8>,
    walker: Walker,
}

impl<'a> SurveyTree<'a> {
    fn open(path: &'a Path, options: &WalkOptions) -> Result<Self> {
        let (root, name) = match (open_directory(path), path.parent(), path.file_name()) {
            (Ok(root), ..) => (root, Vec::new()),
            // A single file is read by its name from its parent, since readers open paths below a
            // directory.
            (Err(error), Some(parent), Some(name))
                if error.raw_os_error() == Some(Errno::NOTDIR.raw_os_error()) =>
            {
                let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                (open_directory(parent)?, name.as_bytes().to_vec())
            }
            (Err(error), ..) => return Err(error),
        };
        let walker = Walker::new(path, path.as_os_str().as_bytes().to_vec(), options.clone())?;
        Ok(SurveyTree { shown: path, root, name, walker })
    }
}

/// A file to be read.
struct FoundFile<'a> {
    tree: &'a SurveyTree<'a>,
    below: Vec<u8>,
}

/// The values that all readers share.
struct SurveyReading<'a> {
    trees: &'a [SurveyTree<'a>],
    stop: &'a AtomicBool,
    monitor: &'a Monitor,
}

fn read_all(queue: &Receiver<FoundFile<'_>>, reading: &SurveyReading<'_>, counts: &Counts) {
    let mut slicer = match Slicer::new(counts) {
        Ok(slicer) => slicer,
        Err(error) => {
            let place = reading.trees.first().map_or(Path::new(""), |tree| tree.shown);
            return reading.monitor.loss(place, error);
        }
    };
    for FoundFile { tree, below } in queue {
        match read(&mut slicer, reading, tree.root.as_fd(), &below) {
            Ok(()) => {}
            // The queue is still drained: the walk may wait for room in it.
            Err(error) if error.kind() == Kind::Interrupted => {}
            Err(error) => {
                let place = tree.shown.join(pinstripe_io::beneath::shown(&below));
                reading.monitor.loss(place, error);
            }
        }
    }
}

fn read(
    slicer: &mut Slicer<'_>,
    reading: &SurveyReading<'_>,
    root: BorrowedFd<'_>,
    path: &[u8],
) -> Result<()> {
    let file = SourceFile::open(root, path)?;
    let mut hasher = blake3::Hasher::new();
    let mut data_bytes = 0;
    for run in file.data_extents()? {
        data_bytes += run.end - run.start;
        // The places of data count as content: a file with a moved hole differs.
        hasher.update(&run.start.to_le_bytes());
        let mut at = run.start;
        slicer.begin(run);
        while !slicer.is_done() {
            if reading.stop.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            let room = slicer.room();
            let read = file.read_at(at, room)?;
            if read < room.len() {
                let error = Error::new(Kind::Changed, "this file became shorter while it was read");
                return Err(error.expected(at + room.len() as u64, at + read as u64));
            }
            reading.monitor.add(Counter::ReadBytes, read as u64);
            hasher.update(room);
            at += read as u64;
            slicer.cut();
        }
    }
    // Length before name: the hash with the length alone identifies the content, and then the name
    // is added to it.
    hasher.update(&file.stat().size_bytes.to_le_bytes());
    let content = distinct_key(hasher.finalize().as_bytes());
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    hasher.update(name);
    let with_name = distinct_key(hasher.finalize().as_bytes());
    slicer.counts().add_file(with_name, content, data_bytes);
    Ok(())
}
