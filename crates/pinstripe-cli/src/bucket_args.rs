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
    /// The endpoint of places that begin with s3://, as in https://s3.example.org
    ///
    /// The endpoint is recorded with a new member, so that other verbs need no --endpoint. Default:
    /// the variables AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL, then the profile, otherwise AWS.
    /// Traffic is encrypted unless the endpoint begins with http://.
    #[arg(long, global = true, value_name = "URL", hide_short_help = true)]
    pub endpoint: Option<String>,

    /// The region of buckets, if the endpoint does not determine it
    ///
    /// Default: the variables AWS_REGION and AWS_DEFAULT_REGION, then the profile, then us-east-1.
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub region: Option<String>,

    /// Limit uploads to each endpoint to this many bytes per second, as in 2M
    ///
    /// The limit is an average over several requests; a single request is sent at full speed.
    /// Waiting for the limit does not count as silence of the endpoint.
    #[arg(long, global = true, value_name = "SIZE", value_parser = rate, hide_short_help = true)]
    pub bandwidth_up: Option<u64>,

    /// Limit downloads from each endpoint to this many bytes per second
    #[arg(long, global = true, value_name = "SIZE", value_parser = rate, hide_short_help = true)]
    pub bandwidth_down: Option<u64>,

    /// Show the store as it was in its buckets at this time: 2024-05-01, '2024-05-01 12:30:00' or
    /// @SECONDS
    ///
    /// This works for buckets that keep versions, even after everything was deleted. Nothing is
    /// written to the store; 'restore --at' restores the data of that time. Members that are
    /// directories are shown as they are now.
    #[arg(long, global = true, value_name = "TIME", value_parser = crate::time::parse,
          allow_hyphen_values = true, hide_short_help = true)]
    pub at: Option<i64>,

    /// Cache index, trees and small objects of stores in buckets on this host, up to this size
    ///
    /// The cache is in $XDG_CACHE_HOME/pinstripe/STORE/sealed or ~/.cache, sealed as in the bucket,
    /// and may be removed at any time. 'check', 'scrub', 'repair', 'gc' and 'member' never use it.
    /// The minimum is 16M; 0 disables the cache. Default: 'cache-size' in the config file, then 1G.
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
    /// Lock objects in a bucket for this time, as in 30d: h, d, w, m of 30 days, y of 365
    ///
    /// The bucket must have object lock. Packs, snapshots, keys and the label cannot be deleted for
    /// good before this time is over; 'gc' extends the locks of objects that are still needed when
    /// half of the time has passed. Objects deleted meanwhile are hidden, and billed until the
    /// bucket's lifecycle rule removes them.
    #[arg(long, value_name = "TIME", value_parser = retention)]
    retain: Option<u32>,

    /// Kind of lock: compliance (no account can lift it) or governance (accounts with a special right
    /// can lift it)
    #[arg(long, value_name = "MODE", requires = "retain", default_value = "compliance")]
    retain_mode: RetainMode,

    /// Allow an endpoint without create-if-absent, for one writer at a time
    ///
    /// Such an endpoint (Backblaze B2 is one) lets several writers create the same object. With
    /// this option, only one process at a time can write to the store; a second writing process
    /// ends with exit code 18. 'probe' shows what an endpoint supports.
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
        _ => Err("a retention between 1h and 100y".to_owned()),
    }
}

/// Reads the size of a cache.
pub fn cache_size(text: &str) -> std::result::Result<Size, String> {
    match size(text)? {
        size if size.0 == 0 || size.0 >= CACHE_MIN_BYTES => Ok(size),
        _ => Err("a cache size of at least 16M, or 0 for no cache".to_owned()),
    }
}

impl BucketArgs {
    /// The limits of bandwidth to each endpoint.
    pub fn bandwidth(&self) -> Bandwidth {
        Bandwidth { up: self.bandwidth_up, down: self.bandwidth_down }
    }
}
