//! Shows several results: each is compared with the first one, then shown separately.
//!
//! Two executions are two samples, however many runs they have, so their comparison is an estimate
//! and never a verdict. `lab compare` judges several executions of each side.

use maud::{Markup, html};

use pinstripe_stats::Finding;

use super::about::utc;
use super::panel::{self, level, number, range};
use super::verdict::{Status, doubt, listed, times};
use crate::result::{Compared, Comparison, Counting, Entry, Results, Variant, compare};
use crate::show::{finding_text, marked, shown_runs, why_estimate};

/// The most rows and columns of the table, and the most rows that are printed.
const MOST_ROWS: usize = 100;
const MOST_COLUMNS: usize = 5;
const PAPER_ROWS: usize = 28;
/// The most further differences that are listed.
const MOST_DIFFERENCES: usize = 12;

/// One result compared with the first one.
struct Against<'a> {
    name: String,
    results: &'a Results,
    found: Comparison,
}

/// The letter of one of several results: `A`, `B`.
pub(super) fn letter(at: usize) -> String {
    match u8::try_from(at).ok().filter(|at| *at < 26) {
        Some(at) => char::from(b'A' + at).to_string(),
        None => format!("no. {}", at + 1),
    }
}

/// Shows verdicts, other differences, and a table of everything that two or more results measured.
pub(super) fn show(all: &[Results], history: &[Entry]) -> Markup {
    let Some((first, others)) = all.split_first() else { return html! {} };
    let others: Vec<Against> = others
        .iter()
        .enumerate()
        .map(|(at, results)| Against {
            name: letter(at + 1),
            results,
            found: compare(first, results, history),
        })
        .collect();
    // If both measured nothing in common, everything differs.
    let shared: Vec<&Against> = others.iter().filter(|it| !it.found.verdicts.is_empty()).collect();
    html! {
        section class="across" {
            ul class="verdict" { @for other in others.iter().take(MOST_ROWS) { (sentence(first, other)) } }
            p class="quiet" {
                "Each result is compared with result A, separately for each variant. " @for (at, results) in all.iter().take(MOST_ROWS).enumerate() {
                    b { (letter(at)) } ": " (results.case) ", " (utc(results.started_seconds)) ". "
                }
            }
            @for other in shared.iter().take(MOST_COLUMNS) { (differences(other)) }
            (table(first, &shared))
        }
    }
}

fn sentence(first: &Results, other: &Against) -> Markup {
    let verdicts = &other.found.verdicts;
    let of = |finding: Finding| -> Vec<&Compared> {
        let found = verdicts.iter().filter(|it| it.verdict.finding == finding);
        let mut found: Vec<&Compared> = found.collect();
        let far = |it: &Compared| it.verdict.speed.map_or(0.0, |it| it.ln().abs());
        found.sort_by(|a, b| far(b).total_cmp(&far(a)));
        found
    };
    let told = |it: &Compared| format!("{} {} {}", it.candidate, times(it), doubt(it));
    let (estimates, few) = (of(Finding::Estimate), of(Finding::TooFewRuns));
    let all = verdicts.len();
    let why = estimates.first().map(|it| why_estimate(&it.verdict));
    let parts: Vec<Markup> = [
        listed("estimates only: ", &estimates, told),
        (!few.is_empty())
            .then(|| html! { b { "too few runs that count" } " in " (few.len()) " of " (all) }),
    ]
    .into_iter()
    .flatten()
    .collect();
    let caveat = estimates.iter().find_map(|it| {
        let (now, before) = (other.results.variant(&it.candidate)?, first.variant(&it.candidate)?);
        let why = panel::caveat(now, before).or_else(|| panel::caveat(before, now))?;
        Some(format!("for {}, in one of the two results, {why}", it.candidate))
    });
    let status = if estimates.is_empty() { Status::Grey } else { Status::Amber };
    html! {
        li {
            (status.show()) " "
            span {
                b { (other.name) } " against " b { "A" } ": "
                @if parts.is_empty() { "no variant is in both results" }
                @for (at, part) in parts.iter().enumerate() { @if at > 0 { "; " } (part) }
                @if let Some(why) = why { "; " (why) }
                @if let Some(caveat) = &caveat { "; but " (caveat) }
                "."
            }
        }
    }
}

fn differences(other: &Against) -> Markup {
    let all = &other.found.differences;
    let shown: Vec<&str> = all.iter().take(MOST_DIFFERENCES).map(String::as_str).collect();
    let more = all.len().saturating_sub(MOST_DIFFERENCES);
    let unmatched = &other.found.unmatched;
    html! {
        @if !all.is_empty() || !unmatched.is_empty() {
            p class="quiet" {
                @if !all.is_empty() {
                    "Other differences in " (other.name) " ('before' is A): " (shown.join("; "))
                    @if more > 0 { " and " (more) " more" } ". "
                }
                @if !unmatched.is_empty() { (unmatched.len()) " variants exist in only one of the two results." }
            }
        }
    }
}

/// A table with a row for each variant of the first result that another result has.
fn table(first: &Results, others: &[&Against]) -> Markup {
    let is_shared = |it: &&Variant| {
        others
            .iter()
            .any(|other| other.found.verdicts.iter().any(|found| found.candidate == it.name))
    };
    let rows: Vec<&Variant> = first.variants.iter().filter(is_shared).collect();
    let shown = &others[..others.len().min(MOST_COLUMNS)];
    html! {
        @if !rows.is_empty() {
            h2 { "Side by side" }
            div class="wide" {
                table class="own" {
                    caption class="unseen" { "The values of each variant in A and in the other results, with the speed relative to A" }
                    thead { tr {
                        th class="left" scope="col" { "variant" } th scope="col" { "A" }
                        @for other in shown {
                            th scope="col" { (other.name) } th scope="col" { (other.name) " of A" }
                        }
                    } }
                    tbody {
                        @for (at, variant) in rows.iter().take(MOST_ROWS).enumerate() {
                            tr class=[(at >= PAPER_ROWS).then_some("screen")] { (cells(variant, shown)) }
                        }
                    }
                }
            }
            p class="quiet" {
                "The values are medians of the runs that count; a value is in brackets if no run counts. "
                "The columns 'of A' show the speed relative to A, with the " (level()) " interval if the spread between earlier executions is known. "
                "One execution of each result does not give a verdict: "
                code { "lab compare A... -- B..." } " compares three or more executions of each."
                @if rows.len() > MOST_ROWS { " " (rows.len() - MOST_ROWS) " more variants are in the data." }
                @if others.len() > MOST_COLUMNS { " " (others.len() - MOST_COLUMNS) " more results have no column." }
            }
        }
    }
}

fn cells(variant: &Variant, others: &[&Against]) -> Markup {
    let median = |it: Option<&Variant>| {
        let counting = it.map(shown_runs).unwrap_or(Counting::Quiet);
        let value = it.and_then(|it| pinstripe_stats::median(&counting.values(it)));
        value.map_or("–".to_owned(), |it| marked(number(it), counting))
    };
    html! {
        td class="left" { (variant.name) " " span class="quiet" { (variant.metric.unit) } }
        td { (median(Some(variant))) }
        @for other in others {
            @let found = other.found.verdicts.iter().find(|it| it.candidate == variant.name);
            td { (median(found.and_then(|_| other.results.variant(&variant.name)))) }
            td { @if let Some(found) = found { (ratio(found)) } @else { "–" } }
        }
    }
}

/// `1.31× (1.22–1.40) faster`.
fn ratio(found: &Compared) -> Markup {
    let class = match found.verdict.finding {
        Finding::Faster => "green",
        Finding::Slower => "bad",
        _ => "quiet",
    };
    let word = finding_text(found.verdict.finding);
    html! {
        @if found.verdict.speed.is_some() { b { (times(found)) } }
        @if let Some(interval) = found.verdict.interval { " " span class="quiet" { "(" (range(interval)) ")" } }
        " " span class=(class) { (word) }
    }
}
