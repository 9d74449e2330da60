//! CSV for spreadsheets, one line for each run (RFC 4180).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::result::{Results, Run, Variant};
use crate::table::Table;

use super::tables::better;

const HEAD: &str = "case,variant,group,order,at_s,seconds,metric,unit,better,value,valid,disturbances,notes,\
    operations,read_bytes,written_bytes,device_read_bytes,device_written_bytes,cpu_s,\
    read_p50_ns,read_p99_ns,read_p999_ns,read_max_ns,\
    write_p50_ns,write_p99_ns,write_p999_ns,write_max_ns,\
    sync_p50_ns,sync_p99_ns,sync_p999_ns,sync_max_ns";

/// A heading, then one line for each run.
pub fn csv(results: &Results) -> String {
    let all = || {
        results.variants.iter().flat_map(|it| &it.runs).flat_map(|it| it.measured.figures.keys())
    };
    let figures: BTreeSet<&String> = all().collect();
    let names: String = figures.iter().map(|name| format!(",{}", quoted(name))).collect();
    let mut text = format!("{HEAD}{names}\n");
    for variant in &results.variants {
        for run in &variant.runs {
            let mut cells = cells(results, variant, run);
            let figure = |name: &&String| run.measured.figures.get(*name).map(f64::to_string);
            cells.extend(figures.iter().map(|name| figure(name).unwrap_or_default()));
            text.push_str(&cells.iter().map(|it| quoted(it)).collect::<Vec<_>>().join(","));
            text.push('\n');
        }
    }
    text
}

/// Formats a table with its title before each of its lines; figures are plain numbers.
pub(super) fn of_table(table: &Table) -> String {
    let json = table.to_json();
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let columns: Vec<String> =
        json["columns"].as_array().into_iter().flatten().map(plain).collect();
    let line = |title: &str, cells: &mut dyn Iterator<Item = String>| {
        let cells: Vec<String> = cells.map(|cell| format!(",{}", quoted(&cell))).collect();
        format!("{}{}\n", quoted(title), cells.concat())
    };
    let mut text = line("table", &mut columns.iter().cloned());
    for row in json["rows"].as_array().into_iter().flatten() {
        text += &line(table.title(), &mut columns.iter().map(|column| plain(&row[column])));
    }
    text
}

fn cells(results: &Results, variant: &Variant, run: &Run) -> Vec<String> {
    let some = |value: Option<u64>| value.map(|it| it.to_string()).unwrap_or_default();
    let kinds: Vec<&str> = run.disturbances.iter().map(|it| it.kind.as_str()).collect();
    let notes: Vec<&str> = run.notes.iter().map(|note| note.text()).collect();
    let mut cells = vec![
        results.case.clone(),
        variant.name.clone(),
        variant.group.clone(),
        run.order.to_string(),
        run.at_s.to_string(),
        run.seconds.to_string(),
        variant.metric.name.clone(),
        variant.metric.unit.clone(),
        better(variant).to_owned(),
        run.measured.value.to_string(),
        run.is_valid().to_string(),
        kinds.join(" "),
        notes.join("; "),
        run.measured.operations.to_string(),
        run.measured.read_bytes.to_string(),
        run.measured.written_bytes.to_string(),
        some(run.device_read_bytes),
        some(run.device_written_bytes),
        run.cpu_s.to_string(),
    ];
    for kind in ["read", "write", "sync"] {
        let times = run.measured.latency.get(kind);
        for q in [0.5, 0.99, 0.999, 1.0] {
            let time =
                times.and_then(|times| if q < 1.0 { times.quantile(q) } else { times.max() });
            cells.push(time.map(|it| it.as_nanos().to_string()).unwrap_or_default());
        }
    }
    cells
}

fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}
