//! Earlier measurements: a line for each variant over time, with the points where its value changed
//! permanently and what else changed there.

use maud::{Markup, html};

use super::about::utc;
use super::panel::{number, range};
use super::plot::{Anchor, Scale, drawing, line, points, px, text};
use crate::result::{Change, Entry, Series};

/// The most rows of the figure.
const MOST: usize = 24;
/// The most recent measurements that a row shows.
pub(super) const MOST_TIMES: usize = 120;
/// The most differences in the text of one change.
const MOST_DIFFERENCES: usize = 6;
/// Width and height of a row, and the margin of its line, in pixels.
const WIDTH: f64 = 640.0;
const ROW: f64 = 40.0;
const MARGIN: f64 = 8.0;

/// A row for each variant that was measured before.
pub(super) fn show(history: &[Series]) -> Markup {
    let known: Vec<&Series> = history.iter().filter(|it| it.entries.len() > 1).collect();
    let more = known.len().saturating_sub(MOST);
    html! {
        @if !known.is_empty() {
            section class="screen" {
                h2 { "History" }
                p class="quiet" {
                    "These are executions of the same case with the same settings in the same place; the last one is this execution. "
                    "The line shows the median, and the band shows its 95 % interval; each row is scaled from its lowest to its highest value. "
                    "A bar with a number marks a lasting change (found by the method e-divisive, with at least three executions on either side)."
                    @if more > 0 { " " (more) " more variants are shown by " code { "pinstripe lab history" } "." }
                }
                div class="runs" { @for series in known.iter().take(MOST) { (row(series)) } }
            }
        }
    }
}

fn row(series: &Series) -> Markup {
    let entries = &series.entries;
    let metric = &series.entries[0].metric;
    let (variant, last) = (&series.entries[0].variant, &entries[entries.len() - 1]);
    let about = format!(
        "measured {} times since {}",
        series.entries.len(),
        utc(series.entries[0].started_seconds).split(' ').next().unwrap_or_default()
    );
    html! {
        div class="name" { (variant) br; span class="quiet" { (about) } }
        (drawing(WIDTH, ROW, &format!("History of {variant}: {about}"), &drawn(series)))
        div class="value quiet" { (number(last.value)) " " (metric.unit) }
        @for (number, change) in series.changes.iter().enumerate() {
            div class="told" { b { (number + 1) } " " (describe(series, change)) }
        }
    }
}

/// Draws band, line, dots and changes of a series.
fn drawn(series: &Series) -> Markup {
    let Series { entries, changes } = series;
    let ends = entries.iter().flat_map(|it| [Some(it.value), it.low, it.high]).flatten();
    let (low, high) =
        ends.fold((f64::MAX, f64::MIN), |(low, high), it| (low.min(it), high.max(it)));
    // What hardly changed is not to look as if it did.
    let room = ((high + low) / 2.0 * 0.05 - (high - low) / 2.0).max(0.0);
    let value = Scale::linear(low - room, high + room, (ROW - 5.0, 5.0));
    let time = Scale::linear(0.0, (entries.len() - 1) as f64, (MARGIN, WIDTH - MARGIN));
    let x = |at: usize| time.at(at as f64);
    let along = |of: fn(&Entry) -> f64| {
        let all = entries.iter().enumerate();
        all.map(|(at, it)| (x(at), value.at(of(it)))).collect::<Vec<_>>()
    };
    let mut band = along(|it| it.high.unwrap_or(it.value));
    band.extend(along(|it| it.low.unwrap_or(it.value)).into_iter().rev());
    html! {
        polygon class="band" points=(points(band)) {}
        @for (number, change) in changes.iter().enumerate() {
            @let between = (x(change.at) + x(change.at - 1)) / 2.0;
            (line("change", (between, 2.0), (between, ROW - 2.0)))
            (text(between + 4.0, 11.0, Anchor::Start, &(number + 1).to_string()))
        }
        polyline class="k0 line" points=(points(along(|it| it.value))) {}
        @for (at, entry) in entries.iter().enumerate() {
            circle class="k0 mark" cx=(px(x(at))) cy=(px(value.at(entry.value))) r=(if at + 1 == entries.len() { "3.5" } else { "2" }) {
                title { (utc(entry.started_seconds)) ": " (number(entry.value)) " " (entry.metric.unit) }
            }
        }
    }
}

/// Describes the size of a change, and what else changed with it.
fn describe(series: &Series, change: &Change) -> Markup {
    let verdict = &change.verdict;
    let when = utc(series.entries[change.at].started_seconds);
    let interval =
        verdict.interval.map(|it| format!(", {} interval {}", it.level_text(), range(it)));
    let (after, before) = verdict.runs;
    let more = change.differences.len().saturating_sub(MOST_DIFFERENCES);
    let known: Vec<&str> =
        change.differences.iter().take(MOST_DIFFERENCES).map(String::as_str).collect();
    html! {
        "since " (when) ": " b { (verdict.speed.map_or("?".to_owned(), |it| format!("{it:.2}×"))) } " of before ("
        (before) " and " (after) " executions" (interval.unwrap_or_default()) "). "
        @if known.is_empty() { "No other change is known for the same time." }
        @else { "Other changes at the same time: " (known.join("; ")) @if more > 0 { " and " (more) " more" } "." }
    }
}
