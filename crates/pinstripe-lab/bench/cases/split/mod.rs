//! `split`, `join` and `verify`: compared with the disk under them, with outputs of unequal speed,
//! and with the program that they replace.
//!
//! Sources are generated in memory, so that no disk is read; every run ends when its outputs are
//! durable, and outputs are removed between runs. Compared variants take turns in one run. All
//! outputs are below `--work`, one directory each, on one disk.

mod join;
mod memory;
mod post;
mod queue;
mod raw;
mod table;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use pinstripe_base::units::GIB;
use pinstripe_lab::{Table, file_system};

use super::bench::{Bench, Part, absolute, measure, mib, only, size, timed};
use super::pairs;
use crate::Result;
use crate::child::Cost;
use crate::tools::Pinstripe;
use crate::trees;

/// The purpose of the case, and its arguments.
pub const ABOUT: &str = "split, join, verify against the disk and fio: --work DIR, --size SIZE \
                         (twice that free), --only raw|queue|memory|table|join, --rounds N, \
                         --fio FILE, --pinstripe FILE";

const PARTS: &[Part<Settings>] = &[
    Part { name: "raw", measure: raw::measure },
    Part { name: "queue", measure: queue::measure },
    Part { name: "memory", measure: memory::measure },
    Part { name: "table", measure: table::measure },
    Part { name: "join", measure: join::measure },
];

/// Measures all, or what `--only` names.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let settings = Settings::read(args)?;
    let tables = measure(PARTS, settings.only, &settings);
    trees::remove(&settings.outputs())?;
    tables
}

struct Settings {
    bench: Bench,
    only: Option<&'static str>,
    /// The bytes of each source.
    bytes: u64,
    fio: PathBuf,
}

impl Settings {
    fn read(args: &[String]) -> Result<Settings> {
        let (bench, fio) = (Bench::new()?, PathBuf::from("fio"));
        let mut settings = Settings { bench, only: None, bytes: 4 * GIB, fio };
        let known = ["--work", "--only", "--rounds", "--size", "--fio", "--pinstripe"];
        for (name, value) in pairs(args, &known)? {
            match name {
                "--only" => settings.only = Some(only(PARTS, value)?),
                "--size" => settings.bytes = size(value)?,
                "--fio" => settings.fio = absolute(value)?,
                _ => settings.bench.set(name, value)?,
            }
        }
        settings.bench.work.push("split");
        Ok(settings)
    }

    /// The directories of the outputs.
    fn outputs(&self) -> PathBuf {
        self.bench.work.join("outputs")
    }

    /// Empty directories, one for each output.
    fn fresh(&self, count: usize) -> Result<Vec<PathBuf>> {
        trees::remove(&self.outputs())?;
        let folder = |number: usize| {
            let folder = self.outputs().join(number.to_string());
            let told = |error| format!("cannot make {}: {error}", folder.display());
            fs::create_dir_all(&folder).map_err(told).map(|()| folder)
        };
        (0..count).map(folder).collect()
    }

    /// Splits `source` over this many new outputs.
    fn split(&self, tool: &Pinstripe, source: &str, outputs: usize, args: &[&str]) -> Result<Run> {
        let folders = self.fresh(outputs)?;
        let mut command = tool.bare("split");
        command.args(["--json", source]).args(folders).args(args);
        self.timed(command, tool, &format!("split-{outputs}-{}", args.join("-")))
    }

    /// Runs what moves the whole source.
    fn timed(&self, command: Command, tool: &Pinstripe, name: &str) -> Result<Run> {
        let cost = timed(command, &tool.logs, &name.replace('/', "_"))?;
        Ok(Run { bytes: self.bytes as f64, cost })
    }

    /// A source of random bytes.
    fn random(&self) -> String {
        format!("fake:{}", self.bytes)
    }

    /// The notes on every table.
    fn circumstances(&self) -> String {
        let rounds = self.bench.rounds;
        let system = file_system(&self.bench.work);
        format!("All outputs on one {system}; durable at the end; {rounds} rounds in turns.")
    }
}

/// The source moved once.
#[derive(Debug, Clone, Copy)]
struct Run {
    bytes: f64,
    cost: Cost,
}

impl Run {
    /// MB of the source per second.
    fn rate(&self) -> f64 {
        self.bytes / 1e6 / self.cost.wall_s
    }

    /// CPU seconds per GB of the source.
    fn cpu(&self) -> f64 {
        self.cost.cpu_s / (self.bytes / 1e9)
    }

    fn mib(&self) -> f64 {
        mib(&self.cost)
    }
}

/// Measures each thing once a round, another one first in each; answers by thing.
fn in_turns<T, R>(
    rounds: usize,
    things: &[T],
    mut measure: impl FnMut(&T) -> Result<R>,
) -> Result<Vec<Vec<R>>> {
    let mut found: Vec<Vec<R>> = things.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        for turn in 0..things.len() {
            let which = (round + turn) % things.len();
            found[which].push(measure(&things[which])?);
        }
    }
    Ok(found)
}

/// The figures of each round, one by one, of two things.
fn ratios(ours: &[Run], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours.rate() / theirs).collect()
}

fn rates(runs: &[Run]) -> Vec<f64> {
    runs.iter().map(Run::rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_wrong_ones_named() {
        let read = |text: &str| {
            let args: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            Settings::read(&args).map(|settings| (settings.only, settings.bytes))
        };
        assert_eq!(read(""), Ok((None, 4 * GIB)));
        assert_eq!(read("--only join --size 1G"), Ok((Some("join"), GIB)));
        for wrong in ["--only all", "--size 0", "--restic x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn everything_has_its_turn_and_another_one_is_first() {
        let mut order = String::new();
        let found = in_turns(2, &['a', 'b'], |it| {
            order.push(*it);
            Ok(order.len())
        });
        assert_eq!(order, "abba");
        assert_eq!(found.unwrap(), [[1, 4], [2, 3]]);
    }

    #[test]
    fn a_run_is_told_by_byte_and_second() {
        let cost = Cost { wall_s: 2.0, cpu_s: 1.0, memory_bytes: 3 << 20 };
        let run = Run { bytes: 4e9, cost };
        assert_eq!((run.rate(), run.cpu(), run.mib()), (2000.0, 0.25, 3.0));
        assert_eq!(ratios(&[run], &[1000.0]), [2.0]);
    }
}
