//! The settings of every case that calls the tools: where to work, how often, and which programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use pinstripe_base::units::parse_size;
use pinstripe_lab::Table;

use super::count;
use crate::Result;
use crate::child::{self, Cost};
use crate::tools::{Pinstripe, Restic};

/// One table of a case that has several.
pub struct Part<S: 'static> {
    /// Its name for `--only`.
    pub name: &'static str,
    /// Makes it.
    pub measure: fn(&S) -> Result<Table>,
}

/// The name of the part that `--only` says.
pub fn only<S>(parts: &[Part<S>], value: &str) -> Result<&'static str> {
    let part = parts.iter().find(|part| part.name == value);
    part.map(|part| part.name).ok_or_else(|| {
        let names: Vec<_> = parts.iter().map(|part| part.name).collect();
        format!("--only '{value}' is not one of {}", names.join(", "))
    })
}

/// Measures all parts, or the only one.
pub fn measure<S>(
    parts: &[Part<S>],
    only: Option<&'static str>,
    settings: &S,
) -> Result<Vec<Table>> {
    let wanted = |part: &&Part<S>| only.is_none_or(|only| only == part.name);
    parts.iter().filter(wanted).map(|part| (part.measure)(settings)).collect()
}

/// The value of `--size`, which is not zero.
pub fn size(value: &str) -> Result<u64> {
    let bytes = parse_size(value).map_err(|error| error.to_string())?;
    Some(bytes).filter(|bytes| *bytes > 0).ok_or_else(|| "--size is 0".to_owned())
}

/// The directories, the number of rounds and the programs.
pub struct Bench {
    /// The directory for stores, data and logs.
    pub work: PathBuf,
    /// Times that each thing is measured.
    pub rounds: usize,
    restic: PathBuf,
    pinstripe: PathBuf,
}

impl Bench {
    /// The defaults.
    pub fn new() -> Result<Bench> {
        let here = std::env::current_exe().map_err(|error| format!("who am I: {error}"))?;
        let beside = here.parent().unwrap_or(Path::new("."));
        Ok(Bench {
            // target/lab, next to target/release: on a disk, while the temporary directory may be
            // in memory.
            work: beside.parent().unwrap_or(beside).join("lab"),
            rounds: 3,
            restic: PathBuf::from("restic"),
            pinstripe: beside.join("pinstripe"),
        })
    }

    /// Takes `--work`, `--rounds`, `--restic` or `--pinstripe`.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "--work" => self.work = absolute(value)?,
            "--rounds" => self.rounds = count(name, value)? as usize,
            "--restic" => self.restic = PathBuf::from(value),
            "--pinstripe" => self.pinstripe = PathBuf::from(value),
            _ => return Err(format!("'{name}' is known and means nothing")),
        }
        Ok(())
    }

    /// restic, if it runs.
    pub fn restic(&self) -> Result<Restic> {
        Restic::find(&self.restic, &self.work)
    }

    /// pinstripe, if it is there.
    pub fn pinstripe(&self) -> Result<Pinstripe> {
        Pinstripe::find(&self.pinstripe, &self.work)
    }
}

/// Runs a command after all pending writes were synced, and prints its cost on standard error.
pub fn timed(mut command: Command, logs: &Path, name: &str) -> Result<Cost> {
    rustix::fs::sync();
    let cost = child::run(&mut command, logs, name)?;
    say(name, &cost);
    Ok(cost)
}

/// Says on standard error what a run cost.
pub fn say(name: &str, cost: &Cost) {
    let Cost { wall_s, cpu_s, .. } = cost;
    eprintln!("{name}: {wall_s:.2} s, {cpu_s:.2} s CPU, {:.0} MiB", mib(cost));
}

/// The most memory that it had, for people.
pub fn mib(cost: &Cost) -> f64 {
    cost.memory_bytes as f64 / f64::from(1 << 20)
}

/// A path that holds wherever the tools run.
pub fn absolute(path: &str) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| format!("{path}: {error}"))
}
