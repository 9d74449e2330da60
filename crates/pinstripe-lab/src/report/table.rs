//! The table: a row for each variant, with a bar, its interval, and what it cost.

use std::time::Duration;

use maud::{Markup, html};

use super::panel::{Member, Panel, STALL, range};
use super::plot::{Scale, px};
use crate::show::{duration, figure, latency};
use crate::stats::Better;

/// Rows of a page; of more, the rest is told by its number.
const MOST_ROWS: usize = 120;
/// Length and height of a bar, in pixels.
const BAR: (f64, f64) = (150.0, 16.0);

/// All panels under one head.
pub(super) fn show(panels: &[Panel]) -> Markup {
    let all: usize = panels.iter().map(|it| it.members.len()).sum();
    let mut left = MOST_ROWS;
    let shown = panels.iter().map(|panel| {
        let rows = panel.members.len().min(left);
        left -= rows;
        (panel, rows)
    });
    let shown: Vec<(&Panel, usize)> = shown.filter(|(_, rows)| *rows > 0).collect();
    html! {
        section {
            h2 { "Results" }
            table class="results" {
                thead { tr {
                    th class="name" { "variant" }
                    @for (name, title) in COLUMNS { th title=(title) { (name) } }
                } }
                @for (panel, rows) in shown { (of_panel(panel, rows)) }
            }
            @if all > MOST_ROWS { p class="quiet" { (all - MOST_ROWS) " more variants are in the data of this page." } }
            p class="quiet" {
                "Medians of runs that count. A bar begins at zero and is as long as its share of the largest of its "
                "group; the whisker is where the median lies to 95 %. MB is 10⁶ bytes. Stalls are reads and writes over "
                (STALL.as_millis()) " ms in all runs that count. Disk is what the disk moved for each byte asked for."
            }
        }
    }
}

/// What stands over each column but the first, and what it means.
const COLUMNS: [(&str, &str); 11] = [
    ("median", "the median of runs that count"),
    ("", "the median as a bar from zero, its interval as a whisker"),
    ("95 % CI", "where the median lies, to 95 %"),
    ("of best", "how many times as fast as the best of the group"),
    ("p50", "half of all requests took no longer"),
    ("p99", "99 of 100 requests took no longer"),
    ("p99.9", "999 of 1000 requests took no longer"),
    ("max", "the longest request"),
    ("CPU s/GB", "processor seconds for each 10⁹ bytes"),
    ("stalls", "reads and writes over 100 ms"),
    ("disk", "bytes that the disk moved for each byte asked for"),
];

fn of_panel(panel: &Panel, rows: usize) -> Markup {
    let metric = &panel.members[0].variant.metric;
    let better = match metric.better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    };
    html! {
        tbody {
            tr class="group" { th colspan=(COLUMNS.len() + 1) scope="colgroup" {
                b { (panel.title) } " " span class="quiet" { (metric.name) " in " (metric.unit) ", " (better) }
            } }
            @for member in &panel.members[..rows] { (row(panel, member)) }
        }
    }
}

fn row(panel: &Panel, member: &Member) -> Markup {
    let times = latency(member.variant);
    let quantile = |q: f64| -> String {
        let times = times.as_ref();
        let time: Option<Duration> =
            times.and_then(|it| if q < 1.0 { it.quantile(q) } else { it.max() });
        time.map_or("–".to_owned(), duration)
    };
    let interval = member.interval.map(|it| format!("{}–{}", figure(it.low), figure(it.high)));
    let two = |value: Option<f64>| value.map_or("–".to_owned(), |it| format!("{it:.2}"));
    let cells = [
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        quantile(1.0),
        two(member.cpu_s_per_gb()),
        times.as_ref().map_or("–".to_owned(), |_| member.stalls().to_string()),
        two(member.device_share()),
    ];
    html! {
        tr class=[member.is_best.then_some("best")] {
            th class="name" scope="row" { (name(member)) }
            td data-label="median" { b { (member.value.map_or("–".to_owned(), figure)) } }
            td class="bar" { (bar(panel, member)) }
            td data-label="95 % CI" class="quiet" { (interval.unwrap_or_else(|| "–".to_owned())) }
            td data-label="of best" { (factor(member)) }
            @for ((label, _), text) in COLUMNS[4..].iter().zip(&cells) { td data-label=(label) { (text) } }
        }
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
        }
    }
}

fn factor(member: &Member) -> Markup {
    match (member.is_best, member.factor) {
        (true, _) => html! { b { "best" } },
        (false, Some((factor, interval))) => {
            html! { span title=[interval.map(|it| format!("95 % CI {}", range(it)))] { (format!("{factor:.2}×")) } }
        }
        (false, None) => html! { "–" },
    }
}

/// From zero to the median, with the interval over it. Disturbed runs alone give no bar.
fn bar(panel: &Panel, member: &Member) -> Markup {
    let end =
        |it: &Member| it.interval.map(|it| it.high).into_iter().chain(it.value).fold(0.0, f64::max);
    let most = panel.members.iter().map(end).fold(0.0, f64::max);
    let scale = Scale::linear(0.0, most, (0.0, BAR.0 - 2.0));
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
