//! Shows every run as a dot, in the order of the runs, so that a drift and the runs that do not
//! count are visible.

use maud::{Markup, html};

use super::panel::{Member, Panel, number};
use super::plot::{Anchor, Scale, cross, drawing, line, marker, px, text, ticks};
use crate::result::Run;

/// The most rows of the figure.
const MOST: usize = 24;
/// Width and height of a row, and the margin of its dots, in pixels.
const WIDTH: f64 = 640.0;
const ROW: f64 = 28.0;
const MARGIN: f64 = 12.0;

/// A row for each variant; all rows share one axis of runs.
pub(super) fn show(panels: &[Panel]) -> Markup {
    let members = panels.iter().flat_map(|panel| panel.members.iter().map(move |it| (panel, it)));
    let rows: Vec<_> = members.filter(|(_, it)| !it.variant.runs.is_empty()).collect();
    let more = rows.len().saturating_sub(MOST);
    let shown = &rows[..rows.len() - more];
    let last = shown.iter().flat_map(|(_, it)| &it.variant.runs).map(|run| run.order + 1).max();
    let far = reach(shown);
    html! {
        @if let Some(last) = last {
            @let place = Scale::linear(1.0, last.max(2) as f64, (MARGIN, WIDTH - MARGIN));
            section class="detail dots" {
                h2 { "Every run" }
                p class="quiet" {
                    "The runs are shown in the order in which they were made. "
                    "The line is the median of the variant, and the band extends from it by "
                    (format!("{:.0} %", far * 100.0)) " in both directions. "
                    "If the runs of a row rise or fall steadily, the speed drifted. "
                    "Runs that are shown as crosses were disturbed and do not count."
                    @if more > 0 { " " (more) " more variants are only in the table." }
                }
                div class="runs" {
                    @for (panel, member) in shown { (row(panel, member, &place, far)) }
                    (axis(last, &place))
                }
            }
        }
    }
}

/// The greatest deviation of a run that counts from its median, as a share of the median, rounded
/// up: at least 5 %, and at most 100 %.
fn reach(rows: &[(&Panel, &Member)]) -> f64 {
    let known = rows.iter().filter_map(|(_, it)| Some((it, it.value.filter(|it| *it > 0.0)?)));
    let shares = known.flat_map(|(it, middle)| {
        it.valid().map(move |run| (run.measured.value / middle - 1.0).abs())
    });
    let far = shares.fold(0.0, f64::max);
    [0.05, 0.1, 0.2, 0.5].into_iter().find(|it| *it >= far).unwrap_or(1.0)
}

/// Name, dots, median.
fn row(panel: &Panel, member: &Member, place: &Scale, far: f64) -> Markup {
    let (middle, half) = (ROW / 2.0, ROW / 2.0 - 2.0);
    let name = panel.name(member);
    let all: Vec<f64> = member.variant.runs.iter().map(|run| run.measured.value).collect();
    let median = member.value.or_else(|| pinstripe_stats::median(&all)).unwrap_or(0.0);
    let value = Scale::linear(-far, far, (middle + half - 3.0, middle - half + 3.0));
    let y =
        |run: &Run| value.at(if median > 0.0 { run.measured.value / median - 1.0 } else { 0.0 });
    let unit = &member.variant.metric.unit;
    let content = html! {
        rect class="band" x="0" y=(px(middle - half)) width=(px(WIDTH)) height=(px(2.0 * half)) {}
        (line("median", (0.0, middle), (WIDTH, middle)))
        @for run in &member.variant.runs {
            @let x = place.at((run.order + 1) as f64);
            g {
                title { (describe(run, unit)) }
                @if run.is_valid() { (marker(member.kind, x, y(run))) } @else { (cross(x, y(run))) }
            }
        }
    };
    html! {
        div class="name" { (name) }
        (drawing(WIDTH, ROW, &format!("Runs of {name}"), &content))
        div class="value quiet" { (number(median)) " " (unit) }
    }
}

/// The numbers of the runs, below all rows.
fn axis(last: u64, place: &Scale) -> Markup {
    let steps = ticks(last as f64, 8).into_iter().map(|it| it.round() as u64);
    let mut marks: Vec<u64> =
        std::iter::once(1).chain(steps.filter(|it| (2..=last).contains(it))).collect();
    marks.dedup();
    let content = html! {
        @for mark in &marks { (text(place.at(*mark as f64), 12.0, Anchor::Middle, &mark.to_string())) }
    };
    html! { div class="name quiet" { "run" } (drawing(WIDTH, 16.0, "Numbers of runs", &content)) div class="value" {} }
}

/// The text shown for a dot.
fn describe(run: &Run, unit: &str) -> String {
    let disturbances: Vec<&str> = run.disturbances.iter().map(|it| it.what.as_str()).collect();
    let why = match (disturbances.is_empty(), run.is_valid()) {
        (true, _) => String::new(),
        (false, true) => {
            format!("; this run counts although it was disturbed: {}", disturbances.join(", "))
        }
        (false, false) => format!("; this run does not count: {}", disturbances.join(", ")),
    };
    format!(
        "run {}: {} {unit} in {:.1} s{why}",
        run.order + 1,
        number(run.measured.value),
        run.seconds
    )
}
