//! The results of a case, as they are kept: everything needed to show them, to compare them and to
//! repeat the measurement.
//!
//! Invariants: a run that was disturbed stays in, marked, and counts for nothing; a file of a newer
//! version is refused by that name. Never here: measuring, and looking at the machine.

mod compare;
mod file;
mod history;
mod page;
mod standing;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::guard::Disturbance;
use crate::histogram::Histogram;
use crate::stats::{self, Better, Interval, Summary, Verdict};

pub use compare::{Comparison, compare};
pub use file::{load, load_all, put, save};
pub use history::{Change, Entry, Series, append, changes, entries, history_of, read_history};
pub use page::{Thinned, embed};
pub use standing::{Counting, Standing, Standings, standings};

/// The version of the form that this program writes.
pub const VERSION: u32 = 1;
/// The name of the format, in every file of results.
pub const FORMAT: &str = "pinstripe lab results";

/// All that one execution of a case found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The program and its version.
    pub program: String,
    /// The case's name.
    pub case: String,
    /// The command line, word by word; empty where there was none.
    pub command: Vec<String>,
    /// Every parameter of the case, defaults too, in the order in which they are shown.
    pub parameters: Vec<Parameter>,
    /// The seed of all chance.
    pub seed: u64,
    /// When it began: seconds since 1970.
    pub started_seconds: i64,
    /// The time that it took so far.
    pub elapsed_s: f64,
    /// Whether it came to its end; otherwise it was interrupted, or is still going on.
    pub is_complete: bool,
    /// The machine and disks that it was measured on.
    pub fingerprint: Fingerprint,
    /// The variants, in the order in which they are shown.
    pub variants: Vec<Variant>,
    /// Variants of one group against the first of it.
    pub verdicts: Vec<Compared>,
    /// Further notes, for people.
    pub notes: Vec<String>,
}

/// A setting, as the option that sets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// The option's name without dashes.
    pub name: String,
    /// Its value as it would be typed.
    pub value: String,
}

impl Parameter {
    /// A parameter.
    pub fn new(name: &str, value: impl ToString) -> Self {
        Parameter { name: name.to_owned(), value: value.to_string() }
    }
}

/// The figure that is measured of each run, and its unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// `throughput`, `time`.
    pub name: String,
    /// `MB/s`, `s`, `1/s`.
    pub unit: String,
    /// Which values are the better ones.
    pub better: Better,
}

impl Metric {
    /// Millions of bytes per second.
    pub fn throughput() -> Self {
        Metric { name: "throughput".to_owned(), unit: "MB/s".to_owned(), better: Better::Higher }
    }

    /// Requests per second.
    pub fn rate() -> Self {
        Metric { name: "requests".to_owned(), unit: "1/s".to_owned(), better: Better::Higher }
    }

    /// Seconds.
    pub fn time() -> Self {
        Metric { name: "time".to_owned(), unit: "s".to_owned(), better: Better::Lower }
    }
}

/// One thing that was measured several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Its name, the only one in its results.
    pub name: String,
    /// Variants of one group are compared with each other.
    pub group: String,
    /// Its purpose, for people.
    pub about: String,
    /// In what it differs from others.
    pub parameters: Vec<Parameter>,
    /// The metric of its value.
    pub metric: Metric,
    /// Its runs, in the order in which they were made.
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its place among all runs of all variants, from 0.
    pub order: u64,
    /// In which round of all variants it was made, from 0; none where there were no rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u64>,
    /// When it began, in seconds since the case began.
    pub at_s: f64,
    /// The time that it took.
    pub seconds: f64,
    /// The value, in the metric's unit.
    pub value: f64,
    /// Requests of the programs' sort: reads and writes.
    pub operations: u64,
    /// Bytes asked for.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Times of requests by kind: `read`, `write`, `sync`; `response` from when a paced request was
    /// due.
    pub latency: BTreeMap<String, Histogram>,
    /// Further figures by name, with the unit at its end: `sync_s`, `accepted_mb_per_s`;
    /// `load_before` is how many processes ran or wanted to.
    pub figures: BTreeMap<String, f64>,
    /// Processor time of the program, in seconds.
    pub cpu_s: f64,
    /// Bytes that the disk read meanwhile, and wrote; none where there is no disk.
    pub device_read_bytes: Option<u64>,
    /// See `device_read_bytes`.
    pub device_written_bytes: Option<u64>,
    /// Samples, several times a second.
    pub samples: Vec<Sample>,
    /// Notes needed to read the value.
    pub notes: Vec<Note>,
    /// The disturbances; with any of these it counts for nothing.
    pub disturbances: Vec<Disturbance>,
}

/// A note needed to read a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// Most of what was read never came from the disk.
    PageCache,
    /// Written bytes may still be lost: nothing waited for the disk.
    AcceptedNotDurable,
    /// Past the page cache was asked for and refused.
    NotDirect,
    /// It went over the same place more than once.
    Wrapped,
    /// It was measured by another program.
    OtherProgram,
}

impl Note {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Note::PageCache => "page cache",
            Note::AcceptedNotDurable => "accepted, not durable",
            Note::NotDirect => "not direct: refused there",
            Note::Wrapped => "wrapped around",
            Note::OtherProgram => "by another program",
        }
    }
}

/// The state at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the run began.
    pub at_s: f64,
    /// Millions of bytes per second since the sample before.
    pub mb_per_s: f64,
    /// Bytes in the page cache that wait to be written, and that are being written.
    pub dirty_bytes: Option<u64>,
    /// See `dirty_bytes`.
    pub writeback_bytes: Option<u64>,
    /// Share of the time since the last sample in which any process waited for a processor.
    pub cpu_pressure: Option<f64>,
    /// The same for a disk.
    pub io_pressure: Option<f64>,
    /// The same for memory.
    pub memory_pressure: Option<f64>,
}

impl Sample {
    /// At most so many samples: neighbours become one, again and again.
    pub fn coarser(all: &[Sample], most: usize) -> Vec<Sample> {
        let mut all = if most == 0 { Vec::new() } else { all.to_vec() };
        while all.len() > most {
            let pairs = all.chunks(2);
            all = pairs.filter_map(|it| it.iter().copied().reduce(Sample::and)).collect();
        }
        all
    }

    /// Two samples that follow each other as one of twice the length.
    #[must_use]
    pub fn and(self, next: Sample) -> Sample {
        let mean = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| (a + b) / 2.0);
        Sample {
            mb_per_s: (self.mb_per_s + next.mb_per_s) / 2.0,
            dirty_bytes: self.dirty_bytes.max(next.dirty_bytes),
            writeback_bytes: self.writeback_bytes.max(next.writeback_bytes),
            cpu_pressure: mean(self.cpu_pressure, next.cpu_pressure),
            io_pressure: mean(self.io_pressure, next.io_pressure),
            memory_pressure: mean(self.memory_pressure, next.memory_pressure),
            ..next
        }
    }
}

/// A variant against the first one of its group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The group.
    pub group: String,
    /// The name of the variant that is judged.
    pub candidate: String,
    /// The name of the one that it is judged by.
    pub baseline: String,
    /// The conclusion.
    pub verdict: Verdict,
}

impl Run {
    /// Whether it counts.
    pub fn is_valid(&self) -> bool {
        self.disturbances.is_empty()
    }

    /// Processor seconds per 10^9 bytes moved; none of no bytes.
    pub fn cpu_s_per_gb(&self) -> Option<f64> {
        let bytes = self.read_bytes + self.written_bytes;
        (bytes > 0).then(|| self.cpu_s / bytes as f64 * 1e9)
    }
}

impl Variant {
    /// Values of runs that count.
    pub fn values(&self) -> Vec<f64> {
        self.runs.iter().filter(|run| run.is_valid()).map(|run| run.value).collect()
    }

    /// Their median and extremes.
    pub fn summary(&self) -> Option<Summary> {
        Summary::of(&self.values())
    }

    /// The interval of the median, to 95 %.
    pub fn interval(&self, seed: u64) -> Option<Interval> {
        stats::median_interval(&self.values(), seed)
    }

    /// Times of requests of one kind, of all runs that count together.
    pub fn latency(&self, kind: &str) -> Option<Histogram> {
        let runs = self.runs.iter().filter(|run| run.is_valid());
        let found = runs.filter_map(|run| run.latency.get(kind));
        found.fold(None, |all: Option<Histogram>, one| {
            let mut all = all.unwrap_or_default();
            all.merge(one);
            Some(all)
        })
    }

    /// Notes of all runs, each once.
    pub fn notes(&self) -> Vec<Note> {
        let mut notes: Vec<Note> = self.runs.iter().flat_map(|run| run.notes.clone()).collect();
        notes.sort_unstable();
        notes.dedup();
        notes
    }
}

/// Which of some variants has the best median; of equal ones the first.
pub fn best(variants: &[&Variant], counting: Counting) -> Option<usize> {
    let median = |at: usize| Some((at, stats::median(&counting.values(variants[at]))?));
    let known = (0..variants.len()).filter_map(median);
    let best = known.max_by(|(a, this), (b, that)| {
        let by_value = match variants[*a].metric.better {
            Better::Higher => this.total_cmp(that),
            Better::Lower => that.total_cmp(this),
        };
        by_value.then(b.cmp(a))
    });
    best.map(|(at, _)| at)
}

/// A command line without the serial number of a device: results are mailed around, and a user who
/// overwrites the device again must type it again.
pub fn without_serial(words: &[String]) -> Vec<String> {
    let mut is_value = false;
    let is_kept = |word: &&String| {
        let was_named = std::mem::replace(&mut is_value, *word == "--serial");
        !was_named && !is_value && !word.starts_with("--serial=")
    };
    words.iter().filter(is_kept).cloned().collect()
}

impl Results {
    /// The groups of its variants, each once, in their order.
    pub fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for variant in &self.variants {
            if !groups.contains(&variant.group.as_str()) {
                groups.push(&variant.group);
            }
        }
        groups
    }

    /// The variant of a name.
    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    /// Judges all variants anew by the first one of their group.
    pub fn judge(&mut self) {
        let mut verdicts = Vec::new();
        for (at, candidate) in self.variants.iter().enumerate() {
            let first = self.variants.iter().position(|it| it.group == candidate.group);
            let Some(first) = first.filter(|first| *first != at) else { continue };
            let baseline = &self.variants[first];
            verdicts.push(Compared {
                group: candidate.group.clone(),
                candidate: candidate.name.clone(),
                baseline: baseline.name.clone(),
                verdict: candidate.against(baseline, self.seed),
            });
        }
        self.verdicts = verdicts;
    }
}

#[cfg(test)]
pub(crate) mod tests;
