//! Imports results of fio as lab results.

use std::collections::BTreeMap;

use pinstripe_base::error::{Error, Kind, Result};
use serde_json::Value;

use super::text;
use crate::fingerprint::Fingerprint;
use crate::histogram::Histogram;
use crate::machine::Machine;
use crate::result::{FORMAT, Measured, Metric, Note, Parameter, Results, Run, VERSION, Variant};

/// Reads several outputs of fio with `--output-format=json` or `json+`. Jobs with the same name
/// become the runs of one variant, in the order of the texts.
///
/// # Errors
/// [`Kind::Corrupt`] if a text is not an output of fio.
pub fn import(texts: &[&str]) -> Result<Results> {
    let mut results = empty();
    for text in texts {
        let document = text::document(text)?;
        let version = document["fio version"].as_str().ok_or_else(|| {
            Error::new(
                Kind::Corrupt,
                "the file is JSON, but it is not a result of fio, because it has no key 'fio \
                 version'",
            )
        })?;
        results.program = version.to_owned();
        let time = document["timestamp"].as_i64().unwrap_or(0);
        if results.started_seconds == 0 {
            results.started_seconds = time;
        }
        let jobs = document["jobs"].as_array().or(document["client_stats"].as_array());
        let jobs =
            jobs.ok_or_else(|| Error::new(Kind::Corrupt, "the file contains no fio jobs"))?;
        let at_s = (time - results.started_seconds) as f64;
        jobs.iter().for_each(|job| add(&mut results, job, &document["global options"], at_s));
    }
    if results.variants.is_empty() {
        return Err(Error::new(
            Kind::Corrupt,
            "the file contains no fio job that transferred data",
        ));
    }
    results.judge();
    Ok(results)
}

fn empty() -> Results {
    Results {
        format: FORMAT.to_owned(),
        version: VERSION,
        program: String::new(),
        case: "fio".to_owned(),
        command: Vec::new(),
        parameters: Vec::new(),
        seed: 1,
        started_seconds: 0,
        elapsed_s: 0.0,
        is_complete: true,
        hosts: Vec::new(),
        fingerprint: Fingerprint {
            host: None,
            machine: Machine::unknown(),
            governor: None,
            page_cache: BTreeMap::new(),
            places: Vec::new(),
        },
        variants: Vec::new(),
        verdicts: Vec::new(),
        notes: vec![
            "the results were imported from fio, so disturbances were not monitored".to_owned(),
        ],
    }
}

/// Adds a run for each direction in which a job transferred data.
fn add(results: &mut Results, job: &Value, global: &Value, at_s: f64) {
    let name = job["jobname"].as_str().unwrap_or("job");
    // fio's own sum over clients.
    if name == "All clients" {
        return;
    }
    for direction in ["read", "write", "trim"] {
        let side = &job[direction];
        let operations = side["total_ios"].as_u64().unwrap_or(0);
        if operations == 0 {
            continue;
        }
        let name = format!("{name} {direction}");
        let order = results.variants.iter().map(|it| it.runs.len() as u64).sum();
        let run = Run { order, at_s, ..run(job, direction, side) };
        results.elapsed_s = results.elapsed_s.max(at_s + run.seconds);
        match results.variants.iter_mut().find(|it| it.name == name) {
            Some(variant) => variant.runs.push(run),
            None => results.variants.push(Variant {
                group: name.clone(),
                name,
                about: format!("the {direction} requests of a fio job"),
                parameters: parameters(global, &job["job options"]),
                metric: Metric::throughput(),
                runs: vec![run],
            }),
        }
    }
}

fn parameters(global: &Value, own: &Value) -> Vec<Parameter> {
    let of = |options: &Value| options.as_object().cloned().unwrap_or_default();
    let mut all = of(global);
    all.extend(of(own));
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    all.iter().map(|(name, value)| Parameter::new(name, text(value))).collect()
}

fn run(job: &Value, direction: &str, side: &Value) -> Run {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let bytes = side["io_bytes"].as_u64().unwrap_or(0);
    let seconds = number(&side["runtime"]) / 1e3;
    // Version 2 of fio counts in KiB, and times in microseconds.
    let rate = side["bw_bytes"].as_f64().unwrap_or(number(&side["bw"]) * 1024.0);
    let share = (number(&job["usr_cpu"]) + number(&job["sys_cpu"])) / 100.0;
    let mut latency = BTreeMap::new();
    for (kind, times) in [
        (direction, histogram(side, side["total_ios"].as_u64().unwrap_or(0))),
        ("sync", histogram(&job["sync"], job["sync"]["total_ios"].as_u64().unwrap_or(0))),
    ] {
        latency.extend(times.map(|times| (kind.to_owned(), times)));
    }
    Run {
        order: 0,
        round: None,
        at_s: 0.0,
        seconds,
        measured: Measured {
            value: rate / 1e6,
            operations: side["total_ios"].as_u64().unwrap_or(0),
            read_bytes: if direction == "read" { bytes } else { 0 },
            written_bytes: if direction == "write" { bytes } else { 0 },
            latency,
            figures: BTreeMap::from([("requests_per_s".to_owned(), number(&side["iops"]))]),
        },
        cpu_s: share * number(&job["job_runtime"]) / 1e3,
        device_read_bytes: None,
        device_written_bytes: None,
        samples: Vec::new(),
        notes: vec![Note::OtherProgram],
        disturbances: Vec::new(),
        parts: Vec::new(),
    }
}

/// Reads the times from buckets (json+), or from percentiles, between which the distribution is
/// unknown.
pub(super) fn histogram(side: &Value, operations: u64) -> Option<Histogram> {
    let times = ["clat_ns", "lat_ns"].iter().map(|name| &side[*name]);
    let times = times.into_iter().find(|it| it["N"].as_u64().is_some_and(|count| count > 0))?;
    let mut histogram = Histogram::default();
    let count = times["N"].as_u64().unwrap_or(operations);
    if let Some(bins) = times["bins"].as_object() {
        for (nanos, count) in bins {
            histogram.record_many(nanos.parse().ok()?, count.as_u64()?);
        }
        return Some(histogram);
    }
    let mut percentiles: Vec<(f64, u64)> = times["percentile"]
        .as_object()?
        .iter()
        .filter_map(|(percent, nanos)| Some((percent.parse().ok()?, nanos.as_u64()?)))
        .collect();
    percentiles.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut counted = 0;
    for (percent, nanos) in percentiles {
        // As fio counts them: the first request with which at least this part is done. A whole number
        // may come out a little above itself.
        let so_far = ((percent / 100.0 * count as f64 - 1e-6).ceil() as u64).min(count);
        histogram.record_many(nanos, so_far.saturating_sub(counted));
        counted = counted.max(so_far);
    }
    histogram.record_many(times["max"].as_u64()?, count.saturating_sub(counted));
    Some(histogram)
}
