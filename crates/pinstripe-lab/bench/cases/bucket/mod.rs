//! Stores in buckets: a real S3 server behind a proxy that adds a round trip to each request.
//!
//! Both tools send to the same server through the same proxy, in the same run; they take turns. The
//! proxy counts requests, so both tools are counted alike. Restored data is compared with its
//! source, outside the measured time. Each figure is shown with its target, also if it misses the
//! target.

mod crowd;
mod providers;
mod rate;
mod sign;
mod stand;
mod tree;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use pinstripe_base::units::MIB;
use pinstripe_lab::Table;

use super::bench::{Bench, Part, absolute, measure, only, say, size};
use super::{count, pairs};
use crate::Result;
use crate::trees;

/// The purpose of the case, and its arguments.
pub const ABOUT: &str = "stores in buckets against restic, versitygw behind a proxy: --work DIR (10 GB free), \
                         --only tree|rate|watch|providers|hosts, --source TREE, --delays MS,MS.., --size SIZE, \
                         --wait SECONDS, --rounds N, --short yes, --restic FILE, --pinstripe FILE";

const PARTS: &[Part<Settings>] = &[
    Part { name: "tree", measure: tree::measure },
    Part { name: "rate", measure: rate::measure },
    Part { name: "watch", measure: watch::measure },
    Part { name: "providers", measure: providers::measure },
    Part { name: "hosts", measure: crowd::measure },
];

/// Measures all, or what `--only` names.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let settings = Settings::read(args)?;
    measure(PARTS, settings.only, &settings)
}

struct Settings {
    bench: Bench,
    only: Option<&'static str>,
    source: Option<PathBuf>,
    /// Round trips that the proxy adds.
    delays: Vec<Duration>,
    /// Bytes of what is made for the parts that need no tree.
    bytes: u64,
    /// How long a backup waits while its listings are counted.
    wait: Duration,
    /// Small data and few figures: whether all of it works, not how fast.
    is_short: bool,
}

impl Settings {
    fn read(args: &[String]) -> Result<Settings> {
        let mut settings = Settings {
            bench: Bench::new()?,
            only: None,
            source: None,
            delays: [0, 30, 80].map(Duration::from_millis).to_vec(),
            bytes: 256 * MIB,
            wait: Duration::from_secs(600),
            is_short: false,
        };
        settings.bench.rounds = 1;
        let known = [
            "--work",
            "--only",
            "--source",
            "--delays",
            "--size",
            "--wait",
            "--rounds",
            "--short",
            "--restic",
            "--pinstripe",
        ];
        for (name, value) in pairs(args, &known)? {
            match name {
                "--only" => settings.only = Some(only(PARTS, value)?),
                "--source" => settings.source = Some(absolute(value)?),
                "--delays" => settings.delays = delays(value)?,
                "--size" => settings.bytes = size(value)?,
                "--wait" => settings.wait = Duration::from_secs(count(name, value)?),
                "--short" if value == "yes" => settings.shorten(),
                "--short" => return Err(format!("--short: '{value}' is not yes")),
                _ => settings.bench.set(name, value)?,
            }
        }
        settings.bench.work.push("bucket");
        Ok(settings)
    }

    fn shorten(&mut self) {
        self.is_short = true;
        (self.bytes, self.wait) = (4 * MIB, Duration::from_secs(3));
        self.delays = [0, 5].map(Duration::from_millis).to_vec();
    }

    /// The tree that is backed up: Debian's kernel sources, what was named, or a small one.
    fn tree(&self) -> Result<PathBuf> {
        match &self.source {
            Some(source) => Ok(source.clone()),
            None if self.is_short => {
                let tree = crate::content::make_small_files(&self.bench.work, 200, 3000)?;
                Ok(tree)
            }
            None => {
                std::fs::create_dir_all(self.bench.work.join("logs")).map_err(|e| e.to_string())?;
                trees::kernel_source(&self.bench.work)
            }
        }
    }
}

fn delays(value: &str) -> Result<Vec<Duration>> {
    let millis = |it: &str| it.parse().map(Duration::from_millis).map_err(|_| it.to_owned());
    let delays: std::result::Result<Vec<_>, String> = value.split(',').map(millis).collect();
    delays.map_err(|it| format!("--delays: '{it}' is no number of milliseconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings> {
        Settings::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn settings_are_read_and_wrong_ones_named() {
        let settings = read("").unwrap();
        assert_eq!((settings.only, settings.delays.len(), settings.is_short), (None, 3, false));
        let settings = read("--only watch --delays 1,200 --wait 5").unwrap();
        assert_eq!(settings.only, Some("watch"));
        assert_eq!(settings.delays, [1, 200].map(Duration::from_millis));
        assert!(read("--short yes").unwrap().is_short);
        for wrong in ["--only big", "--delays 1,x", "--wait 0", "--short no", "--size 0"] {
            let value = wrong.split([' ', ',']).next_back().unwrap_or_default();
            assert!(read(wrong).err().unwrap().contains(value), "{wrong}");
        }
    }

    /// Every part, on little data: that all of it works, and each goal has its row.
    #[test]
    fn all_parts_measure_something() {
        let test = "all_parts_measure_something";
        let program = std::env::current_exe().unwrap();
        let program = program.ancestors().nth(2).unwrap().join("pinstripe");
        if !program.exists() {
            return pinstripe_testing::skipped(test, "the program 'pinstripe' was not built");
        }
        if !stand::has_server() {
            return pinstripe_testing::not_installed(test, "versitygw");
        }
        let work = tempfile::tempdir().unwrap();
        let text = format!(
            "--short yes --work {} --pinstripe {}",
            work.path().display(),
            program.display()
        );
        let args: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let tables = run(&args).unwrap();
        let text: String = tables.iter().map(Table::to_text).collect();
        for goal in [
            "first backup",
            "requests beside packs",
            "unchanged backup",
            "full restore",
            "ls latest, cold",
            "bare loop of GETs",
            "LISTs in an hour",
            "one of them 200 ms and one dead",
            "four hosts",
            "peak memory",
        ] {
            assert!(text.contains(goal), "no row for '{goal}':\n{text}");
        }
        assert!(text.contains("reached"), "{text}");
    }
}
