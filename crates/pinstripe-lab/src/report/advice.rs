//! The recommended settings and their reasons: only settings that a verdict supports.

use maud::{Markup, html};

use pinstripe_stats::Finding;

use super::panel::{self, Member, Panel, range};
use super::verdict::{as_good, times};
use crate::advice::{Advice, advise};
use crate::knobs::{Knob, knobs};
use crate::result::{Compared, Results, Variant};
use crate::show::{basis_text, chance};

/// The most settings that are printed.
const PAPER_SETTINGS: usize = 12;

/// A paragraph for each group whose variants were compared; groups with too few runs share one
/// paragraph.
pub(super) fn show(results: &Results, panels: &[Panel]) -> Markup {
    let advised = advise(results);
    let advice_of = |panel: &Panel| advised.iter().find(|it| it.question == panel.title);
    let is_choice = |it: &&Panel| it.is_compared && !panel::is_check(it);
    let is_told = |it: &&Panel| advice_of(it).is_some() || it.is_judged(results);
    let compared = panels.iter().filter(is_choice);
    let (told, few): (Vec<&Panel>, Vec<&Panel>) = compared.partition(is_told);
    html! {
        @if !told.is_empty() || !few.is_empty() {
            section class="advice" {
                h2 { "Recommended settings" }
                dl {
                    @for (at, panel) in told.iter().enumerate() {
                        @let class = (at >= PAPER_SETTINGS).then_some("screen");
                        @if told.len() > 1 { dt class=[class] { (panel.title) } }
                        dd class=[class] {
                            @match advice_of(panel) {
                                Some(advice) => (of_setting(advice)),
                                None => (of_panel(results, panel)),
                            }
                        }
                    }
                }
                @if !few.is_empty() { (of_few(&few, told.is_empty())) }
            }
        }
    }
}

fn of_few(few: &[&Panel], is_all: bool) -> Markup {
    let titles: Vec<&str> = few.iter().map(|it| it.title).collect();
    html! {
        p {
            "Too few runs count" @if !is_all { " for: " (titles.join("; ")) } ". Measure again when the machine is idle, "
            "for a longer time with " code { "--time" } ", or with a larger " code { "--runs" } "."
        }
    }
}

/// A setting that is recommended by the advice module, if the variants differ in only one setting.
fn of_setting(advice: &Advice) -> Markup {
    let act = if advice.is_usual { "Keep" } else { "Use" };
    let typed = |it: Knob| format!("pinstripe {} --{}={}", it.verb, it.option, it.value);
    let typed: Vec<String> = knobs(std::slice::from_ref(advice)).into_iter().map(typed).collect();
    html! {
        @if advice.is_decided {
            (act) " " code { (advice.setting) " " (advice.value) } ". "
        } @else {
            "This is undecided: no value was found to be better than " code { (advice.setting) " " (advice.value) } ", but this value was not found to be as good as all others. "
        }
        @if !typed.is_empty() { "Here: " @for (at, line) in typed.iter().enumerate() { @if at > 0 { ", " } code class="typed" { (line) } } ". " }
        span class="quiet" { "Evidence: " (advice.evidence) "." }
    }
}

fn of_panel(results: &Results, panel: &Panel) -> Markup {
    let verdicts = panel.verdicts(results);
    let is_baseline =
        |it: &&Member| verdicts.iter().any(|compared| compared.baseline == it.variant.name);
    let baseline = panel.members.iter().find(is_baseline).unwrap_or(&panel.members[0]);
    let speed = |it: &Compared| it.verdict.speed.unwrap_or(0.0);
    let mut faster: Vec<(&Compared, &Member)> = verdicts
        .iter()
        .filter(|it| it.verdict.finding == Finding::Faster)
        .filter_map(|it| {
            Some((*it, panel.members.iter().find(|member| member.variant.name == it.candidate)?))
        })
        .collect();
    faster.sort_by(|a, b| speed(b.0).total_cmp(&speed(a.0)));
    let caveat = |member: &Member| panel::caveat(member.variant, baseline.variant);
    let sound = faster.iter().find(|(_, member)| caveat(member).is_none());
    let is = |finding: Finding| verdicts.iter().any(|it| it.verdict.finding == finding);
    let other = panel.members.iter().find(|it| !std::ptr::eq(*it, baseline)).unwrap_or(baseline);
    match (sound, faster.first()) {
        (Some((compared, winner)), _) => use_it(panel, compared, winner, baseline),
        (None, Some((compared, winner))) => html! {
            "Keep " (setting(baseline.variant, winner.variant)) ". " b { (winner.label) } " is faster ("
            (compared.verdict.speed.map_or(String::new(), |it| format!("{it:.2}×"))) ") because "
            (caveat(winner).unwrap_or_default()) ", so the two settings cannot be compared directly."
        },
        _ if is(Finding::CannotTell) => html! {
            "No difference was found: keep the present setting. " span class="quiet" { (not_seen(&verdicts)) }
        },
        _ if is(Finding::AsGood) => html! {
            "Keep the present setting: all measured settings are as good within " (as_good()) @if is(Finding::Slower) { ", or slower" } "."
        },
        _ if is(Finding::Slower) => html! {
            "Keep " (setting(baseline.variant, other.variant)) ": no other measured setting is as fast."
        },
        _ => html! { "Too few runs count." },
    }
}

fn use_it(panel: &Panel, compared: &Compared, winner: &Member, baseline: &Member) -> Markup {
    let verdict = &compared.verdict;
    let chance = verdict.p.map(|p| format!(", {}", chance(p)));
    let interval =
        verdict.interval.map(|it| format!(" ({} interval {})", it.level_text(), range(it)));
    let as_good: Vec<&str> = panel
        .members
        .iter()
        .filter(|it| !std::ptr::eq(*it, winner) && !std::ptr::eq(*it, baseline))
        .filter(|it| is_as_good(it, winner))
        .map(|it| it.label)
        .collect();
    html! {
        "Use " (setting(winner.variant, baseline.variant)) ". "
        span class="quiet" {
            "Evidence: " (times(compared)) (interval.unwrap_or_default()) " by " (basis_text(verdict)) (chance.unwrap_or_default())
            "."
            @if !as_good.is_empty() { " As good within " (super::verdict::as_good()) ": " (as_good.join(", ")) "." }
        }
    }
}

/// Whether a variant is shown to be as good as the winner, and has no caveat.
fn is_as_good(member: &Member, winner: &Member) -> bool {
    let verdict = member.variant.against(winner.variant);
    verdict.finding == Finding::AsGood && panel::caveat(member.variant, winner.variant).is_none()
}

/// How large a difference can be that the measurement did not detect.
fn not_seen(verdicts: &[&Compared]) -> String {
    let open = verdicts.iter().filter(|it| it.verdict.finding == Finding::CannotTell);
    let intervals = open.filter_map(|it| it.verdict.interval);
    let far = intervals.map(|it| (it.high - 1.0).max(1.0 - it.low)).fold(0.0, f64::max);
    // The decimal that sentences have: without it the figure would be another than theirs.
    format!("A difference of up to {:.1} % is still possible.", far * 100.0)
}

/// The settings in which a variant differs from another one; its name if the settings are equal.
fn setting(variant: &Variant, other: &Variant) -> Markup {
    let differs = |name: &str, value: &str| {
        !other.parameters.iter().any(|it| it.name == name && it.value == value)
    };
    let own: Vec<_> = variant.parameters.iter().filter(|it| differs(&it.name, &it.value)).collect();
    html! {
        @if own.is_empty() { b { (panel::label(variant)) } }
        @for (at, parameter) in own.iter().enumerate() {
            @if at > 0 { ", " }
            code { (parameter.name) " " (parameter.value) }
        }
    }
}
