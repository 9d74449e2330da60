//! Metrics in the text format of Prometheus, over HTTP or in a file for the textfile collector of
//! its node exporter; the file is replaced as a unit.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::Stop;

use super::status::{FileFigures, MemberFigures, ShownStatus};
use super::streams::{StreamGroup, grouped};
use crate::run::Run;

/// The interval at which metrics are written to a file.
const INTERVAL: Duration = Duration::from_secs(10);

/// Where figures go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MetricsPlace {
    /// To clients that request the metrics at this address.
    Address(SocketAddr),
    /// Into a file.
    File(PathBuf),
}

impl FromStr for MetricsPlace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Ok(address) = text.parse() {
            return Ok(MetricsPlace::Address(address));
        }
        let Some(port) = text.strip_prefix("localhost:") else {
            return match text.is_empty() {
                true => Err(Error::new(
                    Kind::Usage,
                    "write an address at which metrics are served, or the path of a file",
                )),
                false => Ok(MetricsPlace::File(text.into())),
            };
        };
        let port = port
            .parse()
            .map_err(|_| Error::new(Kind::Usage, format!("this is not a port number: {port}")))?;
        let found = ("localhost", port).to_socket_addrs().ok().and_then(|mut all| all.next());
        Ok(MetricsPlace::Address(found.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], port)))))
    }
}

/// Writes metrics until `over` is set, and then removes the file.
pub(super) fn keep(run: &Run, file: &Path, status: &dyn Fn() -> ShownStatus, over: &Stop) {
    let mut is_told = false;
    loop {
        let written = write(file, &text(&status()));
        if let Err(error) = written
            && !std::mem::replace(&mut is_told, true)
        {
            run.monitor.warning("metrics", Error::io("cannot be written", file, error));
        }
        if over.wait(INTERVAL) {
            // Figures of an ended process would look like those of an idle one.
            let _ = fs::remove_file(file);
            return;
        }
    }
}

/// Replaces the file, so that a reader sees either the old or the new one. The file is not synced,
/// because its content after a power cut does not matter.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new: PathBuf = file.with_file_name(name);
    fs::write(&new, text)?;
    fs::rename(&new, file)
}

type FileFamily = (&'static str, &'static str, &'static str, fn(&FileFigures) -> f64);
type MemberFamily = (&'static str, &'static str, &'static str, fn(&MemberFigures) -> f64);
type StreamFamily = (&'static str, &'static str, fn(&StreamGroup) -> f64);

const FILES: &[FileFamily] = &[
    ("file_size_bytes", "gauge", "Length of a recently read file.", |it| it.bytes as f64),
    ("file_read_bytes_total", "counter", "Bytes of the file that programs read.", |it| {
        it.read_bytes as f64
    }),
    ("file_planned_bytes_total", "counter", "Bytes of the file that were prefetched.", |it| {
        it.planned_bytes as f64
    }),
    (
        "file_wasted_bytes_total",
        "counter",
        "Prefetched bytes of the file that were dropped unread.",
        |it| it.wasted_bytes as f64,
    ),
    (
        "file_ahead_bytes",
        "gauge",
        "Prefetched bytes of the file that were not yet read or dropped.",
        |it| it.ahead_bytes as f64,
    ),
    ("file_hits_total", "counter", "Reads whose bytes were already in memory (hits).", |it| {
        it.hits as f64
    }),
    ("file_stalls_total", "counter", "Reads that had to wait (stalls).", |it| it.stalls as f64),
];

const MEMBERS: &[MemberFamily] = &[
    ("member_in_flight", "gauge", "Reads that the member has not answered yet.", |it| {
        it.in_flight as f64
    }),
    ("member_reads_total", "counter", "Reads that the member answered.", |it| it.reads as f64),
    ("member_read_bytes_total", "counter", "Bytes that the member returned.", |it| {
        it.read_bytes as f64
    }),
    ("member_failed_reads_total", "counter", "Reads that failed on the member.", |it| {
        it.failed as f64
    }),
    ("member_median_seconds", "gauge", "Half of the answers arrived within this time.", |it| {
        it.median_seconds
    }),
    ("member_p99_seconds", "gauge", "99 % of the answers arrived within this time.", |it| {
        it.p99_seconds
    }),
];

const STREAMS: &[StreamFamily] = &[
    ("stream_count", "Detected streams of the file with this pattern.", |it| it.streams as f64),
    ("stream_window_records", "Read-ahead of the detected streams, in records.", |it| {
        it.window as f64
    }),
    ("stream_used_records", "Records that were read in the detected streams.", |it| it.used as f64),
];

/// All metrics, in the text format 0.0.4.
pub(super) fn text(status: &ShownStatus) -> String {
    let place = labels(&[("verb", &status.verb), ("mountpoint", &status.mountpoint)]);
    let mut page = MetricsPage { text: String::new(), place };
    page.whole(status);
    page.members(&status.members);
    page.files(&status.files);
    page.text
}

/// A page of metrics: the families that were written so far.
struct MetricsPage {
    text: String,
    /// The labels that every sample has.
    place: String,
}

impl MetricsPage {
    /// Writes a family and its samples. A sample has a value, and labels that no other sample of the
    /// family has. A family without samples is omitted.
    fn family(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        samples: impl IntoIterator<Item = (String, f64)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let _ = writeln!(self.text, "# HELP pinstripe_shown_{name} {help}");
        let _ = writeln!(self.text, "# TYPE pinstripe_shown_{name} {kind}");
        for (more, value) in samples {
            let comma = if more.is_empty() { "" } else { "," };
            let place = &self.place;
            let _ = writeln!(self.text, "pinstripe_shown_{name}{{{place}{comma}{more}}} {value}");
        }
    }

    /// Writes families that have one sample.
    fn whole(&mut self, status: &ShownStatus) {
        let mut one = |name, kind, help, value: f64| {
            self.family((name, kind, help), [(String::new(), value)]);
        };
        one("uptime_seconds", "gauge", "Time since the mount started.", status.seconds);
        if let Some(snapshots) = status.snapshots {
            one("snapshots", "gauge", "Snapshots that are shown.", snapshots as f64);
        }
        let memory = &status.memory;
        for (name, kind, help, value) in [
            ("memory_budget_bytes", "gauge", "Memory limit for file content.", memory.budget_bytes),
            (
                "memory_held_bytes",
                "gauge",
                "Bytes of memory in use for file content.",
                memory.held_bytes,
            ),
            (
                "memory_peak_bytes",
                "gauge",
                "Highest number of bytes of memory in use for file content.",
                memory.peak_bytes,
            ),
            ("queued", "gauge", "Prefetch requests that wait for a thread.", memory.queued),
            (
                "fetched_demanded_bytes_total",
                "counter",
                "Bytes fetched while a reader waited for them.",
                memory.demanded_bytes,
            ),
            (
                "fetched_ahead_bytes_total",
                "counter",
                "Bytes that were prefetched.",
                memory.ahead_bytes,
            ),
            (
                "fetched_wasted_bytes_total",
                "counter",
                "Prefetched bytes that were dropped unread.",
                memory.wasted_bytes,
            ),
        ] {
            one(name, kind, help, value as f64);
        }
        if let Some(source) = &status.source {
            let in_flight = "Requests that the source has not answered yet.";
            one("source_in_flight", "gauge", in_flight, source.in_flight as f64);
            let late = "Requests without an answer by their deadline.";
            one("source_late_total", "counter", late, source.late as f64);
            let median = "Half of the answers arrived within this time.";
            one("source_median_seconds", "gauge", median, source.median_seconds);
            let most = "99 % of the answers arrived within this time.";
            one("source_p99_seconds", "gauge", most, source.p99_seconds);
        }
        if let Some(cache) = &status.cache {
            for (name, kind, help, value) in [
                ("cache_max_bytes", "gauge", "Size of the local cache.", cache.max_bytes),
                ("cache_held_bytes", "gauge", "Bytes in the local cache.", cache.held_bytes),
                (
                    "cache_found_bytes_total",
                    "counter",
                    "Bytes read from the local cache.",
                    cache.found_bytes,
                ),
                (
                    "cache_missed_bytes_total",
                    "counter",
                    "Bytes that were requested but not in the local cache.",
                    cache.missed_bytes,
                ),
                (
                    "cache_stored_bytes_total",
                    "counter",
                    "Bytes added to the local cache.",
                    cache.stored_bytes,
                ),
                ("cache_damaged_cells_total", "counter", "Cells damaged.", cache.damaged_cells),
            ] {
                one(name, kind, help, value as f64);
            }
        }
    }

    fn members(&mut self, members: &[MemberFigures]) {
        for (name, kind, help, value) in MEMBERS {
            let number = |it: &MemberFigures| it.number.to_string();
            let labels = |it| labels(&[("member", &number(it)), ("place", &it.place)]);
            self.family((name, kind, help), members.iter().map(|it| (labels(it), value(it))));
        }
    }

    /// Writes the families of files, with path and inode as labels, because several snapshots have
    /// the same path.
    fn files(&mut self, files: &[FileFigures]) {
        for (name, kind, help, value) in FILES {
            let samples = files.iter().map(|file| (labels_of(file, &[]), value(file)));
            self.family((name, kind, help), samples);
        }
        for (name, help, value) in STREAMS {
            let samples = files.iter().flat_map(|file| {
                grouped(&file.streams).into_iter().map(move |group| {
                    let (stride, record) = (&*group.stride_bytes, &*group.record_bytes);
                    let pattern = [("stride_bytes", stride), ("record_bytes", record)];
                    (labels_of(file, &pattern), value(&group))
                })
            });
            self.family((name, "gauge", help), samples);
        }
    }
}

fn labels_of(file: &FileFigures, more: &[(&str, &str)]) -> String {
    let inode = file.inode.to_string();
    labels(&[&[("path", &*file.path), ("inode", &inode)], more].concat())
}

/// Labels with their values, as written between the braces of a sample.
fn labels(all: &[(&str, &str)]) -> String {
    let written = all.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    written.collect::<Vec<_>>().join(",")
}

/// A text as the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
