//! Results as a table and as sentences.

use pinstripe_base::units::{counted, format_size};

use crate::display::{duration, figure};
use crate::result::{Change, Compared, Results, Variant};
use crate::stats::{Better, Finding};
use crate::table::{Align, Cell, Table};

/// One row for each variant.
pub fn table(results: &Results) -> Table {
    let unit = unit(results).unwrap_or("value");
    let columns = [
        ("variant", Align::Left),
        (unit, Align::Right),
        ("95 % interval", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("max", Align::Right),
        ("CPU s/GB", Align::Right),
        ("runs", Align::Right),
        ("notes", Align::Left),
    ];
    let parameters: Vec<String> =
        results.parameters.iter().map(|it| format!("{} {}", it.name, it.value)).collect();
    let settings = [parameters.join(", "), format!("seed {}", results.seed)];
    let settings: Vec<String> = settings.into_iter().filter(|it| !it.is_empty()).collect();
    let note =
        format!("Medians of runs that count; 'runs' are those of all. {}.", settings.join("; "),);
    let mut table = Table::new(&format!("lab {}", results.case), note, &columns);
    for variant in &results.variants {
        table.row(row(results, variant));
    }
    table
}

/// The unit of all values, if they have one.
fn unit(results: &Results) -> Option<&str> {
    let mut units = results.variants.iter().map(|it| it.metric.unit.as_str());
    let first = units.next().unwrap_or("");
    units.all(|it| it == first).then_some(first)
}

fn row(results: &Results, variant: &Variant) -> [Cell; 9] {
    let times = latency(variant);
    let quantile = |q: f64| -> Cell {
        let found = times.as_ref().and_then(|it| if q < 1.0 { it.quantile(q) } else { it.max() });
        found.map_or("-".to_owned(), duration).into()
    };
    let interval = variant.interval(results.seed);
    let interval =
        interval.map_or("-".to_owned(), |it| format!("{} - {}", figure(it.low), figure(it.high)));
    let costs: Vec<f64> = variant
        .runs
        .iter()
        .filter(|run| run.is_valid())
        .filter_map(crate::result::Run::cpu_s_per_gb)
        .collect();
    let cost = crate::stats::median(&costs).map_or("-".to_owned(), |it| format!("{it:.2}"));
    let notes: Vec<&str> = variant.notes().into_iter().map(|note| note.text()).collect();
    [
        variant.name.clone().into(),
        match unit(results) {
            Some(_) => value(variant).into(),
            None => format!("{} {}", value(variant), variant.metric.unit).into(),
        },
        interval.into(),
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
        cost.into(),
        format!("{} of {}", variant.values().len(), variant.runs.len()).into(),
        notes.join(", ").into(),
    ]
}

/// The median; where no run counts, that of the disturbed ones, said to be that.
fn value(variant: &Variant) -> String {
    match variant.summary() {
        Some(summary) => figure(summary.median),
        None => {
            let all: Vec<f64> = variant.runs.iter().map(|run| run.measured.value).collect();
            crate::stats::median(&all)
                .map_or("-".to_owned(), |it| format!("(disturbed: {})", figure(it)))
        }
    }
}

/// Times of whatever the variant does most, by its nature: reads, or else writes.
pub(crate) fn latency(variant: &Variant) -> Option<crate::histogram::Histogram> {
    ["response", "read", "write"].iter().find_map(|kind| variant.latency(kind))
}

/// A sentence for each comparison; where several have too few runs, one for all of those.
pub fn verdict_lines(results: &Results) -> Vec<String> {
    let has_few = |it: &&Compared| it.verdict.finding == Finding::TooFewRuns;
    let (few, told): (Vec<&Compared>, Vec<&Compared>) = results.verdicts.iter().partition(has_few);
    let lines = told.into_iter().map(sentence);
    match few.len() {
        0 | 1 => lines.chain(few.into_iter().map(sentence)).collect(),
        many => {
            let all = results.verdicts.len();
            let line = format!(
                "too few runs that count for {many} of {all} comparisons: more with --runs or --time, \
                 or on a machine with less to do"
            );
            lines.chain([line]).collect()
        }
    }
}

/// `rndrd /b is 12 % faster than rndrd /a (95 %: 8 to 15 %, p = 0.008, 5 and 5 runs)`.
pub fn sentence(compared: &Compared) -> String {
    let Compared { candidate, baseline, verdict, .. } = compared;
    let percent = |speed: f64| format!("{:.1}", (speed - 1.0) * 100.0);
    let doubt = verdict.interval.zip(verdict.p).map(|(interval, p)| {
        let (low, high) = (percent(interval.low), percent(interval.high));
        format!("95 %: {low} to {high} %, {}, ", chance(p))
    });
    let (these, those) = verdict.runs;
    let basis = format!("({}{these} and {those} runs)", doubt.unwrap_or_default());
    let by = verdict.speed.map_or(0.0, |speed| (speed - 1.0).abs() * 100.0);
    match verdict.finding {
        Finding::Faster => format!("{candidate} is {by:.1} % faster than {baseline} {basis}"),
        Finding::Slower => format!("{candidate} is {by:.1} % slower than {baseline} {basis}"),
        Finding::NoDifference => {
            format!("no difference between {candidate} and {baseline} {basis}")
        }
        Finding::TooFewRuns => {
            format!("too few runs that count to compare {candidate} with {baseline} {basis}")
        }
    }
}

/// `p = 0.008`: how often chance alone makes such a difference.
pub fn chance(p: f64) -> String {
    match p {
        0.001.. => format!("p = {p:.3}"),
        _ => "p < 0.001".to_owned(),
    }
}

/// The size of a lasting change, and what changed with it: `0.80 times as fast as before (95 %:
/// 0.78 to 0.82, 6 and 5 times)`, then a line for each thing.
pub fn change_lines(change: &Change) -> Vec<String> {
    let verdict = &change.verdict;
    let (after, before) = verdict.runs;
    let speed = verdict.speed.map_or("?".to_owned(), |it| format!("{it:.2}"));
    let interval = verdict.interval.map(|it| format!("95 %: {:.2} to {:.2}, ", it.low, it.high));
    let interval = interval.unwrap_or_default();
    let mut lines =
        vec![format!("{speed} times as fast as before ({interval}{before} and {after} times)")];
    match change.differences.is_empty() {
        true => lines.push("nothing else that is known changed with it".to_owned()),
        false => lines.extend(change.differences.iter().cloned()),
    }
    lines
}

/// The disturbances of runs, each sort of it once: as it was the first time, and how often.
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

/// The same as lines, after one that says how many runs it was.
pub(crate) fn disturbance_lines(results: &Results) -> Vec<String> {
    let runs = || results.variants.iter().flat_map(|variant| &variant.runs);
    let disturbed = runs().filter(|run| !run.is_valid()).count();
    if disturbed == 0 {
        return Vec::new();
    }
    let mut lines =
        vec![format!("{disturbed} of {} runs were disturbed and do not count:", runs().count())];
    let kinds = disturbances(results).into_iter();
    lines.extend(kinds.map(|(what, count)| {
        format!("  {}, for example: {what}", counted(count as u64, "time", "times"))
    }));
    lines
}

/// On what it was measured.
pub fn fingerprint_lines(results: &Results) -> Vec<String> {
    let print = &results.fingerprint;
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

/// Which way values are better, for the head of a column.
pub(super) fn better(variant: &Variant) -> &'static str {
    match variant.metric.better {
        Better::Higher => "higher",
        Better::Lower => "lower",
    }
}
