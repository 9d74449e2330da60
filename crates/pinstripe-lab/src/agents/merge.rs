//! Merges the parts that several machines measured in one run into the run of all machines.
//!
//! Rates are added, as each machine measured them. Other values are those of the worst machine: a
//! time is that of the last machine to finish. The rate of all bytes from the first beginning to
//! the last end is reported as well, because a sum of rates is valid only while all machines are
//! working.
//!
//! This module reads no clock, and does not judge what machines measured.

use std::collections::BTreeMap;

use pinstripe_stats::Better;

use crate::guard::Disturbance;
use crate::result::{Measured, Metric, Note, Part, Run, Sample};

/// The greatest permitted difference between the beginnings of the machines, as a share of the
/// shortest part.
const APART: f64 = 0.1;

/// Whether values with this unit, or figures with this name, are added.
fn adds_up(unit: &str) -> bool {
    ["/s", "per_s", "bytes"].iter().any(|end| unit.ends_with(end))
}

/// Combines values in the way that their metric requires.
fn together(metric: &Metric, values: impl Iterator<Item = f64>) -> f64 {
    let worst: fn(f64, f64) -> f64 = match (adds_up(&metric.unit), metric.better) {
        (true, Better::Higher) => |a, b| a + b,
        (_, Better::Higher) => f64::min,
        (_, Better::Lower) => f64::max,
    };
    values.reduce(worst).unwrap_or(0.0)
}

/// Returns the merged run of all machines; `names` are the names of the machines. `doubt_s` is the
/// uncertainty of the times at which the parts began.
pub fn merged(metric: &Metric, parts: Vec<Part>, names: &[String], doubt_s: f64) -> Run {
    let runs: Vec<(&Part, &Run)> =
        parts.iter().filter_map(|part| Some((part, part.run.as_ref()?))).collect();
    let all = || runs.iter().map(|(_, run)| *run);
    let mut measured = Measured {
        value: together(metric, all().map(|it| it.measured.value)),
        figures: figures(all()),
        ..Measured::default()
    };
    for one in all().map(|it| &it.measured) {
        measured.operations = measured.operations.saturating_add(one.operations);
        measured.read_bytes = measured.read_bytes.saturating_add(one.read_bytes);
        measured.written_bytes = measured.written_bytes.saturating_add(one.written_bytes);
        for (kind, times) in &one.latency {
            measured.latency.entry(kind.clone()).or_default().merge(times);
        }
    }
    let span = WorkSpan::from_runs(&runs);
    let seconds = span.last_done_s;
    let bytes = measured.read_bytes.saturating_add(measured.written_bytes);
    if bytes > 0 && seconds > 0.0 {
        measured.figures.insert(Part::UNTIL_LAST.to_owned(), bytes as f64 / seconds / 1e6);
    }
    for (name, value) in [
        (Part::FIRST_DONE, span.first_done_s),
        (Part::LAST_DONE, span.last_done_s),
        (Part::BEGAN_APART, span.began_apart_s),
        (Part::BEGAN_DOUBT, doubt_s),
    ] {
        measured.figures.insert(name.to_owned(), value);
    }
    let mut notes: Vec<Note> = all().flat_map(|run| run.notes.clone()).collect();
    notes.sort_unstable();
    notes.dedup();
    let sum = |of: fn(&Run) -> Option<u64>| all().filter_map(of).reduce(u64::saturating_add);
    Run {
        order: 0,
        round: None,
        at_s: 0.0,
        seconds,
        measured,
        cpu_s: all().map(|run| run.cpu_s).sum(),
        device_read_bytes: sum(|run| run.device_read_bytes),
        device_written_bytes: sum(|run| run.device_written_bytes),
        samples: samples(&all().map(|run| &run.samples[..]).collect::<Vec<_>>()),
        notes,
        disturbances: disturbances(&parts, &span, names),
        parts,
    }
}

/// The time in which the machines were running, counted from the first beginning.
struct WorkSpan {
    began_apart_s: f64,
    first_done_s: f64,
    last_done_s: f64,
    shortest_s: f64,
}

impl WorkSpan {
    fn from_runs(runs: &[(&Part, &Run)]) -> WorkSpan {
        let least = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::min).unwrap_or(0.0);
        let most = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max).unwrap_or(0.0);
        let mut began = runs.iter().map(|(part, _)| part.began_s);
        let first = least(&mut began.clone());
        let mut done = runs.iter().map(|(part, run)| part.began_s + run.seconds - first);
        WorkSpan {
            began_apart_s: most(&mut began) - first,
            first_done_s: least(&mut done.clone()),
            last_done_s: most(&mut done),
            shortest_s: least(&mut runs.iter().map(|(_, run)| run.seconds)),
        }
    }
}

fn disturbances(parts: &[Part], span: &WorkSpan, names: &[String]) -> Vec<Disturbance> {
    let name = |part: &Part| names.get(part.host).map_or("?", |it| it.as_str());
    // Missing machines come first, because they decide the outcome.
    let mut ordered: Vec<&Part> = parts.iter().collect();
    ordered.sort_by_key(|part| part.run.is_some());
    let mut found = Vec::new();
    for part in ordered {
        match &part.run {
            None => found.push(Disturbance {
                kind: Part::HOST_LOST.to_owned(),
                what: format!(
                    "the connection to the host {} was lost, so this is the sum without that host",
                    name(part)
                ),
            }),
            Some(run) if !run.is_valid() => {
                found.extend(run.disturbances.iter().map(|it| Disturbance {
                    kind: it.kind.clone(),
                    what: format!("{}: {}", name(part), it.what),
                }));
            }
            Some(_) => {}
        }
    }
    if span.began_apart_s > APART * span.shortest_s {
        let what = format!(
            "the hosts did not start at the same time ({:.3} s apart), although the shortest part \
             of the run took only {:.3} s",
            span.began_apart_s, span.shortest_s
        );
        found.push(Disturbance { kind: Part::NOT_TOGETHER.to_owned(), what });
    }
    found
}

/// Figures that add up are added; of any other figure the largest value is kept.
fn figures<'a>(all: impl Iterator<Item = &'a Run>) -> BTreeMap<String, f64> {
    let mut together: BTreeMap<String, f64> = BTreeMap::new();
    for (name, value) in all.flat_map(|run| &run.measured.figures) {
        let entry = together.entry(name.clone());
        entry
            .and_modify(|it| *it = if adds_up(name) { *it + value } else { it.max(*value) })
            .or_insert(*value);
    }
    together
}

/// Merges the samples of all machines, at the times of the machine that has the fewest samples.
/// Each merged sample contains the last earlier sample of every other machine.
fn samples(all: &[&[Sample]]) -> Vec<Sample> {
    let Some((fewest, times)) = all.iter().enumerate().min_by_key(|(_, it)| it.len()) else {
        return Vec::new();
    };
    let others = || all.iter().enumerate().filter(|(at, _)| *at != fewest).map(|(_, it)| it);
    let at = |time: &Sample| {
        let until = others().filter_map(|it| it.iter().rev().find(|it| it.at_s <= time.at_s));
        until.fold(*time, |sum, one| {
            let most = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
            let sum_of =
                |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).reduce(u64::saturating_add);
            Sample {
                mb_per_s: sum.mb_per_s + one.mb_per_s,
                dirty_bytes: sum_of(sum.dirty_bytes, one.dirty_bytes),
                writeback_bytes: sum_of(sum.writeback_bytes, one.writeback_bytes),
                cpu_pressure: most(sum.cpu_pressure, one.cpu_pressure),
                io_pressure: most(sum.io_pressure, one.io_pressure),
                memory_pressure: most(sum.memory_pressure, one.memory_pressure),
                ..sum
            }
        })
    };
    times.iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::results;

    fn names() -> Vec<String> {
        ["a:1", "b:2", "c:3"].map(str::to_owned).into()
    }

    fn part(host: usize, began_s: f64, seconds: f64, value: f64) -> Part {
        let mut run = results(&[("x", &[value])]).variants[0].runs[0].clone();
        run.seconds = seconds;
        run.measured.figures.insert("accepted_mb_per_s".to_owned(), value * 2.0);
        Part { host, began_s, run: Some(run) }
    }

    #[test]
    fn rates_add_up_and_times_are_those_of_the_last() {
        let parts = || {
            vec![part(0, 0.01, 10.0, 100.0), part(1, 0.03, 12.0, 50.0), part(2, 0.02, 10.0, 25.0)]
        };
        let rate = merged(&Metric::throughput(), parts(), &names(), 0.002);
        assert_eq!(rate.measured.value, 175.0);
        assert_eq!((rate.measured.operations, rate.measured.written_bytes), (30, 3_000_000_000));
        assert_eq!(rate.measured.latency["write"].count(), 300);
        assert_eq!(rate.measured.figures["accepted_mb_per_s"], 350.0);
        assert_eq!(rate.measured.figures["sync_s"], 0.25);
        assert_eq!(
            (rate.cpu_s, rate.device_read_bytes, rate.device_written_bytes),
            (1.5, Some(0), None)
        );
        assert!(rate.disturbances.is_empty() && rate.is_valid(), "{:?}", rate.disturbances);
        let figure = |name: &str| (rate.measured.figures[name] * 1e6).round() / 1e6;
        assert_eq!(
            (figure(Part::BEGAN_APART), figure(Part::FIRST_DONE), figure(Part::LAST_DONE)),
            (0.02, 10.0, 12.02)
        );
        assert_eq!(
            (figure(Part::BEGAN_DOUBT), rate.seconds),
            (0.002, rate.measured.figures[Part::LAST_DONE])
        );
        // 3 GB in 12.02 s, which is more than the last one's end hides.
        assert!((rate.measured.figures[Part::UNTIL_LAST] - 3000.0 / 12.02).abs() < 1e-6);
        assert_eq!(rate.samples[0].mb_per_s, 175.0);
        assert_eq!(merged(&Metric::time(), parts(), &names(), 0.0).measured.value, 100.0);
        let kept =
            Metric { name: "kept".to_owned(), unit: "kept".to_owned(), better: Better::Higher };
        assert_eq!(merged(&kept, parts(), &names(), 0.0).measured.value, 25.0);
    }

    #[test]
    fn a_machine_that_was_lost_is_named_and_its_run_never_counts() {
        let lost = Part { host: 1, began_s: 0.0, run: None };
        let parts = vec![part(0, 0.0, 1.0, 100.0), lost, part(2, 0.0, 1.0, 25.0)];
        let mut run = merged(&Metric::throughput(), parts, &names(), 0.0);
        assert_eq!((run.measured.value, run.is_valid()), (125.0, false));
        assert_eq!(run.disturbances[0].kind, Part::HOST_LOST);
        assert!(run.disturbances[0].what.contains("b:2 was lost"), "{:?}", run.disturbances);
        run.accept_noise();
        assert!(!run.is_valid(), "a sum without one machine is no noise");
        let none = merged(
            &Metric::throughput(),
            vec![Part { host: 0, began_s: 0.0, run: None }],
            &names(),
            0.0,
        );
        assert_eq!((none.measured.value, none.seconds), (0.0, 0.0));
    }

    #[test]
    fn what_disturbed_one_machine_disturbed_the_run_and_so_does_a_late_beginning() {
        let mut disturbed = part(1, 0.0, 1.0, 50.0);
        let what = "the hypervisor took 9 % of the CPU time (steal)".to_owned();
        let found = Disturbance { kind: "steal".to_owned(), what };
        disturbed.run.as_mut().unwrap().disturbances.push(found);
        let parts = vec![part(0, 0.0, 1.0, 100.0), disturbed];
        let mut run = merged(&Metric::throughput(), parts, &names(), 0.0);
        assert_eq!(
            run.disturbances[0].what,
            "b:2: the hypervisor took 9 % of the CPU time (steal)"
        );
        assert!(!run.is_valid());
        run.accept_noise();
        assert!(run.is_valid() && run.parts[1].run.as_ref().unwrap().is_valid());
        let late = vec![part(0, 0.0, 1.0, 100.0), part(1, 0.2, 1.0, 50.0)];
        let run = merged(&Metric::throughput(), late, &names(), 0.0);
        assert_eq!(run.disturbances[0].kind, Part::NOT_TOGETHER);
    }
}
