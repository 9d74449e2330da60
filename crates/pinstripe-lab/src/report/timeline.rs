//! The course of a run: throughput, and below it the state of the kernel at the same time, which
//! shows the cause of a stall.

use maud::{Markup, html};

use super::panel::{Member, Panel};
use super::plot::{self, Anchor, Scale, drawing, line, px, round, text, ticks};
use crate::result::{Run, Sample};

/// The most figures of a page.
const MOST: usize = 4;
/// The most figures that are printed; the style sheet hides the others on paper.
const FEW: usize = 2;
/// The smallest number of samples that is drawn.
const FEWEST: usize = 4;
/// The most steps of a line; more could not be distinguished.
const STEPS: usize = 160;
/// Width of a figure, and the ends of its axes, in pixels.
const WIDTH: f64 = 460.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 452.0;
/// Top and bottom of a lane, in pixels.
const RATE: (f64, f64) = (20.0, 96.0);
const DIRTY: (f64, f64) = (118.0, 150.0);
const WAITING: (f64, f64) = (172.0, 198.0);
const HEIGHT: f64 = 216.0;

/// Shows for each variant the run with the longest standstill; the variants with the longest
/// standstills come first.
pub(super) fn show(panels: &[Panel]) -> Markup {
    let members = panels.iter().flat_map(|panel| panel.members.iter().map(move |it| (panel, it)));
    let mut all: Vec<(&Panel, &Member, &Run)> =
        members.filter_map(|(panel, member)| Some((panel, member, worst(member)?))).collect();
    all.sort_by(|a, b| standstill(&b.2.samples).total_cmp(&standstill(&a.2.samples)));
    html! {
        @if !all.is_empty() {
            section class="detail" {
                h2 { "Over time" }
                p class="quiet" {
                    "For each variant, the run with the longest stalls is shown. "
                    "The top shows bytes per second, and the middle shows the bytes in memory that were not yet written. "
                    "The bottom shows the share of the time in which any program waited for a disk."
                    @if all.len() > FEW { " Only the worst runs are shown." }
                }
                div class="figures" {
                    @for (panel, member, run) in all.iter().take(MOST) { (figure(panel, member, run)) }
                }
            }
        }
    }
}

/// The valid run with the longest standstill; the first of several equal ones.
fn worst<'a>(member: &Member<'a>) -> Option<&'a Run> {
    let runs = member.variant.runs.iter().filter(|run| run.is_valid());
    let known = runs.filter(|run| run.samples.len() >= FEWEST);
    known.reduce(
        |worst, run| {
            if standstill(&run.samples) > standstill(&worst.samples) { run } else { worst }
        },
    )
}

/// The seconds in which less than a tenth of the usual amount was moved.
fn standstill(samples: &[Sample]) -> f64 {
    let rates: Vec<f64> = samples.iter().map(|it| it.mb_per_s).collect();
    let usual = pinstripe_stats::median(&rates).unwrap_or(0.0);
    spans(samples)
        .filter(|(_, sample)| sample.mb_per_s < usual / 10.0)
        .map(|(from, sample)| sample.at_s - from)
        .sum()
}

/// Each sample with the second in which it began.
fn spans(samples: &[Sample]) -> impl Iterator<Item = (f64, &Sample)> {
    let begins = std::iter::once(0.0).chain(samples.iter().map(|it| it.at_s));
    begins.zip(samples)
}

fn figure(panel: &Panel, member: &Member, run: &Run) -> Markup {
    let end = run.samples.last().map_or(1.0, |it| it.at_s);
    let seconds = Scale::linear(0.0, end, (LEFT, RIGHT));
    let still = standstill(&run.samples);
    let samples = Sample::coarser(&run.samples, STEPS);
    let name = panel.name(member);
    let about = match still > 0.0 {
        true => format!("stalled for {still:.1} s of {end:.1} s"),
        false => "no stall".to_owned(),
    };
    let content = html! {
        (rate(&samples, member.kind, &seconds))
        (dirty(&samples, &seconds))
        (waiting(&samples, &seconds))
        (time_axis(end, &seconds))
    };
    html! {
        figure {
            figcaption { b { (name) } " " span class="quiet" { "run " (run.order + 1) ", " (about) } }
            (drawing(WIDTH, HEIGHT, &format!("{name} over time: {about}"), &content))
        }
    }
}

/// A lane's title, its axis from zero, and the scale of its values.
fn lane(title: &str, most: f64, count: usize, (top, bottom): (f64, f64)) -> (Markup, Scale) {
    let marks = ticks(most, count);
    let scale = Scale::linear(0.0, *marks.last().unwrap_or(&1.0), (bottom, top));
    let frame = html! {
        (text(LEFT, top - 7.0, Anchor::Start, title))
        @for mark in &marks {
            @let y = scale.at(*mark);
            (line(if *mark == 0.0 { "axis" } else { "grid" }, (LEFT, y), (RIGHT, y)))
            (text(LEFT - 5.0, y + 3.5, Anchor::End, &round(*mark)))
        }
    };
    (frame, scale)
}

fn rate(samples: &[Sample], kind: usize, seconds: &Scale) -> Markup {
    let most = samples.iter().map(|it| it.mb_per_s).fold(0.0, f64::max);
    let (frame, scale) = lane("MB/s", most, 3, RATE);
    html! { (frame) path class={"k" (kind % plot::KINDS) " line"} d=(steps(samples, seconds, &scale, None, |it| Some(it.mb_per_s))) {} }
}

/// Bytes written to the page cache but not yet to the disk, and bytes that are being written to the
/// disk.
fn dirty(samples: &[Sample], seconds: &Scale) -> Markup {
    let mb = |bytes: Option<u64>| bytes.map(|it| it as f64 / 1e6);
    let waits = |it: &Sample| mb(it.dirty_bytes);
    let goes = |it: &Sample| mb(it.writeback_bytes);
    let most = samples.iter().flat_map(|it| [waits(it), goes(it)]).flatten().fold(0.0, f64::max);
    let (frame, scale) =
        lane("unwritten data in MB: dirty (area) and being written (line)", most, 2, DIRTY);
    html! {
        (frame)
        path class="dirty" d=(steps(samples, seconds, &scale, Some(scale.at(0.0)), waits)) {}
        path class="writeback" d=(steps(samples, seconds, &scale, None, goes)) {}
    }
}

/// Pressure: the share of the time in which any process waited.
fn waiting(samples: &[Sample], seconds: &Scale) -> Markup {
    let (frame, scale) = lane("time with a task waiting for a disk, in % (PSI)", 100.0, 2, WAITING);
    let share = |it: &Sample| it.io_pressure.map(|it| it * 100.0);
    html! {
        (frame)
        path class="waiting" d=(steps(samples, seconds, &scale, Some(scale.at(0.0)), share)) {}
    }
}

/// A step line as the attribute `d` of a path; with `ground`, both ends of the line are joined to
/// the ground.
fn steps(
    samples: &[Sample],
    seconds: &Scale,
    scale: &Scale,
    ground: Option<f64>,
    value: impl Fn(&Sample) -> Option<f64>,
) -> String {
    let mut path = String::new();
    for (from, sample) in spans(samples) {
        let Some(value) = value(sample) else { continue };
        let (x, y) = (px(seconds.at(from)), px(scale.at(value)));
        if path.is_empty() {
            path += &format!("M{x} {}", ground.map_or_else(|| y.clone(), px));
        }
        path += &format!("V{y}H{}", px(seconds.at(sample.at_s)));
    }
    match ground.filter(|_| !path.is_empty()) {
        Some(ground) => format!("{path}V{}", px(ground)),
        None => path,
    }
}

fn time_axis(end: f64, seconds: &Scale) -> Markup {
    let marks: Vec<f64> = ticks(end, 6).into_iter().filter(|it| *it <= end).collect();
    html! {
        @for (at, mark) in marks.iter().enumerate() {
            @let unit = if at + 1 == marks.len() { " s" } else { "" };
            (text(seconds.at(*mark), WAITING.1 + 14.0, Anchor::Middle, &format!("{}{unit}", round(*mark))))
        }
    }
}
