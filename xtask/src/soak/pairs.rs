//! Runs pairs of verbs of a store. `cargo xtask soak pairs [--rounds N] [--seconds N] [--from S]`
//! runs the real command, two processes at a time; without a number of rounds, each ordered pair is
//! run once. `cargo xtask soak pairs --simulated [--seeds N] [--from S]` plays the pairs in the
//! simulator, each seed once, with as many processes as there are processors, and prints the table
//! of pairs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;
use std::thread;

use super::range;
use crate::workspace::{Result, Workspace, cargo, root_folder, succeeds};

/// The number of seeds that one process plays; it is limited because the trees of mounts stay in
/// memory as long as the process runs.
const SEEDS_OF_PROCESS: u64 = 2000;

/// Runs the requested pairs; returns false if something failed.
pub fn run(args: &[String]) -> Result<bool> {
    match args.split_first() {
        Some((word, rest)) if word == "--simulated" => simulated(rest),
        _ => real(args),
    }
}

/// The real command.
fn real(args: &[String]) -> Result<bool> {
    let mut test = cargo();
    test.args(["test", "--package", "pinstripe-cli", "--test", "cli", "--", "--nocapture"]);
    test.args(["--include-ignored", "pairs_soak::every_verb_beside_every_other_one"]);
    test.env("PINSTRIPE_SOAK_PAIRS", "1");
    let mut args = args.iter();
    while let Some(option) = args.next() {
        let variable = match option.as_str() {
            "--rounds" => "PINSTRIPE_SOAK_ROUNDS",
            "--seconds" => "PINSTRIPE_SOAK_SECONDS",
            "--from" => "PINSTRIPE_SOAK_FROM",
            other => {
                return Err(format!(
                    "--rounds N, --seconds N, --from S and --simulated are known here, not '{other}'"
                ));
            }
        };
        let number = args.next().ok_or_else(|| format!("{option} needs a number"))?;
        let _: u64 = number.parse().map_err(|_| format!("{option}: '{number}' is not a number"))?;
        test.env(variable, number);
    }
    succeeds(test.current_dir(root_folder()?))
}

/// The number of seeds and of calls of each pair.
type Pairs = BTreeMap<(String, String), (u64, u64)>;

fn simulated(args: &[String]) -> Result<bool> {
    let (from, to) = range(args)?;
    println!("pairs of verbs with seeds {from} to {}", to - 1);
    let mut build = cargo();
    build.args(["test", "--release", "--package", "pinstripe", "--test", "stories", "--no-run"]);
    if !succeeds(build.current_dir(root_folder()?))? {
        return Ok(false);
    }
    let folder = Workspace::load()?.target.join("pairs");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let shares: Vec<(u64, u64)> = (from..to)
        .step_by(SEEDS_OF_PROCESS as usize)
        .map(|begin| (begin, to.min(begin + SEEDS_OF_PROCESS)))
        .collect();
    let (next, done) = (Mutex::new(shares.into_iter()), Mutex::new((true, Pairs::new())));
    let processes = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for place in 0..processes {
            let (next, done, folder) = (&next, &done, &folder);
            scope.spawn(move || {
                loop {
                    let share = next.lock().expect("no panic").next();
                    let Some(share) = share else { break };
                    let is_well = play(share, place, folder);
                    let mut done = done.lock().expect("no panic");
                    done.0 &= is_well.is_ok_and(|it| it);
                    read(&table_of(folder, place), &mut done.1);
                }
            });
        }
    });
    let (is_well, pairs) = done.into_inner().expect("no panic");
    print!("{}", table(&pairs));
    Ok(is_well)
}

fn table_of(folder: &Path, place: usize) -> PathBuf {
    folder.join(format!("table-{place}"))
}

fn play((from, to): (u64, u64), place: usize, folder: &Path) -> Result<bool> {
    let mut test = cargo();
    test.args(["test", "--release", "--quiet", "--package", "pinstripe", "--test", "stories"]);
    test.args(["--", "--nocapture", "every_pair_of_verbs_ends_well"]);
    test.env("PINSTRIPE_PAIR_SEEDS", format!("{from}..{to}"));
    test.env("PINSTRIPE_PAIR_PLACE", place.to_string());
    test.env("PINSTRIPE_PAIR_TABLE", table_of(folder, place));
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        test.env("RUST_BACKTRACE", "0");
    }
    let mut child: Child = test
        .current_dir(root_folder()?)
        .spawn()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    Ok(child.wait().map_err(|error| error.to_string())?.success())
}

/// Adds the counts of a process: a line with two verbs, seeds and calls for each pair.
fn read(file: &Path, pairs: &mut Pairs) {
    let text = fs::read_to_string(file).unwrap_or_default();
    let _ = fs::remove_file(file);
    for line in text.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let [first, second, seeds, calls] = words[..] else { continue };
        let entry = pairs.entry((first.to_owned(), second.to_owned())).or_default();
        entry.0 += seeds.parse().unwrap_or(0);
        entry.1 += calls.parse().unwrap_or(0);
    }
}

/// One row for each verb that was begun first: its seeds and calls, the pair with the fewest seeds,
/// and how often the verb ran concurrently with each other verb.
fn table(pairs: &Pairs) -> String {
    let verbs: Vec<&String> = {
        let mut verbs: Vec<&String> = pairs.keys().map(|(first, _)| first).collect();
        verbs.dedup();
        verbs
    };
    let mut text = String::from("| began |");
    verbs.iter().enumerate().for_each(|(number, _)| {
        let _ = write!(text, " {} |", number + 1);
    });
    text += " 1000 calls |\n|---|";
    text += &"---:|".repeat(verbs.len() + 1);
    text += "\n";
    for (number, first) in verbs.iter().enumerate() {
        let _ = write!(text, "| {} {first} |", number + 1);
        let mut sum = 0;
        for second in &verbs {
            let (seeds, calls) =
                pairs.get(&((*first).clone(), (*second).clone())).copied().unwrap_or_default();
            sum += calls;
            let _ = write!(text, " {seeds} |");
        }
        let _ = writeln!(text, " {} |", sum / 1000);
    }
    let (seeds, calls) = pairs.values().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    let fewest = pairs.values().map(|it| it.0).min().unwrap_or(0);
    let _ = writeln!(
        text,
        "\n{} ordered pairs, {seeds} times, {calls} calls; each pair at least {fewest} times.",
        pairs.len()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_and_a_column_for_each_verb() {
        let mut pairs = Pairs::new();
        for (first, second, seeds, calls) in
            [("a", "a", 1, 1000), ("a", "b", 2, 1500), ("b", "a", 3, 500), ("b", "b", 0, 0)]
        {
            pairs.insert((first.to_owned(), second.to_owned()), (seeds, calls));
        }
        let text = table(&pairs);
        assert!(text.contains("| 1 a | 1 | 2 | 2 |\n| 2 b | 3 | 0 | 0 |\n"), "{text}");
        assert!(
            text.ends_with("4 ordered pairs, 6 times, 3000 calls; each pair at least 0 times.\n")
        );
    }
}
