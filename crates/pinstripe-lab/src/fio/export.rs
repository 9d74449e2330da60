//! Exports lab results in the format of fio's JSON, for programs that read that format.

use pinstripe_base::units::KIB;
use serde_json::{Map, Value, json};

use crate::histogram::Histogram;
use crate::result::{Results, Run, Variant};

/// The percentiles that fio shows by default.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// Returns a document as `fio --output-format=json+` prints it: one job for each run that counts.
pub fn export(results: &Results) -> Value {
    let jobs = |variant: &Variant| {
        let runs = variant.runs.iter().filter(|run| run.is_valid());
        runs.map(|run| job(results, variant, run)).collect::<Vec<_>>()
    };
    json!({
        "fio version": format!("fio-shaped by {}", results.program),
        "timestamp": results.started_seconds,
        "timestamp_ms": results.started_seconds * 1000,
        "jobs": results.variants.iter().flat_map(jobs).collect::<Vec<_>>(),
    })
}

fn job(results: &Results, variant: &Variant, run: &Run) -> Value {
    let parameters = results.parameters.iter().chain(&variant.parameters);
    let options: Map<String, Value> =
        parameters.map(|it| (it.name.clone(), it.value.as_str().into())).collect();
    let percent = run.cpu_s / run.seconds.max(1e-9) * 100.0;
    json!({
        "jobname": variant.name,
        "groupid": 0,
        "error": 0,
        "eta": 0,
        "elapsed": run.seconds.ceil(),
        "job options": options,
        "read": side(run, run.measured.read_bytes, run.measured.latency.get("read")),
        "write": side(run, run.measured.written_bytes, run.measured.latency.get("write")),
        "trim": side(run, 0, None),
        "sync": json!({
            "total_ios": run.measured.latency.get("sync").map_or(0, Histogram::count),
            "lat_ns": times(run.measured.latency.get("sync")),
        }),
        "job_runtime": (run.seconds * 1e3) as u64,
        "usr_cpu": percent,
        "sys_cpu": 0.0,
    })
}

/// One direction. If a run has both reads and writes, each direction gets its share of the value.
fn side(run: &Run, bytes: u64, latency: Option<&Histogram>) -> Value {
    let all = (run.measured.read_bytes + run.measured.written_bytes).max(1) as f64;
    let rate = run.measured.value * 1e6 * bytes as f64 / all;
    let seconds = if rate > 0.0 { bytes as f64 / rate } else { 0.0 };
    let operations = latency.map_or(0, Histogram::count);
    let runtime = if bytes > 0 { (seconds * 1e3) as u64 } else { 0 };
    json!({
        "io_bytes": bytes,
        "io_kbytes": bytes / KIB,
        "bw_bytes": rate as u64,
        "bw": rate as u64 / KIB,
        "iops": if seconds > 0.0 { operations as f64 / seconds } else { 0.0 },
        "runtime": runtime,
        "total_ios": operations,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": times(None),
        "clat_ns": times(latency),
        "lat_ns": times(latency),
    })
}

fn times(latency: Option<&Histogram>) -> Value {
    let Some(latency) = latency.filter(|it| !it.is_empty()) else {
        return json!({"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0});
    };
    let nanos = |time: Option<std::time::Duration>| time.map_or(0, |time| time.as_nanos() as u64);
    let percentile = |percent: &f64| {
        (format!("{percent:.6}"), Value::from(nanos(latency.quantile(percent / 100.0))))
    };
    let percentiles: Map<String, Value> = PERCENTILES.iter().map(percentile).collect();
    let bins: Map<String, Value> =
        latency.buckets().map(|(nanos, count)| (nanos.to_string(), count.into())).collect();
    json!({
        "min": nanos(latency.min()),
        "max": nanos(latency.max()),
        "mean": nanos(latency.mean()) as f64,
        "stddev": nanos(latency.deviation()) as f64,
        "N": latency.count(),
        "percentile": percentiles,
        "bins": bins,
    })
}
