//! The walker against what else walks trees: the lab's case on 200,000 files in 20,000 directories,
//! cache warm, with two more walkers, and the walker itself with and without 200 exclude rules.

use std::ffi::OsStr;
use std::hint::black_box;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use pinstripe::{Exclude, WalkOptions, Walker, recommended_threads};
use pinstripe_base::error::{Error, Result as LabResult};
use pinstripe_lab::{OtherWalker, Table, case_tables, walk_beside};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags};

use super::{from_lab, pairs};
use crate::Result;

/// The purpose of the case, and its arguments.
pub const ABOUT: &str = "the walker against find, nftw, ignore: --work DIR";

const DIRECTORIES: &str = "20000";
const ROUNDS: usize = 5;
const OTHERS: &[OtherWalker] = &[
    ("ignore", 2, walk_ignore),
    ("bare system calls", 2, walk_bare),
    ("walker, 0 rules", 2, |tree| walk_ruled(tree, 0)),
    ("walker, 200 rules", 2, |tree| walk_ruled(tree, 200)),
];

/// Measures all walkers in turn; each must see every entry.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let found = pairs(args, &["--work"])?;
    let work = found.first().map_or_else(std::env::temp_dir, |(_, work)| PathBuf::from(work));
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let threads = format!("1,2,{}", recommended_threads(false, cores));
    let given =
        [("directories", DIRECTORIES), ("walkers", "walker,find,nftw"), ("threads-each", &threads)];
    let plan = |setting: &_, values: &_| walk_beside(setting, values, OTHERS);
    let results = from_lab::measured_by("walk", plan, &work, &given, ROUNDS)?;
    Ok(case_tables(&results))
}

/// The kernel's limit: open, getdents64 and statx by two threads, no order, nothing kept.
fn walk_bare(tree: &Path) -> LabResult<u64> {
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
    let walked = thread::scope(|scope| {
        let other = scope.spawn(work);
        work().and_then(|()| other.join().map_err(|_| io::Error::other("a thread panicked"))?)
    });
    walked.map_err(|error| Error::io("cannot be walked", tree, error))?;
    Ok(seen.into_inner())
}

/// The walker with this number of rules, which match no entry of the tree.
fn walk_ruled(tree: &Path, rules: usize) -> LabResult<u64> {
    let exclude = Exclude::new((0..rules).map(rule))?;
    let options = WalkOptions { exclude, ..WalkOptions::default() };
    let walker = Walker::new(tree, tree.as_os_str().as_bytes().to_vec(), options)?;
    Ok(thread::scope(|scope| {
        scope.spawn(|| walker.work());
        walker.batches().map(|batch| batch.len() as u64).sum()
    }))
}

/// One of the rules that people write: endings, names, directories, paths, temporary files.
fn rule(number: usize) -> String {
    match number % 10 {
        0..4 => format!("*.x{number}"),
        4 | 5 => format!("cache-{number}/"),
        6 => format!("/home/*/.local/share/state-{number}/**"),
        7 => format!("target/build-{number}"),
        8 => format!("#tmp-{number}*"),
        _ => format!("!keep-{number}.x"),
    }
}

fn walk_ignore(tree: &Path) -> LabResult<u64> {
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
