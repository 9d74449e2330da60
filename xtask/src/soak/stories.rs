//! Plays the stories in release mode, each seed once, with as many processes as there are
//! processors; each process plays one story at a time.

use std::io::Read;
use std::process::{Child, Stdio};
use std::thread;

use super::range;
use crate::workspace::{Result, cargo, root_folder, succeeds};

/// The names of the counts in the last line of each process.
const COUNTED: [&str; 4] = ["seeds", "calls", "choices", "orders"];

/// Plays the requested seeds; returns false if one failed.
pub fn run(args: &[String]) -> Result<bool> {
    let (from, to) = range(args)?;
    println!("stories with seeds {from} to {}", to - 1);
    let mut build = cargo();
    build.args(["test", "--release", "--package", "pinstripe", "--test", "stories", "--no-run"]);
    if !succeeds(build.current_dir(root_folder()?))? {
        return Ok(false);
    }
    let processes = thread::available_parallelism().map_or(1, usize::from) as u64;
    let started: Vec<Child> =
        shares(from, to, processes).map(|(from, to)| start(from, to)).collect::<Result<_>>()?;
    let (mut all_well, mut totals) = (true, [0; COUNTED.len()]);
    for mut child in started {
        let mut said = String::new();
        let out = child.stdout.as_mut().ok_or("a process without output")?;
        out.read_to_string(&mut said).map_err(|error| error.to_string())?;
        all_well &= child.wait().map_err(|error| error.to_string())?.success();
        let counted = said.lines().filter_map(counts).next_back().unwrap_or_default();
        totals.iter_mut().zip(counted).for_each(|(total, count)| *total += count);
    }
    let told: Vec<String> = totals.iter().zip(COUNTED).map(|(n, of)| format!("{n} {of}")).collect();
    println!("stories in all: {}", told.join(", "));
    Ok(all_well)
}

/// The seeds of each process: the first one, and the one after the last.
fn shares(from: u64, to: u64, processes: u64) -> impl Iterator<Item = (u64, u64)> {
    let edge = move |at: u64| {
        from + (u128::from(to - from) * u128::from(at) / u128::from(processes)) as u64
    };
    (0..processes).map(move |at| (edge(at), edge(at + 1))).filter(|(from, to)| from < to)
}

fn start(from: u64, to: u64) -> Result<Child> {
    let mut test = cargo();
    test.args(["test", "--release", "--quiet", "--package", "pinstripe", "--test", "stories"]);
    test.args(["--", "--nocapture", "every_story_ends_well"]);
    test.env("PINSTRIPE_STORY_SEEDS", format!("{from}..{to}")).stdout(Stdio::piped());
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        test.env("RUST_BACKTRACE", "0");
    }
    test.current_dir(root_folder()?).spawn().map_err(|error| format!("cannot run cargo: {error}"))
}

/// Parses the counts in the last line of a process.
fn counts(line: &str) -> Option<[u64; COUNTED.len()]> {
    let mut words = line.strip_prefix("stories: ")?.split(", ");
    let mut counts = [0; COUNTED.len()];
    for (count, of) in counts.iter_mut().zip(COUNTED) {
        *count = words.next()?.strip_suffix(of)?.trim_end().parse().ok()?;
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_has_one_process() {
        let shares = |from, to, processes| super::shares(from, to, processes).collect::<Vec<_>>();
        assert_eq!(shares(5, 10, 2), [(5, 7), (7, 10)]);
        assert_eq!(shares(0, 1, 4), [(0, 1)]);
    }

    #[test]
    fn counts_are_read_from_the_last_line() {
        let line = "stories: 20 seeds, 301725 calls, 57224 choices, 19 orders, 7 s";
        assert_eq!(counts(line), Some([20, 301_725, 57_224, 19]));
        assert_eq!(counts("stories: 500 of 1000 seeds, 3.0 ms each, 0 min left"), None);
    }
}
