//! Raw bytes past the page cache, against what fio writes into the same directories.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use pinstripe_lab::Table;

use super::{Run, Settings, in_turns, rates, ratios};
use crate::Result;
use crate::child;
use crate::targets::{Target, figure_row, figures};
use crate::tools::Pinstripe;

/// The least share of fio's rate, and the most CPU seconds per GB.
const SHARE: f64 = 0.95;
const CPU: f64 = 0.35;

const OUTPUTS: [usize; 2] = [2, 4];
const DEPTH: &str = "4";

pub fn measure(settings: &Settings) -> Result<Table> {
    let tool = settings.bench.pinstripe()?;
    let fio = version(settings);
    let note = format!(
        "split --codec raw --policy direct --depth {DEPTH} of random bytes, against fio (bs=4M, \
         iodepth={DEPTH}, libaio, direct=1, fallocate=none, end_fsync=1, one job per directory, its own \
         clock): {}. {}",
        fio.as_ref().map_or_else(|why| format!("skipped, {why}"), String::clone),
        settings.circumstances(),
    );
    let mut table = figures("Raw bytes, direct", note);
    for outputs in OUTPUTS {
        let things: &[bool] = if fio.is_ok() { &[true, false] } else { &[true] };
        let found = in_turns(settings.bench.rounds, things, |is_ours| match is_ours {
            true => ours(settings, &tool, outputs).map(|run| (run.rate(), Some(run))),
            false => theirs(settings, &tool, outputs).map(|rate| (rate, None)),
        })?;
        let ours: Vec<Run> = found[0].iter().filter_map(|(_, run)| *run).collect();
        let mut row = |what: &str, samples: &[f64], decimals, target| {
            let what = format!("{outputs} outputs: {what}");
            figure_row(&mut table, &what, samples, decimals, target);
        };
        row("split, MB/s", &rates(&ours), 0, Target::None);
        if let Some(theirs) = found.get(1) {
            let theirs: Vec<f64> = theirs.iter().map(|(rate, _)| *rate).collect();
            row("fio, MB/s", &theirs, 0, Target::None);
            row("split / fio", &ratios(&ours, &theirs), 2, Target::AtLeast(SHARE));
        }
        let cpu: Vec<f64> = ours.iter().map(Run::cpu).collect();
        row("split, CPU s per GB", &cpu, 2, Target::AtMost(CPU));
    }
    Ok(table)
}

fn ours(settings: &Settings, tool: &Pinstripe, outputs: usize) -> Result<Run> {
    let args = ["--codec", "raw", "--policy", "direct", "--depth", DEPTH];
    settings.split(tool, &settings.random(), outputs, &args)
}

/// fio's name and version, or why there is none.
fn version(settings: &Settings) -> Result<String> {
    let output = Command::new(&settings.fio).arg("--version").output();
    let output = output.map_err(|error| format!("{}: {error}", settings.fio.display()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{} does not run", settings.fio.display())),
    }
}

/// MB/s of the slowest job's time.
fn theirs(settings: &Settings, tool: &Pinstripe, outputs: usize) -> Result<f64> {
    let folders: Vec<PathBuf> = settings.fresh(outputs)?;
    let each = (settings.bytes / outputs as u64).next_multiple_of(4 << 20);
    let mut command = Command::new(&settings.fio);
    command.args(["--output-format=json", "--rw=write", "--bs=4M", "--ioengine=libaio"]);
    command.args(["--direct=1", "--end_fsync=1", "--fallocate=none", "--thread"]);
    command.args([format!("--iodepth={DEPTH}"), format!("--size={each}")]);
    for (number, folder) in folders.iter().enumerate() {
        command.arg(format!("--name=job{number}"));
        command.arg(format!("--directory={}", folder.display()));
    }
    rustix::fs::sync();
    child::run(&mut command, &tool.logs, "fio")?;
    let path = tool.logs.join("fio.out");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let slowest_ms =
        slowest(&text).ok_or_else(|| format!("{}: no job has a time", path.display()))?;
    let rate = (each * outputs as u64) as f64 / 1e3 / slowest_ms;
    eprintln!("fio: {outputs} outputs, {rate:.0} MB/s");
    Ok(rate)
}

/// The longest time of a job in milliseconds, in fio's JSON, which may have warnings in front.
fn slowest(text: &str) -> Option<f64> {
    let told: serde_json::Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let jobs = told.get("jobs")?.as_array()?;
    let times = jobs.iter().map(|job| job.get("write")?.get("runtime")?.as_f64());
    times.collect::<Option<Vec<f64>>>()?.into_iter().max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_job_is_found() {
        let text =
            "note: x\n{\"jobs\": [{\"write\": {\"runtime\": 5}}, {\"write\": {\"runtime\": 7}}]}";
        assert_eq!(slowest(text), Some(7.0));
        assert_eq!(slowest("{\"jobs\": [{}]}"), None);
        assert_eq!(slowest("no"), None);
    }
}
