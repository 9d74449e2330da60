//! The history of measurements: a line of JSON for each variant of each case that was run. Lines
//! are only appended, so that the file can be kept under version control and merged line by line.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_stats::{self as stats, Interval, LEVEL, Spread, Verdict};
use serde::{Deserialize, Serialize};

use super::{Metric, Parameter, Results, VERSION};
use crate::fingerprint::{self, Facts};

/// One variant of one execution of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The version of the format.
    pub version: u32,
    /// When the case began: seconds since 1970.
    pub started_seconds: i64,
    /// The program and its version.
    pub program: String,
    /// The machine.
    pub host: Option<String>,
    /// The case.
    pub case: String,
    /// The variant.
    pub variant: String,
    /// Parameters of the case and of the variant.
    pub parameters: Vec<Parameter>,
    /// The variant measured.
    pub metric: Metric,
    /// The median of the runs that count; `low` and `high` are its interval.
    pub value: f64,
    /// Lower end of the interval.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
    /// The level of the interval; `None` in an entry of an older format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<f64>,
    /// Runs that count.
    pub runs: usize,
    /// The environment of the measurement, see
    /// [`Fingerprint::facts`](crate::fingerprint::Fingerprint::facts); empty in an entry of an
    /// older format.
    #[serde(default, skip_serializing_if = "Facts::is_empty")]
    pub facts: Facts,
}

/// Entries that measured the same thing on the same machine, in the order of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The entries, at least one.
    pub entries: Vec<Entry>,
    /// The points at which the value changed permanently, in order.
    pub changes: Vec<Change>,
}

/// A permanent change in a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The index of the first entry after the change.
    pub at: usize,
    /// Measures the size of the change: compares the entries up to the next change with the entries
    /// back to the previous change. This verdict does not show that there is a change, because the
    /// same data was used to find it.
    pub verdict: Verdict,
    /// Other differences from the previous entry, for people.
    pub differences: Vec<String>,
}

impl Entry {
    /// The interval of the entry's value.
    pub fn interval(&self) -> Option<Interval> {
        let (low, high) = self.low.zip(self.high)?;
        Some(Interval { low, high, level: self.level.unwrap_or(LEVEL) })
    }

    /// The parameters, without those parameters of the case that the variant sets itself.
    pub fn own_parameters(&self) -> Vec<Parameter> {
        let mut own: Vec<Parameter> = Vec::new();
        for (at, it) in self.parameters.iter().enumerate() {
            // Those of the variant come last: a name that comes again after others is one of them.
            let begins_again = at > 0
                && self.parameters[at - 1].name != it.name
                && own.iter().any(|o| o.name == it.name);
            if begins_again {
                own.retain(|other| other.name != it.name);
            }
            if !own.contains(it) {
                own.push(it.clone());
            }
        }
        own
    }

    /// Whether another entry measured the same thing on the same machine, in the same place.
    pub(crate) fn is_like(&self, other: &Entry) -> bool {
        let places = |entry: &Entry| -> Facts {
            let facts = entry.facts.iter().filter(|(name, _)| name.starts_with(fingerprint::PLACE));
            facts.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        (&self.case, &self.variant, &self.host) == (&other.case, &other.variant, &other.host)
            && self.parameters == other.parameters
            && self.metric == other.metric
            && places(self) == places(other)
    }
}

impl Series {
    /// The values grouped by period; a period ends at a permanent change.
    pub fn stretches(&self) -> Vec<Vec<f64>> {
        let values: Vec<f64> = self.entries.iter().map(|entry| entry.value).collect();
        let places = self.changes.iter().map(|it| it.at);
        let ends: Vec<usize> = places.chain([values.len()]).collect();
        let begins = [0].into_iter().chain(ends.iter().copied());
        begins.zip(&ends).map(|(begin, end)| values[begin..*end].to_vec()).collect()
    }

    /// The change whose first entry has this index.
    pub fn change_at(&self, at: usize) -> Option<&Change> {
        self.changes.iter().find(|it| it.at == at)
    }

    fn find_changes(&mut self, seed: u64) {
        let values: Vec<f64> = self.entries.iter().map(|entry| entry.value).collect();
        let places = stats::change_points(&values, seed);
        let ends = places.iter().skip(1).copied().chain([values.len()]);
        let begins = [0].into_iter().chain(places.iter().copied());
        let better = self.entries[0].metric.better;
        let change = |((begin, at), end): ((usize, usize), usize)| {
            let (before, now) = (&self.entries[at - 1], &self.entries[at]);
            let mut differences = Vec::new();
            if before.program != now.program {
                differences
                    .push(format!("program: before {}, now {}", before.program, now.program));
            }
            if !before.facts.is_empty() && !now.facts.is_empty() {
                differences.extend(fingerprint::differences(&before.facts, &now.facts));
            }
            let (after, before) = (&values[at..end], &values[begin..at]);
            let verdict = stats::judge_executions(after, before, better, Spread::default());
            Change { at, verdict, differences }
        };
        self.changes = begins.zip(places.iter().copied()).zip(ends).map(change).collect();
    }
}

/// The entries that results add to the history; a variant without a run that counts adds none.
pub fn entries(results: &Results) -> Vec<Entry> {
    let entry = |variant: &super::Variant| {
        let summary = variant.summary()?;
        let interval = variant.interval();
        Some(Entry {
            version: VERSION,
            started_seconds: results.started_seconds,
            program: results.program.clone(),
            host: results.fingerprint.host.clone(),
            case: results.case.clone(),
            variant: variant.name.clone(),
            parameters: [&results.parameters[..], &variant.parameters].concat(),
            metric: variant.metric.clone(),
            value: summary.median,
            low: interval.map(|it| it.low),
            high: interval.map(|it| it.high),
            level: interval.map(|it| it.level),
            runs: variant.values().len(),
            facts: results.fingerprint.facts(),
        })
    };
    results.variants.iter().filter_map(entry).collect()
}

/// Appends results to the history, and creates its directory if needed.
///
/// # Errors
/// Returns errors as the system reports them.
pub fn append(results: &Results, path: &Path) -> Result<()> {
    let mut text = String::new();
    for entry in entries(results) {
        let line = serde_json::to_string(&entry).map_err(|error| {
            Error::new(Kind::Io, format!("cannot encode an entry of the history: {error}"))
        })?;
        text += &line;
        text.push('\n');
    }
    let write = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // One write: lines of two that append at once do not mix.
        OpenOptions::new().append(true).create(true).open(path)?.write_all(text.as_bytes())
    };
    write().map_err(|error| Error::io("cannot add to the history", path, error))
}

/// Reads the history; a missing history is empty.
///
/// # Errors
/// [`Kind::Unsupported`] for a line of a newer version, [`Kind::Corrupt`] with the number of a
/// damaged line; other errors as the system reports them.
pub fn read_history(path: &Path) -> Result<Vec<Entry>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| Error::io("cannot read the history", path, error))?,
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(at, line)| entry(line).map_err(|error| located(error, path, at + 1))).collect()
}

fn located(error: Error, path: &Path, line: usize) -> Error {
    let what = format!("line {line} of the history {}", error.what());
    Error::new(error.kind(), what)
        .at(path)
        .advice("remove this line from the history file, or move the history file away")
}

fn entry(line: &str) -> Result<Entry> {
    let damaged =
        |error: serde_json::Error| Error::new(Kind::Corrupt, format!("cannot be read: {error}"));
    let value: serde_json::Value = serde_json::from_str(line).map_err(damaged)?;
    match value["version"].as_u64() {
        Some(version) if version > u64::from(VERSION) => {
            Err(Error::new(Kind::Unsupported, "was written by a newer version of pinstripe"))
        }
        _ => serde_json::from_value(value).map_err(damaged),
    }
}

/// Groups entries by what and where they measured, and marks the points at which the values
/// changed. A duplicate line, for example after a merge, is one execution and counts once.
pub fn changes(mut entries: Vec<Entry>, seed: u64) -> Vec<Series> {
    entries.sort_by_key(|entry| entry.started_seconds);
    let mut all: Vec<Series> = Vec::new();
    for entry in entries {
        match all.iter_mut().find(|series| series.entries[0].is_like(&entry)) {
            Some(series) if series.entries.contains(&entry) => {}
            Some(series) => series.entries.push(entry),
            None => all.push(Series { entries: vec![entry], changes: Vec::new() }),
        }
    }
    all.iter_mut().for_each(|series| series.find_changes(seed));
    all
}

/// The history of each variant of a result, in the order of the variants, up to and including this
/// result: the last `most` entries. Variants that were not measured before are left out.
pub(crate) fn history_of(
    results: &Results,
    history: &[Entry],
    most: usize,
    seed: u64,
) -> Vec<Series> {
    let own = entries(results);
    let is_earlier = |it: &&Entry| it.started_seconds < results.started_seconds;
    let of = |own: Entry| {
        let earlier = history.iter().filter(is_earlier).filter(|it| it.is_like(&own));
        let mut earlier: Vec<Entry> = earlier.cloned().collect();
        (!earlier.is_empty()).then(|| {
            earlier.sort_by_key(|it| it.started_seconds);
            earlier.drain(..earlier.len().saturating_sub(most - 1));
            earlier.push(own);
            changes(earlier, seed)
        })
    };
    own.into_iter().filter_map(of).flatten().collect()
}
