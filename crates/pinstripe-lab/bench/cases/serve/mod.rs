//! A store behind a server: many hosts at once, one host far away, and restic with `rclone serve
//! restic` on the same data.
//!
//! All traffic is on the loopback, over TLS. Restored data is compared with its source, outside the
//! measured time. Each figure is shown with its target, also if it misses the target.

mod crowd;
mod link;
mod page;
mod stand;
mod trips;
mod versus;

use std::path::PathBuf;
use std::time::Duration;

use pinstripe_base::units::MIB;
use pinstripe_lab::Table;

use super::bench::{Bench, Part, absolute, measure, only, size};
use super::{count, pairs};
use crate::Result;
use crate::trees;

/// The purpose of the case, and its arguments.
pub const ABOUT: &str = "a store behind a server against restic with rclone: --work DIR, \
                         --only crowd|trips|page|versus, --source TREE, --hosts N, --size SIZE of each host, \
                         --delay MS of a round trip, --snapshots N, --rounds N, --short yes, --restic FILE, \
                         --pinstripe FILE";

const PARTS: &[Part<Settings>] = &[
    Part { name: "crowd", measure: crowd::measure },
    Part { name: "trips", measure: trips::measure },
    Part { name: "page", measure: page::measure },
    Part { name: "versus", measure: versus::measure },
];

/// Measures all, or what `--only` names.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let settings = Settings::read(args)?;
    std::fs::create_dir_all(settings.bench.work.join("logs")).map_err(|it| it.to_string())?;
    measure(PARTS, settings.only, &settings)
}

struct Settings {
    bench: Bench,
    only: Option<&'static str>,
    source: Option<PathBuf>,
    /// Hosts that back up at once.
    hosts: u64,
    /// Bytes of new data of each host.
    bytes: u64,
    /// The round trip of the host that is far away.
    delay: Duration,
    /// Snapshots of all hosts together, for the page.
    snapshots: u64,
    is_short: bool,
}

impl Settings {
    fn read(args: &[String]) -> Result<Settings> {
        let mut settings = Settings {
            bench: Bench::new()?,
            only: None,
            source: None,
            hosts: 40,
            bytes: 1024 * MIB,
            delay: Duration::from_millis(100),
            snapshots: 4000,
            is_short: false,
        };
        settings.bench.rounds = 1;
        let known = [
            "--work",
            "--only",
            "--source",
            "--hosts",
            "--size",
            "--delay",
            "--snapshots",
            "--rounds",
            "--short",
            "--restic",
            "--pinstripe",
        ];
        for (name, value) in pairs(args, &known)? {
            match name {
                "--only" => settings.only = Some(only(PARTS, value)?),
                "--source" => settings.source = Some(absolute(value)?),
                "--hosts" => settings.hosts = count(name, value)?,
                "--size" => settings.bytes = size(value)?,
                "--delay" => settings.delay = Duration::from_millis(count(name, value)?),
                "--snapshots" => settings.snapshots = count(name, value)?,
                "--short" if value == "yes" => settings.shorten(),
                "--short" => return Err(format!("--short: '{value}' is not yes")),
                _ => settings.bench.set(name, value)?,
            }
        }
        settings.bench.work.push("serve");
        Ok(settings)
    }

    fn shorten(&mut self) {
        self.is_short = true;
        (self.hosts, self.bytes, self.snapshots) = (3, 4 * MIB, 12);
        self.delay = Duration::from_millis(5);
    }

    /// The tree of many files: Debian's kernel sources, what was named, or a small one.
    fn tree(&self) -> Result<PathBuf> {
        match &self.source {
            Some(source) => Ok(source.clone()),
            None if self.is_short => crate::content::make_small_files(&self.bench.work, 200, 3000),
            None => trees::kernel_source(&self.bench.work),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_wrong_ones_named() {
        let read = |text: &str| {
            Settings::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let settings = read("").unwrap();
        assert_eq!((settings.hosts, settings.bytes, settings.only), (40, 1024 * MIB, None));
        let settings = read("--only trips --delay 20 --hosts 7").unwrap();
        assert_eq!((settings.only, settings.hosts), (Some("trips"), 7));
        assert_eq!(settings.delay, Duration::from_millis(20));
        for wrong in ["--only big", "--hosts 0", "--delay x", "--short no", "--size 0"] {
            let value = wrong.split(' ').next_back().unwrap_or_default();
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
        if std::process::Command::new("curl").arg("--version").output().is_err() {
            return pinstripe_testing::not_installed(test, "curl");
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
            "all hosts at once / one host",
            "most memory of the server",
            "short requests meanwhile",
            "share of the link",
            "unchanged backup, requests",
            "restore of one file",
            "first byte of the page",
        ] {
            assert!(text.contains(goal), "no row for '{goal}':\n{text}");
        }
    }
}
