//! Results as lines for people or as events.

use pinstripe_base::error::Result;
use pinstripe_lab::{
    Compared, Host, LabRun, OutputFormat, Results, Variant, command_alone, show_results,
};

use crate::escape;
use crate::event::Event;
use crate::run::Run;

/// Prints a line for people: on standard error if the form is data for programs.
pub fn remark(run: &Run, form: OutputFormat, line: &str) {
    match form {
        OutputFormat::Text | OutputFormat::Markdown => run.screen.say(line),
        _ => run.screen.remark(line.trim_start()),
    }
}

/// Prints results in a form, or as events.
///
/// # Errors
/// Fails when standard output cannot be written.
pub fn results(run: &Run, results: &Results, form: OutputFormat) -> Result<()> {
    for line in show_results(results, form).lines() {
        // Names of directories in it may have any bytes.
        run.screen.row(&escape::text(line))?;
    }
    for variant in &results.variants {
        run.screen.event(&of_variant(results, variant))?;
    }
    for (at, host) in results.hosts.iter().enumerate() {
        run.screen.event(&of_host(host))?;
        for variant in results.of_host(at).into_iter().flat_map(|own| own.variants) {
            run.screen.event(&of_part(host, &variant))?;
        }
    }
    results.verdicts.iter().try_for_each(|compared| run.screen.event(&of_verdict(compared)))
}

/// An event for one run.
pub fn of_run(variant: &Variant, run: &LabRun) -> Event {
    let notes: Vec<&str> = run.notes.iter().map(|note| note.text()).collect();
    let disturbances: Vec<&str> = run.disturbances.iter().map(|it| it.what.as_str()).collect();
    Event::new("lab_run")
        .with("variant", variant.name.as_str())
        .with("order", run.order)
        .with("value", run.measured.value)
        .with("unit", variant.metric.unit.as_str())
        .with("seconds", run.seconds)
        .with("is_valid", run.is_valid())
        .with("disturbances", disturbances)
        .with("notes", notes)
}

fn of_variant(results: &Results, variant: &Variant) -> Event {
    let interval = variant.interval();
    let notes: Vec<&str> = variant.notes().into_iter().map(|note| note.text()).collect();
    Event::new("lab_variant")
        .with("variant", variant.name.as_str())
        .with("group", variant.group.as_str())
        .with("value", variant.summary().map(|it| it.median))
        .with("low", interval.map(|it| it.low))
        .with("high", interval.map(|it| it.high))
        .with("level", interval.map(|it| it.level))
        .with_some("humps", variant.humps().map(|it| vec![it.low, it.high]))
        .with("unit", variant.metric.unit.as_str())
        .with("runs", variant.runs.len())
        .with("valid_runs", variant.values().len())
        .with("notes", notes)
        .with_some("command", command_alone(results, variant))
}

/// An event for one of several hosts.
fn of_host(host: &Host) -> Event {
    let clock = host.clock.as_ref();
    Event::new("lab_host")
        .with("host", host.address.as_str())
        .with("name", host.name.as_str())
        .with("clock_offset_s", clock.map(|it| it.offset_s))
        .with("clock_doubt_s", clock.map(|it| it.doubt_s))
        .with("round_trip_s", clock.map(|it| it.round_trip_s))
        .with("lost", host.lost.clone())
}

/// An event for the result of one host in one variant.
fn of_part(host: &Host, variant: &Variant) -> Event {
    let interval = variant.interval();
    Event::new("lab_part")
        .with("host", host.address.as_str())
        .with("variant", variant.name.as_str())
        .with("value", variant.summary().map(|it| it.median))
        .with("low", interval.map(|it| it.low))
        .with("high", interval.map(|it| it.high))
        .with("level", interval.map(|it| it.level))
        .with("unit", variant.metric.unit.as_str())
        .with("runs", variant.runs.len())
        .with("valid_runs", variant.values().len())
}

/// An event for one comparison.
pub fn of_verdict(compared: &Compared) -> Event {
    let verdict = &compared.verdict;
    Event::new("lab_verdict")
        .with("candidate", compared.candidate.as_str())
        .with("baseline", compared.baseline.as_str())
        .with_fields(&serde_json::json!({"finding": verdict.finding, "speed": verdict.speed, "basis": verdict.basis}))
        .with("low", verdict.interval.map(|it| it.low))
        .with("high", verdict.interval.map(|it| it.high))
        .with("level", verdict.interval.map(|it| it.level))
        .with("counted", vec![verdict.runs.0, verdict.runs.1])
        .with("p", verdict.p)
}

/// The facts for the summary event.
pub fn facts(results: &Results) -> Event {
    let runs = || results.variants.iter().flat_map(|variant| &variant.runs);
    Event::default()
        .with("case", results.case.as_str())
        .with("variants", results.variants.len())
        .with("runs", runs().count())
        .with("valid_runs", runs().filter(|run| run.is_valid()).count())
        .with("complete", results.is_complete)
        .with_some("hosts", (!results.hosts.is_empty()).then_some(results.hosts.len()))
}
