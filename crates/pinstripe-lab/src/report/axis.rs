//! The axis under the bars of a group: round values from zero, and their unit.

use maud::{Markup, html};

use super::panel::Panel;
use super::plot::{Anchor, Scale, line, px, round, text, ticks};

/// The approximate number of steps of an axis.
const STEPS: usize = 3;
const HEIGHT: f64 = 17.0;

/// The last row of a group in a table with this number of columns; the third column has bars of up
/// to `length`. Empty if there are no bars.
pub(super) fn row(panel: &Panel, columns: usize, length: f64) -> Markup {
    let most = panel.most();
    let unit = &panel.members[0].variant.metric.unit;
    let scale = Scale::linear(0.0, most, (0.0, length - 2.0));
    let marks: Vec<f64> = ticks(most, STEPS).into_iter().filter(|it| *it <= most).collect();
    html! {
        @if most > 0.0 {
            tr class="scale" aria-hidden="true" {
                td {} td {}
                td class="bar" {
                    svg viewBox={"0 0 " (px(length)) " " (px(HEIGHT))} width=(px(length)) height=(px(HEIGHT)) {
                        (line("axis", (0.0, 1.0), (length, 1.0)))
                        @for (at, mark) in marks.iter().enumerate() {
                            @let x = scale.at(*mark);
                            @let side = if at == 0 { Anchor::Start } else if x > length - 14.0 { Anchor::End } else { Anchor::Middle };
                            (line("axis", (x.max(0.5), 1.0), (x.max(0.5), 4.0)))
                            (text(x, HEIGHT - 2.0, side, &round(*mark)))
                        }
                    }
                }
                td class="unit" colspan=(columns - 3) { (unit) }
            }
        }
    }
}
