//! Formats results as a table and as sentences.

use pinstripe_base::units::format_size;
use pinstripe_stats::{self as stats, AS_GOOD, Basis, Better, Finding, Interval, Verdict};

use crate::cases::{self, quantile_text};
use crate::display::figure;
use crate::fingerprint::Fingerprint;
use crate::histogram::Histogram;
use crate::result::{Change, Compared, Counting, Host, Parameter, Results, Sides, Variant};
use crate::table::{Align, Cell, Table};

/// One row for each variant.
pub fn table(results: &Results) -> Table {
    let unit = unit(results).unwrap_or("value");
    let columns = [
        ("variant", Align::Left),
        (unit, Align::Right),
        ("interval", Align::Right),
        ("of base", Align::Right),
        ("requests", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("max", Align::Right),
        ("CPU s/GB", Align::Right),
        ("runs", Align::Right),
        ("notes", Align::Left),
    ];
    let parameters = parameters_text(&results.case, &results.parameters);
    let settings = [parameters, format!("seed {}", results.seed)];
    let settings: Vec<String> = settings.into_iter().filter(|it| !it.is_empty()).collect();
    let note = format!(
        "The values are medians of the runs that count; 'runs' shows how many runs count. 'of \
         base' is the speed relative to the baseline of the group, as in the verdicts. 'interval' \
         is the 95 % interval of the median, unless another level is shown. A value is in brackets \
         if no run counts. 'few' means too few requests. {}.",
        settings.join("; "),
    );
    let mut table = Table::new(&format!("lab {}", results.case), note, &columns);
    for variant in &results.variants {
        table.row(row(results, variant));
    }
    table
}

/// Formats the parameters of a case: `block-size 4K, total-size 8.0 MiB`. A size that was given as
/// a number of bytes is shown with a unit.
pub fn parameters_text(case: &str, parameters: &[Parameter]) -> String {
    let told = |it: &Parameter| format!("{} {}", it.name, cases::shown_value(case, it));
    parameters.iter().map(told).collect::<Vec<_>>().join(", ")
}

/// The unit of all values; `None` if they have several.
fn unit(results: &Results) -> Option<&str> {
    let mut units = results.variants.iter().map(|it| it.metric.unit.as_str());
    let first = units.next().unwrap_or("");
    units.all(|it| it == first).then_some(first)
}

fn row(results: &Results, variant: &Variant) -> [Cell; 11] {
    let counting = shown_runs(variant);
    let marked = |text: String| marked(text, counting);
    let times = latency_of(variant, counting);
    let quantile = |q: f64| -> Cell {
        times.as_ref().map_or("-".to_owned(), |it| marked(quantile_text(it, q))).into()
    };
    let interval = stats::median_interval(&counting.values(variant));
    let requests = times.as_ref().map_or("-".to_owned(), |it| marked(it.count().to_string()));
    let costs: Vec<f64> =
        counting.runs(variant).filter_map(crate::result::Run::cpu_s_per_gb).collect();
    let cost = stats::median(&costs).map_or("-".to_owned(), |it| marked(format!("{it:.2}")));
    let notes: Vec<&str> = variant.notes().into_iter().map(|note| note.text()).collect();
    [
        variant.name.clone().into(),
        match unit(results) {
            Some(_) => value(variant).into(),
            None => format!("{} {}", value(variant), variant.metric.unit).into(),
        },
        interval.map_or("-".to_owned(), |it| marked(interval_text(&it))).into(),
        of_base(results, variant).into(),
        requests.into(),
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
        cost.into(),
        format!("{} of {}", variant.values().len(), variant.runs.len()).into(),
        notes.join(", ").into(),
    ]
}

/// The runs whose figures are shown: those that count, or all runs if none counts; figures of the
/// latter are in brackets.
pub(crate) fn shown_runs(variant: &Variant) -> Counting {
    Counting::shown(variant)
}

/// Puts a text in brackets if no run counts.
pub(crate) fn marked(text: String, counting: Counting) -> String {
    match counting {
        Counting::Quiet => text,
        Counting::Alike => format!("({text})"),
    }
}

/// Formats an interval: `97.1 - 103`, or with few runs `97.1 - 103 (min to max of 4, 88 %)`.
pub(super) fn interval_text(interval: &Interval) -> String {
    let range = format!("{} - {}", figure(interval.low), figure(interval.high));
    match interval.is_full() {
        true => range,
        false => format!("{range} (minimum to maximum, {})", interval.level_text()),
    }
}

/// How many times as fast as the baseline the variant is: the same figure as in the verdict.
fn of_base(results: &Results, variant: &Variant) -> String {
    let is_base = results.verdicts.iter().any(|it| it.baseline == variant.name);
    let found = results.verdicts.iter().find(|it| it.candidate == variant.name);
    match found.map(|it| (it.verdict.speed, it.verdict.basis)) {
        Some((Some(speed), Basis::DisturbedRounds)) => format!("({speed:.2})"),
        Some((Some(speed), _)) => format!("{speed:.2}"),
        None if is_base => "base".to_owned(),
        _ => "-".to_owned(),
    }
}

/// The median; if no run counts, the median of the disturbed runs, marked as such.
pub(super) fn value(variant: &Variant) -> String {
    match variant.summary() {
        Some(summary) => figure(summary.median),
        None => {
            let all: Vec<f64> = variant.runs.iter().map(|run| run.measured.value).collect();
            stats::median(&all).map_or("-".to_owned(), |it| format!("(disturbed: {})", figure(it)))
        }
    }
}

/// Times of all reads and writes of a variant in the runs that count.
pub(crate) fn latency(variant: &Variant) -> Option<Histogram> {
    latency_of(variant, Counting::Quiet)
}

/// Times of all reads and writes in the runs that `counting` selects.
pub(crate) fn latency_of(variant: &Variant, counting: Counting) -> Option<Histogram> {
    variant.request_times(counting)
}

/// A line for each variant whose values form two clusters.
pub(super) fn hump_lines(results: &Results) -> Vec<String> {
    let line = |variant: &Variant| Some(format!("{}: {}", variant.name, hump_text(variant)?));
    results.variants.iter().filter_map(line).collect()
}

/// Describes a change of the disk's speed: `the speed of the disk changed by 24 % during the
/// measurement: a short read in each round took between 82 and 102 us`; `None` for a quiet disk.
pub(crate) fn mood_text(results: &Results) -> Option<String> {
    let (low, high) = results.disk_mood()?;
    let by = (high / low - 1.0) * 100.0;
    Some(format!(
        "the speed of the disk changed by {by:.0} % during the measurement: a short read in each \
         round took between {low:.0} and {high:.0} us"
    ))
}

/// Describes values that form two clusters: `the runs form two clusters, which a median does not
/// show: about 4.08 MB/s (6 runs) and about 5.24 MB/s (3 runs)`.
pub(crate) fn hump_text(variant: &Variant) -> Option<String> {
    let found = variant.humps()?;
    let (below, above) = found.counts;
    let (low, high) = (figure(found.low), figure(found.high));
    let unit = &variant.metric.unit;
    Some(format!(
        "the runs form two clusters, which a median does not show: about {low} {unit} ({below} \
         runs) and about {high} {unit} ({above} runs)"
    ))
}

/// A sentence for each comparison; comparisons with too few runs share one sentence.
pub(crate) fn verdict_lines(results: &Results) -> Vec<String> {
    let has_few = |it: &&Compared| it.verdict.finding == Finding::TooFewRuns;
    let (few, told): (Vec<&Compared>, Vec<&Compared>) = results.verdicts.iter().partition(has_few);
    let lines = told.into_iter().map(sentence);
    match few.len() {
        0 | 1 => lines.chain(few.into_iter().map(sentence)).collect(),
        many => {
            let all = results.verdicts.len();
            let line = format!(
                "too few runs count for {many} of {all} comparisons: use a larger --runs or \
                 --time, or measure on a less busy machine"
            );
            lines.chain([line]).collect()
        }
    }
}

/// Describes a comparison: `rndrd /b is 12 % faster than rndrd /a (95 %: +8.0 to +15.0 %, p =
/// 0.008, 5 and 5 runs)`.
pub fn sentence(compared: &Compared) -> String {
    let Compared { candidate, baseline, verdict, .. } = compared;
    let percent = |speed: f64| format!("{:+.1}", (speed - 1.0) * 100.0);
    let doubt = verdict
        .interval
        .map(|it| format!("{}: {} to {} %, ", it.level_text(), percent(it.low), percent(it.high)));
    let chance = verdict.p.map(|p| format!("{}, ", chance(p)));
    let doubt = doubt.unwrap_or_default() + &chance.unwrap_or_default();
    let basis = format!("({doubt}{})", basis_text(verdict));
    let by = verdict.speed.map_or(0.0, |speed| (speed - 1.0).abs() * 100.0);
    match verdict.finding {
        Finding::Faster => format!("{candidate} is {by:.1} % faster than {baseline} {basis}"),
        Finding::Slower => format!("{candidate} is {by:.1} % slower than {baseline} {basis}"),
        Finding::AsGood => {
            format!("{candidate} is as good as {baseline} within {AS_GOOD_PERCENT:.0} % {basis}")
        }
        Finding::CannotTell => {
            format!("it is undecided which of {candidate} and {baseline} is faster {basis}")
        }
        Finding::TooFewRuns => {
            format!("too few runs count to compare {candidate} with {baseline} {basis}")
        }
        Finding::Estimate => {
            let by = verdict.speed.map_or("?".to_owned(), percent);
            format!(
                "the estimated difference of {candidate} from {baseline} is {by} % {basis}; {}",
                why_estimate(verdict)
            )
        }
    }
}

/// Describes a comparison with the figures of both sides: `rndrd: A 512 MB/s, B 598 MB/s; B is 16.8
/// % faster than A (95 %: +8.0 to +25.0 %, p = 0.008, 3 and 3 executions)`.
pub fn sides_line(compared: &Compared, sides: &Sides) -> String {
    let side = |median: Option<f64>| match median {
        Some(median) => format!("{} {}", figure(median), sides.metric.unit),
        None => "(no run counts)".to_owned(),
    };
    let named =
        Compared { candidate: "B".to_owned(), baseline: "A".to_owned(), ..compared.clone() };
    let (before, after) = (side(sides.before), side(sides.after));
    format!("{}: A {before}, B {after}; {}", compared.candidate, sentence(&named))
}

/// The share, in percent, within which one variant counts as good as another.
const AS_GOOD_PERCENT: f64 = AS_GOOD * 100.0;

/// Why a comparison of executions is only an estimate, and how to improve it.
pub(crate) fn why_estimate(verdict: &Verdict) -> &'static str {
    match verdict.interval {
        Some(_) => {
            "there is no verdict, because there are too few executions; the interval is the usual \
             spread between repeated executions"
        }
        None => {
            "there is no verdict, because the spread between repeated executions is not known; \
             compare at least three executions of each side"
        }
    }
}

/// Describes the basis of a verdict: `5 and 5 runs`, `12 rounds`, `3 and 4 executions`.
pub(crate) fn basis_text(verdict: &Verdict) -> String {
    let (these, those) = verdict.runs;
    match verdict.basis {
        Basis::Runs => format!("{these} and {those} runs"),
        Basis::Rounds => format!("{these} rounds"),
        Basis::DisturbedRounds => {
            format!(
                "{these} rounds, including rounds in which both variants had the same disturbances"
            )
        }
        Basis::Executions => format!("{these} and {those} executions"),
    }
}

/// Returns a finding in one or two words.
pub(crate) fn finding_text(finding: Finding) -> &'static str {
    match finding {
        Finding::Faster => "faster",
        Finding::Slower => "slower",
        Finding::AsGood => "as good",
        Finding::CannotTell => "cannot tell",
        Finding::TooFewRuns => "too few runs",
        Finding::Estimate => "estimate",
    }
}

/// Formats a p-value: `p = 0.008`. It is the probability that chance alone makes such a difference.
pub fn chance(p: f64) -> String {
    match p {
        0.001.. => format!("p = {p:.3}"),
        _ => "p < 0.001".to_owned(),
    }
}

/// The size of a permanent change: `0.80 times as fast as before (95 %: 0.78 to 0.82, 6 executions
/// before and 5 after)`, then a line for each other thing that changed at the same time.
pub fn change_lines(change: &Change) -> Vec<String> {
    let verdict = &change.verdict;
    let (after, before) = verdict.runs;
    let speed = verdict.speed.map_or("?".to_owned(), |it| format!("{it:.2}"));
    let interval = verdict.interval.map(|it| format!("95 %: {:.2} to {:.2}, ", it.low, it.high));
    let interval = interval.unwrap_or_default();
    let mut lines = vec![format!(
        "{speed} times as fast as before ({interval}{before} executions before and {after} after)"
    )];
    match change.differences.is_empty() {
        true => lines.push("no other change is known for the same time".to_owned()),
        false => lines.extend(change.differences.iter().cloned()),
    }
    lines
}

/// The kinds of disturbances of runs: the text of the first disturbance of each kind, and their
/// number.
pub(crate) fn disturbances(results: &Results) -> Vec<(&str, usize)> {
    let runs = results.variants.iter().flat_map(|variant| &variant.runs);
    let mut kinds: Vec<(&str, &str, usize)> = Vec::new();
    for found in runs.flat_map(|run| &run.disturbances) {
        match kinds.iter_mut().find(|(kind, ..)| *kind == found.kind) {
            Some((.., count)) => *count += 1,
            None => kinds.push((&found.kind, &found.what, 1)),
        }
    }
    kinds.into_iter().map(|(_, what, count)| (what, count)).collect()
}

/// The disturbances as lines, after a line with the number of disturbed runs.
pub(crate) fn disturbance_lines(results: &Results) -> Vec<String> {
    let runs = || results.variants.iter().flat_map(|variant| &variant.runs);
    let disturbed = runs().filter(|run| !run.disturbances.is_empty()).count();
    if disturbed == 0 {
        return Vec::new();
    }
    let valid = runs().filter(|run| !run.disturbances.is_empty() && run.is_valid()).count();
    let what = match valid {
        0 => "do not count".to_owned(),
        valid if valid == disturbed => "count anyway, because of --accept-noise".to_owned(),
        valid => {
            format!("{valid} of these runs count anyway, because of --accept-noise")
        }
    };
    let mut lines =
        vec![format!("{disturbed} of {} runs were disturbed, and {what}:", runs().count())];
    let kinds = disturbances(results).into_iter();
    lines.extend(kinds.map(|(what, count)| match count {
        1 => format!("  {what} (once)"),
        _ => format!("  {what} (first of {count} such cases)"),
    }));
    lines
}

/// The environment of the measurement.
pub(crate) fn fingerprint_lines(results: &Results) -> Vec<String> {
    if results.hosts.is_empty() {
        return lines_of(&results.fingerprint);
    }
    // The machine that started them has measured nothing.
    let of_host = |host: &Host| {
        let lines = lines_of(&host.fingerprint);
        lines.into_iter().map(|line| format!("{}: {line}", host.address)).collect::<Vec<_>>()
    };
    results.hosts.iter().flat_map(of_host).collect()
}

fn lines_of(print: &Fingerprint) -> Vec<String> {
    let mut lines = vec![print.machine.to_string()];
    for place in &print.places {
        let mut parts = vec![format!("{}:", place.path)];
        parts.extend(place.file_system.clone());
        parts.extend(place.mount_options.as_ref().map(|it| format!("({it})")));
        if let Some(disk) = &place.disk {
            parts.push(format!("on {}", disk.name));
            parts.extend(disk.model.clone());
            parts.extend(disk.bytes.map(format_size));
            let settings = ["scheduler", "nr_requests", "write_cache"].iter();
            let settings =
                settings.filter_map(|it| Some(format!("{it} {}", disk.settings.get(*it)?)));
            parts.push(format!("({})", settings.collect::<Vec<_>>().join(", ")));
        }
        lines.push(parts.join(" "));
    }
    lines
}

/// Whether higher or lower values are better, for the heading of a column.
pub(super) fn better(variant: &Variant) -> &'static str {
    match variant.metric.better {
        Better::Higher => "higher",
        Better::Lower => "lower",
    }
}
