//! Variants as every part of the page shows them: each with one colour, one name, and its figures.

use std::time::Duration;

use pinstripe_base::units::format_count;
use pinstripe_stats::{self as stats, Finding, Interval, LEVEL};

use crate::display::figure;
use crate::histogram::Histogram;
use crate::result::{Compared, Note, Results, Run, Variant};

/// Variants of one group; all groups with a single variant share one panel.
pub(super) struct Panel<'a> {
    /// The group.
    pub(super) title: &'a str,
    /// The anchor of the panel, unique in the page.
    pub(super) anchor: String,
    /// Whether the variants of the panel are compared with the first one.
    pub(super) is_compared: bool,
    /// At least one.
    pub(super) members: Vec<Member<'a>>,
}

/// A variant in its panel.
pub(super) struct Member<'a> {
    /// The variant measured.
    pub(super) variant: &'a Variant,
    /// The name of the variant without the name of the group.
    pub(super) label: &'a str,
    /// The index in the panel, which determines colour and shape.
    pub(super) kind: usize,
    /// The median of runs that count.
    pub(super) value: Option<f64>,
    /// The interval.
    pub(super) interval: Option<Interval>,
    /// The speed relative to the best variant of the panel: at most 1.
    pub(super) factor: Option<f64>,
    /// Whether the variant is the best one of the panel.
    pub(super) is_best: bool,
}

/// A request that takes longer than this is a stall.
pub(super) const STALL: Duration = Duration::from_millis(100);

/// All panels of a result; with several results, `letter` distinguishes them.
pub(super) fn panels<'a>(results: &'a Results, letter: Option<&str>) -> Vec<Panel<'a>> {
    let of = |group: &str| -> Vec<&'a Variant> {
        results.variants.iter().filter(|it| it.group == group).collect()
    };
    let baseline = |group: &str| results.baseline(group).map(|at| &results.variants[at]);
    let (alone, together): (Vec<&'a str>, Vec<&'a str>) =
        results.groups().into_iter().partition(|group| of(group).len() == 1);
    let mut all: Vec<Panel<'a>> =
        together.into_iter().map(|group| panel(group, &of(group), baseline(group))).collect();
    if !alone.is_empty() {
        let variants: Vec<&'a Variant> = alone.into_iter().flat_map(of).collect();
        all.push(panel("each variant by itself", &variants, None));
    }
    for (at, panel) in all.iter_mut().enumerate() {
        panel.anchor = format!("{}group-{}", letter.unwrap_or_default(), at + 1).replace(' ', "");
    }
    all
}

fn panel<'a>(title: &'a str, variants: &[&'a Variant], baseline: Option<&'a Variant>) -> Panel<'a> {
    let is_compared = baseline.is_some();
    let speeds = match baseline {
        Some(baseline) => speeds(variants, baseline),
        None => vec![None; variants.len()],
    };
    let fastest = speeds.iter().flatten().copied().reduce(f64::max);
    let best = fastest.and_then(|fastest| speeds.iter().position(|it| *it == Some(fastest)));
    let member = |(kind, variant): (usize, &&'a Variant)| Member {
        variant,
        label: if is_compared { label(variant) } else { &variant.name },
        kind,
        value: variant.summary().map(|it| it.median),
        interval: variant.interval(),
        factor: speeds[kind].zip(fastest).map(|(speed, fastest)| speed / fastest),
        is_best: best == Some(kind),
    };
    let members = variants.iter().enumerate().map(member).collect();
    Panel { title, anchor: String::new(), is_compared, members }
}

/// The speed of each variant relative to the baseline, as in the verdicts: round by round if there
/// are enough rounds. All speeds are relative to the same variant, so that they can be sorted.
fn speeds(variants: &[&Variant], baseline: &Variant) -> Vec<Option<f64>> {
    let has_runs = |it: &&Variant| !it.values().is_empty();
    let all = std::iter::once(baseline).chain(variants.iter().copied());
    let known = all.into_iter().find(has_runs);
    let speed = |variant: &&Variant| match known.filter(|_| has_runs(variant)) {
        Some(known) if std::ptr::eq(*variant, known) => Some(1.0),
        Some(known) => variant.against(known).speed,
        None => None,
    };
    variants.iter().map(speed).collect()
}

/// The name of a variant without the group's name at its beginning or end.
pub(super) fn label(variant: &Variant) -> &str {
    let Variant { name, group, .. } = variant;
    let before = name.strip_prefix(group.as_str()).map(|it| it.trim_start_matches([':', ' ']));
    let behind = || name.strip_suffix(group.as_str())?.strip_suffix(", ");
    let rest = before.map(|it| it.strip_prefix("by ").unwrap_or(it)).or_else(behind);
    rest.filter(|it| !it.is_empty()).unwrap_or(name)
}

/// Formats a figure for people; a long number has thin spaces between groups of digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        10_000.0.. => format_count(value.round() as u64),
        _ => figure(value),
    }
}

impl Panel<'_> {
    /// The end of the axis of the panel's bars: the largest median or interval end.
    pub(super) fn most(&self) -> f64 {
        let ends = |it: &Member| it.interval.map(|it| it.high).into_iter().chain(it.value);
        self.members.iter().flat_map(ends).fold(0.0, f64::max)
    }

    /// The name of a member, which also distinguishes it from members of other panels.
    pub(super) fn name(&self, member: &Member) -> String {
        let is_whole = member.label == member.variant.name && member.label.contains(self.title);
        match self.is_compared && !is_whole {
            true => format!("{} {}", self.title, member.label),
            false => member.label.to_owned(),
        }
    }

    /// Whether a verdict on a variant of the panel says more than that there were too few runs.
    pub(super) fn is_judged(&self, results: &Results) -> bool {
        let is_found = |it: &&Compared| it.verdict.finding != Finding::TooFewRuns;
        self.verdicts(results).iter().any(is_found)
    }

    /// The verdicts that compare the panel's variants with the first one.
    pub(super) fn verdicts<'a>(&self, results: &'a Results) -> Vec<&'a Compared> {
        let names: Vec<&str> = self.members.iter().map(|it| it.variant.name.as_str()).collect();
        let is_ours = |it: &&Compared| names.contains(&it.candidate.as_str());
        results.verdicts.iter().filter(is_ours).collect()
    }
}

impl<'a> Member<'a> {
    /// Runs that count.
    pub(super) fn valid(&self) -> impl Iterator<Item = &'a Run> + use<'a> {
        self.variant.runs.iter().filter(|run| run.is_valid())
    }

    /// The number of reads and writes in all valid runs whose own time was longer than [`STALL`].
    /// The time before a request was begun does not count here; `response` includes it, and shows a
    /// missed rate.
    pub(super) fn stalls(&self) -> u64 {
        let most = STALL.as_nanos() as u64;
        let kinds = ["read", "write"].iter().filter_map(|kind| self.variant.latency(kind));
        let kinds: Vec<Histogram> = kinds.collect();
        let long = kinds.iter().flat_map(Histogram::buckets).filter(|(nanos, _)| *nanos > most);
        long.map(|(_, count)| count).sum()
    }

    /// Bytes that the disk moved per requested byte, in valid runs.
    pub(super) fn device_share(&self) -> Option<f64> {
        let moved = |run: &Run| run.device_read_bytes.zip(run.device_written_bytes);
        let sum = |(device, asked): (u64, u64), run: &Run| {
            let (read, written) = moved(run)?;
            Some((
                device + read + written,
                asked + run.measured.read_bytes + run.measured.written_bytes,
            ))
        };
        let (device, asked) = self.valid().try_fold((0, 0), sum)?;
        (asked > 0).then(|| device as f64 / asked as f64)
    }

    /// Processor seconds per 10^9 bytes: the median of the runs that count.
    pub(super) fn cpu_s_per_gb(&self) -> Option<f64> {
        stats::median(&self.valid().filter_map(Run::cpu_s_per_gb).collect::<Vec<_>>())
    }
}

/// Notes that make a figure misleading, with the reason.
const SEEMS: [(Note, &str); 4] = [
    (
        Note::Memory,
        "the files were in memory or came from another process, so no disk was measured",
    ),
    (Note::AcceptedNotDurable, "no request waited until its bytes were on the disk"),
    (Note::PageCache, "the run read data from the page cache, not from the disk"),
    (
        Note::BesideOthers,
        "other programs disturbed the run, which counts only because disturbed runs were accepted",
    ),
];

/// The note and the reason for a figure of another program, if another variant was measured by the
/// lab.
const OTHER: (Note, &str) = (Note::OtherProgram, "the result was measured by another program");

/// Why a variant's figure is misleading.
pub(super) fn seems(variant: &Variant) -> Option<&'static str> {
    let notes = variant.notes();
    SEEMS.iter().find(|(note, _)| notes.contains(note)).map(|(_, why)| *why)
}

/// Why a variant's figure is misleading if the other variant's figure is not: the two are then not
/// comparable.
pub(super) fn caveat(variant: &Variant, other: &Variant) -> Option<&'static str> {
    let (these, those) = (variant.notes(), other.notes());
    let is_new = |note: &Note| these.contains(note) && !those.contains(note);
    let all = SEEMS.iter().chain([&OTHER]);
    all.into_iter().find(|(note, _)| is_new(note)).map(|(_, why)| *why)
}

/// Whether a panel compares figures of the lab with those of another program; no setting is chosen
/// from such a panel.
pub(super) fn is_check(panel: &Panel) -> bool {
    let is_other = |it: &Member| it.variant.notes().contains(&Note::OtherProgram);
    panel.members.iter().any(is_other) && !panel.members.iter().all(is_other)
}

/// The typical deviation of a run from the median of its variant, as a share of the median.
pub(super) fn noise(results: &Results) -> Option<f64> {
    let mut shares = Vec::new();
    for variant in &results.variants {
        let values = variant.values();
        let middle = variant.summary().map_or(0.0, |it| it.median);
        if values.len() > 1 && middle > 0.0 {
            shares.extend(values.iter().map(|value| (value / middle - 1.0).abs()));
        }
    }
    stats::median(&shares)
}

/// `95 %`.
pub(super) fn level() -> String {
    format!("{:.0} %", LEVEL * 100.0)
}

/// `1.22–1.40`.
pub(super) fn range(interval: Interval) -> String {
    format!("{:.2}–{:.2}", interval.low, interval.high)
}
