//! Elements of figures: scales, ticks, marks. One unit of a drawing is a pixel at the drawing's
//! natural size.

use maud::{Markup, html};

/// The values of an axis and their positions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    /// The positions of `from` and `to`, in pixels.
    place: (f64, f64),
    is_log: bool,
}

impl Scale {
    /// Even steps.
    pub(super) fn linear(from: f64, to: f64, place: (f64, f64)) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Scale { from, to, place, is_log: false }
    }

    /// A logarithmic scale; both ends are greater than zero.
    pub(super) fn log(from: f64, to: f64, place: (f64, f64)) -> Self {
        let from = from.max(f64::MIN_POSITIVE);
        let to = if to > from { to } else { from * 10.0 };
        Scale { from, to, place, is_log: true }
    }

    /// The position of a value; a value beyond an end is placed at the end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let part = match self.is_log {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        let (low, high) = self.place;
        low + part.clamp(0.0, 1.0) * (high - low)
    }
}

/// Round values from 0 to at least `most`, in about `count` steps of 1, 2 or 5 times a power of
/// ten.
pub(super) fn ticks(most: f64, count: usize) -> Vec<f64> {
    if !(most > 0.0 && most.is_finite()) {
        return vec![0.0, 1.0];
    }
    let rough = most / count as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|it| it * power).find(|it| *it >= rough * 0.999);
    let step = step.unwrap_or(10.0 * power);
    let steps = (most / step * 0.999).ceil() as usize;
    (0..=steps).map(|it| it as f64 * step).collect()
}

/// Powers of ten from at most `low` to at least `high`.
pub(super) fn decades(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    (first..=last.max(first + 1)).map(|it| 10_f64.powi(it)).collect()
}

/// Formats a length in pixels, rounded to tenths.
pub(super) fn px(length: f64) -> String {
    let text = format!("{length:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Formats points for the attribute `points` of a polyline.
pub(super) fn points(all: impl IntoIterator<Item = (f64, f64)>) -> String {
    let all: Vec<String> = all.into_iter().map(|(x, y)| format!("{},{}", px(x), px(y))).collect();
    all.join(" ")
}

/// Formats the value of a tick, without unnecessary digits.
pub(super) fn round(value: f64) -> String {
    let text = match value.abs() {
        1000.0.. => pinstripe_base::units::format_count(value as u64),
        10.0.. => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// The number of shapes, and of colours.
pub(super) const KINDS: usize = 8;

/// A mark with the n-th shape and colour; either of them alone identifies the variant.
pub(super) fn marker(kind: usize, x: f64, y: f64) -> Markup {
    let corners = |all: &[(f64, f64)]| points(all.iter().map(|(dx, dy)| (x + dx, y + dy)));
    let class = format!("k{} mark", kind % KINDS);
    let shape: &[(f64, f64)] = match kind % KINDS {
        0 => return html! { circle class=(class) cx=(px(x)) cy=(px(y)) r="3" {} },
        1 => &[(-3.0, -3.0), (3.0, -3.0), (3.0, 3.0), (-3.0, 3.0)],
        2 => &[(0.0, -3.8), (3.6, 2.8), (-3.6, 2.8)],
        3 => &[(0.0, -4.0), (4.0, 0.0), (0.0, 4.0), (-4.0, 0.0)],
        4 => &[(0.0, 3.8), (3.6, -2.8), (-3.6, -2.8)],
        5 => &[(-4.0, -1.6), (4.0, -1.6), (4.0, 1.6), (-4.0, 1.6)],
        6 => &[(-1.6, -4.0), (1.6, -4.0), (1.6, 4.0), (-1.6, 4.0)],
        _ => &[(-3.5, -1.0), (0.0, -4.0), (3.5, -1.0), (2.2, 3.2), (-2.2, 3.2)],
    };
    html! { polygon class=(class) points=(corners(shape)) {} }
}

/// A cross for a value that does not count.
pub(super) fn cross(x: f64, y: f64) -> Markup {
    let (left, right, top, bottom) = (px(x - 3.0), px(x + 3.0), px(y - 3.0), px(y + 3.0));
    html! { path class="cross" d={"M" (left) " " (top) "L" (right) " " (bottom) "M" (left) " " (bottom) "L" (right) " " (top)} {} }
}

/// The alignment of a text relative to its position.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    /// It begins there.
    Start,
    /// The middle of the text is at the position.
    Middle,
    /// It ends there.
    End,
}

/// A text of a figure; `y` is its base line.
pub(super) fn text(x: f64, y: f64, anchor: Anchor, text: &str) -> Markup {
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    html! { text x=(px(x)) y=(px(y)) text-anchor=(anchor) { (text) } }
}

/// A straight line with a style class: `axis`, `grid`.
pub(super) fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Markup {
    html! { line class=(class) x1=(px(from.0)) y1=(px(from.1)) x2=(px(to.0)) y2=(px(to.1)) {} }
}

/// A drawing with a name for screen readers.
pub(super) fn drawing(width: f64, height: f64, name: &str, content: &Markup) -> Markup {
    html! {
        svg viewBox={"0 0 " (px(width)) " " (px(height))} width=(px(width)) height=(px(height)) role="img" aria-label=(name) {
            (content)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_over_the_largest_value() {
        assert_eq!(ticks(812.0, 3), [0.0, 500.0, 1000.0]);
        assert_eq!(ticks(100.0, 2), [0.0, 50.0, 100.0]);
        assert_eq!(ticks(6.0, 6), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(ticks(0.0, 3), [0.0, 1.0]);
        assert_eq!(ticks(f64::NAN, 3), [0.0, 1.0]);
        assert_eq!(decades(830.0, 41_000.0), [100.0, 1e3, 1e4, 1e5]);
        assert_eq!(decades(1.0, 1.0), [1.0, 10.0]);
    }

    #[test]
    fn values_stand_where_they_belong_and_never_outside() {
        let even = Scale::linear(0.0, 10.0, (100.0, 0.0));
        assert_eq!((even.at(0.0), even.at(2.5), even.at(99.0)), (100.0, 75.0, 0.0));
        let log = Scale::log(1.0, 100.0, (0.0, 10.0));
        assert!((log.at(10.0) - 5.0).abs() < 1e-9);
        assert_eq!((log.at(0.0), log.at(1e9)), (0.0, 10.0));
        assert_eq!(Scale::linear(3.0, 3.0, (0.0, 8.0)).at(3.0), 0.0);
    }

    #[test]
    fn numbers_have_no_idle_digits() {
        assert_eq!([px(3.0), px(3.25), px(0.04)], ["3", "3.2", "0"]);
        let round = [0.0, 0.5, 2.0, 50.0, 1500.0].map(round);
        assert_eq!(round, ["0", "0.5", "2", "50", "1,500"]);
    }
}
