//! The answer, at the top of the page: a sentence for each group of variants, with its uncertainty
//! and a status light.

use maud::{Markup, html};

use pinstripe_stats::{AS_GOOD, Basis, Finding, Interval};

use super::panel::{self, Member, Panel, level, number, range};
use crate::result::{Compared, Results, Run};
use crate::show::{basis_text, disturbances, mood_text};

/// If there are more sentences than this, they are shown smaller.
const MANY: usize = 4;
/// The most sentences that are printed.
const PAPER_SENTENCES: usize = 12;

/// The certainty of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// The difference is shown: the interval of the ratio does not contain 1.
    Green,
    /// The interval of the ratio contains 1, or the figure is misleading.
    Amber,
    /// No runs that count were made, or too few.
    Grey,
}

impl Status {
    /// Draws the light; each status has its own shape, so that the colour is not needed.
    pub(super) fn show(self) -> Markup {
        let (class, shape, word) = match self {
            Status::Green => ("green", "●", "clear"),
            Status::Amber => ("amber", "◐", "not clear"),
            Status::Grey => ("grey", "○", "not known"),
        };
        html! { span class={"light " (class)} role="img" aria-label=(word) title=(word) { (shape) } }
    }
}

/// A sentence of the answer.
pub(super) struct Sentence {
    pub(super) status: Status,
    /// The group that it is about; `None` if there is only one group.
    pub(super) about: Option<String>,
    pub(super) text: Markup,
    /// The anchor of the group's bars in the page.
    pub(super) anchor: Option<String>,
}

/// The sentences about one result.
pub(super) fn sentences(results: &Results, panels: &[Panel]) -> Vec<Sentence> {
    let compared = panels.iter().filter(|it| it.is_compared);
    let mut all: Vec<Sentence> = compared
        .map(|panel| {
            let about = (panels.len() > 1).then(|| panel.title.to_owned());
            let (status, text) = of_panel(results, panel);
            Sentence { status, about, text, anchor: Some(panel.anchor.clone()) }
        })
        .collect();
    let alone = panels.iter().filter(|it| !it.is_compared);
    let is_moody = results.disk_mood().is_some();
    let calm = |it: Sentence| match it.status {
        Status::Green if is_moody => Sentence { status: Status::Amber, ..it },
        _ => it,
    };
    all.extend(alone.flat_map(|panel| {
        let anchor = Some(panel.anchor.clone());
        panel.members.iter().map(move |it| Sentence { anchor: anchor.clone(), ..calm(of_one(it)) })
    }));
    all
}

/// The block at the top of the page.
pub(super) fn show(results: &Results, panels: &[Panel]) -> Markup {
    let counts = results.variants.iter().any(|it| it.runs.iter().any(Run::is_valid));
    let is_judged = || results.verdicts.iter().any(|it| it.verdict.finding != Finding::TooFewRuns);
    let all = match counts || is_judged() {
        true => sentences(results, panels),
        false => vec![of_nothing(results)],
    };
    html! {
        ul class={"verdict" (if all.len() > MANY { " much" } else { "" })} {
            @for (at, sentence) in all.iter().enumerate() {
                li class=[(at >= PAPER_SENTENCES).then_some("screen")] {
                    (sentence.status.show()) " "
                    span {
                        @if let Some(about) = &sentence.about { b { (about) ": " } }
                        (sentence.text)
                        @if let Some(anchor) = &sentence.anchor {
                            " " a class="jump" href={"#" (anchor)} { "bars" }
                        }
                    }
                }
            }
        }
        p class="quiet" {
            (basis(results))
            @if all.len() > PAPER_SENTENCES {
                span class="paper" { " " (all.len() - PAPER_SENTENCES) " more sentences are on the screen." }
            }
        }
    }
}

/// The sentence for a result without runs that count: it says only that, and names the most
/// frequent disturbance.
fn of_nothing(results: &Results) -> Sentence {
    let all: usize = results.variants.iter().map(|it| it.runs.len()).sum();
    let most = disturbances(results).into_iter().max_by_key(|(_, count)| *count);
    let text = html! {
        b { "No verdict is possible" } ": "
        @if all == 0 { "nothing was measured" } @else { "none of " (all) " runs counts" }
        @if let Some((what, count)) = most { "; the most frequent reason (" (count) " times) is: " (what) }
        ". Measure again when the machine is idle."
    };
    Sentence { status: Status::Grey, about: None, text, anchor: None }
}

/// How far the runs can be trusted.
fn basis(results: &Results) -> String {
    let runs = || results.variants.iter().flat_map(|it| &it.runs);
    let (all, valid) = (runs().count(), runs().filter(|run| run.is_valid()).count());
    let mut parts = Vec::new();
    if let Some(noise) = panel::noise(results) {
        let noise = noise * 100.0;
        let digits = usize::from(noise < 1.0);
        parts.push(format!(
            "The noise is {noise:.digits$} %: a typical run differs from the median of its variant \
             by this amount."
        ));
    }
    let accepted = runs().filter(|run| run.is_valid() && !run.disturbances.is_empty()).count();
    parts.push(match all - valid {
        0 if accepted > 0 => format!(
            "All {all} runs count, including {accepted} disturbed runs, because disturbed runs \
             were accepted."
        ),
        0 => format!("All {all} runs count."),
        disturbed if accepted > 0 => format!(
            "{valid} of {all} runs count, including {accepted} disturbed runs that were accepted; \
             {disturbed} {} not.",
            if disturbed == 1 { "does" } else { "do" }
        ),
        disturbed => format!(
            "{valid} of {all} runs count, because {disturbed} {} disturbed by other programs.",
            if disturbed == 1 { "was" } else { "were" }
        ),
    });
    // Rounds cancel it out; a figure by itself does not.
    parts.extend(mood_text(results).map(|it| format!("But {it}.")));
    if !results.is_complete {
        parts.push("The measurement was interrupted, so the results are incomplete.".to_owned());
    }
    parts.join(" ")
}

/// The sentence on one variant, for example `812 MB/s (95 % interval 790–830, n = 8)`; with few
/// runs `812 MB/s (min to max of 4, 88 %, 790–830, n = 4)`.
fn of_one(member: &Member) -> Sentence {
    /// An interval narrower than this on either side counts as clear; the lab tries to reach this
    /// width.
    const NARROW: f64 = 0.05;
    let unit = &member.variant.metric.unit;
    let count = member.variant.values().len();
    let (status, text) = match (member.value, member.interval) {
        (None, _) => (Status::Grey, html! { "no run counts." }),
        (Some(value), None) => (
            Status::Grey,
            html! { b { (number(value)) " " (unit) } " in one run; a single run is not enough for a verdict" },
        ),
        (Some(value), Some(interval)) => {
            let is_narrow = interval.is_full() && interval.half_width(value) <= NARROW;
            let (low, high) = (number(interval.low), number(interval.high));
            let seems = panel::seems(member.variant);
            let status = if is_narrow && seems.is_none() { Status::Green } else { Status::Amber };
            let text = html! {
                b { (number(value)) " " (unit) } " (" (interval_name(&interval, count)) " " (low) "–" (high) ", n = " (count) ")"
                @if let Some(seems) = seems { "; but " (seems) } "."
            };
            (status, text)
        }
    };
    Sentence { status, about: Some(member.label.to_owned()), text, anchor: None }
}

/// The comparisons of a panel's variants, by kind.
struct PanelComparisons<'a> {
    baseline: &'a Member<'a>,
    faster: Vec<&'a Compared>,
    slower: Vec<&'a Compared>,
    good: Vec<&'a Compared>,
    open: Vec<&'a Compared>,
    few: Vec<&'a Compared>,
}

fn find_comparisons<'a>(
    results: &'a Results,
    panel: &'a Panel<'a>,
) -> Option<PanelComparisons<'a>> {
    let verdicts = panel.verdicts(results);
    let of = |finding: Finding| -> Vec<&Compared> {
        verdicts.iter().filter(|it| it.verdict.finding == finding).copied().collect()
    };
    let is_baseline =
        |it: &&Member| verdicts.iter().any(|compared| compared.baseline == it.variant.name);
    Some(PanelComparisons {
        baseline: panel.members.iter().find(is_baseline).or(panel.members.first())?,
        faster: by_speed(of(Finding::Faster)),
        slower: by_speed(of(Finding::Slower)),
        good: of(Finding::AsGood),
        open: of(Finding::CannotTell),
        few: of(Finding::TooFewRuns),
    })
}

fn of_panel(results: &Results, panel: &Panel) -> (Status, Markup) {
    let Some(found) = find_comparisons(results, panel) else { return (Status::Grey, html! {}) };
    let PanelComparisons { baseline, faster, slower, good, open, few } = &found;
    let name = |it: &Compared| label(panel, &it.candidate).to_owned();
    let told = |it: &Compared| format!("{} {}", name(it), times(it));
    let (mut status, mut parts) = first_parts(panel, &found);
    parts.extend(listed("also faster: ", faster.get(1..).unwrap_or_default(), told));
    let rest = if faster.is_empty() { slower.get(1..).unwrap_or_default() } else { slower };
    parts.extend(listed("slower: ", rest, told));
    let with_doubt = |it: &Compared| format!("{} {}", name(it), interval_only(it.verdict.interval));
    parts.extend(match good.as_slice() {
        [one] => Some(html! { b { (name(one)) } " is as good as " b { (baseline.label) } " within " (as_good()) " " (doubt_of_none(one)) }),
        many => listed(&format!("as good as {} within {}: ", baseline.label, as_good()), many, with_doubt),
    });
    let is_nothing_shown = parts.is_empty();
    parts.extend(match open.as_slice() {
        [one] if is_nothing_shown => {
            Some(html! { "it is undecided which of " b { (name(one)) } " and " b { (baseline.label) } " is faster: " (doubt_of_none(one)) })
        }
        many => listed("cannot tell: ", many, with_doubt),
    });
    let is_noisy = |it: &&&Compared| it.verdict.basis == Basis::DisturbedRounds;
    let has_noise = [faster, slower, good].into_iter().flatten().any(|it| is_noisy(&it));
    let is_accepted = panel.members.iter().any(|it| it.variant.accepts_noise());
    if is_nothing_shown {
        status = if open.is_empty() { Status::Grey } else { Status::Amber };
    } else if has_noise {
        status = Status::Amber;
        parts.push(html! { "some rounds count although both variants were disturbed, because the disturbances were the same" });
    } else if is_accepted {
        status = Status::Amber;
        parts.push(html! { "disturbed runs are included, because they were accepted" });
    }
    parts.extend(listed("too few runs that count: ", few, name));
    (
        status,
        html! { @for (at, part) in parts.iter().enumerate() { @if at > 0 { "; " } (part) } "." },
    )
}

/// The winner with its qualifications, or the statement that there is no winner.
fn first_parts(panel: &Panel, found: &PanelComparisons) -> (Status, Vec<Markup>) {
    let name = |it: &Compared| label(panel, &it.candidate).to_owned();
    let baseline = found.baseline;
    let mut parts = Vec::new();
    let mut status = Status::Green;
    if let Some(first) = found.faster.first() {
        let winner = panel.members.iter().find(|it| it.variant.name == first.candidate);
        let caveat = winner.and_then(|it| panel::caveat(it.variant, baseline.variant));
        parts.push(html! { b { (name(first)) } " is " b { (times(first)) } " of " b { (baseline.label) } " " (doubt(first)) });
        if let Some(caveat) = caveat {
            status = Status::Amber;
            parts.push(html! { "but " (caveat) });
        }
    } else if let Some(nearest) = found.slower.first() {
        let is_all = found.good.is_empty() && found.open.is_empty() && found.few.is_empty();
        parts.push(html! {
            @if is_all { "no other variant is faster than " b { (baseline.label) } ": " }
            b { (name(nearest)) } " is " b { (times(nearest)) } " of " b { (baseline.label) } " " (doubt(nearest))
        });
    }
    (status, parts)
}

/// `3 %`.
pub(super) fn as_good() -> String {
    format!("{:.0} %", AS_GOOD * 100.0)
}

/// The name of an interval: `95 % interval`, or with few runs `min to max, 88 %,`.
fn interval_name(interval: &Interval, count: usize) -> String {
    match interval.is_full() {
        true => format!("{} interval", level()),
        false => format!("min to max of {count}, {},", interval.level_text()),
    }
}

/// A word followed by names; an empty text if there are no names. If there are many names, their
/// number is shown instead.
pub(super) fn listed(
    word: &str,
    all: &[&Compared],
    name: impl Fn(&Compared) -> String,
) -> Option<Markup> {
    const MOST: usize = 4;
    let names: Vec<String> = all.iter().take(MOST).map(|it| name(it)).collect();
    let more = all.len().saturating_sub(MOST);
    (!all.is_empty()).then(|| {
        html! { (word) (names.join(", ")) @if more > 0 { " and " (more) " more" } }
    })
}

fn by_speed(mut all: Vec<&Compared>) -> Vec<&Compared> {
    let speed = |it: &Compared| it.verdict.speed.unwrap_or(0.0);
    all.sort_by(|a, b| speed(b).total_cmp(&speed(a)));
    all
}

fn label<'a>(panel: &Panel<'a>, name: &'a str) -> &'a str {
    panel.members.iter().find(|it| it.variant.name == name).map_or(name, |it| it.label)
}

/// `1.31×`.
pub(super) fn times(compared: &Compared) -> String {
    compared.verdict.speed.map_or("?".to_owned(), |speed| format!("{speed:.2}×"))
}

/// The uncertainty of a comparison, for example `(95 % interval 1.22–1.40, 9 rounds)`.
pub(super) fn doubt(compared: &Compared) -> String {
    let level = |it: Interval| format!("{} interval {}, ", it.level_text(), range(it));
    let interval = compared.verdict.interval.map(level);
    format!("({}{})", interval.unwrap_or_default(), basis_text(&compared.verdict))
}

/// The uncertainty with the ratio itself, for a comparison in which neither variant is faster,
/// because the sentence has not shown the ratio before.
fn doubt_of_none(compared: &Compared) -> String {
    format!("{} {}", times(compared), doubt(compared))
}

fn interval_only(interval: Option<Interval>) -> String {
    interval.map(|it| format!("({})", range(it))).unwrap_or_default()
}
