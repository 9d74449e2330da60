//! The figures of a mount, and how `status` shows them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueHint;
use pinstripe_base::error::Result;
use pinstripe_base::units::format_size;
use pinstripe_prefetch::{BudgetUsage, ReadersOfObject, StreamStatus};
use serde::{Deserialize, Serialize};

use super::control;
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};

/// List the mounts, and show statistics of their read-ahead
///
/// For each mount, the command lists the files that were read recently, with their streams of reads
/// (reads with one pattern). For each stream of reads, the list shows the stride, the read-ahead
/// distance, the number of reads whose data was already prefetched (hits), the number of reads that
/// had to wait (stalls), and the number of bytes that were prefetched but not read.
#[derive(clap::Args)]
pub struct StatusArgs {
    /// Show only the mount at this mountpoint
    #[arg(value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath)]
    mountpoint: Option<PathBuf>,
}

/// A mount and its figures.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ShownStatus {
    pub verb: String,
    pub mountpoint: String,
    pub shows: String,
    pub process: u32,
    pub seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<u64>,
    pub memory: MemoryFigures,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheFigures>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberFigures>,
    pub files: Vec<FileFigures>,
}

/// Figures of the memory for content.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MemoryFigures {
    pub budget_bytes: u64,
    pub held_bytes: u64,
    pub peak_bytes: u64,
    pub queued: u64,
    pub demanded_bytes: u64,
    pub ahead_bytes: u64,
    pub wasted_bytes: u64,
}

/// Figures of the source of an overlay.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SourceFigures {
    pub in_flight: u64,
    pub late: u64,
    pub median_seconds: f64,
    pub p99_seconds: f64,
}

/// Figures of a member of the store of a mount.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MemberFigures {
    pub number: u32,
    pub place: String,
    pub in_flight: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub failed: u64,
    pub median_seconds: f64,
    pub p99_seconds: f64,
}

/// Figures of the local cache of an overlay.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CacheFigures {
    pub max_bytes: u64,
    pub held_bytes: u64,
    pub found_bytes: u64,
    pub missed_bytes: u64,
    pub stored_bytes: u64,
    pub damaged_cells: u64,
}

/// Figures of a recently read file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct FileFigures {
    pub path: String,
    #[serde(default)]
    pub inode: u64,
    pub bytes: u64,
    pub read_bytes: u64,
    pub planned_bytes: u64,
    pub wasted_bytes: u64,
    pub ahead_bytes: u64,
    pub hits: u64,
    pub stalls: u64,
    pub streams: Vec<StreamFigures>,
}

/// Figures of a stream of reads.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StreamFigures {
    pub stride_bytes: i64,
    pub record_bytes: u64,
    pub ahead: u32,
    pub used: u64,
}

impl ShownStatus {
    pub(super) fn new(verb: &str, mountpoint: &Path, shows: &str, time: Duration) -> Self {
        ShownStatus {
            verb: verb.to_owned(),
            mountpoint: mountpoint.display().to_string(),
            shows: shows.to_owned(),
            process: std::process::id(),
            seconds: time.as_secs_f64(),
            ..ShownStatus::default()
        }
    }
}

impl From<BudgetUsage> for MemoryFigures {
    fn from(usage: BudgetUsage) -> Self {
        MemoryFigures {
            budget_bytes: usage.budget,
            held_bytes: usage.charged,
            peak_bytes: usage.peak,
            queued: usage.queued,
            demanded_bytes: usage.demanded,
            ahead_bytes: usage.ahead,
            wasted_bytes: usage.wasted,
        }
    }
}

impl FileFigures {
    /// The figures of one file.
    pub fn new(path: &[u8], bytes: u64, readers: &ReadersOfObject) -> Self {
        let counts = readers.counts;
        let stream = |stream: &StreamStatus| StreamFigures {
            stride_bytes: stream.stride,
            record_bytes: stream.record,
            ahead: stream.ahead,
            used: stream.used,
        };
        FileFigures {
            path: String::from_utf8_lossy(path).into_owned(),
            inode: readers.object,
            bytes,
            read_bytes: counts.read,
            planned_bytes: counts.planned,
            wasted_bytes: counts.wasted,
            ahead_bytes: readers.outstanding,
            hits: counts.hits,
            stalls: counts.stalls,
            streams: readers.streams.iter().map(stream).collect(),
        }
    }
}

impl StatusArgs {
    /// Requests the status of mounts from their processes, and shows it.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) when nothing is mounted
    /// at the given place.
    pub fn run(&self, run: &Run, verb: &str) -> Result<Ending> {
        let all = match &self.mountpoint {
            Some(mountpoint) => vec![control::ask(verb, mountpoint)?],
            None => control::ask_all(verb)?,
        };
        for status in &all {
            run.screen.event(&Event::new("shown").with_fields(status))?;
            for line in lines(status) {
                run.screen.row(&line)?;
            }
        }
        if all.is_empty() {
            run.screen.say(&format!("this user has no mount of 'pinstripe {verb}'"));
        }
        Ok(Ending::done(Event::default().with("mounts", all.len())))
    }
}

fn lines(status: &ShownStatus) -> Vec<String> {
    let (place, shows) = (escape::text(&status.mountpoint), escape::text(&status.shows));
    let memory = &status.memory;
    let mut lines = vec![
        format!("{place}: {shows}, served by process {}", status.process),
        format!(
            "  memory {} of {}, at most {} so far; read on demand {}, prefetched {}, prefetched \
             but not used {}",
            format_size(memory.held_bytes),
            format_size(memory.budget_bytes),
            format_size(memory.peak_bytes),
            format_size(memory.demanded_bytes),
            format_size(memory.ahead_bytes),
            format_size(memory.wasted_bytes),
        ),
    ];
    if let Some(source) = &status.source {
        lines.push(format!(
            "  source: {} requests in flight, 50 % answered within {:.1} ms, 99 % within {:.1} ms, \
             {} late",
            source.in_flight,
            1e3 * source.median_seconds,
            1e3 * source.p99_seconds,
            source.late,
        ));
    }
    for member in &status.members {
        lines.push(format!(
            "  member {} in {}: {} reads in flight, {} read, 50 % answered within {:.1} ms, 99 % \
             within {:.1} ms, {} failed",
            member.number,
            escape::text(&member.place),
            member.in_flight,
            format_size(member.read_bytes),
            1e3 * member.median_seconds,
            1e3 * member.p99_seconds,
            member.failed,
        ));
    }
    if let Some(cache) = &status.cache {
        lines.push(format!(
            "  cache {} of {}: found {}, missed {}, {} damaged",
            format_size(cache.held_bytes),
            format_size(cache.max_bytes),
            format_size(cache.found_bytes),
            format_size(cache.missed_bytes),
            cache.damaged_cells,
        ));
    }
    for file in &status.files {
        lines.push(format!(
            "  {}: read {}, {} hits, {} stalls, prefetched but not used {}",
            escape::text(&file.path),
            format_size(file.read_bytes),
            file.hits,
            file.stalls,
            format_size(file.wasted_bytes),
        ));
        lines.extend(file.streams.iter().map(|stream| format!("    {}", pattern(stream))));
    }
    lines
}

/// The pattern of a stream, in words.
fn pattern(stream: &StreamFigures) -> String {
    let (stride, record) = (stream.stride_bytes, stream.record_bytes);
    let name = match stride {
        _ if stride.unsigned_abs() == record && stride > 0 => "in order".to_owned(),
        _ if stride.unsigned_abs() == record => "backwards".to_owned(),
        _ => {
            let sign = if stride < 0 { "-" } else { "" };
            format!("stride {sign}{}", format_size(stride.unsigned_abs()))
        }
    };
    let (ahead, used) = (stream.ahead, stream.used);
    format!("{name}, records of {}, {ahead} ahead, {used} read", format_size(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_told_in_words() {
        let of = |stride_bytes, record_bytes| {
            pattern(&StreamFigures { stride_bytes, record_bytes, ahead: 5, used: 9 })
        };
        assert_eq!(of(4096, 4096), "in order, records of 4.0 KiB, 5 ahead, 9 read");
        assert!(of(-4096, 4096).starts_with("backwards, "));
        assert!(of(-17 << 20, 1 << 20).starts_with("stride -17.0 MiB, records of 1.0 MiB"));
        assert!(of(i64::MIN, 1).starts_with("stride -8"));
    }
}
