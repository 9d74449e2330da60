//! Results as a page for people who look after disks: one HTML file that needs nothing else, says its
//! answer first, and can be read back.
//!
//! Shapes: [`page`] takes results and gives the text of the file, under [`MOST_BYTES`] whatever is in
//! them. The parts of the page, from its top: `verdict`, `advice`, `table`, `timeline`, `latency`,
//! `repeats`, `about`. Never here: a script, an address of anything outside, and a figure that the
//! results do not hold.

mod about;
mod advice;
mod latency;
mod panel;
mod plot;
mod repeats;
mod table;
mod timeline;
mod verdict;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::result::{Results, embed};

/// A page is smaller than this.
pub const MOST_BYTES: usize = 300_000;

/// More variants than these are printed smaller.
const FEW: usize = 8;

const STYLE: &str = include_str!("style.css");

/// A page of one or several results; without a title it has one that says what was measured where.
pub fn page(all: &[Results], title: Option<&str>) -> String {
    let title = title.map_or_else(|| heading(all), str::to_owned);
    let content = html! {
        header { h1 { (title) } (byline(all)) }
        @for results in all { (part(results, all.len() > 1)) }
    };
    let room = MOST_BYTES.saturating_sub(content.0.len() + STYLE.len() + title.len() + 1000);
    let (data, was_thinned) = embed(all, room);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (content)
                footer class="quiet" { (was_thinned.text()) }
                (PreEscaped(data))
            }
        }
    };
    page.into_string() + "\n"
}

/// `fileio on /srv`.
fn heading(all: &[Results]) -> String {
    let of = |results: &Results| {
        let places = &results.fingerprint.places;
        let places: Vec<&str> = places.iter().map(|it| it.path.as_str()).collect();
        match places.is_empty() {
            true => results.case.clone(),
            false => format!("{} on {}", results.case, places.join(" and ")),
        }
    };
    let mut names: Vec<String> = all.iter().map(of).collect();
    names.dedup();
    names.join("; ")
}

fn byline(all: &[Results]) -> Markup {
    let text = match all {
        [one] => {
            format!("pinstripe lab {}, {}", one.case, about::utc(one.started_seconds))
        }
        many => format!("pinstripe lab, {} results", many.len()),
    };
    html! { p class="quiet" { (text) } }
}

fn part(results: &Results, has_head: bool) -> Markup {
    let panels = panel::panels(results);
    html! {
        article class=[(results.variants.len() > FEW).then_some("many")] {
            @if has_head {
                h2 class="case" { (results.case) " " span class="quiet" { (about::utc(results.started_seconds)) } }
            }
            (verdict::show(results, &panels))
            (advice::show(results, &panels))
            (table::show(&panels))
            (timeline::show(&panels))
            (latency::show(&panels))
            (repeats::show(&panels))
            (about::notes(results))
            (about::fingerprint(results))
            (about::reproduce(results))
        }
    }
}

#[cfg(test)]
mod tests;
