//! `pinstripe overlay`: shows a slow directory or a bucket as a directory with read-ahead.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueHint;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::parse_size;
use pinstripe_member::is_remote;
use pinstripe_overlay::{
    BlockCache, CacheUsage, DirectorySource, OverlayOptions, OverlayTree, RangeSource, SourceUsage,
};

use super::shown::{
    CacheFigures, FILES_TOLD, FileFigures, Shown, ShownArgs, ShownStatus, SourceFigures, StatusArgs,
};
use crate::args::{Time, duration, parsed};
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::signals;
use crate::system;

/// The number of blocks that are prefetched at the same time.
const FETCHERS: usize = 64;
/// The least number of threads that answer the kernel: they wait for the source, so there are more
/// of them than processors.
const THREADS_MIN: usize = 32;
/// The time limit for an answer of the source.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Mount a slow directory a second time, with read-ahead
///
/// The source is a directory of a slow file system (for example CephFS, NFS, sshfs or a hard disk),
/// or a prefix of a bucket, whose objects appear as files. The overlay detects sequential and
/// strided reads, forwards or backwards, and prefetches their data with many concurrent requests.
/// Prefetched data uses at most the memory of --memory. The mount is read-only.
///
/// An open file shows the content that it had when it was opened. If an open file changes in the
/// source, reads of the file fail with ESTALE; opening the file again shows the new content.
/// Changes of files are detected by size, mtime, ctime and inode; changes of objects in a bucket
/// are detected by size, ETag and time. A request that the source does not answer within --timeout
/// fails with an input/output error.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_long_help = "\
Examples:
  pinstripe overlay /mnt/cephfs/images /mnt/fast
  pinstripe overlay s3://data/images /mnt/fast --endpoint https://s3.example.org
  pinstripe overlay /mnt/nfs /mnt/fast --cache /var/cache/pinstripe,100G --memory 1G
  pinstripe hint /mnt/fast/disk.img stride 4M -68M
  pinstripe overlay status /mnt/fast
  umount /mnt/fast")]
pub struct OverlayArgs {
    #[command(subcommand)]
    command: Option<OverlayCommand>,

    /// The directory to mount a second time, or s3://BUCKET/PREFIX
    #[arg(value_name = "SOURCE", value_hint = ValueHint::DirPath, required = true)]
    source: Option<PathBuf>,

    /// An empty directory, which becomes the mountpoint
    #[arg(value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath, required = true)]
    mountpoint: Option<PathBuf>,

    /// Use directory DIR on a local disk as a cache for data of the source; SIZE is the maximum
    /// size of the cache
    ///
    /// Cached data is protected by checksums. A later overlay uses the cached data again, except
    /// for files that have changed in the meantime. Only one process can use a cache directory at a
    /// time. In addition to --memory, the cache takes 1.4 MiB of memory for each GiB of its size.
    #[arg(long, value_name = "DIR,SIZE", value_parser = parsed::<CachePlace>)]
    cache: Option<CachePlace>,

    /// Time limit for each request to the source, for example 30s or 2m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value_t = Time(TIMEOUT))]
    timeout: Time,

    /// Let the kernel read files of local disks directly, without the overlay
    ///
    /// A file that the kernel reads directly always shows its current content, even if it changes
    /// while it is open. Files of network file systems and buckets are still read through the
    /// overlay. --passthrough needs Linux 6.9 and root (CAP_SYS_ADMIN). If the kernel is older or
    /// the user is not root, a message reports this, and all files are read through the overlay.
    #[arg(long)]
    passthrough: bool,

    #[command(flatten)]
    shown: ShownArgs,
}

/// The subcommands.
#[derive(clap::Subcommand)]
enum OverlayCommand {
    Status(StatusArgs),
}

/// The directory of the cache, and the bytes that it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CachePlace {
    place: PathBuf,
    bytes: u64,
}

impl FromStr for CachePlace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (place, size) =
            text.rsplit_once(',').filter(|(place, _)| !place.is_empty()).ok_or_else(|| {
                Error::new(
                    Kind::Usage,
                    "write a directory and a size, for example /var/cache/x,100G",
                )
            })?;
        Ok(CachePlace { place: place.into(), bytes: parse_size(size)? })
    }
}

impl OverlayArgs {
    /// Serves the source until the overlay is unmounted.
    ///
    /// # Errors
    /// Fails with the errors of opening the source, and of mounting.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        if let Some(OverlayCommand::Status(status)) = &self.command {
            return status.run(run, "overlay");
        }
        let source = self.source.as_deref().expect("clap wants it");
        let mountpoint = self.mountpoint.as_deref().expect("clap wants it");
        if let Some(ending) = self.shown.in_background(run, mountpoint)? {
            return Ok(ending);
        }
        if is_remote(source) {
            return self.show_bucket(run, source, mountpoint);
        }
        let name = full_name(source)?;
        self.show(run, DirectorySource::open(source)?, &name, mountpoint)
    }

    #[cfg(feature = "s3")]
    fn show_bucket(&self, run: &Run, source: &Path, mountpoint: &Path) -> Result<Ending> {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        let name = run.place(source)?;
        let bucket = run.buckets().source(&name, (uid.as_raw(), gid.as_raw()))?;
        self.show(run, bucket, &name, mountpoint)
    }

    #[cfg(not(feature = "s3"))]
    fn show_bucket(&self, _run: &Run, source: &Path, _mountpoint: &Path) -> Result<Ending> {
        Err(Error::new(
            Kind::Unsupported,
            "this program was built without support for buckets, so the source must be a directory",
        )
        .at(source)
        .advice("use a build of pinstripe with the feature 's3'"))
    }

    fn show<S: RangeSource>(
        &self,
        run: &Run,
        source: S,
        name: &Path,
        mountpoint: &Path,
    ) -> Result<Ending> {
        let stop = signals::catch()?;
        let options = OverlayOptions {
            budget: run.common.memory.0,
            fetchers: FETCHERS,
            deadline: self.timeout.0,
        };
        let cache = self.cache.as_ref().and_then(|cache| open_cache(run, cache, name));
        let tree = OverlayTree::new(source, cache, options, Arc::clone(&run.monitor))?;
        let tree = Arc::new(tree);
        let shows = name.display().to_string();
        let threads = run.common.threads.map(|threads| threads as usize);
        let shown = Shown {
            verb: "overlay",
            ready: Event::default().with("source", &*shows),
            ready_line: escape::text(&shows),
            name: shows,
            tree: &tree,
            threads: threads.unwrap_or_else(|| system::cores().max(THREADS_MIN)),
            passes_through: self.passthrough,
            figures: &|status| add_figures(&tree, status),
            chore: None,
        };
        let ended = self.shown.show(run, &shown, mountpoint, stop);
        // A source that hangs would keep the threads of read-ahead, and so this process.
        std::mem::forget(tree);
        ended
    }
}

fn full_name(source: &Path) -> Result<PathBuf> {
    source.canonicalize().map_err(|error| Error::of_named("cannot open the source", source, error))
}

/// Opens the cache. If the cache cannot be used, reports that and returns `None`; the cache is not
/// changed.
fn open_cache(run: &Run, cache: &CachePlace, source: &Path) -> Option<BlockCache> {
    use std::os::unix::ffi::OsStrExt;
    let name = source.as_os_str().as_bytes();
    let opened = BlockCache::open(&cache.place, cache.bytes, name, Arc::clone(&run.monitor));
    opened.inspect_err(|error| run.monitor.warning("cache", error.duplicate())).ok()
}

fn add_figures<S: RangeSource>(tree: &OverlayTree<S>, status: &mut ShownStatus) {
    let found = tree.status(FILES_TOLD);
    status.memory = found.memory.into();
    status.source = Some(source_figures(found.source));
    status.cache = found.cache.map(cache_figures);
    let figures = found.files.iter().map(|it| FileFigures::new(&it.path, it.size, &it.readers));
    status.files = figures.collect();
}

fn source_figures(usage: SourceUsage) -> SourceFigures {
    SourceFigures {
        in_flight: usage.in_flight,
        late: usage.late,
        median_seconds: usage.median.as_secs_f64(),
        p99_seconds: usage.percentile_99.as_secs_f64(),
    }
}

fn cache_figures(usage: CacheUsage) -> CacheFigures {
    CacheFigures {
        max_bytes: usage.bytes_max,
        held_bytes: usage.bytes,
        found_bytes: usage.found,
        missed_bytes: usage.missed,
        stored_bytes: usage.stored,
        damaged_cells: usage.damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_a_directory_and_a_size() {
        let read = |text: &str| text.parse::<CachePlace>().ok().map(|it| (it.place, it.bytes));
        assert_eq!(read("/a,b,1M"), Some(("/a,b".into(), 1 << 20)));
        for wrong in ["", "/a", ",1M", "/a,lots"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
