//! Throughput against latency for groups whose variants differ in load: what more load gains and
//! costs, and the best compromise.

use std::time::Duration;

use maud::{Markup, html};

use pinstripe_stats::{Better, knee};

use super::latency::time_label;
use super::panel::{Member, Panel, number};
use super::plot::{self, Anchor, Scale, decades, drawing, line, marker, px, round, text, ticks};
use crate::display::duration;
use crate::show::latency;

/// Settings that determine how many requests are made at the same time.
const LOADS: [&str; 4] = ["depth", "rate", "workers", "clients"];
/// The most figures of a page.
const MOST: usize = 4;
/// Width and height of a figure, and the left, right, top and bottom of its plot, in pixels.
const SIZE: (f64, f64) = (460.0, 224.0);
const LEFT: f64 = 52.0;
const RIGHT: f64 = 452.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 184.0;

/// The result of one load.
struct Point<'a> {
    member: &'a Member<'a>,
    load: &'a str,
    rate: f64,
    /// The interval of the rate.
    ends: (f64, f64),
    half: Duration,
    most: Duration,
}

/// A group of variants in the order of their load.
struct Curve<'a> {
    panel: &'a Panel<'a>,
    setting: &'a str,
    points: Vec<Point<'a>>,
}

/// A figure for each group whose variants differ in load.
pub(super) fn show(panels: &[Panel]) -> Markup {
    let all: Vec<Curve> = panels.iter().filter_map(curve).collect();
    html! {
        @if !all.is_empty() {
            section class=(if all.len() > 1 { "screen" } else { "detail" }) {
                h2 { "Throughput against latency" }
                p class="quiet" {
                    "Each point is a load, and its number is the value of the setting. Points further right have more throughput, and points further up have a longer latency. "
                    "The bar of a point is the interval of its throughput. "
                    "The ring marks the knee, the point where the curve of p50 bends most (Kneedle; Satopää and others, 2011). "
                    "A load beyond the knee adds little throughput and much latency."
                    @if all.len() > MOST { " Only the first groups are shown." }
                }
                div class="figures" { @for curve in all.iter().take(MOST) { (figure(curve)) } }
            }
        }
    }
}

/// Returns the curve of a group whose variants differ in load, if at least three of them have
/// throughput and latency.
fn curve<'a>(panel: &'a Panel<'a>) -> Option<Curve<'a>> {
    let metric = &panel.members[0].variant.metric;
    let is_rate = panel.is_compared && metric.better == Better::Higher;
    let setting = LOADS
        .into_iter()
        .find(|it| panel.members.iter().all(|member| load(member, it).is_some()) && is_rate)?;
    let point = |member: &'a Member<'a>| {
        let times = latency(member.variant)?;
        let (half, most) = (times.quantile(0.5)?, times.quantile(0.99)?);
        let (_, load) = load(member, setting)?;
        let rate = member.value?;
        let ends = member.interval.map_or((rate, rate), |it| (it.low, it.high));
        Some(Point { member, load, rate, ends, half, most })
    };
    let mut members: Vec<&Member> = panel.members.iter().collect();
    let size = |it: &Member| load(it, setting).map_or(0.0, |(size, _)| size);
    members.sort_by(|a, b| size(a).total_cmp(&size(b)));
    let points: Vec<Point> = members.into_iter().filter_map(point).collect();
    (points.len() >= 3).then_some(Curve { panel, setting, points })
}

/// The load of a variant, as a number and as it is typed.
fn load<'a>(member: &Member<'a>, setting: &str) -> Option<(f64, &'a str)> {
    let found = member.variant.parameters.iter().find(|it| it.name == setting)?;
    Some((found.value.parse().ok()?, &found.value))
}

fn figure(curve: &Curve) -> Markup {
    let Curve { panel, setting, points } = curve;
    let nanos = |time: Duration| (time.as_nanos() as f64).max(1.0);
    let bargain: Vec<(f64, f64)> = points.iter().map(|it| (it.rate, nanos(it.half))).collect();
    let knee = knee(&bargain);
    let most = points.iter().map(|it| it.ends.1).fold(0.0, f64::max);
    let steps = ticks(most, 4);
    let rate = Scale::linear(0.0, *steps.last().unwrap_or(&1.0), (LEFT, RIGHT - 14.0));
    let low = points.iter().map(|it| nanos(it.half)).fold(f64::MAX, f64::min);
    let high = points.iter().map(|it| nanos(it.most)).fold(1.0, f64::max);
    let marks = decades(low, high);
    let time = Scale::log(marks[0], marks[marks.len() - 1], (BOTTOM, TOP));
    let at = |point: &Point, latency: Duration| (rate.at(point.rate), time.at(nanos(latency)));
    let content = html! {
        (frame(&steps, &rate, &marks, &time, &panel.members[0].variant.metric.unit))
        polyline class="k0 line" points=(plot::points(points.iter().map(|it| at(it, it.half)))) {}
        polyline class="k1 line dashed" points=(plot::points(points.iter().map(|it| at(it, it.most)))) {}
        @for (number, point) in points.iter().enumerate() {
            @let (x, y) = at(point, point.half);
            @let above = at(point, point.most);
            (line("whisker", (rate.at(point.ends.0), y), (rate.at(point.ends.1), y)))
            (marker(0, x, y)) (marker(1, above.0, above.1))
            (text(above.0, above.1 - 7.0, Anchor::Middle, point.load))
            @if knee == Some(number) { circle class="knee" cx=(px(x)) cy=(px(y)) r="7" {} }
        }
    };
    let name = format!("Throughput against latency of {}, by {setting}", panel.title);
    html! {
        figure {
            figcaption {
                a class="back" href={"#" (panel.anchor)} { b { (panel.title) } } " "
                span class="legend" {
                    span { (super::latency::key(0)) "p50" } span { (super::latency::key(1)) "p99" } span { "numbers: " (setting) }
                }
                @if let Some(knee) = knee { br; span class="quiet" { (bought(curve, knee)) } }
            }
            (drawing(SIZE.0, SIZE.1, &name, &content))
        }
    }
}

/// The smallest load whose throughput does not differ significantly from the throughput at the
/// knee.
fn not_told_apart<'a>(points: &[Point<'a>], knee: usize) -> Option<&'a str> {
    let is_same = |it: &&Point| {
        let verdict = points[knee].member.variant.against(it.member.variant);
        !verdict.is_different()
    };
    points[..knee].iter().find(is_same).map(|it| it.load)
}

/// Compares the variant at the knee with the load that has the highest throughput.
fn bought(curve: &Curve, knee: usize) -> String {
    let Curve { points, setting, panel } = curve;
    let unit = &panel.members[0].variant.metric.unit;
    let at = &points[knee];
    let most = points.iter().reduce(|a, b| if b.rate > a.rate { b } else { a }).unwrap_or(at);
    let here = format!(
        "Knee at {setting} {}: {} {unit}, p99 {}",
        at.load,
        number(at.rate),
        duration(at.most)
    );
    let same = not_told_apart(points, knee);
    let here = same.map_or(here.clone(), |load| {
        format!("{here}, which cannot be distinguished from {setting} {load}")
    });
    match most.rate > at.rate {
        true => format!(
            "{here}; the highest throughput is {} {unit} at {setting} {}, p99 {}.",
            number(most.rate),
            most.load,
            duration(most.most)
        ),
        false => format!("{here}; no other load has a higher throughput."),
    }
}

fn frame(steps: &[f64], rate: &Scale, marks: &[f64], time: &Scale, unit: &str) -> Markup {
    html! {
        @for mark in marks {
            @let y = time.at(*mark);
            (line("grid", (LEFT, y), (RIGHT, y)))
            (text(LEFT - 5.0, y + 3.5, Anchor::End, &time_label(*mark)))
        }
        @for step in steps {
            @let x = rate.at(*step);
            (line("grid", (x, TOP), (x, BOTTOM)))
            (text(x, BOTTOM + 15.0, Anchor::Middle, &round(*step)))
        }
        (line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM)))
        (text(RIGHT, BOTTOM + 33.0, Anchor::End, unit))
    }
}
