//! Results as a page for people who administer disks: one HTML file that needs no other files,
//! begins with its answer, and can be read back.
//!
//! [`page`] takes results and earlier measurements, and returns the text of the file, which is
//! below [`MOST_BYTES`] whatever it contains. The parts of the page from the top: `across` if there
//! are several results, then for each result `verdict`, `advice`, `table`, `own`, `timeline`,
//! `latency`, `load`, `repeats`, `history`, `about`. The page contains no external addresses, no
//! figures that are not in the results, and nothing that requires a script; its only script adds
//! buttons that copy commands.
//!
//! Paper: two sheets. Elements that are not printed have the class `screen`, or `detail` if that
//! depends on the number of variants; the printed page then says so.

mod about;
mod across;
mod advice;
mod axis;
mod history;
mod latency;
mod load;
mod own;
mod panel;
mod plot;
mod repeats;
mod table;
mod timeline;
mod verdict;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::result::{Entry, Results, embed, history_of};

/// The upper limit of a page's size in bytes.
pub const MOST_BYTES: usize = 300_000;
/// The upper limit of the page without its embedded data; the rest of the space is for the data.
const MOST_CONTENT: usize = 240_000;

/// If there are more variants than this, they are printed smaller and without their single runs.
const FEW: usize = 8;
/// If there are more variants than this and several results, figures are not printed.
const MANY: usize = 16;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("copy.js");

/// The seed of the search for changes in the history: the same seed shows the same changes.
const SEED: u64 = 1;

/// How much of each result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResultDetail {
    All,
    /// No figures, and no tables of the case.
    NoFigures,
    /// With several results, only the comparison with the first.
    Across,
}

/// Returns a page of one or several results, with the history of earlier measurements; the default
/// title says what was measured where.
pub fn page(all: &[Results], title: Option<&str>, history: &[Entry]) -> String {
    page_of_files(all, &[], title, history)
}

/// Returns a page of results that came from files; `files` has one name for each result, or is
/// empty.
pub fn page_of_files(
    all: &[Results],
    files: &[String],
    title: Option<&str>,
    history: &[Entry],
) -> String {
    let title = title.map_or_else(|| heading(all), str::to_owned);
    let (content, detail) = fitting(all, files, &title, history);
    let around = STYLE.len() + SCRIPT.len() + title.len() + 2000;
    let room = MOST_BYTES.saturating_sub(content.0.len() + around);
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
            body class=[(all.len() > 1).then_some("several")] {
                a class="skip" href="#results" { "Skip to the results" }
                (content)
                footer class="quiet" {
                    span class="paper" { "On screen, this page is complete; in print, it shows only what fits on two sheets. " }
                    @if let Some(left_out) = detail.left_out() { (left_out) " " }
                    (was_thinned.text())
                }
                (PreEscaped(data))
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string() + "\n"
}

impl ResultDetail {
    fn left_out(self) -> Option<&'static str> {
        match self {
            ResultDetail::All => None,
            ResultDetail::NoFigures => Some("To keep this page small, its diagrams were left out."),
            ResultDetail::Across => Some(
                "To keep this page small, the sections about individual results were left out. To \
                 see these sections, make a page of fewer results.",
            ),
        }
    }
}

/// Returns the page with as much detail as fits.
fn fitting(
    all: &[Results],
    files: &[String],
    title: &str,
    history: &[Entry],
) -> (Markup, ResultDetail) {
    let content = |detail: ResultDetail| {
        html! {
            header { h1 { (title) } (byline(all, files)) }
            main id="results" {
                @if all.len() > 1 {
                    (across::show(all, history))
                }
                @if detail != ResultDetail::Across {
                    @for (at, results) in all.iter().enumerate() {
                        (part(results, (all.len() > 1).then_some(at), history, detail))
                    }
                }
            }
        }
    };
    let least = if all.len() > 1 { ResultDetail::Across } else { ResultDetail::NoFigures };
    let fits = |it: &(Markup, ResultDetail)| it.0.0.len() <= MOST_CONTENT;
    let more = [ResultDetail::All, ResultDetail::NoFigures].into_iter();
    let found = more.map(|detail| (content(detail), detail)).find(fits);
    found.unwrap_or_else(|| (content(least), least))
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
    let mut names: Vec<String> = Vec::new();
    for name in all.iter().map(of) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join("; ")
}

/// The names of the files, and the times of measurement.
fn byline(all: &[Results], files: &[String]) -> Markup {
    /// The most file names; more would push the answer too far down.
    const MOST: usize = 12;
    let file = |at: usize| files.get(at).filter(|it| !it.is_empty());
    match all {
        [one] => html! {
            p class="quiet" {
                "pinstripe lab " (one.case) ", " (about::utc_to_seconds(one.started_seconds))
                @if let Some(file) = file(0) { ", from " (file) }
            }
        },
        many => html! {
            p class="quiet" { "pinstripe lab, " (many.len()) " results; each is compared with A" }
            dl class="which" {
                @for (at, results) in many.iter().take(MOST).enumerate() {
                    dt { (across::letter(at)) }
                    dd {
                        @if let Some(file) = file(at) { b { (file) } ": " }
                        (results.case) ", " (about::utc_to_seconds(results.started_seconds))
                    }
                }
            }
            @if many.len() > MOST { p class="quiet" { (many.len() - MOST) " more results are shown below." } }
        },
    }
}

/// The part of the page for one result, with its number if there are several results.
fn part(results: &Results, at: Option<usize>, history: &[Entry], detail: ResultDetail) -> Markup {
    let panels = panel::panels(results, at.map(across::letter).as_deref());
    let class = match results.variants.len() {
        few if few <= FEW => None,
        many if many <= MANY => Some("many"),
        _ => Some("many most"),
    };
    let earlier = history_of(results, history, history::MOST_TIMES, SEED);
    html! {
        article class=[class] {
            @if let Some(at) = at {
                h2 class="case" {
                    (across::letter(at)) ": " (results.case) " " span class="quiet" { (about::utc_to_seconds(results.started_seconds)) }
                }
            }
            (verdict::show(results, &panels))
            (advice::show(results, &panels))
            (table::show(&panels))
            @if detail == ResultDetail::All {
                (own::show(results))
                (timeline::show(&panels))
                (latency::show(&panels))
                (load::show(&panels))
                (repeats::show(&panels))
                (history::show(&earlier))
            }
            (about::notes(results))
            (about::fingerprint(results))
            (about::reproduce(results))
        }
    }
}

#[cfg(test)]
mod tests;
