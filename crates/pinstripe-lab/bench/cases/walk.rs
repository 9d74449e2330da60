//! The walker against what else walks trees: 200,000 files in 20,000 directories, cache warm.
//!
//! Every contender stats every entry. Rows are medians of [`ROUNDS`] rounds; the contenders take
//! turns within a round, so that a neighbour's load falls on all of them alike.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hint::black_box;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pinstripe::walk::recommended_threads;
use pinstripe_lab::io::walkers;
use pinstripe_lab::run::Live;
use pinstripe_stats as stats;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags};
use serde::Serialize;

const FILES: u64 = 200_000;
const DIRECTORIES: u64 = 20_000;
const ROUNDS: usize = 5;

/// The result of one contender.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The program that walked, with how many threads.
    pub walker: String,
    /// Entries seen in one walk.
    pub entries: u64,
    /// Median rate.
    pub entries_per_second: f64,
    /// Median processor time of one walk, user and system.
    pub cpu_seconds: f64,
}

/// A way to walk a tree, with statistics of every entry; answers how many entries it saw.
type Contender = Box<dyn Fn(&Path) -> io::Result<u64>>;

/// Measures all contenders on a tree below `dir`, which is made once and then reused.
///
/// # Errors
/// When the tree cannot be made, or a contender fails or misses entries.
pub fn run(dir: &Path) -> io::Result<Vec<Row>> {
    let tree = make_tree(dir)?;
    let contenders = contenders();
    let mut samples: Vec<Vec<Sample>> = contenders.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for ((_, walk), samples) in contenders.iter().zip(&mut samples) {
            if samples.is_empty() {
                walk(&tree)?; // warms the cache
            }
            samples.push(measure(walk, &tree)?);
        }
    }
    contenders.into_iter().zip(samples).map(|((name, _), samples)| row(name, &samples)).collect()
}

struct Sample {
    entries: u64,
    wall: Duration,
    cpu: Duration,
}

fn measure(walk: &Contender, tree: &Path) -> io::Result<Sample> {
    let (cpu, wall) = (cpu_time()?, Instant::now());
    let entries = walk(tree)?;
    Ok(Sample { entries, wall: wall.elapsed(), cpu: cpu_time()?.saturating_sub(cpu) })
}

fn row(walker: String, samples: &[Sample]) -> io::Result<Row> {
    let entries = samples[0].entries;
    let expected = FILES + DIRECTORIES;
    if samples.iter().any(|sample| sample.entries != expected) {
        return Err(io::Error::other(format!(
            "{walker} saw {entries} entries, expected {expected}"
        )));
    }
    let median = |pick: fn(&Sample) -> Duration| {
        let values: Vec<f64> = samples.iter().map(|it| pick(it).as_secs_f64()).collect();
        stats::median(&values).unwrap_or(f64::NAN)
    };
    Ok(Row {
        walker,
        entries,
        entries_per_second: entries as f64 / median(|sample| sample.wall),
        cpu_seconds: median(|sample| sample.cpu),
    })
}

fn contenders() -> Vec<(String, Contender)> {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let mut list: Vec<(String, Contender)> = Vec::new();
    for threads in [1, 2, recommended_threads(false, cores)] {
        let name = format!("pinstripe, threads: {threads}");
        list.push((name, Box::new(move |tree| walk_ours(tree, threads))));
    }
    list.push(("find -printf".to_owned(), Box::new(walk_find)));
    list.push(("nftw".to_owned(), Box::new(walk_nftw)));
    list.push(("ignore, threads: 2".to_owned(), Box::new(walk_ignore)));
    list.push(("bare system calls, threads: 2".to_owned(), Box::new(walk_bare)));
    list
}

/// The kernel's limit: open, getdents64 and statx by two threads, no order, nothing kept.
fn walk_bare(tree: &Path) -> io::Result<u64> {
    let (seen, waiting) = (AtomicU64::new(1), AtomicU64::new(1));
    let stack = Mutex::new(vec![tree.to_path_buf()]);
    let work = || -> io::Result<()> {
        while waiting.load(Ordering::Acquire) > 0 {
            let Some(path) = stack.lock().ok().and_then(|mut stack| stack.pop()) else {
                thread::yield_now();
                continue;
            };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            let directory = rustix::fs::open(&path, flags, Mode::empty())?;
            let mut space = [MaybeUninit::uninit(); 32 * 1024];
            let mut entries = RawDir::new(&directory, &mut space);
            while let Some(entry) = entries.next() {
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
                black_box(rustix::fs::statx(&directory, name, flags, StatxFlags::BASIC_STATS)?);
                seen.fetch_add(1, Ordering::Relaxed);
                if entry.file_type() == FileType::Directory {
                    waiting.fetch_add(1, Ordering::Release);
                    let below = path.join(OsStr::from_bytes(name.to_bytes()));
                    stack.lock().map_err(|_| io::Error::other("a thread panicked"))?.push(below);
                }
            }
            waiting.fetch_sub(1, Ordering::Release);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let other = scope.spawn(work);
        work().and_then(|()| other.join().map_err(|_| io::Error::other("a thread panicked"))?)
    })?;
    Ok(seen.into_inner())
}

fn walk_ours(tree: &Path, threads: usize) -> io::Result<u64> {
    let walked = walkers::by_walker(tree, threads, &Live::new(Default::default()));
    walked.map(|(entries, _)| entries).map_err(io::Error::other)
}

/// It prints to nowhere; that it misses nothing is its own affair.
fn walk_find(tree: &Path) -> io::Result<u64> {
    walkers::by_find(tree).map(|()| FILES + DIRECTORIES).map_err(io::Error::other)
}

fn walk_nftw(tree: &Path) -> io::Result<u64> {
    walkers::by_nftw(tree).map_err(io::Error::other)
}

fn walk_ignore(tree: &Path) -> io::Result<u64> {
    let seen = AtomicU64::new(0);
    let walk = ignore::WalkBuilder::new(tree).standard_filters(false).threads(2).build_parallel();
    walk.run(|| {
        Box::new(|entry| {
            if entry.is_ok_and(|entry| entry.metadata().is_ok()) {
                seen.fetch_add(1, Ordering::Relaxed);
            }
            ignore::WalkState::Continue
        })
    });
    Ok(seen.into_inner())
}

/// Makes the tree unless a complete one is there: ten files in every directory, directories in
/// tens, four deep. The root counts among the directories.
fn make_tree(dir: &Path) -> io::Result<PathBuf> {
    let tree = dir.join("walk-tree");
    let done = dir.join("walk-tree.complete");
    if done.exists() {
        return Ok(tree);
    }
    let live = Live::new(Default::default());
    walkers::make_tree(&tree, DIRECTORIES, FILES / DIRECTORIES, &live).map_err(io::Error::other)?;
    File::create(done)?;
    Ok(tree)
}

/// Processor time of this process, and of the children it has waited for (in clock ticks).
fn cpu_time() -> io::Result<Duration> {
    let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let own = Duration::new(own.tv_sec as u64, own.tv_nsec as u32);
    // cutime and cstime, fields 16 and 17, counted behind the command's name, which may hold
    // anything.
    let text = fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(own + Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}
