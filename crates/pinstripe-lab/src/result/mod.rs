//! The results of a case as they are stored: everything needed to show them, to compare them and to
//! repeat the measurement.
//!
//! Invariants: a disturbed run is kept and marked, and does not count; a file of a newer version is
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

/// The version of the format that this program writes.
pub const VERSION: u32 = 1;
/// The name of the format, in every file of results.
pub const FORMAT: &str = "pinstripe lab results";

/// All results of one execution of a case.
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
    /// The command line, word by word; empty if there was none.
    pub command: Vec<String>,
    /// Every parameter of the case, including defaults, in the order in which they are shown.
    pub parameters: Vec<Parameter>,
    /// The seed of all random choices.
    pub seed: u64,
    /// When the execution began: seconds since 1970.
    pub started_seconds: i64,
    /// The seconds that the execution has taken so far.
    pub elapsed_s: f64,
    /// Whether the execution has ended normally; otherwise it was interrupted, or is still running.
    pub is_complete: bool,
    /// The machine and the disks that were measured.
    pub fingerprint: Fingerprint,
    /// The machines that measured together; empty if only the machine of `fingerprint` measured.
    /// Each run of several machines is the sum of the parts of these machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Host>,
    /// The variants, in the order in which they are shown.
    pub variants: Vec<Variant>,
    /// Comparisons of variants with the baseline of their group.
    pub verdicts: Vec<Compared>,
    /// Further notes, for people.
    pub notes: Vec<String>,
}

/// A setting, as the option that sets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// The option's name without dashes.
    pub name: String,
    /// The value as a user would type it.
    pub value: String,
}

impl Parameter {
    /// A parameter.
    pub fn new(name: &str, value: impl ToString) -> Self {
        Parameter { name: name.to_owned(), value: value.to_string() }
    }
}

/// The quantity that is measured in each run, and its unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// `throughput`, `time`.
    pub name: String,
    /// `MB/s`, `s`, `1/s`.
    pub unit: String,
    /// Whether higher or lower values are better.
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

/// One configuration that was measured several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// The name, which is unique in the results.
    pub name: String,
    /// The group; variants of one group are compared with each other.
    pub group: String,
    /// The purpose, for people.
    pub about: String,
    /// The parameters in which the variant differs from others.
    pub parameters: Vec<Parameter>,
    /// The metric of the variant's values.
    pub metric: Metric,
    /// The runs, in the order in which they were made.
    pub runs: Vec<Run>,
}

/// A variant compared with the baseline of its group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The group.
    pub group: String,
    /// The name of the variant that is judged.
    pub candidate: String,
    /// The name of the variant with which it is compared.
    pub baseline: String,
    /// The conclusion.
    pub verdict: Verdict,
}

impl Variant {
    /// The values of the runs that count.
    pub fn values(&self) -> Vec<f64> {
        self.runs.iter().filter(|run| run.is_valid()).map(|run| run.measured.value).collect()
    }

    /// The median and the extremes of the runs that count.
    pub fn summary(&self) -> Option<Summary> {
        Summary::from_samples(&self.values())
    }

    /// The 95 % interval of the median; with fewer than six runs, the range from the smallest to
    /// the largest value, with its actual level.
    pub fn interval(&self) -> Option<Interval> {
        stats::median_interval(&self.values())
    }

    /// The two clusters into which the values of the runs that count fall; `None` if they form one
    /// cluster.
    pub fn humps(&self) -> Option<Humps> {
        stats::humps(&self.values())
    }

    /// The times of requests of one kind, merged over all runs that count.
    pub fn latency(&self, kind: &str) -> Option<Histogram> {
        self.latency_of(kind, Counting::Quiet)
    }

    /// The times of requests of one kind, merged over the runs that `counting` selects.
    pub(crate) fn latency_of(&self, kind: &str, counting: Counting) -> Option<Histogram> {
        let found = counting.runs(self).filter_map(|run| run.measured.latency.get(kind));
        found.fold(None, |all: Option<Histogram>, one| {
            let mut all = all.unwrap_or_default();
            all.merge(one);
            Some(all)
        })
    }

    /// The times of all reads and writes together; for paced requests the time counts from when
    /// they were due.
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

    /// Whether a disturbed run of the variant counts.
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

/// Returns the index of the variant with the best median; the first of several equal ones.
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

/// A command line without the serial number of a device: results are sent by mail, and a user who
/// wants to overwrite the device again must type the number again.
pub(crate) fn without_serial(words: &[String]) -> Vec<String> {
    let mut is_value = false;
    let is_kept = |word: &&String| {
        let was_named = std::mem::replace(&mut is_value, *word == "--serial");
        !was_named && !is_value && !word.starts_with("--serial=")
    };
    words.iter().filter(is_kept).cloned().collect()
}

impl Results {
    /// The groups of the variants, each once, in their order.
    pub fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for variant in &self.variants {
            if !groups.contains(&variant.group.as_str()) {
                groups.push(&variant.group);
            }
        }
        groups
    }

    /// Returns the variant with this name.
    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    /// Returns the baseline of a group: the variant with the default of the verb whose option the
    /// group is about, or else the first variant.
    pub fn baseline(&self, group: &str) -> Option<usize> {
        let of_group = |at: &usize| self.variants[*at].group == group;
        let all: Vec<usize> = (0..self.variants.len()).filter(of_group).collect();
        let is_usual = |at: &&usize| match &self.variants[**at].parameters[..] {
            [only] => questions::usual(&self.case, group, &only.name) == Some(&only.value),
            _ => false,
        };
        all.iter().find(is_usual).or(all.first()).copied()
    }

    /// Makes all runs count, with a note on disturbed ones, and judges the variants again.
    pub fn accept_noise(&mut self) {
        let runs = self.variants.iter_mut().flat_map(|it| &mut it.runs);
        runs.for_each(Run::accept_noise);
        self.judge();
    }

    /// Whether a disturbed run counts.
    pub fn accepts_noise(&self) -> bool {
        self.variants.iter().any(Variant::accepts_noise)
    }

    /// Judges all variants again relative to the baseline of their group; the verdicts of a group
    /// are corrected for their number.
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
