//! The table: a row for each variant, with a bar, the interval, and the cost.

use maud::{Markup, html};
use pinstripe_base::units::format_count;
use pinstripe_stats::{self as stats, Better};

use super::panel::{Member, Panel, STALL, number};
use super::plot::{Scale, px};
use crate::cases::quantile_text;
use crate::histogram::Histogram;
use crate::show::{hump_text, latency_of, marked, shown_runs};

/// The most rows of a page; of further rows only the number is shown. On paper, fewer rows are
/// printed.
const MOST_ROWS: usize = 120;
const PAPER_ROWS: usize = 40;
/// Length and height of a bar, in pixels.
const BAR: (f64, f64) = (150.0, 16.0);

/// All panels under one heading.
pub(super) fn show(panels: &[Panel]) -> Markup {
    let all: usize = panels.iter().map(|it| it.members.len()).sum();
    let mut before = 0;
    let shown = panels.iter().map(|panel| {
        let (first, rows) = (before, panel.members.len().min(MOST_ROWS - before));
        before += rows;
        (panel, first, rows)
    });
    let shown: Vec<(&Panel, usize, usize)> = shown.filter(|(_, _, rows)| *rows > 0).collect();
    html! {
        section class="rows" {
            h2 { "Results" }
            table class="results" {
                caption class="unseen" { "The medians of all variants, in groups" }
                thead { tr {
                    th class="name" scope="col" { "variant" }
                    @for (name, title) in COLUMNS { th scope="col" title=(title) { (name) } }
                } }
                @for (panel, first, rows) in shown { (of_panel(panel, first, rows)) }
            }
            @if all > PAPER_ROWS { p class="quiet paper" { (all - PAPER_ROWS) " more variants are on the screen." } }
            @if all > MOST_ROWS { p class="quiet" { (all - MOST_ROWS) " more variants are in the data of this page." } }
            p class="quiet" {
                "The values are medians of the runs that count; a value is in brackets if no run counts. "
                "A bar begins at zero and shows the median as a share of the largest median of its group. "
                "The whisker is the 95 % interval of the median or, with fewer than six runs, the range from the smallest to the largest value. "
                "'of best' is the speed relative to the best variant of the group; it is computed from comparisons with the baseline in the same rounds, as in the verdicts, so it is not the ratio of the medians. "
                "'few' means that fewer than two requests took longer. MB is 10⁶ bytes. "
                "Stalls are reads and writes that took over " (STALL.as_millis()) " ms, in all runs that count. "
                "'disk' is the number of bytes that the disk transferred for each requested byte."
            }
        }
    }
}

/// The headings of all columns except the first, with their meanings.
const COLUMNS: [(&str, &str); 12] = [
    ("median", "the median of the runs that count"),
    ("", "the median as a bar that begins at zero, and its interval as a whisker"),
    (
        "interval",
        "the 95 % interval of the median; with fewer than six runs, the range from the smallest to \
         the largest value",
    ),
    ("of best", "the speed relative to the best variant of the group, compared in the same rounds"),
    ("requests", "the number of requests with known times, in the runs that count"),
    ("p50", "half of all requests took at most this time"),
    ("p99", "99 of 100 requests took at most this time"),
    ("p99.9", "999 of 1000 requests took at most this time"),
    ("max", "the time of the longest request"),
    ("CPU s/GB", "CPU seconds for each 10⁹ bytes"),
    ("stalls", "the number of reads and writes that took more than 100 ms"),
    ("disk", "bytes that the disk transferred for each requested byte"),
];

/// The rows of a panel; `first` other rows come before them.
fn of_panel(panel: &Panel, first: usize, rows: usize) -> Markup {
    let metric = &panel.members[0].variant.metric;
    let better = match metric.better {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
    };
    html! {
        tbody id=(panel.anchor) {
            tr class={"group" (on_paper(first))} { th colspan=(COLUMNS.len() + 1) scope="colgroup" {
                b { (panel.title) } " " span class="quiet" { (metric.name) " in " (metric.unit) ", " (better) }
            } }
            @for (at, member) in panel.members[..rows].iter().enumerate() { (row(panel, member, first + at)) }
            (super::axis::row(panel, COLUMNS.len() + 1, BAR.0))
        }
    }
}

/// The style class of a row that is not printed.
fn on_paper(at: usize) -> &'static str {
    if at < PAPER_ROWS { "" } else { " screen" }
}

fn row(panel: &Panel, member: &Member, at: usize) -> Markup {
    let counting = shown_runs(member.variant);
    let marked = |text: String| marked(text, counting);
    let times = latency_of(member.variant, counting);
    let of_times = |text: &dyn Fn(&Histogram) -> String| {
        times.as_ref().map_or("–".to_owned(), |it| marked(text(it)))
    };
    let interval = stats::median_interval(&counting.values(member.variant));
    let interval = interval.map(|it| {
        let range = format!("{}–{}", number(it.low), number(it.high));
        marked(if it.is_full() { range } else { format!("{range} ({})", it.level_text()) })
    });
    let two = |value: Option<f64>| value.map_or("–".to_owned(), |it| format!("{it:.2}"));
    let cells = [
        of_times(&|it| format_count(it.count())),
        of_times(&|it| quantile_text(it, 0.5)),
        of_times(&|it| quantile_text(it, 0.99)),
        of_times(&|it| quantile_text(it, 0.999)),
        of_times(&|it| quantile_text(it, 1.0)),
        two(member.cpu_s_per_gb()),
        times.as_ref().map_or("–".to_owned(), |_| marked(member.stalls().to_string())),
        two(member.device_share()),
    ];
    html! {
        tr class={(if member.is_best { "best" } else { "row" }) (on_paper(at))} {
            th class="name" scope="row" { (name(member)) }
            td data-label="median" { (median(member)) }
            td class=(if member.value.is_some() { "bar" } else { "bar empty" }) { (bar(panel, member)) }
            td data-label="interval" class="quiet" { (interval.unwrap_or_else(|| "–".to_owned())) }
            td data-label="of best" { (factor(member)) }
            @for ((label, _), text) in COLUMNS[4..].iter().zip(&cells) { td data-label=(label) { (text) } }
        }
    }
}

/// Returns the median of the valid runs. Without a valid run, returns the median of the other runs in
/// brackets.
fn median(member: &Member) -> Markup {
    let all: Vec<f64> = member.variant.runs.iter().map(|run| run.measured.value).collect();
    match (member.value, stats::median(&all)) {
        (Some(value), _) => html! { b { (number(value)) } },
        (None, Some(value)) => {
            html! { span class="quiet" title="every run was disturbed" { "(" (number(value)) ")" } }
        }
        (None, None) => html! { "–" },
    }
}

fn name(member: &Member) -> Markup {
    let variant = member.variant;
    let (valid, all) = (variant.values().len(), variant.runs.len());
    html! {
        span class={"k" (member.kind % super::plot::KINDS) " swatch"} {} " "
        span title=(variant.about) { (member.label) }
        span class="tags" {
            @if valid < all { span class="tag bad" { (valid) " of " (all) " runs count" } }
            @for note in variant.notes() { span class="tag" { (note.text()) } }
            @if let Some(text) = hump_text(variant) { span class="tag bad" title=(text) { "two humps" } }
        }
    }
}

fn factor(member: &Member) -> Markup {
    match (member.is_best, member.factor) {
        (true, _) => html! { b { "best" } },
        (false, Some(factor)) => html! { (format!("{factor:.2}×")) },
        (false, None) => html! { "–" },
    }
}

/// Draws a bar from zero to the median, with the interval over it. If all runs were disturbed, no
/// bar is drawn.
fn bar(panel: &Panel, member: &Member) -> Markup {
    let scale = Scale::linear(0.0, panel.most(), (0.0, BAR.0 - 2.0));
    let middle = BAR.1 / 2.0;
    html! {
        svg viewBox={"0 0 " (px(BAR.0)) " " (px(BAR.1))} width=(px(BAR.0)) height=(px(BAR.1)) preserveAspectRatio="none" aria-hidden="true" {
            @if let Some(value) = member.value {
                rect class={"k" (member.kind % super::plot::KINDS) " fill"} x="0" y="2" width=(px(scale.at(value))) height=(px(BAR.1 - 4.0)) rx="1" {}
            }
            @if let Some(interval) = member.interval {
                @let (low, high) = (px(scale.at(interval.low)), px(scale.at(interval.high)));
                path class="whisker" d={"M" (low) " " (px(middle)) "H" (high) "M" (low) " 4V" (px(BAR.1 - 4.0)) "M" (high) " 4V" (px(BAR.1 - 4.0))} {}
            }
        }
    }
}
