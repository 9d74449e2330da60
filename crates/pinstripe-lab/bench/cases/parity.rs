//! The parity kernels: reads what `cargo bench -p pinstripe-kernel` left, and makes one table.
//!
//! Criterion measures; this only collects, so the figures here and criterion's own are the same.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::pairs;
use crate::Result;
use crate::table::{Align, Cell, Table};

/// The purpose of the case, and its arguments.
pub const ABOUT: &str = "collects criterion's results of the kernels: --criterion DIR";

/// Makes the table from criterion's directory.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let found = pairs(args, &["--criterion"])?;
    let folder = found.first().map_or("target/criterion", |(_, folder)| folder);
    let mut results = Vec::new();
    collect(Path::new(folder), &mut results)?;
    if results.is_empty() {
        let advice = "run cargo bench -p pinstripe-kernel first";
        return Err(format!("no criterion results in {folder}: {advice}"));
    }
    results.sort_by(|a, b| a.name.cmp(&b.name));
    let note = "Medians by criterion, one core; GB/s are 10^9 bytes of data, parity not counted.";
    let columns = [("kernel", Align::Left), ("bytes", Align::Right), ("GB/s", Align::Right)];
    let mut table = Table::new("Kernels", note, &columns);
    for result in results {
        let rate = result.bytes as f64 / result.median_ns;
        table.row([result.name.into(), result.bytes.into(), Cell::Number(rate, 1)]);
    }
    Ok(vec![table])
}

struct Measured {
    name: String,
    bytes: u64,
    median_ns: f64,
}

/// Finds every `new/` folder below `folder`; benches without a throughput in bytes are left out.
fn collect(folder: &Path, results: &mut Vec<Measured>) -> Result<()> {
    let told = |error| format!("cannot read {}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(told)? {
        let path: PathBuf = entry.map_err(told)?.path();
        if !path.is_dir() {
            continue;
        }
        if path.ends_with("new") {
            let benchmark = read_json(&path.join("benchmark.json"))?;
            let estimates = read_json(&path.join("estimates.json"))?;
            if let Some(bytes) = benchmark["throughput"]["Bytes"].as_u64() {
                results.push(Measured {
                    name: benchmark["full_id"].as_str().unwrap_or_default().to_owned(),
                    bytes,
                    median_ns: estimates["median"]["point_estimate"].as_f64().unwrap_or(f64::NAN),
                });
            }
        } else {
            collect(&path, results)?;
        }
    }
    Ok(())
}

fn read_json(path: &Path) -> Result<Value> {
    let bytes =
        fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criterion_s_files_become_rows() {
        let root = tempfile::tempdir().unwrap();
        for (name, throughput) in [("pq_avx2", "{\"Bytes\":1000}"), ("other", "null")] {
            let folder = root.path().join(name).join("new");
            fs::create_dir_all(&folder).unwrap();
            let benchmark = format!("{{\"full_id\":\"{name}\",\"throughput\":{throughput}}}");
            fs::write(folder.join("benchmark.json"), benchmark).unwrap();
            let estimates = "{\"median\":{\"point_estimate\":20.0}}";
            fs::write(folder.join("estimates.json"), estimates).unwrap();
        }
        let folder = root.path().to_string_lossy().into_owned();
        let tables = run(&["--criterion".to_owned(), folder]).unwrap();
        let rows = &tables[0].to_json()["rows"];
        assert_eq!(rows.as_array().unwrap().len(), 1);
        assert_eq!(rows[0]["GB/s"], serde_json::json!(50.0));
    }

    #[test]
    fn an_empty_folder_says_what_to_run() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().to_string_lossy().into_owned();
        let error = run(&["--criterion".to_owned(), folder]).unwrap_err();
        assert!(error.contains("cargo bench"), "{error}");
    }
}
