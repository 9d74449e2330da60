//! The results of a case, as they are kept: everything needed to show them, to compare them and to
//! repeat the measurement.
//!
//! Invariants: a disturbed run is kept, marked, and does not count; a file of a newer version is
//! refused with that reason. This module neither measures nor inspects the machine.

mod compare;
mod execution;
mod file;
mod history;
mod hosts;
mod mood;
mod page;
mod run;
mod standing;

use serde::{Deserialize, Serialize};

use pinstripe_stats::{self as stats, Better, Humps, Interval, Summary, Verdict};

use crate::fingerprint::Fingerprint;
use crate::histogram::Histogram;
use crate::questions;

pub use compare::{Comparison, Sides, compare, compare_executions};
pub use execution::refuse_repeated;
pub use file::{load, load_all, put, save};
pub(crate) use history::history_of;
pub use history::{Change, Entry, Series, append, changes, entries, read_history};
pub use hosts::{ClockDifference, Host, Part};
#[cfg(test)]
pub(crate) use page::Thinned;
pub(crate) use page::embed;
pub use run::{Measured, Note, Run, Sample};
pub use standing::{Counting, Standing, standings};
pub(crate) use standing::{PAIRS_TO_JUDGE, Standings};

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
    /// Whether it reached its end; otherwise it was interrupted, or is still going on.
    pub is_complete: bool,
    /// The machine and disks that it was measured on.
    pub fingerprint: Fingerprint,
    /// The machines that measured together; empty if only the machine of `fingerprint` measured.
    /// Each of their runs is the sum of its parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Host>,
    /// The variants, in the order in which they are shown.
    pub variants: Vec<Variant>,
    /// Variants of one group against the baseline of it.
    pub verdicts: Vec<Compared>,
    /// Further notes, for people.
    pub notes: Vec<String>,
}

/// A setting, as the option that sets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// The option's name without dashes.
    pub name: String,
    /// The value as it would be typed.
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
    /// The name, the only one in its results.
    pub name: String,
    /// Variants of one group are compared with each other.
    pub group: String,
    /// The purpose, for people.
    pub about: String,
    /// In what it differs from others.
    pub parameters: Vec<Parameter>,
    /// The metric of its value.
    pub metric: Metric,
    /// The runs, in the order in which they were made.
    pub runs: Vec<Run>,
}

/// A variant against the baseline of its group.
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

impl Variant {
    /// Values of runs that count.
    pub fn values(&self) -> Vec<f64> {
        self.runs.iter().filter(|run| run.is_valid()).map(|run| run.measured.value).collect()
    }

    /// The median and extremes.
    pub fn summary(&self) -> Option<Summary> {
        Summary::of(&self.values())
    }

    /// The interval of the median, to 95 %; of fewer than six runs from the smallest to the
    /// largest, to the level that it says.
    pub fn interval(&self) -> Option<Interval> {
        stats::median_interval(&self.values())
    }

    /// The two heaps into which the values of runs that count fall, if they do.
    pub fn humps(&self) -> Option<Humps> {
        stats::humps(&self.values())
    }

    /// Times of requests of one kind, of all runs that count together.
    pub fn latency(&self, kind: &str) -> Option<Histogram> {
        self.latency_of(kind, Counting::Quiet)
    }

    /// The same of the runs that are counted here.
    pub(crate) fn latency_of(&self, kind: &str, counting: Counting) -> Option<Histogram> {
        let found = counting.runs(self).filter_map(|run| run.measured.latency.get(kind));
        found.fold(None, |all: Option<Histogram>, one| {
            let mut all = all.unwrap_or_default();
            all.merge(one);
            Some(all)
        })
    }

    /// Times of all reads and writes together; of paced ones from when they were due.
    pub(crate) fn request_times(&self, counting: Counting) -> Option<Histogram> {
        let of = |kind: &str| self.latency_of(kind, counting);
        of("response").or_else(|| {
            let kinds = ["read", "write"].into_iter().filter_map(of);
            kinds.reduce(|mut all, one| {
                all.merge(&one);
                all
            })
        })
    }

    /// Whether one of its runs counts although others disturbed it.
    pub fn accepts_noise(&self) -> bool {
        self.runs.iter().any(|run| run.notes.contains(&Note::BesideOthers))
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
pub(crate) fn without_serial(words: &[String]) -> Vec<String> {
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

    /// The variant that others of its group are judged by: the one with the value that a verb takes
    /// by itself, where a verb's option is what the group is about, and otherwise the first.
    pub fn baseline(&self, group: &str) -> Option<usize> {
        let of_group = |at: &usize| self.variants[*at].group == group;
        let all: Vec<usize> = (0..self.variants.len()).filter(of_group).collect();
        let is_usual = |at: &&usize| match &self.variants[**at].parameters[..] {
            [only] => questions::usual(&self.case, group, &only.name) == Some(&only.value),
            _ => false,
        };
        all.iter().find(is_usual).or(all.first()).copied()
    }

    /// Makes all runs count, with a note on disturbed ones, and judges again.
    pub fn accept_noise(&mut self) {
        let runs = self.variants.iter_mut().flat_map(|it| &mut it.runs);
        runs.for_each(Run::accept_noise);
        self.judge();
    }

    /// Whether a run counts although others disturbed it.
    pub fn accepts_noise(&self) -> bool {
        self.variants.iter().any(Variant::accepts_noise)
    }

    /// Judges all variants again relative to the baseline of their group; several in one group are
    /// corrected for their number.
    pub fn judge(&mut self) {
        let mut verdicts = Vec::new();
        for (at, candidate) in self.variants.iter().enumerate() {
            let baseline = self.baseline(&candidate.group).filter(|baseline| *baseline != at);
            let Some(baseline) = baseline.map(|it| &self.variants[it]) else { continue };
            verdicts.push(Compared {
                group: candidate.group.clone(),
                candidate: candidate.name.clone(),
                baseline: baseline.name.clone(),
                verdict: candidate.against(baseline),
            });
        }
        for group in self.groups() {
            let of_group = verdicts.iter_mut().filter(|it| it.group == group);
            stats::correct(&mut of_group.map(|it| &mut it.verdict).collect::<Vec<_>>());
        }
        self.verdicts = verdicts;
    }
}

#[cfg(test)]
pub(crate) mod tests;
