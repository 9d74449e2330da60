//! Decides how recorded data is written to the disk: through the page cache, or by direct I/O with
//! several threads.
//!
//! A write through the page cache only copies to memory, as long as the kernel accepts more dirty
//! data. If the kernel's limit is too low for the streams (little memory, a small
//! `vm.dirty_bytes`), the writing thread has to wait for the disk. Direct I/O with several
//! prioritized threads is then better.

#![allow(
    clippy::disallowed_methods,
    reason = "this module asks the kernel how much data may wait in its page cache"
)]

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use pinstripe_base::error::{Error, Kind};
use pinstripe_base::units::format_size;
use pinstripe_io::mounts::{self, MountInfo};

use crate::limits::DIRECT_WRITERS;

/// The most data of all streams that waits in the page cache, in seconds: one second until the next
/// commit, and two while a commit is slowed down by other writes.
const CACHED_SECONDS: u64 = 4;

/// How recorded data is written to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePolicy {
    /// One thread writes through the page cache.
    Buffered,
    /// Several threads write with direct I/O.
    Direct,
}

impl WritePolicy {
    /// The number of threads that write to one directory.
    pub fn writers(self) -> usize {
        match self {
            WritePolicy::Buffered => 1,
            WritePolicy::Direct => DIRECT_WRITERS,
        }
    }
}

impl fmt::Display for WritePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WritePolicy::Buffered => "buffered",
            WritePolicy::Direct => "direct",
        })
    }
}

/// The user's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteChoice {
    /// The policy that is chosen for this machine.
    Auto,
    /// This one.
    Given(WritePolicy),
}

impl FromStr for WriteChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(WriteChoice::Auto),
            "buffered" => Ok(WriteChoice::Given(WritePolicy::Buffered)),
            "direct" => Ok(WriteChoice::Given(WritePolicy::Direct)),
            _ => Err(Error::new(Kind::Usage, format!("'{text}' is not a known write policy"))
                .expected("a write policy: buffered, direct or auto", text)),
        }
    }
}

impl fmt::Display for WriteChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteChoice::Auto => f.write_str("auto"),
            WriteChoice::Given(policy) => policy.fmt(f),
        }
    }
}

impl WriteChoice {
    /// The policy for `byte_rate` bytes per second of all streams together, and the reason for it.
    pub fn policy(self, byte_rate: u64) -> (WritePolicy, String) {
        match self {
            WriteChoice::Given(policy) => (policy, "this policy was requested".to_owned()),
            WriteChoice::Auto => fitting(byte_rate, freely_cached_bytes()),
        }
    }
}

/// Chooses the policy, if `cached` bytes may wait in the page cache before the kernel throttles
/// writers.
fn fitting(byte_rate: u64, cached: Option<u64>) -> (WritePolicy, String) {
    let needed = byte_rate.saturating_mul(CACHED_SECONDS);
    let Some(cached) = cached else {
        let why =
            "the kernel does not report how much unwritten data its page cache can hold".to_owned();
        return (WritePolicy::Buffered, why);
    };
    let amounts = format!(
        "the streams leave at most {} of unwritten data in the page cache; the kernel permits {} \
         of unwritten data",
        format_size(needed),
        format_size(cached)
    );
    match needed <= cached {
        true => (WritePolicy::Buffered, amounts),
        false => (WritePolicy::Direct, format!("{amounts} before it slows down writers")),
    }
}

/// The number of dirty bytes from which the kernel throttles writers: half-way between its two
/// thresholds.
fn freely_cached_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    freely_cached(&text, rustix::param::page_size() as u64)
}

fn freely_cached(vmstat: &str, page_bytes: u64) -> Option<u64> {
    let pages = |name: &str| -> Option<u64> {
        let line = vmstat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line?.trim().parse().ok()
    };
    let both = pages("nr_dirty_threshold")? + pages("nr_dirty_background_threshold")?;
    Some(both / 2 * page_bytes)
}

/// A warning if the directory's file system is known to delay syncs while others write.
///
/// ext4 delays syncs with the mount option `discard`: each freed block of an extent tree causes a
/// request to the disk, and without a journal the one thread that completes all buffered writes
/// waits for this request (`ext4_free_blocks`, `ext4_end_io_rsv_work` in fs/ext4). With the option
/// `discard` a durable lag of 67 s was measured, without it 4 s.
pub fn durability_warning(directory: &Path) -> Option<Error> {
    discards_at_once(&mounts::of_path(directory)?).then(|| {
        let what = "the file system is mounted with 'discard': while other programs write, syncs \
                    wait until the disk has discarded freed blocks, so the durable lag grows";
        let advice = "mount the file system without 'discard', and instead run fstrim once a week";
        Error::new(Kind::Io, what).advice(advice)
    })
}

fn discards_at_once(mount: &MountInfo) -> bool {
    mount.kind == "ext4" && mount.has_super_option("discard")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ext4_that_discards_at_once_is_told_apart() {
        let discards = |kind: &str, options: &str| {
            let line = format!("29 1 254:0 / / rw,relatime shared:1 - {kind} /dev/vda {options}");
            discards_at_once(&MountInfo::parse(&line).unwrap())
        };
        assert!(discards("ext4", "rw,discard,errors=remount-ro"));
        assert!(!discards("xfs", "rw,discard"));
        assert!(!discards("ext4", "rw,nodiscard"));
    }

    #[test]
    fn streams_that_the_page_cache_has_no_room_for_go_past_it_and_the_reason_has_the_amounts() {
        let vmstat = "nr_dirty 7\nnr_dirty_threshold 3000\nnr_dirty_background_threshold 1000\n";
        let cached = freely_cached(vmstat, 4096);
        assert_eq!(cached, Some(2000 * 4096));
        assert_eq!(freely_cached("nr_dirty 7\n", 4096), None);
        assert_eq!(fitting(2 << 20, cached).0, WritePolicy::Direct);
        let (policy, why) = fitting(1 << 20, cached);
        assert_eq!(policy, WritePolicy::Buffered);
        assert!(why.starts_with("the streams leave at most 4.0 MiB of unwritten data"), "{why}");
        assert_eq!(fitting(u64::MAX, None).0, WritePolicy::Buffered);
    }

    #[test]
    fn a_way_is_read_as_it_is_written() {
        for text in ["auto", "buffered", "direct"] {
            assert_eq!(text.parse::<WriteChoice>().unwrap().to_string(), text);
        }
        assert_eq!("odirect".parse::<WriteChoice>().unwrap_err().kind(), Kind::Usage);
        let asked = WriteChoice::Given(WritePolicy::Direct);
        assert_eq!(asked.policy(1).0, WritePolicy::Direct);
    }
}
