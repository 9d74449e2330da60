//! The times of requests: time against the share of requests that took no longer, on an axis that
//! gives each further nine of a percentile the same space.

use std::time::Duration;

use maud::{Markup, html};
use pinstripe_base::units::format_count;

use super::panel::{Member, Panel};
use super::plot::{self, Anchor, Scale, decades, drawing, line, marker, points, text};
use crate::display::duration;
use crate::histogram::Histogram;

/// The most figures of a page, and the most curves of a figure.
const MOST: usize = 4;
/// The most figures that are printed; the style sheet hides the others on paper.
const FEW: usize = 2;
const MOST_MEMBERS: usize = plot::KINDS;
/// Width and height of a figure, and the left, right, top and bottom of its plot, in pixels.
const SIZE: (f64, f64) = (460.0, 236.0);
const LEFT: f64 = 52.0;
const RIGHT: f64 = 452.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 196.0;
/// The number of points of a curve.
const POINTS: usize = 64;

/// Kinds of times that have curves, with the line style and the description of each.
const KINDS: [(&str, &str, &str); 4] = [
    ("response", "line", "response time, measured from the time when a request was due"),
    ("read", "line dashed", "read"),
    ("write", "line dotted", "write"),
    ("sync", "line dashed", "sync"),
];

/// A curve: a variant, a kind of its times, and its line style.
struct LatencyCurve<'a> {
    member: &'a Member<'a>,
    kind: &'static str,
    class: &'static str,
    times: Histogram,
}

/// A figure for each panel.
pub(super) fn show(panels: &[Panel]) -> Markup {
    let all: Vec<(&Panel, Vec<LatencyCurve>)> = panels
        .iter()
        .map(|panel| (panel, curves(panel)))
        .filter(|(_, curves)| !curves.is_empty())
        .collect();
    html! {
        @if !all.is_empty() {
            section class="detail" {
                h2 { "Latency" }
                p class="quiet" {
                    "The curves show how long requests took: at 99, for example, the time that 99 % of all requests did not exceed. "
                    "Each step to the right leaves out nine of ten requests, so a curve that rises on the right shows stalls."
                    span class="screen" { " A curve ends at the longest request; with fewer than \
                                           1,000 requests, p99.9 is that request." }
                    @if all.len() > FEW { " Only the first groups are shown; the table has all groups." }
                }
                div class="figures" { @for (panel, curves) in all.iter().take(MOST) { (figure(panel, curves)) } }
            }
        }
    }
}

/// Returns curves of reads and writes, and of response times if there is a rate. Curves of syncs
/// are returned only if there are no others.
fn curves<'a>(panel: &'a Panel) -> Vec<LatencyCurve<'a>> {
    let mut all = Vec::new();
    for member in panel.members.iter().take(MOST_MEMBERS) {
        let known: Vec<_> = KINDS
            .iter()
            .filter_map(|(kind, class, _)| {
                let times = member.variant.latency(kind).filter(|it| !it.is_empty())?;
                Some((*kind, *class, times))
            })
            .collect();
        let is_only = known.len() == 1;
        for (kind, class, times) in known {
            if kind != "sync" || is_only {
                all.push(LatencyCurve { member, kind, class, times });
            }
        }
    }
    // Lines of one kind need no distinction.
    if all.windows(2).all(|it| it[0].kind == it[1].kind) {
        all.iter_mut().for_each(|it| it.class = "line");
    }
    all
}

fn figure(panel: &Panel, curves: &[LatencyCurve]) -> Markup {
    let most_requests = curves.iter().map(|it| it.times.count()).max().unwrap_or(1);
    let nines = (most_requests as f64).log10().clamp(2.0, 7.0);
    let share = Scale::linear(0.0, nines, (LEFT, RIGHT - 14.0));
    let ends = curves.iter().flat_map(|it| [it.times.quantile(0.0), it.times.max()]).flatten();
    let ends: Vec<f64> = ends.map(|it| (it.as_nanos() as f64).max(1.0)).collect();
    let marks = decades(
        ends.iter().copied().fold(f64::MAX, f64::min),
        ends.iter().copied().fold(1.0, f64::max),
    );
    let time = Scale::log(marks[0], marks[marks.len() - 1], (BOTTOM, TOP));
    let content = html! {
        (frame(nines.floor() as usize, &share, &marks, &time))
        @for curve in curves { (drawn(curve, &share, &time)) }
    };
    let name = format!("Latency of {}", panel.title);
    html! {
        figure {
            figcaption { a class="back" href={"#" (panel.anchor)} { b { (panel.title) } } " " (legend(curves)) }
            (drawing(SIZE.0, SIZE.1, &name, &content))
        }
    }
}

fn frame(nines: usize, share: &Scale, marks: &[f64], time: &Scale) -> Markup {
    html! {
        @for mark in marks {
            @let y = time.at(*mark);
            (line("grid", (LEFT, y), (RIGHT, y)))
            (text(LEFT - 5.0, y + 3.5, Anchor::End, &time_label(*mark)))
        }
        (line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM)))
        @for nine in 0..=nines {
            @let x = share.at(nine as f64);
            (line("grid", (x, TOP), (x, BOTTOM)))
            (text(x, BOTTOM + 15.0, Anchor::Middle, &percentile(nine)))
        }
        (text(RIGHT, BOTTOM + 33.0, Anchor::End, "% of requests took no longer"))
    }
}

/// The label of an axis for a power of ten of nanoseconds.
pub(super) fn time_label(nanos: f64) -> String {
    duration(Duration::from_nanos(nanos as u64)).replace(".0 ", " ").replace(".00 ", " ")
}

/// The percentile with this number of nines: `0`, `90`, `99`, `99.9`.
fn percentile(nines: usize) -> String {
    match nines {
        0 => "0".to_owned(),
        1 => "90".to_owned(),
        2 => "99".to_owned(),
        _ => format!("99.{}", "9".repeat(nines - 2)),
    }
}

/// Draws the curve up to the percentile that the number of requests supports, with a mark at each
/// nine.
fn drawn(curve: &LatencyCurve, share: &Scale, time: &Scale) -> Markup {
    let last = (curve.times.count() as f64).log10();
    let place = |nines: f64| {
        let found = curve.times.quantile(1.0 - 10_f64.powf(-nines)).unwrap_or_default();
        (share.at(nines), time.at(found.as_nanos() as f64))
    };
    let steps = (0..=POINTS).map(|it| place(last * it as f64 / POINTS as f64));
    let steps: Vec<(f64, f64)> = {
        let mut steps: Vec<_> = steps.collect();
        steps.dedup();
        steps
    };
    let kind = curve.member.kind;
    html! {
        polyline class={"k" (kind % plot::KINDS) " " (curve.class)} points=(points(steps)) {
            title { (curve.member.label) " " (curve.kind) }
        }
        @for nine in 1..=(last.floor() as usize) {
            @let (x, y) = place(nine as f64);
            (marker(kind, x, y))
        }
    }
}

/// Shows which colour and mark belong to which variant, and which line style belongs to which kind
/// of times.
fn legend(curves: &[LatencyCurve]) -> Markup {
    let mut kinds: Vec<&str> = curves.iter().map(|it| it.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut members: Vec<&Member> = curves.iter().map(|it| it.member).collect();
    members.dedup_by_key(|it| it.kind);
    let requests = |member: &Member| {
        let own = curves.iter().filter(|it| it.member.kind == member.kind);
        let counts = own.filter(|it| it.kind != "response").map(|it| it.times.count());
        format_count(counts.sum())
    };
    let lines = KINDS.iter().filter(|(kind, ..)| kinds.len() > 1 && kinds.contains(kind));
    html! {
        span class="legend" {
            @for member in members {
                span { (key(member.kind)) (member.label) span class="quiet screen" { " n = " (requests(member)) } }
            }
            @for (_, class, about) in lines {
                span {
                    svg width="22" height="10" viewBox="0 0 22 10" aria-hidden="true" { path class={"plain " (class)} d="M0 5H22" {} }
                    (about)
                }
            }
        }
    }
}

/// Draws a single mark, for a legend.
pub(super) fn key(kind: usize) -> Markup {
    html! { svg width="10" height="10" viewBox="0 0 10 10" aria-hidden="true" { (marker(kind, 5.0, 5.0)) } }
}
