//! Ways to walk a tree that read the metadata of every entry, and a generated tree to walk.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pinstripe::{WalkItem, WalkOptions, Walker};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use pinstripe_member::meta::FileKind;

use crate::run::Live;

/// Walks a tree with pinstripe's walker and `threads` threads in total. The consumer is one of the
/// threads: it also walks while it has no entries to consume. Returns the number of entries, and
/// the time until the last entry was delivered.
///
/// The wait for the threads to end is not part of that time. On a busy machine each thread must
/// first be scheduled before it can end, which would make a walk by many threads look slower than a
/// walk by one.
///
/// # Errors
/// The first error of an entry; an interrupt.
pub(crate) fn by_walker(tree: &Path, threads: usize, live: &Live) -> Result<(u64, Duration)> {
    let began = Instant::now();
    let prefix = tree.as_os_str().as_bytes().to_vec();
    let walker = Walker::new(tree, prefix, WalkOptions::default())?;
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| walker.work());
        }
        let counted = count(&walker, live);
        if counted.is_err() {
            walker.cancel();
        }
        counted.map(|entries| (entries, began.elapsed()))
    })
}

fn count(walker: &Walker, live: &Live) -> Result<u64> {
    let mut entries = 0;
    for batch in walker.batches() {
        live.check()?;
        let before = entries;
        for item in batch.iter() {
            match item {
                WalkItem::Found(_) => entries += 1,
                WalkItem::Trouble(trouble) => return Err(trouble.error.duplicate()),
            }
        }
        live.counted(entries - before);
    }
    Ok(entries)
}

/// The approximate number of bytes of a tree's files, to estimate how long it takes to read them; a
/// file that cannot be examined counts as empty.
///
/// # Errors
/// An interrupt.
pub fn bytes_of(tree: &Path, one_file_system: bool, live: &Live) -> Result<u64> {
    let options = WalkOptions { one_file_system, ..WalkOptions::default() };
    let Ok(walker) = Walker::new(tree, Vec::new(), options) else { return Ok(0) };
    let mut bytes = 0;
    for batch in walker.batches() {
        live.check()?;
        let files = batch.iter().filter_map(|item| match item {
            WalkItem::Found(found) if found.stat.kind == FileKind::File => {
                Some(found.stat.size_bytes)
            }
            _ => None,
        });
        bytes += files.sum::<u64>();
    }
    Ok(bytes)
}

/// Walks by find(1), which prints the metadata of every entry to /dev/null. find(1) does not return
/// the number of entries.
///
/// # Errors
/// Fails if find(1) is missing or fails.
pub(crate) fn by_find(tree: &Path) -> Result<()> {
    let format = "%y %m %U %G %s %b %T@ %C@ %i %P\n";
    let status = Command::new("find")
        .arg(tree)
        .args(["-printf", format])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|error| Error::io("cannot be run", "find", error))?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::new(Kind::Io, "find(1) could not read the complete tree").at(tree)),
    }
}

/// nftw(3) passes no state to its callback, so only one walk runs at a time.
static NFTW: Mutex<()> = Mutex::new(());
static NFTW_SEEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn seen(_: *const c_char, _: *const c_void, _: c_int, _: *mut c_void) -> c_int {
    NFTW_SEEN.fetch_add(1, Ordering::Relaxed);
    0
}

type Visit = extern "C" fn(*const c_char, *const c_void, c_int, *mut c_void) -> c_int;

unsafe extern "C" {
    fn nftw(path: *const c_char, visit: Visit, descriptors: c_int, flags: c_int) -> c_int;
}

/// The flag that makes nftw(3) report symlinks as entries instead of following them (<ftw.h>).
const FTW_PHYS: c_int = 1;
/// The number of directories that nftw(3) keeps open.
const DESCRIPTORS: c_int = 64;

/// Walks by nftw(3) of the C library. Returns the number of entries.
///
/// # Errors
/// Returns errors as the system reports them.
pub(crate) fn by_nftw(tree: &Path) -> Result<u64> {
    let path = CString::new(tree.as_os_str().as_bytes())
        .map_err(|_| Error::new(Kind::Usage, "this is not a valid path").at(tree))?;
    let _alone = lock(&NFTW);
    NFTW_SEEN.store(0, Ordering::Relaxed);
    // SAFETY: `nftw` is the C library's, declared as in <ftw.h> with the pointers to `struct stat`
    // and `struct FTW` opaque, for `seen` does not look through them; `path` is NUL-terminated
    // and outlives the call; `seen` does not unwind.
    let answer = unsafe { nftw(path.as_ptr(), seen, DESCRIPTORS, FTW_PHYS) };
    match answer {
        0 => Ok(NFTW_SEEN.load(Ordering::Relaxed)),
        _ => Err(Error::io("nftw cannot walk this tree", tree, std::io::Error::last_os_error())),
    }
}

/// Creates a tree: each directory has up to ten subdirectories and `files_of_each` empty files. The
/// root counts as one of the directories.
///
/// # Errors
/// Errors as the system reports them; an interrupt.
pub fn make_tree(tree: &Path, directories: u64, files_of_each: u64, live: &Live) -> Result<()> {
    for number in 0..directories {
        live.check()?;
        let path = directory_path(tree, number);
        fs::create_dir_all(&path).map_err(|error| Error::io("cannot make", &path, error))?;
        for file in 0..files_of_each {
            let path = path.join(format!("source-file-{number}-{file}.c"));
            File::create(&path).map_err(|error| Error::io("cannot make", &path, error))?;
        }
    }
    Ok(())
}

/// Directory 0 is the root; the number of any other directory divided by ten is the number of its
/// parent.
fn directory_path(tree: &Path, number: u64) -> PathBuf {
    match number {
        0 => tree.to_path_buf(),
        _ => directory_path(tree, number / 10).join(format!("directory-{number}")),
    }
}
