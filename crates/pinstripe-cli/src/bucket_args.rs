//! Options about buckets.

use std::path::Path;

use pinstripe_base::units::MIB;
use pinstripe_bucket::Bandwidth;
use pinstripe_member::is_remote;
use pinstripe_member::label::Retention;
use pinstripe_rados::is_pool;

use crate::values::{Size, rate, size};

/// A smaller cache has no benefit.
const CACHE_MIN_BYTES: u64 = 16 * MIB;
/// S3 locks objects for a hundred years at most.
const RETENTION_MAX: u32 = 100 * 365 * 86_400;

/// Options about buckets.
#[derive(clap::Args, Clone, Default)]
#[group(skip)]
pub struct BucketArgs {
    /// URL of the S3 endpoint for locations that begin with s3://, for example
    /// https://s3.example.org
    ///
    /// A store records the endpoint of each new member, so that later commands need no --endpoint.
    /// Default: the environment variable AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, or else the
    /// endpoint in the AWS profile, or else AWS itself. Traffic is encrypted unless the URL begins
    /// with http://.
    #[arg(long, global = true, value_name = "URL", hide_short_help = true)]
    pub endpoint: Option<String>,

    /// Region of the buckets, if the endpoint does not determine it
    ///
    /// Default: the environment variable AWS_REGION or AWS_DEFAULT_REGION, or else the region in
    /// the AWS profile, or else us-east-1.
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub region: Option<String>,

    /// Limit uploads to each endpoint to this many bytes per second, for example 2M
    ///
    /// The limit applies to the average of several requests; each single request is sent at full
    /// speed. Time that a request waits because of the limit does not count towards
    /// --member-timeout.
    #[arg(long, global = true, value_name = "SIZE", value_parser = rate, hide_short_help = true)]
    pub bandwidth_up: Option<u64>,

    /// Limit downloads from each endpoint to this many bytes per second
    #[arg(long, global = true, value_name = "SIZE", value_parser = rate, hide_short_help = true)]
    pub bandwidth_down: Option<u64>,

    /// Show the state of the store in its buckets at this time: 2024-05-01, '2024-05-01 12:30:00'
    /// or @SECONDS (since 1970)
    ///
    /// --at needs buckets that keep versions of objects; it works even after all objects were
    /// deleted. Commands with --at write nothing to the store; 'restore --at TIME' restores the
    /// data that the store contained at TIME. Members that are directories have no versions, so
    /// their present state is shown.
    #[arg(long, global = true, value_name = "TIME", value_parser = crate::time::parse,
          allow_hyphen_values = true, hide_short_help = true)]
    pub at: Option<i64>,

    /// Maximum size of the cache on this host for the index, trees and small objects of a store in
    /// buckets
    ///
    /// The cache is the directory $XDG_CACHE_HOME/pinstripe/STORE/sealed, or the same directory
    /// below ~/.cache, and may be removed at any time. Objects in the cache are encrypted in the
    /// same way as in the bucket. 'check', 'scrub', 'repair', 'gc' and 'member' never use the
    /// cache. The minimum size of the cache is 16M; the value 0 disables the cache. Default:
    /// 'cache-size' in the config file, or else 1G.
    #[arg(long, global = true, value_name = "SIZE", value_parser = cache_size,
          hide_short_help = true)]
    pub cache_size: Option<Size>,
}

/// The kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RetainMode {
    Compliance,
    Governance,
}

/// What new members in buckets are meant to do, and may lack.
#[derive(clap::Args, Clone, Copy)]
pub struct NewBucketArgs {
    /// Lock each object in a bucket against deletion for this time, for example 30d; units are h,
    /// d, w, m (30 days) and y (365 days)
    ///
    /// S3 Object Lock must be enabled in the bucket. Packs, snapshots, keys and the label cannot be
    /// deleted permanently while they are locked. If an object is still needed when half of its
    /// lock time has passed, 'gc' extends its lock. An object that is deleted while it is locked
    /// becomes hidden; its storage is billed until the lifecycle rule of the bucket removes the
    /// object.
    #[arg(long, value_name = "TIME", value_parser = retention)]
    retain: Option<u32>,

    /// Kind of lock: compliance (no account can remove the lock) or governance (accounts with a
    /// special permission can remove it)
    #[arg(long, value_name = "MODE", requires = "retain", default_value = "compliance")]
    retain_mode: RetainMode,

    /// Accept an endpoint without conditional writes (If-None-Match), and allow only one writer at
    /// a time
    ///
    /// An endpoint without conditional writes, for example Backblaze B2, lets several writers
    /// create the same object. With --one-writer, only one process at a time can write to the
    /// store; a second process that tries to write ends with exit code 18. 'pinstripe probe' shows
    /// what an endpoint supports.
    #[arg(long)]
    one_writer: bool,
}

impl NewBucketArgs {
    /// The name of an option for new members in buckets that was given, if any.
    pub fn given(&self) -> Option<&'static str> {
        match (self.retain.is_some(), self.one_writer) {
            (true, _) => Some("--retain"),
            (_, true) => Some("--one-writer"),
            _ => None,
        }
    }

    /// Whether endpoints without create-if-absent are allowed.
    pub fn allows_one_writer(&self) -> bool {
        self.one_writer
    }

    /// The time for which new objects in the bucket are locked.
    pub fn retention(&self) -> Option<Retention> {
        let is_compliance = self.retain_mode == RetainMode::Compliance;
        self.retain.map(|seconds| Retention { seconds, is_compliance })
    }
}

/// Whether a place is in a bucket, and so is neither a directory nor in a Ceph pool.
pub fn is_bucket(place: &Path) -> bool {
    is_remote(place) && !is_pool(place)
}

/// Reads a retention time.
fn retention(text: &str) -> std::result::Result<u32, String> {
    let seconds = crate::time::parse_span(text)?;
    match u32::try_from(seconds) {
        Ok(seconds @ 3600..=RETENTION_MAX) => Ok(seconds),
        _ => Err("the retention must be between 1h and 100y".to_owned()),
    }
}

/// Reads the size of a cache.
pub fn cache_size(text: &str) -> std::result::Result<Size, String> {
    match size(text)? {
        size if size.0 == 0 || size.0 >= CACHE_MIN_BYTES => Ok(size),
        _ => Err("the size of the cache must be at least 16M, or 0 for no cache".to_owned()),
    }
}

impl BucketArgs {
    /// The limits of bandwidth to each endpoint.
    pub fn bandwidth(&self) -> Bandwidth {
        Bandwidth { up: self.bandwidth_up, down: self.bandwidth_down }
    }
}
